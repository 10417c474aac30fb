//! Loading, `exec`, the end.
//!
//! - At loading, descriptors that a shell has opened for the program are taken into the table.
//!   Their files rest until the first call on each.
//! - Before an `exec`, each file is closed and is one plain file. The new program takes over the
//!   descriptors that stay open. For a file that cannot be plain it gets one that fails.
//! - At the end, each file is closed. A program that has lost output does not end with 0.

use super::{copies, open, path, real, streams};
use crate::description::Description;
use crate::errno::Errno;
use crate::{inside, log, pair, settings, table};
use libc::{c_char, c_int, c_void};
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering};

/// The process that the table describes. A child of `vfork` is another one with the same memory.
/// Relaxed, as `IS_LOADED`: both change while the process has one thread.
static OWNER: AtomicI32 = AtomicI32::new(0);
static IS_LOADED: AtomicBool = AtomicBool::new(false);
/// The code by which `exit` ends the process, or [`UNKNOWN`]. Relaxed, as `HAS_ENDED`: one thread
/// uses both.
static CODE: AtomicI64 = AtomicI64::new(UNKNOWN);
/// glibc has not told the code yet.
const UNKNOWN: i64 = i64::MIN;
/// The function of this library at the end of the process has closed its files.
static HAS_ENDED: AtomicBool = AtomicBool::new(false);
/// A call has failed on a standard output that came from another process. Relaxed, as `CODE`.
static IS_OUTPUT_LOST: AtomicBool = AtomicBool::new(false);
/// The error of a file that another process has open.
const BUSY: Errno = Errno(libc::EBUSY);

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
        on_exit(note_code, null_mut());
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
        adopt_failing();
        adopt_others();
    });
}

extern "C" fn note_code(code: c_int, _: *mut c_void) {
    CODE.store(code.into(), Ordering::Relaxed);
    tell_loss();
}

/// Starts a thread of the library, with every signal blocked.
pub(super) fn start(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    // SAFETY: all zeroes are a value of this type. The calls fill or read the sets.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let thread = std::thread::Builder::new().name(name.into());
        let started = thread.spawn(move || super::quietly(body));
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut());
        started.map(drop)
    }
}

/// The generation of the process that has begun to complete its files, plus one. Relaxed, as in
/// `copies`.
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// Begins to complete open files at an interval, once a process, if the user wants that. The thread
/// makes no descriptor, and holds the lock of a file while it completes that.
pub(super) fn begin_to_complete() {
    let Some(every) = settings::home() else { return };
    let generation = pair::generation() + 1;
    if BEGUN.swap(generation, Ordering::Relaxed) == generation {
        return;
    }
    let complete = move || {
        loop {
            std::thread::sleep(every);
            super::quietly(pair::come_home);
        }
    };
    if let Err(error) = start("atomic-mmap-home", complete) {
        log::line(&format!("open files are not completed: {error}"));
    }
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
    // Threads of the parent were starting programs.
    let started = table::forget_starts().filter(|fd| table::is_chosen(*fd));
    started.for_each(|fd| set_flags(fd, libc::FD_CLOEXEC));
}

extern "C" fn end() {
    if !is_loaded() || is_vfork_child() {
        return;
    }
    // glibc writes out its own streams after this function.
    streams::flush_all();
    close_all();
    HAS_ENDED.store(true, Ordering::Relaxed);
    tell_loss();
}

/// Ends a program that has lost output, if that changes its code. glibc calls [`note_code`] after
/// [`end`], or before it if the library was loaded late. The second one of them knows enough.
fn tell_loss() {
    let has_ended = HAS_ENDED.load(Ordering::Relaxed);
    let Ok(code) = c_int::try_from(CODE.load(Ordering::Relaxed)) else { return };
    if has_ended && code_of(code) != code {
        // SAFETY: the call ends the process. glibc's own streams are written out before.
        unsafe {
            libc::fflush(null_mut());
            real::_exit(code_of(code));
        }
    }
}

/// Returns the code by which the process ends. One of the program's own that tells of a failure
/// stays.
fn code_of(code: c_int) -> c_int {
    /// An error of input or output, by `sysexits.h`.
    const LOST: c_int = 74;
    if code == 0 && IS_OUTPUT_LOST.load(Ordering::Relaxed) { LOST } else { code }
}

/// Notes that a program may have lost output for which another one has opened the file.
pub(super) fn note_lost_output() {
    IS_OUTPUT_LOST.store(true, Ordering::Relaxed);
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
        // A file that a crash has left is recovered now: its length is right then. One that another
        // process has open waits for the first call, as a plain one does.
        let is_left = || chosen.has_companion() && !chosen.is_in_use();
        let is_now = pair::is_open(chosen.identity) || is_left();
        let opened = is_now.then(|| chosen.acquire(writes));
        let opened = opened.filter(|opened| !matches!(opened, Err(BUSY)));
        let of = match opened {
            Some(opened) => Description::new(opened, flags, u64::try_from(offset).unwrap_or(0)),
            None => chosen.wait_for_call(writes).map_or_else(
                |errno| Description::new(Err(errno), flags, 0),
                |pair| Description::handed(pair, flags),
            ),
        };
        open::enter(fd, Arc::new(of), stays(fd));
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

/// Runs an `exec` of a program. It returns only if it fails.
fn replaced(program: &CStr, exec: impl FnOnce() -> c_int) -> c_int {
    if !is_loaded() || is_vfork_child() {
        return exec();
    }
    let body = || {
        pair::rest_all(false);
        let (handed, lost) = kept();
        handed.iter().for_each(|(fd, of)| hand_over(*fd, of));
        let staying = Staying::new(&handed);
        let lost: Vec<_> = lost.into_iter().map(|fd| (fd, fail_there(fd, program))).collect();
        let result = (exec(), super::errno());
        drop(staying);
        for (fd, own) in lost {
            // SAFETY: the calls have no pointers.
            unsafe {
                real::dup3(own, fd, libc::O_CLOEXEC);
                real::close(own);
            }
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

/// Returns the descriptors that the program wants to stay open at an exec: those of plain files,
/// and those that cannot be handed over.
pub(super) fn kept() -> (Vec<(c_int, Arc<Description>)>, Vec<c_int>) {
    let (mut handed, mut lost) = (Vec::new(), Vec::new());
    for fd in all().filter(|fd| table::is_kept(*fd)) {
        match table::share(fd) {
            Some(of) if of.is_plain() => handed.push((fd, of)),
            Some(_) => lost.push(fd),
            None => {}
        }
    }
    (handed, lost)
}

/// Says that a program does not get a descriptor.
pub(super) fn note_loss(fd: c_int, program: &CStr) {
    let mut buffer = [0; libc::PATH_MAX as usize];
    let path = path::of(fd, &mut buffer).unwrap_or_default();
    let (path, program) = (String::from_utf8_lossy(path), program.to_string_lossy());
    log::line(&format!("{program} does not get descriptor {fd}, which is in use here: {path}"));
}

/// A folder that stands for a file which a program does not get: no call on it succeeds.
const FAILING: &CStr = c"/";

/// Puts a descriptor under a number for the next program. Each call on it fails. So no other file
/// gets the number. Returns another number of the file.
fn fail_there(fd: c_int, program: &CStr) -> c_int {
    note_loss(fd, program);
    let failing = path::open_folder(libc::AT_FDCWD, FAILING);
    // SAFETY: the calls have no pointers.
    unsafe {
        let own = real::fcntl64(fd, libc::F_DUPFD_CLOEXEC, 3);
        real::dup3(failing.as_ref().map_or(-1, path::Owned::fd), fd, 0);
        own
    }
}

/// Takes the standard descriptors into the table that the last program of this process or the
/// parent could not hand over.
fn adopt_failing() {
    let root = path::stat(libc::AT_FDCWD, FAILING, 0).map(|found| path::identity(&found));
    for fd in 0..3 {
        // SAFETY: the call has no pointers.
        let flags = unsafe { real::fcntl64(fd, libc::F_GETFL, 0) };
        let names = path::stat(fd, c"", libc::AT_EMPTY_PATH).map(|found| path::identity(&found));
        if flags >= 0 && flags & libc::O_PATH != 0 && names == root {
            let of = Description::new(Err(Errno::IO), libc::O_RDWR, 0);
            open::enter(fd, Arc::new(of), true);
        }
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

/// Descriptors that stay open at an exec while this lives, also if the thread is cancelled.
pub(super) struct Staying<'a>(&'a [(c_int, Arc<Description>)]);

impl<'a> Staying<'a> {
    pub fn new(handed: &'a [(c_int, Arc<Description>)]) -> Self {
        for (fd, of) in handed {
            table::begin_start(*fd);
            of.hold(|| {
                if table::is_of(*fd, of) {
                    set_flags(*fd, 0);
                }
            });
        }
        Staying(handed)
    }
}

impl Drop for Staying<'_> {
    fn drop(&mut self) {
        for (fd, _) in self.0 {
            table::end_start(*fd);
            // Another file may have got the number, and have been handed on meanwhile.
            let Some(of) = table::share(*fd) else { continue };
            of.hold(|| {
                if table::is_of(*fd, &of) && !table::is_starting(*fd) {
                    set_flags(*fd, libc::FD_CLOEXEC);
                }
            });
        }
    }
}

/// Sets the flags that the kernel has for a number.
fn set_flags(fd: c_int, flags: c_int) {
    // SAFETY: the call has no pointers.
    unsafe { real::fcntl64(fd, libc::F_SETFD, flags as usize) };
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
pub(super) fn rest(goes_on: bool) {
    if is_loaded() && !is_vfork_child() && pair::are_open() && !inside::is_inside() {
        super::quietly(|| {
            pair::rest_all(goes_on);
            hand_over_all();
        });
    }
}

/// Returns the descriptors of the table.
pub(super) fn all() -> impl Iterator<Item = c_int> {
    std::iter::successors(table::next(0), |fd| table::next(fd + 1))
}

unsafe extern "C" {
    /// Returns no variable to a program that has more rights than its caller: see `settings`.
    fn secure_getenv(name: *const c_char) -> *const c_char;
    fn __cxa_at_quick_exit(handler: extern "C" fn(*mut c_void), library: *mut c_void) -> c_int;
    fn on_exit(handler: extern "C" fn(c_int, *mut c_void), of: *mut c_void) -> c_int;
    static environ: *const *const c_char;
}

/// Returns the name of a program.
///
/// # Safety
/// `path` is NULL, or a text with its zero byte that outlives the name.
pub(super) unsafe fn named<'a>(path: *const c_char) -> &'a CStr {
    // SAFETY: as the caller promises.
    if path.is_null() { c"a program" } else { unsafe { CStr::from_ptr(path) } }
}

hook! {
    // The parent ends in there without `_exit` of this library.
    fn daemon(keeps_folder: c_int, keeps_streams: c_int) -> c_int {
        rest(false);
        real::daemon(keeps_folder, keeps_streams)
    }
    fn execve(path: *const c_char, args: *const *const c_char, env: *const *const c_char) -> c_int {
        replaced(named(path), || real::execve(path, args, env))
    }
    fn execv(path: *const c_char, args: *const *const c_char) -> c_int {
        replaced(named(path), || real::execve(path, args, environ))
    }
    fn execvp(file: *const c_char, args: *const *const c_char) -> c_int {
        replaced(named(file), || real::execvpe(file, args, environ))
    }
    fn execvpe(file: *const c_char, args: *const *const c_char, env: *const *const c_char) -> c_int {
        replaced(named(file), || real::execvpe(file, args, env))
    }
    fn fexecve(fd: c_int, args: *const *const c_char, env: *const *const c_char) -> c_int {
        replaced(c"a program", || real::fexecve(fd, args, env))
    }
    fn execveat(dir: c_int, path: *const c_char, args: *const *const c_char, env: *const *const c_char, flags: c_int) -> c_int {
        replaced(named(path), || real::execveat(dir, path, args, env, flags))
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
    unsafe { real::_exit(code_of(code)) };
    std::process::abort()
}
