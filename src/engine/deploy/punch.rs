//! Gives the reflection pages of deployed chunks back to the file system.
//!
//! May import `commit`, `durable`, `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::{Side, Validity};
use crate::engine::{Engine, plan};
use crate::error::{Error, Result};
use crate::format::layout;
use crate::lock::LockGuard;
use crate::mutant::{planted, unless};
use crate::pair::log::lane::Lane;
use crate::pair::page_table::known;
use crate::pair::region::RegionState;
use crate::pair::stats::Counter;
use crate::primitive::Ordering;
use crate::units::{CHUNK, ChunkIndex, REGIONS_PER_CHUNK, RegionIndex};
use std::ops::Range;

/// The outcome of giving back the reflection pages of a chunk.
enum PunchOutcome {
    GivenBack,
    NothingToGive,
    /// The file system does not support holes, for this chunk or any other.
    Unsupported,
}

impl Engine {
    /// Gives the reflection pages of each chunk within `range` back to the file system, if all
    /// slices of the chunk are valid at home. Returns the number of chunks.
    pub fn punch_deployed(&self, range: Range<u64>) -> Result<u64> {
        self.check_usable()?;
        let lane = self.lane();
        let _one_at_a_time = self.resizing.write();
        let mut punched = 0;
        let mut chunk = ChunkIndex::of(range.start.next_multiple_of(CHUNK as u64));
        // The end of the file may cut its last chunk short.
        let end = if range.end == self.len() { u64::MAX } else { range.end };
        while chunk.start() < range.end && chunk.start() + (CHUNK as u64) <= end {
            match self.punch_chunk(&lane, chunk)? {
                PunchOutcome::GivenBack => punched += 1,
                PunchOutcome::NothingToGive => {}
                PunchOutcome::Unsupported => break,
            }
            chunk.0 += 1;
        }
        Ok(punched)
    }

    fn punch_chunk(&self, lane: &Lane, chunk: ChunkIndex) -> Result<PunchOutcome> {
        let len = (CHUNK as u64).min(self.len().saturating_sub(chunk.start()));
        let at = layout::reflection(chunk.start());
        let is_hole = || -> Result<bool> {
            let io = |e| Error::io_at("look for holes", self.reflection.path(), at, e);
            Ok(self.reflection.next_data(at).map_err(io)?.is_none_or(|data| data >= at + len))
        };
        let known_allocated =
            self.chunk_state(chunk).load(Ordering::Acquire) & known::REFLECTION != 0;
        if len == 0 || !known_allocated && is_hole()? {
            return Ok(PunchOutcome::NothingToGive);
        }
        let first = chunk.first_region();
        let in_chunk = || (0..REGIONS_PER_CHUNK as u64).map(|n| RegionIndex(first.0 + n));
        let inside = || in_chunk().filter(|r| r.start() < chunk.start() + len);
        {
            let _pinned = lane.pin();
            inside().try_for_each(|r| self.region(r).map(|_| ()))?;
        }
        let regions: Vec<_> = inside().filter_map(|r| Some((r, self.state.loaded(r)?))).collect();
        let held: Vec<LockGuard<'_>> =
            regions.iter().map(|(_, state)| plan::lock_whole_region(state)).collect();
        let away = |(_, state): &(RegionIndex, &RegionState)| {
            let is_durable = |n| state.durable(n) != Validity(0) && !planted!(PunchDurableSlots);
            (0..64).any(|n| state.validity(n) != Validity(0) || is_durable(n))
        };
        if regions.iter().any(away) && !planted!(PunchValidSlots) {
            return Ok(PunchOutcome::NothingToGive);
        }
        // Flip records may still name these slots, but do no harm. If a newer record moved a slice
        // home, the newer record counts. If the slice was deployed, that has invalidated the older
        // records (`punch` of the model). No reader may still copy from an old valid slot: on tmpfs
        // its load would allocate.
        unless!(PunchNoWait, self.wait_for_read_sections());
        let _no_allocation = self.allocating.lock();
        let path = self.reflection.path();
        let punched = self.reflection.punch(at, len);
        let punched = punched.map_err(|e| Error::io_at("punch a hole", path, at, e))?;
        if punched {
            let gone = if planted!(PunchedStaysAllocated) { 0 } else { known::REFLECTION };
            self.recount(chunk, || {
                self.chunk_state(chunk).fetch_and(!gone, Ordering::Release);
                if let Some(pieces) = self.pieces_of(chunk) {
                    pieces.forget_side(Side::Reflection);
                }
            });
            lane.stats.bump(Counter::Punches, 1);
        }
        drop(held);
        Ok(if punched { PunchOutcome::GivenBack } else { PunchOutcome::Unsupported })
    }
}
