//! The guards of a lane's read section.
//!
//! A thread in a read section keeps truncations and hole punches away. `Lanes::synchronize`
//! waits until every read section that is open has ended.
//!
//! May import `primitive`.

use crate::mutant::planted;
use crate::primitive::{AtomicU64, Ordering};

/// A guard for a read section of the lane's thread. `Lanes::synchronize` waits until it is
/// dropped.
pub struct Pinned<'a>(pub(super) &'a AtomicU64);

impl Drop for Pinned<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: orders everything that the thread read and loaded in the section before its end.
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

/// A guard for the read section of a fast-path read, which is tried once.
pub struct TryGuard<'a>(pub(super) &'a AtomicU64);

impl TryGuard<'_> {
    /// Returns the number of fast-path reads that the lane's threads have done before this one.
    #[inline(always)]
    pub fn number(&self) -> u64 {
        self.0.load(Ordering::Relaxed) / 2
    }

    /// Ends the section after a successful copy, and counts the read.
    #[inline(always)]
    pub fn finish(self) {
        // Release: orders the section's reads before its end.
        let step = if planted!(ReadUnpinned) { 2 } else { 1 };
        self.0.store(self.0.load(Ordering::Relaxed) + step, Ordering::Release);
        std::mem::forget(self);
    }

    /// Ends the section of a read that failed, without counting it. Returns `false`, so that a
    /// caller can end with this call.
    #[inline(always)]
    pub fn abort(self) -> bool {
        let word = self.0;
        std::mem::forget(self);
        give_back(word)
    }
}

/// Ends the read section of a fast-path read that failed. A cold function, so that the fast path
/// reserves no registers for it.
#[cold]
#[inline(never)]
pub(crate) fn give_back(word: &AtomicU64) -> bool {
    // Release: as above. The section's odd number is used again by the next section. A thread that
    // waits for this section may then wait for the next one as well, but not longer.
    let step = u64::from(!planted!(ReadUnpinned));
    word.store(word.load(Ordering::Relaxed) - step, Ordering::Release);
    false
}

impl Drop for TryGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        give_back(self.0);
    }
}
