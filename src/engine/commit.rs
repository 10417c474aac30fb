//! Which way does a write go? Locks, checks, the choice of a way, and publishing.
//!
//! The order is always: touch the regions (pinned), take the locks (not pinned), look again at
//! what may have changed, allocate, and only then store. So an error means that nothing has changed:
//! all are found before the first store but one, a failing read of a slice that is to be completed,
//! and until then only slots were stored to that are not valid. That one drains before the locks
//! open, so that nothing of it reaches the medium late.

use super::Engine;
use super::deploy::Pins;
use super::lanes::InUse;
use super::live::Target;
use super::log_area::Extents;
pub(crate) use super::plan::Part;
use super::plan::{self, RegionPlan, WordMove};
use super::read::ReadMark;
use super::state::RegionState;
use super::stats::Counter;
use super::ways;
use crate::bitmap::span::{self, PageSpan};
use crate::bitmap::{Side, Slices, Validity};
use crate::error::{Error, Result};
use crate::format::entry::{SpilledPage, WordId};
use crate::format::layout;
use crate::lock::{Held, close_before_looking, lock_page};
use crate::mutant::{planted, unless};
use crate::platform::Persistence;
use crate::terms::DeployPolicy;
use crate::units::{PAGE, PageIndex, SLICE};

/// Largest write that goes by a redo entry. Its data is written twice and its checksum computed,
/// which costs more than the drain that it saves from here on; see `docs/performance.md`.
const REDO_AT_MOST: usize = 256;
const _: () = assert!(REDO_AT_MOST <= crate::format::entry::REDO_MAX);

impl Engine {
    /// Writes `data` at `offset`: one operation, whatever its size.
    #[inline]
    pub fn write(&self, data: &[u8], offset: u64) -> Result<()> {
        self.commit(&[Part { offset, data }], &[])
    }

    /// As [`commit`](Self::commit), counted as a transaction.
    pub fn commit_transaction(&self, parts: &[Part<'_>], marks: &[ReadMark]) -> Result<()> {
        let result = self.commit(parts, marks);
        let counter = match &result {
            Ok(()) => Counter::Transactions,
            Err(error) if error.is_conflict() => Counter::Conflicts,
            Err(_) => return result,
        };
        self.lane().stats.bump(counter, 1);
        result
    }

    /// Writes all parts in one operation, unless something of `marks` has changed. The parts are
    /// sorted and do not overlap.
    pub fn commit(&self, parts: &[Part<'_>], marks: &[ReadMark]) -> Result<()> {
        self.check_usable()?;
        debug_assert!(parts.is_sorted_by(|a, b| a.range().end <= b.offset));
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
            return Ok(());
        };
        let asked = parts.iter().map(|part| part.data.len() as u64).sum::<u64>();
        self.check_range(last.offset, last.data.len() as u64)?;
        if asked == 0 {
            return Ok(());
        }
        let page = PageIndex::of(first.offset);
        let lane = self.lane();
        if page == PageIndex::of(last.range().end - 1) {
            self.commit_in_page(&lane, page, parts, marks)?;
        } else {
            self.commit_over_pages(&lane, parts, marks)?;
        }
        lane.stats.bump(Counter::BytesAsked, asked);
        if self.policy == DeployPolicy::Eager {
            let range = first.offset..last.range().end;
            drop(lane);
            // The write is committed; that it could not be brought home now is no failure of it.
            let _deployed_later_otherwise = self.deploy_pages(range, Pins::Respect);
        }
        Ok(())
    }

    #[inline]
    fn commit_in_page(
        &self,
        lane: &InUse<'_>,
        page: PageIndex,
        parts: &[Part<'_>],
        marks: &[ReadMark],
    ) -> Result<()> {
        let region = {
            let _pinned = lane.pin();
            self.check_parts(parts)?;
            self.region(page.region())?
        };
        let place = page.in_region();
        let state = &region.pages[place];
        let held = lock_page(&region.lock, &state.lock);
        unless!(LengthNotCheckedAgain, self.check_parts(parts)?);
        self.check_marks(marks, std::slice::from_ref(&held), |r, p| {
            std::ptr::eq(r, region) && p == place
        })?;

        let valid = region.validity(place);
        let slices = parts.iter().fold(Slices::NONE, |all, part| {
            let start = (part.offset - page.start()) as usize;
            all.or(Slices::of_bytes(start, start + part.data.len()))
        });
        let pinned = state.is_pinned();
        if let [part] = parts
            && self.may_redo(lane, part.data.len())
            && (!pinned || valid.at_home(slices).is_empty() || planted!(RedoOverView))
            && !self.another_lane_names(lane.index(), page, state, slices, valid)
        {
            if !valid.at_home(slices).is_empty() && !planted!(RedoHomeNotAllocated) {
                self.ensure_slots(lane, Side::Home, part.range())?;
            }
            unless!(RedoLaneNotAllocated, self.ensure_lane(lane, lane.index())?);
            let start = (part.offset - page.start()) as usize;
            let span = PageSpan { page, start, end: start + part.data.len() };
            let target = Target { page, region, slices, sides: valid };
            self.commit_by_redo_entry(lane, &target, held, span, part.data);
            return Ok(());
        }
        if pinned && !valid.in_reflection(slices).is_empty() && !planted!(FlipOverView) {
            return self.commit_pinned(lane, parts, vec![held]);
        }
        let change =
            WordMove { word: WordId::Slice(page), mask: slices.0, old: state.slice_word() };
        self.ensure_free_slots(lane, page, slices, valid)?;
        self.ensure_slice_word(page)?;
        if state.lanes() != 0 && !planted!(FlipNoClear) {
            let target = Target { page, region, slices, sides: valid.targets() };
            self.clear_live_entries(lane, std::iter::once(target));
        }
        if planted!(FlipWordBeforeData) {
            self.commit_by_flip(lane, &change);
        }
        self.copy_to_free_slots(lane, parts)
            .inspect_err(|_| unless!(FailedCopyNotDrained, self.drain(lane)))?;
        unless!(FlipWordBeforeData, self.commit_by_flip(lane, &change));
        unless!(FlipNotClosed, held.close());
        unless!(FlipNotPublished, publish(region, &change));
        Ok(())
    }

    fn commit_over_pages(
        &self,
        lane: &InUse<'_>,
        parts: &[Part<'_>],
        marks: &[ReadMark],
    ) -> Result<()> {
        // Several pieces may lie on both sides of a new end and not at it: `set_len` waits.
        let _no_resizing =
            (parts.len() > 1 && !planted!(PartsWhileResizing)).then(|| self.resizing.read());
        let plans = {
            let _pinned = lane.pin();
            self.check_parts(parts)?;
            plan::plan_writes(parts, |index| self.region(index))?
        };
        let held = plan::lock_all(&plans);
        unless!(LengthNotCheckedAgain, self.check_parts(parts)?);
        self.check_marks(marks, &held, |region, place| {
            plans.iter().any(|plan| {
                std::ptr::eq(plan.state, region)
                    && (plan.is_exclusive() || plan.touched >> place & 1 == 1)
            })
        })?;
        let moves = plan::word_moves(&plans, parts);
        if !planted!(FlipOverView) && self.must_log_data(&plans, &moves) {
            return self.commit_pinned(lane, parts, held);
        }
        // Allocation, before the first store.
        let needed = ways::spilled_len(&moves);
        if needed > layout::LOG_AREA_LEN {
            return Err(self.too_large(needed));
        }
        for (page, slices) in ways::moved_pages(&moves) {
            let region = self.region(page.region())?;
            self.ensure_free_slots(lane, page, slices, region.validity(page.in_region()))?;
        }
        for change in &moves {
            match change.word {
                WordId::Slice(page) => self.ensure_slice_word(page)?,
                WordId::Region(_) if planted!(RegionWordsNotAllocated) => {}
                WordId::Region(region) => self.ensure_region_words(region.superchunk())?,
            }
        }
        let extents = ways::must_spill(&moves).then(|| self.log_area.take(needed));
        if moves.len() > 1 {
            self.ensure_lane(lane, lane.index())?;
        }
        if let Some(extents) = &extents
            && !planted!(UndoSpillNotAllocated)
        {
            self.allocate_reflection(layout::LOG_AREA + extents.offset(), needed)?;
        }
        // Stores.
        if plans.iter().any(|plan| plan.state.redo_pages() & plan.touched != 0) {
            let targets = ways::moved_pages(&moves).filter_map(|(page, slices)| {
                let region = self.state.touched(page.region())?;
                let sides = region.validity(page.in_region()).targets();
                Some(Target { page, region, slices, sides })
            });
            unless!(PagesNoClear, self.clear_live_entries(lane, targets));
            for plan in plans.iter().filter(|plan| plan.is_exclusive()) {
                let named = plan::bits(plan.state.redo_pages())
                    .filter(|&n| plan.state.pages[n].lanes() != 0 && !planted!(RegionForgetsNamed))
                    .fold(0, |mask, n| mask | 1 << n);
                plan.state.forget_redo_pages(!named);
            }
        }
        self.copy_to_free_slots(lane, parts)
            .inspect_err(|_| unless!(FailedCopyNotDrained, self.drain(lane)))?;
        if let [change] = &moves[..] {
            self.commit_by_flip(lane, change);
        } else {
            self.commit_by_undo_entry(lane, &moves, extents.as_ref());
        }
        if let Some(extents) = &extents {
            self.give_back(extents);
        }
        unless!(PagesNotClosed, held.iter().for_each(Held::close));
        for change in &moves {
            let index = match change.word {
                WordId::Slice(page) => page.region(),
                WordId::Region(region) => region,
            };
            if let Some(region) = self.state.touched(index) {
                publish(region, change);
            }
        }
        Ok(())
    }

    /// Commits parts of which some lie in pages that a view pins, with their valid slices in the
    /// reflection file: both slots are taken, so the data goes through the log.
    fn commit_pinned(
        &self,
        lane: &InUse<'_>,
        parts: &[Part<'_>],
        held: Vec<Held<'_>>,
    ) -> Result<()> {
        let mut pages: Vec<SpilledPage> = Vec::new();
        let mut last_page: Option<(PageIndex, Slices, Box<[u8; PAGE]>)> = None;
        for part in parts {
            for span in span::pages(part.range()) {
                if last_page.as_ref().is_none_or(|(page, ..)| *page != span.page) {
                    pages.extend(last_page.take().map(spilled));
                    let mut bytes = Box::new([0; PAGE]);
                    // The whole page, also past the end of the file: it is there, and zero.
                    let start = span.page.start();
                    self.gather(&mut bytes[..], start..start + PAGE as u64)?;
                    last_page = Some((span.page, Slices::NONE, bytes));
                }
                if let Some((_, slices, bytes)) = &mut last_page {
                    let at = (span.offset() - part.offset) as usize;
                    bytes[span.start..span.end].copy_from_slice(&part.data[at..at + span.len()]);
                    *slices = slices.or(span.slices());
                }
            }
        }
        pages.extend(last_page.take().map(spilled));
        let mut bytes = Vec::new();
        pages.iter().for_each(|page| page.encode_to(&mut bytes));
        let needed = bytes.len() as u64;
        if needed > layout::LOG_AREA_LEN && !planted!(LogNotMeasured) {
            return Err(self.too_large(needed));
        }
        let mut targets = Vec::with_capacity(pages.len());
        for logged in &pages {
            let start = logged.page.start();
            self.ensure_slots(lane, Side::Reflection, start..start + PAGE as u64)?;
            self.ensure_slice_word(logged.page)?;
            let region = self.region(logged.page.region())?;
            targets.push(Target {
                page: logged.page,
                region,
                slices: Slices(logged.mask),
                sides: Validity(!0),
            });
        }
        self.ensure_lane(lane, lane.index())?;
        let extents = self.log_area.take(needed);
        self.allocate_reflection(layout::LOG_AREA + extents.offset(), needed)?;
        let close = || held.iter().for_each(Held::close);
        self.commit_by_logged_data(lane, &bytes, &pages, &targets, &extents, close);
        self.give_back(&extents);
        Ok(())
    }

    /// Whether a redo entry pays for `len` bytes, and the lane may carry one.
    #[inline]
    fn may_redo(&self, lane: &InUse<'_>, len: usize) -> bool {
        // Where drains cost nothing, a flip writes the data once and a redo entry twice.
        len <= REDO_AT_MOST
            && self.platform.persistence() != Persistence::Process
            && (lane.is_private() || planted!(RedoInSharedLane))
    }

    /// Whether a page among them is pinned by a view while slices that are written are valid in
    /// the reflection file.
    fn must_log_data(&self, plans: &[RegionPlan<'_>], moves: &[WordMove]) -> bool {
        let any_pin =
            plans.iter().any(|plan| plan.pages().any(|n| plan.state.pages[n].is_pinned()));
        any_pin
            && ways::moved_pages(moves).any(|(page, slices)| {
                self.state.touched(page.region()).is_some_and(|region| {
                    let n = page.in_region();
                    region.pages[n].is_pinned()
                        && !region.validity(n).in_reflection(slices).is_empty()
                })
            })
    }

    /// Makes sure that the slots are allocated to which a flip of `slices` copies.
    #[inline]
    fn ensure_free_slots(
        &self,
        lane: &InUse<'_>,
        page: PageIndex,
        slices: Slices,
        valid: Validity,
    ) -> Result<()> {
        let range = page.start()..page.start() + PAGE as u64;
        if !valid.at_home(slices).is_empty() {
            unless!(
                FlipReflectionNotAllocated,
                self.ensure_slots(lane, Side::Reflection, range.clone())?
            );
        }
        if !valid.in_reflection(slices).is_empty() {
            unless!(FlipHomeNotAllocated, self.ensure_slots(lane, Side::Home, range)?);
        }
        Ok(())
    }

    #[inline]
    fn check_parts(&self, parts: &[Part<'_>]) -> Result<()> {
        // Sorted: the last one ends last.
        parts.last().map_or(Ok(()), |part| {
            self.check_range(part.offset, part.data.len() as u64).map(|_| ())
        })
    }

    /// Fails if something that was read has changed, or is about to be changed by somebody else.
    /// `mine` says whether this operation holds the lock of a page. (Silo's rule: a lock that
    /// somebody else holds may be followed by a commit that comes before this one.)
    ///
    /// Where something was read that is not written, the words that are held are closed first:
    /// between this check and the publishing somebody may commit to what was read, and a reader
    /// must not see that commit and not yet this one, which comes before it.
    fn check_marks(
        &self,
        marks: &[ReadMark],
        held: &[Held<'_>],
        mine: impl Fn(&RegionState, usize) -> bool,
    ) -> Result<()> {
        if planted!(MarksNotChecked) {
            return Ok(());
        }
        let mut reads_only = false;
        for mark in marks {
            reads_only |= !mine(self.region(mark.page.region())?, mark.page.in_region());
        }
        if reads_only {
            unless!(NotClosedBeforeMarks, close_before_looking(held));
        }
        let len = self.len();
        for mark in marks {
            if mark.page.start() >= len && !planted!(CutMarksHold) {
                // What was read has been cut off.
                return Err(Error::Conflict { path: self.path() });
            }
            let region = self.region(mark.page.region())?;
            let place = mark.page.in_region();
            let page = &region.pages[place].lock;
            let holds = if mine(region, place) {
                mark.holds_for_holder(region)
            } else {
                let free = !region.lock.is_held_after_fence() && !page.is_held_after_fence();
                (free || planted!(HeldMarksHold)) && mark.holds(region)
            };
            if !holds {
                return Err(Error::Conflict { path: self.path() });
            }
        }
        Ok(())
    }

    /// Gives the space of a large spilled entry back to the file system, once the entry has ended
    /// for good. The first extent of each stays, for the next one.
    fn give_back(&self, extents: &Extents<'_>) {
        let rest = extents.after_the_first();
        if !rest.is_empty() {
            let at = layout::LOG_AREA + rest.start;
            // The operation is committed; space that cannot be given back is used again.
            let _used_again_otherwise = self.reflection.punch(at, rest.end - rest.start);
        }
    }

    fn too_large(&self, needed: u64) -> Error {
        Error::TooLarge { path: self.path(), needed, limit: layout::LOG_AREA_LEN }
    }
}

/// Changes the mirror as the word on the medium was changed. The page or region is closed.
fn publish(region: &RegionState, change: &WordMove) {
    match change.word {
        WordId::Slice(page) => {
            region.pages[page.in_region()].set_slice_word(change.old ^ change.mask);
        }
        WordId::Region(_) => region.flip_region_bits(change.mask),
    }
}

/// The slices of a page that were written, as a log entry carries them.
fn spilled((page, slices, bytes): (PageIndex, Slices, Box<[u8; PAGE]>)) -> SpilledPage {
    let mut data = Vec::with_capacity(slices.count() * SLICE);
    for run in slices.runs() {
        data.extend_from_slice(&bytes[run.start * SLICE..run.end * SLICE]);
    }
    SpilledPage { page, mask: slices.0, slices: data }
}
