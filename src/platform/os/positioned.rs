//! Reads and writes at an offset, independent of the file's own position.
//!
//! Owns: the difference between the systems. One call each, which may be short or interrupted;
//! `calls` continues it.
//!
//! May import: std only.

use std::fs::File;
use std::io;

#[cfg(unix)]
pub fn read(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buf, offset)
}

#[cfg(unix)]
pub fn write(file: &File, buf: &[u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::write_at(file, buf, offset)
}

#[cfg(windows)]
pub fn read(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buf, offset)
}

#[cfg(windows)]
pub fn write(file: &File, buf: &[u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_write(file, buf, offset)
}
