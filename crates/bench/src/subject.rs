//! The interface of all contenders.
//!
//! Owns: the trait, the table entry that opens a contender, and the small writes that warm it up.
//! The bench calls all contenders in one way: `write` and then `sync`. Afterwards the bytes must
//! survive a loss of power, whole. May import nothing of this crate.

use std::io;
use std::path::Path;

/// A contender that holds the bytes of one file. Invalid calls and full disks panic and end the
/// measurement.
pub trait Subject: Send + Sync {
    /// Writes `data` at `offset`. After a crash the write is whole or absent. Once
    /// [`sync`](Self::sync) has returned, it is whole.
    fn write(&self, data: &[u8], offset: u64);

    /// Makes the writes of this thread durable, if `write` has not done so.
    fn sync(&self) {}

    /// Fills `to` with the bytes written last.
    fn read(&self, to: &mut [u8], offset: u64);

    /// Writes all parts, which are sorted and do not overlap, in one operation. Returns `false` and
    /// does nothing if the contender has no transactions.
    fn transact(&self, parts: &[Part<'_>]) -> bool {
        let _not_offered = parts;
        false
    }

    /// Returns the bytes written to the medium since opening, in whole cache lines. `None`:
    /// unknown.
    fn written(&self) -> Option<u64> {
        None
    }
}

/// An offset, and the bytes to write there.
pub type Part<'a> = (u64, &'a [u8]);

/// A table entry of a contender.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Name in tables.
    pub name: &'static str,
    /// Origin of its protocol.
    pub source: &'static str,
    /// `true` if a single `write` is durable by itself, and `sync` does nothing.
    pub durable_writes: bool,
    /// Opens the file of this length in the existing folder. Creates a missing file, and recovers
    /// it after a crash.
    pub open: fn(&Path, u64) -> io::Result<Box<dyn Subject>>,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Writes some bytes of each page twice. A contender with places for parts of pages then has them
/// before its first measured writes. The first use of a page of a file takes up to 10 µs.
pub fn touch_parts(subject: &dyn Subject, len: u64) {
    let data = [0x5A; 64];
    for at in (0..len).step_by(4096) {
        for _ in 0..2 {
            subject.write(&data, at);
            subject.sync();
        }
    }
}
