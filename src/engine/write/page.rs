//! Writes within one page: the fast path, the general way, and the flip that both commit by.
//!
//! Most writes are of this kind. They show all software overhead: a drain costs about as much as a
//! cache miss, and while a processor waits for it, it looks ahead over a few hundred instructions.
//! Work beyond that window begins after the drain. So the fast path prefetches first the lines that
//! would miss, and looks once whether the page is in its usual state. If it is not, the write
//! starts again in the general way, which prepares the page and then runs the same flip.
//!
//! The order is that of `write::general`: lock, validate, allocate, store. Direct stores have a
//! shorter path of their own: `write::direct`.
//!
//! May import `deploy`, `durable`, `commit`, `io`, `plan`, `pair`, and what lies below
//! them.

use crate::bitmap::Slices;
use crate::engine::Engine;
use crate::engine::commit::logged_flip::{COMPLETED_AT_MOST, DraftRecord};
use crate::engine::commit::publish;
use crate::engine::plan::{Changes, Segment, WordUpdate};
use crate::engine::sums::NewSums;
use crate::error::Result;
use crate::format::entry::WordId;
use crate::lock::{LockGuard, lock_page};
use crate::mutant::{planted, unless};
use crate::pair::log::lanes::InUse;
use crate::pair::log::records::PageSlices;
use crate::pair::read_set::ReadSet;
use crate::pair::stats::Counter;
use crate::units::{PAGE, PageIndex};
use std::iter;

/// How a flip within one page commits.
enum Commit<'d> {
    /// By one drain: a log record says what moves. It may have been drafted before the lock.
    Logged(Option<&'d DraftRecord>),
    /// By two drains, or by none where only the process can crash.
    Unlogged,
}

impl Engine {
    /// Writes `data` if it lies within a page and everything is in its usual state. Otherwise
    /// returns `false`, with nothing made valid. `WHOLE_LINES` says that `data` covers its slices
    /// from end to end. `GATED` says that the file may have had snapshots, and may have page sums:
    /// then the writer enters the gate of cuts, looks for slices to keep, and stores the new sum.
    // A function for each: a file without snapshots and sums pays one load under the lock.
    #[inline(always)]
    pub(super) fn try_in_page<const WHOLE_LINES: bool, const GATED: bool>(
        &self,
        data: &[u8],
        offset: u64,
    ) -> bool {
        let start = offset as usize % PAGE;
        let end = start + data.len();
        let ends_at = offset.wrapping_add(data.len() as u64);
        let is_possible = !data.is_empty() && end <= PAGE && ends_at >= offset;
        if !is_possible || ends_at > self.len() || self.is_forked() {
            return false;
        }
        // Prefetch as early as possible: the processor then reaches these requests while it waits
        // for the drain of the previous operation.
        let page = PageIndex::of(offset);
        let Some(lane) = self.lane_to_write() else { return false };
        let segment = Segment { offset, data };
        self.prefetch_in_page::<WHOLE_LINES>(&lane, &segment);
        let Some(region) = self.state.loaded(page.region()) else { return false };
        let place = page.in_region();
        let state = &region.pages[place];
        let is_summed = GATED && self.has_sums();
        let is_logged = self.mode.has_drains && (WHOLE_LINES || data.len() <= COMPLETED_AT_MOST);
        if is_logged && (!lane.is_private() || !lane.is_allocated()) {
            return false;
        }
        let target = PageSlices { page, region, slices: Slices::of_bytes(start, end) };
        if GATED {
            self.prefetch_owed(&target);
            self.prefetch_summed(&target);
        }
        let inside = if GATED { self.enter_cut(&lane) } else { None };
        // Taking the lock waits for the drain of the previous operation. The draft is computed
        // during that wait, and validated under the lock. A record with a sum needs the old bytes.
        let draft = (WHOLE_LINES && is_logged && !is_summed)
            .then(|| self.draft(&lane, &target, region.validity(place), (data, 0)));
        let held = lock_page(&region.lock, &state.lock);
        // The general way waits, without the lock.
        if self.is_in_turn(region, place) {
            return false;
        }
        self.clear_stamp(page.region(), region, 1 << place);
        let is_still_right = |draft: &DraftRecord| {
            draft.valid == region.validity(place) || planted!(DraftNotValidated)
        };
        // The only drain of a logged flip commits it, and the keeps have to be durable before.
        let owed = if GATED { self.owed_of(&target) } else { Slices::NONE };
        let is_logged = is_logged && (owed.is_empty() || planted!(LoggedFlipKeeps));
        let own = if is_logged { lane.bit() } else { 0 };
        let is_usual = (ends_at <= self.len() || planted!(LengthNotCheckedAgain))
            && !self.is_outside(inside.as_ref())
            && (!self.is_poisoned() || planted!(WaitForgetsFailure))
            && self.is_ready(page.region(), region, 1 << place, target.slices, own, true)
            && draft.as_ref().is_none_or(is_still_right);
        // Bytes of a page that was not verified are not kept, and have no sum to go on from.
        if !is_usual || is_summed && !region.sums().is_verified(place) {
            return false;
        }
        let new = is_summed.then(|| self.next_sums(&target, &segment));
        let Ok(sums) = new.unwrap_or_else(|| Ok(NewSums::none())) else { return false };
        // The first stores: nothing fails behind them.
        if !owed.is_empty() && self.keep_owed(&lane, &target, owed).is_err() {
            return false;
        }
        let commit = if is_logged {
            Commit::Logged(draft.as_ref())
        } else {
            self.store_sums(&lane, &sums);
            Commit::Unlogged
        };
        let segments = std::slice::from_ref(&segment);
        let parts = (segments, &sums);
        if self.flip_in_page::<WHOLE_LINES>(&lane, &target, held, parts, &commit).is_err() {
            return false;
        }
        lane.stats.bump(Counter::BytesAsked, data.len() as u64);
        true
    }

    /// Writes `segments`, all of them in `page`, whatever its state.
    #[inline]
    pub(super) fn commit_in_page(
        &self,
        lane: &InUse<'_>,
        page: PageIndex,
        segments: &[Segment<'_>],
        read_set: &ReadSet,
    ) -> Result<()> {
        let region = match self.state.loaded(page.region()) {
            Some(region) => region,
            None => {
                let _pinned = lane.pin();
                self.check_segments(segments)?;
                self.region(page.region())?
            }
        };
        let place = page.in_region();
        let held = lock_page(&region.lock, &region.pages[place].lock);
        self.check_usable_still()?;
        self.clear_stamp(page.region(), region, 1 << place);
        unless!(LengthNotCheckedAgain, self.check_segments(segments)?);
        if !read_set.is_empty() {
            self.check_read_set(read_set, std::slice::from_ref(&held), |other| other == page)?;
        }

        let valid = region.validity(place);
        let slices = slices_of(page, segments);
        let claimed = region.claimed_slices(place);
        if slices.without(claimed) != slices && !planted!(PageFlipsClaimed) {
            return self.commit_redo(
                lane,
                &Changes::of(segments),
                None,
                std::slice::from_ref(&held),
            );
        }
        let keep = || match self.keeps_at_stores() {
            true => self.keep(lane, iter::once((page, slices))),
            false => Ok(false),
        };
        let sums = self.reckon_sums(lane, &Changes::of(segments), self.len())?;
        if let [segment] = segments
            && self.direct.takes(segment.offset, segment.data.len())
        {
            if keep()? {
                // Orders the kept bytes before the store that goes over them.
                self.drain(lane);
            }
            self.store_sums(lane, &sums);
            if self.store_direct(lane, region, segment, || unless!(StoreNotClosed, held.close())) {
                self.publish_sums(&sums);
                return Ok(());
            }
        }
        let target = PageSlices { page, region, slices };
        self.ensure_free_slots(lane, page, slices, valid, true)?;
        self.note_changed(page);
        // The only drain of a logged flip commits it, and the keeps have to be durable before.
        let has_kept = keep()? && !planted!(LoggedFlipKeeps);
        let can_log = !has_kept && self.can_log_flip(lane, segments, slices);
        let commit = if can_log && !self.is_named(&target, lane.bit()) {
            unless!(LoggedFlipLaneNotAllocated, self.ensure_lane(lane, lane.index())?);
            Commit::Logged(None)
        } else {
            if region.lanes(place) != 0 && !planted!(FlipNoClear) {
                self.invalidate_records(lane, std::iter::once(target));
            }
            // The first drain of the flip orders the sum before the word.
            self.store_sums(lane, &sums);
            Commit::Unlogged
        };
        self.flip_in_page::<false>(lane, &target, held, (segments, &sums), &commit)
    }

    /// Returns those of the target's slices that a live snapshot reads from their slots. The caller
    /// holds the page, inside the gate of cuts.
    #[inline]
    pub(super) fn owed_of(&self, target: &PageSlices<'_>) -> Slices {
        let (index, place) = (target.page.region(), target.page.in_region());
        let owed = self.owed_slices((index, target.region), place, target.slices);
        if planted!(FastPathKeepsNothing) { Slices::NONE } else { owed }
    }

    /// Makes the target's slices valid with the bytes of `segments`, all of them in its page.
    /// `held` is the page's lock. Everything is allocated, and no record or view is in the way.
    #[inline(always)]
    fn flip_in_page<const WHOLE_LINES: bool>(
        &self,
        lane: &InUse<'_>,
        target: &PageSlices<'_>,
        held: LockGuard<'_>,
        (segments, sums): (&[Segment<'_>], &NewSums<'_>),
        commit: &Commit<'_>,
    ) -> Result<()> {
        let place = target.page.in_region();
        let change = WordUpdate {
            word: WordId::Slice(target.page),
            mask: target.slices.0,
            old: target.region.pages[place].slice_word(),
        };
        match (commit, segments) {
            (Commit::Logged(Some(draft)), [segment]) => {
                self.commit_logged_flip(lane, target, &change, held, (segment.data, sums), draft);
                return Ok(());
            }
            (Commit::Logged(_), _) => {
                return self.commit_segments_logged(lane, target, &change, held, (segments, sums));
            }
            (Commit::Unlogged, _) => {}
        }
        if planted!(FlipWordBeforeData) {
            self.commit_flip(lane, &change);
        }
        match segments {
            [segment] if WHOLE_LINES => {
                let free = target.region.validity(place).free();
                self.copy_lines(lane, segment.offset, free, segment.data);
            }
            _ => self
                .scatter(lane, segments)
                .inspect_err(|_| unless!(FailedCopyNotDrained, self.drain(lane)))?,
        }
        let unfinished = self.begin("commit of an operation");
        unless!(FlipWordBeforeData, self.commit_flip(lane, &change));
        unless!(FlipNotClosed, held.close());
        unless!(FlipNotPublished, publish(target.region, &change));
        self.publish_sums(sums);
        unfinished.end();
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
