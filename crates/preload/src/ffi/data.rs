//! `read`, `write` and their kin, and `lseek`.

use super::{failed, path, process, real, served};
use crate::description::{Description, MOST, Wanted};
use crate::errno::{Errno, Result};
use crate::table::{self, Found};
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};

/// Most parts of a vector, as in the kernel.
const MOST_PARTS: usize = 1024;

/// Returns the bytes of a caller.
///
/// # Safety
/// `len` bytes at `from` are readable until the call ends.
unsafe fn bytes<'a>(from: *const c_void, len: size_t) -> Result<&'a [u8]> {
    match len.min(MOST) {
        0 => Ok(&[]),
        _ if from.is_null() => Err(Errno(libc::EFAULT)),
        // SAFETY: as the caller promises.
        len => Ok(unsafe { std::slice::from_raw_parts(from.cast(), len) }),
    }
}

/// Returns the buffer of a caller.
///
/// # Safety
/// `len` bytes at `to` are writable until the call ends, and no other thread uses them.
unsafe fn buffer<'a>(to: *mut c_void, len: size_t) -> Result<&'a mut [u8]> {
    match len.min(MOST) {
        0 => Ok(&mut []),
        _ if to.is_null() => Err(Errno(libc::EFAULT)),
        // SAFETY: as the caller promises.
        len => Ok(unsafe { std::slice::from_raw_parts_mut(to.cast(), len) }),
    }
}

/// Returns the parts of a vector.
///
/// # Safety
/// `count` parts at `parts` are readable.
unsafe fn parts<'a>(parts: *const iovec, count: c_int) -> Result<&'a [iovec]> {
    let count = usize::try_from(count).ok().filter(|count| *count <= MOST_PARTS);
    match count.ok_or(Errno::INVALID)? {
        0 => Ok(&[]),
        _ if parts.is_null() => Err(Errno(libc::EFAULT)),
        // SAFETY: as the caller promises.
        count => Ok(unsafe { std::slice::from_raw_parts(parts, count) }),
    }
}

/// Returns a vector of one part.
fn part(iov_base: *mut c_void, iov_len: size_t) -> iovec {
    iovec { iov_base, iov_len }
}

fn place(at: off_t) -> Result<u64> {
    u64::try_from(at).map_err(|_| Errno::INVALID)
}

fn wanted(flags: c_int) -> Result<Wanted> {
    const NO_APPEND: c_int = 0x20;
    let known = libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_APPEND | libc::RWF_HIPRI | NO_APPEND;
    if flags & !known != 0 {
        return Err(Errno::UNSUPPORTED);
    }
    Ok(Wanted {
        append: flags & libc::RWF_APPEND != 0,
        no_append: flags & NO_APPEND != 0,
        sync: flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0,
    })
}

/// Reads into the parts of a vector.
///
/// # Safety
/// As for `preadv2`.
pub(super) unsafe fn read_vector(
    of: &Description,
    vector: *const iovec,
    count: c_int,
    at: Option<off_t>,
    flags: c_int,
) -> Result<i64> {
    wanted(flags)?;
    // SAFETY: as the caller promises.
    unsafe {
        let vector = parts(vector, count)?;
        let at = at.map(place).transpose()?;
        if let [part] = vector {
            return Ok(of.read(&mut [buffer(part.iov_base, part.iov_len)?], at)? as i64);
        }
        let to: Result<Vec<_>> =
            vector.iter().map(|part| buffer(part.iov_base, part.iov_len)).collect();
        Ok(of.read(&mut to?, at)? as i64)
    }
}

/// Writes the parts of a vector, as one operation.
///
/// # Safety
/// As for `pwritev2`.
pub(super) unsafe fn write_vector(
    of: &Description,
    vector: *const iovec,
    count: c_int,
    at: Option<off_t>,
    flags: c_int,
) -> Result<i64> {
    let wanted = wanted(flags)?;
    // SAFETY: as the caller promises.
    unsafe {
        let vector = parts(vector, count)?;
        let at = at.map(place).transpose()?;
        if let [part] = vector {
            return Ok(of.write(&[bytes(part.iov_base, part.iov_len)?], at, wanted)? as i64);
        }
        let from: Result<Vec<_>> =
            vector.iter().map(|part| bytes(part.iov_base, part.iov_len)).collect();
        Ok(of.write(&from?, at, wanted)? as i64)
    }
}

/// Serves a call by the description of a guard.
pub(super) fn by<R>(
    fd: c_int,
    guard: table::Guard,
    body: impl FnOnce(&Description) -> Result<i64>,
) -> R
where
    R: TryFrom<i64> + From<i8>,
{
    super::end_if_cancelled();
    // The guard may be the last to have the description, and drops it in here.
    served(move || {
        let of = guard.as_deref().ok_or(Errno::BAD_DESCRIPTOR)?;
        // SAFETY: the call has no pointers.
        let resumed = of.resume(|| unsafe { real::lseek64(fd, 0, libc::SEEK_CUR) });
        let done = resumed.and_then(|()| body(of));
        if done.is_err() && matches!(fd, 1 | 2) && of.is_lost() {
            process::note_lost_output();
        }
        done
    })
}

/// Defines hooks that a description serves, if the descriptor is chosen, and else libc.
macro_rules! by_descriptor {
    ($(fn $name:ident($fd:ident: c_int $(, $arg:ident: $type:ty)*) -> $result:ty = $real:ident, |$of:ident| $body:expr;)*) => {
        hook! {$(
            fn $name($fd: c_int $(, $arg: $type)*) -> $result {
                use $crate::ffi::{data, failed, path};
                use $crate::table::{Found, find};
                match find($fd) {
                    Found::Chosen(guard) => data::by($fd, guard, |$of| $body),
                    Found::Closing if path::is_still($fd) => failed(Errno::BAD_DESCRIPTOR),
                    _ => real::$real($fd $(, $arg)*),
                }
            }
        )*}
    };
}
pub(super) use by_descriptor;

/// Moves an offset. Where it is, the kernel knows while no process uses the file.
///
/// # Safety
/// As for `lseek`.
unsafe fn seek(fd: c_int, by: off_t, whence: c_int) -> off_t {
    match table::find(fd) {
        Found::Chosen(guard) => {
            let asks = (by, whence) == (0, libc::SEEK_CUR);
            if asks && guard.as_ref().is_some_and(|of| of.is_handed_over()) {
                // SAFETY: the call has no pointers.
                return unsafe { real::lseek64(fd, by, whence) };
            }
            self::by(fd, guard, |of| Ok(of.seek(by, whence)? as i64))
        }
        Found::Closing if path::is_still(fd) => failed(Errno::BAD_DESCRIPTOR),
        // SAFETY: as above.
        _ => unsafe { real::lseek64(fd, by, whence) },
    }
}

hook! {
    fn lseek(fd: c_int, by: off_t, whence: c_int) -> off_t { seek(fd, by, whence) }
    fn __lseek(fd: c_int, by: off_t, whence: c_int) -> off_t { seek(fd, by, whence) }
    fn lseek64(fd: c_int, by: off_t, whence: c_int) -> off_t { seek(fd, by, whence) }
}

by_descriptor! {
    fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t = read, |of| read_vector(of, &part(to, len), 1, None, 0);
    fn __read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t = read, |of| read_vector(of, &part(to, len), 1, None, 0);
    fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t = write, |of| write_vector(of, &part(from.cast_mut(), len), 1, None, 0);
    fn __write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t = write, |of| write_vector(of, &part(from.cast_mut(), len), 1, None, 0);
    fn pread(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t = pread64, |of| read_vector(of, &part(to, len), 1, Some(at), 0);
    fn pread64(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t = pread64, |of| read_vector(of, &part(to, len), 1, Some(at), 0);
    fn __pread64(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t = pread64, |of| read_vector(of, &part(to, len), 1, Some(at), 0);
    fn pwrite(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t = pwrite64, |of| write_vector(of, &part(from.cast_mut(), len), 1, Some(at), 0);
    fn pwrite64(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t = pwrite64, |of| write_vector(of, &part(from.cast_mut(), len), 1, Some(at), 0);
    fn __pwrite64(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t = pwrite64, |of| write_vector(of, &part(from.cast_mut(), len), 1, Some(at), 0);
    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = readv, |of| read_vector(of, parts, count, None, 0);
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = writev, |of| write_vector(of, parts, count, None, 0);
    fn preadv(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t = preadv64, |of| read_vector(of, parts, count, Some(at), 0);
    fn preadv64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t = preadv64, |of| read_vector(of, parts, count, Some(at), 0);
    fn pwritev(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t = pwritev64, |of| write_vector(of, parts, count, Some(at), 0);
    fn pwritev64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t = pwritev64, |of| write_vector(of, parts, count, Some(at), 0);
    fn preadv2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = preadv64v2, |of| read_vector(of, parts, count, (at != -1).then_some(at), flags);
    fn preadv64v2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = preadv64v2, |of| read_vector(of, parts, count, (at != -1).then_some(at), flags);
    fn pwritev2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = pwritev64v2, |of| write_vector(of, parts, count, (at != -1).then_some(at), flags);
    fn pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = pwritev64v2, |of| write_vector(of, parts, count, (at != -1).then_some(at), flags);
}

/// Ends the program as glibc does if a checked call would overflow its buffer.
fn check(len: size_t, size: size_t) {
    if len > size {
        std::process::abort();
    }
}

hook! {
    fn __read_chk(fd: c_int, to: *mut c_void, len: size_t, size: size_t) -> ssize_t {
        check(len, size);
        read(fd, to, len)
    }
    fn __pread_chk(fd: c_int, to: *mut c_void, len: size_t, at: off_t, size: size_t) -> ssize_t {
        check(len, size);
        pread(fd, to, len, at)
    }
    fn __pread64_chk(fd: c_int, to: *mut c_void, len: size_t, at: off_t, size: size_t) -> ssize_t {
        check(len, size);
        pread(fd, to, len, at)
    }
}
