//! What is asked of everybody who is measured?
//!
//! Owns: the trait, the table entry that opens one, and the small writes that warm one up. Whatever a
//! subject promises, it is asked for the same thing: `write` and then `sync`, after which the bytes
//! survive a loss of power, whole. May import nothing of this crate.

use std::io;
use std::path::Path;

/// Keeps the bytes of one file. Bad calls and full disks panic: a measurement ends there.
pub trait Subject: Send + Sync {
    /// Writes `data` at `offset`. After a crash it is there whole or not at all, at the latest once
    /// [`sync`](Self::sync) has returned; then it is there.
    fn write(&self, data: &[u8], offset: u64);

    /// Makes what this thread has written durable, where `write` did not do so already.
    fn sync(&self) {}

    /// Fills `to` with what was written last.
    fn read(&self, to: &mut [u8], offset: u64);

    /// Writes all parts, which are sorted and do not overlap, in one operation. False: there is nothing
    /// of the kind here, and nothing was done.
    fn transact(&self, parts: &[Part<'_>]) -> bool {
        let _not_offered = parts;
        false
    }

    /// Bytes written to the medium since opening, whole cache lines counted. `None`: not known.
    fn written(&self) -> Option<u64> {
        None
    }
}

/// An offset, and the bytes that are to be there.
pub type Part<'a> = (u64, &'a [u8]);

/// One that can be measured.
#[derive(Clone, Copy)]
pub struct Kind {
    /// For tables.
    pub name: &'static str,
    /// Where its way comes from.
    pub source: &'static str,
    /// Whether a single `write` is durable by itself, and `sync` does nothing.
    pub durable_writes: bool,
    /// Opens the file in the folder, which is there, for so many bytes. Creates it where it is not there
    /// yet, and recovers it where a process died.
    pub open: fn(&Path, u64) -> io::Result<Box<dyn Subject>>,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Writes some bytes of each page twice: whoever keeps places for parts of pages has them then, and pays for none with
/// its first measured writes. (A page of a file that is used for the first time takes up to 10 µs.)
pub fn touch_parts(subject: &dyn Subject, len: u64) {
    let data = [0x5A; 64];
    for at in (0..len).step_by(4096) {
        for _ in 0..2 {
            subject.write(&data, at);
            subject.sync();
        }
    }
}
