//! The operations of the writer on a file of one thread, and the states that a power loss may
//! leave.
//!
//! A script is a sequence of operations that follows from a seed alone. So the checker knows the
//! exact bytes of the file after each operation. It also knows which of these states are durable
//! points.

use atomic_mmap::{AtomicMappedFile, CloseMode, Durability};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A file that a single thread operates on.
#[derive(Clone, Copy)]
pub struct Plan {
    pub name: &'static str,
    pub durability: Durability,
    /// Length in bytes when the file is created.
    pub len: u64,
    /// Approximate number of operations between two syncs.
    pub between_syncs: u64,
    /// One operation out of this number changes the length. `None`: one in twenty does.
    pub between_lengths: Option<u8>,
    /// The file has page sums, which each read verifies, and snapshots.
    pub is_sealed: bool,
}

const PLAN: Plan = Plan {
    name: "by-sync",
    durability: Durability::OnSync,
    len: 300_000,
    between_syncs: 3,
    between_lengths: None,
    is_sealed: false,
};

/// One plan for each mode, and some special ones. Two have page sums and snapshots. One syncs so
/// rarely that its points are too long for the journal. The other shrinks and grows all the time,
/// because file systems have special code for that.
pub const PLANS: &[Plan] = &[
    PLAN,
    Plan { name: "seldom", len: 700_000, between_syncs: 12, ..PLAN },
    Plan {
        name: "every-write",
        durability: Durability::EveryWrite,
        len: 200_000,
        between_syncs: 9,
        ..PLAN
    },
    Plan {
        name: "all-or-nothing",
        durability: Durability::AtomicSync,
        len: 250_000,
        between_syncs: 4,
        ..PLAN
    },
    Plan { name: "resized", len: 60_000, between_lengths: Some(2), ..PLAN },
    Plan { name: "sealed", len: 220_000, between_syncs: 6, is_sealed: true, ..PLAN },
    Plan {
        name: "sealed-all-or-nothing",
        durability: Durability::AtomicSync,
        len: 120_000,
        between_syncs: 6,
        is_sealed: true,
        ..PLAN
    },
];

/// The shortest possible journal, which wraps around every sixteen points.
pub const JOURNAL_LEN: u64 = 64 << 10;
const LONGEST_FILE: u64 = 1_200_000;
/// A file of at most this length is not shrunk.
const SHORTEST_CUT: u64 = 20_000;
/// The most snapshots of a file at one time.
const SNAPSHOTS: usize = 3;
/// One operation out of this number is about snapshots, in a file that has some.
const BETWEEN_SNAPSHOTS: u8 = 5;

/// One operation.
pub enum Op {
    /// Creates the file and opens it.
    Create,
    /// One write, or several writes as a transaction.
    Write(Vec<(u64, Vec<u8>)>),
    Sync,
    SetLen(u64),
    Deploy(Range<u64>),
    Close(CloseMode),
    Open,
    /// Removes the closed file, durably.
    Remove,
    /// Takes a snapshot of this name.
    Seal(String),
    /// Drops the snapshot of this name.
    Drop(String),
    /// Goes back to the snapshot of the first name. The present becomes one of the second name.
    RollBack(String, Option<String>),
}

/// The content of a file: its bytes, and those of its snapshots by their names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Content {
    pub bytes: Vec<u8>,
    pub sealed: Sealed,
}

/// The snapshots of a file.
pub type Sealed = BTreeMap<String, Arc<Vec<u8>>>;

/// The state of a file: its content, or `None` if it does not exist.
pub type State = Option<Content>;

impl Content {
    /// Reads an open file, and verifies all of its pages.
    pub fn of(file: &AtomicMappedFile) -> Result<Content, String> {
        let mut bytes = vec![0; file.len() as usize];
        file.read_at(&mut bytes, 0).map_err(|e| e.to_string())?;
        let mut sealed = Sealed::new();
        for info in file.snapshots() {
            let snapshot = file.open_snapshot(&info.name).map_err(|e| e.to_string())?;
            let bytes = snapshot.read_vec().map_err(|e| e.to_string())?;
            sealed.insert(info.name, Arc::new(bytes));
        }
        let verified = file.verify(0..file.len()).map_err(|e| e.to_string())?;
        match &verified.damaged[..] {
            [] => Ok(Content { bytes, sealed }),
            damaged => Err(format!("sums do not fit at {damaged:?}")),
        }
    }

    fn seal(&mut self, name: &str) {
        self.sealed.insert(name.to_owned(), Arc::new(self.bytes.clone()));
    }
}

/// An endless sequence of operations.
pub struct Script {
    plan: Plan,
    random: fastrand::Rng,
    len: u64,
    closed: Option<CloseMode>,
    is_there: bool,
    /// The names of the snapshots, and the length of the file in each.
    sealed: BTreeMap<String, u64>,
    next_name: u64,
}

impl Script {
    pub fn new(plan: Plan, seed: u64) -> Script {
        let mut random = fastrand::Rng::with_seed(seed);
        // Plans with the same seed do different operations.
        plan.name
            .bytes()
            .for_each(|byte| random = fastrand::Rng::with_seed(random.u64(..) ^ u64::from(byte)));
        let (closed, is_there, sealed) = (None, false, BTreeMap::new());
        Script { plan, random, len: 0, closed, is_there, sealed, next_name: 0 }
    }

    /// Returns the next operation.
    pub fn next(&mut self) -> Op {
        if !self.is_there {
            self.is_there = true;
            self.len = self.plan.len;
            return Op::Create;
        }
        if let Some(mode) = self.closed.take() {
            // Companions that stay would belong to no file.
            let leaves_one = mode == CloseMode::Spatial && !self.plan.is_sealed;
            if leaves_one && self.random.u8(..3) == 0 {
                self.is_there = false;
                return Op::Remove;
            }
            return Op::Open;
        }
        if self.random.u64(..self.plan.between_syncs) == 0 {
            return Op::Sync;
        }
        if self.plan.is_sealed && self.random.u8(..BETWEEN_SNAPSHOTS) == 0 {
            return self.of_snapshots();
        }
        let changes_len = self.plan.between_lengths.is_some_and(|n| self.random.u8(..n) == 0);
        match self.random.u8(..if changes_len { 2 } else { 40 }) {
            0 => {
                self.len = (self.len + self.random.u64(1..100_000)).min(LONGEST_FILE);
                Op::SetLen(self.len)
            }
            1 if self.len > SHORTEST_CUT => {
                self.len -= self.random.u64(1..self.len / 3);
                Op::SetLen(self.len)
            }
            2 => Op::Deploy(0..self.len),
            3 => {
                let from = self.random.u64(..self.len);
                Op::Deploy(from..(from + 50_000).min(self.len))
            }
            4 => self.close(CloseMode::Fast),
            5 => self.close(CloseMode::Spatial),
            6..10 => {
                let count = self.random.usize(2..4);
                Op::Write((0..count).map(|_| self.range(3_000)).collect())
            }
            10..14 => Op::Write(vec![self.range(150_000)]),
            14..24 => Op::Write(vec![self.page_aligned()]),
            _ => Op::Write(vec![self.range(2_000)]),
        }
    }

    fn of_snapshots(&mut self) -> Op {
        self.next_name += 1;
        let name = format!("{:05}", self.next_name);
        let has_room = self.sealed.len() < SNAPSHOTS;
        let names: Vec<&String> = self.sealed.keys().collect();
        let chosen = self.random.choice(names).cloned();
        let undo = (self.random.bool() && has_room).then(|| name.clone());
        match (self.random.u8(..4), chosen) {
            (0, Some(chosen)) => {
                let back = self.sealed[&chosen];
                let was = std::mem::replace(&mut self.len, back);
                self.sealed.extend(undo.clone().map(|undo| (undo, was)));
                Op::RollBack(chosen, undo)
            }
            (1, Some(chosen)) => self.drop_snapshot(chosen),
            (_, Some(chosen)) if !has_room => self.drop_snapshot(chosen),
            _ => {
                self.sealed.insert(name.clone(), self.len);
                Op::Seal(name)
            }
        }
    }

    fn drop_snapshot(&mut self, name: String) -> Op {
        self.sealed.remove(&name);
        Op::Drop(name)
    }

    fn close(&mut self, mode: CloseMode) -> Op {
        self.closed = Some(mode);
        Op::Close(mode)
    }

    fn range(&mut self, longest: u64) -> (u64, Vec<u8>) {
        let len = self.random.u64(1..=longest.min(self.len));
        let at = self.random.u64(..=self.len - len);
        (at, self.bytes(len))
    }

    fn page_aligned(&mut self) -> (u64, Vec<u8>) {
        const PAGE: u64 = 4096;
        let pages = self.len / PAGE;
        let count = self.random.u64(1..=4.min(pages));
        let at = self.random.u64(..=pages - count) * PAGE;
        (at, self.bytes(count * PAGE))
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.random.fill(&mut bytes);
        bytes
    }
}

/// Returns the state after an operation.
pub fn after(plan: &Plan, before: &State, op: &Op) -> State {
    let mut content = match (op, before) {
        (Op::Create, _) => {
            let bytes = vec![0; plan.len as usize];
            return Some(Content { bytes, sealed: Sealed::new() });
        }
        (Op::Remove, _) => return None,
        (_, None) => unreachable!("nothing else is done to a file that is not there"),
        (_, Some(content)) => content.clone(),
    };
    match op {
        Op::Write(parts) => {
            for (at, data) in parts {
                content.bytes[*at as usize..][..data.len()].copy_from_slice(data);
            }
        }
        Op::SetLen(len) => content.bytes.resize(*len as usize, 0),
        Op::Seal(name) => content.seal(name),
        Op::Drop(name) => drop(content.sealed.remove(name)),
        Op::RollBack(name, undo) => {
            let back = content.sealed[name].to_vec();
            undo.iter().for_each(|undo| content.seal(undo));
            content.bytes = back;
        }
        _ => {}
    }
    Some(content)
}

/// Returns the durable point that an operation makes of the last one: a drop changes no bytes, and
/// counts at once.
pub fn point_without_snapshot(point: &State, op: &Op) -> Option<State> {
    let Op::Drop(name) = op else { return None };
    let mut point = point.clone();
    point.iter_mut().for_each(|content| drop(content.sealed.remove(name)));
    Some(point)
}

/// Returns `true` if the state after the operation is a durable point once the operation has
/// returned. While the operation runs, the state may be a durable point already.
pub fn makes_point(plan: &Plan, before: &State, op: &Op) -> bool {
    match op {
        Op::Write(_) => plan.durability == Durability::EveryWrite,
        // A shrink truncates bytes that belong to the last durable point.
        Op::SetLen(len) => {
            let is_shrink = before.as_ref().is_some_and(|was| *len < was.bytes.len() as u64);
            is_shrink || plan.durability == Durability::EveryWrite
        }
        Op::Open | Op::Drop(_) => false,
        Op::Seal(_) | Op::RollBack(..) => true,
        Op::Create | Op::Sync | Op::Deploy(_) | Op::Close(_) | Op::Remove => true,
    }
}
