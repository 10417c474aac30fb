//! The entry point of the loadable extension.
//!
//! SQLite finds it by the name of the library, `libatomic_mmap_sqlite.so`.

use super::abi::OK_LOAD_PERMANENTLY;
use super::api::{Routines, TRANSIENT};
use super::caught;
use super::registration::register_with;
use crate::failure::{Code, last_error};
use std::os::raw::{c_char, c_int, c_void};
use std::sync::OnceLock;

/// UTF-8, and not to be used in triggers and views.
const FLAGS: c_int = 1 | 0x8_0000;

/// The first copy of SQLite that has loaded the extension. It alone gets `atomic_mmap_error()`: the
/// function could not tell which copy calls it.
static FIRST: OnceLock<Routines> = OnceLock::new();

/// Registers the VFS with the SQLite that loads the extension, and defines `atomic_mmap_error()` on
/// the connection that does.
///
/// # Safety
/// Only SQLite calls it, as the entry point of an extension.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_atomicmmapsqlite_init(
    connection: *mut c_void,
    message: *mut *mut c_char,
    routines: *const c_void,
) -> c_int {
    caught(Code::ERROR.0, || {
        // SAFETY: the loader gives its table of functions.
        let routines = unsafe { Routines::new(routines) };
        let api = match routines.api() {
            Ok(api) => api,
            // Too old for the function that would copy a message.
            Err(_) => return Code::ERROR.0,
        };
        if let Err(error) = register_with(api, false) {
            if !message.is_null() {
                // SAFETY: SQLite's variable. It frees the message.
                unsafe { *message = api.copy(&error.to_string()) };
            }
            return Code::ERROR.0;
        }
        if *FIRST.get_or_init(|| routines) != routines {
            return OK_LOAD_PERMANENTLY;
        }
        let (create, name) = (routines.create_function(), c"atomic_mmap_error".as_ptr());
        let (no_data, function) = (std::ptr::null_mut(), Some(error_function as _));
        // SAFETY: the connection that loads the extension, and a name.
        let code =
            unsafe { create(connection, name, 0, FLAGS, no_data, function, None, None, None) };
        if code == Code::OK.0 { OK_LOAD_PERMANENTLY } else { code }
    })
}

/// `atomic_mmap_error()`: the message of the last call that the VFS has failed, or null.
unsafe extern "C" fn error_function(context: *mut c_void, _: c_int, _: *mut *mut c_void) {
    caught((), || {
        let (Some(message), Some(routines)) = (last_error(), FIRST.get()) else { return };
        let Ok(len) = c_int::try_from(message.len()) else { return };
        // SAFETY: a context of the copy of SQLite in `FIRST`, which copies the text.
        unsafe { (routines.result_text())(context, message.as_ptr().cast(), len, TRANSIENT) };
    });
}
