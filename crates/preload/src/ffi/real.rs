//! libc's own calls.
//!
//! Invariant: finding one allocates nothing and takes none of this library's locks. Calls come
//! before the constructor of this library, and from `malloc`.

#![allow(clippy::too_many_arguments, reason = "the calls of libc have them")]

use libc::{
    FILE, aiocb, c_char, c_int, c_long, c_uint, c_void, gid_t, iovec, mode_t, off_t, size_t,
    ssize_t, timespec, timeval, uid_t,
};
use libc::{posix_spawn_file_actions_t as Actions, posix_spawnattr_t as Attributes};
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The next symbol of a name, after those of this library.
struct Next(AtomicPtr<c_void>);

impl Next {
    const fn new() -> Self {
        Next(AtomicPtr::new(null_mut()))
    }

    #[inline]
    fn get(&self, name: &CStr) -> *mut c_void {
        // Relaxed, also in `find`: each thread finds the same address, and it tells of no memory.
        let known = self.0.load(Ordering::Relaxed);
        if known.is_null() { self.find(name) } else { known }
    }

    #[cold]
    fn find(&self, name: &CStr) -> *mut c_void {
        // SAFETY: a name with its zero byte. The library stays loaded.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        let found = if found.is_null() { absent as *mut c_void } else { found };
        self.0.store(found, Ordering::Relaxed);
        found
    }
}

/// Stands for a call that this libc does not have. It fails for callers of any signature with a
/// signed integer as result.
extern "C" fn absent() -> c_long {
    super::set_errno(libc::ENOSYS);
    -1
}

macro_rules! real {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(; $variable:ident: $rest:ty)?) -> $result:ty;)*) => {$(
        #[inline]
        pub(in crate::ffi) unsafe fn $name($($arg: $type,)* $($variable: $rest)?) -> $result {
            type Call = unsafe extern "C-unwind" fn($($type,)* $(real!(@dots $rest))?) -> $result;
            static NEXT: Next = Next::new();
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has no zero byte"),
            };
            // SAFETY: the symbol of that name in libc has this signature. The caller keeps its
            // contract. A variable argument is passed in the register of a fixed one.
            unsafe {
                let call: Call = std::mem::transmute::<*mut c_void, Call>(NEXT.get(NAME));
                call($($arg,)* $($variable)?)
            }
        }
    )*};
    (@dots $rest:ty) => { $rest };
}

real! {
    fn openat(dir: c_int, path: *const c_char, flags: c_int; mode: mode_t) -> c_int;
    fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t;
    fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t;
    fn pread64(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t;
    fn pwrite64(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t;
    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn preadv64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t;
    fn pwritev64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t;
    fn preadv64v2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
    fn pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
    fn lseek64(fd: c_int, by: off_t, whence: c_int) -> off_t;
    fn fsync(fd: c_int) -> c_int;
    fn fdatasync(fd: c_int) -> c_int;
    fn syncfs(fd: c_int) -> c_int;
    fn sync_file_range(fd: c_int, at: off_t, len: off_t, flags: c_uint) -> c_int;
    fn ftruncate64(fd: c_int, len: off_t) -> c_int;
    fn truncate64(path: *const c_char, len: off_t) -> c_int;
    fn fallocate64(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int;
    fn posix_fallocate64(fd: c_int, at: off_t, len: off_t) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn dup(fd: c_int) -> c_int;
    fn dup2(fd: c_int, to: c_int) -> c_int;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fn fcntl64(fd: c_int, command: c_int; argument: usize) -> c_int;
    fn ioctl(fd: c_int, request: libc::c_ulong; argument: usize) -> c_int;
    fn flock(fd: c_int, operation: c_int) -> c_int;
    fn lockf64(fd: c_int, command: c_int, len: off_t) -> c_int;
    fn mmap64(at: *mut c_void, len: size_t, access: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
    fn msync(at: *mut c_void, len: size_t, flags: c_int) -> c_int;
    fn munmap(at: *mut c_void, len: size_t) -> c_int;
    fn mprotect(at: *mut c_void, len: size_t, access: c_int) -> c_int;
    fn mremap(at: *mut c_void, len: size_t, new_len: size_t, flags: c_int; to: *mut c_void) -> *mut c_void;
    fn madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int;
    fn copy_file_range(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint) -> ssize_t;
    fn sendfile64(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t;
    fn splice(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint) -> ssize_t;
    fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long;
    fn statx(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut libc::statx) -> c_int;
    fn chdir(path: *const c_char) -> c_int;
    fn fchdir(fd: c_int) -> c_int;
    fn chroot(path: *const c_char) -> c_int;
    fn mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int;
    fn symlinkat(text: *const c_char, dir: c_int, path: *const c_char) -> c_int;
    fn mount(from: *const c_char, to: *const c_char, kind: *const c_char, flags: libc::c_ulong, data: *const c_void) -> c_int;
    fn umount2(path: *const c_char, flags: c_int) -> c_int;
    fn setns(fd: c_int, kind: c_int) -> c_int;
    fn unshare(what: c_int) -> c_int;
    fn renameat2(dir: c_int, path: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint) -> c_int;
    fn linkat(dir: c_int, path: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int) -> c_int;
    fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn chmod(name: *const c_char, mode: mode_t) -> c_int;
    fn fchmod(fd: c_int, mode: mode_t) -> c_int;
    fn fchmodat(dir: c_int, name: *const c_char, mode: mode_t, flags: c_int) -> c_int;
    fn chown(name: *const c_char, user: uid_t, group: gid_t) -> c_int;
    fn lchown(name: *const c_char, user: uid_t, group: gid_t) -> c_int;
    fn fchown(fd: c_int, user: uid_t, group: gid_t) -> c_int;
    fn fchownat(dir: c_int, name: *const c_char, user: uid_t, group: gid_t, flags: c_int) -> c_int;
    fn setxattr(path: *const c_char, name: *const c_char, value: *const c_void, len: size_t, flags: c_int) -> c_int;
    fn lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void, len: size_t, flags: c_int) -> c_int;
    fn fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, len: size_t, flags: c_int) -> c_int;
    fn utimensat(dir: c_int, name: *const c_char, times: *const timespec, flags: c_int) -> c_int;
    fn futimens(fd: c_int, times: *const timespec) -> c_int;
    fn futimes(fd: c_int, times: *const timeval) -> c_int;
    fn futimesat(dir: c_int, name: *const c_char, times: *const timeval) -> c_int;
    fn utimes(name: *const c_char, times: *const timeval) -> c_int;
    fn lutimes(name: *const c_char, times: *const timeval) -> c_int;
    fn utime(name: *const c_char, times: *const libc::utimbuf) -> c_int;
    fn recvmsg(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> ssize_t;
    fn recvmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int, limit: *mut timespec) -> c_int;
    fn execve(path: *const c_char, args: *const *const c_char, env: *const *const c_char) -> c_int;
    fn execvpe(path: *const c_char, args: *const *const c_char, env: *const *const c_char) -> c_int;
    fn fexecve(fd: c_int, args: *const *const c_char, env: *const *const c_char) -> c_int;
    fn execveat(dir: c_int, path: *const c_char, args: *const *const c_char, env: *const *const c_char, flags: c_int) -> c_int;
    fn fork() -> c_int;
    fn forkpty(to: *mut c_int, name: *mut c_char, terminal: *const libc::termios, size: *const libc::winsize) -> c_int;
    fn posix_spawn(pid: *mut c_int, path: *const c_char, actions: *const Actions, attributes: *const Attributes, args: *const *const c_char, env: *const *const c_char) -> c_int;
    fn posix_spawnp(pid: *mut c_int, file: *const c_char, actions: *const Actions, attributes: *const Attributes, args: *const *const c_char, env: *const *const c_char) -> c_int;
    fn system(line: *const c_char) -> c_int;
    fn popen(line: *const c_char, mode: *const c_char) -> *mut FILE;
    fn daemon(keeps_folder: c_int, keeps_streams: c_int) -> c_int;
    fn _exit(code: c_int) -> c_int;
    fn fopen64(name: *const c_char, mode: *const c_char) -> *mut FILE;
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE;
    fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE;
    fn fclose(stream: *mut FILE) -> c_int;
    fn fileno(stream: *mut FILE) -> c_int;
    fn vdprintf(fd: c_int, format: *const c_char, list: *mut c_void) -> c_int;
    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, list: *mut c_void) -> c_int;
    fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int;
    fn aio_read64(request: *mut aiocb) -> c_int;
    fn aio_write64(request: *mut aiocb) -> c_int;
    fn aio_fsync64(operation: c_int, request: *mut aiocb) -> c_int;
    fn lio_listio64(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut libc::sigevent) -> c_int;
}
