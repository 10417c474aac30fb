//! The operations on the log store, and the states that a power loss may leave.
//!
//! Operation number `n`, from 1 on, is a call on group `(n - 1) % GROUPS`. It follows from the seed
//! and the state before it. So the checker knows each group's vote, log ids and entries after every
//! operation. A durable point has all groups of the file. So an image has all of them after one
//! operation.
//!
//! May import nothing of the crate.

use openraft::testing::log_id;
use openraft::{EntryPayload, LogId, Vote};
use std::io::Cursor;
use std::ops::RangeInclusive;

openraft::declare_raft_types!(
    /// Commands are bytes.
    pub Types: D = Vec<u8>, R = ()
);

pub type Id = LogId<u64>;
pub type Entry = openraft::Entry<Types>;

pub const GROUPS: usize = 3;
/// The longest possible file in bytes. An entry of this length is refused.
pub const MAX_LEN: u64 = 2 << 20;
/// The longest other entry in bytes. It lies in several blocks of the log.
const LONGEST_ENTRY: usize = 20_000;
/// A group with more bytes of commands is purged.
const LONGEST_LOG: usize = 100_000;

/// A call on a group.
#[derive(Debug)]
pub enum Op {
    Vote(Vote<u64>),
    Committed(Option<Id>),
    Append(Vec<Entry>),
    /// An append that needs more space than there may be. It must change nothing.
    TooLong(Vec<Entry>),
    Truncate(Id),
    Purge(Id),
}

/// The contents of a group.
#[derive(Clone, Default, PartialEq)]
pub struct Group {
    pub vote: Option<Vote<u64>>,
    pub committed: Option<Id>,
    pub purged: Option<Id>,
    pub entries: Vec<Entry>,
}

/// The contents of all groups after an operation.
pub struct State {
    seed: u64,
    /// The number of operations so far.
    pub number: u64,
    pub groups: [Group; GROUPS],
}

impl State {
    pub fn new(seed: u64) -> State {
        State { seed, number: 0, groups: Default::default() }
    }

    /// Returns the group that the last operation was on.
    pub fn group(&self) -> usize {
        ((self.number - 1) % GROUPS as u64) as usize
    }

    /// Goes to the state after the next operation, and returns that operation.
    pub fn advance(&mut self) -> Op {
        self.number += 1;
        let group = &mut self.groups[self.group()];
        let op = group.next(self.number, self.seed);
        group.apply(&op);
        op
    }

    /// Returns the state after one of the operations `allowed` that has the contents `found`.
    /// Fails if there is none.
    pub fn of(
        found: &[Group; GROUPS],
        allowed: RangeInclusive<u64>,
        seed: u64,
    ) -> Result<State, String> {
        let mut state = State::new(seed);
        let mut says = String::new();
        loop {
            if allowed.contains(&state.number) {
                let Some(differs) = state.difference(found) else { return Ok(state) };
                says += &format!("; not after operation {}: {differs}", state.number);
            }
            if state.number >= *allowed.end() {
                return Err(format!("no state after an allowed operation{says}"));
            }
            state.advance();
        }
    }

    /// Returns the difference to the contents `found`, or `None` if these are the state's.
    pub fn difference(&self, found: &[Group; GROUPS]) -> Option<String> {
        let mut groups = found.iter().zip(&self.groups).enumerate();
        let (group, (is, should)) = groups.find(|(_, (is, should))| is != should)?;
        let entries = is.entries.iter().zip(&should.entries);
        let equal = entries.take_while(|(is, should)| is == should).count();
        let told = |group: &Group| {
            let at = group.entries.get(equal).map(|entry| (entry.log_id, bytes_of(entry)));
            let Group { vote, committed, purged, entries } = group;
            format!("{vote:?} {committed:?} {purged:?} {} entries, {at:?}", entries.len())
        };
        Some(format!("group {group} has {} for {}", told(is), told(should)))
    }
}

impl Group {
    fn next_index(&self) -> u64 {
        let last = self.entries.last().map(|entry| entry.log_id).or(self.purged);
        last.map_or(0, |id| id.index + 1)
    }

    /// Returns operation `n`, if it is the next one. Its number is the term of its ids.
    fn next(&self, n: u64, seed: u64) -> Op {
        let mut random = fastrand::Rng::with_seed(seed ^ n.wrapping_mul(0x9E37_79B9));
        let picked = random.choice(&self.entries).map(|entry| entry.log_id);
        let is_long = self.entries.iter().map(bytes_of).sum::<usize>() > LONGEST_LOG;
        let next = self.next_index();
        match (random.u8(..16), picked) {
            (_, Some(id)) if is_long => Op::Purge(id),
            (0..2, _) => Op::Vote(Vote::new(n, random.u64(..5))),
            (2..4, picked) => Op::Committed(picked),
            (4..6, Some(id)) => Op::Truncate(id),
            (6, Some(id)) => Op::Purge(id),
            // A snapshot has replaced the log: within it, or beyond its end.
            (7, _) => {
                let first = next - self.entries.len() as u64;
                Op::Purge(log_id(n, 1, random.u64(first..next + 10)))
            }
            (8, _) => {
                let mut entries = entries(n, next, &mut random);
                let index = next + entries.len() as u64;
                entries.push(entry(n, index, vec![0; MAX_LEN as usize]));
                Op::TooLong(entries)
            }
            _ => Op::Append(entries(n, next, &mut random)),
        }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Vote(vote) => self.vote = Some(*vote),
            Op::Committed(id) => self.committed = *id,
            Op::Append(entries) => self.entries.extend_from_slice(entries),
            Op::TooLong(_) => {}
            Op::Truncate(id) => self.entries.retain(|entry| entry.log_id.index < id.index),
            Op::Purge(id) => {
                // Another entry at its index belongs to another history, with all of the log.
                let is_other =
                    |entry: &Entry| entry.log_id.index == id.index && entry.log_id != *id;
                if self.entries.iter().any(is_other) {
                    self.entries.clear();
                }
                self.entries.retain(|entry| entry.log_id.index > id.index);
                self.purged = Some(*id);
            }
        }
    }
}

fn entry(term: u64, index: u64, command: Vec<u8>) -> Entry {
    Entry { log_id: log_id(term, 1, index), payload: EntryPayload::Normal(command) }
}

/// Returns up to eight entries from the index `next` on.
fn entries(term: u64, next: u64, random: &mut fastrand::Rng) -> Vec<Entry> {
    let indices = next..next + random.u64(..=8);
    indices
        .map(|index| {
            let longest = if random.u8(..6) == 0 { LONGEST_ENTRY } else { 300 };
            let mut command = vec![0; random.usize(..=longest)];
            random.fill(&mut command);
            entry(term, index, command)
        })
        .collect()
}

/// Returns the length of an entry's command.
fn bytes_of(entry: &Entry) -> usize {
    match &entry.payload {
        EntryPayload::Normal(command) => command.len(),
        _ => 0,
    }
}
