//! One durable point: the cut, the record, and its publication.
//!
//! The functions are the three steps that `durable` describes.
//!
//! May import `plan`, `pair`, and what lies below them.

use crate::bitmap::{Slices, Validity};
use crate::config::options::journal_len_by_default;
use crate::engine::Engine;
use crate::engine::durable::Durable;
use crate::engine::worker::Request;
use crate::error::{Result, SYNC_FOR_A_POINT};
use crate::format::journal::{Change, Head, push_change, record_len};
use crate::format::layout;
use crate::lock::{LockGuard, LockGuards, lock_pages};
use crate::mutant::{planted, unless};
use crate::pair::gates::{ClosedGate, Gate};
use crate::pair::log::lane::Lane;
use crate::pair::log::lanes::InUse;
use crate::pair::region::RegionState;
use crate::pair::stats::Counter;
use crate::pair::unfinished::Unfinished;
use crate::primitive::Ordering;
use crate::units::{PageIndex, SLICE};

/// Longest cut, in bytes of slices, that may go to the journal. A longer cut is made durable in
/// place, as is one with a record longer than a quarter of the journal. In the range that was
/// measured, the journal was faster up to this length. See
/// `docs/decisions/journal-or-flush.md`.
const JOURNAL_AT_MOST: usize = 4 << 20;

/// The pages of a cut, locked, in ascending order.
pub(super) struct Cut<'e> {
    pages: Vec<CutPage<'e>>,
    /// Declared before the locks, so that a panic poisons the handle first.
    unfinished: Unfinished<'e>,
    /// The locks. Held until the durable point is made or has failed.
    held: LockGuards<'e>,
    len: u64,
}

impl Cut<'_> {
    /// Ends the point, and opens the locks.
    pub(super) fn end(self) {
        self.unfinished.end();
    }
}

/// How a cut becomes durable.
struct Way {
    /// `true` if the cut goes to the journal alone, `false` if both files are synced.
    by_journal: bool,
    /// The record's statement about each page.
    changes: Vec<Change>,
    /// Bytes of slices that the record holds.
    bytes: usize,
    /// The sums of the pages that the record holds.
    sums: Vec<u64>,
}

/// The gate of cuts, for one that takes a cut.
pub(in crate::engine) enum CutGate<'g> {
    /// Open. It is closed for the cut.
    Open,
    /// Closed, and it stays closed.
    Closed(#[expect(dead_code, reason = "a proof")] &'g ClosedGate<'g>),
    /// Closed until the cut is taken.
    ClosedUntilCut(ClosedGate<'g>),
}

struct CutPage<'e> {
    page: PageIndex,
    region: &'e RegionState,
    valid: Validity,
    changed: Slices,
}

impl Engine {
    /// Makes a durable point for a caller that holds `resizing` for writing. No other thread can
    /// make one then.
    pub(in crate::engine) fn durable_point_while_resizing(
        &self,
        lane: &InUse<'_>,
        durable: &Durable,
        gate: CutGate<'_>,
    ) -> Result<()> {
        self.make_durable_point(lane, durable, gate)
    }

    /// Prepares the durable point of a shrink to `new` bytes before the shrink is committed. Behind
    /// the commit a full disk would leave a length without its point. Takes the room of the record,
    /// and keeps what the point would keep of the pages that have changed and stay. The shrink
    /// writes `written` pages itself, and keeps what it goes over.
    ///
    /// Returns the gate of cuts, closed: nothing else changes until the point has its cut. The
    /// caller holds `resizing` for writing.
    ///
    /// # Errors
    /// As [`keep`](Self::keep) and `Journal::grow_for_base`: nothing has happened.
    pub(in crate::engine) fn prepare_point_of_shrink(
        &self,
        lane: &InUse<'_>,
        durable: &Durable,
        (new, written): (u64, usize),
    ) -> Result<ClosedGate<'_>> {
        let gate = self.lanes.close(Gate::Cut);
        let cut = self.take_cut(durable, CutGate::Closed(&gate));
        // The page that the new end cuts has a new sum.
        let pages = cut.pages.len() + written + 1;
        let stays = cut.pages.iter().filter(|page| page.page.start() < new);
        // Not drained: the point syncs the store before it gives up a slot.
        let stays = stays.map(|page| (page.page, page.changed));
        let kept = match planted!(ShrinkKeepsLater) {
            true => Ok(false),
            false => self.keep(lane, stays),
        };
        let prepared = kept.and_then(|_| {
            if planted!(ShrinkRecordUnreserved) {
                return Ok(());
            }
            durable.journal.grow_for_base(record_len(pages, 0, 0))
        });
        // They have been in no point.
        cut.pages.iter().for_each(|page| self.note_changed(page.page));
        cut.end();
        prepared.map(|()| gate)
    }

    /// Makes a durable point of the state at the cut that it takes.
    pub(super) fn make_durable_point(
        &self,
        lane: &InUse<'_>,
        durable: &Durable,
        gate: CutGate<'_>,
    ) -> Result<()> {
        self.check_usable()?;
        let cut = self.take_cut(durable, gate);
        let result = self.write_point(&cut, lane, durable);
        if result.is_ok() {
            durable.point_is_made();
        }
        cut.end();
        result
    }

    fn write_point(&self, cut: &Cut<'_>, lane: &InUse<'_>, durable: &Durable) -> Result<()> {
        // The last point is this one. A flush that is due comes before the next record.
        if cut.pages.is_empty()
            && cut.len == durable.len.load(Ordering::Relaxed)
            && !planted!(EmptyPointFlushed)
        {
            return Ok(());
        }
        let kept = self.keep_cut(lane, cut);
        let way = kept.and_then(|()| self.plan_point(lane, durable, cut)).inspect_err(|_| {
            // Nothing has happened: the next point includes these pages.
            cut.pages.iter().for_each(|page| self.note_changed(page.page));
        })?;
        // After a failure from here on, a power loss may return to either of the two points.
        // Nothing may be written that fits only one of them.
        if planted!(WordsBeforeRecord) {
            self.publish_point(durable, cut);
        }
        self.make_record_durable(lane, durable, cut, &way)
            .inspect_err(|error| unless!(FailedSyncForgotten, self.poison(error)))?;
        self.publish_point(durable, cut);
        if durable.journal.is_half_full() {
            // Without a thread, the point that finds no room makes the checkpoint itself.
            let _is_served = self.worker.request(Request::Checkpoint);
        }
        Ok(())
    }

    /// Takes the cut: step 1.
    pub(super) fn take_cut<'e>(&'e self, durable: &Durable, gate: CutGate<'_>) -> Cut<'e> {
        // No operation is half way. So the pages that have changed are known, and what they hold is
        // one state.
        let gate = match gate {
            CutGate::Open => (!planted!(CutGateOpen)).then(|| self.lanes.close(Gate::Cut)),
            CutGate::Closed(_) => None,
            CutGate::ClosedUntilCut(gate) => Some(gate),
        };
        let mut cut = Cut {
            pages: Vec::new(),
            unfinished: self.begin(SYNC_FOR_A_POINT),
            held: LockGuards::new(),
            len: self.len(),
        };
        for (index, pages) in self.take_changed(durable.consumer) {
            let Some(region) = self.state.loaded(index) else { continue };
            let noted = crate::bitmap::bits(pages);
            let locks = noted.clone().map(|n| &region.pages[n].lock);
            unless!(PointNotLocked, lock_pages(&region.lock, locks, &mut cut.held));
            for place in noted {
                let (page, changed) = (index.page(place), region.changed_slices(place));
                let has_changed = !changed.is_empty() || self.sum_has_moved(region, place);
                // Pages past the length are being truncated.
                if has_changed && page.start() < cut.len {
                    let valid = region.validity(place);
                    cut.pages.push(CutPage { page, region, valid, changed });
                }
            }
        }
        // A transaction that has read these pages may still commit, although it finds them locked.
        cut.held.iter().for_each(LockGuard::mark_stable);
        drop(gate);
        cut
    }

    /// Keeps what snapshots read from the slots that the point gives up: those of slices that have
    /// changed since the last point.
    fn keep_cut(&self, lane: &InUse<'_>, cut: &Cut<'_>) -> Result<()> {
        if self.epochs.is_on() {
            self.keep(lane, cut.pages.iter().map(|page| (page.page, page.changed)))?;
        }
        Ok(())
    }

    /// Decides whether the record of step 2 goes to the journal alone, and makes room for it.
    fn plan_point(&self, lane: &Lane, durable: &Durable, cut: &Cut<'_>) -> Result<Way> {
        let bytes = cut.pages.iter().map(|page| page.changed.count() * SLICE).sum::<usize>();
        let journal = &durable.journal;
        let sums = if self.has_sums() { cut.pages.len() } else { 0 };
        let needed = record_len(cut.pages.len(), bytes / SLICE, sums);
        // A file that is made empty and grows needs more than its first length was worth.
        journal.raise_full_len(journal_len_by_default(cut.len));
        let by_journal = !durable.must_flush.load(Ordering::Acquire)
            && bytes <= JOURNAL_AT_MOST
            && (journal.make_room(needed)
                || journal.fits(needed) && {
                    self.checkpoint(lane, durable)?;
                    journal.make_room(needed)
                });
        let mut changes: Vec<Change> = Vec::with_capacity(cut.pages.len());
        for page in &cut.pages {
            let slices = if by_journal { page.changed } else { Slices::NONE };
            push_change(&mut changes, page.page, page.valid, slices);
        }
        if !by_journal {
            journal.grow_for_base(record_len(changes.len(), 0, 0))?;
        }
        let sums = match by_journal && !planted!(RecordWithoutSums) {
            true => {
                self.sums_for_record(lane, cut.pages.iter().map(|page| (page.page, page.region)))?
            }
            false => Vec::new(),
        };
        Ok(Way { by_journal, bytes: if by_journal { bytes } else { 0 }, changes, sums })
    }

    /// Makes the record durable: step 2.
    fn make_record_durable(
        &self,
        lane: &Lane,
        durable: &Durable,
        cut: &Cut<'_>,
        way: &Way,
    ) -> Result<()> {
        let journal = &durable.journal;
        let number = journal.newest() + 1;
        if planted!(FloorTooEarly) {
            self.begin_floor(durable, number)?;
        }
        if !way.by_journal {
            // Before the record: the slots that it calls valid must be durable first. This also
            // makes the durable words of all earlier records durable.
            self.sync_both(durable)?;
            durable.must_flush.store(false, Ordering::Release);
        }
        // Before the record, by which the slots that were kept are free.
        self.sync_keeps()?;
        let len =
            if planted!(RecordOfOldLength) { durable.len.load(Ordering::Relaxed) } else { cut.len };
        let is_base = !way.by_journal && !planted!(FlushNotBase);
        let record = Head { number, is_base, len, changes: &way.changes, sums: &way.sums };
        if record.is_base {
            // Everything that earlier records cover was synced, so they can make room. The newest
            // one is kept, so that a torn write leaves it.
            journal.forget_before(number);
        }
        // The commit point of the durable point.
        journal.append(&record, way.bytes, |to| {
            let pages = if way.by_journal { &cut.pages[..] } else { &[] };
            for page in pages {
                self.append_slices(page, to);
            }
        })?;
        if number == 1 {
            unless!(FirstFloorMissing, self.begin_floor(durable, number)?);
        }
        unless!(NewestNotNoted, self.note_newest(number));
        if record.is_base {
            // This record is the newest now, so the one before it is no longer needed.
            journal.forget_before(number);
        }
        // Not earlier: a thread that waits for a point by this count must not go on before the
        // point is made.
        let way = if way.by_journal { Counter::JournalPoints } else { Counter::FlushPoints };
        lane.stats.bump(way, 1);
        Ok(())
    }

    /// Appends the changed slices of a page, each from its valid slot.
    fn append_slices(&self, page: &CutPage<'_>, to: &mut Vec<u8>) {
        for (side, run) in page.valid.runs(page.changed) {
            let (file, at) = self.slot(side, page.page.start() + (run.start * SLICE) as u64);
            let old = to.len();
            to.resize(old + run.len() * SLICE, 0);
            // Changed slices were written, so their valid slots are allocated.
            file.copy_out(&mut to[old..], at);
        }
    }

    /// Publishes the durable words: step 3.
    fn publish_point(&self, durable: &Durable, cut: &Cut<'_>) {
        for page in &cut.pages {
            debug_assert!(
                page.region.pages[page.page.in_region()].lock.is_locked(),
                "no writer changes a page of the cut before its durable word is stored"
            );
            unless!(
                DurableWordNotStored,
                self.reflection.store_word_through(layout::durable_word(page.page), page.valid.0)
            );
            page.region.set_durable(page.page.in_region(), page.valid);
            self.publish_durable_sum(page.page, page.region);
        }
        durable.len.store(cut.len, Ordering::Relaxed);
    }
}
