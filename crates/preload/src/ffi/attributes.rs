//! `chmod`, `chown`, `utimensat`, `setxattr` and their kin.
//!
//! - The companions of a file hold bytes of it, so they get its mode and its owner.
//! - The engine writes to the home file later than the program does. So an open file is closed
//!   before it gets a time: a later close would move that time.
//! - No program copies the mark of a file that has companions.

use super::kept::Kept;
use super::path::Chosen;
use super::{failed, path, process, quietly, real, served};
use crate::errno::Errno;
use crate::pair::{self, Identity};
use crate::{inside, log, settings};
use libc::{
    AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int, c_void, gid_t, mode_t, size_t,
    timespec, timeval, uid_t,
};
use std::ffi::CStr;
use std::ptr::null;

/// Returns the chosen file that a path or a descriptor names.
///
/// # Safety
/// `name` is NULL, for `dir` itself, or a text with its zero byte.
unsafe fn named(dir: c_int, name: *const c_char, flags: c_int) -> Option<Chosen> {
    if !settings::is_on() || inside::is_inside() || process::is_vfork_child() {
        return None;
    }
    let errno = super::errno();
    // SAFETY: as the caller promises.
    let found = unsafe {
        if name.is_null() || flags & AT_EMPTY_PATH != 0 && *name == 0 {
            path::chosen_fd(dir)
        } else {
            let follow = if flags & AT_SYMLINK_NOFOLLOW != 0 { libc::O_NOFOLLOW } else { 0 };
            path::chosen(dir, name, follow)
        }
    };
    super::set_errno(errno);
    found
}

/// Runs a call that changes the mode or the owner of a file.
fn guarded(of: Option<Chosen>, call: impl FnOnce() -> c_int) -> c_int {
    let Some(chosen) = of else { return call() };
    let is_open = pair::snapshots_of(chosen.identity).is_some();
    let kept = if is_open { None } else { super::caught(|| Kept::of(&chosen)).ok().flatten() };
    let done = call();
    if done == 0 {
        quietly(|| match kept {
            Some(kept) => kept.follow(&chosen),
            None => follow(chosen.identity),
        });
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
fn timed(of: Option<Chosen>, call: impl FnOnce() -> c_int) -> c_int {
    let Some(chosen) = of else { return call() };
    served(|| {
        pair::while_resting(chosen.identity, || {
            let kept = Kept::of(&chosen).ok().flatten();
            if call() != 0 {
                return Err(Errno(super::errno()));
            }
            if let Some(kept) = kept {
                kept.accept_time();
            }
            Ok(0)
        })
    })
}

/// The mark of a home file that has companions.
const MARK: &CStr = c"user.atomic_mmap";

/// Runs a call that sets an attribute. A copy of a file does not get its mark: that names the
/// companions of the original.
///
/// # Safety
/// `name` is a text with its zero byte.
unsafe fn marked(name: *const c_char, call: impl FnOnce() -> c_int) -> c_int {
    let may_be_copy = settings::is_on() && !inside::is_inside() && !name.is_null();
    // SAFETY: as the caller promises.
    if may_be_copy && unsafe { CStr::from_ptr(name) } == MARK {
        return failed(Errno::UNSUPPORTED);
    }
    call()
}

hook! {
    fn chmod(name: *const c_char, mode: mode_t) -> c_int { guarded(named(AT_FDCWD, name, 0), || real::chmod(name, mode)) }
    fn fchmod(fd: c_int, mode: mode_t) -> c_int { guarded(named(fd, null(), 0), || real::fchmod(fd, mode)) }
    fn fchmodat(dir: c_int, name: *const c_char, mode: mode_t, flags: c_int) -> c_int {
        guarded(named(dir, name, flags), || real::fchmodat(dir, name, mode, flags))
    }
    fn chown(name: *const c_char, user: uid_t, group: gid_t) -> c_int { guarded(named(AT_FDCWD, name, 0), || real::chown(name, user, group)) }
    fn lchown(name: *const c_char, user: uid_t, group: gid_t) -> c_int {
        guarded(named(AT_FDCWD, name, AT_SYMLINK_NOFOLLOW), || real::lchown(name, user, group))
    }
    fn fchown(fd: c_int, user: uid_t, group: gid_t) -> c_int { guarded(named(fd, null(), 0), || real::fchown(fd, user, group)) }
    fn fchownat(dir: c_int, name: *const c_char, user: uid_t, group: gid_t, flags: c_int) -> c_int {
        guarded(named(dir, name, flags), || real::fchownat(dir, name, user, group, flags))
    }
    fn utimensat(dir: c_int, name: *const c_char, times: *const timespec, flags: c_int) -> c_int {
        timed(named(dir, name, flags), || real::utimensat(dir, name, times, flags))
    }
    fn futimens(fd: c_int, times: *const timespec) -> c_int { timed(named(fd, null(), 0), || real::futimens(fd, times)) }
    fn futimes(fd: c_int, times: *const timeval) -> c_int { timed(named(fd, null(), 0), || real::futimes(fd, times)) }
    fn futimesat(dir: c_int, name: *const c_char, times: *const timeval) -> c_int { timed(named(dir, name, 0), || real::futimesat(dir, name, times)) }
    fn utimes(name: *const c_char, times: *const timeval) -> c_int { timed(named(AT_FDCWD, name, 0), || real::utimes(name, times)) }
    fn lutimes(name: *const c_char, times: *const timeval) -> c_int {
        timed(named(AT_FDCWD, name, AT_SYMLINK_NOFOLLOW), || real::lutimes(name, times))
    }
    fn utime(name: *const c_char, times: *const libc::utimbuf) -> c_int { timed(named(AT_FDCWD, name, 0), || real::utime(name, times)) }
    fn setxattr(path: *const c_char, name: *const c_char, value: *const c_void, len: size_t, flags: c_int) -> c_int {
        marked(name, || real::setxattr(path, name, value, len, flags))
    }
    fn lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void, len: size_t, flags: c_int) -> c_int {
        marked(name, || real::lsetxattr(path, name, value, len, flags))
    }
    fn fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, len: size_t, flags: c_int) -> c_int {
        marked(name, || real::fsetxattr(fd, name, value, len, flags))
    }
}
