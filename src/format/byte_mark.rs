//! The byte mark: 64 bytes of the home file that say that the file needs its companions.
//!
//! Extended attributes do not travel with most copies, and bytes do. So a copy of the home file
//! alone tells that it is not complete. The mark lies in the home slot of a slice of which the
//! reflection slot is valid. So no reader sees it, and the deployment of that slice takes it off.
//!
//! May import: `marker`, `superblock`, `checksum`.

use super::marker::Key;
use super::superblock::Moment;
use super::{half_at, le_word, word_at};
use crate::checksum;
use crate::units::SLICE;

/// The first bytes of a mark.
pub const MAGIC: [u8; 8] = *b"AtomUsed";
/// Bytes of a mark: one slice, which no crash tears on a disk with sectors of 512 bytes.
pub const LEN: usize = SLICE;

const BORN: u32 = 1;
const ELSEWHERE: u32 = 2;
const SUM: usize = LEN - 4;

/// A mark that was found in a home file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The whole mark.
    Mark(ByteMark),
    /// A mark of which some bytes are damaged.
    Damaged,
}

/// The mark of a home file in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByteMark {
    /// The pair.
    pub uuid: [u8; 16],
    /// The key of the companions' names.
    pub key: Key,
    /// `true` if the companions lie in another folder than the home file.
    pub is_elsewhere: bool,
}

impl ByteMark {
    /// Returns the bytes of the mark.
    pub fn encode(&self) -> [u8; LEN] {
        let Key { inode, born, index } = self.key;
        let Moment { seconds, nanos } = born.unwrap_or_default();
        let flags =
            if born.is_some() { BORN } else { 0 } | if self.is_elsewhere { ELSEWHERE } else { 0 };
        let mut bytes = [0; LEN];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..][..part.len()].copy_from_slice(part);
            at = at.saturating_add(part.len());
        };
        put(&MAGIC);
        put(&self.uuid);
        put(&inode.to_le_bytes());
        put(&seconds.to_le_bytes());
        put(&nanos.to_le_bytes());
        put(&index.to_le_bytes());
        put(&flags.to_le_bytes());
        let sum = checksum::crc32c(&bytes[..SUM]);
        bytes[SUM..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Returns the mark that the bytes hold, or `None` if they do not begin as one.
    pub fn decode(bytes: &[u8; LEN]) -> Option<Found> {
        if bytes[..MAGIC.len()] != MAGIC {
            return None;
        }
        if half_at(bytes, SUM) != checksum::crc32c(&bytes[..SUM]) {
            return Some(Found::Damaged);
        }
        let (seconds, nanos) = (le_word(&bytes[32..40]).cast_signed(), half_at(bytes, 40));
        let flags = half_at(bytes, 48);
        let born = (flags & BORN != 0).then_some(Moment { seconds, nanos });
        Some(Found::Mark(ByteMark {
            uuid: std::array::from_fn(|n| bytes[8..][n]),
            key: Key { inode: word_at(bytes, 24), born, index: half_at(bytes, 44) },
            is_elsewhere: flags & ELSEWHERE != 0,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_comes_back_and_damage_is_told() {
        for born in [None, Some(Moment { seconds: -5, nanos: 6 })] {
            for is_elsewhere in [false, true] {
                let key = Key { inode: 9, born, index: 3 };
                let mark = ByteMark { uuid: [7; 16], key, is_elsewhere };
                let bytes = mark.encode();
                assert_eq!(ByteMark::decode(&bytes), Some(Found::Mark(mark)));
                for at in MAGIC.len()..LEN {
                    let mut bytes = bytes;
                    bytes[at] ^= 1;
                    assert_eq!(ByteMark::decode(&bytes), Some(Found::Damaged));
                }
            }
        }
        assert_eq!(ByteMark::decode(&[0; LEN]), None);
    }
}
