//! How does an operation become atomic and durable? The engine of one open pair of files.
//!
//! Owns: everything that handles of one file share. One question a file:
//!
//! | file | question |
//! |---|---|
//! | `state` | what does DRAM know about a page? |
//! | `lanes` | which lane is mine, and which of its entries are live? |
//! | `log_area` | where do entries go that do not fit their lane? |
//! | `space` | is there space behind it? |
//! | `read` | how is a state read that no operation is half way through? |
//! | `plan` | which pages, regions and words does an operation touch? |
//! | `commit` | which way does a write go? |
//! | `ways` | the commit protocols, step by step |
//! | `live` | which live redo entries stand in the way, and how are they cleared? |
//! | `deploy` | how do slices come home? |
//! | `resize` | how does the length change? |
//! | `clean_up` | what lies past the length? |
//! | `session` | how are superblock and names written? |
//! | `sync`, `close` | durable points, and the end |
//!
//! Invariant over all of them: a thread never waits for a page's or a region's lock while its lane
//! is pinned, so that `wait_for_readers` always ends. Imports go downwards: `lock`, `store`,
//! `format`, `bitmap`, `platform`, `units`, `error`.

pub(crate) mod clean_up;
mod close;
pub(crate) mod commit;
mod deploy;
pub(crate) mod lanes;
mod live;
mod log_area;
#[cfg(all(test, loom))]
mod loom_models;
mod plan;
pub(crate) mod read;
mod resize;
pub(crate) mod session;
pub(crate) mod space;
mod state;
pub(crate) mod stats;
mod sync;
mod ways;

use crate::bitmap::Side;
use crate::error::{Error, Result};
use crate::format::entry::Seed;
use crate::format::layout;
use crate::format::superblock::Superblock;
use crate::lock::after_own_writes;
use crate::mutant::planted;
use crate::platform::{Platform, fork};
use crate::primitive::{AtomicBool, AtomicU64, Mutex, OnceLock, Ordering, RwLock};
use crate::registry::Registration;
use crate::store::MappedFile;
use crate::terms::{DeployPolicy, Medium};
use crate::units::{LaneIndex, PAGES_PER_REGION, RegionIndex};
use lanes::{InUse, LaneKeeper, Lanes};
use log_area::LogArea;
use state::{RegionState, State};
use stats::{Counter, Stats};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

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
    /// Whether the reflection file was made by this open: every word in it is zero.
    pub fresh: bool,
}

pub(crate) struct Engine {
    pub(crate) platform: Platform,
    pub(crate) home: MappedFile,
    pub(crate) reflection: MappedFile,
    pub(crate) medium: Medium,
    pub(crate) max_len: u64,
    policy: DeployPolicy,
    /// Logical length; the length word on the medium is its durable twin.
    len: AtomicU64,
    /// Twin of the high-water word. Under `resizing`.
    high_water: AtomicU64,
    state: State,
    lanes: Lanes,
    log_area: LogArea,
    seed: Seed,
    superblock: Mutex<Superblock>,
    registrations: Mutex<Option<[Registration; 2]>>,
    fresh: bool,
    /// Written to by `set_len` and whoever punches holes, one at a time; read by whoever pins pages
    /// for a view or commits several pieces. Taken before any page's or region's lock.
    resizing: RwLock<()>,
    /// One allocation at a time; guards what is known of allocations against `set_len`.
    allocating: Mutex<()>,
    /// Transactions that lost too often take turns here.
    pub(crate) turns: Mutex<()>,
    poisoned: OnceLock<String>,
    closed: AtomicBool,
    fork_generation: u64,
    number: u64,
    me: Weak<dyn LaneKeeper>,
}

impl Engine {
    pub fn new(setup: Setup) -> Arc<Self> {
        let seed = Seed::new(&setup.superblock.uuid, setup.superblock.session);
        Arc::new_cyclic(|me: &Weak<Engine>| Engine {
            me: me.clone(),
            state: State::new(setup.max_len),
            platform: setup.platform,
            home: setup.home,
            reflection: setup.reflection,
            medium: setup.medium,
            max_len: setup.max_len,
            policy: setup.policy,
            len: AtomicU64::new(setup.len),
            high_water: AtomicU64::new(setup.high_water),
            lanes: Lanes::new(),
            log_area: LogArea::new(),
            seed,
            superblock: Mutex::new(setup.superblock),
            registrations: Mutex::new(Some(setup.registrations)),
            fresh: setup.fresh,
            resizing: RwLock::new(()),
            allocating: Mutex::new(()),
            turns: Mutex::new(()),
            poisoned: OnceLock::new(),
            closed: AtomicBool::new(false),
            fork_generation: fork::generation(),
            number: lanes::next_file_number(),
        })
    }

    /// Logical length in bytes.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::SeqCst)
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
    pub fn is_forked(&self) -> bool {
        fork::generation() != self.fork_generation
    }

    /// Fails where no operation may begin.
    #[inline]
    pub fn check_usable(&self) -> Result<()> {
        if self.is_forked() {
            return Err(Error::Forked { path: self.path() });
        }
        match self.poisoned.get() {
            None => Ok(()),
            Some(cause) => Err(Error::Poisoned { path: self.path(), cause: cause.clone() }),
        }
    }

    /// No operation may begin any more, for good.
    fn poison(&self, cause: &Error) {
        let _first_cause_stays = self.poisoned.set(cause.to_string());
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
        }
        Ok(self.state.touch(region, RegionState::new(region_word, &slice_words)))
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

    /// The lane changes hands: what its thread stored in place must be durable first, because the
    /// next owner's drains do not cover this thread's flushes.
    fn before_release(&self, lane: LaneIndex) {
        if self.is_forked() || self.closed.load(Ordering::Acquire) {
            return;
        }
        let lane = &self.lanes[lane];
        self.flush_last_in_place(lane);
        self.drain(lane);
    }
}

pub(crate) fn le_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
