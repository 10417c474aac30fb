//! Claims on slots: which slots of a page no writer may store to, and for which claimant.
//!
//! | claimant | claims | while |
//! |---|---|---|
//! | view | the home slots of a page | it pins the page |
//! | durable point | the slots that a page's durable word names | durable points are kept |
//! | stage | the free slots of its slices | it lives |
//! | byte mark | the home slot of its slice, valid in the reflection file | the file is open |
//!
//! Flips and deployments store to the slot of a slice that is not valid. If that slot is claimed,
//! the slice has no free slot, and is written by a redo record (`engine::commit::redo`).
//!
//! Invariants:
//! - Where durable points are kept, views are copies and pin nothing, and stages lend nothing. On a
//!   page that a view pins no stage claims a slot, and no view pins a page with staged slices. So
//!   no slice has both slots claimed: a write would need a third one.
//! - At most one stage claims a slot. Which slot of a staged slice is free does not change: nothing
//!   flips or deploys the slice but the commit of its stage.
//!
//! May import `pair::region`, `bitmap`, `primitive`, and the planted bugs.

use crate::bitmap::Slices;
use crate::mutant::{planted, unless};
use crate::pair::region::RegionState;
use crate::primitive::{AtomicU64, Ordering, many};

impl RegionState {
    /// Returns the slices of page `n` without a free slot, by all claimants. The caller holds the
    /// page's lock.
    #[inline(always)]
    pub fn claimed_slices(&self, n: usize) -> Slices {
        let staged = if planted!(FlipOverStage) { Slices::NONE } else { self.staged_slices(n) };
        self.viewed_slices(n).or(self.changed_slices(n)).or(staged)
    }

    /// Returns `true` if a page of `mask` may have a claimed slot. One look is enough for a region.
    #[inline(always)]
    pub fn may_be_claimed(&self, mask: u64) -> bool {
        self.durable.is_some() || self.pinned_pages() & mask != 0
    }

    /// Returns the slices of page `n` with a home slot that a view claims, and a valid slot in the
    /// reflection file.
    #[inline(always)]
    fn viewed_slices(&self, n: usize) -> Slices {
        let is_pinned = self.is_pinned(n) && !planted!(FlipOverView);
        if is_pinned { self.validity(n).in_reflection(Slices::ALL) } else { Slices::NONE }
    }

    /// Returns the slices of page `n` that have changed since the last durable point. Their other
    /// slot belongs to that point.
    #[inline]
    pub fn changed_slices(&self, n: usize) -> Slices {
        match &self.durable {
            Some(durable) => Slices(durable[n].load(Ordering::Relaxed) ^ self.validity(n).0),
            None => Slices::NONE,
        }
    }

    /// Returns the slices of page `n` with a free slot that a stage claims. The caller holds the
    /// page's lock: then no bit is added meanwhile.
    #[inline(always)]
    pub fn staged_slices(&self, n: usize) -> Slices {
        // Acquire, as the stage's release of its claims: the stage's stores come before.
        let load = || self.staged.get().map_or(0, |staged| staged[n].load(Ordering::SeqCst));
        if self.pinned_pages() >> n & 1 == 0 { Slices::NONE } else { Slices(load()) }
    }

    /// Returns `true` if page `n` may not be deployed: a view pins it, or a stage claims slots of
    /// it. The caller holds the page's lock, or takes the answer for a hint.
    #[inline]
    pub fn is_held_back(&self, n: usize) -> bool {
        self.is_pinned(n) || !self.staged_slices(n).is_empty()
    }

    /// Claims the free slots of those of `slices` of page `n` that no claimant has, and returns
    /// them: none if a view pins the page. The caller holds the page's lock.
    pub fn claim_free_slots(&self, n: usize, slices: Slices) -> Slices {
        let is_pinned = self.is_pinned(n) && !planted!(StageUnderView);
        if is_pinned || self.durable.is_some() {
            return Slices::NONE;
        }
        let claimed = if planted!(StageOverStage) { Slices::NONE } else { self.staged_slices(n) };
        let claims = slices.without(claimed);
        if !claims.is_empty() {
            let staged = self.staged.get_or_init(|| many(|| AtomicU64::new(0)));
            unless!(StageNotClaimed, staged[n].fetch_or(claims.0, Ordering::SeqCst));
            self.note_pinned(n);
        }
        claims
    }

    /// Claims the home slot of one of page `n`'s slices for the byte mark. The slice is valid in
    /// the reflection file. The caller holds the page's lock.
    pub fn claim_for_mark(&self, n: usize, slice: Slices) {
        let staged = self.staged.get_or_init(|| many(|| AtomicU64::new(0)));
        staged[n].fetch_or(slice.0, Ordering::SeqCst);
        self.note_pinned(n);
    }

    /// Gives the claims of a stage on slices of page `n` back. The stage's stores to their slots
    /// are drained: from here on another operation may store there. Takes no lock.
    pub fn release_slots(&self, n: usize, slices: Slices) {
        if let Some(staged) = self.staged.get() {
            staged[n].fetch_and(!slices.0, Ordering::SeqCst);
        }
    }
}
