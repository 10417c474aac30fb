//! The operations of the writer on a file of one thread, and the states that a power loss may
//! leave.
//!
//! A script is a sequence of operations that follows from a seed alone. So the checker knows the
//! exact bytes of the file after each operation. It also knows which of these states are durable
//! points.

use atomic_mmap::{CloseMode, Durability};
use std::ops::Range;

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
}

const PLAN: Plan = Plan {
    name: "by-sync",
    durability: Durability::OnSync,
    len: 300_000,
    between_syncs: 3,
    between_lengths: None,
};

/// One plan for each mode, and two special ones. One syncs so rarely that its points are too long
/// for the journal. The other shrinks and grows all the time, because file systems have special
/// code for that.
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
];

/// The shortest possible journal, which wraps around every sixteen points.
pub const JOURNAL_LEN: u64 = 64 << 10;
const LONGEST_FILE: u64 = 1_200_000;
/// A file of at most this length is not shrunk.
const SHORTEST_CUT: u64 = 20_000;

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
}

/// The state of a file: its bytes, or `None` if it does not exist.
pub type State = Option<Vec<u8>>;

/// An endless sequence of operations.
pub struct Script {
    plan: Plan,
    random: fastrand::Rng,
    len: u64,
    closed: Option<CloseMode>,
    is_there: bool,
}

impl Script {
    pub fn new(plan: Plan, seed: u64) -> Script {
        let mut random = fastrand::Rng::with_seed(seed);
        // Plans with the same seed do different operations.
        plan.name
            .bytes()
            .for_each(|byte| random = fastrand::Rng::with_seed(random.u64(..) ^ u64::from(byte)));
        Script { plan, random, len: 0, closed: None, is_there: false }
    }

    /// Returns the next operation.
    pub fn next(&mut self) -> Op {
        if !self.is_there {
            self.is_there = true;
            self.len = self.plan.len;
            return Op::Create;
        }
        if let Some(mode) = self.closed.take() {
            if mode == CloseMode::Spatial && self.random.u8(..3) == 0 {
                self.is_there = false;
                return Op::Remove;
            }
            return Op::Open;
        }
        if self.random.u64(..self.plan.between_syncs) == 0 {
            return Op::Sync;
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
    let mut bytes = match (op, before) {
        (Op::Create, _) => return Some(vec![0; plan.len as usize]),
        (Op::Remove, _) => return None,
        (_, None) => unreachable!("nothing else is done to a file that is not there"),
        (_, Some(bytes)) => bytes.clone(),
    };
    match op {
        Op::Write(parts) => {
            for (at, data) in parts {
                bytes[*at as usize..][..data.len()].copy_from_slice(data);
            }
        }
        Op::SetLen(len) => bytes.resize(*len as usize, 0),
        _ => {}
    }
    Some(bytes)
}

/// Returns `true` if the state after the operation is a durable point once the operation has
/// returned. While the operation runs, the state may be a durable point already.
pub fn makes_point(plan: &Plan, before: &State, op: &Op) -> bool {
    match op {
        Op::Write(_) => plan.durability == Durability::EveryWrite,
        // A shrink truncates bytes that belong to the last durable point.
        Op::SetLen(len) => {
            let is_shrink = before.as_ref().is_some_and(|bytes| *len < bytes.len() as u64);
            is_shrink || plan.durability == Durability::EveryWrite
        }
        Op::Open => false,
        Op::Create | Op::Sync | Op::Deploy(_) | Op::Close(_) | Op::Remove => true,
    }
}
