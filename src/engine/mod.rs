//! The engine of one open pair of files: makes operations atomic and durable.
//!
//! Owns: everything that the handles of one file share. One responsibility a file:
//!
//! | file | holds |
//! |---|---|
//! | `state` | what DRAM keeps for each page and region |
//! | `lanes` | the lanes: claims of threads, and DRAM's copies of flip records |
//! | `gates` | the gates that operations enter and another thread can close |
//! | `log_area` | the extents for log records that do not fit their lane |
//! | `space` | allocation of slots, words and log records |
//! | `pieces` | which pages of a partly allocated chunk are allocated |
//! | `gather` | copies out of the valid slots |
//! | `free_slots` | copies into the free slots |
//! | `read` | consistent reads, in general |
//! | `read_in_page` | the fast path of reads within one page |
//! | `read_in_region` | the fast path of reads of several uniform pages in one region |
//! | `read_marks` | the read set of a transaction |
//! | `own_changes` | what a thread changes while it runs a transaction's closure |
//! | `at_home` | the stamps of deployed pages, with which a read loads one word |
//! | `plan` | which pages, regions, words and locks an operation needs |
//! | `commit` | writes in general, and the choice of a commit protocol |
//! | `in_page` | writes within one page |
//! | `small` | the fast path of small writes |
//! | `one_store` | direct stores by one instruction, where only the process can crash |
//! | `whole` | the fast path of page-aligned writes within one region |
//! | `recent` | predictors from a thread's recent operations |
//! | `ask` | prefetches for operations over several pages |
//! | `ways` | the commit protocols, step by step |
//! | `vouched` | the logged flip, which commits with one drain |
//! | `live` | conflicts with active flip records, and their invalidation |
//! | `deploy` | deployment: copies of valid slices to the home file |
//! | `come_home` | deployment after reads that found pages not deployed |
//! | `together` | deployment of fragmented pages by page-aligned writes |
//! | `pin_in_page` | the fast path of views within one page |
//! | `resize` | changes of the file's length |
//! | `clean_up` | zeroes past the file's length |
//! | `in_place` | rewrites of slices that have changed since the last durable point |
//! | `durable` | durable points |
//! | `journal` | the journal with the records of durable points |
//! | `background` | the worker thread |
//! | `session` | writes of the superblock and the names |
//! | `copy` | a read of the whole file as one state |
//! | `stats` | the counters |
//! | `sync`, `close` | `sync` on each medium, and the end of a session |
//!
//! Invariant over all of them: a thread in a read section of its lane never waits for a page's or a
//! region's lock, so `wait_for_readers` always ends. Imports go downwards: `lock`, `store`,
//! `format`, `bitmap`, `platform`, `units`, `error`.

mod ask;
mod at_home;
mod background;
pub(crate) mod clean_up;
mod close;
mod come_home;
pub(crate) mod commit;
mod copy;
mod deploy;
pub(crate) mod durable;
mod free_slots;
pub(crate) mod gates;
mod gather;
mod in_page;
mod in_place;
pub(crate) mod journal;
pub(crate) mod lanes;
mod live;
mod log_area;
#[cfg(all(test, loom))]
mod loom_models;
mod one_store;
pub(crate) mod own_changes;
#[cfg(all(test, not(loom), not(shuttle)))]
mod pause;
mod pieces;
mod pin_in_page;
mod plan;
pub(crate) mod read;
mod read_in_page;
mod read_in_region;
pub(crate) mod read_marks;
#[cfg(all(test, not(loom), not(shuttle)))]
mod reads_beside_a_cut;
mod recent;
mod resize;
pub(crate) mod session;
mod small;
pub(crate) mod space;
mod state;
pub(crate) mod stats;
mod sync;
mod together;
mod vouched;
mod ways;
mod whole;

use crate::bitmap::Side;
use crate::error::{Error, Result};
use crate::format::entry::Seed;
use crate::format::layout::{self, LANE_COUNT};
use crate::format::superblock::Superblock;
use crate::format::vouch::RingSeed;
use crate::lock::after_own_writes;
use crate::mutant::planted;
use crate::platform::{Platform, barrier, fork};
use crate::primitive::{AtomicBool, AtomicU64, Mutex, OnceLock, Ordering, RwLock};
use crate::registry::Registration;
use crate::store::{MappedFile, Sides};
use crate::terms::{DeployPolicy, Durability, Medium};
use crate::thread::Tag;
use crate::units::{LaneIndex, PAGES_PER_REGION, RegionIndex};
use at_home::AtHome;
use background::Background;
use crossbeam_utils::CachePadded;
use durable::Durable;
use lanes::{InUse, LaneKeeper, Lanes};
use log_area::LogArea;
use one_store::OneStore;
use read_marks::Watched;
use session::Companions;
use small::Small;
use state::{RegionState, State};
use stats::{Counter, Stats};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;
use together::Lost;

/// What `options` hands over once files, medium and recovery are settled.
pub(crate) struct Setup {
    pub platform: Platform,
    pub home: MappedFile,
    pub reflection: MappedFile,
    pub medium: Medium,
    pub policy: DeployPolicy,
    pub len: u64,
    pub high_water: u64,
    pub max_len: u64,
    pub superblock: Superblock,
    /// The registrations of the home file and the reflection file.
    pub registrations: [Registration; 2],
    /// The names of the reflection file and the journal.
    pub companions: Companions,
    /// `true` if every mount of the files' file systems shares the page cache that is stored to.
    pub cache_is_shared: bool,
    /// `true` if this open made the reflection file, so every word in it is zero.
    pub fresh: bool,
    /// What is kept for durable points. `None` where no durable points are kept.
    pub durable: Option<Durable>,
    pub durability: Durability,
    /// How often durable points are made without a call of `sync`.
    pub sync_every: Option<Duration>,
}

pub(crate) struct Engine {
    pub(crate) platform: Platform,
    pub(crate) home: MappedFile,
    pub(crate) reflection: MappedFile,
    pub(crate) medium: Medium,
    pub(crate) max_len: u64,
    policy: DeployPolicy,
    pub(crate) durability: Durability,
    /// Logical length. The length word on the medium is its durable copy.
    len: AtomicU64,
    /// Cached copy of the high-water word. Changed under `resizing`.
    high_water: AtomicU64,
    state: State,
    /// The stamps of deployed pages.
    at_home: AtHome,
    /// The fragmentation debt of reads. In a cache line of its own, since readers store to it.
    lost: CachePadded<Lost>,
    /// How often pages were changed that transactions watch.
    watched: Watched,
    lanes: Lanes,
    log_area: LogArea,
    seed: Seed,
    /// The fast path that small writes take.
    small: Small,
    /// The direct stores that are possible.
    one_store: OneStore,
    /// The seed of each lane's ring.
    ring_seeds: Box<[RingSeed]>,
    superblock: Mutex<Superblock>,
    registrations: Mutex<Option<[Registration; 2]>>,
    companions: Companions,
    cache_is_shared: bool,
    fresh: bool,
    /// Locked for writing by `set_len` and by hole punching, one at a time. Locked for reading by a
    /// view that pins pages, and by a durable point. Taken before any page's or region's lock, and
    /// never inside a gate, since the thread that closes a gate may hold it.
    resizing: RwLock<()>,
    /// Set while a shrink looks for pins and truncates. Checked by views that pin without
    /// `resizing`.
    cutting: AtomicBool,
    /// Serialises allocations, and keeps `set_len` from the allocation flags meanwhile.
    allocating: Mutex<()>,
    /// Taken by transactions that have lost too often, so that they run one at a time.
    pub(crate) turns: Mutex<()>,
    poisoned: OnceLock<String>,
    closed: AtomicBool,
    fork_generation: u64,
    number: u64,
    /// The tag of this file. A thread that remembers the same value may use the fast paths. Once
    /// the file is poisoned no thread's value matches, so every thread runs the full checks.
    tag: AtomicU64,
    me: Weak<dyn LaneKeeper>,
    this: Weak<Engine>,
    durable: Option<Durable>,
    background: Background,
}

impl Engine {
    pub fn new(setup: Setup) -> Arc<Self> {
        let seed = Seed::new(&setup.superblock.uuid, setup.superblock.session);
        // On a simulated machine, all work is done by the thread that requests it.
        let small = Small::of(&setup.platform, setup.durable.is_some(), setup.policy);
        let one_store = OneStore::of(&setup.platform, small);
        let may_run = setup.platform.may_work_in_background() && cfg!(not(any(loom, shuttle)));
        // Without durable points there is no work at an interval.
        let every = setup.sync_every.filter(|_| setup.durable.is_some());
        let number = lanes::next_file_number();
        // Without the usual light fences, no thread may use the fast path of reads.
        let tag = if barrier::is_usual() { Tag::of(number) } else { Tag::NEVER };
        Arc::new_cyclic(|me: &Weak<Engine>| Engine {
            me: me.clone(),
            this: me.clone(),
            durable: setup.durable,
            durability: setup.durability,
            background: Background::new(every, may_run),
            state: State::new(setup.max_len),
            at_home: AtHome::new(setup.max_len),
            lost: CachePadded::new(Lost::new()),
            platform: setup.platform,
            home: setup.home,
            reflection: setup.reflection,
            medium: setup.medium,
            max_len: setup.max_len,
            policy: setup.policy,
            len: AtomicU64::new(setup.len),
            high_water: AtomicU64::new(setup.high_water),
            watched: Watched::new(),
            lanes: Lanes::new(),
            log_area: LogArea::new(),
            seed,
            small,
            one_store,
            ring_seeds: (0..LANE_COUNT as u16).map(|n| seed.ring(LaneIndex(n))).collect(),
            superblock: Mutex::new(setup.superblock),
            registrations: Mutex::new(Some(setup.registrations)),
            companions: setup.companions,
            cache_is_shared: setup.cache_is_shared,
            fresh: setup.fresh,
            resizing: RwLock::new(()),
            cutting: AtomicBool::new(false),
            allocating: Mutex::new(()),
            turns: Mutex::new(()),
            poisoned: OnceLock::new(),
            closed: AtomicBool::new(false),
            fork_generation: fork::generation(),
            number,
            tag: AtomicU64::new(tag.bits()),
        })
    }

    /// Starts to make durable points at an interval, if that was requested.
    ///
    /// # Errors
    /// [`Error::NoThread`]: no point would be made then, and no caller would be told.
    pub fn begin_interval(&self) -> Result<()> {
        let begun = self.background.begin_interval(&self.this);
        let begun = if planted!(NoThreadNoMatter) { Ok(()) } else { begun };
        begun.map_err(|source| Error::NoThread { path: self.path(), source })
    }

    /// Marks every page as changed that differs from the last durable point according to its words.
    pub fn note_all_changed(&self) -> Result<()> {
        let Some(durable) = &self.durable else { return Ok(()) };
        self.touch_regions_with_words(0..self.len())?;
        for (index, region) in self.state.all_touched() {
            let changed = (0..PAGES_PER_REGION)
                .filter(|n| !region.changed_slices(*n).is_empty())
                .fold(0, |mask, n| mask | 1 << n);
            if changed != 0 && region.note_changed(changed) {
                durable.note_region(index);
            }
        }
        Ok(())
    }

    /// Returns the logical length in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        let len = self.len.load(Ordering::SeqCst);
        #[cfg(all(test, not(loom), not(shuttle)))]
        pause::after_length();
        len
    }

    /// Returns the length, ordered after this thread's own writes. For callers outside the engine.
    pub fn len_now(&self) -> u64 {
        after_own_writes();
        self.len()
    }

    /// Returns the home file's path, for messages.
    pub fn path(&self) -> PathBuf {
        self.home.path().to_owned()
    }

    /// Returns the sum of all lanes' counters.
    pub fn stats(&self) -> Stats {
        self.lanes.stats()
    }

    /// Returns `true` if the handle was inherited through `fork`.
    #[inline]
    pub fn is_forked(&self) -> bool {
        fork::generation() != self.fork_generation
    }

    /// Returns `true` if operations may begin.
    #[inline]
    fn is_usable(&self) -> bool {
        !self.is_forked() && self.poisoned.get().is_none()
    }

    /// Fails if no operation may begin.
    #[inline]
    pub fn check_usable(&self) -> Result<()> {
        if self.is_usable() { Ok(()) } else { self.check_usable_again() }
    }

    // A cold function: an error is large to move, and there is seldom one.
    #[cold]
    fn check_usable_again(&self) -> Result<()> {
        if self.is_forked() {
            return Err(Error::Forked { path: self.path() });
        }
        let cause = self.poisoned.get().cloned().unwrap_or_default();
        Err(Error::Poisoned { path: self.path(), cause })
    }

    /// Returns `true` if the next opening, after a process crash, returns to the last durable
    /// point. It does so if it cannot tell that only the process has crashed.
    pub fn goes_back_after_death(&self) -> bool {
        let superblock = self.superblock.lock();
        let is_known = superblock.boot_id != [0; 16] && superblock.cache.volume != 0;
        let is_page_cache = self.medium == Medium::PageCache && self.durable.is_some();
        is_page_cache && !(is_known && self.cache_is_shared)
    }

    /// Poisons the handle: no operation may begin any more, for good.
    fn poison(&self, cause: &Error) {
        let _first_cause_stays = self.poisoned.set(cause.as_cause());
        // Release: orders the cause before the tag.
        self.tag.store(Tag::NEVER.bits(), Ordering::Release);
    }

    /// Returns the range of `len` bytes at `offset`, if it lies within the file.
    #[inline]
    pub fn check_range(&self, offset: u64, len: u64) -> Result<Range<u64>> {
        let end = offset.checked_add(len);
        match end {
            Some(end) if end <= self.len() => Ok(offset..end),
            _ => self.check_range_again(offset, len, end),
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

    /// An [`Error::OutOfRange`] tells the caller the file's length. So the length is loaded again
    /// here, ordered after this thread's own writes.
    #[cold]
    fn check_range_again(&self, offset: u64, len: u64, end: Option<u64>) -> Result<Range<u64>> {
        let file_len = self.len_now();
        match end {
            Some(end) if end <= file_len => Ok(offset..end),
            _ => Err(Error::OutOfRange { path: self.path(), offset, len, file_len }),
        }
    }

    /// Returns the calling thread's lane.
    #[inline]
    fn lane(&self) -> InUse<'_> {
        self.lanes.mine(self.number, &self.me)
    }

    /// Returns the calling thread's lane, for a write on a fast path. Returns `None` inside the
    /// closure of a transaction, where the slow path must record what the thread changes
    /// (`own_changes`).
    #[inline]
    fn lane_to_write(&self) -> Option<InUse<'_>> {
        self.lanes.mine_to_write(self.number, &self.me)
    }

    /// Returns the file's number in this process.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the calling thread's lane, after a fence for the thread's own writes if it needs
    /// one: [`after_own_writes`]. For a thread that is about to load what other threads may have
    /// written.
    #[inline]
    fn lane_after_own_writes(&self) -> InUse<'_> {
        let has_written = after_own_writes();
        let lane = self.lane();
        if has_written {
            lane.recent.note_write(lane.reads());
        }
        lane
    }

    /// Returns the calling thread's lane in one comparison. Succeeds if the file is usable, the
    /// thread worked on it last, and the thread has published nothing since.
    #[inline(always)]
    fn lane_at_hand(&self) -> Option<&lanes::Lane> {
        // Acquire: a thread that finds the file poisoned also finds the cause.
        self.lanes.at_hand(|| Tag::from_bits(self.tag.load(Ordering::Acquire)))
    }

    /// Returns the lane as `lane_at_hand` does, but only if the thread has published something.
    #[inline]
    fn lane_behind_own_write(&self) -> Option<&lanes::Lane> {
        // Acquire: as in `lane_at_hand`.
        let tag = || Tag::from_bits(self.tag.load(Ordering::Acquire)).having_published();
        self.lanes.at_hand(tag)
    }

    /// Returns the lane as `lane_at_hand` does, for a writer. The thread may have published
    /// something.
    #[inline(always)]
    fn lane_at_hand_to_write(&self) -> Option<&lanes::Lane> {
        // Acquire: as in `lane_at_hand`.
        self.lanes.at_hand_to_write(|| Tag::from_bits(self.tag.load(Ordering::Acquire)))
    }

    /// Waits until this thread's earlier flushed stores are durable. The engine drains nowhere
    /// else, so `Stats` counts every drain.
    #[inline]
    fn drain(&self, lane: &lanes::Lane) {
        self.platform.drain();
        lane.stats.bump(Counter::Drains, 1);
    }

    /// Returns the file and the offset of the slot on `side` for the home byte at `offset`.
    #[inline]
    fn slot(&self, side: Side, offset: u64) -> (&MappedFile, u64) {
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
    fn slots(&self, offset: u64) -> Sides<'_> {
        Sides::new([&self.home, &self.reflection], [offset, layout::reflection(offset)])
    }

    /// Returns the region's state, and loads it on first use. Called in a read section and after
    /// the range was checked. So `set_len` knows every region that was loaded before it went on.
    #[inline]
    fn region(&self, region: RegionIndex) -> Result<&RegionState> {
        match self.state.touched(region) {
            Some(state) => Ok(state),
            None => self.touch(region),
        }
    }

    #[cold]
    fn touch(&self, region: RegionIndex) -> Result<&RegionState> {
        let (mut region_word, mut slice_words) = (0, [0; PAGES_PER_REGION]);
        let mut durable = self.durable.is_some().then_some([0; PAGES_PER_REGION]);
        if !self.fresh && !planted!(WordsNotLoaded) {
            // Through the file and not through the mapping: the words may lie in a hole.
            let mut bytes = [0; PAGES_PER_REGION * 8];
            let read = |bytes: &mut [u8], at: u64| {
                self.reflection.read_file(bytes, at).map_err(|source| Error::Io {
                    call: "read words",
                    path: self.reflection.path().to_owned(),
                    offset: Some(at),
                    source,
                })
            };
            read(&mut bytes[..8], layout::region_word(region))?;
            region_word = le_word(&bytes[..8]);
            read(&mut bytes, layout::slice_word(region.page(0)))?;
            for (word, bytes) in slice_words.iter_mut().zip(bytes.chunks_exact(8)) {
                *word = le_word(bytes);
            }
            if let Some(durable) = &mut durable {
                read(&mut bytes, layout::durable_word(region.page(0)))?;
                for (word, bytes) in durable.iter_mut().zip(bytes.chunks_exact(8)) {
                    *word = le_word(bytes);
                }
            }
        }
        Ok(self.state.touch(region, RegionState::new(region_word, &slice_words, durable.as_ref())))
    }

    /// Waits until every read section that is open now has ended. Must not be called from a read
    /// section.
    fn wait_for_readers(&self) {
        self.lanes.wait_for_pinned();
    }
}

impl LaneKeeper for Engine {
    fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// Makes the words durable that the lane's flip records cover, before another thread gets the
    /// lane.
    fn before_release(&self, lane: LaneIndex) {
        if self.is_forked() || self.closed.load(Ordering::Acquire) {
            return;
        }
        self.settle_own(&self.lanes[lane]);
    }
}

pub(crate) fn le_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
