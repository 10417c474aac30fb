//! The fast paths of reads of several pages: deployed pages by their stamps, and uniform pages of
//! one region by their versions.
//!
//! A block that was written as one, as a rule by a database, lies on one side and is read as one.
//! No pieces need to be gathered: versions, side, copy, versions. Each path is tried once. In any
//! other state the read begins anew in `read`, which determines the reason.
//!
//! May import `deploy`, `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::Side;
use crate::engine::Engine;
use crate::engine::deploy::policy::is_counted_of;
use crate::engine::read::version_sum_of;
use crate::format::layout;
use crate::mutant::planted;
use crate::pair::hints::{Expected, samples_stamp};
use crate::pair::log::lane::Lane;
use crate::pair::region::RegionState;
use crate::pair::stats::Counter;
use crate::primitive::{Ordering, fence};
use crate::units::{PAGE, PageIndex};
use std::ops::Range;

/// The sum of the versions of a region and some of its pages at the start of a read.
pub(in crate::engine) struct VersionSum(u64);

impl VersionSum {
    /// Returns the sum for these pages, or `None` while one of the locks is exclusive.
    #[inline(always)]
    pub fn begin(region: &RegionState, pages: Range<usize>) -> Option<Self> {
        version_sum_of(region, pages).map(VersionSum)
    }

    /// Returns `true` if no version has changed. The caller has put an acquire fence between its
    /// reads and this call.
    #[inline(always)]
    pub fn are_still(&self, region: &RegionState, pages: Range<usize>) -> bool {
        version_sum_of(region, pages) == Some(self.0) || planted!(SeveralNotLookedAtAgain)
    }
}

impl Engine {
    /// Fills `to` from `offset` in one copy, if all pages of the range have odd stamps. Works for
    /// any number of pages. On `false` the contents of `to` are unspecified.
    pub(in crate::engine) fn read_stamped_range(
        &self,
        lane: &Lane,
        to: &mut [u8],
        offset: u64,
    ) -> bool {
        let end = offset.checked_add(to.len() as u64);
        // An empty range has no page, and so no stamp that could cover it.
        let Some(end) = end.filter(|end| *end > offset) else { return false };
        let pages = offset / PAGE as u64..end.div_ceil(PAGE as u64);
        let pinned = lane.pin_fast();
        let Some(seen) = self.stamps.begin_all(pages.clone()) else {
            return pinned.abort();
        };
        if !self.home.try_copy_out(to, offset) {
            return pinned.abort();
        }
        // As in `read_stamped`, for all stamps.
        fence(Ordering::Acquire);
        if !seen.are_still(self.stamps.begin_all(pages)) {
            lane.stats.bump(Counter::ReadRetries, 1);
            return pinned.abort();
        }
        pinned.finish();
        true
    }

    /// Fills `to` from `offset` by a fast path for several pages, if one applies. `lane` is the
    /// result of [`cached_lane`](crate::pair::Pair::cached_lane). On `false` the contents of `to`
    /// are unspecified.
    #[inline(never)]
    pub(super) fn read_range_fast(&self, lane: &Lane, to: &mut [u8], offset: u64) -> bool {
        self.ask_ahead(offset, to.len());
        match lane.recent.expected() {
            Expected::DeployedStamps => {
                self.read_stamped_range(lane, to, offset) || self.read_region(lane, to, offset)
            }
            // Pages that are written now and then are seldom stamped.
            Expected::OnOneSide => {
                self.read_region(lane, to, offset) || self.read_stamped_range(lane, to, offset)
            }
            // The slow path reads mixed pages, and notes when they are uniform again.
            Expected::OnBothSides => self.read_stamped_range(lane, to, offset),
        }
    }

    /// Fills `to` from `offset` in one copy, if the range lies in one region and all its pages are
    /// uniform on one side. On `false` the contents of `to` are unspecified.
    pub(in crate::engine) fn read_region(&self, lane: &Lane, to: &mut [u8], offset: u64) -> bool {
        let end = offset.checked_add(to.len() as u64);
        let Some(end) = end.filter(|end| *end > offset) else { return false };
        let (first, last) = (PageIndex::of(offset), PageIndex::of(end - 1));
        if first.region() != last.region() {
            return false;
        }
        let pages = first.in_region()..last.in_region() + 1;
        // The home slot is already prefetched. Which slot is valid is known only once the pages'
        // states are loaded.
        self.reflection.prefetch_read(layout::reflection(offset));
        let pinned = lane.pin_fast();
        let first_len = if planted!(SeveralLengthFirst) { self.len() } else { 0 };
        let Some(region) = self.state.touched(first.region()) else {
            return pinned.abort();
        };
        let Some(seen) = VersionSum::begin(region, pages.clone()) else {
            return pinned.abort();
        };
        // Checked after the versions, as in `read::page`.
        let file_len = if planted!(SeveralLengthFirst) { first_len } else { self.len() };
        if end > file_len {
            return pinned.abort();
        }
        let Some(side) = region.valid_side(pages.clone()) else {
            // Mixed pages are noted by the slow path, which counts the pieces.
            lane.recent.note_away(true);
            return pinned.abort();
        };
        lane.recent.note_both(false);
        let side = if planted!(SeveralReadAtHome) { Side::Home } else { side };
        let is_home = side == Side::Home;
        lane.recent.note_away(!is_home);
        // A valid reflection slot was written, so it is allocated.
        if is_home && !region.home_is_loadable() && !planted!(HoleOfSeveralRead) {
            return pinned.abort();
        }
        let (file, at) = self.slot(side, offset);
        if !file.try_copy_out(to, at) {
            return pinned.abort();
        }
        // Orders the copy before the versions are validated.
        fence(Ordering::Acquire);
        if !seen.are_still(region, pages) {
            lane.stats.bump(Counter::ReadRetries, 1);
            return pinned.abort();
        }
        let number = pinned.number();
        pinned.finish();
        if is_counted_of(lane, number, to.len()) {
            self.on_read(offset..end, 1, true);
        }
        if is_home && samples_stamp(number) {
            self.stamp_all_sampled(offset..end);
        }
        true
    }
}
