//! Tests that damage is noticed before it is read, told, and healed by a write over it.

use super::{LEN, PAGE, after_death, options};
use crate::common::{Ground, Rng, Scratch, assert_same, media};
use atomic_mmap::{AtomicMappedFile, CloseMode, Error, Integrity};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn written(ground: &Ground, integrity: Integrity) -> (Scratch, PathBuf, AtomicMappedFile, Vec<u8>) {
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let file = options(ground).integrity(integrity).open(&path).expect("open");
    let bytes = Rng(4).bytes(LEN as usize);
    file.write_at(&bytes, 0).expect("write");
    file.sync().expect("sync");
    file.deploy(0..LEN).expect("deploy");
    (scratch, path, file, bytes)
}

fn flip_a_bit(path: &std::path::Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).expect("open");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ 0x10], at).expect("write");
}

#[track_caller]
fn assert_damaged<T: std::fmt::Debug>(result: Result<T, Error>, page: u64) {
    let error = result.expect_err("damage is read");
    let Error::Damaged { path, offset, .. } = &error else { panic!("{error}") };
    assert_eq!((*offset, path.file_name().is_some()), (page * PAGE, true));
    assert!(error.to_string().contains("write over all of them"), "{error}");
}

#[test]
fn a_lost_bit_fails_every_read_of_its_page_and_no_other() {
    for ground in media() {
        let (_scratch, path, file, bytes) = written(&ground, Integrity::OnRead);
        flip_a_bit(&path, 3 * PAGE + 1000);
        let mut to = [0; 200];
        assert_damaged(file.read_at(&mut to, 3 * PAGE), 3);
        assert_damaged(file.read_at(&mut to, 4 * PAGE - 100), 3);
        assert_damaged(file.load::<u64>(3 * PAGE), 3);
        assert_damaged(file.view(3 * PAGE..3 * PAGE + 10).map(drop), 3);
        assert_damaged(file.transact(|t| t.read_at(&mut [0; 9], 3 * PAGE)), 3);
        assert_damaged(
            file.write_at(&[1; 10], 3 * PAGE + 1000)
                .map(|()| file.read_at(&mut to, 3 * PAGE))
                .and_then(|r| r),
            3,
        );
        file.read_at(&mut to, 4 * PAGE).expect("another page");
        assert_eq!(to, bytes[4 * PAGE as usize..][..200]);
        let found = file.verify(0..LEN).expect("verify");
        assert_eq!((found.pages, found.damaged.len()), (71, 1));
        assert_eq!(found.damaged[0], 3 * PAGE..4 * PAGE);
        assert!(file.stats().damaged_pages >= 6, "{:?}", file.stats());
        // A write over the whole page replaces the damaged bytes.
        file.write_at(&[8; PAGE as usize], 3 * PAGE).expect("write over it");
        file.read_at(&mut to, 3 * PAGE).expect("read");
        assert_eq!((to, file.verify(0..LEN).expect("verify").damaged), ([8; 200], vec![]));
    }
}

/// The first touch of a page in a session verifies it, also that of a write. A write into a damaged
/// page must not reckon a sum that makes the damage good.
#[test]
fn damage_that_happened_while_the_file_was_not_open_is_noticed_at_the_first_touch() {
    for ground in media() {
        let (_scratch, path, file, bytes) = written(&ground, Integrity::OnScrub);
        let (image, found) = after_death(&ground, &path);
        found.close(CloseMode::Unsynced).expect("close");
        flip_a_bit(&image.home, 5 * PAGE);
        flip_a_bit(&image.home, LEN - 1);
        let found = image.open(&ground);
        assert_damaged(found.write_at(&[1; 5], 5 * PAGE + 99), 5);
        assert_damaged(found.write_many(&[(0, b"a"), (5 * PAGE + 99, b"b")]), 5);
        assert_damaged(found.read_at(&mut [0; 1], LEN - 100), 70);
        assert_eq!(found.verify(0..LEN).expect("verify").damaged.len(), 2);
        let mut first = vec![0; 5 * PAGE as usize];
        found.read_at(&mut first, 0).expect("read");
        assert_same(&first, &bytes[..first.len()], "nothing was written");
        // The last page is whole again after a write over all of it up to the file's end.
        found.write_at(&[2; 100], LEN - 100).expect("write");
        let left = found.verify(0..LEN).expect("verify").damaged;
        assert_eq!((left.len(), &left[0]), (1, &(5 * PAGE..6 * PAGE)));
        drop(file);
    }
}

/// A rollback over a damaged page once failed behind its commit point. It poisoned the handle, and
/// the next opening took the damaged bytes for whole.
#[test]
fn a_rollback_over_damage_fails_first_or_replaces_all_of_it() {
    for ground in media() {
        let (_scratch, path, file, bytes) = written(&ground, Integrity::OnRead);
        file.snapshot("before").expect("seal");
        // The snapshot holds 64 bytes of page 2, and all of page 7.
        file.write_at(&[1; 64], 2 * PAGE).expect("write");
        file.write_at(&[1; PAGE as usize], 7 * PAGE).expect("write");
        file.sync().expect("sync");
        file.deploy(0..LEN).expect("deploy");
        flip_a_bit(&path, 2 * PAGE + 900);
        assert_damaged(file.roll_back("before", None), 2);
        file.write_at(&[4], 0).expect("the handle is not poisoned");
        flip_a_bit(&path, 2 * PAGE + 900);
        flip_a_bit(&path, 7 * PAGE + 900);
        assert_damaged(file.roll_back("before", Some("after")), 7);
        file.roll_back("before", None).expect("all of the page is kept");
        assert_same(&crate::common::read_all(&file), &bytes, "the page is whole again");
        assert_eq!(file.verify(0..LEN).expect("verify").damaged, []);
    }
}

#[test]
fn a_caller_hears_of_damage_and_a_scrub_finds_it() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let heard = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&heard);
        let options = options(&ground).integrity(Integrity::OnScrub).scrub(100 << 20);
        let options = options.on_damage(move |damage| {
            assert!(damage.path.ends_with("state.dat"));
            told.lock().expect("not poisoned").push(damage.range.clone());
        });
        let file = options.open(&path).expect("open");
        file.write_at(&Rng(5).bytes(LEN as usize), 0).expect("write");
        file.deploy(0..LEN).expect("deploy");
        let begun = file.stats().scrub_passes;
        let wait = |until: &dyn Fn() -> bool| {
            let started = Instant::now();
            while !until() {
                assert!(started.elapsed() < Duration::from_secs(120), "the scrub does nothing");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        wait(&|| file.stats().scrub_passes > begun + 1);
        assert_eq!(*heard.lock().expect("not poisoned"), []);
        flip_a_bit(&path, 69 * PAGE + 7);
        wait(&|| !heard.lock().expect("not poisoned").is_empty());
        assert_eq!(heard.lock().expect("not poisoned")[0], 69 * PAGE..70 * PAGE);
    }
}

/// A panic in a caller's report ended the thread that scrubs, and poisoned the file.
#[test]
fn a_panic_of_a_report_of_damage_ends_there() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let options = options(&ground).integrity(Integrity::OnScrub).scrub(100 << 20);
        let file = options.on_damage(|_| panic!("a fault of the program")).open(&path);
        let file = file.expect("open");
        file.write_at(&Rng(5).bytes(LEN as usize), 0).expect("write");
        file.deploy(0..LEN).expect("deploy");
        flip_a_bit(&path, 69 * PAGE + 7);
        let passes = file.stats().scrub_passes;
        let started = Instant::now();
        while file.stats().scrub_passes < passes + 2 {
            assert!(started.elapsed() < crate::common::HANGS, "the scrub has ended");
            std::thread::sleep(Duration::from_millis(5));
        }
        file.health().expect("not poisoned");
        let damaged = file.verify(0..LEN).expect("verify").damaged;
        assert!(matches!(&damaged[..], [page] if *page == (69 * PAGE..70 * PAGE)));
    }
}

/// Writers change a page while readers verify it. No reader may take a page that is being changed
/// for a damaged one.
#[test]
fn a_page_that_is_being_written_is_not_taken_for_damaged() {
    for ground in media() {
        let scratch = ground.scratch();
        let file = options(&ground).open(scratch.file("state.dat")).expect("open");
        let writes = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..2u64 {
                let (file, writes) = (&file, &writes);
                scope.spawn(move || {
                    let mut rng = Rng(thread);
                    for _ in 0..1500 {
                        let (at, len) = (rng.below(3 * PAGE), 1 + rng.below(900) as usize);
                        file.write_at(&rng.bytes(len), at).expect("write");
                        writes.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let mut to = [0; 3 * PAGE as usize];
            while writes.load(Ordering::Relaxed) < 3000 {
                file.read_at(&mut to, 100).expect("no damage");
                assert_eq!(file.verify(0..LEN).expect("verify").damaged, []);
            }
        });
    }
}
