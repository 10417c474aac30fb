//! What has this thread done lately? Guesses, for who decides whether to ask for lines ahead.
//!
//! Owns: for each lane a few tags, direct-mapped, of pages that were written, for how long reads expect bytes
//! away from home, or on both sides, and how many there were before the last write. Nothing depends on them but time: a wrong guess
//! costs a request that was not needed, a miss that was not hidden, or a page that came home early or late. May import
//! `bitmap`, `units`.

use crate::bitmap::Side;
use crate::units::PageIndex;
// Not modelled: nothing but time depends on it.
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

/// About as many pages as the processor's second-level TLB holds, with both slots of each, their words and
/// what DRAM knows of them.
const TAGS: usize = 512;

/// Where the bytes of a read may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// At home.
    AtHome,
    /// On one side or the other.
    OnOneSide,
    /// On both.
    OnBothSides,
}

/// What was done lately.
#[derive(Debug)]
#[repr(C)]
pub struct Recent {
    /// Which of the last 16 reads that looked for it have found bytes away from home, the last one in the lowest bit.
    away: AtomicU16,
    /// Which of the last 16 reads that looked for it have found bytes on both sides.
    both: AtomicU16,
    /// Whether what one instruction stored last went away from home.
    stored_away: AtomicBool,
    /// How many reads there were before the last write.
    before_write: AtomicU64,
    /// Page index + 1 of the read that was counted last.
    counted: AtomicU64,
    written: [AtomicU16; TAGS],
}

impl Recent {
    /// So many bytes at its beginning are used most.
    #[cfg(not(any(loom, shuttle)))]
    pub const USED_MOST: usize = std::mem::offset_of!(Recent, counted);

    /// Nothing yet.
    pub fn new() -> Self {
        Recent {
            away: AtomicU16::new(0),
            both: AtomicU16::new(0),
            stored_away: AtomicBool::new(false),
            before_write: AtomicU64::new(0),
            counted: AtomicU64::new(0),
            written: [const { AtomicU16::new(0) }; TAGS],
        }
    }

    /// Where a read is to expect its bytes.
    #[inline(always)]
    pub fn expected(&self) -> Expected {
        // First this one: only some reads look for bytes on both sides, and say so when there are none any more.
        if self.away.load(Ordering::Relaxed) == 0 {
            Expected::AtHome
        } else if self.both.load(Ordering::Relaxed) == 0 {
            Expected::OnOneSide
        } else {
            Expected::OnBothSides
        }
    }

    /// Notes whether a read has found bytes away from home. (Without a branch: where some are away, nobody foresees
    /// which.)
    #[inline(always)]
    pub fn note_away(&self, away: bool) {
        let older = self.away.load(Ordering::Relaxed);
        self.away.store(older << 1 | u16::from(away), Ordering::Relaxed);
    }

    /// Notes whether a read has found bytes on both sides.
    #[inline(always)]
    pub fn note_both(&self, both: bool) {
        let older = self.both.load(Ordering::Relaxed);
        self.both.store(older << 1 | u16::from(both), Ordering::Relaxed);
    }

    /// Where a store of one instruction is to expect its slot.
    #[inline(always)]
    pub fn stores_to(&self) -> Side {
        if self.stored_away.load(Ordering::Relaxed) { Side::Reflection } else { Side::Home }
    }

    /// Notes where one went.
    #[inline(always)]
    pub fn note_stored(&self, side: Side) {
        if side != self.stores_to() {
            self.stored_away.store(side == Side::Reflection, Ordering::Relaxed);
        }
    }

    /// Notes that there were so many reads when something had been written since the one before.
    pub fn note_write(&self, reads: u64) {
        self.before_write.store(reads, Ordering::Relaxed);
    }

    /// How many reads there were before the last write.
    #[inline]
    pub fn reads_before_write(&self) -> u64 {
        self.before_write.load(Ordering::Relaxed)
    }

    /// Whether this read, which is to be counted, begins in another page than the one that was counted last.
    #[inline]
    pub fn reads_other_page(&self, page: PageIndex) -> bool {
        // Load and store: a lane has one reader at a time.
        let before = self.counted.load(Ordering::Relaxed);
        self.counted.store(page.0 + 1, Ordering::Relaxed);
        // (In a model of schedules one read is enough.)
        before != page.0 + 1 || cfg!(shuttle)
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
    fn reads_expect_what_they_have_found_for_a_while() {
        let recent = Recent::new();
        let expect = |expected, times| {
            for _ in 0..times {
                assert_eq!(recent.expected(), expected);
                recent.note_away(false);
                recent.note_both(false);
            }
        };
        expect(Expected::AtHome, 20);
        recent.note_away(true);
        expect(Expected::OnOneSide, 16);
        expect(Expected::AtHome, 1);
        recent.note_away(true);
        recent.note_both(true);
        expect(Expected::OnBothSides, 8);
        recent.note_away(true);
        expect(Expected::OnBothSides, 8);
        expect(Expected::OnOneSide, 8);
        expect(Expected::AtHome, 1);
    }
}
