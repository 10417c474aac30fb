//! The start of checksums: by session, and by place in a lane.
//!
//! Owns: [`Seed`] and [`EntrySeed`].
//!
//! Invariant: different sessions and different places have different seeds.
//!
//! May import: `checksum`, `units` and the planted bugs.

use crate::checksum;
use crate::mutant::planted;
use crate::units::LaneIndex;

/// The start of all checksums of one session.
#[derive(Clone, Copy, Debug)]
pub struct Seed {
    sum: u32,
    tag: u16,
}

/// The start of the checksums of one part of a lane in one session.
#[derive(Clone, Copy, Debug)]
pub struct EntrySeed(u32);

impl Seed {
    /// Creates the seed of a session of the pair `uuid`.
    pub fn new(uuid: &[u8; 16], session: u64) -> Self {
        let session = if planted!(SeedWithoutSession) { 0 } else { session };
        let sum = checksum::crc32c_append(checksum::crc32c(uuid), &session.to_le_bytes());
        Seed { sum, tag: if planted!(HeaderWithoutSession) { 0 } else { session as u16 } }
    }

    /// Returns the last 16 bits of the session's number.
    pub fn tag(self) -> u16 {
        self.tag
    }

    /// Returns the seed of the undo record of `lane`, and of its overflow.
    pub fn undo(self, lane: LaneIndex) -> EntrySeed {
        self.place(lane, 1)
    }

    /// Returns the seed of a part of `lane`: 0 is its ring, 1 its undo record.
    pub(in crate::format) fn place(self, lane: LaneIndex, which: u8) -> EntrySeed {
        let [low, high] = if planted!(SeedWithoutPlace) { [0; 2] } else { lane.0.to_le_bytes() };
        EntrySeed(checksum::crc32c_append(self.sum, &[low, high, which]))
    }
}

impl EntrySeed {
    /// Returns the checksum of words at this place.
    #[inline(always)]
    pub(super) fn sum_of_words(self, words: &[u64]) -> u32 {
        checksum::append_words(checksum::Crc::get(), self.0, words)
    }

    /// Returns the checksum of bytes at this place.
    pub fn sum(self, bytes: &[u8]) -> u32 {
        checksum::crc32c_append(self.0, bytes)
    }

    /// Returns the XOR difference between checksums of `LEN` bytes at this place and checksums
    /// without a seed.
    pub fn difference<const LEN: usize>(self) -> u32 {
        checksum::difference::<LEN>(self.0)
    }
}
