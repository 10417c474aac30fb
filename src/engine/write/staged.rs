//! Operations with slices that stages have filled: their bytes are in the free slots already.
//!
//! The order is that of `general`: lock, validate, allocate, store. The stored bytes are those that
//! stages hold in buffers, and those of a transaction. The placed slices only flip, by the
//! protocols of every other write. Where durable points are kept no slice is ever placed.
//!
//! May import `deploy`, `durable`, `commit`, `io`, `plan`, `pair`, and what lies below
//! them.

use crate::bitmap::{Slices, bits, span};
use crate::engine::Engine;
use crate::engine::plan::{self, Changes, Plans, RegionPlan, Segment, WordUpdate, WordUpdates};
use crate::engine::write::range::is_locked;
use crate::error::Result;
use crate::format::entry::WordId;
use crate::mutant::{planted, unless};
use crate::pair::gates::Gate;
use crate::pair::log::lanes::InUse;
use crate::pair::read_set::ReadSet;
use crate::pair::region::RegionState;
use crate::pair::stats::Counter;
use crate::units::PageIndex;

/// A page that an operation changes.
struct Touched<'e> {
    page: PageIndex,
    region: &'e RegionState,
    /// The slices that segments write.
    written: Slices,
    /// The slices that stages have filled.
    placed: Slices,
    /// The slices that stages of the operation claim.
    own: Slices,
}

impl Touched<'_> {
    fn slices(&self) -> Slices {
        self.written.or(self.placed)
    }

    /// Returns `true` if a written slice has no free slot: a claimant other than the stages of this
    /// operation has it.
    fn is_claimed(&self) -> bool {
        let n = self.page.in_region();
        let others = self.region.claimed_slices(n).without(self.own);
        !self.written.and(others).is_empty()
    }
}

impl Engine {
    /// Commits a transaction, as [`commit_transaction`](Self::commit_transaction) does, that may
    /// have placed slices.
    pub fn commit_staged(
        &self,
        changes: Changes<'_>,
        new_len: Option<u64>,
        read_set: &ReadSet,
        closure: Option<usize>,
    ) -> Result<()> {
        if changes.placed.is_empty() {
            return self.commit_transaction(changes.segments, new_len, read_set, closure);
        }
        let committed = match new_len {
            None => self.commit_placed(&changes, read_set, closure),
            Some(len) => self.commit_with_len(len, changes, read_set, closure),
        };
        match &committed {
            Ok(()) => _ = self.lane().stats.bump(Counter::Transactions, 1),
            Err(error) if error.is_conflict() => {
                self.count_conflict();
            }
            Err(_) => {}
        }
        committed
    }

    fn commit_placed(
        &self,
        changes: &Changes<'_>,
        read_set: &ReadSet,
        closure: Option<usize>,
    ) -> Result<()> {
        self.check_usable()?;
        self.check_writable()?;
        let room = self.admit(changes.segments.iter().map(Segment::range))?;
        {
            let lane = self.lane();
            // As in `general`: the file gets no new end between the parts.
            let _no_shorter = self.lanes.enter(Gate::Length, &lane);
            let _inside = self.lanes.enter(Gate::Cut, &lane);
            self.flip_placed(&lane, changes, read_set)?;
        }
        drop(room);
        self.after_commit(changes, closure)
    }

    /// Locks, validates, stores the segments, and makes them and the placed slices valid.
    fn flip_placed(
        &self,
        lane: &InUse<'_>,
        changes: &Changes<'_>,
        read_set: &ReadSet,
    ) -> Result<()> {
        let pages = {
            let _pinned = lane.pin();
            self.check_segments(changes.segments)?;
            self.touched_pages(changes)?
        };
        let plans = plan_pages(&pages);
        let held = plan::lock_all(&plans);
        self.check_usable_still()?;
        self.clear_stamps(&plans);
        unless!(LengthNotCheckedAgain, self.check_segments(changes.segments)?);
        self.check_read_set(read_set, &held, |page| is_locked(&plans, page))?;
        if pages.iter().any(Touched::is_claimed) && !planted!(StagedFlipsClaimed) {
            return self.commit_redo(lane, changes, None, &held);
        }
        let sums = self.reckon_sums(lane, changes, self.len())?;
        let shared_word = match &plans[..] {
            [plan] if plan.may_update_by_shared_word() => self.take_word(plan, || {
                self.ensure_slice_word(plan.index.page(0))?;
                self.ensure_lane(lane, lane.index())
            }),
            _ => None,
        };
        let mut moves = WordUpdates::new();
        word_updates(&mut moves, &plans, &pages, shared_word.is_some());
        let extents = self.make_ready(lane, &plans, &moves)?;
        // Stores, to free slots. The bytes of the placed slices are there, and durable. The first
        // drain of the commit orders the sums before its words.
        self.store_sums(lane, &sums);
        self.scatter(lane, changes.segments).inspect_err(|_| self.drain(lane))?;
        self.commit_moves(lane, &moves, extents.as_ref(), &held, &sums);
        // Kept until the word is drained and its cached copy changed.
        drop(shared_word);
        Ok(())
    }

    /// Returns the pages that the operation changes, in order.
    fn touched_pages(&self, changes: &Changes<'_>) -> Result<Vec<Touched<'_>>> {
        let mut pages: Vec<Touched<'_>> = Vec::new();
        let mut spans = changes.segments.iter().flat_map(|s| span::pages(s.range())).peekable();
        let mut placed = changes.placed.iter().peekable();
        loop {
            let next = match (spans.peek(), placed.peek()) {
                (Some(span), Some(placed)) => span.page.min(placed.page),
                (Some(span), None) => span.page,
                (None, Some(placed)) => placed.page,
                (None, None) => return Ok(pages),
            };
            let region = self.region(next.region())?;
            let none = Slices::NONE;
            let mut all = Touched { page: next, region, written: none, placed: none, own: none };
            while let Some(span) = spans.next_if(|span| span.page == next) {
                all.written = all.written.or(span.slices());
            }
            if let Some(found) = placed.next_if(|placed| placed.page == next) {
                (all.placed, all.own) = (found.slices, found.own);
            }
            pages.push(all);
        }
    }
}

/// Returns the plans of an operation on these pages.
fn plan_pages<'e>(pages: &[Touched<'e>]) -> Plans<'e> {
    let mut plans = Plans::new();
    for touched in pages {
        let bit = 1 << touched.page.in_region();
        let whole = if touched.slices() == Slices::ALL { bit } else { 0 };
        match plans.last_mut() {
            Some(RegionPlan { index, touched: all, whole: ends, .. })
                if *index == touched.page.region() =>
            {
                *all |= bit;
                *ends |= whole;
            }
            _ => plans.push(RegionPlan {
                index: touched.page.region(),
                state: touched.region,
                touched: bit,
                whole,
            }),
        }
    }
    plans
}

/// Adds to `moves` the words that flip to make all changed slices valid, as `plan::word_updates`
/// does for segments.
fn word_updates(
    moves: &mut WordUpdates,
    plans: &[RegionPlan<'_>],
    pages: &[Touched<'_>],
    has_shared_word: bool,
) {
    let mut rest = pages;
    for plan in plans {
        let (here, later) = rest.split_at(plan.touched.count_ones() as usize);
        rest = later;
        let by_region = has_shared_word || plan.may_update_by_region();
        if by_region {
            let old = plan.state.region_word();
            moves.push(WordUpdate { word: WordId::Region(plan.index), mask: plan.whole, old });
        }
        for (n, touched) in bits(plan.touched).zip(here) {
            if !by_region || plan.whole >> n & 1 == 0 {
                moves.push(plan::slice_update(plan, n, touched.slices()));
            }
        }
    }
}
