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
use super::state::known;
use super::stats::Counter;
use crate::bitmap::Side;
use crate::error::{Error, Result};
use crate::format::layout;
use crate::mutant::planted;
use crate::primitive::{AtomicU8, Mutex, Ordering};
use crate::store::MappedFile;
use crate::terms::Medium;
use crate::units::{CHUNK, CHUNKS_PER_SUPERCHUNK, ChunkIndex, LaneIndex, PAGE, PageIndex};
use std::io;
use std::ops::Range;

/// What `io::Error` means for an allocation of `len` bytes at `offset`.
pub(crate) fn allocation_error(file: &MappedFile, offset: u64, len: u64, e: io::Error) -> Error {
    let path = file.path().to_owned();
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::NoSpace { path, offset, len, source: e }
        }
        _ => Error::Io { call: "allocate", path, offset: Some(offset), source: e },
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
    pub(super) fn chunk_state(&self, chunk: ChunkIndex) -> &AtomicU8 {
        let superchunk = self.state.superchunk(chunk.0 as usize / CHUNKS_PER_SUPERCHUNK);
        &superchunk.chunks[chunk.0 as usize % CHUNKS_PER_SUPERCHUNK]
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
            let Err(full) = file.allocate(at, end - chunk.start()) else {
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
            state.fetch_or(known::SLICE_WORDS, Ordering::Release);
            Ok(())
        })
    }

    /// Makes sure that the region words of superchunk `n` are allocated.
    pub(super) fn ensure_region_words(&self, n: usize) -> Result<()> {
        let allocated = &self.state.superchunk(n).region_words_allocated;
        if allocated.load(Ordering::Acquire) {
            return Ok(());
        }
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
        let len = (CHUNK as u64).min(end.saturating_sub(chunk.start()));
        let whole = self
            .home
            .has_no_hole(chunk.start(), len)
            .map_err(|e| Error::io_at("look for holes", self.home.path(), chunk.start(), e))?;
        let flag = if whole { known::HOME } else { known::HOME_HAS_HOLES };
        state.fetch_or(flag, Ordering::Release);
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
