//! Tests of write sets.

use super::*;
use proptest::prelude::*;

/// Applies `steps` to a write set and to an array, and compares them. The value of each byte is
/// the number of the step that wrote it last.
fn check(steps: &[(u64, usize)], len: usize) -> Writes {
    let mut writes = Writes::default();
    let mut expected = vec![0; len];
    for (nth, &(offset, count)) in steps.iter().enumerate() {
        let data = vec![(nth % 255 + 1) as u8; count];
        writes.put(offset, &data);
        expected[offset as usize..][..count].copy_from_slice(&data);
    }
    assert_same(&writes, &expected);
    writes
}

fn assert_same(writes: &Writes, expected: &[u8]) {
    let mut all = vec![0; expected.len()];
    writes.put_over(&mut all, &(0..expected.len() as u64));
    assert_eq!(all, expected);
    let mut end = 0;
    let mut all = vec![0; expected.len()];
    for (offset, bytes) in writes.iter() {
        assert!(end <= offset && !bytes.is_empty());
        end = offset + bytes.len() as u64;
        all[offset as usize..end as usize].copy_from_slice(bytes);
    }
    assert_eq!(all, expected);
    assert_eq!(writes.len(), writes.iter().count());
    // Reads may begin and end at any offset.
    for (start, end) in [(0, 1), (1, 64), (5, 70), (63, expected.len() / 2)] {
        let mut some = vec![0; end - start];
        writes.put_over(&mut some, &(start as u64..end as u64));
        assert_eq!(some, expected[start..end]);
    }
}

#[test]
fn pieces_one_behind_the_other_are_one_piece() {
    assert_eq!(check(&[(0, 8), (8, 8), (16, 100), (200, 8), (208, 1)], 256).len(), 2);
}

fn places(writes: &Writes) -> Vec<(u64, usize)> {
    writes.iter().map(|(offset, bytes)| (offset, bytes.len())).collect()
}

#[test]
fn a_piece_over_others_cuts_the_first_and_the_last_and_replaces_those_between() {
    let writes = check(&[(0, 3000), (4000, 10), (6000, 3000), (2000, 5000)], 10_000);
    assert_eq!(places(&writes), [(0, 2000), (2000, 5000), (7000, 2000)]);
    // Pieces that only touch stay separate.
    let writes = check(&[(3000, 3000), (0, 3000), (6000, 4000)], 10_000);
    assert_eq!(places(&writes), [(0, 3000), (3000, 3000), (6000, 4000)]);
}

#[test]
fn little_that_touches_or_overlaps_is_one_piece() {
    let backwards: Vec<_> = (0..512).rev().map(|n| (n * 8, 8)).collect();
    assert_eq!(places(&check(&backwards, 4100)), [(0, 4096)]);
    let writes = check(&[(0, 10), (20, 10), (40, 10), (5, 40)], 128);
    assert_eq!(places(&writes), [(0, 50)]);
    assert_eq!(places(&check(&[(0, 100), (50, 100)], 256)), [(0, 150)]);
}

#[test]
fn what_goes_on_where_the_last_one_ended_is_one_with_it_in_the_tree_as_well() {
    let mut steps: Vec<_> = (0..100).rev().map(|n| (n * 16, 8)).collect();
    steps.extend((0..1000).map(|n| (3000 + n * 8, 8)));
    let writes = check(&steps, 12_000);
    assert_eq!((writes.tree.len(), writes.bytes.len()), (101, 100 * 8 + 8000));
}

#[test]
fn a_piece_within_another_is_stored_over_it() {
    let writes = check(&[(0, 100), (200, 10), (10, 10), (0, 100), (99, 1), (0, 1)], 256);
    assert_eq!((writes.len(), writes.bytes.len()), (2, 110));
}

#[test]
fn many_in_any_order_are_in_the_tree_and_many_in_order_are_not() {
    let backwards: Vec<_> = (0..200).rev().map(|n| (n * 16, 8)).collect();
    let writes = check(&backwards, 4096);
    assert_eq!((writes.sorted.len(), writes.tree.len()), (0, 200));
    let onwards: Vec<_> = (0..200).map(|n| (n * 16, 8)).collect();
    let writes = check(&onwards, 4096);
    assert_eq!((writes.sorted.len(), writes.tree.len()), (200, 0));
}

#[test]
fn endless_overwrites_of_one_place_keep_little() {
    // Neither write covers the other, so neither is stored in place. Covers merged and cut
    // pieces, in the vector and in the tree.
    for (step, len) in [(500, 1000), (3000, 4000)] {
        for others in [0, 100] {
            let mut steps: Vec<_> = (0..others).rev().map(|n| (10_000 + n * 16, 8)).collect();
            steps.extend((0..10_000).map(|n| (n % 2 * step, len)));
            let writes = check(&steps, 12_000);
            assert_eq!(writes.tree.is_empty(), others == 0);
            let most = (TOLERATED + 2 * 7000).max(2 * 7000);
            assert!(writes.bytes.len() <= most, "{}", writes.bytes.len());
        }
    }
}

proptest! {
    #[test]
    fn what_was_written_last_is_there(
        steps in prop::collection::vec((0_u64..20_000, 1_usize..80), 1..300),
    ) {
        check(&steps, 20_080);
    }

    #[test]
    fn what_was_written_last_is_there_also_of_much(
        steps in prop::collection::vec((0_u64..40, 1_usize..7000), 1..200),
    ) {
        let steps: Vec<_> = steps.into_iter().map(|(at, len)| (at * 1000, len)).collect();
        check(&steps, 48_000);
    }

    #[test]
    fn what_was_written_last_is_there_also_among_few(
        steps in prop::collection::vec((0_u64..300, 1_usize..80), 1..30),
    ) {
        check(&steps, 400);
    }
}
