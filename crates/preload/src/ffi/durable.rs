//! The `fsync` family, and calls that change the length.

use super::data::by_descriptor;
use super::{path, process, quietly, real, served};
use crate::errno::{Errno, Result};
use crate::table::{self, Found};
use crate::{inside, log, pair};
use libc::{AT_FDCWD, c_char, c_int, c_uint, off_t};

by_descriptor! {
    fn fsync(fd: c_int) -> c_int = fsync, |of| of.sync().map(|()| 0);
    fn fdatasync(fd: c_int) -> c_int = fdatasync, |of| of.sync().map(|()| 0);
    fn sync_file_range(fd: c_int, at: off_t, len: off_t, flags: c_uint) -> c_int = sync_file_range, |of| of.sync().map(|()| 0);
    fn ftruncate(fd: c_int, len: off_t) -> c_int = ftruncate64, |of| of.set_len(len).map(|()| 0);
    fn ftruncate64(fd: c_int, len: off_t) -> c_int = ftruncate64, |of| of.set_len(len).map(|()| 0);
    fn fallocate(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int = fallocate64, |of| allocate(of, mode, at, len);
    fn fallocate64(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int = fallocate64, |of| allocate(of, mode, at, len);
}

fn allocate(
    of: &crate::description::Description,
    mode: c_int,
    at: off_t,
    len: off_t,
) -> Result<i64> {
    match mode {
        0 => of.reserve(at, len).map(|()| 0),
        // Space is a matter of the pair: each write makes its own sure.
        libc::FALLOC_FL_KEEP_SIZE => of.is_writable().then_some(0).ok_or(Errno::BAD_DESCRIPTOR),
        _ => {
            log::line("fallocate with a hole, zeroes or a shift is refused: EOPNOTSUPP");
            Err(Errno::UNSUPPORTED)
        }
    }
}

/// Syncs the chosen files. The engine's own `syncfs` is a call of a thread that has their locks.
fn sync_ours() {
    if !inside::is_inside() {
        quietly(pair::sync_all);
    }
}

/// Returns the number of an error as these calls do: not in `errno`.
fn reserve(fd: c_int, at: off_t, len: off_t) -> Option<c_int> {
    match table::find(fd) {
        Found::Chosen(guard) => Some(
            super::caught(move || guard.as_ref().ok_or(Errno::BAD_DESCRIPTOR)?.reserve(at, len))
                .map_or_else(|errno| errno.0, |()| 0),
        ),
        Found::Closing if path::is_still(fd) => Some(libc::EBADF),
        _ => None,
    }
}

hook! {
    fn posix_fallocate(fd: c_int, at: off_t, len: off_t) -> c_int {
        reserve(fd, at, len).unwrap_or_else(|| real::posix_fallocate64(fd, at, len))
    }
    fn posix_fallocate64(fd: c_int, at: off_t, len: off_t) -> c_int {
        reserve(fd, at, len).unwrap_or_else(|| real::posix_fallocate64(fd, at, len))
    }
    fn syncfs(fd: c_int) -> c_int {
        sync_ours();
        real::syncfs(fd)
    }
    fn sync() -> () {
        sync_ours();
        real::syscall(libc::SYS_sync, 0, 0, 0, 0, 0, 0);
    }
    fn truncate(path: *const c_char, len: off_t) -> c_int { truncate_path(path, len) }
    fn truncate64(path: *const c_char, len: off_t) -> c_int { truncate_path(path, len) }
}

/// Truncates by a path.
///
/// # Safety
/// As for `truncate`.
unsafe fn truncate_path(path: *const c_char, len: off_t) -> c_int {
    process::prepare();
    // SAFETY: as the caller promises.
    unsafe {
        let Some(chosen) = path::chosen(AT_FDCWD, path, 0) else {
            return real::truncate64(path, len);
        };
        served(|| {
            let len = u64::try_from(len).map_err(|_| Errno::INVALID)?;
            let pair = chosen.acquire(true)?;
            let changed = pair.set_len(len);
            let released = pair.release();
            changed.and(released).map(|()| 0)
        })
    }
}
