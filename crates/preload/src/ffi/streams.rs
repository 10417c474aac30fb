//! `fopen` and its kin.
//!
//! glibc's streams call the kernel directly. So a stream of a chosen file is one with calls that
//! a program defines (`fopencookie`), and this library's hooks are those calls.

use super::{data, descriptors, failed, open, path, process, real};
use crate::errno::Errno;
use crate::{inside, log, pair, settings, table};
use libc::{AT_FDCWD, FILE, c_char, c_int, c_void, off64_t, size_t, ssize_t};
use parking_lot::Mutex;
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Our streams with their descriptors: glibc knows none for them. Locked inside the gate of `pair`,
/// so that no fork leaves it locked.
static STREAMS: Mutex<Vec<(usize, c_int)>> = Mutex::new(Vec::new());
/// Their number. Relaxed: a thread that has got a stream sees that there is one.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Our streams for standard input, output and error, while they are chosen files or may be again.
static STANDARD: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(null_mut()) }; 3];
/// The streams that glibc has for them. Relaxed, as `STANDARD`: programs change standard streams
/// while no other thread uses them.
static LIBCS: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(null_mut()) }; 3];

/// The functions that glibc calls on a stream.
#[repr(C)]
struct Calls {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

/// The beginning of glibc's `FILE`, which programs of any age know by `putc`.
#[repr(C)]
struct Beginning {
    flags: c_int,
    read: [*mut c_char; 3],
    write_base: *const c_char,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, calls: Calls) -> *mut FILE;
    fn fflush_unlocked(stream: *mut FILE) -> c_int;
    fn ftrylockfile(stream: *mut FILE) -> c_int;
    fn funlockfile(stream: *mut FILE);
    fn __fpending(stream: *mut FILE) -> size_t;
    fn __fpurge(stream: *mut FILE);
    // glibc allows a program to set these.
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

/// Returns the variable of a standard stream.
fn variable(fd: c_int) -> *mut *mut FILE {
    [&raw mut stdin, &raw mut stdout, &raw mut stderr][fd as usize]
}

/// Gives the program a standard stream that fits its descriptor: ours if the file is chosen.
///
/// A program's `printf` would else write to the home file. Called after each change of a descriptor
/// from 0 to 2.
pub(super) fn follow(fd: c_int) {
    let Some(ours) = STANDARD.get(fd as usize) else { return };
    let libcs = &LIBCS[fd as usize];
    let mode = if fd == 0 { c"r" } else { c"w" };
    // SAFETY: the variables are pointers that glibc reads when it uses a standard stream. Programs
    // change descriptors of standard streams while no other thread uses them.
    unsafe {
        let of = variable(fd);
        if table::is_chosen(fd) {
            if (*of).is_null() || *of == ours.load(Ordering::Relaxed) {
                return;
            }
            if ours.load(Ordering::Relaxed).is_null() {
                ours.store(stream(fd, mode.as_ptr()), Ordering::Relaxed);
                if fd == 2 {
                    libc::setvbuf(ours.load(Ordering::Relaxed), null_mut(), libc::_IONBF, 0);
                }
            }
            if !ours.load(Ordering::Relaxed).is_null() {
                libcs.store(*of, Ordering::Relaxed);
                switch(of, ours.load(Ordering::Relaxed));
            }
        } else if !(*of).is_null() && *of == ours.load(Ordering::Relaxed) {
            switch(of, libcs.load(Ordering::Relaxed));
        }
    }
}

/// Puts another stream into the variable of a standard stream. Bytes that are not written out yet
/// go with the descriptor, as they do without this library.
///
/// # Safety
/// No other thread uses the streams.
unsafe fn switch(of: *mut *mut FILE, to: *mut FILE) {
    // SAFETY: as the caller promises. A stream has its pending bytes from `write_base` on.
    unsafe {
        let from = std::mem::replace(&mut *of, to);
        let pending = __fpending(from);
        if pending > 0 {
            libc::fwrite((*from.cast::<Beginning>()).write_base.cast(), 1, pending, to);
            __fpurge(from);
        }
    }
}

/// Writes out our streams at the end of the process. Skips a stream that another thread uses: it
/// may wait for input.
pub(super) fn flush_all() {
    for (stream, _) in with_all(|all| all.clone()) {
        let stream = stream as *mut FILE;
        // SAFETY: a stream of the list is open, unless a thread closes it at this moment.
        unsafe {
            if ftrylockfile(stream) == 0 {
                fflush_unlocked(stream);
                funlockfile(stream);
            }
        }
    }
}

/// Runs `body` with the list of our streams.
fn with_all<R>(body: impl FnOnce(&mut Vec<(usize, c_int)>) -> R) -> R {
    pair::unforked(|| {
        let mut all = STREAMS.lock();
        let result = body(&mut all);
        COUNT.store(all.len(), Ordering::Relaxed);
        result
    })
}

fn descriptor(cookie: *mut c_void) -> c_int {
    cookie as usize as c_int
}

unsafe extern "C" fn read(cookie: *mut c_void, to: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: glibc gives its buffer.
    unsafe { data::read(descriptor(cookie), to.cast(), len) }
}

unsafe extern "C" fn write(cookie: *mut c_void, from: *const c_char, len: size_t) -> ssize_t {
    // SAFETY: glibc gives its buffer. It takes 0 for an error, and a negative number for none.
    unsafe { data::write(descriptor(cookie), from.cast(), len).max(0) }
}

unsafe extern "C" fn seek(cookie: *mut c_void, by: *mut off64_t, whence: c_int) -> c_int {
    // SAFETY: glibc gives the place of the offset.
    unsafe {
        let to = data::lseek64(descriptor(cookie), *by, whence);
        if to < 0 {
            return -1;
        }
        *by = to;
        0
    }
}

unsafe extern "C" fn close(cookie: *mut c_void) -> c_int {
    let fd = descriptor(cookie);
    with_all(|all| all.retain(|(_, of)| *of != fd));
    if let Some(standard) = STANDARD.get(fd as usize) {
        let ours = standard.swap(null_mut(), Ordering::Relaxed);
        // SAFETY: as in `follow`. glibc frees the stream after this call.
        unsafe {
            if !ours.is_null() && *variable(fd) == ours {
                *variable(fd) = LIBCS[fd as usize].load(Ordering::Relaxed);
            }
        }
    }
    // SAFETY: the descriptor belongs to the stream.
    unsafe { descriptors::close(fd) }
}

/// Returns a stream of a chosen descriptor.
///
/// # Safety
/// `mode` is a text with its zero byte.
unsafe fn stream(fd: c_int, mode: *const c_char) -> *mut FILE {
    let calls = Calls { read, write, seek, close };
    // SAFETY: the calls take the descriptor as their cookie.
    let made = unsafe { fopencookie(fd as usize as *mut c_void, mode, calls) };
    if !made.is_null() {
        with_all(|all| all.push((made as usize, fd)));
        // SAFETY: as the caller promises.
        let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
        if mode.starts_with(b"a") && !mode.contains(&b'+') {
            // SAFETY: the call has no pointers. Such a stream of libc tells the end from the start.
            unsafe { data::lseek64(fd, 0, libc::SEEK_END) };
        }
    }
    made
}

/// Returns the flags of a mode, or `None` if it has none.
fn flags(mode: &CStr) -> Option<c_int> {
    let (first, rest) = mode.to_bytes().split_first()?;
    let rest = rest.split(|&c| c == b',').next().unwrap_or_default();
    let has = |letter: u8| rest.contains(&letter);
    let access = match (has(b'+'), *first) {
        (true, _) => libc::O_RDWR,
        (false, b'r') => libc::O_RDONLY,
        (false, _) => libc::O_WRONLY,
    };
    let creation = match first {
        b'r' => 0,
        b'w' => libc::O_CREAT | libc::O_TRUNC,
        b'a' => libc::O_CREAT | libc::O_APPEND,
        _ => return None,
    };
    let more = [(b'x', libc::O_EXCL), (b'e', libc::O_CLOEXEC)];
    Some(
        more.iter()
            .filter(|(letter, _)| has(*letter))
            .fold(access | creation, |all, (_, one)| all | one),
    )
}

/// Opens a stream.
///
/// # Safety
/// As for `fopen`.
unsafe fn open_stream(name: *const c_char, mode: *const c_char) -> *mut FILE {
    process::prepare();
    // SAFETY: as the caller promises.
    unsafe {
        if !settings::is_on() || inside::is_inside() {
            return real::fopen64(name, mode);
        }
        let Some(flags) = flags(CStr::from_ptr(mode)) else { return refuse(Errno::INVALID) };
        let fd = open::open_at(AT_FDCWD, name, flags, 0o666);
        if fd < 0 {
            return null_mut();
        }
        let made = if table::is_chosen(fd) { stream(fd, mode) } else { real::fdopen(fd, mode) };
        if made.is_null() {
            let errno = super::errno();
            descriptors::close(fd);
            super::set_errno(errno);
        }
        made
    }
}

fn refuse(errno: Errno) -> *mut FILE {
    let _minus_one: c_int = failed(errno);
    null_mut()
}

/// Opens a stream anew.
///
/// # Safety
/// As for `freopen`.
unsafe fn reopen(name: *const c_char, mode: *const c_char, of: *mut FILE) -> *mut FILE {
    process::prepare();
    // SAFETY: as the caller promises.
    unsafe {
        let is_on = settings::is_on() && !inside::is_inside();
        if is_on && (is_ours(of) || !name.is_null() && path::would_be_chosen(name)) {
            log::line("freopen of a chosen file is refused: EOPNOTSUPP");
            libc::fclose(of);
            return refuse(Errno::UNSUPPORTED);
        }
        real::freopen64(name, mode, of)
    }
}

fn is_ours(stream: *mut FILE) -> bool {
    number(stream).is_some()
}

/// Returns the descriptor of one of our streams.
fn number(stream: *mut FILE) -> Option<c_int> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    with_all(|all| all.iter().find(|(of, _)| *of == stream as usize).map(|(_, fd)| *fd))
}

/// Closes a stream. glibc closes the descriptor by itself, except for our streams.
///
/// # Safety
/// As for `fclose`.
unsafe fn close_stream(of: *mut FILE) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        let fd = if is_ours(of) { -1 } else { real::fileno(of) };
        if !table::is_chosen(fd) {
            return real::fclose(of);
        }
        super::end_if_cancelled();
        descriptors::end_by(fd, || real::fclose(of))
    }
}

hook! {
    fn fclose(of: *mut FILE) -> c_int { close_stream(of) }
    fn _IO_fclose(of: *mut FILE) -> c_int { close_stream(of) }
    fn fopen(name: *const c_char, mode: *const c_char) -> *mut FILE { open_stream(name, mode) }
    fn fopen64(name: *const c_char, mode: *const c_char) -> *mut FILE { open_stream(name, mode) }
    fn _IO_fopen(name: *const c_char, mode: *const c_char) -> *mut FILE { open_stream(name, mode) }
    fn freopen(name: *const c_char, mode: *const c_char, of: *mut FILE) -> *mut FILE { reopen(name, mode, of) }
    fn freopen64(name: *const c_char, mode: *const c_char, of: *mut FILE) -> *mut FILE { reopen(name, mode, of) }
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
        if !table::is_chosen(fd) {
            return real::fdopen(fd, mode);
        }
        match flags(CStr::from_ptr(mode)) {
            None => return refuse(Errno::INVALID),
            Some(flags) if flags & libc::O_APPEND != 0 => {
                let now = descriptors::fcntl(fd, libc::F_GETFL, 0);
                descriptors::fcntl(fd, libc::F_SETFL, (now | libc::O_APPEND) as usize);
            }
            Some(_) => {}
        }
        stream(fd, mode)
    }
    fn _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut FILE { fdopen(fd, mode) }
    fn fileno(of: *mut FILE) -> c_int { number(of).unwrap_or_else(|| real::fileno(of)) }
    fn fileno_unlocked(of: *mut FILE) -> c_int { number(of).unwrap_or_else(|| real::fileno(of)) }
}
