//! Blocks of 4096 bytes, and the records in them.
//!
//! Owns: positions, the search for a record, and the bytes of a record.
//!
//! Invariants (`docs/structures.md`): Q4 every block between start and end has its header. Q5
//! records follow one another from start to end, with the numbers first to next.
//!
//! May import `meta` and the room's helpers.

use super::meta::{BLOCK, BLOCK_HEADER, DATA, Head, RECORD_HEADER, SEGMENTS, Segment, Segments};
use crate::api::transaction::Transaction;
use crate::error::Result;
use crate::mutant::planted;
use crate::structures::{Source, sum_without};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The bytes of a writer above which it hands them over, so that it holds few of a long append.
const FLUSH_ABOVE: usize = 1 << 20;

/// The first bytes of a block.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, PartialEq, Debug)]
#[repr(C)]
pub(in crate::structures) struct BlockHeader {
    /// The number of the first record that begins in this block or after it.
    pub first: U64,
    /// Where the first record begins, in bytes after this header. 4080: in no place of this block.
    pub start: U16,
    pub reserved: U16,
    pub sum: U32,
}

impl BlockHeader {
    const SUM: usize = 12;

    /// Returns the header of a block of log `id`.
    pub fn new(id: u64, block: u64, first: u64, start: u64) -> BlockHeader {
        let start = (start.min(DATA) as u16).into();
        let mut header =
            BlockHeader { first: first.into(), start, reserved: 0.into(), sum: 0.into() };
        header.sum = header.sum_of(id, block).into();
        header
    }

    fn sum_of(&self, id: u64, block: u64) -> u32 {
        let seed = [id.to_le_bytes(), block.to_le_bytes()];
        crc32c::crc32c_append(
            crc32c::crc32c(seed.as_flattened()),
            &sum_without(self.as_bytes(), Self::SUM).to_le_bytes(),
        )
    }
}

/// Returns the checksum of a record, which also covers its log and number. So the bytes of another
/// record never count as this one.
pub(in crate::structures) fn sum_of_record(id: u64, seq: u64, record: &[u8]) -> u32 {
    let seed = [id, seq, record.len() as u64].map(u64::to_le_bytes);
    crc32c::crc32c_append(crc32c::crc32c(seed.as_flattened()), record)
}

/// The records of a log as a head describes them.
pub(in crate::structures) struct Blocks<'h> {
    pub head: &'h Head,
    segments: Segments,
}

#[expect(
    clippy::arithmetic_side_effects,
    reason = "positions and offsets are bounded by `MOST` and `FURTHEST` where they are read"
)]
impl<'h> Blocks<'h> {
    /// Reads what is needed to find any record of the log at `at`.
    pub fn load(source: &mut impl Source, at: u64, head: &'h Head) -> Result<Blocks<'h>> {
        // Most short logs have one segment, and the head names it.
        let is_in_last = head.start.get() / DATA >= head.last.first.get();
        let segments = if is_in_last {
            Segments::new(vec![head.last])
        } else {
            let segments = Segments::load(source, at + SEGMENTS)?;
            let first = segments.iter().next().map(|segment| segment.first.get());
            let is_whole = head.start == head.end
                || first.is_some_and(|first| first <= head.start.get() / DATA)
                    && segments.iter().any(|segment| *segment == head.last);
            // So no length of a record exceeds that of the file. An append may have added a segment
            // since the head was read.
            source.expect(is_whole, at + SEGMENTS, "a log goes on outside its segments")?;
            segments
        };
        Ok(Blocks { head, segments })
    }

    /// Returns the offset of a block in the file.
    fn offset_of(&self, source: &impl Source, block: u64) -> Result<u64> {
        match self.segments.find(block) {
            Some(segment) => Ok(segment.offset.get() + (block - segment.first.get()) * BLOCK),
            None => Err(source.damaged(self.head.last.offset.get(), "a block is in no segment")),
        }
    }

    /// Returns the offset of a position in the file.
    pub fn place(&self, source: &impl Source, position: u64) -> Result<u64> {
        Ok(self.offset_of(source, position / DATA)? + BLOCK_HEADER + position % DATA)
    }

    /// Fills `buf` from `position` on.
    fn read(&self, source: &mut impl Source, position: u64, buf: &mut [u8]) -> Result<()> {
        let mut position = position;
        let mut rest = buf;
        while !rest.is_empty() {
            let here = (rest.len() as u64).min(DATA - position % DATA);
            let (now, later) = rest.split_at_mut(here as usize);
            let place = self.place(source, position)?;
            source.read(now, place)?;
            (rest, position) = (later, position + here);
        }
        Ok(())
    }

    /// Reads the header of a block.
    pub fn header(&self, source: &mut impl Source, block: u64) -> Result<BlockHeader> {
        let offset = self.offset_of(source, block)?;
        let header: BlockHeader = source.value(offset)?;
        let is_whole = header.sum_of(self.head.id.get(), block) == header.sum.get()
            && u64::from(header.start.get()) <= DATA;
        source.expect(is_whole, offset, "the checksum of a log's block is wrong")?;
        Ok(header)
    }

    /// Returns the position of record `seq`, which the log has. That of the next record is the end.
    ///
    /// Reads at most one block header for each doubling of the number of blocks, and one block.
    pub fn find(&self, source: &mut impl Source, seq: u64) -> Result<u64> {
        let head = self.head;
        if seq == head.next.get() {
            return Ok(head.end.get());
        }
        let first_block = head.start.get() / DATA;
        let (mut low, mut high) = (first_block, (head.end.get() - 1) / DATA);
        // The record begins in the last block with a first record not past `seq`.
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if self.header(source, middle)?.first.get() <= seq {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        if low == first_block {
            return self.walk(source, (head.first.get(), head.start.get()), seq);
        }
        let header = self.header(source, low)?;
        self.walk(source, (header.first.get(), low * DATA + u64::from(header.start.get())), seq)
    }

    /// Returns the position of record `seq`, from a record at or before it in one block.
    fn walk(&self, source: &mut impl Source, from: (u64, u64), seq: u64) -> Result<u64> {
        let (mut n, mut position) = from;
        let end = (position / DATA + 1) * DATA;
        let what = "a block does not lead to the records in it";
        let place = self.place(source, position)?;
        source.expect(n <= seq, place, what)?;
        let len = end.min(self.head.end.get()).saturating_sub(position);
        let mut data = vec![0; len as usize];
        source.read(&mut data, place)?;
        let mut rest = &data[..];
        while n < seq {
            // A later record begins in this block. So this one lies within it, with its header.
            let len = rest.split_first_chunk::<4>().map(|(len, _)| u32::from_le_bytes(*len));
            let len = len.map_or(u64::MAX, |len| RECORD_HEADER + u64::from(len));
            source.expect(len < rest.len() as u64, place, what)?;
            rest = &rest[len as usize..];
            (n, position) = (n + 1, position + len);
        }
        Ok(position)
    }

    /// Reads record `seq` at its position into `record`. Returns the position after it.
    pub fn record(
        &self,
        source: &mut impl Source,
        position: u64,
        seq: u64,
        record: &mut Vec<u8>,
    ) -> Result<u64> {
        let place = self.place(source, position)?;
        let rest = self.head.end.get().checked_sub(position + RECORD_HEADER);
        let mut header = [0; RECORD_HEADER as usize];
        source.expect(rest.is_some(), place, "a record begins past the log's end")?;
        self.read(source, position, &mut header)?;
        let [len, sum] = [0, 4].map(|at| [0, 1, 2, 3].map(|n| header[at + n]));
        let len = u64::from(u32::from_le_bytes(len));
        source.expect(Some(len) <= rest, place, "a record goes on past the log's end")?;
        record.clear();
        record.resize(len as usize, 0);
        self.read(source, position + RECORD_HEADER, record)?;
        let is_whole = sum_of_record(self.head.id.get(), seq, record) == u32::from_le_bytes(sum);
        source.expect(
            is_whole || planted!(RecordSumNotChecked),
            place,
            "the checksum of a record is wrong",
        )?;
        Ok(position + RECORD_HEADER + len)
    }
}

/// Writes records behind the end of a log, in as few ranges as possible.
pub(in crate::structures) struct Writer<'s> {
    id: u64,
    /// The segments that take the bytes, the oldest first.
    segments: &'s [Segment],
    position: u64,
    bytes: Vec<u8>,
    /// Where `bytes` go in the file.
    place: u64,
}

#[expect(
    clippy::arithmetic_side_effects,
    reason = "positions and offsets are bounded by `MOST` and `FURTHEST` where they are read"
)]
impl<'s> Writer<'s> {
    /// Begins at the end of the log. The segments have room for all bytes to come.
    pub fn new(id: u64, end: u64, segments: &'s [Segment]) -> Writer<'s> {
        Writer { id, segments, position: end, bytes: Vec::new(), place: 0 }
    }

    /// Writes record `seq`.
    pub fn put(&mut self, tx: &mut Transaction<'_>, seq: u64, record: &[u8]) -> Result<()> {
        let begin = self.position;
        let mut header = [0; RECORD_HEADER as usize];
        header[..4].copy_from_slice(&(record.len() as u32).to_le_bytes());
        header[4..].copy_from_slice(&sum_of_record(self.id, seq, record).to_le_bytes());
        let end = begin + RECORD_HEADER + record.len() as u64;
        for mut rest in [&header[..], record] {
            while !rest.is_empty() {
                self.enter(tx, seq, begin, end)?;
                let here = (DATA - self.position % DATA).min(rest.len() as u64);
                let (now, later) = rest.split_at(here as usize);
                self.bytes.extend_from_slice(now);
                (self.position, rest) = (self.position + here, later);
            }
            if self.bytes.len() > FLUSH_ABOVE {
                self.flush(tx)?;
            }
        }
        Ok(())
    }

    /// Goes on in the block of the position, with the part from `begin` to `end` for record `seq`.
    /// Writes the header of a block that the log enters.
    fn enter(&mut self, tx: &mut Transaction<'_>, seq: u64, begin: u64, end: u64) -> Result<()> {
        let (block, within) = (self.position / DATA, self.position % DATA);
        if within > 0 && !self.bytes.is_empty() {
            return Ok(());
        }
        let segment = self.segments.iter().find(|segment| segment.blocks().contains(&block));
        let Some(segment) = segment else {
            return Err(tx.damaged(self.place, "a block is in no segment"));
        };
        let offset = segment.offset.get() + (block - segment.first.get()) * BLOCK;
        let header_len = if within == 0 { 0 } else { BLOCK_HEADER };
        let place = offset + header_len + within;
        if place != self.place + self.bytes.len() as u64 {
            self.flush(tx)?;
            self.place = place;
        }
        if within == 0 {
            // The record begins here, or has begun in an earlier block.
            let (first, start) = if begin == self.position || planted!(BlockNamesEarlierRecord) {
                (seq, 0)
            } else {
                (seq + 1, end - self.position)
            };
            let header = BlockHeader::new(self.id, block, first, start);
            self.bytes.extend_from_slice(header.as_bytes());
        }
        Ok(())
    }

    /// Hands the bytes over to the transaction.
    pub fn flush(&mut self, tx: &mut Transaction<'_>) -> Result<()> {
        if !self.bytes.is_empty() {
            tx.write_at(&self.bytes, self.place)?;
            self.place += self.bytes.len() as u64;
            self.bytes.clear();
        }
        Ok(())
    }
}
