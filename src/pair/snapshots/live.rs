//! Which kept slices live snapshots need.
//!
//! Owns: the rule. A slice of a record of epoch `e` serves the snapshots `k` with `e' < k <= e`,
//! where `e'` is the newest earlier epoch of a record of that page with that slice, or 0. A later
//! snapshot finds the slice in a later record or in its slot. An earlier one finds it in the
//! earlier record. Pure.
//!
//! May import `index`, `format::snapshots`, `bitmap`, and the planted bugs.

use super::index::Kept;
use crate::bitmap::Slices;
use crate::format::snapshots::table::Table;
use crate::mutant::planted;
use smallvec::SmallVec;
use std::ops::Range;

/// The snapshots that were live at one time.
pub(super) struct Live {
    /// Ascending.
    numbers: Vec<u64>,
    /// The highest number given at that time.
    highest: u64,
}

impl Live {
    /// Returns the snapshots of a table.
    pub fn of(table: &Table) -> Live {
        let numbers = table.entries.iter().map(|entry| entry.number).collect();
        Live { numbers, highest: table.highest }
    }

    /// Returns the numbers of the live snapshots.
    pub fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// Returns the places of the live snapshots after `after`, up to `to`.
    fn between(&self, after: u64, to: u64) -> Range<usize> {
        let end = self.numbers.partition_point(|number| *number <= to);
        let start = self.numbers.partition_point(|number| *number <= after);
        start.min(end)..end
    }

    /// Returns the slices of a record that a live snapshot needs. `before` are the records of its
    /// page that come before it. A record of a snapshot that was sealed later is needed as a whole:
    /// the snapshot is not in this set, and may be live.
    pub fn needed(&self, before: &Before, record: &Kept) -> Slices {
        let epoch = record.epoch;
        if epoch > self.highest && !planted!(LaterByOldSet) {
            return record.mask;
        }
        before.slices_by(record.mask, |since| {
            let since = if planted!(CollectForgetsNeeded) {
                since.max(epoch.saturating_sub(1))
            } else {
                since
            };
            !self.between(since, epoch).is_empty()
        })
    }

    /// Passes the slices of a record that live snapshots need to `take`, in parts, each with the
    /// places of these snapshots in [`numbers`](Self::numbers).
    pub fn each_need(
        &self,
        before: &Before,
        record: &Kept,
        mut take: impl FnMut(Range<usize>, Slices),
    ) {
        before.each_part(record.mask, |since, part| {
            let needing = self.between(since, record.epoch);
            if !needing.is_empty() {
                take(needing, part);
            }
        });
    }
}

/// Which slices the records of a page have up to one of them, by epochs, in ascending order.
#[derive(Default)]
pub(super) struct Before(SmallVec<[(u64, Slices); 16]>);

impl Before {
    /// Adds the next record of the page.
    pub fn add(&mut self, record: &Kept) {
        match self.0.last_mut() {
            Some((epoch, mask)) if *epoch == record.epoch => *mask = mask.or(record.mask),
            _ => self.0.push((record.epoch, record.mask)),
        }
    }

    /// Returns those of the slices of the next record for which `is_needed` returns `true`. Its
    /// argument is the newest epoch of a record before it with the slice, or 0. That is the next
    /// record's own epoch for slices that another record of that epoch has, which comes first.
    fn slices_by(&self, mask: Slices, is_needed: impl Fn(u64) -> bool) -> Slices {
        let mut needed = Slices::NONE;
        self.each_part(mask, |since, part| {
            if is_needed(since) {
                needed = needed.or(part);
            }
        });
        needed
    }

    /// Passes the slices of the next record to `take`, in parts of one such epoch.
    fn each_part(&self, mask: Slices, mut take: impl FnMut(u64, Slices)) {
        let mut rest = mask;
        for (since, mask) in self.0.iter().rev().chain([&(0, Slices::ALL)]) {
            let part = rest.and(*mask);
            if !part.is_empty() {
                take(*since, part);
            }
            rest = rest.without(part);
            if rest.is_empty() {
                break;
            }
        }
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::super::index::RecordAt;
    use super::*;

    fn kept(epoch: u64, mask: u64) -> Kept {
        Kept { epoch, mask: Slices(mask), at: RecordAt(0) }
    }

    fn live(numbers: &[u64], highest: u64) -> Live {
        Live { numbers: numbers.to_vec(), highest }
    }

    /// Calls `f` with each record and those before it. Returns the bits of the slices.
    fn each<const N: usize>(records: &[Kept; N], f: impl Fn(&Before, &Kept) -> Slices) -> [u64; N] {
        let mut before = Before::default();
        records.each_ref().map(|record| {
            let slices = f(&before, record);
            before.add(record);
            slices.0
        })
    }

    #[test]
    fn a_slice_is_needed_by_the_snapshots_since_the_record_before() {
        let records = [kept(2, 0b011), kept(5, 0b110), kept(5, 0b100), kept(9, 0b010)];
        let of = |numbers: &[u64]| {
            let live = live(numbers, 9);
            each(&records, |before, record| live.needed(before, record))
        };
        assert_eq!(of(&[1]), [0b011, 0b100, 0, 0]);
        assert_eq!(of(&[2]), [0b011, 0b100, 0, 0]);
        assert_eq!(of(&[3]), [0, 0b110, 0, 0]);
        assert_eq!(of(&[5]), [0, 0b110, 0, 0]);
        assert_eq!(of(&[6]), [0, 0, 0, 0b010]);
        assert_eq!(of(&[1, 4, 9]), [0b011, 0b110, 0, 0b010]);
        assert_eq!(of(&[]), [0, 0, 0, 0]);
        // The second record of epoch 5 has nothing that the first one lacks.
        let sealed_later = each(&records, |before, record| live(&[], 4).needed(before, record));
        assert_eq!(sealed_later[2], 0b100);
    }

    #[test]
    fn bytes_are_held_by_the_only_snapshot_that_needs_them() {
        let records = [kept(2, 0b011), kept(5, 0b110)];
        let held = |numbers: &[u64], number| {
            let live = live(numbers, 5);
            each(&records, |before, record| {
                let mut alone = Slices::NONE;
                live.each_need(before, record, |needing, part| {
                    if live.numbers()[needing] == [number] {
                        alone = alone.or(part);
                    }
                });
                alone
            })
        };
        let of = |number| held(&[1, 2, 3], number);
        assert_eq!(of(1), [0, 0]);
        assert_eq!(of(3), [0, 0b010]);
        assert_eq!(held(&[2], 2)[0], 0b011);
        assert_eq!(held(&[2], 1)[0], 0);
    }
}
