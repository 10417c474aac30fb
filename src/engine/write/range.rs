//! Writes over several pages or ranges: allocation, copies, the commit, and publishing.
//!
//! The order is that of `general`: lock, validate, allocate, store.
//!
//! May import `deploy`, `durable`, `commit`, `io`, `plan`, `pair`, and what lies below
//! them.

use crate::bitmap::{self, Slices};
use crate::engine::Engine;
use crate::engine::commit::{self, publish};
use crate::engine::plan::{self, Changes, Plans, RegionPlan, Segment, WordUpdate, WordUpdates};
use crate::engine::sums::NewSums;
use crate::error::Result;
use crate::format::entry::{UNDO_INLINE, WordId};
use crate::format::layout;
use crate::lock::LockGuard;
use crate::mutant::{planted, unless};
use crate::pair::log::lane::Lane;
use crate::pair::log::lanes::InUse;
use crate::pair::log::log_area::Extents;
use crate::pair::log::records::PageSlices;
use crate::pair::read_set::ReadSet;
use crate::pair::stats::Counter;
use crate::units::PageIndex;

impl Engine {
    /// Writes the segments in one operation, unless `read_set` has changed.
    pub(super) fn commit_over_pages(
        &self,
        lane: &InUse<'_>,
        segments: &[Segment<'_>],
        read_set: &ReadSet,
    ) -> Result<()> {
        let mut plans = Plans::new();
        {
            let _pinned = lane.pin();
            self.check_segments(segments)?;
            plan::plan_writes(&mut plans, segments, |index| self.region(index))?;
        }
        self.prefetch_states(&plans);
        let held = plan::lock_all(&plans);
        self.check_usable_still()?;
        self.clear_stamps(&plans);
        unless!(LengthNotCheckedAgain, self.check_segments(segments)?);
        self.check_read_set(read_set, &held, |page| is_locked(&plans, page))?;
        if self.needs_redo(&plans, segments) && !planted!(PagesFlipClaimed) {
            return self.commit_redo(lane, &Changes::of(segments), None, &held);
        }
        let sums = self.reckon_sums(lane, &Changes::of(segments), self.len())?;
        if planted!(SumsStoredFirst) {
            self.store_sums(lane, &sums);
        }
        let shared_word = match &plans[..] {
            [plan] if plan.may_update_by_shared_word() => self.take_word(plan, || {
                self.ensure_slice_word(plan.index.page(0))?;
                self.ensure_lane(lane, lane.index())
            }),
            _ => None,
        };
        let has_shared_word = shared_word.is_some();
        let mut moves = WordUpdates::new();
        let can_copy = self.can_copy_at_once(lane, &plans, has_shared_word);
        let mut extents = None;
        if !can_copy {
            plan::word_updates(&mut moves, &plans, segments, has_shared_word);
            extents = self.make_ready(lane, &plans, &moves)?;
        }
        let shared_word = shared_word.filter(|_| !planted!(PagesWordGivenBack));
        // Stores. The first drain of the commit orders the sums before its words.
        self.store_sums(lane, &sums);
        self.scatter(lane, segments)
            .inspect_err(|_| unless!(FailedCopyNotDrained, self.drain(lane)))?;
        if can_copy {
            // Compute the moves this late, because the medium is now busy with the copied bytes.
            plan::word_updates(&mut moves, &plans, segments, has_shared_word);
        }
        self.commit_moves(lane, &moves, extents.as_ref(), &held, &sums);
        // Keep the word until it is drained and its cached copy changed: the next holder starts
        // from that.
        drop(shared_word);
        Ok(())
    }

    /// Makes the slots valid that were stored to, and publishes. `held` are the operation's locks.
    #[inline(always)]
    pub(super) fn commit_moves(
        &self,
        lane: &InUse<'_>,
        moves: &[WordUpdate],
        extents: Option<&Extents<'_>>,
        held: &[LockGuard<'_>],
        sums: &NewSums<'_>,
    ) {
        let unfinished = self.begin("commit of an operation");
        match moves {
            [change] => self.commit_flip(lane, change),
            _ => {
                self.commit_undo(lane, moves, extents);
                lane.stats.bump(Counter::Undo, 1);
            }
        }
        extents.iter().for_each(|extents| self.give_back(extents));
        unless!(PagesNotClosed, held.iter().for_each(LockGuard::close));
        for change in moves {
            if let Some(region) = self.state.loaded(change.word.region()) {
                unless!(PagesNotPublished, publish(region, change));
            }
        }
        self.publish_sums(sums);
        unfinished.end();
    }

    /// Returns `true` if the copy can start at once: everything stored to is allocated, and no
    /// active record is in the way. The caller holds the locks.
    #[inline(always)]
    fn can_copy_at_once(
        &self,
        lane: &Lane,
        plans: &[RegionPlan<'_>],
        has_shared_word: bool,
    ) -> bool {
        let is_ready = |plan: &RegionPlan<'_>| {
            let by_region = has_shared_word || plan.may_update_by_region();
            let words = !by_region || plan.whole != plan.touched;
            let (index, all) = (plan.index, Slices::ALL);
            self.is_ready(index, plan.state, plan.touched, all, 0, words)
                && (!by_region
                    || self.region_words_are_allocated(index.superchunk())
                    || planted!(CopyToHoles))
        };
        // A lane's undo record has room for all words of one region.
        let fits = plans.len() == 1
            || plans.iter().map(RegionPlan::words).sum::<usize>() <= UNDO_INLINE
            || planted!(WordsNotCounted);
        // Where cuts are taken, changed pages have to be recorded first.
        let notes_nothing = !self.keeps_cuts || planted!(CopyNotNoted);
        let keeps_nothing =
            !self.keeps_at_stores() || plans.iter().all(|plan| self.owe_nothing(plan));
        fits && notes_nothing && keeps_nothing && lane.is_allocated() && plans.iter().all(is_ready)
    }

    /// Returns `true` if no live snapshot reads a slice of the plan's pages from its slot.
    fn owe_nothing(&self, plan: &RegionPlan<'_>) -> bool {
        let region = (plan.index, plan.state);
        plan.pages().all(|n| self.owed_slices(region, n, Slices::ALL).is_empty())
    }

    /// Prepares for the copy and the commit: allocates space, and invalidates active records about
    /// the written slices. Returns the extents in the log area for words that do not fit a lane.
    /// The caller holds the locks.
    #[inline(never)]
    pub(super) fn make_ready(
        &self,
        lane: &InUse<'_>,
        plans: &[RegionPlan<'_>],
        moves: &[WordUpdate],
    ) -> Result<Option<Extents<'_>>> {
        // Allocate before the first store.
        let needed = commit::spilled_len(moves);
        if needed > layout::LOG_AREA_LEN {
            return Err(self.too_large(needed));
        }
        self.ensure_words(lane, moves)?;
        let extents = (moves.len() > UNDO_INLINE).then(|| self.log_area.take(needed));
        if moves.len() > 1 {
            self.ensure_lane(lane, lane.index())?;
        }
        if let Some(extents) = &extents
            && !planted!(UndoSpillNotAllocated)
        {
            self.allocate_reflection(layout::LOG_AREA + extents.offset(), needed)?;
        }
        if self.keeps_cuts {
            commit::updated_pages(moves).for_each(|(page, _)| self.note_changed(page));
        }
        // The first stores. The first drain of the commit orders the keeps before its words.
        if self.keeps_at_stores() {
            self.keep(lane, commit::updated_pages(moves))?;
        }
        if plans.iter().any(|plan| plan.state.named_pages() & plan.touched != 0) {
            let targets = commit::updated_pages(moves).filter_map(|(page, slices)| {
                let region = self.state.loaded(page.region())?;
                Some(PageSlices { page, region, slices })
            });
            unless!(PagesNoClear, self.invalidate_records(lane, targets));
            for plan in plans.iter().filter(|plan| plan.is_exclusive()) {
                let named = bitmap::bits(plan.state.named_pages())
                    .filter(|&n| plan.state.lanes(n) != 0 && !planted!(RegionForgetsNamed))
                    .fold(0, |mask, n| mask | 1 << n);
                plan.state.forget_named_pages(!named);
            }
        }
        Ok(extents)
    }

    /// Allocates the words that move and the slots that they make valid.
    #[inline(never)]
    fn ensure_words(&self, lane: &Lane, moves: &[WordUpdate]) -> Result<()> {
        // Where durable points are kept, each page also needs its durable word, which is allocated
        // with the slice words.
        let word = self.keeps_points;
        for change in moves {
            if self.all_is_allocated(change.word.region(), word) {
                continue;
            }
            for (page, slices) in commit::updated_pages(std::slice::from_ref(change)) {
                let region = self.region(page.region())?;
                let valid = region.validity(page.in_region());
                self.ensure_free_slots(lane, page, slices, valid, word)?;
            }
        }
        for change in moves {
            match change.word {
                WordId::Slice(page) => self.ensure_slice_word(page)?,
                WordId::Region(_) if planted!(RegionWordsNotAllocated) => {}
                WordId::Region(region) => self.ensure_region_words(region.superchunk())?,
            }
        }
        Ok(())
    }
}

/// Returns `true` if the locks of an operation with these plans include the page's.
pub(super) fn is_locked(plans: &Plans<'_>, page: PageIndex) -> bool {
    // The plans are sorted, and there may be one for each entry of the read set.
    let plan = plans.binary_search_by_key(&page.region(), |plan| plan.index);
    plan.is_ok_and(|n| plans[n].is_exclusive() || plans[n].touched >> page.in_region() & 1 == 1)
}
