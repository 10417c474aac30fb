//! The fast paths of reads of deployed pages: one stamp a page before the copy, and the same stamp
//! after it. Each path is tried once.
//!
//! `pair::stamps` says why this is correct.
//!
//! May import `deploy`, `io`, `plan`, `pair`, and what lies below them.

use crate::engine::Engine;
use crate::pair::log::lane::Lane;
use crate::pair::stats::Counter;
use crate::primitive::{Ordering, fence};
use crate::units::{PAGE, PageIndex, is_in_page};

impl Engine {
    /// Fills `to` from `offset`, if the bytes lie in one page with an odd stamp. `lane` is the
    /// result of [`cached_lane`](crate::pair::Pair::cached_lane). On `false` the contents of `to`
    /// are unspecified.
    ///
    /// The steps are those of any read: enter the read section, version, copy, version.
    // A separate function with few values at a time: each register that it had to save would be a
    // store.
    #[inline(never)]
    pub(in crate::engine) fn read_stamped(&self, lane: &Lane, to: &mut [u8], offset: u64) -> bool {
        if !is_in_page(offset, to.len()) {
            return false;
        }
        let Some(word) = self.stamps.word(PageIndex::of(offset)) else { return false };
        let pinned = lane.pin_fast();
        let Some(seen) = word.begin() else { return pinned.abort() };
        if !self.home.copy_out_in_page(to, offset) {
            return pinned.abort();
        }
        // Orders the copy before the stamp is validated.
        fence(Ordering::Acquire);
        if !word.is_still(seen) {
            lane.stats.bump(Counter::ReadRetries, 1);
            return pinned.abort();
        }
        pinned.finish();
        true
    }

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

    /// Fills `to` from `offset`, a range of several pages, by their stamps if this thread's recent
    /// reads suggest them. Pages that are written now and then are seldom stamped. `lane` is the
    /// result of [`cached_lane`](crate::pair::Pair::cached_lane). On `false` the contents of `to`
    /// are unspecified.
    #[inline(never)]
    pub(super) fn read_range_fast(&self, lane: &Lane, to: &mut [u8], offset: u64) -> bool {
        self.ask_ahead(offset, to.len());
        lane.recent.expects_home() && self.read_stamped_range(lane, to, offset)
    }
}
