//! Holds the fast path of a read within one page.
//!
//! This is the frequent case. It costs at least a cache miss. A processor overlaps the misses of
//! all reads that fit its window of some 150 to 300 instructions. So the cost of a read is the
//! number of its instructions, loads and stores above all. This file has only those that a read
//! needs in the usual state, and tries once. In any other state the read begins anew in `read`,
//! which determines the reason.
//!
//! The steps are those of `read`: enter the read section, versions, range, copy, versions.
//!
//! May import `deploy`, `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::span::slices_of;
use crate::bitmap::{Slices, Validity};
use crate::engine::Engine;
use crate::engine::deploy::policy::is_counted;
use crate::format::layout;
use crate::lock::Stamp;
use crate::mutant::planted;
use crate::pair::hints::samples_stamp;
use crate::pair::log::guard::Pinned;
use crate::pair::log::lane::Lane;
use crate::pair::region::{PageState, RegionState};
use crate::pair::stats::Counter;
use crate::primitive::{Ordering, fence};
use crate::units::{PAGE, PageIndex, SLICE, is_in_page};

/// A read of one page, in its read section.
struct PageRead<'e> {
    pinned: Pinned<'e>,
    region: &'e RegionState,
    page: &'e PageState,
    look: Stamp,
    /// The valid slot of each slice.
    validity: Validity,
}

impl PageRead<'_> {
    /// Ends the read. Returns `true` if the copy made meanwhile is consistent.
    #[inline(always)]
    fn end(self, lane: &Lane) -> bool {
        // Orders the copy before the versions are validated.
        fence(Ordering::Acquire);
        let is_state = self.look.is_still(&self.region.lock, &self.page.lock);
        if is_state {
            self.pinned.finish();
        } else {
            lane.stats.bump(Counter::ReadRetries, 1);
        }
        is_state
    }
}

impl Engine {
    /// Fills `to` from `offset`, if the bytes lie in one page that is deployed and not locked
    /// exclusively. This is the most frequent case. `lane` is the result of
    /// [`cached_lane`](crate::pair::Pair::cached_lane). On `false` the contents of `to` are
    /// unspecified.
    #[inline(never)]
    pub(in crate::engine) fn read_home(&self, lane: &Lane, to: &mut [u8], offset: u64) -> bool {
        let Some(begun) = self.begin_in_page(lane, to.len(), offset) else { return false };
        // The whole page must be deployed. Then it does not matter which slices are read.
        let is_copied = (begun.validity == Validity(0) || planted!(AwayTakenForHome))
            && (begun.region.home_is_loadable() || planted!(HoleReadAtOnce))
            && self.home.copy_out_in_page(to, offset);
        let number = begun.pinned.number();
        let is_done = is_copied && begun.end(lane);
        if is_done && samples_stamp(number) {
            self.stamp_sampled(PageIndex::of(offset));
        }
        is_done
    }

    /// Fills `to` from `offset`, with each byte from its valid slot. With `MAY_BE_BOTH` the valid
    /// slots may be mixed; without it, mixed bytes are left to the slow path. A range of several
    /// pages goes to [`read_range_fast`](Self::read_range_fast). On `false` the contents of `to`
    /// are unspecified.
    #[inline(never)]
    pub(in crate::engine) fn read_page<const MAY_BE_BOTH: bool>(
        &self,
        lane: &Lane,
        to: &mut [u8],
        offset: u64,
    ) -> bool {
        let (slots, len) = (self.slots(offset), to.len());
        if !is_in_page(offset, len) {
            return self.read_range_fast(lane, to, offset);
        }
        // The home slot is already prefetched. Which slot is valid is known only once the page's
        // state is loaded.
        self.reflection.prefetch_read(layout::reflection(offset));
        let pinned = lane.pin_fast();
        // The bounds are checked here, where the addresses are at hand, and before the length is
        // checked. A shrink first publishes the new length. Then it waits for all read sections,
        // and only then it reduces `backed`.
        let Some(filling) = slots.to_fill(to) else { return pinned.abort() };
        let Some(begun) = self.begin_pinned(pinned, len, offset) else { return false };
        // For an empty range this is one slice or all of them, and nothing is loaded.
        let slices = Slices::first(slices_of(offset, len));
        let sides = begun.validity.bits_from(offset);
        let there = Slices(sides).and(slices);
        let are_on_one = there.is_all_or_none_of_first(slices);
        lane.recent.note_away(!there.is_empty());
        if MAY_BE_BOTH {
            lane.recent.note_both(!are_on_one);
        } else if !are_on_one {
            lane.recent.note_both(true);
            return begun.pinned.abort();
        }
        // A valid reflection slot was written, so it is allocated. The home slots are either all
        // loadable or none. Combined as words, since two conditions would become two branches, one
        // of which depends on the side.
        let loadable = if planted!(HoleReadAtOnce) { 1 } else { begun.region.home_loadable() };
        if slices.without(there).0 & u64::from(loadable).wrapping_sub(1) != 0 {
            return begun.pinned.abort();
        }
        // With `MAY_BE_BOTH` a range of whole lines is copied line by line, each line from its
        // side, even if it is uniform. No branch can predict which ranges are mixed. A range of
        // partial lines is copied so only if it is mixed: its ends are copied separately, which
        // takes longer than a misprediction.
        let are_lines = (offset as usize | len).is_multiple_of(SLICE);
        if !MAY_BE_BOTH || are_on_one && !are_lines {
            // If pages lie on either side, a branch on the side is mispredicted every other time.
            // The processor then drops the reads that it has begun ahead, and restarts them one by
            // one. So the slot is selected without a branch. The copy waits for the page's state,
            // but later reads do not.
            filling.fill_from_one(there == slices && !planted!(AwayReadAtHome));
        } else {
            filling.fill_from_sides(if planted!(PiecesReadAtHome) { 0 } else { sides });
        }
        let number = begun.pinned.number();
        if !begun.end(lane) {
            return false;
        }
        !is_counted(lane, number) || self.count_other_page(lane, offset)
    }

    /// Counts the read if it begins in another page than the read counted last. Also counts empty
    /// reads. Always returns `true`.
    #[cold]
    #[inline(never)]
    fn count_other_page(&self, lane: &Lane, offset: u64) -> bool {
        let page = PageIndex::of(offset);
        if lane.recent.reads_other_page(page) {
            self.count_read(page.start()..page.start() + PAGE as u64);
        }
        true
    }

    /// Enters a read section and checks everything that a read of `len` bytes of one page relies
    /// on.
    #[inline(always)]
    fn begin_in_page<'e>(
        &'e self,
        lane: &'e Lane,
        len: usize,
        offset: u64,
    ) -> Option<PageRead<'e>> {
        if !is_in_page(offset, len) {
            return None;
        }
        self.begin_pinned(lane.pin_fast(), len, offset)
    }

    /// Checks everything that a read of `len` bytes relies on, in the read section of `pinned`.
    #[inline(always)]
    fn begin_pinned<'e>(
        &'e self,
        pinned: Pinned<'e>,
        len: usize,
        offset: u64,
    ) -> Option<PageRead<'e>> {
        // The last byte, which is in the same page. For an empty range it is the byte before: an
        // empty range may begin at the end of the file.
        let last = offset.wrapping_add(len as u64).wrapping_sub(1);
        let first_len = if planted!(InPageLengthFirst) { self.len() } else { 0 };
        let page = PageIndex::of(offset);
        let region = self.state.touched(page.region())?;
        let place = page.in_region();
        let page = &region.pages[place];
        let look = Stamp::begin(&region.lock, &page.lock)?;
        // Checked after the versions are loaded. An earlier check may have seen the length before a
        // shrink. The versions may then include a write by a thread that has seen the shrink.
        let file_len = if planted!(InPageLengthFirst) { first_len } else { self.len() };
        if last >= file_len {
            return None;
        }
        let validity = region.validity_of(page, place);
        Some(PageRead { pinned, region, page, look, validity })
    }
}
