//! Tests that no operation loses for as long as others go on.

use crate::common::{HANGS, media, media_in_memory};
use atomic_mmap::{AtomicMappedFile, Error};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Instant;

const PAGE: u64 = 4096;

/// Runs of a body that are enough for any machine: the waits of writers grow with each run.
const ENOUGH: u32 = 60;

/// A transaction with many reads never committed beside small writes: it took turns with other
/// losers, and writers did not take part in that.
#[test]
fn a_transaction_ends_beside_writers_that_never_stop() {
    for ground in media_in_memory().into_iter().chain(crate::common::page_cache()) {
        // Few reads are validated one by one, and many are watched.
        for pages in [1, 100] {
            let scratch = ground.scratch();
            let options = ground.options().create(true).len((pages + 1) * PAGE);
            let file = options.open(scratch.file("state.dat")).expect("open");
            let (is_over, runs) = (AtomicBool::new(false), AtomicU32::new(0));
            let sum = std::thread::scope(|scope| {
                for n in 0..2 {
                    let (file, is_over) = (&file, &is_over);
                    scope.spawn(move || {
                        for at in (n..).map(|n: u64| n % pages * PAGE + n % 4 * 8) {
                            if is_over.load(Relaxed) {
                                return;
                            }
                            // A direct store, a flip, and a transaction.
                            file.store(at, &1_u64).expect("store");
                            file.write_at(&[1; 100], at + 100).expect("write");
                            file.update(at + 1000, |value: &mut u64| *value += 1).expect("update");
                        }
                    });
                }
                let sum = file.transact(|tx| {
                    if runs.fetch_add(1, Relaxed) > ENOUGH {
                        return Ok(None);
                    }
                    let mut sum = 0;
                    for page in 0..pages {
                        sum += tx.load::<u64>(page * PAGE)?;
                        // Time for many small writes.
                        (0..200 / pages).for_each(|_| std::thread::yield_now());
                    }
                    tx.store(pages * PAGE, &sum)?;
                    Ok(Some(sum))
                });
                is_over.store(true, Relaxed);
                sum.expect("commit")
            });
            assert!(sum.is_some(), "{pages} pages on {}: not after {ENOUGH} runs", ground.medium);
            assert!(file.stats().conflicts >= u64::from(runs.load(Relaxed)) - 1);
        }
    }
}

/// `Stats::conflicts` counted the conflicts that a commit finds alone.
#[test]
fn a_conflict_that_a_load_finds_is_counted_once() {
    let scratch = crate::common::ram().scratch();
    let file = AtomicMappedFile::create(scratch.file("state.dat"), 3 * PAGE).expect("create");
    let mut tx = file.begin();
    tx.load::<u64>(0).expect("load");
    file.store(8, &1_u64).expect("store");
    assert!(matches!(tx.load::<u64>(PAGE), Err(Error::Conflict { .. })));
    assert!(matches!(tx.load::<u64>(PAGE), Err(Error::Conflict { .. })));
    assert!(matches!(tx.commit(), Err(Error::Conflict { .. })));
    assert_eq!(file.stats().conflicts, 1);
}

/// A body's thread that has the turn does not wait for itself, and its own operations still end in
/// an error if they change what the transaction has read.
#[test]
fn the_thread_that_has_the_turn_may_write() {
    let scratch = crate::common::ram().scratch();
    let file = AtomicMappedFile::create(scratch.file("state.dat"), 3 * PAGE).expect("create");
    let mut runs = 0;
    let result = file.transact(|tx| {
        runs += 1;
        tx.load::<u64>(0)?;
        if runs < 11 {
            // Another thread's write, until long after the turn was taken. The thread waits for the
            // turn only as long as it has patience.
            std::thread::scope(|scope| {
                scope.spawn(|| file.store(8, &runs).expect("store"));
            });
        }
        file.write_at(&[1; 100], PAGE)?;
        if runs == 15 {
            Ok(())
        } else {
            tx.load::<u64>(2 * PAGE).and_then(|_| file.store(0, &1_u64))
        }
    });
    assert!(matches!(result, Err(Error::SelfConflict { .. })), "{result:?}");
}

/// Small writes took the room that a large one waited for, as long as they went on.
#[test]
fn a_large_write_gets_its_room_beside_small_ones() {
    const LEN: u64 = 64 << 20;
    for ground in media() {
        let scratch = ground.scratch();
        let options = ground.options().create(true).len(LEN).journal_len(1 << 20);
        let file = options.reflection_budget(1).open(scratch.file("state.dat")).expect("open");
        let (is_over, begin) = (AtomicBool::new(false), Instant::now());
        std::thread::scope(|scope| {
            for n in 1..4 {
                let (file, is_over) = (&file, &is_over);
                scope.spawn(move || {
                    let places = (1_u64..).map(|i| i.wrapping_mul(n * 0x9E37_79B9) % (LEN / PAGE));
                    for page in places {
                        if is_over.load(Relaxed) || begin.elapsed() > HANGS {
                            return;
                        }
                        file.write_at(&[n as u8; 4096], page * PAGE).expect("write");
                    }
                });
            }
            let large = vec![9; 5 << 20];
            for n in 0..6 {
                file.write_at(&large, n * large.len() as u64).expect("write");
                assert!(begin.elapsed() < HANGS, "on {}", ground.medium);
            }
            is_over.store(true, Relaxed);
        });
        assert!(file.stats().budget_waits > 0, "on {}: the budget was no limit", ground.medium);
    }
}
