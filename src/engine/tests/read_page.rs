//! Tests of `read::page`.

use super::fixture::new_file;
use crate::AtomicMappedFile;

/// Returns a deployed pair of 1 MiB, of which every page is loadable, and its bytes.
fn deployed() -> (tempfile::TempDir, AtomicMappedFile, Vec<u8>) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = new_file(folder.path(), 1 << 20);
    let data: Vec<u8> = (0..1 << 20).map(|n| (n % 251) as u8).collect();
    // Written twice, so that both slots are allocated and every page is deployed.
    for _ in 0..2 {
        file.write_at(&data, 0).expect("a write");
    }
    let is_fast = file.engine().cached_lane().is_some();
    assert!(!is_fast, "this thread has published something");
    // The first read of each region notes that its chunk is loadable.
    let mut read = vec![0; data.len()];
    file.read_at(&mut read, 0).expect("a read");
    assert!(read == data && file.stats().reads == 1);
    (folder, file, data)
}

/// Reads on the fast path of one page. Returns `true` if it succeeded.
fn in_page(file: &AtomicMappedFile, to: &mut [u8], offset: u64) -> bool {
    let engine = file.engine();
    engine.cached_lane().is_some_and(|lane| engine.read_page(lane, to, offset))
}

#[test]
fn the_fast_path_reads_deployed_pages_and_nothing_past_the_end() {
    let (_folder, file, data) = deployed();
    let in_page = |to: &mut [u8], offset: u64| in_page(&file, to, offset);
    let at_once = |len: usize, offset: u64| in_page(&mut vec![0; len], offset);
    for (len, offset) in [(1, 0), (64, 4032), (128, 8192), (127, (1 << 20) - 127)] {
        let mut read = vec![0; len];
        assert!(in_page(&mut read, offset));
        assert_eq!(read, data[offset as usize..][..len]);
    }
    assert!(at_once(4096, 4096));
    assert_eq!(file.stats().reads, 6, "each is counted");
    assert!(!at_once(2, 4095) && !at_once(4097, 0), "two pages without stamps");
    assert!(at_once(0, 5) && !at_once(0, 0) && !at_once(0, (1 << 20) + 1));
    assert!(!at_once(1, 1 << 20) && !at_once(2, (1 << 20) - 1) && !at_once(1, u64::MAX));
}

#[test]
fn a_fragmented_page_is_read_at_once() {
    let (_folder, file, data) = deployed();
    let engine = file.engine();
    let in_page = |to: &mut [u8], offset: u64| in_page(&file, to, offset);
    let at_once = |len: usize, offset: u64| in_page(&mut vec![0; len], offset);
    // Now slices 0 and 1 of page 1 are valid in the reflection file.
    file.write_at(&[7; 128], 4096).expect("a write");
    file.load::<u8>(0).expect("a read");
    let mut expected = data[4096..8192].to_vec();
    expected[..128].fill(7);
    let mut read = vec![0; 4096];
    assert!(in_page(&mut read, 4096) && read == expected, "in two fragments");
    assert!(in_page(&mut read[..40], 4100) && read[..40] == [7; 40], "from reflection alone");
    let asks = engine.cached_lane().is_some_and(|lane| !lane.recent.expects_home());
    assert!(asks, "both slots are asked for now");
    // Reads of uniform bytes, until none of the last reads was mixed.
    let expects_mixed = || engine.cached_lane().expect("a lane").recent.expects_mixed();
    let before = file.stats().reads;
    for _ in 0..8 {
        assert!(in_page(&mut read[..64], 4096 + 64) && read[..64] == expected[64..128]);
        assert!(in_page(&mut read[..64], 4096 + 128) && read[..64] == expected[128..192]);
    }
    assert!(!expects_mixed() && file.stats().reads == before + 16);
    assert!(in_page(&mut read, 4096) && read == expected, "mixed, and not expected so");
    assert!(expects_mixed() && in_page(&mut read, 4096) && read == expected, "and expected so");
    assert!(in_page(&mut read[..64], 4096 + 128) && read[..64] == expected[128..192]);
    assert!(!at_once(1, u64::MAX) && !at_once(0, u64::MAX), "nor are they where there are none");
    // As fragmented as a page can be.
    let slices: Vec<_> = (2..64).step_by(2).map(|slice| slice * 64).collect();
    slices.iter().for_each(|&at| expected[at as usize..][..64].fill(7));
    // All in one operation, so that none becomes a direct store.
    let segments: Vec<(u64, &[u8])> = slices.iter().map(|at| (4096 + at, &[7; 64][..])).collect();
    file.write_many(&segments).expect("a write");
    file.load::<u8>(0).expect("a read");
    assert!(in_page(&mut read, 4096) && read == expected, "in 64 fragments");
    for (start, len) in [(1, 4095), (0, 4095), (65, 200), (63, 2), (100, 20), (128, 640), (70, 58)]
    {
        let at_once = in_page(&mut read[..len], 4096 + start as u64);
        assert!(at_once && read[..len] == expected[start..start + len], "{len} from {start}");
    }
    assert_eq!(file.stats().deployments, 0);
    // Most of the page is valid in the reflection file.
    file.deploy(4096..8192).expect("a deployment");
    file.write_at(&[8; 4032], 4096).expect("a write");
    file.load::<u8>(0).expect("a read");
    expected[..4032].fill(8);
    assert!(in_page(&mut read, 4096) && read == expected, "from the other side");
    assert!(in_page(&mut read[..70], 4096 + 4000));
    assert!(read[..70] == expected[4000..4070]);
}

#[test]
fn a_page_that_is_locked_exclusively_is_not_read_at_once() {
    let (_folder, file, _data) = deployed();
    let engine = file.engine();
    let in_page = |to: &mut [u8], offset: u64| in_page(&file, to, offset);
    let at_once = |len: usize, offset: u64| in_page(&mut vec![0; len], offset);
    let region = engine.state.loaded(crate::units::RegionIndex(0)).expect("loaded");
    let held = crate::lock::lock_page(&region.lock, &region.pages[2].lock);
    assert!(at_once(1, 8192), "a lock holder that copies and drains keeps no reader waiting");
    held.close();
    assert!(!at_once(1, 8192) && at_once(1, 0));
    drop(held);
    file.load::<u8>(0).expect("a read");
    assert!(at_once(1, 8192));
    let elsewhere = || std::thread::scope(|s| s.spawn(|| at_once(1, 0)).join().expect("no panic"));
    assert!(!elsewhere(), "a thread without a lane");

    let cause = crate::Error::io("sync", file.path(), std::io::Error::other("a test"));
    engine.poison(&cause);
    assert!(!at_once(1, 0) && file.load::<u8>(0).is_ok());
    engine.poison_cut_off(&cause);
    assert!(!at_once(1, 0) && file.load::<u8>(0).is_err());
}

/// A hole is read through the file. Once it is filled, the fast path reads it.
#[test]
fn holes_are_not_loaded_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = new_file(folder.path(), 4 << 20);
    let engine = file.engine();
    let long_at_once = |len: usize, offset: u64| {
        let mut to = vec![0; len];
        engine.cached_lane().is_some_and(|lane| engine.read_page(lane, &mut to, offset))
    };
    let at_once = |offset: u64| long_at_once(1, offset);
    for _ in 0..2 {
        assert_eq!(file.load::<u64>(2 << 20).expect("a hole"), 0);
    }
    assert!(!at_once(2 << 20));
    // The first write goes to the reflection file, and the home slots around stay a hole.
    file.store(2 << 20, &1u64).expect("a store");
    assert_eq!(file.load::<u64>(0).expect("a load"), 0);
    assert!(long_at_once(8, 2 << 20) && !long_at_once(8, (2 << 20) + 64));
    assert!(!long_at_once(128, 2 << 20), "some of it is in a hole");
    file.store(2 << 20, &1u64).expect("a store");
    assert_eq!(file.load::<u64>(2 << 20).expect("a load"), 1);
    assert!(at_once(2 << 20));
    // A range that was truncated and comes back is a hole again.
    file.set_len(1 << 20).expect("shorter");
    file.set_len(4 << 20).expect("longer");
    assert_eq!(file.load::<u64>(2 << 20).expect("a hole"), 0);
    assert!(!at_once(2 << 20));
}
