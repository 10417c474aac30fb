//! Registering the VFS with a copy of SQLite.

use super::api::Api;
use super::vfs::{self, App};
use crate::failure::{Code, RegisterError};
use std::os::raw::c_int;
use std::ptr;

/// [`crate::VFS_NAME`], for SQLite.
const NAME: &std::ffi::CStr = c"atomic-mmap";

/// Registers the VFS, once for each copy of SQLite. It stays for the life of the process.
pub fn register_with(api: Api, is_default: bool) -> Result<(), RegisterError> {
    // SAFETY: SQLite's own functions, with names that end with a zero. A VFS that was found stays
    // registered, unless its owner breaks SQLite's rules; ours is leaked.
    unsafe {
        let known = (api.find)(NAME.as_ptr());
        if !known.is_null() {
            return if is_default { result((api.register)(known, 1)) } else { Ok(()) };
        }
        let below = (api.find)(ptr::null());
        if below.is_null() {
            return Err(RegisterError::Refused { code: Code::ERROR.0 });
        }
        let app = Box::leak(Box::new(App { api, below }));
        let vfs = Box::leak(Box::new(vfs::make(NAME, app)));
        result((api.register)(vfs, is_default.into()))
    }
}

fn result(code: c_int) -> Result<(), RegisterError> {
    if code == Code::OK.0 { Ok(()) } else { Err(RegisterError::Refused { code }) }
}

/// Registers the VFS with the SQLite that the program links, by libsqlite3-sys.
///
/// A database is on it if it is opened with [`VFS_NAME`](crate::VFS_NAME), by the URI
/// `file:x.db?vfs=atomic-mmap` or by rusqlite's `Connection::open_with_flags_and_vfs`. More calls
/// do nothing.
///
/// # Errors
/// [`RegisterError::TooOld`], [`RegisterError::Refused`].
#[cfg(feature = "linked")]
pub fn register() -> Result<(), RegisterError> {
    register_with(Api::linked()?, false)
}

/// Registers the VFS as [`register`] does, and makes it the default: every database of the process
/// that names no VFS is on it.
///
/// # Errors
/// Those of [`register`].
#[cfg(feature = "linked")]
pub fn register_as_default() -> Result<(), RegisterError> {
    register_with(Api::linked()?, true)
}
