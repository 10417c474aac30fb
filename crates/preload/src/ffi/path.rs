//! The file that a path or a descriptor names.
//!
//! Invariant: nothing here allocates, up to the answer that a file is not chosen.

use super::{errno, real};
use crate::errno::{Errno, Result};
use crate::pair::Identity;
use crate::{inside, pair, settings};
use libc::{c_char, c_int};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path of the kernel.
pub(super) type Buffer = [u8; libc::PATH_MAX as usize];

/// Returns the path of a descriptor, absolute and without links.
pub(super) fn of(fd: c_int, buffer: &mut Buffer) -> Option<&[u8]> {
    let mut name = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut digits = 14;
    let mut unit = 1_000_000_000;
    while unit > 0 {
        if fd >= unit || unit == 1 {
            name[digits] = b'0' + (fd / unit % 10) as u8;
            digits += 1;
        }
        unit /= 10;
    }
    // SAFETY: a name with a zero byte, and a buffer with its length.
    let len =
        unsafe { libc::readlink(name.as_ptr().cast(), buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(len).ok().map(|len| &buffer[..len])
}

/// Returns the metadata of what a path names below a folder, or of `dir` itself.
pub(super) fn stat(dir: c_int, path: &CStr, flags: c_int) -> Option<libc::stat> {
    // SAFETY: all zeroes are a value of this type. The kernel fills it.
    unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        let to = &raw mut found;
        let told = stat_to(dir, path.as_ptr(), to, flags);
        (told == 0).then_some(found)
    }
}

/// Calls `newfstatat`, which every libc has in this shape.
///
/// # Safety
/// `path` is a text with its zero byte, and `to` a place for the result.
pub(super) unsafe fn stat_to(
    dir: c_int,
    path: *const c_char,
    to: *mut libc::stat,
    flags: c_int,
) -> c_int {
    // SAFETY: as the caller promises. The structure is the kernel's.
    unsafe {
        real::syscall(
            libc::SYS_newfstatat,
            dir as usize,
            path as usize,
            to as usize,
            flags as usize,
            0,
            0,
        ) as c_int
    }
}

pub(super) fn identity(found: &libc::stat) -> Identity {
    (found.st_dev, found.st_ino)
}

/// Returns the identity of a regular file, or `None` for anything else.
pub(super) fn regular(fd: c_int) -> Option<Identity> {
    let found = stat(fd, c"", libc::AT_EMPTY_PATH)?;
    (found.st_mode & libc::S_IFMT == libc::S_IFREG).then(|| identity(&found))
}

/// A chosen file that a path names.
pub(super) struct Chosen {
    buffer: Buffer,
    len: usize,
    pub identity: Identity,
}

impl Chosen {
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.buffer[..self.len]))
    }

    /// Recovers the file if a crash has left a companion beside it, and closes it. A file that is
    /// open, here or in another process, stays as it is.
    pub fn settle(&self) -> Result<()> {
        if pair::is_open(self.identity) {
            return Ok(());
        }
        let folder = self.path().parent().unwrap_or(Path::new("/"));
        let companion = folder.join(format!(".atomic-mmap.{:x}", self.identity.1));
        if !companion.exists() {
            return Ok(());
        }
        match pair::settle(self.path()) {
            Err(Errno(libc::EBUSY)) => Ok(()),
            settled => settled,
        }
    }
}

/// Returns the chosen file that a path names, if it names one. `flags` may be `O_NOFOLLOW`.
///
/// # Safety
/// `path` is a text with its zero byte.
pub(super) unsafe fn chosen(dir: c_int, path: *const c_char, flags: c_int) -> Option<Chosen> {
    if inside::is_inside() || !settings::is_on() || path.is_null() {
        return None;
    }
    let before = errno();
    // SAFETY: as the caller promises. The descriptor is closed below.
    let fd = unsafe { real::openat(dir, path, libc::O_PATH | libc::O_CLOEXEC | flags, 0) };
    let found = (fd >= 0).then(|| chosen_fd(fd)).flatten();
    if fd >= 0 {
        // SAFETY: the descriptor of above.
        unsafe { real::close(fd) };
    }
    super::set_errno(before);
    found
}

/// Returns the chosen file of a descriptor, if it is one.
pub(super) fn chosen_fd(fd: c_int) -> Option<Chosen> {
    let mut buffer = [0; libc::PATH_MAX as usize];
    let len = of(fd, &mut buffer)?.len();
    if !settings::is_chosen(&buffer[..len]) {
        return None;
    }
    regular(fd).map(|identity| Chosen { buffer, len, identity })
}

/// Returns `true` if the last name of a path may be that of a chosen file.
pub(super) fn has_likely_name(path: &CStr) -> bool {
    let name = path.to_bytes().rsplit(|&c| c == b'/').next().unwrap_or_default();
    settings::may_be_chosen(name)
}
