//! The segments of the store: which are free, and the allocation of their storage.
//!
//! Owns: the state of each segment, and the turns in which segments are begun. Invariants:
//! - A segment has one owner at a time: the free ones, an appender that has reserved it, a cursor,
//!   or the closed ones.
//! - No two beginnings of a segment have one header: the opening is new in each session, and the
//!   turn grows within it. So no record of an earlier use comes back.
//! - A segment that is given out has storage, so no store to it can fail.
//!
//! May import `mmap`, `pair::space`, `format::snapshots`, `error`, `platform`, `units`, and the
//! planted bugs.

use crate::error::{Error, Result, SYNC_OF_LENGTH};
use crate::format::snapshots::segment::{SEGMENT_HEADER, SegmentHeader};
use crate::format::snapshots::{SEGMENT, SegmentIndex};
use crate::mmap::MappedFile;
use crate::pair::space::allocation_error;
use crate::units::CHUNK;
use std::collections::BTreeSet;
use std::io;

/// Segments in a chunk.
const PER_CHUNK: u32 = (CHUNK / SEGMENT) as u32;

/// Free segments that keep their storage in any case: 16 MiB.
const SPARE: usize = 256;

fn in_chunk(chunk: u32) -> impl Iterator<Item = SegmentIndex> {
    (chunk * PER_CHUNK..(chunk + 1) * PER_CHUNK).map(SegmentIndex)
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
            holes: (0..count).map(SegmentIndex).collect(),
            closed: BTreeSet::new(),
            count,
        }
    }

    /// Allows to begin segments in this session of the pair, which had none before. The file has
    /// `count` segments by now.
    pub fn begin(&mut self, session: u64, count: u32) {
        assert!(self.opening == 0, "a store begins once");
        self.opening = session;
        self.holes.extend((self.count..count).map(SegmentIndex));
        self.count = count;
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

    /// Frees closed segments. Nothing needs or names their records.
    ///
    /// Nothing has to be durable for this. If power fails, an old header may come back with its
    /// records: they are facts, and stay true. A segment that is used again has another seed, so
    /// its header admits no older record.
    pub fn free(&mut self, file: &MappedFile, segments: &[SegmentIndex]) {
        for segment in segments {
            let was_closed = self.closed.remove(segment);
            debug_assert!(was_closed);
            // So the next opening reads no record there.
            file.store_line(segment.start(), [0; SEGMENT_HEADER / 8]);
            self.room.insert(*segment);
        }
        self.give_back_chunks(file);
    }

    /// Gives chunks of free segments back to the file system, and keeps some for the next keeps:
    /// as many as are in use, and [`SPARE`]. In chunks, since the storage of a chunk may be one
    /// page of 2 MiB, which a smaller hole would break up.
    fn give_back_chunks(&mut self, file: &MappedFile) {
        let kept = self.closed.len().max(SPARE);
        for chunk in (0..self.count / PER_CHUNK).rev() {
            if self.room.len() < kept + PER_CHUNK as usize {
                return;
            }
            let segments = || in_chunk(chunk);
            if !segments().all(|segment| self.room.contains(&segment)) {
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
        let new = (first..self.count).map(SegmentIndex);
        match file.allocate_chunk(old, step).map_err(|e| allocation_error(file, old, step, e)) {
            Ok(()) => self.room.extend(new),
            Err(Error::NoSpace { .. }) => self.holes.extend(new),
            Err(error) => return Err(error),
        }
        Ok(self.holes.is_empty())
    }
}
