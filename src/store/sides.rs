//! How are lines reached of which each is valid in one of two files? Both at once.
//!
//! Invariants: those of the parent. Which file it is comes as a word of bits, one for each line, and what it means
//! is the caller's: nothing here knows what a side is.
//!
//! May import what the parent may.

use super::{MappedFile, Place};
use crate::units::{PAGE, is_in_page};
use std::hint::select_unpredictable;

const LINE: usize = 64;

/// The same bytes of a page, as often as there are files: two.
pub struct Sides<'f> {
    files: [&'f MappedFile; 2],
    /// Where the bytes begin in each. Invariant: at the same place of a page.
    at: [u64; 2],
    /// Their addresses, if they are in the mappings.
    near: [*const u8; 2],
}

impl<'f> Sides<'f> {
    /// Those that begin at `at` of the files. Panics if these are not the same place of a page.
    #[inline(always)]
    pub fn new(files: [&'f MappedFile; 2], at: [u64; 2]) -> Self {
        assert!((at[0] ^ at[1]).is_multiple_of(PAGE as u64));
        let near = [files[0].near(at[0]), files[1].near(at[1])];
        Sides { files, at, near }
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

    /// What fills `to`. None: the bytes are not in one page, or not both files back them. For who is pinned, and looks
    /// at the file's length before it fills anything: what is backed shrinks after the length, and not while somebody is
    /// pinned who has seen the old one. (Or who holds the pages' locks, and has looked under those.)
    #[inline(always)]
    pub fn to_fill<'t>(&self, to: &'t mut [u8]) -> Option<Filling<'f, 't>> {
        let [zero, one] = self.files;
        let are_backed = self.at[0] < zero.backed() && self.at[1] < one.backed();
        // Both begin `to.len()` mapped and backed bytes then: a page has as many from there on, at the same place of it,
        // and what is backed ends with a page (`set_backed`).
        let fits = is_in_page(self.at[0], to.len()) && are_backed;
        fits.then_some(Filling { file: zero, from: self.near, to })
    }
}

/// What is to be filled from bytes of one page, which lie in two files.
pub struct Filling<'f, 't> {
    /// The first of them.
    file: &'f MappedFile,
    /// Where the bytes begin in each. Invariant: both begin as many as there are in `to`, mapped, and backed when this was
    /// made; they still are for who keeps to what [`Sides::to_fill`] is for. (Who does not may find that the system has no
    /// such page, as past the end of any file.)
    from: [*const u8; 2],
    to: &'t mut [u8],
}

impl Filling<'_, '_> {
    /// From one of the files, the second one if that is said, and by no jump.
    #[inline(always)]
    pub fn fill_from_one(self, second: bool) {
        let ptr = select_unpredictable(second, self.from[1], self.from[0]);
        // SAFETY: whichever it is, it begins `to.len()` mapped and backed bytes (the invariant).
        unsafe { self.file.copy_out_from(self.to, ptr) }
    }

    /// Each line from its side: the one with the first byte from the file of bit 0 of `sides`.
    #[inline(always)]
    pub fn fill_from_sides(self, sides: u64) {
        // SAFETY: both begin `to.len()` mapped and backed bytes (the invariant).
        unsafe { self.file.platform.copy_out_of_sides(self.to, self.from, sides) }
    }
}
