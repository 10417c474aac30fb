//! State words of the reflection file that have a check: the length word, the high-water word and
//! the begun word.
//!
//! A word has a number in its lower bits: a length, or a session. The upper bits hold a check of
//! it. One aligned 8-byte store replaces a word, so no crash leaves a mixture of two. A word with a
//! wrong check is damaged. A word of zeroes is damaged, too: the number 0 has another check.
//!
//! This module is pure. Nothing here panics, whatever the bytes.
//!
//! May import: `checksum`.

use crate::checksum;
use crate::mutant::planted;

/// Bits of a word that hold the number. `layout::MAX_LEN` has its only bit at 41.
const BITS: u32 = 42;

/// Returns the word at offset `at` of the reflection file for a number. A length is at most
/// `layout::MAX_LEN`. A session above 2^42 - 1 loses its upper bits.
pub fn encode(at: u64, number: u64) -> u64 {
    let number = lower(number);
    number | check(at, number) << BITS
}

/// Returns the number that a word at offset `at` of the reflection file holds, or `None` if the
/// word is damaged. A length may exceed `layout::MAX_LEN`.
pub fn decode(at: u64, word: u64) -> Option<u64> {
    let number = lower(word);
    (encode(at, number) == word || planted!(StateWordNotChecked)).then_some(number)
}

fn lower(word: u64) -> u64 {
    word & ((1 << BITS) - 1)
}

/// Returns the upper 22 bits of the CRC-32C of a word's offset and its number.
fn check(at: u64, number: u64) -> u64 {
    let sum = checksum::crc32c([at, number].map(u64::to_le_bytes).as_flattened());
    u64::from(sum) >> (BITS - 32)
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use crate::format::layout::{BEGUN_WORD, HIGH_WATER_WORD, LENGTH_WORD, MAX_LEN};

    #[test]
    fn a_number_comes_back() {
        for at in [LENGTH_WORD, HIGH_WATER_WORD, BEGUN_WORD] {
            for len in (0..=41).flat_map(|n| [(1_u64 << n) - 1, 1 << n]) {
                assert_eq!(decode(at, encode(at, len)), Some(len));
            }
        }
        assert_eq!(MAX_LEN, 1 << 41);
        assert_eq!(decode(BEGUN_WORD, encode(BEGUN_WORD, 1 << 42 | 7)), Some(7), "a session");
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
        for at in [LENGTH_WORD, HIGH_WATER_WORD, BEGUN_WORD] {
            assert_eq!(decode(at, 0), None);
            assert_eq!(decode(at, !0), None);
        }
        assert_eq!(decode(LENGTH_WORD, encode(HIGH_WATER_WORD, 4096)), None);
        assert_eq!(decode(LENGTH_WORD, 4096), None, "a length without a check");
    }
}
