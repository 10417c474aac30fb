//! How are lines reached of which each is valid in one of two files? Both at once.
//!
//! Invariants: those of the parent. Which file it is comes as a word of bits, one for each line, and what it means
//! is the caller's: nothing here knows what a side is.
//!
//! May import what the parent may.

use super::{MappedFile, Place};
use crate::units::{PAGE, is_in_page};

const LINE: usize = 64;

/// The same bytes of a page, as often as there are files: two.
pub struct Sides<'f> {
    files: [&'f MappedFile; 2],
    /// Where the bytes begin in each. Invariant: at the same place of a page.
    at: [u64; 2],
}

impl<'f> Sides<'f> {
    /// Those that begin at `at` of the files. Panics if these are not the same place of a page.
    #[inline(always)]
    pub fn new(files: [&'f MappedFile; 2], at: [u64; 2]) -> Self {
        assert!((at[0] ^ at[1]).is_multiple_of(PAGE as u64));
        Sides { files, at }
    }

    /// Copies whole lines of one page, each to its side: line `n` to the file of bit `n` of `sides`. As
    /// [`MappedFile::copy_in`] by size. Panics if they are anything else.
    #[inline(always)]
    pub fn copy_lines_in(&self, sides: u64, from: &[u8]) {
        let places = self.places_of_lines(from.len());
        // SAFETY: both begin `from.len()` mapped and backed bytes (`places_of_lines`), at most the 64 lines of a page,
        // and are aligned to lines; `from` is the caller's own memory: no safe code can have a reference into the
        // mapping.
        unsafe { self.files[0].platform.copy_lines_to_sides(places, sides, from) }
    }

    /// The same. The CRC-32C of the bytes.
    #[inline(always)]
    pub fn copy_lines_in_summed(&self, sides: u64, from: &[u8]) -> u32 {
        let places = self.places_of_lines(from.len());
        // SAFETY: as in `copy_lines_in`.
        unsafe { self.files[0].platform.copy_lines_to_sides_summed(places, sides, from) }
    }

    /// Where `len` bytes begin, which are lines of one page: mapped, backed, and aligned to lines. Panics if they are
    /// anything else.
    #[inline(always)]
    fn places_of_lines(&self, len: usize) -> [Place; 2] {
        let are_lines = (self.at[0] as usize | len).is_multiple_of(LINE);
        assert!(are_lines && is_in_page(self.at[0], len) || len == 0);
        // (Of both: the second is at the same place of a page. Not by a closure: it would be called.)
        [self.files[0].place(self.at[0], len), self.files[1].place(self.at[1], len)]
    }

    /// Asks for the lines of `len` bytes, each ahead of a load from its side. Anywhere, as
    /// [`MappedFile::prefetch_read`].
    #[inline(always)]
    pub fn prefetch_read(&self, sides: u64, len: usize) {
        let (zero, one) = (self.files[0].hint(self.at[0]), self.files[1].hint(self.at[1]));
        if let (Some(zero), Some(one), true) = (zero, one, is_in_page(self.at[0], len)) {
            let lines = (self.at[0] as usize % LINE + len).div_ceil(LINE);
            // SAFETY: both sides begin in their mapping, which ends with a page, and so all lines are in it.
            unsafe { self.files[0].platform.prefetch_from_sides([zero, one], sides, lines) }
        }
    }

    /// Fills `to`, each line from its side: the one with the first byte from the file of bit 0 of `sides`. False:
    /// they are not in one page, or not both files back them, and nothing was done.
    #[inline(always)]
    pub fn copy_out_in_page(&self, to: &mut [u8], sides: u64) -> bool {
        let [zero, one] = self.files;
        let are_backed = self.at[0] < zero.backed() && self.at[1] < one.backed();
        if !is_in_page(self.at[0], to.len()) || !are_backed {
            return false;
        }
        // (Not by a closure: it would be called.)
        let zero = zero.place_of(self.at[0]).ptr.cast_const();
        let one = one.place_of(self.at[1]).ptr.cast_const();
        // SAFETY: both begin `to.len()` mapped and backed bytes: a page has as many from there on, at the same place of
        // it, and what is backed ends with a page (`set_backed`).
        unsafe { self.files[0].platform.copy_out_of_sides(to, [zero, one], sides) }
        true
    }
}
