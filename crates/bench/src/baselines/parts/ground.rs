//! A layout of the file: it hands out areas, one after the other.
//!
//! Invariant: equal calls return equal areas, so that a later opening finds all of them. The data
//! comes first, at 0, with the user's offsets.

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
    /// Returns a layout with the data of a file of `len` bytes at its start.
    pub fn below(len: u64) -> Ground {
        Ground { end: len.next_multiple_of(PAGE) }
    }

    /// Returns the offset of the next `len` bytes.
    pub fn take(&mut self, len: u64) -> u64 {
        let at = self.end;
        self.end += len.next_multiple_of(PAGE);
        at
    }

    /// Opens the file that holds all areas.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn open(self, folder: &Path, name: &str) -> io::Result<Memory> {
        Memory::open(&folder.join(name), self.end)
    }
}
