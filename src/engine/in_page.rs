//! The general way of writes that lie within one page.
//!
//! Most writes are of this kind. They show all software overhead: a drain costs about as much as a
//! cache miss, and a few hundred instructions cost half of one. So this module first prefetches the
//! lines that the write needs, and checks the usual case first.
//!
//! The order is that of `commit`: lock, validate, allocate, store.

use super::Engine;
use super::commit::{Part, publish};
use super::lanes::{InUse, Lane};
use super::live::Target;
use super::plan::WordMove;
use super::read_marks::ReadMarks;
use crate::bitmap::Slices;
use crate::error::Result;
use crate::format::entry::WordId;
use crate::lock::{AllHeld, lock_page};
use crate::mutant::{planted, unless};
use crate::platform::{Persistence, STREAM_FROM_UNFLUSHED};
use crate::units::{PAGE, PageIndex, SLICE};

impl Engine {
    /// Prefetches the lines that the commit of `part` will touch: the state of its first page, and
    /// both slots there. The free slot is not known yet. These lines are far apart, so no other
    /// access brings them into the cache. Without the prefetches the misses would follow one after
    /// the other.
    #[inline]
    pub(super) fn ask_for_lines(&self, lane: &Lane, part: &Part<'_>) {
        let page = PageIndex::of(part.offset);
        if lane.recent.has(page) {
            return;
        }
        let len = part.data.len();
        let streams =
            self.platform.persistence() == Persistence::Flush || len >= STREAM_FROM_UNFLUSHED;
        let end = part.range().end;
        if !end.is_multiple_of(SLICE as u64) && end - part.offset > SLICE as u64 {
            self.ask_for_slots(end - 1);
        }
        // A line that is about to be streamed to must not be in the cache: the store would wait for
        // its eviction. Only the address translation is wanted then. Another line of the page gives
        // that. So does the neighbouring page: its page table entry lies in the same line. But a
        // partly covered slice is loaded, and a miss takes longer than that wait.
        if !streams || !part.offset.is_multiple_of(SLICE as u64) {
            self.ask_for_slots(part.offset);
        } else if len <= PAGE / 2 {
            self.ask_for_slots(part.offset ^ (PAGE / 2) as u64);
        } else if len <= PAGE {
            self.ask_for_slots(page.start() ^ PAGE as u64);
        }
        // A single miss among more bytes is not worth the risk.
        if let Some(region) = self.state.touched(page.region()) {
            self.platform.prefetch_own(&region.lock);
            self.platform.prefetch_own(&region.pages[page.in_region()]);
            self.platform.prefetch_own(region.named(page.in_region()));
        }
    }

    /// Prefetches the state that a view of the page at `offset` checks first, and its first bytes.
    pub(super) fn ask_for_view(&self, offset: u64) {
        let page = PageIndex::of(offset);
        self.home.prefetch_read(offset);
        if let Some(region) = self.state.touched(page.region()) {
            self.platform.prefetch_own(&region.lock);
            self.platform.prefetch_own(&region.pages[page.in_region()]);
            self.platform.prefetch_own(region.pins(page.in_region()));
        }
    }

    #[inline]
    pub(super) fn commit_in_page(
        &self,
        lane: &InUse<'_>,
        page: PageIndex,
        parts: &[Part<'_>],
        marks: &ReadMarks,
    ) -> Result<()> {
        let region = match self.state.touched(page.region()) {
            Some(region) => region,
            None => {
                let _pinned = lane.pin();
                self.check_parts(parts)?;
                self.region(page.region())?
            }
        };
        let place = page.in_region();
        let state = &region.pages[place];
        let held = lock_page(&region.lock, &state.lock);
        self.leave_home(page.region(), region, 1 << place);
        unless!(LengthNotCheckedAgain, self.check_parts(parts)?);
        if !marks.is_empty() {
            self.check_marks(marks, std::slice::from_ref(&held), |other| other == page)?;
        }

        let valid = region.validity(place);
        let slices = parts.iter().fold(Slices::NONE, |all, part| {
            let start = (part.offset - page.start()) as usize;
            all.or(Slices::of_bytes(start, start + part.data.len()))
        });
        let changed = region.changed_slices(place);
        if slices.without(changed) != slices && !planted!(PageFlipsDurableSlots) {
            return self.commit_in_place(lane, parts, std::slice::from_ref(&held));
        }
        let pinned = region.is_pinned(place);
        if pinned && !valid.in_reflection(slices).is_empty() && !planted!(FlipOverView) {
            return self.commit_pinned(lane, parts, AllHeld::from_iter([held]));
        }
        if let [part] = parts
            && !pinned
            && let Some(side) = self.goes_at_once(region, page, part)
        {
            // Orders the lock word's mark before the store: a reader of new bytes finds the mark or
            // the new version.
            unless!(StoreNotClosed, held.close());
            debug_assert_eq!(
                region.lanes(place),
                0,
                "no entry outlives the locks of its operation"
            );
            self.store_elsewhere(lane, side, part);
            return Ok(());
        }
        let target = Target { page, region, slices };
        let change =
            WordMove { word: WordId::Slice(page), mask: slices.0, old: state.slice_word() };
        self.ensure_free_slots(lane, page, slices, valid, true)?;
        if self.may_vouch(lane, parts, slices) && !self.another_lane_names(lane, &target) {
            unless!(VouchLaneNotAllocated, self.ensure_lane(lane, lane.index())?);
            return self.vouch_for_parts(lane, &target, &change, held, parts);
        }
        self.note_changed(page);
        if region.lanes(place) != 0 && !planted!(FlipNoClear) {
            self.clear_live_entries(lane, std::iter::once(target));
        }
        if planted!(FlipWordBeforeData) {
            self.commit_by_flip(lane, &change);
        }
        match parts {
            [part] if is_whole_slices(part) => {
                self.copy_lines(lane, part.offset, valid.targets(), part.data);
            }
            _ => self
                .copy_to_free_slots(lane, parts)
                .inspect_err(|_| unless!(FailedCopyNotDrained, self.drain(lane)))?,
        }
        unless!(FlipWordBeforeData, self.commit_by_flip(lane, &change));
        unless!(FlipNotClosed, held.close());
        unless!(FlipNotPublished, publish(region, &change));
        Ok(())
    }
}

pub(super) fn is_whole_slices(part: &Part<'_>) -> bool {
    part.offset.is_multiple_of(SLICE as u64) && part.data.len().is_multiple_of(SLICE)
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use crate::AtomicMappedFile;

    /// The prefetches run before any lock is taken, so a truncation may come in between. A prefetch
    /// past the end must not panic.
    #[test]
    fn what_is_cut_off_may_be_asked_for() {
        let folder = crate::doctest_dir();
        let file = AtomicMappedFile::create(folder.path().join("x"), 1 << 20).expect("create");
        let engine = file.engine();
        for at in [engine.home.backed(), file.max_len() - 1, file.max_len(), u64::MAX] {
            engine.home.prefetch_write(at);
            engine.home.prefetch_read(at);
        }
    }
}
