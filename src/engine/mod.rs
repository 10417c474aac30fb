//! The engine of one open pair of files: makes operations atomic and durable.
//!
//! Owns: [`Engine`], which is what the handles of one file share. Its operations lie in wings.
//! Calls and imports go downwards only, in this order, and `tests/tidy.rs` guards it:
//!
//! | wing | holds |
//! |---|---|
//! | `close` | the end of a session |
//! | `worker` | the worker thread, and its requests |
//! | `write` | writes: the fast paths, the general way, the choice of a commit protocol |
//! | `read` | reads: the fast paths, the general way, the read sets of transactions |
//! | `resize` | changes of the file's length |
//! | `deploy` | copies of valid slices to the home file; the pins of views; hole punching |
//! | `durable` | durable points: group commit, the cut, the record, the checkpoint, the journal |
//! | `write::general` | the commit protocols, step by step |
//! | `io` | copies out of valid slots and into free slots, and prefetches |
//! | `plan` | which pages, regions, words and locks an operation needs |
//! | `superblock` | writes of the superblock and the names |
//! | `pair` | what is known of one open pair: it has no operations |
//!
//! Invariant over all of them: a thread in a read section of its lane never waits for a page's or a
//! region's lock, so `wait_for_readers` always ends. What lies below: `lock`, `store`, `format`,
//! `bitmap`, `platform`, `units`, `error`.

mod close;
pub mod commit;
pub mod deploy;
pub mod durable;
pub mod io;
#[cfg(all(test, loom))]
mod loom_models;
pub mod pair;
pub mod plan;
pub mod read;
pub mod resize;
pub mod superblock;
#[cfg(all(test, not(loom), not(shuttle)))]
mod tests;
mod worker;
pub mod write;

use crate::engine::deploy::on_write::Lost;
use crate::engine::durable::Durable;
use crate::engine::pair::log::lanes::{LaneKeeper, Lanes, next_file_number};
use crate::engine::pair::log::log_area::LogArea;
use crate::engine::pair::page_table::State;
use crate::engine::pair::read_set::Watched;
use crate::engine::pair::stamps::AtHome;
use crate::engine::superblock::Companions;
use crate::engine::worker::Background;
use crate::engine::write::direct::OneStore;
use crate::engine::write::small::Small;
use crate::error::{Error, Result};
use crate::format::entry::Seed;
use crate::format::layout::LANE_COUNT;
use crate::format::superblock::Superblock;
use crate::format::vouch::RingSeed;
use crate::mutant::planted;
use crate::platform::{Platform, barrier, fork};
use crate::primitive::{AtomicBool, AtomicU64, Mutex, OnceLock, Ordering, RwLock};
use crate::registry::Registration;
use crate::store::MappedFile;
use crate::terms::{DeployPolicy, Durability, Medium};
use crate::thread::Tag;
use crate::units::LaneIndex;
use crossbeam_utils::CachePadded;
use std::sync::{Arc, Weak};
use std::time::Duration;

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

impl Engine {
    pub fn new(setup: Setup) -> Arc<Self> {
        let seed = Seed::new(&setup.superblock.uuid, setup.superblock.session);
        // On a simulated machine, all work is done by the thread that requests it.
        let small = Small::of(&setup.platform, setup.durable.is_some(), setup.policy);
        let one_store = OneStore::of(&setup.platform, small);
        let may_run = setup.platform.may_work_in_background() && cfg!(not(any(loom, shuttle)));
        // Without durable points there is no work at an interval.
        let every = setup.sync_every.filter(|_| setup.durable.is_some());
        let number = next_file_number();
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

    /// Returns `true` if the next opening, after a process crash, returns to the last durable
    /// point. It does so if it cannot tell that only the process has crashed.
    pub fn goes_back_after_death(&self) -> bool {
        let superblock = self.superblock.lock();
        let is_known = superblock.boot_id != [0; 16] && superblock.cache.volume != 0;
        let is_page_cache = self.medium == Medium::PageCache && self.durable.is_some();
        is_page_cache && !(is_known && self.cache_is_shared)
    }
}
