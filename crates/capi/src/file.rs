//! Calls on an open file.

use crate::boundary::{Failure, Result, Shared, ato_file, call, close, end_if_cancelled};
use crate::memory;
use crate::options::{self, ato_options};
use atomic_mmap::{AtomicMappedFile, Options, Survives};
use std::ffi::{c_char, c_int, c_void};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// `ato_survives`: nothing before the next sync.
pub const ATO_SURVIVES_NOTHING: c_int = 0;
/// `ato_survives`: a crash of the process.
pub const ATO_SURVIVES_PROCESS_CRASH: c_int = 1;
/// `ato_survives`: a loss of power.
pub const ATO_SURVIVES_POWER_LOSS: c_int = 2;

/// A part of a write: so many bytes, and their offset in the file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ato_part {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The bytes.
    pub buffer: *const c_void,
    /// Number of bytes.
    pub len: usize,
}

/// Runs a call on the file that a handle names.
///
/// # Safety
/// `file` is NULL, or an open handle.
pub(crate) unsafe fn on(
    file: *const ato_file,
    body: impl FnOnce(&AtomicMappedFile) -> Result<()>,
) -> c_int {
    end_if_cancelled();
    call(|| {
        // SAFETY: the handle is open.
        unsafe { memory::reference(file, "file") }?.shared.with(body)
    })
}

/// Returns the range of `len` bytes at an offset.
pub(crate) fn range(offset: u64, len: u64) -> Result<Range<u64>> {
    let end = offset.checked_add(len).ok_or_else(|| {
        let text = format!("{len} bytes at offset {offset} end past any file");
        Failure::new(libc::ERANGE, text)
    })?;
    Ok(offset..end)
}

/// Stores what a call on the file returns.
///
/// # Safety
/// `file` is NULL, or an open handle. `place` is NULL, or names memory for a `T`.
unsafe fn get<T>(
    file: *const ato_file,
    place: *mut T,
    body: impl FnOnce(&AtomicMappedFile) -> Result<T>,
) -> c_int {
    // SAFETY: the caller names the handle and the place.
    unsafe {
        on(file, |file| {
            memory::put(place, body(file)?);
            Ok(())
        })
    }
}

/// Opens a file, or creates it if the options say so. `options` may be NULL. Stores the handle.
///
/// Returns 0, or the number of the error: `-EBUSY` if it is open elsewhere, `ATO_EMISMATCH` if it
/// and its companions do not match, `-ENOENT`, `-ENOSPC`, `-EACCES` and others.
///
/// # Safety
/// `path` is a text. `options` is NULL or initialised. `file` names memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_open(
    path: *const c_char,
    options: *const ato_options,
    file: *mut *mut ato_file,
) -> c_int {
    // SAFETY: the caller names the text, the options and the place.
    unsafe { new_handle(path, options, file, |options, path| Ok(options.open(path)?)) }
}

/// Stores the handle of the file that `open` opens.
///
/// # Safety
/// `path` is a text. `options` is NULL or initialised. `file` names memory for a pointer.
pub(crate) unsafe fn new_handle(
    path: *const c_char,
    options: *const ato_options,
    file: *mut *mut ato_file,
    open: impl FnOnce(Options, &Path) -> Result<AtomicMappedFile>,
) -> c_int {
    call(|| {
        if file.is_null() {
            return Err(Failure::argument("there is no place for the handle"));
        }
        // SAFETY: the caller names a place for a pointer.
        unsafe { memory::put(file, std::ptr::null_mut()) };
        // SAFETY: the caller names a text.
        let path = unsafe { memory::path(path) }?;
        // SAFETY: the caller names options or none.
        let options = unsafe { options::read(options) }?;
        let opened = open(options, path)?;
        let handle = Box::new(ato_file { shared: Shared::new(opened), is_mapped: false });
        // SAFETY: as above.
        unsafe { memory::put(file, Box::into_raw(handle)) };
        Ok(())
    })
}

/// Closes a file in one of the ways `ATO_CLOSE_`... . The handle is invalid afterwards, also after
/// an error. Does nothing with NULL. Needs no free descriptor, and works after `chroot`.
///
/// Returns `ATO_CLOSED_WITH_COMPANIONS`, which is no error, if the file is closed and complete, and
/// the process may not remove its companions any more.
///
/// Exception: `-EBUSY` while a transaction is open, a stage is not dropped, or a mapping owns the
/// handle, and `-EINVAL` for an unknown way to close. The handle then stays open.
///
/// # Safety
/// `file` is NULL, or an open handle. No other thread uses it during or after the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_close(file: *mut ato_file, mode: c_int) -> c_int {
    call(|| {
        let mode = options::close_mode(mode)?;
        // SAFETY: the handle is open.
        let Some(handle) = (unsafe { file.as_ref() }) else { return Ok(()) };
        if handle.is_mapped {
            return Err(Failure::new(libc::EBUSY, "a mapping owns the file; call ato_munmap"));
        }
        if Arc::strong_count(&handle.shared) > 1 {
            let text = "the file has a transaction or a stage; end the one, and drop the other";
            return Err(Failure::new(libc::EBUSY, text));
        }
        // SAFETY: `ato_open` made the handle by `Box`, and the caller gives it up.
        let handle = unsafe { Box::from_raw(file) };
        match Arc::try_unwrap(handle.shared) {
            Ok(shared) => close(shared.into_file(), mode),
            Err(_) => unreachable!("the count was one, and no other thread uses the handle"),
        }
    })
}

/// Reads bytes. All of them are of one state of the file: no write is seen in part.
///
/// Returns `-ERANGE` if they do not all lie within the file.
///
/// # Safety
/// `file` is an open handle. `buffer` names `len` bytes for this call alone.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_read(
    file: *const ato_file,
    offset: u64,
    buffer: *mut c_void,
    len: usize,
) -> c_int {
    // SAFETY: the caller names the handle and the buffer.
    unsafe { on(file, |file| Ok(file.read_at(memory::bytes_mut(buffer, len)?, offset)?)) }
}

/// Writes bytes, all or none of them, whatever crashes.
///
/// Returns `-ERANGE` if they do not all lie within the file, `-ENOSPC` if the disk is full. After
/// an error the file is as before.
///
/// # Safety
/// `file` is an open handle. `buffer` names `len` bytes that do not change during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_write(
    file: *const ato_file,
    offset: u64,
    buffer: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: the caller names the handle and the buffer.
    unsafe { on(file, |file| Ok(file.write_at(memory::bytes(buffer, len)?, offset)?)) }
}

/// Writes bytes as `ato_write` does, and copies their pages to the home file at once, whatever the
/// policy of deployment. So the next reads of these pages find their bytes in one piece.
///
/// On page cache, and with `ATO_DURABLE_ATOMIC_SYNC`, the bytes stay where they are until the next
/// durable point. A copy that fails does not fail the write.
///
/// # Safety
/// `file` is an open handle. `buffer` names `len` bytes that do not change during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_write_eager(
    file: *const ato_file,
    offset: u64,
    buffer: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: the caller names the handle and the buffer.
    unsafe { on(file, |file| Ok(file.write_at_eager(memory::bytes(buffer, len)?, offset)?)) }
}

/// Writes several parts in one operation: all or none of them. Later parts count where parts
/// overlap.
///
/// # Safety
/// `file` is an open handle. `parts` names `count` parts, and each part names its bytes, which do
/// not change during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_writev(
    file: *const ato_file,
    parts: *const ato_part,
    count: usize,
) -> c_int {
    // SAFETY: the caller names the handle, the parts and their bytes.
    unsafe {
        on(file, |file| {
            let segments: Vec<(u64, &[u8])> = memory::list(parts, count, "parts")?
                .iter()
                .map(|part| Ok((part.offset, memory::bytes(part.buffer, part.len)?)))
                .collect::<Result<_>>()?;
            Ok(file.write_many(&segments)?)
        })
    }
}

/// Replaces the whole contents and the length in one operation.
///
/// # Safety
/// `file` is an open handle. `buffer` names `len` bytes that do not change during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_replace(
    file: *const ato_file,
    buffer: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: the caller names the handle and the buffer.
    unsafe { on(file, |file| Ok(file.replace(memory::bytes(buffer, len)?)?)) }
}

/// Makes everything that has returned durable, and stores the number of the durable point. `number`
/// may be NULL.
///
/// # Safety
/// `file` is an open handle. `number` is NULL, or names memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_sync(file: *const ato_file, number: *mut u64) -> c_int {
    // SAFETY: the caller names the handle and the place.
    unsafe { get(file, number, |file| Ok(file.sync()?)) }
}

/// Stores the number that the next durable point gets. What has returned before this call is
/// durable once `ato_durable_number` reaches it.
///
/// # Safety
/// `file` is an open handle. `number` names memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_next_durable_number(
    file: *const ato_file,
    number: *mut u64,
) -> c_int {
    // SAFETY: the caller names the handle and the place.
    unsafe { get(file, number, |file| Ok(file.next_durable_number())) }
}

/// Stores the number of the newest durable point.
///
/// # Safety
/// `file` is an open handle. `number` names memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_durable_number(
    file: *const ato_file,
    number: *mut u64,
) -> c_int {
    // SAFETY: the caller names the handle and the place.
    unsafe { get(file, number, |file| Ok(file.durable_number())) }
}

/// Waits until the durable point of this number is made, and makes it if no other thread does.
/// Threads that wait share one barrier.
///
/// Returns `-EINVAL` above the number of `ato_next_durable_number`: no point has that number yet.
///
/// # Safety
/// `file` is an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_wait_durable(file: *const ato_file, number: u64) -> c_int {
    // SAFETY: the caller names the handle.
    unsafe {
        on(file, |file| {
            let next = file.next_durable_number();
            if number > next {
                let text = format!("no durable point has number {number} yet; the next has {next}");
                return Err(Failure::argument(text));
            }
            file.wait_durable(number)?;
            Ok(())
        })
    }
}

/// Changes the length. New bytes are zero.
///
/// Returns `-EFBIG` above the longest length that the file was opened for, and `-EBUSY` if it would
/// cut off what a stage has lent.
///
/// # Safety
/// `file` is an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_set_len(file: *const ato_file, len: u64) -> c_int {
    // SAFETY: the caller names the handle.
    unsafe { on(file, |file| Ok(file.set_len(len)?)) }
}

/// Stores the length in bytes.
///
/// # Safety
/// `file` is an open handle. `len` names memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_len(file: *const ato_file, len: *mut u64) -> c_int {
    // SAFETY: the caller names the handle and the place.
    unsafe { get(file, len, |file| Ok(file.len())) }
}

/// Copies the bytes of a range to the home file, so that reads are as fast as of a plain mapping.
/// Stores the number of pages that were copied. `pages` may be NULL.
///
/// # Safety
/// `file` is an open handle. `pages` is NULL, or names memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_deploy(
    file: *const ato_file,
    offset: u64,
    len: u64,
    pages: *mut u64,
) -> c_int {
    // SAFETY: the caller names the handle and the place.
    unsafe { get(file, pages, |file| Ok(file.deploy(range(offset, len)?)?)) }
}

/// Stores the policy by which pages are deployed, `ATO_DEPLOY_`... .
///
/// # Safety
/// `file` is an open handle. `policy` names memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_deploy_policy(
    file: *const ato_file,
    policy: *mut c_int,
) -> c_int {
    // SAFETY: the caller names the handle and the place.
    unsafe { get(file, policy, |file| options::of_deploy(file.deploy_policy())) }
}

/// Changes the policy by which pages are deployed, `ATO_DEPLOY_`... . Calls of other threads that
/// run meanwhile may go by the old one. Nothing is stored: the next open begins with its options.
///
/// Returns `-EINVAL` for an unknown policy.
///
/// # Safety
/// `file` is an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_set_deploy_policy(
    file: *const ato_file,
    policy: c_int,
) -> c_int {
    // SAFETY: the caller names the handle.
    unsafe {
        on(file, |file| {
            file.set_deploy_policy(options::deploy(policy)?);
            Ok(())
        })
    }
}

/// Copies one state of the file to another path, as a plain file. Writers go on meanwhile.
///
/// # Safety
/// `file` is an open handle. `path` is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_copy_to(file: *const ato_file, path: *const c_char) -> c_int {
    // SAFETY: the caller names the handle and the text.
    unsafe { on(file, |file| Ok(file.copy_to(memory::path(path)?)?)) }
}

/// Returns 0 if writes can succeed, or the number of the error that they would get. Accesses no
/// file.
///
/// # Safety
/// `file` is an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_health(file: *const ato_file) -> c_int {
    // SAFETY: the caller names the handle.
    unsafe { on(file, |file| Ok(file.health()?)) }
}

/// Stores the medium, `ATO_MEDIUM_`... .
///
/// # Safety
/// `file` is an open handle. `medium` names memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_medium(file: *const ato_file, medium: *mut c_int) -> c_int {
    // SAFETY: the caller names the handle and the place.
    unsafe { get(file, medium, |file| Ok(options::of_medium(file.medium()))) }
}

/// Stores what a write survives as soon as it has returned, and what it survives after the next
/// sync: `ATO_SURVIVES_`... . Either place may be NULL.
///
/// # Safety
/// `file` is an open handle. Each place is NULL, or names memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_survives(
    file: *const ato_file,
    at_once: *mut c_int,
    after_sync: *mut c_int,
) -> c_int {
    let number = |survives| match survives {
        Survives::PowerLoss => ATO_SURVIVES_POWER_LOSS,
        Survives::ProcessCrash => ATO_SURVIVES_PROCESS_CRASH,
        _ => ATO_SURVIVES_NOTHING,
    };
    // SAFETY: the caller names the handle and the places.
    unsafe {
        on(file, |file| {
            memory::put(at_once, number(file.survives()));
            memory::put(after_sync, number(file.survives_after_sync()));
            Ok(())
        })
    }
}
