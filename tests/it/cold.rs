//! Tests reads of files that are not in memory, by the pages that the kernel had to wait for.

use crate::common;
use atomic_mmap::{AtomicMappedFile, CloseMode};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

const PAGE: usize = 4096;
const PAGES: usize = 2048;

/// Drops what is clean in the page cache of all files of a folder.
fn evict(folder: &Path) {
    for entry in fs::read_dir(folder).expect("list") {
        let file = File::open(entry.expect("an entry").path()).expect("open");
        file.sync_all().expect("sync");
        // SAFETY: the descriptor is open, and the call touches no memory.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
}

/// Returns how often this thread has waited for the disk.
fn waits() -> i64 {
    // SAFETY: zeroes are a value of the structure, which the call fills.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage.ru_majflt
    }
}

/// Returns the number of pages of a file that are in the page cache.
fn cached(path: &Path) -> usize {
    let file = File::open(path).expect("open");
    let len = file.metadata().expect("its length").len() as usize;
    let mut pages = vec![0_u8; len.div_ceil(PAGE)];
    // SAFETY: the mapping is of this file, is not touched, and has a byte of `pages` for each page.
    unsafe {
        let (file, no) = (file.as_raw_fd(), std::ptr::null_mut());
        let at = libc::mmap(no, len, libc::PROT_READ, libc::MAP_SHARED, file, 0);
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::mincore(at, len, pages.as_mut_ptr()), 0);
        libc::munmap(at, len);
    }
    pages.iter().filter(|page| **page & 1 == 1).count()
}

fn byte(page: usize) -> u8 {
    (page % 251) as u8 + 1
}

/// Makes a file on a disk, closes it, and drops it from memory. Returns `None` without a disk, or
/// where the kernel keeps the pages.
fn cold(mode: CloseMode) -> Option<(common::Scratch, PathBuf)> {
    let scratch = common::page_cache()?.scratch();
    let path = scratch.file("cold");
    let file = AtomicMappedFile::create(&path, (PAGES * PAGE) as u64).expect("create");
    for page in 0..PAGES {
        file.write_at(&[byte(page); PAGE], (page * PAGE) as u64).expect("write");
    }
    file.close(mode).expect("close");
    evict(scratch.path());
    if cached(&path) > PAGES / 8 {
        eprintln!("skipped: this file system keeps its pages");
        return None;
    }
    Some((scratch, path))
}

fn open(path: &Path) -> AtomicMappedFile {
    AtomicMappedFile::open(path).expect("open")
}

/// Each page waited for the disk alone: handles that write map their files without readahead. A
/// scan took 12 to 20 times the time of one by plain reads.
#[test]
fn a_scan_waits_for_few_pages_wherever_they_lie() {
    for mode in [CloseMode::Spatial, CloseMode::Fast] {
        for len in [PAGE, 1000] {
            let Some((_scratch, path)) = cold(mode) else { return };
            let file = open(&path);
            let mut bytes = vec![0; len];
            let before = waits();
            for at in (0..PAGES * PAGE - len).step_by(len) {
                file.read_at(&mut bytes, at as u64).expect("read");
                assert_eq!(bytes[0], byte(at / PAGE));
            }
            let waited = waits() - before;
            assert!(waited < PAGES as i64 / 16, "{mode:?}, {len}: {waited} of {PAGES} pages");
            file.close(CloseMode::Fast).expect("close");
        }
    }
}

/// Transactions and snapshots read by ways of their own.
#[test]
fn a_scan_by_a_transaction_or_of_a_snapshot_waits_for_few_pages() {
    for of_snapshot in [false, true] {
        let Some((scratch, path)) = cold(CloseMode::Spatial) else { return };
        let file = open(&path);
        file.snapshot("now").expect("seal");
        file.close(CloseMode::Fast).expect("close");
        evict(scratch.path());
        let file = open(&path);
        let snapshot = file.open_snapshot("now").expect("open it");
        let mut bytes = [0; PAGE];
        let before = waits();
        if of_snapshot {
            for page in 0..PAGES {
                snapshot.read_at(&mut bytes, (page * PAGE) as u64).expect("read");
                assert_eq!(bytes[0], byte(page));
            }
        } else {
            let scan = |tx: &mut atomic_mmap::Transaction<'_>| {
                (0..PAGES).try_for_each(|page| tx.read_at(&mut bytes, (page * PAGE) as u64))
            };
            file.transact(scan).expect("read");
        }
        let waited = waits() - before;
        assert!(waited < PAGES as i64 / 16, "{of_snapshot}: {waited} of {PAGES} pages");
    }
}

/// A page that is read for another one would be written as a part of it, or lie over a hole.
#[test]
fn reads_in_no_order_bring_only_their_own_pages_into_memory() {
    let Some((_scratch, path)) = cold(CloseMode::Spatial) else { return };
    let file = open(&path);
    let before = cached(&path);
    let mut bytes = [0; PAGE];
    const READS: usize = 100;
    for n in 0..READS {
        file.read_at(&mut bytes, (n * 997 % PAGES * PAGE) as u64).expect("read");
    }
    let now = cached(&path);
    assert!(now <= before + READS, "{} pages", now - before);
    file.close(CloseMode::Fast).expect("close");
}

/// The pages of holes would take memory, and the kernel has nothing to read for them.
#[test]
fn a_scan_reads_no_holes_ahead() {
    let Some((scratch, path)) = cold(CloseMode::Spatial) else { return };
    const DATA: usize = PAGES / 4;
    let cut = File::options().write(true).open(&path).expect("open");
    cut.set_len((DATA * PAGE) as u64).expect("cut");
    cut.set_len((PAGES * PAGE) as u64).expect("lengthen");
    evict(scratch.path());
    let file = open(&path);
    let (mut bytes, before) = ([0; PAGE], waits());
    for page in 0..DATA {
        file.read_at(&mut bytes, (page * PAGE) as u64).expect("read");
        assert_eq!(bytes[0], byte(page));
    }
    assert!(waits() - before < DATA as i64 / 16);
    assert!(cached(&path) <= DATA);
    file.close(CloseMode::Spatial).expect("close");
}
