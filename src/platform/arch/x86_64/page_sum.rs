//! Sums of products without carries, for the sums of pages.
//!
//! Owns: the loops over words and their weights, and the reduction of the result. `crate::page_sum`
//! says what the numbers mean.
//!
//! Invariant: reads memory of Rust only, never mapped bytes.
//!
//! May import: `core::arch`, std, and the length of a line.

use super::LINE;
use std::arch::x86_64::{
    __m128i, _mm_clmulepi64_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_loadu_si128,
    _mm_setzero_si128, _mm_srli_si128, _mm_xor_si128, _mm512_clmulepi64_epi128,
    _mm512_extracti32x4_epi32, _mm512_loadu_si512, _mm512_setzero_si512, _mm512_ternarylogic_epi64,
    _mm512_xor_si512,
};

/// Words of a cache line.
const WORDS: usize = LINE / 8;

/// The three-way XOR, as a table of eight bits.
const XOR: i32 = 0x96;

/// Returns the sum of the products of the words with their weights, modulo a polynomial. The low
/// half of the polynomial is `modulus`. `inverse` is the inverse of that, modulo the 64th power of
/// x. Returns `None` if the processor has no instruction for such products.
#[inline]
pub fn weighted_sum(
    lines: &[[u8; LINE]],
    weights: &[[u64; WORDS]],
    (modulus, inverse): (u64, u64),
) -> Option<u64> {
    debug_assert_eq!(lines.len(), weights.len());
    if is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("pclmulqdq")
    {
        // SAFETY: the processor has the three features.
        return Some(unsafe { by_lines(lines, weights, modulus, inverse) });
    }
    if is_x86_feature_detected!("pclmulqdq") {
        // SAFETY: the processor has the feature.
        return Some(unsafe { by_pairs(lines, weights, modulus, inverse) });
    }
    None
}

#[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq")]
fn by_lines(lines: &[[u8; LINE]], weights: &[[u64; WORDS]], modulus: u64, inverse: u64) -> u64 {
    // Two sums, so that no product waits for the one before it.
    let mut sums = [_mm512_setzero_si512(); 2];
    for (n, (line, weights)) in lines.iter().zip(weights).enumerate() {
        // SAFETY: both are references to 64 bytes, and the loads need no alignment.
        let (line, weights) = unsafe {
            (_mm512_loadu_si512(line.as_ptr().cast()), _mm512_loadu_si512(weights.as_ptr().cast()))
        };
        let even = _mm512_clmulepi64_epi128::<0x00>(line, weights);
        let odd = _mm512_clmulepi64_epi128::<0x11>(line, weights);
        sums[n % 2] = _mm512_ternarylogic_epi64::<XOR>(sums[n % 2], even, odd);
    }
    let sum = _mm512_xor_si512(sums[0], sums[1]);
    let low =
        _mm_xor_si128(_mm512_extracti32x4_epi32::<0>(sum), _mm512_extracti32x4_epi32::<1>(sum));
    let high =
        _mm_xor_si128(_mm512_extracti32x4_epi32::<2>(sum), _mm512_extracti32x4_epi32::<3>(sum));
    reduce(_mm_xor_si128(low, high), modulus, inverse)
}

#[target_feature(enable = "pclmulqdq")]
fn by_pairs(lines: &[[u8; LINE]], weights: &[[u64; WORDS]], modulus: u64, inverse: u64) -> u64 {
    let (pairs, _) = lines.as_flattened().as_chunks::<16>();
    let (weights, _) = weights.as_flattened().as_chunks::<2>();
    let mut sums = [_mm_setzero_si128(); 2];
    for (pair, weights) in pairs.iter().zip(weights) {
        // SAFETY: both are references to 16 bytes, and the loads need no alignment.
        let (pair, weights) = unsafe {
            (_mm_loadu_si128(pair.as_ptr().cast()), _mm_loadu_si128(weights.as_ptr().cast()))
        };
        sums[0] = _mm_xor_si128(sums[0], _mm_clmulepi64_si128::<0x00>(pair, weights));
        sums[1] = _mm_xor_si128(sums[1], _mm_clmulepi64_si128::<0x11>(pair, weights));
    }
    reduce(_mm_xor_si128(sums[0], sums[1]), modulus, inverse)
}

/// Reduces a sum of products by Montgomery's method: a multiple of the polynomial is added that
/// makes the low half zero.
#[target_feature(enable = "pclmulqdq")]
fn reduce(sum: __m128i, modulus: u64, inverse: u64) -> u64 {
    let constants = |word: u64| _mm_cvtsi64_si128(word.cast_signed());
    let factor = _mm_clmulepi64_si128::<0x00>(sum, constants(inverse));
    let multiple = _mm_clmulepi64_si128::<0x00>(factor, constants(modulus));
    let high = |words: __m128i| _mm_cvtsi128_si64(_mm_srli_si128::<8>(words)).cast_unsigned();
    // The polynomial has a 65th bit, by which the factor itself comes to the high half.
    high(sum) ^ high(multiple) ^ _mm_cvtsi128_si64(factor).cast_unsigned()
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn both_loops_return_equal_sums() {
        if !is_x86_feature_detected!("avx512f") || !is_x86_feature_detected!("vpclmulqdq") {
            return;
        }
        let mut word = 1u64;
        let mut next = || {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            word ^ word >> 29
        };
        for count in [0, 1, 2, 3, 63, 64] {
            let lines: Vec<_> = (0..count).map(|_| [(); LINE].map(|()| next() as u8)).collect();
            let weights: Vec<_> = (0..count).map(|_| [(); WORDS].map(|()| next())).collect();
            let (modulus, inverse) = (next() | 1, next());
            // SAFETY: the processor has the features.
            let sums = unsafe {
                (
                    by_lines(&lines, &weights, modulus, inverse),
                    by_pairs(&lines, &weights, modulus, inverse),
                )
            };
            assert_eq!(sums.0, sums.1, "{count} lines");
        }
    }
}
