//! Completes slices that a write covers only in part.
//!
//! May import `plan`, `pair`, and what lies below them.

use crate::bitmap::bits;
use crate::engine::Engine;
use crate::engine::plan::Part;
use crate::error::Result;
use crate::pair::log::records::Target;
use crate::units::SLICE;

impl Engine {
    /// Returns the target's slices one after the other in `room`, with the bytes of `parts` merged
    /// over the valid ones.
    #[inline(never)]
    pub(in crate::engine) fn complete<'r>(
        &self,
        target: &Target<'_>,
        parts: &[Part<'_>],
        room: &'r mut [u8],
    ) -> Result<&'r [u8]> {
        let valid = target.region.validity(target.page.in_region());
        let whole = &mut room[..target.slices.count() * SLICE];
        let mut parts = parts.iter().peekable();
        for (n, slice) in bits(target.slices.0).zip(whole.as_chunks_mut::<SLICE>().0) {
            let start = target.page.start() + (n * SLICE) as u64;
            let end = start + SLICE as u64;
            let is_covered =
                parts.peek().is_some_and(|part| part.offset <= start && end <= part.range().end);
            if !is_covered {
                self.load_slot(valid.side(n), slice, start)?;
            }
            while let Some(part) = parts.peek() {
                let (from, to) = (part.offset.max(start), part.range().end.min(end));
                if from < to {
                    slice[(from - start) as usize..(to - start) as usize].copy_from_slice(
                        &part.data[(from - part.offset) as usize..(to - part.offset) as usize],
                    );
                }
                if part.range().end > end {
                    break;
                }
                parts.next();
            }
        }
        Ok(whole)
    }
}
