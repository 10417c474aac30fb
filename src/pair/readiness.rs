//! Answers whether a write finds its pages in their usual state: it can copy to their free slots at
//! once, with nothing to prepare.
//!
//! May import `pair::{log, region, space}`, `bitmap`, `units`.

use crate::bitmap::{Slices, bits};
use crate::mutant::planted;
use crate::pair::Pair;
use crate::pair::log::records::PageSlices;
use crate::pair::region::RegionState;
use crate::units::RegionIndex;

impl Pair {
    /// Returns `true` if a write can copy `slices` of each of the region's `pages` to their free
    /// slots at once. Then no free slot is claimed, and no active record names the slices, except
    /// records of the lanes in `own`. Both slots of the pages and, with `words`, the slice words
    /// are allocated. The caller holds the pages' locks.
    #[inline(always)]
    pub(crate) fn is_ready(
        &self,
        index: RegionIndex,
        region: &RegionState,
        pages: u64,
        slices: Slices,
        own: u64,
        words: bool,
    ) -> bool {
        let may_be_claimed = region.may_be_claimed(pages) && !planted!(CopyOverView);
        let claimed = if may_be_claimed { pages } else { 0 };
        let named = if planted!(CopyOverEntries) { 0 } else { region.named_pages() & pages };
        let is_named = |n| self.is_named(&PageSlices { page: index.page(n), region, slices }, own);
        let is_claimed = |n| slices.without(region.claimed_slices(n)) != slices;
        // A bit may outlive its reason, so look at the claims and the records themselves.
        !bits(claimed).any(is_claimed)
            && !bits(named).any(is_named)
            && (self.all_is_allocated(index, words)
                || bits(pages).all(|n| self.is_allocated_in_pieces(index.page(n)))
                || planted!(CopyToHoles))
    }
}
