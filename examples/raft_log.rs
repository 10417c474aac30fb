//! The log store of a Raft node: entries, vote and snapshot mark in one file, changed together.
//!
//! ```sh
//! cargo run --release --example raft_log             # in the temporary folder
//! cargo run --release --example raft_log -- /dev/shm
//! ```
//!
//! A log store appends entries, replaces those that conflict with the leader's, and drops those
//! that a snapshot covers. Each of these is one transaction below, so no crash leaves it half done.
//! `sync` makes it durable before the answer, and calls by several threads share a barrier.

mod scratch;

use atomic_mmap::{AtomicMappedFile, CloseMode, Error, Log, Roots, Transaction, record};
use std::path::Path;

record! {
    /// The values that Raft calls `currentTerm` and `votedFor`. A new node has zeros: no vote.
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Vote {
        term: u64,
        voted_for: u64,
    }
}

#[derive(Clone, PartialEq, Debug)]
struct Entry {
    term: u64,
    command: Vec<u8>,
}

impl Entry {
    fn encode(&self) -> Vec<u8> {
        [&self.term.to_le_bytes(), &self.command[..]].concat()
    }

    fn decode(record: &[u8]) -> Entry {
        let (term, command) = record.split_first_chunk().expect("a record begins with its term");
        Entry { term: u64::from_le_bytes(*term), command: command.to_vec() }
    }
}

struct Store {
    roots: Roots,
    log: Log,
    /// Offset of the vote.
    vote: u64,
    /// Offset of the term of the last entry that a snapshot covers.
    snapshot_term: u64,
}

impl Store {
    fn open(path: &Path) -> Result<Store, Error> {
        let roots = Roots::open(AtomicMappedFile::create(path, 0)?)?;
        let vote = roots.get_or_insert::<Vote>("vote")?.offset();
        let snapshot_term = roots.get_or_insert::<u64>("snapshot term")?.offset();
        let log = roots.log("log")?;
        log.truncate_front(1)?; // Raft counts from 1. Does nothing to a log that goes on.
        Ok(Store { roots, log, vote, snapshot_term })
    }

    fn file(&self) -> &AtomicMappedFile {
        self.roots.file()
    }

    /// Returns the term of an entry, or of the snapshot if that ends with it.
    fn term_of(&self, tx: &mut Transaction<'_>, index: u64) -> Result<Option<u64>, Error> {
        if index + 1 == self.log.range_in(tx)?.start {
            return tx.load(self.snapshot_term).map(Some);
        }
        Ok(self.log.get_in(tx, index)?.map(|record| Entry::decode(&record).term))
    }

    /// Answers RequestVote, for a candidate with an up-to-date log.
    fn request_vote(&self, term: u64, candidate: u64) -> Result<bool, Error> {
        let granted = self.file().update(self.vote, |vote: &mut Vote| {
            let is_free = vote.term < term || vote.term == term && vote.voted_for == 0;
            if is_free {
                *vote = Vote { term, voted_for: candidate };
            }
            *vote == Vote { term, voted_for: candidate }
        })?;
        self.file().sync()?;
        Ok(granted)
    }

    /// Answers AppendEntries: the entries follow `previous`, an index and its term. Replaces
    /// entries that conflict with them. Adopts a newer term in the same transaction.
    fn append(&self, term: u64, previous: (u64, u64), entries: &[Entry]) -> Result<bool, Error> {
        let accepted = self.file().transact(|tx| {
            let vote: Vote = tx.load(self.vote)?;
            if term < vote.term || self.term_of(tx, previous.0)? != Some(previous.1) {
                return Ok::<_, Error>(false);
            }
            if term > vote.term {
                tx.store(self.vote, &Vote { term, voted_for: 0 })?;
            }
            for (index, entry) in (previous.0 + 1..).zip(entries) {
                if self.term_of(tx, index)? != Some(entry.term) {
                    let new = &entries[(index - previous.0 - 1) as usize..];
                    let records: Vec<Vec<u8>> = new.iter().map(Entry::encode).collect();
                    self.log.truncate_back_in(tx, index)?;
                    self.log.append_in(tx, &records)?;
                    break;
                }
            }
            Ok(true)
        })?;
        self.file().sync()?;
        Ok(accepted)
    }

    /// Drops the entries up to `index`, which a snapshot covers. The log may end before it.
    fn compact(&self, index: u64, term: u64) -> Result<(), Error> {
        self.file().transact(|tx| {
            tx.store(self.snapshot_term, &term)?;
            self.log.truncate_front_in(tx, index + 1)
        })
    }

    fn entries(&self, from: u64) -> Result<Vec<Entry>, Error> {
        self.log.iter_from(from).map(|item| Ok(Entry::decode(&item?.1))).collect()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let entry = |term, command: &str| Entry { term, command: command.into() };
    let scratch = scratch::Scratch::from_args()?;
    let path = scratch.path("node");
    let store = Store::open(&path)?;
    assert!(store.request_vote(1, 7)? && !store.request_vote(1, 8)?);
    let old: Vec<Entry> = (0..1000).map(|n| entry(1, &format!("set x = {n}"))).collect();
    assert!(store.append(1, (0, 0), &old)?);
    println!("term 1: a vote for node 7, and {} entries", store.entries(1)?.len());

    // A new leader has other entries from 999 on.
    assert!(store.append(2, (998, 1), &[entry(2, "set y = 1"), entry(2, "a")])?);
    store.compact(900, 1)?;
    drop(store.log); // has a handle of its own; the last one closes the file
    store.roots.into_file().close(CloseMode::Fast)?;

    let store = Store::open(&path)?;
    let entries = store.entries(0)?;
    println!("opened again: entries {:?}, the last one {:?}", store.log.range()?, entries.last());
    assert_eq!((store.log.range()?, &entries[98]), (901..1001, &entry(2, "set y = 1")));
    assert_eq!(store.file().load::<Vote>(store.vote)?, Vote { term: 2, voted_for: 0 });
    store.roots.check()?;
    Ok(())
}
