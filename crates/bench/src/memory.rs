//! The memory of all baselines, and its instructions.
//!
//! Owns: one mapped file that is treated as persistent memory, and the count of its written bytes.
//! A file on tmpfs with `Medium::Dax` forced takes the place of persistent memory. The engine uses
//! these stores, flushes and drains too, with equal mappings and bounds checks. So no contender has
//! better instructions than another one.
//!
//! May import nothing of this crate.

use atomic_mmap::{AtomicMappedFile, DeployPolicy, Medium, Raw};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// A cache line, the unit of writes to the medium.
pub const LINE: u64 = 64;

/// A mapped file. Its bytes survive a process crash. On real persistent memory drained bytes also
/// survive a loss of power.
#[derive(Debug)]
pub struct Memory {
    file: AtomicMappedFile,
    /// Counts of written bytes, each on its own line. One for each thread would be fairer to many
    /// threads.
    written: [Count; COUNTS],
}

const COUNTS: usize = 16;

#[repr(align(128))]
#[derive(Debug, Default)]
struct Count(AtomicU64);

thread_local! {
    static MINE: usize = {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) as usize % COUNTS
    };
}

impl Memory {
    /// Opens the file with `len` bytes, or creates it with zeros. Every byte is allocated.
    ///
    /// # Errors
    /// Returns an error of the system or the crate. A processor without `clwb` and `clflushopt` is
    /// an error.
    pub fn open(path: &Path, len: u64) -> io::Result<Memory> {
        let file = AtomicMappedFile::options()
            .create(true)
            .len(len)
            .medium(Medium::Dax)
            .deploy(DeployPolicy::Manual)
            .open(path)
            .map_err(io::Error::other)?;
        Raw(&file).allocate()?;
        Ok(Memory { file, written: Default::default() })
    }

    /// Copies with the fastest instructions for this size. The bytes are durable after the next
    /// [`drain`](Self::drain) of this thread. Other threads may see them only then.
    #[inline]
    pub fn store(&self, data: &[u8], offset: u64) {
        Raw(&self.file).copy_in(data, offset);
        self.count(offset, data.len());
    }

    /// Copies through the cache, and flushes nothing: other threads see the bytes in order. Counts
    /// them as written, since the cache will write them.
    #[inline]
    pub fn store_cached(&self, data: &[u8], offset: u64) {
        Raw(&self.file).copy_in_cached(data, offset);
        self.count(offset, data.len());
    }

    /// Starts to write the lines of the range back.
    #[inline]
    pub fn flush(&self, offset: u64, len: usize) {
        Raw(&self.file).flush(offset, len);
    }

    /// Stores an aligned word, which is durable after the next drain.
    #[inline]
    pub fn store_word(&self, value: u64, offset: u64) {
        Raw(&self.file).store_word(offset, value);
        self.count(offset, 8);
    }

    /// Waits until all streamed and flushed bytes of this thread are durable.
    #[inline]
    pub fn drain(&self) {
        Raw(&self.file).drain();
    }

    /// Loads an aligned word.
    #[inline]
    pub fn load_word(&self, offset: u64) -> u64 {
        Raw(&self.file).load_word(offset)
    }

    /// Copies bytes out of the file.
    #[inline]
    pub fn load(&self, to: &mut [u8], offset: u64) {
        Raw(&self.file).copy_out(to, offset);
    }

    /// Returns the bytes stored since opening, in whole lines.
    pub fn written(&self) -> u64 {
        self.written.iter().map(|count| count.0.load(Ordering::Relaxed)).sum()
    }

    #[inline]
    fn count(&self, offset: u64, len: usize) {
        let lines = (offset % LINE + len as u64).div_ceil(LINE);
        let mine = &self.written[MINE.with(|mine| *mine)].0;
        mine.fetch_add(lines * LINE, Ordering::Relaxed);
    }
}
