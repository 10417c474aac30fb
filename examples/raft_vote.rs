//! A Raft node's term and vote, durable in one call.
//!
//! ```sh
//! cargo run --release --example raft_vote             # in the temporary folder
//! cargo run --release --example raft_vote -- /dev/shm
//! ```
//!
//! Raft is safe only if a node never votes for two candidates in one term. So a node that has
//! answered "you have my vote" must remember it, whatever happens to it. Term and vote are two
//! values, and to write them one after the other is wrong in either order:
//!
//! - term first: a crash in between leaves the new term with the *old* vote. If that vote happens
//!   to be for another candidate, or is cleared by a third write that never came, the node votes
//!   for somebody in a term in which it has already promised otherwise;
//! - vote first: a crash in between leaves the new vote with the old term, in which the node may
//!   have voted for somebody else: it has voted twice in the old term, and does not know that it
//!   has voted in the new one, where it will vote again.
//!
//! Two nodes that do this elect two leaders. Here both values are one record and one `store`.
//!
//! What the node may promise depends on what its file lies on, which [`Node::open`] prints:
//!
//! | medium | a vote that was answered survives |
//! |---|---|
//! | `dax` | the loss of power |
//! | `page-cache` | the death of the process; `sync` also writes it to the disk, but a file in use when the machine went down is refused at open (`Mismatch::Restarted`) |
//! | `ram` | the death of the process |
//!
//! On the last two, a node whose machine went down has to join anew, as one that lost its disk.

mod scratch;

use atomic_mmap::zerocopy::{FromBytes, Immutable, IntoBytes};
use atomic_mmap::{AtomicMappedFile, CloseMode, Error};
use std::path::Path;
use std::process::{Command, ExitCode};

const NOBODY: u64 = 0;

/// What Raft calls `currentTerm` and `votedFor`. Eight zero bytes each: term 0, nobody.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, PartialEq, Debug)]
#[zerocopy(crate = "atomic_mmap::zerocopy")]
#[repr(C)]
struct Vote {
    term: u64,
    voted_for: u64,
}

/// Where the log ends. Field order makes the derived comparison Raft's "at least as up to date".
#[derive(
    FromBytes, IntoBytes, Immutable, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default,
)]
#[zerocopy(crate = "atomic_mmap::zerocopy")]
#[repr(C)]
struct LogTail {
    last_term: u64,
    last_index: u64,
}

/// Both in one 64-byte slice, so that each `store` of one or the other is the cheapest there is.
const VOTE: u64 = 0;
const LOG_TAIL: u64 = 16;
const FILE_LEN: u64 = 4096;

struct Node {
    id: u64,
    state: AtomicMappedFile,
}

impl Node {
    fn open(folder: &scratch::Scratch, id: u64) -> Result<Node, Error> {
        let state = AtomicMappedFile::create(folder.path(&format!("node-{id}")), FILE_LEN)?;
        let medium = state.medium();
        println!(
            "node {id}: {medium}; a write survives {:?}, after sync {:?}; {:?}",
            medium.after_write(),
            medium.after_sync(),
            state.load::<Vote>(VOTE)?
        );
        Ok(Node { id, state })
    }

    /// RequestVote, at the receiver. When this returns `true` the vote is on the medium.
    fn request_vote(&self, candidate: u64, term: u64, tail: LogTail) -> Result<bool, Error> {
        let slot = self.state.slot::<Vote>(VOTE)?;
        let mut found = slot.load()?;
        loop {
            if found.term > term || self.state.load::<LogTail>(LOG_TAIL)? > tail {
                return Ok(false);
            }
            if found.term == term && found.voted_for != NOBODY {
                // The same candidate may ask again: our answer may have been lost.
                return Ok(found.voted_for == candidate);
            }
            // Two candidates ask at the same time, on two threads: one of them wins here.
            match slot.compare_exchange(&found, &Vote { term, voted_for: candidate })? {
                Ok(()) => break,
                Err(actual) => found = actual,
            }
        }
        // Costs nothing on dax and ram; on page cache it is as much as can be had.
        self.state.sync()?;
        Ok(true)
    }

    /// Becomes a candidate: a new term and the vote for itself, in one `store`.
    fn stand(&self) -> Result<(u64, LogTail), Error> {
        let term = self.state.load::<Vote>(VOTE)?.term + 1;
        self.state.store(VOTE, &Vote { term, voted_for: self.id })?;
        self.state.sync()?;
        Ok((term, self.state.load(LOG_TAIL)?))
    }

    /// AppendEntries, at the receiver: a newer term and the new end of the log belong together.
    /// With the term alone on the medium the node would take part in elections of the new term
    /// with a log that it claims not to have.
    fn append(&self, leader_term: u64, entries: u64) -> Result<bool, Error> {
        let accepted = self.state.transact(|tx| {
            let vote: Vote = tx.load(VOTE)?;
            if leader_term < vote.term {
                return Ok::<_, Error>(false);
            }
            if leader_term > vote.term {
                tx.store(VOTE, &Vote { term: leader_term, voted_for: NOBODY })?;
            }
            tx.update(LOG_TAIL, |tail: &mut LogTail| {
                *tail = LogTail {
                    last_term: leader_term,
                    last_index: tail.last_index + entries,
                }
            })?;
            Ok(true)
        })?;
        self.state.sync()?;
        Ok(accepted)
    }
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    if let Some(path) = std::env::var_os(GRANT_AND_DIE) {
        return grant_and_die(Path::new(&path));
    }
    let scratch = scratch::Scratch::from_args()?;
    let nodes = [Node::open(&scratch, 1)?, Node::open(&scratch, 2)?, Node::open(&scratch, 3)?];
    let [one, two, three] = &nodes;

    let (term, tail) = one.stand()?;
    println!("node 1 stands for term {term}");
    assert!(two.request_vote(1, term, tail)?);
    println!("node 2 votes for it: a majority; node 1 leads and replicates 5 entries to node 2");
    for node in [one, two] {
        assert!(node.append(term, 5)?);
    }

    println!("node 3 saw nothing of that and stands for the same term, with an empty log");
    let (term, tail) = three.stand()?;
    assert!(!two.request_vote(3, term, tail)?);
    println!("node 2 has voted in term {term}: refused");
    let (term, tail) = three.stand()?;
    assert!(!two.request_vote(3, term, tail)?);
    println!("term {term}, but its log is behind: refused");

    println!("node 2 is stopped, votes in another process, and that one dies at once");
    let [one, two, three] = nodes;
    let path = two.state.path().to_owned();
    two.state.close(CloseMode::Fast)?;
    let (term, tail) = one.stand()?;
    let status = Command::new(std::env::current_exe()?).env(GRANT_AND_DIE, &path).status()?;
    assert!(!status.success());

    let two = Node::open(&scratch, 2)?;
    assert_eq!(two.state.load::<Vote>(VOTE)?, Vote { term, voted_for: 1 });
    three.state.store(LOG_TAIL, &tail)?;
    assert!(!two.request_vote(3, term, tail)?);
    println!("node 2 is back and remembers: node 3 is refused in term {term}");
    assert!(two.request_vote(1, term, tail)?);
    println!("node 1, which may not have heard the answer, hears it again");
    Ok(ExitCode::SUCCESS)
}

/// Set in the process that plays node 2 while it dies.
const GRANT_AND_DIE: &str = "RAFT_VOTE_GRANT_AND_DIE";

fn grant_and_die(path: &Path) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let node = Node { id: 2, state: AtomicMappedFile::open(path)? };
    let granted = node.request_vote(1, 2, LogTail { last_term: 1, last_index: 5 })?;
    println!("node 2 in process {}: granted: {granted}", std::process::id());
    // No close, no destructors: what has returned has to be enough.
    std::process::abort()
}
