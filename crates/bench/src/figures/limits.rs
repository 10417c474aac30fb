//! The limits of the hardware: a copy to mapped memory, and one drain or two.
//!
//! One drain is the minimum for durable bytes. Two drains are the minimum for durable bytes and
//! then a word that makes them valid. Neither limit is atomic.

use crate::memory::{LINE, Memory};
use crate::subject::{Kind, Subject};
use std::io;
use std::path::Path;

/// Copies, then drains.
pub const ONE_DRAIN: Kind = Kind {
    name: "limit: copy, 1 drain",
    source: "the hardware; not atomic",
    durable_writes: true,
    open: |folder, len| Ok(Box::new(Limit::open(folder, len, false)?)),
};

/// Copies, drains, stores a word, and drains.
pub const TWO_DRAINS: Kind = Kind {
    name: "limit: copy, 2 drains",
    source: "the hardware; not atomic",
    durable_writes: true,
    open: |folder, len| Ok(Box::new(Limit::open(folder, len, true)?)),
};

/// Both limits.
pub const ALL: &[Kind] = &[ONE_DRAIN, TWO_DRAINS];

struct Limit {
    memory: Memory,
    /// Offset of the words, one for each 4 KiB, after the bytes.
    words: Option<u64>,
}

impl Limit {
    fn open(folder: &Path, len: u64, word: bool) -> io::Result<Limit> {
        let words = len.next_multiple_of(4096);
        let behind = if word { (len / 4096 + 1) * 8 } else { 0 };
        let memory = Memory::open(&folder.join("limit"), (words + behind).next_multiple_of(LINE))?;
        Ok(Limit { memory, words: word.then_some(words) })
    }

    fn finish(&self, offset: u64) {
        // Orders the data before the word that makes it valid.
        self.memory.drain();
        if let Some(words) = self.words {
            self.memory.store_word(offset, words + offset / 4096 * 8);
            // Makes the word durable before the caller continues.
            self.memory.drain();
        }
    }
}

impl Subject for Limit {
    fn write(&self, data: &[u8], offset: u64) {
        self.memory.store(data, offset);
        self.finish(offset);
    }

    fn read(&self, to: &mut [u8], offset: u64) {
        self.memory.load(to, offset);
    }

    fn transact(&self, parts: &[(u64, &[u8])]) -> bool {
        for (offset, data) in parts {
            self.memory.store(data, *offset);
        }
        self.finish(parts.first().map_or(0, |part| part.0));
        true
    }

    fn written(&self) -> Option<u64> {
        Some(self.memory.written())
    }
}
