//! Holds the copying of bytes out of their valid slots.
//!
//! Uniform pages are copied together with their neighbours on the same side: the region is asked
//! first whether all pages of the range are on one side. A fragmented page is valid partly in the
//! home file and partly in the reflection file. Each of its slices is copied from its own side,
//! without a branch.
//!
//! The copied bytes are a consistent state only if the caller's versions or locks say so
//! afterwards.
//!
//! May import `plan`, `pair`, and what lies below them.

use crate::bitmap::span::{self, PageSpan, slices_of};
use crate::bitmap::{Side, Slices, Validity};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::mutant::planted;
use crate::pair::region::RegionState;
use crate::units::{ChunkIndex, PageIndex, RegionIndex, SLICE};
use std::ops::Range;

/// Where the bytes of a piece are copied from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum Source {
    /// All from one side.
    On(Side),
    /// Each slice from its valid slot, within one page. Both sides are loadable.
    OnBoth(Validity),
}

/// A copier of consecutive pieces, which joins neighbours on the same side into one copy. It
/// prefetches each piece before it copies the one before it.
struct RunCopier<'a> {
    engine: &'a Engine,
    /// Offset in the file of the first byte of `to`.
    begin: u64,
    to: &'a mut [u8],
    pending: Option<(Source, Range<u64>)>,
    /// The side and the end of the piece that was counted last.
    last: (Side, u64),
    found: Gathered,
}

/// Where the bytes of a range were found.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::engine) struct Gathered {
    /// Number of pieces; neighbours on the same side count as one.
    pub pieces: usize,
    /// `true` if some of the bytes were in the reflection file.
    pub is_away: bool,
}

impl RunCopier<'_> {
    /// Counts a piece. A mixed piece counts as one piece on the side with more slices,
    /// plus the smaller number of runs of the two sides.
    #[inline]
    fn count(&mut self, source: Source, piece: &Range<u64>) {
        let (side, between) = match source {
            Source::On(side) => (side, 0),
            Source::OnBoth(validity) => {
                let slices =
                    Slices::first(slices_of(piece.start, (piece.end - piece.start) as usize));
                let there = Slices(validity.bits_from(piece.start)).and(slices);
                let home = slices.without(there);
                let most =
                    if home.count() >= there.count() { Side::Home } else { Side::Reflection };
                (most, home.run_count().min(there.run_count()))
            }
        };
        self.found.pieces += between + usize::from(self.last != (side, piece.start));
        self.found.is_away |= side == Side::Reflection || between > 0;
        self.last = (side, piece.end);
    }

    /// Takes a piece of one region, or of one page if it is mixed.
    #[inline]
    fn take(&mut self, source: Source, piece: Range<u64>) -> Result<()> {
        self.count(source, &piece);
        if let Some((pending_source, pending)) = &mut self.pending {
            let is_of_a_side = *pending_source == source && matches!(source, Source::On(_));
            let is_neighbour = is_of_a_side && pending.end == piece.start;
            // Pieces are joined only within a chunk: holes are known by the chunk. A superchunk
            // consists of whole chunks.
            let is_in_chunk = ChunkIndex::of(pending.start) == ChunkIndex::of(piece.start);
            if is_neighbour && (is_in_chunk || planted!(ReadJoinsChunks)) {
                pending.end = piece.end;
                return Ok(());
            }
        }
        self.engine.prefetch_piece(source, &piece);
        self.copy()?;
        self.pending = Some((source, piece));
        Ok(())
    }

    /// Takes bytes of one region that are all valid on `side`.
    #[inline]
    fn take_uniform(&mut self, region: &RegionState, side: Side, bytes: Range<u64>) -> Result<()> {
        if side == Side::Home {
            self.engine.note_loadable(region, RegionIndex::of(bytes.start));
        }
        self.take(Source::On(side), bytes)
    }

    /// Takes bytes of one page, with slices that may be valid on both sides.
    fn take_page(&mut self, region: &RegionState, span: &PageSpan) -> Result<()> {
        let (validity, slices) = (region.validity(span.page.in_region()), span.slices());
        let all = span.offset()..span.offset() + span.len() as u64;
        if validity.are_on_one_side(slices) {
            return self.take_uniform(region, validity.side(span.start / SLICE), all);
        }
        // A page with a valid slot in the reflection file was written, so all of it is allocated
        // there.
        if !self.engine.home_is_loadable(all.clone())? {
            return self.take_valid(validity, span);
        }
        self.engine.note_loadable(region, span.page.region());
        self.take(Source::OnBoth(validity), all)
    }

    /// Takes each run of a page's slices from its valid slots, and loads nothing else: the home
    /// file may have a hole.
    fn take_valid(&mut self, validity: Validity, span: &PageSpan) -> Result<()> {
        for (side, run) in validity.runs(span.slices()) {
            let start = (run.start * SLICE).max(span.start);
            let end = (run.end * SLICE).min(span.end);
            let at = span.page.start();
            self.take(Source::On(side), at + start as u64..at + end as u64)?;
        }
        Ok(())
    }

    /// Copies the piece that was taken last.
    fn copy(&mut self) -> Result<()> {
        let Some((source, ready)) = self.pending.take() else { return Ok(()) };
        let into = (ready.start - self.begin) as usize..(ready.end - self.begin) as usize;
        let to = &mut self.to[into];
        match source {
            Source::On(side) => self.engine.load_slot(side, to, ready.start),
            Source::OnBoth(validity) => {
                // In a read section, or under locks, no page is truncated.
                assert!(self.engine.copy_from_sides(to, ready.start, validity));
                Ok(())
            }
        }
    }
}

impl Engine {
    /// Copies `range` from the valid slots, and returns where they were. The bytes are consistent
    /// only if the caller's versions or locks say so afterwards.
    pub(in crate::engine) fn gather(&self, to: &mut [u8], range: Range<u64>) -> Result<Gathered> {
        let mut joined = RunCopier {
            engine: self,
            begin: range.start,
            to,
            pending: None,
            last: (Side::Home, u64::MAX),
            found: Gathered::default(),
        };
        for span in span::regions(range.clone()) {
            let (region, bytes) = (self.region(span.region)?, span.bytes_of(&range));
            // A block that was written as one, as a rule by a database, lies on one side.
            match region.valid_side(span.pages) {
                Some(side) => {
                    let side = if planted!(SeveralReadAtHome) { Side::Home } else { side };
                    joined.take_uniform(region, side, bytes)?;
                }
                None => span::pages(bytes).try_for_each(|page| joined.take_page(region, &page))?,
            }
        }
        joined.copy()?;
        Ok(joined.found)
    }

    /// Fills `to`, bytes of one page, with each slice from its valid slot. The page is loadable on
    /// both sides. Returns `false` if the page is truncated, or the range is not within one page.
    #[inline(always)]
    fn copy_from_sides(&self, to: &mut [u8], offset: u64, validity: Validity) -> bool {
        let sides = if planted!(PiecesReadAtHome) { Validity(0) } else { validity };
        let filling = self.slots(offset).to_fill(to);
        filling.is_some_and(|filling| {
            filling.fill_from_sides(sides.bits_from(offset));
            true
        })
    }

    /// Prefetches a piece that is copied soon, if it lies in one page. Longer copies prefetch their
    /// lines themselves.
    #[inline]
    fn prefetch_piece(&self, source: Source, piece: &Range<u64>) {
        let sides = match source {
            Source::On(Side::Home) => 0,
            Source::On(Side::Reflection) => !0,
            Source::OnBoth(validity) => validity.bits_from(piece.start),
        };
        self.slots(piece.start).prefetch_read(sides, (piece.end - piece.start) as usize);
    }

    /// Fills `to` from the slots on `side` of the home bytes at `offset`. The range lies within one
    /// chunk.
    pub(in crate::engine) fn load_slot(
        &self,
        side: Side,
        to: &mut [u8],
        offset: u64,
    ) -> Result<()> {
        let (file, at) = self.slot(side, offset);
        // A valid reflection slot was written, so it is allocated; a home slot may be a hole.
        if side == Side::Reflection || self.home_is_loadable(offset..offset + to.len() as u64)? {
            file.copy_out(to, at);
            return Ok(());
        }
        file.read_file(to, at).map_err(|e| Error::io_at("read", file.path(), at, e))
    }

    /// Loads slices of a page from the slots that `valid` names, one after the other. Returns them.
    /// `bytes` has room for all of them.
    pub(in crate::engine) fn load_slices<'b>(
        &self,
        page: PageIndex,
        valid: Validity,
        slices: Slices,
        bytes: &'b mut [u8],
    ) -> Result<&'b mut [u8]> {
        let mut end = 0;
        for (side, run) in valid.runs(slices) {
            let to = &mut bytes[end..end + run.len() * SLICE];
            self.load_slot(side, to, page.start() + (run.start * SLICE) as u64)?;
            end += to.len();
        }
        Ok(&mut bytes[..end])
    }
}
