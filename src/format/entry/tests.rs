//! Tests of the log records' bytes.
//!
//! May import: the parent, `layout` and `units`.

use super::sequence::SEQUENCE_BITS;
use super::*;
use crate::format::layout::{BATCH, MAX_LEN, RING, UNDO_ENTRY_LEN};
use crate::units::{LaneIndex, PageIndex, RegionIndex};

fn seed() -> Seed {
    Seed::new(b"0123456789abcdef", 3)
}

#[test]
fn every_flipped_bit_of_an_undo_entry_is_noticed() {
    let seed = seed().undo(LaneIndex(0));
    let word = WordId::Slice(PageIndex(3));
    let body = UndoBody::Inline(vec![OldBits { word, mask: 6, old: 2 }]);
    let entry = Undo { sequence: Sequence(3), body }.encode(seed);
    for bit in 0..entry.len() * 8 {
        let mut place = [0xEE; UNDO_ENTRY_LEN];
        place[..entry.len()].copy_from_slice(&entry);
        place[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Undo::decode(seed, &place), Found::Torn, "bit {bit}");
    }
}

#[test]
fn undo_entries_come_back() {
    let seed = seed().undo(LaneIndex(1));
    let records: Vec<OldBits> = (0..UNDO_INLINE as u64)
        .map(|i| OldBits {
            word: if i % 2 == 0 {
                WordId::Slice(PageIndex(i))
            } else {
                WordId::Region(RegionIndex(i))
            },
            mask: !i,
            old: !i & 0xF0F0,
        })
        .collect();
    let spill = Spill::of(seed, Sequence(2), 1 << 20, b"words");
    let (flips, flipped) = (0b101, 0b100);
    let page = RedoPage { page: PageIndex(3), stays: 0b10, flips, flipped, bytes: vec![7; 64] };
    for body in [
        UndoBody::Inline(records.clone()),
        UndoBody::Inline(records[..1].to_vec()),
        UndoBody::SpilledUndo(spill),
        UndoBody::SpilledRedo(spill),
        UndoBody::Redo(Redo { len: None, pages: vec![page.clone()] }),
        UndoBody::Redo(Redo { len: Some(77), pages: vec![page] }),
        UndoBody::Redo(Redo { len: Some(MAX_LEN), pages: vec![] }),
    ] {
        let entry = Undo { sequence: Sequence(2), body };
        let mut place = [0xEE; UNDO_ENTRY_LEN];
        let bytes = entry.encode(seed);
        place[..bytes.len()].copy_from_slice(&bytes);
        assert_eq!(Undo::decode(seed, &place), Found::Valid(entry));
        place[20] ^= 1;
        assert_eq!(Undo::decode(seed, &place), Found::Torn);
    }
    let sum = |sequence, pieces: &[&[u8]]| {
        let mut sum = SpillSum::new(seed, sequence);
        pieces.iter().for_each(|piece| sum.add(piece));
        sum
    };
    assert!(spill.matches(sum(Sequence(2), &[b"words"])));
    assert!(spill.matches(sum(Sequence(2), &[b"wo", b"rds"])));
    assert!(!spill.matches(sum(Sequence(2), &[b"word"])));
    assert!(!spill.matches(sum(Sequence(3), &[b"words"])));
    assert!(!spill.matches(sum(Sequence(2), &[b"wordz"])));
}

#[test]
fn two_words_take_one_cache_line() {
    let records = vec![OldBits { word: WordId::Slice(PageIndex(1)), mask: 1, old: 0 }; 2];
    let entry = Undo { sequence: Sequence::FIRST, body: UndoBody::Inline(records) };
    assert_eq!(entry.encode(seed().undo(LaneIndex(0))).len(), 64);
}

#[test]
fn redo_pages_come_back_and_cut_ones_do_not() {
    let pages = vec![
        RedoPage {
            page: PageIndex(3),
            stays: 0b101,
            flips: 0b1010,
            flipped: 0b1000,
            bytes: vec![7; 128],
        },
        RedoPage { page: PageIndex(9), stays: !0, flips: 0, flipped: 0, bytes: vec![8; 4096] },
    ];
    let mut bytes = Vec::new();
    pages.iter().for_each(|page| page.encode_to(&mut bytes));
    assert_eq!(Redo::decode(&bytes), Some(Redo { len: None, pages: pages.clone() }));
    assert_eq!(Redo::decode(&bytes[..bytes.len() - 1]), None);
    for len in [0, 5000, MAX_LEN] {
        let mut longer = Vec::new();
        let redo = Redo { len: Some(len), pages: pages.clone() };
        redo.encode_to(&mut longer);
        assert_eq!(longer.len(), LENGTH_ENTRY_LEN + bytes.len());
        assert_eq!(Redo::decode(&longer), Some(redo));
    }
    // A second length, a length that no file has, and a half of one.
    let said = |len: u64| [[0xFF; 8], len.to_le_bytes()].concat();
    assert_eq!(Redo::decode(&[said(1), said(1)].concat()), None);
    assert_eq!(Redo::decode(&said(MAX_LEN + 1)), None);
    assert_eq!(Redo::decode(&said(1)[..8]), None);
}

#[test]
fn sequences_wrap() {
    let last = Sequence((1 << SEQUENCE_BITS) - 1);
    assert!(last.is_before(last.next()));
    assert!(!last.next().is_before(last));
    assert!(!last.is_before(last));
    assert_eq!(last.next().place(), (last.place() + 1) % RING);
}

/// Also where the numbers wrap around.
#[test]
fn what_is_needed_ends_with_a_batch_and_has_its_place_to_itself() {
    for number in (1..100).chain((1 << 40) - 40..1 << 40) {
        let number = Sequence(number);
        let from = number.needed_from();
        assert!(from.ends_batch() && from.is_before(number), "{number:?}");
        let needed: Vec<usize> =
            std::iter::successors(Some(from), |n| (*n != number).then(|| n.next()))
                .map(Sequence::place)
                .collect();
        assert!(needed.len() <= BATCH + 1 && BATCH < RING);
        // No batch ended between the two: otherwise one more record would be needed.
        assert_eq!(needed.iter().filter(|n| **n % BATCH == BATCH - 1).count(), {
            1 + usize::from(number.ends_batch())
        });
    }
}

#[test]
fn garbage_never_panics() {
    let mut x = 0x9E37_79B9_7F4A_7C15u64;
    for _ in 0..20_000 {
        let mut undo = [0u8; UNDO_ENTRY_LEN];
        for byte in undo.iter_mut().step_by(7) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            *byte = x as u8;
        }
        let found = Undo::decode(seed().undo(LaneIndex(0)), &undo);
        assert!(!matches!(found, Found::Valid(_)));
        let _ = Redo::decode(&undo);
        let _ = OldBits::decode_all(&undo);
    }
}
