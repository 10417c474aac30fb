//! Background deployment: finds cold pages, deploys them, and gives back their space.
//!
//! A *sweep* goes through the chunks that have storage in the reflection file, as the hand of a
//! clock does. A page is *cold* if no operation has changed it since the sweep was there last. The
//! sweep tells by the versions of the locks, so a write pays nothing for it. Pages are deployed one
//! by one: an operation waits for the copy of one page at most. This is Libnvmmio's checkpointing
//! (3.4), by the page and without epochs.
//!
//! Where durable points are kept, a batch of chunks takes two of them, as `deploy` does. With
//! `AtomicSync` only the program makes points. Then the slices that have changed since the last one
//! stay, and space is given back after the next one.
//!
//! May import `commit`, `durable`, `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::{Slices, bits};
use crate::config::Durability;
use crate::engine::Engine;
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
    CHUNKS_PER_SUPERCHUNK, ChunkIndex, PAGE, PAGES_PER_REGION, REGIONS_PER_CHUNK, RegionIndex,
    SUPERCHUNK,
};
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
    seen: HashMap<u64, Box<[u8; PAGES_PER_REGION]>>,
    /// `true` from the first batch of a turn to its last one.
    is_under_way: bool,
    /// The number of times around the file in this turn.
    round: usize,
    /// `true` if something was given back in this turn.
    has_given: bool,
}

/// The sweeps of one file: for what is idle, and for space.
#[derive(Default)]
pub(crate) struct Sweeps {
    idle: Mutex<Sweep>,
    space: Mutex<Sweep>,
}

impl Engine {
    /// Deploys pages that have not changed since the last request for an idle file: a batch. Then
    /// requests the next batch, until the sweep is around the file. For the worker.
    pub fn deploy_idle(&self) {
        let mut sweep = self.sweeps.idle.lock();
        let is_around = self.sweep(&mut sweep, 1);
        // After an error the next interval tries again.
        if is_around.is_ok_and(|is_around| !is_around) {
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
    pub(super) fn give_back_batch(&self) -> bool {
        let Some(budget) = &self.budget else { return true };
        let mut sweep = self.sweeps.space.lock();
        self.measure(budget);
        let before = self.companions_take(budget);
        if !sweep.is_under_way && !budget.is_tight(before) {
            budget.end_turn(false, before);
            return true;
        }
        sweep.is_under_way = true;
        let round = sweep.round.min(COLD_AFTER.len() - 1);
        let is_around = self.sweep(&mut sweep, COLD_AFTER[round]);
        self.measure(budget);
        let now = self.companions_take(budget);
        sweep.has_given |= now < before;
        sweep.round += usize::from(is_around.as_ref().is_ok_and(|is_around| *is_around));
        let is_enough = now <= budget.low() || sweep.round > 0 && !budget.is_urgent(now);
        let is_over = is_enough || sweep.round >= COLD_AFTER.len() || is_around.is_err();
        // A waiting writer goes on as soon as there is room for it.
        if is_over || now < before {
            budget.end_turn(is_over && !sweep.has_given, now);
        }
        if is_over {
            (sweep.round, sweep.has_given, sweep.is_under_way) = (0, false, false);
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
    /// this many visits have found unchanged. Returns `true` if it has come to the end of the file.
    fn sweep(&self, sweep: &mut Sweep, cold_after: u8) -> Result<bool> {
        self.check_usable()?;
        let mut chunks = Vec::with_capacity(BATCH);
        while chunks.len() < BATCH
            && let Some(chunk) = self.next_with_storage(sweep.hand)?
        {
            chunks.push(chunk);
            sweep.hand = ChunkIndex(chunk.0 + 1);
        }
        let is_around = chunks.len() < BATCH;
        let mut pages = Vec::new();
        for chunk in &chunks {
            self.find_cold(sweep, *chunk, cold_after, &mut pages)?;
        }
        let durable = self.durable.as_ref().filter(|_| {
            !pages.is_empty() && self.durability != Durability::AtomicSync
                || planted!(SweepMakesPoint)
        });
        if let Some(durable) = durable {
            // Slices that have changed since the last point have no free slot at home.
            self.durable_point(durable)?;
        }
        self.deploy_cold(&pages)?;
        if let Some(durable) = durable {
            // The slots that were left belong to the last point.
            self.durable_point(durable)?;
        }
        for chunk in chunks {
            self.punch_chunk(chunk)?;
        }
        if is_around {
            sweep.hand = ChunkIndex(0);
        }
        Ok(is_around)
    }

    /// Deploys these pages of regions, one by one, unless another thread holds them.
    fn deploy_cold(&self, pages: &[(RegionIndex, u64)]) -> Result<()> {
        for &(index, mask) in pages {
            let Some(region) = self.state.loaded(index) else { continue };
            for n in bits(mask) {
                let start = index.page(n).start();
                let end = (start + PAGE as u64).min(self.len());
                if start >= end || region.pages[n].lock.is_locked() || region.lock.is_locked() {
                    continue;
                }
                match self.deploy_pages(start..end, Pins::Respect, Which::All) {
                    Ok(deployed) => {
                        self.lane().stats.bump(Counter::ColdDeployments, deployed);
                    }
                    // The home file has a hole that a full disk cannot fill, or has become shorter.
                    Err(Error::NoSpace { .. } | Error::PastEnd { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Adds the chunk's pages to deploy to `pages`: those with a slice in the reflection file that
    /// are cold, and that no view pins.
    fn find_cold(
        &self,
        sweep: &mut Sweep,
        chunk: ChunkIndex,
        cold_after: u8,
        pages: &mut Vec<(RegionIndex, u64)>,
    ) -> Result<()> {
        let first = chunk.first_region();
        for index in (0..REGIONS_PER_CHUNK as u64).map(|n| RegionIndex(first.0 + n)) {
            let lane = self.lane();
            let region = {
                // In a read section and within the file: the region's words stay there.
                let _pinned = lane.pin();
                if index.start() >= self.len() {
                    break;
                }
                self.region(index)?
            };
            let seen = sweep.seen.entry(index.0);
            let is_new = matches!(seen, std::collections::hash_map::Entry::Vacant(_));
            let seen = seen.or_insert_with(|| Box::new([0; PAGES_PER_REGION]));
            let mut mask = 0;
            for (n, seen) in seen.iter_mut().enumerate() {
                if region.validity(n).in_reflection(Slices::ALL).is_empty() {
                    continue;
                }
                let version = version_of(region, n);
                let is_unchanged = !is_new && version == Some(*seen & VERSION);
                let visits = if is_unchanged { (*seen / ONE_VISIT + 1).min(OLDEST) } else { 0 };
                *seen = version.unwrap_or(!*seen & VERSION) + visits * ONE_VISIT;
                if visits >= cold_after && !region.is_held_back(n) {
                    mask |= 1 << n;
                }
            }
            if mask != 0 {
                pages.push((index, mask));
            }
        }
        Ok(())
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
