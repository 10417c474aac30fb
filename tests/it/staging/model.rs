//! Tests a file with stages against plain vectors, with random operations.
//!
//! A stage is a range with some filled bytes. A commit puts those over the file's bytes. Beside
//! stages there are writes, views, deployments, new lengths, snapshots, rollbacks and reopenings.

use crate::common::{self, Ground, Rng, assert_same, read_all};
use atomic_mmap::{AtomicMappedFile, CloseMode, DeployPolicy, Error, Integrity, Stage, View};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::io::Write;
use std::os::unix::net::UnixStream;

const CASES: u32 = 24;
const PAGE: u64 = 4096;
const REGION: u64 = 262_144;

/// A range of the file, as parts of 2^16 of its length.
#[derive(Clone, Copy, Debug)]
struct Place {
    unit: u64,
    count: u64,
    nudge: u64,
    len: u64,
}

impl Place {
    fn within(self, len: u64) -> std::ops::Range<u64> {
        let start = (self.count % (len / self.unit + 1) * self.unit + self.nudge).min(len);
        start..start + self.len.min(len - start)
    }
}

#[derive(Clone, Copy, Debug)]
enum How {
    Write,
    Read,
    Socket,
    Zero,
    Slices,
}

#[derive(Clone, Debug)]
enum Op {
    Stage(Place),
    Fill(usize, Place, u64, How),
    Commit(usize),
    CommitAll,
    CommitWith(Vec<(Place, u64)>, Option<u64>),
    Forget(usize),
    Write(Place, u64),
    View(Place),
    DropView(usize),
    Deploy(Place),
    SetLen(u64),
    Seal,
    RollBack,
    Reopen(CloseMode),
}

fn place() -> impl Strategy<Value = Place> {
    let unit = prop_oneof![3 => Just(64u64), 4 => Just(PAGE), 1 => Just(REGION)];
    let nudge = prop_oneof![4 => Just(0u64), 1 => Just(1), 1 => Just(63), 1 => 0..4096u64];
    let len = prop_oneof![
        1 => Just(0u64),
        2 => 1..200u64,
        2 => (1..70u64).prop_map(|slices| slices * 64),
        4 => (1..20u64).prop_map(|pages| pages * PAGE),
        2 => 1..70_000u64,
        1 => Just(REGION + 5000),
    ];
    (unit, any::<u32>(), nudge, len).prop_map(|(unit, count, nudge, len)| Place {
        unit,
        count: count.into(),
        nudge,
        len,
    })
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        4 => Just(How::Write), 2 => Just(How::Read), 3 => Just(How::Socket),
        1 => Just(How::Zero), 1 => Just(How::Slices)
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let writes = prop::collection::vec((place(), any::<u64>()), 0..3);
    let new_len = prop_oneof![3 => Just(None), 1 => (1..4 * REGION).prop_map(Some)];
    prop_oneof![
        8 => place().prop_map(Op::Stage),
        16 => (0..8usize, place(), any::<u64>(), how())
            .prop_map(|(n, place, seed, how)| Op::Fill(n, place, seed, how)),
        6 => (0..8usize).prop_map(Op::Commit),
        2 => Just(Op::CommitAll),
        3 => (writes, new_len).prop_map(|(writes, len)| Op::CommitWith(writes, len)),
        2 => (0..8usize).prop_map(Op::Forget),
        8 => (place(), any::<u64>()).prop_map(|(place, seed)| Op::Write(place, seed)),
        3 => place().prop_map(Op::View),
        2 => (0..8usize).prop_map(Op::DropView),
        3 => place().prop_map(Op::Deploy),
        2 => (1..4 * REGION).prop_map(Op::SetLen),
        1 => Just(Op::Seal),
        1 => Just(Op::RollBack),
        1 => prop_oneof![Just(CloseMode::Fast), Just(CloseMode::Spatial)].prop_map(Op::Reopen),
    ]
}

struct Model {
    bytes: Vec<u8>,
    sealed: Option<Vec<u8>>,
}

struct Open<'f> {
    stage: Stage<'f>,
    start: u64,
    filled: Vec<Option<u8>>,
}

impl Open<'_> {
    fn put_over(&self, bytes: &mut [u8]) {
        for (n, byte) in self.filled.iter().enumerate() {
            if let Some(byte) = byte {
                bytes[self.start as usize + n] = *byte;
            }
        }
    }

    fn end(&self) -> u64 {
        let last = self.filled.iter().rposition(Option::is_some);
        last.map_or(0, |last| self.start + last as u64 + 1)
    }

    fn fill(&mut self, place: Place, seed: u64, how: How) {
        let range = place.within(self.filled.len() as u64);
        let len = (range.end - range.start) as usize;
        let mut bytes = Rng(seed).bytes(len);
        let mut got = len;
        match how {
            How::Write => self.stage.write_at(&bytes, range.start).expect("fill"),
            How::Zero => {
                self.stage.zero(range.clone()).expect("fill");
                bytes.fill(0);
            }
            How::Read => {
                got = if seed.is_multiple_of(3) { len / 2 } else { len };
                let found = self.stage.fill_from(&mut &bytes[..got], range.clone());
                assert_eq!(found.expect("fill"), got as u64);
            }
            How::Socket => {
                got = if seed.is_multiple_of(3) { len / 2 } else { len };
                let (mut sender, mut receiver) = UnixStream::pair().expect("a socket");
                let found = std::thread::scope(|scope| {
                    let bytes = &bytes[..got];
                    scope.spawn(move || {
                        bytes.chunks(10_000).for_each(|part| sender.write_all(part).expect("send"));
                    });
                    self.stage.fill_from(&mut receiver, range.clone())
                });
                assert_eq!(found.expect("fill"), got as u64);
            }
            How::Slices => {
                let mut rest = &bytes[..];
                // SAFETY: no other code uses the test's file, and all bytes are stored to.
                unsafe {
                    for mut slice in self.stage.as_mut_slices(range.clone()).expect("slices") {
                        let (now, later) = rest.split_at(slice.len());
                        slice.copy_from_slice(now);
                        rest = later;
                    }
                    self.stage.assume_filled(range.clone()).expect("fill");
                }
                assert!(rest.is_empty());
            }
        }
        let of_model = &mut self.filled[range.start as usize..range.end as usize];
        for (n, byte) in of_model.iter_mut().enumerate() {
            *byte = (n < got).then_some(bytes[n]);
        }
        let filled = self.stage.filled().map(|range| range.end - range.start).sum::<u64>();
        assert_eq!(filled, self.filled.iter().flatten().count() as u64, "filled bytes");
    }
}

struct Session<'f> {
    file: &'f AtomicMappedFile,
    stages: Vec<Open<'f>>,
    views: Vec<(View<'f>, Vec<u8>)>,
}

impl<'f> Session<'f> {
    fn run(&mut self, op: &Op, model: &mut Model) {
        let len = model.bytes.len() as u64;
        match op {
            Op::Stage(place) => {
                let range = place.within(len);
                let stage = self.file.stage(range.clone()).expect("a stage");
                assert_eq!(stage.range(), range);
                let filled = vec![None; (range.end - range.start) as usize];
                self.stages.push(Open { stage, start: range.start, filled });
            }
            Op::Fill(n, place, seed, how) => {
                let count = self.stages.len().max(1);
                if let Some(open) = self.stages.get_mut(n % count) {
                    open.fill(*place, *seed, *how);
                }
            }
            Op::Commit(n) if !self.stages.is_empty() => {
                let open = self.stages.remove(n % self.stages.len());
                let end = open.end();
                let mut after = model.bytes.clone();
                if end <= len {
                    open.put_over(&mut after);
                }
                check_end(open.stage.commit(), end, len);
                model.bytes = after;
            }
            Op::CommitAll => self.commit_with(&[], None, model),
            Op::CommitWith(writes, new_len) => self.commit_with(writes, *new_len, model),
            Op::Forget(n) if !self.stages.is_empty() => {
                drop(self.stages.remove(n % self.stages.len()));
            }
            Op::Write(place, seed) => {
                let range = place.within(len);
                let bytes = Rng(*seed).bytes((range.end - range.start) as usize);
                self.file.write_at(&bytes, range.start).expect("a write");
                model.bytes[range.start as usize..range.end as usize].copy_from_slice(&bytes);
            }
            Op::View(place) => {
                let range = place.within(len);
                let bytes = model.bytes[range.start as usize..range.end as usize].to_vec();
                self.views.push((self.file.view(range).expect("a view"), bytes));
            }
            Op::DropView(n) if !self.views.is_empty() => {
                drop(self.views.remove(n % self.views.len()));
            }
            Op::Deploy(place) => {
                self.file.deploy(place.within(len)).expect("a deployment");
            }
            Op::SetLen(new) => {
                let done = self.file.set_len(*new);
                if self.may_resize(&done, *new) {
                    model.bytes.resize(*new as usize, 0);
                }
            }
            Op::Seal if model.sealed.is_none() => {
                self.file.snapshot("sealed").expect("a snapshot");
                model.sealed = Some(model.bytes.clone());
            }
            Op::RollBack => {
                if let Some(sealed) = &model.sealed {
                    let done = self.file.roll_back("sealed", None);
                    if self.may_resize(&done, sealed.len() as u64) {
                        model.bytes.clone_from(sealed);
                    }
                }
            }
            _ => {}
        }
    }

    /// Returns `true` if the length has changed. It may not where a view or a stage pins bytes.
    fn may_resize(&self, done: &Result<(), Error>, new: u64) -> bool {
        let is_lent = self.stages.iter().any(|open| open.stage.lent() > 0);
        match done {
            Ok(()) => {
                let first_gone = new - new % PAGE;
                let pins = self.stages.iter().filter(|open| open.stage.lent() > 128);
                let pins = pins.filter(|open| open.stage.lent() == open.filled.len() as u64);
                let mut pinned = pins.map(|open| open.stage.range().end);
                let is_shorter = new < self.file.len() + 1;
                assert!(
                    !is_shorter || pinned.all(|end| end <= first_gone || end <= new),
                    "lent bytes are cut off"
                );
                true
            }
            Err(Error::Pinned { .. }) => {
                assert!(is_lent || self.views.iter().any(|(view, _)| view.is_mapped()), "{done:?}");
                false
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn commit_with(&mut self, writes: &[(Place, u64)], new_len: Option<u64>, model: &mut Model) {
        let len = model.bytes.len() as u64;
        let mut after = model.bytes.clone();
        let mut tx = self.file.begin();
        if let Some(new) = new_len {
            tx.set_len(new).expect("a length");
            after.resize(new as usize, 0);
        }
        let now = after.len() as u64;
        for (place, seed) in writes {
            let range = place.within(now);
            let bytes = Rng(*seed).bytes((range.end - range.start) as usize);
            tx.write_at(&bytes, range.start).expect("a write");
            after[range.start as usize..range.end as usize].copy_from_slice(&bytes);
        }
        let end = self.stages.iter().map(Open::end).max().unwrap_or(0);
        let (mut stages, mut filled) = (Vec::new(), Vec::new());
        for open in self.stages.drain(..) {
            if end <= now {
                open.put_over(&mut after);
            }
            stages.push(open.stage);
            filled.push((open.start, open.filled));
        }
        let done = tx.commit_with(&mut stages);
        match done {
            Ok(()) => {
                assert!(end <= now && end <= len.max(now));
                assert!(stages.iter().all(|stage| stage.is_empty() && stage.lent() == 0));
                model.bytes = after;
            }
            Err(error) => {
                match error {
                    Error::PastEnd { .. } => assert!(end > now, "{error}"),
                    Error::Pinned { .. } => assert!(new_len.is_some_and(|new| new < len)),
                    error => panic!("{error}"),
                }
                // All is as before.
                let all = stages.into_iter().zip(filled);
                self.stages =
                    all.map(|(stage, (start, filled))| Open { stage, start, filled }).collect();
            }
        }
    }

    fn check(&self, model: &Model, what: &str) {
        assert_same(&read_all(self.file), &model.bytes, what);
        for (view, bytes) in &self.views {
            assert_same(&view.to_vec().expect("a view"), bytes, what);
        }
    }
}

fn check_end(done: Result<(), Error>, end: u64, len: u64) {
    match done {
        Ok(()) => assert!(end <= len),
        Err(Error::PastEnd { .. }) => assert!(end > len),
        Err(error) => panic!("{error}"),
    }
}

fn run(ground: &Ground, kind: u64, len: u64, ops: &[Op]) {
    let scratch = ground.scratch();
    let policies = [DeployPolicy::Lazy, DeployPolicy::Eager, DeployPolicy::Manual];
    let integrity = [Integrity::Off, Integrity::OnRead, Integrity::Off][kind as usize / 3 % 3];
    let options = ground.options().deploy(policies[kind as usize % 3]).integrity(integrity);
    let path = scratch.file("x");
    let bytes = Rng(kind).bytes(len as usize);
    std::fs::write(&path, &bytes).expect("a file");
    let mut model = Model { bytes, sealed: None };
    let mut rest = ops;
    loop {
        let file = options.clone().open(&path).expect("open");
        assert_same(&read_all(&file), &model.bytes, "after an opening");
        let end = rest.iter().position(|op| matches!(op, Op::Reopen(_))).unwrap_or(rest.len());
        let mut session = Session { file: &file, stages: Vec::new(), views: Vec::new() };
        for op in &rest[..end] {
            session.run(op, &mut model);
            session.check(&model, &format!("after {op:?}"));
        }
        // Stages that are alive, or leaked, mean nothing to the next session.
        session.stages.drain(..).skip(1).for_each(|open| std::mem::forget(open.stage));
        drop(session);
        if let Some(sealed) = &model.sealed {
            let snapshot = file.open_snapshot("sealed").expect("a snapshot");
            assert_same(&snapshot.read_vec().expect("read"), sealed, "the snapshot");
        }
        let Some(Op::Reopen(mode)) = rest.get(end) else {
            {
                file.close(CloseMode::Spatial).expect("close");
                return;
            }
        };
        file.close(*mode).expect("close");
        rest = &rest[end + 1..];
    }
}

fn check(ground: &Ground) {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    let config =
        Config { failure_persistence: None, cases: cases.unwrap_or(CASES), ..Config::default() };
    let all = (0..9u64, 1..4 * REGION, prop::collection::vec(op(), 1..40));
    let mut runner = TestRunner::new(config);
    let result = runner.run(&all, |(kind, len, ops)| {
        std::panic::catch_unwind(|| run(ground, kind, len, &ops)).map_err(|panic| {
            let said = panic.downcast_ref::<String>().cloned();
            TestCaseError::fail(said.unwrap_or_else(|| "a panic".to_owned()))
        })
    });
    if let Err(failed) = result {
        panic!("{failed}");
    }
}

#[test]
fn a_file_with_stages_is_like_vectors_in_ram() {
    check(&common::ram());
}

#[test]
fn a_file_with_stages_is_like_vectors_on_persistent_memory() {
    common::dax().iter().for_each(check);
}

#[test]
fn a_file_with_stages_is_like_vectors_on_page_cache() {
    common::page_cache().iter().for_each(check);
}
