//! How is a checksum taken? CRC-32C, as everywhere in the format.
//!
//! By crates, but for the sums of a write with one drain, whose time is the write's own: what is in registers is summed
//! up there, a word an instruction, and what is copied is summed up on the way (`platform/x86/summed`). Longer bytes go to `crc-fast` where it has loops of its own for the processor: for a
//! KiB it takes half the time of `crc32c`. It has no way to go on from another sum; that, and other processors,
//! `crc32c` does. Invariant: the same sums. May import of this crate the proof that there is such an instruction.

pub use crate::platform::Crc;
pub use ::crc32c::crc32c_append;

/// So many bytes at most are summed up a word at a time: each waits for the one before.
const FEW: usize = 128;

/// The sum of bytes.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(atomic_mmap_portable)))]
    return crc_fast::crc32_iscsi(bytes);
    #[cfg(not(all(target_arch = "x86_64", not(atomic_mmap_portable))))]
    return ::crc32c::crc32c(bytes);
}

/// The sum of words, least significant byte first.
#[inline(always)]
pub fn of_words<const N: usize>(crc: Option<Crc>, words: [u64; N]) -> u32 {
    match crc {
        Some(crc) => crc.of_words(words),
        None => crc32c(words.map(u64::to_le_bytes).as_flattened()),
    }
}

/// The sum of bytes, by words if they are a few whole ones.
#[inline(always)]
pub fn of_few(crc: Option<Crc>, bytes: &[u8]) -> u32 {
    match (crc, bytes.as_chunks::<8>()) {
        (Some(crc), (words, [])) if bytes.len() <= FEW => {
            crc.of_words(words.iter().map(|word| u64::from_le_bytes(*word)))
        }
        _ => crc32c(bytes),
    }
}

/// The sum of what has the sum `sum`, followed by words, least significant byte first.
#[inline(always)]
pub fn append_words(crc: Option<Crc>, sum: u32, words: &[u64]) -> u32 {
    match crc {
        Some(crc) => crc.appended(sum, words.iter().copied()),
        None => words.iter().fold(sum, |sum, word| crc32c_append(sum, &word.to_le_bytes())),
    }
}

/// What a sum that begins with `seed` differs by from one that begins with nothing, if `LEN` bytes follow:
/// always by the same bits, whatever the bytes are. For who sums up the same number of bytes again and again.
///
/// Of three messages of one length, the exclusive or of their sums is the sum of their exclusive or: that is what
/// a CRC is. Here two of them are zeros.
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
