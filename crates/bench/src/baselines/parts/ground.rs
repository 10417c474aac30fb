//! Which part of the file belongs to whom? Hands out areas, one after the other.
//!
//! Invariant: the same calls give the same areas, so that opening again finds everything. The data
//! comes first, at 0, with the offsets that the user knows.

use super::pages::PAGE;
use crate::memory::Memory;
use std::io;
use std::path::Path;

/// Hands out areas that begin at page boundaries.
#[derive(Debug)]
pub struct Ground {
    end: u64,
}

impl Ground {
    /// With the data of a file of `len` bytes at its start.
    pub fn below(len: u64) -> Ground {
        Ground { end: len.next_multiple_of(PAGE) }
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: u64) -> u64 {
        let at = self.end;
        self.end += len.next_multiple_of(PAGE);
        at
    }

    /// Opens the file that holds all of it.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(self, folder: &Path, name: &str) -> io::Result<Memory> {
        Memory::open(&folder.join(name), self.end)
    }
}
