//! `open` and its kin.
//!
//! The kernel opens the file first, so that access, creation, links and numbers of descriptors are
//! the kernel's. The path of the new descriptor tells whether the file is chosen. An `O_TRUNC`
//! never reaches the home file of a pair: it becomes a change of the length, once the descriptor
//! has told its file.

use super::{errno, names, outside, path, process, real, set_errno, streams};
use crate::description::Description;
use crate::errno::{Errno, Result};
use crate::table::{self, Found};
use crate::{inside, log, pair, settings};
use libc::{AT_FDCWD, c_char, c_int, mode_t};
use std::cmp::Ordering;
use std::sync::Arc;

/// Opens a path below a folder.
///
/// # Safety
/// `path` is a text with its zero byte, as for `openat`.
pub(super) unsafe fn open_at(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    process::prepare();
    // SAFETY: as the caller promises.
    unsafe {
        if inside::is_inside() {
            return hide(real::openat(dir, path, flags, mode));
        }
        if let Some(fd) = outside(dir, path, flags, mode) {
            return fd;
        }
        if !settings::is_on() || flags & libc::O_PATH != 0 || process::is_vfork_child() {
            return real::openat(dir, path, flags, mode);
        }
        // A descriptor that only reads could not truncate later.
        let reads = flags & libc::O_ACCMODE == libc::O_RDONLY;
        let is_early = reads && path::chosen(dir, path, 0).is_none();
        let asked = if is_early { flags } else { flags & !libc::O_TRUNC };
        let fd = real::openat(dir, path, asked | libc::O_CLOEXEC, mode);
        shown(adopted(fd, flags, flags != asked), flags)
    }
}

/// Opens a path that leads to no chosen file, and on which no name is a link. Returns `None` if it
/// is another one, and has done nothing then.
///
/// # Safety
/// As for `openat`.
unsafe fn outside(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> Option<c_int> {
    // `openat` ignores flags that `openat2` refuses.
    const KNOWN: c_int = libc::O_ACCMODE
        | libc::O_CREAT
        | libc::O_EXCL
        | libc::O_NOCTTY
        | libc::O_TRUNC
        | libc::O_APPEND
        | libc::O_NONBLOCK
        | libc::O_SYNC
        | libc::O_DIRECT
        | libc::O_DIRECTORY
        | libc::O_NOFOLLOW
        | libc::O_NOATIME
        | libc::O_CLOEXEC;
    /// `O_LARGEFILE` of the kernel, which it adds by itself.
    const LARGE: c_int = 0o100_000;
    // A file that is open here by another name must not be truncated beneath the engine.
    let is_risk = pair::are_open() && flags & libc::O_TRUNC != 0;
    // SAFETY: as the caller promises.
    unsafe {
        if !settings::is_on() || flags & !(KNOWN | LARGE) != 0 || is_risk {
            return None;
        }
        if !outside::is_outside(dir, path) {
            return None;
        }
        let mut how: libc::open_how = std::mem::zeroed();
        how.flags = (flags & KNOWN) as u64;
        how.mode = if flags & libc::O_CREAT != 0 { u64::from(mode & 0o7777) } else { 0 };
        how.resolve = libc::RESOLVE_NO_SYMLINKS;
        let before = errno();
        let size = size_of::<libc::open_how>();
        let (from, how) = (dir as usize, &raw const how as usize);
        let fd = real::syscall(libc::SYS_openat2, from, path as usize, how, size, 0, 0) as c_int;
        if fd < 0 {
            let is_refused = [libc::ELOOP, libc::ENOSYS, libc::EPERM, libc::EINVAL, libc::E2BIG];
            let is_answer = !is_refused.contains(&errno());
            if !is_answer {
                set_errno(before);
            }
            return is_answer.then_some(fd);
        }
        // The table of a child of `vfork` is its parent's.
        let may_be_ours = table::is_chosen(fd) || pair::are_open();
        let is_open = |found: &libc::stat| pair::is_open(path::identity(found));
        if may_be_ours && !process::is_vfork_child() {
            forget(fd);
            if path::regular(fd).as_ref().is_some_and(is_open) {
                return Some(adopted(fd, flags, false));
            }
        }
        set_errno(before);
        Some(fd)
    }
}

/// Lets a descriptor stay open at an exec, if the program wants that and it is not chosen. Until it
/// is known what it is, no program that another thread starts may get it.
fn shown(fd: c_int, flags: c_int) -> c_int {
    if fd >= 0 && flags & libc::O_CLOEXEC == 0 && !table::is_chosen(fd) {
        // SAFETY: the call has no pointers.
        unsafe { real::fcntl64(fd, libc::F_SETFD, 0) };
    }
    fd
}

/// Opens a path by `openat2`, which has no function in libc.
///
/// # Safety
/// As for the system call.
pub(super) unsafe fn open_how(
    dir: c_int,
    path: *const c_char,
    how: *const libc::open_how,
    size: usize,
) -> c_int {
    let call = |how: *const libc::open_how| {
        let (dir, path, how) = (dir as usize, path as usize, how as usize);
        // SAFETY: as the caller promises.
        unsafe { real::syscall(libc::SYS_openat2, dir, path, how, size, 0, 0) as c_int }
    };
    match size.cmp(&size_of::<libc::open_how>()) {
        Ordering::Less => call(how),
        // A kernel says so to fields that it does not know.
        Ordering::Greater => super::failed(Errno(libc::E2BIG)),
        Ordering::Equal if how.is_null() => call(how),
        Ordering::Equal => {
            // SAFETY: as the caller promises.
            let mut asked = unsafe { how.read() };
            let flags = asked.flags as c_int;
            if flags & libc::O_PATH != 0 {
                return call(how);
            }
            let reads = flags & libc::O_ACCMODE == libc::O_RDONLY;
            let truncates = !reads && flags & libc::O_TRUNC != 0;
            if truncates {
                asked.flags &= !(libc::O_TRUNC as u64);
            }
            asked.flags |= libc::O_CLOEXEC as u64;
            let fd = adopted(call(&raw const asked), flags, truncates);
            shown(fd, flags)
        }
    }
}

/// Takes a new descriptor into the table if it is a chosen file, and truncates its file if that
/// remains to be done. Returns the descriptor, or -1 in its place.
fn adopted(fd: c_int, flags: c_int, truncates: bool) -> c_int {
    if fd < 0 {
        return fd;
    }
    let before = errno();
    let done = super::caught(|| {
        adopt(fd, flags)?;
        match table::find(fd) {
            _ if !truncates => Ok(()),
            Found::Chosen(of) => match of.as_ref() {
                Some(of) if of.is_writable() => of.set_len(0),
                _ => Ok(()),
            },
            // SAFETY: the call has no pointers.
            _ if path::regular(fd).is_none() || unsafe { real::ftruncate64(fd, 0) } == 0 => Ok(()),
            _ => Err(Errno(errno())),
        }
    });
    let Err(error) = done else {
        set_errno(before);
        return fd;
    };
    let of = table::begin_close(fd);
    super::close(fd);
    table::closed(fd);
    let _logged = Description::leave(of);
    streams::follow(fd);
    super::failed(error)
}

/// Takes a descriptor out that the kernel has closed past this library.
pub(super) fn forget(fd: c_int) {
    if table::is_chosen(fd) {
        let of = table::take(fd);
        streams::follow(fd);
        let _logged = Description::leave(of);
    }
}

/// Takes a new descriptor into the table if it is a chosen file.
fn adopt(fd: c_int, flags: c_int) -> Result<()> {
    forget(fd);
    let Some(chosen) = path::chosen_fd(fd) else { return Ok(()) };
    if fd as usize >= table::LIMIT {
        log::line("a descriptor past 65535, where no file is chosen");
        return Err(Errno(libc::EMFILE));
    }
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    let of = Description::new(Ok(chosen.acquire(writes)?), flags, 0);
    enter(fd, Arc::new(of), flags & libc::O_CLOEXEC == 0);
    if names::were_given() {
        process::adopt_others();
    }
    Ok(())
}

/// Enters a descriptor with its description, and ends the use of the one that was there. At an exec
/// the kernel closes the descriptor, unless `process` decides otherwise.
pub(super) fn enter(fd: c_int, of: Arc<Description>, is_kept: bool) {
    // SAFETY: the call has no pointers.
    unsafe { real::fcntl64(fd, libc::F_SETFD, libc::FD_CLOEXEC as usize) };
    let before = table::put(fd, of, is_kept);
    streams::follow(fd);
    let _logged = Description::leave(before);
}

/// Moves a descriptor of the library to high numbers, so that the program gets those it expects.
pub(super) fn hide(fd: c_int) -> c_int {
    if fd < 0 || !process::is_loaded() {
        return fd;
    }
    let before = errno();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place for the limit; the other calls have no pointers.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        let first = limit.rlim_cur.min(table::LIMIT as u64) as usize * 3 / 4;
        let moved = real::fcntl64(fd, libc::F_DUPFD_CLOEXEC, first);
        set_errno(before);
        if moved < 0 {
            table::set_private(fd, true);
            return fd;
        }
        super::close(fd);
        table::set_private(moved, true);
        moved
    }
}

const CREATES: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

hook! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int { open_at(AT_FDCWD, path, flags, mode) }
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int { open_at(AT_FDCWD, path, flags, mode) }
    fn __open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int { open_at(AT_FDCWD, path, flags, mode) }
    fn __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int { open_at(AT_FDCWD, path, flags, mode) }
    fn __open_2(path: *const c_char, flags: c_int) -> c_int { open_at(AT_FDCWD, path, flags, 0) }
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int { open_at(AT_FDCWD, path, flags, 0) }
    fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int { open_at(dir, path, flags, mode) }
    fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int { open_at(dir, path, flags, mode) }
    fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int { open_at(dir, path, flags, 0) }
    fn __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int { open_at(dir, path, flags, 0) }
    fn creat(path: *const c_char, mode: mode_t) -> c_int { open_at(AT_FDCWD, path, CREATES, mode) }
    fn creat64(path: *const c_char, mode: mode_t) -> c_int { open_at(AT_FDCWD, path, CREATES, mode) }
    fn mkstemp(template: *mut c_char) -> c_int { temporary(template, 0, 0) }
    fn mkstemp64(template: *mut c_char) -> c_int { temporary(template, 0, 0) }
    fn mkostemp(template: *mut c_char, flags: c_int) -> c_int { temporary(template, 0, flags) }
    fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int { temporary(template, 0, flags) }
    fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int { temporary(template, suffix, 0) }
    fn mkstemps64(template: *mut c_char, suffix: c_int) -> c_int { temporary(template, suffix, 0) }
    fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int { temporary(template, suffix, flags) }
    fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int { temporary(template, suffix, flags) }
}

/// Makes a file by a template.
///
/// # Safety
/// As for `mkostemps`.
unsafe fn temporary(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    process::prepare();
    // SAFETY: as the caller promises.
    unsafe {
        if inside::is_inside() || !settings::is_on() {
            return real::mkostemps64(template, suffix, flags);
        }
        let fd = real::mkostemps64(template, suffix, flags | libc::O_CLOEXEC);
        shown(adopted(fd, flags | libc::O_RDWR, false), flags)
    }
}
