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

use crate::bitmap::Slices;
use crate::bitmap::span::slices_of;
use crate::engine::Engine;
use crate::engine::deploy::policy::{SAMPLED, only_reads};
use crate::format::layout;
use crate::lock::Stamp;
use crate::mutant::planted;
use crate::pair::hints::{is_one_in, samples_stamp};
use crate::pair::log::lane::Lane;
use crate::pair::stats::Counter;
use crate::primitive::{Ordering, fence};
use crate::units::{PAGE, PageIndex, SLICE, is_in_page};

impl Engine {
    /// Fills `to` from `offset`, with each byte from its valid slot. A range of several pages goes
    /// to [`read_range_fast`](Self::read_range_fast). `lane` is the result of
    /// [`cached_lane`](crate::pair::Pair::cached_lane). On `false` the contents of `to` are
    /// unspecified.
    #[inline(never)]
    pub(in crate::engine) fn read_page(&self, lane: &Lane, to: &mut [u8], offset: u64) -> bool {
        let (slots, len) = (self.slots(offset), to.len());
        // The home slot is already prefetched. Which slot is valid is known only once the page's
        // state is loaded.
        if !lane.recent.expects_home() {
            self.reflection.prefetch_read(layout::reflection(offset));
        }
        if !is_in_page(offset, len) {
            return self.read_range_fast(lane, to, offset);
        }
        let pinned = lane.pin_fast();
        // The bounds are checked here, where the addresses are at hand, and before the length is
        // checked. A shrink first publishes the new length. Then it waits for all read sections,
        // and only then it reduces `backed`.
        let Some(filling) = slots.to_fill(to) else { return pinned.abort() };
        let first_len = if planted!(InPageLengthFirst) { self.len() } else { 0 };
        let index = PageIndex::of(offset);
        let place = index.in_region();
        let Some(region) = self.state.loaded(index.region()) else { return pinned.abort() };
        let page = &region.pages[place];
        let Some(look) = Stamp::begin(&region.lock, &page.lock) else { return pinned.abort() };
        // Checked after the versions are loaded. An earlier check may have seen the length before a
        // shrink. The versions may then include a write by a thread that has seen the shrink.
        let file_len = if planted!(InPageLengthFirst) { first_len } else { self.len() };
        // The last byte, which is in the same page. For an empty range it is the byte before: an
        // empty range may begin at the end of the file.
        if offset.wrapping_add(len as u64).wrapping_sub(1) >= file_len {
            return pinned.abort();
        }
        // For an empty range this is one slice or all of them, and nothing is loaded.
        let slices = Slices::first(slices_of(offset, len));
        let sides = region.validity_of(page, place).bits_from(offset);
        let there = Slices(sides).and(slices);
        // A valid reflection slot was written, so it is allocated. As a rule the home slots of a
        // region are either all loadable or none. Combined as words, since two conditions would
        // become two branches, one of which depends on the side.
        let loadable = if planted!(HoleReadAtOnce) { 1 } else { region.home_loadable() };
        if slices.without(there).0 & u64::from(loadable).wrapping_sub(1) != 0
            && !self.is_loadable_alone(region, index)
        {
            return pinned.abort();
        }
        // While pages are mixed, whole lines are copied line by line, each line from its side, even
        // if the page is uniform. No branch can predict which pages are mixed. So the prediction is
        // asked first. Partial lines are copied so only if they are mixed: the ends are copied
        // separately, which takes longer than a misprediction.
        let are_lines = (offset as usize | len).is_multiple_of(SLICE);
        let by_line = are_lines && lane.recent.expects_mixed();
        let are_on_one = there.is_all_or_none_of_first(slices);
        lane.recent.note_away(!there.is_empty());
        lane.recent.note_both(!are_on_one);
        if by_line || !are_on_one {
            filling.fill_from_sides(if planted!(PiecesReadAtHome) { 0 } else { sides });
        } else {
            // If pages lie on either side, a branch on the side is mispredicted every other time.
            // The processor then drops the reads that it has begun ahead, and restarts them one by
            // one. So the slot is selected without a branch. The copy waits for the page's state,
            // but later reads do not.
            filling.fill_from_one(there == slices && !planted!(AwayReadAtHome));
        }
        // Orders the copy before the versions are validated.
        fence(Ordering::Acquire);
        if !look.is_still(&region.lock, &page.lock) {
            lane.stats.bump(Counter::ReadRetries, 1);
            return pinned.abort();
        }
        let number = pinned.number();
        pinned.finish();
        !is_one_in(SAMPLED, number) || self.sample_page(lane, number, offset)
    }

    /// Sets the page's stamp if it is deployed, and else counts the read. Does so for a sample of
    /// the reads only, see [`SAMPLED`]. Also counts empty reads. Always returns `true`.
    #[cold]
    #[inline(never)]
    fn sample_page(&self, lane: &Lane, number: u64, offset: u64) -> bool {
        let page = PageIndex::of(offset);
        // A thread that keeps finding undeployed pages reads pages that are written, too. Their
        // stamps would be cleared before they have saved anything.
        if samples_stamp(number) && lane.recent.expects_home() {
            self.stamp_sampled(page);
        }
        // Only one of several reads in a row of one page is counted.
        if only_reads(lane) && lane.recent.reads_other_page(page) {
            self.count_read(page.start()..page.start() + PAGE as u64);
        }
        true
    }
}
