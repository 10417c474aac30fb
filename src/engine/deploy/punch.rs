//! Gives the reflection pages of deployed pages back to the file system, and the words of chunks
//! that are deployed as a whole.
//!
//! Invariants: no slot is given back that is valid, or that belongs to the durable point. A page of
//! words is given back only while it holds zeroes, so no word changes.
//!
//! May import `commit`, `durable`, `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::Validity;
use crate::engine::{Engine, plan};
use crate::error::{Error, Result};
use crate::format::layout;
use crate::lock::LockGuard;
use crate::mutant::{planted, unless};
use crate::pair::log::lane::Lane;
use crate::pair::page_table::known;
use crate::pair::region::RegionState;
use crate::pair::stats::Counter;
use crate::primitive::Ordering;
use crate::units::{
    CHUNK, ChunkIndex, PAGE, PAGES_PER_REGION, PageIndex, REGION, REGIONS_PER_CHUNK, RegionIndex,
};
use smallvec::SmallVec;
use std::iter;
use std::ops::Range;

/// The fewest pages that are given back at a time: 16 KiB. Each call costs about as much as the
/// copy of a page, and leaves one more piece of the file.
const STEP: usize = 4;

/// The regions of a chunk, as far as the file has them.
type Regions<'e> = Vec<(RegionIndex, &'e RegionState)>;

/// The outcome of giving back the reflection pages of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum PunchOutcome {
    GivenBack,
    NothingToGive,
    /// The file system does not support holes, for this chunk or any other.
    Unsupported,
}

impl Engine {
    /// Gives the reflection pages of each chunk within `range` back to the file system, as far as
    /// their slices are valid at home. Returns the number of chunks of which it has given back
    /// pages.
    pub fn punch_deployed(&self, range: Range<u64>) -> Result<u64> {
        self.check_usable()?;
        let mut punched = 0;
        let mut chunk = ChunkIndex::of(range.start.next_multiple_of(CHUNK as u64));
        // The end of the file may cut its last chunk short.
        let end = if range.end == self.len() { u64::MAX } else { range.end };
        while chunk.start() < range.end && chunk.start() + (CHUNK as u64) <= end {
            match self.punch_chunk(chunk)? {
                PunchOutcome::GivenBack => punched += 1,
                PunchOutcome::NothingToGive => {}
                PunchOutcome::Unsupported => break,
            }
            chunk.0 += 1;
        }
        Ok(punched)
    }

    /// Gives back what the chunk's deployed pages have in the reflection file.
    pub(in crate::engine) fn punch_chunk(&self, chunk: ChunkIndex) -> Result<PunchOutcome> {
        let lane = self.lane();
        // Excludes durable points: between its cut and its words, a point knows other slots.
        let _one_at_a_time = self.resizing.write();
        let len = (CHUNK as u64).min(self.len().saturating_sub(chunk.start()));
        let at = layout::reflection(chunk.start());
        let regions = self.regions_of_storage(&lane, chunk, len)?;
        for (index, region) in &regions {
            self.zero_words(&lane, *index, region)?;
        }
        let all = (len as usize).div_ceil(PAGE);
        let runs_to_give = || -> Result<Vec<Range<usize>>> {
            let mut runs = Vec::new();
            for run in runs_at_home(chunk, &regions, all) {
                if run.len() >= STEP.min(all) && self.has_storage(chunk, &run)? {
                    runs.push(run);
                }
            }
            Ok(runs)
        };
        let state = self.chunk_state(chunk);
        let has_words = || state.load(Ordering::Acquire) & known::SLICE_WORDS != 0;
        let may_give_words = || has_words() && !self.has_sums() && !holds_words(&regions);
        // Without the locks: writers are not disturbed where there is nothing to give back.
        if runs_to_give()?.is_empty() && !may_give_words() {
            return Ok(PunchOutcome::NothingToGive);
        }
        let held: Vec<LockGuard<'_>> =
            regions.iter().map(|(_, state)| plan::lock_whole_region(state)).collect();
        let runs = runs_to_give()?;
        // Flip records may still name these slots, but do no harm. If a newer record moved a slice
        // home, the newer record counts. If the slice was deployed, that has invalidated the older
        // records (`punch` of the model). No reader may still copy from an old valid slot: on tmpfs
        // its load would allocate.
        if !runs.is_empty() {
            unless!(PunchNoWait, self.wait_for_read_sections());
        }
        for run in &runs {
            let _no_allocation = self.allocating.lock();
            let (at, len) = (at + (run.start * PAGE) as u64, (run.len() * PAGE) as u64);
            if !self.punch_hole(at, len)? {
                return Ok(PunchOutcome::Unsupported);
            }
            self.forget_reflection(chunk, run.clone(), all);
        }
        if may_give_words() {
            // A thread flushes the words that its flip records cover, even after the page has come
            // home. Without storage that would be a fault.
            for (index, region) in &regions {
                unless!(NamedWordsPunched, self.invalidate_all_records(&lane, *index, region, 0));
            }
            self.drain(&lane);
            self.punch_words(chunk, regions.len())?;
        }
        lane.stats.bump(Counter::Punches, 1);
        drop(held);
        Ok(PunchOutcome::GivenBack)
    }

    /// Returns those regions of the chunk, of which the file has `len` bytes, that are loaded or
    /// have storage in the reflection file. They are loaded now.
    fn regions_of_storage(&self, lane: &Lane, chunk: ChunkIndex, len: u64) -> Result<Regions<'_>> {
        let first = chunk.first_region();
        let inside = (0..REGIONS_PER_CHUNK as u64)
            .map(|n| RegionIndex(first.0 + n))
            .take_while(|index| index.start() < chunk.start() + len);
        let _pinned = lane.pin();
        let mut regions = Regions::new();
        for index in inside {
            let at = layout::reflection(index.start());
            let io = |e| Error::io_at("look for data", self.reflection.path(), at, e);
            let has_data = || -> Result<bool> {
                let data = self.reflection.next_data(at).map_err(io)?;
                Ok(data.is_some_and(|data| data < at + REGION as u64))
            };
            if self.state.loaded(index).is_some() || has_data()? {
                regions.push((index, self.region(index)?));
            }
        }
        Ok(regions)
    }

    /// Punches a hole into the reflection file. Returns `false` if the file system has none.
    fn punch_hole(&self, at: u64, len: u64) -> Result<bool> {
        let io = |e| Error::io_at("punch a hole", self.reflection.path(), at, e);
        self.reflection.punch(at, len).map_err(io)
    }

    /// Gives back the chunk's page of slice words, and that of its durable words, unless a word is
    /// not zero. The caller holds the locks of the chunk's loaded regions, `loaded` in number.
    fn punch_words(&self, chunk: ChunkIndex, loaded: usize) -> Result<()> {
        let page = PageIndex::of(chunk.start());
        let state = self.chunk_state(chunk);
        {
            let _no_allocation = self.allocating.lock();
            self.forget_words_of(chunk);
        }
        // A thread loads a region in a read section. So a region that is loaded from here on finds
        // no words, and its writer waits for the mutex. One that was loaded before is in the table.
        unless!(PunchWordsNoWait, self.wait_for_read_sections());
        let _no_allocation = self.allocating.lock();
        if state.load(Ordering::Acquire) & known::SLICE_WORDS != 0 {
            // A writer has just allocated them anew.
            return Ok(());
        }
        let of_points = self.keeps_points.then(|| layout::durable_word(page));
        let places: SmallVec<[u64; 2]> =
            iter::once(layout::slice_word(page)).chain(of_points).collect();
        let first = chunk.first_region();
        let in_table = (0..REGIONS_PER_CHUNK as u64)
            .filter(|n| self.state.loaded(RegionIndex(first.0 + n)).is_some());
        if in_table.count() != loaded || !self.are_zero(&places)? {
            self.note_words_of(chunk);
            return Ok(());
        }
        for at in places {
            self.punch_hole(at, PAGE as u64)?;
        }
        Ok(())
    }

    /// Returns `true` if the pages of words at these places hold zeroes.
    fn are_zero(&self, places: &[u64]) -> Result<bool> {
        let mut words = [0; PAGE];
        for &at in places {
            let io = |e| Error::io_at("read words", self.reflection.path(), at, e);
            self.reflection.read_file(&mut words, at).map_err(io)?;
            if words.iter().any(|byte| *byte != 0) && !planted!(PunchWordsInUse) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns `true` if a slice word or durable word of these regions is not zero.
fn holds_words(regions: &Regions<'_>) -> bool {
    let is_zero = |(_, region): &(RegionIndex, &RegionState)| {
        region.pages.iter().all(|page| page.slice_word() == 0)
            && (0..PAGES_PER_REGION).all(|n| region.durable(n) == Validity(0))
    };
    !regions.iter().all(is_zero) && !planted!(PunchWordsInUse)
}

/// Returns the runs of the chunk's `all` pages, within the regions, that need no slot in the
/// reflection file. For a caller that holds the regions' locks, the answer stays true.
fn runs_at_home(chunk: ChunkIndex, regions: &Regions<'_>, all: usize) -> Vec<Range<usize>> {
    let is_needed = |state: &RegionState, n: usize| {
        let is_durable = state.durable(n) != Validity(0) && !planted!(PunchDurableSlots);
        let is_staged = !state.staged_slices(n).is_empty() && !planted!(PunchStagedSlots);
        (state.validity(n) != Validity(0) || is_durable || is_staged) && !planted!(PunchValidSlots)
    };
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (index, state) in regions {
        let first = (index.0 - chunk.first_region().0) as usize * PAGES_PER_REGION;
        for n in (0..PAGES_PER_REGION).filter(|n| first + n < all && !is_needed(state, *n)) {
            match runs.last_mut() {
                Some(run) if run.end == first + n => run.end += 1,
                _ => runs.push(first + n..first + n + 1),
            }
        }
    }
    runs
}
