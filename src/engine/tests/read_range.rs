//! Tests of `read::range`.

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

/// Returns `true` if the fast path reads the range, which must then hold `expected`.
fn at_once(file: &AtomicMappedFile, offset: u64, expected: &[u8]) -> bool {
    // Fences this thread's own writes.
    file.load::<u8>(LEN / 4).expect("a read");
    let mut to = vec![0xee; expected.len()];
    let engine = file.engine();
    let lane = engine.cached_lane().expect("a lane");
    let before = file.stats().reads;
    let is_read = engine.read_region(lane, &mut to, offset);
    assert_eq!(file.stats().reads - before, u64::from(is_read), "each is counted");
    assert!(!is_read || to == expected, "not what is there");
    is_read
}

#[test]
fn pages_on_one_side_are_read_at_once_and_no_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), 1);
    let region = REGION as u64;
    file.read_at(&mut vec![0; REGION], 0).expect("a read");
    assert!(at_once(&file, 0, &[1; BLOCK]), "deployed");
    assert!(at_once(&file, 0, &[1; 9]) && at_once(&file, 4090, &[1; 9]), "of any length");
    assert!(at_once(&file, 0, &[1; REGION]) && !at_once(&file, 1, &[1; REGION]), "two regions");
    file.write_at(&[2; BLOCK], BLOCK as u64).expect("a write");
    assert!(at_once(&file, BLOCK as u64, &[2; BLOCK]), "undeployed");
    assert!(at_once(&file, BLOCK as u64 + 100, &[2; BLOCK - 200]), "a part of it");
    assert!(!at_once(&file, PAGE as u64, &[0; BLOCK]), "one page on each side");
    file.write_at(&[3; 65], BLOCK as u64).expect("a write");
    assert!(!at_once(&file, BLOCK as u64, &[0; BLOCK]), "fragmented");
    assert!(!at_once(&file, LEN - 100, &[0; 101]) && !at_once(&file, u64::MAX, &[0; 2]));
    assert!(!at_once(&file, 0, &[]), "nothing");

    let state = file.engine().state.touched(crate::units::RegionIndex(0)).expect("touched");
    let held = crate::lock::lock_page(&state.lock, &state.pages[1].lock);
    assert!(
        at_once(&file, 0, &[1; BLOCK]),
        "a lock holder that copies and drains keeps no reader waiting"
    );
    held.close();
    assert!(!at_once(&file, 0, &[1; BLOCK]));
    drop(held);
    assert!(at_once(&file, 0, &[1; BLOCK]));
    assert!(!at_once(&file, 3 * region - 100, &[1; 200]), "over a region's end");
}

#[test]
fn pages_in_a_hole_are_not_loaded_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), 1);
    let hole = LEN - REGION as u64;
    let mut to = [1; BLOCK];
    file.read_at(&mut to, hole).expect("a hole");
    assert!(to == [0; BLOCK] && !at_once(&file, hole, &[0; BLOCK]));
    file.write_at(&[5; BLOCK], hole).expect("a write");
    assert!(at_once(&file, hole, &[5; BLOCK]), "what was written is there");
    assert!(!at_once(&file, hole + BLOCK as u64, &[0; BLOCK]), "and a hole behind it");
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
            let Some(lane) = engine.cached_lane() else {
                // The thread has deployed a page.
                file.load::<u8>(0).expect("a read");
                continue;
            };
            if engine.read_region(lane, &mut to, BLOCK as u64) {
                assert!(to.iter().all(|byte| *byte == to[0]), "torn");
                read += 1;
            }
        }
        read
    });
    assert!(read > 0, "nothing was read at once");
}
