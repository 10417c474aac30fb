//! Tests that a loss of power leaves committed stages whole, and forgets all others, on recorded
//! traces of the native code.
//!
//! Like [`crate::power`]. Fills are steps of their own, which change nothing.

use crate::common;
use crate::power::{PAGE, Run, options};
use atomic_mmap::testing::recorder::{Event, Recorder, What};
use atomic_mmap::{AtomicMappedFile, Stage};
use std::io::Write;
use std::ops::Range;
use std::os::unix::net::UnixStream;

/// Fills a stage, each part in another way.
fn fill(stage: &mut Stage<'_>, parts: &[(Range<u64>, u8)]) {
    for (n, (range, byte)) in parts.iter().enumerate() {
        let bytes = vec![*byte; (range.end - range.start) as usize];
        if n % 2 == 0 {
            let (mut sender, mut receiver) = UnixStream::pair().expect("a socket");
            std::thread::scope(|scope| {
                scope.spawn(move || sender.write_all(&bytes).expect("send"));
                stage.fill_from(&mut receiver, range.clone()).expect("fill");
            });
        } else {
            stage.write_at(&bytes, range.start).expect("fill");
        }
    }
}

fn committed(content: &[u8], stage: &Stage<'_>, parts: &[(Range<u64>, u8)]) -> Vec<u8> {
    let (mut after, start) = (content.to_vec(), stage.range().start);
    for (range, byte) in parts {
        after[(start + range.start) as usize..(start + range.end) as usize].fill(*byte);
    }
    after
}

/// Stages, fills and commits, as three steps.
fn stage_and_commit(
    run: &mut Run,
    file: &AtomicMappedFile,
    range: Range<u64>,
    parts: &[(Range<u64>, u8)],
) {
    let before = run.content.clone();
    let mut stage = file.stage(range).expect("a stage");
    fill(&mut stage, parts);
    run.step(before.clone(), |_| ());
    let after = committed(&before, &stage, parts);
    run.step(after, |_| stage.commit().expect("a commit"));
}

#[test]
fn committed_stages_survive_whole() {
    let mut run = Run::new();
    let file = run.file.try_clone().expect("a handle");
    run.write(&[(0, 300), (5 * PAGE, PAGE as usize)]);
    // Within a page, whole pages of a region, and over two regions; each time to both sides.
    for n in 0..3 {
        stage_and_commit(&mut run, &file, 64..640, &[(0..576, 10 + n)]);
        stage_and_commit(&mut run, &file, 5 * PAGE..9 * PAGE, &[(0..4 * PAGE, 20 + n)]);
        let parts = [(0..5000, 30 + n), (5000..5 * PAGE - 100, 40 + n)];
        stage_and_commit(&mut run, &file, 61 * PAGE + 30..67 * PAGE, &parts);
        run.write(&[(100, 100), (6 * PAGE, 30)]);
    }
    drop(file);
    assert!(run.lose_power() > 100);
}

/// The thread that commits a stage, or drops it, may be another one. It cannot wait for the stores
/// of the thread that has filled the stage.
#[test]
fn each_fill_ends_with_a_drain() {
    let (scratch, recorder) = (common::ram().scratch(), Recorder::new());
    let options = options().create(true).len(1 << 20);
    let file = options.open_recorded(&recorder, scratch.file("x")).expect("open");
    let drains = |events: &[Event]| events.iter().filter(|e| e.what == What::Drain).count();
    for round in 0..3 {
        let mut stage = file.stage(PAGE..3 * PAGE).expect("a stage");
        recorder.take();
        let mut fills = 0;
        let mut check = |what: &str| {
            let events = recorder.take();
            let is_store = |event: &Event| matches!(event.what, What::Copy { .. });
            assert!(events.iter().any(is_store), "{what}");
            assert_eq!(events.last().map(|event| &event.what), Some(&What::Drain), "{what}");
            assert_eq!(drains(&events), 1, "{what}");
            fills += 1;
        };
        stage.write_at(&[1; 100], 10).expect("fill");
        check("a write");
        stage.zero(100..200).expect("fill");
        check("zeroes");
        stage.fill_from(&mut &[2; 5000][..], 200..5200).expect("fill");
        check("a reader");
        assert_eq!(fills, 3);
        // SAFETY: no other code uses the file, and all bytes are stored to.
        unsafe {
            for mut slice in stage.as_mut_slices(5200..8192).expect("slices") {
                slice.fill(3);
            }
            stage.assume_filled(5200..8192).expect("fill");
        }
        let events = recorder.take();
        let flushed = events.iter().map(|event| match event.what {
            What::Flush { len, .. } => len,
            _ => 0,
        });
        assert_eq!(flushed.sum::<u64>(), 8192 - 5200, "all of it is flushed");
        assert_eq!(events.last().map(|event| &event.what), Some(&What::Drain));
        stage.commit().expect("a commit");
        let taken = drains(&recorder.take());
        assert!(round == 0 || taken == 2, "two whole pages flip by the region word: {taken}");
    }
}

#[test]
fn stages_that_are_not_committed_are_forgotten() {
    let mut run = Run::new();
    let file = run.file.try_clone().expect("a handle");
    run.write(&[(0, 3 * PAGE as usize)]);
    let mut stage = file.stage(0..3 * PAGE).expect("a stage");
    fill(&mut stage, &[(0..2 * PAGE, 1), (2 * PAGE..3 * PAGE, 2)]);
    run.step(run.content.clone(), |_| ());
    // Writes to staged slices, by redo, and to others.
    for _ in 0..3 {
        run.write(&[(64, 64)]);
        run.write(&[(PAGE - 10, 500)]);
        run.write(&[(40 * PAGE, 64)]);
    }
    run.step(run.content.clone(), |file| _ = file.deploy(0..file.len()).expect("a deployment"));
    run.step(run.content.clone(), |_| drop(stage));
    // The slots have other owners from here on.
    run.write(&[(0, 2 * PAGE as usize)]);
    run.write(&[(64, 64)]);
    drop(file);
    assert!(run.lose_power() > 100);
}

#[test]
fn stages_with_writes_and_new_lengths_survive_whole() {
    let mut run = Run::new();
    let file = run.file.try_clone().expect("a handle");
    run.write(&[(0, PAGE as usize)]);
    let view = file.view(0..PAGE).expect("a view");
    run.write(&[(0, PAGE as usize)]);
    for n in 0..3 {
        let before = run.content.clone();
        let parts = [(0..3000, 60 + n), (3000..4 * PAGE, 70 + n)];
        let mut stage = file.stage(2 * PAGE..6 * PAGE).expect("a stage");
        fill(&mut stage, &parts);
        run.step(before.clone(), |_| ());
        let mut after = committed(&before, &stage, &parts);
        // Page 0 is pinned, and its valid slots are in the reflection file: redo.
        after[10..200].fill(80 + n);
        let len = after.len() as u64 + u64::from(n) * 100;
        after.resize(len as usize, 0);
        run.step(after, |file| {
            let mut tx = file.begin();
            tx.set_len(len).expect("a length");
            tx.write_at(&[80 + n; 190], 10).expect("a write");
            tx.commit_with(&mut [stage]).expect("a commit");
        });
    }
    drop(view);
    drop(file);
    assert!(run.lose_power() > 100);
}
