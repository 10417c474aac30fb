//! Holds the allocation of storage before the first store, and what is known to be allocated.
//!
//! Owns: the allocation flags of each chunk, and the counts of allocated pages.
//!
//! Invariant: no store goes to a page that was not allocated before. No load through the mapping
//! goes to a hole of the home file. So a full file system is an error of the call, and never a
//! SIGBUS. On tmpfs a load from a hole allocates, too.
//!
//! Allocation goes ahead of need: by a chunk of 2 MiB on DAX and in RAM, by what is worthwhile on
//! page cache (`pair::pieces`). If the file system has no more space, only the needed pages are
//! allocated.
//!
//! May import `pair::{log, page_table, pieces, region, stats}`, `mmap`, `format`, `bitmap`,
//! `config`, `error`, `primitive`, `units`.

use crate::bitmap::{Side, Slices, Validity};
use crate::config::Medium;
use crate::error::{Error, Result};
use crate::format::layout;
use crate::mmap::MappedFile;
use crate::mutant::{planted, unless};
use crate::pair::Pair;
use crate::pair::log::lane::Lane;
use crate::pair::page_table::known;
use crate::pair::pieces::{PAGES_PER_CHUNK, Pieces};
use crate::pair::region::RegionState;
use crate::pair::stats::Counter;
use crate::primitive::{AtomicU8, AtomicU64, Mutex, Ordering};
use crate::units::{
    CHUNK, CHUNKS_PER_SUPERCHUNK, ChunkIndex, LaneIndex, PAGE, PageIndex, RegionIndex, SUPERCHUNK,
};
use std::io;
use std::ops::Range;

/// Returns the error of an allocation of `len` bytes at `offset` that has failed with `e`.
pub(crate) fn allocation_error(file: &MappedFile, offset: u64, len: u64, e: io::Error) -> Error {
    storage_error("allocate", file, offset, len, e)
}

/// Returns the error of `call`, which may need storage and has failed with `e`.
pub(crate) fn storage_error(
    call: &'static str,
    file: &MappedFile,
    offset: u64,
    len: u64,
    e: io::Error,
) -> Error {
    Error::io_of_range(call, file.path(), offset, len, e)
}

/// Runs `allocate` unless `flag` is set, one caller at a time. `allocate` gets all flags, and sets
/// `flag` itself, last. So a thread that finds the flag set also finds the storage.
#[inline]
pub(crate) fn unless_known(
    allocating: &Mutex<()>,
    state: &AtomicU8,
    flag: u8,
    allocate: impl FnOnce(u8) -> Result<()>,
) -> Result<()> {
    if state.load(Ordering::Acquire) & flag != 0 {
        return Ok(());
    }
    let _one_at_a_time = allocating.lock();
    let known = state.load(Ordering::Acquire);
    // Another thread may have been faster.
    if known & flag == 0 { allocate(known) } else { Ok(()) }
}

/// Returns the flag that says that all slots of a chunk on `side` are allocated.
#[inline(always)]
fn flag_of(side: Side) -> u8 {
    match side {
        Side::Home => known::HOME,
        Side::Reflection => known::REFLECTION,
    }
}

/// Returns the pages of the chunk that contain bytes of `range`.
#[inline]
fn pages_in(chunk: ChunkIndex, range: &Range<u64>) -> Range<usize> {
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
            _ if state & flag_of(side) != 0 => PAGES_PER_CHUNK as u64,
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

    /// Makes sure that a flip of `slices` can store to their free slots and, with `word`, to the
    /// page's slice word. Nearly always all of it is known to be allocated, and one load suffices.
    #[inline]
    pub(crate) fn ensure_free_slots(
        &self,
        lane: &Lane,
        page: PageIndex,
        slices: Slices,
        valid: Validity,
        word: bool,
    ) -> Result<()> {
        let to_reflection = !valid.at_home(slices).is_empty();
        let to_home = !valid.in_reflection(slices).is_empty();
        let mut needed = if word { known::SLICE_WORDS } else { 0 };
        needed |= if to_reflection { known::REFLECTION } else { 0 };
        needed |= if to_home { known::HOME } else { 0 };
        let state = self.chunk_state(ChunkIndex::of(page.start()));
        if state.load(Ordering::Acquire) & needed == needed {
            return Ok(());
        }
        self.allocate_free_slots(lane, page, to_home, to_reflection, word)
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

    #[cold]
    fn allocate_free_slots(
        &self,
        lane: &Lane,
        page: PageIndex,
        home: bool,
        reflection: bool,
        word: bool,
    ) -> Result<()> {
        let range = page.start()..page.start() + PAGE as u64;
        if reflection && !planted!(FlipReflectionNotAllocated) {
            self.ensure_slots(lane, Side::Reflection, range.clone())?;
        }
        if home && !planted!(FlipHomeNotAllocated) {
            self.ensure_slots(lane, Side::Home, range)?;
        }
        if word { self.ensure_slice_word(page) } else { Ok(()) }
    }

    /// Returns `true` if the slots of `range` on `side` are known to be allocated in a chunk that
    /// is allocated in pieces.
    // Not inlined: a chunk in use is allocated as a whole sooner or later.
    #[inline(never)]
    fn pieces_are_allocated(&self, side: Side, range: &Range<u64>) -> bool {
        let chunk = ChunkIndex::of(range.start);
        self.pieces_of(chunk).is_some_and(|pieces| pieces.has(side, pages_in(chunk, range)))
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

    /// Makes sure that the slots on `side` of the bytes `range` are allocated. The range lies
    /// within one chunk.
    #[inline]
    pub(crate) fn ensure_slots(&self, lane: &Lane, side: Side, range: Range<u64>) -> Result<()> {
        let chunk = ChunkIndex::of(range.start);
        let flag = flag_of(side);
        let state = self.chunk_state(chunk);
        if state.load(Ordering::Acquire) & flag == 0 && self.pieces_are_allocated(side, &range) {
            return Ok(());
        }
        unless_known(&self.allocating, state, flag, |known| {
            self.allocate_slots(lane, side, chunk, known, range)
        })
    }

    /// Allocates the slots on `side` for the bytes `needed` of the chunk.
    ///
    /// On page cache it allocates the needed pages, and more as their chunk fills: space that was
    /// never written must not fill a disk. On DAX and in RAM it allocates the whole chunk, which is
    /// one page of the processor there. If there is no space for a whole chunk, it allocates single
    /// pages.
    #[cold]
    fn allocate_slots(
        &self,
        lane: &Lane,
        side: Side,
        chunk: ChunkIndex,
        known: u8,
        needed: Range<u64>,
    ) -> Result<()> {
        let state = self.chunk_state(chunk);
        let end = (chunk.start() + CHUNK as u64).min(self.home.backed());
        let (file, at) = self.slot(side, chunk.start());
        let is_cached = self.medium == Medium::PageCache && !planted!(ChunkForEachTouch);
        if known & known::PIECEWISE == 0 && !is_cached {
            let Err(full) = file.allocate_chunk(at, end - chunk.start()) else {
                self.note_whole(lane, side, chunk);
                return Ok(());
            };
            let error = allocation_error(file, at, end - chunk.start(), full);
            if !matches!(error, Error::NoSpace { .. }) {
                return Err(error);
            }
            state.fetch_or(known::PIECEWISE, Ordering::Release);
        }
        if planted!(PiecesNotAllocated) {
            return Ok(());
        }
        let superchunk = self.state.superchunk(chunk.0 as usize / CHUNKS_PER_SUPERCHUNK);
        let pieces = superchunk.load_pieces(chunk.0 as usize % CHUNKS_PER_SUPERCHUNK);
        let needed = pages_in(chunk, &needed);
        if pieces.has(side, needed.clone()) {
            // Another thread was faster.
            return Ok(());
        }
        if is_cached && pieces.is_empty(side) && self.is_there_or_forgotten(side, chunk, end)? {
            self.note_whole(lane, side, chunk);
            return Ok(());
        }
        let all = pages_in(chunk, &(chunk.start()..end)).end;
        let block = self.worthwhile(side, chunk, pieces, needed.clone(), all);
        if block != needed {
            // Ahead of need, if there is space.
            match self.allocate_missing(side, chunk, pieces, block.clone()) {
                Ok(()) => {
                    if pieces.has(side, 0..all) {
                        self.note_whole(lane, side, chunk);
                    }
                    return Ok(());
                }
                Err(Error::NoSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.allocate_missing(side, chunk, pieces, needed)?;
        if pieces.has(side, 0..all) {
            self.note_whole(lane, side, chunk);
        }
        Ok(())
    }

    /// Returns the pages that are worth allocating together with `needed`.
    fn worthwhile(
        &self,
        side: Side,
        chunk: ChunkIndex,
        pieces: &Pieces,
        needed: Range<usize>,
        all: usize,
    ) -> Range<usize> {
        if self.medium != Medium::PageCache {
            return needed;
        }
        // Sequential writes continue in the next chunk.
        let goes_on = needed.start == 0
            && chunk.0 > 0
            && self.chunk_state(ChunkIndex(chunk.0 - 1)).load(Ordering::Acquire) & flag_of(side)
                != 0;
        if goes_on { 0..all } else { pieces.block(side, needed, all) }
    }

    /// Allocates those of `pages` that are missing, and never one that is allocated already. Where
    /// allocation works by writing zeroes, it would overwrite what other threads store there.
    fn allocate_missing(
        &self,
        side: Side,
        chunk: ChunkIndex,
        pieces: &Pieces,
        pages: Range<usize>,
    ) -> Result<()> {
        for run in pieces.missing(side, pages) {
            let (file, at) = self.slot(side, chunk.start() + (run.start * PAGE) as u64);
            let len = (run.len() * PAGE) as u64;
            file.allocate(at, len).map_err(|e| allocation_error(file, at, len, e))?;
            self.recount(chunk, || pieces.note(side, run));
        }
        Ok(())
    }

    /// Notes that the chunk is allocated as a whole.
    fn note_whole(&self, lane: &Lane, side: Side, chunk: ChunkIndex) {
        let state = self.chunk_state(chunk);
        self.recount(chunk, || state.fetch_or(flag_of(side), Ordering::Release));
        if side == Side::Home {
            state.fetch_and(!known::HOME_HAS_HOLES, Ordering::Release);
        }
        lane.stats.bump(Counter::Allocations, 1);
    }

    /// Returns `true` if the chunk has no hole. Otherwise drops what the page cache holds of the
    /// chunk, and returns `false`.
    ///
    /// If a program has read the chunk in sequence, the kernel may hold it in large folios. The
    /// first store to a folio asks for storage for all of it. Beside holes that fails on a full
    /// disk, and a store cannot report it. Our own mapping brings in single pages
    /// (`Platform::expect_random`).
    fn is_there_or_forgotten(&self, side: Side, chunk: ChunkIndex, end: u64) -> Result<bool> {
        let (file, at) = self.slot(side, chunk.start());
        let len = (end - chunk.start()).min(file.len().saturating_sub(at));
        let hole =
            file.next_hole(at).map_err(|e| Error::io_at("look for holes", file.path(), at, e))?;
        if hole >= at + len {
            return Ok(true);
        }
        unless!(PiecesBesideHoles, file.forget_folios(at, len));
        Ok(false)
    }

    /// Makes sure that the slice word of `page` is allocated.
    #[inline]
    pub(crate) fn ensure_slice_word(&self, page: PageIndex) -> Result<()> {
        let chunk = ChunkIndex::of(page.start());
        if planted!(SliceWordsNotAllocated) {
            return Ok(());
        }
        let state = self.chunk_state(chunk);
        unless_known(&self.allocating, state, known::SLICE_WORDS, |_| {
            let first = PageIndex::of(chunk.start());
            self.forget_words(chunk.0 as usize / CHUNKS_PER_SUPERCHUNK);
            self.allocate_reflection(layout::slice_word(first), PAGE as u64)?;
            if self.keeps_points {
                self.allocate_reflection(layout::durable_word(first), PAGE as u64)?;
            }
            if self.has_sums() && !planted!(SumsNotAllocated) {
                self.allocate_reflection(layout::page_sums(first), layout::CHUNK_SUMS_LEN)?;
            }
            self.recount(chunk, || state.fetch_or(known::SLICE_WORDS, Ordering::Release));
            Ok(())
        })
    }

    /// Drops the words of superchunk `n` from the page cache, once, before the first store to one
    /// of them. Pages of words lie among holes, as slots do
    /// ([`is_there_or_forgotten`](Self::is_there_or_forgotten)). The caller holds the allocation
    /// mutex.
    fn forget_words(&self, n: usize) {
        let superchunk = self.state.superchunk(n);
        let is_first = !superchunk.words_forgotten.swap(true, Ordering::Relaxed);
        if is_first && self.medium == Medium::PageCache {
            self.reflection.forget_folios(layout::superchunk(n), layout::SUPERCHUNK_META);
        }
    }

    /// Returns `true` if the region words of superchunk `n` are known to be allocated.
    #[inline]
    pub(crate) fn region_words_are_allocated(&self, n: usize) -> bool {
        self.state.superchunk(n).region_words_allocated.load(Ordering::Acquire)
    }

    /// Makes sure that the region words of superchunk `n` are allocated.
    pub(crate) fn ensure_region_words(&self, n: usize) -> Result<()> {
        if self.region_words_are_allocated(n) {
            return Ok(());
        }
        let allocated = &self.state.superchunk(n).region_words_allocated;
        let _one_at_a_time = self.allocating.lock();
        self.forget_words(n);
        self.allocate_reflection(layout::region_words(n), layout::REGION_WORDS_LEN)?;
        allocated.store(true, Ordering::Release);
        Ok(())
    }

    /// Makes sure that the lane's 4 KiB are allocated.
    #[inline]
    pub(crate) fn ensure_lane(&self, lane: &Lane, index: LaneIndex) -> Result<()> {
        if lane.is_allocated() {
            return Ok(());
        }
        self.allocate_reflection(layout::lane(index), layout::LANE as u64)?;
        lane.set_allocated();
        Ok(())
    }

    /// Allocates a range of the reflection file.
    pub(crate) fn allocate_reflection(&self, at: u64, len: u64) -> Result<()> {
        self.reflection
            .allocate(at, len)
            .map_err(|e| allocation_error(&self.reflection, at, len, e))
    }

    /// Returns `true` if the home bytes of `chunk` may be loaded through the mapping.
    #[inline]
    pub(crate) fn home_is_loadable(&self, chunk: ChunkIndex) -> Result<bool> {
        let state = self.chunk_state(chunk).load(Ordering::Acquire);
        if state & known::HOME != 0 || self.medium == Medium::PageCache {
            // On page cache a load from a hole allocates nothing.
            return Ok(true);
        }
        if planted!(HolesLoaded) {
            return Ok(true);
        }
        if state & known::HOME_HAS_HOLES != 0 {
            return Ok(false);
        }
        self.look_for_holes(chunk)
    }

    /// Notes in the region that its home bytes may be loaded through the mapping, if the flags of
    /// its chunk say so.
    ///
    /// The caller is in a read section or holds a lock of the region's pages, and has checked the
    /// range. Truncation clears both flags, after it has waited for all read sections and locks on
    /// the range.
    #[inline]
    pub(crate) fn note_loadable(&self, region: &RegionState, index: RegionIndex) {
        if !region.home_is_loadable() {
            let known = self.chunk_state(ChunkIndex::of(index.start())).load(Ordering::Acquire);
            if known & known::HOME != 0 || self.medium == Medium::PageCache {
                region.set_home_loadable(true);
            }
        }
    }

    #[cold]
    fn look_for_holes(&self, chunk: ChunkIndex) -> Result<bool> {
        let _one_at_a_time = self.allocating.lock();
        let state = self.chunk_state(chunk);
        if state.load(Ordering::Acquire) & known::HOME != 0 {
            return Ok(true);
        }
        // The end of the file counts as a hole, so only holes before it matter. This is the file's
        // own end and not the logical length, because growing extends the file first.
        let end = if planted!(HolesUpToOldLength) { self.len() } else { self.home.len() };
        let hole = self
            .home
            .next_hole(chunk.start())
            .map_err(|e| Error::io_at("look for holes", self.home.path(), chunk.start(), e))?;
        let is_before_hole = |chunk: ChunkIndex| hole >= end.min(chunk.start() + CHUNK as u64);
        let whole = is_before_hole(chunk);
        let flag = if whole { known::HOME } else { known::HOME_HAS_HOLES };
        self.recount(chunk, || state.fetch_or(flag, Ordering::Release));
        // The answer covers all chunks up to the hole, so note it for all of them. It may have
        // taken long: tmpfs scans the file page by page. No state is created for other superchunks.
        let superchunk = |chunk: ChunkIndex| chunk.0 / CHUNKS_PER_SUPERCHUNK as u64;
        let after = (chunk.0 + 1..).map(ChunkIndex).take_while(|next| {
            next.start() < end && superchunk(*next) == superchunk(chunk) && is_before_hole(*next)
        });
        after.for_each(|next| {
            let state = self.chunk_state(next);
            self.recount(next, || state.fetch_or(known::HOME, Ordering::Release));
        });
        Ok(whole)
    }

    /// Allocates the rest of the page that the old end cuts in two, if the page is in use, while
    /// the file still ends there. The caller holds `allocating`. On DAX and in RAM there is nothing
    /// to do, because a page is one block.
    pub(crate) fn reserve_rest_of_page(&self, old: u64, new: u64) -> Result<()> {
        if self.medium != Medium::PageCache || planted!(GrowthFromNextPage) {
            return Ok(());
        }
        let page = PageIndex::of(old);
        let cut = page.start()..page.start() + PAGE as u64;
        let state = self.chunk_state(ChunkIndex::of(old)).load(Ordering::Acquire);
        // If pages of the mapping are longer than ours, other pages of ours within the same one may
        // be in use.
        let pages_are_long = self.home.has_long_pages();
        let home = (&self.home, new);
        let reflection = (&self.reflection, layout::reflection_len(new));
        for (side, (file, end)) in [(Side::Home, home), (Side::Reflection, reflection)] {
            let is_in_use = state & flag_of(side) != 0 || self.pieces_are_allocated(side, &cut);
            if is_in_use || pages_are_long {
                file.allocate_past_end(end).map_err(|e| {
                    allocation_error(file, file.len(), end.saturating_sub(file.len()), e)
                })?;
            }
        }
        Ok(())
    }

    /// Allocates the rest of the chunk that holds the old end of the file, so that its flags also
    /// hold up to the new end. In a chunk that is allocated in pieces, this is the rest of one
    /// page. The caller holds `allocating`, and no thread stores past the old end yet.
    pub(crate) fn extend_chunk(&self, old: u64, new: u64) -> Result<()> {
        let chunk = ChunkIndex::of(old);
        let end_of = |unit: u64| (old / unit * unit + unit).min(new.next_multiple_of(PAGE as u64));
        let state = self.chunk_state(chunk).load(Ordering::Acquire);
        let page = PageIndex::of(old);
        let cut = page.start()..page.start() + PAGE as u64;
        for side in [Side::Home, Side::Reflection] {
            // The range begins in the page that the old end cuts in two. Where blocks are smaller
            // than a page, its blocks past the old end are missing.
            let end = if state & flag_of(side) != 0 {
                end_of(CHUNK as u64)
            } else if old > cut.start && self.pieces_are_allocated(side, &cut) {
                end_of(PAGE as u64)
            } else {
                continue;
            };
            let from =
                if planted!(GrowthFromNextPage) { old.next_multiple_of(PAGE as u64) } else { old };
            if from < end {
                let (file, at) = self.slot(side, from);
                file.allocate_growth(at, at + (end - from))
                    .map_err(|e| allocation_error(file, at, end - from, e))?;
            }
        }
        Ok(())
    }
}
