#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![deny(unsafe_code)]

mod empty;
mod failure;
#[allow(unsafe_code)]
mod ffi;
mod file;
mod journals;
mod locks;
mod main_file;
mod overlay;
mod pair;
mod registry;
mod settings;
mod spill;
mod stats;
mod vfs;

/// The name of the VFS: `file:x.db?vfs=atomic-mmap`.
pub const VFS_NAME: &str = "atomic-mmap";

pub use failure::{RegisterError, last_error};
#[cfg(feature = "linked")]
pub use ffi::{register, register_as_default};
