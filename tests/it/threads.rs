//! Tests that threads see operations whole and in one order, and lose none.
//!
//! Three kinds of checks: every word of an operation holds its number, sums never change, and
//! counters are exact at the end. Each test runs on RAM treated as persistent memory, where records
//! cover small flips, and on RAM.

use crate::common::{self, Ground, Rng, Scratch, Watch, assert_same};
use atomic_mmap::{AtomicMappedFile, CloseMode, DeployPolicy, Error, Transaction};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
const REGION: u64 = 262_144;
/// How long each test runs on each medium.
const A_WHILE: Duration = Duration::from_millis(300);
/// More than the number of private lanes.
const MANY: u64 = 80;

fn grounds() -> Vec<Ground> {
    common::media_in_memory()
}

fn new_file(ground: &Ground, len: u64, policy: DeployPolicy) -> (Scratch, AtomicMappedFile) {
    let scratch = ground.scratch();
    let options = ground.options().create(true).len(len).deploy(policy);
    let file = options.open(scratch.file("state.dat")).expect("open");
    (scratch, file)
}

/// Tells all threads of a test when to end, and watches that they do.
struct Clock {
    end: Instant,
    failed: AtomicBool,
    _watch: Watch,
}

impl Clock {
    fn start() -> Clock {
        let end = Instant::now() + A_WHILE;
        Clock { end, failed: AtomicBool::new(false), _watch: Watch::start() }
    }

    fn goes_on(&self) -> bool {
        Instant::now() < self.end && !self.failed.load(Ordering::Relaxed)
    }

    /// Like [`goes_on`](Self::goes_on), but also runs until `done` is nonzero, on a loaded machine
    /// too.
    fn goes_on_until(&self, done: &AtomicU64) -> bool {
        self.goes_on() || done.load(Ordering::Relaxed) == 0 && !self.failed.load(Ordering::Relaxed)
    }

    /// Runs `body`, and stops the other threads if it panics.
    fn run<R>(&self, body: impl FnOnce() -> R) -> R {
        struct Alarm<'a>(&'a Clock);
        impl Drop for Alarm<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.failed.store(true, Ordering::Relaxed);
                }
            }
        }
        let _alarm = Alarm(self);
        body()
    }
}

fn stamp(n: u64, len: usize) -> Vec<u8> {
    let mut bytes = n.to_le_bytes().repeat(len.div_ceil(8));
    bytes.truncate(len);
    bytes
}

/// Returns the number that all the bytes hold.
#[track_caller]
fn number_of(bytes: &[u8], what: &str) -> u64 {
    let n = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    assert_same(bytes, &stamp(n, bytes.len()), what);
    n
}

/// Places of all kinds: in a slice, in a page, over two pages, aligned pages, a region, several
/// regions.
const PLACES: [(u64, usize); 8] = [
    (70, 40),
    (130, 600),
    (PAGE - 20, 48),
    (3 * PAGE, 4096),
    (4 * PAGE + 100, 20_000),
    (16 * PAGE, 65_536),
    (REGION, 262_144),
    (2 * REGION + 1000, 300_000),
];
const PLACES_LEN: u64 = 4 * REGION;

fn check_readers(ground: &Ground, policy: DeployPolicy) {
    let (_scratch, file) = new_file(ground, PLACES_LEN, policy);
    let clock = Clock::start();
    let next = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let (file, clock, next) = (&file, &clock, &next);
            scope.spawn(move || {
                clock.run(|| {
                    let mut rng = Rng(writer);
                    while clock.goes_on() {
                        let (offset, len) = PLACES[rng.below(8) as usize];
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        file.write_at(&stamp(n, len), offset).expect("write");
                    }
                });
            });
        }
        for reader in 0..4 {
            let (file, clock) = (&file, &clock);
            scope.spawn(move || {
                clock.run(|| {
                    let mut rng = Rng(100 + reader);
                    while clock.goes_on() {
                        let (offset, len) = PLACES[rng.below(8) as usize];
                        let mut bytes = vec![0; len];
                        if reader == 0 {
                            file.transact(|tx| tx.read_at(&mut bytes, offset)).expect("read");
                        } else {
                            file.read_at(&mut bytes, offset).expect("read");
                        }
                        number_of(&bytes, &format!("{len} bytes at {offset}"));
                    }
                });
            });
        }
        scope.spawn(|| {
            clock.run(|| {
                while clock.goes_on() {
                    file.deploy(0..PLACES_LEN).expect("deploy");
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        });
    });
}

#[test]
fn readers_never_see_a_part_of_an_operation() {
    for ground in grounds() {
        for policy in [DeployPolicy::Lazy, DeployPolicy::Eager] {
            check_readers(&ground, policy);
        }
    }
}

#[test]
fn an_operation_that_has_returned_is_seen_by_every_read_that_begins_later() {
    for ground in grounds() {
        let (_scratch, file) = new_file(&ground, PLACES_LEN, DeployPolicy::Lazy);
        let clock = Clock::start();
        let done = PLACES.map(|_| AtomicU64::new(0));
        std::thread::scope(|scope| {
            let (file, clock, done) = (&file, &clock, &done);
            // One writer for each half of the places, so that the numbers of a place ascend.
            for half in 0..2 {
                scope.spawn(move || {
                    clock.run(|| {
                        let mut rng = Rng(half);
                        let mut n = 0;
                        while clock.goes_on() {
                            n += 1;
                            let which = (rng.below(4) * 2 + half) as usize;
                            let (offset, len) = PLACES[which];
                            file.write_at(&stamp(n, len), offset).expect("write");
                            done[which].store(n, Ordering::SeqCst);
                        }
                    });
                });
            }
            for reader in 0..3 {
                scope.spawn(move || {
                    clock.run(|| {
                        let mut rng = Rng(reader);
                        let mut seen = [0; PLACES.len()];
                        while clock.goes_on() {
                            let which = rng.below(8) as usize;
                            let (offset, len) = PLACES[which];
                            let least = done[which].load(Ordering::SeqCst).max(seen[which]);
                            let mut bytes = vec![0; len];
                            file.read_at(&mut bytes, offset).expect("read");
                            let n = number_of(&bytes, &format!("{len} bytes at {offset}"));
                            assert!(n >= least, "went back from {least} to {n} at {offset}");
                            seen[which] = n;
                        }
                    });
                });
            }
        });
    }
}

const ACCOUNTS: u64 = 64;
const MONEY: u64 = 1000;

/// Returns the offset of an account. Accounts lie in 16 pages of two regions, four in a page.
fn account(n: u64) -> u64 {
    (n % 2) * REGION + (n / 8) * PAGE + (n / 2 % 4) * 200
}

fn sum(tx: &mut Transaction<'_>) -> Result<u64, Error> {
    (0..ACCOUNTS).map(|n| tx.load::<u64>(account(n))).sum()
}

#[test]
fn money_is_neither_made_nor_lost_by_transfers_and_no_transaction_sees_a_wrong_sum() {
    for ground in grounds() {
        let (_scratch, file) = new_file(&ground, 2 * REGION, DeployPolicy::Lazy);
        for n in 0..ACCOUNTS {
            file.store(account(n), &MONEY).expect("pay in");
        }
        let clock = Clock::start();
        let transfers = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let (file, clock, transfers) = (&file, &clock, &transfers);
            for thread in 0..5 {
                scope.spawn(move || {
                    clock.run(|| {
                        let mut rng = Rng(thread);
                        while clock.goes_on_until(transfers) {
                            let (from, to) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS));
                            let amount = rng.below(50);
                            file.transact(|tx| {
                                let has: u64 = tx.load(account(from))?;
                                let amount = amount.min(has);
                                tx.store(account(from), &(has - amount))?;
                                tx.update(account(to), |n: &mut u64| *n += amount)
                            })
                            .expect("transfer");
                            transfers.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                });
            }
            for reader in 0..2 {
                scope.spawn(move || {
                    clock.run(|| {
                        while clock.goes_on() {
                            // Checks inside the closure, so that it also covers attempts that do
                            // not commit.
                            file.transact(|tx| {
                                let sum = sum(tx)?;
                                assert_eq!(sum, ACCOUNTS * MONEY, "in a body");
                                if reader == 0 {
                                    tx.store(REGION + 60 * PAGE - 8, &sum)?;
                                }
                                Ok::<_, Error>(())
                            })
                            .expect("sum");
                            let mut all = vec![0; 2 * REGION as usize];
                            file.read_at(&mut all, 0).expect("read everything");
                            let at = |n: u64| account(n) as usize;
                            let word = |n: u64| {
                                u64::from_ne_bytes(
                                    all[at(n)..at(n) + 8].try_into().expect("8 bytes"),
                                )
                            };
                            let sum: u64 = (0..ACCOUNTS).map(word).sum();
                            assert_eq!(sum, ACCOUNTS * MONEY, "in one read");
                        }
                    });
                });
            }
        });
        let total = file.transact(sum).expect("sum");
        assert_eq!(total, ACCOUNTS * MONEY);
        assert!(transfers.load(Ordering::Relaxed) > 0);
    }
}

#[test]
fn no_increment_of_more_threads_than_lanes_is_lost() {
    const EACH: u64 = 20;
    for ground in grounds() {
        let (scratch, file) = new_file(&ground, 2 * REGION, DeployPolicy::Lazy);
        let _watch = Watch::start();
        let all_there = Barrier::new(MANY as usize);
        std::thread::scope(|scope| {
            for thread in 0..MANY {
                let (file, all_there) = (&file, &all_there);
                scope.spawn(move || {
                    // Each thread has a lane, or has found no free one.
                    file.store(PAGE + thread * 24, &[thread, 0, thread]).expect("own");
                    all_there.wait();
                    let shared = file.slot::<u64>(40).expect("slot");
                    let largest = file.slot::<i32>(60).expect("slot");
                    let smallest = file.slot::<i64>(PAGE - 4).expect("slot over two pages");
                    for n in 1..=EACH {
                        shared.fetch_add(1).expect("add");
                        file.update(REGION - 12, |words: &mut [u64; 3]| {
                            words[0] += 1;
                            words[2] += thread;
                        })
                        .expect("update");
                        largest.fetch_max((n * 1000 + thread) as i32).expect("max");
                        smallest.fetch_min(-((n * 1000 + thread) as i64)).expect("min");
                        file.update(PAGE + thread * 24, |own: &mut [u64; 3]| own[1] += 1)
                            .expect("own");
                    }
                });
            }
        });
        let check = |file: &AtomicMappedFile| {
            assert_eq!(file.load::<u64>(40).expect("load"), MANY * EACH);
            let words: [u64; 3] = file.load(REGION - 12).expect("load");
            assert_eq!(words, [MANY * EACH, 0, EACH * (MANY * (MANY - 1) / 2)]);
            let most = EACH * 1000 + MANY - 1;
            assert_eq!(file.load::<i32>(60).expect("load"), most as i32);
            assert_eq!(file.load::<i64>(PAGE - 4).expect("load"), -(most as i64));
            for thread in 0..MANY {
                let own: [u64; 3] = file.load(PAGE + thread * 24).expect("load");
                // The smallest value lies in the first bytes of the first thread's place.
                if thread > 0 {
                    assert_eq!(own, [thread, EACH, thread]);
                }
            }
        };
        check(&file);
        file.close(CloseMode::Fast).expect("close");
        check(&ground.options().open(scratch.file("state.dat")).expect("open"));
    }
}

#[test]
fn writers_to_disjoint_pages_do_not_touch_each_others_bytes() {
    for ground in grounds() {
        let (_scratch, file) = new_file(&ground, 2 * REGION, DeployPolicy::Lazy);
        let clock = Clock::start();
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let (file, clock) = (&file, &clock);
                scope.spawn(move || {
                    clock.run(|| {
                        // Every eighth page: neighbours share words, regions and chunks.
                        let mut rng = Rng(thread);
                        let mut model = vec![vec![0; PAGE as usize]; 16];
                        while clock.goes_on() {
                            let n = rng.below(16) as usize;
                            let page = (n as u64 * 8 + thread) * PAGE;
                            let start = rng.below(PAGE) as usize;
                            let len = match rng.below(4) {
                                0 => PAGE as usize - start,
                                1 => 700.min(PAGE as usize - start),
                                _ => 90.min(PAGE as usize - start),
                            };
                            let start = if rng.below(4) == 0 { 0 } else { start };
                            let data = rng.bytes(len);
                            file.write_at(&data, page + start as u64).expect("write");
                            model[n][start..start + len].copy_from_slice(&data);
                            let mut found = vec![0; PAGE as usize];
                            file.read_at(&mut found, page).expect("read");
                            assert_same(&found, &model[n], &format!("page at {page}"));
                        }
                        for (n, expected) in model.iter().enumerate() {
                            let mut found = vec![0; PAGE as usize];
                            let page = (n as u64 * 8 + thread) * PAGE;
                            file.read_at(&mut found, page).expect("read");
                            assert_same(&found, expected, &format!("page at {page}"));
                        }
                    });
                });
            }
        });
    }
}

#[test]
fn writers_of_whole_regions_and_of_pages_in_them_come_in_one_order() {
    const OF_REGION: u64 = 1 << 60;
    for ground in grounds() {
        let (_scratch, file) = new_file(&ground, 2 * REGION, DeployPolicy::Lazy);
        let clock = Clock::start();
        let base = REGION / 2;
        std::thread::scope(|scope| {
            let (file, clock) = (&file, &clock);
            scope.spawn(move || {
                clock.run(|| {
                    let mut n = OF_REGION;
                    while clock.goes_on() {
                        n += 1;
                        file.write_at(&stamp(n, REGION as usize), base).expect("write");
                    }
                });
            });
            for thread in 0..3 {
                scope.spawn(move || {
                    clock.run(|| {
                        let mut rng = Rng(thread);
                        let mut n = 1;
                        while clock.goes_on() {
                            n += 1;
                            let page = base + rng.below(60) * PAGE;
                            let pages = [1, 1, 4][rng.below(3) as usize];
                            file.write_at(&stamp(n, (pages * PAGE) as usize), page).expect("write");
                        }
                    });
                });
            }
            for _ in 0..2 {
                scope.spawn(move || {
                    clock.run(|| {
                        let mut last = 0;
                        let mut bytes = vec![0; REGION as usize];
                        while clock.goes_on() {
                            file.read_at(&mut bytes, base).expect("read");
                            let mut of_region = None;
                            for (n, page) in bytes.chunks(PAGE as usize).enumerate() {
                                let number = number_of(page, &format!("page {n}"));
                                if number > OF_REGION {
                                    // One writer writes whole regions: all pages without a later
                                    // write must belong to one operation.
                                    assert_eq!(*of_region.get_or_insert(number), number);
                                    assert!(number >= last, "went back");
                                    last = number;
                                }
                            }
                        }
                    });
                });
            }
        });
    }
}

#[test]
fn writers_of_two_pages_and_of_their_whole_region_do_not_wait_for_each_other() {
    for ground in grounds() {
        let (_scratch, file) = new_file(&ground, 2 * REGION, DeployPolicy::Lazy);
        let clock = Clock::start();
        std::thread::scope(|scope| {
            for (offset, len) in
                [(PAGE - 20, 48), (PAGE - 24, 48), (0, REGION as usize), (0, REGION as usize)]
            {
                let (file, clock) = (&file, &clock);
                scope.spawn(move || {
                    clock.run(|| {
                        while clock.goes_on() {
                            file.write_at(&stamp(1, len), offset).expect("write");
                        }
                    });
                });
            }
        });
    }
}

#[test]
fn the_length_changes_while_others_read_and_write() {
    const BLOB: u64 = 5000;
    const MOST: u64 = 120;
    for ground in grounds() {
        let (scratch, file) = new_file(&ground, MOST * BLOB, DeployPolicy::Lazy);
        let clock = Clock::start();
        let worked = AtomicU64::new(0);
        let expect = |result: Result<(), Error>| match result {
            Ok(()) => {
                worked.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(Error::PastEnd { .. }) => false,
            Err(e) => panic!("{e}"),
        };
        std::thread::scope(|scope| {
            let (file, clock, expect, worked) = (&file, &clock, &expect, &worked);
            scope.spawn(move || {
                clock.run(|| {
                    let mut rng = Rng(1);
                    while clock.goes_on() {
                        // At boundaries of blobs only: a blob exists from end to end, or is zero.
                        match file.set_len(rng.below(MOST + 1) * BLOB) {
                            Ok(()) | Err(Error::Pinned { .. }) => {}
                            Err(e) => panic!("change the length: {e}"),
                        }
                        file.set_len(MOST * BLOB).expect("change the length");
                    }
                });
            });
            for thread in 0..3 {
                scope.spawn(move || {
                    clock.run(|| {
                        let mut rng = Rng(10 + thread);
                        let mut n = 0;
                        while clock.goes_on_until(worked) {
                            n += 1;
                            let at = rng.below(MOST) * BLOB;
                            let data = stamp(n, BLOB as usize);
                            expect(match rng.below(3) {
                                0 => file.transact(|tx| tx.write_at(&data, at)),
                                _ => file.write_at(&data, at),
                            });
                        }
                    });
                });
            }
            for thread in 0..3 {
                scope.spawn(move || {
                    clock.run(|| {
                        let mut rng = Rng(20 + thread);
                        let mut bytes = vec![0; BLOB as usize];
                        while clock.goes_on() {
                            let at = rng.below(MOST) * BLOB;
                            let read = match rng.below(4) {
                                0 => file.transact(|tx| tx.read_at(&mut bytes, at)),
                                1 => match file.view(at..at + BLOB) {
                                    Ok(view) => view.read_at(&mut bytes, 0),
                                    Err(e) => Err(e),
                                },
                                _ => file.read_at(&mut bytes, at),
                            };
                            if expect(read) {
                                number_of(&bytes, &format!("blob at {at}"));
                            }
                        }
                    });
                });
            }
        });
        assert!(worked.load(Ordering::Relaxed) > 0);
        let before = common::read_all(&file);
        file.close(CloseMode::Spatial).expect("close");
        let plain = std::fs::read(scratch.file("state.dat")).expect("read");
        assert_same(&plain, &before, "the plain file");
    }
}

#[test]
fn views_stay_as_they_are_while_others_write() {
    for ground in grounds() {
        for policy in [DeployPolicy::Lazy, DeployPolicy::Eager] {
            let (_scratch, file) = new_file(&ground, PLACES_LEN, policy);
            let clock = Clock::start();
            let next = AtomicU64::new(1);
            std::thread::scope(|scope| {
                let (file, clock, next) = (&file, &clock, &next);
                for writer in 0..3 {
                    scope.spawn(move || {
                        clock.run(|| {
                            let mut rng = Rng(writer);
                            while clock.goes_on() {
                                let (offset, len) = PLACES[rng.below(8) as usize];
                                let n = next.fetch_add(1, Ordering::Relaxed);
                                file.write_at(&stamp(n, len), offset).expect("write");
                            }
                        });
                    });
                }
                for viewer in 0..3 {
                    scope.spawn(move || {
                        clock.run(|| {
                            let mut rng = Rng(100 + viewer);
                            while clock.goes_on() {
                                let (offset, len) = PLACES[rng.below(8) as usize];
                                let what = format!("view of {len} bytes at {offset}");
                                let view = file.view(offset..offset + len as u64).expect("view");
                                let first = view.to_vec().expect("read");
                                number_of(&first, &what);
                                for _ in 0..3 {
                                    std::thread::yield_now();
                                    assert_same(&view.to_vec().expect("read"), &first, &what);
                                }
                            }
                        });
                    });
                }
                scope.spawn(move || {
                    clock.run(|| {
                        let mut rng = Rng(200);
                        while clock.goes_on() {
                            let (offset, len) = PLACES[rng.below(8) as usize];
                            let mut bytes = vec![0; len];
                            file.read_at(&mut bytes, offset).expect("read");
                            number_of(&bytes, &format!("{len} bytes at {offset}"));
                        }
                    });
                });
            });
        }
    }
}

/// Two transactions each read both values and write one of them. One of them must see the other's
/// write.
fn check_write_skew(file: &AtomicMappedFile, values: [u64; 2]) {
    const ROUNDS: usize = 200;
    let _watch = Watch::start();
    let together = Barrier::new(2);
    for at in values {
        file.store(at, &1u64).expect("store");
    }
    std::thread::scope(|scope| {
        for mine in 0..2 {
            let together = &together;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    together.wait();
                    file.transact(|tx| {
                        let both = [tx.load::<u64>(values[0])?, tx.load::<u64>(values[1])?];
                        if both[0] + both[1] == 2 {
                            tx.store(values[mine], &(both[mine] - 1))?;
                        }
                        Ok::<_, Error>(())
                    })
                    .expect("take one");
                    if together.wait().is_leader() {
                        let left: [u64; 2] = values.map(|at| file.load(at).expect("load"));
                        assert_eq!(left[0] + left[1], 1, "round {round}: both took one: {left:?}");
                        values.iter().for_each(|at| file.store(*at, &1u64).expect("put back"));
                    }
                    together.wait();
                }
            });
        }
    });
}

#[test]
fn two_transactions_that_read_both_values_and_write_one_each_do_not_miss_each_other() {
    for ground in grounds() {
        let (_scratch, file) = new_file(&ground, 2 * REGION, DeployPolicy::Lazy);
        check_write_skew(&file, [0, 100]);
        check_write_skew(&file, [0, PAGE]);
        check_write_skew(&file, [PAGE - 4, REGION - 4]);
    }
}

#[test]
fn clones_share_a_file_between_threads_and_the_last_one_closes_it() {
    for ground in grounds() {
        let (scratch, file) = new_file(&ground, REGION, DeployPolicy::Lazy);
        let handles: Vec<AtomicMappedFile> =
            (0..8).map(|_| file.try_clone().expect("clone")).collect();
        drop(file);
        let threads: Vec<_> = handles
            .into_iter()
            .enumerate()
            .map(|(n, handle)| {
                std::thread::spawn(move || {
                    handle.write_at(&stamp(n as u64, 5000), n as u64 * 5000).expect("write");
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("join"));
        assert!(scratch.reflections().is_empty(), "the last one closed it");
        let plain = std::fs::read(scratch.file("state.dat")).expect("read");
        for n in 0..8usize {
            assert_same(&plain[n * 5000..(n + 1) * 5000], &stamp(n as u64, 5000), "plain");
        }
    }
}
