//! How do several reads and writes happen together? Optimistic transactions.
//!
//! Writes are kept in memory until the commit; reads see them. What is read is noted with its version, and what is told
//! about the length with it. Every further read and the commit check that all of it still holds (Silo's rules), so
//! a transaction never sees a state that did not exist, and commits are serializable.

use crate::engine::commit::Part;
use crate::engine::own_changes::Closure;
use crate::engine::read_marks::ReadMarks;
use crate::error::{Error, Result};
use crate::file::AtomicMappedFile;
use crate::lock::Patience;
use crate::mutant::planted;
use crate::units::PAGE;
use crate::writes::Writes;
use smallvec::SmallVec;
use std::fmt;

/// Attempts before a transaction waits for its turn among those that lose too often.
const ATTEMPTS_BEFORE_TURN: u32 = 8;

/// Any number of reads and writes that happen together or not at all.
///
/// Dropped without [`commit`](Self::commit), nothing of it has happened.
///
/// All reads see one state of the file, and the length is part of it. Each call checks that what the calls before it
/// were told still holds: the bytes that were read, that the file reaches as far as was read, and the length that an
/// [`Error::OutOfRange`] named. The commit checks it once more, also if nothing was written. A call that finds it
/// changed returns [`Error::Conflict`] and no bytes, and so does every call after it.
///
/// What the same thread writes to the file beside its transaction counts as any other thread's write: if it changes
/// what was read, the commit fails with [`Error::Conflict`].
pub struct Transaction<'a> {
    file: &'a AtomicMappedFile,
    writes: Writes,
    marks: ReadMarks,
    /// A read has returned a conflict: nothing that this has read is to be believed.
    is_void: bool,
    /// The closure that it is made for.
    closure: Option<usize>,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(file: &'a AtomicMappedFile) -> Self {
        Transaction {
            file,
            writes: Writes::default(),
            marks: ReadMarks::default(),
            is_void: false,
            closure: None,
        }
    }

    /// Writes all of `buf` at `offset`, in bytes, when the transaction commits.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] past the file's end: nothing is written then, and the length that the error names has been
    /// read. [`Error::Conflict`] if what was read before has changed meanwhile.
    pub fn write_at(&mut self, buf: &[u8], offset: u64) -> Result<()> {
        let engine = self.file.engine();
        engine.check_usable()?;
        let holds = engine.check_write_marked(offset, buf.len() as u64, &mut self.marks);
        self.go_on(holds)?;
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
    /// be committed any more then. [`Error::OutOfRange`], by which the length has been read, or what the system says.
    pub fn read_at(&mut self, buf: &mut [u8], offset: u64) -> Result<()> {
        let engine = self.file.engine();
        let holds =
            if self.is_void { Ok(false) } else { engine.read_marked(buf, offset, &mut self.marks) };
        self.go_on(holds)?;
        if self.closure.is_some() {
            // All that was read holds: what this thread has changed up to here is not what a later conflict is about.
            Closure::forget(self.closure);
        }
        self.writes.put_over(buf, &(offset..offset + buf.len() as u64));
        Ok(())
    }

    /// Goes on if everything that was read still holds, or says what went wrong.
    #[inline]
    fn go_on(&mut self, holds: Result<bool>) -> Result<()> {
        match holds {
            Ok(true) if !self.is_void => Ok(()),
            Ok(_) => {
                self.is_void = true;
                Err(Error::Conflict { path: self.file.engine().path() })
            }
            Err(error) => Err(error),
        }
    }

    /// Makes all writes happen, in one atomic operation.
    ///
    /// # Errors
    /// [`Error::Conflict`] if another operation changed what was read, or the length that was told, or if a page that was
    /// read was brought home meanwhile ([`DeployPolicy`](crate::DeployPolicy)): begin again, or use
    /// [`AtomicMappedFile::transact`]. Also of a transaction that has written nothing. [`Error::TooLarge`], [`Error::NoSpace`],
    /// [`Error::OutOfRange`] if the file became shorter meanwhile. Nothing was written then. With
    /// [`Durability::EveryWrite`](crate::Durability::EveryWrite) also what
    /// [`AtomicMappedFile::sync`] returns: the writes are in memory then, and nobody knows whether they are
    /// durable.
    pub fn commit(self) -> Result<()> {
        self.try_commit()
    }

    fn try_commit(&self) -> Result<()> {
        if self.is_void {
            return Err(Error::Conflict { path: self.file.engine().path() });
        }
        let parts: SmallVec<[Part<'_>; 8]> =
            self.writes.iter().map(|(offset, data)| Part { offset, data }).collect();
        self.file.engine().commit_transaction(&parts, &self.marks, self.closure)
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
        let closure = Closure::enter(file.engine().number());
        let mut tx = Transaction { closure: closure.depth(), ..Transaction::new(file) };
        match body(&mut tx) {
            Ok(result) => match tx.try_commit() {
                Ok(()) => return Ok(result),
                // A write was accepted, and the file has become shorter since.
                Err(error) if error.is_conflict() || matches!(error, Error::OutOfRange { .. }) => {
                    if tx.is_own_conflict(&closure)? {
                        return Err(Error::SelfConflict { path: file.engine().path() }.into());
                    }
                }
                Err(error) => return Err(error.into()),
            },
            // Whatever the body says, it says it of a state that is no more.
            Err(error) if !tx.is_current()? => {
                if tx.is_own_conflict(&closure)? {
                    // If the body has seen no conflict it has its own reason.
                    let said = Error::SelfConflict { path: file.engine().path() };
                    return Err(if tx.is_void { said.into() } else { error });
                }
            }
            Err(error) => return Err(error),
        }
        drop(closure);
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
        return engine.commit_transaction(&sorted, &ReadMarks::default(), None);
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
    /// Returns whether everything that was read still holds.
    fn is_current(&self) -> Result<bool> {
        Ok(!self.is_void && self.file.engine().marks_hold(&self.marks)?)
    }

    /// Returns whether the closure has changed, by other operations, what this transaction has read in it.
    fn is_own_conflict(&self, closure: &Closure) -> Result<bool> {
        if planted!(OwnConflictRepeated) {
            return Ok(false);
        }
        let engine = self.file.engine();
        if closure.has_changed_length() && !self.marks.told_holds_for_all(engine.len()) {
            return Ok(true);
        }
        engine.any_changed(&self.marks, |page| {
            closure.has_changed(page.region(), page.in_region()) || planted!(AnyConflictIsOwn)
        })
    }
}
