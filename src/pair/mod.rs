//! The state of one open pair of files, and the questions that every operation asks of it.
//!
//! The rooms of `pair` hold state and answer questions about it. They contain no operation.
//!
//! | room | holds |
//! |---|---|
//! | `session` | the length and the flags that all operations share |
//! | `page_table`, `region` | the state of pages and regions in DRAM |
//! | `load` | how that state is loaded from the files |
//! | `stamps` | the stamps of deployed pages, by which a read loads one word |
//! | `allocated`, `pieces` | what is known to be allocated |
//! | `ahead` | which chunks sequential writers will come to |
//! | `populate` | allocation before need |
//! | `budget` | how much storage the companions may take |
//! | `space` | the allocation of slots, words and log records |
//! | `log` | the lanes, their log records, and the log area |
//! | `dirty` | what has changed, for each consumer of changes |
//! | `epochs` | which snapshots are live, and what is read of them |
//! | `claims` | which slots no writer may store to, and for which claimant |
//! | `gates` | the gates that operations enter and another thread can close |
//! | `hints` | predictors from a thread's recent operations |
//! | `readiness` | whether a write finds its pages in their usual state |
//! | `read_set` | the types of a transaction's read set |
//! | `snapshots` | the snapshot store: what is live, what is kept, and where |
//! | `own_changes` | what a thread changes while it runs a transaction's closure |
//! | `sums` | the sums of pages |
//! | `stats` | the counters |
//!
//! May import what lies below the engine: `lock`, `mmap`, `format`, `bitmap`, `platform`, `units`.

pub mod ahead;
pub mod allocated;
pub mod budget;
pub mod claims;
pub mod dirty;
pub mod epochs;
pub mod gates;
pub mod hints;
pub mod load;
pub mod log;
pub mod marking;
pub mod own_changes;
pub mod page_table;
#[cfg(all(test, not(loom), not(shuttle)))]
pub mod pause;
pub mod pieces;
pub mod populate;
pub mod read_set;
pub mod readiness;
pub mod region;
pub mod session;
pub mod snapshots;
pub mod space;
pub mod stamps;
pub mod stats;
pub mod sums;
pub mod unfinished;

use crate::bitmap::Side;
use crate::config::Medium;
use crate::config::integrity::{DamageReporter, Integrity};
use crate::error::{Error, Result, WRITE_A_RUN};
use crate::format::entry::Seed;
use crate::format::flip_record::RingSeed;
use crate::format::layout::{self, LANE_COUNT};
use crate::lock::fence_own_writes;
use crate::mmap::{MappedFile, Sides};
use crate::mutant::{planted, unless};
use crate::pair::ahead::Ahead;
use crate::pair::allocated::Allocated;
use crate::pair::budget::Budget;
use crate::pair::dirty::{Consumer, DirtySet, Pages};
use crate::pair::epochs::Epochs;
use crate::pair::gates::{Gate, GateGuard};
use crate::pair::log::lane::Lane;
use crate::pair::log::lanes::{InUse, LaneKeeper, Lanes, next_file_number};
use crate::pair::log::log_area::LogArea;
use crate::pair::marking::Marking;
use crate::pair::page_table::PageTable;
use crate::pair::region::RegionState;
use crate::pair::session::Session;
use crate::pair::snapshots::Store;
use crate::pair::stamps::DeployedStamps;
use crate::pair::stats::{Counter, Stats};
use crate::platform::{Copying, Platform, barrier, fork};
use crate::primitive::{AtomicU64, Mutex, OnceLock, Ordering, RwLock, fence};
use crate::thread_cache::Tag;
use crate::units::{LaneIndex, PageIndex, SLICE, WORD};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Weak;

/// The open files of a pair, and what opening has found out about them.
pub(crate) struct Opened {
    pub platform: Platform,
    pub home: MappedFile,
    pub reflection: MappedFile,
    pub medium: Medium,
    pub len: u64,
    pub high_water: u64,
    pub max_len: u64,
    /// The state of all regions, of which none is loaded.
    pub state: PageTable,
    /// `true` if this open made the reflection file, so every word in it is zero.
    pub fresh: bool,
    /// The use of page sums.
    pub integrity: Integrity,
    pub damage_reporter: DamageReporter,
    /// The byte mark of the home file. `None` for a reader.
    pub marking: Option<Marking>,
    /// The budget of the companions' storage, if there is one.
    pub budget: Option<Budget>,
    /// The chunks to allocate ahead, if any are.
    pub ahead: Option<Ahead>,
    /// `true` if words are allocated for several chunks together: on a disk, and where no worker
    /// gives words back.
    pub words_ahead: bool,
}

/// The state of one open pair, shared by all threads.
pub(crate) struct Pair {
    pub platform: Platform,
    pub home: MappedFile,
    pub reflection: MappedFile,
    pub medium: Medium,
    pub max_len: u64,
    pub session: Session,
    pub state: PageTable,
    /// The stamps of deployed pages.
    pub stamps: DeployedStamps,
    pub lanes: Lanes,
    pub log_area: LogArea,
    pub seed: Seed,
    /// The seed of each lane's ring.
    pub ring_seeds: Box<[RingSeed]>,
    /// `true` if durable points are kept, and with them durable words.
    pub keeps_points: bool,
    /// `true` if cuts are taken, for durable points or by another consumer of changes. Then each
    /// operation that stores to slots enters the gate of cuts ([`enter_cut`](Self::enter_cut)), and
    /// notes the pages that it changes.
    pub keeps_cuts: bool,
    /// The changes that each consumer of changes has yet to take.
    pub dirty: DirtySet,
    /// The use of page sums.
    pub integrity: Integrity,
    /// Hears of damage.
    pub damage_reporter: DamageReporter,
    /// The live snapshots.
    pub epochs: Epochs,
    /// The byte mark of the home file. `None` for a reader.
    pub marking: Option<Marking>,
    pub fresh: bool,
    /// Locked for writing by `set_len` and by hole punching, one at a time. Locked for reading by a
    /// view that pins pages, and by a durable point. Taken before any page's or region's lock, and
    /// never inside a gate, since the thread that closes a gate may hold it.
    pub resizing: RwLock<()>,
    /// Serialises allocations, and keeps `set_len` from the allocation flags meanwhile.
    pub allocating: Mutex<()>,
    /// How many pages are known to be allocated.
    pub allocated: Allocated,
    /// The budget of the companions' storage, if there is one.
    pub budget: Option<Budget>,
    /// The chunks to allocate ahead, if any are.
    pub ahead: Option<Ahead>,
    /// `true` if words are allocated for several chunks together: on a disk, and where no worker
    /// gives words back.
    pub words_ahead: bool,
    /// The store of snapshots, from the first snapshot on.
    pub snapshots: OnceLock<Store>,
    /// Why nothing may be stored any more, if so.
    poisoned: OnceLock<String>,
    /// Why not even reads may begin, if so: an operation was cut off, so that memory may hold half
    /// of it.
    cut_off: OnceLock<String>,
    fork_generation: u64,
    number: u64,
    /// The tag of this file. A thread that remembers the same value may use the fast paths. Once
    /// the file is poisoned no thread's value matches, so every thread runs the full checks.
    tag: AtomicU64,
    keeper: Weak<dyn LaneKeeper>,
}

impl Pair {
    /// Makes the state of a pair of which nothing is loaded yet. `keeper` keeps its lanes.
    pub fn new(
        opened: Opened,
        seed: Seed,
        (keeps_points, keeps_cuts): (bool, bool),
        keeper: Weak<dyn LaneKeeper>,
    ) -> Self {
        let number = next_file_number();
        // Without the usual light fences, no thread may use the fast path of reads. None may for a
        // file with page sums: pages are verified first.
        let is_fast = barrier::is_usual() && opened.integrity == Integrity::Off;
        let tag = if is_fast { Tag::of(number) } else { Tag::NEVER };
        Pair {
            keeper,
            keeps_points,
            keeps_cuts,
            dirty: DirtySet::new(),
            integrity: opened.integrity,
            damage_reporter: opened.damage_reporter,
            epochs: Epochs::new(),
            state: opened.state,
            stamps: DeployedStamps::new(opened.max_len),
            platform: opened.platform,
            home: opened.home,
            reflection: opened.reflection,
            medium: opened.medium,
            max_len: opened.max_len,
            session: Session::new(opened.len, opened.high_water),
            lanes: Lanes::new(),
            log_area: LogArea::new(),
            seed,
            ring_seeds: (0..LANE_COUNT as u16).map(|n| seed.ring(LaneIndex(n))).collect(),
            marking: opened.marking,
            fresh: opened.fresh,
            resizing: RwLock::new(()),
            allocating: Mutex::new(()),
            allocated: Allocated::new(),
            budget: opened.budget,
            ahead: opened.ahead,
            words_ahead: opened.words_ahead,
            snapshots: OnceLock::new(),
            poisoned: OnceLock::new(),
            cut_off: OnceLock::new(),
            fork_generation: fork::generation(),
            number,
            tag: AtomicU64::new(tag.bits()),
        }
    }

    /// Records for all consumers of changes that a page is about to change.
    #[inline]
    pub(crate) fn note_changed(&self, page: PageIndex) {
        if self.keeps_cuts
            && !planted!(ChangeNotNoted)
            && let Some(region) = self.state.loaded(page.region())
            && region.note_changed(1 << page.in_region())
        {
            self.dirty.note_region(page.region());
        }
    }

    /// Enters the gate of cuts with this lane, if cuts are taken or the file has snapshots. No cut
    /// and no seal goes through the operation then. The caller holds no lock of a page or region,
    /// since a cut takes them while the gate is closed.
    ///
    /// A writer on a fast path that has not entered looks again under its lock:
    /// [`is_outside`](Self::is_outside).
    #[inline]
    pub(crate) fn enter_cut<'a>(&'a self, lane: &'a Lane) -> Option<GateGuard<'a>> {
        let is_gated = self.keeps_cuts || self.epochs.is_on();
        is_gated.then(|| self.lanes.enter(Gate::Cut, lane))
    }

    /// Returns `true` if a write on a fast path has to enter the gate of cuts and has not. The
    /// caller holds its lock. The file has got its first snapshot since the write began, and the
    /// write begins anew by the general way.
    #[inline(always)]
    pub(crate) fn is_outside(&self, inside: Option<&GateGuard<'_>>) -> bool {
        inside.is_none() && self.epochs.is_on() && !planted!(SwitchNotSeenUnderLock)
    }

    /// Takes the pages that have changed since the consumer took last. No thread commits meanwhile.
    pub(crate) fn take_changed(&self, consumer: Consumer) -> Pages {
        let take_bits = |index| self.state.loaded(index).map_or(0, RegionState::take_changed);
        self.dirty.take(consumer, take_bits)
    }

    /// Returns the logical length in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        let len = self.session.len.load(Ordering::SeqCst);
        #[cfg(all(test, not(loom), not(shuttle)))]
        pause::after_length();
        len
    }

    /// Publishes the new length, before this thread loads anything else. The length is committed.
    pub(crate) fn publish_len(&self, new: u64) {
        // Orders the exclusive locks taken before this against the length. Suppose a transaction
        // has made its locks exclusive and finds the old length. Then a thread that finds the new
        // length sees those locks. A reader that finds the new length also finds the pages closed
        // that the operation has written.
        fence(Ordering::SeqCst);
        self.session.len.store(new, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        #[cfg(all(test, not(loom), not(shuttle)))]
        pause::after_new_length();
    }

    /// Returns the length, ordered after this thread's own writes. For callers outside the engine.
    pub fn len_now(&self) -> u64 {
        fence_own_writes();
        self.len()
    }

    /// Returns the home file's path, for messages.
    pub fn path(&self) -> PathBuf {
        self.home.path().to_owned()
    }

    /// Returns the sum of all lanes' counters, with the counts of `space`.
    pub fn stats(&self) -> Stats {
        let reflection_allocated = self.allocated.bytes(Side::Reflection);
        Stats { reflection_allocated, ..self.lanes.stats() }
    }

    /// Returns `true` if the handle was inherited through `fork`.
    #[inline]
    pub fn is_forked(&self) -> bool {
        fork::generation() != self.fork_generation
    }

    /// Returns `true` if operations that store may begin.
    #[inline]
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_forked() && !self.is_poisoned()
    }

    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.get().is_some()
    }

    /// Fails if no operation may begin that stores something, makes it durable or gives space back.
    #[inline]
    pub fn check_usable(&self) -> Result<()> {
        if self.is_usable() { Ok(()) } else { self.fail_as_unusable(&self.poisoned) }
    }

    /// Fails as [`check_usable`](Self::check_usable) does, for an operation that may have waited
    /// for a gate or a lock since it began. The handle is poisoned before either opens.
    #[inline]
    pub(crate) fn check_usable_still(&self) -> Result<()> {
        if planted!(WaitForgetsFailure) { Ok(()) } else { self.check_usable() }
    }

    /// Fails if not even a read may begin. After a failure that only leaves open what the disk has,
    /// memory holds every operation as a whole, and a read needs no disk that can be written.
    #[inline]
    pub fn check_readable(&self) -> Result<()> {
        let is_readable = !self.is_forked() && self.cut_off.get().is_none();
        if is_readable { Ok(()) } else { self.fail_as_unusable(&self.cut_off) }
    }

    /// Fails as [`check_readable`](Self::check_readable) does, for a read that may have waited for
    /// a lock. The caller holds the locks of what it reads, or has their versions.
    #[inline]
    pub(crate) fn check_readable_still(&self) -> Result<()> {
        if planted!(WaitForgetsFailure) { Ok(()) } else { self.check_readable() }
    }

    // A cold function: an error is large to move, and there is seldom one.
    #[cold]
    fn fail_as_unusable(&self, why: &OnceLock<String>) -> Result<()> {
        if self.is_forked() {
            return Err(Error::Forked { path: self.path() });
        }
        let cause = why.get().cloned().unwrap_or_default();
        Err(Error::Poisoned { path: self.path(), cause })
    }

    /// Fails if the file was opened for reading alone.
    #[inline]
    pub fn check_writable(&self) -> Result<()> {
        if self.home.is_private() && !planted!(ReaderWrites) {
            return Err(Error::ReadOnly { path: self.path() });
        }
        Ok(())
    }

    /// Fails if the file cannot get `len` bytes long while it is open: for so many, no addresses
    /// are reserved.
    pub fn check_fits(&self, len: u64) -> Result<()> {
        let max_len = self.max_len;
        if len <= max_len {
            Ok(())
        } else {
            Err(Error::TooLong { path: self.path(), len, max_len })
        }
    }

    /// Makes room for exactly `len` more values. A lack of memory is an error, and does not end the
    /// process: the length comes from the file.
    pub fn reserve<T>(&self, to: &mut Vec<T>, len: u64) -> Result<()> {
        let has_room = usize::try_from(len).is_ok_and(|len| to.try_reserve_exact(len).is_ok());
        if has_room {
            return Ok(());
        }
        let source = std::io::ErrorKind::OutOfMemory.into();
        Err(Error::io("allocate memory", self.home.path(), source))
    }

    /// Poisons the handle, since it is unknown what the disk has: no operation may begin any more
    /// but a read, for good.
    pub(crate) fn poison(&self, cause: &Error) {
        event!(ERROR, file = %crate::error::shown(self.home.path()), %cause, "poisoned");
        let _first_cause_stays = self.poisoned.set(cause.as_cause());
        // Release: orders the cause before the tag.
        self.tag.store(Tag::NEVER.bits(), Ordering::Release);
    }

    /// Poisons the handle for reads, too: an operation was cut off in the middle of its stores.
    pub(crate) fn poison_cut_off(&self, cause: &Error) {
        // Before the tag: a thread that has no fast path any more finds this cause.
        let _first_cause_stays = self.cut_off.set(cause.as_cause());
        self.poison(cause);
    }

    /// Returns the range of `len` bytes at `offset`, if it lies within the file.
    #[inline]
    pub fn check_range(&self, offset: u64, len: u64) -> Result<Range<u64>> {
        let end = offset.checked_add(len);
        match end {
            Some(end) if end <= self.len() => Ok(offset..end),
            _ => self.check_range_cold(offset, len, end),
        }
    }

    /// Returns the range if it does not end before it begins, and lies within the file.
    pub fn check_bounds(&self, range: Range<u64>) -> Result<Range<u64>> {
        let Range { start, end } = range;
        match end.checked_sub(start) {
            Some(len) => self.check_range(start, len),
            None => Err(Error::Reversed { path: self.path(), start, end }),
        }
    }

    /// An [`Error::PastEnd`] tells the caller the file's length. So the length is loaded again
    /// here, ordered after this thread's own writes.
    #[cold]
    fn check_range_cold(&self, offset: u64, len: u64, end: Option<u64>) -> Result<Range<u64>> {
        let file_len = self.len_now();
        match end {
            Some(end) if end <= file_len => Ok(offset..end),
            _ => Err(Error::PastEnd { path: self.path(), offset, len, file_len }),
        }
    }

    /// Returns the calling thread's lane.
    #[inline]
    pub(crate) fn lane(&self) -> InUse<'_> {
        self.lanes.mine(self.number, &self.keeper)
    }

    /// Returns the calling thread's lane, for a write on a fast path. Returns `None` inside the
    /// closure of a transaction, where the slow path must record what the thread changes
    /// (`pair::own_changes`).
    #[inline]
    pub(crate) fn lane_to_write(&self) -> Option<InUse<'_>> {
        self.lanes.mine_to_write(self.number, &self.keeper)
    }

    /// Returns the file's number in this process.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the calling thread's lane, after a fence for the thread's own writes if it needs
    /// one: [`fence_own_writes`]. For a thread that is about to load what other threads may have
    /// written.
    #[inline]
    pub(crate) fn lane_fenced(&self) -> InUse<'_> {
        let has_written = fence_own_writes();
        let lane = self.lane();
        if has_written {
            lane.recent.note_write(lane.reads());
        }
        lane
    }

    /// Returns the calling thread's lane in one comparison. Succeeds if the file is usable, the
    /// thread worked on it last, and the thread has published nothing since.
    #[inline(always)]
    pub(crate) fn cached_lane(&self) -> Option<&Lane> {
        // Acquire: a thread that finds the file poisoned also finds the cause.
        self.lanes.cached_lane(|| Tag::from_bits(self.tag.load(Ordering::Acquire)))
    }

    /// Returns the lane as `cached_lane` does, but only if the thread has published something.
    #[inline]
    pub(crate) fn cached_lane_dirty(&self) -> Option<&Lane> {
        // Acquire: as in `cached_lane`.
        let tag = || Tag::from_bits(self.tag.load(Ordering::Acquire)).having_published();
        self.lanes.cached_lane(tag)
    }

    /// Returns the lane as `cached_lane` does, for a writer. The thread may have published
    /// something.
    #[inline(always)]
    pub(crate) fn cached_lane_for_write(&self) -> Option<&Lane> {
        // Acquire: as in `cached_lane`.
        self.lanes.cached_lane_for_write(|| Tag::from_bits(self.tag.load(Ordering::Acquire)))
    }

    /// Waits until this thread's earlier flushed stores are durable. `Stats` counts these
    /// drains: all of operations, and none of superblocks and of recovery.
    #[inline]
    pub(crate) fn drain(&self, lane: &Lane) {
        self.platform.drain();
        lane.stats.bump(Counter::Drains, 1);
    }

    /// Returns the file and the offset of the slot on `side` for the home byte at `offset`.
    #[inline]
    pub(crate) fn slot(&self, side: Side, offset: u64) -> (&MappedFile, u64) {
        match side {
            Side::Home => (&self.home, offset),
            Side::Reflection => (&self.reflection, layout::reflection(offset)),
        }
    }

    /// Returns both slots of the home bytes at `offset`, the home slot first. Bit `n` of a page's
    /// [`Validity`] selects the slot of line `n`: the valid one, or the one to copy to.
    ///
    /// [`Validity`]: crate::bitmap::Validity
    #[inline]
    pub(crate) fn slots(&self, offset: u64) -> Sides<'_> {
        Sides::new([&self.home, &self.reflection], [offset, layout::reflection(offset)])
    }

    /// Waits until every read section that is open now has ended. Must not be called from a read
    /// section.
    pub(crate) fn wait_for_read_sections(&self) {
        self.lanes.synchronize();
    }

    /// Stores lines to the reflection file. The next drain makes them durable.
    #[inline]
    pub(crate) fn store_lines(&self, lane: &Lane, at: u64, lines: &[[u64; SLICE / WORD]]) {
        for (at, line) in (at..).step_by(SLICE).zip(lines) {
            self.reflection.store_line(at, *line);
        }
        lane.stats.bump(Counter::BytesWritten, (lines.len() * SLICE) as u64);
    }

    /// Stores whole slices by a call, so that no page faults. Otherwise as [`store`](Self::store).
    /// After an error any part may have been stored, and the handle is poisoned.
    pub(crate) fn store_by_call(
        &self,
        lane: &Lane,
        file: &MappedFile,
        at: u64,
        bytes: &[u8],
    ) -> Result<()> {
        // If the call itself brought the pages into the cache, they would be large ones. A later
        // store to one line of such a page would make the kernel write all of it.
        file.will_need(at, bytes.len() as u64);
        match file.write_file(bytes, at) {
            Ok(()) => {
                lane.stats.bump(Counter::BytesWritten, bytes.len() as u64);
                Ok(())
            }
            // A limit of this process counts for calls alone. A mapping is not limited.
            Err(e) if e.kind() == io::ErrorKind::FileTooLarge && !planted!(LimitFailsRun) => {
                self.store(lane, file, at, bytes);
                Ok(())
            }
            Err(_) if planted!(RunFailureIgnored) => Ok(()),
            Err(e) => {
                let error = Error::io_at(WRITE_A_RUN, file.path(), at, e);
                // On a mount that writes synchronously (`-o sync`) the error may be the one report
                // of an earlier write-back, which the next sync would not get.
                unless!(FailedRunForgotten, self.poison(&error));
                Err(error)
            }
        }
    }

    /// Stores bytes to `file`. The next drain makes them durable.
    #[inline]
    pub(crate) fn store(&self, lane: &Lane, file: &crate::mmap::MappedFile, at: u64, bytes: &[u8]) {
        file.copy_in(at, bytes, Copying::BySize);
        let lines = (at % SLICE as u64 + bytes.len() as u64).div_ceil(SLICE as u64);
        lane.stats.bump(Counter::BytesWritten, lines * SLICE as u64);
    }
}
