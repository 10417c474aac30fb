//! Loading, `fork`, `exec`, the end.
//!
//! - At loading, descriptors that a shell has opened for the program are taken into the table.
//! - A child of `fork` forgets the pairs of its parent. Their descriptors fail there.
//! - Before an `exec`, each file is closed and is one plain file. The new program takes over the
//!   descriptors that stay open. The same holds for `vfork`, which is a `fork` here.
//! - At the end, each file is closed.

use super::{copies, open, path, real, streams};
use crate::description::Description;
use crate::{inside, log, pair, settings, table};
use libc::{c_char, c_int, c_void};
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// The process that the table describes. A child of `vfork` is another one with the same memory.
/// Relaxed, as `IS_LOADED`: both change while the process has one thread.
static OWNER: AtomicI32 = AtomicI32::new(0);
static IS_LOADED: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOADING: extern "C" fn() = load;
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_THE_END: extern "C" fn() = end;

/// Reads the settings, if that has not happened yet. Called by hooks that may come before loading.
#[inline]
pub(super) fn prepare() {
    if !settings::are_read() {
        read_settings();
    }
}

#[cold]
fn read_settings() {
    settings::read(|name| {
        let mut with_zero = [0; 64];
        with_zero[..name.len()].copy_from_slice(name.as_bytes());
        // SAFETY: a name with its zero byte. The value is copied before another thread can change
        // the environment: the program has no other thread yet.
        unsafe {
            let value = secure_getenv(with_zero.as_ptr().cast());
            (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
        }
    });
}

pub(super) fn is_loaded() -> bool {
    IS_LOADED.load(Ordering::Relaxed)
}

/// Returns `true` in a child of `vfork`: memory is the parent's, and descriptors are its own.
pub(super) fn is_vfork_child() -> bool {
    // SAFETY: the call has no precondition.
    is_loaded() && OWNER.load(Ordering::Relaxed) != unsafe { libc::getpid() }
}

extern "C" fn load() {
    prepare();
    if !settings::is_on() {
        return;
    }
    // SAFETY: the handlers live as long as the library, which stays loaded.
    unsafe {
        OWNER.store(libc::getpid(), Ordering::Relaxed);
        libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child));
        // The first handler runs last.
        __cxa_at_quick_exit(end_quickly, null_mut());
    }
    if let Some(fault) = settings::fault() {
        let line = format!("atomic-mmap: {fault}; the program is not started\n");
        // SAFETY: a text with its length.
        unsafe {
            real::write(2, line.as_ptr().cast(), line.len());
            real::_exit(127);
        }
    }
    IS_LOADED.store(true, Ordering::Relaxed);
    super::quietly(|| {
        adopt_others();
    });
}

/// `quick_exit` calls this. It leaves streams as they are, and calls no `_exit` that is exported.
extern "C" fn end_quickly(_: *mut c_void) {
    if !is_vfork_child() {
        close_all();
    }
}

extern "C" fn before_fork() {
    pair::before_fork();
}

extern "C" fn after_fork() {
    pair::after_fork();
}

extern "C" fn in_child() {
    // SAFETY: the call has no precondition.
    OWNER.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    pair::in_child();
    copies::in_child();
}

extern "C" fn end() {
    if !is_loaded() || is_vfork_child() {
        return;
    }
    // glibc writes out its own streams after this function.
    streams::flush_all();
    close_all();
}

fn close_all() {
    let was_inside = inside::is_inside();
    super::quietly(|| {
        pair::close_all(was_inside);
        // A shell that has started this program goes on where it has ended.
        hand_over_all();
    });
}

/// Takes the descriptors of chosen files into the table that are not there: those that the process
/// was started with, and those that were opened by a name that is not chosen.
pub(super) fn adopt_others() {
    adopt(&others());
}

/// Takes those of `all` into the table that are descriptors of chosen files.
pub(super) fn adopt(all: &[c_int]) {
    let mut seen: Vec<(c_int, pair::Identity)> = Vec::new();
    for &fd in all {
        let Some(chosen) = path::chosen_fd(fd) else { continue };
        let shared = seen.iter().find(|(of, it)| *it == chosen.identity && is_dup(*of, fd));
        let shared = shared.and_then(|(of, _)| table::share(*of));
        seen.push((fd, chosen.identity));
        if let Some(of) = shared {
            open::enter(fd, of, stays(fd));
            continue;
        }
        // SAFETY: the calls have no pointers.
        let (flags, offset) =
            unsafe { (real::fcntl64(fd, libc::F_GETFL, 0), real::lseek64(fd, 0, libc::SEEK_CUR)) };
        if flags & libc::O_PATH != 0 {
            continue;
        }
        if fd as usize >= table::LIMIT {
            log::line(&format!(
                "descriptor {fd} is that of a chosen file, is past 65535, and is closed"
            ));
            // SAFETY: the call has no pointers.
            unsafe { real::close(fd) };
            continue;
        }
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let opened = chosen.acquire(writes);
        if opened.is_err() {
            log::line(&format!("descriptor {fd} is that of a chosen file, and its calls fail"));
        }
        let offset = u64::try_from(offset).unwrap_or(0);
        open::enter(fd, Arc::new(Description::new(opened, flags, offset)), stays(fd));
        if path::regular(fd).is_none_or(|found| path::identity(&found) != chosen.identity) {
            open::forget(fd); // another thread has given the number to another file
        }
    }
}

/// Returns `true` if the kernel's descriptor stays open at an exec.
fn stays(fd: c_int) -> bool {
    // SAFETY: the call has no pointers.
    unsafe { real::fcntl64(fd, libc::F_GETFD, 0) & libc::FD_CLOEXEC == 0 }
}

/// Returns the open descriptors that are not in the table.
fn others() -> Vec<c_int> {
    let _inside = crate::inside::Inside::enter();
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        log::line("/proc is not there, so no file is chosen");
        return Vec::new();
    };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut all: Vec<c_int> = numbers.collect();
    all.retain(|fd| !table::is_chosen(*fd) && !table::is_private(*fd));
    // The descriptor of the folder itself is closed again.
    // SAFETY: the call has no pointers.
    all.retain(|fd| unsafe { real::fcntl64(*fd, libc::F_GETFD, 0) } >= 0);
    all.sort_unstable();
    all
}

/// Returns `true` if two descriptors have one description: they have one offset.
fn is_dup(one: c_int, other: c_int) -> bool {
    // SAFETY: the calls have no pointers.
    unsafe {
        let at = real::lseek64(one, 0, libc::SEEK_CUR);
        if at < 0 || real::lseek64(other, 0, libc::SEEK_CUR) != at {
            return false;
        }
        real::lseek64(one, at + 1, libc::SEEK_SET);
        let moved = real::lseek64(other, 0, libc::SEEK_CUR) == at + 1;
        real::lseek64(one, at, libc::SEEK_SET);
        moved
    }
}

/// Runs an `exec`. It returns only if it fails.
fn replaced(exec: impl FnOnce() -> c_int) -> c_int {
    if !is_loaded() || is_vfork_child() {
        return exec();
    }
    let body = || {
        pair::rest_all(false);
        let kept = all().filter(|fd| table::is_kept(*fd));
        let handed: Vec<_> = kept
            .filter_map(|fd| Some((fd, table::share(fd).filter(|of| of.is_plain())?)))
            .collect();
        for (fd, of) in &handed {
            hand_over(*fd, of);
            set_stays(*fd, of, true);
        }
        let result = (exec(), super::errno());
        for (fd, of) in &handed {
            set_stays(*fd, of, false);
        }
        Ok(result)
    };
    match super::caught(body) {
        Ok((result, errno)) => {
            super::set_errno(errno);
            result
        }
        Err(errno) => super::failed(errno),
    }
}

/// Gives the kernel the offset of a descriptor, so that other processes that have it find the
/// offset. Another thread may have given the number to another file meanwhile.
fn hand_over(fd: c_int, of: &Description) {
    of.hand_over(|offset| {
        // SAFETY: the call has no pointers.
        table::is_of(fd, of) && unsafe { real::lseek64(fd, offset as i64, libc::SEEK_SET) } >= 0
    });
}

/// Gives the kernel the last offset of a descriptor that this thread is closing.
pub(super) fn hand_over_last(fd: c_int, of: &Description) {
    // SAFETY: the call has no pointers.
    of.hand_over(|offset| unsafe { real::lseek64(fd, offset as i64, libc::SEEK_SET) } >= 0);
}

/// Sets whether a descriptor stays open at an exec, if it still has its description.
fn set_stays(fd: c_int, of: &Description, stays: bool) {
    let flags = if stays { 0 } else { libc::FD_CLOEXEC };
    of.hold(|| {
        if table::is_of(fd, of) {
            // SAFETY: the call has no pointers.
            unsafe { real::fcntl64(fd, libc::F_SETFD, flags as usize) };
        }
    });
}

/// Gives the kernel the offsets of this process. Those of its parent are not its own to give.
fn hand_over_all() {
    for fd in all() {
        if let Some(of) = table::share(fd).filter(|of| !of.is_inherited()) {
            hand_over(fd, &of);
        }
    }
}

/// Closes the files until the next call on each: see [`pair::rest_all`].
fn rest(goes_on: bool) {
    if is_loaded() && !is_vfork_child() {
        super::quietly(|| {
            pair::rest_all(goes_on);
            hand_over_all();
        });
    }
}

/// Returns the descriptors of the table.
fn all() -> impl Iterator<Item = c_int> {
    std::iter::successors(table::next(0), |fd| table::next(fd + 1))
}

unsafe extern "C" {
    /// Returns no variable to a program that has more rights than its caller: see `settings`.
    fn secure_getenv(name: *const c_char) -> *const c_char;
    fn __cxa_at_quick_exit(handler: extern "C" fn(*mut c_void), library: *mut c_void) -> c_int;
    static environ: *const *const c_char;
}

hook! {
    // A shell may open a file, call `vfork`, and let the child's program write to it. So the file
    // is plain during the child's exec, and the parent opens it again when it uses it again. A
    // child that shares the memory of its parent could do neither.
    fn vfork() -> libc::pid_t {
        rest(true);
        libc::fork()
    }
    // The parent ends in there without `_exit` of this library.
    fn daemon(keeps_folder: c_int, keeps_streams: c_int) -> c_int {
        rest(false);
        real::daemon(keeps_folder, keeps_streams)
    }
    fn __vfork() -> libc::pid_t { vfork() }
    fn execve(path: *const c_char, args: *const *const c_char, env: *const *const c_char) -> c_int {
        replaced(|| real::execve(path, args, env))
    }
    fn execv(path: *const c_char, args: *const *const c_char) -> c_int {
        replaced(|| real::execve(path, args, environ))
    }
    fn execvp(file: *const c_char, args: *const *const c_char) -> c_int {
        replaced(|| real::execvpe(file, args, environ))
    }
    fn execvpe(file: *const c_char, args: *const *const c_char, env: *const *const c_char) -> c_int {
        replaced(|| real::execvpe(file, args, env))
    }
    fn fexecve(fd: c_int, args: *const *const c_char, env: *const *const c_char) -> c_int {
        replaced(|| real::fexecve(fd, args, env))
    }
    fn execveat(dir: c_int, path: *const c_char, args: *const *const c_char, env: *const *const c_char, flags: c_int) -> c_int {
        replaced(|| real::execveat(dir, path, args, env, flags))
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn _exit(code: c_int) -> ! {
    leave(code)
}

#[unsafe(no_mangle)]
pub extern "C" fn _Exit(code: c_int) -> ! {
    leave(code)
}

/// Ends the process without its exit handlers. Its files are closed all the same.
pub(super) fn leave(code: c_int) -> ! {
    if is_loaded() && !is_vfork_child() {
        close_all();
    }
    // SAFETY: the call ends the process.
    unsafe { real::_exit(code) };
    std::process::abort()
}
