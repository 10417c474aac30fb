//! The limits of the hardware: bare copies and drains, on a mapping like this crate's.
//!
//! The limit has its own file, which is made and opened like ours. In this crate's file the bare
//! copies would overwrite the bytes that the final check reads. May import `memory`.

use crate::memory::Memory;
use std::io;
use std::path::Path;

/// A file with bytes, and after them a word for each 4 KiB, which makes the bytes valid.
#[derive(Debug)]
pub struct Limit {
    memory: Memory,
    len: u64,
}

impl Limit {
    /// Opens a file for `len` bytes.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn open(folder: &Path, len: u64) -> io::Result<Limit> {
        Ok(Limit { memory: Memory::open(&folder.join("limit"), len + len / 512)?, len })
    }

    /// Copies with one drain: the minimum for bytes that need not be atomic.
    #[inline]
    pub fn copy_one_drain(&self, data: &[u8], offset: u64) {
        self.memory.store(data, offset);
        self.memory.drain();
    }

    /// Copies with two drains: the minimum for bytes and a word that makes them valid.
    #[inline]
    pub fn copy_two_drains(&self, data: &[u8], offset: u64) {
        self.copy_one_drain(data, offset);
        self.memory.store_word(offset, self.len + offset / 4096 * 8);
        self.memory.drain();
    }

    /// Copies to several places, with one word and two drains.
    #[inline]
    pub fn copy_all_two_drains(&self, parts: &[(u64, &[u8])]) {
        parts.iter().for_each(|(offset, data)| self.memory.store(data, *offset));
        self.memory.drain();
        self.memory.store_word(parts[0].0, self.len + parts[0].0 / 4096 * 8);
        self.memory.drain();
    }

    /// Copies through the cache, without a drain: enough to survive a process crash.
    #[inline]
    pub fn copy(&self, data: &[u8], offset: u64) {
        self.memory.store_cached(data, offset);
    }

    /// Copies bytes out of the file.
    #[inline]
    pub fn copy_out(&self, to: &mut [u8], offset: u64) {
        self.memory.load(to, offset);
    }
}
