//! Claims on slots: which slots of a page no writer may store to, and for which claimant.
//!
//! | claimant | claims | while |
//! |---|---|---|
//! | view | the home slots of a page | it pins the page |
//! | durable point | the slots that a page's durable word names | durable points are kept |
//!
//! Flips and deployments store to the slot of a slice that is not valid. If that slot is claimed,
//! the slice has no free slot, and is written by a redo record (`engine::commit::redo`).
//!
//! Invariant: where durable points are kept, views are copies and pin nothing. So no slice has one
//! slot claimed by a view and the other by a durable point: a write would need a third slot.
//!
//! May import `pair::region`, `bitmap`, `primitive`, and the planted bugs.

use crate::bitmap::Slices;
use crate::mutant::planted;
use crate::pair::region::RegionState;
use crate::primitive::Ordering;

impl RegionState {
    /// Returns the slices of page `n` without a free slot, by all claimants. The caller holds the
    /// page's lock.
    #[inline(always)]
    pub fn claimed_slices(&self, n: usize) -> Slices {
        self.viewed_slices(n).or(self.changed_slices(n))
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
}
