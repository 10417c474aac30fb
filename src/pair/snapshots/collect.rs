//! How the storage of records becomes free that no live snapshot needs.
//!
//! Owns: the order of its steps.
//! 1. The index forgets the records that no live snapshot needs.
//! 2. Records that are needed in a segment which is mostly not are appended again elsewhere.
//! 3. The copies are made durable. Only then may the segment be freed that has the only durable
//!    ones: a crash would lose them.
//! 4. The index names the copies.
//! 5. Readers leave that have found a place before. Then the ends of the segments are cleared,
//!    durably, and the segments are freed.
//!
//! Invariant: a record that is freed is not named, was not needed by any snapshot that a power loss
//! can bring back, or has a durable copy.
//!
//! May import the rest of `pair::snapshots`, `format`, `bitmap`, `error`, `primitive`, `units`, and
//! the planted bugs.

use super::Store;
use super::append::Cursor;
use super::index::{Kept, RecordAt};
use super::live::{Before, Live};
use crate::bitmap::Slices;
use crate::error::{Error, Result};
use crate::format::snapshots::segment::{LONGEST_RECORD, Record, SealSum, record_len};
use crate::format::snapshots::{SEGMENT, SegmentIndex};
use crate::mutant::{planted, unless};
use crate::units::{PageIndex, SLICE};
use std::collections::{BTreeMap, BTreeSet};

/// A segment of which at most one in this many bytes is needed gets emptied.
const SPARSE: usize = 4;

/// Segments that are freed under one lock.
const AT_A_TIME: usize = 64;

/// A record that is needed, and the slices of it that are.
#[derive(Clone, Copy)]
struct Needed {
    page: PageIndex,
    kept: Kept,
    slices: Slices,
}

/// The bytes of each segment that are needed, by the segment's number.
struct NeededBytes(Vec<usize>);

impl NeededBytes {
    fn add(&mut self, segment: SegmentIndex, bytes: usize) {
        let n = segment.0 as usize;
        if n >= self.0.len() {
            self.0.resize(n.saturating_add(1), 0);
        }
        self.0[n] = self.0[n].saturating_add(bytes);
    }

    fn of(&self, segment: SegmentIndex) -> usize {
        self.0.get(segment.0 as usize).copied().unwrap_or(0)
    }
}

/// A copy of a record.
struct Moved {
    page: PageIndex,
    from: RecordAt,
    to: Kept,
}

impl Store {
    /// Frees the storage of records that no live snapshot needs.
    ///
    /// Every change of the table is durable when this is called, and the thread has drained: a
    /// snapshot that a power loss brings back would lack its bytes. Snapshots may be sealed
    /// meanwhile, and records appended.
    ///
    /// `settle` makes the copies of records durable that this thread has stored: a drain or a sync.
    /// `wait` returns once every reader has left that had found kept bytes before the call. A lack
    /// of space is no error: less becomes free.
    pub fn collect(&self, settle: impl Fn() -> Result<()>, wait: impl Fn()) -> Result<()> {
        let _one_at_a_time = self.collecting.lock();
        self.mark_ends_of_copies();
        let live = Live::of(&self.table.lock());
        // Noted before the index is read: what is appended later lies elsewhere, or behind.
        let ends = self.cursor_ends();
        let closed = self.segments.lock().closed();
        let needed = self.prune(&live);
        let free: Vec<SegmentIndex> =
            closed.iter().filter(|segment| needed.of(**segment) == 0).copied().collect();
        let is_sparse = |segment: &SegmentIndex| {
            let bytes = needed.of(*segment);
            bytes != 0 && bytes <= SEGMENT / SPARSE
        };
        let sparse: BTreeSet<SegmentIndex> = closed.iter().copied().filter(is_sparse).collect();
        let (moved, emptied) = self.copy_needed(self.needed_in(&live, &sparse))?;
        if !moved.is_empty() {
            // Orders the copies before the end of the originals.
            unless!(FreedBeforeSettled, settle()?);
        }
        moved.iter().for_each(|Moved { page, from, to }| self.index.replace(*page, *from, *to));
        let retired = self.retire(&ends, &needed);
        let free = [free, emptied, retired].concat();
        if !free.is_empty() {
            // No lookup finds a place in these segments any more.
            unless!(FreedBeforeReadersLeft, wait());
            if self.segments.lock().clear_ends(&self.file, &free) {
                // Orders the ends before the headers: an end without its records is damage.
                unless!(FreedWithEnd, settle()?);
            }
            // Some at a time: appenders take segments meanwhile.
            for some in free.chunks(AT_A_TIME) {
                self.segments.lock().free(&self.file, some);
            }
            self.segments.lock().give_back_chunks(&self.file);
        }
        Ok(())
    }

    /// Forgets what is not needed, and returns the bytes of each segment that are.
    fn prune(&self, live: &Live) -> NeededBytes {
        let mut needed = NeededBytes(Vec::new());
        self.index.prune(live, |_, kept, slices| {
            needed.add(kept.at.segment(), record_len(slices));
        });
        needed
    }

    /// Returns the needed records of these segments, which are closed, by segment.
    fn needed_in(
        &self,
        live: &Live,
        segments: &BTreeSet<SegmentIndex>,
    ) -> BTreeMap<SegmentIndex, Vec<Needed>> {
        let mut all: BTreeMap<SegmentIndex, Vec<Needed>> = BTreeMap::new();
        if segments.is_empty() {
            return all;
        }
        self.index.for_each_page(|page, records| {
            let mut before = Before::default();
            for kept in records {
                let slices = live.needed(&before, kept);
                before.add(kept);
                if segments.contains(&kept.at.segment()) {
                    let of_segment = all.entry(kept.at.segment()).or_default();
                    of_segment.push(Needed { page, kept: *kept, slices });
                }
            }
        });
        all
    }

    /// Appends needed records of segments again. Returns the copies, and the segments that have a
    /// copy of all that is needed in them.
    fn copy_needed(
        &self,
        needed: BTreeMap<SegmentIndex, Vec<Needed>>,
    ) -> Result<(Vec<Moved>, Vec<SegmentIndex>)> {
        let (mut moved, mut emptied) = (Vec::new(), Vec::new());
        for (segment, of_segment) in needed {
            let mut are_all = true;
            for needed in of_segment {
                match self.copy_record(needed) {
                    Ok(Some(copy)) => moved.push(copy),
                    // Bytes of an operation that has not drained yet: the next time.
                    Ok(None) => are_all = false,
                    Err(Error::NoSpace { .. }) => return Ok((moved, emptied)),
                    Err(error) => return Err(error),
                }
            }
            if are_all {
                emptied.push(segment);
            }
        }
        Ok((moved, emptied))
    }

    /// Appends the needed slices of a record again. Returns `None` if the record's bytes are not
    /// what was kept, as far as this thread sees.
    fn copy_record(&self, Needed { page, kept, slices }: Needed) -> Result<Option<Moved>> {
        let mut buffer = [0; LONGEST_RECORD];
        let found = self.kept_record(page, kept, &mut buffer);
        let Some((Record { sum, .. }, bytes)) = found else { return Ok(None) };
        let all = crate::bitmap::bits(kept.mask.0).zip(bytes.chunks_exact(SLICE));
        let some = all.filter(|(n, _)| slices.0 >> n & 1 == 1);
        let some: Vec<u8> = some.flat_map(|(_, slice)| slice).copied().collect();
        let mut appender = self.appender_of_copies(slices.count())?;
        let sum = if planted!(CopiedSumLost) { SealSum::Unknown } else { sum };
        let record = Record { epoch: kept.epoch, page, mask: slices, sum };
        let to = appender.append(record, &some);
        Ok(Some(Moved { page, from: kept.at, to }))
    }

    /// Returns where the cursors are that no thread appends at.
    fn cursor_ends(&self) -> Vec<Option<(SegmentIndex, usize)>> {
        let end = |cursor: Cursor| (cursor.segment, cursor.at);
        self.cursors.all().iter().map(|cursor| cursor.try_lock()?.map(end)).collect()
    }

    /// Takes the segments of cursors that have had nothing needed, and nothing appended since. The
    /// next append of such a lane begins another segment.
    fn retire(
        &self,
        ends: &[Option<(SegmentIndex, usize)>],
        needed: &NeededBytes,
    ) -> Vec<SegmentIndex> {
        let mut retired = Vec::new();
        for (cursor, end) in self.cursors.all().iter().zip(ends) {
            let Some((segment, at)) = *end else { continue };
            let Some(mut cursor) = cursor.try_lock() else { continue };
            let is_still = cursor.is_some_and(|now| now.segment == segment && now.at == at);
            if is_still && needed.of(segment) == 0 {
                *cursor = None;
                self.segments.lock().close(segment);
                retired.push(segment);
            }
        }
        retired
    }
}
