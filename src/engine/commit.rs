//! Which way does a write go? Locks, checks, the choice of a way, and publishing.
//!
//! The order is always: touch the regions (pinned), take the locks (not pinned), look again at
//! what may have changed, allocate, and only then store. So an error means that nothing has changed:
//! all are found before the first store but one, a failing read of a slice that is to be completed,
//! and until then only slots were stored to that are not valid. That one drains before the locks
//! open, so that nothing of it reaches the medium late.

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
            // (Also no bytes at all, of which `is_in_page` may say anything.)
            self.write_small(data, offset)
        } else {
            self.write_pages(data, offset)
        }
    }

    /// The same for one or several whole pages, or over several.
    // Of its own, so that who writes little needs no registers for it; and it calls nothing but at its end, so that it has
    // few to save, which are stores before the first request.
    #[inline(never)]
    fn write_pages(&self, data: &[u8], offset: u64) -> Result<()> {
        self.ask_for_pages(data.len(), offset);
        self.write_whole_pages(data, offset)
    }

    /// The same, whatever the range is and whatever is found.
    #[inline(never)]
    pub(super) fn write_anyhow(&self, data: &[u8], offset: u64) -> Result<()> {
        self.commit(&[Part { offset, data }], &ReadMarks::default(), None)
    }

    /// As [`commit`](Self::commit), counted as a transaction.
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
        // No result is handed through: who moves one loads more of it than was just stored, and waits until that has
        // left the processor, behind the last drain.
        if let Err(error) = self.commit(parts, marks, closure) {
            if error.is_conflict() {
                self.lane().stats.bump(Counter::Conflicts, 1);
            }
            return Err(error);
        }
        self.lane().stats.bump(Counter::Transactions, 1);
        Ok(())
    }

    /// Writes all parts in one operation, unless something of `marks` has changed. The parts are
    /// sorted and do not overlap. `closure` is the one whose transaction this is.
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
            // It would go through the log, because it writes again what was written since the last
            // durable point. After a new one it does not.
            // (Where it is all or nothing since that point, the caller makes a new one.)
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
            // The write is committed; that it could not be brought home now is no failure of it.
            let _deployed_later_otherwise = self.deploy_pages(range, Pins::Respect, Which::All);
        }
        Ok(())
    }

    /// Commits a transaction that writes nothing: all that it has read and was told is of this moment.
    fn check_reads_alone(&self, marks: &ReadMarks) -> Result<()> {
        if marks.is_empty() || self.marks_hold(marks)? || planted!(ReadsAloneNotChecked) {
            return Ok(());
        }
        Err(Error::Conflict { path: self.path() })
    }

    /// Notes what this thread has changed, for the transactions whose closures it is inside.
    #[cold]
    fn note_own_changes(&self, parts: &[Part<'_>], closure: Option<usize>) {
        if planted!(OwnChangesNotNoted) {
            return;
        }
        let mut last: Option<(RegionIndex, u64)> = None;
        let note = |(region, mask): (RegionIndex, u64)| {
            // From so many pages on the region's lock was taken: all its pages are changed for who has read one.
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
            // Given back before a durable point is waited for: who makes it needs a lane, too, and there may be no
            // other one.
            let lane = self.lane();
            // Several pieces may lie on both sides of a new end and not at it: a shrink waits.
            let no_shorter = (!in_page && parts.len() > 1 && !planted!(PartsWhileResizing))
                .then(|| self.lanes.enter(Gate::Length, &lane));
            if in_page {
                for part in parts.iter().take(ASKED_PARTS) {
                    self.ask_for_lines(&lane, part);
                }
            } else {
                match parts {
                    // Its first page was asked for.
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
            // (They are sorted. A transaction may have as many plans as marks.)
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
                // Logged data moves no bit of the region's word.
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
            // As late as that: from here on the medium has something to do.
            plan::word_moves(&mut moves, &plans, parts, has_shared_word);
        }
        // In pieces before the flip is in pieces after it: each slice goes to its other slot.
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
        // Kept until the word is drained and its mirror changed: who has it next starts from that. Given back before pages
        // come home below, which may need the word themselves.
        drop(shared_word);
        if !scattered.is_empty() {
            // The operation is done; what follows is for who will read.
            self.put_together(lane, &scattered, parts, &held);
        }
        Ok(())
    }

    /// Whether nothing has to be made ready before the copy: there is space for all that is stored, and neither views nor
    /// live entries stand in the way. Under the locks.
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
        // (A lane's entry has room for the words of one region, whatever these are.)
        let fits = plans.len() == 1
            || plans.iter().map(RegionPlan::words).sum::<usize>() <= UNDO_INLINE
            || planted!(WordsNotCounted);
        // Where durable points are kept, what changes is noted before.
        let notes_nothing = self.durable.is_none() || planted!(CopyNotNoted);
        fits && notes_nothing && lane.is_allocated() && plans.iter().all(is_ready)
    }

    /// Makes ready what the copy and the commit after it need: space, and no live entries about what is stored. What the
    /// words take in the log area, where they do not fit a lane. Under the locks.
    #[inline(never)]
    fn make_ready(
        &self,
        lane: &InUse<'_>,
        plans: &[RegionPlan<'_>],
        moves: &[WordMove],
    ) -> Result<Option<Extents<'_>>> {
        // Allocation, before the first store.
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
        // Stores.
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

    /// Sees to the space behind the words that move, and behind the slots that they make valid.
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
        // With the slice words, the durable words: each page has one of its own there.
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

    /// Takes the word of the plan's region, for who holds some of its pages. None: somebody else has it, and the pages' own
    /// words serve as well, once `ensure` has seen to the space that takes. Where there is none this waits: what needs no
    /// space is not to fail for it because somebody else writes beside.
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

    /// Commits parts of which some lie in pages that a view pins, with their valid slices in the
    /// reflection file: both slots are taken, so the data goes through the log.
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

    /// Whether a page among them is pinned by a view while slices that are written are valid in
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
    pub(super) fn check_marks(
        &self,
        marks: &ReadMarks,
        held: &[Held<'_>],
        mine: impl Fn(PageIndex) -> bool,
    ) -> Result<()> {
        if planted!(MarksNotChecked) {
            return Ok(());
        }
        // A growth takes no lock of ours: a length that was named is something that is read and not written.
        let reads_only =
            marks.was_told_length() || marks.pages().iter().any(|mark| !mine(mark.page));
        if reads_only {
            unless!(NotClosedBeforeMarks, close_before_looking(held));
        }
        let conflict = || Err(Error::Conflict { path: self.path() });
        if !marks.told_holds(self.len()) {
            // What was read has been cut off, or the length is another than the transaction was told.
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

    /// Gives the space of a large spilled entry back to the file system, once the entry has ended
    /// for good. The first extent of each stays, for the next one.
    pub(super) fn give_back(&self, extents: &Extents<'_>) {
        let rest = extents.after_the_first();
        if !rest.is_empty() {
            let at = layout::LOG_AREA + rest.start;
            // The operation is committed; space that cannot be given back is used again.
            let _used_again_otherwise = self.reflection.punch(at, rest.end - rest.start);
        }
    }

    pub(super) fn too_large(&self, needed: u64) -> Error {
        Error::TooLarge { path: self.path(), needed, limit: layout::LOG_AREA_LEN }
    }
}

/// Changes the mirror as the word on the medium was changed. The page or region is closed.
// Inlined, here and in what else a small write calls: what is handed to a function by reference is stored.
#[inline(always)]
pub(super) fn publish(region: &RegionState, change: &WordMove) {
    match change.word {
        WordId::Slice(page) => {
            region.set_slice_word(page.in_region(), change.old ^ change.mask);
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
