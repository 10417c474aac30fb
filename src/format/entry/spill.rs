//! Parts of the log area that hold what does not fit a lane.
//!
//! Owns: [`Spill`], which describes the part, and [`SpillSum`], the checksum of its bytes.
//!
//! Invariant: a decoded description lies within the log area.
//!
//! May import: `sequence`, `seed`, `old_bits`, `layout`, `checksum` and the planted bugs.

use super::{EntrySeed, RECORD, Sequence, word};
use crate::checksum;
use crate::format::layout::LOG_AREA_LEN;
use crate::mutant::planted;

/// A part of the log area, and the checksum of the bytes written there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spill {
    /// Offset in the log area.
    pub offset: u64,
    /// The number of bytes.
    pub len: u64,
    sum: u32,
}

impl Spill {
    /// Describes `bytes`, which were written at `offset` of the log area.
    pub fn of(seed: EntrySeed, sequence: Sequence, offset: u64, bytes: &[u8]) -> Self {
        let mut sum = SpillSum::new(seed, sequence);
        sum.add(bytes);
        Spill { offset, len: sum.len, sum: sum.sum }
    }

    /// Returns `true` if `summed` is the checksum of the described bytes.
    pub fn matches(&self, summed: SpillSum) -> bool {
        self.len == summed.len && (self.sum == summed.sum || planted!(SpillSumNotChecked))
    }
}

/// The checksum of overflow bytes. There may be many, so it is computed piece by piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpillSum {
    sum: u32,
    len: u64,
}

impl SpillSum {
    /// Starts the checksum of the overflow of the record `sequence`.
    pub fn new(seed: EntrySeed, sequence: Sequence) -> Self {
        SpillSum { sum: seed.sum(&sequence.0.to_le_bytes()), len: 0 }
    }

    /// Adds more bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.sum = checksum::crc32c_append(self.sum, bytes);
        // A sum that saturates matches no description, which ends within the log area.
        self.len = self.len.saturating_add(bytes.len() as u64);
    }
}

impl Spill {
    pub(super) fn encode_to(&self, bytes: &mut Vec<u8>) -> u64 {
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&self.len.to_le_bytes());
        bytes.extend_from_slice(&u64::from(self.sum).to_le_bytes());
        1
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (offset, len) = (word(bytes, 0), word(bytes, 8));
        let end = offset.checked_add(len)?;
        let sum = u32::try_from(word(bytes, 16)).ok()?;
        (bytes.len() == RECORD && end <= LOG_AREA_LEN).then_some(Spill { offset, len, sum })
    }
}
