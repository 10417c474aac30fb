//! Tests of panics in the middle of operations.
//!
//! The recorder panics before the n-th store, drain or call of an operation, for each n. A handle
//! that was left in the middle is poisoned: each later call fails, and names the operation. One
//! that was not goes on. In both cases the next opening finds the state before or after, with all
//! that was acknowledged since.

use crate::common::{self, Ground, Scratch, assert_same, media, media_in_memory, read_all};
use atomic_mmap::testing::recorder::Recorder;
use atomic_mmap::{AtomicMappedFile, CloseMode, Error, Integrity, Options, SnapshotError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

const PAGE: u64 = 4096;
const LEN: u64 = 70 * PAGE + 100;
/// The place of what is written after a panic.
const LATER: u64 = PAGE + 7;

type Act = fn(&AtomicMappedFile, &[u8]) -> Result<(), Error>;

/// An operation that is cut off.
struct Operation {
    name: &'static str,
    act: Act,
    /// The sections that it may be cut off in.
    sections: &'static [&'static str],
}

const COMMIT: &str = "commit of an operation";
const KEEP: &str = "keep for a snapshot";
const RESIZE: &str = "change of the length";
const POINT: &str = "sync for a durable point";
const TABLE: &str = "change of the snapshots";
const SPACE: &str = "return of the snapshots' space";

const OPERATIONS: &[Operation] = &[
    Operation {
        name: "a write of a word",
        act: |file, _| file.write_at(&[7; 8], 5000),
        sections: &[COMMIT, KEEP],
    },
    Operation {
        name: "a small write",
        act: |file, _| file.write_at(&[7; 100], 5000),
        sections: &[COMMIT, KEEP],
    },
    Operation {
        name: "a write of a page",
        act: |file, _| file.write_at(&[7; 4096], 2 * PAGE),
        sections: &[COMMIT, KEEP],
    },
    Operation {
        name: "a write over pages",
        act: |file, _| file.write_at(&[7; 20_000], 9000),
        sections: &[COMMIT, KEEP],
    },
    Operation {
        name: "a write of a region",
        act: |file, _| file.write_at(&[7; 64 * 4096], 0),
        sections: &[COMMIT, KEEP],
    },
    Operation {
        name: "several writes",
        act: |file, _| file.write_many(&[(10, &[7; 50]), (66 * PAGE, &[8; 300])]),
        sections: &[COMMIT, KEEP],
    },
    Operation {
        name: "a write beside a view",
        act: |file, _| {
            let view = file.view(4000..9000)?;
            let written = file.write_at(&[7; 6000], 4090);
            drop(view);
            written
        },
        sections: &[COMMIT, KEEP, "deployment"],
    },
    Operation {
        name: "a growth",
        act: |file, _| file.set_len(LEN + 3_000_000),
        sections: &[RESIZE],
    },
    Operation {
        name: "a shrink",
        act: |file, _| file.set_len(2 * PAGE + 50),
        sections: &[RESIZE, KEEP, POINT],
    },
    Operation {
        name: "a replacement",
        act: |file, _| file.replace(&[9; 50_000]),
        sections: &[RESIZE, KEEP, POINT, COMMIT],
    },
    Operation {
        name: "a durable point",
        act: |file, _| file.sync().map(drop),
        sections: &[POINT, KEEP],
    },
    Operation {
        name: "a deployment",
        act: |file, _| file.deploy(0..LEN).map(drop),
        sections: &["deployment", "return of space", KEEP, POINT],
    },
    Operation {
        name: "a seal",
        act: |file, _| file.snapshot("new").map(drop),
        sections: &[TABLE, KEEP, POINT],
    },
    Operation {
        name: "a drop",
        act: |file, _| file.drop_snapshot("old"),
        sections: &[TABLE, SPACE],
    },
    Operation {
        name: "a rollback",
        act: |file, _| file.roll_back("old", None),
        sections: &["rollback", TABLE, KEEP, POINT, RESIZE],
    },
    Operation {
        name: "a rollback to a longer snapshot, with a way back",
        act: |file, _| file.roll_back("long", Some("undo")),
        sections: &["rollback", TABLE, KEEP, POINT, RESIZE],
    },
    Operation {
        name: "an import",
        act: |file, stream| file.import_over(stream).map(drop),
        sections: &["rollback", TABLE, KEEP, POINT, RESIZE, SPACE],
    },
];

type Make = fn(Options, &Path) -> AtomicMappedFile;
/// How a file is made, and by which options.
type From<'a> = (Make, &'a dyn Fn(&Ground) -> Options);

fn make_plain(options: Options, path: &Path) -> AtomicMappedFile {
    let file = options.create(true).len(LEN).open(path).expect("open");
    file.write_at(&common::Rng(3).bytes(LEN as usize), 0).expect("write");
    file
}

fn make(options: Options, path: &Path) -> AtomicMappedFile {
    let file = options.create(true).len(LEN).open(path).expect("open");
    let bytes = common::Rng(3).bytes(LEN as usize);
    file.set_len(LEN + 20 * PAGE).expect("grow");
    file.write_at(&bytes, 10 * PAGE).expect("write");
    file.snapshot("long").expect("seal");
    file.set_len(LEN - 500).expect("shrink");
    file.write_at(&bytes[..30_000], 200).expect("write");
    file.snapshot("old").expect("seal");
    file.set_len(LEN).expect("grow");
    file.write_at(&bytes[5000..6000], 4000).expect("write");
    file.write_at(&bytes[..300], 60 * PAGE).expect("write");
    file
}

fn snapshot(file: &AtomicMappedFile, name: &str) -> Option<Vec<u8>> {
    match common::try_read_snapshot(file, name) {
        Ok(bytes) => Some(bytes),
        Err(Error::Snapshot { why: SnapshotError::NotFound { .. }, .. }) => None,
        Err(error) => panic!("{error:?}"),
    }
}

fn is_one_of(found: &[u8], all: &[&[u8]], what: &str) {
    if !all.contains(&found) {
        all.iter().for_each(|one| assert_same(found, one, what));
    }
}

/// Asserts that no call goes on.
fn assert_poisoned(file: AtomicMappedFile, operation: &Operation, what: &str) {
    let check = |result: Result<(), Error>| match result {
        Err(Error::Poisoned { cause, .. }) => {
            let is_named = operation.sections.iter().any(|section| cause.contains(section));
            assert!(is_named && cause.contains("panic"), "{what}: {cause}");
        }
        other => panic!("{what}: {other:?}"),
    };
    check(file.write_at(b"later", LATER));
    check(file.write_at(&[1; 20_000], 0));
    check(file.read_at(&mut [0; 5], LATER));
    check(file.sync().map(drop));
    check(file.set_len(LEN + 7));
    check(file.deploy(0..100).map(drop));
    check(file.snapshot("later").map(drop));
    check(file.drop_snapshot("long"));
    check(file.roll_back("old", None));
    check(file.transact(|tx| tx.write_at(b"later", LATER)));
    check(file.close(CloseMode::Spatial).map(drop));
}

/// Where an operation is cut off, and what the file holds before and after it.
struct Case<'a> {
    ground: &'a Ground,
    make: Make,
    options: Options,
    stream: &'a [u8],
    operation: &'a Operation,
    before: Vec<u8>,
    after: Vec<u8>,
}

impl<'a> Case<'a> {
    fn new(
        ground: &'a Ground,
        (make, options): (Make, Options),
        (stream, operation): (&'a [u8], &'a Operation),
    ) -> Self {
        let scratch = ground.scratch();
        let file = make(options.clone(), &scratch.file("state.dat"));
        file.write_at(&[1; 500], 5 * PAGE - 50).expect("write");
        let before = read_all(&file);
        (operation.act)(&file, stream).unwrap_or_else(|e| panic!("{}: {e}", operation.name));
        let after = read_all(&file);
        Case { ground, make, options, stream, operation, before, after }
    }

    /// Cuts the operation off at its `nth` step. Returns `None` if it has fewer steps. Otherwise
    /// returns `true` if the handle was poisoned.
    fn cut_off(&self, nth: usize) -> Option<bool> {
        let Case { ground, make, options, stream, operation, before, after } = self;
        let what = format!("{} at {nth} on {}", operation.name, ground.medium);
        let (scratch, recorder) = (ground.scratch(), Recorder::new());
        recorder.hold_background();
        let path = scratch.file("state.dat");
        make(options.clone(), &path).close(CloseMode::Fast).expect("close");
        let file = options.clone().open_recorded(&recorder, &path).expect("open");
        file.write_at(&[1; 500], 5 * PAGE - 50).expect("write");
        let sealed = ["long", "old"].map(|name| snapshot(&file, name));
        recorder.panic_at(nth);
        let ended = catch_unwind(AssertUnwindSafe(|| (operation.act)(&file, stream)));
        let is_whole = recorder.calm();
        assert_eq!(ended.is_ok(), is_whole, "{what}");
        let is_poisoned = file.health().is_err();
        assert!(!is_whole || !is_poisoned, "{what}");
        let mut all = vec![&before[..], after];
        let mut present;
        if is_poisoned {
            assert_poisoned(file, operation, &what);
        } else {
            present = read_all(&file);
            is_one_of(&present, &all, &what);
            file.write_at(b"later", LATER).unwrap_or_else(|e| panic!("{what}: {e}"));
            present[LATER as usize..][..5].copy_from_slice(b"later");
            file.sync().unwrap_or_else(|e| panic!("{what}: {e}"));
            let modes = [CloseMode::Fast, CloseMode::Spatial, CloseMode::Unsynced];
            file.close(modes[nth % 3]).unwrap_or_else(|e| panic!("{what}: {e}"));
            all = vec![&present];
        }
        let file = options.clone().open(&path).unwrap_or_else(|e| panic!("{what}: {e}"));
        is_one_of(&read_all(&file), &all, &what);
        for (name, sealed) in ["long", "old"].iter().zip(sealed) {
            let found = snapshot(&file, name);
            let is_dropped = operation.name == "a drop" && *name == "old" && found.is_none();
            assert!(is_dropped || found == sealed, "{what}: {name}");
        }
        if let Some(undo) = snapshot(&file, "undo") {
            assert_same(&undo, before, &what);
        }
        file.close(CloseMode::Spatial).unwrap_or_else(|e| panic!("{what}: {e}"));
        (!is_whole).then_some(is_poisoned)
    }
}

fn cut_off_everywhere(grounds: Vec<Ground>, operations: &[Operation], from: From<'_>) {
    let (make, options) = from;
    for ground in grounds {
        let stream = stream(&ground.scratch(), &ground);
        let mut poisoned = 0;
        for operation in operations {
            let case = Case::new(&ground, (make, options(&ground)), (&stream, operation));
            let steps = (1..20).chain((20..).step_by(13)).map_while(|nth| case.cut_off(nth));
            poisoned += steps.filter(|is_poisoned| *is_poisoned).count();
        }
        assert!(poisoned > 50, "{poisoned} on {}", ground.medium);
    }
}

/// Returns the stream of a whole file.
fn stream(scratch: &Scratch, ground: &Ground) -> Vec<u8> {
    let options = ground.options().create(true).len(40 * PAGE + 9);
    let sender = options.open(scratch.file("sender")).expect("open");
    sender.write_at(&common::Rng(9).bytes(20_000), 11_000).expect("write");
    sender.snapshot("sent").expect("seal");
    let mut stream = Vec::new();
    sender.export(None, "sent", &mut stream).expect("export");
    stream
}

#[test]
fn a_panic_in_an_operation_poisons_the_handle_or_leaves_it_whole() {
    cut_off_everywhere(media(), OPERATIONS, (make, &Ground::options));
}

#[test]
fn a_panic_in_an_operation_on_a_file_with_sums_poisons_the_handle_or_leaves_it_whole() {
    let with_sums = |ground: &Ground| ground.options().integrity(Integrity::OnRead);
    cut_off_everywhere(media_in_memory(), OPERATIONS, (make, &with_sums));
}

/// Without snapshots an operation takes shorter ways.
#[test]
fn a_panic_in_an_operation_on_a_plain_file_poisons_the_handle_or_leaves_it_whole() {
    let is_of_snapshots = |operation: &Operation| operation.sections.contains(&TABLE);
    let end = OPERATIONS.iter().position(is_of_snapshots).expect("one is");
    cut_off_everywhere(media(), &OPERATIONS[..end], (make_plain, &Ground::options));
}

/// Acknowledged writes are there, whatever step of a close or an opening a panic cuts off.
#[test]
fn a_panic_in_a_close_or_an_opening_loses_nothing() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        make(ground.options(), &path).close(CloseMode::Fast).expect("close");
        let modes = [CloseMode::Fast, CloseMode::Spatial, CloseMode::Unsynced];
        for (mode, step) in modes.into_iter().flat_map(|mode| [(mode, 0), (mode, 1)]) {
            for nth in (1..20_usize).chain((20..).step_by(13)) {
                let what = format!("{mode:?} {step} at {nth} on {}", ground.medium);
                let recorder = Recorder::new();
                recorder.hold_background();
                let file = ground.options().open_recorded(&recorder, &path).expect("open");
                file.write_at(&nth.to_le_bytes(), 7 * PAGE - 4).expect("write");
                let present = read_all(&file);
                let cut_off = |act: &mut dyn FnMut()| {
                    recorder.panic_at(nth);
                    let ended = catch_unwind(AssertUnwindSafe(act));
                    let is_whole = recorder.calm();
                    assert_eq!(ended.is_ok(), is_whole, "{what}");
                    is_whole
                };
                let mut file = Some(file);
                let is_whole = if step == 0 {
                    cut_off(&mut || drop(file.take().expect("once").close(mode).expect("close")))
                } else {
                    file.take().expect("once").close(mode).expect("close");
                    let open = || ground.options().open_recorded(&recorder, &path).expect("open");
                    cut_off(&mut || drop(open()))
                };
                let file = ground.options().open(&path).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_same(&read_all(&file), &present, &what);
                assert!(snapshot(&file, "old").is_some() && snapshot(&file, "long").is_some());
                drop(file);
                if is_whole {
                    break;
                }
            }
        }
    }
}
