//! Tests of cuts: a consumer of changes beside durable points, and one without any.

use super::fixture::media_in_memory;
use crate::config::options::Options;
use crate::pair::dirty::Pages;
use crate::pair::gates::Gate;
use crate::units::{PAGE, RegionIndex};
use crate::{AtomicMappedFile, Medium};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Longer than any step takes here, even on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// How long an operation is watched that must wait.
const A_WHILE: Duration = Duration::from_millis(20);

fn file(folder: &std::path::Path, medium: Medium) -> AtomicMappedFile {
    let options = Options { keeps_cuts: true, ..AtomicMappedFile::options() };
    let options = options.create(true).len(1 << 20).medium(medium);
    options.open(folder.join("state.dat")).expect("a pair")
}

/// An operation, and the pages of the first region that it changes.
type Step = (&'static str, fn(&AtomicMappedFile), u64);

/// Operations of each commit protocol, in an order in which each has something to do.
const STEPS: [Step; 9] = [
    ("part of a slice", |file| file.write_at(&[1; 10], 50).expect("a write"), 0b1),
    ("slices", |file| file.write_at(&[1; 128], PAGE as u64).expect("a write"), 0b10),
    ("a page", |file| file.write_at(&[1; PAGE], PAGE as u64).expect("a write"), 0b10),
    ("pages", |file| file.write_at(&[1; 9 * PAGE], PAGE as u64).expect("a write"), 0b11_1111_1110),
    ("parts of two pages", |file| file.write_at(&[1; 200], 4000).expect("a write"), 0b11),
    (
        "a transaction",
        |file| {
            let parts = [(0, &[2; 8][..]), (5 * PAGE as u64, &[2; 8][..])];
            file.write_many(&parts).expect("a transaction");
        },
        0b10_0001,
    ),
    ("a deployment", |file| assert_eq!(file.deploy(0..10).expect("a page"), 1), 0b1),
    ("a view of what is away", |file| drop(file.view(8192..8202).expect("a view")), 0b100),
    (
        "a write below a view",
        |file| {
            let view = file.view(3 * PAGE as u64..3 * PAGE as u64 + 10).expect("a view");
            file.write_at(&[3; 10], 3 * PAGE as u64).expect("a write");
            file.write_at(&[4; 10], 3 * PAGE as u64).expect("a write over a pinned slot");
            drop(view);
        },
        0b1000,
    ),
];

/// With snapshots, a cut must not go through an operation, although no durable points are kept.
#[test]
fn every_operation_waits_for_a_cut_and_is_noted_without_durable_points() {
    for medium in media_in_memory() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), medium);
        let engine = file.engine();
        assert!(engine.keeps_cuts && !engine.keeps_points);
        let consumer = engine.dirty.register();
        for (name, step, pages) in STEPS {
            let gate = engine.lanes.close(Gate::Cut);
            std::thread::scope(|scope| {
                let (tell, told) = channel();
                let file = &file;
                scope.spawn(move || {
                    step(file);
                    tell.send(()).expect("the test listens");
                });
                let early = told.recv_timeout(A_WHILE);
                assert!(early.is_err(), "{medium:?}: {name} goes on during a cut");
                assert!(engine.take_changed(consumer).is_empty(), "{medium:?}: {name}");
                drop(gate);
                assert_eq!(told.recv_timeout(PATIENCE), Ok(()), "{medium:?}: {name}");
            });
            let expected = Pages::from([(RegionIndex(0), pages)]);
            assert_eq!(engine.take_changed(consumer), expected, "{medium:?}: {name}");
        }
    }
}

#[test]
fn a_durable_point_leaves_its_changes_to_a_second_consumer_and_the_reverse() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), Medium::PageCache);
    let engine = file.engine();
    let second = engine.dirty.register();
    file.write_at(&[1; 10], 0).expect("a write");
    file.sync().expect("a point");
    file.write_at(&[1; 10], 3 * PAGE as u64).expect("a write");
    let both = Pages::from([(RegionIndex(0), 0b1001)]);
    assert_eq!(engine.take_changed(second), both);
    let before = file.stats();
    file.sync().expect("a point");
    let made = file.stats().journal_points - before.journal_points;
    assert_eq!(made, 1, "the change that the second consumer took first is in a point");
    assert!(engine.take_changed(second).is_empty());
}
