//! `chmod`, `chown`, `utimensat` and their kin.
//!
//! - The companions of an open file hold bytes of it, so they get its mode and its owner.
//! - The engine writes to the home file later than the program does. So an open file is closed
//!   before it gets a time: a later close would move that time.

use super::{failed, path, process, quietly, real};
use crate::pair::{self, Identity};
use crate::{inside, log};
use libc::{
    AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int, gid_t, mode_t, timespec, timeval,
    uid_t,
};
use std::ffi::CStr;
use std::ptr::null;

/// Returns the file that a path or a descriptor names, if this process may have it open.
///
/// # Safety
/// `name` is NULL, for `dir` itself, or a text with its zero byte.
unsafe fn open_file(dir: c_int, name: *const c_char, flags: c_int) -> Option<Identity> {
    if !pair::are_open() || inside::is_inside() || process::is_vfork_child() {
        return None;
    }
    let errno = super::errno();
    let found = if name.is_null() {
        path::stat(dir, c"", AT_EMPTY_PATH)
    } else {
        // SAFETY: as the caller promises.
        path::stat(
            dir,
            unsafe { CStr::from_ptr(name) },
            flags & (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH),
        )
    };
    super::set_errno(errno);
    found.map(|found| path::identity(&found))
}

/// Runs a call that changes the mode or the owner of a file.
fn guarded(of: Option<Identity>, call: impl FnOnce() -> c_int) -> c_int {
    let done = call();
    if let (0, Some(identity)) = (done, of) {
        quietly(|| follow(identity));
    }
    done
}

/// Gives the companions of an open file its mode and its owner.
fn follow(identity: Identity) {
    let Some(home) =
        pair::find(identity).and_then(|pair| path::stat(pair.anchor()?, c"", AT_EMPTY_PATH))
    else {
        return;
    };
    path::companions(identity, |fd, _| {
        // SAFETY: the calls have no pointers.
        let done = unsafe {
            let owned = real::fchown(fd, home.st_uid, home.st_gid);
            owned | real::fchmod(fd, home.st_mode & 0o777)
        };
        if done != 0 {
            log::line("a companion does not get the mode or the owner of its file");
        }
    });
}

/// Runs a call that gives a file a time.
fn timed(of: Option<Identity>, call: impl FnOnce() -> c_int) -> c_int {
    match of.map(|identity| super::caught(|| pair::rest(identity))) {
        Some(Err(errno)) => failed(errno),
        _ => call(),
    }
}

hook! {
    fn chmod(name: *const c_char, mode: mode_t) -> c_int { guarded(open_file(AT_FDCWD, name, 0), || real::chmod(name, mode)) }
    fn fchmod(fd: c_int, mode: mode_t) -> c_int { guarded(open_file(fd, null(), 0), || real::fchmod(fd, mode)) }
    fn fchmodat(dir: c_int, name: *const c_char, mode: mode_t, flags: c_int) -> c_int {
        guarded(open_file(dir, name, flags), || real::fchmodat(dir, name, mode, flags))
    }
    fn chown(name: *const c_char, user: uid_t, group: gid_t) -> c_int { guarded(open_file(AT_FDCWD, name, 0), || real::chown(name, user, group)) }
    fn lchown(name: *const c_char, user: uid_t, group: gid_t) -> c_int {
        guarded(open_file(AT_FDCWD, name, AT_SYMLINK_NOFOLLOW), || real::lchown(name, user, group))
    }
    fn fchown(fd: c_int, user: uid_t, group: gid_t) -> c_int { guarded(open_file(fd, null(), 0), || real::fchown(fd, user, group)) }
    fn fchownat(dir: c_int, name: *const c_char, user: uid_t, group: gid_t, flags: c_int) -> c_int {
        guarded(open_file(dir, name, flags), || real::fchownat(dir, name, user, group, flags))
    }
    fn utimensat(dir: c_int, name: *const c_char, times: *const timespec, flags: c_int) -> c_int {
        timed(open_file(dir, name, flags), || real::utimensat(dir, name, times, flags))
    }
    fn futimens(fd: c_int, times: *const timespec) -> c_int { timed(open_file(fd, null(), 0), || real::futimens(fd, times)) }
    fn futimes(fd: c_int, times: *const timeval) -> c_int { timed(open_file(fd, null(), 0), || real::futimes(fd, times)) }
    fn futimesat(dir: c_int, name: *const c_char, times: *const timeval) -> c_int { timed(open_file(dir, name, 0), || real::futimesat(dir, name, times)) }
    fn utimes(name: *const c_char, times: *const timeval) -> c_int { timed(open_file(AT_FDCWD, name, 0), || real::utimes(name, times)) }
    fn lutimes(name: *const c_char, times: *const timeval) -> c_int {
        timed(open_file(AT_FDCWD, name, AT_SYMLINK_NOFOLLOW), || real::lutimes(name, times))
    }
    fn utime(name: *const c_char, times: *const libc::utimbuf) -> c_int { timed(open_file(AT_FDCWD, name, 0), || real::utime(name, times)) }
}
