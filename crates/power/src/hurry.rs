//! Shortcuts for the check of an image: no waiting for a disk that is about to be dropped.
//!
//! One process checks an image, and then the image is dropped. So syncs in it have no effect.
//! Without the shortcuts, most of the check's time was spent waiting for syncs. For a second power
//! loss, another process recovers, and that process does sync.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Turns `fsync` and `fdatasync` of this process and its children into successful no-ops.
///
/// A seccomp filter does that, so the code under test and the standard library call them as usual.
/// The filter also reports durable writes as unsupported. The crate then uses its fallback, which
/// ends with `fdatasync`.
pub fn skip_syncs() -> io::Result<()> {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut steps = [
        // The call's number comes first in `seccomp_data`.
        step(LOAD_NUMBER, 0, 0, 0),
        step(IF_EQUAL, 3, 0, libc::SYS_fsync as u32),
        step(IF_EQUAL, 2, 0, libc::SYS_fdatasync as u32),
        step(IF_EQUAL, 2, 0, libc::SYS_pwritev2 as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        // Fails with the error 0: succeeds.
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EOPNOTSUPP as u32),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: all arguments are numbers.
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let program: *const libc::sock_fprog = &raw const program;
    // SAFETY: a program that the kernel copies and checks.
    let result =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, program, 0, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Shuts down the file system of this folder at once, so that an unmount writes nothing. btrfs does
/// not support that, and its unmount takes longer.
pub fn stop(folder: &Path) {
    const GOING_DOWN: libc::c_ulong = 0x8004_587d;
    const WITHOUT_THE_LOG: u32 = 2;
    let Ok(folder) = File::open(folder) else { return };
    let how = WITHOUT_THE_LOG;
    // SAFETY: a descriptor that is open, and a number that is read.
    let _unknown_there =
        unsafe { libc::ioctl(folder.as_raw_fd(), GOING_DOWN as _, &raw const how) };
}
