//! `fork`, `posix_spawn`, `system`, `popen`.
//!
//! Before a child begins, each file is closed and is one plain file, if it can be. A child of
//! `fork` takes over the descriptors of those files, with the offset that the kernel has, and so
//! does the program of a child. The process that uses a file first opens it.
//!
//! Invariant: a program begins with no standard descriptor closed that its parent has open.

use super::{failed, process, real};
use crate::errno::Errno;
use crate::{inside, pair, table};
use libc::{
    FILE, c_char, c_int, pid_t, posix_spawn_file_actions_t as Actions,
    posix_spawnattr_t as Attributes,
};
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::Arc;

/// Runs a `fork`. It returns 0 in the child.
fn forked(fork: impl FnOnce() -> pid_t) -> pid_t {
    process::rest(true);
    let child = fork();
    if child == 0 && process::is_loaded() && !inside::is_inside() {
        super::quietly(take_over);
    }
    child
}

/// Takes the descriptors of plain files over in a child of `fork`. Those of other files fail.
fn take_over() {
    let mut made: Vec<(usize, c_int)> = Vec::new();
    let all: Vec<_> = process::all().collect();
    for fd in all {
        let Some(parents) = table::share(fd) else { continue };
        let address = Arc::as_ptr(&parents) as usize;
        let known = made.iter().find(|(of, _)| *of == address);
        let of = known.and_then(|(_, first)| table::share(*first));
        if let Some(of) = of.or_else(|| parents.taken_over().map(Arc::new)) {
            made.push((address, fd));
            // The parent's pair stays as it is.
            std::mem::forget(table::put(fd, of, table::is_kept(fd)));
        }
    }
    if !made.is_empty() {
        process::begin_to_complete();
    }
}

/// Starts a program by `start`, which gets the descriptors that stay open. Returns `None` if the
/// program would begin without a standard descriptor.
fn spawned<R>(program: &CStr, start: impl FnOnce() -> R) -> Option<R> {
    let are_there = process::is_loaded() && pair::are_open();
    if !are_there || process::is_vfork_child() || inside::is_inside() {
        return Some(start());
    }
    process::rest(true);
    let (handed, lost) = process::kept();
    let standard: Vec<_> = lost.into_iter().filter(|fd| *fd < 3).collect();
    if !standard.is_empty() {
        standard.into_iter().for_each(|fd| process::note_loss(fd, program));
        return None;
    }
    let staying = process::Staying::new(&handed);
    let result = start();
    let errno = super::errno();
    drop(staying);
    super::set_errno(errno);
    Some(result)
}

hook! {
    fn fork() -> pid_t { forked(|| real::fork()) }
    fn __fork() -> pid_t { fork() }
    // A child that shares the memory of its parent could take nothing over.
    fn vfork() -> pid_t { fork() }
    fn __vfork() -> pid_t { fork() }
    fn forkpty(to: *mut c_int, name: *mut c_char, terminal: *const libc::termios, size: *const libc::winsize) -> pid_t {
        forked(|| real::forkpty(to, name, terminal, size))
    }
    fn posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const Actions, attributes: *const Attributes, args: *const *const c_char, env: *const *const c_char) -> c_int {
        spawned(process::named(path), || real::posix_spawn(pid, path, actions, attributes, args, env)).unwrap_or(libc::EBUSY)
    }
    fn posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const Actions, attributes: *const Attributes, args: *const *const c_char, env: *const *const c_char) -> c_int {
        spawned(process::named(file), || real::posix_spawnp(pid, file, actions, attributes, args, env)).unwrap_or(libc::EBUSY)
    }
    fn system(line: *const c_char) -> c_int {
        spawned(process::named(line), || real::system(line)).unwrap_or_else(|| failed(Errno(libc::EBUSY)))
    }
    fn popen(line: *const c_char, mode: *const c_char) -> *mut FILE {
        spawned(process::named(line), || real::popen(line, mode)).unwrap_or_else(|| {
            super::set_errno(libc::EBUSY);
            null_mut()
        })
    }
}
