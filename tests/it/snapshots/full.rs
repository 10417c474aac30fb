//! Tests rollbacks and openings for which there is no space. `space` tests them on full disks.

use crate::common::{
    Ground, Rng, Scratch, assert_same, media, page_cache, read_all, read_snapshot, reflections_in,
};
use crate::durable::{died, restarted};
use atomic_mmap::testing::recorder::{Recorder, What};
use atomic_mmap::testing::{FileId, call};
use atomic_mmap::{AtomicMappedFile, CloseMode, Error, Options, Result};
use std::fs;
use std::path::Path;

const PAGE: usize = 4096;
const LEN: usize = 900 * PAGE;

/// Brings a file of [`LEN`] bytes with a snapshot to a state that a rollback leaves.
type Change = fn(&AtomicMappedFile);

const CHANGES: [(&str, Change); 4] = [
    ("shorter", |file| file.set_len(5000).expect("shrink")),
    ("longer", |file| {
        file.write_at(&Rng(2).bytes(PAGE), 0).expect("write");
        file.set_len(2 * LEN as u64).expect("grow");
        file.write_at(&Rng(3).bytes(LEN), LEN as u64).expect("write");
    }),
    ("deployed", |file| {
        file.write_at(&Rng(4).bytes(LEN), 0).expect("write");
        file.sync().expect("sync");
        file.deploy(0..LEN as u64).expect("deploy");
    }),
    ("scattered", |file| {
        for n in (0..LEN / PAGE).step_by(7) {
            file.write_at(&[n as u8; 70], (n * PAGE + n) as u64).expect("write");
        }
    }),
];

/// A rollback took its space behind the table that says that it is under way. A full disk then
/// poisoned the handle, and left a file that no opening could read.
#[test]
fn a_full_disk_is_found_before_a_rollback_is_under_way() {
    for ground in media() {
        let mut failed = 0;
        for ((what, change), undo) in
            CHANGES.into_iter().flat_map(|c| [(c, None), (c, Some("undo"))])
        {
            for nth in 1.. {
                let (scratch, recorder) = (ground.scratch(), Recorder::new());
                let options = ground.options().create(true).len(LEN as u64);
                let path = scratch.file("state");
                let file = options.open_recorded(&recorder, &path).expect("open");
                let sealed = Rng(1).bytes(LEN);
                file.write_at(&sealed, 0).expect("write");
                file.snapshot("a").expect("seal");
                change(&file);
                let present = read_all(&file);
                recorder.fail_from(call::ALLOCATE, nth, libc::ENOSPC);
                let rolled = file.roll_back("a", undo);
                let is_over = recorder.heal();
                let context = format!("{what}, undo {undo:?}, on {}, call {nth}", ground.medium);
                if let Err(error) = rolled {
                    failed += 1;
                    assert!(matches!(error, Error::NoSpace { .. }), "{context}: {error:?}");
                    file.health().unwrap_or_else(|e| panic!("{context}: {e}"));
                    assert_same(&read_all(&file), &present, &context);
                    assert_eq!(file.snapshots().len(), 1, "{context}");
                    file.roll_back("a", undo).expect("with space");
                }
                assert_same(&read_all(&file), &sealed, &context);
                for (name, bytes) in
                    undo.map(|undo| (undo, &present)).into_iter().chain([("a", &sealed)])
                {
                    let found = file.open_snapshot(name).expect("open").read_vec().expect("read");
                    assert_same(&found, bytes, &context);
                }
                if is_over {
                    break;
                }
            }
        }
        assert!(failed > 0, "no call has failed on {}", ground.medium);
    }
}

/// Makes a file of [`LEN`] bytes shorter, to [`SHORTER`].
type Shrink = fn(&AtomicMappedFile) -> Result<()>;

const SHORTER: u64 = 850 * PAGE as u64 + 70;

/// One page in so many has changed before, and then the file gets shorter. Either changes more than
/// a chunk of the store has room for.
const SHRINKS: [(&str, usize, Shrink); 3] = [
    ("set_len", 1, |file| file.set_len(SHORTER)),
    ("replace", 90, |file| file.replace(&Rng(9).bytes(SHORTER as usize))),
    ("transact", 90, |file| {
        file.transact(|tx| {
            tx.set_len(SHORTER)?;
            (0..850).try_for_each(|n| tx.write_at(&[7; 3000], n * PAGE as u64 + 1000))
        })
    }),
];

/// A file with a snapshot of `sealed`, of which one page in `step` has changed since, some of them
/// also in a durable point.
fn changed_since(
    ground: &Ground,
    sealed: &[u8],
    step: usize,
) -> (Scratch, AtomicMappedFile, Recorder) {
    let (scratch, recorder) = (ground.scratch(), Recorder::new());
    // The journal has no room for the words of all pages.
    let options = ground.options().create(true).len(sealed.len() as u64).journal_len(64 << 10);
    let file = options.open_recorded(&recorder, scratch.file("state")).expect("open");
    file.write_at(sealed, 0).expect("write");
    file.snapshot("a").expect("seal");
    let write = |n: usize| file.write_at(&[n as u8; 3000], (n * PAGE + n % 900) as u64);
    (0..sealed.len() / PAGE).step_by(90).for_each(|n| write(n).expect("write"));
    file.sync().expect("sync");
    (0..sealed.len() / PAGE).step_by(step).for_each(|n| write(n).expect("write"));
    (scratch, file, recorder)
}

/// The durable point of a shrink kept what had changed before it, and a full disk was found there:
/// behind the commit. That poisoned the handle, and left a file that only a reader could open.
#[test]
fn a_shrink_finds_a_full_disk_before_it_begins() {
    let Some(ground) = page_cache() else { return };
    let sealed = Rng(1).bytes(LEN);
    for (what, step, shrink) in SHRINKS {
        for nth in (1..).step_by(3) {
            let context = format!("{what}, call {nth}");
            let (_scratch, file, recorder) = changed_since(&ground, &sealed, step);
            let present = read_all(&file);
            recorder.fail_from(call::ALLOCATE, nth, libc::ENOSPC);
            let shrunk = shrink(&file);
            let is_over = recorder.heal();
            if let Err(error) = shrunk {
                assert!(matches!(error, Error::NoSpace { .. }), "{context}: {error:?}");
                file.health().unwrap_or_else(|e| panic!("{context}: {e}"));
                assert_same(&read_all(&file), &present, &context);
                assert_same(&read_snapshot(&file, "a"), &sealed, &context);
                shrink(&file).expect("with space");
            }
            assert_eq!(file.len(), SHORTER, "{context}");
            assert_same(&read_snapshot(&file, "a"), &sealed, &context);
            file.roll_back("a", None).unwrap_or_else(|e| panic!("{context}: {e}"));
            assert_same(&read_all(&file), &sealed, &context);
            if is_over {
                assert!(nth > 1, "{what} needs no space");
                break;
            }
        }
    }
}

/// The words of many pages are longer than the journal, which grows for them. Behind the commit a
/// full disk would leave a shrink without its durable point.
#[test]
fn a_shrink_of_many_changed_pages_finds_a_full_disk_before_it_begins() {
    let Some(ground) = page_cache() else { return };
    let len = 16_000 * PAGE;
    let (_scratch, file, recorder) = changed_since(&ground, &vec![0; len], 3);
    file.drop_snapshot("a").expect("drop");
    let present = read_all(&file);
    recorder.fail_from(call::ALLOCATE, 1, libc::ENOSPC);
    let error = file.set_len(len as u64 - 70).expect_err("no space");
    assert!(matches!(error, Error::NoSpace { .. }), "{error:?}");
    file.health().expect("nothing has happened");
    assert_same(&read_all(&file), &present, "nothing has happened");
    recorder.heal();
    file.set_len(len as u64 - 70).expect("with space");
    assert_same(&read_all(&file), &present[..len - 70], "shorter");
}

/// The states of a file after the death of its process.
struct Died {
    /// At the last durable point.
    point: Vec<u8>,
    /// When the process died.
    working: Vec<u8>,
    /// In the snapshot `a`.
    sealed: Vec<u8>,
}

/// Makes a file with a snapshot, of which a durable point has changed one part and the working
/// state another one, `end` bytes longer than the point. Leaves it as a process crash does.
fn die(options: Options, path: &Path, end: u64) -> Died {
    let file = options.create(true).len(LEN as u64).open(path).expect("open");
    file.write_at(&Rng(1).bytes(LEN), 0).expect("write");
    file.snapshot("a").expect("seal");
    let sealed = read_all(&file);
    file.write_at(&Rng(5).bytes(40 * PAGE), 7).expect("write");
    file.sync().expect("sync");
    let point = read_all(&file);
    for n in 0..LEN / PAGE {
        file.write_at(&[n as u8; 3500], (n * PAGE + 500) as u64).expect("write");
    }
    if end > 0 {
        file.set_len(LEN as u64 + end).expect("grow");
        file.write_at(&Rng(6).bytes(end as usize), LEN as u64).expect("write");
    }
    let working = read_all(&file);
    file.close(CloseMode::Unsynced).expect("leave it");
    Died { point, working, sealed }
}

/// Opens a file that [`die`] has left, without space for its store. From then on the disk is full.
/// An opening also asks for what is allocated already, which a full disk does not refuse.
fn open_without_space(options: &Options, path: &Path) -> (AtomicMappedFile, Recorder) {
    for nth in 1..20 {
        let recorder = Recorder::new();
        recorder.fail_next(call::ALLOCATE, nth, libc::ENOSPC);
        match options.clone().open_recorded(&recorder, path) {
            Ok(file) => {
                assert!(!recorder.heal(), "there was space");
                recorder.fail_from(call::ALLOCATE, 1, libc::ENOSPC);
                return (file, recorder);
            }
            Err(error) => assert!(matches!(error, Error::NoSpace { .. }), "{nth}: {error:?}"),
        }
    }
    panic!("no opening without space");
}

/// An opening kept bytes for a snapshot, which needs space. On a full disk it failed, so that no
/// snapshot could be dropped, although a drop needs none.
#[test]
fn an_opening_without_space_reads_drops_and_goes_on_when_there_is_some() {
    let Some(ground) = page_cache() else { return };
    for end in [0, 3000, 900_000] {
        let options = || ground.options();
        for drops in [false, true] {
            let what = format!("{end} bytes longer, drops: {drops}");
            let scratch = ground.scratch();
            let path = scratch.file("state");
            let left = die(options(), &path, end);
            for again in 0..2 {
                let (file, recorder) = open_without_space(&options(), &path);
                assert_same(&read_all(&file), &left.working, &what);
                assert_same(&read_snapshot(&file, "a"), &left.sealed, &what);
                let is_overdue = |result: Result<()>| {
                    assert!(matches!(result, Err(Error::Overdue { .. })), "{what}: {result:?}");
                };
                is_overdue(file.write_at(&[1], 0));
                is_overdue(file.set_len(2 * LEN as u64));
                is_overdue(file.transact(|tx| tx.write_at(&[1; 5000], 3)));
                is_overdue(file.health());
                let error = file.sync().expect_err("no space");
                assert!(matches!(error, Error::NoSpace { .. }), "{what}: {error:?}");
                is_overdue(file.health());
                // A power loss goes back to the last point, whatever this session has made of it.
                let copy = restarted(&ground, &path);
                let back = options().open(&copy.home).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_same(&read_all(&back), &left.point, &what);
                assert_same(&read_snapshot(&back, "a"), &left.sealed, &what);
                drop(back);
                if again == 0 {
                    // The close needs space as well, and leaves what a crash would.
                    let error = file.close(CloseMode::Spatial).expect_err("no space");
                    assert!(matches!(error, Error::NoSpace { .. }), "{what}: {error:?}");
                    continue;
                }
                if drops {
                    file.drop_snapshot("a").unwrap_or_else(|e| panic!("{what}: {e}"));
                    file.sync().unwrap_or_else(|e| panic!("{what}: {e}"));
                    file.health().unwrap_or_else(|e| panic!("{what}: {e}"));
                }
                recorder.heal();
                file.sync().unwrap_or_else(|e| panic!("{what}: {e}"));
                file.write_at(b"later", 11).unwrap_or_else(|e| panic!("{what}: {e}"));
                let mut expected = left.working.clone();
                let copy = restarted(&ground, &path);
                let back = options().open(&copy.home).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_same(&read_all(&back), &expected, &what);
                drop(back);
                expected[11..16].copy_from_slice(b"later");
                assert_same(&read_all(&file), &expected, &what);
                if !drops {
                    assert_same(&read_snapshot(&file, "a"), &left.sealed, &what);
                    file.roll_back("a", None).unwrap_or_else(|e| panic!("{what}: {e}"));
                    assert_same(&read_all(&file), &left.sealed, &what);
                    expected.clone_from(&left.sealed);
                }
                file.close(CloseMode::Fast).unwrap_or_else(|e| panic!("{what}: {e}"));
                let file = options().open(&path).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_same(&read_all(&file), &expected, &what);
                break;
            }
        }
    }
}

/// The process had died after the record of a point and before its words. An opening without space
/// leaves that point, for which the words have to say what the record says.
#[test]
fn a_point_that_an_opening_without_space_leaves_is_whole() {
    let Some(ground) = page_cache() else { return };
    let scratch = ground.scratch();
    let path = scratch.file("state");
    let file = ground.options().create(true).len(LEN as u64).open(&path).expect("open");
    let write = |bytes: Vec<u8>| file.write_at(&bytes, 0).expect("write");
    write(Rng(1).bytes(LEN));
    file.snapshot("a").expect("seal");
    write(Rng(2).bytes(LEN));
    file.sync().expect("sync");
    write(Rng(3).bytes(40 * PAGE));
    let image = died(&ground, &path);
    file.sync().expect("sync");
    let journal = |home: &Path| {
        let reflection = reflections_in(home.parent().expect("a folder")).pop().expect("one");
        reflection.with_added_extension("journal")
    };
    fs::copy(journal(&path), journal(image.path())).expect("copy");
    let point = read_all(&file);

    let (opened, recorder) = open_without_space(&ground.options(), image.path());
    let step = |what: &What| match what {
        What::WriteDurably { file: FileId::Journal, .. } => Some("record or header"),
        What::Store { file: FileId::Reflection, .. } => Some("word"),
        What::Sync { file: FileId::Home, .. } => Some("home"),
        What::Sync { file: FileId::Reflection, all: true } => Some("reflection"),
        What::Write { file: FileId::Journal, .. } => Some("void"),
        _ => None,
    };
    let events = recorder.take();
    let behind = events.iter().skip_while(|event| !matches!(event.what, What::Failed(_)));
    let mut steps: Vec<_> = behind.filter_map(|event| step(&event.what)).collect();
    steps.dedup();
    // The portable path writes and syncs a record by two calls.
    if !cfg!(atomic_mmap_portable) {
        let expected =
            ["record or header", "word", "home", "reflection", "record or header", "void"];
        assert_eq!(steps[..6], expected, "{steps:?}");
    }
    assert_same(&read_all(&opened), &point, "what was there");
    let after = restarted(&ground, image.path());
    let back = ground.options().open(&after.home).expect("open");
    assert_same(&read_all(&back), &point, "after a loss of power");
}

/// The process had died between a shrink and its durable point. Opening cleans up behind the new
/// end, so the point, which is longer, must not stay.
#[test]
fn a_point_that_is_longer_is_not_left() {
    let Some(ground) = page_cache() else { return };
    let scratch = ground.scratch();
    let path = scratch.file("state");
    let recorder = Recorder::new();
    let options = ground.options().create(true).len(2 * LEN as u64);
    let file = options.open_recorded(&recorder, &path).expect("open");
    file.write_at(&Rng(1).bytes(LEN), 0).expect("write");
    file.snapshot("a").expect("seal");
    file.sync().expect("sync");
    file.write_at(&Rng(2).bytes(LEN), 0).expect("write");
    let store = file.reflection_path().with_added_extension("snapshots");
    let before = fs::read(&store).expect("read");
    recorder.fail_from(call::SYNC_DATA, 1, libc::EIO);
    file.set_len(LEN as u64).expect_err("its point fails");
    recorder.heal();
    let shorter = read_all(&file);
    file.close(CloseMode::Unsynced).expect_err("poisoned");
    // As if it had kept nothing. A write of another thread behind the cut of the point keeps
    // nothing either, and then the opening has to.
    fs::write(&store, before).expect("write");
    for nth in 1..500 {
        let recorder = Recorder::new();
        recorder.fail_from(call::ALLOCATE, nth, libc::ENOSPC);
        match ground.options().open_recorded(&recorder, &path) {
            Ok(file) => {
                assert!(nth > 1, "it needs no space");
                file.health().unwrap_or_else(|e| panic!("{nth}: the point has stayed: {e}"));
                assert_same(&read_all(&file), &shorter, "the working state");
                return;
            }
            Err(error) => assert!(matches!(error, Error::NoSpace { .. }), "{nth}: {error:?}"),
        }
    }
    panic!("it opens with space");
}
