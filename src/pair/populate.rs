//! Allocation before need: by the worker before a sequential writer, or of the whole file.
//!
//! Each step takes the allocation mutex alone. So a thread that allocates beside it waits for one
//! call.
//!
//! May import `pair::{ahead, allocated, log, pieces, space, stats}`, `format`, `bitmap`, `config`,
//! `error`, `mutant`, `primitive`, `units`.

use crate::bitmap::Side;
use crate::config::Medium;
use crate::error::Result;
use crate::format::layout::{self, LANE, LANE_COUNT};
use crate::mutant::unless;
use crate::pair::Pair;
use crate::pair::allocated::{ahead_flag_of, pages_in};
use crate::pair::log::lane::Lane;
use crate::pair::space::allocation_error;
use crate::pair::stats::Counter;
use crate::primitive::Ordering;
use crate::units::{CHUNK, CHUNKS_PER_SUPERCHUNK, ChunkIndex, PAGE, PageIndex};
use std::ops::Range;

/// Pages that are allocated at a time.
const STEP: usize = 64;

impl Pair {
    /// Allocates the chunks that are wanted. For the worker. A chunk that cannot be allocated is
    /// left to its writer, which reports the error.
    pub(crate) fn allocate_ahead(&self, lane: &Lane) {
        while let Some((side, chunk)) = self.next_wanted() {
            // Excludes changes of the length and punches: both give storage back.
            let _no_change = self.resizing.read();
            if self.check_usable().is_err() {
                return;
            }
            if self.allocate_chunk_ahead(lane, side, chunk).is_ok_and(|is_ahead| is_ahead) {
                lane.stats.bump(Counter::AllocationsAhead, 1);
            }
        }
    }

    /// Allocates a chunk on `side` before it is needed, step by step. Returns `true` if the chunk
    /// is ahead. The caller holds `resizing` for reading.
    pub(crate) fn allocate_chunk_ahead(
        &self,
        lane: &Lane,
        side: Side,
        chunk: ChunkIndex,
    ) -> Result<bool> {
        let end = (chunk.start() + CHUNK as u64).min(self.home.backed());
        if chunk.start() >= end || self.is_whole_or_ahead(side, chunk) {
            return Ok(false);
        }
        let (file, at) = self.slot(side, chunk.start());
        // Most of the work in RAM, without the mutex. It changes no byte.
        self.take_huge_page(lane, side, chunk, end);
        let all = pages_in(chunk, &(chunk.start()..end)).end;
        let superchunk = self.state.superchunk(chunk.0 as usize / CHUNKS_PER_SUPERCHUNK);
        let pieces = superchunk.load_pieces(chunk.0 as usize % CHUNKS_PER_SUPERCHUNK);
        for start in (0..all).step_by(STEP) {
            let _one_at_a_time = self.allocating.lock();
            if self.is_whole_or_ahead(side, chunk) {
                // Another thread has found out, and perhaps stores to pages without a note.
                return Ok(false);
            }
            // Not noted until the chunk is whole: its writer has to come by, and ask for the next.
            for run in pieces.missing(side, start..(start + STEP).min(all)) {
                let (at, len) = (at + (run.start * PAGE) as u64, (run.len() * PAGE) as u64);
                file.allocate(at, len).map_err(|e| allocation_error(file, at, len, e))?;
            }
        }
        let _one_at_a_time = self.allocating.lock();
        if self.is_whole_or_ahead(side, chunk) {
            return Ok(false);
        }
        let state = self.chunk_state(chunk);
        self.recount(chunk, || state.fetch_or(ahead_flag_of(side), Ordering::Release));
        Ok(true)
    }

    /// Allocates all that a write of the bytes `range` may need, and brings the pages into the
    /// mapping where storing to them costs no writing back. With a budget, only the home file is
    /// allocated. Calls `done` with the bytes of each part.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace) where the file system has not enough. What was
    /// allocated stays.
    pub(crate) fn populate(
        &self,
        lane: &Lane,
        range: Range<u64>,
        mut done: impl FnMut(u64),
    ) -> Result<()> {
        let has_budget = self.budget.is_some();
        if !has_budget {
            self.allocate_reflection(layout::LANES, (LANE_COUNT * LANE) as u64)?;
        }
        let mut at = range.start;
        while at < range.end {
            let chunk = ChunkIndex::of(at);
            let end = (chunk.start() + CHUNK as u64).min(range.end);
            self.populate_side(lane, Side::Home, at..end)?;
            if !has_budget {
                self.ensure_region_words(chunk.0 as usize / CHUNKS_PER_SUPERCHUNK)?;
                unless!(PopulatedWithoutWords, self.ensure_slice_word(PageIndex::of(at))?);
                self.populate_side(lane, Side::Reflection, at..end)?;
            }
            done(end - at);
            at = end;
        }
        Ok(())
    }

    fn populate_side(&self, lane: &Lane, side: Side, range: Range<u64>) -> Result<()> {
        self.ensure_slots(lane, side, range.clone())?;
        if self.medium != Medium::PageCache {
            let (file, at) = self.slot(side, range.start);
            file.bring_in(at, range.end - range.start);
        }
        Ok(())
    }
}
