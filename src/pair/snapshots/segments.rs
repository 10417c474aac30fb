//! The segments of the store: which are free, and the allocation of their storage.
//!
//! Owns: the state of each segment, and the turns in which segments are begun. Invariants:
//! - A segment has one owner at a time: the free ones, an appender that has reserved it, a cursor,
//!   or the closed ones.
//! - No two beginnings of a segment have one header: the opening is new in each session, and the
//!   turn grows within it. So no record of an earlier use comes back.
//! - The word of a segment's end is stored once all of its records are durable, and is durably 0
//!   before the segment is used again or its header is cleared.
//! - A segment that is given out has storage, so no store to it can fail.
//!
//! May import `mmap`, `pair::space`, `format::snapshots`, `error`, `platform`, `units`, and the
//! planted bugs.

use crate::error::{Error, Result, SYNC_OF_LENGTH};
use crate::format::snapshots::segment::{SEGMENT_HEADER, SegmentHeader};
use crate::format::snapshots::{GROUP, SEGMENT, SegmentIndex};
use crate::mmap::MappedFile;
use crate::pair::space::allocation_error;
use crate::units::CHUNK;
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

/// Segments in a chunk.
const PER_CHUNK: u32 = (CHUNK / SEGMENT) as u32;

/// Free segments that keep their storage in any case: 16 MiB.
const SPARE: usize = 256;

/// Returns the segments of a chunk that may have records.
fn in_chunk(chunk: u32) -> impl Iterator<Item = SegmentIndex> {
    with_records(chunk * PER_CHUNK..(chunk + 1) * PER_CHUNK)
}

fn with_records(range: Range<u32>) -> impl Iterator<Item = SegmentIndex> {
    range.map(SegmentIndex).filter(|segment| !segment.is_map())
}

/// A segment with records that has no end in the map yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Full {
    segment: SegmentIndex,
    /// The word of its end.
    word: u64,
    /// The cursor that has filled it. `None` if opening has found it.
    pub cursor: Option<usize>,
    /// Counts the full segments of the session.
    pub number: u64,
}

/// A segment that its owner may begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reserved {
    pub segment: SegmentIndex,
    pub header: SegmentHeader,
}

/// The segments of a store.
pub(super) struct Segments {
    /// Session of the pair in which segments are begun, or 0 while none may be.
    opening: u64,
    /// The last turn that was given.
    turn: u64,
    /// Free segments with storage.
    room: BTreeSet<SegmentIndex>,
    /// Free segments that may lack storage.
    holes: BTreeSet<SegmentIndex>,
    /// Segments with records that no cursor appends to.
    closed: BTreeSet<SegmentIndex>,
    /// Closed segments that have no end in the map yet.
    full: Vec<Full>,
    /// The number of segments that were full in this session.
    filled: u64,
    /// All segments of the file.
    count: u32,
}

impl Segments {
    /// Makes the state of a file with `count` segments, all of them free.
    pub fn new(count: u32) -> Self {
        Segments {
            opening: 0,
            turn: 0,
            room: BTreeSet::new(),
            holes: with_records(0..count).collect(),
            closed: BTreeSet::new(),
            full: Vec::new(),
            filled: 0,
            count,
        }
    }

    /// Allows to begin segments in this session of the pair, which had none before. The file has
    /// `count` segments by now. Stores the ends of the segments that were found, which are durable.
    pub fn begin(&mut self, file: &MappedFile, session: u64, count: u32) -> Result<()> {
        assert!(self.opening == 0, "a store begins once");
        for map in (0..count).step_by(GROUP as usize) {
            allocate_map(file, SegmentIndex(map))?;
        }
        self.opening = session;
        self.holes.extend(with_records(self.count..count));
        self.count = count;
        self.mark_ends(file, |_| true);
        Ok(())
    }

    /// Notes a segment that gets no more records. `word` says where it ends.
    pub fn fill(&mut self, segment: SegmentIndex, word: u64, cursor: Option<usize>) {
        self.close(segment);
        self.filled += 1;
        self.full.push(Full { segment, word, cursor, number: self.filled });
    }

    /// Returns the number of segments that were full in this session.
    pub fn filled(&self) -> u64 {
        self.filled
    }

    /// Stores the ends of those full segments that `are_settled`: all of their records are durable.
    pub fn mark_ends(&mut self, file: &MappedFile, are_settled: impl Fn(&Full) -> bool) {
        self.full.retain(|full| {
            let is_settled = are_settled(full);
            if is_settled {
                file.store_word_through(full.segment.end_word_at(), full.word);
            }
            !is_settled
        });
    }

    /// Returns the number of segments with an end in the map.
    pub fn ended(&self, file: &MappedFile) -> u64 {
        let has_end = |segment: &&SegmentIndex| file.load_word(segment.end_word_at()) != 0;
        self.closed.iter().filter(has_end).count() as u64
    }

    /// Clears the ends of closed segments. Returns `true` if there were any. The caller makes that
    /// durable before it frees the segments: an end without its records is damage.
    pub fn clear_ends(&mut self, file: &MappedFile, segments: &[SegmentIndex]) -> bool {
        let mut were_there = false;
        for segment in segments {
            self.full.retain(|full| full.segment != *segment);
            if file.load_word(segment.end_word_at()) != 0 {
                file.store_word_through(segment.end_word_at(), 0);
                were_there = true;
            }
        }
        were_there
    }

    /// Notes a segment with records, which was found or filled.
    pub fn close(&mut self, segment: SegmentIndex) {
        self.holes.remove(&segment);
        let is_new = self.closed.insert(segment);
        debug_assert!(is_new && !self.room.contains(&segment));
    }

    /// Returns the closed segments.
    pub fn closed(&self) -> BTreeSet<SegmentIndex> {
        self.closed.clone()
    }

    /// Takes a free segment. After an error nothing has changed, but the file may be longer.
    pub fn take(&mut self, file: &MappedFile) -> Result<Reserved> {
        assert!(self.opening != 0, "the store has not begun");
        let segment = match self.room.pop_first() {
            Some(segment) => segment,
            None => self.allocate(file)?,
        };
        self.turn += 1;
        let header = SegmentHeader { opening: self.opening, turn: self.turn };
        Ok(Reserved { segment, header })
    }

    /// Takes back a segment that was reserved and not begun. Its turn is given to no other one.
    pub fn give_back(&mut self, reserved: Reserved) {
        self.room.insert(reserved.segment);
    }

    /// Frees closed segments. Nothing needs or names their records, and they have no end.
    ///
    /// Nothing else has to be durable for this. If power fails, an old header may come back with
    /// its records: they are facts, and stay true. A segment that is used again has another seed,
    /// so its header admits no older record.
    pub fn free(&mut self, file: &MappedFile, segments: &[SegmentIndex]) {
        for segment in segments {
            let was_closed = self.closed.remove(segment);
            debug_assert!(was_closed);
            // So the next opening reads no record there.
            file.store_line(segment.start(), [0; SEGMENT_HEADER / 8]);
            self.room.insert(*segment);
        }
    }

    /// Gives chunks of free segments back to the file system, and keeps some for the next keeps:
    /// as many as are in use, and [`SPARE`]. In chunks, since the storage of a chunk may be one
    /// page of 2 MiB, which a smaller hole would break up.
    pub fn give_back_chunks(&mut self, file: &MappedFile) {
        let kept = self.closed.len().max(SPARE);
        for chunk in (0..self.count / PER_CHUNK).rev() {
            if self.room.len() < kept + PER_CHUNK as usize {
                return;
            }
            let segments = || in_chunk(chunk);
            let has_map = SegmentIndex(chunk * PER_CHUNK).is_map();
            if has_map || !segments().all(|segment| self.room.contains(&segment)) {
                continue;
            }
            let start = SegmentIndex(chunk * PER_CHUNK).start();
            // A failure keeps the storage, and no more.
            if file.punch(start, CHUNK as u64).unwrap_or(false) {
                self.room.retain(|segment| !segments().any(|gone| gone == *segment));
                self.holes.extend(segments());
            }
        }
    }

    /// Returns the bytes of all segments in use.
    pub fn used(&self) -> u64 {
        self.allocated() - self.room.len() as u64 * SEGMENT as u64
    }

    /// Returns the bytes of all segments that are no holes.
    pub fn allocated(&self) -> u64 {
        (u64::from(self.count) - self.holes.len() as u64) * SEGMENT as u64
    }

    /// Takes a free segment without storage, and allocates it.
    fn allocate(&mut self, file: &MappedFile) -> Result<SegmentIndex> {
        if self.holes.is_empty() && self.grow(file)? {
            return Ok(self.room.pop_first().expect("a whole chunk"));
        }
        let segment = *self.holes.first().expect("the file has grown");
        if let Some(first) = self.allocate_chunk_of(file, segment)? {
            return Ok(first);
        }
        let (at, len) = (segment.start(), SEGMENT as u64);
        file.allocate(at, len).map_err(|e| allocation_error(file, at, len, e))?;
        self.holes.remove(&segment);
        Ok(segment)
    }

    /// Allocates the whole chunk of a hole, if all of it is a hole and there is space.
    fn allocate_chunk_of(
        &mut self,
        file: &MappedFile,
        hole: SegmentIndex,
    ) -> Result<Option<SegmentIndex>> {
        let chunk = hole.0 / PER_CHUNK;
        let segments = || in_chunk(chunk);
        if !segments().all(|segment| self.holes.contains(&segment)) {
            return Ok(None);
        }
        let (at, len) = (SegmentIndex(chunk * PER_CHUNK).start(), CHUNK as u64);
        match file.allocate_chunk(at, len).map_err(|e| allocation_error(file, at, len, e)) {
            Ok(()) => {
                self.holes.retain(|segment| !segments().any(|there| there == *segment));
                self.room.extend(segments());
                Ok(self.room.pop_first())
            }
            Err(Error::NoSpace { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes the file a chunk longer. Returns `true` if all of the chunk was allocated. If there is
    /// no space for that, there may be some for a segment.
    fn grow(&mut self, file: &MappedFile) -> Result<bool> {
        let (old, step) = (file.len(), CHUNK as u64);
        let end = old + step;
        if end > file.reach() {
            let full = io::ErrorKind::FileTooLarge.into();
            return Err(allocation_error(file, old, step, full));
        }
        file.set_len(end).map_err(|e| allocation_error(file, old, step, e))?;
        // Segments of a length that may be lost are not used: after a failed sync a later one may
        // succeed and prove nothing.
        let first = SegmentIndex::count(old);
        self.count = SegmentIndex::count(end);
        if file.drains_are_durable() {
            // Orders the file's length before the first drain of bytes in there. Elsewhere bytes
            // become durable by a sync of the file, and the length with them.
            file.sync_all().map_err(|e| Error::io(SYNC_OF_LENGTH, file.path(), e))?;
        }
        let new = with_records(first..self.count);
        match file.allocate_chunk(old, step).map_err(|e| allocation_error(file, old, step, e)) {
            Ok(()) => self.room.extend(new),
            Err(Error::NoSpace { .. }) => {
                if SegmentIndex(first).is_map() {
                    allocate_map(file, SegmentIndex(first))?;
                }
                self.holes.extend(new);
            }
            Err(error) => return Err(error),
        }
        Ok(self.holes.is_empty())
    }
}

/// Allocates a map, so that no store to it can fail.
fn allocate_map(file: &MappedFile, map: SegmentIndex) -> Result<()> {
    let (at, len) = (map.start(), SEGMENT as u64);
    let hole = file.next_hole(at);
    let hole = hole.map_err(|e| Error::io_at("look for holes", file.path(), at, e))?;
    if hole >= at + len {
        return Ok(());
    }
    file.allocate(at, len).map_err(|e| allocation_error(file, at, len, e))
}
