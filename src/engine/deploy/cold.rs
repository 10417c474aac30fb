//! Background deployment: finds cold pages, deploys them, and gives back their space.
//!
//! A *sweep* goes through the chunks that have storage in the reflection file, as the hand of a
//! clock does. A page is *cold* if no operation has changed it since the sweep was there last. The
//! sweep tells by the versions of the locks, so a write pays nothing for it. Pages are deployed one
//! by one, and only the space of cold pages is given back. So an operation on another page does not
//! wait. This is Libnvmmio's checkpointing (3.4), by the page and without epochs.
//!
//! Where durable points are kept, a batch of chunks takes two of them, as `deploy` does. With
//! `AtomicSync` only the program makes points. Then the slices that have changed since the last one
//! stay, and space is given back after the next one.
//!
//! May import `commit`, `durable`, `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::{Slices, bits};
use crate::config::Durability;
use crate::engine::Engine;
use crate::engine::deploy::punch::PunchOutcome;
use crate::engine::deploy::region::{Pins, Which};
use crate::engine::worker::Request;
use crate::error::{Error, Result};
use crate::format::layout;
use crate::mutant::planted;
use crate::pair::budget::Budget;
use crate::pair::page_table::known;
use crate::pair::region::RegionState;
use crate::pair::stats::Counter;
use crate::primitive::{Mutex, Ordering};
use crate::units::{
    CHUNK, CHUNKS_PER_SUPERCHUNK, ChunkIndex, PAGE, PAGES_PER_REGION, REGIONS_PER_CHUNK,
    RegionIndex, SUPERCHUNK,
};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::time::Duration;

/// Time between two looks at a budget. A view that ends makes space free without an operation that
/// would ask for it.
pub(crate) const SPACE_EVERY: Duration = Duration::from_secs(1);

/// Chunks that the worker looks at before it serves other requests.
const BATCH: usize = 8;

/// The low bits of a page's version that a sweep remembers.
const VERSION: u8 = 0x1F;
/// The number of visits that have found a page unchanged, in the bits above: 0 to `OLDEST`.
const ONE_VISIT: u8 = VERSION + 1;
const OLDEST: u8 = 7;

/// How many visits in a row must find a page unchanged until a sweep for space deploys it: in each
/// round of a turn. One visit comes soon after the other while space is needed, so a page that is
/// written often may be unchanged a few times.
const COLD_AFTER: [u8; 3] = [5, 2, 0];

/// A sweep over one file.
#[derive(Default, Debug)]
pub(crate) struct Sweep {
    /// The next chunk.
    hand: ChunkIndex,
    /// The low bits of each page's version when the sweep was there last, and its visits without a
    /// change.
    seen: HashMap<RegionIndex, Box<[u8; PAGES_PER_REGION]>>,
    /// `true` if the sweep was around the file. Then each region with a word other than zero is
    /// loaded.
    was_around: bool,
    /// `true` if the file system does not support holes.
    cannot_punch: bool,
}

/// A turn in which space is given back, from the first batch of chunks to the last.
#[derive(Default, Debug)]
struct Turn {
    /// The number of times around the file.
    round: usize,
    /// `true` if an operation waited for room when the turn began. A turn without one does not look
    /// at all pages.
    is_awaited: bool,
    /// `true` if something was given back.
    has_given: bool,
}

/// The outcome of a batch of a sweep.
struct Swept {
    /// `true` if the sweep has come to the end of the file.
    is_around: bool,
    /// `true` if something was given back.
    has_given: bool,
}

/// The sweeps of one file: for what is idle, and for space with the turn that is under way.
#[derive(Default)]
pub(crate) struct Sweeps {
    idle: Mutex<Sweep>,
    space: Mutex<(Sweep, Option<Turn>)>,
}

/// A chunk with storage, and the cold pages of its loaded regions.
struct Visited {
    chunk: ChunkIndex,
    cold: SmallVec<[(RegionIndex, u64); REGIONS_PER_CHUNK]>,
}

impl Visited {
    /// Returns the cold pages of a region.
    fn cold_of(&self, region: RegionIndex) -> u64 {
        self.cold.iter().find(|(index, _)| *index == region).map_or(0, |(_, pages)| *pages)
    }
}

impl Engine {
    /// Deploys pages that have not changed since the last request for an idle file: a batch. Then
    /// requests the next batch, until the sweep is around the file. For the worker.
    pub fn deploy_idle(&self) {
        let mut sweep = self.sweeps.idle.lock();
        let swept = self.sweep(&mut sweep, 1);
        // After an error the next interval tries again.
        if swept.is_ok_and(|swept| !swept.is_around) {
            let _is_served = self.worker.request(Request::DeployIdle);
        }
    }

    /// Gives back space until the budget is no longer tight: a batch. Then requests the next batch.
    /// For the worker.
    pub fn give_back_space(&self) {
        while !self.give_back_batch() {
            if self.worker.request(Request::Space) {
                return;
            }
        }
    }

    /// Gives back space in a batch of chunks. Deploys the coldest pages in one round. Only if that
    /// is not enough, and space is urgent, deploys others in a second and a third one. Returns
    /// `true` if the turn is over.
    pub(in crate::engine) fn give_back_batch(&self) -> bool {
        let Some(budget) = &self.budget else { return true };
        let mut space = self.sweeps.space.lock();
        let (sweep, turn) = &mut *space;
        self.measure(budget);
        let before = self.companions_take(budget);
        if turn.is_none() && !budget.is_tight(before) {
            budget.end_turn(false, before);
            return true;
        }
        let now_on =
            turn.get_or_insert_with(|| Turn { is_awaited: budget.is_awaited(), ..Turn::default() });
        let swept = self.sweep(sweep, COLD_AFTER[now_on.round]);
        self.measure(budget);
        let now = self.companions_take(budget);
        let is_failed = swept.is_err();
        let (is_around, has_given) =
            swept.map_or((false, false), |it| (it.is_around, it.has_given));
        // Not by what the companions take: writers on other pages may take as much.
        now_on.has_given |= has_given;
        now_on.round += usize::from(is_around);
        let is_enough = now <= budget.low() || now_on.round > 0 && !budget.is_urgent(now);
        let is_over = is_enough || now_on.round == COLD_AFTER.len() || is_failed;
        // A waiting writer goes on as soon as there is room for it.
        if is_over || has_given || now < before {
            budget.end_turn(is_over && now_on.is_awaited && !now_on.has_given, now);
        }
        if is_over {
            *turn = None;
        }
        is_over
    }

    /// Measures the storage of the companions anew.
    pub(super) fn measure(&self, budget: &Budget) {
        let journal = self.durable.as_ref().map_or(0, |durable| durable.journal.len());
        let store = self.snapshots.get().map_or(0, |store| store.used());
        self.measure_companions(budget, journal + store);
    }

    /// Deploys pages of a batch of chunks from the hand on, and gives back their space: those that
    /// this many visits have found unchanged.
    fn sweep(&self, sweep: &mut Sweep, cold_after: u8) -> Result<Swept> {
        self.check_usable()?;
        let mut visited = Vec::with_capacity(BATCH);
        while visited.len() < BATCH
            && let Some(chunk) = self.next_with_storage(sweep.hand)?
        {
            sweep.hand = ChunkIndex(chunk.0 + 1);
            visited.push(self.visit(sweep, chunk, cold_after)?);
        }
        let is_around = visited.len() < BATCH;
        let cold = || visited.iter().flat_map(|visited| visited.cold.iter().copied());
        let durable = self.durable.as_ref().filter(|_| {
            cold().any(|(index, pages)| self.away_of(index, pages) != 0)
                && (self.durability != Durability::AtomicSync || planted!(SweepMakesPoint))
        });
        if let Some(durable) = durable {
            // Slices that have changed since the last point have no free slot at home.
            self.durable_point(durable)?;
        }
        cold().try_for_each(|(index, pages)| self.deploy_cold(index, pages))?;
        if let Some(durable) = durable {
            // The slots that were left belong to the last point.
            self.durable_point(durable)?;
        }
        let mut has_given = false;
        for visited in visited {
            if sweep.cannot_punch {
                break;
            }
            let outcome = self.punch_chunk(visited.chunk, |index| visited.cold_of(index))?;
            sweep.cannot_punch |= outcome == PunchOutcome::Unsupported;
            has_given |= outcome == PunchOutcome::GivenBack;
        }
        if is_around {
            (sweep.hand, sweep.was_around) = (ChunkIndex(0), true);
        }
        Ok(Swept { is_around, has_given })
    }

    /// Returns those pages of a loaded region that have a slice in the reflection file.
    fn away_of(&self, index: RegionIndex, pages: u64) -> u64 {
        let Some(region) = self.state.loaded(index) else { return 0 };
        let is_away = |n: &usize| !region.validity(*n).in_reflection(Slices::ALL).is_empty();
        bits(pages).filter(is_away).fold(0, |mask, n| mask | 1 << n)
    }

    /// Deploys these pages of a region, one by one, unless another thread holds them.
    fn deploy_cold(&self, index: RegionIndex, pages: u64) -> Result<()> {
        let Some(region) = self.state.loaded(index) else { return Ok(()) };
        for n in bits(self.away_of(index, pages)) {
            let start = index.page(n).start();
            let end = (start + PAGE as u64).min(self.len());
            if start >= end || region.pages[n].lock.is_locked() || region.lock.is_locked() {
                continue;
            }
            match self.deploy_pages(start..end, Pins::Respect, Which::Unread) {
                Ok(deployed) => {
                    self.lane().stats.bump(Counter::ColdDeployments, deployed);
                }
                // The home file has a hole that a full disk cannot fill, or has become shorter.
                Err(Error::NoSpace { .. } | Error::PastEnd { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Looks at the pages of the chunk's loaded regions, and remembers their versions. Returns the
    /// pages that this many visits have found unchanged, and that no view or stage needs.
    fn visit(&self, sweep: &mut Sweep, chunk: ChunkIndex, cold_after: u8) -> Result<Visited> {
        if !sweep.was_around {
            // An earlier session may have left words. A region without any takes no memory.
            let end = (chunk.start() + CHUNK as u64).min(self.len());
            self.load_nonzero_regions(chunk.start()..end)?;
        }
        let mut cold = SmallVec::new();
        let first = chunk.first_region();
        for index in (0..REGIONS_PER_CHUNK as u64).map(|n| RegionIndex(first.0 + n)) {
            let Some(region) = self.state.loaded(index) else { continue };
            let is_new = !sweep.seen.contains_key(&index);
            let seen = sweep.seen.entry(index).or_insert_with(|| Box::new([0; PAGES_PER_REGION]));
            let mut pages = 0;
            for (n, seen) in seen.iter_mut().enumerate() {
                let version = version_of(region, n);
                let is_unchanged = !is_new && version == Some(*seen & VERSION);
                let visits = if is_unchanged { (*seen / ONE_VISIT + 1).min(OLDEST) } else { 0 };
                *seen = version.unwrap_or(!*seen & VERSION) + visits * ONE_VISIT;
                if visits >= cold_after && !region.is_held_back(n) {
                    pages |= 1 << n;
                }
            }
            cold.push((index, pages));
        }
        Ok(Visited { chunk, cold })
    }

    /// Returns the first chunk, from `from` on, that may have slots or words with storage in the
    /// reflection file.
    fn next_with_storage(&self, from: ChunkIndex) -> Result<Option<ChunkIndex>> {
        let per_superchunk = CHUNKS_PER_SUPERCHUNK as u64;
        let mut from = from;
        while from.start() < self.len() {
            let n = from.0 as usize / CHUNKS_PER_SUPERCHUNK;
            let end = ((n as u64 + 1) * SUPERCHUNK as u64).min(self.len());
            let at = layout::reflection(from.start());
            let data = self.reflection.next_data(at);
            let io = |e| Error::io_at("look for data", self.reflection.path(), at, e);
            let data = data.map_err(io)?.map(|data| from.start() + (data - at));
            let slots = data.filter(|at| *at < end).map(ChunkIndex::of);
            let has_words = |chunk: &ChunkIndex| {
                let state = self.chunk_state(*chunk).load(Ordering::Relaxed);
                state & known::SLICE_WORDS != 0
            };
            let of_superchunk = || (from.0..(n as u64 + 1) * per_superchunk).map(ChunkIndex);
            let is_used = self.state.superchunk_if_loaded(n).is_some();
            let words = is_used.then(|| of_superchunk().find(has_words)).flatten();
            let first = [slots, words].into_iter().flatten().min();
            if let Some(chunk) = first.filter(|chunk| chunk.start() < self.len()) {
                return Ok(Some(chunk));
            }
            from = ChunkIndex((n as u64 + 1) * per_superchunk);
        }
        Ok(None)
    }
}

/// Returns the low bits of the page's version, or `None` while a thread changes the page.
fn version_of(region: &RegionState, n: usize) -> Option<u8> {
    let (of_region, of_page) = (region.lock.begin()?, region.pages[n].lock.begin()?);
    Some(of_region.number().wrapping_add(of_page.number()) as u8 & VERSION)
}
