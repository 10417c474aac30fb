//! The fast path of a read of one deployed page: one stamp before the copy, and the same one after
//! it.
//!
//! `pair::stamps` says why this is correct.
//!
//! May import `deploy`, `io`, `plan`, `pair`, and what lies below them.

use crate::engine::Engine;
use crate::pair::log::lane::Lane;
use crate::pair::stats::Counter;
use crate::primitive::{Ordering, fence};
use crate::units::{PageIndex, is_in_page};

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
}
