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
        if let Err(error) = routines.api().and_then(|api| register_with(api, false)) {
            if !message.is_null() {
                // SAFETY: SQLite's variable. It frees the message.
                unsafe { *message = routines.copy(&error.to_string()) };
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

#[cfg(test)]
mod tests {
    use super::super::api::place;
    use super::*;
    use std::ffi::CStr;

    /// The version of a copy of SQLite that lacks a function which the VFS needs.
    unsafe extern "C" fn version() -> c_int {
        3_036_000
    }

    unsafe extern "C" fn malloc(len: c_int) -> *mut c_void {
        // SAFETY: a size.
        unsafe { libc::malloc(len as usize) }
    }

    #[test]
    fn a_copy_of_sqlite_that_is_too_old_is_told_so() {
        let mut table = [std::ptr::null::<c_void>(); place::RESULT_TEXT];
        table[place::VERSION] = version as *const c_void;
        table[place::MALLOC] = malloc as *const c_void;
        let mut message = std::ptr::null_mut();
        // SAFETY: the table has the functions that are called for this version.
        let code = unsafe {
            let table = table.as_ptr().cast();
            sqlite3_atomicmmapsqlite_init(std::ptr::null_mut(), &raw mut message, table)
        };
        assert_eq!(code, Code::ERROR.0);
        // SAFETY: the message that was just made.
        let said = unsafe { CStr::from_ptr(message) }.to_str().expect("UTF-8");
        assert!(said.contains("3036000 is too old") && said.contains("needs 3.37"), "{said}");
        // SAFETY: from `malloc` above, and not used any more.
        unsafe { libc::free(message.cast()) };
    }
}
