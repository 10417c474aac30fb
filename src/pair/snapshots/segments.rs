//! The segments of the store: which are free, and the allocation of their storage.
//!
//! Owns: the state of each segment, and the turns in which segments are begun. Invariants:
//! - A segment has one owner at a time: the free ones, an appender that has reserved it, a cursor,
//!   the closed ones, or the thread that gives its chunk back.
//! - No two beginnings of a segment have one header: the opening is new in each session, and the
//!   turn grows within it. So no record of an earlier use comes back.
//! - The word of a segment's end is stored once all of its records are durable, and is durably 0
//!   before the segment is used again or its header is cleared.
//! - A segment that is given out has storage, so no store to it can fail.
//!
//! May import `runs`, `mmap`, `pair::space`, `format::snapshots`, `error`, `platform`, `units`, and
//! the planted bugs.

use super::runs::Runs;
use crate::error::{Error, Result, SYNC_OF_LENGTH};
use crate::format::snapshots::segment::{SEGMENT_HEADER, SegmentHeader};
use crate::format::snapshots::{SEGMENT, SegmentIndex};
use crate::mmap::MappedFile;
use crate::mutant::planted;
use crate::pair::space::allocation_error;
use crate::platform::Copying;
use crate::units::CHUNK;
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

/// Segments in a chunk.
const PER_CHUNK: u32 = (CHUNK / SEGMENT) as u32;

/// Free segments that keep their storage in any case: 16 MiB.
const SPARE: usize = 256;

/// Returns the file's range of a chunk.
pub(super) fn range_of(chunk: u32) -> Range<u64> {
    let start = SegmentIndex(in_chunk(chunk).start).start();
    start..start.saturating_add(CHUNK as u64)
}

/// Returns the segments of a chunk, with the map that one in 256 chunks begins with.
fn in_chunk(chunk: u32) -> Range<u32> {
    let start = chunk.saturating_mul(PER_CHUNK);
    start..start.saturating_add(PER_CHUNK)
}

/// Returns the segments of a range that may have records.
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
    /// Free segments that may lack storage, and maps of groups without a segment in use.
    holes: Runs,
    /// Maps that have storage, as far as is known.
    maps: BTreeSet<SegmentIndex>,
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
        let mut holes = Runs::default();
        holes.add(0..count);
        Segments {
            opening: 0,
            turn: 0,
            room: BTreeSet::new(),
            holes,
            maps: BTreeSet::new(),
            closed: BTreeSet::new(),
            full: Vec::new(),
            filled: 0,
            count,
        }
    }

    /// Allows to begin segments in this session of the pair, which had none before. The file has
    /// `count` segments by now. Stores the ends of the segments that were found, which are durable.
    /// Those that are `lost` may have ends, which are cleared later.
    pub fn begin(
        &mut self,
        file: &MappedFile,
        session: u64,
        count: u32,
        lost: &[SegmentIndex],
    ) -> Result<()> {
        assert!(self.opening == 0, "a store begins once");
        self.holes.add(self.count..count);
        let used = self.closed.iter().chain(lost);
        let maps: BTreeSet<SegmentIndex> = used.map(|segment| segment.map()).collect();
        for map in maps {
            self.allocate_map(file, map)?;
        }
        self.opening = session;
        self.count = count;
        self.mark_ends(file, |_| true);
        Ok(())
    }

    /// Notes a segment that gets no more records. `word` says where it ends.
    pub fn fill(&mut self, segment: SegmentIndex, word: u64, cursor: Option<usize>) {
        self.close(segment);
        self.filled = self.filled.saturating_add(1);
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
        let all: BTreeSet<SegmentIndex> = segments.iter().copied().collect();
        self.full.retain(|full| !all.contains(&full.segment));
        for segment in segments {
            if file.load_word(segment.end_word_at()) != 0 {
                file.store_word_through(segment.end_word_at(), 0);
                were_there = true;
            }
        }
        were_there
    }

    /// Notes a segment with records, which was found or filled.
    pub fn close(&mut self, segment: SegmentIndex) {
        self.holes.remove_one(segment);
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
        self.turn = self.turn.saturating_add(1);
        let header = SegmentHeader { opening: self.opening, turn: self.turn };
        Ok(Reserved { segment, header })
    }

    /// Allocates free segments until there are at least `count` with storage.
    pub fn reserve(&mut self, file: &MappedFile, count: usize) -> Result<()> {
        assert!(self.opening != 0, "the store has not begun");
        while self.room.len() < count {
            let segment = self.allocate(file)?;
            self.room.insert(segment);
        }
        Ok(())
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
            // So the next opening reads no record there. Through the cache: no drain follows, and a
            // store past it could arrive over the header of the next use.
            let how = if planted!(FreedPastCache) { Copying::BySize } else { Copying::Cached };
            file.copy_in(segment.start(), &[0; SEGMENT_HEADER], how);
            self.room.insert(*segment);
        }
    }

    /// Takes a chunk of free segments out, the last one before chunk `below`, to give it back to
    /// the file system. Keeps some for the next keeps: as many as are in use, and [`SPARE`]. In
    /// chunks, since the storage of a chunk may be one page of 2 MiB, which a smaller hole would
    /// break up.
    pub fn take_chunk(&mut self, below: u32) -> Option<u32> {
        let kept = self.closed.len().max(SPARE);
        if self.room.len() < kept.saturating_add(PER_CHUNK as usize) {
            return None;
        }
        let mut end = SegmentIndex(in_chunk(below).start);
        loop {
            let last = self.room.range(..end).next_back()?;
            let chunk = last.0 / PER_CHUNK;
            end = SegmentIndex(in_chunk(chunk).start);
            // A map is never free.
            if in_chunk(chunk).all(|segment| self.room.contains(&SegmentIndex(segment))) {
                in_chunk(chunk).for_each(|segment| {
                    self.room.remove(&SegmentIndex(segment));
                });
                return Some(chunk);
            }
        }
    }

    /// Takes a chunk back that was taken out. `is_hole`: its storage was given back.
    pub fn end_chunk(&mut self, chunk: u32, is_hole: bool) {
        match is_hole {
            true => self.holes.add(in_chunk(chunk)),
            false => self.room.extend(with_records(in_chunk(chunk))),
        }
    }

    /// Returns the bytes of all segments in use.
    pub fn used(&self) -> u64 {
        let free = (self.room.len() as u64).saturating_mul(SEGMENT as u64);
        self.allocated().saturating_sub(free)
    }

    /// Returns the bytes of all segments that are no holes.
    pub fn allocated(&self) -> u64 {
        let allocated = u64::from(self.count).saturating_sub(self.holes.len());
        allocated.saturating_mul(SEGMENT as u64)
    }

    /// Returns the first free segment without storage.
    fn first_hole(&self) -> Option<SegmentIndex> {
        self.holes.iter().find_map(|run| with_records(run).next())
    }

    /// Takes a free segment without storage, and allocates it.
    fn allocate(&mut self, file: &MappedFile) -> Result<SegmentIndex> {
        if self.first_hole().is_none() {
            self.grow(file)?;
        }
        let segment = self.first_hole().expect("the file has grown");
        if let Some(first) = self.allocate_chunk_of(file, segment)? {
            return Ok(first);
        }
        let (at, len) = (segment.start(), SEGMENT as u64);
        self.allocate_map(file, segment.map())?;
        file.allocate(at, len).map_err(|e| allocation_error(file, at, len, e))?;
        self.holes.remove_one(segment);
        Ok(segment)
    }

    /// Allocates the whole chunk of a hole, if all of it is a hole and there is space.
    fn allocate_chunk_of(
        &mut self,
        file: &MappedFile,
        hole: SegmentIndex,
    ) -> Result<Option<SegmentIndex>> {
        let segments = in_chunk(hole.0 / PER_CHUNK);
        let map = hole.map();
        // The map is of this chunk, or gets its storage before.
        let has_own_map = map.0 == segments.start;
        let are_holes = self.holes.has_all(match has_own_map {
            true => hole.0..segments.end,
            false => segments.clone(),
        });
        if !are_holes || hole.0 > segments.start.saturating_add(u32::from(has_own_map)) {
            return Ok(None);
        }
        if !has_own_map {
            self.allocate_map(file, map)?;
        }
        let (at, len) = (SegmentIndex(segments.start).start(), CHUNK as u64);
        match file.allocate_chunk(at, len).map_err(|e| allocation_error(file, at, len, e)) {
            Ok(()) => {
                self.maps.insert(map);
                self.holes.remove(segments.clone());
                self.room.extend(with_records(segments));
                Ok(self.room.pop_first())
            }
            Err(Error::NoSpace { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes the file a chunk longer. It is a hole.
    fn grow(&mut self, file: &MappedFile) -> Result<()> {
        let (old, step) = (file.len(), CHUNK as u64);
        let end = old.saturating_add(step);
        if end > file.reach() {
            let full = io::ErrorKind::FileTooLarge.into();
            return Err(allocation_error(file, old, step, full));
        }
        file.set_len(end).map_err(|e| allocation_error(file, old, step, e))?;
        if file.drains_are_durable() {
            // Orders the file's length before the first drain of bytes in there. Elsewhere bytes
            // become durable by a sync of the file, and the length with them.
            file.sync_all().map_err(|e| Error::io(SYNC_OF_LENGTH, file.path(), e))?;
        }
        // Segments of a length that may be lost are not used: after a failed sync a later one may
        // succeed and prove nothing.
        self.count = SegmentIndex::count(end);
        self.holes.add(SegmentIndex::count(old)..self.count);
        Ok(())
    }

    /// Allocates a map, so that no store to it can fail. Comes before a segment of its group is
    /// used: a long file may have many groups without any.
    fn allocate_map(&mut self, file: &MappedFile, map: SegmentIndex) -> Result<()> {
        // Asked by what is known of its storage: a map that is no free segment may be a hole.
        if self.maps.contains(&map) {
            return Ok(());
        }
        let (at, len) = (map.start(), SEGMENT as u64);
        let hole = file.next_hole(at);
        let hole = hole.map_err(|e| Error::io_at("look for holes", file.path(), at, e))?;
        if hole < map.end() {
            file.allocate(at, len).map_err(|e| allocation_error(file, at, len, e))?;
        }
        self.maps.insert(map);
        self.holes.remove_one(map);
        Ok(())
    }
}
