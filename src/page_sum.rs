//! The sum of a page: 64 bits that change whenever a byte of it does, with one exception in 2^64.
//!
//! It is the CRC-64 of the NVM Express standard (the polynomial `0xad93d23594c93659`, bits
//! reflected), without its initial and final inversion. So it is linear: the sum of the XOR of two
//! pages is the XOR of their sums, and a page of zeroes has the sum 0. A write of 64 bytes into a
//! page of 4 KiB changes the sum by the sum of what it changes, at its place in the page. It reads
//! no other byte. A CRC of 64 bits notices every run of up to 64 changed bits, whatever they are.
//!
//! A page is 512 words. Each has a weight, a power of x by its place, and the sum is that of the
//! products. All products of a page are independent, so the processor computes them side by side.
//! Where it has no such instruction, a table of 256 words serves.
//!
//! The stored sum is the sum times an odd number that the page's number chooses, modulo 2^64. So a
//! page that lies in another page's place is noticed, with its sum or without. A sum of 0 is stored
//! as 0: a page that was never written needs no sum, and holes of the file none either.
//!
//! May import `units`, and the products of `platform`.

use crate::platform::weighted_sum;
use crate::units::{PAGE, PageIndex, SLICE, SLICES_PER_PAGE, WORD};

/// Words of a slice.
const WORDS: usize = SLICE / WORD;

/// The polynomial, without its highest term. The lowest bit is the highest power.
const POLYNOMIAL: u64 = 0x9a6c_9329_ac4b_c9b5;
/// The polynomial with one term more, for the reduction of a product of reflected words.
const MODULUS: u64 = POLYNOMIAL << 1 | 1;
const INVERSE: u64 = inverse(MODULUS);

/// The weight of each word of a page.
static WEIGHTS: [[u64; WORDS]; SLICES_PER_PAGE] = weights();
/// The effect of each byte on a sum, for processors without products.
static BYTES: [u64; 256] = bytes();

/// Multiplies by x.
const fn times_x(word: u64) -> u64 {
    (word >> 1) ^ if word & 1 == 1 { POLYNOMIAL } else { 0 }
}

/// Returns the low half of a product without carries.
const fn low_product(a: u64, b: u64) -> u64 {
    let mut product = 0;
    let mut bit = 0;
    while bit < 64 {
        product ^= if b >> bit & 1 == 1 { a << bit } else { 0 };
        bit += 1;
    }
    product
}

/// Returns the inverse of `word`: the low half of their product is 1. Each step of Newton's method
/// doubles the bits that are right.
const fn inverse(word: u64) -> u64 {
    let mut inverse = 1;
    let mut bits = 1;
    while bits < 64 {
        inverse = low_product(word, low_product(inverse, inverse));
        bits *= 2;
    }
    inverse
}

const fn weights() -> [[u64; WORDS]; SLICES_PER_PAGE] {
    let mut weights = [[0; WORDS]; SLICES_PER_PAGE];
    // The power 63 of x: the product of reflected words is one too high, and a CRC begins 64 powers
    // above the last word.
    let mut power = 1u64;
    let mut place = PAGE / WORD;
    while place > 0 {
        place -= 1;
        weights[place / WORDS][place % WORDS] = power;
        let mut bit = 0;
        while bit < 64 {
            power = times_x(power);
            bit += 1;
        }
    }
    weights
}

const fn bytes() -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut word = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            word = times_x(word);
            bit += 1;
        }
        table[byte] = word;
        byte += 1;
    }
    table
}

/// Returns what slices contribute to the sum of their page: `slices`, one after the other, lie in
/// it from slice `first` on, and all other bytes count as zero.
pub fn of_slices(first: usize, slices: &[[u8; SLICE]]) -> u64 {
    let weights = &WEIGHTS[first..first + slices.len()];
    weighted_sum(slices, weights, (MODULUS, INVERSE)).unwrap_or_else(|| by_table(first, slices))
}

/// Returns the sum of a page.
pub fn of_page(bytes: &[u8; PAGE]) -> u64 {
    of_slices(0, bytes.as_chunks().0)
}

fn by_table(first: usize, slices: &[[u8; SLICE]]) -> u64 {
    let step = |sum: u64, byte: u8| BYTES[usize::from(sum as u8 ^ byte)] ^ sum >> 8;
    let sum = slices.as_flattened().iter().fold(0, |sum, byte| step(sum, *byte));
    let behind = PAGE - (first + slices.len()) * SLICE;
    (0..behind).fold(sum, |sum, _| step(sum, 0))
}

/// Returns the sum as it is stored for `page`, or, with the stored value of another page,
/// something else.
pub fn stored(page: PageIndex, sum: u64) -> u64 {
    // An odd number for each page: half of a number that splitmix64 makes of it.
    let mut factor = page.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
    factor = (factor ^ factor >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    factor = (factor ^ factor >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    sum.wrapping_mul(factor | 1)
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    fn some_page(mut seed: u64) -> [u8; PAGE] {
        [(); PAGE].map(|()| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        })
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    fn the_sum_is_the_crc_of_the_standard_without_its_inversions() {
        let zeroes = crc_fast::crc64_nvme(&[0; PAGE]);
        for seed in 0..20 {
            let page = some_page(seed);
            assert_eq!(of_page(&page), crc_fast::crc64_nvme(&page) ^ zeroes);
        }
    }

    #[test]
    fn products_and_table_agree_on_any_slices() {
        let page = some_page(1);
        let (slices, _) = page.as_chunks::<SLICE>();
        let mut sum = 0;
        for (first, end) in [(0, 64), (0, 1), (63, 64), (5, 9), (1, 63), (7, 7)] {
            let some = &slices[first..end];
            assert_eq!(of_slices(first, some), by_table(first, some), "{first}..{end}");
        }
        for n in 0..SLICES_PER_PAGE {
            sum ^= of_slices(n, &slices[n..=n]);
        }
        assert_eq!(sum, of_page(&page), "the sum is linear");
        assert_eq!(of_page(&[0; PAGE]), 0);
    }

    #[test]
    fn a_page_in_the_place_of_another_has_another_stored_sum() {
        let sum = of_page(&some_page(3));
        let stored: std::collections::HashSet<u64> =
            (0..10_000).map(|page| stored(PageIndex(page), sum)).collect();
        assert_eq!(stored.len(), 10_000);
        assert_eq!(super::stored(PageIndex(7), 0), 0);
    }
}
