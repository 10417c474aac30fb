//! Holds per-thread predictors: recently written pages, and where recent reads and writes found
//! their valid slots.
//!
//! Owns, for each lane:
//! - direct-mapped tags of pages that were written lately;
//! - whether recent reads found bytes in the reflection file, or mixed;
//! - the number of reads before the last write;
//! - how far reads in order have come, and what was read ahead for them.
//!
//! A wrong prediction costs time, never correctness: a needless prefetch, a miss that is not
//! hidden, or a deployment too early or too late. May import `bitmap`, `units`,
//! and the period of `pair::stamps`.

use crate::bitmap::Side;
use crate::pair::stamps::NOTED;
use crate::units::PageIndex;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};

/// Returns `true` if the read with this number must set the stamp of the deployed page that it has
/// found.
#[inline(always)]
pub(crate) fn samples_stamp(number: u64) -> bool {
    is_one_in(NOTED, number)
}

/// 2^32 divided by the golden ratio. Its multiples are spread evenly. Sampling each seventh read
/// would always count the same page of a thread that cycles through seven pages. Cycles of a
/// Fibonacci number of pages are nearly in step with this constant: some of their pages wait about
/// twice as long.
const GOLDEN: u32 = 0x9E37_79B9;

/// Returns `true` for about one number in `many`, evenly spread. Takes one multiplication and one
/// comparison.
#[inline(always)]
pub(crate) fn is_one_in(many: u32, number: u64) -> bool {
    (number as u32).wrapping_mul(GOLDEN) <= u32::MAX / many
}

/// Number of tags. The second-level TLB covers about this number of pages, with both slots of each,
/// their words and their state in DRAM.
const TAGS: usize = 512;

/// Values of [`Hints::stores_to`].
const TO_HOME: u8 = 0;
const TO_REFLECTION: u8 = 1;
/// To either side, inside the gate of cuts.
const TO_GATE: u8 = 2;

/// Pages around the expected one at which a read still counts as one in order: readers of trees
/// leave out inner pages, and look at some of them in between.
const NEAR: i64 = 8;

/// Pages that are read in order before any are read ahead.
const IN_ORDER: u64 = 4;

/// The least and the most pages that are read ahead: as many as were read in order.
const AHEAD: [u64; 2] = [32, 2048];

/// Reads in order.
#[derive(Debug)]
struct Scan {
    /// The page that the next read begins with.
    next: AtomicU64,
    /// The number of pages that were read in order, up to that page.
    in_order: AtomicU64,
    /// The page before which all of these were read ahead.
    asked: AtomicU64,
}

impl Scan {
    const fn new() -> Scan {
        Scan { next: AtomicU64::new(0), in_order: AtomicU64::new(0), asked: AtomicU64::new(0) }
    }

    fn is_near(&self, first: u64) -> bool {
        let jump = first.wrapping_sub(self.next.load(Ordering::Relaxed)).cast_signed();
        (-NEAR..NEAR).contains(&jump)
    }

    fn begins_behind(&self, last: u64) {
        self.next.store(last.saturating_add(1), Ordering::Relaxed);
        self.in_order.store(0, Ordering::Relaxed);
        self.asked.store(0, Ordering::Relaxed);
    }

    fn goes_on(&self, first: u64, last: u64) -> Option<Range<u64>> {
        if last < self.next.load(Ordering::Relaxed) {
            return None;
        }
        let next = last.saturating_add(1);
        let in_order = self.in_order.load(Ordering::Relaxed) + next.saturating_sub(first);
        self.next.store(next, Ordering::Relaxed);
        self.in_order.store(in_order, Ordering::Relaxed);
        let [least, most] = AHEAD;
        let window = in_order.clamp(least, most);
        let asked = self.asked.load(Ordering::Relaxed);
        if in_order < IN_ORDER || asked >= next.saturating_add(window - window / 4) {
            return None;
        }
        let end = next.saturating_add(window);
        self.asked.store(end, Ordering::Relaxed);
        Some(asked.max(next)..end)
    }
}

/// The predictors of one lane.
#[derive(Debug)]
#[repr(C)]
pub struct Hints {
    /// History of the last 16 reads that noted it: bit set = bytes in the reflection file. The last
    /// read is the lowest bit.
    away: AtomicU16,
    /// History of the last 16 reads that noted it: bit set = mixed bytes.
    both: AtomicU16,
    /// Where the last direct store went.
    stores_to: AtomicU8,
    /// Number of reads before the last write.
    before_write: AtomicU64,
    /// Index + 1 of the page of the read that was counted last.
    counted: AtomicU64,
    /// Two of them: a scan goes on after a read elsewhere, as of an inner page of a tree.
    scans: [Scan; 2],
    /// The scan that the last read in order belonged to.
    scan: AtomicU8,
    written: [AtomicU16; TAGS],
}

impl Hints {
    /// Number of bytes at the start of this type that are used most.
    #[cfg(not(any(loom, shuttle)))]
    pub const USED_MOST: usize = std::mem::offset_of!(Hints, counted);

    /// Creates predictors with an empty history.
    pub fn new() -> Self {
        Hints {
            away: AtomicU16::new(0),
            both: AtomicU16::new(0),
            stores_to: AtomicU8::new(TO_HOME),
            before_write: AtomicU64::new(0),
            counted: AtomicU64::new(0),
            scans: [const { Scan::new() }; 2],
            scan: AtomicU8::new(0),
            written: [const { AtomicU16::new(0) }; TAGS],
        }
    }

    /// Returns `true` if recent reads have found all their bytes in the home file.
    #[inline(always)]
    pub fn expects_home(&self) -> bool {
        self.away.load(Ordering::Relaxed) == 0
    }

    /// Returns `true` if recent reads have found mixed bytes.
    #[inline(always)]
    pub fn expects_mixed(&self) -> bool {
        self.both.load(Ordering::Relaxed) != 0
    }

    /// Notes whether a read has found bytes in the reflection file. There is no branch, because it
    /// could not be predicted.
    #[inline(always)]
    pub fn note_away(&self, away: bool) {
        let older = self.away.load(Ordering::Relaxed);
        self.away.store(older << 1 | u16::from(away), Ordering::Relaxed);
    }

    /// Notes whether a read has found mixed bytes.
    #[inline(always)]
    pub fn note_both(&self, both: bool) {
        let older = self.both.load(Ordering::Relaxed);
        self.both.store(older << 1 | u16::from(both), Ordering::Relaxed);
    }

    /// Returns the side on which the next direct store is likely to find its valid slot, or `None`
    /// if a direct store has to enter the gate of cuts.
    #[inline(always)]
    pub fn stores_to(&self) -> Option<Side> {
        match self.stores_to.load(Ordering::Relaxed) {
            TO_HOME => Some(Side::Home),
            TO_REFLECTION => Some(Side::Reflection),
            _ => None,
        }
    }

    /// Notes the side that a direct store went to.
    #[inline(always)]
    pub fn note_stored(&self, side: Side) {
        if self.stores_to().is_some_and(|noted| noted != side) {
            let side = if side == Side::Home { TO_HOME } else { TO_REFLECTION };
            self.stores_to.store(side, Ordering::Relaxed);
        }
    }

    /// Notes that direct stores have to enter the gate of cuts, to the end of the session.
    #[cold]
    pub fn note_gated(&self) {
        self.stores_to.store(TO_GATE, Ordering::Relaxed);
    }

    /// Notes that the thread has written, after this number of reads.
    pub fn note_write(&self, reads: u64) {
        self.before_write.store(reads, Ordering::Relaxed);
    }

    /// Returns the number of reads before the last write.
    #[inline]
    pub fn reads_before_write(&self) -> u64 {
        self.before_write.load(Ordering::Relaxed)
    }

    /// Returns `true` if this read begins in another page than the read counted last. Records its
    /// page as the last one.
    #[inline]
    pub fn reads_other_page(&self, page: PageIndex) -> bool {
        // A load and a store suffice: a lane has one reader at a time.
        let before = self.counted.load(Ordering::Relaxed);
        self.counted.store(page.0 + 1, Ordering::Relaxed);
        // In a model of schedules one read is enough.
        before != page.0 + 1 || cfg!(shuttle)
    }

    /// Notes that the pages from `first` to `last` are read. Returns the pages to read ahead, if
    /// the lane's reads are in order and have come near to the end of what was read ahead.
    pub fn follows(&self, first: u64, last: u64) -> Option<Range<u64>> {
        let before = usize::from(self.scan.load(Ordering::Relaxed)) & 1;
        for n in [before, before ^ 1] {
            let scan = &self.scans[n];
            if scan.is_near(first) {
                self.scan.store(n as u8, Ordering::Relaxed);
                return scan.goes_on(first, last);
            }
        }
        self.scans[before ^ 1].begins_behind(last);
        None
    }

    /// Returns `true` if the page was written recently. Records it as written.
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
        let recent = Hints::new();
        assert!(!recent.has(PageIndex(0)) && recent.has(PageIndex(0)));
        assert!(!recent.has(PageIndex(1)) && recent.has(PageIndex(0)));
        assert!(!recent.has(PageIndex(TAGS as u64)) && !recent.has(PageIndex(0)));
    }

    #[test]
    fn reads_in_order_are_read_ahead_of_and_others_are_not() {
        let scan = |step: &dyn Fn(u64) -> u64| {
            let recent = Hints::new();
            let asked = |n| recent.follows(step(n), step(n)).into_iter();
            (0..10_000).flat_map(asked).collect::<Vec<_>>()
        };
        let asked = scan(&|n| n);
        assert_eq!(asked[0], 4..36);
        assert!(asked.windows(2).all(|two| two[0].end == two[1].start), "without a gap");
        assert!((5..60).contains(&asked.len()), "{}", asked.len());
        // A tree has inner pages among the others, and elsewhere.
        assert_eq!(scan(&|n| n + n / 7)[0], 4..36);
        let asked = scan(&|n| if n % 50 == 7 { (1 << 30) | (n * 90) } else { n });
        assert!(asked.windows(2).all(|two| two[0].end == two[1].start), "without a gap");
        assert!((5..60).contains(&asked.len()), "{}", asked.len());
        assert_eq!(scan(&|_| 7), []);
        assert_eq!(scan(&|n| n * 9), []);
        assert_eq!(scan(&|n| (1 << 40) | (n % 4)), []);
        assert_eq!(scan(&|n| 200_000 - n * 9), []);
        assert_eq!(Hints::new().follows(u64::MAX, u64::MAX), None);
    }

    #[test]
    fn reads_expect_what_they_have_found_for_a_while() {
        let recent = Hints::new();
        let expect = |is_home, is_mixed, times| {
            for _ in 0..times {
                assert_eq!((recent.expects_home(), recent.expects_mixed()), (is_home, is_mixed));
                recent.note_away(false);
                recent.note_both(false);
            }
        };
        expect(true, false, 20);
        recent.note_away(true);
        expect(false, false, 16);
        expect(true, false, 1);
        recent.note_away(true);
        recent.note_both(true);
        expect(false, true, 8);
        recent.note_away(true);
        expect(false, true, 8);
        expect(false, false, 8);
        expect(true, false, 1);
    }
}
