//! How the storage of records becomes free that no live snapshot needs.
//!
//! Owns: the order of its steps. Each is bounded, so that a thread with other work can do that in
//! between, and snapshots may be sealed and dropped meanwhile.
//! 1. The index forgets the records that no live snapshot needs, some regions at a time. They are
//!    judged by the snapshots that were live at the beginning. Records of later seals stay.
//! 2. Readers leave that have found a place before. Then the ends of segments without a needed
//!    record are cleared, durably, and the segments are freed, some at a time.
//! 3. Records that are needed in a segment which is mostly not are appended again elsewhere. The
//!    copies are made durable. Only then may the segment be freed that has the only durable ones: a
//!    crash would lose them. The index names the copies.
//! 4. As 2, with the segments that 3 has emptied.
//! 5. Chunks of free segments are given back to the file system.
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
use super::segments::range_of;
use crate::bitmap::Slices;
use crate::error::{Error, Result};
use crate::format::snapshots::segment::{LONGEST_RECORD, Record, SealSum, record_len};
use crate::format::snapshots::{SEGMENT, SegmentIndex};
use crate::mutant::{planted, unless};
use crate::primitive::{Ordering, fence};
use crate::units::{CHUNK, PageIndex, RegionIndex, SLICE};
use std::collections::BTreeSet;

/// A segment of which at most one in this many bytes is needed gets emptied.
const SPARSE: usize = 4;

/// Segments that are freed in one step, with one wait and one sync.
const AT_A_TIME: usize = 1024;

/// Those of them that are freed before an appender may take a segment.
const LOCKED_AT_A_TIME: usize = 64;

/// Chunks that are given back in one step.
const CHUNKS_AT_A_TIME: u32 = 4;

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

    fn take(&mut self, segment: SegmentIndex, bytes: usize) {
        if let Some(left) = self.0.get_mut(segment.0 as usize) {
            *left = left.saturating_sub(bytes);
        }
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

/// A collection that has begun.
pub(super) struct Collection {
    live: Live,
    /// Where the cursors were. What is appended later lies elsewhere, or behind.
    ends: Vec<Option<(SegmentIndex, usize)>>,
    closed: BTreeSet<SegmentIndex>,
    needed: NeededBytes,
    next: Next,
    /// Segments to free.
    free: Vec<SegmentIndex>,
    /// Segments to empty.
    sparse: BTreeSet<SegmentIndex>,
}

/// The step that comes next.
enum Next {
    /// Step 1, from this region on.
    Prune(RegionIndex),
    /// Step 2.
    Free,
    /// Step 3, from this region on.
    Copy(RegionIndex),
    /// Step 4.
    FreeEmptied,
    /// Step 5, of the chunks below this one.
    GiveBack(u32),
}

impl Store {
    /// Asks for a collection: see [`collect_some`](Self::collect_some).
    pub fn want_collection(&self) {
        // Release: a collection that finds the flag finds the smaller set.
        self.wanted.store(true, Ordering::Release);
    }

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
        self.want_collection();
        self.while_wanted(|collection| {
            *collection = None;
            while self.step(collection, &settle, &wait)? {}
            Ok(())
        })
    }

    /// Runs `collect` with the lock of the collection until no collection is wanted any more. A
    /// thread that finds the lock held leaves its request to the lock holder. The request may come
    /// after the lock holder has looked for one, and before it opens the lock.
    pub(super) fn while_wanted(
        &self,
        mut collect: impl FnMut(&mut Option<Collection>) -> Result<()>,
    ) -> Result<()> {
        loop {
            collect(&mut self.collecting.lock())?;
            // Orders the release of the lock before the load, as the other thread's fence orders
            // its store before its look at the lock. One of the two threads sees the other.
            fence(Ordering::SeqCst);
            if !self.wanted.load(Ordering::Acquire) {
                return Ok(());
            }
        }
    }

    /// Does a step of the collection that was asked for. Returns `true` if work is left. As
    /// [`collect`](Self::collect), and the caller lets no import be half way during the call. If
    /// another thread collects, that one does what was asked for.
    pub fn collect_some(&self, settle: impl Fn() -> Result<()>, wait: impl Fn()) -> Result<bool> {
        // As in `while_wanted`.
        fence(Ordering::SeqCst);
        match self.collecting.try_lock() {
            Some(mut collection) => self.step(&mut collection, &settle, &wait),
            None => Ok(false),
        }
    }

    pub(super) fn step(
        &self,
        collection: &mut Option<Collection>,
        settle: &impl Fn() -> Result<()>,
        wait: &impl Fn(),
    ) -> Result<bool> {
        let mut now = match collection.take() {
            Some(now) => now,
            // Acquire: as in `want_collection`.
            None if self.wanted.swap(false, Ordering::AcqRel) => self.begin_collection(),
            None => return Ok(false),
        };
        let is_over = self.go_on(&mut now, settle, wait)?;
        if !is_over {
            *collection = Some(now);
        }
        Ok(!is_over || self.wanted.load(Ordering::Acquire))
    }

    fn begin_collection(&self) -> Collection {
        self.mark_ends_of_copies();
        Collection {
            live: Live::of(&self.table.lock()),
            // Noted before the index is read.
            ends: self.cursor_ends(),
            closed: self.segments.lock().closed(),
            needed: NeededBytes(Vec::new()),
            next: Next::Prune(RegionIndex(0)),
            free: Vec::new(),
            sparse: BTreeSet::new(),
        }
    }

    /// Does one step. Returns `true` if it was the last one.
    fn go_on(
        &self,
        now: &mut Collection,
        settle: &impl Fn() -> Result<()>,
        wait: &impl Fn(),
    ) -> Result<bool> {
        match now.next {
            Next::Prune(from) => {
                let Collection { live, needed, .. } = now;
                let add = |kept: Kept, slices| needed.add(kept.at.segment(), record_len(slices));
                now.next = match self.index.prune_some(from, live, add) {
                    Some(from) => Next::Prune(from),
                    None => {
                        self.find_free(now);
                        Next::Free
                    }
                };
            }
            Next::Free if !now.free.is_empty() => self.free_some(now, settle, wait)?,
            Next::Free if now.sparse.is_empty() => now.next = Next::GiveBack(u32::MAX),
            Next::Free => now.next = Next::Copy(RegionIndex(0)),
            Next::Copy(from) => {
                now.next = match self.copy_some(now, from, settle)? {
                    Some(from) => Next::Copy(from),
                    None => {
                        let is_empty = |segment: &&SegmentIndex| now.needed.of(**segment) == 0;
                        now.free = now.sparse.iter().filter(is_empty).copied().collect();
                        Next::FreeEmptied
                    }
                };
            }
            Next::FreeEmptied if !now.free.is_empty() => self.free_some(now, settle, wait)?,
            Next::FreeEmptied => now.next = Next::GiveBack(u32::MAX),
            Next::GiveBack(below) => match self.give_back_some(below) {
                Some(below) => now.next = Next::GiveBack(below),
                None => return Ok(true),
            },
        }
        Ok(false)
    }

    /// Finds the segments without a needed record, and those with few.
    fn find_free(&self, now: &mut Collection) {
        let Collection { closed, needed, .. } = now;
        let of = |segment: &SegmentIndex| needed.of(*segment);
        now.sparse =
            closed.iter().filter(|s| (1..=SEGMENT / SPARSE).contains(&of(s))).copied().collect();
        now.free = closed.iter().filter(|segment| of(segment) == 0).copied().collect();
        now.free.append(&mut self.retire(&now.ends, &now.needed));
    }

    /// Frees some segments. No lookup finds a place in them any more.
    fn free_some(
        &self,
        now: &mut Collection,
        settle: &impl Fn() -> Result<()>,
        wait: &impl Fn(),
    ) -> Result<()> {
        let some = now.free.split_off(now.free.len().saturating_sub(AT_A_TIME));
        unless!(FreedBeforeReadersLeft, wait());
        let mut had_ends = false;
        for part in some.chunks(LOCKED_AT_A_TIME) {
            had_ends |= self.segments.lock().clear_ends(&self.file, part);
        }
        if had_ends {
            // Orders the ends before the headers: an end without its records is damage.
            unless!(FreedWithEnd, settle()?);
        }
        for part in some.chunks(LOCKED_AT_A_TIME) {
            self.segments.lock().free(&self.file, part);
        }
        Ok(())
    }

    /// Gives some chunks back. Returns the chunk below which to go on.
    fn give_back_some(&self, below: u32) -> Option<u32> {
        let mut below = below;
        for _ in 0..CHUNKS_AT_A_TIME {
            let chunk = self.segments.lock().take_chunk(below)?;
            let range = range_of(chunk);
            // Without the lock: appenders take segments meanwhile. A failure keeps the storage, and
            // no more.
            let punched = self.file.punch(range.start, CHUNK as u64);
            self.segments.lock().end_chunk(chunk, punched.unwrap_or(false));
            below = chunk;
        }
        Some(below)
    }

    /// Appends needed records of sparse segments again, of some regions from `from` on. Returns the
    /// region to go on with.
    fn copy_some(
        &self,
        now: &mut Collection,
        from: RegionIndex,
        settle: &impl Fn() -> Result<()>,
    ) -> Result<Option<RegionIndex>> {
        let mut all = Vec::new();
        let mut next = self.index.some_pages(from, |page, records| {
            let mut before = Before::default();
            for kept in records {
                let slices = now.live.needed(&before, kept);
                before.add(kept);
                if now.sparse.contains(&kept.at.segment()) && !slices.is_empty() {
                    all.push(Needed { page, kept: *kept, slices });
                }
            }
        });
        let mut moved = Vec::new();
        for needed in all {
            match self.copy_record(needed) {
                Ok(Some(copy)) => {
                    now.needed.take(needed.kept.at.segment(), record_len(needed.slices));
                    moved.push(copy);
                }
                // Bytes of an operation that has not drained yet: the next time.
                Ok(None) => {}
                Err(Error::NoSpace { .. }) => {
                    next = None;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if !moved.is_empty() {
            // Orders the copies before the end of the originals.
            unless!(FreedBeforeSettled, settle()?);
        }
        moved.iter().for_each(|Moved { page, from, to }| self.index.replace(*page, *from, *to));
        Ok(next)
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
