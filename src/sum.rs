//! How is a checksum taken? CRC-32C, as everywhere in the format, by crates only.
//!
//! The time of a small write's two sums is the write's own, so they go to `crc-fast` where it has loops of
//! its own for the processor: for a line it takes 0.6 of the time of `crc32c`, for a KiB half. It
//! has no way to go on from another sum; that, and other processors, `crc32c` does. Invariant: the same
//! sums. May import nothing of this crate.

pub use ::crc32c::crc32c_append;

/// The sum of bytes.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(atomic_mmap_portable)))]
    return crc_fast::crc32_iscsi(bytes);
    #[cfg(not(all(target_arch = "x86_64", not(atomic_mmap_portable))))]
    return ::crc32c::crc32c(bytes);
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
    use super::{crc32c, difference};

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
    fn sums_differ_by_the_same_bits_whatever_the_bytes_are() {
        for seed in [0, 1, 0xDEAD_BEEF] {
            for bytes in some_bytes().chunks_exact(40) {
                let sum = ::crc32c::crc32c_append(seed, bytes);
                assert_eq!(crc32c(bytes) ^ difference::<40>(seed), sum, "{seed}");
            }
        }
    }
}
