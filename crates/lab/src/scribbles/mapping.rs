//! A second mapping of a file, through which the lab overwrites bytes behind the crate's back.
//!
//! An overwrite by a mapping costs a copy, and changes no time of the file. One thread overwrites,
//! reads through the crate, and puts the bytes back, so no two threads meet in them.
//!
//! May import nothing from the lab.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// A writable mapping of a whole file, as long as the file was when it was mapped.
#[derive(Debug)]
pub struct Mapping {
    base: *mut u8,
    len: usize,
}

impl Mapping {
    /// Maps the file.
    pub fn new(path: &Path) -> io::Result<Mapping> {
        let file = File::options().read(true).write(true).open(path)?;
        let len = file.metadata()?.len() as usize;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses, of a file that is open.
        let base = unsafe {
            let fd = file.as_raw_fd();
            libc::mmap(std::ptr::null_mut(), len, rights, libc::MAP_SHARED, fd, 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { base: base.cast(), len })
    }

    /// Returns the length in bytes.
    pub fn length(&self) -> u64 {
        self.len as u64
    }

    /// Fills `to` with the bytes at an offset.
    ///
    /// # Panics
    /// If the range does not lie within the file.
    pub fn get(&self, at: u64, to: &mut [u8]) {
        let from = self.place(at, to.len());
        // SAFETY: `place` has checked the range. No other thread stores to it: see the header.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) }
    }

    /// Overwrites the bytes at an offset.
    ///
    /// # Panics
    /// If the range does not lie within the file.
    pub fn put(&mut self, at: u64, bytes: &[u8]) {
        let to = self.place(at, bytes.len());
        // SAFETY: `place` has checked the range. No other thread uses it: see the header.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    fn place(&self, at: u64, len: usize) -> *mut u8 {
        let at = at as usize;
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "past the mapping");
        // SAFETY: the offset lies within the mapping.
        unsafe { self.base.add(at) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}
