//! The CRC-32C of words in registers.
//!
//! Owns: the methods of [`Crc`], one instruction for each word.
//!
//! Invariant: no memory is touched.
//!
//! May import: `cpu` only.

use super::Crc;
use std::arch::asm;

impl Crc {
    /// Returns the CRC-32C of the words, least significant byte first.
    #[inline(always)]
    pub fn of_words(self, words: impl IntoIterator<Item = u64>) -> u32 {
        !self.after(u32::MAX, words)
    }

    /// Returns the CRC-32C of data with the CRC `sum`, followed by the words, least significant
    /// byte first.
    #[inline(always)]
    pub fn appended(self, sum: u32, words: impl IntoIterator<Item = u64>) -> u32 {
        !self.after(!sum, words)
    }

    /// Returns the register's value after the words, if it was `before`.
    #[inline(always)]
    pub(super) fn after(self, before: u32, words: impl IntoIterator<Item = u64>) -> u32 {
        let mut sum = u64::from(before);
        for word in words {
            // SAFETY: registers only, and `self` proves that the instruction exists.
            unsafe {
                asm!(
                    "crc32 {sum}, {word}",
                    sum = inout(reg) sum, word = in(reg) word,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
        }
        sum as u32
    }
}
