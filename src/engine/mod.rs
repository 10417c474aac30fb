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
//! | `pair` | the state of one open pair: it has no operations |
//!
//! Invariant over all of them: a thread in a read section of its lane never waits for a page's or a
//! region's lock, so `wait_for_read_sections` always ends. What lies below: `lock`, `store`,
//! `format`, `bitmap`, `platform`, `units`, `error`.

mod close;
pub mod commit;
pub mod deploy;
pub mod durable;
pub mod io;
#[cfg(all(test, loom))]
mod loom_models;
pub mod plan;
pub mod read;
pub mod resize;
pub mod superblock;
#[cfg(all(test, not(loom), not(shuttle)))]
mod tests;
mod worker;
pub mod write;

use crate::config::{DeployPolicy, Durability, Medium};
use crate::engine::durable::Durable;
use crate::engine::superblock::Companions;
use crate::engine::worker::Worker;
use crate::engine::write::direct::DirectStore;
use crate::engine::write::small::Small;
use crate::error::{Error, Result};
use crate::format::entry::Seed;
use crate::format::superblock::Superblock;
use crate::mutant::planted;
use crate::pair::log::lanes::{LaneKeeper, Lanes};
use crate::pair::{Opened, Pair};
use crate::primitive::{Mutex, Ordering};
use crate::registry::Registration;
use crate::units::LaneIndex;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The parts of an engine, as `recovery` hands them over.
pub(crate) struct Setup {
    pub pair: Opened,
    pub policy: DeployPolicy,
    pub superblock: Superblock,
    /// The registrations of the home file and the reflection file.
    pub registrations: [Registration; 2],
    /// The names of the reflection file and the journal.
    pub companions: Companions,
    /// `true` if every mount of the files' file systems shares the page cache that is stored to.
    pub cache_is_shared: bool,
    /// What is kept for durable points. `None` where no durable points are kept.
    pub durable: Option<Durable>,
    pub durability: Durability,
    /// How often durable points are made without a call of `sync`.
    pub sync_every: Option<Duration>,
}

/// The operations on one open pair, with what only they need.
pub(crate) struct Engine {
    pair: Pair,
    policy: DeployPolicy,
    pub(crate) durability: Durability,
    /// The fast path that small writes take.
    small: Small,
    /// The direct stores that are possible.
    direct: DirectStore,
    superblock: Mutex<Superblock>,
    registrations: Mutex<Option<[Registration; 2]>>,
    companions: Companions,
    cache_is_shared: bool,
    /// Taken by transactions that have lost too often, so that they run one at a time.
    pub(crate) turns: Mutex<()>,
    this: Weak<Engine>,
    durable: Option<Durable>,
    worker: Worker,
}

/// Every operation reads and changes the state of the pair. The pair knows no operation.
impl Deref for Engine {
    type Target = Pair;

    #[inline(always)]
    fn deref(&self) -> &Pair {
        &self.pair
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
        self.write_back_own(&self.lanes[lane]);
    }
}

impl Engine {
    pub fn new(setup: Setup) -> Arc<Self> {
        let platform = &setup.pair.platform;
        // On a simulated machine, all work is done by the thread that requests it.
        let small = Small::of(platform, setup.durable.is_some(), setup.policy);
        let direct = DirectStore::of(platform, small);
        let may_run = platform.may_work_in_background() && cfg!(not(any(loom, shuttle)));
        // Without durable points there is no work at an interval.
        let every = setup.sync_every.filter(|_| setup.durable.is_some());
        let seed = Seed::new(&setup.superblock.uuid, setup.superblock.session);
        Arc::new_cyclic(|this: &Weak<Engine>| Engine {
            pair: Pair::new(setup.pair, seed, setup.durable.is_some(), this.clone()),
            this: this.clone(),
            durable: setup.durable,
            durability: setup.durability,
            worker: Worker::new(every, may_run),
            policy: setup.policy,
            small,
            direct,
            superblock: Mutex::new(setup.superblock),
            registrations: Mutex::new(Some(setup.registrations)),
            companions: setup.companions,
            cache_is_shared: setup.cache_is_shared,
            turns: Mutex::new(()),
        })
    }

    /// Starts to make durable points at an interval, if that was requested.
    ///
    /// # Errors
    /// [`Error::NoThread`]: no point would be made then, and no caller would be told.
    pub fn begin_interval(&self) -> Result<()> {
        let begun = self.worker.begin_interval(&self.this);
        let begun = if planted!(NoThreadNoMatter) { Ok(()) } else { begun };
        begun.map_err(|source| Error::NoThread { path: self.path(), source })
    }

    /// Returns `true` if the next opening, after a process crash, returns to the last durable
    /// point. It does so if it cannot tell that only the process has crashed.
    pub fn goes_back_after_death(&self) -> bool {
        let superblock = self.superblock.lock();
        let is_known = superblock.boot_id != [0; 16] && superblock.cache.volume != 0;
        let is_page_cache = self.medium == Medium::PageCache && self.keeps_points;
        is_page_cache && !(is_known && self.cache_is_shared)
    }
}
