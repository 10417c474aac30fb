//! Tests of snapshots beside other operations of the same program: closures that go back, handles
//! that are read or outlive the file, names of all kinds, files of all lengths.

use crate::common::{Ground, assert_same, media_in_memory, read_all};
use atomic_mmap::{AtomicMappedFile, CloseMode, Error, Retention};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const PAGE: u64 = 4096;
/// Time after which a call hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn open(ground: &Ground, path: &std::path::Path, len: u64) -> AtomicMappedFile {
    ground.options().create(true).len(len).open(path).expect("open")
}

/// Runs `act` on a thread of its own, and fails if it does not end.
fn must_end<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || done.send(act()));
    is_done.recv_timeout(PATIENCE).expect("it hangs, or panics")
}

/// Each run of the closure goes back, and so each would conflict.
#[test]
fn a_closure_that_goes_back_does_not_run_for_ever() {
    for ground in media_in_memory() {
        for other_len in [PAGE, 9 * PAGE] {
            let scratch = ground.scratch();
            let file = open(&ground, &scratch.file("x"), 3 * PAGE);
            file.snapshot("a").expect("seal");
            file.store(0, &1_u64).expect("store");
            file.set_len(other_len).expect("a new length");
            let result = must_end(move || {
                let result = file.transact(|tx| {
                    let before: u64 = tx.load(0)?;
                    file.roll_back("a", None)?;
                    tx.store(8, &before)
                });
                (result, file.load::<u64>(8))
            });
            let (result, written) = result;
            let error = result.expect_err("the closure has changed what it has read");
            assert!(matches!(error, Error::SelfConflict { .. }), "{error:?}");
            assert_eq!(written.expect("load"), 0);
        }
    }
}

/// A closure that goes back elsewhere is not disturbed.
#[test]
fn a_closure_may_go_back_before_it_reads() {
    for ground in media_in_memory() {
        let scratch = ground.scratch();
        let file = open(&ground, &scratch.file("x"), 3 * PAGE);
        file.store(0, &1_u64).expect("store");
        file.snapshot("a").expect("seal");
        file.store(0, &2_u64).expect("store");
        let read = must_end(move || {
            file.transact(|tx| {
                file.roll_back("a", None)?;
                file.snapshot("b")?;
                file.drop_snapshot("b")?;
                tx.load::<u64>(0)
            })
        });
        assert_eq!(read.expect("no conflict"), 1);
    }
}

/// Handles come and go, and another thread drops: both are no errors of a retention.
#[test]
fn retention_meets_readers_and_other_droppers() {
    for ground in media_in_memory() {
        let scratch = ground.scratch();
        let file = open(&ground, &scratch.file("x"), 3 * PAGE);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        for info in file.snapshots() {
                            drop(file.open_snapshot(&info.name));
                            let _raced = file.drop_snapshot(&info.name);
                        }
                    }
                });
            }
            let retained = (0..2000).try_for_each(|n| {
                let _taken_already = file.snapshot(&(n % 9).to_string());
                file.retain_snapshots(Retention::new().number(1)).map(drop)
            });
            is_over.store(true, Ordering::Relaxed);
            retained.expect("retain");
        });
    }
}

#[test]
fn a_transaction_that_read_before_a_rollback_conflicts() {
    for ground in media_in_memory() {
        for len in [PAGE, 3 * PAGE, 100 * PAGE] {
            let scratch = ground.scratch();
            let file = open(&ground, &scratch.file("x"), 3 * PAGE);
            file.snapshot("a").expect("seal");
            file.store(16, &7_u64).expect("store");
            file.set_len(len).expect("a new length");
            let mut tx = file.begin();
            assert_eq!(tx.load::<u64>(16).expect("load"), 7);
            tx.store(24, &8_u64).expect("store");
            file.roll_back("a", None).expect("roll back");
            let result = tx.commit();
            assert!(matches!(result, Err(Error::Conflict { .. })), "{result:?}");
            assert_eq!(read_all(&file), vec![0; 3 * PAGE as usize]);
        }
    }
}

#[test]
fn a_rollback_under_a_view_of_what_it_cuts_changes_nothing() {
    // Where durable points are kept, views are copies.
    for ground in media_in_memory() {
        let scratch = ground.scratch();
        let file = open(&ground, &scratch.file("x"), 0);
        file.snapshot("empty").expect("seal");
        file.set_len(5 * PAGE + 7).expect("grow");
        file.write_at(&[3; 9000], 100).expect("write");
        file.deploy(0..5 * PAGE).expect("deploy");
        let view = file.view(PAGE..2 * PAGE).expect("view");
        assert!(view.is_mapped(), "{ground:?}");
        let refused = file.roll_back("empty", Some("undo"));
        assert!(matches!(refused, Err(Error::Pinned { .. })), "{refused:?}");
        assert_eq!(file.snapshots().len(), 1);
        drop(view);
        let before = read_all(&file);
        file.roll_back("empty", Some("undo")).expect("roll back");
        assert_eq!(file.len(), 0);
        assert!(file.open_snapshot("empty").expect("open").is_empty());
        file.roll_back("undo", None).expect("roll back");
        assert_same(&read_all(&file), &before, "the present");
        // A view of a page that goes back keeps its bytes.
        let view = file.view(0..PAGE).expect("view");
        file.write_at(&[5; 5000], 0).expect("write");
        file.write_at(&[6; 5000], 0).expect("write");
        file.roll_back("undo", None).expect("roll back");
        assert_same(&view.to_vec().expect("read"), &before[..PAGE as usize], "the view");
        assert_same(&read_all(&file), &before, "the present");
    }
}

#[test]
fn a_snapshot_that_is_read_stays_while_the_file_goes_back_to_it() {
    for ground in media_in_memory() {
        let scratch = ground.scratch();
        let path = scratch.file("x");
        let file = open(&ground, &path, 50 * PAGE + 33);
        file.write_at(&[1; 20 * PAGE as usize], 10).expect("write");
        file.snapshot("a").expect("seal");
        let sealed = read_all(&file);
        let reader = file.open_snapshot("a").expect("open");
        thread::scope(|scope| {
            let reads = scope.spawn(|| {
                (0..300).for_each(|_| assert_same(&reader.read_vec().expect("read"), &sealed, "a"));
            });
            let mut n = 0;
            while !reads.is_finished() {
                n += 1;
                file.set_len(n % 80 * PAGE + 5).expect("a new length");
                file.write_at(&[n as u8; 5], 0).expect("write");
                file.roll_back("a", None).expect("roll back");
                assert_same(&read_all(&file), &sealed, "the present");
            }
        });
        // It is a further handle, and keeps the file open.
        drop(file);
        assert_same(&reader.read_vec().expect("read"), &sealed, "a");
        thread::spawn(move || drop(reader)).join().expect("a thread");
        let file = open(&ground, &path, 0);
        assert_same(&file.open_snapshot("a").expect("a").read_vec().expect("read"), &sealed, "a");
    }
}

#[test]
fn a_thousand_snapshots_with_names_of_all_kinds() {
    for ground in media_in_memory() {
        let scratch = ground.scratch();
        let path = scratch.file("x");
        let file = open(&ground, &path, 64 * 1000);
        let odd = ["\n", "/", "../x", "\u{feff}", "\u{1f600}", " ", &"é".repeat(32), "\x7f\x01"];
        for bad in ["", "\0", "a\0b", &"x".repeat(65), &"é".repeat(33)] {
            assert!(matches!(file.snapshot(bad), Err(Error::Snapshot { .. })), "{bad:?}");
        }
        for n in 0..1000_u64 {
            let number = n.to_string();
            let name = odd.get(n as usize).copied().unwrap_or(&number);
            file.snapshot(name).expect("seal");
            file.store(n * 64, &n).expect("store");
        }
        assert!(matches!(file.snapshot("more"), Err(Error::Snapshot { .. })));
        let refused = file.roll_back("999", Some("more"));
        assert!(matches!(refused, Err(Error::Snapshot { .. })), "{refused:?}");
        file.close(CloseMode::Fast).expect("close");
        let file = open(&ground, &path, 0);
        assert_eq!(file.load::<u64>(64 * 999).expect("load"), 999);
        for (n, info) in file.snapshots().iter().enumerate() {
            let snapshot = file.open_snapshot(&info.name).expect("open");
            let at = |at: usize| snapshot.load::<u64>(at as u64 * 64).expect("load");
            assert_eq!(at(n), 0, "{n}");
            assert_eq!(at(n.saturating_sub(1)), n.saturating_sub(1) as u64, "{n}");
        }
        assert_eq!(file.retain_snapshots(Retention::new().number(2)).expect("retain"), 998);
        assert_eq!(file.snapshots().len(), 2);
    }
}

/// The store has room for many times the longest length that the file may have.
#[test]
fn many_versions_of_a_short_file_fit() {
    let ground = crate::common::ram();
    let scratch = ground.scratch();
    let len = 1 << 20;
    let options = ground.options().create(true).len(len).max_len(len);
    let file = options.open(scratch.file("x")).expect("open");
    for n in 0..300_u64 {
        file.snapshot(&n.to_string()).expect("seal");
        file.write_at(&vec![n as u8; len as usize], 0).unwrap_or_else(|e| panic!("{n}: {e}"));
    }
}

/// Values, arrays and views of a snapshot have its length, whatever the file's length is.
#[test]
fn handles_to_values_of_a_snapshot_end_where_it_ends() {
    for ground in media_in_memory() {
        let scratch = ground.scratch();
        let file = ground.options().create(true).len(8192).open(scratch.file("x")).expect("open");
        file.write_at(&[2; 100], 8092).expect("write");
        file.snapshot("a").expect("seal");
        let long = file.open_snapshot("a").expect("open a snapshot");
        file.set_len(100).expect("shrink");
        file.snapshot("b").expect("seal");
        let short = file.open_snapshot("b").expect("open a snapshot");
        file.set_len(1 << 20).expect("grow");

        let all = long.array::<u8>(8000, 192).expect("an array");
        let sum: u64 = all.iter().map(|value| u64::from(value.expect("read"))).sum();
        assert_eq!(sum, 200);
        let tail = all.slice(190..192).expect("a part");
        assert_eq!(tail.slot(1).expect("a slot").load().expect("load"), 2);
        for error in [
            short.slot::<u64>(93).expect_err("past the end"),
            short.array::<u32>(0, 26).expect_err("past the end"),
            short.view(90..101).expect_err("past the end"),
            short.load::<u64>(u64::MAX).expect_err("past the end"),
        ] {
            let is_right = matches!(&error, Error::PastEnd { file_len: 100, .. });
            assert!(is_right, "{error:?}");
        }
        short.slot::<u64>(92).expect("the last bytes").load().expect("load");
        assert!(short.view(100..100).expect("no byte").is_empty());
        let reversed = Range { start: 9, end: 8 };
        let error = short.view(reversed).expect_err("a range that ends before it begins");
        assert!(matches!(error, Error::Reversed { start: 9, end: 8, .. }), "{error:?}");
        let error = short.array::<u64>(8, u64::MAX / 8).expect_err("too many");
        assert!(matches!(error, Error::Overflow { .. }), "{error:?}");
        let error = long.array::<bool>(8092, 3).expect("an array").get(1).expect_err("a 2");
        assert!(matches!(error, Error::InvalidValue { offset: 8093, .. }), "{error:?}");
        let error = long.array::<u8>(0, 3).expect("an array").get(3).expect_err("no value 3");
        assert!(matches!(error, Error::OutOfBounds { found: 4, expected: 3, .. }), "{error:?}");
    }
}
