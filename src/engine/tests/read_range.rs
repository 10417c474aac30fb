//! Tests of `read::try_read` over several pages, and of the side that it asks a region for.

use super::fixture::{fill, new_file};
use crate::AtomicMappedFile;
use crate::units::{PAGE, REGION};
use std::sync::atomic::{AtomicBool, Ordering};

const LEN: u64 = 4 << 20;

const BLOCK: usize = 2 * PAGE;

/// Opens a pair in which every byte of the first half is `byte` and every page is deployed.
fn file(folder: &std::path::Path, byte: u8) -> AtomicMappedFile {
    let file = new_file(folder, LEN);
    fill(&file, byte, LEN / 2);
    file
}

/// Makes one optimistic attempt. Returns the number of pieces, or `None` if it fails. The range
/// must hold `expected`.
fn pieces(file: &AtomicMappedFile, offset: u64, expected: &[u8]) -> Option<usize> {
    let engine = file.engine();
    let mut to = vec![0xee; expected.len()];
    let found = engine.try_read(&engine.lane_fenced(), &mut to, offset, false).expect("a read")?;
    assert!(to == expected, "not what is there");
    assert_eq!(found.is_away, expected.iter().any(|byte| [2, 3].contains(byte)));
    Some(found.pieces)
}

/// A part of the file is no read of the whole file, although it lies within.
#[test]
fn a_read_of_the_whole_file_takes_no_part_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), 1);
    let engine = file.engine();
    let whole = |len: usize| {
        let mut to = vec![0; len];
        let found = engine.try_read(&engine.lane_fenced(), &mut to, 0, true).expect("within");
        found.is_some()
    };
    assert!(whole(LEN as usize));
    assert!(!whole(LEN as usize - 1) && !whole(PAGE) && !whole(0));
}

#[test]
fn pages_on_one_side_are_read_in_one_piece() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), 1);
    assert_eq!(pieces(&file, 0, &[1; BLOCK]), Some(1), "deployed");
    assert_eq!(pieces(&file, 4090, &[1; 9]), Some(1), "of any length");
    assert_eq!(pieces(&file, 0, &[]), Some(0), "nothing");
    assert_eq!(pieces(&file, 1, &[1; 2 * REGION]), Some(1), "of several regions");
    file.write_at(&[2; BLOCK], BLOCK as u64).expect("a write");
    assert_eq!(pieces(&file, BLOCK as u64, &[2; BLOCK]), Some(1), "undeployed");
    assert_eq!(pieces(&file, BLOCK as u64 + 100, &[2; BLOCK - 200]), Some(1), "a part of it");
    let both = [[1; PAGE], [2; PAGE]].concat();
    assert_eq!(pieces(&file, PAGE as u64, &both), Some(2), "one page on each side");
    file.write_at(&[3; 65], BLOCK as u64).expect("a write");
    let mixed = [&[3; 65][..], &[2; BLOCK - 65]].concat();
    assert!(pieces(&file, BLOCK as u64, &mixed) > Some(1), "fragmented");

    let state = file.engine().state.loaded(crate::units::RegionIndex(0)).expect("loaded");
    let held = crate::lock::lock_page(&state.lock, &state.pages[1].lock);
    // A lock holder that copies and drains keeps no reader waiting.
    assert_eq!(pieces(&file, 0, &[1; BLOCK]), Some(1));
    held.close();
    assert_eq!(pieces(&file, 0, &[1; BLOCK]), None);
    drop(held);
    assert_eq!(pieces(&file, 0, &[1; BLOCK]), Some(1));
}

#[test]
fn pages_in_a_hole_are_read_beside_written_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), 1);
    let hole = LEN - REGION as u64;
    assert_eq!(pieces(&file, hole, &[0; BLOCK]), Some(1));
    file.write_at(&[2; BLOCK], hole).expect("a write");
    assert_eq!(pieces(&file, hole, &[2; BLOCK]), Some(1), "what was written is there");
    assert_eq!(pieces(&file, hole + BLOCK as u64, &[0; BLOCK]), Some(1), "a hole behind it");
    let both = [[2; BLOCK], [0; BLOCK]].concat();
    assert_eq!(pieces(&file, hole, &both), Some(2));
}

#[test]
fn a_block_that_is_written_again_and_again_is_read_in_one_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), 0);
    let is_done = AtomicBool::new(false);
    let read = std::thread::scope(|s| {
        s.spawn(|| {
            for round in 0..30_000u32 {
                file.write_at(&[round as u8; BLOCK], BLOCK as u64).expect("a write");
            }
            is_done.store(true, Ordering::SeqCst);
        });
        let (mut to, mut read) = ([0; BLOCK], 0);
        while !is_done.load(Ordering::SeqCst) {
            let engine = file.engine();
            let found = engine.try_read(&engine.lane_fenced(), &mut to, BLOCK as u64, false);
            if found.expect("a read").is_some() {
                assert!(to.iter().all(|byte| *byte == to[0]), "torn");
                read += 1;
            }
        }
        read
    });
    assert!(read > 0, "nothing was read at once");
}
