//! Holds the copying of bytes into their free slots: those that are not valid.
//!
//! This is the counterpart of `io::gather`. What matters is how long the medium idles, from the end
//! of the last drain to the first store of this operation. So the slices that a segment covers are
//! copied first. The slices at its ends must be loaded and completed (`io::partial`), so they come
//! after. The caller holds the locks, and has allocated the slots.
//!
//! May import `plan`, `pair`, and what lies below them.

use crate::bitmap::span::{self, is_whole_pages};
use crate::bitmap::{Side, Validity};
use crate::engine::Engine;
use crate::engine::plan::Segment;
use crate::error::Result;
use crate::mutant::planted;
use crate::pair::log::lane::Lane;
use crate::pair::stats::Counter;
use crate::units::{PAGE, PageIndex, SLICE, SUPERCHUNK};
use std::ops::Range;

/// A run of neighbouring pages is copied once it has this many bytes. The pages of a region that
/// are uniform are added to it all at once.
const RUN_AT_ONCE: u64 = 4 * PAGE as u64;

/// Slices of one page that are uniform join the run of their neighbours if they have at least this
/// many bytes. Fewer bytes are copied line by line, each line to its side.
const PIECE: usize = PAGE / 4;

/// A run of at least this many bytes is written by a call where the mode allows it. After a durable
/// point most of its pages are clean, and a store to a clean page is a page fault. The kernel
/// copies long runs faster than pages fault (docs/decisions/long-runs-by-call.md).
const BY_CALL: u64 = 64 << 10;

/// Bytes that are copied at once, and the side that they go to.
type Run = (Side, Range<u64>);

/// Returns the sides of the lines from `offset` on, the first line in the lowest bit.
#[inline(always)]
fn sides_of_lines(sides: Validity, offset: u64) -> u64 {
    let sides = if planted!(LinesToOneSide) { Validity(0) } else { sides };
    sides.bits_from(offset)
}

/// Returns `true` if `piece` continues `run` on the same side and in the same superchunk.
fn joins(run_side: Side, run: &Range<u64>, side: Side, piece: &Range<u64>) -> bool {
    run_side == side
        && run.end == piece.start
        && (run.start / SUPERCHUNK as u64 == piece.start / SUPERCHUNK as u64
            || planted!(CopyJoinsSuperchunks))
}

impl Engine {
    /// Copies the segments to their free slots. Completes slices that are partly covered from their
    /// valid slots. The next drain makes the bytes durable.
    pub(in crate::engine) fn scatter(&self, lane: &Lane, segments: &[Segment<'_>]) -> Result<()> {
        // While one run is on its way to the medium, the next pages are inspected. Without flushes
        // each copy is synchronous, so runs have no limit there: that makes the copies few.
        let at_once = if self.mode.has_drains { RUN_AT_ONCE } else { u64::MAX };
        let mut completed = None;
        for (n, segment) in segments.iter().enumerate() {
            // Copied first, so that the medium is busy while the slices at the ends are loaded.
            self.scatter_covered(lane, segment, at_once)?;
            self.merge_ends(lane, &segments[n..], &mut completed)?;
        }
        Ok(())
    }

    /// Copies the slices that the segment covers entirely to their free slots.
    fn scatter_covered(&self, lane: &Lane, segment: &Segment<'_>, at_once: u64) -> Result<()> {
        let (slice, end) = (SLICE as u64, segment.range().end);
        let slices = segment.offset.next_multiple_of(slice)..end - end % slice;
        if slices.is_empty() {
            return Ok(());
        }
        let len = (slices.end - slices.start) as usize;
        if let Some(span) = span::in_page(slices.start, len) {
            let valid = self.region(span.page.region())?.validity(span.page.in_region());
            let from = (slices.start - segment.offset) as usize;
            self.copy_lines(lane, slices.start, valid.free(), &segment.data[from..from + len]);
            return Ok(());
        }
        let mut run: Option<Run> = None;
        for span in span::regions(slices.clone()) {
            let region = self.region(span.region)?;
            let bytes = span.bytes_of(&slices);
            self.prefetch_next_region(span.region, slices.end);
            // Uniform pages, as is usual in long segments: checked and copied together.
            if is_whole_pages(&bytes)
                && let Some(valid) = region.valid_side(span.pages.clone())
            {
                self.add_to_run(lane, segment, &mut run, (valid.other(), bytes), at_once)?;
                continue;
            }
            let mut start = bytes.start;
            for n in span.pages {
                let page = span.region.page(n).start();
                let end = bytes.end.min(page + PAGE as u64);
                let free = region.validity(n).free();
                let len = (end - start) as usize;
                match free.side_of(start, len) {
                    Some(side) if len >= PIECE => {
                        self.add_to_run(lane, segment, &mut run, (side, start..end), at_once)?;
                    }
                    _ => {
                        let from = (start - segment.offset) as usize;
                        self.copy_lines(lane, start, free, &segment.data[from..from + len]);
                    }
                }
                start = end;
            }
        }
        self.copy_run(lane, segment, run)
    }

    /// Completes the slices at the ends of the first segment that it covers in part, with what the
    /// others have of them, and copies them. `completed` is the slice that was completed last.
    fn merge_ends(
        &self,
        lane: &Lane,
        segments: &[Segment<'_>],
        completed: &mut Option<u64>,
    ) -> Result<()> {
        let Some(Range { start, end }) = segments.first().map(Segment::range) else {
            return Ok(());
        };
        for at in [start, end.saturating_sub(1)] {
            let offset = at - at % SLICE as u64;
            let is_in_part = offset < start || end < offset + SLICE as u64;
            // An earlier segment may share the slice, and has then completed it.
            let is_done = *completed == Some(offset) && !planted!(SecondPartFromValidSlot);
            if start < end && is_in_part && !is_done {
                self.merge_slice(lane, segments, offset)?;
                *completed = Some(offset);
            }
        }
        Ok(())
    }

    /// Adds a piece to the pending run, or copies that run first and starts a new one. Copies the
    /// run if it has at least `at_once` bytes.
    #[inline]
    fn add_to_run(
        &self,
        lane: &Lane,
        segment: &Segment<'_>,
        pending: &mut Option<Run>,
        (side, piece): Run,
        at_once: u64,
    ) -> Result<()> {
        match pending {
            Some((of, run)) if joins(*of, run, side, &piece) => run.end = piece.end,
            _ => self.copy_run(lane, segment, pending.replace((side, piece)))?,
        }
        if pending.as_ref().is_some_and(|(_, run)| run.end - run.start >= at_once) {
            self.copy_run(lane, segment, pending.take())?;
        }
        Ok(())
    }

    /// Copies a run of whole slices. After an error any part may have been copied.
    fn copy_run(&self, lane: &Lane, segment: &Segment<'_>, run: Option<Run>) -> Result<()> {
        let Some((side, run)) = run else { return Ok(()) };
        let from = (run.start - segment.offset) as usize..(run.end - segment.offset) as usize;
        let (file, at) = self.slot(side, run.start);
        let bytes = &segment.data[from];
        if self.mode.by_call && run.end - run.start >= BY_CALL {
            return self.store_by_call(lane, file, at, bytes);
        }
        self.store(lane, file, at, bytes);
        Ok(())
    }

    /// Copies the slice at `offset`, which the segments cover in part. The other bytes come from
    /// the valid slot.
    fn merge_slice(&self, lane: &Lane, segments: &[Segment<'_>], offset: u64) -> Result<()> {
        let page = PageIndex::of(offset);
        let region = self.region(page.region())?;
        let valid = region.side(page.in_region(), (offset - page.start()) as usize / SLICE);
        let base = if planted!(CompletedFromFreeSlot) { valid.other() } else { valid };
        let mut line = [0; SLICE];
        self.merge_partial(base, offset, segments, &mut line)?;
        let (file, at) = self.slot(valid.other(), offset);
        self.store(lane, file, at, &line);
        Ok(())
    }

    /// Copies neighbouring slices of a page, from `offset` on, each to the side that `sides` names
    /// for it. The next drain makes the bytes durable.
    ///
    /// No branch depends on the sides: in fragmented pages it could not be predicted.
    #[inline(always)]
    pub(in crate::engine) fn copy_lines(
        &self,
        lane: &Lane,
        offset: u64,
        sides: Validity,
        bytes: &[u8],
    ) {
        self.slots(offset).copy_lines_in(sides_of_lines(sides, offset), bytes);
        lane.stats.bump(Counter::BytesWritten, bytes.len() as u64);
    }

    /// Copies as [`copy_lines`](Self::copy_lines) does, and returns the checksum of the bytes.
    #[inline(always)]
    pub(in crate::engine) fn copy_lines_summed(
        &self,
        lane: &Lane,
        offset: u64,
        sides: Validity,
        bytes: &[u8],
    ) -> u32 {
        lane.stats.bump(Counter::BytesWritten, bytes.len() as u64);
        self.slots(offset).copy_lines_in_summed(sides_of_lines(sides, offset), bytes)
    }
}
