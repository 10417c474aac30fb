//! The guards for locked words.
//!
//! Owns: [`LockGuard`] and [`ExclusiveGuard`], which unlock their words when they are dropped.
//!
//! Invariants: those of the parent. A guard exists only while its word is locked.
//!
//! May import: `word`, `primitive`, `thread_cache` and the planted bugs.

use super::word::{CLOSED, LOCKED, LockWord, STABLE, STEP, VERSION};
use crate::mutant::planted;
use crate::primitive::Ordering;
use crate::thread_cache;
use smallvec::SmallVec;

/// The locks that an operation holds, rarely more than a few.
pub type LockGuards<'a> = SmallVec<[LockGuard<'a>; 8]>;

/// A guard for a locked page or region word. Dropping it unlocks the word.
#[derive(Debug)]
pub struct LockGuard<'a>(pub(super) &'a LockWord);

impl LockGuard<'_> {
    /// Promises that nothing will be changed under this word until the guard is dropped. Only
    /// writers have to wait, and what a transaction has read stays valid.
    pub fn mark_stable(&self) {
        // Only the lock holder stores to a locked word.
        self.0.0.store(self.0.0.load(Ordering::Relaxed) | STABLE, Ordering::Release);
    }

    /// Makes readers wait until the guard is dropped. The drop then gives the word a new version.
    #[inline]
    pub fn close(&self) {
        self.0.close();
    }
}

impl Drop for LockGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.release();
    }
}

/// A guard for a page's word that was closed by the step that locked it. Dropping it unlocks the
/// word with a new version.
///
/// No other bits were set when the word was locked, and only its lock holder stores to it. So one
/// addition unlocks it.
#[derive(Debug)]
pub struct ExclusiveGuard<'a>(pub(super) &'a LockWord);

impl ExclusiveGuard<'_> {
    pub(super) const TAKEN: u64 = LOCKED | CLOSED;

    /// Unlocks the word without a new version, since nothing was changed: optimistic reads stay
    /// valid.
    #[inline(always)]
    pub fn give_back_unchanged(self) {
        self.let_go(0);
        std::mem::forget(self);
    }

    #[inline(always)]
    fn let_go(&self, step: u64) {
        let word = self.0.0.load(Ordering::Relaxed);
        debug_assert_eq!(word & !VERSION, Self::TAKEN, "taken as it is let go");
        // As in [`LockWord::release`].
        self.0.0.store(word.wrapping_add(step.wrapping_sub(Self::TAKEN)), Ordering::Release);
    }
}

impl Drop for ExclusiveGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        thread_cache::note_published();
        self.let_go(if planted!(NoNewVersion) { 0 } else { STEP });
    }
}
