//! `read`, `write` and their kin, and `lseek`.

use super::{real, served};
use crate::description::{Description, MOST, Wanted};
use crate::errno::{Errno, Result};
use crate::table;
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

fn place(at: off_t) -> Result<u64> {
    u64::try_from(at).map_err(|_| Errno::INVALID)
}

/// Reads into one buffer.
///
/// # Safety
/// As for `pread`.
pub(super) unsafe fn read_one(
    of: &Description,
    to: *mut c_void,
    len: size_t,
    at: Option<off_t>,
) -> Result<i64> {
    // SAFETY: as the caller promises.
    let to = unsafe { buffer(to, len)? };
    Ok(of.read(&mut [to], at.map(place).transpose()?)? as i64)
}

/// Writes one buffer.
///
/// # Safety
/// As for `pwrite`.
pub(super) unsafe fn write_one(
    of: &Description,
    from: *const c_void,
    len: size_t,
    at: Option<off_t>,
) -> Result<i64> {
    // SAFETY: as the caller promises.
    let from = unsafe { bytes(from, len)? };
    Ok(of.write(&[from], at.map(place).transpose()?, Wanted::default())? as i64)
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
        if let [part] = vector {
            return read_one(of, part.iov_base, part.iov_len, at);
        }
        let to: Result<Vec<_>> =
            vector.iter().map(|part| buffer(part.iov_base, part.iov_len)).collect();
        Ok(of.read(&mut to?, at.map(place).transpose()?)? as i64)
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

/// Defines hooks that a description serves, if the descriptor is chosen, and else libc.
macro_rules! by_descriptor {
    ($(fn $name:ident($fd:ident: c_int $(, $arg:ident: $type:ty)*) -> $result:ty = $real:ident, |$of:ident| $body:expr;)*) => {
        hook! {$(
            fn $name($fd: c_int $(, $arg: $type)*) -> $result {
                match table::get($fd).as_deref() {
                    Some(Some($of)) => served(|| $body),
                    _ => real::$real($fd $(, $arg)*),
                }
            }
        )*}
    };
}
pub(super) use by_descriptor;

by_descriptor! {
    fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t = read, |of| read_one(of, to, len, None);
    fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t = write, |of| write_one(of, from, len, None);
    fn pread(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t = pread64, |of| read_one(of, to, len, Some(at));
    fn pread64(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t = pread64, |of| read_one(of, to, len, Some(at));
    fn pwrite(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t = pwrite64, |of| write_one(of, from, len, Some(at));
    fn pwrite64(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t = pwrite64, |of| write_one(of, from, len, Some(at));
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
    fn lseek(fd: c_int, by: off_t, whence: c_int) -> off_t = lseek64, |of| Ok(of.seek(by, whence)? as i64);
    fn lseek64(fd: c_int, by: off_t, whence: c_int) -> off_t = lseek64, |of| Ok(of.seek(by, whence)? as i64);
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
