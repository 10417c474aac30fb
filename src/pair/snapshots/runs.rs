//! Sets of segments, as runs.
//!
//! Owns: [`Runs`]. A store of any apparent length has as many runs as it has parts with storage. So
//! a file that is nothing but holes takes no memory.
//!
//! May import `format::snapshots`.

use crate::format::snapshots::SegmentIndex;
use std::collections::BTreeMap;
use std::ops::Range;

/// A set of segments.
#[derive(Default)]
pub(super) struct Runs {
    /// The end of each run, by its start. No two touch each other.
    ends: BTreeMap<u32, u32>,
}

impl Runs {
    /// Adds segments.
    pub fn add(&mut self, range: Range<u32>) {
        let Range { mut start, mut end } = range;
        if start >= end {
            return;
        }
        // Those that overlap or touch the new one become one run with it.
        while let Some((from, to)) = self.last_before(end.saturating_add(1))
            && to >= start
        {
            self.ends.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.ends.insert(start, end);
    }

    /// Removes segments.
    pub fn remove(&mut self, range: Range<u32>) {
        while let Some((from, to)) = self.last_before(range.end)
            && to > range.start
            && !range.is_empty()
        {
            self.ends.remove(&from);
            if range.end < to {
                self.ends.insert(range.end, to);
            }
            if from < range.start {
                self.ends.insert(from, range.start);
            }
        }
    }

    /// Removes one segment.
    pub fn remove_one(&mut self, segment: SegmentIndex) {
        self.remove(segment.0..segment.0.saturating_add(1));
    }

    /// Returns `true` if all segments of the range are in the set.
    pub fn has_all(&self, range: Range<u32>) -> bool {
        let run = self.last_before(range.start.saturating_add(1));
        range.is_empty() || run.is_some_and(|(_, to)| to >= range.end)
    }

    /// Returns the runs, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u32>> {
        self.ends.iter().map(|(start, end)| *start..*end)
    }

    /// Returns the number of segments.
    pub fn len(&self) -> u64 {
        self.iter().fold(0, |sum, run| sum.saturating_add(run.len() as u64))
    }

    /// Returns the last run that begins before a segment.
    fn last_before(&self, start: u32) -> Option<(u32, u32)> {
        self.ends.range(..start).next_back().map(|(start, end)| (*start, *end))
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn runs_are_a_set() {
        let (mut runs, mut set) = (Runs::default(), BTreeSet::new());
        let mut random = 7_u32;
        for _ in 0..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (start, len) = (random >> 8 & 63, random >> 16 & 7);
            let range = start..start + len;
            if random >> 30 == 0 {
                runs.add(range.clone());
                set.extend(range.clone());
            } else {
                runs.remove(range.clone());
                set.retain(|n| !range.contains(n));
            }
            assert!(runs.iter().flatten().eq(set.iter().copied()));
            let ends: Vec<_> = runs.iter().collect();
            assert!(ends.windows(2).all(|two| two[0].end < two[1].start), "{ends:?}");
            assert_eq!(runs.len(), set.len() as u64);
            let next = start + 3..start + 3 + len;
            assert_eq!(runs.has_all(next.clone()), next.clone().all(|n| set.contains(&n)));
        }
        runs.add(0..u32::MAX);
        runs.remove_one(SegmentIndex(5));
        assert_eq!((runs.len(), runs.iter().count()), (u64::from(u32::MAX) - 1, 2));
    }
}
