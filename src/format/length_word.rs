//! The words of the reflection file that hold a length: the length word and the high-water word.
//!
//! A word has a length of the home file in its lower bits, and a check of it in the upper ones. One
//! aligned 8-byte store replaces a word, so no crash leaves a mixture of two. A word with a wrong
//! check is damaged. A word of zeroes is damaged, too: an empty file has the check of length 0.
//!
//! This module is pure. Nothing here panics, whatever the bytes.
//!
//! May import: `checksum`.

use crate::checksum;
use crate::mutant::planted;

/// Bits of a word that hold the length. `layout::MAX_LEN` has its only bit at 41.
const LEN_BITS: u32 = 42;

/// Returns the word at offset `at` of the reflection file for a length in bytes, which is at most
/// `layout::MAX_LEN`.
pub fn encode(at: u64, len: u64) -> u64 {
    len | check(at, len) << LEN_BITS
}

/// Returns the length in bytes that a word at offset `at` of the reflection file holds, or `None`
/// if the word is damaged. The length may exceed `layout::MAX_LEN`.
pub fn decode(at: u64, word: u64) -> Option<u64> {
    let len = word & ((1 << LEN_BITS) - 1);
    (encode(at, len) == word || planted!(LengthNotChecked)).then_some(len)
}

/// Returns the upper 22 bits of the CRC-32C of a word's offset and its length.
fn check(at: u64, len: u64) -> u64 {
    let sum = checksum::crc32c([at, len].map(u64::to_le_bytes).as_flattened());
    u64::from(sum) >> (LEN_BITS - 32)
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use crate::format::layout::{HIGH_WATER_WORD, LENGTH_WORD, MAX_LEN};

    #[test]
    fn a_length_comes_back() {
        for at in [LENGTH_WORD, HIGH_WATER_WORD] {
            for len in (0..=41).flat_map(|n| [(1_u64 << n) - 1, 1 << n]) {
                assert_eq!(decode(at, encode(at, len)), Some(len));
            }
        }
        assert_eq!(MAX_LEN, 1 << 41);
    }

    #[test]
    fn damage_of_up_to_three_bits_is_noticed() {
        // A CRC is linear: which bits are changed alone decides if the check is right.
        let word = encode(LENGTH_WORD, 0x123_4567_89AB);
        for a in 0..64 {
            for b in a..64 {
                for c in b..64 {
                    let changed = word ^ (1 << a | 1 << b | 1 << c);
                    assert_eq!(decode(LENGTH_WORD, changed), None, "{a} {b} {c}");
                }
            }
        }
    }

    #[test]
    fn a_lost_word_and_another_word_are_damage() {
        for at in [LENGTH_WORD, HIGH_WATER_WORD] {
            assert_eq!(decode(at, 0), None);
            assert_eq!(decode(at, !0), None);
        }
        assert_eq!(decode(LENGTH_WORD, encode(HIGH_WATER_WORD, 4096)), None);
        assert_eq!(decode(LENGTH_WORD, 4096), None, "a length without a check");
    }
}
