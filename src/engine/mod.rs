//! The engine of one open pair of files: makes operations atomic and durable.
//!
//! Owns: [`Engine`], which is what the handles of one file share. Its operations lie in wings.
//! Calls and imports go downwards only, in this order, and `tests/tidy.rs` guards it:
//!
//! | wing | holds |
//! |---|---|
//! | `tasks` | what the worker's requests mean |
//! | `close` | the end of a session |
//! | `snapshots` | seals, reads of snapshots, drops and rollbacks |
//! | `write` | writes: the fast paths, the general way, the choice of a commit protocol |
//! | `read` | reads: the fast paths, the general way, the read sets of transactions |
//! | `resize` | changes of the file's length |
//! | `stage` | the slots that stages claim, and how they are filled |
//! | `deploy` | copies of valid slices to the home file; the pins of views; hole punching |
//! | `durable` | durable points: group commit, the cut, the record, the checkpoint, the journal |
//! | `commit` | the commit protocols, step by step |
//! | `scrub` | verification of ranges, and in the background |
//! | `sums` | the sums of pages: new ones for an operation |
//! | `keep` | what snapshots need of an operation, before it stores |
//! | `verify` | verification of pages by their sums |
//! | `io` | copies out of valid slots and into free slots, and prefetches |
//! | `plan` | which pages, regions, words and locks an operation needs |
//! | `companions` | the folder of the companions, and the making of the store of snapshots |
//! | `superblock` | writes of the superblock and the names |
//! | `worker` | the worker thread, its queue of requests and its timers |
//! | `pair` | the state of one open pair: it has no operations |
//!
//! Invariant over all of them: a thread in a read section of its lane never waits for a page's or a
//! region's lock, so `wait_for_read_sections` always ends. What lies below: `lock`, `mmap`,
//! `format`, `bitmap`, `platform`, `units`, `error`.

pub mod byte_mark;
pub(crate) mod close;
pub mod commit;
pub mod companions;
pub mod deploy;
pub mod durable;
pub mod io;
pub mod keep;
#[cfg(all(test, loom))]
mod loom_models;
pub mod plan;
pub mod read;
pub mod resize;
mod scrub;
pub mod snapshots;
pub mod stage;
mod sums;
pub mod superblock;
mod tasks;
#[cfg(all(test, not(loom), not(shuttle)))]
mod tests;
pub(crate) mod turns;
mod verify;
pub mod worker;
pub mod write;

use crate::config::integrity::Integrity;
use crate::config::progress::{Reporter, Work};
use crate::config::snapshots::AutoSnapshots;
use crate::config::{Allocation, DeployPolicy, Durability, Medium};
use crate::engine::deploy::cold::{SPACE_EVERY, Sweeps};
use crate::engine::deploy::policy::PolicyCell;
use crate::engine::durable::Durable;
use crate::engine::durable::journal::Journal;
use crate::engine::scrub::{STEP_EVERY, Scrub};
use crate::engine::snapshots::automatic::{Automatic, LOOK_EVERY};
use crate::engine::superblock::Companions;
use crate::engine::turns::Turns;
use crate::engine::worker::{Request, Worker};
use crate::engine::write::Mode;
use crate::engine::write::direct::DirectStore;
use crate::error::{Error, Result};
use crate::format::entry::Seed;
use crate::format::superblock::Superblock;
use crate::mutant::planted;
use crate::pair::ahead::Ahead;
use crate::pair::log::lanes::{LaneKeeper, Lanes};
use crate::pair::snapshots::Store;
use crate::pair::{Opened, Pair};
use crate::platform::Name;
use crate::primitive::{AtomicU64, Mutex, Ordering};
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
    /// The registrations of the home file and its companions.
    pub registrations: Vec<Registration>,
    /// The name of the home file.
    pub name: Name,
    /// The names of the companions.
    pub companions: Companions,
    /// `true` if every mount of the files' file systems shares the page cache that is stored to.
    pub cache_is_shared: bool,
    /// `true` if a file's calls and its mappings surely share one page cache.
    pub calls_share_cache: bool,
    /// The journal of durable points. `None` where no durable points are kept.
    pub journal: Option<Journal>,
    /// The length at the last durable point, and why the state that was found is none, if so.
    pub point_left: Option<(u64, Error)>,
    /// The store of snapshots, if the pair has one.
    pub snapshots: Option<Store>,
    /// `true` if a file is mapped synchronously: on persistent memory that nothing forces.
    pub maps_synchronously: bool,
    /// `true` if cuts are taken. They are where durable points are kept.
    pub keeps_cuts: bool,
    pub durability: Durability,
    /// How often durable points are made without a call of `sync`.
    pub sync_every: Option<Duration>,
    pub auto_snapshots: Option<AutoSnapshots>,
    /// Bytes a second that a scrub reads.
    pub scrub: Option<u64>,
    /// How long a page must be unchanged until it is deployed in the background.
    pub deploy_idle: Option<Duration>,
    pub allocation: Allocation,
    pub shows_appends: bool,
    pub reporter: Reporter,
}

/// The operations on one open pair, with what only they need.
pub(crate) struct Engine {
    pair: Pair,
    policy: PolicyCell,
    allocation: Allocation,
    /// `true` if the home file has what is appended as soon as it is longer.
    shows_appends: bool,
    pub(crate) durability: Durability,
    /// The properties of the file that choose the way of a write.
    mode: Mode,
    /// The direct stores that are possible.
    direct: DirectStore,
    superblock: Mutex<Superblock>,
    registrations: Mutex<Vec<Registration>>,
    /// The message of the last drop that could not close the file, until `health` has told it.
    not_closed: Mutex<Option<String>>,
    /// The name of the home file, in its open folder.
    pub(crate) name: Name,
    /// The names of the companions, in their open folder.
    companions: Companions,
    /// Held while the store of snapshots is made. Has the file of a failed attempt.
    making_store: Mutex<Option<companions::Leftover>>,
    maps_synchronously: bool,
    cache_is_shared: bool,
    /// Taken by transactions that have lost too often.
    turns: Turns,
    durable: Option<Durable>,
    automatic: Option<Automatic>,
    /// Changes that are no writes, for automatic snapshots.
    other_changes: AtomicU64,
    scrub: Option<Scrub>,
    sweeps: Sweeps,
    worker: Worker,
    /// Hears how far a close has come.
    reporter: Reporter,
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
        if self.is_forked() || self.session.closed.load(Ordering::Acquire) {
            return;
        }
        self.write_back_own(&self.lanes[lane]);
    }
}

impl Engine {
    pub fn new(setup: Setup) -> Arc<Self> {
        let platform = &setup.pair.platform;
        // On a simulated machine, all work is done by the thread that requests it.
        let keeps_points = setup.journal.is_some();
        let has_sums = setup.pair.integrity != Integrity::Off;
        let is_special = setup.keeps_cuts || setup.pair.home.is_private();
        let by_call = keeps_points && setup.calls_share_cache;
        let mode = Mode::of(platform, (is_special, has_sums), by_call);
        let direct = DirectStore::of(platform, mode);
        let may_run = platform.may_work_in_background() && cfg!(not(any(loom, shuttle)));
        // Without durable points there is no work at an interval.
        let every = setup.sync_every.filter(|_| keeps_points);
        let points = every.map(|every| (Request::DurablePoint, every));
        let automatic = setup.auto_snapshots.map(Automatic::new);
        let looks = automatic.as_ref().map(|_| (Request::Snapshot, LOOK_EVERY));
        let scrub = setup.scrub.filter(|_| has_sums).map(Scrub::new);
        let steps = scrub.as_ref().map(|_| (Request::Scrub, STEP_EVERY));
        let sweeps = setup.deploy_idle.map(|every| (Request::DeployIdle, every));
        let space = setup.pair.budget.as_ref().map(|_| (Request::Space, SPACE_EVERY));
        let timers = points.into_iter().chain(looks).chain(steps).chain(sweeps).chain(space);
        let timers = timers.collect();
        let seed = Seed::new(&setup.superblock.uuid, setup.superblock.session);
        Arc::new_cyclic(|this: &Weak<Engine>| {
            let mut opened = setup.pair;
            // A file system with a page cache allocates too quickly for a gain.
            let is_memory = opened.medium != Medium::PageCache;
            if setup.allocation == Allocation::Ahead && is_memory && may_run {
                let engine = this.clone();
                opened.ahead = Some(Ahead::new(move || {
                    let engine = engine.upgrade();
                    let _else_writers_allocate =
                        engine.is_some_and(|engine| engine.worker.request(Request::AllocateAhead));
                }));
            }
            let pair = Pair::new(opened, seed, (keeps_points, setup.keeps_cuts), this.clone());
            if let Some(store) = setup.snapshots {
                let _it_was_empty = pair.snapshots.set(store);
            }
            let durable = setup.journal.map(|journal| {
                let point_len = setup.point_left.as_ref().map_or(pair.len(), |(len, _)| *len);
                let durable = Durable::new(journal, point_len, pair.dirty.register());
                if let Some((_, why)) = &setup.point_left {
                    // It may have grown since the point.
                    durable.on_grow();
                    durable.set_overdue(why);
                }
                durable
            });
            Engine {
                pair,
                durable,
                automatic,
                other_changes: AtomicU64::new(0),
                scrub,
                sweeps: Sweeps::default(),
                durability: setup.durability,
                worker: Worker::new(Box::new(this.clone()), timers, may_run),
                policy: PolicyCell::new(setup.policy),
                allocation: setup.allocation,
                shows_appends: setup.shows_appends,
                mode,
                direct,
                superblock: Mutex::new(setup.superblock),
                registrations: Mutex::new(setup.registrations),
                not_closed: Mutex::new(None),
                name: setup.name,
                companions: setup.companions,
                making_store: Mutex::new(None),
                maps_synchronously: setup.maps_synchronously,
                cache_is_shared: setup.cache_is_shared,
                turns: Turns::default(),
                reporter: setup.reporter,
            }
        })
    }

    /// Starts to make durable points at an interval, if that was requested.
    ///
    /// # Errors
    /// [`Error::NoThread`]: no point would be made then, and no caller would be told.
    pub fn begin_interval(&self) -> Result<()> {
        let begun = self.worker.begin_timers();
        let begun = if planted!(NoThreadNoMatter) { Ok(()) } else { begun };
        begun.map_err(|e| Error::NoThread { path: self.path(), source: e.into() })
    }

    /// Takes over the message of the last drop that could not close the file. Called once the
    /// opening can fail no more: a failed one has no handle that could tell.
    pub fn take_not_closed(&self) {
        let cause = self.registrations.lock().first().and_then(Registration::take_not_closed);
        #[cfg(feature = "tracing")]
        if let Some(cause) = &cause {
            event!(WARN, file = %crate::error::shown(self.name.path()), %cause, "the last drop did not close it");
        }
        *self.not_closed.lock() = cause;
    }

    /// Leaves that message to the next opening. Called if a call fails that opens the file and does
    /// more, so that its caller gets no handle.
    pub fn leave_not_closed(&self) {
        let cause = self.not_closed.lock().take();
        if let Some((cause, home)) = cause.zip(self.registrations.lock().first()) {
            home.note_not_closed(cause);
        }
    }

    /// Allocates the whole file, if that was chosen. The caller is opening it for writing.
    pub fn populate_if_chosen(&self) -> Result<()> {
        if self.allocation != Allocation::Full {
            return Ok(());
        }
        let len = self.len();
        let mut meter = self.reporter.begin(Work::Allocate, len);
        self.populate(&self.lane(), 0..len, |bytes| meter.add(bytes))
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
