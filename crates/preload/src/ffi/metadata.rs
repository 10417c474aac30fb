//! The `stat` family: a file that is open here has its own length, and not that of the home file.

use super::{outside, path, process, real};
use crate::{inside, pair, settings, table};
use libc::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int, c_uint};
use std::ffi::CStr;

/// Bytes of a unit of `st_blocks`.
const BLOCK: u64 = 512;

/// Returns `true` if libc's answer is right: no file is chosen, or the engine asks. It may ask
/// about its own descriptors while a call has the file's state locked.
fn is_libcs(dir: c_int, flags: c_int) -> bool {
    let is_own = flags & AT_EMPTY_PATH != 0 && table::is_private(dir);
    is_own || !settings::is_on() || inside::is_inside()
}

/// Answers a question about a path or a descriptor.
///
/// # Safety
/// As for `fstatat`.
unsafe fn stat_at(dir: c_int, name: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int {
    process::prepare();
    // SAFETY: as the caller promises.
    unsafe {
        let is_outside = !is_libcs(dir, flags) && outside::is_outside(dir, name);
        let unfollowed = if is_outside { AT_SYMLINK_NOFOLLOW } else { 0 };
        let mut told = path::stat_to(dir, name, to, flags | unfollowed);
        let is_link = told == 0 && (*to).st_mode & libc::S_IFMT == libc::S_IFLNK;
        if is_link && is_outside && flags & AT_SYMLINK_NOFOLLOW == 0 {
            told = path::stat_to(dir, name, to, flags);
        }
        if told != 0 || is_libcs(dir, flags) || (*to).st_mode & libc::S_IFMT != libc::S_IFREG {
            return told;
        }
        if let Some(len) = len(path::identity(&*to)) {
            (*to).st_size = len as i64;
            (*to).st_blocks = len.div_ceil(BLOCK) as i64;
        } else if (is_link || !is_outside) && settle(dir, name, flags) {
            return path::stat_to(dir, name, to, flags);
        }
        told
    }
}

/// Returns the length of a file that is open here.
fn len(of: pair::Identity) -> Option<u64> {
    super::caught(|| Ok(pair::len_of(of))).ok().flatten()
}

/// Recovers a chosen file that a crash has left, so that its length is right. Returns `true` if the
/// file may have changed.
unsafe fn settle(dir: c_int, name: *const c_char, flags: c_int) -> bool {
    // SAFETY: as the caller of `stat_at` promises.
    unsafe {
        if name.is_null() || *name == 0 || !path::has_likely_name(CStr::from_ptr(name)) {
            return false;
        }
        let follow = if flags & AT_SYMLINK_NOFOLLOW != 0 { libc::O_NOFOLLOW } else { 0 };
        let Some(chosen) = path::chosen(dir, name, follow) else { return false };
        super::caught(|| chosen.settle(|| false)).is_ok()
    }
}

hook! {
    fn stat(name: *const c_char, to: *mut libc::stat) -> c_int { stat_at(AT_FDCWD, name, to, 0) }
    fn stat64(name: *const c_char, to: *mut libc::stat) -> c_int { stat_at(AT_FDCWD, name, to, 0) }
    fn lstat(name: *const c_char, to: *mut libc::stat) -> c_int { stat_at(AT_FDCWD, name, to, AT_SYMLINK_NOFOLLOW) }
    fn lstat64(name: *const c_char, to: *mut libc::stat) -> c_int { stat_at(AT_FDCWD, name, to, AT_SYMLINK_NOFOLLOW) }
    fn fstat(fd: c_int, to: *mut libc::stat) -> c_int { stat_at(fd, c"".as_ptr(), to, AT_EMPTY_PATH) }
    fn fstat64(fd: c_int, to: *mut libc::stat) -> c_int { stat_at(fd, c"".as_ptr(), to, AT_EMPTY_PATH) }
    fn fstatat(dir: c_int, name: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int { stat_at(dir, name, to, flags) }
    fn fstatat64(dir: c_int, name: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int { stat_at(dir, name, to, flags) }
    fn __xstat(_v: c_int, name: *const c_char, to: *mut libc::stat) -> c_int { stat_at(AT_FDCWD, name, to, 0) }
    fn __xstat64(_v: c_int, name: *const c_char, to: *mut libc::stat) -> c_int { stat_at(AT_FDCWD, name, to, 0) }
    fn __lxstat(_v: c_int, name: *const c_char, to: *mut libc::stat) -> c_int { stat_at(AT_FDCWD, name, to, AT_SYMLINK_NOFOLLOW) }
    fn __lxstat64(_v: c_int, name: *const c_char, to: *mut libc::stat) -> c_int { stat_at(AT_FDCWD, name, to, AT_SYMLINK_NOFOLLOW) }
    fn __fxstat(_v: c_int, fd: c_int, to: *mut libc::stat) -> c_int { stat_at(fd, c"".as_ptr(), to, AT_EMPTY_PATH) }
    fn __fxstat64(_v: c_int, fd: c_int, to: *mut libc::stat) -> c_int { stat_at(fd, c"".as_ptr(), to, AT_EMPTY_PATH) }
    fn __fxstatat(_v: c_int, dir: c_int, name: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int { stat_at(dir, name, to, flags) }
    fn __fxstatat64(_v: c_int, dir: c_int, name: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int { stat_at(dir, name, to, flags) }
    fn statx(dir: c_int, name: *const c_char, flags: c_int, mask: c_uint, to: *mut libc::statx) -> c_int {
        process::prepare();
        let is_outside = !is_libcs(dir, flags) && outside::is_outside(dir, name);
        let unfollowed = if is_outside { AT_SYMLINK_NOFOLLOW } else { 0 };
        let mut told = real::statx(dir, name, flags | unfollowed, mask, to);
        let is_link = told == 0 && c_int::from((*to).stx_mode) as u32 & libc::S_IFMT == libc::S_IFLNK;
        if is_link && is_outside && flags & AT_SYMLINK_NOFOLLOW == 0 {
            told = real::statx(dir, name, flags, mask, to);
        }
        if told != 0 || is_libcs(dir, flags) || c_int::from((*to).stx_mode) as u32 & libc::S_IFMT != libc::S_IFREG {
            return told;
        }
        let device = libc::makedev((*to).stx_dev_major, (*to).stx_dev_minor);
        if let Some(len) = len((device, (*to).stx_ino)) {
            (*to).stx_size = len;
            (*to).stx_blocks = len.div_ceil(BLOCK);
        } else if (is_link || !is_outside) && settle(dir, name, flags) {
            return real::statx(dir, name, flags, mask, to);
        }
        told
    }
}
