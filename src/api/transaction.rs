//! Optimistic transactions over several reads and writes, after Silo.
//!
//! Writes stay in memory until the commit, and the transaction's reads see them. The read set holds
//! the version of each page read, and what calls have told about the length. Every further read
//! and the commit validate the read set. So a transaction never sees a state that did not exist,
//! and commits are serializable.

use crate::api::file::AtomicMappedFile;
use crate::api::stage::Stage;
use crate::api::write_set::Writes;
use crate::engine::plan::Segment;
use crate::error::{Error, Result};
use crate::lock::Backoff;
use crate::mutant::planted;
use crate::pair::own_changes::Closure;
use crate::pair::read_set::ReadSet;
use crate::units::PAGE;
use smallvec::SmallVec;
use std::fmt;
use std::time::Instant;

/// Attempts before a transaction takes the turn, in which writers let it pass.
const ATTEMPTS_BEFORE_TURN: u32 = 8;

impl AtomicMappedFile {
    /// Begins a transaction: any number of reads and writes that happen together or not at all.
    /// A transaction that is dropped without [`commit`](Transaction::commit) is rolled back.
    pub fn begin(&self) -> Transaction<'_> {
        Transaction::new(self)
    }

    /// Runs `body` in a transaction and commits it. Repeats both until no other operation has
    /// changed what `body` read.
    ///
    /// `body` may run several times, so it should only read and write through the transaction. If
    /// it returns an error other than [`Error::Conflict`], the transaction is rolled back and the
    /// error returned. [`try_transact`](Self::try_transact) does so for errors of other types.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let path = dir.path().join("x");
    /// use atomic_mmap::AtomicMappedFile;
    ///
    /// fn add_one_to_both(f: &AtomicMappedFile) -> Result<u64, Box<dyn std::error::Error>> {
    ///     let total = f.transact(|tx| {
    ///         let a: u64 = tx.load(0)?;
    ///         let b: u64 = tx.load(2048)?;
    ///         tx.store(0, &(a + 1))?;
    ///         tx.store(2048, &(b + 1))?;
    ///         Ok(a + b + 2)
    ///     })?;
    ///     Ok(total)
    /// }
    /// # let f = AtomicMappedFile::create(&path, 4096)?;
    /// assert_eq!(add_one_to_both(&f)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// `body` may also call other operations on the file. They take effect each time it runs, and
    /// a rollback does not undo them. If one of them changes what the transaction has read, every
    /// repetition would conflict, so `transact` returns an error. Operations on another file, or
    /// on other pages of this file, cause no error.
    ///
    /// # Errors
    /// Those of `body`, and those of [`Transaction::commit`] except the conflict.
    ///
    /// [`Error::SelfConflict`] if another operation in `body`, by the same thread, has changed a
    /// page or the length that the transaction has read. An operation that changes at least 8
    /// pages of an aligned 256 KiB region counts as a change of the whole region. A shrink counts
    /// as a change of the region in which it ends.
    pub fn transact<R>(&self, body: impl FnMut(&mut Transaction<'_>) -> Result<R>) -> Result<R> {
        // One error type, so that `?` needs no annotation in a function of any error type.
        self.try_transact(body)
    }

    /// Runs `body` as [`transact`](Self::transact) does. `body` may return errors of any type that
    /// holds an [`Error`].
    ///
    /// The closure names its error type, since no other part of the call determines it:
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("x"), 4096)?;
    /// #[derive(Debug)]
    /// enum Failed {
    ///     Broke,
    ///     File(atomic_mmap::Error),
    /// }
    /// # impl std::fmt::Display for Failed {
    /// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    /// #         write!(f, "{self:?}")
    /// #     }
    /// # }
    /// # impl std::error::Error for Failed {}
    /// impl From<atomic_mmap::Error> for Failed {
    ///     fn from(error: atomic_mmap::Error) -> Self {
    ///         Failed::File(error)
    ///     }
    /// }
    ///
    /// let paid = f.try_transact(|tx| -> Result<(), Failed> {
    ///     tx.store(2048, &1_u64)?;
    ///     let money: u64 = tx.load(0)?;
    ///     tx.store(0, &money.checked_sub(5).ok_or(Failed::Broke)?)?;
    ///     Ok(())
    /// });
    /// assert!(matches!(paid, Err(Failed::Broke)));
    /// assert_eq!(f.load::<u64>(2048)?, 0); // rolled back
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`transact`](Self::transact).
    pub fn try_transact<R, E: From<Error>>(
        &self,
        mut body: impl FnMut(&mut Transaction<'_>) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        transact(self, &mut [], &mut body)
    }

    /// Runs `body` as [`transact`](Self::transact) does, and commits its writes and the stages in
    /// one operation. Where they overlap, the stages win, and of two stages the later one. `body`
    /// does not see what the stages hold.
    ///
    /// The stages are empty afterwards, as after [`commit_stages`](Self::commit_stages). After an
    /// error they are as before.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("x"), 1 << 20)?;
    /// let mut page = f.stage(4096..8192)?;
    /// page.write_at(&[7; 4096], 0)?;
    /// f.transact_with(&mut [page], |tx| {
    ///     let version: u64 = tx.load(0)?;
    ///     tx.store(0, &(version + 1)) // the page with its version
    /// })?;
    /// assert_eq!(f.load::<u64>(0)?, 1);
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`transact`](Self::transact) and of [`commit_stages`](Self::commit_stages).
    pub fn transact_with<R>(
        &self,
        stages: &mut [Stage<'_>],
        mut body: impl FnMut(&mut Transaction<'_>) -> Result<R>,
    ) -> Result<R> {
        transact(self, stages, &mut body)
    }
}

/// Any number of reads and writes, and a change of the length, that happen together or not at all.
///
/// A transaction that is dropped without [`commit`](Self::commit) changes nothing.
///
/// All reads see one state of the file, including its length. Each call checks that the results of
/// all earlier calls still hold:
/// - the bytes that were read;
/// - that the file still contains every range that was read or written;
/// - the length that [`len`](Self::len) or an [`Error::PastEnd`] reported.
///
/// The commit checks them once more, even if the transaction has written nothing. A call that
/// finds a change returns [`Error::Conflict`] and no bytes, and so does every later call.
///
/// A write by the same thread outside its transaction counts as another thread's write. If it
/// changes what the transaction has read, the commit fails with [`Error::Conflict`].
pub struct Transaction<'a> {
    file: &'a AtomicMappedFile,
    writes: Writes,
    read_set: ReadSet,
    /// The lengths before and after, once the transaction has set one.
    resized: Option<Resized>,
    /// `true` after a conflict: what this transaction has read is no longer valid.
    is_void: bool,
    /// Nesting depth of the closure that runs this transaction, if one does.
    closure: Option<usize>,
}

/// A change of the length that a transaction has requested. Its write set holds nothing past `now`.
#[derive(Clone, Copy)]
struct Resized {
    /// The file's length, in bytes, as the transaction was told.
    old: u64,
    /// The length that it gives the file.
    now: u64,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(file: &'a AtomicMappedFile) -> Self {
        Transaction {
            file,
            writes: Writes::default(),
            read_set: ReadSet::default(),
            resized: None,
            is_void: false,
            closure: None,
        }
    }

    /// Returns the file that this transaction reads and writes.
    pub fn file(&self) -> &'a AtomicMappedFile {
        self.file
    }

    /// Writes all of `buf` at byte `offset` when the transaction commits.
    ///
    /// # Errors
    /// [`Error::PastEnd`] past the file's end. Nothing is then written, and the length in the
    /// error counts as read. [`Error::Conflict`] if an earlier read no longer holds.
    /// [`Error::Poisoned`], [`Error::Forked`].
    pub fn write_at(&mut self, buf: &[u8], offset: u64) -> Result<()> {
        let engine = self.file.engine();
        engine.check_usable()?;
        let len = buf.len() as u64;
        let holds = match &self.resized {
            None => engine.check_write_tracked(offset, len, &mut self.read_set),
            Some(resized) => self.check_within(resized.now, offset, len).map(|()| true),
        };
        self.go_on(holds)?;
        if buf.is_empty() {
            return Ok(());
        }
        self.writes.put(offset, buf);
        Ok(())
    }

    /// Fills `buf` with the bytes at byte `offset`, including this transaction's own writes. All
    /// reads of a transaction see one state of the file.
    ///
    /// # Errors
    /// [`Error::Conflict`] if an earlier read no longer holds; the transaction can then not commit
    /// any more. [`Error::PastEnd`] past the file's end; the length in the error counts as
    /// read. [`Error::Poisoned`], [`Error::Forked`], [`Error::Io`].
    pub fn read_at(&mut self, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut from_file = &mut *buf;
        let mut at = offset;
        if let Some(Resized { old, now }) = self.resized {
            self.check_within(now, offset, from_file.len() as u64)?;
            let in_file = old.saturating_sub(offset).min(from_file.len() as u64);
            let (first, new) = from_file.split_at_mut(in_file as usize);
            new.fill(0);
            // Without bytes of the file, the empty range at its start: the read set is validated.
            (from_file, at) = (first, if in_file == 0 { 0 } else { offset });
        }
        let holds = if self.is_void {
            Ok(false)
        } else {
            self.file.engine().read_tracked(from_file, at, &mut self.read_set)
        };
        self.go_on(holds)?;
        self.all_holds_now();
        self.writes.put_over(buf, &(offset..offset + buf.len() as u64));
        Ok(())
    }

    /// Returns the file's length in bytes, including a change by this transaction. The length of
    /// the file counts as read.
    ///
    /// # Errors
    /// [`Error::Conflict`] if an earlier read no longer holds. [`Error::Poisoned`],
    /// [`Error::Forked`], [`Error::Io`].
    pub fn len(&mut self) -> Result<u64> {
        let told = if self.is_void {
            Ok(None)
        } else {
            self.file.engine().len_tracked(&mut self.read_set)
        };
        let len = *told.as_ref().map_or(&None, |told| told);
        self.go_on(told.map(|told| told.is_some()))?;
        self.all_holds_now();
        Ok(self.resized.map(|resized| resized.now).or(len).unwrap_or_default())
    }

    /// Returns `true` if the file has no bytes. As [`len`](Self::len), with its errors.
    pub fn is_empty(&mut self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Makes the file `len` bytes long when the transaction commits, in one operation with its
    /// writes. Later calls of this transaction see that length.
    ///
    /// New bytes are zero; bytes past the new end are lost for good, also if the transaction makes
    /// the file longer again. Those it would write as zeroes then. The file's length before counts
    /// as read.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// use atomic_mmap::{AtomicMappedFile, Error};
    ///
    /// let f = AtomicMappedFile::create(dir.path().join("lines.txt"), 0)?;
    /// for line in ["one\n", "two\n"] {
    ///     f.transact(|tx| {
    ///         let end = tx.len()?;
    ///         tx.set_len(end + line.len() as u64)?; // grown and filled, or neither
    ///         tx.write_at(line.as_bytes(), end)
    ///     })?;
    /// }
    /// assert_eq!(f.read_vec()?, b"one\ntwo\n");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TooLong`] past [`AtomicMappedFile::max_len`]. [`Error::Conflict`] if an earlier
    /// read no longer holds. [`Error::Poisoned`], [`Error::Forked`], [`Error::Io`]. The commit
    /// returns those of [`AtomicMappedFile::set_len`], as [`Error::Pinned`].
    pub fn set_len(&mut self, len: u64) -> Result<()> {
        self.file.engine().check_fits(len)?;
        let now = self.len()?;
        let old = self.resized.map_or(now, |resized| resized.old);
        if len < now {
            self.writes.truncate(len);
        } else if !planted!(RegrownBytesComeBack) {
            // Bytes that the file still holds, and that the transaction has cut off before.
            self.writes.put_zeroes(now..old.min(len));
        }
        self.resized = Some(Resized { old, now: len });
        Ok(())
    }

    /// Fails with `PastEnd` if `len` bytes at `offset` do not lie within the file, which this
    /// transaction has made `file_len` bytes long.
    fn check_within(&self, file_len: u64, offset: u64, len: u64) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= file_len => Ok(()),
            _ => Err(Error::PastEnd { path: self.file.engine().path(), offset, len, file_len }),
        }
    }

    /// Notes that the whole read set holds. So the changes of this thread up to here cannot cause a
    /// later conflict.
    #[inline]
    fn all_holds_now(&self) {
        if self.closure.is_some() {
            Closure::forget(self.closure);
        }
    }

    /// Returns `Ok` if the read set still holds, or the error of the check. Records a conflict.
    #[inline]
    fn go_on(&mut self, holds: Result<bool>) -> Result<()> {
        match holds {
            Ok(true) if !self.is_void => Ok(()),
            Ok(_) => {
                if !self.is_void && !planted!(LoadConflictNotCounted) {
                    self.file.engine().count_conflict();
                }
                self.is_void = true;
                Err(Error::Conflict { path: self.file.engine().path() })
            }
            Err(error) => Err(error),
        }
    }

    /// Applies all writes in one atomic operation. A commit without writes validates the reads.
    ///
    /// # Errors
    /// [`Error::Conflict`] if another operation has changed what was read, or the length. Also if
    /// a page that was read has since been deployed ([`DeployPolicy`](crate::DeployPolicy)). Begin
    /// a new transaction then, or use [`AtomicMappedFile::transact`].
    ///
    /// [`Error::PastEnd`] if the file has become too short, and the length was not asked for.
    /// [`Error::TooLarge`], [`Error::NoSpace`], [`Error::Overdue`], [`Error::Poisoned`],
    /// [`Error::Forked`], [`Error::Io`]. An error means that nothing was written.
    ///
    /// After [`set_len`](Self::set_len) also [`Error::Pinned`], and the errors of
    /// [`AtomicMappedFile::set_len`] about a shrink that has taken effect.
    ///
    /// With [`Durability::EveryWrite`](crate::Durability::EveryWrite), also the errors of
    /// [`AtomicMappedFile::sync`]. The writes are then in memory, and it is unknown whether they
    /// are durable.
    pub fn commit(self) -> Result<()> {
        self.try_commit(&[])
    }

    /// Applies all writes and the stages in one atomic operation, as
    /// [`transact_with`](AtomicMappedFile::transact_with) does.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit), and [`Error::OtherFile`] if a stage belongs to another
    /// file. The stages are then as before.
    pub fn commit_with(self, stages: &mut [Stage<'_>]) -> Result<()> {
        self.try_commit(stages)?;
        stages.iter_mut().for_each(Stage::clear);
        Ok(())
    }

    fn try_commit(&self, stages: &[Stage<'_>]) -> Result<()> {
        if self.is_void {
            return Err(Error::Conflict { path: self.file.engine().path() });
        }
        if !stages.is_empty() {
            let tx = (&self.read_set, self.closure);
            return self.file.commit_with_stages(&self.writes, stages, self.new_len(), tx);
        }
        let segments: SmallVec<[Segment<'_>; 8]> =
            self.writes.iter().map(|(offset, data)| Segment { offset, data }).collect();
        let (new_len, engine) = (self.new_len(), self.file.engine());
        engine.commit_transaction(&segments, new_len, &self.read_set, self.closure)
    }

    /// Returns the length that the transaction gives the file, if it is another one than before.
    fn new_len(&self) -> Option<u64> {
        let resized = self.resized.filter(|resized| resized.now != resized.old);
        resized.map(|resized| resized.now)
    }

    /// Discards the transaction and all its writes.
    pub fn rollback(self) {}
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("ranges_written", &self.writes.len())
            .field("pages_read", &self.read_set.len())
            .finish_non_exhaustive()
    }
}

/// Runs `body` and commits it with the stages, until no other operation has interfered.
pub(crate) fn transact<R, E: From<Error>>(
    file: &AtomicMappedFile,
    stages: &mut [Stage<'_>],
    body: &mut dyn FnMut(&mut Transaction<'_>) -> std::result::Result<R, E>,
) -> std::result::Result<R, E> {
    let mut backoff = Backoff::new();
    let mut turn = None;
    let mut attempts = 0;
    loop {
        if turn.is_none() && attempts >= ATTEMPTS_BEFORE_TURN {
            turn = file.engine().take_turn();
        }
        let begin = turn.as_ref().map(|turn| (turn, Instant::now()));
        attempts += 1;
        let closure = Closure::enter(file.engine().number());
        let mut tx = Transaction { closure: closure.depth(), ..Transaction::new(file) };
        match body(&mut tx) {
            Ok(result) => match tx.try_commit(stages) {
                Ok(()) => {
                    stages.iter_mut().for_each(Stage::clear);
                    return Ok(result);
                }
                // `body` cannot change this by another attempt.
                Err(error @ Error::PastEnd { .. }) if tx.is_too_short_for(stages) => {
                    return Err(error.into());
                }
                // `PastEnd` here: the file has become shorter since a write was accepted.
                Err(error) if error.is_conflict() || matches!(error, Error::PastEnd { .. }) => {
                    if tx.is_own_conflict(&closure)? {
                        return Err(Error::SelfConflict { path: file.engine().path() }.into());
                    }
                }
                Err(error) => return Err(error.into()),
            },
            // The body's error is about a state that no longer exists, so the body runs again.
            Err(error) if !tx.is_current()? => {
                if !tx.is_void {
                    file.engine().count_conflict();
                }
                if tx.is_own_conflict(&closure)? {
                    // Without a conflict in the transaction, the error is the body's own.
                    let said = Error::SelfConflict { path: file.engine().path() };
                    return Err(if tx.is_void { said.into() } else { error });
                }
            }
            Err(error) => return Err(error),
        }
        drop(closure);
        if let Some((turn, begin)) = begin {
            turn.note_run(begin.elapsed());
        }
        backoff.wait();
    }
}

/// Writes all `segments` in one atomic operation. Where parts overlap, the later one wins.
pub(crate) fn write_many(file: &AtomicMappedFile, segments: &[(u64, &[u8])]) -> Result<()> {
    let engine = file.engine();
    engine.check_usable()?;
    let mut sorted: SmallVec<[Segment<'_>; 8]> = SmallVec::new();
    for &(offset, data) in segments {
        engine.check_range(offset, data.len() as u64)?;
        if !data.is_empty() {
            sorted.push(Segment { offset, data });
        }
    }
    if !sorted.is_sorted_by_key(|segment| segment.offset) {
        sorted.sort_unstable_by_key(|segment| segment.offset);
    }
    // Parts that touch within a page are merged, so that the page may be written whole. Parts that
    // touch at a page boundary stay apart, since merging them gains nothing.
    let stand_apart = |a: &Segment<'_>, b: &Segment<'_>| {
        let end = a.range().end;
        end < b.offset || end == b.offset && end.is_multiple_of(PAGE as u64)
    };
    if sorted.is_sorted_by(stand_apart) {
        return engine.commit_transaction(&sorted, None, &ReadSet::default(), None);
    }
    let mut tx = Transaction::new(file);
    if sorted.is_sorted_by(|a, b| a.range().end <= b.offset) {
        sorted.iter().try_for_each(|segment| tx.write_at(segment.data, segment.offset))?;
    } else {
        segments.iter().try_for_each(|&(offset, data)| tx.write_at(data, offset))?;
    }
    tx.commit()
}

impl Transaction<'_> {
    /// Returns `true` if a stage has filled bytes past the file's end.
    fn is_too_short_for(&self, stages: &[Stage<'_>]) -> bool {
        let len = self.new_len().unwrap_or_else(|| self.file.engine().len_now());
        stages.iter().any(|stage| stage.reaches_past(len))
    }

    /// Returns `true` if the read set still holds.
    fn is_current(&self) -> Result<bool> {
        Ok(!self.is_void && self.file.engine().read_set_holds(&self.read_set)?)
    }

    /// Returns `true` if other operations of the closure have changed what this transaction has
    /// read.
    fn is_own_conflict(&self, closure: &Closure) -> Result<bool> {
        if planted!(OwnConflictRepeated) {
            return Ok(false);
        }
        let engine = self.file.engine();
        if closure.has_changed_length() && !self.read_set.told_holds_for_all(engine.len()) {
            return Ok(true);
        }
        engine.any_changed(&self.read_set, |page| {
            closure.has_changed(page.region(), page.in_region()) || planted!(AnyConflictIsOwn)
        })
    }
}
