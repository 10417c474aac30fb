//! Completes slices that a write covers only in part.
//!
//! May import `plan`, `pair`, and what lies below them.

use crate::bitmap::{Side, bits};
use crate::engine::Engine;
use crate::engine::plan::Segment;
use crate::error::Result;
use crate::pair::log::records::PageSlices;
use crate::units::SLICE;

impl Engine {
    /// Fills `line` with the slice at `offset`: the bytes of `segments` over those of its slot on
    /// `side`. The segments are sorted, and the first one ends after `offset`.
    pub(in crate::engine) fn merge_partial(
        &self,
        side: Side,
        offset: u64,
        segments: &[Segment<'_>],
        line: &mut [u8; SLICE],
    ) -> Result<()> {
        let end = offset + SLICE as u64;
        let is_covered = |segment: &Segment<'_>| segment.offset <= offset && end <= segment.end();
        if !segments.first().is_some_and(is_covered) {
            self.load_slot(side, line, offset)?;
        }
        for segment in segments.iter().take_while(|segment| segment.offset < end) {
            let (from, to) = (segment.offset.max(offset), segment.end().min(end));
            line[(from - offset) as usize..(to - offset) as usize].copy_from_slice(
                &segment.data[(from - segment.offset) as usize..(to - segment.offset) as usize],
            );
        }
        Ok(())
    }

    /// Returns the target's slices one after the other in `room`, with the bytes of `segments`
    /// merged over the valid ones.
    #[inline(never)]
    pub(in crate::engine) fn complete<'r>(
        &self,
        target: &PageSlices<'_>,
        segments: &[Segment<'_>],
        room: &'r mut [u8],
    ) -> Result<&'r [u8]> {
        let valid = target.region.validity(target.page.in_region());
        let whole = &mut room[..target.slices.count() * SLICE];
        for (n, line) in bits(target.slices.0).zip(whole.as_chunks_mut::<SLICE>().0) {
            let start = target.page.start() + (n * SLICE) as u64;
            let first = segments.partition_point(|segment| segment.end() <= start);
            self.merge_partial(valid.side(n), start, &segments[first..], line)?;
        }
        Ok(whole)
    }
}
