//! Holds the allocation of storage before the first store, and what is known to be allocated.
//!
//! Owns: the allocation flags of each chunk, and the counts of allocated pages.
//!
//! Invariant: no store goes to a page that was not allocated before. No load through the mapping
//! goes to a hole of the home file. So a full file system is an error of the call, and never a
//! SIGBUS. On tmpfs a load from a hole allocates, too.
//!
//! Allocation goes ahead of need, by what is worthwhile (`pair::pieces`). On DAX and in RAM, a
//! chunk of 2 MiB that begins to fill is allocated as a whole. If the file system has no more
//! space, only the needed pages are allocated.
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
use crate::pair::allocated::{ahead_flag_of, flag_of, pages_in};
use crate::pair::log::lane::Lane;
use crate::pair::page_table::known;
use crate::pair::pieces::Pieces;
use crate::pair::region::RegionState;
use crate::pair::stats::Counter;
use crate::primitive::{AtomicU8, Mutex, Ordering};
use crate::units::{
    CHUNK, CHUNKS_PER_SUPERCHUNK, ChunkIndex, LaneIndex, PAGE, PageIndex, RegionIndex,
};
use std::io;
use std::ops::Range;

/// On DAX and in RAM, a chunk is allocated as a whole when more than one in this number of its
/// pages is needed or allocated.
const FILLS: usize = 4;

/// The most chunks that get their words together: 64 KiB of slice words.
const LONGEST_RUN: usize = 16;

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

/// Runs `allocate` unless `flag` is set, one caller at a time. `allocate` sets `flag` itself, last.
/// So a thread that finds the flag set also finds the storage.
#[inline]
pub(crate) fn unless_known(
    allocating: &Mutex<()>,
    state: &AtomicU8,
    flag: u8,
    allocate: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if state.load(Ordering::Acquire) & flag != 0 {
        return Ok(());
    }
    let _one_at_a_time = allocating.lock();
    let known = state.load(Ordering::Acquire);
    // Another thread may have been faster.
    if known & flag == 0 { allocate() } else { Ok(()) }
}

impl Pair {
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
        unless_known(&self.allocating, state, flag, || {
            self.allocate_slots(lane, side, chunk, range)
        })
    }

    /// Allocates the slots on `side` for the bytes `needed` of the chunk, and more as the chunk
    /// fills: space that was never written must not fill a disk or the memory. If the file system
    /// has no space for more, it allocates the needed pages alone.
    #[cold]
    fn allocate_slots(
        &self,
        lane: &Lane,
        side: Side,
        chunk: ChunkIndex,
        needed: Range<u64>,
    ) -> Result<()> {
        let end = (chunk.start() + CHUNK as u64).min(self.home.backed());
        if planted!(PiecesNotAllocated) {
            return Ok(());
        }
        let superchunk = self.state.superchunk(chunk.0 as usize / CHUNKS_PER_SUPERCHUNK);
        let pieces = superchunk.load_pieces(chunk.0 as usize % CHUNKS_PER_SUPERCHUNK);
        let needed = pages_in(chunk, &needed);
        self.want_ahead(side, chunk, &needed);
        if self.chunk_state(chunk).load(Ordering::Acquire) & ahead_flag_of(side) != 0 {
            self.note_whole(lane, side, chunk);
            return Ok(());
        }
        if pieces.has(side, needed.clone()) {
            // Another thread was faster.
            return Ok(());
        }
        if pieces.is_empty(side) && self.is_there_or_forgotten(side, chunk, end)? {
            self.note_whole(lane, side, chunk);
            return Ok(());
        }
        let all = pages_in(chunk, &(chunk.start()..end)).end;
        let block = self.worthwhile(side, chunk, pieces, needed.clone(), all);
        if block == (0..all) {
            self.take_huge_page(lane, side, chunk, end);
        }
        // Ahead of need, if there is space.
        match self.allocate_missing(side, chunk, pieces, block.clone()) {
            Err(Error::NoSpace { .. }) if block != needed => {
                self.allocate_missing(side, chunk, pieces, needed)?;
            }
            result => result?,
        }
        if pieces.has(side, 0..all) {
            self.note_whole(lane, side, chunk);
        }
        Ok(())
    }

    /// Returns the pages that are worth allocating together with `needed`, in a chunk of `all`
    /// pages.
    fn worthwhile(
        &self,
        side: Side,
        chunk: ChunkIndex,
        pieces: &Pieces,
        needed: Range<usize>,
        all: usize,
    ) -> Range<usize> {
        // A whole chunk is one page of the processor.
        let fills = self.medium != Medium::PageCache
            && (pieces.count(side, 0..all) + needed.len()) * FILLS > all;
        let block = if self.goes_on(side, chunk, &needed) || fills || planted!(ChunkForEachTouch) {
            0..all
        } else {
            pieces.block(side, needed.clone(), all)
        };
        let may = side == Side::Home || self.may_allocate_ahead((block.len() * PAGE) as u64);
        if may { block } else { needed }
    }

    /// Makes the chunk, which ends at `end`, one page of the processor where its side lies in RAM
    /// and the system has one. Holes may become allocated, and no byte changes.
    pub(super) fn take_huge_page(&self, lane: &Lane, side: Side, chunk: ChunkIndex, end: u64) {
        let (file, at) = self.slot(side, chunk.start());
        if self.medium != Medium::PageCache && file.take_huge_page(at, end - chunk.start()) {
            lane.stats.bump(Counter::HugePages, 1);
        }
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
        self.recount(chunk, || {
            state.fetch_or(flag_of(side), Ordering::Release);
            state.fetch_and(!ahead_flag_of(side), Ordering::Release);
        });
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
            self.note_up_to_hole(side, chunk, chunk.start() + (hole - at));
            return Ok(true);
        }
        if self.medium == Medium::PageCache {
            unless!(PiecesBesideHoles, file.forget_folios(at, len));
        }
        Ok(false)
    }

    /// Notes that the chunks behind `chunk` have no hole on `side` before the home byte `hole`. A
    /// look for holes may take long: tmpfs goes through the file page by page. No state is created
    /// for other superchunks, and in the reflection file those lie elsewhere.
    fn note_up_to_hole(&self, side: Side, chunk: ChunkIndex, hole: u64) {
        let superchunk = |chunk: ChunkIndex| chunk.0 / CHUNKS_PER_SUPERCHUNK as u64;
        let after = (chunk.0 + 1..).map(ChunkIndex).take_while(|next| {
            superchunk(*next) == superchunk(chunk) && next.start() + CHUNK as u64 <= hole
        });
        after.for_each(|next| {
            let state = self.chunk_state(next);
            self.recount(next, || state.fetch_or(flag_of(side), Ordering::Release));
        });
    }

    /// Makes sure that the slice word of `page` is allocated.
    #[inline]
    pub(crate) fn ensure_slice_word(&self, page: PageIndex) -> Result<()> {
        let chunk = ChunkIndex::of(page.start());
        if planted!(SliceWordsNotAllocated) {
            return Ok(());
        }
        let state = self.chunk_state(chunk);
        unless_known(&self.allocating, state, known::SLICE_WORDS, || {
            self.forget_words(chunk.0 as usize / CHUNKS_PER_SUPERCHUNK);
            let run = self.worthwhile_words(chunk);
            // Ahead of need, if there is space.
            match self.allocate_words(&run) {
                Err(Error::NoSpace { .. }) if run.end > chunk.0 + 1 => {
                    self.allocate_words(&(chunk.0..chunk.0 + 1))
                }
                result => result,
            }
        })
    }

    /// Returns the chunks that get their words together, from `chunk` on: as many as have words
    /// directly before it, so that words at most double. Pages of words that are allocated one by
    /// one lie apart on a disk, and an opening reads them all (`docs/decisions/allocation.md`). The
    /// caller holds the allocation mutex, and `chunk` has no words.
    fn worthwhile_words(&self, chunk: ChunkIndex) -> Range<u64> {
        if !self.words_ahead {
            return chunk.0..chunk.0 + 1;
        }
        let superchunk = chunk.0 / CHUNKS_PER_SUPERCHUNK as u64 * CHUNKS_PER_SUPERCHUNK as u64;
        let end = superchunk + CHUNKS_PER_SUPERCHUNK as u64;
        let has_words = |n: &u64| {
            self.chunk_state(ChunkIndex(*n)).load(Ordering::Acquire) & known::SLICE_WORDS != 0
        };
        let before = (superchunk..chunk.0).rev().take_while(has_words).take(LONGEST_RUN).count();
        let run = (chunk.0..end).take(before.max(1)).take_while(|n| !has_words(n)).count();
        chunk.0..chunk.0 + run as u64
    }

    /// Allocates the words of these chunks of one superchunk, and notes them.
    fn allocate_words(&self, chunks: &Range<u64>) -> Result<()> {
        let count = if planted!(WordsAheadNotAllocated) { 1 } else { chunks.end - chunks.start };
        let first = PageIndex::of(ChunkIndex(chunks.start).start());
        self.allocate_reflection(layout::slice_word(first), count * PAGE as u64)?;
        if self.keeps_points {
            self.allocate_reflection(layout::durable_word(first), count * PAGE as u64)?;
        }
        if self.has_sums() && !planted!(SumsNotAllocated) {
            self.allocate_reflection(layout::page_sums(first), count * layout::CHUNK_SUMS_LEN)?;
        }
        chunks.clone().for_each(|n| self.note_words_of(ChunkIndex(n)));
        Ok(())
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
        self.note_others(layout::REGION_WORDS_LEN);
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
        self.note_others(layout::LANE as u64);
        lane.set_allocated();
        Ok(())
    }

    /// Allocates a range of the reflection file.
    pub(crate) fn allocate_reflection(&self, at: u64, len: u64) -> Result<()> {
        self.reflection
            .allocate(at, len)
            .map_err(|e| allocation_error(&self.reflection, at, len, e))
    }

    /// Returns `true` if the home bytes `range` of one chunk may be loaded through the mapping.
    #[inline]
    pub(crate) fn home_is_loadable(&self, range: Range<u64>) -> Result<bool> {
        let chunk = ChunkIndex::of(range.start);
        let state = self.chunk_state(chunk).load(Ordering::Acquire);
        if state & known::HOME != 0 || self.medium == Medium::PageCache {
            // On page cache a load from a hole allocates nothing.
            return Ok(true);
        }
        if planted!(HolesLoaded) || self.pieces_are_allocated(Side::Home, &range) {
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

    /// Returns `true` if the page's home bytes may be loaded, in a region of which not all may be.
    /// Notes in the region if they may. The caller is as for
    /// [`note_loadable`](Self::note_loadable).
    #[cold]
    pub(crate) fn is_loadable_alone(&self, region: &RegionState, page: PageIndex) -> bool {
        self.note_loadable(region, page.region());
        !region.home_is_loadable() && self.page_is_allocated(Side::Home, page)
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
        let whole = hole >= end.min(chunk.start() + CHUNK as u64);
        let flag = if whole { known::HOME } else { known::HOME_HAS_HOLES };
        self.recount(chunk, || state.fetch_or(flag, Ordering::Release));
        if whole {
            // The chunk that the file's end cuts short takes a look of its own.
            self.note_up_to_hole(Side::Home, chunk, hole.min(end));
        }
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
        // A chunk that is ahead is allocated up to the old end.
        let ahead = known::HOME_AHEAD | known::REFLECTION_AHEAD;
        unless!(
            AheadOutlivesGrowth,
            self.recount(chunk, || self.chunk_state(chunk).fetch_and(!ahead, Ordering::Release))
        );
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
