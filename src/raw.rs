//! What could the hardware do at best, and what would other ways of being atomic cost? The bare mapping.
//!
//! For benchmarks (feature `raw`): the stores, flushes and drains that the engine is made of, on the home
//! file's own mapping. So who is measured against the engine has the same instructions, the same bounds
//! checks and the same pages. These stores go past every protocol and are not atomic; a file that was
//! stored to in this way is good for nothing else.

use crate::file::AtomicMappedFile;
use crate::format::layout;
use crate::platform::Copying;
use crate::units::{CHUNK, PageIndex};

/// Bare access to an open file's mapping. Every method panics where the range is not within the file.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a>(pub &'a AtomicMappedFile);

impl Raw<'_> {
    /// Copies into the home file. Durable after the next [`drain`](Self::drain) of the same thread.
    #[inline]
    pub fn copy_in(&self, data: &[u8], offset: u64) {
        self.0.engine().home.copy_in(offset, data, Copying::BySize);
    }

    /// Copies into the home file through the cache, and flushes nothing.
    #[inline]
    pub fn copy_in_cached(&self, data: &[u8], offset: u64) {
        self.0.engine().home.copy_in(offset, data, Copying::Cached);
    }

    /// Starts the way of the range's cache lines to durability.
    #[inline]
    pub fn flush(&self, offset: u64, len: usize) {
        self.0.engine().home.flush(offset, len);
    }

    /// Waits until what this thread has copied and flushed is durable.
    #[inline]
    pub fn drain(&self) {
        self.0.engine().platform.drain();
    }

    /// Stores an aligned word. Durable after the next drain.
    #[inline]
    pub fn store_word(&self, offset: u64, value: u64) {
        self.0.engine().home.store_word_through(offset, value);
    }

    /// Loads an aligned word.
    #[inline]
    pub fn load_word(&self, offset: u64) -> u64 {
        self.0.engine().home.load_word(offset)
    }

    /// Copies into the home slots and makes the bytes durable: one drain.
    #[inline]
    pub fn copy_one_drain(&self, data: &[u8], offset: u64) {
        self.copy_in(data, offset);
        self.drain();
    }

    /// The same, and then stores one word and makes it durable: two drains, the least for data and
    /// a word that makes it count.
    #[inline]
    pub fn copy_two_drains(&self, data: &[u8], offset: u64) {
        self.copy_one_drain(data, offset);
        let engine = self.0.engine();
        let word = layout::slice_word(PageIndex::of(offset));
        engine.reflection.store_word_through(word, 0);
        engine.platform.drain();
    }

    /// Copies out of the home slots.
    #[inline]
    pub fn copy_out(&self, to: &mut [u8], offset: u64) {
        self.0.engine().home.copy_out(to, offset);
    }

    /// Allocates the home file and the words, so that the copies touch no hole.
    ///
    /// # Errors
    /// What the system says.
    pub fn allocate(&self) -> std::io::Result<()> {
        let engine = self.0.engine();
        let mut chunks = (0..self.0.len()).step_by(CHUNK);
        chunks.try_for_each(|at| engine.home.allocate_chunk(at, CHUNK as u64))?;
        let words = layout::slice_word(PageIndex(0));
        engine.reflection.allocate(words, self.0.len() / 512)
    }
}
