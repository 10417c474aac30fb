//! The appenders: how records get into segments.
//!
//! Owns: the cursor of each lane, which is the segment that the lane appends to. Invariant: only
//! the thread that has the lane appends there, and it has the lane until it has drained. So a
//! record that a drain has made durable has only durable records before it.
//!
//! May import the rest of `pair::snapshots`, `format`, `bitmap`, `error`, `platform`, `primitive`,
//! `units`, and the planted bugs.

use super::Store;
use super::index::{Kept, RecordAt};
use super::segments::{Full, Reserved};
use crate::error::Result;
use crate::format::layout::LANE_COUNT;
use crate::format::snapshots::segment::{
    LONGEST_RECORD, RECORD_HEADER, Record, SEGMENT_HEADER, SegmentSeed, end_word, record_len,
};
use crate::format::snapshots::{SEGMENT, SegmentIndex};
use crate::platform::Copying;
use crate::primitive::{Mutex, MutexGuard, many};
use crate::units::{LaneIndex, SLICE};
use smallvec::SmallVec;

/// The number of cursors: one for each lane, and one for `collect`.
const CURSORS: usize = LANE_COUNT + 1;

/// The bytes of a full segment that are certainly records: the next record did not fit.
const SURELY_USED: usize = SEGMENT - SEGMENT_HEADER - (LONGEST_RECORD - SLICE);

/// Returns the bytes of `records` records with `slices` slices together.
fn bytes_of(records: usize, slices: usize) -> usize {
    let headers = records.saturating_mul(RECORD_HEADER);
    headers.saturating_add(slices.saturating_mul(SLICE))
}

/// Returns the number of segments that these records surely fit in.
fn segments_of(records: usize, slices: usize) -> usize {
    bytes_of(records, slices).div_ceil(SURELY_USED)
}

/// A segment that a lane appends to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    pub segment: SegmentIndex,
    seed: SegmentSeed,
    /// The end of the last record in the segment.
    pub at: usize,
    /// `true` if the end of a segment before it may not be in the map yet.
    has_full: bool,
}

impl Cursor {
    fn has_room(&self, len: usize) -> bool {
        self.at.saturating_add(len) <= SEGMENT
    }

    fn end_word(&self) -> u64 {
        end_word(self.seed, self.at)
    }
}

/// The cursors of all lanes. One is empty until the lane's first append.
pub(super) struct Cursors(Box<[Mutex<Option<Cursor>>; CURSORS]>);

impl Cursors {
    /// Makes empty cursors.
    pub fn new() -> Self {
        Cursors(many(|| Mutex::new(None)))
    }

    /// Returns all cursors.
    pub fn all(&self) -> &[Mutex<Option<Cursor>>] {
        &self.0[..]
    }
}

/// Appends records to the segments of one lane. Has room for as many as it was asked for.
pub(crate) struct Appender<'a> {
    store: &'a Store,
    /// The number of the cursor.
    number: usize,
    cursor: MutexGuard<'a, Option<Cursor>>,
    reserved: SmallVec<[Reserved; 2]>,
}

impl Store {
    /// Returns an appender of this lane, with room for `records` records that have `slices` slices
    /// together. If there is no space, nothing has changed.
    ///
    /// The calling thread has the lane until it has drained what it appends, or until a sync has
    /// begun after that.
    pub fn appender(&self, lane: LaneIndex, records: usize, slices: usize) -> Result<Appender<'_>> {
        self.appender_at(lane.0 as usize, records, slices)
    }

    /// Takes the space of `records` records with `slices` slices together, which one lane appends
    /// by any number of appenders. It is there until another thread appends, or space is given
    /// back.
    pub fn reserve(&self, records: usize, slices: usize) -> Result<()> {
        // Each appender leaves less than a segment to the next.
        let count = segments_of(records, slices).saturating_add(usize::from(records != 0));
        self.segments.lock().reserve(&self.file, count)
    }

    /// Closes the segments of all cursors. No operation is left, and all records are durable.
    pub(super) fn close_cursors(&self) {
        for (number, cursor) in self.cursors.0.iter().enumerate() {
            if let Some(cursor) = cursor.lock().take() {
                let mut segments = self.segments.lock();
                segments.fill(cursor.segment, cursor.end_word(), Some(number));
            }
        }
    }

    /// Stores the ends of the segments with copies. The copies of earlier calls are durable.
    pub(super) fn mark_ends_of_copies(&self) {
        if self.file.drains_are_durable() {
            let is_of_copies = |full: &Full| full.cursor == Some(LANE_COUNT);
            self.segments.lock().mark_ends(&self.file, is_of_copies);
        }
    }

    /// Returns the appender for copies of records. Its caller holds `collecting` until it has
    /// settled them.
    pub(super) fn appender_of_copies(&self, slices: usize) -> Result<Appender<'_>> {
        self.appender_at(LANE_COUNT, 1, slices)
    }

    fn appender_at(&self, number: usize, records: usize, slices: usize) -> Result<Appender<'_>> {
        let mut cursor = self.cursors.0[number].lock();
        if let Some(Cursor { has_full: has_full @ true, .. }) = &mut *cursor
            && self.file.drains_are_durable()
            && number != LANE_COUNT
        {
            // The last thread with this lane has drained its records.
            self.segments.lock().mark_ends(&self.file, |full| full.cursor == Some(number));
            *has_full = false;
        }
        let mut appender = Appender { store: self, number, cursor, reserved: SmallVec::new() };
        let bytes = bytes_of(records, slices);
        if !appender.cursor.is_some_and(|cursor| cursor.has_room(bytes)) {
            let mut segments = self.segments.lock();
            for _ in 0..segments_of(records, slices) {
                match segments.take(&self.file) {
                    Ok(reserved) => appender.reserved.push(reserved),
                    Err(error) => {
                        drop(segments);
                        return Err(error);
                    }
                }
            }
        }
        Ok(appender)
    }
}

impl Appender<'_> {
    /// Appends a record: slices of a page, as they were at the seal of its epoch. `bytes` has the
    /// slices of its mask one after the other. The caller holds the page's lock.
    ///
    /// The record is durable with this thread's next drain, or the next sync where drains are not
    /// durable. Lookups find it from now on.
    pub fn keep(&mut self, record: Record, bytes: &[u8]) {
        let kept = self.append(record, bytes);
        self.store.index.add(record.page, kept);
    }

    /// Appends a record, which lookups do not find yet.
    pub(super) fn append(&mut self, record: Record, bytes: &[u8]) -> Kept {
        assert_eq!(bytes.len(), record.mask.bytes());
        assert!(record.epoch != 0 && !record.mask.is_empty());
        let len = record_len(record.mask);
        let mut cursor = match *self.cursor {
            Some(cursor) if cursor.has_room(len) => cursor,
            full => self.begin_segment(full),
        };
        let file = &self.store.file;
        let at = cursor.segment.start().saturating_add(cursor.at as u64);
        let header = record.encode(cursor.seed, bytes);
        // In any order: a record counts as a whole or not at all.
        file.copy_in(at, &header, Copying::BySize);
        file.copy_in(at.saturating_add(RECORD_HEADER as u64), bytes, Copying::BySize);
        self.store.note_stored();
        cursor.at = cursor.at.saturating_add(len);
        *self.cursor = Some(cursor);
        Kept { epoch: record.epoch, mask: record.mask, at: RecordAt(at) }
    }

    /// Begins the next reserved segment, and closes the one that is full. Its header becomes
    /// durable with the first record: without either there is no record.
    fn begin_segment(&mut self, full: Option<Cursor>) -> Cursor {
        let Reserved { segment, header } = self.reserved.pop().expect("as many as were asked for");
        let uuid = &self.store.uuid;
        let bytes = header.encode(uuid, segment);
        self.store.file.copy_in(segment.start(), &bytes, Copying::BySize);
        if let Some(full) = full {
            let mut segments = self.store.segments.lock();
            segments.fill(full.segment, full.end_word(), Some(self.number));
        }
        let (seed, has_full) = (header.seed(uuid, segment), full.is_some());
        Cursor { segment, seed, at: SEGMENT_HEADER, has_full }
    }
}

impl Drop for Appender<'_> {
    /// Gives back what was reserved and not needed.
    fn drop(&mut self) {
        if !self.reserved.is_empty() {
            let mut segments = self.store.segments.lock();
            self.reserved.drain(..).for_each(|reserved| segments.give_back(reserved));
        }
    }
}
