//! The operating system.
//!
//! Owns: the calls to it, the values that they take and return, and the state that the system keeps
//! for this process. `calls` has the methods of `Platform`; the other files have one attempt at
//! each call.
//!
//! Invariant: the choice between `linux` and `fallback` is made here, and only once.
//!
//! May import: the vocabulary of `platform/mod.rs`, the recorder, the simulated machine,
//! `primitive`, `thread_cache`, and the planted bugs.

mod allocate;
mod anon_bytes;
mod anon_words;
mod at;
#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
mod btrfs;
mod cache;
mod calls;
mod environment;
#[cfg(not(all(target_os = "linux", not(atomic_mmap_portable))))]
mod fallback;
mod file;
mod file_system;
pub mod fork;
#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
mod linux;
pub mod membarrier;
mod name;
pub mod persistence_domain;
mod positioned;
mod rights;
pub mod signals;
mod stat;
mod table;
mod uuid;

#[cfg(not(all(target_os = "linux", not(atomic_mmap_portable))))]
use fallback as sys;
#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
use linux as sys;

pub use anon_bytes::ZeroedBytes;
pub use anon_words::ZeroedWords;
pub use cache::CacheIdentity;
pub use calls::OpenHow;
pub use environment::variable;
pub use file::File;
pub use file_system::FileSystem;
pub use name::{Folder, Name};
pub use stat::{FileStat, NO_TIME, UNMAPPED};
pub use sys::Mapping;
pub use table::Table;
