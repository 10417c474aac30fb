//! What does the hardware do at best? A copy to mapped memory, and one drain or two.
//!
//! One drain is the least for bytes that are durable; two for bytes that are durable and a word that then
//! makes them count. Neither is atomic.

use crate::memory::{LINE, Memory};
use crate::subject::{Kind, Subject};
use std::io;
use std::path::Path;

/// Copy, drain.
pub const ONE_DRAIN: Kind = Kind {
    name: "limit: copy, 1 drain",
    source: "the hardware; not atomic",
    durable_writes: true,
    open: |folder, len| Ok(Box::new(Limit::open(folder, len, false)?)),
};

/// Copy, drain, store a word, drain.
pub const TWO_DRAINS: Kind = Kind {
    name: "limit: copy, 2 drains",
    source: "the hardware; not atomic",
    durable_writes: true,
    open: |folder, len| Ok(Box::new(Limit::open(folder, len, true)?)),
};

/// Both.
pub const ALL: &[Kind] = &[ONE_DRAIN, TWO_DRAINS];

struct Limit {
    memory: Memory,
    /// Where the words begin, one for 4 KiB: behind the bytes.
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
        // The data is durable before the word says so.
        self.memory.drain();
        if let Some(words) = self.words {
            self.memory.store_word(offset, words + offset / 4096 * 8);
            // The word is durable when the caller goes on.
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
