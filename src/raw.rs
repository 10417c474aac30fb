//! Unprotected access to the mapping, for benchmarks (feature `raw`).
//!
//! It offers the stores, flushes and drains that the engine consists of, on the home file's own
//! mapping. So a baseline uses the engine's instructions, bounds checks and pages. These stores
//! bypass every protocol and are not atomic. They make the file useless for anything else.

use crate::api::file::AtomicMappedFile;
use crate::format::layout;
use crate::platform::Copying;
use crate::units::{CHUNK, PageIndex};

/// Unprotected access to an open file's mapping. Methods panic on a range outside the file.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a>(pub &'a AtomicMappedFile);

impl Raw<'_> {
    /// Copies `data` into the home file. It is durable after this thread's next
    /// [`drain`](Self::drain).
    #[inline]
    pub fn copy_in(&self, data: &[u8], offset: u64) {
        self.0.engine().home.copy_in(offset, data, Copying::BySize);
    }

    /// Copies `data` into the home file through the cache, without a flush.
    #[inline]
    pub fn copy_in_cached(&self, data: &[u8], offset: u64) {
        self.0.engine().home.copy_in(offset, data, Copying::Cached);
    }

    /// Starts writing the range's cache lines back to the medium.
    #[inline]
    pub fn flush(&self, offset: u64, len: usize) {
        self.0.engine().home.flush(offset, len);
    }

    /// Waits until this thread's copies and flushes are durable.
    #[inline]
    pub fn drain(&self) {
        self.0.engine().platform.drain();
    }

    /// Stores an aligned word. It is durable after this thread's next drain.
    #[inline]
    pub fn store_word(&self, offset: u64, value: u64) {
        self.0.engine().home.store_word_through(offset, value);
    }

    /// Loads an aligned word.
    #[inline]
    pub fn load_word(&self, offset: u64) -> u64 {
        self.0.engine().home.load_word(offset)
    }

    /// Copies `data` into the home file and makes it durable with one drain.
    #[inline]
    pub fn copy_one_drain(&self, data: &[u8], offset: u64) {
        self.copy_in(data, offset);
        self.drain();
    }

    /// Copies `data` into the home file, drains, stores one word of the reflection file and drains
    /// again. This is the minimum for data and a commit word.
    #[inline]
    pub fn copy_two_drains(&self, data: &[u8], offset: u64) {
        self.copy_one_drain(data, offset);
        let engine = self.0.engine();
        let word = layout::slice_word(PageIndex::of(offset));
        engine.reflection.store_word_through(word, 0);
        engine.platform.drain();
    }

    /// Copies bytes of the home file into `to`.
    #[inline]
    pub fn copy_out(&self, to: &mut [u8], offset: u64) {
        self.0.engine().home.copy_out(to, offset);
    }

    /// Allocates the home file and the slice words, so that later copies meet no hole.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn allocate(&self) -> std::io::Result<()> {
        let engine = self.0.engine();
        let mut chunks = (0..self.0.len()).step_by(CHUNK);
        chunks.try_for_each(|at| engine.home.allocate_chunk(at, CHUNK as u64))?;
        let words = layout::slice_word(PageIndex(0));
        engine.reflection.allocate(words, self.0.len() / 512)
    }
}
