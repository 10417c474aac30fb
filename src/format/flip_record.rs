//! Flip records: one line of a lane's ring, the log record of a logged flip.
//!
//! A logged flip copies the new slices to their free slots and drains them together with a flip
//! record. The slice word follows through the cache. Until the word is durable the record covers
//! it: recovery sets the bits that the record names, if the slots match the checksum. Rules:
//! `docs/model/logged_flips.py`.
//!
//! ```text
//!   0   header   sequence (40 bits) | kind (8): 1 active, 2 invalidated | session (last 16 bits)
//!   8   checksum (32) | page (32)
//!   16  slices   one bit a slice of the page: those that moved
//!   24  sides    one bit a slice: the slot that holds it from then on, 1 = reflection slot
//!   32  sum      CRC-32C of the slices' bytes, in ascending order (32) | zero (32)
//!   40  page sum, as it is stored: that of the page from then on. 0 in a file without sums
//!   48  zero
//! ```
//!
//! The checksum covers the line without itself and the kind. So a record that was invalidated by
//! one 8-byte store still names its page. It also invalidates the lane's older records about that
//! page, and no others: their words may not be durable yet.
//!
//! Records of older sessions stay in their places, so the header names the session. Suppose that an
//! older record in the place is invalidated and has the number of a new, torn one. Without the
//! session, the old header would turn the rest of the torn record into an invalidated record.
//!
//! May import: `entry`, `layout`, `checksum`, `units` and the planted bugs.

use super::entry::{Seed, Sequence};
use super::layout::{FLIP_RECORD, MOST_PAGES};
use super::word_at;
use crate::checksum::{self, Crc};
use crate::mutant::planted;
use crate::units::{LaneIndex, PageIndex};

const COVERS: u64 = 1 << KIND;
const INVALIDATED: u64 = 2 << KIND;
const KIND: u32 = 16;
const KIND_MASK: u64 = 0xFF << KIND;
const SEQUENCE: u32 = 24;
const TAG_MASK: u64 = 0xFFFF;
/// Where the contents end. The rest is zero, and so is the upper half of the word of `sum`.
const END: usize = 48;
/// Bytes that the checksum covers: whole words.
const SAID: usize = 48;

/// The seed that tells the records of a lane's ring apart from those of other lanes, sessions and
/// pairs. The places of a ring are told apart by the records' numbers.
#[derive(Clone, Copy, Debug)]
pub struct RingSeed {
    /// The difference from checksums without a seed, which are faster to compute.
    difference: u32,
    tag: u16,
    crc: Option<Crc>,
}

impl Seed {
    /// Returns the seed of the ring of `lane`.
    pub fn ring(self, lane: LaneIndex) -> RingSeed {
        RingSeed {
            difference: self.place(lane, 0).difference::<SAID>(),
            tag: self.tag(),
            crc: Crc::get(),
        }
    }
}

impl RingSeed {
    /// Returns the checksum of a line's contents.
    #[inline(always)]
    fn sum(self, said: [u64; SAID / 8]) -> u32 {
        checksum::of_words(self.crc, said) ^ self.difference
    }

    /// Returns the checksum of the slices of a record: [`sum_of`], by the instruction if there is
    /// one.
    #[inline(always)]
    pub fn sum_of(self, slices: &[u8]) -> u32 {
        checksum::of_few(self.crc, slices)
    }
}

/// A flip record: a flip of slices of one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlipRecord {
    /// Its number in the lane.
    pub sequence: Sequence,
    /// The page.
    pub page: PageIndex,
    /// The slices that moved.
    pub slices: u64,
    /// The side of each of them after the flip. Zero for other slices.
    pub sides: u64,
    /// The checksum of their bytes, see [`sum_of`].
    pub sum: u32,
    /// The stored sum of the page after the flip. 0 in a file without page sums.
    pub page_sum: u64,
}

/// The result of decoding a flip record's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodedFlip {
    /// No record.
    Empty,
    /// Not a complete record of this session.
    Torn,
    /// An invalidated record. It covers nothing any more, and no older record of the lane about
    /// this page does.
    Invalidated(Sequence, PageIndex),
    /// A record. The caller has to check that its slots match the checksum.
    Valid(FlipRecord),
}

/// Returns the header of the active record with this number, which the compare-and-swap that
/// invalidates the record expects.
#[inline]
pub fn header(seed: RingSeed, sequence: Sequence) -> u64 {
    number(seed, sequence) | COVERS
}

/// Returns the header of the invalidated record with this number.
pub fn invalidated(seed: RingSeed, sequence: Sequence) -> u64 {
    number(seed, sequence) | INVALIDATED
}

/// Returns a header without its kind.
#[inline]
fn number(seed: RingSeed, sequence: Sequence) -> u64 {
    sequence.bits() << SEQUENCE | u64::from(seed.tag)
}

/// Returns the checksum of the slices of a record.
#[inline]
pub fn sum_of(slices: &[u8]) -> u32 {
    checksum::crc32c(slices)
}

impl FlipRecord {
    /// Returns the line as words, each stored least significant byte first. A line that was
    /// assembled as bytes in memory would be loaded by wider accesses than it was stored by, and
    /// each load would wait.
    #[inline(always)]
    pub fn words(&self, seed: RingSeed) -> [u64; FLIP_RECORD / 8] {
        debug_assert!(self.slices != 0 && self.sides & !self.slices == 0);
        let number = number(seed, self.sequence);
        let (page, sum) = (self.page.0 << 32, u64::from(self.sum));
        let checksum = seed.sum([number, page, self.slices, self.sides, sum, self.page_sum]);
        let page = page | u64::from(checksum);
        [number | COVERS, page, self.slices, self.sides, sum, self.page_sum, 0, 0]
    }

    /// Returns the line's bytes.
    #[cfg(any(test, feature = "recorder"))]
    pub fn encode(&self, seed: RingSeed) -> [u8; FLIP_RECORD] {
        let mut bytes = [0; FLIP_RECORD];
        bytes.copy_from_slice(self.words(seed).map(u64::to_le_bytes).as_flattened());
        bytes
    }

    /// Decodes the bytes at `place` of a ring. Never panics, whatever the bytes.
    pub fn decode(seed: RingSeed, place: usize, bytes: &[u8; FLIP_RECORD]) -> DecodedFlip {
        let word = |at: usize| word_at(bytes, at);
        let header = word(0);
        if header == 0 {
            return DecodedFlip::Empty;
        }
        let kind = header & KIND_MASK;
        let page = PageIndex(word(8) >> 32);
        let (slices, sides) = (word(16), word(24));
        let is_whole = word(8) as u32 == checksum(seed, bytes)
            && word(32) >> 32 == 0
            && bytes[END..] == [0; FLIP_RECORD - END]
            || planted!(FlipRecordSumNotChecked);
        let says_something = slices != 0 && sides & !slices == 0 && page.0 < MOST_PAGES;
        if !is_whole || !says_something || header & TAG_MASK != u64::from(seed.tag) {
            return DecodedFlip::Torn;
        }
        let sequence = Sequence::from_bits(header >> SEQUENCE);
        if sequence.place() != place && !planted!(PlaceNotChecked) {
            // Copied from another place.
            return DecodedFlip::Torn;
        }
        match kind {
            COVERS => DecodedFlip::Valid(FlipRecord {
                sequence,
                page,
                slices,
                sides,
                sum: word(32) as u32,
                page_sum: word(40),
            }),
            INVALIDATED if planted!(InvalidatedIsTorn) => DecodedFlip::Torn,
            INVALIDATED => DecodedFlip::Invalidated(sequence, page),
            _ => DecodedFlip::Torn,
        }
    }
}

/// Returns the checksum of a line, without the checksum and the kind.
#[inline]
fn checksum(seed: RingSeed, bytes: &[u8; FLIP_RECORD]) -> u32 {
    let mut said = [0; SAID / 8];
    for (word, bytes) in said.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    said[0] &= !KIND_MASK;
    said[1] &= !u64::from(u32::MAX);
    seed.sum(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::entry::Seed;
    use crate::units::LaneIndex;

    fn seed() -> RingSeed {
        Seed::new(b"0123456789abcdef", 3).ring(LaneIndex(5))
    }

    fn record() -> FlipRecord {
        let sequence = Sequence::FIRST.next();
        FlipRecord {
            sequence,
            page: PageIndex(77),
            slices: 0b1110,
            sides: 0b0110,
            sum: 0x1234_5678,
            page_sum: 0x0123_4567_89AB_CDEF,
        }
    }

    #[test]
    fn an_entry_comes_back() {
        let bytes = record().encode(seed());
        assert_eq!(FlipRecord::decode(seed(), 2, &bytes), DecodedFlip::Valid(record()));
        assert_eq!(FlipRecord::decode(seed(), 2, &[0; FLIP_RECORD]), DecodedFlip::Empty);
        for other in [
            Seed::new(b"0123456789abcdef", 4).ring(LaneIndex(5)),
            Seed::new(b"0123456789abcdeF", 3).ring(LaneIndex(5)),
            Seed::new(b"0123456789abcdef", 3).ring(LaneIndex(6)),
        ] {
            assert_eq!(FlipRecord::decode(other, 2, &bytes), DecodedFlip::Torn);
        }
        assert_eq!(
            FlipRecord::decode(seed(), 3, &bytes),
            DecodedFlip::Torn,
            "copied to another place"
        );
    }

    #[test]
    fn a_void_entry_still_says_what_it_was_about() {
        let mut bytes = record().encode(seed());
        bytes[..8].copy_from_slice(&invalidated(seed(), record().sequence).to_le_bytes());
        let found = FlipRecord::decode(seed(), 2, &bytes);
        assert_eq!(found, DecodedFlip::Invalidated(record().sequence, record().page));
    }

    /// The header of the previous session stays in its place, invalidated. Together with the
    /// arrived part of a new line it would invalidate the record before.
    #[test]
    fn the_header_of_another_session_voids_nothing() {
        for session in [2, 4, 3 + (1 << 15)] {
            let before = Seed::new(b"0123456789abcdef", session).ring(LaneIndex(5));
            for header in
                [header(before, record().sequence), invalidated(before, record().sequence)]
            {
                let mut bytes = record().encode(seed());
                bytes[..8].copy_from_slice(&header.to_le_bytes());
                assert_eq!(FlipRecord::decode(seed(), 2, &bytes), DecodedFlip::Torn);
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        for bit in 0..FLIP_RECORD * 8 {
            let mut bytes = record().encode(seed());
            bytes[bit / 8] ^= 1 << (bit % 8);
            let found = FlipRecord::decode(seed(), 2, &bytes);
            assert_eq!(found, DecodedFlip::Torn, "bit {bit}");
        }
    }

    #[test]
    fn what_no_flip_says_is_torn() {
        for wrong in [
            FlipRecord { page: PageIndex(u64::from(u32::MAX)), ..record() },
            FlipRecord { slices: 0, sides: 0, ..record() },
        ] {
            // Bypasses the check that debug builds of the engine make.
            let mut bytes = FlipRecord { slices: 1, sides: 0, ..wrong }.encode(seed());
            bytes[16..24].copy_from_slice(&wrong.slices.to_le_bytes());
            bytes[24..32].copy_from_slice(&wrong.sides.to_le_bytes());
            let sum = checksum(seed(), &bytes);
            bytes[8..12].copy_from_slice(&sum.to_le_bytes());
            assert_eq!(FlipRecord::decode(seed(), 2, &bytes), DecodedFlip::Torn);
        }
    }
}
