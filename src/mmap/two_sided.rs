//! Access to lines of one page that lie in two files, where each line is valid in one of them.
//!
//! Invariants: those of the parent. A word has one bit for each line, which selects the line's
//! file. The caller gives the bits their meaning: nothing here knows which file is which.
//!
//! May import what the parent may.

use super::{MappedFile, Place};
use crate::units::{PAGE, is_in_page};
use std::hint::select_unpredictable;

const LINE: usize = 64;

/// One range of bytes within a page, in each of two files.
pub struct Sides<'f> {
    files: [&'f MappedFile; 2],
    /// Where the bytes begin in each file. Invariant: at the same place of a page.
    at: [u64; 2],
    /// Their addresses, if they lie in the mappings.
    near: [*const u8; 2],
}

impl<'f> Sides<'f> {
    /// Creates the pair of ranges that begin at `at` of the files. Panics if these are not the same
    /// place of a page.
    #[inline(always)]
    pub fn new(files: [&'f MappedFile; 2], at: [u64; 2]) -> Self {
        assert!((at[0] ^ at[1]).is_multiple_of(PAGE as u64));
        let near = [files[0].near(at[0]), files[1].near(at[1])];
        Sides { files, at, near }
    }

    /// Copies whole lines of one page, each to its side: line `n` to the file of bit `n` of
    /// `sides`. Stores as [`MappedFile::copy_in`] by size. Panics if the bytes are not whole lines
    /// of one page.
    #[inline(always)]
    pub fn copy_lines_in(&self, sides: u64, from: &[u8]) {
        let places = self.places_of_lines(from.len());
        // SAFETY: both begin `from.len()` mapped and backed bytes (`places_of_lines`), at most the
        // 64 lines of a page, and are aligned to lines; `from` is the caller's own memory: no safe
        // code can have a reference into the mapping.
        unsafe { self.files[0].platform.copy_lines_to_sides(places, sides, from) }
    }

    /// Copies as [`copy_lines_in`](Self::copy_lines_in), and returns the CRC-32C of the bytes.
    #[inline(always)]
    pub fn copy_lines_in_summed(&self, sides: u64, from: &[u8]) -> u32 {
        let places = self.places_of_lines(from.len());
        // SAFETY: as in `copy_lines_in`.
        unsafe { self.files[0].platform.copy_lines_to_sides_summed(places, sides, from) }
    }

    /// Returns where `len` bytes begin in each file. They are whole lines of one page, mapped and
    /// backed, and their places are aligned to lines. Panics if the bytes are anything else.
    #[inline(always)]
    fn places_of_lines(&self, len: usize) -> [Place; 2] {
        let are_lines = (self.at[0] as usize | len).is_multiple_of(LINE);
        assert!(are_lines && is_in_page(self.at[0], len) || len == 0);
        // The page check holds for both: the second range is at the same place of a page. No
        // closure here, since it would not be inlined.
        [self.files[0].place(self.at[0], len), self.files[1].place(self.at[1], len)]
    }

    /// Prefetches the lines of `len` bytes for loads, each from its side. Any place is allowed, as
    /// for [`MappedFile::prefetch_read`].
    #[inline(always)]
    pub fn prefetch_read(&self, sides: u64, len: usize) {
        let (zero, one) = (self.files[0].hint(self.at[0]), self.files[1].hint(self.at[1]));
        if let (Some(zero), Some(one), true) = (zero, one, is_in_page(self.at[0], len)) {
            let lines = (self.at[0] as usize % LINE + len).div_ceil(LINE);
            // SAFETY: both sides begin in their mapping, which ends with a page, so all lines are
            // in it.
            unsafe { self.files[0].platform.prefetch_from_sides([zero, one], sides, lines) }
        }
    }

    /// Returns what fills `to`, or `None` if the bytes are not in one page or not backed by both
    /// files.
    ///
    /// The caller has pinned its lane, and checks the file's length before it fills anything. The
    /// backed range shrinks after the length, and not while a thread that has seen the old length
    /// is pinned. A caller that holds the pages' locks, and has checked the length under them, may
    /// call this, too.
    #[inline(always)]
    pub fn to_fill<'t>(&self, to: &'t mut [u8]) -> Option<Filling<'f, 't>> {
        let [zero, one] = self.files;
        let are_backed = self.at[0] < zero.backed() && self.at[1] < one.backed();
        // Both ranges then begin `to.len()` mapped and backed bytes: the bytes end within their
        // page in both files, and what is backed ends with a page (`set_backed`).
        let fits = is_in_page(self.at[0], to.len()) && are_backed;
        fits.then_some(Filling { file: zero, from: self.near, to })
    }
}

/// A buffer, and bytes of one page in two files from which it can be filled.
pub struct Filling<'f, 't> {
    /// The first of the files.
    file: &'f MappedFile,
    /// Where the bytes begin in each file. Invariant: both addresses begin `to.len()` mapped bytes,
    /// which were backed when this was made. They still are if the caller meets the conditions of
    /// [`Sides::to_fill`]. If it does not, the system may have no such page, as past the end of any
    /// file.
    from: [*const u8; 2],
    to: &'t mut [u8],
}

impl Filling<'_, '_> {
    /// Fills the buffer from one of the files, the second one if `second`. Selects the address
    /// without a jump.
    #[inline(always)]
    pub fn fill_from_one(self, second: bool) {
        let ptr = select_unpredictable(second, self.from[1], self.from[0]);
        // SAFETY: whichever is selected, it begins `to.len()` mapped bytes (the invariant). Where
        // the file backs them no more, the load is a SIGBUS, and no undefined behaviour.
        unsafe { self.file.copy_out_from(self.to, ptr) }
    }

    /// Fills the buffer with each line from its side. The line with the first byte comes from the
    /// file of bit 0 of `sides`.
    #[inline(always)]
    pub fn fill_from_sides(self, sides: u64) {
        // SAFETY: both begin `to.len()` mapped bytes (the invariant); as in `fill_from_one`.
        unsafe { self.file.platform.copy_out_of_sides(self.to, self.from, sides) }
    }
}
