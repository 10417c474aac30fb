//! Holds tests in which a read pauses right after it has loaded the length, while another thread
//! shrinks the file.
//!
//! During the pause the file becomes shorter. Then a writer that has seen the new length writes to
//! the part that stays. The shrink cannot finish its truncation before the reader leaves its read
//! section. So the old bytes past the new end are still there. A read that returns them together
//! with the writer's bytes has returned a state that never existed.

use super::fixture::{fill, new_file};
use crate::AtomicMappedFile;
use crate::engine::Engine;
use crate::pair::pause;
use crate::pair::read_set::ReadSet;
use crate::units::{PAGE, REGION};
use std::sync::mpsc::channel;

const OLD: u8 = 1;

const NEW: u8 = 2;

pub(in crate::engine) const LEN: u64 = 4 * REGION as u64;

/// Opens a pair in which every byte is `OLD` and all regions are loaded. This thread has no
/// unfenced publication.
pub(in crate::engine) fn file(folder: &std::path::Path) -> AtomicMappedFile {
    let file = new_file(folder, LEN);
    fill(&file, OLD, LEN);
    file.read_at(&mut [0; LEN as usize], 0).expect("a read");
    file.read_at(&mut [0; 8], 0).expect("a read");
    file
}

/// Lets `read` fill `len` bytes from `offset`, and pauses it after it first loads the length.
/// During the pause the file shrinks to `len - cut` bytes past `offset`. Fails if the read returns
/// `NEW` bytes together with `OLD` bytes past the new end.
fn check(offset: u64, len: usize, cut: usize, read: impl FnOnce(&Engine, &mut [u8]) -> bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path());
    let new_len = offset + (len - cut) as u64;
    let (pauses, has_paused) = channel();
    let (goes_on, may_go_on) = channel::<()>();
    std::thread::scope(|scope| {
        let shrinker = scope.spawn({
            let file = &file;
            move || {
                // There is no pause if the read loaded no length.
                let Ok(()) = has_paused.recv() else { return };
                std::thread::scope(|scope| {
                    scope.spawn(|| file.set_len(new_len).expect("shorter"));
                    while file.len() != new_len {
                        std::thread::yield_now();
                    }
                    file.write_at(&[NEW; 8], offset)
                        .expect("a write by a thread that has seen the new end");
                    goes_on.send(()).expect("the reader waits");
                });
            }
        });
        pause::at_next_length(move || {
            pauses.send(()).expect("the other thread waits");
            may_go_on.recv().expect("an answer");
        });
        let mut to = vec![0; len];
        let is_read = read(file.engine(), &mut to);
        shrinker.join().expect("no panic");
        let is_mixed = to[0] == NEW && to[len - cut..].contains(&OLD);
        assert!(!(is_read && is_mixed), "bytes written after the truncate, and truncated bytes");
        assert_eq!(file.len(), new_len, "the read has paused");
    });
}

#[test]
fn a_read_of_one_page_beside_a_cut_is_of_one_state() {
    // The new end cuts the page in two.
    let offset = REGION as u64;
    check(offset, 256, 128, |engine, to| {
        let lane = engine.cached_lane().expect("a lane");
        engine.read_page(lane, to, offset)
    });
}

#[test]
fn a_read_of_several_pages_beside_a_cut_is_of_one_state() {
    for cut in [PAGE, PAGE / 2] {
        check(REGION as u64, 2 * PAGE, cut, |engine, to| {
            engine
                .try_read(&engine.lane(), to, REGION as u64, false)
                .is_ok_and(|read| read.is_some())
        });
    }
}

#[test]
fn a_read_over_regions_beside_a_cut_is_of_one_state() {
    for cut in [REGION, PAGE / 2] {
        check(REGION as u64, 2 * REGION, cut, |engine, to| {
            engine
                .try_read(&engine.lane(), to, REGION as u64, false)
                .is_ok_and(|read| read.is_some())
        });
    }
}

#[test]
fn a_transactions_read_beside_a_cut_is_of_one_state() {
    for cut in [REGION, PAGE / 2] {
        check(REGION as u64, 2 * REGION, cut, |engine, to| {
            let read = engine.read_tracked(to, REGION as u64, &mut ReadSet::default());
            read.is_ok_and(|is_read| is_read)
        });
    }
}

#[test]
fn a_plain_read_beside_a_cut_is_of_one_state() {
    for (len, cut) in [(256, 128), (2 * PAGE, PAGE), (2 * REGION, REGION)] {
        check(REGION as u64, len, cut, |engine, to| engine.read(to, REGION as u64).is_ok());
    }
}
