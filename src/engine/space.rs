//! Is there space behind it? Allocation before first touch, and giving space back.
//!
//! Owns: what is known of each chunk's allocation. Invariant: no store goes to a page that was not
//! allocated before, and no load through the mapping goes to a hole of the home file, so that a
//! full file system is an error of the call and never a SIGBUS (on tmpfs a load allocates, too).
//! Allocation goes ahead of need by a chunk (2 MiB). Where the file system has no chunk left, it falls
//! back to the pages that are needed on DAX and in RAM; on page cache that would be no promise, see
//! `allocate_slots`. May import `store`, `format`, `engine::state`.

use super::Engine;
use super::lanes::Lane;
use super::state::{RegionState, known};
use super::stats::Counter;
use crate::bitmap::{Side, Slices, Validity};
use crate::error::{Error, Result};
use crate::format::layout;
use crate::mutant::planted;
use crate::primitive::{AtomicU8, Mutex, Ordering};
use crate::store::MappedFile;
use crate::terms::Medium;
use crate::units::{
    CHUNK, CHUNKS_PER_SUPERCHUNK, ChunkIndex, LaneIndex, PAGE, PageIndex, RegionIndex,
};
use std::io;
use std::ops::Range;

/// What `io::Error` means for an allocation of `len` bytes at `offset`.
pub(crate) fn allocation_error(file: &MappedFile, offset: u64, len: u64, e: io::Error) -> Error {
    storage_error("allocate", file, offset, len, e)
}

/// What a call that may need storage could not do.
pub(crate) fn storage_error(
    call: &'static str,
    file: &MappedFile,
    offset: u64,
    len: u64,
    e: io::Error,
) -> Error {
    let path = file.path().to_owned();
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::NoSpace { path, offset, len, source: e }
        }
        _ => Error::Io { call, path, offset: Some(offset), source: e },
    }
}

/// Runs `allocate` unless `flag` is known, one caller at a time: who finds the flag finds the storage
/// as well. `allocate` gets all that is known, and notes the flag itself, last.
#[inline]
pub(super) fn unless_known(
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
    // Somebody may have been faster.
    if known & flag == 0 { allocate(known) } else { Ok(()) }
}

impl Engine {
    #[inline]
    pub(super) fn chunk_state(&self, chunk: ChunkIndex) -> &AtomicU8 {
        let superchunk = self.state.superchunk(chunk.0 as usize / CHUNKS_PER_SUPERCHUNK);
        &superchunk.chunks[chunk.0 as usize % CHUNKS_PER_SUPERCHUNK]
    }

    /// Makes sure that a flip of `slices` can copy to their free slots, and, with `word`, store the page's
    /// slice word. One look where all of it is known, which is nearly always.
    #[inline]
    pub(super) fn ensure_free_slots(
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

    /// Whether all slots of a region are known to be allocated, and, with `words`, its slice words: it lies
    /// within one chunk.
    #[inline(always)]
    pub(super) fn all_is_allocated(&self, region: RegionIndex, words: bool) -> bool {
        let needed = known::HOME | known::REFLECTION | if words { known::SLICE_WORDS } else { 0 };
        let state = self.chunk_state(ChunkIndex::of(region.start())).load(Ordering::Acquire);
        state & needed == needed
    }

    /// Whether the slots of a region on `side` are known to be allocated, and, with `words`, its slice words.
    // Inlined: a call is a store, and some small writes are bound by how many they have.
    #[inline(always)]
    pub(super) fn side_is_allocated(&self, region: RegionIndex, side: Side, words: bool) -> bool {
        let slots = match side {
            Side::Home => known::HOME,
            Side::Reflection => known::REFLECTION,
        };
        let needed = slots | if words { known::SLICE_WORDS } else { 0 };
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

    /// Makes sure that the slots on `side` of the bytes `range` (within one chunk) are allocated.
    #[inline]
    pub(super) fn ensure_slots(&self, lane: &Lane, side: Side, range: Range<u64>) -> Result<()> {
        let chunk = ChunkIndex::of(range.start);
        let flag = match side {
            Side::Home => known::HOME,
            Side::Reflection => known::REFLECTION,
        };
        unless_known(&self.allocating, self.chunk_state(chunk), flag, |known| {
            self.allocate_slots(lane, side, chunk, known, flag, range)
        })
    }

    #[cold]
    fn allocate_slots(
        &self,
        lane: &Lane,
        side: Side,
        chunk: ChunkIndex,
        known: u8,
        flag: u8,
        needed: Range<u64>,
    ) -> Result<()> {
        let state = self.chunk_state(chunk);
        if known & known::PIECEWISE == 0 {
            let end = (chunk.start() + CHUNK as u64).min(self.home.backed());
            let (file, at) = self.slot(side, chunk.start());
            let Err(full) = file.allocate_chunk(at, end - chunk.start()) else {
                state.fetch_or(flag, Ordering::Release);
                if flag == known::HOME {
                    state.fetch_and(!known::HOME_HAS_HOLES, Ordering::Release);
                }
                lane.stats.bump(Counter::Allocations, 1);
                return Ok(());
            };
            let error = allocation_error(file, at, end - chunk.start(), full);
            // On page cache whole chunks only: the kernel keeps what was read in large folios, and the
            // first store to one asks for storage for all of it. Beside holes that fails on a full
            // disk, and a store cannot fail. A folio is at most as large as a chunk, and aligned to
            // its own size.
            let is_cached = self.medium == Medium::PageCache && !planted!(PiecesBesideHoles);
            if !matches!(error, Error::NoSpace { .. }) || is_cached {
                return Err(error);
            }
        }
        // No chunk is left, but perhaps the pages that are needed: slow, and only where the file
        // system was all but full.
        state.fetch_or(known::PIECEWISE, Ordering::Release);
        if planted!(PiecesNotAllocated) {
            return Ok(());
        }
        let start = PageIndex::of(needed.start).start();
        let len = needed.end.next_multiple_of(PAGE as u64) - start;
        let (file, at) = self.slot(side, start);
        file.allocate(at, len).map_err(|e| allocation_error(file, at, len, e))
    }

    /// Makes sure that the slice word of `page` is allocated.
    #[inline]
    pub(super) fn ensure_slice_word(&self, page: PageIndex) -> Result<()> {
        let chunk = ChunkIndex::of(page.start());
        if planted!(SliceWordsNotAllocated) {
            return Ok(());
        }
        let state = self.chunk_state(chunk);
        unless_known(&self.allocating, state, known::SLICE_WORDS, |_| {
            let at = layout::slice_word(PageIndex::of(chunk.start()));
            self.allocate_reflection(at, PAGE as u64)?;
            if self.durable.is_some() {
                let at = layout::durable_word(PageIndex::of(chunk.start()));
                self.allocate_reflection(at, PAGE as u64)?;
            }
            state.fetch_or(known::SLICE_WORDS, Ordering::Release);
            Ok(())
        })
    }

    /// Whether the region words of superchunk `n` are known to be allocated.
    #[inline]
    pub(super) fn region_words_are_allocated(&self, n: usize) -> bool {
        self.state.superchunk(n).region_words_allocated.load(Ordering::Acquire)
    }

    /// Makes sure that the region words of superchunk `n` are allocated.
    pub(super) fn ensure_region_words(&self, n: usize) -> Result<()> {
        if self.region_words_are_allocated(n) {
            return Ok(());
        }
        let allocated = &self.state.superchunk(n).region_words_allocated;
        let _one_at_a_time = self.allocating.lock();
        self.allocate_reflection(layout::region_words(n), layout::REGION_WORDS_LEN)?;
        allocated.store(true, Ordering::Release);
        Ok(())
    }

    /// Makes sure that the lane's 4 KiB are allocated.
    #[inline]
    pub(super) fn ensure_lane(&self, lane: &Lane, index: LaneIndex) -> Result<()> {
        if lane.is_allocated() {
            return Ok(());
        }
        self.allocate_reflection(layout::lane(index), layout::LANE as u64)?;
        lane.set_allocated();
        Ok(())
    }

    pub(super) fn allocate_reflection(&self, at: u64, len: u64) -> Result<()> {
        self.reflection
            .allocate(at, len)
            .map_err(|e| allocation_error(&self.reflection, at, len, e))
    }

    /// Whether the home bytes of `chunk` may be loaded through the mapping.
    #[inline]
    pub(super) fn home_is_loadable(&self, chunk: ChunkIndex) -> Result<bool> {
        let state = self.chunk_state(chunk).load(Ordering::Acquire);
        if state & known::HOME != 0 {
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

    /// Notes with the region that its home bytes may be loaded through the mapping, if that is known of its
    /// chunk. While pinned or holding one of its pages, after the range was checked: what is known of a chunk
    /// is forgotten, there and here, by who has waited for all of those.
    #[inline]
    pub(super) fn note_loadable(&self, region: &RegionState, index: RegionIndex) {
        if !region.home_is_loadable() {
            let known = self.chunk_state(ChunkIndex::of(index.start())).load(Ordering::Acquire);
            if known & known::HOME != 0 {
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
        // The end of the file counts as a hole: only what lies before it matters. The file's own
        // end, not the logical one: growing extends the file first.
        let end = if planted!(HolesUpToOldLength) { self.len() } else { self.home.len() };
        let hole = self
            .home
            .next_hole(chunk.start())
            .map_err(|e| Error::io_at("look for holes", self.home.path(), chunk.start(), e))?;
        let is_before_hole = |chunk: ChunkIndex| hole >= end.min(chunk.start() + CHUNK as u64);
        let whole = is_before_hole(chunk);
        let flag = if whole { known::HOME } else { known::HOME_HAS_HOLES };
        state.fetch_or(flag, Ordering::Release);
        // The answer tells of all chunks up to the hole, and it may have taken long: tmpfs goes through the
        // file page by page. What is known of other superchunks is not made for it.
        let superchunk = |chunk: ChunkIndex| chunk.0 / CHUNKS_PER_SUPERCHUNK as u64;
        let after = (chunk.0 + 1..).map(ChunkIndex).take_while(|next| {
            next.start() < end && superchunk(*next) == superchunk(chunk) && is_before_hole(*next)
        });
        after.for_each(|next| {
            self.chunk_state(next).fetch_or(known::HOME, Ordering::Release);
        });
        Ok(whole)
    }

    /// Makes what is known of the chunk that holds the old end of the file true for its new end:
    /// allocates the rest of it. While nobody allocates (`allocating` is held); nobody stores past
    /// the old end yet.
    pub(super) fn extend_chunk(&self, old: u64, new: u64) -> Result<()> {
        let chunk = ChunkIndex::of(old);
        let from = old.next_multiple_of(PAGE as u64);
        let end = (chunk.start() + CHUNK as u64).min(new.next_multiple_of(PAGE as u64));
        let state = self.chunk_state(chunk).load(Ordering::Acquire);
        for (side, flag) in [(Side::Home, known::HOME), (Side::Reflection, known::REFLECTION)] {
            if from < end && state & flag != 0 {
                let (file, at) = self.slot(side, from);
                file.allocate(at, end - from)
                    .map_err(|e| allocation_error(file, at, end - from, e))?;
            }
        }
        Ok(())
    }
}
