//! How does an operation become atomic and durable? The engine of one open pair of files.
//!
//! Owns: everything that handles of one file share. One question a file:
//!
//! | file | question |
//! |---|---|
//! | `state` | what does DRAM know about a page? |
//! | `lanes` | which lane is mine, and which of its entries are live? |
//! | `gates` | what do operations pass that somebody may shut? |
//! | `log_area` | where do entries go that do not fit their lane? |
//! | `space` | is there space behind it? |
//! | `gather` | how are bytes gathered that are valid in several places? |
//! | `free_slots` | how do bytes get to the slots that are not valid? |
//! | `read` | how is a state read that no operation is half way through? |
//! | `read_in_page` | how does a read go that lies within one page? |
//! | `read_in_region` | how does a read go of several pages of one region that lie on one side? |
//! | `at_home` | which pages are known to be at home, so that a read looks at one word? |
//! | `plan` | which pages, regions and words does an operation touch? |
//! | `commit` | which way does a write go? |
//! | `in_page` | how does a write go that lies within one page? |
//! | `small` | how does a small write go that finds everything as usual? |
//! | `one_store` | how does a write go that one instruction stores, where only the process dies? |
//! | `whole` | how does a write go that covers pages of one region from end to end? |
//! | `recent` | what has this thread done lately? Guesses |
//! | `ask` | what will an operation over pages need, and is it asked for in time? |
//! | `ways` | the commit protocols, step by step |
//! | `vouched` | how does a flip commit with one drain? |
//! | `live` | which live entries stand in the way, and how are they made void? |
//! | `deploy` | how do slices come home? |
//! | `come_home` | when does a reader bring home what it has found elsewhere? |
//! | `together` | when does a writer put pages together again that lie in pieces? |
//! | `pin_in_page` | how does a view pin its bytes, if they lie in one page? |
//! | `resize` | how does the length change? |
//! | `clean_up` | what lies past the length? |
//! | `in_place` | how is a slice written again before the next durable point? |
//! | `durable` | how is a durable point made? |
//! | `journal` | where does its record go? |
//! | `background` | what is done without anybody waiting? |
//! | `session` | how are superblock and names written? |
//! | `sync`, `close` | what does `sync` do on this medium, and the end |
//!
//! Invariant over all of them: a thread never waits for a page's or a region's lock while its lane
//! is pinned, so that `wait_for_readers` always ends. Imports go downwards: `lock`, `store`,
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
    /// The home file's and the reflection file's.
    pub registrations: [Registration; 2],
    /// The names of the reflection file and the journal.
    pub companions: Companions,
    /// Whether every mount of the files' file systems shares the page cache that is stored to.
    pub cache_is_shared: bool,
    /// Whether the reflection file was made by this open: every word in it is zero.
    pub fresh: bool,
    /// What is kept for durable points, where they are kept.
    pub durable: Option<Durable>,
    pub durability: Durability,
    /// How often they are made without being asked for.
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
    /// Logical length; the length word on the medium is its durable twin.
    len: AtomicU64,
    /// Twin of the high-water word. Under `resizing`.
    high_water: AtomicU64,
    state: State,
    /// Which pages readers know to be at home.
    at_home: AtHome,
    /// What reads have lost by pages in pieces. In a line of its own, since readers store to it.
    lost: CachePadded<Lost>,
    /// How often pages were changed that transactions watch.
    watched: Watched,
    lanes: Lanes,
    log_area: LogArea,
    seed: Seed,
    /// How small writes go.
    small: Small,
    /// What one instruction stores.
    one_store: OneStore,
    /// Of each lane's ring.
    ring_seeds: Box<[RingSeed]>,
    superblock: Mutex<Superblock>,
    registrations: Mutex<Option<[Registration; 2]>>,
    companions: Companions,
    cache_is_shared: bool,
    fresh: bool,
    /// Written to by `set_len` and whoever punches holes, one at a time; read by whoever pins pages
    /// for a view or makes a durable point. Taken before any page's or region's lock, and by nobody inside a
    /// gate: whoever shuts one may hold it.
    resizing: RwLock<()>,
    /// While a shrink looks for pins and cuts off: for who pins without `resizing`.
    cutting: AtomicBool,
    /// One allocation at a time; guards what is known of allocations against `set_len`.
    allocating: Mutex<()>,
    /// Transactions that lost too often take turns here.
    pub(crate) turns: Mutex<()>,
    poisoned: OnceLock<String>,
    closed: AtomicBool,
    fork_generation: u64,
    number: u64,
    /// What a thread remembers that may begin to read at once: its tag of this file. No thread's once the
    /// file is poisoned, so that everybody looks.
    tag: AtomicU64,
    me: Weak<dyn LaneKeeper>,
    this: Weak<Engine>,
    durable: Option<Durable>,
    background: Background,
}

impl Engine {
    pub fn new(setup: Setup) -> Arc<Self> {
        let seed = Seed::new(&setup.superblock.uuid, setup.superblock.session);
        // On a simulated machine everything happens in the thread that asks for it.
        let small = Small::of(&setup.platform, setup.durable.is_some(), setup.policy);
        let one_store = OneStore::of(&setup.platform, small);
        let may_run = setup.platform.may_work_in_background() && cfg!(not(any(loom, shuttle)));
        // Elsewhere there is nothing to be done at an interval.
        let every = setup.sync_every.filter(|_| setup.durable.is_some());
        let number = lanes::next_file_number();
        // Where the light fences are not the usual ones, nobody begins at once.
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

    /// Begins to make durable points at an interval, where that was asked for.
    ///
    /// # Errors
    /// [`Error::NoThread`]: no point would be made then, and no caller would hear of it.
    pub fn begin_interval(&self) -> Result<()> {
        let begun = self.background.begin_interval(&self.this);
        let begun = if planted!(NoThreadNoMatter) { Ok(()) } else { begun };
        begun.map_err(|source| Error::NoThread { path: self.path(), source })
    }

    /// Notes every page whose words say that it differs from the last durable point.
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

    /// Logical length in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        let len = self.len.load(Ordering::SeqCst);
        #[cfg(all(test, not(loom), not(shuttle)))]
        pause::after_length();
        len
    }

    /// The length, for a caller: as every operation, it comes after what the thread has written.
    pub fn len_now(&self) -> u64 {
        after_own_writes();
        self.len()
    }

    /// The home file's path, for messages.
    pub fn path(&self) -> PathBuf {
        self.home.path().to_owned()
    }

    /// The sum of all lanes' counters.
    pub fn stats(&self) -> Stats {
        self.lanes.stats()
    }

    /// Whether the handle came here by `fork`.
    #[inline]
    pub fn is_forked(&self) -> bool {
        fork::generation() != self.fork_generation
    }

    /// Whether operations may begin.
    #[inline]
    fn is_usable(&self) -> bool {
        !self.is_forked() && self.poisoned.get().is_none()
    }

    /// Fails where no operation may begin.
    #[inline]
    pub fn check_usable(&self) -> Result<()> {
        if self.is_usable() { Ok(()) } else { self.check_usable_again() }
    }

    // Out of the way: an error is many bytes to be moved, and nearly always there is none.
    #[cold]
    fn check_usable_again(&self) -> Result<()> {
        if self.is_forked() {
            return Err(Error::Forked { path: self.path() });
        }
        let cause = self.poisoned.get().cloned().unwrap_or_default();
        Err(Error::Poisoned { path: self.path(), cause })
    }

    /// Whether the next opening may not know that only the process has died, and then goes back to the
    /// last durable point.
    pub fn goes_back_after_death(&self) -> bool {
        let superblock = self.superblock.lock();
        let is_known = superblock.boot_id != [0; 16] && superblock.cache.volume != 0;
        let is_page_cache = self.medium == Medium::PageCache && self.durable.is_some();
        is_page_cache && !(is_known && self.cache_is_shared)
    }

    /// No operation may begin any more, for good.
    fn poison(&self, cause: &Error) {
        let _first_cause_stays = self.poisoned.set(cause.as_cause());
        // Release: the cause comes before.
        self.tag.store(Tag::NEVER.bits(), Ordering::Release);
    }

    /// The range of `len` bytes at `offset`, if it lies within the file.
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

    /// That a range does not fit is something that the caller reads of the file.
    #[cold]
    fn check_range_again(&self, offset: u64, len: u64, end: Option<u64>) -> Result<Range<u64>> {
        let file_len = self.len_now();
        match end {
            Some(end) if end <= file_len => Ok(offset..end),
            _ => Err(Error::OutOfRange { path: self.path(), offset, len, file_len }),
        }
    }

    /// The calling thread's lane.
    #[inline]
    fn lane(&self) -> InUse<'_> {
        self.lanes.mine(self.number, &self.me)
    }

    /// The calling thread's lane, for who writes by a short way. None: the thread is inside the closure of a transaction,
    /// and the general way notes what it changes (`own_changes`).
    #[inline]
    fn lane_to_write(&self) -> Option<InUse<'_>> {
        self.lanes.mine_to_write(self.number, &self.me)
    }

    /// The file's number in this process.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The calling thread's lane, for who is about to look at what others may have written:
    /// [`after_own_writes`].
    #[inline]
    fn lane_after_own_writes(&self) -> InUse<'_> {
        let has_written = after_own_writes();
        let lane = self.lane();
        if has_written {
            lane.recent.note_write(lane.reads());
        }
        lane
    }

    /// The calling thread's lane, if the file may be used, the thread has worked on it last, and has
    /// published nothing since: one comparison.
    #[inline(always)]
    fn lane_at_hand(&self) -> Option<&lanes::Lane> {
        // Acquire: who finds that a file was poisoned finds the cause.
        self.lanes.at_hand(|| Tag::from_bits(self.tag.load(Ordering::Acquire)))
    }

    /// The same, if it has published something since.
    #[inline]
    fn lane_behind_own_write(&self) -> Option<&lanes::Lane> {
        // Acquire: as above.
        let tag = || Tag::from_bits(self.tag.load(Ordering::Acquire)).having_published();
        self.lanes.at_hand(tag)
    }

    /// The same, whether or not it has published something: for who writes.
    #[inline(always)]
    fn lane_at_hand_to_write(&self) -> Option<&lanes::Lane> {
        // Acquire: as above.
        self.lanes.at_hand_to_write(|| Tag::from_bits(self.tag.load(Ordering::Acquire)))
    }

    /// Waits until this thread's earlier flushed stores are durable. The one place where the
    /// engine drains, so that `Stats` counts each.
    #[inline]
    fn drain(&self, lane: &lanes::Lane) {
        self.platform.drain();
        lane.stats.bump(Counter::Drains, 1);
    }

    /// The file and the offset of the slot on `side` of the home byte at `offset`.
    #[inline]
    fn slot(&self, side: Side, offset: u64) -> (&MappedFile, u64) {
        match side {
            Side::Home => (&self.home, offset),
            Side::Reflection => (&self.reflection, layout::reflection(offset)),
        }
    }

    /// Both slots of the home bytes at `offset`, the home slot first: bit `n` of a [`Validity`] of the page says which
    /// one a line goes to, or comes from, as it says which one is valid.
    ///
    /// [`Validity`]: crate::bitmap::Validity
    #[inline]
    fn slots(&self, offset: u64) -> Sides<'_> {
        Sides::new([&self.home, &self.reflection], [offset, layout::reflection(offset)])
    }

    /// The region's state, made on first touch. Called while pinned and after the range was
    /// checked, so that `set_len` knows every region that was touched before it went on.
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
            // Through the file and not through the mapping: the words may be a hole.
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

    /// Waits until every operation that is pinned now has gone on. Not while pinned.
    fn wait_for_readers(&self) {
        self.lanes.wait_for_pinned();
    }
}

impl LaneKeeper for Engine {
    fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// The lane changes hands: the words that its entries vouch for are made durable first.
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
