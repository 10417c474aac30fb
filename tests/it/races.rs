//! Tests the steps that exist only because of a race, while the race is run.
//!
//! Two or three threads race with each other for a while, on each medium in memory, and verify the
//! bytes that they read. Without the check, wait or lock under test, the assertion fails almost
//! always, or the process gets a SIGBUS. With it, the test never fails. `threads` tests
//! the promises as a whole, this file tests single steps.

use crate::common::{self, Ground, Scratch, Watch, assert_same};
use atomic_mmap::{AtomicMappedFile, DeployPolicy};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
const REGION: u64 = 262_144;
/// How long each race runs on each medium.
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

/// Ends a race after a while, or as soon as a thread has seen a wrong result.
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

    /// Notes a wrong result. The test fails when all threads have ended.
    fn check(&self, is_right: bool) {
        self.wrong.fetch_or(!is_right, Ordering::Relaxed);
    }

    fn over(self, what: &str) {
        assert!(!self.wrong.load(Ordering::Relaxed), "{what}");
    }
}

/// Returns bytes that repeat one number.
fn stamp(n: u64, len: usize) -> Vec<u8> {
    let mut bytes = n.to_le_bytes().repeat(len.div_ceil(8));
    bytes.truncate(len);
    bytes
}

fn is_one(bytes: &[u8]) -> bool {
    bytes.chunks(8).all(|piece| *piece == bytes[..piece.len()])
}

/// Races a writer of `write` (offset and length) against two readers of `read`, a part of it.
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

/// Writers of neighbouring pages flip bits of one region word. No bit may be lost, in memory or on
/// the medium.
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

/// Races a thread that makes a view of a page against a writer of the page. The writer uses every
/// protocol that the pins allow.
#[test]
fn a_view_that_is_made_while_its_page_is_written_does_not_change() {
    for ground in grounds() {
        let (_scratch, file) = new_file(&ground, REGION);
        let race = Race::start();
        std::thread::scope(|scope| {
            let (file, race) = (&file, &race);
            scope.spawn(move || {
                for n in 1.. {
                    // Small writes are stored in place. Larger ones flip, and the page is deployed
                    // again.
                    let len = if n % 3 == 0 { PAGE as usize } else { 64 };
                    file.write_at(&stamp(n, len), 0).expect("write");
                    if n % 4 == 0 {
                        file.deploy(0..PAGE).expect("deploy");
                    }
                    if !race.goes_on() {
                        break;
                    }
                }
            });
            scope.spawn(move || {
                while race.goes_on() {
                    let view = file.view(0..64).expect("view");
                    let first = view.to_vec().expect("read");
                    race.check(is_one(&first));
                    for _ in 0..20 {
                        race.check(view.to_vec().expect("read") == first);
                    }
                    drop(view);
                    // This thread may pin a page that it has not written without a wait.
                    file.load::<u8>(2 * PAGE).expect("load");
                }
            });
        });
        race.over(&format!("{}: a view has changed", ground.medium));
    }
}

/// Races a thread that makes a view of the last page against a thread that truncates the file.
#[test]
fn a_view_that_is_made_while_the_file_becomes_shorter_is_as_long_as_it_was() {
    for ground in grounds() {
        // Truncation locks the region with the new end meanwhile, so the page is in another region.
        let (_scratch, file) = new_file(&ground, 2 * REGION);
        let race = Race::start();
        std::thread::scope(|scope| {
            let (file, race) = (&file, &race);
            scope.spawn(move || {
                while race.goes_on() {
                    // Fails while a view exists.
                    let _pinned = file.set_len(PAGE);
                    file.set_len(2 * REGION).expect("grow");
                    file.write_at(&[1; PAGE as usize], 2 * REGION - PAGE).expect("write");
                    // A view of a deployed page takes no lock.
                    file.deploy(2 * REGION - PAGE..2 * REGION).expect("deploy");
                    for _ in 0..200 {
                        std::hint::spin_loop();
                    }
                }
            });
            for _ in 0..2 {
                scope.spawn(move || {
                    while race.goes_on() {
                        let Ok(view) = file.view(2 * REGION - 64..2 * REGION) else { continue };
                        for _ in 0..20 {
                            race.check(!view.is_mapped() || file.len() == 2 * REGION);
                        }
                    }
                });
            }
        });
        race.over(&format!("{}: a view's bytes were truncated", ground.medium));
    }
}
