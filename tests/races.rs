//! What is there only for the sake of a race: does it hold while the race is run?
//!
//! How: two or three threads run into each other as often as they can, for a while on each medium in
//! memory, and what they see certifies itself. On code without the check, the wait or the lock that a
//! test is about, its assertion fails (or the process gets a SIGBUS) almost always; on code with it,
//! never. `tests/threads.rs` asks about the promises as a whole, this file about single steps.
#![cfg(unix)]

mod common;

use atomic_mmap::{AtomicMappedFile, DeployPolicy, Error};
use common::{Ground, Rng, Scratch, Watch, assert_same};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
const REGION: u64 = 262_144;
/// How long a race is run, on each medium.
const A_WHILE: Duration = Duration::from_millis(400);

fn grounds() -> Vec<Ground> {
    [common::dax(), Some(common::ram())].into_iter().flatten().collect()
}

fn new_file(ground: &Ground, len: u64) -> (Scratch, AtomicMappedFile) {
    let scratch = ground.scratch();
    let options = ground.options().create(true).len(len).deploy(DeployPolicy::Manual);
    let file = options.open(scratch.file("state.dat")).expect("open");
    (scratch, file)
}

/// Says when a race is over: after a while, or as soon as somebody has seen what must not be.
struct Race {
    end: Instant,
    wrong: AtomicBool,
    _watch: Watch,
}

impl Race {
    fn start() -> Race {
        let end = Instant::now() + A_WHILE;
        Race { end, wrong: AtomicBool::new(false), _watch: Watch::start() }
    }

    fn goes_on(&self) -> bool {
        Instant::now() < self.end && !self.wrong.load(Ordering::Relaxed)
    }

    /// Notes what must not be; `run` fails when all threads have ended.
    fn check(&self, is_right: bool) {
        self.wrong.fetch_or(!is_right, Ordering::Relaxed);
    }

    fn over(self, what: &str) {
        assert!(!self.wrong.load(Ordering::Relaxed), "{what}");
    }
}

/// Bytes that all carry one number.
fn stamp(n: u64, len: usize) -> Vec<u8> {
    let mut bytes = n.to_le_bytes().repeat(len.div_ceil(8));
    bytes.truncate(len);
    bytes
}

fn is_one(bytes: &[u8]) -> bool {
    bytes.chunks(8).all(|piece| *piece == bytes[..piece.len()])
}

/// A writer of `write` (offset and length) against two readers of `read`, a part of it.
fn check_reads(write: (u64, usize), read: (u64, usize)) {
    for ground in grounds() {
        let (_scratch, file) = new_file(&ground, 2 * REGION);
        let race = Race::start();
        std::thread::scope(|scope| {
            let (file, race) = (&file, &race);
            scope.spawn(move || {
                for n in 1.. {
                    file.write_at(&stamp(n, write.1), write.0).expect("write");
                    if !race.goes_on() {
                        break;
                    }
                }
            });
            for _ in 0..2 {
                scope.spawn(move || {
                    let mut bytes = vec![0; read.1];
                    while race.goes_on() {
                        for _ in 0..50 {
                            file.read_at(&mut bytes, read.0).expect("read");
                            race.check(is_one(&bytes));
                        }
                    }
                });
            }
        });
        race.over(&format!("{}: torn", ground.medium));
    }
}

#[test]
fn a_small_read_sees_no_half_of_a_small_write() {
    check_reads((0, 256), (0, 256));
}

#[test]
fn a_read_of_a_page_sees_no_half_of_a_write_of_it() {
    check_reads((0, 4096), (0, 4096));
}

#[test]
fn a_read_of_a_page_sees_no_half_of_a_write_of_its_region() {
    check_reads((0, 10 * PAGE as usize), (PAGE, 4096));
}

/// Neighbours flip bits of one region word: none of them may be lost, in memory or on the medium.
#[test]
fn writers_of_neighbouring_blocks_do_not_lose_each_others_bits() {
    for ground in grounds() {
        let (scratch, file) = new_file(&ground, REGION);
        let race = Race::start();
        let last = [const { AtomicU64::new(0) }; 3];
        std::thread::scope(|scope| {
            for (thread, last) in last.iter().enumerate() {
                let (file, race) = (&file, &race);
                scope.spawn(move || {
                    let at = thread as u64 * 2 * PAGE;
                    let mut found = vec![0; 2 * PAGE as usize];
                    for n in 1.. {
                        let data = stamp(n, found.len());
                        file.write_at(&data, at).expect("write");
                        last.store(n, Ordering::Relaxed);
                        file.read_at(&mut found, at).expect("read");
                        race.check(found == data);
                        if !race.goes_on() {
                            break;
                        }
                    }
                });
            }
        });
        race.over(&format!("{}: lost", ground.medium));
        file.close(atomic_mmap::CloseMode::Fast).expect("close");
        let file = ground.options().open(scratch.file("state.dat")).expect("open");
        for (thread, last) in last.iter().enumerate() {
            let mut found = vec![0; 2 * PAGE as usize];
            file.read_at(&mut found, thread as u64 * 2 * PAGE).expect("read");
            assert_same(&found, &stamp(last.load(Ordering::Relaxed), found.len()), "reopened");
        }
    }
}

/// Changes the length between `short` and `long` while others do something. The number that they are
/// given is odd while the file is short and nobody is about to lengthen it.
fn with_changing_length(
    file: &AtomicMappedFile,
    (short, long): (u64, u64),
    race: &Race,
    others: &[&(dyn Fn(&AtomicU64) + Sync)],
) {
    let epoch = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for other in others {
            let epoch = &epoch;
            scope.spawn(move || {
                while race.goes_on() {
                    other(epoch);
                }
            });
        }
        let mut rng = Rng(1);
        while race.goes_on() {
            match file.set_len(short) {
                Ok(()) | Err(Error::Pinned { .. }) => {}
                Err(e) => panic!("{e}"),
            }
            std::thread::sleep(Duration::from_micros(50 + rng.below(200)));
            epoch.fetch_add(1, Ordering::SeqCst);
            file.set_len(long).expect("grow");
            std::thread::sleep(Duration::from_micros(rng.below(300)));
        }
    });
}

const LONG: u64 = 16 << 20;

/// A copy that has begun is not cut off: who cuts waits for readers, and for writers by their locks.
#[test]
fn nothing_is_cut_off_under_who_reads_or_writes_it() {
    for ground in grounds() {
        let (_scratch, file) = new_file(&ground, LONG);
        file.write_at(&vec![1; LONG as usize], 0).expect("allocate");
        let race = Race::start();
        let expect = |result: Result<(), Error>| match result {
            Ok(()) | Err(Error::OutOfRange { .. }) => {}
            Err(e) => panic!("{e}"),
        };
        let read = |_: &AtomicU64| expect(file.read_at(&mut vec![0; 6 << 20], LONG - (6 << 20)));
        let write = |_: &AtomicU64| expect(file.write_at(&vec![2; 3 << 20], LONG - (3 << 20)));
        with_changing_length(&file, (PAGE, LONG), &race, &[&read, &write]);
        race.over("nothing to see");
    }
}

/// Who has seen that the file is short sees no write any more that ends past its end.
fn check_cut_writes(
    write: impl Fn(&AtomicMappedFile, u64) -> Result<(), Error> + Sync,
    short: u64,
) {
    for ground in grounds() {
        let (_scratch, file) = new_file(&ground, LONG);
        let race = Race::start();
        let number = AtomicU64::new(0);
        let write = |_: &AtomicU64| match write(&file, number.fetch_add(1, Ordering::Relaxed)) {
            Ok(()) | Err(Error::OutOfRange { .. }) => {}
            Err(e) => panic!("{e}"),
        };
        let look = |epoch: &AtomicU64| {
            let before = epoch.load(Ordering::SeqCst);
            if file.len() == short {
                let first: u64 = file.load(0).expect("load");
                std::thread::sleep(Duration::from_micros(100));
                let then: u64 = file.load(0).expect("load");
                let is_short = file.len() == short && epoch.load(Ordering::SeqCst) == before;
                race.check(!is_short || first == then);
            }
        };
        with_changing_length(&file, (short, LONG), &race, &[&write, &look]);
        race.over(&format!("{}: a write past the end", ground.medium));
    }
}

#[test]
fn a_write_in_one_piece_over_the_new_end_comes_before_the_cut_or_not_at_all() {
    let write = |file: &AtomicMappedFile, n| file.write_at(&stamp(n, 60 * PAGE as usize), 0);
    check_cut_writes(write, 40 * PAGE);
}

#[test]
fn a_write_in_pieces_on_both_sides_of_the_new_end_comes_before_the_cut_or_not_at_all() {
    let write = |file: &AtomicMappedFile, n| {
        let mut tx = file.begin();
        tx.write_at(&stamp(n, 20 * PAGE as usize), 0)?;
        tx.write_at(&stamp(n, 20 * PAGE as usize), 4 * REGION)?;
        tx.commit()
    };
    check_cut_writes(write, 2 * REGION);
}

/// While a view lives the file is as long as the view.
#[test]
fn nothing_that_a_view_pins_is_cut_off() {
    for ground in grounds() {
        let (_scratch, file) = new_file(&ground, LONG);
        let race = Race::start();
        let look = |_: &AtomicU64| match file.view(4 * REGION..4 * REGION + 20 * PAGE) {
            Ok(view) => {
                let is_there = file.len() == LONG;
                std::thread::sleep(Duration::from_micros(100));
                race.check(!view.is_mapped() || is_there && file.len() == LONG);
                drop(view);
                std::thread::sleep(Duration::from_micros(100));
            }
            Err(Error::OutOfRange { .. }) => {}
            Err(e) => panic!("{e}"),
        };
        with_changing_length(&file, (PAGE, LONG), &race, &[&look, &look]);
        race.over(&format!("{}: a view's bytes were cut off", ground.medium));
    }
}

/// A transaction that has read what lies past the end of a file that is short by now cannot commit.
#[test]
fn what_was_read_and_is_cut_off_by_now_is_a_conflict() {
    for ground in grounds() {
        let (_scratch, file) = new_file(&ground, LONG);
        let race = Race::start();
        // Keeps the cut waiting for a region before the one that was read.
        let data = vec![3; 2 * REGION as usize];
        let write = |_: &AtomicU64| match file.write_at(&data, REGION) {
            Ok(()) | Err(Error::OutOfRange { .. }) => {}
            Err(e) => panic!("{e}"),
        };
        let transact = |_: &AtomicU64| {
            let mut tx = file.begin();
            if tx.load::<u64>(8 * REGION).is_err() {
                return;
            }
            let begun = Instant::now();
            while file.len() == LONG {
                if begun.elapsed() > Duration::from_millis(5) {
                    return;
                }
                std::hint::spin_loop();
            }
            let committed = tx.store(0, &1u64).and_then(|()| tx.commit());
            race.check(committed.is_err_and(|e| e.is_conflict()));
        };
        with_changing_length(&file, (PAGE, LONG), &race, &[&write, &transact]);
        race.over(&format!("{}: committed", ground.medium));
    }
}
