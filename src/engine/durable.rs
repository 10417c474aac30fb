//! Durable points: the cut, the record and the checkpoint.
//!
//! A mapping orders nothing, since the kernel writes dirty pages back whenever it likes. So a file
//! on page cache keeps two states apart. The *working* words are changed by every operation and
//! believed after a process crash. The *durable* words are believed after a power loss. `sync`
//! makes the working state the durable one, as a consistency point. It takes three steps:
//!
//! 1. **The cut.** The gate of cuts is closed for a moment, so no operation is half way. The pages
//!    that have changed are locked, and the gate opens. Their writers wait from here on. Readers,
//!    and writers of other pages, go on.
//! 2. **The record.** Once it is durable, recovery after a power loss returns to this point. A
//!    small record holds words and slices, and goes to the journal: one write and one barrier. For
//!    a large one both files are synced in place. The record then holds words only, and is a *full
//!    record* (`is_base`). The journal's *floor* follows the first record of a session: it says
//!    that the session has a record.
//! 3. **Publishing.** The durable words are stored, without a barrier: the record covers them until
//!    a checkpoint has synced both files. The locks open.
//!
//! `docs/model/durable_points.py` has the rules and their reasons. May import what the engine
//! imports.

use super::Engine;
use super::gates::Gate;
use super::journal::Journal;
use super::lanes::Lane;
use super::state::RegionState;
use super::stats::Counter;
use crate::bitmap::{Slices, Validity};
use crate::error::{Error, Result, SYNC_FOR_A_POINT, WRITE_A_POINT};
use crate::format::floor::{FLOOR_LEN, Floor};
use crate::format::journal::{Change, Head, push_change, record_len};
use crate::format::layout;
use crate::lock::{AllHeld, Held, lock_pages};
use crate::mutant::{planted, unless};
use crate::platform::{Copying, FileId};
use crate::primitive::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering};
use crate::store::MappedFile;
use crate::terms::Medium;
use crate::units::{PageIndex, RegionIndex, SLICE};

/// Longest cut, in bytes of slices, that may go to the journal. A longer cut is made durable in
/// place, as is one with a record longer than a quarter of the journal. In the range that was
/// measured, the journal was faster up to this length. See
/// `docs/decisions/journal-or-flush.md`.
const JOURNAL_AT_MOST: usize = 4 << 20;

/// What an engine keeps for durable points.
pub(crate) struct Durable {
    pub(crate) journal: Journal,
    /// Logical length at the last durable point.
    len: AtomicU64,
    /// Regions with a page that has changed since the last durable point, each at least once.
    regions: Mutex<Vec<RegionIndex>>,
    /// `true` if something was changed that no record describes. Then both files must be synced
    /// before the next record.
    must_flush: AtomicBool,
    /// `true` if everything that the home file's last block holds past the length is zero on the
    /// disk, or will be after the next flush. Read and written by the thread that holds `resizing`,
    /// or closes the file.
    rest_is_zero: AtomicBool,
    turns: Mutex<Turns>,
    turn_is_over: Condvar,
    /// The floor of the journal. Locked while it is written and until it is durable, which includes
    /// a sync of both files.
    floor: Mutex<Raised>,
    /// `true` if the last point that was due at an interval has failed, and none was made since.
    is_overdue: AtomicBool,
    /// The cause of that failure.
    why_overdue: Mutex<Option<String>>,
}

/// How far the floor of the journal was raised in this session.
#[derive(Default)]
struct Raised {
    /// The record number that the newest floor holds.
    number: u64,
    /// Which of the two places the next floor goes to.
    place: usize,
}

/// The turns of threads that make durable points. One thread leads a turn, and the others wait for
/// it.
#[derive(Default)]
struct Turns {
    /// Number of turns that were begun, and number of turns that have ended, made durable or not.
    begun: u64,
    over: u64,
    /// The last turn that made a durable point.
    made: u64,
}

/// The pages of a cut, locked, in ascending order.
struct Cut<'e> {
    pages: Vec<CutPage<'e>>,
    /// Declared before the locks, so that a panic poisons the handle first. A thread that waits for
    /// one of the locks must not go on after a panic.
    unfinished: Unfinished<'e>,
    /// The locks. Held until the durable point is made or has failed.
    held: AllHeld<'e>,
    len: u64,
}

/// How a cut becomes durable.
struct Way {
    /// `true` if the cut goes to the journal alone, `false` if both files are synced.
    by_journal: bool,
    /// What the record says of each page.
    changes: Vec<Change>,
    /// Bytes of slices that the record holds.
    bytes: usize,
}

struct CutPage<'e> {
    page: PageIndex,
    region: &'e RegionState,
    valid: Validity,
    changed: Slices,
}

/// Poisons the handle if a panic unwinds through a durable point, because the on-disk state is then
/// unknown.
struct Unfinished<'e> {
    engine: &'e Engine,
    is_over: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let cause = std::io::Error::other("a panic has cut it off");
            unless!(
                CutOffPointGoesOn,
                self.engine.poison(&Error::io(SYNC_FOR_A_POINT, self.engine.home.path(), cause))
            );
        }
    }
}

/// A guard of the thread that leads the current turn.
struct Lead<'e> {
    durable: &'e Durable,
    has_ended: bool,
}

impl Lead<'_> {
    fn end(&mut self, is_made: bool) {
        self.has_ended = true;
        let mut turns = self.durable.turns.lock();
        turns.over = turns.begun;
        if is_made {
            turns.made = turns.begun;
        }
        self.durable.turn_is_over.notify_all();
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        // Dropped by a panic: the threads that wait for this turn must not wait for ever.
        if !self.has_ended && !planted!(CutOffLeadStays) {
            self.end(false);
        }
    }
}

impl Durable {
    /// Makes the state after opening: nothing has changed since the durable point that was found.
    pub fn new(journal: Journal, len: u64) -> Self {
        Durable {
            journal,
            len: AtomicU64::new(len),
            regions: Mutex::new(Vec::new()),
            must_flush: AtomicBool::new(false),
            // A truncation before this opening may not be durable.
            rest_is_zero: AtomicBool::new(planted!(OpenedRestKnown)),
            turns: Mutex::new(Turns::default()),
            turn_is_over: Condvar::new(),
            floor: Mutex::new(Raised::default()),
            is_overdue: AtomicBool::new(false),
            why_overdue: Mutex::new(None),
        }
    }

    /// Records that a point that was due has failed.
    #[cold]
    pub fn set_overdue(&self, why: &Error) {
        *self.why_overdue.lock() = Some(why.as_cause());
        self.is_overdue.store(true, Ordering::Release);
    }

    /// Returns `true` if a point that was due has failed, and none was made since.
    #[inline]
    pub fn is_overdue(&self) -> bool {
        self.is_overdue.load(Ordering::Acquire)
    }

    /// Returns the cause of that failure, if no point was made since.
    pub fn why_overdue(&self) -> Option<String> {
        self.why_overdue.lock().clone()
    }

    /// Records that a point was made, or was not needed.
    fn point_is_made(&self) {
        if self.is_overdue() && !planted!(OverdueForGood) {
            self.is_overdue.store(false, Ordering::Release);
            *self.why_overdue.lock() = None;
        }
    }

    /// Records that a page of the region has changed, the first one since the last durable point.
    #[cold]
    pub fn note_region(&self, region: RegionIndex) {
        self.regions.lock().push(region);
    }

    /// Makes the next durable point sync both files: the journal alone would not be enough.
    pub fn must_flush(&self) {
        self.must_flush.store(true, Ordering::Release);
    }

    /// Records that the bytes past the length are being truncated. The truncation must be durable
    /// before the next point, because that point may belong to a longer file with zeroes there.
    pub fn end_was_cut(&self) {
        self.rest_is_zero.store(false, Ordering::Relaxed);
        self.must_flush();
    }

    /// Records that the file has grown.
    ///
    /// The system zeroed the rest of the block in which the file had ended. On some file systems
    /// (btrfs) it did so in the page cache only, and has not yet written that back. The new length
    /// may reach the disk before those zeroes do. So the first growth after a truncation or an
    /// opening must sync both files. The old length does not matter, since a file system's block
    /// may be longer than a page of this crate.
    pub fn has_grown(&self) {
        let is_known = self.rest_is_zero.swap(true, Ordering::Relaxed);
        if !is_known && !planted!(GrownRestNotFlushed) {
            self.must_flush();
        }
    }
}

impl Engine {
    /// Makes a durable point that holds everything that had returned when this was called. Calls
    /// that arrive while a point is being made share the next one: one of them leads, the others
    /// wait.
    pub(super) fn durable_point(&self, durable: &Durable) -> Result<()> {
        // A waiting thread must not keep its lane. Shared lanes are few, and the leader and the
        // writers need them.
        let _lane = planted!(FollowersKeepLanes).then(|| self.lane());
        let mut turns = durable.turns.lock();
        // A cut that was begun before may lack what this thread has written.
        let mine = turns.begun + 1;
        while turns.made < mine {
            if turns.begun > turns.over {
                durable.turn_is_over.wait(&mut turns);
                continue;
            }
            // No thread leads. A turn that failed made nothing for the threads that waited for it.
            turns.begun += 1;
            drop(turns);
            let mut lead = Lead { durable, has_ended: false };
            // The leader may have to wait for a lane here. That wait ends, because a thread that
            // has a lane never waits for a turn.
            let lane = self.lane();
            let result = {
                // The cut has one length, and no thread finishes a truncation meanwhile.
                let _no_resizing = self.resizing.read();
                self.make_durable_point(&lane, durable, false)
            };
            drop(lane);
            lead.end(result.is_ok() || planted!(FailedTurnCounts));
            return result;
        }
        Ok(())
    }

    /// Returns `true` if the page is part of a durable point that is being made. A writer of the
    /// page then has to wait for the disk.
    #[inline]
    pub(super) fn is_in_cut(&self, page: PageIndex) -> bool {
        let region = self.state.touched(page.region());
        region.is_some_and(|region| region.pages[page.in_region()].lock.is_held_still())
    }

    /// Parks the calling thread until the durable point that is being made is over, and returns
    /// `true` if there was one. The caller has no lane and is inside no gate: the thread that makes
    /// the point may need a lane, and closes a gate.
    #[cold]
    pub(super) fn wait_for_point(&self) -> bool {
        let Some(durable) = &self.durable else { return false };
        let mut turns = durable.turns.lock();
        let turn = turns.begun;
        let is_being_made = turn > turns.over;
        while turns.over < turn {
            durable.turn_is_over.wait(&mut turns);
        }
        is_being_made
    }

    /// Returns `true` if something may have changed since the last durable point.
    pub(super) fn has_changed(&self) -> bool {
        self.durable.as_ref().is_some_and(|durable| {
            !durable.regions.lock().is_empty() || durable.len.load(Ordering::Relaxed) != self.len()
        })
    }

    /// Makes a durable point for a caller that holds `resizing` for writing. No other thread can
    /// make one then.
    pub(super) fn durable_point_while_resizing(
        &self,
        lane: &Lane,
        durable: &Durable,
        flush: bool,
    ) -> Result<()> {
        self.make_durable_point(lane, durable, flush)
    }

    fn make_durable_point(&self, lane: &Lane, durable: &Durable, flush: bool) -> Result<()> {
        self.check_usable()?;
        let mut cut = self.take_cut(durable);
        let result = self.make_point_of(&cut, lane, durable, flush);
        if result.is_ok() {
            durable.point_is_made();
        }
        cut.unfinished.is_over = true;
        result
    }

    fn make_point_of(
        &self,
        cut: &Cut<'_>,
        lane: &Lane,
        durable: &Durable,
        flush: bool,
    ) -> Result<()> {
        let must_flush = durable.must_flush.load(Ordering::Acquire) && !planted!(CutNotFlushed);
        let flush = flush || must_flush;
        if cut.pages.is_empty() && cut.len == durable.len.load(Ordering::Relaxed) && !flush {
            return Ok(());
        }
        let way = self.choose_way(lane, durable, cut, flush).inspect_err(|_| {
            // Nothing has happened: the next point includes these pages.
            cut.pages.iter().for_each(|page| self.note_changed(page.page));
        })?;
        // After a failure from here on, a power loss may return to either of the two points.
        // Nothing may be written that fits only one of them.
        if planted!(WordsBeforeRecord) {
            self.publish_durable(durable, cut);
        }
        self.make_record_durable(lane, durable, cut, &way)
            .inspect_err(|error| unless!(FailedSyncForgotten, self.poison(error)))?;
        self.publish_durable(durable, cut);
        if durable.journal.is_half_full() {
            self.background.ask_for_checkpoint(&self.this);
        }
        Ok(())
    }

    /// Takes the cut: step 1.
    fn take_cut<'e>(&'e self, durable: &Durable) -> Cut<'e> {
        // No operation is half way. So the pages that have changed are known, and what they hold is
        // one state.
        let gate = (!planted!(CutGateOpen)).then(|| self.lanes.shut(Gate::Cut));
        let mut cut = Cut {
            pages: Vec::new(),
            unfinished: Unfinished { engine: self, is_over: false },
            held: AllHeld::new(),
            len: self.len(),
        };
        let mut regions = std::mem::take(&mut *durable.regions.lock());
        regions.sort_unstable();
        regions.dedup();
        for index in regions {
            let Some(region) = self.state.touched(index) else { continue };
            let noted = super::plan::bits(region.take_changed());
            let locks = noted.clone().map(|n| &region.pages[n].lock);
            unless!(PointNotLocked, lock_pages(&region.lock, locks, &mut cut.held));
            for place in noted {
                let (page, changed) = (index.page(place), region.changed_slices(place));
                // Pages past the length are being truncated.
                if !changed.is_empty() && page.start() < cut.len {
                    let valid = region.validity(place);
                    cut.pages.push(CutPage { page, region, valid, changed });
                }
            }
        }
        // A transaction that has read these pages may still commit, although it finds them locked.
        cut.held.iter().for_each(Held::stays_as_it_is);
        drop(gate);
        cut
    }

    /// Decides whether the record of step 2 goes to the journal alone, and makes room for it.
    fn choose_way(
        &self,
        lane: &Lane,
        durable: &Durable,
        cut: &Cut<'_>,
        flush: bool,
    ) -> Result<Way> {
        let bytes = cut.pages.iter().map(|page| page.changed.count() * SLICE).sum::<usize>();
        let journal = &durable.journal;
        let needed = record_len(cut.pages.len(), bytes / SLICE);
        let by_journal = !flush
            && bytes <= JOURNAL_AT_MOST
            && needed <= journal.longest()
            && (journal.has_room(needed) || {
                self.checkpoint(lane, durable)?;
                journal.has_room(needed)
            });
        let mut changes: Vec<Change> = Vec::with_capacity(cut.pages.len());
        for page in &cut.pages {
            let slices = if by_journal { page.changed } else { Slices::NONE };
            push_change(&mut changes, page.page, page.valid, slices);
        }
        if !by_journal {
            journal.grow_for_base(record_len(changes.len(), 0))?;
        }
        Ok(Way { by_journal, bytes: if by_journal { bytes } else { 0 }, changes })
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
        let len =
            if planted!(RecordOfOldLength) { durable.len.load(Ordering::Relaxed) } else { cut.len };
        let is_base = !way.by_journal && !planted!(FlushNotBase);
        let record = Head { number, is_base, len, changes: &way.changes };
        if record.is_base {
            // Everything that earlier records cover was synced, so they can make room. The newest
            // one is kept, so that a torn write leaves it.
            journal.forget_before(number);
        }
        // The commit point of the durable point.
        journal.append(&record, way.bytes, |to| {
            let pages = if way.by_journal { &cut.pages[..] } else { &[] };
            for page in pages {
                page.changed.runs().for_each(|run| self.append_slices(page, run, to));
            }
        })?;
        if number == 1 {
            unless!(FirstFloorMissing, self.begin_floor(durable, number)?);
        }
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

    /// Records in the reflection file that the session has a record, with this number. An older
    /// copy of the journal has no such record. Without the floor it would look complete, and the
    /// words of the session's beginning would count.
    ///
    /// Orders the floor before the durable words of the session's first point. So it comes before
    /// any store over the slots that only the session's beginning needs. Waits for this one block,
    /// once a session.
    fn begin_floor(&self, durable: &Durable, number: u64) -> Result<()> {
        let mut raised = durable.floor.lock();
        // A checkpoint that raised the floor to this number may have failed.
        self.check_usable()?;
        let Some((at, floor)) = self.next_floor(&mut raised, number) else { return Ok(()) };
        if planted!(FloorNotDurable) {
            self.reflection.copy_in(at, &floor, Copying::Cached);
            return Ok(());
        }
        let file = (self.reflection.file(), None);
        let written = self.platform.write_durably(file, FileId::Reflection, &floor, at);
        written.map_err(|e| Error::io_at(WRITE_A_POINT, self.reflection.path(), at, e))
    }

    /// Returns the next floor, which names the durable record `number`, and its offset. Returns
    /// `None` if the last floor already names that record. The caller makes this floor durable
    /// before the one after it, which goes to the other place.
    fn next_floor(&self, raised: &mut Raised, number: u64) -> Option<(u64, [u8; FLOOR_LEN])> {
        if number <= raised.number {
            return None;
        }
        let floor = {
            let superblock = self.superblock.lock();
            Floor { session: superblock.session, number }.encode(&superblock.uuid)
        };
        let at = layout::FLOORS[raised.place];
        raised.number = number;
        if !planted!(FloorInOnePlace) {
            raised.place = 1 - raised.place;
        }
        Some((at, floor))
    }

    /// Appends a run of a page's slices, each from its valid slot.
    fn append_slices(&self, page: &CutPage<'_>, run: std::ops::Range<usize>, to: &mut Vec<u8>) {
        let mut rest = run;
        while let Some(first) = rest.next() {
            let side = page.valid.side(first);
            let mut end = first + 1;
            while end < rest.end && page.valid.side(end) == side {
                end += 1;
            }
            rest.start = end;
            let (file, at) = self.slot(side, page.page.start() + (first * SLICE) as u64);
            let old = to.len();
            to.resize(old + (end - first) * SLICE, 0);
            // Changed slices were written, so their valid slots are allocated.
            file.copy_out(&mut to[old..], at);
        }
    }

    /// Publishes the durable words: step 3.
    fn publish_durable(&self, durable: &Durable, cut: &Cut<'_>) {
        for page in &cut.pages {
            debug_assert!(
                page.region.pages[page.page.in_region()].lock.is_held(),
                "nobody writes to a page of the cut before its durable word says so"
            );
            unless!(
                DurableWordNotStored,
                self.reflection.store_word_through(layout::durable_word(page.page), page.valid.0)
            );
            page.region.set_durable(page.page.in_region(), page.valid);
        }
        durable.len.store(cut.len, Ordering::Relaxed);
    }

    /// Syncs both files. Then only the newest record of the journal is still needed.
    pub(super) fn checkpoint(&self, lane: &Lane, durable: &Durable) -> Result<()> {
        // Read before the syncs: they may not include what a newer record covers.
        let number = durable.journal.newest();
        unless!(CheckpointNotSynced, self.sync_both(durable)?);
        durable.journal.forget_before(number);
        lane.stats.bump(Counter::Checkpoints, 1);
        Ok(())
    }

    /// Makes a checkpoint, if one is still due.
    pub(super) fn checkpoint_in_background(&self) -> Result<()> {
        match &self.durable {
            Some(durable) if durable.journal.is_half_full() => {
                self.checkpoint(&self.lane(), durable)
            }
            _ => Ok(()),
        }
    }

    /// Makes both files durable in place, and with them the journal's floor at its newest record. A
    /// failure poisons the handle.
    fn sync_both(&self, durable: &Durable) -> Result<()> {
        // The kernel reports a failed write-back only once. If a checkpoint and a flush synced at
        // the same time, one of them would get the error, and the other would go on.
        let mut raised = durable.floor.lock();
        self.check_usable()?;
        // Read with the lock held and before the syncs: the record with this number is durable.
        let newest = durable.journal.newest();
        let mut raise = || {
            if let Some((at, floor)) = self.next_floor(&mut raised, newest) {
                self.reflection.copy_in(at, &floor, Copying::Cached);
            }
        };
        // Before the syncs, which make the floor durable: the caller frees records once the syncs
        // are over.
        if !planted!(FloorNotRaised) && !planted!(FloorAfterSync) {
            raise();
        }
        if self.medium == Medium::Ram {
            // In RAM nothing survives a power loss, and everything survives a process crash.
            return Ok(());
        }
        let sync = |file: &MappedFile| {
            // After a failed sync, the kernel may have dropped dirty pages and forgotten the error.
            // Nothing that this mapping shows can then be trusted to reach the disk.
            let again = |e| if planted!(RetryAfterFailedSync) { file.sync_data() } else { Err(e) };
            file.sync_data().or_else(again).map_err(|e| Error::io(SYNC_FOR_A_POINT, file.path(), e))
        };
        let both = || {
            unless!(FlushHomeNotSynced, sync(&self.home)?);
            unless!(FlushReflectionNotSynced, sync(&self.reflection)?);
            Ok(())
        };
        both().inspect_err(|error| unless!(FailedCheckpointForgotten, self.poison(error)))?;
        if planted!(FloorAfterSync) {
            raise();
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use crate::{AtomicMappedFile, Medium};

    fn pair() -> (tempfile::TempDir, AtomicMappedFile) {
        let folder = tempfile::tempdir().expect("a folder");
        let options =
            AtomicMappedFile::options().create(true).len(1 << 20).medium(Medium::PageCache);
        let file = options.open(folder.path().join("state.dat")).expect("a pair");
        file.write_at(&[1; 100], 50).expect("a write");
        (folder, file)
    }

    /// Longer than any step takes here, even on a loaded machine.
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(600);

    /// A panic of the leader must end its turn. Otherwise the threads that wait for that turn wait
    /// for ever.
    #[test]
    fn nobody_waits_for_a_leader_that_a_panic_has_ended() {
        let (_folder, file) = pair();
        let clone = || file.try_clone().expect("a handle");
        let (leaders, followers) = (clone(), clone());
        let (say, said) = std::sync::mpsc::channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let leader = std::thread::spawn(move || {
            let durable = leaders.engine().durable.as_ref().expect("points are kept");
            durable.turns.lock().begun += 1;
            let _lead = Lead { durable, has_ended: false };
            say.send(()).expect("the test waits");
            wait.recv().expect("the test lets it go");
            panic!("as planned");
        });
        said.recv().expect("somebody leads");
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let engine = followers.engine();
            let durable = engine.durable.as_ref().expect("points are kept");
            let _nobody_asks = tell.send(engine.durable_point(durable).is_ok());
        });
        go.send(()).expect("the leader waits");
        assert!(leader.join().is_err());
        assert_eq!(told.recv_timeout(PATIENCE), Ok(true), "it leads itself now");
    }

    /// More threads than lanes call `sync`. If those that wait for another thread's point kept
    /// their shared lanes, the remaining threads would have to poll for one.
    #[test]
    fn a_thread_that_waits_for_a_point_keeps_no_lane() {
        let (_folder, file) = pair();
        let of = |file: &AtomicMappedFile| file.try_clone().expect("a handle");
        let points = file.engine().durable.as_ref().expect("points are kept");
        points.turns.lock().begun += 1;
        let lead = Lead { durable: points, has_ended: false };
        let (say, said) = std::sync::mpsc::channel();
        let followers: Vec<_> = (0..layout::LANE_COUNT + 8)
            .map(|_| {
                let (file, say) = (of(&file), say.clone());
                std::thread::spawn(move || {
                    say.send(()).expect("the test waits");
                    file.sync().expect("a point");
                })
            })
            .collect();
        (0..followers.len()).for_each(|_| said.recv().expect("a thread begins"));
        // Give the threads time to reach the point, which is not being made yet.
        std::thread::sleep(std::time::Duration::from_millis(100));
        let (tell, told) = std::sync::mpsc::channel();
        let writer = of(&file);
        std::thread::spawn(move || {
            let _nobody_asks = tell.send(writer.write_at(&[3; 10], 9000).is_ok());
        });
        assert_eq!(told.recv_timeout(PATIENCE), Ok(true), "a writer finds a lane");
        drop(lead);
        followers.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }

    /// A writer that waits for a page in a cut must be parked without a lane. It must not poll with
    /// a lane held.
    #[test]
    fn a_writer_of_a_page_whose_point_is_being_made_is_parked_until_that_is_over() {
        let (_folder, file) = pair();
        let points = file.engine().durable.as_ref().expect("points are kept");
        assert!(!file.engine().wait_for_point(), "none is being made");
        points.turns.lock().begun += 1;
        let lead = Lead { durable: points, has_ended: false };
        let writer = file.try_clone().expect("a handle");
        let cut = file.engine().take_cut(points);
        assert!(file.engine().is_in_cut(PageIndex(0)) && !file.engine().is_in_cut(PageIndex(1)));
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let _nobody_asks = tell.send(writer.write_at(&[3; 10], 0).is_ok());
        });
        let early = told.recv_timeout(std::time::Duration::from_millis(50));
        assert!(early.is_err(), "the page is locked");
        let mut cut = cut;
        cut.unfinished.is_over = true;
        drop(cut);
        drop(lead);
        assert_eq!(told.recv_timeout(PATIENCE), Ok(true), "it is woken");
    }

    /// A writer that waited for a page of the cut must not store in place after a panic. The point
    /// may cover the bytes that it would overwrite.
    #[test]
    fn a_panic_in_the_middle_of_a_point_is_an_error_for_who_waits_for_its_pages() {
        let (_folder, file) = pair();
        let (leaders, writers) =
            (file.try_clone().expect("a handle"), file.try_clone().expect("a handle"));
        let (say, said) = std::sync::mpsc::channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let leader = std::thread::spawn(move || {
            let engine = leaders.engine();
            let _cut = engine.take_cut(engine.durable.as_ref().expect("points are kept"));
            say.send(()).expect("the test waits");
            wait.recv().expect("the test lets it go");
            panic!("as planned");
        });
        said.recv().expect("it has its pages");
        let writer = std::thread::spawn(move || writers.write_at(&[2; 100], 50));
        // Give the writer time to reach the lock.
        std::thread::sleep(std::time::Duration::from_millis(50));
        go.send(()).expect("the leader waits");
        assert!(leader.join().is_err());
        assert!(writer.join().expect("no panic").is_err(), "nobody knows what is durable");
        assert!(file.sync().is_err() && file.write_at(&[2], 0).is_err(), "for good");
    }
}
