//! Tests that length and bytes change together: whole documents, and transactions with `set_len`.
//!
//! `model` compares random operations with a vector, and `kill` and `power` crash them. These tests
//! have the boundaries, the errors, and what other threads see.

use crate::common::{
    self, Ground, Rng, Scratch, Watch, assert_same, media, media_in_memory, read_all,
};
use atomic_mmap::testing::recorder::{Event, Recorder, What};
use atomic_mmap::testing::{call, layout};
use atomic_mmap::{
    AtomicMappedFile, CloseMode, Durability, Error, Integrity, Medium, Result, Transaction,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const SLICE: usize = 64;
const PAGE: usize = 4096;
const REGION: usize = 64 * PAGE;
const CHUNK: usize = 2 << 20;

/// Makes an empty file.
fn new_file(ground: &Ground) -> (Scratch, AtomicMappedFile) {
    let scratch = ground.scratch();
    let file = ground.options().create(true).open(scratch.file("document")).expect("open");
    (scratch, file)
}

fn contents(file: &AtomicMappedFile) -> Vec<u8> {
    let all = file.read_vec().expect("read");
    assert_eq!(file.len(), all.len() as u64);
    all
}

/// Runs `act` in another thread and waits for it.
fn elsewhere(act: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(act).join().expect("no panic"));
}

fn is_conflict<T>(result: Result<T>) -> bool {
    result.is_err_and(|error| error.is_conflict())
}

/// A program that follows the home file must find bytes where the file has become longer, and none
/// of an append that has failed may ever be read.
#[test]
fn an_append_is_in_the_home_file_that_shows_appends() {
    let append = |file: &AtomicMappedFile, bytes: &[u8]| {
        file.transact(|tx| {
            let end = tx.len()?;
            tx.set_len(end + bytes.len() as u64 + 10)?;
            tx.write_at(bytes, end)
        })
    };
    for ground in media() {
        for integrity in [Integrity::Off, Integrity::OnRead] {
            let (scratch, recorder) = (ground.scratch(), Recorder::new());
            let path = scratch.file("document");
            let options = || ground.options().integrity(integrity).shows_appends(true);
            let file = options().create(true).open_recorded(&recorder, &path).expect("open");
            let (mut expected, mut rng) = (Vec::new(), Rng(7));
            for n in 0..40 {
                let len = 1 + rng.below(3000) as usize;
                let bytes = rng.bytes(len);
                append(&file, &bytes).expect("append");
                expected.extend(&bytes);
                expected.extend([0; 10]);
                if integrity == Integrity::Off {
                    let followed = std::fs::read(&path).expect("read");
                    assert_same(&followed, &expected, "as a follower reads");
                }
                assert_same(&contents(&file), &expected, "as the handle reads");
                if n % 7 == 6 {
                    file.sync().expect("sync");
                }
            }
            let calls =
                if integrity == Integrity::Off { &[call::WRITE, call::SET_LEN][..] } else { &[] };
            for call in calls {
                recorder.fail_next(call, 1, libc::ENOSPC);
                let error = append(&file, &[9; 5000]).expect_err("no space");
                assert!(matches!(error, Error::NoSpace { .. }), "{error:?}");
                assert!(!recorder.heal(), "it came up");
                assert_same(&contents(&file), &expected, "after a failure");
            }
            file.set_len(expected.len() as u64 + 100).expect("grow");
            expected.extend([0; 100]);
            assert_same(&contents(&file), &expected, "grown after a failure");
            recorder.fail_next(call::SET_LEN, 1, libc::ENOSPC);
            append(&file, &[9; 5000]).expect_err("no space");
            assert!(!recorder.heal(), "it came up");
            file.close(CloseMode::Unsynced).expect("leave it");
            let file = options().open(&path).expect("open again");
            assert_same(&contents(&file), &expected, "after a crash");
            file.set_len(expected.len() as u64 + 100).expect("grow");
            expected.extend([0; 100]);
            assert_same(&contents(&file), &expected, "grown after a crash");
            file.close(CloseMode::Spatial).expect("close");
            assert_same(&std::fs::read(&path).expect("read"), &expected, "the plain file");
        }
    }
}

/// The error said that a write of a long run had failed, whatever the length.
#[test]
fn a_failed_write_of_what_a_follower_sees_is_told_as_one() {
    for ground in media() {
        let (scratch, recorder) = (ground.scratch(), Recorder::new());
        let options = ground.options().create(true).shows_appends(true);
        let file = options.open_recorded(&recorder, scratch.file("document")).expect("open");
        recorder.fail_next(call::WRITE, 1, libc::EIO);
        let error = file.replace(&[7; 10]).expect_err("the disk fails").to_string();
        assert!(!recorder.heal(), "it came up");
        assert!(error.contains("write of an append to the home file failed"), "{error}");
        assert!(error.contains("open the file again"), "{error}");
        let error = file.write_at(&[7], 0).expect_err("the handle is in doubt");
        assert!(matches!(error, Error::Poisoned { .. }), "{error:?}");
    }
}

// ---- documents -------------------------------------------------------------------------------

/// Documents that end around the ends of slices, pages, regions and chunks follow each other,
/// growing and shrinking. A process crash, a fast close and a spatial close keep each of them.
#[test]
fn a_document_is_its_bytes_whatever_its_length() {
    let around = |end: usize| [end - 1, end, end + 1];
    let ends = [SLICE, 7 * SLICE, PAGE, 3 * PAGE, REGION, REGION + PAGE, CHUNK, CHUNK + PAGE];
    let mut lengths: Vec<usize> = ends.into_iter().flat_map(around).chain([0, 1, 0, 400]).collect();
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("document");
        let open = || ground.options().create(true).open(&path).expect("open");
        let mut file = open();
        let mut rng = Rng(5);
        for pass in 0..3 {
            for n in (1..lengths.len()).rev() {
                lengths.swap(n, rng.below(n as u64 + 1) as usize);
            }
            for (n, len) in lengths.iter().copied().enumerate() {
                let document = rng.bytes(len);
                file.replace(&document).expect("replace");
                assert_same(&contents(&file), &document, "after a replace");
                if (n + pass) % 7 == 0 {
                    let modes = [CloseMode::Unsynced, CloseMode::Fast, CloseMode::Spatial];
                    let mode = modes[(n / 7 + pass) % 3];
                    file.close(mode).expect("close");
                    if mode == CloseMode::Spatial {
                        let plain = std::fs::read(&path).expect("a plain file");
                        assert_same(&plain, &document, "the plain file");
                    }
                    file = open();
                    assert_same(&contents(&file), &document, "after opening");
                }
            }
        }
    }
}

/// A new document may be longer and have bytes where an older one had some. What lies between is
/// neither seen nor left.
#[test]
fn a_document_shows_nothing_of_an_earlier_one() {
    for ground in media() {
        let (_scratch, file) = new_file(&ground);
        for len in [PAGE, REGION + 100, 5] {
            file.replace(&vec![0xEE; 2 * REGION]).expect("replace");
            file.replace(&vec![1; len]).expect("replace");
            file.set_len(2 * REGION as u64).expect("longer");
            let all = contents(&file);
            assert!(all[..len].iter().all(|byte| *byte == 1));
            assert!(all[len..].iter().all(|byte| *byte == 0), "bytes came back after {len}");
        }
    }
}

/// The document of one session is that of the next one, also after each kind of durability.
#[test]
fn a_document_is_durable_as_the_file_promises() {
    for ground in media() {
        for durability in [Durability::EveryWrite, Durability::AtomicSync] {
            let scratch = ground.scratch();
            let path = scratch.file("document");
            let options = || ground.options().create(true).durability(durability);
            let file = options().open(&path).expect("open");
            for len in [5000, 100, 70_000, 70_000, 3] {
                file.replace(&vec![len as u8; len]).expect("replace");
            }
            if durability == Durability::AtomicSync {
                file.sync().expect("sync");
                file.replace(&[9; 4000]).expect("replace");
            }
            file.close(CloseMode::Unsynced).expect("close");
            let file = options().open(&path).expect("open again");
            assert_eq!(contents(&file), [3; 3], "{durability:?} on {}", ground.medium);
        }
    }
}

// ---- transactions ----------------------------------------------------------------------------

#[test]
fn a_transaction_sees_the_length_that_it_has_set() {
    for ground in media() {
        let (_scratch, file) = new_file(&ground);
        file.replace(&[7; 300]).expect("replace");
        let mut tx = file.begin();
        assert_eq!((tx.len().expect("a length"), tx.is_empty().expect("an answer")), (300, false));
        tx.set_len(100).expect("shorter");
        let mut bytes = [9; 10];
        assert!(matches!(
            tx.read_at(&mut bytes, 95),
            Err(Error::PastEnd { offset: 95, len: 10, file_len: 100, .. })
        ));
        assert!(matches!(tx.write_at(&[1], 100), Err(Error::PastEnd { file_len: 100, .. })));
        tx.write_at(&[1; 5], 90).expect("within");
        tx.set_len(10_000).expect("longer");
        assert_eq!(tx.len().expect("a length"), 10_000);
        tx.write_at(&[2; 4], 9996).expect("at the new end");
        tx.read_at(&mut bytes, 88).expect("both sides of the shorter end");
        assert_eq!(bytes, [7, 7, 1, 1, 1, 1, 1, 7, 7, 7]);
        let mut tail = [9; 9900];
        tx.read_at(&mut tail, 100).expect("cut off, and grown again");
        assert_same(&tail[..9896], &[0; 9896], "no byte comes back");
        assert_eq!(tail[9896..], [2; 4]);
        assert_eq!(file.len(), 300, "nothing is visible before the commit");
        tx.commit().expect("a commit");
        let mut expected = [&[7; 90][..], &[1; 5], &[7; 5], &[0; 9896], &[2; 4]].concat();
        assert_same(&contents(&file), &expected, "after the commit");
        // Down to nothing and back to the old length: the length does not change, the bytes do.
        let mut tx = file.begin();
        tx.write_at(&[3; 8], 5000).expect("a write that is cut off");
        tx.set_len(0).expect("empty");
        assert!(tx.is_empty().expect("an answer"));
        tx.read_at(&mut [], 0).expect("nothing");
        tx.set_len(10_000).expect("back");
        tx.write_at(&[4], 0).expect("a write");
        tx.commit().expect("a commit");
        expected.fill(0);
        expected[0] = 4;
        assert_same(&contents(&file), &expected, "after the second commit");
    }
}

#[test]
fn a_transaction_that_is_dropped_leaves_the_length() {
    let (_scratch, file) = new_file(&common::ram());
    file.replace(b"abc").expect("replace");
    for len in [0, 2, 3, 4, 100_000] {
        let mut tx = file.begin();
        tx.set_len(len).expect("a length");
        tx.rollback();
        assert_eq!(contents(&file), b"abc");
    }
}

/// The length that a transaction was told, and what it has read, hold when it commits.
#[test]
fn a_change_of_the_length_commits_only_on_what_was_read() {
    for (new, mine) in [(50_u64, 40_u64), (40, 50), (400, 90_000), (90_000, 400)] {
        let (_scratch, file) = new_file(&common::ram());
        file.replace(&[1; 60]).expect("replace");
        let mut tx = file.begin();
        tx.set_len(mine).expect("a length");
        tx.write_at(&[2], 0).expect("a write");
        elsewhere(|| file.set_len(new).expect("another length"));
        assert!(is_conflict(tx.commit()), "{new} and {mine}");
        assert_eq!(file.len(), new);
    }
    for mine in [100, 900_000] {
        let (_scratch, file) = new_file(&common::ram());
        file.replace(&[1; 600_000]).expect("replace");
        let mut tx = file.begin();
        tx.read_at(&mut [0; 8], 500_000).expect("a read");
        tx.set_len(mine).expect("a length");
        tx.write_at(&[2], 0).expect("a write");
        elsewhere(|| file.write_at(&[3], 500_001).expect("a write to what was read"));
        assert!(is_conflict(tx.commit()), "{mine}");
        assert_eq!((file.len(), contents(&file)[0]), (600_000, 1));
    }
    // Earlier reads stay valid if only other bytes have changed.
    let (_scratch, file) = new_file(&common::ram());
    file.replace(&[1; 600_000]).expect("replace");
    let mut tx = file.begin();
    tx.read_at(&mut [0; 8], 500_000).expect("a read");
    tx.set_len(100).expect("a length");
    elsewhere(|| file.write_at(&[3], 70).expect("a write to other bytes"));
    tx.commit().expect("a commit");
    assert_eq!(contents(&file)[70], 3);
}

/// A growth is prepared when it can no longer meet a conflict. So a transaction that loses many
/// times does not lengthen the files each time, and take that back.
#[test]
fn conflicts_of_a_growing_transaction_lengthen_no_file() {
    // One loss more, and writers would wait for the transaction, which here waits for a writer.
    const LOST: u64 = 7;
    let new = 3 * REGION as u64;
    for ground in media() {
        for writes in [false, true] {
            let scratch = ground.scratch();
            let recorder = Recorder::new();
            let options = ground.options().create(true).len(REGION as u64 + 100);
            let file = options.open_recorded(&recorder, scratch.file("document")).expect("open");
            let preparations = || {
                let is_one = |event: &Event| {
                    matches!(
                        event.what,
                        What::SetLen { .. } | What::Store { offset: layout::HIGH_WATER_WORD, .. }
                    )
                };
                recorder.take().into_iter().filter(is_one).count()
            };
            preparations();
            file.set_len(new).expect("longer");
            let once = preparations();
            file.set_len(REGION as u64 + 100).expect("shorter");
            preparations();
            let mut runs = 0;
            file.transact(|tx| {
                let count = tx.load::<u64>(8)?;
                tx.set_len(new)?;
                if writes {
                    tx.store(new - 8, &count)?;
                }
                if runs < LOST {
                    elsewhere(|| file.store(8, &(count + 1)).expect("a write to what was read"));
                }
                runs += 1;
                Ok::<_, Error>(())
            })
            .expect("the last run meets no conflict");
            assert_eq!((runs, file.len()), (LOST + 1, new));
            assert_eq!(preparations(), once, "of one growth, on {}", ground.medium);
            assert_eq!(file.load::<u64>(new - 8).expect("a read"), u64::from(writes) * LOST);
        }
    }
}

/// The closure changes the length that its own transaction goes by.
#[test]
fn a_closure_that_changes_its_own_length_ends() {
    let (_scratch, file) = new_file(&common::ram());
    file.replace(&[1; 60]).expect("replace");
    let result: Result<()> = file.transact(|tx| {
        let len = tx.len()?;
        file.replace(&vec![2; len as usize + 1])?;
        tx.set_len(len + 5)
    });
    assert!(matches!(result, Err(Error::SelfConflict { .. })), "{result:?}");
    // Told by an error, and then by another one.
    let result: Result<()> = file.transact(|tx| {
        let far = |tx: &mut Transaction<'_>| tx.read_at(&mut [0], 1 << 20);
        assert!(matches!(far(tx), Err(Error::PastEnd { .. })));
        file.set_len(file.len() + 1)?;
        far(tx)
    });
    assert!(matches!(result, Err(Error::SelfConflict { .. })), "{result:?}");
    // An inner transaction, which ends before the outer one has read anything, is no conflict.
    file.transact(|tx| {
        file.replace(b"inner")?;
        tx.set_len(7)
    })
    .expect("no conflict");
    assert_eq!(contents(&file), b"inner\0\0");
}

// ---- errors ----------------------------------------------------------------------------------

#[test]
fn an_error_changes_neither_length_nor_bytes() {
    for ground in media() {
        let scratch = ground.scratch();
        let options = ground.options().create(true).max_len(1 << 20);
        let file = options.open(scratch.file("document")).expect("open");
        let document = Rng(3).bytes(3 * PAGE);
        file.replace(&document).expect("replace");
        let max_len = file.max_len();
        let longer = vec![1; max_len as usize + 1];
        assert!(matches!(file.replace(&longer), Err(Error::TooLong { len, .. }) if len > max_len));
        let mut tx = file.begin();
        assert!(matches!(tx.set_len(max_len + 1), Err(Error::TooLong { .. })));
        tx.commit().expect("nothing was done");
        assert_same(&contents(&file), &document, "after a document that is too long");
        file.replace(&longer[..max_len as usize]).expect("the longest document");
        file.replace(&document).expect("replace");

        let view = file.view(2 * PAGE as u64..3 * PAGE as u64).expect("a view");
        if !view.is_mapped() {
            continue;
        }
        assert!(matches!(file.replace(b"short"), Err(Error::Pinned { len: 5, .. })));
        let mut tx = file.begin();
        tx.set_len(2 * PAGE as u64).expect("a length");
        tx.write_at(&[1; 100], 0).expect("a write");
        assert!(matches!(tx.commit(), Err(Error::Pinned { .. })));
        assert_same(&contents(&file), &document, "under a view");
        // Growing under a view, and writing below it.
        let longer = [&document[..], &[5; 100]].concat();
        file.replace(&longer).expect("replace");
        assert_same(&view.to_vec().expect("its bytes"), &document[2 * PAGE..], "the view");
        assert_same(&contents(&file), &longer, "beside the view");
        drop(view);
        file.replace(b"short").expect("replace");
        assert_eq!(contents(&file), b"short");
    }
}

/// Each system call of an operation fails in turn, as on a full disk.
#[test]
fn a_full_disk_changes_neither_length_nor_bytes() {
    for ground in media() {
        for (old, new) in [(100, 3 * CHUNK), (PAGE + 7, 50_000), (3 * CHUNK, PAGE)] {
            let (before, after) = (Rng(1).bytes(old), Rng(2).bytes(new));
            for call in [call::SET_LEN, call::ALLOCATE] {
                for nth in 1.. {
                    let scratch = ground.scratch();
                    let recorder = Recorder::new();
                    let options = ground.options().create(true);
                    let path = scratch.file("document");
                    let file = options.open_recorded(&recorder, &path).expect("open");
                    file.replace(&before).expect("replace");
                    recorder.fail_next(call, nth, libc::ENOSPC);
                    let result = file.replace(&after);
                    let has_failed = !recorder.heal();
                    // Opening lets the mapping's end be seen, whatever the call was for.
                    let what = format!("{call} {nth} from {old} to {new} on {}", ground.medium);
                    match &result {
                        Err(Error::NoSpace { .. }) => {
                            assert!(has_failed, "{what}");
                            assert_same(&read_all(&file), &before, &what);
                        }
                        Ok(()) => assert_same(&read_all(&file), &after, &what),
                        Err(error) => panic!("{what}: {error}"),
                    }
                    file.replace(&after).expect("there is space again");
                    assert_same(&read_all(&file), &after, &what);
                    if !has_failed {
                        break;
                    }
                }
            }
        }
    }
}

// ---- threads ---------------------------------------------------------------------------------

/// Returns document `n`: each word of it is a multiple of its number, and the number says its
/// length.
fn document(n: u64) -> Vec<u8> {
    let len = [30, 400, 5000, 2 * PAGE as u64, 90_000][n as usize % 5] + n % 3;
    n.to_le_bytes().repeat(len as usize)
}

fn assert_is_a_document(bytes: &[u8]) -> u64 {
    let n = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    assert_same(bytes, &document(n), "a document");
    n
}

/// Two writers replace the document, and one changes it by transactions. Readers of every kind find
/// one document, whole.
#[test]
fn readers_see_one_document_while_it_is_replaced() {
    for ground in media_in_memory() {
        let _watch = Watch::start();
        let (_scratch, file) = new_file(&ground);
        file.replace(&document(1)).expect("replace");
        let (next, over) = (AtomicU64::new(2), AtomicBool::new(false));
        let has_time = || !over.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            for by_transaction in [false, false, true] {
                let (file, next) = (&file, &next);
                scope.spawn(move || {
                    while has_time() {
                        let document = document(next.fetch_add(1, Ordering::Relaxed));
                        if !by_transaction {
                            file.replace(&document).expect("replace");
                            continue;
                        }
                        file.transact(|tx| {
                            tx.set_len(document.len() as u64)?;
                            tx.write_at(&document, 0)
                        })
                        .expect("a transaction");
                    }
                });
            }
            let readers: Vec<_> = [false, true]
                .map(|by_transaction| {
                    let file = &file;
                    scope.spawn(move || {
                        for _ in 0..300 {
                            let bytes = match by_transaction {
                                false => file.read_vec(),
                                true => file.transact(|tx| {
                                    let mut bytes = vec![0; tx.len()? as usize];
                                    tx.read_at(&mut bytes, 0)?;
                                    Ok::<_, Error>(bytes)
                                }),
                            };
                            assert_is_a_document(&bytes.expect("a read"));
                        }
                    })
                })
                .into();
            let ended: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
            over.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|reader| reader.expect("no half of a document"));
        });
        assert_is_a_document(&contents(&file));
    }
}

/// Threads append lines of their own. No line is lost or torn, and the lines of each thread are in
/// order.
#[test]
fn lines_that_threads_append_are_all_there() {
    const LINES: u64 = 200;
    for ground in media_in_memory() {
        let _watch = Watch::start();
        let (_scratch, file) = new_file(&ground);
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let file = &file;
                scope.spawn(move || {
                    for n in 0..LINES {
                        let line = [thread.to_le_bytes(), n.to_le_bytes()].concat();
                        file.transact(|tx| {
                            let end = tx.len()?;
                            tx.set_len(end + 16)?;
                            tx.write_at(&line, end)
                        })
                        .expect("a line");
                    }
                });
            }
        });
        let mut next = [0; 3];
        let words: Vec<u64> = contents(&file)
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
            .collect();
        for line in words.chunks_exact(2) {
            assert_eq!(line[1], next[line[0] as usize], "a line of thread {}", line[0]);
            next[line[0] as usize] += 1;
        }
        assert_eq!(next, [LINES; 3]);
    }
}

/// Durable points are made at the same time.
#[test]
fn documents_and_durable_points_do_not_wait_for_each_other_for_ever() {
    let Some(ground) = common::page_cache() else { return };
    assert_eq!(ground.medium, Medium::PageCache);
    let _watch = Watch::start();
    let (_scratch, file) = new_file(&ground);
    file.replace(&document(1)).expect("replace");
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let file = &file;
            scope.spawn(move || {
                for n in 0..60 {
                    file.replace(&document(2 + n * 2 + writer)).expect("replace");
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..30 {
                file.sync().expect("sync");
                // A writer may change the length right after.
                assert_is_a_document(&file.read_vec().expect("read"));
            }
        });
    });
}
