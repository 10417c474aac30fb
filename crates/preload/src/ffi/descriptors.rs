//! `close`, `dup`, `fcntl`, `ioctl`, `flock`.
//!
//! A child of `vfork` shares the memory of its parent, but not its descriptors. There the table
//! stays as it is.

use super::data::{self, by_descriptor};
use super::{Uncancelled, failed, open, process, real, streams};
use crate::description::Description;
use crate::errno::Errno;
use crate::{inside, log, settings, table};
use libc::{c_int, c_short, c_uint, c_ulong};
use std::sync::Arc;

/// Returns `true` if the library decides about the descriptor.
#[inline]
fn is_ours(fd: c_int) -> bool {
    (table::is_chosen(fd) || table::is_private(fd)) && !process::is_vfork_child()
}

/// Returns `true` if the program may not close or replace the descriptor.
fn is_reserved(fd: c_int) -> bool {
    table::is_private(fd) && !inside::is_inside() && !process::is_vfork_child()
}

/// Closes a descriptor that is in the table.
fn close_ours(fd: c_int) -> c_int {
    if is_reserved(fd) {
        return failed(Errno::BAD_DESCRIPTOR);
    }
    end_by(fd, || super::close(fd))
}

/// Closes a descriptor by `close`, and ends the use of its description. A thread that is cancelled
/// meanwhile ends afterwards, so that the descriptor is closed as a whole.
pub(super) fn end_by(fd: c_int, close: impl FnOnce() -> c_int) -> c_int {
    let _ends_first = Uncancelled::new();
    let of = table::begin_close(fd);
    table::set_private(fd, false);
    let own = of.as_ref().filter(|of| !of.is_inherited());
    if let Some(of) = own.filter(|of| Arc::strong_count(of) == 1) {
        process::hand_over_last(fd, of);
    }
    // A thread that gives an offset away has found the number in the table before.
    own.inspect(|of| of.hold(|| ()));
    let closed = close();
    let errno = super::errno();
    table::closed(fd);
    streams::follow(fd);
    match Description::leave(of) {
        Ok(()) => {
            super::set_errno(errno);
            closed
        }
        Err(errno) => failed(errno),
    }
}

/// Makes `to` a descriptor of the same description as `fd`.
fn duplicate_to(fd: c_int, to: c_int, is_kept: bool) -> c_int {
    let Some(of) = table::share(fd) else { return failed(Errno::BAD_DESCRIPTOR) };
    if to < 0 || to as usize >= table::LIMIT {
        return failed(Errno::BAD_DESCRIPTOR);
    }
    if is_reserved(to) {
        log::line("dup2 to a descriptor of the library: EBUSY");
        return failed(Errno(libc::EBUSY));
    }
    held(to, || {
        // SAFETY: the call has no pointers.
        let made = unsafe { real::dup3(fd, to, libc::O_CLOEXEC) };
        (made, (made >= 0).then(|| table::put(made, of, is_kept)).flatten())
    })
}

/// Gives a number to another file by `replace`, which returns the new descriptor and what the table
/// had for it. A thread that gives the offset of the old one away does so before.
fn held(fd: c_int, replace: impl FnOnce() -> (c_int, Option<Arc<Description>>)) -> c_int {
    let old = table::share(fd).filter(|_| is_own(fd));
    // Another process may have the description as well. The table has it, and this call.
    if let Some(old) = old.as_ref().filter(|old| !old.is_inherited() && Arc::strong_count(old) == 2)
    {
        process::hand_over_last(fd, old);
    }
    let (made, before) = match &old {
        Some(old) => old.hold(replace),
        None => replace(),
    };
    drop(old);
    if made >= 0 && (before.is_some() || is_own(made)) {
        let errno = super::errno();
        streams::follow(made);
        let _logged = Description::leave(before);
        super::set_errno(errno);
    }
    made
}

/// Makes `to` a descriptor of a file that is not chosen. `to` may be in the table.
fn replace(to: c_int, duplicate: impl FnOnce() -> c_int) -> c_int {
    if is_reserved(to) {
        log::line("dup2 to a descriptor of the library: EBUSY");
        return failed(Errno(libc::EBUSY));
    }
    held(to, || {
        let made = duplicate();
        (made, (made >= 0 && is_own(made)).then(|| table::take(made)).flatten())
    })
}

/// Makes a new descriptor from `first` on.
fn duplicate(fd: c_int, first: usize, is_kept: bool) -> c_int {
    let Some(of) = table::share(fd) else { return failed(Errno::BAD_DESCRIPTOR) };
    // SAFETY: the call has no pointers.
    let made = unsafe { real::fcntl64(fd, libc::F_DUPFD_CLOEXEC, first) };
    if made >= 0 && made as usize >= table::LIMIT {
        super::close(made);
        return failed(Errno(libc::EMFILE));
    }
    if made >= 0 {
        open::enter(made, of, is_kept);
    }
    made
}

fn is_own(fd: c_int) -> bool {
    table::is_chosen(fd) && !process::is_vfork_child()
}

/// `fcntl` on any descriptor.
///
/// # Safety
/// As for `fcntl`.
unsafe fn control(fd: c_int, command: c_int, argument: usize) -> c_int {
    if is_own(fd) {
        return control_own(fd, command, argument);
    }
    // SAFETY: as the caller promises.
    let done = unsafe { real::fcntl64(fd, command, argument) };
    let is_dup = command == libc::F_DUPFD_CLOEXEC && inside::is_inside();
    if is_dup { open::hide(done) } else { done }
}

/// `fcntl` on a chosen descriptor.
fn control_own(fd: c_int, command: c_int, argument: usize) -> c_int {
    match command {
        libc::F_DUPFD => duplicate(fd, argument, true),
        libc::F_DUPFD_CLOEXEC => duplicate(fd, argument, false),
        libc::F_GETFD => c_int::from(!table::is_kept(fd)),
        libc::F_SETFD => {
            table::keep(fd, argument & libc::FD_CLOEXEC as usize == 0);
            0
        }
        libc::F_GETLK
        | libc::F_SETLK
        | libc::F_SETLKW
        | libc::F_OFD_GETLK
        | libc::F_OFD_SETLK
        | libc::F_OFD_SETLKW
            if argument != 0 =>
        {
            // SAFETY: as the caller of `fcntl` promises.
            lock(fd, command, unsafe { &mut *(argument as *mut libc::flock) })
        }
        // SAFETY: as above.
        _ => unsafe {
            let done = real::fcntl64(fd, command, argument);
            if let (libc::F_SETFL, 0, Some(of)) = (command, done, table::share(fd)) {
                of.set_flags(argument as c_int);
            }
            done
        },
    }
}

/// Asks for a record lock of a chosen file, or changes it. The kernel does not have the offset and
/// the length of the file, by which its place may be told.
fn lock(fd: c_int, command: c_int, asked: &mut libc::flock) -> c_int {
    let Some(of) = table::share(fd) else { return failed(Errno::BAD_DESCRIPTOR) };
    let mut lock = *asked;
    let from = match c_int::from(lock.l_whence) {
        // SAFETY: the call has no pointers.
        libc::SEEK_CUR => unsafe { data::lseek(fd, 0, libc::SEEK_CUR) },
        libc::SEEK_END => super::served(|| Ok(of.len()? as i64)),
        _ => 0,
    };
    if from < 0 {
        return -1;
    }
    if matches!(c_int::from(lock.l_whence), libc::SEEK_CUR | libc::SEEK_END) {
        let Some(start) = lock.l_start.checked_add(from) else {
            return failed(Errno(libc::EOVERFLOW));
        };
        (lock.l_whence, lock.l_start) = (libc::SEEK_SET as c_short, start);
    }
    // SAFETY: a lock, which outlives the call.
    let done = unsafe { real::fcntl64(fd, command, &raw mut lock as usize) };
    let unlocks = c_int::from(lock.l_type) == libc::F_UNLCK;
    match command {
        libc::F_GETLK | libc::F_OFD_GETLK if done == 0 && unlocks => asked.l_type = lock.l_type,
        libc::F_GETLK | libc::F_OFD_GETLK if done == 0 => *asked = lock,
        // Part of the file may stay locked.
        libc::F_SETLK | libc::F_SETLKW
            if done == 0 && (!unlocks || lock.l_start == 0 && lock.l_len == 0) =>
        {
            of.set_locked(!unlocks);
        }
        _ => {}
    }
    done
}

/// `lockf` on a chosen descriptor: a record lock from the offset on.
fn lock_from_offset(fd: c_int, command: c_int, len: libc::off_t) -> c_int {
    // SAFETY: all zeroes are a value of this type. The call has no pointers.
    let (mut asked, own): (libc::flock, _) = unsafe { (std::mem::zeroed(), libc::getpid()) };
    asked.l_whence = libc::SEEK_CUR as c_short;
    asked.l_len = len;
    let (command, kind) = match command {
        libc::F_ULOCK => (libc::F_SETLK, libc::F_UNLCK),
        libc::F_LOCK => (libc::F_SETLKW, libc::F_WRLCK),
        libc::F_TLOCK => (libc::F_SETLK, libc::F_WRLCK),
        libc::F_TEST => (libc::F_GETLK, libc::F_WRLCK),
        _ => return failed(Errno::INVALID),
    };
    asked.l_type = kind as c_short;
    let done = lock(fd, command, &mut asked);
    let is_free = c_int::from(asked.l_type) == libc::F_UNLCK || asked.l_pid == own;
    if command == libc::F_GETLK && done == 0 && !is_free {
        return failed(Errno(libc::EACCES));
    }
    done
}

// Requests of `ioctl` that the home file would answer wrongly: which blocks it has, and clones.
const CLONES: [c_ulong; 3] = [libc::FICLONE, libc::FICLONERANGE, 0xc018_9436];
const EXTENTS: [c_ulong; 2] = [0xc020_660b, 1];

hook! {
    fn close(fd: c_int) -> c_int {
        if !is_ours(fd) {
            return real::close(fd);
        }
        super::end_if_cancelled();
        close_ours(fd)
    }
    fn __close(fd: c_int) -> c_int { close(fd) }
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        if process::is_vfork_child() { real::close_range(first, last, flags) } else { close_between(first, last, flags) }
    }
    fn closefrom(first: c_int) -> () {
        close_range(first.max(0) as c_uint, c_uint::MAX, 0);
    }
    fn dup(fd: c_int) -> c_int {
        if is_own(fd) { duplicate(fd, 0, true) } else { real::dup(fd) }
    }
    fn dup2(fd: c_int, to: c_int) -> c_int {
        if is_own(fd) {
            if fd == to { to } else { duplicate_to(fd, to, true) }
        } else if fd == to {
            real::dup2(fd, to)
        } else {
            replace(to, || real::dup2(fd, to))
        }
    }
    fn __dup2(fd: c_int, to: c_int) -> c_int { dup2(fd, to) }
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
        if is_own(fd) && fd != to && flags & !libc::O_CLOEXEC == 0 {
            duplicate_to(fd, to, flags & libc::O_CLOEXEC == 0)
        } else if fd == to {
            real::dup3(fd, to, flags)
        } else {
            replace(to, || real::dup3(fd, to, flags))
        }
    }
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int { control(fd, command, argument) }
    fn __fcntl(fd: c_int, command: c_int, argument: usize) -> c_int { control(fd, command, argument) }
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int { control(fd, command, argument) }
    fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
        let source = match request {
            libc::FICLONE => argument as c_int,
            // The source is the first field, of 64 bits.
            libc::FICLONERANGE if argument != 0 => *(argument as *const i64) as c_int,
            _ => -1,
        };
        if !is_own(fd) && !is_own(source) {
            return real::ioctl(fd, request, argument);
        }
        if CLONES.contains(&request) || EXTENTS.contains(&request) {
            log::line("ioctl that clones or maps blocks is refused: EOPNOTSUPP");
            return failed(Errno::UNSUPPORTED);
        }
        match request {
            libc::FIOCLEX => control_own(fd, libc::F_SETFD, libc::FD_CLOEXEC as usize),
            libc::FIONCLEX => control_own(fd, libc::F_SETFD, 0),
            _ => real::ioctl(fd, request, argument),
        }
    }
}

// These descriptors keep their locks: see `pair::rest_all`.
hook! {
    fn lockf(fd: c_int, command: c_int, len: libc::off_t) -> c_int {
        if is_own(fd) { lock_from_offset(fd, command, len) } else { real::lockf64(fd, command, len) }
    }
    fn lockf64(fd: c_int, command: c_int, len: libc::off_t) -> c_int { lockf(fd, command, len) }
}

// The engine holds the lock of the home file for as long as it is open.
by_descriptor! {
    fn flock(fd: c_int, operation: c_int) -> c_int = flock, |_of| {
        log::line("flock is refused, since atomic-mmap holds that lock: ENOLCK");
        Err(Errno(libc::ENOLCK))
    };
}

/// Closes the descriptors of a range: those of the table one by one, and those of the library not
/// at all.
fn close_between(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const CLOEXEC: c_int = 4;
    const UNSHARE: c_int = 2;
    if !settings::is_on() || first > last || flags & !(CLOEXEC | UNSHARE) != 0 {
        // SAFETY: the call has no pointers.
        return unsafe { real::close_range(first, last, flags) };
    }
    let mut from = first;
    while from <= last {
        let next = c_int::try_from(from).ok().and_then(table::next).map(|fd| fd as c_uint);
        let next = next.filter(|fd| *fd <= last);
        let gap = from..next.unwrap_or(last.saturating_add(1));
        if !gap.is_empty() {
            let end = if next.is_some() { gap.end - 1 } else { last };
            // SAFETY: the call has no pointers.
            let closed = unsafe { real::close_range(gap.start, end, flags) };
            if closed != 0 {
                return closed;
            }
        }
        let Some(fd) = next else { break };
        if flags & CLOEXEC != 0 {
            table::keep(fd as c_int, false);
        } else if table::is_chosen(fd as c_int) {
            close_ours(fd as c_int);
        }
        from = fd + 1;
    }
    0
}
