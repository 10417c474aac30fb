//! SQLite on atomic-mmap: each transaction is one atomic operation of the database's file, without
//! a journal on disk.
//!
//! The crate is a VFS, the part of SQLite that does its file access. A program registers it, and
//! names it when it opens a database:
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("x.db");
//! use rusqlite::{Connection, OpenFlags};
//!
//! atomic_mmap_sqlite::register()?;
//! let vfs = atomic_mmap_sqlite::VFS_NAME;
//! let db = Connection::open_with_flags_and_vfs(&path, OpenFlags::default(), vfs)?;
//! db.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate's README says what is promised, which parameters a URI takes, and what does not work.
//!
//! | module | holds |
//! |---|---|
//! | `vfs`, `main_file`, `journals` | what SQLite asks: names, databases, journals in memory |
//! | `overlay`, `spill`, `empty` | the pages of a transaction; bytes beyond a budget of memory |
//! | `versions` | earlier versions of a file, for readers |
//! | `registry`, `pair`, `locks` | the files that connections share, and their lock levels |
//! | `settings`, `stats`, `failure` | parameters, counters, result codes |
//! | `file`, `ffi` | files in safe terms; all `unsafe` code |
#![warn(missing_docs)]
#![deny(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("atomic-mmap-sqlite needs the locks of open file descriptions, as Linux has them");

/// The examples of the README, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod empty;
mod failure;
#[allow(unsafe_code)]
mod ffi;
mod file;
mod header;
mod journals;
mod locks;
mod main_file;
mod overlay;
mod pair;
mod registry;
mod settings;
mod spill;
mod stats;
mod versions;
mod vfs;

/// The name of the VFS: `file:x.db?vfs=atomic-mmap`.
pub const VFS_NAME: &str = "atomic-mmap";

pub use failure::{RegisterError, last_error};
#[cfg(feature = "linked")]
pub use ffi::{register, register_as_default};
