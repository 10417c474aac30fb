//! A mapping of an unlinked temporary file.

use memmap2::Mmap;
use std::fs::File;
use std::io;

/// Maps all of `file`, which no other code knows: it was made without a name, or its name was
/// removed at once.
pub(crate) fn of_unlinked(file: &File) -> io::Result<Mmap> {
    // SAFETY: the file has no name, and its one owner does not write while the mapping is used:
    // `Spill::with_bytes` borrows it. Its bytes were written by system calls, so none is a hole
    // that a full disk could not fill.
    unsafe { Mmap::map(file) }
}
