//! CRC-32C checksums, which the whole format uses.
//!
//! Three implementations return equal sums:
//! - `Crc` sums a few words with the processor's instruction, a word at a time. Sums of a write
//!   with one drain use it, because they count towards the time of that write.
//! - `crc-fast` sums longer bytes where it has loops for the processor. It takes half the time of
//!   `crc32c` for 1 KiB, but cannot continue an earlier sum.
//! - `crc32c` continues an earlier sum, and serves other processors.
//!
//! Bytes that are copied are summed during the copy, in `platform/arch/x86_64/copy_crc`. Of the
//! crate, this module may import `Crc`, the proof that the processor has the instruction.

pub use crate::platform::Crc;
pub use ::crc32c::crc32c_append;

/// The most bytes to sum a word at a time, which is slow for more: each word waits for the last.
const FEW: usize = 128;

/// Returns the sum of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(atomic_mmap_portable)))]
    return crc_fast::crc32_iscsi(bytes);
    #[cfg(not(all(target_arch = "x86_64", not(atomic_mmap_portable))))]
    return ::crc32c::crc32c(bytes);
}

/// Returns the sum of `words`, each with its least significant byte first.
#[inline(always)]
pub fn of_words<const N: usize>(crc: Option<Crc>, words: [u64; N]) -> u32 {
    match crc {
        Some(crc) => crc.of_words(words),
        None => crc32c(words.map(u64::to_le_bytes).as_flattened()),
    }
}

/// Returns the sum of `bytes`. Sums by words if they are at most 128 bytes of whole words.
#[inline(always)]
pub fn of_few(crc: Option<Crc>, bytes: &[u8]) -> u32 {
    match (crc, bytes.as_chunks::<8>()) {
        (Some(crc), (words, [])) if bytes.len() <= FEW => {
            crc.of_words(words.iter().map(|word| u64::from_le_bytes(*word)))
        }
        _ => crc32c(bytes),
    }
}

/// Continues `sum` with `words`, each with its least significant byte first. Returns the new sum.
#[inline(always)]
pub fn append_words(crc: Option<Crc>, sum: u32, words: &[u64]) -> u32 {
    match crc {
        Some(crc) => crc.appended(sum, words.iter().copied()),
        None => words.iter().fold(sum, |sum, word| crc32c_append(sum, &word.to_le_bytes())),
    }
}

/// Returns the XOR difference between two sums of `LEN` bytes: one that continues `seed`, and one
/// that starts anew. The difference does not depend on the bytes. So a caller that sums many
/// messages of one length computes it once.
///
/// This holds because a CRC is linear: for three messages of one length, the XOR of their sums is
/// the sum of their XOR. Here two of the messages are zeros.
pub fn difference<const LEN: usize>(seed: u32) -> u32 {
    crc32c_append(seed, &[0; LEN]) ^ crc32c(&[0; LEN])
}

#[cfg(test)]
mod tests {
    use super::{append_words, crc32c, crc32c_append, difference, of_few, of_words};
    use crate::platform::Crc;

    fn some_bytes() -> Vec<u8> {
        (0..3000u32).map(|n| ((n * n) >> 3) as u8).collect()
    }

    #[test]
    fn sums_of_both_crates_are_the_same() {
        let bytes = some_bytes();
        for start in 0..9 {
            for len in (0..300).chain([512, 900, 2048]) {
                let part = &bytes[start..start + len];
                assert_eq!(crc32c(part), ::crc32c::crc32c(part), "{start} {len}");
            }
        }
    }

    #[test]
    fn sums_of_words_are_those_of_their_bytes() {
        let bytes = some_bytes();
        for crc in [Crc::get(), None] {
            for words in bytes.as_chunks::<8>().0.as_chunks::<5>().0 {
                let sum = of_words(crc, words.map(u64::from_le_bytes));
                assert_eq!(sum, ::crc32c::crc32c(words.as_flattened()));
                let appended = append_words(crc, 0xBAD5_EED5, &words.map(u64::from_le_bytes));
                assert_eq!(appended, crc32c_append(0xBAD5_EED5, words.as_flattened()));
            }
            for len in [0, 1, 7, 8, 12, 64, 120, 128, 136, 192, 512] {
                assert_eq!(of_few(crc, &bytes[3..3 + len]), ::crc32c::crc32c(&bytes[3..3 + len]));
            }
        }
    }

    #[test]
    fn sums_differ_by_the_same_bits_whatever_the_bytes_are() {
        for seed in [0, 1, 0xDEAD_BEEF] {
            for bytes in some_bytes().chunks_exact(40) {
                let sum = ::crc32c::crc32c_append(seed, bytes);
                assert_eq!(crc32c(bytes) ^ difference::<40>(seed), sum, "{seed}");
            }
        }
    }
}
