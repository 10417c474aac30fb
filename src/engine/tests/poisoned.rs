//! Tests of threads that wait for a gate or a lock while the handle is poisoned: none of them goes
//! on by what was left half done.

use super::fixture::{A_WHILE, media_in_memory, new_file, open, options};
use crate::engine::{Engine, plan};
use crate::error::{Error, Result, SnapshotError};
use crate::pair::gates::Gate;
use crate::pair::pause;
use crate::units::{PAGE, REGION, RegionIndex};
use crate::{AtomicMappedFile, CloseMode, Medium};
use std::cell::Cell;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

const LEN: u64 = REGION as u64;

/// Longer than any step takes here, even on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// An obstacle that a call waits for.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Barred {
    /// The gate of cuts is closed.
    Gate,
    /// The lock of the region is held, and readers wait.
    Lock,
    /// The length may not be changed.
    Length,
}

use Barred::{Gate as G, Length as L, Lock as K};

/// A call, and what it waits for.
type Call = (&'static str, fn(&AtomicMappedFile) -> Result<()>, &'static [Barred]);

const CALLS: &[Call] = &[
    ("a word", |file| file.write_at(&[7; 8], 5000), &[G, K]),
    ("part of a slice", |file| file.write_at(&[7; 10], 50), &[G, K]),
    ("slices", |file| file.write_at(&[7; 128], PAGE as u64), &[G, K]),
    ("a page", |file| file.write_at(&[7; PAGE], PAGE as u64), &[G, K]),
    ("pages", |file| file.write_at(&[7; 9 * PAGE], PAGE as u64), &[G, K]),
    ("parts of two pages", |file| file.write_at(&[7; 200], 4000), &[G, K]),
    ("several writes", |file| file.write_many(&[(0, &[7; 8]), (20_000, &[7; 8])]), &[G, K]),
    (
        "a stage",
        |file| {
            let mut stage = file.stage(8192..16384)?;
            stage.write_at(&[7; 8192], 0)?;
            stage.commit()
        },
        &[G],
    ),
    (
        "a transaction",
        |file| {
            file.transact(|t| {
                let mut bytes = [0; 8];
                t.read_at(&mut bytes, 0)?;
                t.write_at(&bytes, 9000)
            })
        },
        &[G],
    ),
    ("a shorter file", |file| file.set_len(10_000), &[L]),
    ("a longer file", |file| file.set_len(2 * LEN), &[L]),
    ("other contents", |file| file.replace(&[7; 50_000]), &[L]),
    ("a deployment", |file| file.deploy(0..LEN).map(drop), &[G, K]),
    ("a seal", |file| file.snapshot("new").map(drop), &[L]),
    ("a drop", |file| file.drop_snapshot("old"), &[L]),
    ("a rollback", |file| file.roll_back("old", None), &[L]),
    ("a read", |file| file.read_at(&mut [0; 100], 5000), &[K]),
    ("a read of pages", |file| file.read_at(&mut [0; 9000], 5000), &[K]),
    ("a read of everything", |file| file.read_vec().map(drop), &[K]),
    ("a read in a transaction", |file| file.transact(|t| t.read_at(&mut [0; 8], 0)), &[K]),
    ("a read of a snapshot", |file| file.open_snapshot("old")?.read_at(&mut [0; 100], 5000), &[L]),
    ("a view", |file| file.view(5000..9000).map(drop), &[G, K, L]),
];

/// A file with a snapshot. Its pages lie in either file.
fn with_snapshot(folder: &Path, medium: Medium) -> AtomicMappedFile {
    let file = open(folder, options(LEN).medium(medium));
    file.write_at(&[1; 16 * PAGE], 0).expect("a write");
    file.snapshot("old").expect("a seal");
    file.write_at(&[2; 3 * PAGE], 0).expect("a write");
    file
}

fn poison(engine: &Engine) {
    let cause = std::io::Error::other("a test has cut it off");
    engine.poison_cut_off(&Error::io("rollback", Path::new("state.dat"), cause));
}

/// Runs `call` in another thread while what it waits for is barred. Then poisons the handle, and
/// lets the call go on. Returns its result.
fn run_barred(file: &AtomicMappedFile, barred: Barred, (name, call, _): &Call) -> Result<()> {
    let engine = file.engine();
    let region = engine.region(RegionIndex(0)).expect("it was written");
    thread::scope(|scope| {
        let gate = (barred == G).then(|| engine.lanes.close(Gate::Cut));
        let lock = (barred == K).then(|| plan::lock_whole_region(region));
        lock.iter().for_each(crate::lock::LockGuard::close);
        let length = (barred == L).then(|| engine.resizing.write());
        let (tell, told) = channel();
        scope.spawn(move || tell.send(call(file)).expect("the test listens"));
        let early = told.recv_timeout(A_WHILE);
        assert!(early.is_err(), "{name} does not wait for {barred:?}: {early:?}");
        poison(engine);
        drop((gate, lock, length));
        told.recv_timeout(PATIENCE).expect("it ends")
    })
}

#[test]
fn no_call_that_has_waited_goes_on_after_a_failure() {
    for medium in media_in_memory() {
        for call in CALLS {
            for barred in call.2 {
                let folder = tempfile::tempdir().expect("a folder");
                let file = with_snapshot(folder.path(), medium);
                let result = run_barred(&file, *barred, call);
                let is_refused = matches!(result, Err(Error::Poisoned { .. }));
                assert!(is_refused, "{} behind {barred:?} on {medium:?}: {result:?}", call.0);
            }
        }
    }
}

/// Runs `act` once in this thread, at a load of the length behind the intention of a rollback.
fn behind_the_intention(file: AtomicMappedFile, act: Box<dyn FnOnce()>) {
    pause::at_next_length(move || {
        let store = file.engine().snapshots.get().expect("a store");
        if store.rollback() == 0 { behind_the_intention(file, act) } else { act() }
    });
}

fn store_in(folder: &Path) -> PathBuf {
    let entries = fs::read_dir(folder).expect("a list").map(|entry| entry.expect("one").path());
    let mut stores = entries.filter(|path| path.to_string_lossy().ends_with(".snapshots"));
    stores.next().expect("a store")
}

/// Changes the first byte of what was kept of a slice with the others equal to `kept`.
fn set_kept(folder: &Path, kept: u8, first: u8) {
    let store = store_in(folder);
    let bytes = fs::read(&store).expect("read");
    let slice = bytes.chunks(64).position(|slice| slice[1..] == [kept; 63]).expect("it was kept");
    let file = fs::OpenOptions::new().write(true).open(store).expect("open");
    file.write_all_at(&[first], slice as u64 * 64).expect("write");
}

/// Locks and gate opened before the handle was poisoned. A write that had waited returned, and the
/// next opening finished the rollback over it.
#[test]
fn a_write_that_waited_for_a_rollback_that_fails_is_no_success() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = new_file(folder.path(), LEN);
    file.write_at(&[1; 64], 0).expect("a write");
    file.write_at(&[3; 64], 5 * PAGE as u64).expect("a write");
    file.snapshot("old").expect("a seal");
    file.write_at(&[2; 64], 0).expect("a write");
    file.write_at(&[4; 64], 5 * PAGE as u64).expect("a write");
    let (written, read) = thread::scope(|scope| {
        let was_damaged = Rc::new(Cell::new(false));
        let (go, gone) = channel();
        let path = folder.path().to_owned();
        let damage = {
            let was_damaged = Rc::clone(&was_damaged);
            move || {
                was_damaged.set(true);
                set_kept(&path, 3, 0xee);
                go.send(()).expect("the writer listens");
                thread::sleep(5 * A_WHILE);
            }
        };
        behind_the_intention(file.try_clone().expect("a handle"), Box::new(damage));
        let file = &file;
        let writer = scope.spawn(move || {
            gone.recv().expect("the rollback is under way");
            let written = file.write_at(&[9; 64], 0);
            (written, file.read_at(&mut [0; 8], 0))
        });
        file.roll_back("old", None).expect_err("a kept record is damaged");
        assert!(was_damaged.get());
        writer.join().expect("no panic")
    });
    assert!(matches!(written, Err(Error::Poisoned { .. })), "{written:?}");
    assert!(matches!(read, Err(Error::Poisoned { .. })), "{read:?}");
    assert!(matches!(file.health(), Err(Error::Poisoned { .. })));
    let _left_to_recovery = file.close(CloseMode::Unsynced);
}

/// A file could not be read any more after a rollback that met damage behind its intention.
#[test]
fn what_is_there_can_be_read_although_no_opening_can_finish_a_rollback() {
    if cfg!(not(all(target_os = "linux", not(atomic_mmap_portable)))) {
        return; // a reader changes a copy of the pages in memory, which other systems lack here
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.dat");
    let file = new_file(folder.path(), LEN);
    file.write_at(&[3; 64], 4992).expect("a write");
    file.snapshot("old").expect("a seal");
    file.write_at(&[4; 64], 4992).expect("a write");
    file.close(CloseMode::Fast).expect("a close, which says where the records end");
    let options = || options(LEN).create(false);
    let file = options().open(&path).expect("open");
    let of = folder.path().to_owned();
    let damage = Box::new(move || set_kept(&of, 3, 0xee));
    behind_the_intention(file.try_clone().expect("a handle"), damage);
    file.roll_back("old", None).expect_err("a kept record is damaged");
    drop(file);
    let is_damaged =
        |error: &Error| matches!(error, Error::Snapshot { why: SnapshotError::Damaged { .. }, .. });
    let reader = |best_effort: bool| options().read_only(true).best_effort(best_effort);
    let is_under_way = |error: &Error| {
        let why = SnapshotError::RollbackUnderWay { number: 1 };
        matches!(error, Error::Snapshot { why: found, .. } if *found == why)
    };
    let error = reader(false).open(&path).expect_err("for reading alone");
    assert!(is_under_way(&error), "{error:?}");
    set_kept(folder.path(), 3, 3);
    let error = reader(true).open(&path).expect_err("it can be finished");
    assert!(is_under_way(&error), "{error:?}");
    set_kept(folder.path(), 3, 0xee);
    for _ in 0..2 {
        let error = options().open(&path).expect_err("it cannot be finished");
        assert!(is_damaged(&error), "{error}");
    }
    {
        let file = reader(true).open(&path).expect("as it is");
        let mut found = [0; 64];
        file.read_at(&mut found, 4992).expect("a read");
        assert_eq!(found, [4; 64]);
        let error = file.open_snapshot("old").expect_err("it lacks bytes");
        assert!(is_damaged(&error), "{error}");
    }
    fs::rename(store_in(folder.path()), folder.path().join("away")).expect("move it away");
    let file = options().open(&path).expect("without snapshots");
    file.write_at(&[6; 64], 0).expect("a write");
    file.health().expect("it goes on");
}
