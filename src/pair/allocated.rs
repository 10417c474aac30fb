//! Holds what is known to be allocated: flags and pieces of each chunk, and counts of pages.
//!
//! Invariants: a thread that finds a flag or a bit set also finds the storage. Flags and bits
//! change under the allocation mutex alone, and are cleared only where no thread stores.
//!
//! May import `pair::{page_table, pieces, region}`, `format`, `bitmap`, `error`, `primitive`,
//! `units`.

use crate::bitmap::Side;
use crate::error::{Error, Result};
use crate::format::layout;
use crate::mutant::planted;
use crate::pair::Pair;
use crate::pair::page_table::known;
use crate::pair::pieces::{PAGES_PER_CHUNK, Pieces};
use crate::primitive::{AtomicU8, AtomicU64, Ordering};
use crate::units::{CHUNKS_PER_SUPERCHUNK, ChunkIndex, PAGE, PageIndex, RegionIndex, SUPERCHUNK};
use std::ops::Range;

/// Returns the flag that says that all slots of a chunk on `side` are allocated.
#[inline(always)]
pub(super) fn flag_of(side: Side) -> u8 {
    match side {
        Side::Home => known::HOME,
        Side::Reflection => known::REFLECTION,
    }
}

/// Returns the flag that says that all slots of a chunk on `side` were allocated ahead.
#[inline(always)]
pub(super) fn ahead_flag_of(side: Side) -> u8 {
    match side {
        Side::Home => known::HOME_AHEAD,
        Side::Reflection => known::REFLECTION_AHEAD,
    }
}

/// Returns the pages of the chunk that contain bytes of `range`.
#[inline]
pub(super) fn pages_in(chunk: ChunkIndex, range: &Range<u64>) -> Range<usize> {
    let start = (range.start - chunk.start()) as usize / PAGE;
    start..((range.end - chunk.start()) as usize).div_ceil(PAGE)
}

/// Counts of the pages that are known to be allocated: home, reflection. Changed under the
/// allocation mutex. A chunk that is allocated as a whole counts as a long one, also at the end of
/// the file.
#[derive(Debug)]
pub(crate) struct Allocated([AtomicU64; 2]);

impl Allocated {
    /// Makes counts of nothing.
    pub fn new() -> Self {
        Allocated(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Returns how many bytes of pages are known to be allocated on `side`. Walks through nothing.
    pub fn bytes(&self, side: Side) -> u64 {
        let count = &self.0[usize::from(side == Side::Reflection)];
        count.load(Ordering::Relaxed) * PAGE as u64
    }
}

impl Pair {
    /// Runs `change`, which changes what is known of the chunk, and counts the difference. The
    /// caller holds the allocation mutex.
    pub(crate) fn recount<T>(&self, chunk: ChunkIndex, change: impl FnOnce() -> T) -> T {
        let before = self.known_pages(chunk);
        let result = change();
        let after = self.known_pages(chunk);
        for (count, (before, after)) in self.allocated.0.iter().zip(before.into_iter().zip(after)) {
            // A load and a store: the mutex admits one thread.
            count.store(count.load(Ordering::Relaxed) + after - before, Ordering::Relaxed);
        }
        result
    }

    /// Counts all chunks anew, after a truncation has gone through them. The caller holds the
    /// allocation mutex.
    pub(crate) fn recount_all(&self) {
        let superchunks = 0..self.max_len.div_ceil(SUPERCHUNK as u64);
        let loaded = superchunks.filter(|n| self.state.superchunk_if_loaded(*n as usize).is_some());
        let per_superchunk = CHUNKS_PER_SUPERCHUNK as u64;
        let all = loaded.flat_map(|n| n * per_superchunk..(n + 1) * per_superchunk);
        let add = |[home, reflection]: [u64; 2], [h, r]: [u64; 2]| [home + h, reflection + r];
        let sums = all.map(|n| self.known_pages(ChunkIndex(n))).fold([0; 2], add);
        for (count, sum) in self.allocated.0.iter().zip(sums) {
            count.store(sum, Ordering::Relaxed);
        }
    }

    /// Returns how many pages of the chunk are known to be allocated: home, reflection.
    fn known_pages(&self, chunk: ChunkIndex) -> [u64; 2] {
        let state = self.chunk_state(chunk).load(Ordering::Relaxed);
        let pieces = self.pieces_of(chunk);
        let slots = |side| match pieces {
            _ if state & (flag_of(side) | ahead_flag_of(side)) != 0 => PAGES_PER_CHUNK as u64,
            Some(pieces) => pieces.count(side, 0..PAGES_PER_CHUNK) as u64,
            None => 0,
        };
        // Slice words, durable words where durable points are kept, and sums.
        let sums = if self.has_sums() { layout::CHUNK_SUMS_LEN / PAGE as u64 } else { 0 };
        let pages = 1 + u64::from(self.keeps_points) + sums;
        let words = if state & known::SLICE_WORDS != 0 { pages } else { 0 };
        [slots(Side::Home), slots(Side::Reflection) + words]
    }

    /// Returns the word with the chunk's allocation flags.
    #[inline]
    pub(crate) fn chunk_state(&self, chunk: ChunkIndex) -> &AtomicU8 {
        let superchunk = self.state.superchunk(chunk.0 as usize / CHUNKS_PER_SUPERCHUNK);
        &superchunk.chunks[chunk.0 as usize % CHUNKS_PER_SUPERCHUNK]
    }

    /// Returns `true` if all slots of a region are known to be allocated and, with `words`, its
    /// slice words. A region lies within one chunk.
    #[inline(always)]
    pub(crate) fn all_is_allocated(&self, region: RegionIndex, words: bool) -> bool {
        let needed = known::HOME | known::REFLECTION | if words { known::SLICE_WORDS } else { 0 };
        let state = self.chunk_state(ChunkIndex::of(region.start())).load(Ordering::Acquire);
        state & needed == needed
    }

    /// Returns `true` if the slots of a region on `side` are known to be allocated and, with
    /// `words`, its slice words.
    // Inlined: a call is a store, and the number of stores limits some small writes.
    #[inline(always)]
    pub(crate) fn side_is_allocated(&self, region: RegionIndex, side: Side, words: bool) -> bool {
        let needed = flag_of(side) | if words { known::SLICE_WORDS } else { 0 };
        let state = self.chunk_state(ChunkIndex::of(region.start())).load(Ordering::Acquire);
        state & needed == needed
    }

    /// Returns `true` if the slots of `range` on `side` are known to be allocated in a chunk that
    /// is allocated in pieces.
    // Not inlined: a chunk in use is allocated as a whole sooner or later.
    #[inline(never)]
    pub(super) fn pieces_are_allocated(&self, side: Side, range: &Range<u64>) -> bool {
        let chunk = ChunkIndex::of(range.start);
        self.pieces_of(chunk).is_some_and(|pieces| pieces.has(side, pages_in(chunk, range)))
    }

    /// Returns `true` if the page's slots on `side` are known to be allocated, in a chunk that is
    /// allocated in pieces.
    pub(crate) fn page_is_allocated(&self, side: Side, page: PageIndex) -> bool {
        self.pieces_are_allocated(side, &(page.start()..page.start() + PAGE as u64))
    }

    /// Returns the allocated pages of the chunk, if it was allocated in pieces.
    pub(crate) fn pieces_of(&self, chunk: ChunkIndex) -> Option<&Pieces> {
        self.state
            .superchunk_if_loaded(chunk.0 as usize / CHUNKS_PER_SUPERCHUNK)?
            .pieces(chunk.0 as usize % CHUNKS_PER_SUPERCHUNK)
    }

    /// Returns `true` if both slots of a page and its slice word are known to be allocated, in a
    /// chunk that is not known to be allocated as a whole.
    #[cold]
    #[inline(never)]
    pub(crate) fn is_allocated_in_pieces(&self, page: PageIndex) -> bool {
        let range = page.start()..page.start() + PAGE as u64;
        let is_there = |side| {
            self.side_is_allocated(page.region(), side, true)
                || self.pieces_are_allocated(side, &range)
        };
        let state = self.chunk_state(ChunkIndex::of(page.start())).load(Ordering::Acquire);
        state & known::SLICE_WORDS != 0 && is_there(Side::Home) && is_there(Side::Reflection)
    }

    /// Returns `true` if some of these pages of the chunk are allocated in the reflection file.
    ///
    /// # Errors
    /// That of a look for data, where nothing is known, as after an opening.
    pub(crate) fn has_storage(&self, chunk: ChunkIndex, pages: &Range<usize>) -> Result<bool> {
        let state = self.chunk_state(chunk).load(Ordering::Acquire);
        if state & (known::REFLECTION | known::REFLECTION_AHEAD) != 0 {
            return Ok(true);
        }
        match self.pieces_of(chunk) {
            Some(pieces) if !pieces.is_empty(Side::Reflection) => {
                Ok(pieces.count(Side::Reflection, pages.clone()) > 0)
            }
            _ => {
                let at = layout::reflection(chunk.start()) + (pages.start * PAGE) as u64;
                let end = at + (pages.len() * PAGE) as u64;
                let io = |e| Error::io_at("look for data", self.reflection.path(), at, e);
                let data = self.reflection.next_data(at).map_err(io)?;
                Ok(data.is_some_and(|at| at < end))
            }
        }
    }

    /// Notes that these pages of a chunk of `all` pages have no slots in the reflection file any
    /// more. The caller holds the allocation mutex, and no thread stores to the slots.
    pub(crate) fn forget_reflection(&self, chunk: ChunkIndex, pages: Range<usize>, all: usize) {
        if planted!(PunchedStaysAllocated) {
            return;
        }
        self.recount(chunk, || {
            let state = self.chunk_state(chunk);
            let superchunk = self.state.superchunk(chunk.0 as usize / CHUNKS_PER_SUPERCHUNK);
            let pieces = superchunk.load_pieces(chunk.0 as usize % CHUNKS_PER_SUPERCHUNK);
            let whole = known::REFLECTION | known::REFLECTION_AHEAD;
            if state.load(Ordering::Acquire) & whole != 0 {
                // The other pages are known one by one from here on.
                pieces.note(Side::Reflection, 0..all);
            }
            pieces.forget(Side::Reflection, pages);
            let gone = if planted!(PunchedStaysAhead) { known::REFLECTION } else { whole };
            state.fetch_and(!gone, Ordering::Release);
        });
    }

    /// Notes that the chunk has no words any more. The caller is as for
    /// [`forget_reflection`](Self::forget_reflection).
    pub(crate) fn forget_words_of(&self, chunk: ChunkIndex) {
        let state = self.chunk_state(chunk);
        self.recount(chunk, || state.fetch_and(!known::SLICE_WORDS, Ordering::Release));
    }

    /// Notes that the chunk's words are allocated. The caller holds the allocation mutex.
    pub(crate) fn note_words_of(&self, chunk: ChunkIndex) {
        let state = self.chunk_state(chunk);
        self.recount(chunk, || state.fetch_or(known::SLICE_WORDS, Ordering::Release));
    }
}
