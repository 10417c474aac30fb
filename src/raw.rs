//! What could the hardware do at best? Bare copies and drains on a file's own mapping.
//!
//! For benchmarks (feature `recorder`): what a write is measured against. These stores go past every
//! protocol and are not atomic; the file is good for nothing else afterwards.

use crate::file::AtomicMappedFile;
use crate::format::layout;
use crate::platform::Copying;
use crate::units::PageIndex;

/// Bare access to an open file's mapping.
#[derive(Debug)]
pub struct Raw<'a>(pub &'a AtomicMappedFile);

impl Raw<'_> {
    /// Copies into the home slots and makes the bytes durable: one drain.
    pub fn copy_one_drain(&self, data: &[u8], offset: u64) {
        let engine = self.0.engine();
        engine.home.copy_in(offset, data, Copying::BySize);
        engine.platform.drain();
    }

    /// The same, and then stores one word and makes it durable: two drains, the least for data and
    /// a word that makes it count.
    pub fn copy_two_drains(&self, data: &[u8], offset: u64) {
        self.copy_one_drain(data, offset);
        let engine = self.0.engine();
        let word = layout::slice_word(PageIndex::of(offset));
        engine.reflection.store_word_through(word, 0);
        engine.platform.drain();
    }

    /// Copies out of the home slots.
    pub fn copy_out(&self, to: &mut [u8], offset: u64) {
        self.0.engine().home.copy_out(to, offset);
    }

    /// Allocates the home file and the words, so that the copies touch no hole.
    ///
    /// # Errors
    /// What the system says.
    pub fn allocate(&self) -> std::io::Result<()> {
        let engine = self.0.engine();
        engine.home.allocate(0, self.0.len())?;
        let words = layout::slice_word(PageIndex(0));
        engine.reflection.allocate(words, self.0.len() / 512)
    }
}
