//! Shortcuts for the check of an image: no waiting for a disk that is about to be dropped.
//!
//! One process checks an image, and then the image is dropped. So syncs in it have no effect.
//! Without the shortcuts, most of the check's time was spent waiting for syncs. For a second power
//! loss, another process recovers, and that process does sync.

use crate::filter;
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
    let calls =
        [(libc::SYS_fsync, 0), (libc::SYS_fdatasync, 0), (libc::SYS_pwritev2, libc::EOPNOTSUPP)];
    filter::answer(&calls)
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
