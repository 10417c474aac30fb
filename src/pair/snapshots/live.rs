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

    /// Returns the live snapshots after `after`, up to `to`.
    fn between(&self, after: u64, to: u64) -> &[u64] {
        let end = self.numbers.partition_point(|number| *number <= to);
        let start = self.numbers.partition_point(|number| *number <= after);
        &self.numbers[start.min(end)..end]
    }

    /// Returns the slices of `records[n]` that a live snapshot needs. `records` are all records of
    /// a page, in ascending order of their epochs. A record of a snapshot that was sealed later is
    /// needed as a whole: the snapshot is not in this set, and may be live.
    pub fn needed(&self, records: &[Kept], n: usize) -> Slices {
        let Kept { epoch, mask, .. } = records[n];
        if epoch > self.highest {
            return mask;
        }
        let parts = by_previous(records, n);
        let is_needed = |since: u64| {
            let since = if planted!(CollectForgetsNeeded) { since.max(epoch - 1) } else { since };
            !self.between(since, epoch).is_empty()
        };
        parts
            .filter(|(_, since)| is_needed(*since))
            .fold(Slices::NONE, |all, (part, _)| all.or(part))
    }

    /// Returns the slices of `records[n]` that the snapshot needs, and no other live one.
    pub fn needed_by_alone(&self, number: u64, records: &[Kept], n: usize) -> Slices {
        let epoch = records[n].epoch;
        let parts = by_previous(records, n);
        let is_alone = |since: u64| *self.between(since, epoch) == [number];
        parts
            .filter(|(_, since)| is_alone(*since))
            .fold(Slices::NONE, |all, (part, _)| all.or(part))
    }
}

/// Splits the slices of `records[n]` by the newest earlier epoch of a record with them. It is the
/// record's own epoch for slices that another record of that epoch has, which comes first.
fn by_previous(records: &[Kept], n: usize) -> impl Iterator<Item = (Slices, u64)> {
    let mut rest = records[n].mask;
    let ends = std::iter::once((Slices::ALL, 0));
    let earlier = records[..n].iter().rev().map(|record| (record.mask, record.epoch)).chain(ends);
    earlier.filter_map(move |(mask, epoch)| {
        let part = rest.and(mask);
        rest = rest.without(part);
        (!part.is_empty()).then_some((part, epoch))
    })
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

    #[test]
    fn a_slice_is_needed_by_the_snapshots_since_the_record_before() {
        let records = [kept(2, 0b011), kept(5, 0b110), kept(5, 0b100), kept(9, 0b010)];
        let of = |numbers: &[u64]| {
            let live = live(numbers, 9);
            [0, 1, 2, 3].map(|n| live.needed(&records, n).0)
        };
        assert_eq!(of(&[1]), [0b011, 0b100, 0, 0]);
        assert_eq!(of(&[2]), [0b011, 0b100, 0, 0]);
        assert_eq!(of(&[3]), [0, 0b110, 0, 0]);
        assert_eq!(of(&[5]), [0, 0b110, 0, 0]);
        assert_eq!(of(&[6]), [0, 0, 0, 0b010]);
        assert_eq!(of(&[1, 4, 9]), [0b011, 0b110, 0, 0b010]);
        assert_eq!(of(&[]), [0, 0, 0, 0]);
        // The second record of epoch 5 has nothing that the first one lacks.
        assert_eq!(live(&[], 4).needed(&records, 2), Slices(0b100), "sealed later");
    }

    #[test]
    fn bytes_are_held_by_the_only_snapshot_that_needs_them() {
        let records = [kept(2, 0b011), kept(5, 0b110)];
        let of =
            |number| [0, 1].map(|n| live(&[1, 2, 3], 5).needed_by_alone(number, &records, n).0);
        assert_eq!(of(1), [0, 0]);
        assert_eq!(of(3), [0, 0b010]);
        assert_eq!(live(&[2], 5).needed_by_alone(2, &records, 0).0, 0b011);
        assert_eq!(live(&[2], 5).needed_by_alone(1, &records, 0).0, 0);
    }
}
