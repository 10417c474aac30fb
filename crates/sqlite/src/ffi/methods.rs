//! `sqlite3_io_methods` for the files of this crate.

use super::abi::{self, Methods, RawFile, control};
use super::api::Api;
use super::{caught, report};
use crate::VFS_NAME;
use crate::failure::{Code, Failure, Result};
use crate::file::File;
use crate::locks::Level;
use crate::main_file::MainFile;
use std::borrow::Cow;
use std::ffi::CStr;
use std::os::raw::{c_char, c_int, c_void};
use std::slice;

/// The memory that SQLite keeps for an open file of type `T`.
#[repr(C)]
pub struct Slot<T> {
    raw: RawFile,
    file: *mut T,
    api: &'static Api,
}

/// Puts an open file into SQLite's memory.
///
/// # Safety
/// `raw` points to at least the size of a [`Slot`], which no file uses.
pub unsafe fn put<T: File>(raw: *mut RawFile, file: Box<T>, api: &'static Api) {
    let file = Box::into_raw(file);
    let slot = Slot { raw: RawFile { methods: Table::<T>::METHODS }, file, api };
    // SAFETY: by the contract of this function. SQLite aligns files for any type.
    unsafe { raw.cast::<Slot<T>>().write(slot) };
}

/// Calls `act` with the file of `raw`, and passes its failure on.
///
/// # Safety
/// [`put`] has filled `raw` with a `T`, and no other call uses it.
unsafe fn with<T: File>(raw: *mut RawFile, act: impl FnOnce(&mut T, &Api) -> Result<()>) -> c_int {
    caught(Code::IOERR.0, || {
        // SAFETY: by the contract of this function. SQLite uses a file from one thread at a time.
        let (file, api) = unsafe {
            let slot = &*raw.cast::<Slot<T>>();
            (&mut *slot.file, slot.api)
        };
        match act(file, api) {
            Ok(()) => Code::OK.0,
            Err(failure) => report(api, failure),
        }
    })
}

struct Table<T>(T);

impl<T: File> Table<T> {
    const METHODS: &'static Methods = &Methods {
        version: 3,
        close: close::<T>,
        read: read::<T>,
        write: write::<T>,
        truncate: truncate::<T>,
        sync: sync::<T>,
        file_size: file_size::<T>,
        lock: lock::<T>,
        unlock: unlock::<T>,
        check_reserved_lock: check_reserved_lock::<T>,
        file_control: file_control::<T>,
        sector_size,
        device_characteristics,
        shm_map: None,
        shm_lock: None,
        shm_barrier: None,
        shm_unmap: None,
        fetch: fetch::<T>,
        unfetch: unfetch::<T>,
    };
}

unsafe extern "C" fn close<T: File>(raw: *mut RawFile) -> c_int {
    caught(Code::IOERR.0, || {
        // SAFETY: `put` has filled the slot, and SQLite closes a file once.
        let (file, api) = unsafe {
            let slot = &*raw.cast::<Slot<T>>();
            (Box::from_raw(slot.file), slot.api)
        };
        match file.close() {
            Ok(None) => Code::OK.0,
            Ok(Some(message)) => {
                api.log(Code::WARNING.0, &atomic_mmap::shown(&message).to_string());
                Code::OK.0
            }
            Err(failure) => report(api, failure),
        }
    })
}

unsafe extern "C" fn read<T: File>(
    raw: *mut RawFile,
    to: *mut c_void,
    len: c_int,
    offset: i64,
) -> c_int {
    let act = |file: &mut T, _: &Api| {
        // SAFETY: SQLite's buffer has `len` bytes. They are written before a reference is made, and
        // are what SQLite wants past the end of the file.
        let to = unsafe {
            to.cast::<u8>().write_bytes(0, len as usize);
            slice::from_raw_parts_mut(to.cast::<u8>(), len as usize)
        };
        match file.read(to, offset as u64)? {
            count if count < to.len() => {
                Err(Failure { code: Code::IOERR_SHORT_READ, message: None })
            }
            _ => Ok(()),
        }
    };
    // SAFETY: a file of this table.
    unsafe { with(raw, act) }
}

unsafe extern "C" fn write<T: File>(
    raw: *mut RawFile,
    from: *const c_void,
    len: c_int,
    offset: i64,
) -> c_int {
    let act = |file: &mut T, _: &Api| {
        // SAFETY: SQLite's buffer has `len` bytes, which do not change during this call.
        let bytes = unsafe { slice::from_raw_parts(from.cast::<u8>(), len as usize) };
        file.write(bytes, offset as u64)
    };
    // SAFETY: a file of this table.
    unsafe { with(raw, act) }
}

unsafe extern "C" fn truncate<T: File>(raw: *mut RawFile, len: i64) -> c_int {
    // SAFETY: a file of this table.
    unsafe { with(raw, |file: &mut T, _| file.truncate(len as u64)) }
}

unsafe extern "C" fn sync<T: File>(raw: *mut RawFile, _flags: c_int) -> c_int {
    // SAFETY: a file of this table.
    unsafe { with(raw, |file: &mut T, _| file.sync()) }
}

unsafe extern "C" fn file_size<T: File>(raw: *mut RawFile, to: *mut i64) -> c_int {
    let act = |file: &mut T, _: &Api| {
        let len = file.len()? as i64;
        // SAFETY: SQLite's variable.
        unsafe { *to = len };
        Ok(())
    };
    // SAFETY: a file of this table.
    unsafe { with(raw, act) }
}

unsafe extern "C" fn lock<T: File>(raw: *mut RawFile, level: c_int) -> c_int {
    let level = || Level::of(level).ok_or_else(|| Failure::new(Code::MISUSE, "no lock level"));
    // SAFETY: a file of this table.
    unsafe { with(raw, |file: &mut T, _| file.lock(level()?)) }
}

unsafe extern "C" fn unlock<T: File>(raw: *mut RawFile, level: c_int) -> c_int {
    let level = || Level::of(level).ok_or_else(|| Failure::new(Code::MISUSE, "no lock level"));
    let act = |file: &mut T, _: &Api| {
        file.unlock(level()?);
        Ok(())
    };
    // SAFETY: a file of this table.
    unsafe { with(raw, act) }
}

unsafe extern "C" fn check_reserved_lock<T: File>(raw: *mut RawFile, to: *mut c_int) -> c_int {
    let act = |file: &mut T, _: &Api| {
        // SAFETY: SQLite's variable.
        unsafe { *to = file.is_reserved().into() };
        Ok(())
    };
    // SAFETY: a file of this table.
    unsafe { with(raw, act) }
}

unsafe extern "C" fn file_control<T: File>(
    raw: *mut RawFile,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    let act = |file: &mut T, api: &Api| match file.main() {
        // SAFETY: the argument belongs to the operation.
        Some(file) => unsafe { control(file, api, operation, argument) },
        None => Err(Failure { code: Code::NOTFOUND, message: None }),
    };
    // SAFETY: a file of this table.
    unsafe { with(raw, act) }
}

/// # Safety
/// `argument` points to what SQLite documents for this `operation`.
unsafe fn control(
    file: &mut MainFile,
    api: &Api,
    operation: c_int,
    argument: *mut c_void,
) -> Result<()> {
    let unknown = Err(Failure { code: Code::NOTFOUND, message: None });
    // SAFETY: by the contract of this function, if `T` is the type that SQLite documents.
    unsafe {
        match operation {
            // The argument is the name of the super-journal, of a transaction that has one.
            control::SYNC => return file.publish(!argument.is_null()),
            control::COMMIT_PHASETWO => return file.end_commit(),
            control::SIZE_HINT => return file.size_hint(*argument.cast::<i64>() as u64),
            control::OVERWRITE => return file.will_overwrite(*argument.cast::<i64>() as u64),
            control::LOCKSTATE => *argument.cast::<c_int>() = file.level() as c_int,
            control::HAS_MOVED => *argument.cast::<c_int>() = file.has_moved().into(),
            control::MMAP_SIZE => {
                let size = argument.cast::<i64>();
                *size = file.set_mmap_size(u64::try_from(*size).ok()) as i64;
            }
            control::VFSNAME => *argument.cast::<*mut c_char>() = api.copy(VFS_NAME),
            control::PRAGMA => {
                let texts = &mut *argument.cast::<[*mut c_char; 3]>();
                let name = text(texts[1]).unwrap_or_default();
                match file.pragma(&name, text(texts[2]).as_deref()) {
                    Some(answer) => texts[0] = api.copy(&answer),
                    None => return unknown,
                }
            }
            _ => return unknown,
        }
    }
    Ok(())
}

/// Returns the text at `pointer`, which may be null.
///
/// # Safety
/// It is null or a string, which lives as long as the result.
unsafe fn text<'t>(pointer: *const c_char) -> Option<Cow<'t, str>> {
    // SAFETY: by the contract of this function.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_string_lossy())
}

unsafe extern "C" fn sector_size(_raw: *mut RawFile) -> c_int {
    4096
}

unsafe extern "C" fn device_characteristics(_raw: *mut RawFile) -> c_int {
    abi::POWERSAFE_OVERWRITE | abi::SUBPAGE_READ
}

unsafe extern "C" fn fetch<T: File>(
    raw: *mut RawFile,
    offset: i64,
    len: c_int,
    to: *mut *mut c_void,
) -> c_int {
    let act = |file: &mut T, _: &Api| {
        let page = match file.main() {
            Some(file) => file.fetch(offset as u64, len as usize)?,
            None => None,
        };
        // SAFETY: SQLite's variable. It reads through the pointer, and does not write.
        unsafe { *to = page.map_or(std::ptr::null_mut(), |page| page.cast_mut().cast()) };
        Ok(())
    };
    // SAFETY: a file of this table.
    unsafe { with(raw, act) }
}

unsafe extern "C" fn unfetch<T: File>(raw: *mut RawFile, offset: i64, page: *mut c_void) -> c_int {
    let act = |file: &mut T, _: &Api| {
        if let Some(file) = file.main() {
            file.unfetch((!page.is_null()).then_some(offset as u64));
        }
        Ok(())
    };
    // SAFETY: a file of this table.
    unsafe { with(raw, act) }
}
