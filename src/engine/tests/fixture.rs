//! Pairs for the tests of the engine.

use crate::{AtomicMappedFile, Medium, Options};
use std::path::Path;
use std::time::Duration;

/// How long a call is watched that must wait.
pub const A_WHILE: Duration = Duration::from_millis(20);

/// Returns the media that need no disk. Persistent memory needs instructions that write cache lines
/// back.
pub fn media_in_memory() -> impl Iterator<Item = Medium> {
    let flushes = cfg!(all(target_arch = "x86_64", not(atomic_mmap_portable), not(miri)));
    [Medium::Ram, Medium::Dax].into_iter().filter(move |medium| *medium == Medium::Ram || flushes)
}

/// Returns the options of a new file of `len` bytes in RAM.
pub fn options(len: u64) -> Options {
    AtomicMappedFile::options().create(true).len(len).medium(Medium::Ram)
}

/// Opens the folder's file.
pub fn open(folder: &Path, options: Options) -> AtomicMappedFile {
    options.open(folder.join("state.dat")).expect("a pair")
}

/// Opens a new file of `len` bytes in RAM.
pub fn new_file(folder: &Path, len: u64) -> AtomicMappedFile {
    open(folder, options(len))
}

/// Writes `fill` to the first `len` bytes, twice. So both slots are allocated, and every page that
/// lies in these bytes is deployed.
pub fn fill(file: &AtomicMappedFile, fill: u8, len: u64) {
    for _ in 0..2 {
        file.write_at(&vec![fill; len as usize], 0).expect("a write");
    }
}
