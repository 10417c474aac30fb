//! A Raft node's term and vote, durable in one call.
//!
//! ```sh
//! cargo run --release --example raft_vote             # in the temporary folder
//! cargo run --release --example raft_vote -- /dev/shm
//! ```
//!
//! Raft is safe only if a node never votes for two candidates in one term. So a node that has
//! answered "you have my vote" must never forget its vote. Term and vote are two values, and
//! writing them one after the other is wrong in either order. Say that the node has voted for A in
//! term 1, and now votes for B in term 2:
//!
//! - Vote first: a crash in between leaves term 1 with the vote for B. If B asks in term 1, as A
//!   did, the node says yes. That is two votes in one term, and perhaps two leaders.
//! - Term first: a crash in between leaves term 2 with the vote for A, which the node never cast. A
//!   third write could erase the old vote before. But a crash after it leaves term 1 without a
//!   vote. B, asking in term 1, gets a yes, and A had one as well.
//!
//! Where writes can be reordered, a `sync` is needed between every two of them.
//!
//! Here both values are one record, and every change of it is one operation.
//!
//! The node's promise depends on the medium of its file, which it prints:
//!
//! | medium | an answered vote survives |
//! |---|---|
//! | `dax` | a loss of power |
//! | `page-cache` | a loss of power, with `Durability::EveryWrite`: one write and one barrier |
//! | `ram` | a process crash. After a machine crash the node must join as a new one |

mod scratch;

use atomic_mmap::{AtomicMappedFile, CloseMode, Durability, Error, record};
use std::path::Path;
use std::process::Command;

const NOBODY: u64 = 0;

record! {
    /// The state that Raft calls `currentTerm` and `votedFor`.
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Vote {
        term: u64,
        voted_for: u64,
    }
}

record! {
    /// The end of the log. The order of the fields makes the derived order Raft's "more up to
    /// date".
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    struct LogTail {
        last_term: u64,
        last_index: u64,
    }
}

record! {
    /// All values that an election needs. A new file is zeros: term 0, no vote, an empty log.
    #[derive(Clone, Copy, Debug)]
    struct State {
        vote: Vote,
        tail: LogTail,
    }
}

record! {
    #[derive(Clone, Copy, Debug)]
    struct Entry {
        term: u64,
        command: [u8; 24],
    }
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

    /// Starts the node for the first time. There are no values to keep, so one `store` is enough.
    fn join(&self, term: u64) -> Result<(), Error> {
        self.file.store(STATE, &Vote { term, voted_for: NOBODY })?;
        self.file.sync().map(drop)
    }

    /// Answers RequestVote. When this returns `true`, the vote is on the medium.
    fn request_vote(&self, candidate: u64, term: u64, tail: LogTail) -> Result<bool, Error> {
        let slot = self.file.slot::<State>(STATE)?;
        let mut state = slot.load()?;
        let granted = loop {
            if state.vote.term > term {
                return Ok(false);
            }
            if state.vote.term == term && state.vote.voted_for != NOBODY {
                // The candidate may ask again, because our answer may have been lost. Another
                // thread may also have stored this vote and be about to sync.
                break state.vote.voted_for == candidate;
            }
            // The node adopts a newer term even if it refuses a candidate with an older log.
            let granted = state.tail <= tail;
            let voted_for = if granted { candidate } else { NOBODY };
            let new = State { vote: Vote { term, voted_for }, ..state };
            // Two candidates may ask at the same time, and the log may grow. The second thread
            // decides again, on the state that the first one left.
            match slot.compare_exchange(&state, &new)? {
                Ok(()) => break granted,
                Err(actual) => state = actual,
            }
        };
        // On page cache the vote survives a loss of power from here on. On dax it already did.
        self.file.sync()?;
        Ok(granted)
    }

    /// Becomes a candidate: a new term, and the vote for itself.
    fn stand(&self) -> Result<State, Error> {
        let state = self.file.update(STATE, |state: &mut State| {
            state.vote = Vote { term: state.vote.term + 1, voted_for: self.id };
            *state
        })?;
        self.file.sync()?;
        Ok(state)
    }

    /// Answers AppendEntries, without the check of the preceding entry, which is not the point
    /// here. Stores the entries, the end of the log and a newer term together. With the end of the
    /// log alone, this node would win elections with entries that it does not have.
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

/// Environment variable of the process that plays node 2 until it dies, with the node's file.
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

    // Node 1 hears of term 2, and stands for the next one. Node 2 continues in another process: it
    // votes, and dies immediately.
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
    println!("it votes for no other candidate in term {term}, whatever their log");
    assert!(two.request_vote(1, term, tail)?);
    println!("node 1 has not heard the answer, asks again, and hears it");
    Ok(())
}

fn vote_and_die(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::open(path, 2)?;
    let tail = LogTail { last_term: 1, last_index: 2 };
    let granted = node.request_vote(1, LAST_TERM, tail)?;
    println!("node 2 in its own process: votes for node 1 in term {LAST_TERM}: {granted}");
    // No close and no destructor: a returned operation must be enough.
    std::process::abort()
}
