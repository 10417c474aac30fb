//! The kinds of operation, the steps before each, and the changes that each makes.
//!
//! Owns: the operations that the lab kills at every event or single-steps, with the states before
//! and after. It also owns how a child does them.
//!
//! May import: `space`, `state`.

use super::space::SpaceStep;
use super::state::State;
use atomic_mmap::testing::recorder::Recorder;
use atomic_mmap::{
    AtomicMappedFile, CloseMode, DeployPolicy, Durability, Error, Integrity, Medium, Options,
};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub(super) const PAGE: u64 = 4096;
pub(super) const REGION: u64 = 64 * PAGE;
/// Length of the file: two regions and a part of a page. That reaches all paths, and is quick to
/// copy.
pub(super) const LEN: u64 = 2 * REGION + 1000;
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
    /// Opens the file with this use of page sums. All other steps that open keep the use.
    OpenAs(Integrity),
    /// Verifies all pages.
    Verify,
    /// Takes a snapshot of this name.
    Seal(&'static str),
    /// Drops the snapshot of this name.
    Drop(&'static str),
    /// Goes back to the snapshot of the first name. The present becomes a snapshot of the second.
    RollBack(&'static str, Option<&'static str>),
    /// Replaces the content by that of a stream.
    Import(&'static Import),
    /// Stages, background deployment, a budget.
    Space(SpaceStep),
}

/// A stream with a whole file.
#[derive(Debug)]
pub struct Import {
    /// The name of its snapshot.
    pub name: &'static str,
    /// The content of that.
    pub bytes: Vec<u8>,
    /// The bytes of the stream.
    pub stream: Vec<u8>,
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
    /// The snapshot has the bytes that the operation writes, as if no old ones had been kept.
    Unkept,
    /// The file has lost its page sums.
    Unsummed,
}

/// The planted bugs that every file can have.
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

/// Returns bytes that name the step that wrote them.
pub(super) fn fill(number: u64, at: u64, len: u64) -> Vec<u8> {
    // No byte is 0, and neighbouring bytes and steps differ.
    (at..at + len).map(|n| (1 + (n * 31 + (n >> 8) * 7 + number * 59) % 255) as u8).collect()
}

impl Step {
    fn ranges(&self) -> Vec<(u64, u64)> {
        match self {
            Step::Write(at, len) => vec![(*at, *len)],
            Step::Tx { parts, .. } => parts.clone(),
            Step::Replace(len) => vec![(0, *len)],
            Step::Space(step) => step.ranges(),
            _ => Vec::new(),
        }
    }

    /// Returns the bytes that the step with this number writes to each of its ranges.
    fn bytes(&self, number: u64) -> Vec<Vec<u8>> {
        self.ranges().into_iter().map(|(at, len)| fill(number, at, len)).collect()
    }

    fn apply(&self, number: u64, state: &mut State) {
        match *self {
            Step::SetLen(len) | Step::Replace(len) => state.bytes.resize(len as usize, 0),
            Step::OpenAs(integrity) => state.has_sums = integrity != Integrity::Off,
            Step::Seal(name) => state.seal(name),
            Step::Drop(name) => drop(state.sealed.remove(name)),
            Step::RollBack(name, undo) => {
                let back = state.sealed[name].clone();
                undo.into_iter().for_each(|undo| state.seal(undo));
                state.bytes = back;
            }
            Step::Import(Import { name, bytes, .. }) => {
                state.bytes.clone_from(bytes);
                state.seal(name);
            }
            _ => {}
        }
        for ((at, len), new) in self.ranges().into_iter().zip(self.bytes(number)) {
            state.bytes[at as usize..(at + len) as usize].copy_from_slice(&new);
        }
    }

    /// Returns `true` if the step changes no bytes, and counts at once wherever durable points are
    /// kept.
    fn is_durable_by_itself(&self) -> bool {
        matches!(self, Step::OpenAs(_) | Step::Drop(_))
    }
}

/// The file as every reader sees it, and at the last durable point.
struct States {
    seen: State,
    durable: State,
}

impl Kind {
    /// Returns the states that are allowed after a process crash: before and after the operation.
    pub fn states(&self) -> [State; 2] {
        let undone = self.durability == Durability::AtomicSync;
        self.both().map(|states| if undone { states.durable } else { states.seen })
    }

    /// Returns the states that are allowed after a restart of the machine: before and after the
    /// operation. If the operation makes two durable points, the first of them holds the bytes
    /// before the operation.
    pub fn points(&self) -> [State; 3] {
        let [before, after] = self.both();
        [before.durable, before.seen, after.durable]
    }

    fn both(&self) -> [States; 2] {
        let mut seen = State::new(LEN);
        let mut durable = seen.clone();
        let apply = |seen: &mut State, durable: &mut State, step: &Step, number| {
            let len = seen.bytes.len();
            step.apply(number, seen);
            let is_point = match step {
                Step::Open | Step::OpenAs(_) | Step::View(..) | Step::Verify | Step::Drop(_) => {
                    false
                }
                Step::Sync | Step::Deploy(..) | Step::Close(_) => true,
                Step::Seal(_) | Step::RollBack(..) | Step::Import(_) => true,
                Step::SetLen(_) | Step::Replace(_) if seen.bytes.len() < len => true,
                Step::Space(SpaceStep::Turns) => self.durability != Durability::AtomicSync,
                _ => self.durability == Durability::EveryWrite,
            };
            if is_point {
                durable.clone_from(seen);
            } else if step.is_durable_by_itself() {
                step.apply(number, durable);
            }
        };
        for (step, number) in self.before.iter().zip(1..) {
            apply(&mut seen, &mut durable, step, number);
        }
        let before = States { seen: seen.clone(), durable: durable.clone() };
        apply(&mut seen, &mut durable, &self.act, ACT);
        [before, States { seen, durable }]
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

    /// Opens the file and recovers it. It keeps its page sums, or has none.
    pub fn open(&self) -> Result<AtomicMappedFile, Error> {
        self.open_with(self.options())
    }

    /// Opens the file with this use of page sums.
    pub fn open_as(&self, integrity: Integrity) -> Result<AtomicMappedFile, Error> {
        self.open_with(self.options().integrity(integrity))
    }

    fn open_with(&self, options: Options) -> Result<AtomicMappedFile, Error> {
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
            (Some(Planted::Unkept), &Step::Write(at, len)) => {
                let (file, name) = (file.as_ref().expect("open"), "a");
                let mut old = vec![0; len as usize];
                file.read_at(&mut old, at).expect("the old bytes");
                file.drop_snapshot(name).expect("there is one");
                file.write_at(&bytes[0], at).expect("too early");
                file.snapshot(name).expect("too late");
                file.write_at(&old, at).expect("the old bytes");
                begin();
                file.write_at(&bytes[0], at).expect("the operation");
            }
            (Some(Planted::Unsummed), _) => {
                drop(file.take());
                file = Some(self.open_as(Integrity::Off).expect("open"));
                begin();
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
        let options = || self.options().durability(kind.durability);
        let file = match step {
            Step::Open => {
                *opened = Some(self.open_with(options())?);
                return Ok(());
            }
            Step::OpenAs(integrity) => {
                *opened = Some(self.open_with(options().integrity(*integrity))?);
                return Ok(());
            }
            Step::Space(SpaceStep::OpenTight) => {
                *opened = Some(self.open_with(options().reflection_budget(0))?);
                return Ok(());
            }
            Step::Close(mode) => return opened.take().expect("open").close(*mode).map(drop),
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
            Step::Verify => file.verify(0..file.len()).map(drop),
            Step::Seal(name) => file.snapshot(name).map(drop),
            Step::Drop(name) => file.drop_snapshot(name),
            Step::RollBack(name, undo) => file.roll_back(name, *undo),
            Step::Import(import) => file.import_over(&import.stream[..]).map(drop),
            Step::Space(step) => step.run(file, bytes),
            Step::Open | Step::OpenAs(_) | Step::Close(_) => Ok(()),
        }
    }
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
