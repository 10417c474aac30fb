//! Which pages have changed since each consumer of changes took them last.
//!
//! A consumer is what asks: durable points, and later snapshots, sums, replication. A change is
//! noted once, however many consumers there are. Each region has a bit for each of its pages, and
//! the set lists the regions with a bit set, each at least once. The consumer that takes hands the
//! changes to all others, which find them when they take. So a further consumer costs an operation
//! nothing.
//!
//! Invariant: a change that was noted is taken by every consumer that was registered before. It may
//! be taken although it did not happen. May import `units`, `primitive`.

use crate::primitive::Mutex;
use crate::units::RegionIndex;
use std::collections::BTreeMap;

/// Pages of each region, one bit a page.
pub(crate) type Pages = BTreeMap<RegionIndex, u64>;

/// The index of a consumer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consumer(usize);

/// The changes that each consumer has yet to take.
pub(crate) struct DirtySet {
    /// The regions with a bit set. Locked after `untaken`.
    noted: Mutex<Vec<RegionIndex>>,
    /// For each consumer, what others have taken since it took last.
    untaken: Mutex<Vec<Pages>>,
}

impl DirtySet {
    /// Makes an empty set without consumers.
    pub fn new() -> Self {
        DirtySet { noted: Mutex::new(Vec::new()), untaken: Mutex::new(Vec::new()) }
    }

    /// Adds a consumer. It takes what is noted from here on, and perhaps earlier changes.
    pub fn register(&self) -> Consumer {
        let mut untaken = self.untaken.lock();
        untaken.push(Pages::new());
        Consumer(untaken.len() - 1)
    }

    /// Records that a page of the region has changed, the first one since a consumer took last.
    #[cold]
    pub fn note_region(&self, region: RegionIndex) {
        self.noted.lock().push(region);
    }

    /// Returns `true` if the consumer has nothing to take.
    pub fn is_empty(&self, consumer: Consumer) -> bool {
        let untaken = self.untaken.lock();
        untaken[consumer.0].is_empty() && self.noted.lock().is_empty()
    }

    /// Takes the pages that have changed since the consumer took last. `take_bits` returns the bits
    /// of a region, and clears them. What a thread notes meanwhile is taken now or the next time.
    pub fn take(&self, consumer: Consumer, take_bits: impl Fn(RegionIndex) -> u64) -> Pages {
        let mut untaken = self.untaken.lock();
        let noted = std::mem::take(&mut *self.noted.lock());
        for region in noted {
            // A region that is listed twice has no bit left the second time.
            let pages = take_bits(region);
            for untaken in untaken.iter_mut().filter(|_| pages != 0) {
                *untaken.entry(region).or_default() |= pages;
            }
        }
        std::mem::take(&mut untaken[consumer.0])
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use crate::primitive::{AtomicU64, Ordering};

    /// A set, and the bits of two regions.
    struct Noted {
        set: DirtySet,
        bits: [AtomicU64; 2],
    }

    impl Noted {
        fn new() -> Self {
            Noted { set: DirtySet::new(), bits: [AtomicU64::new(0), AtomicU64::new(0)] }
        }

        /// Notes pages as `Pair::note_changed` does.
        fn note(&self, region: u64, pages: u64) {
            if self.bits[region as usize].fetch_or(pages, Ordering::Relaxed) == 0 {
                self.set.note_region(RegionIndex(region));
            }
        }

        fn take(&self, consumer: Consumer) -> Vec<(u64, u64)> {
            let take_bits = |r: RegionIndex| self.bits[r.0 as usize].swap(0, Ordering::Relaxed);
            self.set.take(consumer, take_bits).into_iter().map(|(r, pages)| (r.0, pages)).collect()
        }
    }

    #[test]
    fn each_of_two_consumers_takes_every_change_once_in_its_own_time() {
        let noted = Noted::new();
        let [often, seldom] = [noted.set.register(), noted.set.register()];
        assert!(noted.set.is_empty(often) && noted.set.is_empty(seldom));
        noted.note(1, 0b1);
        noted.note(0, 0b10);
        assert_eq!(noted.take(often), [(0, 0b10), (1, 0b1)]);
        assert!(noted.set.is_empty(often) && !noted.set.is_empty(seldom));
        noted.note(1, 0b100);
        assert_eq!(noted.take(often), [(1, 0b100)]);
        noted.note(1, 0b1000);
        assert_eq!(noted.take(seldom), [(0, 0b10), (1, 0b1101)]);
        assert!(noted.set.is_empty(seldom));
        assert_eq!(noted.take(often), [(1, 0b1000)]);
        assert_eq!((noted.take(often), noted.take(seldom)), (vec![], vec![]));
    }

    #[test]
    fn a_later_consumer_takes_what_is_noted_from_then_on() {
        let noted = Noted::new();
        let first = noted.set.register();
        noted.note(0, 0b1);
        assert_eq!(noted.take(first), [(0, 0b1)]);
        let second = noted.set.register();
        noted.note(0, 0b10);
        assert_eq!(noted.take(second), [(0, 0b10)]);
        assert_eq!(noted.take(first), [(0, 0b10)]);
    }

    #[test]
    fn a_region_that_is_listed_twice_is_taken_once() {
        let noted = Noted::new();
        let consumer = noted.set.register();
        noted.note(0, 0b1);
        noted.set.note_region(RegionIndex(0));
        assert_eq!(noted.take(consumer), [(0, 0b1)]);
    }
}
