//! Tests that threads lose no record, see none half, and take no space twice.

use super::open;
use crate::common::{self, Rng, Watch};
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns a record that names its writer and number. Its length follows from them.
fn record(thread: u64, n: u64) -> Vec<u8> {
    let mut bytes = [thread.to_le_bytes(), n.to_le_bytes()].concat();
    bytes.resize(16 + (Rng(thread << 32 | n).below(2000) as usize), thread as u8);
    bytes
}

/// Returns the writer and the number of a whole record.
fn whole(bytes: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let (thread, n) = (word(0), word(8));
    assert_eq!(bytes, record(thread, n), "torn");
    (thread, n)
}

#[test]
fn several_appenders_and_readers_agree_on_the_records() {
    let _watch = Watch::start();
    const THREADS: u64 = 3;
    const RECORDS: u64 = 400;
    for ground in common::media_in_memory() {
        let scratch = ground.scratch();
        let roots = open(&ground, &scratch.file("state.dat"));
        let log = roots.log("log").expect("a log");
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (log, done) = (&log, &done);
                scope.spawn(move || {
                    for n in (0..RECORDS).step_by(2) {
                        let pair = [record(thread, n), record(thread, n + 1)];
                        log.append(&pair).expect("append");
                    }
                    done.fetch_add(1, Ordering::Release);
                });
            }
            // One thread reads from the front, and drops what it has read.
            scope.spawn(|| {
                let mut expected = [0; THREADS as usize];
                let mut seq = 0;
                while expected != [RECORDS; THREADS as usize] {
                    for item in log.iter_from(seq) {
                        let (at, bytes) = item.expect("a record");
                        let (thread, n) = whole(&bytes);
                        assert_eq!((at, n), (seq, expected[thread as usize]));
                        expected[thread as usize] += 1;
                        seq += 1;
                    }
                    log.truncate_front(seq).expect("truncate");
                }
            });
            // Another one reads anywhere.
            scope.spawn(|| {
                let mut rng = Rng(1);
                while done.load(Ordering::Acquire) < THREADS {
                    let range = log.range().expect("range");
                    let seq = range.start + rng.below(range.end - range.start);
                    if let Some(bytes) = log.get(seq).expect("get") {
                        whole(&bytes);
                    }
                }
            });
        });
        let all = THREADS * RECORDS;
        assert_eq!(log.range().expect("range"), all..all);
        roots.check().expect("check");
    }
}

#[test]
fn readers_see_no_record_half_while_the_end_is_rewritten() {
    let _watch = Watch::start();
    let ground = common::ram();
    let scratch = ground.scratch();
    let roots = open(&ground, &scratch.file("state.dat"));
    let log = roots.log("log").expect("a log");
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = Rng(2);
            for n in 0..1500 {
                log.append(&[record(1, n), record(2, n)]).expect("append");
                let next = log.range().expect("range").end;
                log.truncate_back(next - rng.below(3)).expect("truncate");
                if n % 100 == 99 {
                    log.truncate_front(next).expect("truncate");
                }
            }
            done.store(1, Ordering::Release);
        });
        for seed in 3..5 {
            let (log, done) = (&log, &done);
            scope.spawn(move || {
                let mut rng = Rng(seed);
                while done.load(Ordering::Acquire) == 0 {
                    let range = log.range().expect("range");
                    let from = range.end.saturating_sub(rng.below(10));
                    for item in log.iter_from(from).take(20) {
                        whole(&item.expect("a record").1);
                    }
                }
            });
        }
    });
    roots.check().expect("check");
}

#[test]
fn threads_that_make_and_remove_names_take_no_space_twice() {
    let _watch = Watch::start();
    let ground = common::ram();
    let scratch = ground.scratch();
    let roots = open(&ground, &scratch.file("state.dat"));
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let roots = &roots;
            scope.spawn(move || {
                let mut rng = Rng(thread);
                for n in 0..150_u64 {
                    let name = format!("{thread} {}", n % 5);
                    let count = 1 + rng.below(2000);
                    let array = roots.get_or_insert_array::<u64>(&name, count).expect("make");
                    let mut values = vec![1; count as usize];
                    array.get_many(0, &mut values).expect("read");
                    assert!(values.iter().all(|value| *value == 0), "not zero");
                    values.fill(thread << 32 | n);
                    array.set_many(0, &values).expect("fill");
                    let mut found = vec![0; count as usize];
                    array.get_many(0, &mut found).expect("read");
                    assert_eq!(found, values, "another thread has this space, too");
                    roots.remove(&name).expect("remove");
                    if n % 10 == 0 {
                        let log = roots.log(&format!("log {thread}")).expect("a log");
                        log.append(&[record(thread, n)]).expect("append");
                    }
                }
            });
        }
    });
    roots.check().expect("check");
    assert_eq!(roots.names().expect("names"), ["log 0", "log 1", "log 2"]);
}
