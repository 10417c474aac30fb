//! The functions of SQLite that the VFS calls.
//!
//! A program that links SQLite gives them by name, and an extension's loader as a table. Each VFS
//! keeps its own: a process may have two copies of SQLite.

use super::abi::RawVfs;
use crate::failure::RegisterError;
use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_int, c_void};

pub type Find = unsafe extern "C" fn(*const c_char) -> *mut RawVfs;
pub type Register = unsafe extern "C" fn(*mut RawVfs, c_int) -> c_int;
pub type UriParameter = unsafe extern "C" fn(*const c_char, *const c_char) -> *const c_char;
pub type Malloc = unsafe extern "C" fn(c_int) -> *mut c_void;
pub type Log = unsafe extern "C" fn(c_int, *const c_char, ...);
pub type Version = unsafe extern "C" fn() -> c_int;

/// SQLite 3.37.
const OLDEST: c_int = 3_037_000;

/// Functions of one copy of SQLite.
#[derive(Clone, Copy)]
pub struct Api {
    pub find: Find,
    pub register: Register,
    pub uri_parameter: UriParameter,
    pub malloc: Malloc,
    pub log: Log,
}

/// Places in `sqlite3_api_routines`, which only ever grows at its end.
pub(super) mod place {
    pub const VERSION: usize = 67;
    pub const MALLOC: usize = 68;
    pub const RESULT_TEXT: usize = 85;
    pub const FIND: usize = 141;
    pub const REGISTER: usize = 142;
    pub const CREATE_FUNCTION_V2: usize = 162;
    pub const LOG: usize = 167;
    pub const URI_PARAMETER: usize = 189;
}

/// `sqlite3_api_routines`: the table of SQLite's functions that an extension is given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Routines(*const *const c_void);

// SAFETY: the table is constant, and part of a library that stays loaded.
unsafe impl Send for Routines {}
// SAFETY: as above.
unsafe impl Sync for Routines {}

pub type Function = unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_void);
pub type CreateFunction = unsafe extern "C" fn(
    *mut c_void,
    *const c_char,
    c_int,
    c_int,
    *mut c_void,
    Option<Function>,
    Option<Function>,
    Option<unsafe extern "C" fn(*mut c_void)>,
    Option<unsafe extern "C" fn(*mut c_void)>,
) -> c_int;
/// The last argument is a destructor, or [`TRANSIENT`].
pub type ResultText = unsafe extern "C" fn(*mut c_void, *const c_char, c_int, isize);

/// `SQLITE_TRANSIENT`: SQLite copies the text.
pub const TRANSIENT: isize = -1;

/// Returns a copy of `text` in memory of SQLite. Null without memory.
fn copy_by(malloc: Malloc, text: &str) -> *mut c_char {
    let Ok(len) = c_int::try_from(text.len() + 1) else { return std::ptr::null_mut() };
    // SAFETY: the allocation is null or has `len` bytes, which are all written.
    unsafe {
        let copy = malloc(len).cast::<u8>();
        if !copy.is_null() {
            copy.copy_from_nonoverlapping(text.as_ptr(), text.len());
            copy.add(text.len()).write(0);
        }
        copy.cast()
    }
}

impl Routines {
    /// # Safety
    /// `table` is SQLite's table of functions.
    pub unsafe fn new(table: *const c_void) -> Self {
        Routines(table.cast())
    }

    /// # Safety
    /// `F` is the type of the function at `place`, which SQLite 3.37 has.
    unsafe fn get<F: Copy>(self, place: usize) -> F {
        // SAFETY: the table has this function, by the contracts of `new` and of this function. A
        // function pointer has the size of a data pointer on all systems with SQLite extensions.
        unsafe { *self.0.add(place).cast::<F>() }
    }

    /// Returns SQLite's functions, unless it is too old to have all of them.
    pub fn api(self) -> Result<Api, RegisterError> {
        // SAFETY: the places and types are those of sqlite3ext.h. The version is checked before the
        // functions that came later are taken; `sqlite3_libversion_number` has no precondition.
        unsafe {
            let version: Version = self.get(place::VERSION);
            let version = version();
            if version < OLDEST {
                return Err(RegisterError::TooOld { version });
            }
            Ok(Api {
                find: self.get(place::FIND),
                register: self.get(place::REGISTER),
                uri_parameter: self.get(place::URI_PARAMETER),
                malloc: self.get(place::MALLOC),
                log: self.get(place::LOG),
            })
        }
    }

    /// Returns a copy of `text` that SQLite frees, also where SQLite is too old for all the rest.
    pub fn copy(self, text: &str) -> *mut c_char {
        // SAFETY: the place and type are those of sqlite3ext.h, from SQLite 3.3.13 on.
        copy_by(unsafe { self.get(place::MALLOC) }, text)
    }

    pub fn create_function(self) -> CreateFunction {
        // SAFETY: the place and type are those of sqlite3ext.h.
        unsafe { self.get(place::CREATE_FUNCTION_V2) }
    }

    pub fn result_text(self) -> ResultText {
        // SAFETY: the place and type are those of sqlite3ext.h.
        unsafe { self.get(place::RESULT_TEXT) }
    }
}

#[cfg(feature = "linked")]
impl Api {
    /// Returns the functions of the SQLite that the program links.
    pub fn linked() -> Result<Self, RegisterError> {
        use libsqlite3_sys as linked;
        use std::mem::transmute;
        type Find = unsafe extern "C" fn(*const c_char) -> *mut linked::sqlite3_vfs;
        type Register = unsafe extern "C" fn(*mut linked::sqlite3_vfs, c_int) -> c_int;
        // SAFETY: `sqlite3_libversion_number` has no precondition.
        let version = unsafe { linked::sqlite3_libversion_number() };
        if version < OLDEST {
            return Err(RegisterError::TooOld { version });
        }
        // SAFETY: `RawVfs` is the structure `sqlite3_vfs`, as far as its version says.
        let (find, register) = unsafe {
            (
                transmute::<Find, self::Find>(linked::sqlite3_vfs_find),
                transmute::<Register, self::Register>(linked::sqlite3_vfs_register),
            )
        };
        Ok(Api {
            find,
            register,
            uri_parameter: linked::sqlite3_uri_parameter,
            malloc: linked::sqlite3_malloc,
            log: linked::sqlite3_log,
        })
    }
}

impl Api {
    /// Writes a message to SQLite's log.
    pub fn log(&self, code: c_int, message: &str) {
        let Ok(message) = CString::new(message) else { return };
        // SAFETY: the format takes one string, which ends with a zero.
        unsafe { (self.log)(code, c"atomic-mmap: %s".as_ptr(), message.as_ptr()) };
    }

    /// Returns a copy of `text` that SQLite frees. Null without memory.
    pub fn copy(&self, text: &str) -> *mut c_char {
        copy_by(self.malloc, text)
    }

    /// Returns the value of a parameter of a database's URI.
    ///
    /// # Safety
    /// `name` is the name of a database that SQLite has given to `xOpen`.
    pub unsafe fn parameter(&self, name: *const c_char, parameter: &str) -> Option<String> {
        let parameter = CString::new(parameter).ok()?;
        // SAFETY: by the contract of this function; the result is null or a string.
        let value = unsafe { (self.uri_parameter)(name, parameter.as_ptr()) };
        // SAFETY: the same string, which lives as long as `name`.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned())
    }
}
