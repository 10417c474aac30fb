//! The guard of a lane's read section.
//!
//! A thread in a read section keeps truncations and hole punches away. `Lanes::synchronize`
//! waits until every read section that is open has ended.
//!
//! One word of the lane holds both the mark and the count of fast-path reads. So such a read stores
//! its count with the end of its section:
//! - bit 0 is set while the lane's thread is in a read section;
//! - the bits from [`COUNT`] on are the number of fast-path reads that succeeded;
//! - the bits between change when a section ends that counts no read. So a thread that waits for a
//!   section does not take a later one for it.
//!
//! May import `primitive`.

use crate::mutant::planted;
use crate::primitive::{AtomicU64, Ordering};

/// The bit of the word from which on it counts fast-path reads.
pub(super) const COUNT: u32 = 12;

/// A guard for a read section of the lane's thread. `Lanes::synchronize` waits until it is
/// dropped.
pub struct Pinned<'a>(pub(super) &'a AtomicU64);

impl Pinned<'_> {
    /// Returns the number of fast-path reads that the lane's threads have done before this section.
    #[inline(always)]
    pub fn number(&self) -> u64 {
        self.0.load(Ordering::Relaxed) >> COUNT
    }

    /// Ends the section of a fast-path read after a successful copy, and counts the read.
    #[inline(always)]
    pub fn finish(self) {
        let mark = u64::from(!planted!(ReadUnpinned));
        // Release: orders the section's reads before its end.
        self.0.store(self.0.load(Ordering::Relaxed) + (1 << COUNT) - mark, Ordering::Release);
        std::mem::forget(self);
    }

    /// Ends the section of a fast-path read that failed. Returns `false`, so that a caller can end
    /// with this call. A cold function, so that the fast path reserves no registers for it.
    #[cold]
    #[inline(never)]
    pub fn abort(self) -> bool {
        false
    }
}

impl Drop for Pinned<'_> {
    #[inline]
    fn drop(&mut self) {
        let word = self.0.load(Ordering::Relaxed);
        let low = (1 << COUNT) - 1;
        // Release: orders everything that the thread read and loaded in the section before its end.
        self.0.store(word & !low | (word + (word & 1)) & low, Ordering::Release);
    }
}
