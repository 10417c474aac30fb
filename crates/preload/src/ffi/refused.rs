//! Calls that would reach the home file past its pair. Each fails with an error after which
//! programs take another way: `read` and `write`.

use super::{
    data, descriptors, durable, failed, mapping, metadata, open, outside, path, process, real,
    requests,
};
use crate::errno::Errno;
use crate::{inside, log, settings};
use libc::{c_char, c_int, c_long, c_uint, c_ulong, c_void, iovec, mode_t, off_t, size_t, ssize_t};

fn refuse<R: From<i8>>(call: &str, errno: c_int) -> R {
    log::line(&format!("{call} is refused: errno {errno}"));
    failed(Errno(errno))
}

hook! {
    fn copy_file_range(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint) -> ssize_t {
        if path::is_chosen(from) || path::is_chosen(to) {
            return refuse("copy_file_range", libc::EXDEV);
        }
        real::copy_file_range(from, from_at, to, to_at, len, flags)
    }
    fn sendfile(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t { send(to, from, at, len) }
    fn sendfile64(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t { send(to, from, at, len) }
    fn splice(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint) -> ssize_t {
        if path::is_chosen(from) || path::is_chosen(to) {
            return refuse("splice", libc::EINVAL);
        }
        real::splice(from, from_at, to, to_at, len, flags)
    }
    fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
        if !settings::is_on() || inside::is_inside() {
            return real::syscall(number, a, b, c, d, e, f);
        }
        let (fd, path) = (a as c_int, b as *const c_char);
        match number {
            libc::SYS_exit_group => process::leave(fd),
            libc::SYS_io_uring_setup => refuse("io_uring_setup", libc::ENOSYS),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => open::open_at(libc::AT_FDCWD, a as *const c_char, b as c_int, c as mode_t).into(),
            libc::SYS_openat => open::open_at(fd, path, c as c_int, d as mode_t).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_creat => open::creat(a as *const c_char, b as mode_t).into(),
            libc::SYS_openat2 => open::open_how(fd, path, c as *const libc::open_how, d).into(),
            libc::SYS_chdir => outside::chdir(a as *const c_char).into(),
            libc::SYS_fchdir => outside::fchdir(fd).into(),
            libc::SYS_chroot => outside::chroot(a as *const c_char).into(),
            libc::SYS_close => descriptors::close(fd).into(),
            libc::SYS_close_range => descriptors::close_range(a as c_uint, b as c_uint, c as c_int).into(),
            libc::SYS_dup => descriptors::dup(fd).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => descriptors::dup2(fd, b as c_int).into(),
            libc::SYS_dup3 => descriptors::dup3(fd, b as c_int, c as c_int).into(),
            libc::SYS_fcntl => descriptors::fcntl(fd, b as c_int, c).into(),
            libc::SYS_io_submit => told(requests::io_submit(a, b as c_long, c as *const *mut c_void)),
            libc::SYS_io_getevents => told(requests::io_getevents(a, b as c_long, c as c_long, d as *mut _, e as *mut _)),
            libc::SYS_mmap => mapping::map(a as *mut c_void, b, c as c_int, d as c_int, e as c_int, f as off_t) as c_long,
            libc::SYS_msync => mapping::msync(a as *mut c_void, b, c as c_int).into(),
            libc::SYS_munmap => mapping::munmap(a as *mut c_void, b).into(),
            libc::SYS_mprotect => mapping::mprotect(a as *mut c_void, b, c as c_int).into(),
            libc::SYS_mremap => mapping::mremap(a as *mut c_void, b, c, d as c_int, e as *mut c_void) as c_long,
            libc::SYS_madvise => mapping::madvise(a as *mut c_void, b, c as c_int).into(),
            libc::SYS_io_destroy => told(requests::io_destroy(a)),
            // These have a second descriptor.
            libc::SYS_copy_file_range => copy_file_range(fd, b as *mut off_t, c as c_int, d as *mut off_t, e, f as c_uint) as c_long,
            libc::SYS_sendfile => send(fd, b as c_int, c as *mut off_t, d) as c_long,
            libc::SYS_splice => splice(fd, b as *mut off_t, c as c_int, d as *mut off_t, e, f as c_uint) as c_long,
            libc::SYS_ioctl => descriptors::ioctl(fd, b as c_ulong, c).into(),
            _ if outside::is_change(number) => outside::change(number, [a, b, c, d, e, f]),
            _ if path::is_chosen(fd) => by_number(number, fd, [b, c, d, e, f]),
            _ => real::syscall(number, a, b, c, d, e, f),
        }
    }
}

/// Returns what `syscall` returns, where a function of libaio returns the number of an error.
fn told(result: c_int) -> c_long {
    if result < 0 { failed(Errno(-result)) } else { c_long::from(result) }
}

/// Sends a file.
///
/// # Safety
/// As for `sendfile`.
unsafe fn send(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
    if path::is_chosen(from) || path::is_chosen(to) {
        return refuse("sendfile", libc::EINVAL);
    }
    // SAFETY: as the caller promises.
    unsafe { real::sendfile64(to, from, at, len) }
}

/// Serves a system call with a first argument that is the number of a chosen descriptor. It may be
/// no descriptor at all, so that calls that take none go on.
///
/// # Safety
/// As for `syscall`.
unsafe fn by_number(number: c_long, fd: c_int, [b, c, d, e, f]: [usize; 5]) -> c_long {
    // SAFETY: as the caller promises.
    unsafe {
        match number {
            libc::SYS_read => data::read(fd, b as *mut c_void, c) as c_long,
            libc::SYS_write => data::write(fd, b as *const c_void, c) as c_long,
            libc::SYS_pread64 => data::pread(fd, b as *mut c_void, c, d as off_t) as c_long,
            libc::SYS_pwrite64 => data::pwrite(fd, b as *const c_void, c, d as off_t) as c_long,
            libc::SYS_lseek => data::lseek(fd, b as off_t, c as c_int),
            libc::SYS_fstat => metadata::fstat(fd, b as *mut libc::stat).into(),
            libc::SYS_fsync | libc::SYS_fdatasync => c_long::from(durable::fsync(fd)),
            libc::SYS_ftruncate => c_long::from(durable::ftruncate(fd, b as off_t)),
            libc::SYS_fallocate => {
                c_long::from(durable::fallocate(fd, b as c_int, c as off_t, d as off_t))
            }
            libc::SYS_readv => data::readv(fd, b as *const iovec, c as c_int) as c_long,
            libc::SYS_writev => data::writev(fd, b as *const iovec, c as c_int) as c_long,
            // The lower half of the offset is all of it where a word has 64 bits.
            libc::SYS_preadv => {
                data::preadv(fd, b as *const iovec, c as c_int, d as off_t) as c_long
            }
            libc::SYS_pwritev => {
                data::pwritev(fd, b as *const iovec, c as c_int, d as off_t) as c_long
            }
            libc::SYS_preadv2 => {
                data::preadv2(fd, b as *const iovec, c as c_int, d as off_t, f as c_int) as c_long
            }
            libc::SYS_pwritev2 => {
                data::pwritev2(fd, b as *const iovec, c as c_int, d as off_t, f as c_int) as c_long
            }
            libc::SYS_sync_file_range => c_long::from(durable::fsync(fd)),
            libc::SYS_flock => descriptors::flock(fd, b as c_int).into(),
            _ => real::syscall(number, fd as usize, b, c, d, e, f),
        }
    }
}
