//! The kinds of operation, the steps before each, and the changes that each makes.
//!
//! Owns: the operations that the lab kills at every event or single-steps, with the states before
//! and after. It also owns how a child does them, and how a child inspects the files afterwards.
//!
//! May import: nothing of this folder.

use atomic_mmap::testing::recorder::Recorder;
use atomic_mmap::{AtomicMappedFile, CloseMode, DeployPolicy, Durability, Error, Medium, Options};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const PAGE: u64 = 4096;
const REGION: u64 = 64 * PAGE;
/// Length of the file: two regions and a part of a page. That reaches all paths, and is quick to
/// copy.
const LEN: u64 = 2 * REGION + 1000;
/// Number of the step under test. Each step fills its ranges with bytes that follow from its
/// number.
const ACT: u64 = 200;

/// A step of a child.
#[derive(Clone, Debug)]
pub enum Step {
    /// Writes bytes at an offset.
    Write(u64, u64),
    /// Writes several ranges in a transaction.
    Tx {
        /// Offsets and lengths.
        parts: Vec<(u64, u64)>,
        /// The transaction reads the ranges before it writes them.
        reads: bool,
    },
    /// Changes the length.
    SetLen(u64),
    /// Makes this number of bytes the whole contents.
    Replace(u64),
    /// Deploys pages, which gives chunks back.
    Deploy(u64, u64),
    /// Makes a durable point.
    Sync,
    /// Takes a view that stays until the end.
    View(u64, u64),
    /// Closes the file.
    Close(CloseMode),
    /// Opens the file, and creates it if it does not exist.
    Open,
}

/// A kind of operation.
#[derive(Clone, Debug)]
pub struct Kind {
    /// The name of the kind.
    pub name: &'static str,
    /// The steps before the operation.
    pub before: Vec<Step>,
    /// The operation under test.
    pub act: Step,
    /// The durability of the file.
    pub durability: Durability,
    /// A planted bug, which the lab must find.
    pub planted: Option<Planted>,
}

/// The bugs that can be planted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// Does a write as two writes.
    InTwo,
    /// Returns without doing the operation.
    NotAtAll,
    /// Changes a byte of both slots behind the engine's back, during the operation.
    Stray,
}

/// All planted bugs.
pub const PLANTED: [Planted; 3] = [Planted::InTwo, Planted::NotAtAll, Planted::Stray];

/// Returns all kinds, except for the recovery of what a kill has left.
pub fn all() -> Vec<Kind> {
    use Step::*;
    let with = |name, extra: &[Step], act: Step| {
        let mut before = vec![Open, Write(0, LEN)];
        before.extend_from_slice(extra);
        Kind { name, before, act, durability: Durability::OnSync, planted: None }
    };
    let p = |page: u64| page * PAGE;
    let many = |reads| Tx { parts: (0..90).map(|n| (p(n) + 50, 20)).collect(), reads };
    vec![
        with("logged flip inside a slice", &[Write(p(3) + 100, 20)], Write(p(3) + 70, 24)),
        with("logged flip over slices", &[Write(p(3) + 64, 100)], Write(p(3) + 30, 200)),
        with("word, one store in ram", &[Write(p(7) + 5, 90)], Write(p(7) + 70, 2)),
        with("slice, one store in ram", &[Write(p(7) + 5, 90)], Write(p(7) + 64, 64)),
        with("part of a slice, one store in ram", &[], Write(p(7) + 131, 49)),
        with(
            "slice, direct store behind an undeployed one in ram",
            &[Write(p(7) + 5, 90), Write(p(7) + 70, 20)],
            Write(p(7) + 64, 64),
        ),
        with("flip of slices", &[Write(p(5) + 180, 30)], Write(p(5) + 100, 700)),
        with("flip of a page, logged on dax", &[Write(p(6) + 60, 10)], Write(p(6), PAGE)),
        with("region word, two pages", &[Write(p(9), 65)], Write(p(8), 2 * PAGE)),
        with("region word, region's lock", &[], Write(p(16), 8 * PAGE)),
        with("undo entry over pages", &[Write(p(31), 100)], Write(p(30) + 50, 2 * PAGE)),
        with("undo entry over regions", &[Write(REGION - 90, 40)], Write(REGION - 100, 200)),
        with("undo entry spilled", &[], many(false)),
        with(
            "logged data under a view",
            &[View(p(40), p(42)), Write(p(40) + 10, 300)],
            Write(p(40) + 100, 500),
        ),
        with(
            "transaction with reads",
            &[Write(p(51) + 30, 40)],
            Tx { parts: vec![(p(50) + 8, 16), (p(51), 200), (p(90) + 60, 8)], reads: true },
        ),
        with("deploy of pages", &[Write(p(4) + 50, 30)], Deploy(p(2), p(6))),
        with(
            "deploy and punch",
            &[Deploy(0, LEN), Write(p(4), PAGE), Write(p(70), 300)],
            Deploy(0, LEN),
        ),
        with("grow", &[], SetLen(LEN + REGION + 77)),
        with("grow past a chunk", &[Deploy(0, LEN)], SetLen(5 << 20)),
        with("shrink into a slice", &[Write(LEN - 30, 30)], SetLen(REGION + p(5) + 33)),
        with("shrink to nothing", &[], SetLen(0)),
        with("a shorter document", &[Write(p(4), 300)], Replace(p(5) + 33)),
        with("close fast", &[Write(50, 20), Write(p(1), 65)], Close(CloseMode::Fast)),
        with(
            "close spatial",
            &[Deploy(0, LEN), Write(20, 20), Write(p(1), 640), Write(p(90), PAGE)],
            Close(CloseMode::Spatial),
        ),
        with("open what was closed fast", &[Write(50, 20), Close(CloseMode::Fast)], Open),
        with("open a plain file", &[Write(50, 20), Close(CloseMode::Spatial)], Open),
        Kind {
            name: "create",
            before: Vec::new(),
            act: Open,
            durability: Durability::OnSync,
            planted: None,
        },
    ]
}

/// Returns more kinds, for files with durable points. Without a sync, all other kinds write in
/// place there.
pub fn of_durable_points() -> Vec<Kind> {
    use Durability::{AtomicSync, EveryWrite, OnSync};
    use Step::*;
    let with = |name, durability, extra: &[Step], act: Step| {
        let mut before = vec![Open, Write(0, LEN), Sync];
        before.extend_from_slice(extra);
        Kind { name, before, act, durability, planted: None }
    };
    let p = |page: u64| page * PAGE;
    let many = || Tx { parts: (0..90).map(|n| (p(n) + 50, 20)).collect(), reads: false };
    // Each record takes 4 of the 16 blocks.
    let rounds = |n: u64| (0..n).flat_map(|k| [Write(p(5 * k), 13_000), Sync]).collect::<Vec<_>>();
    let full = [rounds(3), vec![Write(p(20), 13_000)]].concat();
    let round = [rounds(6), vec![Write(p(20), 13_000)]].concat();
    vec![
        with("in place in a slice", OnSync, &[Write(p(3), 200)], Write(p(3) + 70, 24)),
        with("in place over slices", OnSync, &[Write(p(3), 900)], Write(p(3) + 30, 700)),
        with("in place beside flips", OnSync, &[Write(p(3) + 64, 300)], Write(p(3) + 30, 700)),
        with(
            "in place over pages",
            OnSync,
            &[Write(p(30) + 2500, 3000)],
            Write(p(30) + 3000, 1500),
        ),
        with("in place in 90 pages", OnSync, &[many()], many()),
        // A flip record that was still valid would be applied over this write.
        with(
            "in place, synced, and then flipped",
            OnSync,
            &[Write(p(3), 200), Write(p(3) + 30, 700), Sync],
            Write(p(3) + 30, 500),
        ),
        with("flips of durable slices", OnSync, &[], many()),
        with("sync by journal", OnSync, &[Write(p(3), 200), Write(p(70), 9000)], Sync),
        with("sync by flush", OnSync, &[Write(p(3), 300_000)], Sync),
        with("sync with a full journal", OnSync, &full, Sync),
        with("sync round the journal's end", OnSync, &round, Sync),
        with("a write that is synced", EveryWrite, &[Write(p(3), 200)], Write(p(3) + 30, 700)),
        with("a growth that is synced", EveryWrite, &[Write(p(3), 200)], SetLen(LEN + 5000)),
        with("a shrink of a point", OnSync, &[Write(p(3), 200)], SetLen(REGION + p(5) + 33)),
        with("a shorter document of a point", OnSync, &[Write(p(3), 200)], Replace(p(5) + 33)),
        with("a document that is synced", EveryWrite, &[Write(p(3), 200)], Replace(900)),
        with("deploy of a point", OnSync, &[Write(p(4) + 7, 30)], Deploy(p(2), p(6))),
        with("a write that will be undone", AtomicSync, &[Write(p(3), 20)], Write(p(3), 700)),
        with("a sync of all or nothing", AtomicSync, &[Write(p(3), 9000)], Sync),
        with("a close of all or nothing", AtomicSync, &[Write(p(3), 9000)], Close(CloseMode::Fast)),
    ]
}

/// Returns a kind with a planted bug. A sweep over its events and single steps both find each bug.
pub fn planted(planted: Planted) -> Kind {
    let is_right = |kind: &Kind| kind.name == "undo entry over regions";
    let kind = all().into_iter().find(is_right).expect("a kind");
    Kind { planted: Some(planted), ..kind }
}

fn fill(number: u64, at: u64, len: u64) -> Vec<u8> {
    // No byte is 0, and neighbouring bytes and steps differ.
    (at..at + len).map(|n| (1 + (n * 31 + (n >> 8) * 7 + number * 59) % 255) as u8).collect()
}

impl Step {
    fn ranges(&self) -> Vec<(u64, u64)> {
        match self {
            Step::Write(at, len) => vec![(*at, *len)],
            Step::Tx { parts, .. } => parts.clone(),
            Step::Replace(len) => vec![(0, *len)],
            _ => Vec::new(),
        }
    }

    /// Returns the bytes that the step with this number writes to each of its ranges.
    fn bytes(&self, number: u64) -> Vec<Vec<u8>> {
        self.ranges().into_iter().map(|(at, len)| fill(number, at, len)).collect()
    }

    fn apply(&self, number: u64, bytes: &mut Vec<u8>) {
        if let Step::SetLen(len) | Step::Replace(len) = self {
            bytes.resize(*len as usize, 0);
        }
        for ((at, len), new) in self.ranges().into_iter().zip(self.bytes(number)) {
            bytes[at as usize..(at + len) as usize].copy_from_slice(&new);
        }
    }
}

/// The bytes of the file as every reader sees them, and at the last durable point.
struct Bytes {
    seen: Vec<u8>,
    durable: Vec<u8>,
}

impl Kind {
    /// Returns the states that are allowed after a process crash: before and after the operation.
    pub fn states(&self) -> [Vec<u8>; 2] {
        let undone = self.durability == Durability::AtomicSync;
        self.bytes().map(|bytes| if undone { bytes.durable } else { bytes.seen })
    }

    /// Returns the states that are allowed after a restart of the machine: before and after the
    /// operation. If the operation makes two durable points, the first of them holds the bytes
    /// before the operation.
    pub fn points(&self) -> [Vec<u8>; 3] {
        let [before, after] = self.bytes();
        [before.durable, before.seen, after.durable]
    }

    fn bytes(&self) -> [Bytes; 2] {
        let mut bytes = vec![0; LEN as usize];
        let mut durable = bytes.clone();
        let apply = |bytes: &mut Vec<u8>, durable: &mut Vec<u8>, step: &Step, number| {
            let len = bytes.len();
            step.apply(number, bytes);
            let is_point = match step {
                Step::Open | Step::View(..) => false,
                Step::Sync | Step::Deploy(..) | Step::Close(_) => true,
                Step::SetLen(_) | Step::Replace(_) if bytes.len() < len => true,
                _ => self.durability == Durability::EveryWrite,
            };
            if is_point {
                durable.clone_from(bytes);
            }
        };
        for (step, number) in self.before.iter().zip(1..) {
            apply(&mut bytes, &mut durable, step, number);
        }
        let before = Bytes { seen: bytes.clone(), durable: durable.clone() };
        apply(&mut bytes, &mut durable, &self.act, ACT);
        [before, Bytes { seen: bytes, durable }]
    }
}

/// The place where a kind is played.
#[derive(Clone, Copy, Debug)]
pub struct Stage<'a> {
    /// The home file.
    pub path: &'a Path,
    /// The forced medium.
    pub medium: Medium,
    /// The recorder that watches and kills. Without one, the code runs as in production.
    pub recorder: Option<&'a Recorder>,
}

impl Stage<'_> {
    fn options(&self) -> Options {
        AtomicMappedFile::options()
            .create(true)
            .len(LEN)
            .max_len(8 << 20)
            // The shortest journal, which wraps around in some kinds.
            .journal_len(64 << 10)
            .medium(self.medium)
            // Only steps deploy pages: otherwise a read would change the files.
            .deploy(DeployPolicy::Manual)
    }

    /// Opens the file and recovers it.
    pub fn open(&self) -> Result<AtomicMappedFile, Error> {
        self.open_with(Durability::OnSync)
    }

    fn open_with(&self, durability: Durability) -> Result<AtomicMappedFile, Error> {
        let options = self.options().durability(durability);
        match self.recorder {
            Some(recorder) => {
                // The number of events must be the same in each run.
                recorder.hold_background();
                options.open_recorded(recorder, self.path)
            }
            None => options.open(self.path),
        }
    }

    /// Plays a kind: the steps before, then `begin`, the operation, and `end`. Runs in a child,
    /// which leaves the file open.
    pub fn play(&self, kind: &Kind, begin: impl FnOnce(), end: impl FnOnce()) {
        let mut file = None;
        for (step, number) in kind.before.iter().zip(1..) {
            self.step(kind, &mut file, step, &step.bytes(number)).expect("what comes before");
        }
        // Made beforehand, so that only the operation itself is under test.
        let bytes = kind.act.bytes(ACT);
        match (kind.planted, &kind.act) {
            (None, _) => {
                begin();
                self.step(kind, &mut file, &kind.act, &bytes).expect("the operation");
            }
            (Some(Planted::InTwo), &Step::Write(at, _)) => {
                let file = file.as_ref().expect("open");
                let (first, second) = bytes[0].split_at(bytes[0].len() / 2);
                begin();
                file.write_at(first, at).expect("the first half");
                file.write_at(second, at + first.len() as u64).expect("the second half");
            }
            (Some(Planted::NotAtAll), _) => begin(),
            (Some(Planted::Stray), &Step::Write(at, _)) => {
                let reflection = file.as_ref().expect("open").reflection_path().to_owned();
                begin();
                for (path, at) in
                    [(self.path, at), (&reflection, atomic_mmap::testing::layout::reflection(at))]
                {
                    let file = File::options().write(true).open(path).expect("a file");
                    file.write_all_at(&[0], at).expect("a byte");
                }
                self.step(kind, &mut file, &kind.act, &bytes).expect("the operation");
            }
            (planted, act) => panic!("{planted:?} cannot be planted into {act:?}"),
        }
        end();
        std::mem::forget(file);
    }

    /// Does one step. `bytes` are those of [`Step::bytes`].
    fn step(
        &self,
        kind: &Kind,
        opened: &mut Option<AtomicMappedFile>,
        step: &Step,
        bytes: &[Vec<u8>],
    ) -> Result<(), Error> {
        let file = match step {
            Step::Open => {
                *opened = Some(self.open_with(kind.durability)?);
                return Ok(());
            }
            Step::Close(mode) => return opened.take().expect("open").close(*mode),
            _ => opened.as_ref().expect("open"),
        };
        match step {
            Step::Write(at, _) => file.write_at(&bytes[0], *at),
            Step::Tx { parts, reads } => {
                let mut tx = file.begin();
                for (&(at, len), bytes) in parts.iter().zip(bytes) {
                    if *reads {
                        // The transaction reads more than it writes, so that the commit must
                        // validate some of its reads.
                        tx.read_at(&mut vec![0; len as usize + 100], at)?;
                        tx.read_at(&mut [0; 8], at + 2 * PAGE)?;
                    }
                    tx.write_at(bytes, at)?;
                }
                tx.commit()
            }
            Step::SetLen(len) => file.set_len(*len),
            Step::Replace(_) => file.replace(&bytes[0]),
            Step::Sync => file.sync().map(drop),
            Step::Deploy(start, end) => file.deploy(*start..*end).map(drop),
            Step::View(start, end) => {
                // The view keeps its pins as long as the file is open.
                std::mem::forget(file.view(*start..*end)?);
                Ok(())
            }
            Step::Open | Step::Close(_) => Ok(()),
        }
    }
}

/// Opens and recovers the files at `path`, and returns the number of the state that they hold. Then
/// closes the file, directly or after a fast close, and checks the plain bytes. Runs in a child.
pub fn look(stage: &Stage<'_>, states: &[Vec<u8>], fast_first: bool) -> Result<usize, String> {
    let call = |what: &'static str| move |e: Error| format!("{what}: {e}");
    let file = stage.open().map_err(call("cannot be opened"))?;
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(&mut bytes, 0).map_err(call("cannot be read"))?;
    let state = states
        .iter()
        .position(|state| *state == bytes)
        .ok_or_else(|| format!("holds no state that may be: {}", differences(&bytes, states)))?;
    let file = if fast_first {
        file.close(CloseMode::Fast).map_err(call("cannot be closed fast"))?;
        stage.open().map_err(call("cannot be opened again"))?
    } else {
        file
    };
    file.close(CloseMode::Spatial).map_err(call("cannot be closed"))?;
    let plain = std::fs::read(stage.path).map_err(|e| format!("cannot be read: {e}"))?;
    if plain != bytes {
        let wrong = differences(&plain, &[bytes]);
        return Err(format!("the closed file holds other bytes than were read: {wrong}"));
    }
    let folder = stage.path.parent().expect("a folder");
    let left: Vec<_> = std::fs::read_dir(folder)
        .map_err(|e| e.to_string())?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path != stage.path)
        .collect();
    if !left.is_empty() {
        return Err(format!("closed, and these are left: {left:?}"));
    }
    Ok(state)
}

fn differences(found: &[u8], states: &[Vec<u8>]) -> String {
    let one = |state: &Vec<u8>| {
        if state.len() != found.len() {
            return format!("{} bytes instead of {}", found.len(), state.len());
        }
        let differ = |n: &usize| found[*n] != state[*n];
        let count = (0..found.len()).filter(differ).count();
        let first = (0..found.len()).find(differ).unwrap_or(0);
        let last = (0..found.len()).rfind(differ).unwrap_or(0);
        format!("{count} bytes of {first}..={last} differ")
    };
    let all: Vec<String> = states.iter().map(one).collect();
    all.join(", from the other state ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_different_and_so_are_states_that_an_operation_changes() {
        let kinds = [all(), of_durable_points()].concat();
        let names: BTreeSet<_> = kinds.iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), kinds.len());
        for kind in &all() {
            let [before, after] = kind.states();
            let changes = matches!(
                kind.act,
                Step::Write(..) | Step::Tx { .. } | Step::SetLen(_) | Step::Replace(_)
            );
            assert_eq!(before != after, changes, "{}", kind.name);
        }
    }
}
