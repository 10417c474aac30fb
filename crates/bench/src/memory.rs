//! Which bytes does everybody store to, and with which instructions?
//!
//! Owns: one mapped file that is treated as persistent memory (tmpfs stands in for it, by
//! `Medium::Dax` forced), and the count of what is written to it. The stores, flushes and drains are
//! those that the engine is made of, on the same kind of mapping, with the same bounds checks: nobody
//! who is measured has better instructions than anybody else.
//!
//! May import nothing of this crate.

use atomic_mmap::{AtomicMappedFile, DeployPolicy, Medium, Raw};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// A cache line: what the medium is written in.
pub const LINE: u64 = 64;

/// A mapped file whose bytes survive the process, and on real persistent memory a loss of power as soon
/// as they were drained.
#[derive(Debug)]
pub struct Memory {
    file: AtomicMappedFile,
    /// One count a thread would be fairer to many threads; each is on a line of its own.
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
    /// Opens the file, which has `len` bytes, or creates it, all zero. Every byte is allocated.
    ///
    /// # Errors
    /// What the system or the crate says; processors without `clwb` and `clflushopt` among it.
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

    /// Copies, by the instructions that are best for this size: durable after the next
    /// [`drain`](Self::drain) of this thread. Other threads may see it late, until then.
    #[inline]
    pub fn store(&self, data: &[u8], offset: u64) {
        Raw(&self.file).copy_in(data, offset);
        self.count(offset, data.len());
    }

    /// Copies through the cache, and flushes nothing: other threads see it in order. Counted as written,
    /// since it will be.
    #[inline]
    pub fn store_cached(&self, data: &[u8], offset: u64) {
        Raw(&self.file).copy_in_cached(data, offset);
        self.count(offset, data.len());
    }

    /// Starts the way of the range's lines to durability.
    #[inline]
    pub fn flush(&self, offset: u64, len: usize) {
        Raw(&self.file).flush(offset, len);
    }

    /// Stores an aligned word: durable after the next drain.
    #[inline]
    pub fn store_word(&self, value: u64, offset: u64) {
        Raw(&self.file).store_word(offset, value);
        self.count(offset, 8);
    }

    /// Waits until what this thread has stored and flushed is durable.
    #[inline]
    pub fn drain(&self) {
        Raw(&self.file).drain();
    }

    /// Loads an aligned word.
    #[inline]
    pub fn load_word(&self, offset: u64) -> u64 {
        Raw(&self.file).load_word(offset)
    }

    /// Copies out.
    #[inline]
    pub fn load(&self, to: &mut [u8], offset: u64) {
        Raw(&self.file).copy_out(to, offset);
    }

    /// Bytes stored since opening, whole lines counted.
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
