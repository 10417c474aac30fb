//! Does what once went wrong stay right? One test for each bug that a review or a fuzzer found.
//!
//! How: each test does what the program did that found it, and tells what came of it then. Where the bug
//! was a race, the test makes the window wide or goes through it often: on code that has the bug it
//! fails almost always, on code that does not it never fails. Whatever once hung is watched.
#![cfg(unix)]

mod common;

use atomic_mmap::testing::entry::{Seed, Sequence, Spill, Undo, UndoBody};
use atomic_mmap::testing::recorder::{Recorder, What};
use atomic_mmap::testing::superblock::{Copy, SUPERBLOCK_LEN, State, Superblock};
use atomic_mmap::testing::{FileId, LaneIndex, PageIndex, call, layout};
use atomic_mmap::{AtomicMappedFile, CloseMode, Error, Medium, Mismatch, OnMismatch};
use common::{
    Ground, Rng, Scratch, Snapshot, Watch, assert_same, media, read_all, role, run_child,
};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CHILD: &str = "plays_the_child_if_it_is_one";
const PAGE: u64 = 4096;
const REGION: u64 = 262_144;
/// A length of a few regions, within a chunk.
const LEN: u64 = 1 << 20;
/// How long a race is run, on each medium.
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

/// Where the files are in memory, so that nothing waits for a disk.
fn grounds() -> Vec<Ground> {
    common::media_in_memory()
}

/// A new file of `len` zero bytes.
fn new_file(ground: &Ground, len: u64) -> (Scratch, AtomicMappedFile) {
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let file = ground.options().create(true).len(len).open(path).expect("create");
    (scratch, file)
}

/// A plain file of `len` bytes, none of them a hole, whose first 16 pages were written through the
/// crate to ones and were left in the reflection file by a fast close: words of it are on the
/// medium, and the next session has seen none of them yet.
fn closed_pair(ground: &Ground, len: u64) -> Scratch {
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    fs::write(&path, vec![0; len as usize]).expect("write the plain file");
    let file = ground.options().open(&path).expect("open");
    file.write_at(&[1; 16 * PAGE as usize], 0).expect("write");
    file.close(CloseMode::Fast).expect("close");
    scratch
}

/// What `closed_pair` becomes when it was cut to one page, made as long as before, and pages 1 to 8
/// were written to sevens.
fn cut_and_written(len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    bytes[..PAGE as usize].fill(1);
    bytes[PAGE as usize..9 * PAGE as usize].fill(7);
    bytes
}

fn write_sevens(file: &AtomicMappedFile) {
    file.write_at(&[7; 8 * PAGE as usize], PAGE).expect("write");
}

/// Makes a file longer behind the crate's back, without giving it storage.
fn lengthen(path: &Path, len: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("open");
    file.set_len(len).expect("change the length");
}

/// An open that was refused gave its lock back by closing the file. A process that another thread was
/// starting just then had inherited the file, and kept it locked until its `exec`: for so long the next
/// open of it was `Busy`. Found on an emulated machine ("a real DAX mount"), where that takes long.
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
                    // Nothing of that name: only the moment before `exec` counts.
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

/// The second registration of a file was made before it was known that there is a first one, and
/// was dropped under the lock that its drop takes: instead of being refused, the second open of a
/// process hung, and with it every open after it. Found by review ("twice").
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
        // Others can be opened still, and the first one works and is open for itself until it ends.
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

/// An operation over a few pages took their locks one by one, and waited for the next with one in
/// hand. A writer of many pages takes the lock of the whole region, keeps everybody else out of it,
/// and waits until the pages that are held are free: each waited for the other, for ever, within
/// seconds. Found by review ("deadlock").
#[test]
fn operations_over_several_pages_and_writers_of_whole_regions_do_not_wait_for_each_other_for_ever()
{
    let _watch = Watch::start();
    for ground in grounds() {
        let (_scratch, file) = new_file(&ground, LEN);
        let end = Instant::now() + 2 * A_WHILE;
        let done = [const { AtomicU64::new(0) }; 4];
        // Until each has got somewhere, however loaded the machine is. The watch ends what hangs.
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
            // Several pages that are not neighbours, of two regions, in one transaction.
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
            // A region's lock, and those of two regions.
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

/// A shrink zeroed the words past the new end on the medium while somebody else could read them for
/// the first time: the mirrors in memory then said one thing and the medium another. What was
/// written after the next growth flipped the bits of the one as if they were those of the other,
/// was acknowledged and read back, and was gone after reopening. Found by review ("race").
#[test]
fn a_write_after_a_shrink_and_a_growth_survives_whoever_first_touched_the_cut_region_meanwhile() {
    /// Long enough that cutting it off takes a moment.
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
                    // The first touch comes when the cut is seen, and a little later.
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

/// Cuts a pair to one page where the clean-up of the cut fails, touches the region that was cut,
/// and lets the next `set_len` catch up with the clean-up.
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

/// A shrink whose clean-up fails has succeeded all the same, and leaves words past the length. A
/// region that was touched then mirrored them; the next `set_len` zeroed them on the medium, and
/// not in the mirror. What was written after it was acknowledged, and was gone after reopening.
/// Found by review ("stale").
#[test]
fn a_set_len_that_catches_up_with_a_failed_clean_up_loses_no_write() {
    let expected = cut_and_written(LEN);
    for ground in media() {
        for mode in [CloseMode::Fast, CloseMode::Spatial] {
            let (scratch, file) = catch_up_with_a_failed_clean_up(&ground);
            let mut cut = vec![9; (LEN - PAGE) as usize];
            file.read_at(&mut cut, PAGE).expect("read");
            assert_same(&cut, &vec![0; cut.len()], "what was cut off is gone");
            write_sevens(&file);
            assert_same(&read_all(&file), &expected, "before closing");
            file.close(mode).expect("close");
            let file = ground.options().open(scratch.file("state.dat")).expect("open");
            assert_same(&read_all(&file), &expected, &format!("{}, {mode:?}", ground.medium));
        }
    }
}

/// As above, but the one who catches up is the close: it found pages past the end of the file in the
/// reflection file, by mirrors that nobody had cut, and panicked. Found by review ("closepanic").
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

/// A is counted up. B, in a page of another region, becomes what A was: by transactions that read A,
/// and write B and much besides. A reader that has seen A = 7 while B was 3 has seen a state after
/// which no transaction that read A = 5 can commit; so B must never be 5 for it from then on.
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
                // Not so often that nobody else gets through.
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
        Ok(looked) => assert!(looked > 0, "nobody looked"),
        Err(wrong) => panic!("{}: {wrong}", ground.medium),
    }
}

/// The last bytes of a page and a region.
const A: u64 = LEN - 8;
/// The first bytes of the next.
const B: u64 = LEN;

/// A transaction looked once more at what it had read, and only then began to let readers know that
/// it commits. In between somebody else could commit to what it had read, and a reader could see
/// that commit without the one before it. Found by review ("serial").
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

/// The same, seen by a transaction that reads and writes nothing. Found by review ("serial").
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

/// While a file grows, the files are longer already and the length that counts is not. Who read in
/// between looked for holes up to the old length, found none, and noted the whole chunk as
/// allocated: what was written home past the old length then went to holes, where a full file
/// system is a SIGBUS and not an error. Found by review ("holes3").
#[test]
fn a_chunk_is_not_taken_for_allocated_because_somebody_reads_while_the_file_grows() {
    /// Two pages that are no holes.
    const OLD: u64 = 2 * PAGE;
    /// Far from them, in the same chunk.
    const AT: u64 = 10 * PAGE;
    let _watch = Watch::start();
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        fs::write(&path, [1; OLD as usize]).expect("write the plain file");
        let recorder = Recorder::new();
        let file = ground.options().open_recorded(&recorder, &path).expect("open");
        // The window is as long as the sync in it, where there is one.
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
            // A page goes to the one file and to the other in turns.
            file.write_at(&[2 + n; PAGE as usize], AT).expect("write");
        }
        file.write_at(&[9; 40], AT).expect("write");
        // By the call, or by writing zeroes where there is none.
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
        // On page cache its slots belong to the durable point, and are not written to again.
        assert!(stored > 0 || ground.medium == Medium::PageCache, "nothing was stored at home");
        // There a chunk is taken as a whole only once most of it is needed.
        let blocks = fs::metadata(&path).expect("stat").blocks();
        let is_whole = blocks * 512 >= LEN;
        assert!(is_whole || ground.medium == Medium::PageCache, "only {blocks} blocks");
    }
}

/// A write over a page that a view pins puts whole pages into the log. The file could become shorter
/// after the write had looked at the length, and the length of the last page was then counted from
/// an end that lies before it: a panic, with the locks held. Found by review ("pinned").
#[test]
fn a_write_over_a_view_that_races_with_set_len_does_not_panic() {
    const PAGES: usize = 60;
    let _watch = Watch::start();
    for ground in grounds() {
        let (_scratch, file) = new_file(&ground, LEN);
        let view = file.view(0..PAGE).expect("view");
        // The pinned page is in the reflection file from here on.
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
                        Err(Error::OutOfRange { .. }) => {}
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
        // Who panicked under locks has left them closed: the closing that follows would hang.
        let Ok(written) = written else {
            std::mem::forget(view);
            std::mem::forget(file);
            panic!("{}: the writer panicked", ground.medium);
        };
        assert!(written > 0, "nothing was written");
        assert_same(&view.to_vec().expect("read"), &[0; PAGE as usize], "the view");
        // All pages of a write or none, but for those that were cut off since.
        let now = read_all(&file);
        assert_same(&now[..PAGE as usize], &[5; PAGE as usize], "the page that was never cut off");
        let (cut, rest) = now[PAGE as usize..].split_at((PAGES - 1) * PAGE as usize);
        assert_same(cut, &vec![cut[0]; cut.len()], "the pages that were");
        assert_same(rest, &vec![0; rest.len()], "what was never written");
    }
}

/// More than the address space that is reserved for a short file.
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

/// A home file that was made longer than the reservation behind the crate's back, and is opened all
/// the same because the caller trusts the pair: opening panicked, since the file did not fit its
/// mapping. Found by review ("trust").
#[test]
fn a_trusted_home_file_that_is_longer_than_the_reservation_is_opened_without_a_panic() {
    for ground in media() {
        open_beyond(&ground, "home");
    }
}

/// The same with a reflection file, which nobody even looks at twice for being too long. Found by
/// review ("trust").
#[test]
fn a_reflection_file_that_is_longer_than_the_reservation_is_opened_without_a_panic() {
    for ground in media() {
        open_beyond(&ground, "reflection");
    }
}

/// A view that is leaked pins its pages for ever, and pinned pages did not come home: a spatial close
/// left them in the reflection file and removed it. Found by review ("leak").
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

/// A pair that was renamed is found by its inode, but its reflection file remembers the old name. Who
/// opened the old name, wanting what is there discarded, removed the reflection file of the renamed
/// pair, and the writes in it. Found by review.
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
            // Renaming changes a time of the file, and the crate cannot know that this was all.
            let options = ground.options().on_mismatch(OnMismatch::Trust);
            let file = options.open(&new).expect("open");
            let mut expected = vec![0; LEN as usize];
            expected[..16 * PAGE as usize].fill(1);
            assert_same(&read_all(&file), &expected, "the renamed pair");
        }
    }
}

/// Only the home file was registered and locked, so the reflection file of an open pair could itself
/// be opened as a home file, and written to under the pair. Found by review.
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

/// Of several that created the same file at once, a loser removed the home file that it thought it
/// had made, while the winner had it open; and who found the file made by another one meanwhile said
/// that it exists, and not that it is in use. Found by review ("create").
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

/// Lets both threads of a race go on at the same moment.
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

/// Two threads each write to a place of their own and then read the other's, again and again.
/// Returns how often neither found what the other had written, and how often they met.
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
                // Known to both before they meet.
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

/// Unlocking is a plain store, and a read began while it was still on its way. Two threads that had
/// each written found nothing of the other's: each read comes before the other's write, and each write
/// before its thread's read, which is no order. Every seventh round went like that on `Dax`.
#[test]
fn of_two_threads_that_write_and_then_look_at_least_one_sees_the_other() {
    for ground in grounds() {
        let _watch = Watch::start();
        let (_scratch, file) = new_file(&ground, LEN);
        let (neither, rounds) = write_and_look([&file, &file], [0, 2 * PAGE]);
        assert_eq!(neither, 0, "of {rounds} rounds");
        // Operations on two files have an order, too.
        let (_other_scratch, other) = new_file(&ground, LEN);
        let (neither, rounds) = write_and_look([&file, &other], [0, 0]);
        assert_eq!(neither, 0, "of {rounds} rounds, in two files");
    }
}

// ---- found by making each system call fail (the lab's part `faults`) ----------------------------

/// The file was mapped over a reservation of addresses. A file system that refuses a synchronous mapping
/// (ext4) is asked after the kernel has thrown out what was mapped there: the range was nobody's until
/// the reservation was unmapped, and whatever another thread had mapped into it meanwhile (memory of its
/// own, or another open file) was unmapped with it. Two threads that opened files on ext4 died of that.
#[test]
fn a_refused_mapping_takes_no_memory_from_other_threads() {
    let Some(ground) = common::page_cache() else {
        eprintln!("no page cache here: skipped");
        return;
    };
    let scratch = ground.scratch();
    run_child(CHILD, "map", scratch.file("state.dat"));
}

/// In a process of its own: if it goes wrong, it dies.
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
                    // Larger than what is allocated, so that the one fits where the other was.
                    let _is_refused_or_not = platform.map(&file, 256 << 20, true);
                }
            });
            scope.spawn(|| {
                while Instant::now() < end {
                    // Large enough to be mapped by the allocator, each time.
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

/// The boot's identity that could not be read now (no descriptor was left) counted as one that the system
/// does not tell: the pair remembered no boot, and was refused as `Restarted` after a mere crash. Or it
/// was refused at once, though the machine had not been restarted, with the advice to discard it.
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
        // It is asked for once: who has got past the look goes by the same answer.
        recorder.fail_from(call::BOOT_ID, 2, libc::EMFILE);
        drop(ground.options().open_recorded(&recorder, &path).expect("nothing has happened"));
    }
}

/// Persistent memory on which a synchronous mapping fails for want of memory was taken for a page cache,
/// in silence: the next call found the memory, and the promise was gone.
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

/// A file of the folder that could not be looked at was taken for one that is not the home file which the
/// reflection file was made for. Discarding at the old name of a renamed pair then removed the reflection
/// file of the new one, and the writes in it.
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

/// A reflection file that cannot be read now may be one all the same: what took the home file's place is not
/// opened as a plain file beside it.
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

/// A home file that was created and then could not be looked at or locked was left behind, empty.
#[test]
fn a_created_home_file_that_cannot_be_locked_is_removed_again() {
    for ground in media() {
        for (fault, nth) in
            [(call::STAT, 1), (call::STAT, 2), (call::LOCK, 1), (call::DUPLICATE, 1)]
        {
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

/// Log entries that say more than the log holds are found when they are read, and that was after the
/// decision what to do with a damaged pair: it was refused as `Corrupt`, with the advice to discard it,
/// and refused again if that was chosen.
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

/// A view that cannot be pinned for lack of space is a copy. Where the space is for slice words (which are there, but
/// that is not known before they are asked for) it was an error.
#[test]
fn a_view_for_which_there_is_no_space_is_a_copy_whatever_the_space_is_for() {
    for ground in media() {
        let (_scratch, file) = new_file(&ground, LEN);
        let path = file.path().to_owned();
        file.write_at(&[3; 9 * PAGE as usize], 0).expect("write whole pages");
        // A page that comes home by a word of its own.
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
            // Where durable points are kept a view is a copy.
            assert_eq!(view.is_mapped(), is_over && ground.medium != Medium::PageCache, "{nth}");
            if is_over {
                break;
            }
        }
    }
}

/// Who wanted the reflection file discarded and asked for too small a reservation got `TooLong`, and
/// the reflection file was gone all the same, with the writes in it. Found by fuzzing (`open_bytes`).
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
        // The pair is whole: who trusts it gets what was written.
        let file = ground.options().on_mismatch(OnMismatch::Trust).open(&path).expect("open");
        assert_same(&read_all(&file)[..16 * PAGE as usize], &[1; 16 * PAGE as usize], "trusted");
    }
}

/// Words past the end of the file should be zero. If they are damaged, nothing says so; a spatial
/// close found slices of pages that are not in the file left in the reflection file, and panicked.
/// Found by fuzzing (`open_mutated`).
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
        // Touches the region that the end cuts in two.
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

/// A superblock is believed if its checksum is right, and so was the last session number that there
/// is: the next one was counted up from it, which panicked, or wrapped to a session that is older than
/// its predecessor. Found by fuzzing (`mismatch`).
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

/// An undo entry says how much it has spilled, and its checksum can be right whoever wrote it: so much
/// memory was taken before a byte of it was looked at, up to 256 MiB for a hole in a sparse file. Found
/// by fuzzing (`open_mutated`).
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
            // As if the process had died.
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

/// Found by the lab's part `faults`. An open that fails takes away what it has made. It did not know of the
/// journal: after the reflection file had gone again a file of 4 MiB stayed, of which nobody knew.
#[test]
fn an_open_that_fails_takes_its_journal_away_again() {
    let Some(ground) = common::page_cache() else { return };
    for name in [call::SYNC_DATA, call::SET_XATTR] {
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

/// Found by reading. A journal is made durable, and its name, before a superblock says that there is one. A
/// process that died in between left one that the next open took as it was: after a loss of power its name
/// could be missing, and the pair, whose superblock was durable, was refused.
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
    let synced =
        events.iter().position(|e| matches!(e, What::Sync { file: FileId::Journal, all: true }));
    let synced = synced.expect("it is synced");
    assert!(matches!(&events[synced + 1], What::SyncDir { .. }), "{:?}", events[synced + 1]);
    // The first superblock, which is written with the reflection file, says that there is none.
    let is_superblock = |e: &What| {
        matches!(e, What::Write { file: FileId::Reflection, offset, .. }
            if layout::SUPERBLOCKS.contains(offset) && *offset != 0)
            || matches!(e, What::Write { file: FileId::Reflection, bytes, .. } if bytes.len() <= 512)
    };
    let says = events.iter().rposition(is_superblock).expect("a session begins");
    assert!(synced < says, "{synced} {says}");
    drop(file);
    // A closed pair's journal was made durable once and for all.
    let file = ground.options().open(&path).expect("open");
    file.close(CloseMode::Fast).expect("close");
    recorder.take();
    let _file = ground.options().open_recorded(&recorder, &path).expect("open");
    let again = recorder.take().into_iter().any(|event| matches!(event.what, What::SyncDir { .. }));
    assert!(!again, "it is not made durable again");
}

/// Whether a chunk has holes was asked for each chunk, and tmpfs answers by going through the file from there
/// to the next hole, page by page: reading a file of a GiB without one, once, took seconds, and ten times as
/// much took a hundred times as long.
#[test]
fn a_file_is_looked_through_for_holes_once() {
    if cfg!(atomic_mmap_portable) {
        // There is no call that tells of holes: each chunk counts as one until it was written to.
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
        file.read_at(&mut byte, at).expect("nobody has to ask again");
        assert_eq!(byte, [7]);
    }
    assert!(recorder.heal(), "it was asked again");
    // What lies before is asked for once.
    file.read_at(&mut byte, 0).expect("read");
}

/// Found by the fuzzer's second reading. A discard that found no name for the new companions was refused
/// after the mark was removed, and the refusal promises that nothing is.
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
        let error = options.open(&path).expect_err("all names are taken");
        assert!(matches!(error, Error::Mismatch { why: Mismatch::Foreign, .. }), "{error:?}");
        before.assert_unchanged(scratch.path(), "refused");
    }
}

/// Found by writing the second reading. A discard removed the journal beside its reflection file whosever
/// it was: another pair's synced bytes, which were nowhere else.
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
    // Changed since it was closed: the caller goes on with the home file alone.
    fs::write(&path, [5; 9000]).expect("write");
    let options = ground.options().on_mismatch(OnMismatch::Discard);
    let file = options.open(&path).expect("open");
    assert_same(&read_all(&file), &[5; 9000], "what the home file holds");
    file.write_at(&[6; 100], 50).expect("write");
    file.sync().expect("sync");
    file.close(CloseMode::Spatial).expect("close");
    assert!(fs::read(&ours).expect("it is there") == was, "another's journal was written to");
}

/// Found by the lab's part `identity`. A companion that had been restored belonged to whichever copy of its
/// home file was opened first, and the home file itself was refused from then on.
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
        // Where there are no attributes it is a plain file.
        match ground.options().open(&beside) {
            Ok(file) => file.close(CloseMode::Spatial).expect("close"),
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

/// Found by the lab's part `identity`. A discard removed the reflection file, and was refused then, for what
/// lay in the journal's place.
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

/// Found by the lab's part `images`. A process died while it wrote a journal's header, which was in the page
/// cache only. The next header went over the one before: torn by a loss of power, it left none, and the
/// pair was refused.
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

/// Found by the lab's part `faults`. The message of a write without a range, on a full file system,
/// did not say where in the file it was.
#[test]
fn a_call_at_an_offset_that_finds_no_space_says_where() {
    if cfg!(atomic_mmap_portable) {
        eprintln!("the first write is one of a durable point here: skipped");
        return;
    }
    for (code, says) in [(libc::ENOSPC, "no space left"), (libc::EDQUOT, "quota")] {
        let Some(ground) = common::page_cache() else { return };
        let scratch = closed_pair(&ground, LEN);
        let path = scratch.file("state.dat");
        let recorder = Recorder::new();
        let file = ground.options().open_recorded(&recorder, &path).expect("open");
        recorder.fail_next(call::WRITE, 1, code);
        let error = file.close(CloseMode::Fast).expect_err("no superblock");
        let Error::NoSpace { offset, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*offset, layout::SUPERBLOCKS[1], "where the last superblock was to be");
        let text = error.to_string();
        assert!(text.contains(&format!("at offset {offset}")), "{text}");
        assert!(text.contains(says), "{text}");
        ground.options().open(&path).expect("open").close(CloseMode::Spatial).expect("close");
    }
}

/// The names that the companion of a home file may have.
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
