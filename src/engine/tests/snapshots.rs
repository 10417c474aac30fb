//! Tests of the waits and locks of snapshots: each one is reached, and holds.

use crate::api::file::AtomicMappedFile;
use crate::config::Medium;
use crate::engine::Engine;
use crate::lock::lock_page;
use crate::pair::gates::Gate;
use crate::units::{PAGE, PageIndex, REGION};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

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
