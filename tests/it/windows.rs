//! Tests what other threads may do while an operation is half way through, and what must wait for
//! it.
//!
//! The recording platform interrupts a system call in the middle of an operation repeatedly, so the
//! operation stays there while the test needs it. Meanwhile another thread does what would
//! otherwise be a race. On a machine too busy to keep the window open, a test sees nothing and
//! passes. It never fails on correct code.

use crate::common::{self, Ground, Scratch, Watch, assert_same};
use atomic_mmap::testing::recorder::{Recorder, What};
use atomic_mmap::testing::{FileId, call, layout};
use atomic_mmap::{AtomicMappedFile, CloseMode, DeployPolicy, Error};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
const REGION: u64 = 262_144;
const CHUNK: u64 = 2 << 20;
const LONG: u64 = 8 * CHUNK;
/// Number of interruptions of a call: they take a second or more.
const INTERRUPTIONS: usize = 8000;

fn grounds() -> Vec<Ground> {
    [common::dax(), Some(common::ram())].into_iter().flatten().collect()
}

/// Makes a file of holes.
fn new_file(ground: &Ground) -> (Scratch, Recorder, AtomicMappedFile) {
    let scratch = ground.scratch();
    let recorder = Recorder::new();
    let options = ground.options().create(true).len(LONG).deploy(DeployPolicy::Manual);
    let file = options.open_recorded(&recorder, scratch.file("state.dat")).expect("open");
    (scratch, recorder, file)
}

/// An operation that is stopped in its system call.
struct Stuck<'scope, 'r, T> {
    thread: ScopedJoinHandle<'scope, T>,
    window: Window<'r>,
}

/// A window that closes when it is dropped, so that a failed test does not wait for it.
struct Window<'r>(&'r Recorder);

impl Drop for Window<'_> {
    fn drop(&mut self) {
        let _some_are_left = self.0.heal();
    }
}

impl<'scope, 'r, T: Send + 'scope> Stuck<'scope, 'r, T> {
    fn at<'env>(
        scope: &'scope Scope<'scope, 'env>,
        recorder: &'r Recorder,
        call: &'static str,
        operation: impl FnOnce() -> T + Send + 'scope,
    ) -> Self {
        for _ in 0..INTERRUPTIONS {
            recorder.fail_next(call, 1, libc::EINTR);
        }
        recorder.take();
        let thread = scope.spawn(operation);
        let is_there = |what: &What| matches!(what, What::Failed(name) if *name == call);
        while !thread.is_finished() && !recorder.take().iter().any(|e| is_there(&e.what)) {
            std::thread::yield_now();
        }
        Stuck { thread, window: Window(recorder) }
    }

    fn is_stuck(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Waits a short time for an event that must not happen meanwhile.
    fn happens(&self, mut what: impl FnMut() -> bool) -> bool {
        let end = Instant::now() + Duration::from_millis(200);
        while self.is_stuck() && Instant::now() < end {
            if what() {
                // An event counts only if it happened before the window closed.
                return self.is_stuck();
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        false
    }

    /// Returns `true` if the home file was truncated or the reflection file punched.
    fn is_cut(&self) -> bool {
        let is_cut = |what: &What| {
            matches!(what, What::SetLen { file: FileId::Home, .. } | What::Punch { .. })
        };
        self.happens(|| self.window.0.take().iter().any(|event| is_cut(&event.what)))
    }

    fn goes_on(self) -> T {
        drop(self.window);
        self.thread.join().expect("no panic")
    }
}

fn read(file: &AtomicMappedFile, at: u64, len: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![9; len];
    file.read_at(&mut bytes, at).map(|()| bytes)
}

#[test]
fn a_truncate_waits_for_readers() {
    for ground in grounds() {
        let _watch = Watch::start();
        let (_scratch, recorder, file) = new_file(&ground);
        std::thread::scope(|scope| {
            let reader = Stuck::at(scope, &recorder, call::READ, || read(&file, CHUNK, 100));
            scope.spawn(|| file.set_len(PAGE).expect("shrink"));
            assert!(!reader.is_cut(), "{}", ground.medium);
            let _either_way = reader.goes_on();
        });
    }
}

#[test]
fn a_truncate_waits_for_writers() {
    for ground in grounds() {
        for pages in [1, 20] {
            let _watch = Watch::start();
            let (_scratch, recorder, file) = new_file(&ground);
            // More than a flip record covers: its first slice is completed from a hole.
            let data = vec![1; pages * PAGE as usize - 100];
            std::thread::scope(|scope| {
                let write = || file.write_at(&data, CHUNK + 10);
                let writer = Stuck::at(scope, &recorder, call::READ, write);
                scope.spawn(|| file.set_len(PAGE).expect("shrink"));
                assert!(!writer.is_cut(), "{}", ground.medium);
                let _either_way = writer.goes_on();
            });
        }
    }
}

#[test]
fn a_punch_waits_for_readers() {
    for ground in grounds() {
        let _watch = Watch::start();
        let (_scratch, recorder, file) = new_file(&ground);
        file.write_at(&[1; PAGE as usize], 0).expect("write");
        std::thread::scope(|scope| {
            let reader = Stuck::at(scope, &recorder, call::READ, || read(&file, 3 * CHUNK, 100));
            scope.spawn(|| file.deploy(0..CHUNK).expect("deploy"));
            assert!(!reader.is_cut(), "{}", ground.medium);
            reader.goes_on().expect("read");
        });
    }
}

/// Once a reader has seen the short length, no write past the new end may become visible.
fn check_cut_write(short: u64, write: impl Fn(&AtomicMappedFile) -> Result<(), Error> + Sync) {
    for ground in grounds() {
        let _watch = Watch::start();
        let (_scratch, recorder, file) = new_file(&ground);
        std::thread::scope(|scope| {
            let writer = Stuck::at(scope, &recorder, call::ALLOCATE, || write(&file));
            scope.spawn(|| file.set_len(short).expect("shrink"));
            let is_short = writer.happens(|| file.len() == short);
            let before = if is_short { read(&file, 0, 8).ok() } else { None };
            let _either_way = writer.goes_on();
            if let Some(before) = before {
                let after = read(&file, 0, 8).expect("read");
                assert_same(&after, &before, &format!("{}, the file is short", ground.medium));
            }
        });
    }
}

#[test]
fn a_write_in_one_piece_over_the_new_end_comes_before_the_cut_or_not_at_all() {
    check_cut_write(10 * PAGE, |file| file.write_at(&[1; 20 * PAGE as usize], 0));
}

#[test]
fn a_write_in_pieces_on_both_sides_of_the_new_end_comes_before_the_cut_or_not_at_all() {
    check_cut_write(2 * CHUNK, |file| {
        file.transact(|tx| {
            tx.write_at(&[1; 8], 0)?;
            tx.write_at(&[1; 8], 4 * CHUNK)
        })
    });
}

/// A transaction that changes the length has found what it has read unchanged, and its bytes and
/// length come next. Another transaction that goes by the old length must not write to what the
/// first one has read: each of the two would come before the other.
#[test]
fn what_a_change_of_the_length_has_read_stays_until_its_commit() {
    for ground in grounds() {
        let _watch = Watch::start();
        let (_scratch, recorder, file) = new_file(&ground);
        file.write_at(&[1; 8], 0).expect("a write, which allocates the lane and the first chunk");
        std::thread::scope(|scope| {
            let shrink = || {
                file.transact(|tx| {
                    tx.read_at(&mut [0; 8], 0)?;
                    tx.set_len(6 * CHUNK)?;
                    tx.write_at(&[2; 8], 4 * CHUNK)
                })
            };
            let shrinker = Stuck::at(scope, &recorder, call::ALLOCATE, shrink);
            assert!(!shrinker.is_stuck() || file.len() == LONG, "not committed yet");
            let other = scope.spawn(|| {
                let mut tx = file.begin();
                let told = tx.len()?;
                tx.write_at(&[3; 8], 0)?;
                tx.commit().map(|()| told)
            });
            let is_over = shrinker.happens(|| other.is_finished());
            assert!(!is_over, "{}: a commit in between", ground.medium);
            shrinker.goes_on().expect("a shrink");
            match other.join().expect("no panic") {
                // It began when the shrink was over.
                Ok(told) => assert_ne!(told, LONG, "{}: the length has changed", ground.medium),
                Err(error) => assert!(error.is_conflict(), "{}: {error}", ground.medium),
            }
        });
    }
}

/// While a view exists, the file must not become shorter than the view.
#[test]
fn a_view_that_is_being_made_is_not_cut_off() {
    for ground in grounds() {
        let _watch = Watch::start();
        let (_scratch, recorder, file) = new_file(&ground);
        std::thread::scope(|scope| {
            let view = Stuck::at(scope, &recorder, call::ALLOCATE, || {
                let view = file.view(CHUNK..CHUNK + PAGE).ok()?;
                std::thread::sleep(Duration::from_millis(5));
                Some((view.is_mapped(), file.len()))
            });
            scope.spawn(|| match file.set_len(PAGE) {
                Ok(()) | Err(Error::Pinned { .. }) => {}
                Err(e) => panic!("{e}"),
            });
            let _it_is_not_to_be = view.happens(|| file.len() == PAGE);
            if let Some((true, len)) = view.goes_on() {
                assert_eq!(len, LONG, "{}: a view's bytes were truncated", ground.medium);
            }
        });
    }
}

/// A view of a deployed page without a lock holder: the thread that pins it takes no lock.
#[test]
fn a_view_that_takes_no_lock_is_not_cut_off() {
    for ground in grounds() {
        let _watch = Watch::start();
        let (scratch, _, file) = new_file(&ground);
        file.close(CloseMode::Fast).expect("close");
        let recorder = Recorder::new();
        let path = scratch.file("state.dat");
        let file = ground.options().open_recorded(&recorder, &path).expect("open");
        // Allocates, and loads the region.
        drop(file.view(CHUNK..CHUNK + PAGE).expect("view"));
        let (is_made, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            // The truncation has checked the pins, and reads the words of the region with its new
            // end.
            let shrink = Stuck::at(scope, &recorder, call::READ, || file.set_len(PAGE));
            let view = scope.spawn(|| {
                // On a busy machine the file may be short already.
                file.load::<u8>(CHUNK).ok()?;
                let view = file.view(CHUNK..CHUNK + PAGE).ok()?;
                is_made.store(true, Ordering::Relaxed);
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                Some((view.is_mapped(), file.len()))
            });
            let _it_is_not_to_be = shrink.happens(|| is_made.load(Ordering::Relaxed));
            let _either_way = shrink.goes_on();
            is_over.store(true, Ordering::Relaxed);
            if let Some((true, len)) = view.join().expect("no panic") {
                assert_eq!(len, LONG, "{}: a view's bytes were truncated", ground.medium);
            }
        });
    }
}

/// A transaction that has read bytes past a new end must not commit.
#[test]
fn what_was_read_and_is_cut_off_by_now_is_a_conflict() {
    for ground in grounds() {
        let _watch = Watch::start();
        let (_scratch, recorder, file) = new_file(&ground);
        file.write_at(&[5; 8], 0).expect("write");
        let mut tx = file.begin();
        let _zero: u64 = tx.load(6 * CHUNK).expect("load");
        tx.store(0, &1u64).expect("store");
        std::thread::scope(|scope| {
            // Delays the truncation at a region before the one that was read.
            let write = || file.write_at(&[1; 600], CHUNK);
            let writer = Stuck::at(scope, &recorder, call::ALLOCATE, write);
            let shrink = scope.spawn(|| file.set_len(REGION).expect("shrink"));
            if writer.happens(|| file.len() == REGION) {
                let committed = tx.commit();
                let is_conflict = committed.is_err_and(|e| e.is_conflict());
                assert!(is_conflict, "{}: committed", ground.medium);
            }
            let _either_way = writer.goes_on();
            shrink.join().expect("no panic");
        });
    }
}

/// Like the test above, but in the page with the new end: its first bytes stay. Between the new
/// length and the clean-up the transaction could commit. Found by review.
#[test]
fn what_was_read_of_the_page_that_is_cut_is_a_conflict() {
    for ground in grounds() {
        let _watch = Watch::start();
        let (_scratch, recorder, file) = new_file(&ground);
        let short = REGION + 100;
        // One transaction has a single segment, within its page. The other one has two and passes a
        // gate.
        let [mut one, mut two] = [file.begin(), file.begin()];
        for tx in [&mut one, &mut two] {
            let _zero: u64 = tx.load(short + 100).expect("load");
            tx.write_at(&[1; 64], 0).expect("write");
        }
        two.write_at(&[1; 64], PAGE).expect("write");
        std::thread::scope(|scope| {
            // This reader delays the clean-up, because it is in a read section.
            let reader = Stuck::at(scope, &recorder, call::READ, || read(&file, 6 * CHUNK, 100));
            let shrink = scope.spawn(|| file.set_len(short).expect("shrink"));
            if reader.happens(|| file.len() == short) {
                for tx in [one, two] {
                    let is_conflict = tx.commit().is_err_and(|e| e.is_conflict());
                    assert!(is_conflict, "{}: committed", ground.medium);
                }
            }
            let _either_way = reader.goes_on();
            shrink.join().expect("no panic");
        });
    }
}

/// A reader checks the length and then loads the words of a region for the first time. It must not
/// keep words that the truncation is about to zero.
#[test]
fn a_region_that_is_being_touched_does_not_keep_words_that_are_cut_off() {
    for ground in grounds() {
        let _watch = Watch::start();
        let (scratch, _, file) = new_file(&ground);
        let data = vec![1; 16 * PAGE as usize];
        file.write_at(&data, 2 * REGION).expect("write");
        file.close(CloseMode::Fast).expect("close");
        let recorder = Recorder::new();
        let path = scratch.file("state.dat");
        let file = ground.options().open_recorded(&recorder, &path).expect("open");
        file.read_at(&mut [0], 0).expect("load the region of the new end");
        std::thread::scope(|scope| {
            let touch = || read(&file, 2 * REGION, 8);
            let reader = Stuck::at(scope, &recorder, call::READ, touch);
            let shrink = scope.spawn(|| file.set_len(PAGE).expect("shrink"));
            let _both_wait = reader.happens(|| shrink.is_finished());
            let _either_way = reader.goes_on();
        });
        file.set_len(LONG).expect("grow");
        // Through the page word, which flips the slot that the region word selects.
        let data = vec![7; 200];
        file.write_at(&data, 2 * REGION).expect("write");
        file.close(CloseMode::Fast).expect("close");
        let file = ground.options().open(&path).expect("open");
        let found = read(&file, 2 * REGION, data.len()).expect("read");
        assert_same(&found, &data, &format!("{}, reopened", ground.medium));
    }
}

/// The first slice of a page lies in the reflection file, and the others in a hole of the home
/// file. During the read the whole range is written, twice.
fn check_read(pages: usize, read: impl Fn(&AtomicMappedFile) -> Result<Vec<u8>, Error> + Sync) {
    for ground in grounds() {
        let _watch = Watch::start();
        let (_scratch, recorder, file) = new_file(&ground);
        let write = |n: u8| file.write_at(&vec![n; pages * PAGE as usize], 0).expect("write");
        file.transact(|tx| {
            // Two ranges of a page.
            tx.write_at(&[1; 30], 0)?;
            tx.write_at(&[1; 30], 34)
        })
        .expect("write");
        let before = read(&file).expect("read");
        std::thread::scope(|scope| {
            let reader = Stuck::at(scope, &recorder, call::READ, || read(&file));
            let was_stuck = reader.is_stuck() && {
                write(2);
                write(3);
                reader.is_stuck()
            };
            let found = reader.goes_on();
            // A transaction may also return a conflict.
            if let (true, Ok(found)) = (was_stuck, found) {
                let is_one = |n| found.iter().all(|byte| *byte == n);
                assert!(found == before || is_one(2) || is_one(3), "{}: torn", ground.medium);
            }
        });
    }
}

#[test]
fn a_read_of_a_page_that_is_written_meanwhile_is_of_one_state() {
    check_read(1, |file| read(file, 0, 128));
}

#[test]
fn a_read_of_a_page_in_a_region_that_is_written_meanwhile_is_of_one_state() {
    check_read(10, |file| read(file, 0, 128));
}

#[test]
fn a_read_over_pages_that_are_written_meanwhile_is_of_one_state() {
    check_read(2, |file| read(file, 0, PAGE as usize + 100));
}

#[test]
fn a_read_over_pages_of_a_region_that_is_written_meanwhile_is_of_one_state() {
    check_read(10, |file| read(file, 0, PAGE as usize + 100));
}

#[test]
fn a_transaction_that_reads_what_is_written_meanwhile_reads_one_state() {
    check_read(2, |file| {
        let mut bytes = vec![0; 128];
        file.begin().read_at(&mut bytes, 0).map(|()| bytes)
    });
}

/// A has read `x` and writes `y`. B writes `x` and returns. C has seen B's write and reads `y`. If
/// C reads the old `y`, A must not commit any more, because A precedes B.
#[test]
fn a_reader_of_a_commit_sees_the_commit_that_precedes_it() {
    const X: u64 = 0;
    const Y: u64 = CHUNK;
    for ground in grounds() {
        let _watch = Watch::start();
        let (_scratch, recorder, file) = new_file(&ground);
        // Allocates and loads what B and C need, because A will block that.
        file.load::<u64>(Y).expect("a hole");
        for _ in 0..2 {
            file.store(X, &1u64).expect("store");
        }
        let mut a = file.begin();
        let _one: u64 = a.load(X).expect("load");
        a.store(Y, &1u64).expect("store");
        std::thread::scope(|scope| {
            // A has locked its words exclusively, and has validated `x`.
            let a = Stuck::at(scope, &recorder, call::ALLOCATE, || a.commit());
            file.store(X, &2u64).expect("B");
            let c = scope.spawn(|| file.load::<u64>(Y).expect("C"));
            if a.happens(|| c.is_finished()) && c.join().expect("no panic") == 0 {
                let committed = a.goes_on();
                assert!(committed.is_err(), "{}: C saw B and not A", ground.medium);
            } else {
                let _either_way = a.goes_on();
            }
        });
    }
}

/// A reader has located the slices of a page. Then the page is deployed, and a writer stores to the
/// freed slots. Without a new version the reader would accept half-written bytes.
#[test]
fn a_read_of_a_page_that_comes_home_and_is_written_meanwhile_is_of_one_state() {
    const PAGES: u64 = 600;
    // In some tries the writer is through before the reader goes on.
    for ground in (0..6).flat_map(|_| grounds()) {
        let _watch = Watch::start();
        let (_scratch, recorder, file) = new_file(&ground);
        file.transact(|tx| {
            tx.write_at(&[1; 30], 64)?;
            tx.write_at(&[1; 30], 98)
        })
        .expect("write");
        // Every other page, so that the writer below copies page by page.
        for n in (1..PAGES).step_by(2) {
            file.write_at(&[1; PAGE as usize], n * PAGE).expect("write");
        }
        let before = read(&file, 0, 256).expect("read");
        std::thread::scope(|scope| {
            let reader = Stuck::at(scope, &recorder, call::READ, || read(&file, 0, 256));
            file.deploy(0..PAGE).expect("deploy");
            // Drops earlier events, so that the looks at the writer are short.
            drop(recorder.take());
            let data = vec![9; (PAGES * PAGE) as usize - 64];
            let file = &file;
            let writer = scope.spawn(move || file.write_at(&data, 64).expect("write"));
            // The writer has copied to the page, and continues with the others.
            let first = layout::reflection(64);
            let has_copied = |what: &What| matches!(what, What::Copy { file: FileId::Reflection, offset, .. } if *offset == first);
            let _in_time = reader.happens(|| recorder.take().iter().any(|e| has_copied(&e.what)));
            let found = reader.goes_on().expect("read");
            writer.join().expect("no panic");
            let is_new = found[64..].iter().all(|byte| *byte == 9);
            assert!(found == before || is_new, "{}: torn", ground.medium);
        });
    }
}
