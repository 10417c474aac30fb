//! Tests that no call leaves a store of its thread undrained, whether it succeeds or fails.
//!
//! A store past the cache reaches the medium at any later time until its thread drains. So a call
//! that returns without its drain could overwrite, late, what the operation of another thread has
//! made durable at the same place meanwhile. A flush without a drain has not made anything durable.
//!
//! Two kinds are left behind on purpose: words in the cache, which a record covers and the next
//! batch flushes; and sums that replace stale ones, which are in the cache, and flushed.

use crate::common::{Ground, Rng, Scratch, dax};
use atomic_mmap::testing::recorder::{Event, Recorder, What};
use atomic_mmap::testing::{FileId, PageIndex, call, layout};
use atomic_mmap::{AtomicMappedFile, Integrity, Result};

const PAGE: u64 = 4096;
/// A chunk: storage is allocated by so many bytes at once.
const CHUNK: u64 = 2 << 20;
const LEN: u64 = 3 * CHUNK;

/// A call, by its name.
type Call = (&'static str, fn(&AtomicMappedFile) -> Result<()>);

const CALLS: [Call; 31] = [
    ("a word", |file| file.write_at(&[7; 8], 64)),
    ("a part of a slice", |file| file.write_at(&[7; 100], 3 * PAGE + 50)),
    ("slices", |file| file.write_at(&[7; 256], 4 * PAGE)),
    ("a page", |file| file.write_at(&[7; 4096], 5 * PAGE)),
    ("more than is completed for a record", |file| file.write_at(&[7; 300], 6 * PAGE + 10)),
    ("a hole", |file| file.write_at(&[7; 10], CHUNK + 5)),
    ("a page of a hole", |file| file.write_at(&[7; 4096], CHUNK + PAGE)),
    ("parts of two pages", |file| file.write_at(&[7; 200], 8 * PAGE - 100)),
    ("pages", |file| file.write_at(&[7; 20_000], 10 * PAGE + 1)),
    ("pages by the word of the region", |file| file.write_at(&[7; 1 << 18], 0)),
    ("pages into a hole", |file| file.write_at(&[7; 3 * 4096], CHUNK - PAGE)),
    ("parts of which one is in a hole", |file| {
        file.write_many(&[(0, &[7; 512]), (PAGE + 600, &[7; 8]), (CHUNK + 600, &[7; 8])])
    }),
    ("a transaction", |file| {
        file.transact(|tx| {
            let mut bytes = [0; 8];
            tx.read_at(&mut bytes, CHUNK)?;
            tx.write_at(&bytes, 0)?;
            tx.write_at(&[7; 5000], 9 * PAGE)
        })
    }),
    ("a stage", |file| {
        let mut stage = file.stage(12 * PAGE..14 * PAGE)?;
        stage.write_at(&[7; 8192], 0)?;
        stage.commit()
    }),
    ("a stage with another segment", |file| {
        let mut stage = file.stage(12 * PAGE..14 * PAGE)?;
        stage.write_at(&[7; 8192], 0)?;
        let mut tx = file.begin();
        tx.write_at(&[7; 700], CHUNK + PAGE - 300)?;
        tx.commit_with(&mut [stage])
    }),
    ("a stage that is dropped", |file| {
        let mut stage = file.stage(CHUNK..CHUNK + 2 * PAGE)?;
        stage.write_at(&[7; 8192], 0)
    }),
    ("an eager write", |file| file.write_at_eager(&[7; 5000], 9 * PAGE)),
    ("a view", |file| file.view(0..3 * PAGE).map(drop)),
    ("a view of a hole", |file| file.view(CHUNK..CHUNK + PAGE).map(drop)),
    ("a write under a view", |file| {
        let _view = file.view(4 * PAGE..5 * PAGE)?;
        file.write_at(&[7; 100], 4 * PAGE + 30)
    }),
    ("parts under a view", |file| {
        let _view = file.view(4 * PAGE..5 * PAGE)?;
        file.write_many(&[(4 * PAGE + 30, &[7; 100]), (CHUNK + 600, &[7; 8])])
    }),
    ("a longer file", |file| file.set_len(LEN + CHUNK)),
    ("a shorter file", |file| file.set_len(15 * PAGE + 100)),
    ("a shorter file with bytes", |file| {
        file.transact(|tx| {
            tx.set_len(15 * PAGE + 100)?;
            tx.write_at(&[7; 100], 2 * PAGE + 1)
        })
    }),
    ("a file that loses its mark and gets it again", |file| {
        file.set_len(15 * PAGE + 100)?;
        file.set_len(LEN)
    }),
    ("other contents", |file| file.replace(&[7; 50_000])),
    ("a deployment", |file| file.deploy(0..LEN).map(drop)),
    ("a seal", |file| file.snapshot("b").map(drop)),
    ("a drop", |file| file.drop_snapshot("a")),
    ("a rollback", |file| file.roll_back("a", Some("c"))),
    ("a repair", |file| file.repair(0..LEN).map(drop)),
];

/// Opens a file, of which the first pages have bytes, and the others none.
fn prepared(
    ground: &Ground,
    (has_sums, has_snapshots): (bool, bool),
) -> (Scratch, AtomicMappedFile, Recorder) {
    let (scratch, recorder) = (ground.scratch(), Recorder::new());
    recorder.hold_background();
    let integrity = if has_sums { Integrity::OnRead } else { Integrity::Off };
    let options = ground.options().create(true).len(LEN).integrity(integrity).mark_at(2 * CHUNK);
    let file = options.open_recorded(&recorder, scratch.file("state")).expect("open");
    file.write_at(&Rng(1).bytes(70 * PAGE as usize), 0).expect("write");
    if has_snapshots {
        file.snapshot("a").expect("seal");
        file.write_at(&[3; 3000], 2 * PAGE).expect("write");
    }
    recorder.take();
    (scratch, file, recorder)
}

/// Returns `true` if the line at `offset` has sums of pages.
fn is_of_sums(file: FileId, offset: u64) -> bool {
    let [first, end] = [0, (LEN + CHUNK) / PAGE].map(|n| layout::page_sums(PageIndex(n)));
    file == FileId::Reflection && (first..end).contains(&offset.next_multiple_of(64))
}

/// Returns what the trace leaves undrained.
fn undrained(trace: &[Event]) -> Vec<String> {
    let mut left = Vec::new();
    for event in trace {
        match &event.what {
            What::Drain => left.clear(),
            What::Store { file, offset, through: true, .. }
            | What::Copy { file, offset, through: true, .. } => {
                left.push(format!("store to {file:?} {offset:#x}"));
            }
            What::Flush { file, offset, .. } if !is_of_sums(*file, *offset) => {
                left.push(format!("flush of {file:?} {offset:#x}"));
            }
            What::Failed(call) => left.push(format!("a failed {call}")),
            _ => {}
        }
    }
    if left.iter().all(|step| step.starts_with("a failed")) { Vec::new() } else { left }
}

#[test]
fn every_call_returns_with_its_stores_drained() {
    let Some(ground) = dax() else { return };
    let mut found = Vec::new();
    for features in [(false, false), (true, false), (false, true), (true, true)] {
        for (name, call) in CALLS {
            let (_scratch, file, recorder) = prepared(&ground, features);
            // Twice: to slots that have no storage yet, and to others.
            for again in 0..2 {
                let _snapshots_may_be_missing = call(&file);
                let left = undrained(&recorder.take());
                if !left.is_empty() {
                    found.push(format!("{name}, {features:?}, {again}: {left:?}"));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}: {found:#?}", found.len());
}

#[test]
fn every_call_that_fails_returns_with_its_stores_drained() {
    let Some(ground) = dax() else { return };
    let (mut found, mut failures) = (Vec::new(), 0);
    for features in [(false, false), (true, false), (false, true), (true, true)] {
        for (name, function) in CALLS {
            for (kind, error) in
                [(call::ALLOCATE, libc::ENOSPC), (call::READ, libc::EIO), (call::WRITE, libc::EIO)]
            {
                for nth in 1.. {
                    let (_scratch, file, recorder) = prepared(&ground, features);
                    recorder.fail_next(kind, nth, error);
                    let result = function(&file);
                    let is_over = recorder.heal();
                    if is_over {
                        break;
                    }
                    failures += usize::from(result.is_err());
                    let left = undrained(&recorder.take());
                    if !left.is_empty() {
                        found.push(format!("{name}, {features:?}, {kind} {nth}: {left:?}"));
                    }
                }
            }
        }
    }
    assert!(failures > 100, "{failures} failures");
    assert!(found.is_empty(), "{}: {found:#?}", found.len());
}
