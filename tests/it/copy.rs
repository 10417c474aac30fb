//! Tests that a copy of an open file holds one state of the file.

use crate::common::{self, Rng, assert_same, media, read_all};
use atomic_mmap::testing::{PAGE, REGION, call, recorder::Recorder};
use atomic_mmap::{AtomicMappedFile, CloseMode, Durability, Error};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

const LEN: u64 = 3 << 20;

#[test]
fn a_copy_has_every_byte_wherever_it_lies() {
    for ground in media() {
        for durability in [Durability::OnSync, Durability::AtomicSync] {
            let scratch = ground.scratch();
            let options = || ground.options().create(true).len(LEN).durability(durability);
            let path = scratch.file("state.dat");
            let file = options().open(&path).expect("open");
            let mut rng = Rng(5);
            for n in 0..200 {
                let size = 1 + rng.below(20_000);
                let offset = rng.below(LEN - size);
                file.write_at(&rng.bytes(size as usize), offset).expect("write");
                if n == 100 {
                    file.sync().expect("sync");
                }
            }
            let expected = read_all(&file);
            let copy = scratch.file("copy.dat");
            file.copy_to(&copy).expect("copy");
            assert_same(&fs::read(&copy).expect("read"), &expected, "the copy");
            // The copy opens as a plain file next to the original.
            let other = options().open(&copy).expect("open the copy");
            assert_same(&read_all(&other), &expected, "the copy, opened");
            other.close(CloseMode::Spatial).expect("close");
            // A copy after a fast close, with words that this session has not loaded.
            file.close(CloseMode::Fast).expect("close");
            let file = options().open(&path).expect("open again");
            file.copy_to(scratch.file("again.dat")).expect("copy again");
            assert_same(&fs::read(scratch.file("again.dat")).expect("read"), &expected, "again");
        }
    }
}

/// Threads move money between accounts. A copy that mixes two states has another total.
#[test]
fn a_copy_is_one_state_while_threads_write() {
    const ACCOUNTS: u64 = 64;
    let at = |n: u64| n * (REGION as u64) / 8;
    let total = |bytes: &[u8]| {
        let word = |n| u64::from_le_bytes(bytes[at(n) as usize..][..8].try_into().expect("8"));
        (0..ACCOUNTS).map(word).sum::<u64>()
    };
    for ground in media() {
        let scratch = ground.scratch();
        let file = ground.options().create(true).len(LEN).open(scratch.file("x")).expect("open");
        for n in 0..ACCOUNTS {
            file.store(at(n), &1000_u64).expect("store");
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for seed in 1..3 {
                let (file, is_over) = (&file, &is_over);
                scope.spawn(move || {
                    let mut rng = Rng(seed);
                    while !is_over.load(Ordering::Relaxed) {
                        let (from, to) = (at(rng.below(ACCOUNTS)), at(rng.below(ACCOUNTS)));
                        let moved = file.transact(|tx| {
                            let (a, b): (u64, u64) = (tx.load(from)?, tx.load(to)?);
                            if from != to && a > 0 {
                                tx.store(from, &(a - 1))?;
                                tx.store(to, &(b + 1))?;
                            }
                            Ok::<_, Error>(())
                        });
                        moved.expect("transact");
                    }
                });
            }
            for n in 0..8 {
                let copy = scratch.file(&format!("copy-{n}"));
                file.copy_to(&copy).expect("copy");
                assert_eq!(total(&fs::read(&copy).expect("read")), ACCOUNTS * 1000, "copy {n}");
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}

/// A writer stores to a region that held nothing, and then to a region that is being copied. A copy
/// with the second write must have the first one.
#[test]
fn a_copy_has_what_came_first_of_two_writes_to_regions_that_held_nothing() {
    const REGIONS: u64 = 100;
    for ground in media() {
        let scratch = ground.scratch();
        let len = REGIONS * REGION as u64;
        let file = ground.options().create(true).len(len).open(scratch.file("x")).expect("open");
        file.store(0, &0_u64).expect("store");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..REGIONS {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    file.store(n * REGION as u64, &n).expect("the first write");
                    file.store(0, &n).expect("the second one");
                }
            });
            for n in 0..5 {
                let copy = scratch.file(&format!("copy-{n}"));
                file.copy_to(&copy).expect("copy");
                let bytes = fs::read(&copy).expect("read");
                let word = |at: usize| u64::from_le_bytes(bytes[at..][..8].try_into().expect("8"));
                let known = word(0);
                for n in 1..=known {
                    assert_eq!(word(n as usize * REGION), n, "of {known}");
                }
                fs::remove_file(&copy).expect("remove");
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn a_copy_of_a_sparse_file_is_sparse() {
    use std::os::unix::fs::MetadataExt;
    let scratch = common::page_cache().unwrap_or_else(common::ram).scratch();
    let options = AtomicMappedFile::options().create(true).len(10 << 30);
    let file = options.open(scratch.file("sparse")).expect("open");
    file.write_at(b"far", (9 << 30) + 5).expect("write");
    file.copy_to(scratch.file("copy")).expect("copy");
    let stat = fs::metadata(scratch.file("copy")).expect("stat");
    assert_eq!(stat.len(), 10 << 30);
    assert!(stat.blocks() * 512 < 1 << 20, "{} blocks", stat.blocks());
    let other = AtomicMappedFile::open(scratch.file("copy")).expect("open");
    let mut bytes = [0; 3];
    other.read_at(&mut bytes, (9 << 30) + 5).expect("read");
    assert_eq!(&bytes, b"far");
}

#[test]
fn a_copy_that_fails_leaves_nothing_and_what_is_there_stays() {
    for ground in media() {
        let scratch = ground.scratch();
        let recorder = Recorder::new();
        let options = ground.options().create(true).len(10 * PAGE as u64);
        let file = options.open_recorded(&recorder, scratch.file("x")).expect("open");
        file.write_at(&[7; PAGE], 100).expect("write");
        let copy = scratch.file("copy");
        for fault in
            [call::OPEN, call::WRITE, call::SET_LEN, call::OWN, call::SYNC_ALL, call::RENAME]
        {
            recorder.fail_next(fault, 1, libc::EIO);
            let error = file.copy_to(&copy).expect_err(fault);
            assert!(matches!(error, Error::Io { .. }), "{fault}: {error:?}");
            assert!(!recorder.heal(), "{fault}");
            let left = fs::read_dir(scratch.path()).expect("list").filter(|entry| {
                entry.as_ref().expect("an entry").file_name().to_string_lossy().contains("copy")
            });
            assert_eq!(left.count(), 0, "{fault}");
        }
        fs::write(&copy, b"mine").expect("write");
        let error = file.copy_to(&copy).expect_err("something is there");
        assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&copy).expect("read"), b"mine");
        // The target is the file itself.
        file.copy_to(scratch.file("x")).expect_err("the file itself");
    }
}
