//! The segments of the snapshot store, and the keep records in them.
//!
//! ```text
//! header of a segment (64 bytes)          record (64 bytes), and the kept slices behind it
//! 0   8   magic "AtomSnpS"                0   4    CRC-32C of bytes 4 to 64
//! 8   4   CRC-32C of bytes 0 to 64,       4   4    CRC-32C of the kept slices
//!         this field as zero              8   8    epoch
//! 12  4   zero                            16  8    page
//! 16  8   opening                         24  8    mask: bit n = slice n is kept
//! 24  8   turn                            32  8    stored sum of the page, or zero
//! 32  32  zero                            40  8    1 if there is a sum
//!                                         48  16   zero
//!                                         64  64n  the slices of the mask, the lowest first
//! ```
//!
//! A record says: these were the bytes of the page's slices at the seal of the epoch. It never
//! becomes false. It counts as a whole or not at all: both checksums must be right, and so must
//! those of all records before it in the segment.
//!
//! The sum is that of the whole page at the seal, as `crate::page_sum` stores it. The first record
//! of a page since a seal has it, if the file has page sums. A record without one has zeroes there.
//!
//! All checksums of a segment continue from a seed: the pair, the opening, the turn, and the place
//! of the segment. No two beginnings of a segment have one seed. So what an earlier use has left is
//! no record of a later one.
//!
//! The end of a segment is a word in a map, elsewhere in the file. It is stored when all records of
//! the segment are durable, and no other one will follow: bits 0 to 31 are the end, bits 32 to 63 a
//! CRC-32C of these 4 bytes. A segment that lacks something before its end is damaged.
//!
//! Pure; nothing here panics, whatever the bytes.
//!
//! May import: `layout`, `superblock`, `bitmap`, `checksum`, `units`, and the planted bugs.

use super::SegmentIndex;
use crate::bitmap::Slices;
use crate::checksum;
use crate::format::layout::MOST_PAGES;
use crate::format::superblock::SESSIONS;
use crate::format::{le_word, put_words};
use crate::mutant::planted;
use crate::units::{PAGE, PageIndex};

/// Bytes of the header of a segment.
pub const SEGMENT_HEADER: usize = 64;
/// Bytes of a record before its slices.
pub const RECORD_HEADER: usize = 64;
/// The most bytes of a record.
pub const LONGEST_RECORD: usize = RECORD_HEADER + PAGE;
const MAGIC: [u8; 8] = *b"AtomSnpS";
const SUM: std::ops::Range<usize> = 8..12;

/// The start of the checksums of one use of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentSeed(u32);

/// The header of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// The opening in which the segment was begun.
    pub opening: u64,
    /// Counts the beginnings of segments in that opening.
    pub turn: u64,
}

impl SegmentHeader {
    /// Returns the seed of the segment's checksums.
    pub fn seed(&self, uuid: &[u8; 16], segment: SegmentIndex) -> SegmentSeed {
        let turn = if planted!(SegmentSeedOld) { 0 } else { self.turn };
        let sum = checksum::crc32c_append(checksum::crc32c(b"segment"), uuid);
        let sum = checksum::crc32c_append(sum, &self.opening.to_le_bytes());
        let sum = checksum::crc32c_append(sum, &turn.to_le_bytes());
        SegmentSeed(checksum::crc32c_append(sum, &segment.0.to_le_bytes()))
    }

    /// Returns the bytes.
    pub fn encode(&self, uuid: &[u8; 16], segment: SegmentIndex) -> [u8; SEGMENT_HEADER] {
        let mut bytes = [0; SEGMENT_HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[16..24].copy_from_slice(&self.opening.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.turn.to_le_bytes());
        let sum = checksum::crc32c_append(self.seed(uuid, segment).0, &bytes);
        bytes[SUM].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes the header at the beginning of a segment. Returns `None` if there is none of this
    /// pair and place.
    pub fn decode(uuid: &[u8; 16], segment: SegmentIndex, bytes: &[u8]) -> Option<SegmentHeader> {
        let bytes = bytes.get(..SEGMENT_HEADER)?;
        let header =
            SegmentHeader { opening: le_word(&bytes[16..24]), turn: le_word(&bytes[24..32]) };
        (header.encode(uuid, segment) == bytes && header.opening < SESSIONS).then_some(header)
    }
}

/// A keep record without its slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The snapshot: the slices had these bytes when it was sealed. Not 0.
    pub epoch: u64,
    /// The page.
    pub page: PageIndex,
    /// The kept slices, at least one.
    pub mask: Slices,
    /// The sum of the whole page at the seal.
    pub sum: SealSum,
}

/// The statement of a keep record about the sum that its page had when the snapshot was sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SealSum {
    /// Nothing. The record may be the first one of the page since the seal.
    Unknown,
    /// The stored sum. The record is the first one.
    Known(u64),
    /// Nothing, and the record is not the first one.
    Later,
}

impl SealSum {
    /// Returns the sum as the words of a header have it.
    fn words(self) -> [u64; 2] {
        match self {
            SealSum::Unknown => [0, 0],
            SealSum::Known(sum) => [sum, 1],
            SealSum::Later => [0, 2],
        }
    }

    fn of_words([sum, kind]: [u64; 2]) -> Self {
        match kind {
            1 => SealSum::Known(sum),
            2 => SealSum::Later,
            _ => SealSum::Unknown,
        }
    }
}

/// Returns the bytes of a record with these slices.
pub const fn record_len(slices: Slices) -> usize {
    RECORD_HEADER.saturating_add(slices.bytes())
}

impl Record {
    /// Returns the bytes of the record and its slices.
    #[allow(clippy::len_without_is_empty, reason = "a record is never empty")]
    pub const fn len(&self) -> usize {
        record_len(self.mask)
    }

    /// Returns the bytes before the slices. `kept` are the slices, the lowest first.
    pub fn encode(&self, seed: SegmentSeed, kept: &[u8]) -> [u8; RECORD_HEADER] {
        debug_assert_eq!(kept.len(), self.mask.bytes());
        self.encode_with(seed, sum_of_kept(seed, kept))
    }

    fn encode_with(&self, seed: SegmentSeed, sum_of_kept: u32) -> [u8; RECORD_HEADER] {
        let mut bytes = [0; RECORD_HEADER];
        bytes[4..8].copy_from_slice(&sum_of_kept.to_le_bytes());
        let [page_sum, kind] = self.sum.words();
        put_words(&mut bytes, 8, [self.epoch, self.page.0, self.mask.0, page_sum, kind]);
        let sum = checksum::crc32c_append(seed.0, &bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes the record at the beginning of `bytes`. Returns `None` unless both the record and
    /// its slices are whole.
    pub fn decode(seed: SegmentSeed, bytes: &[u8]) -> Option<Record> {
        let header = bytes.get(..RECORD_HEADER)?;
        let record = Record {
            epoch: le_word(&header[8..16]),
            page: PageIndex(le_word(&header[16..24])),
            mask: Slices(le_word(&header[24..32])),
            sum: SealSum::of_words([le_word(&header[32..40]), le_word(&header[40..48])]),
        };
        let sum = u32::from_le_bytes(header[4..8].try_into().ok()?);
        let is_whole = record.encode_with(seed, sum) == header || planted!(RecordUnchecked);
        let is_sound = (1..SESSIONS).contains(&record.epoch)
            && record.page.0 < MOST_PAGES
            && !record.mask.is_empty();
        let kept = bytes.get(RECORD_HEADER..record.len())?;
        let are_kept_whole = sum == sum_of_kept(seed, kept) || planted!(KeptBytesUnchecked);
        (is_whole && is_sound && are_kept_whole).then_some(record)
    }
}

/// Returns the checksum of the kept slices of a record.
fn sum_of_kept(seed: SegmentSeed, kept: &[u8]) -> u32 {
    checksum::crc32c_append(seed.0, kept)
}

/// Returns the word of a segment that ends at `end`. It is never 0, which says that the segment has
/// no end yet.
pub fn end_word(seed: SegmentSeed, end: usize) -> u64 {
    let sum = checksum::crc32c_append(seed.0, &(end as u32).to_le_bytes());
    u64::from(sum) << 32 | end as u64
}

/// Returns the records of a segment and the offsets in it at which they begin, up to the first one
/// that is not whole. `bytes` is the segment, or what there is of it.
pub fn records(seed: SegmentSeed, bytes: &[u8]) -> impl Iterator<Item = (usize, Record)> {
    let mut at = SEGMENT_HEADER;
    std::iter::from_fn(move || {
        let record = Record::decode(seed, bytes.get(at..)?)?;
        let found = (at, record);
        at = at.saturating_add(record.len());
        Some(found)
    })
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::super::SEGMENT;
    use super::*;

    const UUID: [u8; 16] = *b"0123456789abcdef";
    const HERE: SegmentIndex = SegmentIndex(5);
    const HEADER: SegmentHeader = SegmentHeader { opening: 3, turn: 2 };

    fn record(epoch: u64, page: u64, mask: u64) -> Record {
        Record { epoch, page: PageIndex(page), mask: Slices(mask), sum: SealSum::Unknown }
    }

    fn kept(record: &Record) -> Vec<u8> {
        (0..record.mask.bytes()).map(|n| (n / 3) as u8).collect()
    }

    fn encoded(seed: SegmentSeed, record: &Record) -> Vec<u8> {
        let kept = kept(record);
        [&record.encode(seed, &kept)[..], &kept].concat()
    }

    /// Returns a segment with these records.
    fn segment(records: &[Record]) -> Vec<u8> {
        let mut bytes = HEADER.encode(&UUID, HERE).to_vec();
        let seed = HEADER.seed(&UUID, HERE);
        records.iter().for_each(|record| bytes.extend(encoded(seed, record)));
        bytes.resize(SEGMENT, 0);
        bytes
    }

    #[test]
    fn a_header_is_of_one_pair_place_opening_and_turn() {
        let bytes = HEADER.encode(&UUID, HERE);
        assert_eq!(SegmentHeader::decode(&UUID, HERE, &bytes), Some(HEADER));
        assert_eq!(SegmentHeader::decode(&UUID, SegmentIndex(6), &bytes), None);
        assert_eq!(SegmentHeader::decode(b"another's UUID!!", HERE, &bytes), None);
        for n in 0..bytes.len() {
            let mut torn = bytes;
            torn[n] ^= 1;
            assert_eq!(SegmentHeader::decode(&UUID, HERE, &torn), None, "byte {n}");
        }
        assert_eq!(SegmentHeader::decode(&UUID, HERE, &bytes[..63]), None);
    }

    #[test]
    fn a_record_of_another_use_is_none() {
        let it = record(4, 9, 0b101);
        let bytes = encoded(HEADER.seed(&UUID, HERE), &it);
        let others = [
            (SegmentHeader { turn: 1, ..HEADER }, UUID, HERE),
            (SegmentHeader { opening: 2, ..HEADER }, UUID, HERE),
            (HEADER, *b"another's UUID!!", HERE),
            (HEADER, UUID, SegmentIndex(6)),
        ];
        assert_eq!(Record::decode(HEADER.seed(&UUID, HERE), &bytes), Some(it));
        for (header, uuid, place) in others {
            assert_eq!(Record::decode(header.seed(&uuid, place), &bytes), None, "{header:?}");
        }
    }

    #[test]
    fn a_record_is_whole_or_none() {
        let seed = HEADER.seed(&UUID, HERE);
        let sums = [SealSum::Unknown, SealSum::Known(0), SealSum::Known(77), SealSum::Later];
        for sum in sums {
            let it = Record { sum, ..record(4, 9, 0b1011) };
            let bytes = encoded(seed, &it);
            assert_eq!(Record::decode(seed, &bytes), Some(it));
            for n in 0..bytes.len() {
                let mut torn = bytes.clone();
                torn[n] ^= 1;
                assert_eq!(Record::decode(seed, &torn), None, "byte {n}");
                assert_eq!(Record::decode(seed, &bytes[..n]), None);
            }
        }
        for bad in [record(0, 9, 1), record(4, 9, 0), record(4, MOST_PAGES, 1)] {
            assert_eq!(Record::decode(seed, &encoded(seed, &bad)), None, "{bad:?}");
        }
    }

    #[test]
    fn records_follow_each_other_up_to_the_first_that_is_not_whole() {
        let all = [record(4, 9, 0b11), record(4, 10, !0), record(5, 9, 1)];
        let bytes = segment(&all);
        let seed = HEADER.seed(&UUID, HERE);
        let found =
            |bytes: &[u8]| records(seed, bytes).map(|(_, record)| record).collect::<Vec<_>>();
        assert_eq!(found(&bytes), all);
        let starts: Vec<usize> = records(seed, &bytes).map(|(at, _)| at).collect();
        assert_eq!(starts, [64, 64 + 192, 64 + 192 + LONGEST_RECORD]);
        let mut torn = bytes.clone();
        torn[starts[1] + 100] ^= 1;
        assert_eq!(found(&torn), all[..1]);
        for cut in 0..starts[2] + 200 {
            let whole = starts.iter().zip(&all).filter(|(at, r)| *at + r.len() <= cut).count();
            assert_eq!(found(&bytes[..cut]), all[..whole], "cut at {cut}");
        }
    }

    #[test]
    fn the_word_of_an_end_is_of_one_use_and_one_end() {
        let word = end_word(HEADER.seed(&UUID, HERE), 4096);
        assert_eq!(word as u32, 4096);
        assert_ne!(word, end_word(HEADER.seed(&UUID, HERE), 4160));
        let later = SegmentHeader { turn: 3, ..HEADER };
        assert_ne!(word, end_word(later.seed(&UUID, HERE), 4096));
        assert_ne!(word, end_word(HEADER.seed(&UUID, SegmentIndex(6)), 4096));
        let places = [1, 5, 8191, 8193].map(|n| SegmentIndex(n).end_word_at());
        let second = SegmentIndex(8192).start();
        let first = super::super::SEGMENTS;
        assert_eq!(places, [first + 8, first + 40, first + 8 * 8191, second + 8]);
        assert!(SegmentIndex(0).is_map() && SegmentIndex(8192).is_map());
    }

    #[test]
    fn a_full_segment_ends_where_it_ends() {
        let many = vec![record(4, 9, 1); (SEGMENT - SEGMENT_HEADER) / record_len(Slices(1))];
        let bytes = segment(&many);
        assert_eq!(bytes.len(), SEGMENT);
        assert_eq!(records(HEADER.seed(&UUID, HERE), &bytes).count(), many.len());
    }
}
