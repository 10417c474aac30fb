//! Tests that snapshots survive a loss of power, on recorded traces of the native code.
//!
//! Like [`crate::power`], with a third file, and with snapshots as a part of the state. At each
//! moment the present and all snapshots must be those before the operation in progress or those
//! after it.

use crate::common::{self, Rng, Scratch, assert_same};
use crate::power::{Choice, Memory, OnPanic, options};
use atomic_mmap::testing::FileId;
use atomic_mmap::testing::recorder::{Event, Recorder, What};
use atomic_mmap::{AtomicMappedFile, CloseMode, View};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const PAGE: u64 = 4096;
const LEN: u64 = 70 * PAGE + 100;

/// The stores that reach the medium although they are not durable.
const CHOICES: [Choice; 6] = [
    Choice::None,
    Choice::All,
    Choice::Words,
    Choice::Words,
    Choice::AllOf(FileId::Snapshots),
    Choice::AllBut(FileId::Snapshots),
];

/// The contents of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
struct State {
    present: Vec<u8>,
    sealed: BTreeMap<String, Vec<u8>>,
}

impl State {
    fn of(file: &AtomicMappedFile) -> State {
        let names = file.snapshots().into_iter().map(|info| info.name);
        let read = |name: String| (name.clone(), common::read_snapshot(file, &name));
        let sealed = names.map(read).collect();
        State { present: common::read_all(file), sealed }
    }
}

struct Run {
    recorder: Recorder,
    file: AtomicMappedFile,
    home: PathBuf,
    state: State,
    /// The events of each operation, and the states before and after it.
    operations: Vec<(Vec<Event>, [State; 2])>,
    scratch: Scratch,
}

impl Run {
    fn new() -> Run {
        let (scratch, recorder) = (common::ram().scratch(), Recorder::new());
        let home = scratch.file("state.dat");
        let file = options().create(true).len(LEN).open_recorded(&recorder, &home).expect("open");
        let state = State { present: vec![0; LEN as usize], sealed: BTreeMap::new() };
        let operations = vec![(recorder.take(), [state.clone(), state.clone()])];
        Run { recorder, file, home, state, operations, scratch }
    }

    /// Runs an operation that leaves `after`.
    fn step(&mut self, after: State, act: impl FnOnce(&AtomicMappedFile)) {
        act(&self.file);
        let events = self.recorder.take();
        let before = std::mem::replace(&mut self.state, after.clone());
        self.operations.push((events, [before, after]));
    }

    fn write(&mut self, parts: &[(u64, usize)]) {
        let fill = self.operations.len() as u8;
        let bytes: Vec<_> = parts.iter().map(|&(at, len)| (at, vec![fill; len])).collect();
        let mut after = self.state.clone();
        for (at, bytes) in &bytes {
            after.present[*at as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        let parts: Vec<_> = bytes.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
        self.step(after, |file| file.write_many(&parts).expect("a write"));
    }

    fn set_len(&mut self, len: u64) {
        let mut after = self.state.clone();
        after.present.resize(len as usize, 0);
        self.step(after, |file| file.set_len(len).expect("a new length"));
    }

    fn replace(&mut self, len: usize) {
        let mut after = self.state.clone();
        after.present = vec![self.operations.len() as u8; len];
        let bytes = after.present.clone();
        self.step(after, |file| file.replace(&bytes).expect("a new document"));
    }

    fn seal(&mut self, name: &str) {
        let mut after = self.state.clone();
        after.sealed.insert(name.to_owned(), after.present.clone());
        self.step(after, |file| drop(file.snapshot(name).expect("a snapshot")));
    }

    fn drop(&mut self, name: &str) {
        let mut after = self.state.clone();
        after.sealed.remove(name);
        self.step(after, |file| file.drop_snapshot(name).expect("a drop"));
    }

    fn roll_back(&mut self, name: &str, undo: Option<&str>) {
        let mut after = self.state.clone();
        if let Some(undo) = undo {
            after.sealed.insert(undo.to_owned(), after.present.clone());
        }
        after.present = after.sealed[name].clone();
        self.step(after, |file| file.roll_back(name, undo).expect("a rollback"));
    }

    /// Takes `present`, with the bytes from `at` on replaced, from another file under `name`.
    fn import(&mut self, name: &str, parts: &[(u64, usize)], len: u64) {
        let mut after = self.state.clone();
        let sender = options().create(true).len(after.present.len() as u64);
        let sender = sender.open(self.scratch.file(&format!("sender of {name}"))).expect("open");
        sender.write_at(&after.present, 0).expect("the present");
        sender.snapshot("base").expect("a snapshot");
        after.present.resize(len as usize, 0);
        sender.set_len(len).expect("a new length");
        for (at, count) in parts {
            let bytes = vec![self.operations.len() as u8; *count];
            sender.write_at(&bytes, *at).expect("a change");
            after.present[*at as usize..][..*count].copy_from_slice(&bytes);
        }
        sender.snapshot(name).expect("a snapshot");
        after.sealed.insert(name.to_owned(), after.present.clone());
        let mut stream = Vec::new();
        sender.export(Some("base"), name, &mut stream).expect("an export");
        self.step(after, |file| drop(file.import(&stream[..]).expect("an import")));
    }

    fn deploy(&mut self) {
        let after = self.state.clone();
        self.step(after, |file| {
            file.deploy(0..file.len()).expect("a deployment");
        });
    }

    /// Loses the power at many moments of the run. Returns the number of images.
    fn lose_power(self) -> usize {
        assert_eq!(State::of(&self.file), self.state, "the file in use");
        let Run { file, home, operations, scratch, .. } = self;
        let reflection = file.reflection_path().to_owned();
        let store = PathBuf::from(format!("{}.snapshots", reflection.display()));
        file.close(CloseMode::Unsynced).expect("a close that writes nothing");
        let (mut memory, mut random) = (Memory::default(), Rng(7));
        let (mut images, mut has_name) = (0, false);
        for (n, (events, states)) in operations.iter().enumerate() {
            for (at, event) in events.iter().enumerate() {
                memory.play(&event.what);
                has_name |= matches!(&event.what, What::Rename { to, .. } if *to == store);
                let is_end = at + 1 == events.len();
                let is_next_drained =
                    n > 0 && events.get(at + 1).is_some_and(|next| next.what == What::Drain);
                if !is_end && !is_next_drained {
                    continue;
                }
                for choice in CHOICES {
                    let [first, second, third] = memory.image(choice, &mut random);
                    first.put(&home);
                    second.put(&reflection);
                    // Until the store has its name, openings remove the file.
                    if has_name {
                        std::fs::File::create(&store).expect("the store");
                        third.put(&store);
                    } else {
                        let _is_not_there_yet = std::fs::remove_file(&store);
                    }
                    let place = format!("operation {n}, before event {}, {choice:?}", at + 1);
                    let _tells_where = OnPanic(place);
                    look(&home, if is_end { &states[1..] } else { states });
                    images += 1;
                }
            }
        }
        drop(scratch);
        images
    }
}

fn recovered(home: &Path) -> State {
    let file = options().open(home).expect("an image is recovered");
    let state = State::of(&file);
    file.close(CloseMode::Unsynced).expect("a close");
    state
}

/// Recovers an image, and lives on with it.
fn look(home: &Path, allowed: &[State]) {
    let found = recovered(home);
    if !allowed.contains(&found) {
        let expected = &allowed[allowed.len() - 1];
        assert_same(&found.present, &expected.present, "the present");
        for (name, bytes) in &expected.sealed {
            let sealed = found.sealed.get(name).unwrap_or_else(|| panic!("no snapshot {name}"));
            assert_same(sealed, bytes, name);
        }
        panic!("no state of the file: snapshots {:?}", found.sealed.keys());
    }
    let file = options().open(home).expect("a second opening");
    assert!(State::of(&file) == found, "the next session finds another state");
    // A write keeps what it goes over, and nothing that is kept already.
    if found.present.len() > 200 {
        file.write_at(&[0xee; 200], 0).expect("a write");
        let after = State::of(&file);
        assert!(after.sealed == found.sealed, "a write after recovery changes a snapshot");
    }
    file.close(CloseMode::Unsynced).expect("a close");
}

#[test]
fn snapshots_survive_beside_writes() {
    let mut run = Run::new();
    run.write(&[(0, 300), (5 * PAGE, PAGE as usize)]);
    run.seal("a");
    for _ in 0..2 {
        run.write(&[(64, 128)]);
        run.write(&[(5 * PAGE, PAGE as usize)]);
        run.write(&[(4 * PAGE + 64, 64), (9 * PAGE + 7, 30), (66 * PAGE - 5, 10)]);
        run.write(&[(63 * PAGE + 100, 2 * PAGE as usize)]);
    }
    run.seal("b");
    run.write(&[(64, 192)]);
    run.deploy();
    run.write(&[(0, 200)]);
    run.drop("a");
    run.write(&[(0, 400)]);
    run.seal("c");
    run.drop("c");
    run.write(&[(5 * PAGE + 64, 64)]);
    assert!(run.lose_power() > 100);
}

#[test]
fn snapshots_survive_beside_views_and_new_lengths() {
    let mut run = Run::new();
    let handle = run.file.try_clone().expect("a handle");
    run.write(&[(5 * PAGE, 300), (40 * PAGE, 5000)]);
    for name in ["a", "b"] {
        run.seal(name);
        let view: View<'_> = handle.view(0..6 * PAGE).expect("a view");
        // The later writes find no free slot, and log their data.
        (0..2).for_each(|_| run.write(&[(5 * PAGE + 10, 200)]));
        run.seal(&format!("{name} under a view"));
        run.write(&[(5 * PAGE + 10, 200)]);
        drop(view);
        run.deploy();
        run.set_len(5 * PAGE + 77);
        run.set_len(LEN);
        run.write(&[(5 * PAGE, 500)]);
        run.replace(3000);
        run.set_len(LEN);
    }
    drop(handle);
    assert!(run.lose_power() > 100);
}

#[test]
fn a_rollback_is_whole_or_absent() {
    let mut run = Run::new();
    run.write(&[(0, 300), (40 * PAGE, 5000)]);
    run.seal("a");
    run.write(&[(64, 100), (40 * PAGE + 100, 200), (66 * PAGE, 64)]);
    run.roll_back("a", Some("b"));
    run.write(&[(0, 64)]);
    run.set_len(41 * PAGE + 10);
    run.write(&[(41 * PAGE, 10)]);
    run.roll_back("a", Some("c"));
    run.roll_back("c", None);
    run.roll_back("b", None);
    assert!(run.lose_power() > 100);
}

#[test]
fn an_import_is_whole_or_absent() {
    let mut run = Run::new();
    run.write(&[(0, 300), (40 * PAGE, 5000)]);
    run.import("first", &[(64, 100), (41 * PAGE, 200)], LEN);
    run.seal("own");
    run.write(&[(0, 64)]);
    run.import("shorter", &[(100, 300), (10 * PAGE + 10, 60)], 11 * PAGE + 10);
    run.import("longer", &[(128, 64), (12 * PAGE, 5000)], LEN);
    run.write(&[(64, 200), (12 * PAGE, 64)]);
    run.drop("shorter");
    run.import("last", &[(0, 500)], LEN);
    assert!(run.lose_power() > 100);
}
