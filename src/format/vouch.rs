//! What does an entry say that vouches for a flip? One line of a lane's ring.
//!
//! A flip with one drain copies the new slices to their free slots and drains them together with such an
//! entry. The slice word follows through the cache, and until it is durable the entry vouches for it:
//! recovery sets the bits that it names, if the slots hold what the checksum says. Rules:
//! `docs/model/vouched_flips.py`.
//!
//! ```text
//!   0   header   sequence (40 bits) | kind (8): 1 it vouches, 2 it is void | session, its last 16 bits
//!   8   checksum (32) | page (32)
//!   16  slices   one bit a slice of the page: those that moved
//!   24  sides    one bit a slice: the slot that holds it from then on, 1 = reflection slot
//!   32  sum      CRC-32C of the slices' bytes, in ascending order (32) | zero (32)
//!   40  zero
//! ```
//!
//! The checksum covers the line, but for itself and the kind. So an entry that became void by one 8-byte
//! store still says which page it was about: it voids the lane's older entries about the same page, and
//! no others, whose words may not be durable yet.
//!
//! The lines of older sessions stay where they are. The header says of which session it is, because an older
//! one with the same number that is void would make a void entry of the rest of a torn new one.

use super::entry::{Seed, Sequence};
use super::layout::{MAX_LEN, VOUCH};
use crate::mutant::planted;
use crate::sum::{self, Crc};
use crate::units::{LaneIndex, PAGE, PageIndex};

const VOUCHES: u64 = 1 << KIND;
const VOID: u64 = 2 << KIND;
const KIND: u32 = 16;
const KIND_MASK: u64 = 0xFF << KIND;
const SEQUENCE: u32 = 24;
const TAG_MASK: u64 = 0xFFFF;
/// Where what it says ends. The rest is zero.
const END: usize = 36;
/// Bytes that the checksum covers: whole words.
const SAID: usize = 40;

/// What makes the lines of a lane's ring different from those of other lanes, sessions and pairs. Their
/// numbers tell the ring's places apart.
#[derive(Clone, Copy, Debug)]
pub struct RingSeed {
    /// What their checksums differ by from those that begin with nothing: the latter are the faster ones.
    difference: u32,
    tag: u16,
    crc: Option<Crc>,
}

impl Seed {
    /// The seed of the ring of `lane`.
    pub fn ring(self, lane: LaneIndex) -> RingSeed {
        RingSeed {
            difference: self.place(lane, 0).difference::<SAID>(),
            tag: self.tag(),
            crc: Crc::get(),
        }
    }
}

impl RingSeed {
    /// The checksum of what a line says.
    #[inline(always)]
    fn sum(self, said: [u64; SAID / 8]) -> u32 {
        sum::of_words(self.crc, said) ^ self.difference
    }

    /// The checksum of the slices that an entry is about: [`sum_of`], by the instruction where there is one.
    #[inline(always)]
    pub fn sum_of(self, slices: &[u8]) -> u32 {
        sum::of_few(self.crc, slices)
    }
}

/// A flip of slices of one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vouch {
    /// Its number in the lane.
    pub sequence: Sequence,
    /// The page.
    pub page: PageIndex,
    /// The slices that moved.
    pub slices: u64,
    /// Where each of them is from then on. Zero for others.
    pub sides: u64,
    /// The checksum of their bytes, see [`sum_of`].
    pub sum: u32,
}

/// What the bytes at an entry's place turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VouchFound {
    /// No entry.
    Empty,
    /// Not an entry of this session that was written whole.
    Torn,
    /// It vouches for nothing any more, and nothing older of the lane does so for this page.
    Void(Sequence, PageIndex),
    /// An entry. Whether its slots hold what it says is for the reader to see.
    Valid(Vouch),
}

/// The header of an entry with this number: what a compare-and-swap that makes it void expects to find.
#[inline]
pub fn header(seed: RingSeed, sequence: Sequence) -> u64 {
    number(seed, sequence) | VOUCHES
}

/// The same, once it is void.
pub fn voided(seed: RingSeed, sequence: Sequence) -> u64 {
    number(seed, sequence) | VOID
}

/// A header without its kind.
#[inline]
fn number(seed: RingSeed, sequence: Sequence) -> u64 {
    sequence.bits() << SEQUENCE | u64::from(seed.tag)
}

/// The checksum of the slices that an entry is about.
#[inline]
pub fn sum_of(slices: &[u8]) -> u32 {
    sum::crc32c(slices)
}

impl Vouch {
    /// The line, as words that are stored least significant byte first. (Not as bytes: who put a line together in
    /// memory would load it in larger pieces than it was stored in, and wait for that.)
    #[inline(always)]
    pub fn words(&self, seed: RingSeed) -> [u64; VOUCH / 8] {
        debug_assert!(self.slices != 0 && self.sides & !self.slices == 0);
        let number = number(seed, self.sequence);
        let (page, sum) = (self.page.0 << 32, u64::from(self.sum));
        let checksum = seed.sum([number, page, self.slices, self.sides, sum]);
        let page = page | u64::from(checksum);
        [number | VOUCHES, page, self.slices, self.sides, sum, 0, 0, 0]
    }

    /// The line.
    #[cfg(any(test, feature = "recorder"))]
    pub fn encode(&self, seed: RingSeed) -> [u8; VOUCH] {
        let mut bytes = [0; VOUCH];
        bytes.copy_from_slice(self.words(seed).map(u64::to_le_bytes).as_flattened());
        bytes
    }

    /// Judges the bytes at `place` of a ring. Never panics, whatever the bytes.
    pub fn decode(seed: RingSeed, place: usize, bytes: &[u8; VOUCH]) -> VouchFound {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let header = word(0);
        if header == 0 {
            return VouchFound::Empty;
        }
        let kind = header & KIND_MASK;
        let page = PageIndex(word(8) >> 32);
        let (slices, sides) = (word(16), word(24));
        let is_whole = word(8) as u32 == checksum(seed, bytes) && bytes[END..] == [0; VOUCH - END]
            || planted!(VouchSumNotChecked);
        let says_something = slices != 0 && sides & !slices == 0 && page.0 < MAX_LEN / PAGE as u64;
        if !is_whole || !says_something || header & TAG_MASK != u64::from(seed.tag) {
            return VouchFound::Torn;
        }
        let sequence = Sequence::from_bits(header >> SEQUENCE);
        if sequence.place() != place && !planted!(PlaceNotChecked) {
            // Copied from elsewhere.
            return VouchFound::Torn;
        }
        match kind {
            VOUCHES => {
                VouchFound::Valid(Vouch { sequence, page, slices, sides, sum: word(32) as u32 })
            }
            VOID if planted!(VoidIsTorn) => VouchFound::Torn,
            VOID => VouchFound::Void(sequence, page),
            _ => VouchFound::Torn,
        }
    }
}

/// Of a line, but for the checksum and the kind.
#[inline]
fn checksum(seed: RingSeed, bytes: &[u8; VOUCH]) -> u32 {
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

    fn vouch() -> Vouch {
        let sequence = Sequence::FIRST.next();
        Vouch { sequence, page: PageIndex(77), slices: 0b1110, sides: 0b0110, sum: 0x1234_5678 }
    }

    #[test]
    fn an_entry_comes_back() {
        let bytes = vouch().encode(seed());
        assert_eq!(Vouch::decode(seed(), 2, &bytes), VouchFound::Valid(vouch()));
        assert_eq!(Vouch::decode(seed(), 2, &[0; VOUCH]), VouchFound::Empty);
        for other in [
            Seed::new(b"0123456789abcdef", 4).ring(LaneIndex(5)),
            Seed::new(b"0123456789abcdeF", 3).ring(LaneIndex(5)),
            Seed::new(b"0123456789abcdef", 3).ring(LaneIndex(6)),
        ] {
            assert_eq!(Vouch::decode(other, 2, &bytes), VouchFound::Torn);
        }
        assert_eq!(Vouch::decode(seed(), 3, &bytes), VouchFound::Torn, "copied to another place");
    }

    #[test]
    fn a_void_entry_still_says_what_it_was_about() {
        let mut bytes = vouch().encode(seed());
        bytes[..8].copy_from_slice(&voided(seed(), vouch().sequence).to_le_bytes());
        let found = Vouch::decode(seed(), 2, &bytes);
        assert_eq!(found, VouchFound::Void(vouch().sequence, vouch().page));
    }

    /// `lab images` found it after eight operations: the header of the session before was left in its place,
    /// void, and with what had arrived of the new line it voided the entry before.
    #[test]
    fn the_header_of_another_session_voids_nothing() {
        for session in [2, 4, 3 + (1 << 15)] {
            let before = Seed::new(b"0123456789abcdef", session).ring(LaneIndex(5));
            for header in [header(before, vouch().sequence), voided(before, vouch().sequence)] {
                let mut bytes = vouch().encode(seed());
                bytes[..8].copy_from_slice(&header.to_le_bytes());
                assert_eq!(Vouch::decode(seed(), 2, &bytes), VouchFound::Torn);
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        for bit in 0..VOUCH * 8 {
            let mut bytes = vouch().encode(seed());
            bytes[bit / 8] ^= 1 << (bit % 8);
            let found = Vouch::decode(seed(), 2, &bytes);
            assert_eq!(found, VouchFound::Torn, "bit {bit}");
        }
    }

    #[test]
    fn what_no_flip_says_is_torn() {
        for wrong in [
            Vouch { page: PageIndex(u64::from(u32::MAX)), ..vouch() },
            Vouch { slices: 0, sides: 0, ..vouch() },
        ] {
            // Past the check that the engine makes when it is debugged.
            let mut bytes = Vouch { slices: 1, sides: 0, ..wrong }.encode(seed());
            bytes[16..24].copy_from_slice(&wrong.slices.to_le_bytes());
            bytes[24..32].copy_from_slice(&wrong.sides.to_le_bytes());
            let sum = checksum(seed(), &bytes);
            bytes[8..12].copy_from_slice(&sum.to_le_bytes());
            assert_eq!(Vouch::decode(seed(), 2, &bytes), VouchFound::Torn);
        }
    }
}
