//! Private mappings: stores to them change memory of this process alone.
//!
//! May import: the mapping of `linux`, libc.

use super::Mapping;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;

/// Maps `len` bytes privately: stores change memory of this process alone. The first bytes, up to
/// the end of the page that holds the byte before `file_len`, are the file's. The others are zero,
/// and so are all of them without a file. Both lengths are multiples of a page, or `file_len` is
/// not.
pub fn map_private(file: Option<(&File, usize)>, len: usize) -> io::Result<Mapping> {
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_NORESERVE);
    // SAFETY: the kernel chooses the range, and nothing was mapped there.
    let base = unsafe {
        libc::mmap(std::ptr::null_mut(), len, access, flags | libc::MAP_ANONYMOUS, -1, 0)
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the range was just mapped.
    unsafe { super::keep_small_pages(base, len) };
    let mapping = Mapping {
        base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
        len,
        only_small_pages: AtomicBool::new(true),
        #[cfg(feature = "recorder")]
        is_simulated: false,
    };
    if let Some((file, file_len)) = file
        && file_len > 0
    {
        let there = file_len.min(len);
        // SAFETY: the range lies in the mapping that was just made, which is replaced there and
        // which nothing uses yet. If the call fails, the range is unmapped with the rest of it.
        let mapped = unsafe {
            libc::mmap(base, there, access, flags | libc::MAP_FIXED, file.as_raw_fd(), 0)
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(mapping)
}
