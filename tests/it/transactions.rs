//! Tests that a transaction sees one state, with one length, and ends for every closure.

use atomic_mmap::{AtomicMappedFile, Error, Medium, Result};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PAGE: u64 = 4096;
const REGION: u64 = 64 * PAGE;
const LEN: u64 = 16 * REGION;

fn new_file() -> (tempfile::TempDir, AtomicMappedFile) {
    let folder = tempfile::tempdir().expect("a folder");
    let options = AtomicMappedFile::options().create(true).len(LEN).medium(Medium::Ram);
    let file = options.open(folder.path().join("state.dat")).expect("a pair");
    (folder, file)
}

/// Runs `act` in another thread and waits for it.
fn elsewhere(act: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(act).join().expect("no panic"));
}

fn is_conflict<T>(result: Result<T>) -> bool {
    result.is_err_and(|error| error.is_conflict())
}

// ---- the length ------------------------------------------------------------------------------

/// A transaction has read bytes that another thread truncates before the commit.
#[test]
fn a_transaction_that_has_read_past_a_new_end_cannot_commit() {
    for writes in [false, true] {
        let (_folder, file) = new_file();
        let mut tx = file.begin();
        let _zero: u64 = tx.load(8 * REGION).expect("a load");
        if writes {
            tx.store(0, &1u64).expect("a store");
        }
        elsewhere(|| file.set_len(REGION).expect("shorter"));
        assert!(is_conflict(tx.commit()), "it writes: {writes}");
        assert_eq!(file.load::<u64>(0).expect("a load"), 0);
    }
}

/// The file has its old length again, but the bytes that the transaction read were zeroed
/// meanwhile.
#[test]
fn a_shrink_and_a_growth_back_are_noticed() {
    for writes in [false, true] {
        let (_folder, file) = new_file();
        file.store(8 * REGION, &7u64).expect("a store");
        let mut tx = file.begin();
        assert_eq!(tx.load::<u64>(8 * REGION).expect("a load"), 7);
        if writes {
            tx.store(0, &1u64).expect("a store");
        }
        elsewhere(|| {
            file.set_len(REGION).expect("shorter");
            file.set_len(LEN).expect("longer");
        });
        assert!(is_conflict(tx.load::<u64>(0)) && is_conflict(tx.commit()), "writes: {writes}");
    }
}

/// A transaction got an error with the file's length. Then the file grows, and a writer that has
/// seen the growth stores a value in another place.
#[test]
fn a_transaction_that_was_told_the_length_does_not_go_on_with_another_one() {
    for marks in [0, 100] {
        let (_folder, file) = new_file();
        let mut tx = file.begin();
        for n in 0..marks {
            let _zero: u64 = tx.load(n * PAGE).expect("a load");
        }
        assert!(matches!(tx.load::<u64>(LEN), Err(Error::PastEnd { .. })));
        assert!(matches!(tx.store(LEN, &1u64), Err(Error::PastEnd { .. })), "told again");
        elsewhere(|| {
            file.set_len(2 * LEN).expect("longer");
            file.store(REGION * 9, &1u64).expect("a store");
        });
        assert!(is_conflict(tx.load::<u64>(REGION * 9)), "what comes after the growth");
        assert!(is_conflict(tx.load::<u64>(0)), "from then on, too");
        assert!(is_conflict(tx.commit()));
    }
}

#[test]
fn a_length_that_was_told_holds_when_the_transaction_commits() {
    for write in [None, Some(0), Some(LEN - 8)] {
        for by_a_write in [false, true] {
            let (_folder, file) = new_file();
            let mut tx = file.begin();
            let told =
                if by_a_write { tx.store(LEN, &1u64) } else { tx.load::<u64>(LEN).map(drop) };
            assert!(matches!(told, Err(Error::PastEnd { file_len: LEN, .. })));
            if let Some(at) = write {
                tx.store(at, &1u64).expect("a store");
            }
            elsewhere(|| file.set_len(LEN + 8).expect("longer"));
            assert!(is_conflict(tx.commit()), "writes {write:?}, {by_a_write}");
        }
    }
}

/// The commit returned `PastEnd`, with the advice to call `set_len`. The transaction had called it,
/// with the length that the file had. Found by the lab's part `schedules`.
#[test]
fn a_file_that_has_become_shorter_than_it_was_told_is_a_conflict() {
    for sets_it in [false, true] {
        let (_folder, file) = new_file();
        let mut tx = file.begin();
        assert_eq!(tx.len().expect("a length"), LEN);
        if sets_it {
            tx.set_len(LEN).expect("the length that it has");
        }
        tx.store(LEN - 8, &1u64).expect("a store");
        elsewhere(|| file.set_len(LEN - 8).expect("shorter"));
        assert!(is_conflict(tx.commit()), "sets it: {sets_it}");
    }
}

/// An error with a length that does not match the earlier reads is a conflict.
#[test]
fn a_transaction_is_told_no_length_of_another_state() {
    let (_folder, file) = new_file();
    let mut tx = file.begin();
    let _zero: u64 = tx.load(0).expect("a load");
    elsewhere(|| {
        file.store(0, &1u64).expect("a store");
        file.set_len(REGION).expect("shorter");
    });
    assert!(is_conflict(tx.load::<u64>(REGION)));
    let mut tx = file.begin();
    let _one: u64 = tx.load(0).expect("a load");
    elsewhere(|| {
        file.store(0, &2u64).expect("a store");
        file.set_len(LEN).expect("longer");
    });
    assert!(is_conflict(tx.store(REGION, &1u64)), "that the file reaches so far");
}

/// A growth does not change the bytes that a transaction has read.
#[test]
fn a_growth_is_no_conflict_with_what_was_read() {
    let (_folder, file) = new_file();
    let mut tx = file.begin();
    let _zero: u64 = tx.load(LEN - 8).expect("a load");
    elsewhere(|| file.set_len(2 * LEN).expect("longer"));
    tx.store(0, &1u64).expect("a store");
    tx.commit().expect("a commit");
}

/// A closure reads past the end and gets an error. The file grows before the commit, so the closure
/// runs again.
#[test]
fn a_closure_that_was_told_the_length_is_run_again_after_a_growth() {
    let (_folder, file) = new_file();
    let runs = Cell::new(0);
    let found = file.transact(|tx| {
        runs.set(runs.get() + 1);
        let is_there = tx.load::<u64>(LEN).is_ok();
        if runs.get() == 1 {
            elsewhere(|| file.set_len(2 * LEN).expect("longer"));
        }
        tx.store(0, &1u64)?;
        Ok::<_, Error>(is_there)
    });
    assert_eq!((found.expect("a commit"), runs.get()), (true, 2));
}

/// A write was accepted, and another thread truncates its place before the commit. The closure must
/// run again and get the error itself.
#[test]
fn a_closure_with_a_truncated_write_is_run_again() {
    let (_folder, file) = new_file();
    let runs = Cell::new(0);
    let result = file.transact(|tx| {
        runs.set(runs.get() + 1);
        let is_stored = tx.store(8 * REGION, &1u64).is_ok();
        if runs.get() == 1 {
            elsewhere(|| file.set_len(REGION).expect("shorter"));
        }
        tx.store(0, &2u64)?;
        Ok::<_, Error>(is_stored)
    });
    assert_eq!((result.expect("a commit"), runs.get()), (false, 2));
}

/// One thread changes the length and then stores which length it is. Readers compare the two.
#[test]
fn transactions_see_the_length_and_the_bytes_of_one_state() {
    const LONG: u64 = 4 * REGION;
    let (_folder, file) = new_file();
    file.set_len(LONG).expect("a length");
    let is_over = AtomicBool::new(false);
    let wrong = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..400u64 {
                // While the number is odd, the file is short or is about to become short.
                file.store(0, &(2 * n + 1)).expect("a store");
                file.set_len(REGION).expect("shorter");
                file.set_len(LONG).expect("longer");
                file.store(0, &(2 * n + 2)).expect("a store");
            }
            is_over.store(true, Ordering::Relaxed);
        });
        for order in [true, false] {
            let (file, is_over, wrong) = (&file, &is_over, &wrong);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let mut tx = file.begin();
                    // Returns `true` if the file is short, or if the word says that the file is or
                    // may be short.
                    let mut see = |length: bool| -> Result<bool> {
                        if !length {
                            return Ok(tx.load::<u64>(0)? % 2 == 1);
                        }
                        match tx.load::<u64>(LONG - 8) {
                            Ok(_) => Ok(false),
                            Err(Error::PastEnd { .. }) => Ok(true),
                            Err(error) => Err(error),
                        }
                    };
                    let (Ok(one), Ok(two)) = (see(order), see(!order)) else { continue };
                    let (is_short, is_odd) = if order { (one, two) } else { (two, one) };
                    let is_wrong = is_short && !is_odd;
                    wrong.fetch_add(is_wrong.into(), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(wrong.load(Ordering::Relaxed), 0, "short, with the word of a long file");
}

// ---- a thread in conflict with itself --------------------------------------------------------

/// Runs a closure that reads 0..8, calls `inner`, and writes after it. Counts the runs.
fn with_inner(
    file: &AtomicMappedFile,
    inner: impl Fn(&AtomicMappedFile) -> Result<()>,
) -> (Result<u64>, u32) {
    let runs = Cell::new(0);
    let result = file.transact(|tx| {
        runs.set(runs.get() + 1);
        assert!(runs.get() < 100, "for ever");
        let n: u64 = tx.load(0)?;
        inner(file)?;
        tx.store(8, &(n + 10))?;
        Ok(n)
    });
    (result, runs.get())
}

/// Tries every kind of operation that can change what the closure's transaction has read.
#[test]
fn a_closure_that_changes_what_it_has_read_is_an_error_and_changes_it_once() {
    type Inner = fn(&AtomicMappedFile) -> Result<()>;
    let whole: Inner = |file| {
        let n: u64 = file.load(0)?;
        let mut bytes = vec![0; 10 * PAGE as usize];
        bytes[..8].copy_from_slice(&(n + 1).to_le_bytes());
        file.write_at(&bytes, 0)
    };
    let in_pages: Inner = |file| {
        let n: u64 = file.load(0)?;
        let mut bytes = vec![0; 2 * PAGE as usize - 100];
        bytes[..8].copy_from_slice(&(n + 1).to_le_bytes());
        file.write_at(&bytes, 0)
    };
    let one_page: Inner = |file| {
        let n: u64 = file.load(0)?;
        let mut bytes = vec![0; PAGE as usize];
        bytes[..8].copy_from_slice(&(n + 1).to_le_bytes());
        file.write_at(&bytes, 0)
    };
    let all: [(&str, Inner); 12] = [
        ("store", |f| f.store(0, &(f.load::<u64>(0)? + 1))),
        ("a store of 200 bytes", |f| {
            let mut bytes = [0; 200];
            bytes[0] = f.load::<u8>(0)? + 1;
            f.write_at(&bytes, 0)
        }),
        ("one page", one_page),
        ("two pages", in_pages),
        ("ten pages", whole),
        ("write_many", |f| {
            f.write_many(&[(0, &(f.load::<u64>(0)? + 1).to_le_bytes()), (9000, b"x")])
        }),
        ("update", |f| f.update(0, |n: &mut u64| *n += 1)),
        ("fetch_add", |f| f.slot::<u64>(0)?.fetch_add(1).map(drop)),
        ("swap", |f| f.slot::<u64>(0)?.swap(&(f.load::<u64>(0)? + 1)).map(drop)),
        ("compare_exchange", |f| {
            let n = f.load::<u64>(0)?;
            f.slot::<u64>(0)?.compare_exchange(&n, &(n + 1)).map(drop)
        }),
        ("transact", |f| {
            f.transact(|tx| {
                let n: u64 = tx.load(0)?;
                tx.store(0, &(n + 1))
            })
        }),
        ("begin", |f| {
            let mut tx = f.begin();
            let n: u64 = tx.load(0)?;
            tx.store(0, &(n + 1))?;
            tx.commit()
        }),
    ];
    for (name, inner) in all {
        let (_folder, file) = new_file();
        // Both slots exist, so the fast paths are possible.
        for n in [0u8, 5] {
            file.write_at(&[n; 20 * PAGE as usize], 0).expect("a write");
            file.store(0, &u64::from(n)).expect("a store");
            file.store(8, &0u64).expect("a store");
        }
        let (result, runs) = with_inner(&file, inner);
        assert!(matches!(result, Err(Error::SelfConflict { .. })), "{name}: {result:?}");
        assert_eq!((runs, file.load::<u64>(0).expect("a load")), (1, 6), "{name}");
        assert_eq!(file.load::<u8>(16).expect("a load"), file.load(16).expect("a load"));
    }
}

#[test]
fn an_update_that_changes_its_own_value_beside_is_an_error() {
    let (_folder, file) = new_file();
    let slot = file.slot::<u64>(0).expect("a slot");
    let runs = Cell::new(0);
    let result = file.update(0, |n: &mut u64| {
        runs.set(runs.get() + 1);
        assert!(runs.get() < 100, "for ever");
        *n = slot.fetch_add(1).expect("an addition");
    });
    assert!(matches!(result, Err(Error::SelfConflict { .. })), "{result:?}");
    assert_eq!((runs.get(), slot.load().expect("a load")), (1, 1));
    let error = std::io::Error::from(result.expect_err("above"));
    assert_eq!(error.kind(), std::io::ErrorKind::Deadlock);
}

#[test]
fn a_closure_that_changes_the_length_it_was_told_is_an_error() {
    let (_folder, file) = new_file();
    let shrinks = file.transact(|tx| {
        let n: u64 = tx.load(8 * REGION)?;
        file.set_len(REGION)?;
        tx.store(0, &n)
    });
    assert!(matches!(shrinks, Err(Error::SelfConflict { .. })), "{shrinks:?}");
    let grows = file.transact(|tx| {
        assert!(tx.load::<u64>(REGION).is_err());
        file.set_len(2 * REGION)?;
        tx.store(0, &1u64)
    });
    assert!(matches!(grows, Err(Error::SelfConflict { .. })), "{grows:?}");
    let cuts_a_write = file.transact(|tx| {
        tx.store(REGION, &1u64)?;
        file.set_len(REGION)
    });
    assert!(matches!(cuts_a_write, Err(Error::SelfConflict { .. })), "{cuts_a_write:?}");
    // The region of the new end gets a new version, even if other bytes of it were read.
    let cuts_its_region = file.transact(|tx| {
        let n: u64 = tx.load(0)?;
        file.set_len(file.len() - 1)?;
        tx.store(0, &n)
    });
    assert!(matches!(cuts_its_region, Err(Error::SelfConflict { .. })), "{cuts_its_region:?}");
}

#[test]
fn what_a_closure_does_beside_without_a_conflict_is_done_once() {
    let (_folder, file) = new_file();
    let (elsewhere, runs) = with_inner(&file, |f| f.update(REGION, |n: &mut u64| *n += 1));
    assert!(elsewhere.is_ok() && runs == 1, "another page: {elsewhere:?}");
    let (longer, runs) = with_inner(&file, |f| f.set_len(2 * LEN));
    assert!(longer.is_ok() && runs == 1, "longer: {longer:?}");
    let (synced, runs) = with_inner(&file, |f| f.sync().map(drop));
    assert!(synced.is_ok() && runs == 1, "{synced:?}");
    // A deployment changes no bytes: the second run finds the page deployed.
    let (deployed, runs) = with_inner(&file, |f| f.deploy(0..PAGE).map(drop));
    assert!(deployed.is_ok() && runs <= 2, "{deployed:?}");
    assert_eq!(file.load::<u64>(REGION).expect("a load"), 1);
    // Before the transaction reads it.
    let before = file.transact(|tx| {
        file.store(0, &4u64)?;
        let n: u64 = tx.load(0)?;
        tx.store(8, &n)
    });
    assert!(before.is_ok(), "{before:?}");
}

/// Another thread changes what the transaction has read, once. The closure itself writes to an
/// unrelated place outside the transaction.
#[test]
fn a_conflict_with_another_thread_is_no_conflict_of_a_closure_with_itself() {
    let (_folder, file) = new_file();
    let runs = Cell::new(0);
    let result = file.transact(|tx| {
        runs.set(runs.get() + 1);
        let n: u64 = tx.load(0)?;
        file.update(REGION, |n: &mut u64| *n += 1)?;
        if runs.get() < 20 {
            elsewhere(|| file.store(0, &(n + 1)).expect("a store"));
        }
        tx.store(0, &(n + 100))?;
        Ok::<_, Error>(n)
    });
    assert_eq!((result.expect("a commit"), runs.get()), (19, 20));
    assert_eq!(file.load::<u64>(REGION).expect("a load"), 20);
}

#[test]
fn transactions_of_one_thread_on_two_files_nest() {
    let ((_one, one), (_two, two)) = (new_file(), new_file());
    let result = one.transact(|tx| {
        let n: u64 = tx.load(0)?;
        let m = two.transact(|inner| {
            let m: u64 = inner.load(0)?;
            // In the outer transaction's file, at a place that it has not read.
            one.store(REGION, &m)?;
            inner.store(0, &(m + 1))?;
            Ok::<_, Error>(m + 1)
        })?;
        two.store(8, &m)?;
        tx.store(0, &(n + m))
    });
    assert!(result.is_ok(), "{result:?}");
    assert_eq!((one.load::<u64>(0).unwrap(), two.load::<u64>(8).unwrap()), (1, 1));
    // The inner transaction changes what the outer one has read.
    let result = one.transact(|tx| {
        let n: u64 = tx.load(0)?;
        two.transact(|inner| {
            let m: u64 = inner.load(0)?;
            one.store(0, &9u64)?;
            inner.store(0, &m)
        })?;
        tx.store(0, &n)
    });
    assert!(matches!(result, Err(Error::SelfConflict { .. })), "{result:?}");
    assert_eq!(one.load::<u64>(0).unwrap(), 9, "once, and not written over");
}

#[test]
fn a_closure_that_gives_up_has_its_own_error() {
    let (_folder, file) = new_file();
    let result =
        file.transact(|tx| {
            let n: u64 = tx.load(0)?;
            file.store(0, &(n + 1))?;
            Err::<(), _>(std::io::Error::from(std::io::ErrorKind::Interrupted)).map_err(|e| {
                Error::Io { call: "think", path: "x".into(), offset: None, source: e.into() }
            })
        });
    assert!(matches!(result, Err(Error::Io { call: "think", .. })), "{result:?}");
    assert_eq!(file.load::<u64>(0).expect("a load"), 1);
}

/// After a closure that panics or returns early, the next writes of the thread work as before.
#[test]
fn a_closure_that_panics_leaves_the_thread_as_it_was() {
    let (_folder, file) = new_file();
    let update = || file.update(0, |_: &mut u64| panic!("in a closure"));
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(update));
    assert!(panics.is_err());
    file.store(0, &1u64).expect("a store");
    let (result, runs) = with_inner(&file, |_| Ok(()));
    assert_eq!((result.expect("a commit"), runs), (1, 1));
}

/// Without a closure there is no retry: the commit returns a conflict, as with any other writer.
#[test]
fn a_transaction_beside_its_own_threads_write_is_a_conflict() {
    let (_folder, file) = new_file();
    let mut tx = file.begin();
    let n: u64 = tx.load(0).expect("a load");
    file.store(0, &(n + 1)).expect("a store");
    tx.store(8, &1u64).expect("a store");
    assert!(is_conflict(tx.commit()));
    let mut reads = file.begin();
    let n: u64 = reads.load(0).expect("a load");
    file.store(0, &(n + 1)).expect("a store");
    assert!(is_conflict(reads.commit()), "also of one that writes nothing");
    let mut apart = file.begin();
    let n: u64 = apart.load(0).expect("a load");
    file.store(REGION, &1u64).expect("a store");
    apart.store(0, &n).expect("a store");
    apart.commit().expect("nothing in common");
}

// ---- many reads ------------------------------------------------------------------------------

/// If each read validated all earlier reads, this would be 20,000,000,000 checks.
#[test]
fn a_transaction_of_many_reads_is_not_quadratic() {
    let (_folder, file) = new_file();
    let result = file.transact(|tx| {
        let mut sum = 0u64;
        for n in 0..200_000u64 {
            sum += tx.load::<u64>(n % (LEN / PAGE) * PAGE)?;
        }
        tx.store(0, &(sum + 1))
    });
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(file.load::<u64>(0).expect("a load"), 1);
}

/// After many reads another thread changes one of their pages, with each protocol. The next read
/// must find it.
#[test]
fn a_change_of_one_of_many_pages_is_found_by_the_next_read() {
    let lens = [1usize, 8, 64, 200, PAGE as usize, 2 * PAGE as usize, 10 * PAGE as usize];
    for len in lens {
        for at in [0, 100 * PAGE] {
            let (_folder, file) = new_file();
            for n in 0..2u8 {
                file.write_at(&vec![n; LEN as usize], 0).expect("a write");
            }
            // Some pages are in the reflection file, and some have a deployed stamp.
            file.write_at(&[1; 300], PAGE).expect("a write");
            file.read_at(&mut vec![0; LEN as usize], 0).expect("a read");
            for _ in 0..2 {
                let mut tx = file.begin();
                for n in 0..LEN / PAGE - 1 {
                    let _one: u8 = tx.load(n * PAGE).expect("a load");
                }
                elsewhere(|| file.write_at(&vec![1; len], at).expect("a write"));
                assert!(is_conflict(tx.load::<u8>(LEN - 1)), "{len} bytes at {at}");
            }
        }
    }
}

/// One thread adds to every page, one after the other, and transactions read all pages. A
/// transaction must never read a newer page before an older one.
#[test]
fn many_reads_beside_a_writer_are_of_one_state() {
    const PAGES: u64 = 100;
    let (_folder, file) = new_file();
    let is_over = AtomicBool::new(false);
    let (seen, wrong) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 1u64;
            while seen.load(Ordering::Relaxed) < 30 && round < 3_000 {
                for n in 0..PAGES {
                    file.store(n * PAGE, &round).expect("a store");
                    if n.is_multiple_of(16) {
                        std::thread::yield_now();
                    }
                }
                // Sometimes leaves time for a whole transaction.
                if round.is_multiple_of(8) {
                    std::thread::sleep(std::time::Duration::from_micros(300));
                }
                round += 1;
            }
            is_over.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let mut tx = file.begin();
                // From the page that is written last to the first one: each is at least as new.
                let mut newest = 0;
                let mut oldest = u64::MAX;
                let mut is_whole = true;
                for n in (0..PAGES).rev() {
                    let Ok(round) = tx.load::<u64>(n * PAGE) else {
                        is_whole = false;
                        break;
                    };
                    wrong.fetch_add(
                        (round < newest || round > oldest.saturating_add(1)).into(),
                        Ordering::Relaxed,
                    );
                    newest = newest.max(round);
                    oldest = oldest.min(round);
                }
                seen.fetch_add(is_whole.into(), Ordering::Relaxed);
            }
        });
    });
    assert_eq!(wrong.load(Ordering::Relaxed), 0, "pages of two states");
}
