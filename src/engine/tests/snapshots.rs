//! Tests of the waits and locks of snapshots: each one is reached, and holds.

use crate::api::file::AtomicMappedFile;
use crate::config::snapshots::{AutoSnapshots, Retention};
use crate::config::{CloseMode, Medium};
use crate::engine::Engine;
use crate::format::snapshots::table::{Entry, Flags};
use crate::lock::lock_page;
use crate::pair::gates::Gate;
use crate::units::{PAGE, PageIndex, REGION};
use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Opens a file, and loads its first region.
fn with_file(test: impl FnOnce(&AtomicMappedFile)) {
    let dir = crate::doctest_dir();
    let options = AtomicMappedFile::options().create(true).len(REGION as u64).medium(Medium::Ram);
    let file = options.open(dir.path().join("state.dat")).expect("open");
    file.write_at(&[1; 100], 0).expect("write");
    test(&file);
}

/// Runs `act` in another thread while this one holds what `hold` returns. Checks that `act` has not
/// ended before that is dropped, and ends afterwards.
fn assert_waits<G>(engine: &Engine, hold: impl FnOnce(&Engine) -> G, act: impl Fn() + Sync) {
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let held = hold(engine);
        scope.spawn(|| {
            act();
            has_ended.store(true, Ordering::SeqCst);
        });
        thread::sleep(Duration::from_millis(100));
        assert!(!has_ended.load(Ordering::SeqCst), "it does not wait");
        drop(held);
    });
    assert!(has_ended.load(Ordering::SeqCst));
}

#[test]
fn a_seal_waits_for_operations_inside_the_gate() {
    with_file(|file| {
        file.snapshot("first").expect("seal");
        let lane = file.engine().lane();
        let inside = file.engine().lanes.enter(Gate::Cut, &lane);
        assert_waits(file.engine(), |_| inside, || drop(file.snapshot("second").expect("seal")));
    });
}

#[test]
fn the_first_seal_waits_for_operations_that_hold_a_lock() {
    with_file(|file| {
        let engine = file.engine();
        let region = engine.state.loaded(PageIndex(0).region()).expect("it was written");
        let hold = |_: &Engine| lock_page(&region.lock, &region.pages[0].lock);
        assert_waits(engine, hold, || drop(file.snapshot("first").expect("seal")));
    });
}

#[test]
fn a_writer_outside_the_gate_begins_anew_after_the_first_seal() {
    with_file(|file| {
        assert!(!file.engine().is_outside(None));
        file.snapshot("first").expect("seal");
        assert!(file.engine().is_outside(None));
        let lane = file.engine().lane();
        let inside = file.engine().enter_cut(&lane);
        assert!(!file.engine().is_outside(inside.as_ref()));
    });
}

#[test]
fn a_reader_of_a_snapshot_waits_for_the_lock_of_the_page() {
    with_file(|file| {
        file.snapshot("first").expect("seal");
        file.write_at(&[2; 100], 0).expect("write");
        let snapshot = file.open_snapshot("first").expect("open");
        let engine = file.engine();
        let region = engine.state.loaded(PageIndex(0).region()).expect("it was written");
        let hold = |_: &Engine| lock_page(&region.lock, &region.pages[0].lock);
        assert_waits(engine, hold, || {
            let mut bytes = [0; PAGE];
            snapshot.read_at(&mut bytes, 0).expect("read");
            assert_eq!(bytes[..100], [1; 100]);
        });
    });
}

/// Each change of the table is durable before the next step, which writers waited for.
#[test]
fn an_import_has_its_number_before_it_closes_the_gate() {
    let dir = crate::doctest_dir();
    let sender = open_limited(&dir.path().join("sender"), u64::MAX);
    sender.snapshot("sent").expect("seal");
    let mut stream = Vec::new();
    sender.export(None, "sent", &mut stream).expect("export");
    with_file(|file| {
        file.snapshot("first").expect("seal");
        let engine = file.engine();
        let store = engine.snapshots.get().expect("a store");
        thread::scope(|scope| {
            let lane = engine.lane();
            let inside = engine.lanes.enter(Gate::Cut, &lane);
            scope.spawn(|| file.import_over(&stream[..]).expect("import"));
            let begun = Instant::now();
            while store.highest() < 2 {
                assert!(begun.elapsed() < Duration::from_secs(60), "it waits for the operation");
                thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(names(file), ["first"]);
            drop(inside);
        });
        assert_eq!(names(file), ["first", "sent"]);
    });
}

/// A retention chose by numbers without a lock, and dropped by names. Another thread had given the
/// name to a newer snapshot meanwhile, and that one went.
#[test]
fn a_retention_chooses_under_the_lock_by_which_it_drops() {
    with_file(|file| {
        file.snapshot("a").expect("seal");
        file.snapshot("b").expect("seal");
        let (engine, is_locked) = (file.engine(), Cell::new(false));
        let may_drop = |_: &Entry| {
            is_locked.set(engine.resizing.try_read().is_none());
            true
        };
        let keep = Retention::new().number(1);
        assert_eq!(engine.retain(keep, may_drop).expect("retain"), 1);
        assert!(is_locked.get(), "the last choice is made while no snapshot comes or goes");
    });
}

/// Opens a file with a limit of bytes for automatic snapshots. It takes none by itself.
fn open_limited(path: &Path, bytes: u64) -> AtomicMappedFile {
    let auto = AutoSnapshots::new().writes(u64::MAX).keep(Retention::new().bytes(bytes));
    let options = AtomicMappedFile::options().create(true).len(REGION as u64).medium(Medium::Ram);
    options.auto_snapshots(auto).open(path).expect("open")
}

fn seal_automatic(file: &AtomicMappedFile, name: &str) {
    file.engine().seal(name, Flags::AUTOMATIC).expect("seal");
}

fn names(file: &AtomicMappedFile) -> Vec<String> {
    file.snapshots().into_iter().map(|info| info.name).collect()
}

/// The limit counted as met until the session kept a slice.
#[test]
fn an_automatic_limit_of_bytes_counts_what_an_earlier_session_has_kept() {
    let dir = crate::doctest_dir();
    let path = dir.path().join("state.dat");
    let file = open_limited(&path, u64::MAX);
    for name in ["a", "b", "c"] {
        seal_automatic(&file, name);
        file.write_at(&[7; 64], 0).expect("write");
    }
    file.close(CloseMode::Fast).expect("close");
    let file = open_limited(&path, 256);
    file.engine().snapshot_if_due();
    assert_eq!(names(&file), ["b", "c"]);
}

/// An import appends records as well. No slice is kept here: the second snapshot has all of them.
#[test]
fn an_automatic_limit_of_bytes_counts_what_an_import_has_appended() {
    let dir = crate::doctest_dir();
    let sender = open_limited(&dir.path().join("sender"), u64::MAX);
    sender.write_at(&[3; 32 * 64], 0).expect("write");
    sender.snapshot("sent").expect("seal");
    let mut stream = Vec::new();
    sender.export(None, "sent", &mut stream).expect("export");
    // A record of one slice, and two of 32.
    let file = open_limited(&dir.path().join("state.dat"), 128 + 2 * 2112 - 1);
    seal_automatic(&file, "a");
    file.write_at(&[1; 64], 0).expect("write");
    seal_automatic(&file, "b");
    file.write_at(&[2; 32 * 64], 0).expect("write");
    file.engine().snapshot_if_due();
    assert_eq!(names(&file), ["a", "b"]);
    let kept = file.stats().kept_slices;
    file.import_over(&stream[..]).expect("import");
    file.engine().snapshot_if_due();
    assert_eq!(names(&file), ["b", "sent"]);
    assert_eq!(file.stats().kept_slices, kept + 32);
}

/// Each look of the worker went through all records, although it could drop nothing.
#[test]
fn a_limit_that_no_snapshot_may_be_dropped_for_goes_through_no_records() {
    let dir = crate::doctest_dir();
    let file = open_limited(&dir.path().join("state.dat"), 0);
    file.snapshot("mine").expect("seal");
    let store = file.engine().snapshots.get().expect("a store");
    for n in 0..3 {
        file.write_at(&[n; 64], u64::from(n) * 64).expect("write");
        file.engine().snapshot_if_due();
    }
    assert_eq!(store.walks(), 0);
}

/// Each snapshot took a walk through all records in a list, and some in a retention.
#[test]
fn a_list_and_a_retention_of_many_snapshots_go_through_the_records_a_few_times() {
    with_file(|file| {
        for n in 0..40 {
            file.snapshot(&n.to_string()).expect("seal");
            file.write_at(&[n; 100], 0).expect("write");
        }
        let store = file.engine().snapshots.get().expect("a store");
        let walks = |act: &dyn Fn()| {
            let before = store.walks();
            act();
            store.walks() - before
        };
        assert_eq!(walks(&|| assert_eq!(file.snapshots().len(), 40)), 1);
        let keep = Retention::new().number(10).bytes(1 << 20);
        let retain = || assert_eq!(file.retain_snapshots(keep).expect("retain"), 30);
        assert!(walks(&retain) <= 4);
    });
}
