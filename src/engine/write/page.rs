//! The general way of writes that lie within one page.
//!
//! Most writes are of this kind. They show all software overhead: a drain costs about as much as a
//! cache miss, and a few hundred instructions cost half of one. So this module first prefetches the
//! lines that the write needs, and checks the usual case first.
//!
//! The order is that of `write::general`: lock, validate, allocate, store.
//!
//! May import `deploy`, `durable`, `commit`, `io`, `plan`, `pair`, and what lies below
//! them.

use crate::bitmap::Slices;
use crate::engine::Engine;
use crate::engine::commit::publish;
use crate::engine::plan::{Segment, WordUpdate, is_whole_slices};
use crate::error::Result;
use crate::format::entry::WordId;
use crate::lock::lock_page;
use crate::mutant::{planted, unless};
use crate::pair::log::lanes::InUse;
use crate::pair::log::records::Target;
use crate::pair::read_set::ReadSet;
use crate::units::PageIndex;

impl Engine {
    #[inline]
    pub(super) fn commit_in_page(
        &self,
        lane: &InUse<'_>,
        page: PageIndex,
        segments: &[Segment<'_>],
        marks: &ReadSet,
    ) -> Result<()> {
        let region = match self.state.touched(page.region()) {
            Some(region) => region,
            None => {
                let _pinned = lane.pin();
                self.check_segments(segments)?;
                self.region(page.region())?
            }
        };
        let place = page.in_region();
        let state = &region.pages[place];
        let held = lock_page(&region.lock, &state.lock);
        self.clear_stamp(page.region(), region, 1 << place);
        unless!(LengthNotCheckedAgain, self.check_segments(segments)?);
        if !marks.is_empty() {
            self.check_read_set(marks, std::slice::from_ref(&held), |other| other == page)?;
        }

        let valid = region.validity(place);
        let slices = slices_of(page, segments);
        let claimed = region.claimed_slices(place);
        if slices.without(claimed) != slices && !planted!(PageFlipsClaimed) {
            return self.commit_redo(lane, segments, std::slice::from_ref(&held));
        }
        if let [segment] = segments
            && !region.is_pinned(place)
            && let Some(side) = self.direct_side(region, page, segment)
        {
            // Orders the lock word's mark before the store: a reader of new bytes finds the mark or
            // the new version.
            unless!(StoreNotClosed, held.close());
            debug_assert_eq!(
                region.lanes(place),
                0,
                "no entry outlives the locks of its operation"
            );
            self.store_direct(lane, side, segment);
            return Ok(());
        }
        let target = Target { page, region, slices };
        let change =
            WordUpdate { word: WordId::Slice(page), mask: slices.0, old: state.slice_word() };
        self.ensure_free_slots(lane, page, slices, valid, true)?;
        if self.can_log_flip(lane, segments, slices)
            && !self.conflicts_with_other_lane(lane, &target)
        {
            unless!(VouchLaneNotAllocated, self.ensure_lane(lane, lane.index())?);
            return self.commit_segments_logged(lane, &target, &change, held, segments);
        }
        self.note_changed(page);
        if region.lanes(place) != 0 && !planted!(FlipNoClear) {
            self.invalidate_records(lane, std::iter::once(target));
        }
        if planted!(FlipWordBeforeData) {
            self.commit_flip(lane, &change);
        }
        match segments {
            [segment] if is_whole_slices(segment) => {
                self.copy_lines(lane, segment.offset, valid.targets(), segment.data);
            }
            _ => self
                .scatter(lane, segments)
                .inspect_err(|_| unless!(FailedCopyNotDrained, self.drain(lane)))?,
        }
        unless!(FlipWordBeforeData, self.commit_flip(lane, &change));
        unless!(FlipNotClosed, held.close());
        unless!(FlipNotPublished, publish(region, &change));
        Ok(())
    }
}

/// Returns the slices of a page that these segments of it touch.
fn slices_of(page: PageIndex, segments: &[Segment<'_>]) -> Slices {
    segments.iter().fold(Slices::NONE, |all, segment| {
        let start = (segment.offset - page.start()) as usize;
        all.or(Slices::of_bytes(start, start + segment.data.len()))
    })
}
