//! The calls under libc's names: all `unsafe` code.
//!
//! A hook asks the table what a descriptor is. A chosen one is served by its description, and any
//! other goes on to libc ([`real`]). Each name of a call is here, since a program imports the one
//! that it was compiled with: `open`, `open64`, `__open_2`, `__open64_2`.
//!
//! | module | calls |
//! |---|---|
//! | `real` | libc's own |
//! | `path` | what a path or a descriptor names |
//! | `outside` | which paths name no chosen file; `chdir` |
//! | `open` | `open` and its kin, `mkstemp` |
//! | `data` | `read`, `write` and their kin, `lseek` |
//! | `durable` | the `fsync` family, `truncate`, `fallocate` |
//! | `descriptors` | `close`, `dup`, `fcntl`, `ioctl`, `flock` |
//! | `metadata` | the `stat` family |
//! | `received` | `recvmsg`: descriptors that come by a socket |
//! | `attributes` | `chmod`, `chown`, `utimensat`, `setxattr` and their kin |
//! | `kept` | the companions of closed files with snapshots |
//! | `names` | `rename`, `unlink` |
//! | `streams` | `fopen` and its kin |
//! | `formatted` | `dprintf` and its kin |
//! | `requests` | POSIX AIO and libaio |
//! | `mapping` | `mmap`, `msync`, `munmap` and calls on mapped memory |
//! | `tracker` | the kernel's tracking of stores |
//! | `refused` | `copy_file_range`, `sendfile`, `splice`, `syscall` |
//! | `process` | loading, `exec`, the end |
//! | `children` | `fork`, `posix_spawn`, `system`, `popen` |
//! | `lists` | `execl` and its kin |
//! | `copies` | copies of open files for `atomic-mmap cp` |

/// Defines hooks. The body is that of a call of libc: its caller keeps libc's contract. A thread
/// that is cancelled in libc's own call unwinds through the hook.
macro_rules! hook {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty $body:block)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            // SAFETY: the caller keeps the contract of libc's call of this name: pointers are valid
            // for it, and lengths are those of their buffers. Calls of `real` pass them on.
            unsafe { $body }
        }
    )*};
}

mod attributes;
mod children;
mod copies;
mod data;
mod descriptors;
mod durable;
mod formatted;
mod kept;
mod lists;
mod mapping;
mod metadata;
mod names;
mod open;
mod outside;
mod path;
mod process;
mod real;
mod received;
mod refused;
mod requests;
mod streams;
mod tracker;

use crate::errno::{Errno, Result, caught};
use libc::c_int;

fn set_errno(errno: c_int) {
    // SAFETY: the address of this thread's `errno` is valid for the thread's life.
    unsafe { *libc::__errno_location() = errno }
}

fn errno() -> c_int {
    // SAFETY: as in `set_errno`.
    unsafe { *libc::__errno_location() }
}

/// Returns the effective user of this process.
fn user() -> u32 {
    // SAFETY: the call has no arguments, and cannot fail.
    unsafe { libc::geteuid() }
}

unsafe extern "C" {
    // The crate `libc` has no such name.
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// Puts off the cancellation of the calling thread until it is dropped. Otherwise the thread would
/// unwind from a call of the system in the middle of the library, which ends the process.
pub(crate) struct Uncancelled(c_int);

impl Uncancelled {
    pub(crate) fn new() -> Uncancelled {
        const DISABLED: c_int = 1;
        let mut before = DISABLED;
        // SAFETY: the place is writable. A thread that is not cancelled goes on.
        unsafe { pthread_setcancelstate(DISABLED, &raw mut before) };
        Uncancelled(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state was the thread's own, and the call is no point of cancellation.
        unsafe { pthread_setcancelstate(self.0, std::ptr::null_mut()) };
    }
}

/// Closes a descriptor of which the library keeps account. This is no point of cancellation: a
/// thread that ended in here would leave the descriptor half closed.
fn close(fd: c_int) -> c_int {
    let _closes_first = Uncancelled::new();
    // SAFETY: the call has no pointers. Callers close what is theirs, or what the program closes.
    unsafe { real::close(fd) }
}

/// Ends the calling thread if it is cancelled: a call that is served is a point of cancellation
/// before it begins, as libc's are.
fn end_if_cancelled() {
    // SAFETY: the frames between here and the program catch no unwinding.
    unsafe { pthread_testcancel() };
}

/// Runs the body of a hook: returns its value, or -1 with `errno` set. A panic ends here.
fn served<R>(body: impl FnOnce() -> Result<i64>) -> R
where
    R: TryFrom<i64> + From<i8>,
{
    match caught(body).map(R::try_from) {
        Ok(Ok(value)) => value,
        Ok(Err(_)) => failed(Errno(libc::EOVERFLOW)),
        Err(errno) => failed(errno),
    }
}

fn failed<R: From<i8>>(errno: Errno) -> R {
    set_errno(errno.0);
    R::from(-1)
}

/// Runs `body`, which has no result. A panic ends here.
fn quietly(body: impl FnOnce()) {
    let _logged = caught(|| {
        body();
        Ok(())
    });
}
