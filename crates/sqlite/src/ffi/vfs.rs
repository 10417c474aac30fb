//! `sqlite3_vfs`: the calls about names. Most go to the VFS below.

use super::abi::{DlSymbol, RawFile, RawVfs};
use super::api::Api;
use super::{caught, methods, report};
use crate::failure::Code;
use crate::vfs::{self, Opened, flag};
use std::ffi::{CStr, OsStr};
use std::os::raw::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// The target of `pAppData`. It is never freed.
pub struct App {
    pub api: Api,
    pub below: *mut RawVfs,
}

/// Returns what belongs to a VFS that `registration` has made.
///
/// # Safety
/// `vfs` is one.
unsafe fn app(vfs: *mut RawVfs) -> &'static App {
    // SAFETY: by the contract of this function; the data live for ever.
    unsafe { &*(*vfs).app_data.cast::<App>() }
}

/// # Safety
/// `name` is null or a string that lives as long as the result.
unsafe fn path<'n>(name: *const c_char) -> Option<&'n Path> {
    // SAFETY: by the contract of this function.
    (!name.is_null())
        .then(|| Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes())))
}

/// Makes a VFS that lies on `app.below`.
///
/// # Safety
/// `app.below` is a registered VFS.
pub unsafe fn make(name: &'static CStr, app: &'static App) -> RawVfs {
    let ours = size_of::<methods::Slot<u8>>() as c_int;
    // SAFETY: by the contract of this function.
    let below = unsafe { &*app.below };
    let has_int64 = below.version >= 2 && below.current_time_int64.is_some();
    RawVfs {
        version: 2,
        // Files of the VFS below lie in the same memory.
        file_size: below.file_size.max(ours),
        max_path_len: below.max_path_len,
        next: ptr::null_mut(),
        name: name.as_ptr(),
        app_data: ptr::from_ref(app).cast_mut().cast(),
        open,
        delete,
        access,
        full_path_name,
        dl_open,
        dl_error,
        dl_sym,
        dl_close,
        randomness,
        sleep,
        current_time,
        last_error,
        current_time_int64: has_int64.then_some(current_time_int64),
    }
}

unsafe extern "C" fn open(
    vfs: *mut RawVfs,
    name: *const c_char,
    file: *mut RawFile,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    caught(Code::CANTOPEN.0, || {
        // SAFETY: SQLite calls with one of our VFS, a name that lives as long as the file, and
        // memory of the size that the VFS asks for.
        unsafe {
            let app = app(vfs);
            // Without methods SQLite does not close a file that was not opened.
            (*file).methods = ptr::null();
            let opened = vfs::open(path(name), flags, |key| app.api.parameter(name, key));
            let mut granted = flags;
            match opened {
                Ok(Opened::Main(main)) => {
                    if main.is_read_only() {
                        granted = granted & !flag::READWRITE & !flag::CREATE | flag::READONLY;
                    }
                    methods::put(file, main, &app.api);
                }
                Ok(Opened::Journal(journal)) => methods::put(file, journal, &app.api),
                Ok(Opened::Below) => {
                    return ((*app.below).open)(app.below, name, file, flags, out_flags);
                }
                Err(failure) => return report(&app.api, failure),
            }
            if !out_flags.is_null() {
                *out_flags = granted;
            }
            Code::OK.0
        }
    })
}

unsafe extern "C" fn delete(vfs: *mut RawVfs, name: *const c_char, sync_dir: c_int) -> c_int {
    caught(Code::IOERR.0, || {
        // SAFETY: SQLite calls with one of our VFS and a name.
        let (app, path) = unsafe { (app(vfs), path(name)) };
        // SAFETY: a registered VFS.
        let below = || Code(unsafe { ((*app.below).delete)(app.below, name, sync_dir) });
        path.map_or_else(below, |path| vfs::delete(path, below)).0
    })
}

unsafe extern "C" fn access(
    vfs: *mut RawVfs,
    name: *const c_char,
    flags: c_int,
    result: *mut c_int,
) -> c_int {
    caught(Code::IOERR.0, || {
        // SAFETY: SQLite calls with one of our VFS, a name and a variable.
        unsafe {
            let app = app(vfs);
            match path(name).and_then(vfs::exists) {
                Some(exists) => {
                    *result = exists.into();
                    Code::OK.0
                }
                None => ((*app.below).access)(app.below, name, flags, result),
            }
        }
    })
}

unsafe extern "C" fn full_path_name(
    vfs: *mut RawVfs,
    name: *const c_char,
    len: c_int,
    to: *mut c_char,
) -> c_int {
    caught(Code::CANTOPEN.0, || {
        // SAFETY: SQLite calls with one of our VFS, a name, and `len` bytes for the result, which
        // the VFS below ends with a zero.
        unsafe {
            let app = app(vfs);
            let told = ((*app.below).full_path_name)(app.below, name, len, to);
            // The low byte is that of success, also for a name with links.
            if told & 0xFF != Code::OK.0 {
                return told;
            }
            let checked = path(name)
                .zip(path(to))
                .map_or(Ok(()), |(name, full)| vfs::check_links(name, full));
            checked.map_or_else(|failure| report(&app.api, failure), |()| told)
        }
    })
}

/// Defines entries that the VFS below answers.
macro_rules! below {
    ($($entry:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        unsafe extern "C" fn $entry(vfs: *mut RawVfs, $($argument: $kind),*) -> $result {
            // SAFETY: SQLite calls with one of our VFS, and arguments for any VFS.
            unsafe {
                let below = app(vfs).below;
                ((*below).$entry)(below, $($argument),*)
            }
        }
    )*};
}

below! {
    dl_open(name: *const c_char) -> *mut c_void;
    dl_error(len: c_int, to: *mut c_char) -> ();
    dl_sym(library: *mut c_void, symbol: *const c_char) -> DlSymbol;
    dl_close(library: *mut c_void) -> ();
    randomness(len: c_int, to: *mut c_char) -> c_int;
    sleep(microseconds: c_int) -> c_int;
    current_time(to: *mut f64) -> c_int;
    last_error(len: c_int, to: *mut c_char) -> c_int;
}

unsafe extern "C" fn current_time_int64(vfs: *mut RawVfs, to: *mut i64) -> c_int {
    // SAFETY: SQLite calls with one of our VFS and a variable. `make` has found the entry.
    unsafe {
        let below = app(vfs).below;
        (*below).current_time_int64.map_or(Code::ERROR.0, |entry| entry(below, to))
    }
}
