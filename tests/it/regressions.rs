//! Regression tests, one for each bug that a review, a fuzzer or the lab found.
//!
//! Each test repeats what the program did when the bug was found, and its comment tells how the bug
//! showed. If the bug was a race, the test widens the window or enters it often. With the bug the
//! test fails almost always, without it never. A watchdog ends the tests of bugs that hung.

use crate::common::{
    self, Ground, Rng, Scratch, Snapshot, Watch, assert_same, media, read_all, role, run_child,
};
use atomic_mmap::testing::entry::{Seed, Sequence, Spill, Undo, UndoBody};
use atomic_mmap::testing::recorder::{Recorder, What};
use atomic_mmap::testing::superblock::{Copy, SUPERBLOCK_LEN, State, Superblock};
use atomic_mmap::testing::{FileId, LaneIndex, PageIndex, call, layout};
use atomic_mmap::{AtomicMappedFile, CloseMode, Error, Medium, Mismatch, OnMismatch, Roots};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CHILD: &str = concat!(module_path!(), "::plays_the_child_if_it_is_one");
const PAGE: u64 = 4096;
const REGION: u64 = 262_144;
/// A length of a few regions, within one chunk.
const LEN: u64 = 1 << 20;
/// How long each race runs on each medium.
const A_WHILE: Duration = Duration::from_millis(400);

#[test]
fn plays_the_child_if_it_is_one() {
    let Some((role, path)) = role() else { return };
    match role.split(' ').collect::<Vec<_>>()[..] {
        ["busy"] => {
            let folder = path.parent().expect("a folder");
            let before = Snapshot::of(folder);
            let error = AtomicMappedFile::open(&path).expect_err("the parent has it open");
            assert!(matches!(error, Error::Busy { in_this_process: false, .. }), "{error:?}");
            before.assert_unchanged(folder, "busy");
        }
        ["map"] => map_and_allocate(&path),
        ["crash", medium] => {
            let options = AtomicMappedFile::options().medium(medium.parse().expect("a medium"));
            let file = options.open(&path).expect("open");
            file.write_at(&[2; 10_000], 100).expect("write");
            common::crash();
        }
        ["peak"] => {
            let file = AtomicMappedFile::options().medium(Medium::Ram).open(&path).expect("open");
            assert_same(&read_all(&file)[..16 * PAGE as usize], &[1; 16 * PAGE as usize], "read");
            let status = fs::read_to_string("/proc/self/status").expect("status");
            let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("VmHWM");
            let peak: u64 = line.split_whitespace().nth(1).expect("a number").parse().expect("one");
            assert!(peak < 100 << 10, "{peak} KiB at most");
        }
        _ => panic!("no role {role}"),
    }
}

/// Returns the test beds in memory, so that no test waits for a disk.
fn grounds() -> Vec<Ground> {
    common::media_in_memory()
}

/// Makes a new file of `len` zero bytes.
fn new_file(ground: &Ground, len: u64) -> (Scratch, AtomicMappedFile) {
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let file = ground.options().create(true).len(len).open(path).expect("create");
    (scratch, file)
}

/// Makes a plain file of `len` bytes without holes. A first session writes ones to its first 16
/// pages. A fast close leaves them in the reflection file, with bitmap words that the next session
/// has not loaded.
fn closed_pair(ground: &Ground, len: u64) -> Scratch {
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    fs::write(&path, vec![0; len as usize]).expect("write the plain file");
    let file = ground.options().open(&path).expect("open");
    file.write_at(&[1; 16 * PAGE as usize], 0).expect("write");
    file.close(CloseMode::Fast).expect("close");
    scratch
}

/// Returns the bytes of `closed_pair` after a truncation to one page and a growth to the old
/// length. Pages 1 to 8 hold sevens afterwards.
fn cut_and_written(len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    bytes[..PAGE as usize].fill(1);
    bytes[PAGE as usize..9 * PAGE as usize].fill(7);
    bytes
}

fn write_sevens(file: &AtomicMappedFile) {
    file.write_at(&[7; 8 * PAGE as usize], PAGE).expect("write");
}

/// Makes a file longer without the crate, and without storage.
fn lengthen(path: &Path, len: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("open");
    file.set_len(len).expect("change the length");
}

/// A refused open released its lock by closing the file. A child process that another thread was
/// starting had inherited the file, and kept it locked until its `exec`. Until then the next open
/// failed with `Busy`. Found on an emulated machine with a real DAX mount, where a start is slow.
#[test]
fn a_refused_open_leaves_no_lock_to_a_process_that_is_being_started() {
    let _watch = Watch::start();
    let ground = common::ram();
    let scratch = closed_pair(&ground, LEN);
    let path = scratch.file("state.dat");
    OpenOptions::new().write(true).open(&path).expect("open").set_len(PAGE).expect("cut");
    let end = Instant::now() + A_WHILE;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while Instant::now() < end {
                    // No program has this name: only the moment before `exec` counts.
                    let started = std::process::Command::new("/no/such/program").spawn();
                    assert!(started.is_err());
                }
            });
        }
        while Instant::now() < end {
            let error = ground.options().open(&path).expect_err("cut");
            assert!(matches!(error, Error::Mismatch { .. }), "{error:?}");
        }
    });
}

/// A second open of a file in one process hung, and so did every open after it. It had made a
/// second registration before it found the first one. It dropped that under a lock that the drop
/// takes as well. Found by review.
#[test]
fn a_second_open_in_the_same_process_is_refused_and_nothing_hangs() {
    let _watch = Watch::start();
    for ground in media() {
        let (scratch, file) = new_file(&ground, PAGE);
        file.write_at(b"first", 0).expect("write");
        for _ in 0..3 {
            let error = ground.options().open(file.path()).expect_err("open already");
            assert!(matches!(error, Error::Busy { in_this_process: true, .. }), "{error:?}");
        }
        // Other files still open. The first handle works and stays the only one until it is closed.
        let other = ground.options().create(true).len(PAGE).open(scratch.file("other"));
        drop(other.expect("another file"));
        file.write_at(b"still", 0).expect("write");
        let error = ground.options().open(file.path()).expect_err("open still");
        assert!(matches!(error, Error::Busy { in_this_process: true, .. }), "{error:?}");
        drop(file);
        let file = ground.options().open(scratch.file("state.dat")).expect("free again");
        let mut bytes = [0; 5];
        file.read_at(&mut bytes, 0).expect("read");
        assert_eq!(&bytes, b"still");
    }
}

/// An operation over a few pages took their locks one by one, and waited for the next one with
/// others locked. A writer of many pages locks the region and then waits until its pages are
/// unlocked. Each waited for the other forever, within seconds. Found by review.
#[test]
fn operations_over_several_pages_and_writers_of_whole_regions_do_not_wait_for_each_other_for_ever()
{
    let _watch = Watch::start();
    for ground in grounds() {
        let (_scratch, file) = new_file(&ground, LEN);
        let end = Instant::now() + 2 * A_WHILE;
        let done = [const { AtomicU64::new(0) }; 4];
        // Runs until each thread has done some work, however loaded the machine is. The watchdog
        // ends a deadlock.
        let goes_on =
            || Instant::now() < end || done.iter().any(|done| done.load(Ordering::Relaxed) == 0);
        std::thread::scope(|scope| {
            let (file, done, goes_on) = (&file, &done, &goes_on);
            // Two pages, in one write.
            scope.spawn(move || {
                while goes_on() {
                    file.write_at(&[1; 200], PAGE - 96).expect("write");
                    done[0].fetch_add(1, Ordering::Relaxed);
                }
            });
            // Several pages of two regions that are not neighbours, in one transaction.
            scope.spawn(move || {
                while goes_on() {
                    let many = file.transact(|tx| {
                        for page in [0, 1, 5, 64, 66] {
                            tx.write_at(&[2; 100], page * PAGE + 50)?;
                        }
                        Ok::<_, Error>(())
                    });
                    many.expect("transact");
                    done[1].fetch_add(1, Ordering::Relaxed);
                }
            });
            // The lock of one region, and the locks of two regions.
            scope.spawn(move || {
                let data = vec![3; REGION as usize / 4];
                while goes_on() {
                    file.write_at(&data, 0).expect("write");
                    done[2].fetch_add(1, Ordering::Relaxed);
                }
            });
            scope.spawn(move || {
                let data = vec![4; REGION as usize];
                while goes_on() {
                    file.write_at(&data, REGION / 2).expect("write");
                    done[3].fetch_add(1, Ordering::Relaxed);
                }
            });
        });
        for (n, done) in done.iter().enumerate() {
            assert!(done.load(Ordering::Relaxed) > 0, "thread {n} got nowhere");
        }
    }
}

/// A shrink zeroed the words past the new end on the medium while another thread loaded them. Then
/// the cached copies differed from the medium. A write after the next growth flipped bits of the
/// cached copies. It was acknowledged and read back, but lost after reopening. Found by review.
#[test]
fn a_write_after_a_shrink_and_a_growth_survives_a_concurrent_load_of_the_cut_region() {
    /// Long enough that the truncation takes a moment.
    const LONG: u64 = 4 << 20;
    let _watch = Watch::start();
    let expected = cut_and_written(LONG);
    for ground in media() {
        let end = Instant::now() + 2 * A_WHILE;
        let mut rng = Rng(1);
        let mut round = 0;
        while round == 0 || Instant::now() < end {
            round += 1;
            let scratch = closed_pair(&ground, LONG);
            let path = scratch.file("state.dat");
            let file = ground.options().open(&path).expect("open");
            let pause = rng.below(400);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    // The first load of the region happens when the truncation is visible, or a
                    // little later.
                    while file.len() > PAGE {
                        std::hint::spin_loop();
                    }
                    (0..pause).for_each(|_| std::hint::spin_loop());
                    if round % 2 == 0 {
                        file.write_at(&[1; 8], 0).expect("write");
                    } else {
                        let mut bytes = [0; 8];
                        file.read_at(&mut bytes, 0).expect("read");
                        assert_eq!(bytes, [1; 8]);
                    }
                });
                file.set_len(PAGE).expect("shrink");
            });
            file.set_len(LONG).expect("grow");
            write_sevens(&file);
            assert_same(&read_all(&file), &expected, "before reopening");
            file.close(CloseMode::Fast).expect("close");
            let file = ground.options().open(&path).expect("open");
            assert_same(
                &read_all(&file),
                &expected,
                &format!("{}, round {round}, after reopening", ground.medium),
            );
        }
    }
}

/// Truncates a pair to one page with a failed clean-up, and loads the truncated region. The next
/// `set_len` finishes the truncation.
fn catch_up_with_a_failed_clean_up(ground: &Ground) -> (Scratch, AtomicMappedFile) {
    let scratch = closed_pair(ground, LEN);
    let recorder = Recorder::new();
    let path = scratch.file("state.dat");
    let file = ground.options().open_recorded(&recorder, path).expect("open");
    recorder.fail_next(call::SET_LEN, 1, libc::EIO);
    file.set_len(PAGE).expect("the cut itself has succeeded");
    assert!(!recorder.heal(), "the clean-up has failed");
    assert_eq!(file.len(), PAGE);
    let mut bytes = [0; 8];
    file.read_at(&mut bytes, 0).expect("read");
    assert_eq!(bytes, [1; 8]);
    file.set_len(LEN).expect("grow");
    (scratch, file)
}

/// A shrink with a failed clean-up succeeds, and leaves words past the length. A region that was
/// loaded then cached these words. The next `set_len` zeroed them on the medium but not in the
/// cached copy. A later write was acknowledged, and lost after reopening. Found by review.
#[test]
fn a_set_len_that_catches_up_with_a_failed_clean_up_loses_no_write() {
    let expected = cut_and_written(LEN);
    for ground in media() {
        for mode in [CloseMode::Fast, CloseMode::Spatial] {
            let (scratch, file) = catch_up_with_a_failed_clean_up(&ground);
            let mut cut = vec![9; (LEN - PAGE) as usize];
            file.read_at(&mut cut, PAGE).expect("read");
            assert_same(&cut, &vec![0; cut.len()], "truncated bytes are zero");
            write_sevens(&file);
            assert_same(&read_all(&file), &expected, "before closing");
            file.close(mode).expect("close");
            let file = ground.options().open(scratch.file("state.dat")).expect("open");
            assert_same(&read_all(&file), &expected, &format!("{}, {mode:?}", ground.medium));
        }
    }
}

/// Like the test above, but the close finishes the truncation. It found pages past the end of the
/// file in the reflection file, in stale cached copies, and panicked. Found by review.
#[test]
fn a_close_that_catches_up_with_a_failed_clean_up_does_not_panic() {
    for ground in media() {
        for mode in [CloseMode::Spatial, CloseMode::Fast] {
            let scratch = closed_pair(&ground, LEN);
            let path = scratch.file("state.dat");
            let recorder = Recorder::new();
            let file = ground.options().open_recorded(&recorder, &path).expect("open");
            recorder.fail_next(call::SET_LEN, 1, libc::EIO);
            file.set_len(PAGE).expect("the cut itself has succeeded");
            assert!(!recorder.heal(), "the clean-up has failed");
            let mut bytes = [0; 8];
            file.read_at(&mut bytes, 0).expect("read");
            file.close(mode).expect("close");
            assert_eq!(fs::metadata(&path).expect("stat").len(), PAGE);
            let file = ground.options().open(&path).expect("open");
            assert_same(&read_all(&file), &[1; PAGE as usize], "the page that was kept");
        }
    }
}

/// Counts A up. Transactions read A and write its value to B in another region, with many bytes
/// more. A reader that has seen A = 7 with B = 3 must never see B = 5 afterwards. That B would come
/// from a transaction that read A = 5 and committed after A = 7.
fn watch_an_order(ground: &Ground, mut look: impl FnMut(&AtomicMappedFile) -> (u64, u64) + Send) {
    let (_scratch, file) = new_file(ground, 2 * LEN);
    let end = Instant::now() + 2 * A_WHILE;
    let failed = AtomicBool::new(false);
    let goes_on = || Instant::now() < end && !failed.load(Ordering::Relaxed);
    let looked = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut b = vec![0; 500_000];
            while goes_on() {
                let copied = file.transact(|tx| {
                    let a: u64 = tx.load(A)?;
                    b[..8].copy_from_slice(&a.to_le_bytes());
                    tx.write_at(&b, B)
                });
                copied.expect("transact");
            }
        });
        scope.spawn(|| {
            let mut a = 0u64;
            while goes_on() {
                a += 1;
                file.store(A, &a).expect("store");
                // Leaves other threads time to commit.
                let wait = Duration::from_micros(150 + a % 7 * 30);
                let start = Instant::now();
                while start.elapsed() < wait {
                    std::thread::yield_now();
                }
            }
        });
        let reader = scope.spawn(|| {
            let (mut largest_a, mut last_b) = (0, 0);
            let mut looked = 0u64;
            let mut wrong = None;
            while looked == 0 || goes_on() {
                let (a, b) = look(&file);
                looked += 1;
                if last_b < b && b < largest_a {
                    wrong = Some(format!("A = {largest_a} with B = {last_b}, then B = {b}"));
                    failed.store(true, Ordering::Relaxed);
                }
                largest_a = largest_a.max(a);
                last_b = b;
            }
            match wrong {
                Some(wrong) => Err(wrong),
                None => Ok(looked),
            }
        });
        reader.join().expect("the reader")
    });
    match looked {
        Ok(looked) => assert!(looked > 0, "no read was made"),
        Err(wrong) => panic!("{}: {wrong}", ground.medium),
    }
}

/// The last bytes of a page and a region.
const A: u64 = LEN - 8;
/// The first bytes of the next region.
const B: u64 = LEN;

/// A transaction validated its read set, and only then made its commit visible to readers. In
/// between another thread could commit to the read set. A reader could see that commit without the
/// one before it. Found by review.
#[test]
fn a_read_never_sees_a_commit_before_the_commit_that_precedes_it() {
    let _watch = Watch::start();
    for ground in grounds() {
        watch_an_order(&ground, |file| {
            let mut both = [0; 16];
            file.read_at(&mut both, A).expect("read");
            let word = |at: usize| {
                let bytes = both[at..at + 8].try_into().expect("8 bytes");
                u64::from_le_bytes(bytes)
            };
            (word(0), word(8))
        });
    }
}

/// Like the test above, but the reader is a transaction that writes nothing. Found by review.
#[test]
fn a_transaction_that_only_reads_never_sees_a_commit_before_the_commit_that_precedes_it() {
    let _watch = Watch::start();
    for ground in grounds() {
        watch_an_order(&ground, |file| {
            let both = file.transact(|tx| {
                let b = tx.load(B)?;
                Ok::<(u64, u64), Error>((tx.load(A)?, b))
            });
            both.expect("transact")
        });
    }
}

/// While a file grows, the files are longer before the new length is valid. A reader in between
/// searched for holes up to the old length, found none, and marked the whole chunk as allocated.
/// Later writes past the old length went to holes in the home file, which is a SIGBUS on a full
/// file system. Found by review.
#[test]
fn a_chunk_is_not_taken_for_allocated_because_of_a_read_while_the_file_grows() {
    /// Two pages that are not holes.
    const OLD: u64 = 2 * PAGE;
    /// A page far from them, in this chunk.
    const AT: u64 = 10 * PAGE;
    let _watch = Watch::start();
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        fs::write(&path, [1; OLD as usize]).expect("write the plain file");
        let recorder = Recorder::new();
        let file = ground.options().open_recorded(&recorder, &path).expect("open");
        // On a medium with syncs, the window is as long as the sync in it.
        for _ in 0..2000 {
            recorder.fail_next(call::SYNC_ALL, 1, libc::EINTR);
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while fs::metadata(&path).expect("stat").len() < LEN {
                    std::hint::spin_loop();
                }
                let mut bytes = [0; 8];
                file.read_at(&mut bytes, 0).expect("read");
                assert_eq!(bytes, [1; 8]);
            });
            file.set_len(LEN).expect("grow");
        });
        let is_wide = !recorder.heal();
        assert_eq!(is_wide, ground.medium == Medium::Dax, "only there the lengths are synced");
        for n in 0..4 {
            // The page goes to the two files alternately.
            file.write_at(&[2 + n; PAGE as usize], AT).expect("write");
        }
        file.write_at(&[9; 40], AT).expect("write");
        // Allocated by the system call, or by writing zeroes on a system without that call.
        let mut allocated: BTreeSet<u64> = (0..OLD / PAGE).collect();
        let mut stored = 0;
        let pages = |offset: u64, len: u64| offset / PAGE..(offset + len).div_ceil(PAGE);
        for event in recorder.take() {
            match event.what {
                What::Allocate { file: FileId::Home, offset, len } => {
                    allocated.extend(pages(offset, len));
                }
                What::Write { file: FileId::Home, offset, bytes } => {
                    allocated.extend(pages(offset, bytes.len() as u64));
                }
                What::Copy { file: FileId::Home, offset, bytes, .. } => {
                    for page in pages(offset, bytes.len() as u64) {
                        assert!(allocated.contains(&page), "{}: {page} is a hole", ground.medium);
                    }
                    stored += 1;
                }
                _ => {}
            }
        }
        // On page cache the home slots belong to the durable point, so the writes do not reuse
        // them.
        assert!(
            stored > 0 || ground.medium == Medium::PageCache,
            "nothing was stored to the home file"
        );
        // The engine allocates a whole chunk only after a part of it is in use.
        let blocks = fs::metadata(&path).expect("stat").blocks();
        assert!(blocks * 512 < LEN, "{blocks} blocks");
    }
}

/// A write over a pinned page logs whole pages. The file could become shorter after the write had
/// checked the length. The engine then computed the length of the last page from an end before it,
/// and panicked with the locks held. Found by review.
#[test]
fn a_write_over_a_view_that_races_with_set_len_does_not_panic() {
    const PAGES: usize = 60;
    let _watch = Watch::start();
    for ground in grounds() {
        let (_scratch, file) = new_file(&ground, LEN);
        let view = file.view(0..PAGE).expect("view");
        // From here on the pinned page is in the reflection file.
        file.write_at(&[1; 100], 0).expect("write");
        let end = Instant::now() + 3 * A_WHILE;
        let over = AtomicBool::new(false);
        let written = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                struct Bell<'a>(&'a AtomicBool);
                impl Drop for Bell<'_> {
                    fn drop(&mut self) {
                        self.0.store(true, Ordering::Relaxed);
                    }
                }
                let _even_if_it_panics = Bell(&over);
                let data = vec![5; PAGES * PAGE as usize];
                let mut written = 0;
                while written == 0 || Instant::now() < end {
                    match file.write_at(&data, 0) {
                        Ok(()) => written += 1,
                        Err(Error::PastEnd { .. }) => {}
                        Err(e) => panic!("{e}"),
                    }
                }
                written
            });
            while !over.load(Ordering::Relaxed) {
                file.set_len(PAGE).expect("shrink");
                file.set_len(LEN).expect("grow");
                std::thread::sleep(Duration::from_micros(300));
            }
            writer.join()
        });
        // A thread that panicked under locks has left them locked: the close below would hang.
        let Ok(written) = written else {
            std::mem::forget(view);
            std::mem::forget(file);
            panic!("{}: the writer panicked", ground.medium);
        };
        assert!(written > 0, "nothing was written");
        assert_same(&view.to_vec().expect("read"), &[0; PAGE as usize], "the view");
        // All pages of a write or none, except for pages that were truncated since.
        let now = read_all(&file);
        assert_same(
            &now[..PAGE as usize],
            &[5; PAGE as usize],
            "the page that was never truncated",
        );
        let (cut, rest) = now[PAGE as usize..].split_at((PAGES - 1) * PAGE as usize);
        assert_same(cut, &vec![cut[0]; cut.len()], "the pages that were");
        assert_same(rest, &vec![0; rest.len()], "what was never written");
    }
}

/// More than the address space reserved for a short file.
const BEYOND: u64 = 200 << 30;

fn open_beyond(ground: &Ground, which: &str) {
    let (scratch, file) = new_file(ground, PAGE);
    file.write_at(b"kept", 0).expect("write");
    let (home, reflection) = (file.path().to_owned(), file.reflection_path().to_owned());
    file.close(CloseMode::Fast).expect("close");
    lengthen(if which == "home" { &home } else { &reflection }, BEYOND);
    let options = ground.options().on_mismatch(OnMismatch::Trust);
    let file = options.open(&home).unwrap_or_else(|e| panic!("{which}: {e}"));
    assert!(file.max_len() < BEYOND, "the test wants files that are longer");
    let mut expected = vec![0; PAGE as usize];
    expected[..4].copy_from_slice(b"kept");
    assert_same(&read_all(&file), &expected, which);
    file.set_len(2 * PAGE).expect("grow");
    file.write_at(b"more", PAGE).expect("write");
    file.close(CloseMode::Spatial).expect("close");
    expected.extend_from_slice(b"more");
    expected.resize(2 * PAGE as usize, 0);
    assert_same(&fs::read(&home).expect("read"), &expected, which);
    assert!(scratch.reflections().is_empty());
}

/// A home file was made longer than the reservation without the crate. The caller trusted the pair,
/// so opening went on and panicked: the file did not fit its mapping. Found by review.
#[test]
fn a_trusted_home_file_that_is_longer_than_the_reservation_is_opened_without_a_panic() {
    for ground in media() {
        open_beyond(&ground, "home");
    }
}

/// The reflection file is longer than the reservation, which no other check of opening finds. Found
/// by review.
#[test]
fn a_reflection_file_that_is_longer_than_the_reservation_is_opened_without_a_panic() {
    for ground in media() {
        open_beyond(&ground, "reflection");
    }
}

/// A leaked view pins its pages forever, and pinned pages were not deployed. A spatial close left
/// them in the reflection file and removed it. Found by review.
#[test]
fn a_leaked_view_does_not_keep_bytes_out_of_a_spatially_closed_file() {
    for ground in media() {
        let (scratch, file) = new_file(&ground, LEN);
        file.write_at(b"old", 0).expect("write");
        std::mem::forget(file.view(0..PAGE).expect("view"));
        file.write_at(b"new", 0).expect("write");
        file.write_at(&[3; 5000], 100).expect("write");
        let expected = read_all(&file);
        assert_eq!(&expected[..3], b"new");
        file.close(CloseMode::Spatial).expect("close");
        assert!(scratch.reflections().is_empty());
        let path = scratch.file("state.dat");
        assert_same(&fs::read(&path).expect("read"), &expected, "the home file by itself");
        let file = ground.options().open(&path).expect("open");
        assert_same(&read_all(&file), &expected, "opened again");
    }
}

/// A renamed pair is found by its inode, but its reflection file holds the old name. A caller
/// opened a new file at the old name with `Discard`. That removed the reflection file of the
/// renamed pair, with its writes. Found by review.
#[test]
fn a_pair_that_was_renamed_is_not_removed_by_discarding_at_its_old_name() {
    for ground in media() {
        for is_old_name_taken in [false, true] {
            let scratch = closed_pair(&ground, LEN);
            let (old, new) = (scratch.file("state.dat"), scratch.file("renamed.dat"));
            fs::rename(&old, &new).expect("rename");
            if is_old_name_taken {
                fs::write(&old, [8; 100]).expect("write");
            }
            let reflections = scratch.reflections();
            assert_eq!(reflections.len(), 1);
            let options = ground.options().create(true).len(100);
            let file = options.on_mismatch(OnMismatch::Discard).open(&old).expect("open");
            let byte = if is_old_name_taken { 8 } else { 0 };
            assert_same(&read_all(&file), &[byte; 100], "the file of the old name");
            file.close(CloseMode::Spatial).expect("close");
            assert_eq!(scratch.reflections(), reflections, "the renamed pair is whole");
            // A rename changes a time of the file, so the crate cannot exclude other changes.
            let options = ground.options().on_mismatch(OnMismatch::Trust);
            let file = options.open(&new).expect("open");
            let mut expected = vec![0; LEN as usize];
            expected[..16 * PAGE as usize].fill(1);
            assert_same(&read_all(&file), &expected, "the renamed pair");
        }
    }
}

/// Only the home file was registered and locked. So the reflection file of an open pair could be
/// opened as a home file and overwritten. Found by review.
#[test]
fn the_reflection_file_of_an_open_pair_cannot_be_opened_as_a_home_file() {
    let _watch = Watch::start();
    for ground in media() {
        let (scratch, file) = new_file(&ground, LEN);
        file.write_at(&[1; 10_000], 100).expect("write");
        let expected = read_all(&file);
        let reflection = file.reflection_path().to_owned();
        let before = Snapshot::of(scratch.path());
        for wish in [OnMismatch::Refuse, OnMismatch::Trust, OnMismatch::Discard] {
            let options = ground.options().on_mismatch(wish);
            let error = options.open(&reflection).expect_err("in use");
            assert!(matches!(error, Error::Busy { in_this_process: true, .. }), "{error:?}");
            before.assert_unchanged(scratch.path(), "busy");
        }
        run_child(CHILD, "busy", &reflection);
        assert_same(&read_all(&file), &expected, "the pair");
        file.close(CloseMode::Fast).expect("close");
        let file = ground.options().open(scratch.file("state.dat")).expect("open");
        assert_same(&read_all(&file), &expected, "the pair, opened again");
    }
}

/// Several threads created one file at the same time. A loser removed the home file that it thought
/// it had made, while the winner had it open. Another loser reported that the file exists, instead
/// of `Busy`. Found by review.
#[test]
fn of_several_that_create_a_file_at_once_none_removes_it_under_the_one_that_has_it() {
    let _watch = Watch::start();
    for ground in grounds() {
        let scratch = ground.scratch();
        let end = Instant::now() + A_WHILE;
        let mut round = 0;
        while round == 0 || Instant::now() < end {
            round += 1;
            let path = scratch.file(&format!("state-{round}"));
            let barrier = Barrier::new(3);
            let opened = std::thread::scope(|scope| {
                let create = || {
                    barrier.wait();
                    ground.options().create(true).len(PAGE).open(&path)
                };
                let threads = [(); 3].map(|()| scope.spawn(create));
                threads.map(|thread| thread.join().expect("create"))
            });
            assert!(path.exists(), "round {round}: removed, {opened:?}");
            let winners = opened.iter().filter(|file| file.is_ok()).count();
            assert_eq!(winners, 1, "{opened:?}");
            for error in opened.iter().filter_map(|file| file.as_ref().err()) {
                assert!(matches!(error, Error::Busy { .. }), "{error:?}");
            }
            assert_eq!(fs::metadata(&path).expect("still there").len(), PAGE);
            drop(opened);
            assert_eq!(fs::metadata(&path).expect("still there").len(), PAGE);
        }
    }
}

/// Waits until both threads of a race have arrived, so that they continue together.
fn meet(gate: &AtomicU64, meeting: u64) {
    gate.fetch_add(1, Ordering::SeqCst);
    let mut spins = 0;
    while gate.load(Ordering::SeqCst) < 2 * meeting {
        std::hint::spin_loop();
        spins += 1;
        if spins % 1000 == 0 {
            std::thread::yield_now();
        }
    }
}

/// Two threads each write to their own place and then read the other place, in many rounds. Returns
/// the number of rounds in which neither thread found the other's write, and the number of all
/// rounds.
fn write_and_look(files: [&AtomicMappedFile; 2], places: [u64; 2]) -> (u64, u64) {
    let gate = AtomicU64::new(0);
    let found = [AtomicU64::new(0), AtomicU64::new(0)];
    let last = AtomicU64::new(u64::MAX);
    let run = |me: usize| {
        let end = Instant::now() + A_WHILE;
        let (mut neither, mut rounds) = (0, 0);
        while rounds < last.load(Ordering::SeqCst) {
            rounds += 1;
            meet(&gate, 2 * rounds - 1);
            files[me].store(places[me], &rounds).expect("store");
            let seen: u64 = files[1 - me].load(places[1 - me]).expect("load");
            found[me].store(seen, Ordering::SeqCst);
            if me == 0 && Instant::now() > end {
                // Stored before the threads meet, so that both read the new value.
                last.store(rounds, Ordering::SeqCst);
            }
            meet(&gate, 2 * rounds);
            neither += u64::from(found.iter().all(|n| n.load(Ordering::SeqCst) < rounds));
        }
        (neither, rounds)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(1));
        let mine = run(0);
        other.join().expect("no panic");
        mine
    })
}

/// Unlocking is a plain store, and a read could start before that store was visible. Then two
/// threads each wrote, and neither saw the other's write. No order of the operations allows this.
/// It happened in every seventh round on `Dax`.
#[test]
fn store_buffering_between_two_threads_is_forbidden() {
    for ground in grounds() {
        let _watch = Watch::start();
        let (_scratch, file) = new_file(&ground, LEN);
        let (neither, rounds) = write_and_look([&file, &file], [0, 2 * PAGE]);
        assert_eq!(neither, 0, "of {rounds} rounds");
        // Operations on two files are ordered as well.
        let (_other_scratch, other) = new_file(&ground, LEN);
        let (neither, rounds) = write_and_look([&file, &other], [0, 0]);
        assert_eq!(neither, 0, "of {rounds} rounds, in two files");
    }
}

// ---- found by making each system call fail (the lab's part `faults`) ----------------------------

/// ext4 refuses a synchronous mapping only after the kernel has removed the old mapping of that
/// range. The range stayed free until the crate unmapped its reservation. That also unmapped memory
/// or files that another thread had mapped there meanwhile. Two threads that opened files on ext4
/// crashed.
#[test]
fn a_refused_mapping_takes_no_memory_from_other_threads() {
    let Some(ground) = common::page_cache() else {
        eprintln!("no page cache here: skipped");
        return;
    };
    let scratch = ground.scratch();
    run_child(CHILD, "map", scratch.file("state.dat"));
}

/// Runs in its own process, which dies if the test fails.
fn map_and_allocate(path: &Path) {
    let file = fs::File::create_new(path).expect("create");
    file.set_len(1 << 21).expect("a length");
    let file = file.into();
    let platform = Recorder::new().platform();
    let end = Instant::now() + 2 * A_WHILE;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while Instant::now() < end {
                    // Larger than the allocation, so that each fits in the place of the other.
                    let _is_refused_or_not = platform.map(&file, 256 << 20, true);
                }
            });
            scope.spawn(|| {
                while Instant::now() < end {
                    // Large enough that the allocator maps it each time.
                    let mut bytes = vec![0u8; 40 << 20];
                    bytes.iter_mut().step_by(4 << 20).for_each(|byte| *byte = 1);
                    assert_eq!(
                        bytes.iter().step_by(4 << 20).filter(|byte| **byte == 1).count(),
                        10
                    );
                }
            });
        }
    });
}

/// Without a free descriptor the boot id could not be read, and it counted as a system without boot
/// ids. The pair stored no boot id, and was refused as `Restarted` after a mere crash. Or it was
/// refused immediately, with the advice to discard it.
#[test]
fn a_boot_that_cannot_be_read_now_is_an_error_and_not_another_boot() {
    for ground in [common::ram(), common::page_cache().unwrap_or_else(common::ram)] {
        let scratch = closed_pair(&ground, LEN);
        let path = scratch.file("state.dat");
        let recorder = Recorder::new();
        recorder.fail_from(call::BOOT_ID, 1, libc::EMFILE);
        let error = ground.options().open_recorded(&recorder, &path).expect_err("injected");
        assert!(matches!(&error, Error::Io { path: of, .. } if *of == path), "{error:?}");
        recorder.heal();
        // The boot id is read once, and every check of this opening uses that value.
        recorder.fail_from(call::BOOT_ID, 2, libc::EMFILE);
        drop(ground.options().open_recorded(&recorder, &path).expect("nothing has happened"));
    }
}

/// A synchronous mapping on persistent memory failed for lack of memory. The crate then treated the
/// medium as page cache without an error, and made the weaker promise.
#[test]
fn a_mapping_that_merely_fails_is_no_reason_to_promise_less() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    for nth in [1, 2] {
        let recorder = Recorder::new();
        recorder.fail_next(call::MAP, nth, libc::ENOMEM);
        let options = AtomicMappedFile::options().create(true).len(PAGE);
        let error = options.open_recorded(&recorder, &path).expect_err("injected");
        assert!(matches!(&error, Error::NoAddressSpace { .. }), "{error:?}");
        assert!(!path.exists() && scratch.reflections().is_empty(), "nothing was made");
    }
}

/// A file of the folder could not be examined, so the crate concluded that it is not the home file
/// of a reflection file. A discard at the old name of a renamed pair then removed the pair's
/// reflection file, with its writes.
#[test]
fn a_pair_that_was_renamed_is_not_removed_because_it_cannot_be_looked_at() {
    for ground in media() {
        for fault in [call::STAT_PATH, call::OPEN, call::READ, call::LIST_DIR] {
            let mut nth = 0;
            loop {
                nth += 1;
                let scratch = closed_pair(&ground, LEN);
                let (old, new) = (scratch.file("state.dat"), scratch.file("renamed.dat"));
                fs::rename(&old, &new).expect("rename");
                let recorder = Recorder::new();
                recorder.fail_next(fault, nth, libc::EIO);
                let options = ground.options().create(true).len(100);
                let options = options.on_mismatch(OnMismatch::Discard);
                let opened = options.open_recorded(&recorder, &old);
                let is_over = recorder.heal();
                drop(opened);
                let trust = ground.options().on_mismatch(OnMismatch::Trust);
                let file = trust.open(&new).unwrap_or_else(|e| panic!("{fault} {nth}: {e}"));
                let mut bytes = [0; 16 * PAGE as usize];
                file.read_at(&mut bytes, 0).expect("read");
                assert_same(&bytes, &[1; 16 * PAGE as usize], &format!("{fault} {nth}"));
                if is_over {
                    break;
                }
            }
        }
    }
}

/// A file that cannot be read now may be a reflection file. So the file in the home file's place
/// must not be opened as a plain file.
#[test]
fn a_file_is_not_taken_for_a_plain_one_because_a_reflection_file_cannot_be_read() {
    for ground in media() {
        for (fault, nth) in [(call::OPEN, 2), (call::READ, 1)] {
            let scratch = closed_pair(&ground, LEN);
            let path = scratch.file("state.dat");
            let elsewhere = ground.scratch();
            fs::rename(&path, elsewhere.file("old.dat")).expect("rename");
            fs::write(&path, b"something new").expect("write");
            let before = Snapshot::of(scratch.path());
            let recorder = Recorder::new();
            recorder.fail_next(fault, nth, libc::EIO);
            let error = ground.options().open_recorded(&recorder, &path).expect_err("replaced");
            assert!(matches!(error, Error::Io { .. }), "{fault}: {error:?}");
            assert!(!recorder.heal());
            before.assert_unchanged(scratch.path(), fault);
        }
    }
}

/// A new home file that could not be examined or locked was left behind, empty.
#[test]
fn a_created_home_file_that_cannot_be_locked_is_removed_again() {
    for ground in media() {
        for (fault, nth) in [(call::STAT, 1), (call::STAT, 2), (call::LOCK, 1)] {
            let scratch = ground.scratch();
            let path = scratch.file("state.dat");
            let recorder = Recorder::new();
            recorder.fail_next(fault, nth, libc::EIO);
            let options = ground.options().create(true).len(PAGE);
            let error = options.open_recorded(&recorder, &path).expect_err("injected");
            assert!(matches!(error, Error::Io { .. }), "{fault}: {error:?}");
            assert!(!recorder.heal());
            assert!(!path.exists(), "{fault} {nth}: left behind");
            assert!(scratch.reflections().is_empty());
        }
    }
}

/// Records that claim more than the log holds were found only after the decision about a damaged
/// pair. So the pair was refused as `Corrupt`, with the advice to discard it. With `Discard` it was
/// refused again.
#[test]
fn a_pair_with_a_damaged_log_can_be_discarded() {
    use atomic_mmap::testing::entry::{Seed, Sequence, Spill, Undo, UndoBody};
    use atomic_mmap::testing::superblock::{Copy, SUPERBLOCK_LEN, Superblock};
    use atomic_mmap::testing::{LaneIndex, layout};
    use std::os::unix::fs::FileExt;
    for ground in media() {
        let scratch = closed_pair(&ground, LEN);
        let path = scratch.file("state.dat");
        let role = format!("crash {}", ground.medium);
        run_child(CHILD, &role, &path);
        let home = fs::read(&path).expect("read");
        let reflection = scratch.reflections().pop().expect("in use");
        let file = OpenOptions::new().read(true).write(true).open(&reflection).expect("open");
        let last = layout::SUPERBLOCKS
            .iter()
            .filter_map(|at| {
                let mut bytes = [0; SUPERBLOCK_LEN];
                file.read_exact_at(&mut bytes, *at).expect("read");
                match Superblock::decode(&bytes) {
                    Copy::Valid(superblock) => Some(superblock),
                    _ => None,
                }
            })
            .max_by_key(|superblock| superblock.session)
            .expect("a superblock");
        for (lane, len) in [(LaneIndex(70), 64), (LaneIndex(71), layout::LOG_AREA_LEN)] {
            let seed = Seed::new(&last.uuid, last.session).undo(lane);
            let mut spill = Spill::of(seed, Sequence::FIRST, 0, &[]);
            spill.len = len;
            let body = UndoBody::SpilledUndo(spill);
            let entry = Undo { sequence: Sequence::FIRST, body }.encode(seed);
            file.write_all_at(&entry, layout::undo_entry(lane)).expect("write");
        }
        for wish in [OnMismatch::Refuse, OnMismatch::Trust] {
            let before = Snapshot::of(scratch.path());
            let error = ground.options().on_mismatch(wish).open(&path).expect_err("damaged");
            let is_corrupt = matches!(error, Error::Mismatch { why: Mismatch::Corrupt, .. });
            assert!(is_corrupt, "{error:?}");
            before.assert_unchanged(scratch.path(), "refused");
        }
        let options = ground.options().on_mismatch(OnMismatch::Discard);
        let file = options.open(&path).expect("discarded");
        assert_same(&read_all(&file), &home, "the home file as it is");
        file.close(CloseMode::Spatial).expect("close");
        assert!(scratch.reflections().is_empty());
    }
}

/// A view that cannot be pinned for lack of space is a copy. It was an error if the space was for
/// slice words, even if these words existed already.
#[test]
fn a_view_for_which_there_is_no_space_is_a_copy_whatever_the_space_is_for() {
    for ground in media() {
        let (_scratch, file) = new_file(&ground, LEN);
        let path = file.path().to_owned();
        file.write_at(&[3; 9 * PAGE as usize], 0).expect("write whole pages");
        // A page that is deployed by its own word.
        file.write_at(&[3; 65], PAGE).expect("write two slices");
        file.close(CloseMode::Fast).expect("close");
        for nth in 1..20 {
            let recorder = Recorder::new();
            let options = ground.options().close_on_drop(CloseMode::Fast);
            let file = options.open_recorded(&recorder, &path).expect("open");
            recorder.fail_from(call::ALLOCATE, nth, libc::ENOSPC);
            let view = file.view(0..5 * PAGE).expect("a view needs no space");
            assert_same(&view.to_vec().expect("read"), &[3; 5 * PAGE as usize], "the view");
            let is_over = recorder.heal();
            // With durable points a view is a copy.
            assert_eq!(view.is_mapped(), is_over && ground.medium != Medium::PageCache, "{nth}");
            if is_over {
                break;
            }
        }
    }
}

/// A caller opened with `Discard` and too small a reservation, and got `TooLong`. The reflection
/// file was removed nevertheless, with its writes. Found by the fuzz target `open_bytes`.
#[test]
fn a_discard_that_is_refused_for_the_length_removes_nothing() {
    for ground in media() {
        let scratch = closed_pair(&ground, LEN);
        let path = scratch.file("state.dat");
        lengthen(&path, LEN + PAGE);
        let before = Snapshot::of(scratch.path());
        let options = ground.options().on_mismatch(OnMismatch::Discard).max_len(PAGE);
        let error = options.open(&path).expect_err("longer than that");
        assert!(matches!(error, Error::TooLong { .. }), "{error:?}");
        before.assert_unchanged(scratch.path(), "too long");
        // The pair is complete: with `Trust` the caller gets all writes.
        let file = ground.options().on_mismatch(OnMismatch::Trust).open(&path).expect("open");
        assert_same(&read_all(&file)[..16 * PAGE as usize], &[1; 16 * PAGE as usize], "trusted");
    }
}

/// Words past the end of the file should be zero, but no check finds damaged ones. A spatial close
/// found slices of pages past the end in the reflection file, and panicked. Found by the fuzz
/// target `open_mutated`.
#[test]
fn damaged_words_past_the_end_do_not_make_a_close_panic() {
    const END: u64 = LEN + PAGE;
    for ground in media() {
        let scratch = closed_pair(&ground, END);
        let path = scratch.file("state.dat");
        let [reflection] = &scratch.reflections()[..] else { panic!("one reflection file") };
        let file = OpenOptions::new().write(true).open(reflection).expect("open");
        let past = PageIndex::of(END + 3 * PAGE);
        file.write_all_at(&[1], layout::slice_word(past)).expect("write");
        file.write_all_at(&[0xF0], layout::region_word(past.region())).expect("write");
        drop(file);
        let file = ground.options().open(&path).expect("open");
        // Loads the region that contains the end of the file.
        file.write_at(&[9; 100], LEN).expect("write");
        let mut expected = read_all(&file);
        file.close(CloseMode::Spatial).expect("close");
        assert_same(&fs::read(&path).expect("read"), &expected, "closed");
        let file = ground.options().open(&path).expect("open");
        file.set_len(END + 8 * PAGE).expect("grow");
        expected.resize((END + 8 * PAGE) as usize, 0);
        assert_same(&read_all(&file), &expected, "longer");
    }
}

/// A superblock with a valid checksum had the highest session number. The next number panicked, or
/// wrapped to one below its predecessor. Found by the fuzz target `mismatch`.
#[test]
fn a_session_number_that_cannot_be_counted_up_from_is_taken_for_damage() {
    for ground in media() {
        for session in [u64::MAX, 1 << 63] {
            let scratch = closed_pair(&ground, LEN);
            let path = scratch.file("state.dat");
            let [reflection] = &scratch.reflections()[..] else { panic!("one reflection file") };
            let file = OpenOptions::new().read(true).write(true).open(reflection).expect("open");
            for at in layout::SUPERBLOCKS {
                let mut bytes = [0; SUPERBLOCK_LEN];
                file.read_exact_at(&mut bytes, at).expect("read");
                let Copy::Valid(block) = Superblock::decode(&bytes) else {
                    panic!("no superblock")
                };
                let block = Superblock { session, ..block };
                file.write_all_at(&block.encode(), at).expect("write");
            }
            drop(file);
            let before = Snapshot::of(scratch.path());
            let error = ground.options().open(&path).expect_err("damaged");
            let why = Mismatch::Corrupt;
            assert!(matches!(&error, Error::Mismatch { why: w, .. } if *w == why), "{error:?}");
            before.assert_unchanged(scratch.path(), "damaged");
            let file = ground.options().on_mismatch(OnMismatch::Discard).open(&path);
            drop(file.expect("the home file as it is"));
        }
    }
}

/// An undo record holds the length of its overflow, and a damaged one can have a valid checksum.
/// Recovery allocated that length before it read a byte: up to 256 MiB for a hole in a sparse file.
/// Found by the fuzz target `open_mutated`.
#[test]
#[cfg(target_os = "linux")]
fn an_entry_that_claims_the_whole_log_area_costs_no_memory() {
    let ground = common::ram();
    let zeroes = vec![0; layout::LOG_AREA_LEN as usize];
    for (is_sum_right, is_undo) in [(false, true), (true, false)] {
        let scratch = closed_pair(&ground, LEN);
        let [reflection] = &scratch.reflections()[..] else { panic!("one reflection file") };
        let file = OpenOptions::new().read(true).write(true).open(reflection).expect("open");
        let mut seed = None;
        for at in layout::SUPERBLOCKS {
            let mut bytes = [0; SUPERBLOCK_LEN];
            file.read_exact_at(&mut bytes, at).expect("read");
            let Copy::Valid(block) = Superblock::decode(&bytes) else { panic!("no superblock") };
            // The state after a process crash.
            let block = Superblock { state: State::InUse, session: 9, ..block };
            file.write_all_at(&block.encode(), at).expect("write");
            seed = Some(Seed::new(&block.uuid, block.session));
        }
        let (lane, sequence) = (LaneIndex(3), Sequence::FIRST);
        let seed = seed.expect("two superblocks").undo(lane);
        let mut spill = Spill::of(seed, sequence, 0, if is_sum_right { &zeroes } else { b"" });
        spill.len = layout::LOG_AREA_LEN;
        let body =
            if is_undo { UndoBody::SpilledUndo(spill) } else { UndoBody::SpilledRedo(spill) };
        let entry = Undo { sequence, body }.encode(seed);
        file.write_all_at(&entry, layout::undo_entry(lane)).expect("write");
        run_child(CHILD, "peak", scratch.file("state.dat"));
    }
}

/// A failed open removes the files that it has made. It forgot the journal, so a file of 4 MiB
/// remained that no pair named. Found by the lab's part `faults`.
#[test]
fn an_open_that_fails_takes_its_journal_away_again() {
    let Some(ground) = common::page_cache() else { return };
    for name in [call::SYNC_DIR, call::SET_XATTR] {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        fs::write(&path, [1; 10_000]).expect("write");
        let folder = path.parent().expect("a folder");
        let before = Snapshot::of(folder);
        let recorder = Recorder::new();
        recorder.fail_next(name, 1, libc::EIO);
        ground.options().open_recorded(&recorder, &path).expect_err("injected");
        before.assert_unchanged_but_for_attributes(folder, name);
    }
}

/// The journal and its name are made durable before a superblock names it. A crash in between left
/// a journal that the next open used without a sync. After a loss of power its name could be
/// missing, and the pair with its durable superblock was refused. Found by reading.
#[test]
fn a_journal_that_was_left_half_made_is_made_durable_before_it_counts() {
    let Some(ground) = common::page_cache() else { return };
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    fs::write(&path, [1; 10_000]).expect("write");
    let inode = fs::metadata(&path).expect("stat").ino();
    let journal = scratch.file(&format!(".atomic-mmap.{inode:x}.journal"));
    fs::write(&journal, vec![0; 128 << 10]).expect("write");
    let recorder = Recorder::new();
    let file = ground.options().open_recorded(&recorder, &path).expect("open");
    let events: Vec<What> = recorder.take().into_iter().map(|event| event.what).collect();
    // Without the mark, nothing needs the journal.
    let named = events.iter().position(|e| matches!(e, What::SyncDir { .. }));
    let named = named.expect("a name");
    // The portable path has no marks.
    let marked = events.iter().position(|e| matches!(e, What::Os("set_xattr")));
    assert!(marked.is_none_or(|marked| named < marked), "{events:?}");
    file.write_at(b"point", 0).expect("write");
    file.sync().expect("sync");
    let events: Vec<What> = recorder.take().into_iter().map(|event| event.what).collect();
    let synced = events.iter().position(|e| matches!(e, What::Sync { file: FileId::Journal, .. }));
    // The portable path writes a floor and syncs the file.
    let is_floor = |e: &What| {
        matches!(e, What::WriteDurably { file: FileId::Reflection, offset, .. }
            | What::Write { file: FileId::Reflection, offset, .. }
            if layout::FLOORS.contains(offset))
    };
    // Without the floor, a journal without a header is one without a record.
    let floor = events.iter().position(is_floor).expect("a floor");
    assert!(synced.expect("it is synced") < floor, "{events:?}");
    // The journal of a closed pair is durable already.
    file.close(CloseMode::Fast).expect("close");
    recorder.take();
    let _file = ground.options().open_recorded(&recorder, &path).expect("open");
    let again = recorder.take().into_iter().any(|event| matches!(event.what, What::SyncDir { .. }));
    assert!(!again, "it is not made durable again");
}

/// The engine searched every chunk for holes. tmpfs answers by walking the pages up to the next
/// hole. Reading a file of 1 GiB without holes took seconds, and ten times the length took a
/// hundred times as long.
#[test]
fn a_file_is_looked_through_for_holes_once() {
    if cfg!(atomic_mmap_portable) {
        // Without a system call to find holes, each chunk counts as a hole until a write.
        return;
    }
    let ground = common::ram();
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let len: u64 = 16 << 20;
    fs::write(&path, vec![7; len as usize]).expect("write");
    let recorder = Recorder::new();
    let file = ground.options().open_recorded(&recorder, &path).expect("open");
    let mut byte = [0];
    file.read_at(&mut byte, 3 << 20).expect("read");
    recorder.fail_next(call::NEXT_HOLE, 1, libc::EIO);
    for at in (2 << 20..len).step_by(1 << 20) {
        file.read_at(&mut byte, at).expect("no caller has to retry");
        assert_eq!(byte, [7]);
    }
    assert!(recorder.heal(), "it was asked again");
    // The range before the first read needs one search of its own.
    file.read_at(&mut byte, 0).expect("read");
}

/// A discard that found no free name for the new companions removed the mark, and then was refused.
/// But a refusal promises to remove nothing. Found by a second review of the fuzzer. Where the file
/// keeps marks, a discard takes a random name instead.
#[test]
fn a_discard_that_has_no_name_for_companions_removes_no_mark() {
    for ground in media() {
        let scratch = closed_pair(&ground, LEN);
        let path = scratch.file("state.dat");
        let [first, second] = companions_of(&path).map(|name| scratch.file(&name));
        let further =
            (2..16).map(|n| second.with_file_name(format!("{}-{n:x}", companions_of(&path)[1])));
        let reflection = OpenOptions::new().write(true).open(&first).expect("open");
        for block in layout::SUPERBLOCKS {
            reflection.write_all_at(&[0xEE; 24], block + 200).expect("damage");
        }
        for name in further.chain([second.clone()]) {
            fs::write(&name, b"another's").expect("write");
        }
        let before = Snapshot::of(scratch.path());
        let options = ground.options().on_mismatch(OnMismatch::Discard);
        match options.open(&path) {
            // Without marks no later opening would find a random name.
            Err(error) => {
                assert!(matches!(error, Error::Mismatch { why: Mismatch::Foreign, .. }), "{error}");
                before.assert_unchanged(scratch.path(), "refused");
            }
            Ok(file) => {
                file.write_at(&[6; 100], 50).expect("write");
                file.close(CloseMode::Fast).expect("close");
                let file = ground.options().open(&path).expect("found by the mark");
                assert_same(&read_all(&file)[50..150], &[6; 100], "what was written");
                assert_eq!(fs::read(&second).expect("read"), b"another's");
            }
        }
    }
}

/// A discard removed the journal next to its reflection file without a check of its owner. The
/// journal of another pair held synced bytes that were nowhere else. Found in a second review.
#[test]
fn another_pairs_journal_stays_when_the_reflection_file_beside_it_is_discarded() {
    let Some(ground) = common::page_cache() else { return };
    let (scratch, theirs) = (closed_pair(&ground, LEN), closed_pair(&ground, LEN));
    let path = scratch.file("state.dat");
    let journal = |scratch: &Scratch| {
        let [name, _] = companions_of(&scratch.file("state.dat"));
        scratch.file(&format!("{name}.journal"))
    };
    let (ours, theirs) = (journal(&scratch), journal(&theirs));
    fs::copy(&theirs, &ours).expect("copy");
    let was = fs::read(&ours).expect("read");
    // The home file has changed since it was closed: the caller continues with it alone.
    fs::write(&path, [5; 9000]).expect("write");
    let options = ground.options().on_mismatch(OnMismatch::Discard);
    let file = options.open(&path).expect("open");
    assert_same(&read_all(&file), &[5; 9000], "what the home file holds");
    file.write_at(&[6; 100], 50).expect("write");
    file.sync().expect("sync");
    file.close(CloseMode::Spatial).expect("close");
    assert!(fs::read(&ours).expect("it is there") == was, "another's journal was written to");
}

/// A restored companion was adopted by the first opened copy of its home file. From then on the
/// home file itself was refused. Found by the lab's part `identity`.
#[test]
fn a_copy_does_not_take_the_companion_of_the_file_that_lies_beside_it() {
    for ground in media() {
        let scratch = closed_pair(&ground, LEN);
        let path = scratch.file("state.dat");
        let [reflection, _] = companions_of(&path).map(|name| scratch.file(&name));
        let (aside, beside) = (scratch.file("aside"), scratch.file("copy.dat"));
        copy_all(&reflection, &aside);
        fs::rename(&aside, &reflection).expect("rename");
        copy_all(&path, &beside);
        // Without extended attributes the copy is a plain file.
        match ground.options().open(&beside) {
            Ok(file) => drop(file.close(CloseMode::Spatial).expect("close")),
            Err(Error::Mismatch { why: Mismatch::HomeIsCopy, .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
        let file = ground.options().open(&path).expect("the original opens");
        assert_same(&read_all(&file)[..16 * PAGE as usize], &[1; 16 * PAGE as usize], "read");
    }
}

/// Copies a file with its attributes.
fn copy_all(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.expect("cp").success());
}

/// A discard removed the reflection file. Then it was refused because of a file in the place of the
/// journal. Found by the lab's part `identity`.
#[test]
fn what_may_not_be_used_for_a_journal_stops_no_discard_half_way() {
    let Some(ground) = common::page_cache() else { return };
    let scratch = closed_pair(&ground, LEN);
    let path = scratch.file("state.dat");
    let [reflection, _] = companions_of(&path);
    let journal = scratch.file(&format!("{reflection}.journal"));
    fs::hard_link(&journal, scratch.file("another name")).expect("link");
    fs::write(&path, [5; 9000]).expect("write");
    let was = fs::read(&journal).expect("read");
    let file = ground.options().on_mismatch(OnMismatch::Discard).open(&path).expect("open");
    assert_same(&read_all(&file), &[5; 9000], "what the home file holds");
    file.write_at(&[6; 100], 50).expect("write");
    file.sync().expect("sync");
    file.close(CloseMode::Spatial).expect("close");
    assert!(fs::read(&journal).expect("it is there") == was, "it was written to");
}

/// A process crashed while it wrote a header of the journal, so that header was only in the page
/// cache. The next header overwrote the older block. A loss of power tore it, no header remained,
/// and the pair was refused. Found by the lab's part `images`.
#[test]
fn a_header_that_a_dead_process_has_left_is_made_durable_before_the_other_is_written_over() {
    if cfg!(atomic_mmap_portable) {
        eprintln!("written and synced by two calls here: skipped");
        return;
    }
    let Some(ground) = common::page_cache() else { return };
    let scratch = closed_pair(&ground, LEN);
    let path = scratch.file("state.dat");
    run_child(CHILD, "crash page-cache", &path);
    let [reflection, _] = companions_of(&path);
    let journal = fs::read(scratch.file(&format!("{reflection}.journal"))).expect("read");
    let recorder = Recorder::new();
    let file = ground.options().open_recorded(&recorder, &path).expect("open");
    let events = recorder.take().into_iter();
    let headers: Vec<_> = events
        .filter_map(|event| match event.what {
            What::WriteDurably { file: FileId::Journal, offset, bytes } => Some((offset, bytes)),
            _ => None,
        })
        .filter(|(offset, _)| *offset < 2 * PAGE)
        .collect();
    let [(first, again), (second, _)] = &headers[..] else { panic!("{} headers", headers.len()) };
    assert_ne!(first, second, "in the other block");
    let at = *first as usize;
    assert!(journal[at..at + again.len()] == again[..], "the one that was there, again");
    drop(file);
}

/// On a full file system, the message of a call at an offset did not name the place in the file.
/// Found by the lab's part `faults`.
#[test]
fn a_call_at_an_offset_that_finds_no_space_says_where() {
    if cfg!(atomic_mmap_portable) {
        eprintln!("written and synced by two calls here: skipped");
        return;
    }
    for (code, says) in [(libc::ENOSPC, "no space left"), (libc::EDQUOT, "quota")] {
        let Some(ground) = common::page_cache() else { return };
        let scratch = closed_pair(&ground, LEN);
        let path = scratch.file("state.dat");
        let recorder = Recorder::new();
        // The first one is the copy of the journal's header.
        recorder.fail_next(call::WRITE, 2, code);
        let opened = ground.options().open_recorded(&recorder, &path);
        let error = opened.expect_err("no superblock");
        let Error::NoSpace { offset, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*offset, layout::SUPERBLOCKS[1], "where the next superblock was to be");
        let text = error.to_string();
        assert!(text.contains(&format!("at offset {offset}")), "{text}");
        assert!(text.contains(says), "{text}");
        ground.options().open(&path).expect("open").close(CloseMode::Spatial).expect("close");
    }
}

/// An opening failed for the copy of the journal's header, which no session needs.
#[test]
fn an_opening_does_without_the_copy_of_the_journals_header() {
    if cfg!(atomic_mmap_portable) {
        // The first writes allocate the journal.
        return;
    }
    let Some(ground) = common::page_cache() else { return };
    let scratch = closed_pair(&ground, LEN);
    let path = scratch.file("state.dat");
    let recorder = Recorder::new();
    recorder.fail_next(call::WRITE, 1, libc::EIO);
    let file = ground.options().open_recorded(&recorder, &path).expect("open");
    assert!(!recorder.heal(), "the write of the copy has failed");
    file.write_at(&[7; 100], 50).expect("write");
    file.sync().expect("a point");
    file.close(CloseMode::Unsynced).expect("close");
    let file = ground.options().open(&path).expect("open");
    assert_eq!(file.load::<[u8; 100]>(50).expect("load"), [7; 100]);
}

/// Returns the names that the companion of a home file may have.
fn companions_of(path: &Path) -> [String; 2] {
    let stat = fs::metadata(path).expect("stat");
    let born = stat.created().ok().map(|born| {
        let born = born.duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        (born.as_secs(), born.subsec_nanos())
    });
    let (seconds, nanos) = born.unwrap_or_default();
    let usual = format!(".atomic-mmap.{:x}", stat.ino());
    [usual.clone(), format!("{usual}-{seconds:x}.{nanos:x}")]
}

/// Each attempt of a growth on a full disk undid the one before it, which changed the version of
/// what the transaction had read. So the closure ran for ever from the second attempt on.
#[test]
fn a_closure_that_grows_a_full_disk_ends_each_time() {
    for ground in media() {
        let scratch = ground.scratch();
        let recorder = Recorder::new();
        let options = ground.options().create(true).len(100);
        let file = options.open_recorded(&recorder, scratch.file("state.dat")).expect("open");
        let grow = || {
            let mut runs = 0;
            let grown = file.transact(|tx| {
                runs += 1;
                assert!(runs < 100, "for ever");
                let n: u64 = tx.load(0)?;
                file.set_len(200)?;
                tx.store(0, &(n + 1))
            });
            (grown, runs)
        };
        for _ in 0..3 {
            recorder.fail_from(call::SET_LEN, 1, libc::ENOSPC);
            let (grown, runs) = grow();
            assert!(matches!(grown, Err(Error::NoSpace { .. })), "{grown:?} in {runs} runs");
            assert_eq!((file.len(), file.load::<u64>(0).expect("load")), (100, 0));
            recorder.heal();
        }
        // The first run undoes the last attempt, and the second one finds the new length.
        let (grown, runs) = grow();
        assert!(grown.is_ok() && runs <= 2, "{grown:?} in {runs} runs");
        assert_eq!((file.len(), file.load::<u64>(0).expect("load")), (200, 1));
    }
}

/// A log on a disk without space for its next segment. From the second append on it ran for ever.
#[test]
fn appends_to_a_full_disk_end_each_time() {
    let _watch = Watch::start();
    for ground in media() {
        let scratch = ground.scratch();
        let recorder = Recorder::new();
        let options = ground.options().create(true);
        let file = options.open_recorded(&recorder, scratch.file("state.dat")).expect("open");
        let log = Roots::open(file).expect("roots").log("log").expect("a log");
        log.append(&["a"]).expect("append");
        recorder.fail_from(call::SET_LEN, 1, libc::ENOSPC);
        for _ in 0..3 {
            let error = log.append(&[[7; 100_000]]).expect_err("no space");
            assert!(matches!(error, Error::NoSpace { .. }), "{error:?}");
            assert_eq!(log.range().expect("range"), 0..1);
        }
        recorder.heal();
        assert_eq!(log.append(&[[7; 100_000]]).expect("space again"), 1);
    }
}
