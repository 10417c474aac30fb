//! The bytes of a log, except for its records: its head, and the list of its segments.
//!
//! Owns: [`Head`], [`Segment`] and [`Segments`].
//!
//! Invariants (`docs/structures.md`): Q1 the head and the list have their checksums. Q2 the
//! segments follow one another by block numbers, without gaps. Q3 the head names the segment that
//! holds the log's end.
//!
//! May import the room's helpers.

use crate::api::transaction::Transaction;
use crate::error::{Result, StructureError};
use crate::structures::{FURTHEST, PAGE, Source, sum_without};
use std::ops::Range;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

pub(in crate::structures) const MAGIC: [u8; 8] = *b"AtomLogs";
pub(in crate::structures) const VERSION: u32 = 1;
/// Bytes of the extent that a log's name has: the head, and the list of segments.
pub(in crate::structures) const EXTENT: u64 = 2 * PAGE;
/// Offset of the list from the head. It has a page of its own, since every append changes the page
/// of the head, and an allocation reads the lists of all logs.
pub(in crate::structures) const SEGMENTS: u64 = PAGE;
/// The most segments of a log.
pub(in crate::structures) const MOST_SEGMENTS: usize =
    (PAGE as usize - LIST_HEAD) / size_of::<Segment>();
/// Bytes of a block, which is a page.
pub(in crate::structures) const BLOCK: u64 = PAGE;
/// Bytes of records in a block.
pub(in crate::structures) const DATA: u64 = BLOCK - BLOCK_HEADER;
/// Bytes of a block's header.
pub(in crate::structures) const BLOCK_HEADER: u64 = 16;
/// The limit of a log without one.
pub(in crate::structures) const NO_LIMIT: u64 = u64::MAX;
const SUM: usize = 12;
const LIST_HEAD: usize = 16;
const PAST_END: &str = "a segment lies past the file's end";
/// No position is as high. So sums of positions and lengths cannot overflow.
pub(in crate::structures) const MOST: u64 = 1 << 60;
/// The number of blocks with positions below [`MOST`].
const MOST_BLOCKS: u64 = MOST / DATA;

/// The state of a log: which records it has, and where the next one goes.
///
/// A position counts the bytes of records since the log was made, without block headers.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, PartialEq, Debug)]
#[repr(C)]
pub(in crate::structures) struct Head {
    pub magic: [u8; 8],
    pub version: U32,
    pub sum: U32,
    /// The log's number: no other log of the file has it, not even a later one in this place.
    pub id: U64,
    /// How many truncations there were. While it stays, no byte of a record changes.
    pub generation: U64,
    /// The number of the oldest record.
    pub first: U64,
    /// The number of the next record.
    pub next: U64,
    /// The position of the oldest record.
    pub start: U64,
    /// The position of the next record.
    pub end: U64,
    /// The most bytes that the segments may take.
    pub limit: U64,
    /// The last segment.
    pub last: Segment,
}

impl Head {
    /// Returns the head of an empty log.
    pub fn new(id: u64) -> Head {
        let mut head = Head::new_zeroed();
        (head.magic, head.version) = (MAGIC, VERSION.into());
        (head.id, head.limit) = (id.into(), NO_LIMIT.into());
        head.sealed()
    }

    pub fn sealed(mut self) -> Head {
        self.sum = sum_without(self.as_bytes(), SUM).into();
        self
    }

    /// Reads the head of log `id` at `at`.
    pub fn load(source: &mut impl Source, at: u64, id: u64) -> Result<Head> {
        // A transaction that was to make the log may have ended without a commit.
        let is_there = source.reaches(at.saturating_add(size_of::<Head>() as u64))?;
        let head: Head = if is_there { source.value(at)? } else { Head::new_zeroed() };
        if head.magic != MAGIC || head.id.get() != id {
            return Err(source.error(at, StructureError::Removed));
        }
        head.check(source, at)?;
        Ok(head)
    }

    /// Returns an error if the head contradicts its checksum or itself.
    pub fn check(&self, source: &mut impl Source, at: u64) -> Result<()> {
        let is_whole = sum_without(self.as_bytes(), SUM) == self.sum.get();
        source.expect(is_whole, at, "the checksum of a log's head is wrong")?;
        if self.version.get() != VERSION {
            let version = self.version.get();
            return Err(source.error(at, StructureError::Newer { version }));
        }
        let (start, end) = (self.start.get(), self.end.get());
        let count = self.next.get().checked_sub(self.first.get());
        let bytes = end.checked_sub(start);
        let is_sound = end < MOST
            && count.zip(bytes).is_some_and(|(count, bytes)| {
                count <= bytes / RECORD_HEADER && (count == 0) == (bytes == 0)
            });
        source.expect(is_sound, at, "the numbers and positions of a log contradict each other")?;
        let last = self.last.blocks();
        let is_in_last =
            last.start.saturating_mul(DATA) <= end && end <= last.end.saturating_mul(DATA);
        source.expect(is_in_last, at, "the last segment of a log does not hold its end")?;
        self.last.check(source, at)?;
        let is_inside = source.reaches(self.last.bytes().end)?;
        source.expect(is_inside, at, PAST_END)
    }

    pub fn store(&self, tx: &mut Transaction<'_>, at: u64) -> Result<()> {
        tx.store(at, &self.sealed())
    }
}

/// Bytes before each record.
pub(in crate::structures) const RECORD_HEADER: u64 = 8;

/// An extent with blocks of one log.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, PartialEq, Debug)]
#[repr(C)]
pub(in crate::structures) struct Segment {
    /// Offset in the file, a multiple of 4096.
    pub offset: U64,
    /// The number of the first block.
    pub first: U64,
    /// How many blocks.
    pub count: U64,
}

impl Segment {
    pub fn blocks(&self) -> Range<u64> {
        self.first.get()..self.first.get().saturating_add(self.count.get())
    }

    /// Returns `true` if the segment holds a byte between two positions.
    pub fn has_bytes_of(&self, positions: Range<u64>) -> bool {
        let blocks = self.blocks();
        let first_past = blocks.end.saturating_mul(DATA);
        blocks.start.saturating_mul(DATA) < positions.end && positions.start < first_past
    }

    /// Returns the segment's bytes in the file.
    pub fn bytes(&self) -> Range<u64> {
        let len = self.count.get().saturating_mul(BLOCK);
        self.offset.get()..self.offset.get().saturating_add(len)
    }

    /// Returns an error if no file can have the segment. The caller compares the end of the segment
    /// with that of the file.
    fn check(&self, source: &impl Source, at: u64) -> Result<()> {
        let is_sound = self.offset.get().is_multiple_of(PAGE)
            && self.bytes().end <= FURTHEST
            && self.first.get() <= MOST_BLOCKS;
        source.expect(is_sound, at, PAST_END)
    }
}

/// The segments of a log, the oldest first.
pub(in crate::structures) struct Segments(Vec<Segment>);

impl Segments {
    pub fn new(segments: Vec<Segment>) -> Segments {
        Segments(segments)
    }

    /// Reads the list at `at`.
    pub fn load(source: &mut impl Source, at: u64) -> Result<Segments> {
        let mut page = [0; PAGE as usize];
        source.read(&mut page, at)?;
        let (head, list) = page.split_at(LIST_HEAD);
        let word = |at: usize| u32::from_le_bytes(*head[at..].first_chunk().expect("in the head"));
        let count = word(8) as usize;
        source.expect(count <= MOST_SEGMENTS, at, "a log has more segments than a list holds")?;
        let mut segments = vec![Segment::new_zeroed(); count];
        let len = segments.as_bytes().len();
        segments.as_mut_bytes().copy_from_slice(&list[..len]);
        let is_whole = sum_without(&[head, &list[..len]].concat(), SUM) == word(SUM);
        source.expect(is_whole, at, "the checksum of a log's segments is wrong")?;
        for pair in segments.windows(2) {
            let follows = pair[0].blocks().end == pair[1].first.get();
            source.expect(follows, at, "the segments of a log do not follow one another")?;
        }
        segments.iter().try_for_each(|segment| segment.check(source, at))?;
        let end = segments.iter().map(|segment| segment.bytes().end).max().unwrap_or(0);
        let is_inside = source.reaches(end)?;
        source.expect(is_inside, at, PAST_END)?;
        let segments = Segments(segments);
        let fits = source.reaches(segments.blocks().saturating_mul(BLOCK))?;
        source.expect(fits, at, "the segments of a log are longer than the file")?;
        Ok(segments)
    }

    /// Returns the bytes of the list, up to its last segment.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; LIST_HEAD];
        bytes[..8].copy_from_slice(b"AtomSegs");
        bytes[8..SUM].copy_from_slice(&(self.0.len() as u32).to_le_bytes());
        bytes.extend_from_slice(self.0.as_bytes());
        let sum = sum_without(&bytes, SUM);
        bytes[SUM..LIST_HEAD].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub fn store(&self, tx: &mut Transaction<'_>, at: u64) -> Result<()> {
        tx.write_at(&self.encode(), at)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Segment> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of blocks of all segments.
    pub fn blocks(&self) -> u64 {
        self.0.iter().fold(0, |sum, segment| segment.count.get().saturating_add(sum))
    }

    pub fn push(&mut self, segment: Segment) {
        self.0.push(segment);
    }

    pub fn last(&self) -> Option<&Segment> {
        self.0.last()
    }

    /// Drops the segments without a byte between the two positions. The allocator may hand them out
    /// as soon as the transaction commits.
    pub fn keep(&mut self, start: u64, end: u64) {
        self.0.retain(|segment| segment.has_bytes_of(start..end));
    }

    /// Returns the segment with a block.
    pub fn find(&self, block: u64) -> Option<&Segment> {
        let after = self.0.partition_point(|segment| segment.blocks().end <= block);
        self.0.get(after).filter(|segment| segment.blocks().contains(&block))
    }
}
