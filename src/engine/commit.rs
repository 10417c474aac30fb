//! The entry point of writes: locks, checks, the choice of a commit protocol, and publishing.
//!
//! The order is always: load the regions (in a read section), take the locks (outside of one),
//! validate, allocate, and only then store. So an error means that nothing has changed. Every error
//! but one comes before the first store: reading a slice to complete it may fail during the copy.
//! Until then only slots that are not valid have been stored to. That error path drains before the
//! locks open, so that none of its stores reaches the medium late.

use super::Engine;
use super::ask::ASKED_PARTS;
use super::deploy::{Pins, Which};
use super::gates::Gate;
use super::lanes::{InUse, Lane};
use super::live::Target;
use super::log_area::Extents;
use super::own_changes;
pub(crate) use super::plan::Part;
use super::plan::{self, Moves, Plans, RegionPlan, WordMove};
use super::read_marks::ReadMarks;
use super::state::{RegionState, WordTaken};
use super::stats::Counter;
use super::ways;
use crate::bitmap::span;
use crate::bitmap::{Side, Slices};
use crate::error::{Error, Result};
use crate::format::entry::{SpilledPage, UNDO_INLINE, WordId};
use crate::format::layout;
use crate::lock::{AllHeld, Held, close_before_looking};
use crate::mutant::{planted, unless};
use crate::terms::{DeployPolicy, Durability};
use crate::thread;
use crate::units::{PAGE, PageIndex, RegionIndex, SLICE, is_in_page};

impl Engine {
    /// Writes `data` at `offset`: one operation, whatever its size.
    #[inline]
    pub fn write(&self, data: &[u8], offset: u64) -> Result<()> {
        if self.one_store.takes(offset, data.len()) {
            if self.try_at_once(data, offset) { Ok(()) } else { self.write_anyhow(data, offset) }
        } else if data.len() <= self.small.longest() && offset as usize % PAGE + data.len() <= PAGE
        {
            // Also an empty write, for which the result of `is_in_page` is unspecified.
            self.write_small(data, offset)
        } else {
            self.write_pages(data, offset)
        }
    }

    /// Writes one or more whole pages, or a range that spans several pages.
    // A function of its own, so that small writes need no registers for it. Its only call is a tail
    // call, so it saves few registers: each save is a store before the first prefetch.
    #[inline(never)]
    fn write_pages(&self, data: &[u8], offset: u64) -> Result<()> {
        self.ask_for_pages(data.len(), offset);
        self.write_whole_pages(data, offset)
    }

    /// Writes `data` at `offset` by the general way, whatever the range and the state of its pages.
    #[inline(never)]
    pub(super) fn write_anyhow(&self, data: &[u8], offset: u64) -> Result<()> {
        self.commit(&[Part { offset, data }], &ReadMarks::default(), None)
    }

    /// Commits `parts` as [`commit`](Self::commit) does, and counts them as a transaction.
    pub fn commit_transaction(
        &self,
        parts: &[Part<'_>],
        marks: &ReadMarks,
        closure: Option<usize>,
    ) -> Result<()> {
        if let [part] = parts
            && !is_in_page(part.offset, part.data.len())
        {
            self.ask_for_pages(part.data.len(), part.offset);
        }
        // Do not pass the result through. Moving it loads wider words than were just stored, and
        // waits until those stores have left the processor, behind the last drain.
        if let Err(error) = self.commit(parts, marks, closure) {
            if error.is_conflict() {
                self.lane().stats.bump(Counter::Conflicts, 1);
            }
            return Err(error);
        }
        self.lane().stats.bump(Counter::Transactions, 1);
        Ok(())
    }

    /// Writes all parts in one operation, unless an entry of `marks` has changed. The parts are
    /// sorted and do not overlap. `closure` is the transaction closure that commits, if any.
    pub fn commit(
        &self,
        parts: &[Part<'_>],
        marks: &ReadMarks,
        closure: Option<usize>,
    ) -> Result<()> {
        self.check_usable()?;
        debug_assert!(parts.is_sorted_by(|a, b| a.range().end <= b.offset));
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
            return self.check_reads_alone(marks);
        };
        let asked = parts.iter().map(|part| part.data.len() as u64).sum::<u64>();
        self.check_range(last.offset, last.data.len() as u64)?;
        if asked == 0 {
            return self.check_reads_alone(marks);
        }
        if let Some(durable) = &self.durable {
            self.check_not_overdue(durable)?;
        }
        match self.commit_once(parts, marks) {
            // The operation rewrites slices that have changed since the last durable point, so it
            // would need the log. After a new durable point it does not. With `AllOrNothing` the
            // caller decides when a durable point is made.
            Err(Error::TooLarge { .. })
                if self.durable.is_some() && self.durability != Durability::AllOrNothing =>
            {
                self.sync()?;
                self.commit_once(parts, marks)?;
            }
            other => other?,
        }
        if thread::is_watched() {
            self.note_own_changes(parts, closure);
        }
        self.lane().stats.bump(Counter::BytesAsked, asked);
        if let Some(durable) = &self.durable
            && self.durability == Durability::EveryWrite
        {
            self.durable_point(durable)?;
        }
        if self.policy == DeployPolicy::Eager {
            let range = first.offset..last.range().end;
            // The write is committed, so a failed deployment is not its failure.
            let _deployed_later_otherwise = self.deploy_pages(range, Pins::Respect, Which::All);
        }
        Ok(())
    }

    /// Commits a transaction that writes nothing: all that it has read, and the lengths it was
    /// told, must hold now.
    fn check_reads_alone(&self, marks: &ReadMarks) -> Result<()> {
        if marks.is_empty() || self.marks_hold(marks)? || planted!(ReadsAloneNotChecked) {
            return Ok(());
        }
        Err(Error::Conflict { path: self.path() })
    }

    /// Records what this thread has changed, for the transaction closures that it is inside.
    #[cold]
    fn note_own_changes(&self, parts: &[Part<'_>], closure: Option<usize>) {
        if planted!(OwnChangesNotNoted) {
            return;
        }
        let mut last: Option<(RegionIndex, u64)> = None;
        let note = |(region, mask): (RegionIndex, u64)| {
            // From this many pages on the region lock was taken: a reader of any page of the region
            // sees a new version.
            let by_region = mask.count_ones() >= plan::PAGES_FOR_REGION_LOCK;
            let mask = if by_region { !0 } else { mask };
            own_changes::note_pages(self.number, closure, region, mask);
        };
        for part in parts.iter().filter(|part| !part.data.is_empty()) {
            for span in span::regions(part.range()) {
                let mask = Slices::range(span.pages.start, span.pages.end).0;
                match &mut last {
                    Some((region, pages)) if *region == span.region => *pages |= mask,
                    _ => {
                        last.replace((span.region, mask)).into_iter().for_each(note);
                    }
                }
            }
        }
        last.into_iter().for_each(note);
    }

    #[inline]
    fn commit_once(&self, parts: &[Part<'_>], marks: &ReadMarks) -> Result<()> {
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return Ok(()) };
        let page = PageIndex::of(first.offset);
        let last_page = PageIndex::of(last.range().end - 1);
        let in_page = page == last_page;
        let mut may_wait = self.durable.is_some();
        loop {
            // Return the lane before waiting for a durable point: the thread that makes the point
            // needs a lane, and there may be no other.
            let lane = self.lane();
            // Several parts may lie on both sides of a new end without touching it, so a shrink
            // must wait.
            let no_shorter = (!in_page && parts.len() > 1 && !planted!(PartsWhileResizing))
                .then(|| self.lanes.enter(Gate::Length, &lane));
            if in_page {
                for part in parts.iter().take(ASKED_PARTS) {
                    self.ask_for_lines(&lane, part);
                }
            } else {
                match parts {
                    // The first page was prefetched before.
                    [part] => self.ask_for_more_regions(part),
                    _ => self.ask_for_first_pages(&lane, parts),
                }
                self.ask_for_ends(parts);
            }
            let inside = self.durable.is_some().then(|| self.lanes.enter(Gate::Cut, &lane));
            if may_wait && (self.is_in_cut(page) || self.is_in_cut(last_page)) {
                drop(inside);
                drop(no_shorter);
                drop(lane);
                may_wait = self.wait_for_point();
                continue;
            }
            return match in_page {
                true => self.commit_in_page(&lane, page, parts, marks),
                false => self.commit_over_pages(&lane, parts, marks),
            };
        }
    }

    fn commit_over_pages(
        &self,
        lane: &InUse<'_>,
        parts: &[Part<'_>],
        marks: &ReadMarks,
    ) -> Result<()> {
        let mut plans = Plans::new();
        {
            let _pinned = lane.pin();
            self.check_parts(parts)?;
            plan::plan_writes(&mut plans, parts, |index| self.region(index))?;
        }
        self.ask_for_states(&plans);
        let held = plan::lock_all(&plans);
        self.leave_home_all(&plans);
        unless!(LengthNotCheckedAgain, self.check_parts(parts)?);
        self.check_marks(marks, &held, |page| {
            // The plans are sorted, and there may be one for each entry of the read set.
            let plan = plans.binary_search_by_key(&page.region(), |plan| plan.index);
            plan.is_ok_and(|n| {
                plans[n].is_exclusive() || plans[n].touched >> page.in_region() & 1 == 1
            })
        })?;
        if self.must_store_in_place(parts) && !planted!(PagesFlipDurableSlots) {
            return self.commit_in_place(lane, parts, &held);
        }
        let shared_word = match &plans[..] {
            [plan] if plan.may_move_by_shared_word() => self.take_word(plan, || {
                self.ensure_slice_word(plan.index.page(0))?;
                self.ensure_lane(lane, lane.index())
            }),
            _ => None,
        };
        let has_shared_word = shared_word.is_some();
        let mut moves = Moves::new();
        let can_copy = self.can_copy_at_once(lane, &plans, has_shared_word);
        let mut extents = None;
        if !can_copy {
            plan::word_moves(&mut moves, &plans, parts, has_shared_word);
            if !planted!(FlipOverView) && self.must_log_data(&plans, &moves) {
                // A redo record changes no bit of the region word.
                drop(shared_word);
                return self.commit_pinned(lane, parts, held);
            }
            extents = self.make_ready(lane, &plans, &moves)?;
        }
        let shared_word = shared_word.filter(|_| !planted!(PagesWordGivenBack));
        // Stores.
        self.copy_to_free_slots(lane, parts)
            .inspect_err(|_| unless!(FailedCopyNotDrained, self.drain(lane)))?;
        if can_copy {
            // Compute the moves this late, because the medium is now busy with the copied bytes.
            plan::word_moves(&mut moves, &plans, parts, has_shared_word);
        }
        // A page that was fragmented before the flip is fragmented after it: each slice goes to its
        // other slot.
        let mut scattered = Plans::new();
        self.find_to_put_together(&plans, &mut scattered);
        if planted!(TogetherBeforeCommit) {
            for plan in &scattered {
                plan.pages().for_each(|n| self.copy_home_written(lane, plan.index.page(n), parts));
            }
        }
        if let [change] = &moves[..] {
            self.commit_by_flip(lane, change);
        } else {
            self.commit_by_undo_entry(lane, &moves, extents.as_ref());
        }
        if let Some(extents) = &extents {
            self.give_back(extents);
        }
        if scattered.is_empty() || !planted!(TogetherWhileOpen) {
            unless!(PagesNotClosed, held.iter().for_each(Held::close));
        }
        for change in &moves {
            if let Some(region) = self.state.touched(change.word.region()) {
                publish(region, change);
            }
        }
        // Keep the word until it is drained and its cached copy changed: the next holder starts
        // from that. Release it before the deployment below, which may need the word itself.
        drop(shared_word);
        if !scattered.is_empty() {
            // The operation is done; the deployment only helps later readers.
            self.put_together(lane, &scattered, parts, &held);
        }
        Ok(())
    }

    /// Returns `true` if the copy can start at once: everything stored to is allocated, and no view
    /// or active record is in the way. The caller holds the locks.
    #[inline(always)]
    fn can_copy_at_once(
        &self,
        lane: &Lane,
        plans: &[RegionPlan<'_>],
        has_shared_word: bool,
    ) -> bool {
        let is_ready = |plan: &RegionPlan<'_>| {
            let pinned = if planted!(CopyOverView) { 0 } else { plan.state.pinned_pages() };
            let named = if planted!(CopyOverEntries) { 0 } else { plan.state.named_pages() };
            let by_region = has_shared_word || plan.may_move_by_region();
            let has_slice_words = !by_region || plan.whole != plan.touched;
            let is_allocated = self.all_is_allocated(plan.index, has_slice_words)
                && (!by_region || self.region_words_are_allocated(plan.index.superchunk()));
            (pinned | named) & plan.touched == 0 && (is_allocated || planted!(CopyToHoles))
        };
        // A lane's undo record has room for all words of one region.
        let fits = plans.len() == 1
            || plans.iter().map(RegionPlan::words).sum::<usize>() <= UNDO_INLINE
            || planted!(WordsNotCounted);
        // Where durable points are kept, changed pages have to be recorded first.
        let notes_nothing = self.durable.is_none() || planted!(CopyNotNoted);
        fits && notes_nothing && lane.is_allocated() && plans.iter().all(is_ready)
    }

    /// Prepares for the copy and the commit: allocates space, and invalidates active records about
    /// the written slices. Returns the extents in the log area for words that do not fit a lane.
    /// The caller holds the locks.
    #[inline(never)]
    fn make_ready(
        &self,
        lane: &InUse<'_>,
        plans: &[RegionPlan<'_>],
        moves: &[WordMove],
    ) -> Result<Option<Extents<'_>>> {
        // Allocate before the first store.
        let needed = ways::spilled_len(moves);
        if needed > layout::LOG_AREA_LEN {
            return Err(self.too_large(needed));
        }
        self.ensure_moved(lane, moves)?;
        let extents = ways::must_spill(moves).then(|| self.log_area.take(needed));
        if moves.len() > 1 {
            self.ensure_lane(lane, lane.index())?;
        }
        if let Some(extents) = &extents
            && !planted!(UndoSpillNotAllocated)
        {
            self.allocate_reflection(layout::LOG_AREA + extents.offset(), needed)?;
        }
        if self.durable.is_some() {
            ways::moved_pages(moves).for_each(|(page, _)| self.note_changed(page));
        }
        // The first stores.
        if plans.iter().any(|plan| plan.state.named_pages() & plan.touched != 0) {
            let targets = ways::moved_pages(moves).filter_map(|(page, slices)| {
                let region = self.state.touched(page.region())?;
                Some(Target { page, region, slices })
            });
            unless!(PagesNoClear, self.clear_live_entries(lane, targets));
            for plan in plans.iter().filter(|plan| plan.is_exclusive()) {
                let named = plan::bits(plan.state.named_pages())
                    .filter(|&n| plan.state.lanes(n) != 0 && !planted!(RegionForgetsNamed))
                    .fold(0, |mask, n| mask | 1 << n);
                plan.state.forget_named_pages(!named);
            }
        }
        Ok(extents)
    }

    /// Allocates the words that move and the slots that they make valid.
    #[inline(always)]
    fn ensure_moved(&self, lane: &Lane, moves: &[WordMove]) -> Result<()> {
        let is_there = |change: &WordMove| match change.word {
            WordId::Slice(page) => self.all_is_allocated(page.region(), true),
            WordId::Region(region) => {
                self.all_is_allocated(region, self.durable.is_some())
                    && self.region_words_are_allocated(region.superchunk())
            }
        };
        if moves.iter().all(is_there) { Ok(()) } else { self.allocate_moved(lane, moves) }
    }

    #[inline(never)]
    fn allocate_moved(&self, lane: &Lane, moves: &[WordMove]) -> Result<()> {
        // Where durable points are kept, each page also needs its durable word, which is allocated
        // with the slice words.
        let word = self.durable.is_some();
        for change in moves {
            if self.all_is_allocated(change.word.region(), word) {
                continue;
            }
            for (page, slices) in ways::moved_pages(std::slice::from_ref(change)) {
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

    /// Locks the region word of the plan; the caller holds some of its pages. Returns `None` if
    /// another writer has the word: then the pages' slice words serve as well, and `ensure` has
    /// allocated the space that they need. If that space cannot be allocated, this waits for the
    /// word instead. A write that needs no space must not fail with `NoSpace` because of a
    /// concurrent writer.
    pub(super) fn take_word<'e>(
        &self,
        plan: &RegionPlan<'e>,
        ensure: impl FnOnce() -> Result<()>,
    ) -> Option<WordTaken<'e>> {
        let taken = plan.state.try_take_word();
        if taken.is_none() && ensure().is_err() {
            return Some(plan.state.take_word());
        }
        taken
    }

    /// Commits parts that include pages without a free slot: a view pins the home slot of a slice,
    /// and the reflection slot is valid. The data goes through the log.
    pub(super) fn commit_pinned(
        &self,
        lane: &InUse<'_>,
        parts: &[Part<'_>],
        held: AllHeld<'_>,
    ) -> Result<()> {
        let mut pages: Vec<SpilledPage> = Vec::new();
        let mut last_page: Option<(PageIndex, Slices, Box<[u8; PAGE]>)> = None;
        for part in parts {
            for span in span::pages(part.range()) {
                if last_page.as_ref().is_none_or(|(page, ..)| *page != span.page) {
                    pages.extend(last_page.take().map(spilled));
                    let mut bytes = Box::new([0; PAGE]);
                    // Read the whole page, also past the end of the file: those bytes exist and are
                    // zero.
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
            targets.push(Target { page: logged.page, region, slices: Slices(logged.mask) });
        }
        self.ensure_lane(lane, lane.index())?;
        let extents = self.log_area.take(needed);
        self.allocate_reflection(layout::LOG_AREA + extents.offset(), needed)?;
        let close = || held.iter().for_each(Held::close);
        self.commit_by_logged_data(lane, &bytes, &pages, &targets, &extents, close);
        self.give_back(&extents);
        Ok(())
    }

    /// Returns `true` if a view pins one of the pages while slices that are written are valid in
    /// the reflection file.
    fn must_log_data(&self, plans: &[RegionPlan<'_>], moves: &[WordMove]) -> bool {
        let any_pin = plans.iter().any(|plan| plan.state.pinned_pages() & plan.touched != 0);
        any_pin
            && ways::moved_pages(moves).any(|(page, slices)| {
                self.state.touched(page.region()).is_some_and(|region| {
                    let n = page.in_region();
                    region.is_pinned(n) && !region.validity(n).in_reflection(slices).is_empty()
                })
            })
    }

    #[inline]
    pub(super) fn check_parts(&self, parts: &[Part<'_>]) -> Result<()> {
        // The parts are sorted: the last one has the highest end.
        parts.last().map_or(Ok(()), |part| {
            self.check_range(part.offset, part.data.len() as u64).map(|_| ())
        })
    }

    /// Fails with `Conflict` if anything that was read has changed, or if another operation holds
    /// its lock. `mine` returns `true` if this operation holds the lock of a page. Another lock
    /// holder may commit before this operation does (Silo's rule).
    ///
    /// If something was read that is not written, this closes the held words first. Another
    /// operation may commit to what was read between this check and publishing. This operation
    /// comes before that one. So a reader must not see that commit without this one.
    pub(super) fn check_marks(
        &self,
        marks: &ReadMarks,
        held: &[Held<'_>],
        mine: impl Fn(PageIndex) -> bool,
    ) -> Result<()> {
        if planted!(MarksNotChecked) {
            return Ok(());
        }
        // A growth does not take our locks, so a length that the transaction was told is read and
        // not written.
        let reads_only =
            marks.was_told_length() || marks.pages().iter().any(|mark| !mine(mark.page));
        if reads_only {
            unless!(NotClosedBeforeMarks, close_before_looking(held));
        }
        let conflict = || Err(Error::Conflict { path: self.path() });
        if !marks.told_holds(self.len()) {
            // The range that was read has been truncated, or the length is not the one that the
            // transaction was told.
            return conflict();
        }
        for mark in marks.pages() {
            let region = self.region(mark.page.region())?;
            let page = &region.pages[mark.page.in_region()].lock;
            let holds = if mine(mark.page) {
                mark.holds_for_holder(region)
            } else {
                let free = !region.lock.is_written_after_fence() && !page.is_written_after_fence();
                (free || planted!(HeldMarksHold)) && mark.holds(region)
            };
            if !holds {
                return conflict();
            }
        }
        Ok(())
    }

    /// Returns the space of a large overflow record to the file system, once the record has ended
    /// for good. Its first extent stays, for the next record.
    pub(super) fn give_back(&self, extents: &Extents<'_>) {
        let rest = extents.after_the_first();
        if !rest.is_empty() {
            let at = layout::LOG_AREA + rest.start;
            // The operation is committed. If the file system does not take the space back, a later
            // record uses it.
            let _used_again_otherwise = self.reflection.punch(at, rest.end - rest.start);
        }
    }

    pub(super) fn too_large(&self, needed: u64) -> Error {
        Error::TooLarge { path: self.path(), needed, limit: layout::LOG_AREA_LEN }
    }
}

/// Changes the cached copy of a word as the word on the medium was changed. The caller has closed
/// the page or region.
// Inlined, like other callees of a small write: an argument passed by reference would be stored to
// memory.
#[inline(always)]
pub(super) fn publish(region: &RegionState, change: &WordMove) {
    match change.word {
        WordId::Slice(page) => {
            region.set_slice_word(page.in_region(), change.old ^ change.mask);
        }
        WordId::Region(_) => region.flip_region_bits(change.mask),
    }
}

/// Returns the written slices of a page in the form of a log record.
fn spilled((page, slices, bytes): (PageIndex, Slices, Box<[u8; PAGE]>)) -> SpilledPage {
    let mut data = Vec::with_capacity(slices.count() * SLICE);
    for run in slices.runs() {
        data.extend_from_slice(&bytes[run.start * SLICE..run.end * SLICE]);
    }
    SpilledPage { page, mask: slices.0, slices: data }
}
