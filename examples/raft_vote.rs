//! A Raft node's term and vote, durable in one call.
//!
//! ```sh
//! cargo run --release --example raft_vote             # in the temporary folder
//! cargo run --release --example raft_vote -- /dev/shm
//! ```
//!
//! Raft is safe only if a node never votes for two candidates in one term. So a node that has
//! answered "you have my vote" must remember it, whatever happens to it. Term and vote are two
//! values, and to write them one after the other is wrong in either order. Say that the node has
//! voted for A in term 1, and now votes for B in term 2:
//!
//! - vote first: a crash in between leaves term 1 with the vote for B. If B asks in term 1, as A did,
//!   it is told yes: two votes in one term, and with them perhaps two leaders.
//! - term first: a crash in between leaves term 2 with the vote for A, which nobody has cast. It
//!   needs a third write that takes the old vote back before, and then the crash between that one
//!   and the term leaves term 1 without a vote: B, asking in term 1, is told yes, and A was as well.
//!
//! It also needs a `sync` between every two of them where writes can change their order.
//!
//! Here both values are one record, and every change of it is one operation.
//!
//! What the node may promise depends on what its file lies on, which it prints:
//!
//! | medium | a vote that was answered survives |
//! |---|---|
//! | `dax` | the loss of power |
//! | `page-cache` | the loss of power, since every write is asked to be durable when it returns (`Durability::EveryWrite`): one write to the disk and one barrier |
//! | `ram` | the death of the process. A node whose machine went down has to join as a new one, as if it had lost its disk |

mod scratch;

use atomic_mmap::zerocopy::{FromBytes, Immutable, IntoBytes};
use atomic_mmap::{AtomicMappedFile, CloseMode, Durability, Error};
use std::path::Path;
use std::process::Command;

const NOBODY: u64 = 0;

/// What Raft calls `currentTerm` and `votedFor`.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, PartialEq, Debug)]
#[zerocopy(crate = "atomic_mmap::zerocopy")]
#[repr(C)]
struct Vote {
    term: u64,
    voted_for: u64,
}

/// Where the log ends. The order of the fields makes the derived order Raft's "more up to date".
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[zerocopy(crate = "atomic_mmap::zerocopy")]
#[repr(C)]
struct LogTail {
    last_term: u64,
    last_index: u64,
}

/// All that an election asks about. A new file is zeros: term 0, nobody, an empty log.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[zerocopy(crate = "atomic_mmap::zerocopy")]
#[repr(C)]
struct State {
    vote: Vote,
    tail: LogTail,
}

#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[zerocopy(crate = "atomic_mmap::zerocopy")]
#[repr(C)]
struct Entry {
    term: u64,
    command: [u8; 24],
}

const STATE: u64 = 0;
const LOG: u64 = 4096;
const FILE_LEN: u64 = 1 << 20;

struct Node {
    id: u64,
    file: AtomicMappedFile,
}

impl Node {
    fn open(path: &Path, id: u64) -> Result<Node, Error> {
        let file = AtomicMappedFile::options()
            .create(true)
            .len(FILE_LEN)
            .durability(Durability::EveryWrite)
            .open(path)?;
        println!("node {id}: on {} a write survives {}", file.medium(), file.survives());
        Ok(Node { id, file })
    }

    /// The first start. Nothing is to be kept, so nothing is read: one `store`.
    fn join(&self, term: u64) -> Result<(), Error> {
        self.file.store(STATE, &Vote { term, voted_for: NOBODY })?;
        self.file.sync()
    }

    /// RequestVote, at the receiver. When this returns `true`, the vote is on the medium.
    fn request_vote(&self, candidate: u64, term: u64, tail: LogTail) -> Result<bool, Error> {
        let slot = self.file.slot::<State>(STATE)?;
        let mut state = slot.load()?;
        let granted = loop {
            if state.vote.term > term {
                return Ok(false);
            }
            if state.vote.term == term && state.vote.voted_for != NOBODY {
                // The same candidate may ask again: our answer may have been lost.
                // It may also have come in by another thread, which is about to sync.
                break state.vote.voted_for == candidate;
            }
            // A newer term is taken over even if the candidate, behind us, gets no vote in it.
            let granted = state.tail <= tail;
            let voted_for = if granted { candidate } else { NOBODY };
            let new = State { vote: Vote { term, voted_for }, ..state };
            // Two candidates may ask at the same time, and the log may grow: whoever comes second
            // decides again, on what the first one left.
            match slot.compare_exchange(&state, &new)? {
                Ok(()) => break granted,
                Err(actual) => state = actual,
            }
        };
        // On page cache the vote survives a loss of power from here on; on dax it did before.
        self.file.sync()?;
        Ok(granted)
    }

    /// Becomes a candidate: a new term and the vote for itself.
    fn stand(&self) -> Result<State, Error> {
        let state = self.file.update(STATE, |state: &mut State| {
            state.vote = Vote { term: state.vote.term + 1, voted_for: self.id };
            *state
        })?;
        self.file.sync()?;
        Ok(state)
    }

    /// AppendEntries, at the receiver (without the check of what comes before, which is not the
    /// point here). The entries, the end of the log and, if it is newer, the term: together. With
    /// the end of the log alone, this node would win elections by entries that it does not have.
    fn append(&self, term: u64, commands: &[[u8; 24]]) -> Result<bool, Error> {
        let entries: Vec<Entry> = commands.iter().map(|&command| Entry { term, command }).collect();
        let accepted = self.file.transact(|tx| {
            let mut state: State = tx.load(STATE)?;
            if term < state.vote.term {
                return Ok::<_, Error>(false);
            }
            if term > state.vote.term {
                state.vote = Vote { term, voted_for: NOBODY };
            }
            let end = LOG + state.tail.last_index * size_of::<Entry>() as u64;
            tx.store(end, &entries[..])?;
            state.tail.last_term = term;
            state.tail.last_index += entries.len() as u64;
            tx.store(STATE, &state)?;
            Ok(true)
        })?;
        self.file.sync()?;
        Ok(accepted)
    }

    fn state(&self) -> Result<State, Error> {
        self.file.load(STATE)
    }
}

/// Set in the process that plays node 2 until it dies: the node's file.
const DYING_NODE: &str = "RAFT_VOTE_DYING_NODE";
/// The term in which it votes.
const LAST_TERM: u64 = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(path) = std::env::var_os(DYING_NODE) {
        return vote_and_die(Path::new(&path));
    }
    let scratch = scratch::Scratch::from_args()?;
    let node = |id| Node::open(&scratch.path(&format!("node-{id}")), id);
    let (one, two, three) = (node(1)?, node(2)?, node(3)?);
    for node in [&one, &two, &three] {
        node.join(0)?;
    }

    let State { vote: Vote { term, .. }, tail } = one.stand()?;
    println!("node 1 stands for term {term}");
    assert!(two.request_vote(1, term, tail)?);
    println!("node 2 votes for it: a majority; node 1 leads, and replicates two entries to node 2");
    for node in [&one, &two] {
        assert!(node.append(term, &[*b"set x = 1               ", *b"set y = 2               "])?);
    }

    let State { vote: Vote { term, .. }, tail } = three.stand()?;
    assert!(!two.request_vote(3, term, tail)?);
    println!("node 3 saw nothing of it, and stands for term {term} as well: node 2 has voted");
    let State { vote: Vote { term, .. }, tail } = three.stand()?;
    assert!(!two.request_vote(3, term, tail)?);
    println!("node 3 stands for term {term}: its log is behind node 2's");

    // Node 1 hears of term 2, and stands for the next one. Node 2 goes on in another process: it
    // votes, and dies in the same moment.
    one.request_vote(3, term, tail)?;
    let State { vote: Vote { term, .. }, tail } = one.stand()?;
    assert_eq!(term, LAST_TERM);
    let path = two.file.path().to_owned();
    two.file.close(CloseMode::Fast)?;
    let status = Command::new(std::env::current_exe()?).env(DYING_NODE, &path).status()?;
    println!("the process of node 2: {status}");

    let two = Node::open(&path, 2)?;
    println!("node 2 is back: {:?}", two.state()?);
    assert_eq!(two.state()?.vote, Vote { term, voted_for: 1 });
    assert!(!two.request_vote(3, term, tail)?);
    println!("it votes for nobody else in term {term}, whatever their log");
    assert!(two.request_vote(1, term, tail)?);
    println!("node 1 has not heard the answer, asks again, and hears it");
    Ok(())
}

fn vote_and_die(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::open(path, 2)?;
    let tail = LogTail { last_term: 1, last_index: 2 };
    let granted = node.request_vote(1, LAST_TERM, tail)?;
    println!("node 2 in its own process: votes for node 1 in term {LAST_TERM}: {granted}");
    // No close and no destructor: what has returned must be enough.
    std::process::abort()
}
