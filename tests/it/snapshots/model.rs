//! Tests a file with snapshots against plain vectors, with random operations.
//!
//! After each operation some bytes of one snapshot are compared, by each call that reads. At the
//! end, and after each reopening, all bytes of all snapshots are.

use crate::common::{self, Ground, Rng, assert_same, media, read_all};
use atomic_mmap::testing::call;
use atomic_mmap::testing::recorder::Recorder;
use atomic_mmap::{AtomicMappedFile, CloseMode, Durability, Error, Medium, Options, Snapshot};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeMap;
use std::ops::Range;

const PAGE: u64 = 4096;
const REGION: u64 = 262_144;
pub const FIRST_LEN: u64 = REGION + 3 * PAGE + 100;
const MOST_LEN: u64 = 2 * REGION;

/// An operation, with what makes it one of its kind.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Write { at: u64, len: u64 },
    WriteSlices { at: u64, len: u64 },
    WriteMany { at: u64, and: u64, len: u64 },
    SetLen(u64),
    Replace(u64),
    Deploy(u64),
    View(u64),
    Sync,
    Seal,
    Drop(u64),
    RollBack { to: u64, is_undone: bool },
    Close(CloseMode),
}

pub fn op() -> impl Strategy<Value = Op> {
    let at = || any::<u32>().prop_map(u64::from);
    let len =
        || prop_oneof![4 => 1..200u64, 2 => 4000..9000u64, 1 => Just(PAGE), 1 => 9000..80_000u64];
    prop_oneof![
        8 => (at(), len()).prop_map(|(at, len)| Op::Write { at, len }),
        8 => (at(), 1..70u64).prop_map(|(at, len)| Op::WriteSlices { at, len }),
        4 => (at(), at(), 1..300u64).prop_map(|(at, and, len)| Op::WriteMany { at, and, len }),
        3 => at().prop_map(Op::SetLen),
        1 => at().prop_map(Op::Replace),
        3 => at().prop_map(Op::Deploy),
        2 => at().prop_map(Op::View),
        2 => Just(Op::Sync),
        6 => Just(Op::Seal),
        3 => at().prop_map(Op::Drop),
        2 => (at(), any::<bool>()).prop_map(|(to, is_undone)| Op::RollBack { to, is_undone }),
        2 => prop_oneof![Just(CloseMode::Fast), Just(CloseMode::Spatial)].prop_map(Op::Close),
    ]
}

impl Op {
    /// Returns a random operation, and never a close.
    pub fn random(rng: &mut Rng) -> Op {
        let at = rng.number() >> 32;
        match rng.below(30) {
            0..8 => Op::Write { at, len: 1 + rng.below(400) },
            8..12 => Op::WriteSlices { at, len: 1 + rng.below(70) },
            12..14 => Op::Write { at, len: rng.below(60_000) },
            14..17 => Op::WriteMany { at, and: rng.number() >> 32, len: 1 + rng.below(300) },
            17 => Op::SetLen(at),
            18 => Op::Replace(at),
            19..21 => Op::Deploy(at),
            21 => Op::View(at),
            22 => Op::Sync,
            23..26 => Op::Seal,
            26..28 => Op::Drop(at),
            _ => Op::RollBack { to: at, is_undone: rng.below(2) == 0 },
        }
    }
}

/// The contents that a file must have.
#[derive(Clone, Default)]
pub struct Model {
    pub present: Vec<u8>,
    pub sealed: BTreeMap<String, Vec<u8>>,
    /// Names that were given.
    pub given: u64,
}

impl Model {
    /// Returns the contents of a new file.
    pub fn new() -> Model {
        Model { present: vec![0; FIRST_LEN as usize], ..Model::default() }
    }

    fn new_name(&mut self) -> String {
        self.given += 1;
        format!("snapshot {}", self.given)
    }

    /// Returns the name of one of the snapshots, if there are any.
    fn pick(&self, n: u64) -> Option<String> {
        let place = n as usize % self.sealed.len().max(1);
        self.sealed.keys().nth(place).cloned()
    }

    fn write(&mut self, data: &[u8], at: u64) {
        self.present[at as usize..at as usize + data.len()].copy_from_slice(data);
    }
}

fn check_some(file: &AtomicMappedFile, model: &Model, rng: &mut Rng) {
    let Some(name) = model.pick(rng.number()) else { return };
    let (bytes, found) = (&model.sealed[&name], file.open_snapshot(&name).expect("a snapshot"));
    assert_eq!(found.len(), bytes.len() as u64, "{name}");
    let at = rng.below(bytes.len() as u64 + 1) as usize;
    let end = (at + rng.below(20_000) as usize).min(bytes.len());
    check_part(&found, bytes, at..end);
}

/// Compares a part of a snapshot, by each call that reads.
fn check_part(found: &Snapshot, bytes: &[u8], range: Range<usize>) {
    let (at, expected) = (range.start as u64, &bytes[range.clone()]);
    let what = format!("{} from {at} on", found.name());
    let mut read = vec![0xee; expected.len()];
    found.read_at(&mut read, at).expect("read");
    assert_same(&read, expected, &what);
    let view = found.view(at..range.end as u64).expect("view");
    assert_same(view.as_copy().expect("a copy"), expected, &format!("{what}, a view"));
    let (values, _rest) = expected.as_chunks::<6>();
    let array = found.array::<[u8; 6]>(at, values.len() as u64).expect("an array");
    assert!(array.to_vec().expect("read") == values, "{what}, an array");
    assert!(array.iter().map(|value| value.expect("read")).eq(values.iter().copied()), "{what}");
    if let Some(last) = values.len().checked_sub(1) {
        assert_eq!(array.get(last as u64).expect("read"), values[last], "{what}");
        let of_last = at + 6 * last as u64;
        assert_eq!(found.load::<[u8; 6]>(of_last).expect("load"), values[last], "{what}");
        let slot = found.slot::<[u8; 6]>(of_last).expect("a slot");
        assert_eq!(slot.load().expect("load"), values[last], "{what}");
        let in_view = view.load::<[u8; 6]>(6 * last as u64).expect("load");
        assert_eq!(in_view, values[last], "{what}");
    }
}

pub fn check_all(file: &AtomicMappedFile, model: &Model) {
    let listed: Vec<String> = file.snapshots().into_iter().map(|info| info.name).collect();
    let mut expected: Vec<&String> = model.sealed.keys().collect();
    expected.sort_by_key(|name| listed.iter().position(|listed| listed == *name));
    assert_eq!(listed.iter().collect::<Vec<_>>(), expected);
    for (name, bytes) in &model.sealed {
        let found = file.open_snapshot(name).expect("a snapshot");
        assert_same(&common::read_snapshot(file, name), bytes, name);
        check_part(&found, bytes, bytes.len().saturating_sub(9000)..bytes.len());
    }
    assert_same(&read_all(file), &model.present, "the present");
}

/// Runs one operation on the model, and on the file if there is one. Returns how the file is
/// closed, if it is.
pub fn run(
    file: Option<&AtomicMappedFile>,
    model: &mut Model,
    op: Op,
    rng: &mut Rng,
) -> Option<CloseMode> {
    let len = model.present.len() as u64;
    let within = |at: u64, count: u64| {
        let at = at % (len + 1);
        (at, count.min(len - at) as usize)
    };
    let on_file = |act: &dyn Fn(&AtomicMappedFile)| file.iter().for_each(|file| act(file));
    let mut write = |model: &mut Model, at: u64, count: usize| {
        let data = rng.bytes(count);
        on_file(&|file| file.write_at(&data, at).expect("write"));
        model.write(&data, at);
    };
    match op {
        Op::Write { at, len } => {
            let (at, count) = within(at, len);
            write(model, at, count);
        }
        Op::WriteSlices { at, len: slices } => {
            let (at, count) = within(at % (len + 1) / 64 * 64, slices * 64);
            write(model, at, count / 64 * 64);
        }
        Op::WriteMany { at, and, len } => {
            let ((a, n), (b, m)) = (within(at, len), within(and, len));
            let (first, second) = (rng.bytes(n), rng.bytes(m));
            on_file(&|file| file.write_many(&[(a, &first), (b, &second)]).expect("write"));
            model.write(&first, a);
            model.write(&second, b);
        }
        Op::SetLen(n) => {
            let new = n % MOST_LEN;
            on_file(&|file| file.set_len(new).expect("a new length"));
            model.present.resize(new as usize, 0);
        }
        Op::Replace(n) => {
            model.present = rng.bytes((n % (4 * PAGE)) as usize);
            on_file(&|file| file.replace(&model.present).expect("replace"));
        }
        Op::Deploy(at) => {
            let (at, count) = within(at, REGION);
            on_file(&|file| {
                file.deploy(at..at + count as u64).expect("deploy");
            });
        }
        Op::View(at) => {
            // A write beside a view goes by a redo record.
            let (at, count) = within(at, 3 * PAGE);
            let view = file.map(|file| file.view(at..at + count as u64).expect("view"));
            write(model, at, count);
            drop(view);
        }
        Op::Sync => on_file(&|file| {
            file.sync().expect("sync");
        }),
        Op::Seal if model.sealed.len() < 6 => {
            let name = model.new_name();
            on_file(&|file| drop(file.snapshot(&name).expect("seal")));
            model.sealed.insert(name, model.present.clone());
        }
        Op::Seal => {}
        Op::Drop(n) => {
            if let Some(name) = model.pick(n) {
                on_file(&|file| file.drop_snapshot(&name).expect("drop"));
                model.sealed.remove(&name);
            }
        }
        Op::RollBack { to, is_undone } => {
            if let Some(name) = model.pick(to) {
                let undo = is_undone.then(|| model.new_name());
                on_file(&|file| file.roll_back(&name, undo.as_deref()).expect("roll back"));
                let back = model.sealed[&name].clone();
                let before = std::mem::replace(&mut model.present, back);
                undo.map(|undo| model.sealed.insert(undo, before));
            }
        }
        Op::Close(mode) => return Some(mode),
    }
    None
}

fn run_all(options: &Options, path: &std::path::Path, ops: &[Op]) {
    let open = || options.clone().create(true).len(FIRST_LEN).open(path).expect("open");
    let mut rng = Rng(ops.len() as u64);
    let mut model = Model::new();
    let mut file = open();
    for op in ops {
        if let Some(mode) = run(Some(&file), &mut model, *op, &mut rng) {
            check_all(&file, &model);
            file.close(mode).expect("close");
            if mode == CloseMode::Spatial {
                let plain = std::fs::read(path).expect("a plain file");
                assert_same(&plain, &model.present, "the plain file");
            }
            file = open();
            check_all(&file, &model);
        }
        check_some(&file, &model, &mut rng);
    }
    check_all(&file, &model);
}

fn test_on(ground: &Ground, durability: Durability) {
    let config = Config { cases: Config::default().cases.min(24), ..Config::default() };
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..config });
    let result = runner.run(&prop::collection::vec(op(), 1..60), |ops| {
        let scratch = ground.scratch();
        let options = ground.options().durability(durability).shows_appends(ops.len() % 2 == 1);
        run_all(&options, &scratch.file("state.dat"), &ops);
        Ok(())
    });
    result.unwrap_or_else(|e| panic!("{} {durability:?}: {e}", ground.medium));
}

#[test]
fn snapshots_hold_what_was_sealed_on_each_medium() {
    media().iter().for_each(|ground| test_on(ground, Durability::default()));
}

#[test]
fn snapshots_hold_what_was_sealed_with_atomic_sync() {
    let of_kind = |medium: Medium| media().into_iter().find(move |ground| ground.medium == medium);
    for ground in [Medium::Ram, Medium::Dax].into_iter().filter_map(of_kind) {
        test_on(&ground, Durability::AtomicSync);
    }
}

#[test]
fn a_snapshot_that_is_read_is_not_dropped() {
    for ground in media() {
        let scratch = ground.scratch();
        let file = ground.options().create(true).len(PAGE).open(scratch.file("x")).expect("open");
        file.snapshot("a").expect("seal");
        let reader = file.open_snapshot("a").expect("open a snapshot");
        let refused = file.drop_snapshot("a").expect_err("it is read");
        assert!(matches!(refused, Error::Snapshot { .. }), "{refused}");
        drop(reader);
        file.drop_snapshot("a").expect("nothing reads it");
        assert!(file.snapshots().is_empty());
    }
}

/// A snapshot reads zeroes that a shrink has cut off from the home file. An append that a follower
/// of that file sees must not go over them, nor may it be put back behind the end of a snapshot.
#[test]
fn what_a_follower_of_the_home_file_sees_is_in_no_snapshot() {
    let append = |file: &AtomicMappedFile, count: u64| {
        file.transact(|tx| {
            let end = tx.len()?;
            tx.set_len(end + count)?;
            tx.write_at(&vec![7; count as usize], end)
        })
    };
    for (ground, sealed) in media().iter().flat_map(|ground| [(ground, 100), (ground, 3 * PAGE)]) {
        let scratch = ground.scratch();
        let (path, recorder) = (scratch.file("x"), Recorder::new());
        let options = || ground.options().create(true).len(sealed).shows_appends(true);
        let file = options().open_recorded(&recorder, &path).expect("open");
        file.write_at(&[1; 10], 0).expect("a write");
        let a = read_all(&file);
        file.snapshot("a").expect("seal");
        let assert_has_a = |file: &AtomicMappedFile, when: &str| {
            let what = format!("{sealed} bytes on {}, {when}", ground.medium);
            assert_same(&common::read_snapshot(file, "a"), &a, &what);
        };
        append(&file, 300).expect("an append");
        file.sync().expect("a durable point");
        for len in [sealed, 30] {
            file.set_len(len).expect("a shrink");
            append(&file, 2 * PAGE).expect("an append");
            assert_has_a(&file, "appended");
            file.sync().expect("a durable point");
            assert_has_a(&file, "synced");
        }
        file.set_len(50).expect("a shrink");
        recorder.fail_next(call::SET_LEN, 1, libc::ENOSPC);
        append(&file, 2 * PAGE).expect_err("no space");
        assert!(!recorder.heal(), "it came up");
        file.close(CloseMode::Unsynced).expect("leave it");
        let file = options().open(&path).expect("open again");
        assert_has_a(&file, "after a crash");
        file.roll_back("a", None).expect("roll back");
        assert_same(&read_all(&file), &a, "rolled back");
        file.set_len(sealed + 300).expect("grow");
        let past = &read_all(&file)[a.len()..];
        assert_same(past, &[0; 300], &format!("past {sealed} bytes on {}", ground.medium));
    }
}

/// A page remembers the slices that are kept for one snapshot. That memory must not count for a
/// snapshot that was sealed later, nor for an older one after a drop, nor in another session.
#[test]
fn what_is_kept_for_one_snapshot_is_not_taken_for_all() {
    for (ground, len) in media().iter().flat_map(|ground| [(ground, 64), (ground, 4096)]) {
        let scratch = ground.scratch();
        let path = scratch.file("x");
        let open = || ground.options().create(true).len(2 * PAGE).open(&path).expect("open");
        let file = open();
        let write = |file: &AtomicMappedFile, byte: u8| {
            file.write_at(&vec![byte; len], PAGE).expect("a write");
            file.sync().expect("a durable point");
        };
        let assert_is = |file: &AtomicMappedFile, name: &str, byte: u8| {
            let mut found = vec![0; len];
            let snapshot = file.open_snapshot(name).expect("a snapshot");
            snapshot.read_at(&mut found, PAGE).expect("a read");
            assert_eq!(found, vec![byte; len], "{name} on {}, {len} bytes", ground.medium);
        };
        write(&file, 1);
        file.snapshot("a").expect("seal");
        file.snapshot("b").expect("seal");
        write(&file, 2);
        file.drop_snapshot("b").expect("drop");
        write(&file, 3);
        assert_is(&file, "a", 1);
        file.snapshot("c").expect("seal");
        write(&file, 4);
        assert_is(&file, "a", 1);
        assert_is(&file, "c", 3);
        drop(file);
        let file = open();
        write(&file, 5);
        assert_is(&file, "a", 1);
        assert_is(&file, "c", 3);
    }
}
