//! How do several reads and writes happen together? Optimistic transactions.
//!
//! Writes are kept in memory until the commit; reads see them. What is read is noted with its
//! version; every further read and the commit check that all of it still holds (Silo's rules), so
//! a transaction never sees a state that did not exist, and commits are serializable.

use crate::engine::commit::Part;
use crate::engine::read::ReadMark;
use crate::error::{Error, Result};
use crate::file::AtomicMappedFile;
use crate::lock::Patience;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::fmt;

/// Attempts before a transaction waits for its turn among those that lose too often.
const ATTEMPTS_BEFORE_TURN: u32 = 8;

/// What is written to one place. Where it is little, the allocator is not asked.
type Bytes = SmallVec<[u8; 64]>;

/// Any number of reads and writes that happen together or not at all.
///
/// Dropped without [`commit`](Self::commit), nothing of it has happened.
pub struct Transaction<'a> {
    file: &'a AtomicMappedFile,
    /// What was written, by offset. Ranges neither overlap nor touch.
    writes: BTreeMap<u64, Bytes>,
    marks: Vec<ReadMark>,
    /// A read has returned a conflict: nothing that this has read is to be believed.
    is_void: bool,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(file: &'a AtomicMappedFile) -> Self {
        Transaction { file, writes: BTreeMap::new(), marks: Vec::new(), is_void: false }
    }

    /// Writes all of `buf` at `offset`, in bytes, when the transaction commits.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] past the file's end; the transaction is as it was then.
    pub fn write_at(&mut self, buf: &[u8], offset: u64) -> Result<()> {
        let engine = self.file.engine();
        engine.check_usable()?;
        let range = engine.check_range(offset, buf.len() as u64)?;
        if buf.is_empty() {
            return Ok(());
        }
        // Usually nothing is near: what begins before the new range's end also ends before its start.
        let before = self.writes.range(..=range.end).next_back();
        if before.is_none_or(|(at, bytes)| at + (bytes.len() as u64) < offset) {
            self.writes.insert(offset, Bytes::from_slice(buf));
            return Ok(());
        }
        // Everything that the new range overlaps or touches becomes one range with it.
        let first = self
            .writes
            .range(..=offset)
            .next_back()
            .filter(|(at, bytes)| **at + bytes.len() as u64 >= offset)
            .map_or(offset, |(at, _)| *at);
        let joined: Vec<u64> = self.writes.range(first..=range.end).map(|(at, _)| *at).collect();
        let (start, mut bytes) = match joined.first() {
            // The common case of a range that goes on where another one ends copies only itself.
            Some(&at) if at <= offset => (at, self.writes.remove(&at).unwrap_or_default()),
            _ => (offset, Bytes::new()),
        };
        // The new range begins within what is there or at its end.
        let at = (offset - start) as usize;
        let (over, rest) = buf.split_at(buf.len().min(bytes.len() - at));
        bytes[at..at + over.len()].copy_from_slice(over);
        bytes.extend_from_slice(rest);
        for later in joined {
            let Some(old) = self.writes.remove(&later) else { continue };
            let covered = (start + bytes.len() as u64 - later) as usize;
            bytes.extend_from_slice(old.get(covered..).unwrap_or_default());
        }
        self.writes.insert(start, bytes);
        Ok(())
    }

    /// Fills `buf` from `offset`, in bytes: what this transaction has written, and one state of
    /// the file for the rest, the same for all its reads.
    ///
    /// # Errors
    /// [`Error::Conflict`] if what was read before has changed meanwhile; the transaction cannot
    /// be committed any more then. [`Error::OutOfRange`], or what the system says.
    pub fn read_at(&mut self, buf: &mut [u8], offset: u64) -> Result<()> {
        let engine = self.file.engine();
        let range = engine.check_range(offset, buf.len() as u64)?;
        if !engine.read_marked(buf, offset, &mut self.marks)? {
            self.is_void = true;
            return Err(Error::Conflict { path: engine.path() });
        }
        let first = self.writes.range(..=offset).next_back().map_or(offset, |(at, _)| *at);
        for (&at, bytes) in self.writes.range(first..range.end) {
            let start = at.max(offset);
            let end = (at + bytes.len() as u64).min(range.end);
            if start < end {
                buf[(start - offset) as usize..(end - offset) as usize]
                    .copy_from_slice(&bytes[(start - at) as usize..(end - at) as usize]);
            }
        }
        Ok(())
    }

    /// Makes all writes happen, in one atomic operation.
    ///
    /// # Errors
    /// [`Error::Conflict`] if somebody changed what was read, or it was brought home meanwhile
    /// ([`DeployPolicy`](crate::DeployPolicy)): begin again, or use
    /// [`AtomicMappedFile::transact`]. [`Error::TooLarge`], [`Error::NoSpace`],
    /// [`Error::OutOfRange`] if the file became shorter meanwhile. Nothing was written then. With
    /// [`Durability::EveryWrite`](crate::Durability::EveryWrite) also what
    /// [`AtomicMappedFile::sync`] returns: the writes are in memory then, and nobody knows whether they are
    /// durable.
    pub fn commit(self) -> Result<()> {
        if self.is_void {
            return Err(Error::Conflict { path: self.file.engine().path() });
        }
        let parts: SmallVec<[Part<'_>; 8]> =
            self.writes.iter().map(|(&offset, data)| Part { offset, data }).collect();
        self.file.engine().commit_transaction(&parts, &self.marks)
    }

    /// Drops the transaction: nothing of it happens.
    pub fn rollback(self) {}
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("ranges_written", &self.writes.len())
            .field("pages_read", &self.marks.len())
            .finish_non_exhaustive()
    }
}

/// Runs and commits `body` until nobody has interfered.
pub(crate) fn transact<R, E: From<Error>>(
    file: &AtomicMappedFile,
    body: &mut dyn FnMut(&mut Transaction<'_>) -> std::result::Result<R, E>,
) -> std::result::Result<R, E> {
    let mut patience = Patience::new();
    let mut turn = None;
    let mut attempts = 0;
    loop {
        if turn.is_none() && attempts >= ATTEMPTS_BEFORE_TURN {
            // Those who lose too often go one by one: each then competes with newcomers only.
            // Not a wait for the turn: a body may run transactions of its own.
            turn = file.engine().turns.try_lock();
        }
        attempts += 1;
        let mut tx = Transaction::new(file);
        match body(&mut tx) {
            Ok(result) => match tx.commit() {
                Ok(()) => return Ok(result),
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(error.into()),
            },
            // Whatever the body says, it says it of a state that is no more.
            Err(_) if !tx.is_current()? => {}
            Err(error) => return Err(error),
        }
        patience.wait();
    }
}

impl Transaction<'_> {
    /// Whether everything that was read still holds.
    fn is_current(&self) -> Result<bool> {
        Ok(!self.is_void && self.file.engine().marks_hold(&self.marks)?)
    }
}
