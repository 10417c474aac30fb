//! Tests that acknowledged votes, entries, truncations and purges survive SIGKILL.
//!
//! A child makes calls on the store, as openraft would, and acknowledges each one in a file after
//! it has returned. The number of a call determines what it does. The test kills the child at
//! random times, during opening as well. Then the store must have the state after the last
//! acknowledged call, or after the next one.

use super::common::{self, Ground, Rng, child, role};
use super::{Entry, Id, Store, Vote, calls, log_id, open_as, truncate, vote};
use calls::entry;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Number of children that are killed on each medium.
const ROUNDS: u64 = 12;
const CHILD: &str = concat!(module_path!(), "::plays_the_child_that_is_killed_if_it_is_one");

/// The contents of a store. All of them follow from the numbers of the calls.
#[derive(Clone, PartialEq, Debug, Default)]
struct State {
    /// The number of calls.
    calls: u64,
    vote: Option<Vote>,
    committed: Option<(u64, u64)>,
    /// Term and index.
    purged: Option<(u64, u64)>,
    /// Terms of the entries, the first with index `first`.
    first: u64,
    terms: Vec<u64>,
}

impl State {
    fn next(&self) -> u64 {
        self.first + self.terms.len() as u64
    }

    fn term_of(&self, index: u64) -> u64 {
        self.terms[(index - self.first) as usize]
    }
}

/// Returns the command of an entry. Its length and letters follow from its term and index.
fn command(term: u64, index: u64) -> String {
    let mut rng = Rng(term << 32 | index);
    let len = if rng.below(20) == 0 { rng.below(20_000) } else { rng.below(300) };
    rng.bytes(len as usize).into_iter().map(|byte| char::from(b'a' + byte % 26)).collect()
}

/// A call on the store.
enum Call {
    Vote(Vote),
    Committed(Id),
    Truncate(Id),
    Purge(Id),
    Append(Vec<Entry>),
}

impl Call {
    fn make(self, store: &mut Store) {
        match self {
            Call::Vote(vote) => calls::save_vote(store, vote),
            Call::Committed(id) => calls::save_committed(store, Some(id)),
            Call::Truncate(id) => truncate(store, id),
            Call::Purge(id) => calls::purge(store, id),
            Call::Append(entries) => calls::append(store, entries).expect("the call"),
        }
    }
}

/// Returns the next call, and the state after it. The number of the call determines both.
fn next_call(state: &State) -> (Call, State) {
    let mut after = state.clone();
    after.calls += 1;
    let term = after.calls; // of the entries that this call appends
    let mut rng = Rng(after.calls);
    let (next, len) = (state.next(), state.terms.len() as u64);
    let kind = rng.below(8);
    let index = state.first + rng.below(len);
    let picked = || log_id(state.term_of(index), index);
    let call = match kind {
        0 => {
            let vote = Vote::new(term, rng.below(5));
            after.vote = Some(vote);
            Call::Vote(vote)
        }
        1 if len > 0 => {
            after.committed = Some((state.term_of(index), index));
            Call::Committed(picked())
        }
        2 if len > 0 => {
            after.terms.truncate((index - state.first) as usize);
            Call::Truncate(picked())
        }
        3 if len > 50 => {
            after.purged = Some((state.term_of(index), index));
            after.terms.drain(..(index + 1 - state.first) as usize);
            after.first = index + 1;
            Call::Purge(picked())
        }
        _ => {
            let count = rng.below(30);
            after.terms.extend((0..count).map(|_| term));
            let new = next..next + count;
            Call::Append(new.map(|n| entry(term, n, command(term, n))).collect())
        }
    };
    (call, after)
}

/// Returns what the store has, apart from the number of calls. Checks every command.
fn found(store: &mut Store, calls: u64) -> State {
    let (purged, _) = calls::ends(store);
    let mut state = State { calls, vote: vote(store).expect("vote"), ..State::default() };
    let pair = |id: Id| (id.leader_id.term, id.index);
    state.committed = calls::committed(store).map(pair);
    state.purged = purged.map(pair);
    state.first = state.purged.map_or(0, |(_, index)| index + 1);
    for (n, found) in (state.first..).zip(calls::entries(store, ..)) {
        let term = found.log_id.leader_id.term;
        assert_eq!(found, entry(term, n, command(term, n)));
        state.terms.push(term);
    }
    state
}

fn diary(path: &Path) -> PathBuf {
    path.with_extension("calls")
}

/// Returns the number of acknowledged calls.
fn acknowledged(path: &Path) -> u64 {
    std::fs::metadata(diary(path)).map_or(0, |stat| stat.len())
}

/// Returns the state that the store has: after the acknowledged calls, or after one call more.
fn check(store: &mut Store, path: &Path) -> State {
    let mut state = State::default();
    let calls = acknowledged(path);
    while state.calls < calls {
        state = next_call(&state).1;
    }
    let (_, after) = next_call(&state);
    if found(store, after.calls) == after {
        return after;
    }
    assert_eq!(found(store, calls), state, "after {calls} calls");
    state
}

#[test]
fn plays_the_child_that_is_killed_if_it_is_one() {
    let Some((role, path)) = role() else { return };
    let medium = role.parse().expect("a medium");
    let ground = Ground { base: path.parent().expect("a folder").to_owned(), medium };
    let mut store = open_as(&ground, &path);
    let mut state = check(&mut store, &path);
    let mut diary = OpenOptions::new().create(true).append(true).open(diary(&path)).expect("diary");
    // Each acknowledged call is a byte. The call that the last child made without one comes first.
    for _ in acknowledged(&path)..state.calls {
        diary.write_all(&[0]).expect("acknowledge");
    }
    loop {
        let (call, after) = next_call(&state);
        call.make(&mut store);
        state = after;
        diary.write_all(&[0]).expect("acknowledge");
    }
}

fn kill_a_child(path: &Path, ground: &Ground, round: u64, rng: &mut Rng) {
    let mut victim = child(CHILD, &ground.medium.to_string(), path)
        .stdout(std::process::Stdio::null())
        .stderr(File::create(path.with_extension("err")).expect("a file for messages"))
        .spawn()
        .expect("start a child");
    let before = acknowledged(path);
    let patience = Instant::now() + common::HANGS;
    // In every fourth round the child may be killed while it opens the file.
    while round % 4 != 3 && acknowledged(path) < before + 20 {
        assert!(victim.try_wait().expect("look at the child").is_none(), "the child has ended");
        assert!(Instant::now() < patience, "the child hangs");
        std::thread::sleep(Duration::from_micros(200));
    }
    std::thread::sleep(Duration::from_micros(rng.below(20_000)));
    victim.kill().expect("kill the child");
    let status = victim.wait().expect("wait for the child");
    let messages = std::fs::read_to_string(path.with_extension("err")).unwrap_or_default();
    assert!(!messages.contains("panicked"), "{status}\n{messages}");
}

fn check_kills(ground: Option<Ground>, seed: u64) {
    let Some(ground) = ground else {
        eprintln!("not served here: skipped");
        return;
    };
    let scratch = ground.scratch();
    let path = scratch.file("raft.dat");
    let mut rng = Rng(seed);
    for round in 0..ROUNDS {
        kill_a_child(&path, &ground, round, &mut rng);
    }
    let state = check(&mut open_as(&ground, &path), &path);
    assert!(state.calls > ROUNDS, "nothing was tested");
}

#[test]
fn acknowledged_calls_in_ram_survive_being_killed() {
    check_kills(Some(common::ram()), 1);
}

#[test]
fn acknowledged_calls_on_page_cache_survive_being_killed() {
    check_kills(common::page_cache(), 2);
}

#[test]
fn acknowledged_calls_on_persistent_memory_survive_being_killed() {
    check_kills(common::dax(), 3);
}
