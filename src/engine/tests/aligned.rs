//! Tests of page-aligned writes.

use super::fixture::new_file;
#[cfg(feature = "recorder")]
use super::fixture::options;
use crate::AtomicMappedFile;
use crate::lock::lock_page;
use crate::units::{PAGE, REGION, RegionIndex};
use std::time::Duration;

/// A lock holder may flip the page while a writer waits for it.
#[test]
fn a_page_that_flips_before_it_is_locked_is_not_copied_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = new_file(folder.path(), 1 << 20);
    let write = |n: u8| file.write_at(&[n; PAGE], 0).expect("a write");
    // Both slots of the page are allocated. They hold the last write and the one before.
    (1..=4).for_each(write);
    let region = file.engine().state.loaded(RegionIndex(0)).expect("it was written");
    std::thread::scope(|scope| {
        let held = lock_page(&region.lock, &region.pages[0].lock);
        scope.spawn(|| write(5));
        std::thread::sleep(Duration::from_millis(20));
        held.close();
        // The step of a page flip that changes the cached copy.
        region.set_slice_word(0, !region.pages[0].slice_word());
    });
    let mut found = [0; PAGE];
    file.read_at(&mut found, 0).expect("a read");
    assert_eq!(found, [5; PAGE]);
}

/// A write that needs no space does not fail with `NoSpace` because of a concurrent writer.
#[test]
#[cfg(feature = "recorder")]
fn a_writer_without_space_for_an_undo_record_waits_for_the_region_word() {
    use crate::platform::{call, recorder::Recorder};
    let folder = tempfile::tempdir().expect("a folder");
    let recorder = Recorder::new();
    let path = folder.path().join("state.dat");
    let file = options(1 << 18).open_recorded(&recorder, path).expect("a pair");
    let write = |n: u8, pages: usize| file.write_at(&vec![n; pages * PAGE], 0);
    (0..2).for_each(|n| write(n, 64).expect("a write"));
    let region = file.engine().state.loaded(RegionIndex(0)).expect("it was written");
    recorder.fail_from(call::ALLOCATE, 1, libc::ENOSPC);
    std::thread::scope(|scope| {
        let (before, taken) = (file.stats(), region.try_lock_word().expect("no thread has it"));
        let writer = scope.spawn(|| write(2, 2));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!writer.is_finished());
        drop(taken);
        writer.join().expect("no panic").expect("a write");
        assert_eq!(file.stats().flip_writes - before.flip_writes, 1);
        let taken = region.try_lock_word().expect("no thread has it");
        let deployer = scope.spawn(|| file.deploy(0..2 * PAGE as u64));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!deployer.is_finished());
        drop(taken);
        assert_eq!(deployer.join().expect("no panic").expect("a deployment"), 2, "pages");
    });
    let _it_came_up = recorder.heal();
    let (before, _taken) = (file.stats(), region.try_lock_word().expect("no thread has it"));
    write(3, 2).expect("a write");
    assert_eq!(file.stats().undo_writes - before.undo_writes, 1, "there is space");
}

/// Two writers write blocks of one region. One gets the region's word, and the other uses the
/// slice words of its pages.
#[test]
fn a_writer_without_the_region_word_uses_slice_words() {
    const BLOCK: usize = 2 * PAGE;
    let (file, mut expected, folder) = region_after(&[(0, 64), (0, 64)]);
    let region = file.engine().state.loaded(RegionIndex(0)).expect("it was written");
    let mut step = |at: usize, is_taken: bool, is_deployed: bool| {
        let (before, n) = (file.stats(), expected[at].wrapping_add(1));
        let taken = is_taken.then(|| region.try_lock_word().expect("no thread has it"));
        assert!(!is_taken || region.try_lock_word().is_none());
        if is_deployed {
            file.deploy(at as u64..(at + BLOCK) as u64).expect("a deployment");
            assert_eq!(file.stats().deployments - before.deployments, 2);
        } else {
            expected[at..at + BLOCK].fill(n);
            file.write_at(&[n; BLOCK], at as u64).expect("a write");
            let after = file.stats();
            let [flips, undos] = [u64::from(!is_taken), u64::from(is_taken)];
            assert_eq!(after.flip_writes - before.flip_writes, flips);
            assert_eq!(after.undo_writes - before.undo_writes, undos);
        }
        drop(taken);
        assert!(is_whole(&file, &expected), "at {at}, {is_taken}, {is_deployed}");
        region.region_word()
    };
    assert_eq!(step(0, false, false), 0b11);
    assert_eq!(step(0, true, false), 0b11, "by their own words");
    assert_eq!(step(0, true, false), 0b11, "and undeployed again");
    assert_eq!(step(0, true, true), 0b11, "deployed, by their own");
    assert_eq!(step(BLOCK, false, false), 0b1111);
    assert_eq!(step(BLOCK, true, true), 0b1111);
    assert_eq!(step(BLOCK, false, false), 0b0011, "undeployed by both");
    assert_eq!(step(BLOCK, false, true), 0b0011, "its region bit has not undeployed it");
    assert_eq!(step(2 * BLOCK, false, false), 0b11_0011);
    assert_eq!(step(2 * BLOCK, false, true), 0b00_0011);
    // Opening relies on the words that were stored.
    drop(file);
    let file = AtomicMappedFile::open(folder.path().join("state.dat")).expect("open");
    assert!(is_whole(&file, &expected));
}

/// Returns a file of one region after page-aligned writes of `(first page, page count)`, and
/// its expected bytes.
fn region_after(writes: &[(usize, usize)]) -> (AtomicMappedFile, Vec<u8>, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = new_file(folder.path(), 1 << 18);
    let mut expected = vec![0; REGION];
    for (n, &(first, count)) in writes.iter().enumerate() {
        let range = first * PAGE..(first + count) * PAGE;
        expected[range.clone()].fill(n as u8 + 1);
        file.write_at(&expected[range.clone()], range.start as u64).expect("a write");
    }
    (file, expected, folder)
}

fn is_whole(file: &AtomicMappedFile, expected: &[u8]) -> bool {
    let mut found = vec![0; expected.len()];
    file.read_at(&mut found, 0).expect("a read");
    // Once more page by page: a read of one page does not ask the region for its side.
    let is_right = |(n, page): (usize, &[u8])| {
        let mut found = [0; PAGE];
        file.read_at(&mut found[..page.len()], (n * PAGE) as u64).expect("a read");
        found[..page.len()] == *page
    };
    found == expected && expected.chunks(PAGE).enumerate().all(is_right)
}

#[test]
fn a_whole_region_is_written_over_pages_with_other_slice_words() {
    let (file, _, _folder) = region_after(&[(0, 64), (0, 64), (0, 64)]);
    file.write_at(&[7; 128], 4096).expect("a write");
    for n in 10..14 {
        let expected = vec![n; REGION];
        file.write_at(&expected, 0).expect("a write");
        assert!(is_whole(&file, &expected), "{n}");
    }
    file.deploy(0..REGION as u64).expect("a deployment");
    file.write_at(&vec![20; REGION], 0).expect("a write");
    assert!(is_whole(&file, &[20; REGION]));
    // Fragmented pages, and truncated ones.
    file.write_at(&[21; PAGE], 8192).expect("a write");
    file.set_len(PAGE as u64).expect("shorter");
    file.set_len(REGION as u64).expect("longer");
    let mut expected = vec![0; REGION];
    expected[..PAGE].fill(20);
    assert!(is_whole(&file, &expected));
    file.write_at(&vec![22; REGION], 0).expect("a write");
    assert!(is_whole(&file, &[22; REGION]));
}

/// All pages can be valid on one side by words that differ: some by their slice words, some by
/// the region word.
#[test]
fn pages_on_one_side_need_not_have_equal_slice_words() {
    let (file, expected, _folder) = region_after(&[(0, 1), (1, 63), (0, 64), (1, 63), (0, 64)]);
    assert!(is_whole(&file, &expected));
}
