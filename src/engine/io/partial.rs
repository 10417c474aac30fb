//! Completes slices that a write covers only in part.
//!
//! May import `plan`, `pair`, and what lies below them.

use crate::bitmap::bits;
use crate::engine::Engine;
use crate::engine::plan::Segment;
use crate::error::Result;
use crate::pair::log::records::Target;
use crate::units::SLICE;

impl Engine {
    /// Returns the target's slices one after the other in `room`, with the bytes of `segments`
    /// merged over the valid ones.
    #[inline(never)]
    pub(in crate::engine) fn complete<'r>(
        &self,
        target: &Target<'_>,
        segments: &[Segment<'_>],
        room: &'r mut [u8],
    ) -> Result<&'r [u8]> {
        let valid = target.region.validity(target.page.in_region());
        let whole = &mut room[..target.slices.count() * SLICE];
        let mut segments = segments.iter().peekable();
        for (n, slice) in bits(target.slices.0).zip(whole.as_chunks_mut::<SLICE>().0) {
            let start = target.page.start() + (n * SLICE) as u64;
            let end = start + SLICE as u64;
            let is_covered = segments
                .peek()
                .is_some_and(|segment| segment.offset <= start && end <= segment.range().end);
            if !is_covered {
                self.load_slot(valid.side(n), slice, start)?;
            }
            while let Some(segment) = segments.peek() {
                let (from, to) = (segment.offset.max(start), segment.range().end.min(end));
                if from < to {
                    slice[(from - start) as usize..(to - start) as usize].copy_from_slice(
                        &segment.data
                            [(from - segment.offset) as usize..(to - segment.offset) as usize],
                    );
                }
                if segment.range().end > end {
                    break;
                }
                segments.next();
            }
        }
        Ok(whole)
    }
}
