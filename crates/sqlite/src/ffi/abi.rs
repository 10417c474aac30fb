//! SQLite's structures for a VFS, as `sqlite3.h` has them since version 3.7.17.
//!
//! They are our own so that the extension needs neither SQLite's sources nor its library.

use std::os::raw::{c_char, c_int, c_void};

/// `sqlite3_file`: what every open file begins with.
#[repr(C)]
pub struct RawFile {
    pub methods: *const Methods,
}

/// `sqlite3_io_methods`, version 3.
#[repr(C)]
pub struct Methods {
    pub version: c_int,
    pub close: unsafe extern "C" fn(*mut RawFile) -> c_int,
    pub read: unsafe extern "C" fn(*mut RawFile, *mut c_void, c_int, i64) -> c_int,
    pub write: unsafe extern "C" fn(*mut RawFile, *const c_void, c_int, i64) -> c_int,
    pub truncate: unsafe extern "C" fn(*mut RawFile, i64) -> c_int,
    pub sync: unsafe extern "C" fn(*mut RawFile, c_int) -> c_int,
    pub file_size: unsafe extern "C" fn(*mut RawFile, *mut i64) -> c_int,
    pub lock: unsafe extern "C" fn(*mut RawFile, c_int) -> c_int,
    pub unlock: unsafe extern "C" fn(*mut RawFile, c_int) -> c_int,
    pub check_reserved_lock: unsafe extern "C" fn(*mut RawFile, *mut c_int) -> c_int,
    pub file_control: unsafe extern "C" fn(*mut RawFile, c_int, *mut c_void) -> c_int,
    pub sector_size: unsafe extern "C" fn(*mut RawFile) -> c_int,
    pub device_characteristics: unsafe extern "C" fn(*mut RawFile) -> c_int,
    /// Absent: so SQLite does not offer WAL mode.
    pub shm_map: Option<unsafe extern "C" fn()>,
    pub shm_lock: Option<unsafe extern "C" fn()>,
    pub shm_barrier: Option<unsafe extern "C" fn()>,
    pub shm_unmap: Option<unsafe extern "C" fn()>,
    pub fetch: unsafe extern "C" fn(*mut RawFile, i64, c_int, *mut *mut c_void) -> c_int,
    pub unfetch: unsafe extern "C" fn(*mut RawFile, i64, *mut c_void) -> c_int,
}

/// `sqlite3_vfs`, version 2.
#[repr(C)]
pub struct RawVfs {
    pub version: c_int,
    pub file_size: c_int,
    pub max_path_len: c_int,
    pub next: *mut RawVfs,
    pub name: *const c_char,
    pub app_data: *mut c_void,
    pub open:
        unsafe extern "C" fn(*mut RawVfs, *const c_char, *mut RawFile, c_int, *mut c_int) -> c_int,
    pub delete: unsafe extern "C" fn(*mut RawVfs, *const c_char, c_int) -> c_int,
    pub access: unsafe extern "C" fn(*mut RawVfs, *const c_char, c_int, *mut c_int) -> c_int,
    pub full_path_name:
        unsafe extern "C" fn(*mut RawVfs, *const c_char, c_int, *mut c_char) -> c_int,
    pub dl_open: unsafe extern "C" fn(*mut RawVfs, *const c_char) -> *mut c_void,
    pub dl_error: unsafe extern "C" fn(*mut RawVfs, c_int, *mut c_char),
    pub dl_sym: unsafe extern "C" fn(*mut RawVfs, *mut c_void, *const c_char) -> DlSymbol,
    pub dl_close: unsafe extern "C" fn(*mut RawVfs, *mut c_void),
    pub randomness: unsafe extern "C" fn(*mut RawVfs, c_int, *mut c_char) -> c_int,
    pub sleep: unsafe extern "C" fn(*mut RawVfs, c_int) -> c_int,
    pub current_time: unsafe extern "C" fn(*mut RawVfs, *mut f64) -> c_int,
    pub last_error: unsafe extern "C" fn(*mut RawVfs, c_int, *mut c_char) -> c_int,
    /// From version 2 on, and optional.
    pub current_time_int64: Option<unsafe extern "C" fn(*mut RawVfs, *mut i64) -> c_int>,
}

/// A function of an extension.
pub type DlSymbol = Option<unsafe extern "C" fn(*mut RawVfs, *mut c_void, *const c_char)>;

/// File controls that the VFS answers.
pub mod control {
    pub const LOCKSTATE: i32 = 1;
    pub const SIZE_HINT: i32 = 5;
    pub const OVERWRITE: i32 = 11;
    pub const VFSNAME: i32 = 12;
    pub const PRAGMA: i32 = 14;
    pub const MMAP_SIZE: i32 = 18;
    pub const HAS_MOVED: i32 = 20;
    pub const SYNC: i32 = 21;
    pub const COMMIT_PHASETWO: i32 = 22;
}

/// The device characteristic that a write changes no byte outside its range, even if power is lost.
pub const POWERSAFE_OVERWRITE: c_int = 0x1000;
/// The device characteristic that parts of a page may be read.
pub const SUBPAGE_READ: c_int = 0x8000;

/// The result of an extension's entry point that keeps the library loaded for good.
pub const OK_LOAD_PERMANENTLY: c_int = 256;
