//! Tests of `write::direct`.

use super::fixture::{open, options};
use crate::bitmap::Validity;
use crate::units::{PAGE, REGION, RegionIndex, SLICE};
use crate::{AtomicMappedFile, Error, Medium};
use std::sync::atomic::{AtomicBool, Ordering};

/// Creates a file of one chunk, deployed and allocated as a whole.
fn file(folder: &std::path::Path, medium: Medium) -> AtomicMappedFile {
    let file = open(folder, options(2 << 20).medium(medium));
    for _ in 0..2 {
        file.write_at(&[1; 2 << 20], 0).expect("a write");
        // A flip of two slices by the page's slice word.
        file.write_at(&[1; 128], 0).expect("a write");
    }
    file
}

fn validity(file: &AtomicMappedFile) -> Validity {
    file.engine().state.loaded(RegionIndex(0)).expect("loaded").validity(0)
}

/// Writes `len` twos and checks the bytes around them. Returns `true` if no valid slot has
/// changed.
fn stays(file: &AtomicMappedFile, offset: u64, len: usize) -> bool {
    let (mut expected, mut found) = ([0; PAGE], [0; PAGE]);
    file.read_at(&mut expected, 0).expect("a read");
    expected[offset as usize..][..len].fill(2);
    let before = validity(file);
    file.write_at(&vec![2; len], offset).expect("a write");
    file.read_at(&mut found, 0).expect("a read");
    assert!(found == expected, "{len} bytes at {offset}");
    validity(file) == before
}

#[test]
fn a_direct_store_goes_to_the_valid_slot() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), Medium::Ram);
    assert_eq!(validity(&file), Validity(0));
    let writes = || file.stats().direct_writes;
    let (before, in_words) = (writes(), [(0, 8), (64, 1), (133, 3), (63, 1), (4088, 8), (124, 4)]);
    for (offset, len) in in_words {
        assert!(stays(&file, offset, len), "{len} bytes at {offset}");
    }
    assert_eq!(writes() - before, in_words.len() as u64);
    // The store unit is a slice on some processors, and a word on the others.
    let has_slices = file.engine().direct.unit == SLICE;
    for (offset, len) in [(6, 4), (1, 8), (8, 16), (64, 64), (65, 62), (4033, 63), (129, 20)] {
        assert_eq!(stays(&file, offset, len), has_slices, "{len} bytes at {offset}");
    }
    assert!(!has_slices || validity(&file) == Validity(0));
    file.deploy(0..PAGE as u64).expect("a deployment");
    for (offset, len) in [(60, 5), (0, 65), (127, 2), (4031, 2)] {
        assert!(!stays(&file, offset, len), "{len} bytes at {offset} are in two slices");
    }
    // Also a slice that is valid in the reflection file, and then one that is deployed.
    file.deploy(0..PAGE as u64).expect("a deployment");
    assert!(!stays(&file, 256, 128) && validity(&file).0 == 0b11 << 4);
    for (offset, len) in [(264, 8), (319, 1), (264, 4), (0, 8), (320, 8)] {
        assert!(stays(&file, offset, len), "{len} bytes at {offset}");
    }
    // A transaction that writes nothing else, after it has read the value.
    let before = validity(&file);
    assert_eq!(
        file.slot::<u64>(264).expect("a slot").fetch_add(1).expect("a sum"),
        u64::MAX / 255 * 2
    );
    assert!(validity(&file) == before && file.load::<u8>(264).expect("a read") == 3);
    file.transact(|tx| tx.store(264, &[1u8; 4]).and_then(|()| tx.store(512, &1u8))).expect("two");
    assert!(validity(&file) != before, "not of two");
    // On either side that the thread may expect the slices on.
    for away in [256, 0] {
        file.write_at(&[2; 8], away).expect("a write");
        for (offset, len) in [(2 << 20, 1), (u64::MAX, 8), (u64::MAX, 1), ((2 << 20) - 1, 2)] {
            assert!(file.write_at(&vec![2; len], offset).is_err(), "{len} bytes at {offset}");
        }
    }
    file.write_at(&[], 0).expect("nothing");
}

/// One thread stores directly and reads back when a second thread begins. The second one locks the
/// same page and its region, flips slices, and deploys.
#[test]
fn no_direct_store_is_lost_when_a_second_thread_begins() {
    let folder = tempfile::tempdir().expect("a folder");
    for round in 0..60u64 {
        let folder = folder.path().join(round.to_string());
        std::fs::create_dir(&folder).expect("a folder");
        let file = file(&folder, Medium::Ram);
        let has_begun = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                while !has_begun.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                for n in 0..200u64 {
                    file.store(64, &n).expect("a write");
                    file.write_at(&[n as u8; 200], 128).expect("a flip");
                    if n.is_multiple_of(8) {
                        file.deploy(0..PAGE as u64).expect("a deployment");
                    }
                    assert_eq!(file.load::<u64>(64).expect("a read"), n);
                }
            });
            for n in 0..2000u64 {
                file.store(0, &n).expect("a write");
                assert_eq!(file.load::<u64>(0).expect("a read"), n);
                has_begun.store(n >= 5 * round, Ordering::Relaxed);
            }
        });
        assert_eq!(file.load::<u64>(0).expect("a read"), 1999);
        assert_eq!(file.load::<[u8; 200]>(128).expect("a read"), [199; 200]);
        file.close(crate::CloseMode::Spatial).expect("to close");
    }
}

/// A direct store counts as one written line, whatever part of the line it stores.
#[test]
fn each_direct_store_is_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), Medium::Ram);
    let before = file.stats();
    (0..10).for_each(|n| file.write_at(&[n; 5], 8 * u64::from(n)).expect("a write"));
    let after = file.stats();
    assert_eq!(after.direct_writes - before.direct_writes, 10);
    assert_eq!(after.bytes_asked - before.bytes_asked, 50);
    assert_eq!(after.bytes_written - before.bytes_written, 10 * SLICE as u64);
    assert_eq!(after.flip_writes, before.flip_writes);
}

/// Other threads may observe a torn store, and then they retry.
#[test]
fn a_read_beside_direct_stores_sees_one_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), Medium::Ram);
    let is_done = AtomicBool::new(false);
    file.write_at(&[0; SLICE], 128).expect("a write");
    std::thread::scope(|s| {
        s.spawn(|| {
            for round in 0..200_000u32 {
                file.write_at(&[round as u8; SLICE], 128).expect("a write");
            }
            is_done.store(true, Ordering::SeqCst);
        });
        while !is_done.load(Ordering::SeqCst) {
            let mut to = [0; SLICE];
            file.read_at(&mut to, 128).expect("a read");
            assert!(to.iter().all(|byte| *byte == to[0]), "torn: {to:?}");
        }
    });
}

/// A write that fails or is empty must neither make readers of the page retry nor clear the
/// page's deployed stamp.
#[test]
fn a_write_that_stores_nothing_leaves_no_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), Medium::Ram);
    file.set_len(8196).expect("shorter");
    file.deploy(0..8196).expect("a deployment");
    let region = file.engine().state.loaded(RegionIndex(0)).expect("loaded");
    let versions = || [0, 2].map(|n| region.pages[n].lock.begin().expect("open"));
    let (before, known) = (versions(), region.stamped_pages());
    file.write_at(&[], 0).expect("nothing");
    assert!(file.write_at(&[2; 8], 8192).is_err() && file.write_at(&[2], 8196).is_err());
    assert_eq!((versions(), region.stamped_pages()), (before, known));
    // A region lock clears the intention bit. The next page lock sets it again, once.
    file.set_len(2 << 20).expect("longer");
    file.write_at(&[3; REGION], 0).expect("a write");
    let (before, stores) = (versions(), file.stats().direct_writes);
    file.write_at(&[4; 8], 8).expect("a write");
    assert_eq!(file.stats().direct_writes, stores + 1);
    assert_eq!(versions()[0].number(), before[0].number() + 1, "one version more");
}

/// A thread that alternates between two files has no cached lane of either.
#[test]
fn a_thread_with_two_files_makes_direct_stores_to_both() {
    let folder = tempfile::tempdir().expect("a folder");
    let [one, two] = ["one", "two"].map(|name| {
        let folder = folder.path().join(name);
        std::fs::create_dir(&folder).expect("a folder");
        file(&folder, Medium::Ram)
    });
    let before = [&one, &two].map(|file| file.stats());
    (0..10).for_each(|n| {
        [&one, &two].iter().for_each(|file| file.write_at(&[n; 8], 64).expect("a write"));
    });
    for (file, before) in [&one, &two].into_iter().zip(before) {
        assert_eq!(file.stats().direct_writes, before.direct_writes + 10);
        assert_eq!(file.load::<u8>(64).expect("a read"), 9);
    }
}

/// A write past a new end stores nothing and fails.
#[test]
fn no_direct_store_goes_past_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), Medium::Ram);
    file.write_at(&[1; 8], 8192).expect("a write");
    file.set_len(8196).expect("shorter");
    assert!(matches!(file.write_at(&[2; 8], 8192), Err(Error::PastEnd { .. })));
    file.write_at(&[3; 4], 8192).expect("up to the end");
    file.set_len(2 << 20).expect("longer");
    assert_eq!(file.load::<[u8; 8]>(8192).expect("a read"), [3, 3, 3, 3, 0, 0, 0, 0]);
}

#[test]
fn no_direct_store_goes_to_a_pinned_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), Medium::Ram);
    let view = file.view(0..128).expect("a view");
    // The page may have a deployed stamp before the first write. It has none before the second,
    // since a slice is not deployed.
    for offset in [8, 72] {
        assert!(!stays(&file, offset, 8));
    }
    assert_eq!(view.to_vec().expect("its bytes"), [1; 128]);
    drop(view);
    assert!(stays(&file, 8, 8));
}

#[test]
fn no_direct_store_is_made_on_persistent_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    // A processor without the instructions of this medium cannot open it.
    let probe = options(2 << 20).medium(Medium::Dax).open(folder.path().join("probe"));
    if probe.is_err() {
        return;
    }
    let file = file(folder.path(), Medium::Dax);
    assert!(!stays(&file, 0, 8));
}
