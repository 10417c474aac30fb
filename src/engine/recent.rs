//! What has this thread done lately? Guesses, for who decides whether to ask for lines ahead.
//!
//! Owns: for each lane a few tags, direct-mapped, of pages that were written, and for how long reads expect bytes
//! away from home. Nothing depends on them but time: a wrong guess costs a request that was not needed, or a
//! miss that was not hidden. May import `units`.

use crate::units::PageIndex;
use std::hint::select_unpredictable;
// Not modelled: no decision that could be seen depends on it.
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

/// About as many pages as the processor's second-level TLB holds, with both slots of each, their words and
/// what DRAM knows of them.
const TAGS: usize = 512;

/// So many reads within a page after one that found bytes away from home ask for both slots.
const READS: u8 = 16;

/// What was done lately.
#[derive(Debug)]
pub struct Recent {
    written: [AtomicU16; TAGS],
    /// Reads that still ask for both slots.
    asks_left: AtomicU8,
}

impl Recent {
    /// Nothing yet.
    pub fn new() -> Self {
        Recent { written: [const { AtomicU16::new(0) }; TAGS], asks_left: AtomicU8::new(0) }
    }

    /// Whether a read is to expect its bytes in either slot.
    #[inline]
    pub fn reads_away(&self) -> bool {
        self.asks_left.load(Ordering::Relaxed) != 0
    }

    /// Notes whether a read has found bytes away from home.
    #[inline]
    pub fn note_read(&self, away: bool) {
        let left = self.asks_left.load(Ordering::Relaxed);
        // Whether this one is away is not to be foreseen where some are, and whether some are is.
        if away | (left != 0) {
            let left = select_unpredictable(away, READS, left.saturating_sub(1));
            self.asks_left.store(left, Ordering::Relaxed);
        }
    }

    /// Whether the page is among those that were written. From now on it is.
    #[inline]
    pub fn has(&self, page: PageIndex) -> bool {
        let tag = &self.written[page.0 as usize % TAGS];
        let mine = (page.0 / TAGS as u64) as u16 ^ 0x8000;
        let had = tag.load(Ordering::Relaxed) == mine;
        if !had {
            tag.store(mine, Ordering::Relaxed);
        }
        had
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_recent_until_another_takes_its_tag() {
        let recent = Recent::new();
        assert!(!recent.has(PageIndex(0)) && recent.has(PageIndex(0)));
        assert!(!recent.has(PageIndex(1)) && recent.has(PageIndex(0)));
        assert!(!recent.has(PageIndex(TAGS as u64)) && !recent.has(PageIndex(0)));
    }

    #[test]
    fn reads_expect_both_slots_for_a_while() {
        let recent = Recent::new();
        recent.note_read(false);
        assert!(!recent.reads_away());
        recent.note_read(true);
        for _ in 0..READS {
            assert!(recent.reads_away());
            recent.note_read(false);
        }
        assert!(!recent.reads_away());
    }
}
