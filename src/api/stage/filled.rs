//! Which bytes of a stage were filled.
//!
//! May import nothing from the crate.

use std::ops::Range;

/// Ranges of offsets: sorted, not empty, and neither overlapping nor touching.
#[derive(Default, Debug)]
pub(super) struct Filled(Vec<Range<u64>>);

impl Filled {
    /// Adds a range.
    pub fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|other| other.end < range.start);
        let end = self.0.partition_point(|other| other.start <= range.end);
        let mut all = range;
        if let [one, ..] = &self.0[first..end] {
            all.start = all.start.min(one.start);
        }
        if let [.., last] = &self.0[first..end] {
            all.end = all.end.max(last.end);
        }
        self.0.splice(first..end, [all]);
    }

    /// Removes a range.
    pub fn remove(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|other| other.end <= range.start);
        let end = self.0.partition_point(|other| other.start < range.end);
        let before = self.0[first..end].first().map(|one| one.start..range.start);
        let after = self.0[first..end].last().map(|last| range.end..last.end);
        let kept = before.into_iter().chain(after).filter(|part| !part.is_empty());
        let kept: Vec<Range<u64>> = kept.collect();
        self.0.splice(first..end, kept);
    }

    /// Returns the ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().cloned()
    }

    /// Removes all ranges.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_a_set_of_bytes() {
        let mut random = 7_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        let (mut filled, mut model) = (Filled::default(), [false; 40]);
        for _ in 0..5000 {
            let start = next(40);
            let range = start..start + next(41 - start);
            let is_added = next(2) == 0;
            let of_model = &mut model[range.start as usize..range.end as usize];
            of_model.fill(is_added);
            if is_added {
                filled.add(range)
            } else {
                filled.remove(&range)
            }
            let mut bytes = [false; 40];
            let mut end = None;
            for range in filled.iter() {
                assert!(!range.is_empty() && end.is_none_or(|end| end < range.start));
                bytes[range.start as usize..range.end as usize].fill(true);
                end = Some(range.end);
            }
            assert_eq!(bytes, model);
        }
    }
}
