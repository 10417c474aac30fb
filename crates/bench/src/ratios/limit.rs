//! What does the hardware do at best? Bare copies and drains, on a mapping of the same kind.
//!
//! A file of its own, made and opened as ours is. (On the very same mapping the bare copies would go over
//! what is checked at the end.) May import `memory`.

use crate::memory::Memory;
use std::io;
use std::path::Path;

/// Bytes, and behind them a word for each 4 KiB: what makes the bytes count.
#[derive(Debug)]
pub struct Limit {
    memory: Memory,
    len: u64,
}

impl Limit {
    /// For so many bytes.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(folder: &Path, len: u64) -> io::Result<Limit> {
        Ok(Limit { memory: Memory::open(&folder.join("limit"), len + len / 512)?, len })
    }

    /// The least for bytes that need not be atomic.
    #[inline]
    pub fn copy_one_drain(&self, data: &[u8], offset: u64) {
        self.memory.store(data, offset);
        self.memory.drain();
    }

    /// The least for bytes and a word that makes them count.
    #[inline]
    pub fn copy_two_drains(&self, data: &[u8], offset: u64) {
        self.copy_one_drain(data, offset);
        self.memory.store_word(offset, self.len + offset / 4096 * 8);
        self.memory.drain();
    }

    /// The same for bytes in several places, and still one word.
    #[inline]
    pub fn copy_all_two_drains(&self, parts: &[(u64, &[u8])]) {
        parts.iter().for_each(|(offset, data)| self.memory.store(data, *offset));
        self.memory.drain();
        self.memory.store_word(parts[0].0, self.len + parts[0].0 / 4096 * 8);
        self.memory.drain();
    }

    /// Through the cache, without a drain: what the death of the process alone needs.
    #[inline]
    pub fn copy(&self, data: &[u8], offset: u64) {
        self.memory.store_cached(data, offset);
    }

    /// Copies out.
    #[inline]
    pub fn copy_out(&self, to: &mut [u8], offset: u64) {
        self.memory.load(to, offset);
    }
}
