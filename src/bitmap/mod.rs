//! The XOR algebra of slots: which slot is valid, and which slices a write touches. Pure.
//!
//! A slice is valid in its reflection slot where `bit(slice word) XOR bit(region word)` is 1, and
//! in its home slot where it is 0. So flipping a slice bit moves one slice, and flipping a region
//! bit moves a whole page whatever its slice word holds. Either way one 8-byte store commits. This
//! is Acumen's validity bitmap (section IV-B) with one more level, for MGSP's several granularities
//! (section III-B).
//!
//! May import `units` only.

pub mod span;

use crate::mutant::planted;
use crate::units::{PAGE, SLICE, SLICES_PER_PAGE};
use std::ops::Range;

/// A set of slices of one page: bit `n` is slice `n`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Slices(pub u64);

impl Slices {
    /// No slice.
    pub const NONE: Slices = Slices(0);
    /// All slices of the page.
    pub const ALL: Slices = Slices(!0);

    /// Returns the slices `first..end`.
    pub const fn range(first: usize, end: usize) -> Self {
        debug_assert!(first <= end && end <= SLICES_PER_PAGE);
        if first == end {
            return Slices::NONE;
        }
        Slices((!0 >> (SLICES_PER_PAGE - (end - first))) << first)
    }

    /// Returns the first `count` slices, or all of them if `count` is zero.
    #[inline]
    pub const fn first(count: usize) -> Self {
        debug_assert!(count <= SLICES_PER_PAGE);
        Slices(!0 >> (SLICES_PER_PAGE.wrapping_sub(count) % SLICES_PER_PAGE))
    }

    /// Returns slice `n` alone.
    pub const fn one(n: usize) -> Self {
        debug_assert!(n < SLICES_PER_PAGE);
        Slices(1 << n)
    }

    /// Returns the slices that hold the bytes `start..end` of the page.
    pub const fn of_bytes(start: usize, end: usize) -> Self {
        if start == end {
            return Slices::NONE;
        }
        Slices::range(start / SLICE, end.div_ceil(SLICE))
    }

    /// Returns `true` if the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of slices.
    pub const fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the bytes of all slices, at most those of a page.
    pub const fn bytes(self) -> usize {
        self.count() * SLICE
    }

    /// Returns the slices in either set.
    pub const fn or(self, other: Self) -> Self {
        Slices(self.0 | other.0)
    }

    /// Returns the slices in both sets.
    pub const fn and(self, other: Self) -> Self {
        Slices(self.0 & other.0)
    }

    /// Returns the slices in this set and not in the other.
    pub const fn without(self, other: Self) -> Self {
        Slices(self.0 & !other.0)
    }

    /// Returns `true` if the set is empty or equal to `first`. `first` is the set of a page's first
    /// few slices, or empty, and contains the set. This takes one comparison, where two would
    /// include a branch that no processor predicts.
    #[inline]
    pub const fn is_all_or_none_of_first(self, first: Self) -> bool {
        debug_assert!(self.0 & !first.0 == 0 && first.0 & first.0.wrapping_add(1) == 0);
        // The empty set plus one is 1; `first` plus one has no bit in `first`.
        self.0.wrapping_add(1) & first.0 <= 1
    }

    /// Returns `true` if the slices are neighbours, all in one run.
    #[inline]
    pub const fn are_one_run(self) -> bool {
        // Without the lowest run nothing is left.
        self.0 & self.0.wrapping_add(self.0 & self.0.wrapping_neg()) == 0
    }

    /// Returns the number of runs of neighbouring slices.
    #[inline]
    pub const fn run_count(self) -> usize {
        // Each run has one slice without a neighbour below.
        (self.0 & !(self.0 << 1)).count_ones() as usize
    }

    /// Returns the slices of a page that begins at `start`, from the one on that holds the byte at
    /// `len` of the file. All of them if the page lies past that byte.
    pub const fn from_byte(start: u64, len: u64) -> Self {
        let before = len.saturating_sub(start);
        let before = if before > PAGE as u64 { PAGE } else { before as usize };
        Slices::range(before / SLICE, SLICES_PER_PAGE)
    }

    /// Returns the runs of neighbouring slices, as `first..end`, lowest first.
    pub fn runs(self) -> Runs {
        Runs(self.0)
    }
}

/// An iterator over the runs of a set of slices.
#[derive(Clone)]
pub struct Runs(u64);

impl Iterator for Runs {
    type Item = std::ops::Range<usize>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0 == 0 {
            return None;
        }
        let first = self.0.trailing_zeros() as usize;
        let len = (!(self.0 >> first)).trailing_zeros() as usize;
        let end = if planted!(RunsJoined) {
            SLICES_PER_PAGE
        } else {
            first + len.min(SLICES_PER_PAGE - first)
        };
        self.0 &= !Slices::range(first, end).0;
        Some(first..end)
    }
}

/// One of the two slots of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// In the home file.
    Home,
    /// In the reflection file.
    Reflection,
}

impl Side {
    /// Returns the other side.
    #[inline]
    pub const fn other(self) -> Side {
        match self {
            Side::Home => Side::Reflection,
            Side::Reflection => Side::Home,
        }
    }
}

/// The valid sides of the slices of one page: bit = 1 where the reflection slot is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validity(pub u64);

impl Validity {
    /// Returns the validity of a page with this slice word and with the bit `region_bit` in the
    /// region word.
    pub const fn new(slice_word: u64, region_bit: bool) -> Self {
        Validity(slice_word ^ spread(region_bit))
    }

    /// Returns the side on which slice `n` is valid.
    pub const fn side(self, n: usize) -> Side {
        if self.0 >> n & 1 == 1 { Side::Reflection } else { Side::Home }
    }

    /// Returns `true` if the slices are all valid on one side.
    #[inline]
    pub const fn are_on_one_side(self, slices: Slices) -> bool {
        self.0 & slices.0 == 0 || !self.0 & slices.0 == 0
    }

    /// Returns the slices of `slices` that are valid in their reflection slot.
    pub const fn in_reflection(self, slices: Slices) -> Slices {
        Slices(slices.0 & self.0)
    }

    /// Returns the slices of `slices` that are valid in their home slot.
    pub const fn at_home(self, slices: Slices) -> Slices {
        Slices(slices.0 & !self.0)
    }

    /// Returns the slices of `slices` that are valid on `side`.
    pub const fn on(self, side: Side, slices: Slices) -> Slices {
        match side {
            Side::Home => self.at_home(slices),
            Side::Reflection => self.in_reflection(slices),
        }
    }

    /// Returns the runs of `slices` that are valid on one side, with that side, lowest first.
    pub fn runs(self, slices: Slices) -> impl Iterator<Item = (Side, Range<usize>)> {
        let mut rest = slices;
        std::iter::from_fn(move || {
            let first = (!rest.is_empty()).then(|| rest.0.trailing_zeros() as usize)?;
            let side = self.side(first);
            // The first run on that side begins with the first slice.
            let run = self.on(side, rest).runs().next()?;
            rest = rest.without(Slices::range(run.start, run.end));
            Some((side, run))
        })
    }

    /// Returns the bits, from the slice on that contains the byte at `offset` of the file.
    #[inline]
    pub const fn bits_from(self, offset: u64) -> u64 {
        self.0 >> (offset as usize % PAGE / SLICE)
    }

    /// Returns the side on which the `len` bytes at `offset` of the file are valid, or `None` if
    /// they are on both. The bytes are whole slices of the page, at least one.
    #[inline(always)]
    pub const fn side_of(self, offset: u64, len: usize) -> Option<Side> {
        // Shifted to the upper end of the word, with zeros below.
        let others = SLICES_PER_PAGE - len / SLICE;
        let there = self.bits_from(offset) << others;
        if there == 0 {
            Some(Side::Home)
        } else if there == !0 << others {
            Some(Side::Reflection)
        } else {
            None
        }
    }

    /// Returns the free slots, to which a flip writes: those that are not valid.
    pub const fn free(self) -> Self {
        Validity(!self.0)
    }
}

const fn spread(bit: bool) -> u64 {
    if bit { !0 } else { 0 }
}

/// Returns the places of the set bits, ascending.
pub fn bits(mut mask: u64) -> impl Iterator<Item = usize> + Clone {
    std::iter::from_fn(move || {
        let n = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(n)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_side_of_some_slices_is_that_of_each_if_it_is_one() {
        for bits in [0, 1, !0, 1 << 63, 0xFF00, 0x8000_0000_0000_0001, !1, !0 >> 1, !0 << 32] {
            let valid = Validity(bits);
            for first in 0..SLICES_PER_PAGE {
                for end in first + 1..=SLICES_PER_PAGE {
                    let offset = (3 * PAGE + first * SLICE) as u64;
                    let is_one = (first..end).all(|n| valid.side(n) == valid.side(first));
                    let side = is_one.then(|| valid.side(first));
                    assert_eq!(valid.side_of(offset, (end - first) * SLICE), side);
                }
            }
        }
    }

    #[test]
    fn runs_cover_the_set_exactly() {
        for bits in [0, 1, !0, 1 << 63, 0xF0F0, 0x8000_0000_0000_0001, 0xAAAA_5555, !1, !0 >> 1] {
            let mut back = 0;
            let mut last_end = None;
            assert_eq!(Slices(bits).runs().count(), Slices(bits).run_count());
            for run in Slices(bits).runs() {
                assert!(run.start < run.end && last_end.is_none_or(|end| run.start > end));
                last_end = Some(run.end);
                back |= Slices::range(run.start, run.end).0;
            }
            assert_eq!(back, bits);
        }
    }

    #[test]
    fn runs_of_sides_cover_the_slices_in_order() {
        for valid in [0, !0, 0xF0F0, 0xAAAA_5555, 1 << 63].map(Validity) {
            for slices in [0, !0, 0xFF00, 0x8000_0000_0000_0001, !1, 0x0FF0_1234].map(Slices) {
                let found: Vec<(Side, usize)> = valid
                    .runs(slices)
                    .flat_map(|(side, run)| run.map(move |n| (side, n)))
                    .collect();
                let expected: Vec<_> = bits(slices.0).map(|n| (valid.side(n), n)).collect();
                assert_eq!(found, expected, "{valid:?} {slices:?}");
            }
        }
    }

    #[test]
    fn all_or_none_of_the_first_are_found() {
        for count in 1..=64 {
            let first = Slices::first(count);
            assert_eq!(first.count(), count);
            for bits in [0, 1, 2, 3, 1 << 63, !0, !1, !0 >> 1, 0xAAAA, first.0 >> 1, first.0 << 1] {
                let some = Slices(bits).and(first);
                let expected = some == first || some.is_empty();
                assert_eq!(some.is_all_or_none_of_first(first), expected, "{some:?} of {count}");
            }
        }
    }

    #[test]
    fn bytes_map_to_the_slices_that_hold_them() {
        assert_eq!(Slices::of_bytes(0, 1), Slices(1));
        assert_eq!(Slices::of_bytes(63, 65), Slices(3));
        assert_eq!(Slices::of_bytes(64, 128), Slices(2));
        assert_eq!(Slices::of_bytes(0, 4096), Slices::ALL);
        assert_eq!(Slices::of_bytes(4095, 4096), Slices(1 << 63));
        assert_eq!(Slices::of_bytes(5, 5), Slices::NONE);
    }

    #[test]
    fn a_slice_bit_moves_a_slice_and_a_region_bit_moves_the_page() {
        for word in [0, !0, 0x1234_5678_9ABC_DEF0] {
            for bit in [false, true] {
                let before = Validity::new(word, bit);
                assert_eq!(Validity::new(word, !bit), Validity(before.0 ^ !0));
                assert_eq!(Validity::new(word ^ 2, bit), Validity(before.0 ^ 2));
                for n in 0..64 {
                    let after = Validity::new(word, !bit);
                    assert_ne!(before.side(n), after.side(n));
                    assert_eq!(before.free().side(n), after.side(n));
                }
            }
        }
    }
}
