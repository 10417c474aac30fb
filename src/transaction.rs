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
use crate::units::PAGE;
use crate::writes::Writes;
use smallvec::SmallVec;
use std::fmt;

/// Attempts before a transaction waits for its turn among those that lose too often.
const ATTEMPTS_BEFORE_TURN: u32 = 8;

/// Any number of reads and writes that happen together or not at all.
///
/// Dropped without [`commit`](Self::commit), nothing of it has happened.
pub struct Transaction<'a> {
    file: &'a AtomicMappedFile,
    writes: Writes,
    marks: Vec<ReadMark>,
    /// A read has returned a conflict: nothing that this has read is to be believed.
    is_void: bool,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(file: &'a AtomicMappedFile) -> Self {
        Transaction { file, writes: Writes::default(), marks: Vec::new(), is_void: false }
    }

    /// Writes all of `buf` at `offset`, in bytes, when the transaction commits.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] past the file's end; the transaction is as it was then.
    pub fn write_at(&mut self, buf: &[u8], offset: u64) -> Result<()> {
        let engine = self.file.engine();
        engine.check_usable()?;
        engine.check_range(offset, buf.len() as u64)?;
        if buf.is_empty() {
            return Ok(());
        }
        self.writes.put(offset, buf);
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
        self.writes.put_over(buf, &range);
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
            self.writes.iter().map(|(offset, data)| Part { offset, data }).collect();
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

/// Writes all parts, of which later ones count where they overlap.
pub(crate) fn write_many(file: &AtomicMappedFile, parts: &[(u64, &[u8])]) -> Result<()> {
    let engine = file.engine();
    engine.check_usable()?;
    let mut sorted: SmallVec<[Part<'_>; 8]> = SmallVec::new();
    for &(offset, data) in parts {
        engine.check_range(offset, data.len() as u64)?;
        if !data.is_empty() {
            sorted.push(Part { offset, data });
        }
    }
    if !sorted.is_sorted_by_key(|part| part.offset) {
        sorted.sort_unstable_by_key(|part| part.offset);
    }
    // Parts that touch within a page are better one: it may be written whole. Between two pages it makes no difference.
    let stand_apart = |a: &Part<'_>, b: &Part<'_>| {
        let end = a.range().end;
        end < b.offset || end == b.offset && end.is_multiple_of(PAGE as u64)
    };
    if sorted.is_sorted_by(stand_apart) {
        return engine.commit_transaction(&sorted, &[]);
    }
    let mut tx = Transaction::new(file);
    if sorted.is_sorted_by(|a, b| a.range().end <= b.offset) {
        sorted.iter().try_for_each(|part| tx.write_at(part.data, part.offset))?;
    } else {
        parts.iter().try_for_each(|&(offset, data)| tx.write_at(data, offset))?;
    }
    tx.commit()
}

impl Transaction<'_> {
    /// Whether everything that was read still holds.
    fn is_current(&self) -> Result<bool> {
        Ok(!self.is_void && self.file.engine().marks_hold(&self.marks)?)
    }
}
