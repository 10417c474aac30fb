//! Holds the pages of a chunk that are allocated, and the choice of how many more are worth
//! allocating.
//!
//! Owns: a bit for each page of a chunk, on either side. Invariant: a bit is set after the page's
//! storage is reserved, and cleared before that storage is given back. Both happen under the
//! allocation mutex.
//!
//! Scattered writes need single pages: a chunk for each would take 500 times the space. Sequential
//! writes need long extents. So the unit of allocation grows with what is already there: see
//! [`Pieces::block`]. May import `bitmap`, `units`, `primitive`.

use crate::bitmap::Side;
use crate::primitive::{AtomicU64, Ordering};
use crate::units::{CHUNK, PAGE};
use std::ops::Range;

/// Number of pages of a chunk.
pub const PAGES_PER_CHUNK: usize = CHUNK / PAGE;

const WORDS: usize = PAGES_PER_CHUNK / 64;

/// The set of pages of one chunk that are known to be allocated. Pages are numbered from the start
/// of the chunk.
#[derive(Debug)]
pub struct Pieces([[AtomicU64; WORDS]; 2]);

impl Pieces {
    /// Creates an empty set.
    pub fn new() -> Self {
        Pieces(std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))))
    }

    fn side(&self, side: Side) -> &[AtomicU64; WORDS] {
        &self.0[usize::from(side == Side::Reflection)]
    }

    /// Returns `true` if all of these pages are allocated.
    #[inline]
    pub fn has(&self, side: Side, pages: Range<usize>) -> bool {
        let words = self.side(side);
        // Acquire: the allocation comes before.
        masks(pages).all(|(word, mask)| words[word].load(Ordering::Acquire) & mask == mask)
    }

    /// Returns `true` if no page of this side is allocated.
    pub fn is_empty(&self, side: Side) -> bool {
        self.side(side).iter().all(|word| word.load(Ordering::Acquire) == 0)
    }

    /// Adds these pages. The caller holds the allocation mutex.
    pub fn note(&self, side: Side, pages: Range<usize>) {
        let words = self.side(side);
        masks(pages).for_each(|(word, mask)| {
            words[word].fetch_or(mask, Ordering::Release);
        });
    }

    /// Removes these pages of one side. The caller holds the allocation mutex, and no thread stores
    /// to these pages.
    pub fn forget(&self, side: Side, pages: Range<usize>) {
        let words = self.side(side);
        masks(pages).for_each(|(word, mask)| {
            words[word].fetch_and(!mask, Ordering::Release);
        });
    }

    /// Removes the pages from `page` on, on both sides. The caller holds the allocation mutex, and
    /// no thread stores to these pages.
    pub fn forget_from(&self, page: usize) {
        for side in [Side::Home, Side::Reflection] {
            self.forget(side, page..PAGES_PER_CHUNK);
        }
    }

    /// Returns how many of these pages are allocated.
    pub fn count(&self, side: Side, pages: Range<usize>) -> usize {
        let words = self.side(side);
        let bits = |(word, mask): (usize, u64)| words[word].load(Ordering::Relaxed) & mask;
        masks(pages).map(|word| bits(word).count_ones() as usize).sum()
    }

    /// Returns the runs of these pages that are not allocated.
    pub fn missing(&self, side: Side, pages: Range<usize>) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for page in pages.filter(|page| !self.has(side, *page..page + 1)) {
            match runs.last_mut() {
                Some(run) if run.end == page => run.end += 1,
                _ => runs.push(page..page + 1),
            }
        }
        runs
    }

    /// Returns the pages that are worth allocating with `needed`, in a chunk of `all` pages. They
    /// are the largest aligned block around `needed` that is more than half allocated or needed.
    ///
    /// So at most twice the written space is allocated, and sequential writes take ten calls a
    /// chunk.
    pub fn block(&self, side: Side, needed: Range<usize>, all: usize) -> Range<usize> {
        let mut best = needed.clone();
        let mut size = needed.len().next_power_of_two();
        while size <= PAGES_PER_CHUNK {
            let start = needed.start / size * size;
            let block = start..(start + size).min(all);
            size *= 2;
            if block.end < needed.end {
                continue;
            }
            // Needed pages may already be allocated: each counts once.
            let beside = self.count(side, block.clone()) - self.count(side, needed.clone());
            if (beside + needed.len()) * 2 > block.len() {
                best = block;
            }
        }
        best
    }
}

/// Returns the words that hold the bits of these pages, each with a mask of those bits.
fn masks(pages: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    (pages.start / 64..pages.end.div_ceil(64)).map(move |word| {
        let from = pages.start.max(word * 64) - word * 64;
        let to = pages.end.min(word * 64 + 64) - word * 64;
        (word, !0 >> (64 - (to - from)) << from)
    })
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    fn with(pages: &[Range<usize>]) -> Pieces {
        let pieces = Pieces::new();
        pages.iter().for_each(|run| pieces.note(Side::Home, run.clone()));
        pieces
    }

    #[test]
    fn pages_of_either_side_are_noted_and_forgotten_one_by_one() {
        let pieces = with(&[3..5, 60..70, 511..512]);
        assert!(pieces.has(Side::Home, 60..70) && !pieces.has(Side::Home, 59..61));
        assert!(pieces.is_empty(Side::Reflection));
        assert_eq!(pieces.missing(Side::Home, 2..72), [2..3, 5..60, 70..72]);
        pieces.forget_from(64);
        assert_eq!(pieces.missing(Side::Home, 60..512), std::slice::from_ref(&(64..512)));
        assert!(pieces.has(Side::Home, 60..64));
    }

    /// Without this, 100,000 scattered writes of 8 bytes would take 8 GB of disk.
    #[test]
    fn scattered_pages_take_single_pages() {
        let pieces = Pieces::new();
        for page in (0..PAGES_PER_CHUNK).step_by(5) {
            let block = pieces.block(Side::Home, page..page + 1, PAGES_PER_CHUNK);
            assert_eq!(block, page..page + 1);
            pieces.note(Side::Home, block);
        }
    }

    #[test]
    fn pages_in_a_row_take_longer_and_longer_pieces() {
        let pieces = Pieces::new();
        let mut calls = 0;
        for page in 0..PAGES_PER_CHUNK {
            if !pieces.has(Side::Home, page..page + 1) {
                let block = pieces.block(Side::Home, page..page + 1, PAGES_PER_CHUNK);
                calls += pieces.missing(Side::Home, block.clone()).len();
                pieces.note(Side::Home, block);
            }
        }
        assert_eq!(calls, 10);
    }

    #[test]
    fn no_piece_reaches_past_the_end_of_the_file() {
        assert_eq!(with(&[]).block(Side::Home, 0..3, 5), 0..5);
        assert_eq!(with(&[0..1, 1..2]).block(Side::Home, 2..3, 3), 0..3);
    }
}
