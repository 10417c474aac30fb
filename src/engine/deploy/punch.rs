//! Gives the reflection pages of deployed pages back to the file system, and the words of chunks
//! that are deployed as a whole.
//!
//! Invariants: no slot is given back that is valid, that belongs to the durable point, or that a
//! stage has claimed. A page of words is given back only while it holds zeroes, so no word changes.
//!
//! A run of pages is looked at without locks first. The thread then waits for the readers that may
//! still copy from its slots, also without locks. Only then it locks the pages of the run, and
//! gives back those that have not changed since the look. So a writer waits for one call at most,
//! and only if it writes to a page of that run.
//!
//! May import `commit`, `durable`, `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::{Validity, bits};
use crate::engine::{Engine, plan};
use crate::error::{Error, Result};
use crate::format::layout;
use crate::lock::{LockGuard, LockGuards, Stamp, lock_pages};
use crate::mutant::{planted, unless};
use crate::pair::log::lane::Lane;
use crate::pair::page_table::known;
use crate::pair::region::RegionState;
use crate::pair::stats::Counter;
use crate::primitive::{Ordering, fence};
use crate::units::{
    CHUNK, ChunkIndex, PAGE, PAGES_PER_REGION, PageIndex, REGION, REGIONS_PER_CHUNK, RegionIndex,
};
use smallvec::SmallVec;
use std::iter;
use std::ops::Range;

/// The fewest pages that are given back at a time: 16 KiB. Each call costs about as much as the
/// copy of a page, and leaves one more piece of the file.
const STEP: usize = 4;

/// The section in which storage and what is known of it differ.
const GIVING_BACK: &str = "return of space";

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
            match self.punch_chunk(chunk, |_| !0)? {
                PunchOutcome::GivenBack => punched += 1,
                PunchOutcome::NothingToGive => {}
                PunchOutcome::Unsupported => break,
            }
            chunk.0 += 1;
        }
        Ok(punched)
    }

    /// Gives back what the chunk's deployed pages have in the reflection file. `may_give` returns
    /// the pages of a region that may be given back.
    pub(in crate::engine) fn punch_chunk(
        &self,
        chunk: ChunkIndex,
        may_give: impl Fn(RegionIndex) -> u64,
    ) -> Result<PunchOutcome> {
        let lane = self.lane();
        // Excludes durable points: between its cut and its words, a point knows other slots.
        let _one_at_a_time = self.resizing.write();
        self.check_usable_still()?;
        let len = (CHUNK as u64).min(self.len().saturating_sub(chunk.start()));
        let regions = self.regions_of_storage(&lane, chunk, len)?;
        let may_give_all = regions.iter().all(|(index, _)| may_give(*index) == !0);
        if may_give_all {
            for (index, region) in &regions {
                self.zero_words(&lane, *index, region)?;
            }
        }
        let seen = look(chunk, &regions, (len as usize).div_ceil(PAGE), may_give);
        let mut runs = Vec::new();
        for run in runs_where(0..seen.len(), |n| seen[n].is_some()) {
            if run.len() >= STEP.min(seen.len()) && self.has_storage(chunk, &run)? {
                runs.push(run);
            }
        }
        let state = self.chunk_state(chunk);
        let has_words = state.load(Ordering::Acquire) & known::SLICE_WORDS != 0;
        let may_give_words =
            has_words && may_give_all && !self.has_sums() && !self.needs_words(&regions);
        if runs.is_empty() && !may_give_words {
            return Ok(PunchOutcome::NothingToGive);
        }
        // Flip records may still name these slots, but do no harm. If a newer record moved a slice
        // home, the newer record counts. If the slice was deployed, that has invalidated the older
        // records (`punch` of the model). No reader may still copy from an old valid slot: on tmpfs
        // its load would allocate. A reader that begins after this finds the page at home, unless
        // the page gets a new version.
        if !runs.is_empty() {
            unless!(PunchNoWait, self.wait_for_read_sections());
        }
        let mut has_given = false;
        for run in runs {
            match self.punch_run(chunk, run, &regions, &seen)? {
                PunchOutcome::GivenBack => has_given = true,
                PunchOutcome::NothingToGive => {}
                PunchOutcome::Unsupported => return Ok(PunchOutcome::Unsupported),
            }
        }
        has_given |= may_give_words && self.punch_words(&lane, chunk, &regions)?;
        if !has_given {
            return Ok(PunchOutcome::NothingToGive);
        }
        lane.stats.bump(Counter::Punches, 1);
        Ok(PunchOutcome::GivenBack)
    }

    /// Gives back those pages of a run that are as `seen`.
    fn punch_run(
        &self,
        chunk: ChunkIndex,
        run: Range<usize>,
        regions: &Regions<'_>,
        seen: &[Option<Stamp>],
    ) -> Result<PunchOutcome> {
        let mut held = LockGuards::new();
        let mut pages: Vec<(&RegionState, usize)> = Vec::with_capacity(run.len());
        for (index, region) in regions {
            let first = (index.0 - chunk.first_region().0) as usize * PAGES_PER_REGION;
            let place = |n: usize| n.clamp(first, first + PAGES_PER_REGION) - first;
            let here = place(run.start)..place(run.end);
            if here.is_empty() {
                continue;
            }
            let locks = here.clone().map(|n| &region.pages[n].lock);
            lock_pages(&region.lock, locks, &mut held);
            pages.extend(here.map(|n| (*region, n)));
        }
        // Nothing that a reader sees changes, so transactions that have read these pages go on.
        held.iter().for_each(LockGuard::mark_stable);
        let is_as_seen = |n: usize| {
            let (region, place) = pages[n - run.start];
            let is_still = |seen: &Stamp| seen.is_still(&region.lock, &region.pages[place].lock);
            let is_still = seen[n].as_ref().is_some_and(is_still) && !is_needed(region, place);
            is_still || planted!(PunchNotValidated)
        };
        let mut outcome = PunchOutcome::NothingToGive;
        for run in runs_where(run.clone(), is_as_seen) {
            // Keeps other threads from allocating in the range until its pages are forgotten.
            let _no_allocation = self.allocating.lock();
            let at = layout::reflection(chunk.start()) + (run.start * PAGE) as u64;
            let punched = self.uncut(GIVING_BACK, || {
                let punched = self.punch_hole(at, (run.len() * PAGE) as u64);
                if matches!(punched, Ok(true)) {
                    self.forget_reflection(chunk, run, seen.len());
                }
                punched
            });
            if !punched? {
                return Ok(PunchOutcome::Unsupported);
            }
            outcome = PunchOutcome::GivenBack;
        }
        Ok(outcome)
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
    /// not zero. `regions` has all regions of the chunk that are loaded. Returns `true` if it has
    /// given them back.
    fn punch_words(&self, lane: &Lane, chunk: ChunkIndex, regions: &Regions<'_>) -> Result<bool> {
        // No writer stores a word of these regions meanwhile.
        let _held: Vec<LockGuard<'_>> =
            regions.iter().map(|(_, region)| plan::lock_whole_region(region)).collect();
        if self.needs_words(regions) {
            return Ok(false);
        }
        let unfinished = self.begin(GIVING_BACK);
        let punched = self.punch_words_held(lane, chunk, regions);
        unfinished.end();
        punched
    }

    /// Gives back the words, while the caller holds the locks of all regions.
    fn punch_words_held(
        &self,
        lane: &Lane,
        chunk: ChunkIndex,
        regions: &Regions<'_>,
    ) -> Result<bool> {
        // A thread flushes the words that its flip records cover, even after the page has come
        // home. Without storage that would be a fault.
        for (index, region) in regions {
            unless!(NamedWordsPunched, self.invalidate_all_records(lane, *index, region, 0));
        }
        // Orders the invalidated headers before the hole: no recovery stores a word into it.
        self.drain(lane);
        let page = PageIndex::of(chunk.start());
        let state = self.chunk_state(chunk);
        {
            let _no_allocation = self.allocating.lock();
            self.forget_words_of(chunk);
        }
        // A thread loads a region in a read section. So a region that is loaded from here on finds
        // no words, and its writer waits for the mutex. One that was loaded before is in the table.
        // Without the mutex: a reader that looks for holes takes it in its read section.
        unless!(PunchWordsNoWait, self.wait_for_read_sections());
        let _no_allocation = self.allocating.lock();
        if state.load(Ordering::Acquire) & known::SLICE_WORDS != 0 {
            // A writer has just allocated them anew.
            return Ok(false);
        }
        let of_points = self.keeps_points.then(|| layout::durable_word(page));
        let places: SmallVec<[u64; 2]> =
            iter::once(layout::slice_word(page)).chain(of_points).collect();
        let first = chunk.first_region();
        let in_table = (0..REGIONS_PER_CHUNK as u64)
            .filter(|n| self.state.loaded(RegionIndex(first.0 + n)).is_some());
        if in_table.count() != regions.len() || !self.are_zero(&places)? {
            self.note_words_of(chunk);
            return Ok(false);
        }
        for at in places {
            self.punch_hole(at, PAGE as u64)?;
        }
        Ok(true)
    }

    /// Returns `true` if a slice word or durable word of these regions is not zero, or is about to
    /// be stored: the next durable point stores that of a page that its region bit has sent away.
    /// For a caller that holds the locks of the regions, the answer stays true.
    fn needs_words(&self, regions: &Regions<'_>) -> bool {
        let is_zero = |(_, region): &(RegionIndex, &RegionState)| {
            region.pages.iter().all(|page| page.slice_word() == 0)
                && (0..PAGES_PER_REGION).all(|n| region.durable(n) == Validity(0))
        };
        let awaits_point = |(_, region): &(RegionIndex, &RegionState)| {
            self.keeps_points && (0..PAGES_PER_REGION).any(|n| region.validity(n) != Validity(0))
        };
        !regions.iter().all(is_zero) && !planted!(PunchWordsInUse)
            || regions.iter().any(awaits_point) && !planted!(PunchWordsOfNextPoint)
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

/// Returns `true` if the page's slots in the reflection file are needed. For a caller that holds
/// the page's lock, the answer stays true.
fn is_needed(region: &RegionState, n: usize) -> bool {
    let is_durable = region.durable(n) != Validity(0) && !planted!(PunchDurableSlots);
    let is_staged = !region.staged_slices(n).is_empty() && !planted!(PunchStagedSlots);
    (region.validity(n) != Validity(0) || is_durable || is_staged) && !planted!(PunchValidSlots)
}

/// Returns the versions of those of the chunk's `all` pages that need no slot in the reflection
/// file, and may be given back.
fn look(
    chunk: ChunkIndex,
    regions: &Regions<'_>,
    all: usize,
    may_give: impl Fn(RegionIndex) -> u64,
) -> Vec<Option<Stamp>> {
    let mut seen = vec![None; all];
    for (index, region) in regions {
        let first = (index.0 - chunk.first_region().0) as usize * PAGES_PER_REGION;
        for n in bits(may_give(*index)).filter(|n| first + n < all) {
            let lock = &region.pages[n].lock;
            let stamp = Stamp::begin(&region.lock, lock).filter(|_| !is_needed(region, n));
            // Orders the look at the page before the second look at its version.
            fence(Ordering::Acquire);
            seen[first + n] = stamp.filter(|stamp| stamp.is_still(&region.lock, lock));
        }
    }
    seen
}

/// Returns the runs of the numbers in `range` for which `is_in` is true.
fn runs_where(range: Range<usize>, is_in: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for n in range.filter(|n| is_in(*n)) {
        match runs.last_mut() {
            Some(run) if run.end == n => run.end += 1,
            _ => runs.push(n..n + 1),
        }
    }
    runs
}
