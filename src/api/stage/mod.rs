//! Stages: bytes that are put in place before the operation that makes them the file's.
//!
//! | file | holds |
//! |---|---|
//! | `layers` | what an operation with stages writes |
//! | `filled` | which bytes of a stage were filled |
//! | `buffer` | the memory that bytes go through on their way from a reader |
//!
//! Invariant: only bytes that a caller has filled are committed. Older bytes of a slot reach no
//! caller and no later state of the file.
//!
//! May import `engine` and below, the handle, the write set, and the errors.

mod buffer;
mod filled;
mod layers;

use crate::api::file::AtomicMappedFile;
use crate::api::write_set::Writes;
use crate::engine::stage::Staged;
use crate::error::{Error, Result};
use crate::mutant::{planted, unless};
use crate::pair::read_set::ReadSet;
use crate::units::PAGE;
use buffer::Buffer;
use filled::Filled;
use layers::Layers;
use std::fmt;
use std::io::{self, IoSliceMut, Read};
use std::ops::Range;

const READ_INTO: &str = "read into a stage";

/// A range of a file that is filled first, and becomes the file's by [`commit`](Self::commit), in
/// one atomic operation.
///
/// The file has two places for each 64 bytes, and a stage lends the one that is not in use. So a
/// commit copies no bytes: it says where they are. That pays for data that arrives piece by piece,
/// as from a socket, and becomes the file's as a whole: see [`fill_from`](Self::fill_from). Each
/// piece goes to its place at once. No memory holds the data in between, and the commit is short.
///
/// Until the commit no reader sees what a stage holds, and a crash forgets it. So does a drop.
/// Bytes that were not filled keep the value that the file has at the commit.
///
/// A stage blocks no other thread. Others read and write its range meanwhile, and the last commit
/// wins. Any number of stages may overlap. `set_len` fails with [`Error::Pinned`] if it would cut a
/// page off of which a stage has lent 64 bytes.
///
/// A stage has private memory, and its commit copies, for:
/// - the bytes at both ends that do not fill an aligned 64 bytes;
/// - 64 bytes that another stage has lent, and pages that a mapped [`View`](crate::View) reads;
/// - everything, on [`Medium::PageCache`](crate::Medium::PageCache) and with
///   [`Durability::AtomicSync`](crate::Durability::AtomicSync).
///
/// [`lent`](Self::lent) tells how many bytes are committed without a copy.
///
/// ```
/// # let dir = atomic_mmap::doctest_dir();
/// use atomic_mmap::AtomicMappedFile;
///
/// let f = AtomicMappedFile::create(dir.path().join("x"), 1 << 20)?;
/// let mut stage = f.stage(4096..69632)?;
/// stage.fill_from(&mut &[7; 65536][..], 0..65536)?; // from any `io::Read`
/// stage.write_at(b"head", 0)?;
/// assert_eq!(f.load::<[u8; 4]>(4096)?, [0; 4]); // nothing has happened yet
/// stage.commit()?;
/// assert_eq!(&f.load::<[u8; 6]>(4096)?, b"head\x07\x07");
/// # Ok::<(), atomic_mmap::Error>(())
/// ```
pub struct Stage<'a> {
    file: &'a AtomicMappedFile,
    staged: Staged,
    filled: Filled,
}

impl AtomicMappedFile {
    /// Lends the places of `range`, in bytes, that are not in use: see [`Stage`].
    ///
    /// Allocates storage for all of them, so a fill never lacks space. Changes no byte of the file.
    ///
    /// # Errors
    /// [`Error::PastEnd`], [`Error::Reversed`], [`Error::NoSpace`], [`Error::ReadOnly`],
    /// [`Error::Poisoned`], [`Error::Forked`], [`Error::Io`].
    pub fn stage(&self, range: Range<u64>) -> Result<Stage<'_>> {
        let staged = self.engine().stage(range)?;
        Ok(Stage { file: self, staged, filled: Filled::default() })
    }

    /// Commits several stages in one atomic operation. Where they overlap, the later one wins.
    ///
    /// After that the stages are empty: nothing of them is filled, and they have given back what
    /// they had lent. After an error they are as before.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("x"), 1 << 20)?;
    /// let (mut body, mut head) = (f.stage(4096..8192)?, f.stage(0..8)?);
    /// body.write_at(&[7; 4096], 0)?;
    /// head.write_at(&1_u64.to_le_bytes(), 0)?;
    /// f.commit_stages(&mut [body, head])?; // both or none
    /// assert_eq!(f.load::<u64>(0)?, 1);
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Stage::commit`]. [`Error::OtherFile`] if a stage belongs to another file.
    pub fn commit_stages(&self, stages: &mut [Stage<'_>]) -> Result<()> {
        let (read_set, writes) = (ReadSet::default(), Writes::default());
        self.commit_with_stages(&writes, stages, None, (&read_set, None))?;
        stages.iter_mut().for_each(Stage::clear);
        Ok(())
    }

    /// Commits the writes of a transaction, and the stages over them. `new_len` is the length that
    /// the transaction gives the file.
    pub(super) fn commit_with_stages(
        &self,
        writes: &Writes,
        stages: &[Stage<'_>],
        new_len: Option<u64>,
        (read_set, closure): (&ReadSet, Option<usize>),
    ) -> Result<()> {
        let engine = self.engine();
        engine.check_usable()?;
        if stages.iter().any(|stage| !std::ptr::eq(stage.file.engine(), engine)) {
            return Err(Error::OtherFile { path: engine.path() });
        }
        let mut layers = Layers::default();
        writes.iter().for_each(|(offset, bytes)| layers.put(offset, bytes));
        let first_wins = planted!(EarlierStageWins);
        for n in 0..stages.len() {
            let stage = &stages[if first_wins { stages.len() - 1 - n } else { n }];
            stage.filled.iter().for_each(|range| layers.put_staged(&stage.staged, range));
        }
        if let Some(file_len) = new_len.filter(|len| layers.end() > *len) {
            let (path, offset) = (engine.path(), file_len);
            return Err(Error::PastEnd { path, offset, len: layers.end() - offset, file_len });
        }
        let back = layers.read_back(engine);
        let segments = layers.segments(&back);
        let placed = layers.placed(&segments, stages.iter().map(|stage| &stage.staged));
        let changes = crate::engine::plan::Changes { segments: &segments, placed: &placed };
        engine.commit_staged(changes, new_len, read_set, closure)
    }
}

impl Stage<'_> {
    /// Returns the stage's range in the file, in bytes.
    pub fn range(&self) -> Range<u64> {
        self.staged.range()
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> u64 {
        let range = self.range();
        range.end - range.start
    }

    /// Returns `true` if the stage has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes that lie in the file's own memory. If they are filled, a commit
    /// copies none of them. The others lie in private memory.
    pub fn lent(&self) -> u64 {
        self.staged.lent()
    }

    /// Returns the ranges that are filled, in ascending order, counted in bytes from the beginning
    /// of the stage.
    pub fn filled(&self) -> impl Iterator<Item = Range<u64>> {
        let start = self.range().start;
        self.filled.iter().map(move |range| range.start - start..range.end - start)
    }

    /// Fills bytes from byte `offset` of the stage on with `buf`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] past the stage's end. [`Error::Poisoned`], [`Error::Forked`].
    pub fn write_at(&mut self, buf: &[u8], offset: u64) -> Result<()> {
        let range = self.check(offset, buf.len() as u64)?;
        self.put(range.start, buf);
        Ok(())
    }

    /// Fills `range`, in bytes from the beginning of the stage, with zeroes.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at), and [`Error::Reversed`].
    pub fn zero(&mut self, range: Range<u64>) -> Result<()> {
        let range = self.check_bounds(range)?;
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(PAGE as u64);
            self.put(at, &[0; PAGE][..len as usize]);
            at += len;
        }
        Ok(())
    }

    /// Reads from `from` into `range`, in bytes from the beginning of the stage, until it is full
    /// or the input ends. Returns the number of bytes read. The rest of `range` is then not filled,
    /// even if it was before.
    ///
    /// The bytes go through a buffer of 64 KiB, which stays in the processor's cache.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # #[cfg(unix)] {
    /// use std::io::Write;
    /// use std::net::Shutdown;
    /// use std::os::unix::net::UnixStream;
    ///
    /// let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("x"), 8192)?;
    /// let (mut sender, mut receiver) = UnixStream::pair()?;
    /// sender.write_all(&[7; 5000])?;
    /// sender.shutdown(Shutdown::Write)?;
    /// let mut stage = f.stage(0..8192)?;
    /// assert_eq!(stage.fill_from(&mut receiver, 0..8192)?, 5000);
    /// stage.commit()?;
    /// assert_eq!(f.read_vec()?[4999..5001], [7, 0]);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`] with the error of `from`, unless that is an interruption. A descriptor that
    /// does not block has `WouldBlock`. What has arrived until then is filled. Those of
    /// [`write_at`](Self::write_at), and [`Error::Reversed`].
    pub fn fill_from(&mut self, from: &mut (impl Read + ?Sized), range: Range<u64>) -> Result<u64> {
        let range = self.check_bounds(range)?;
        unless!(StageKeepsOldFill, self.filled.remove(&range));
        let mut at = range.start;
        Buffer::lend(|buffer| {
            while at < range.end {
                match self.read_once(from, at..range.end, buffer) {
                    Ok(0) => break,
                    Ok(got) => at += got as u64,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(self.read_error(at, error)),
                }
            }
            Ok(at - range.start)
        })
    }

    /// Reads from `from` into `range` as [`fill_from`](Self::fill_from) does, but by one call, and
    /// at most 64 KiB: what there is. Returns the number of bytes. 0 is the end of the input, or an
    /// empty range.
    ///
    /// # Errors
    /// Those of [`fill_from`](Self::fill_from), also an interruption.
    pub fn read_from(&mut self, from: &mut (impl Read + ?Sized), range: Range<u64>) -> Result<u64> {
        let range = self.check_bounds(range)?;
        self.filled.remove(&range);
        let got = Buffer::lend(|buffer| self.read_once(from, range.clone(), buffer));
        got.map(|got| got as u64).map_err(|error| self.read_error(range.start, error))
    }

    fn read_once(
        &mut self,
        from: &mut (impl Read + ?Sized),
        range: Range<u64>,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        let most = buffer.len().min((range.end - range.start) as usize);
        let got = if most == 0 { 0 } else { from.read(&mut buffer[..most])? };
        let bytes = buffer[..most].get(..got).ok_or(io::ErrorKind::InvalidData)?;
        self.put(range.start, bytes);
        Ok(got)
    }

    fn read_error(&self, at: u64, error: io::Error) -> Error {
        Error::Io {
            call: READ_INTO,
            path: self.file.engine().path(),
            offset: Some(at),
            source: error.into(),
        }
    }

    /// Fills bytes at offset `at` of the file, which lie in the stage.
    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.file.engine().fill(&mut self.staged, at, bytes);
        self.filled.add(at..at + bytes.len() as u64);
    }

    /// Returns the memory of `range`, in bytes from the beginning of the stage, as slices that lie
    /// one after the other. Their bytes have no specified value. The range is not filled until
    /// [`assume_filled`](Self::assume_filled) says so.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at), and [`Error::Reversed`].
    ///
    /// # Safety
    /// While the slices live, the file and its companions must change only through handles of this
    /// process, as for [`View::as_slice`](crate::View::as_slice):
    /// - no other code, in this process or another, may write to them or to a mapping of them;
    /// - no process may truncate them, which would also raise SIGBUS;
    /// - no handle in a `fork`ed parent or child may write to them.
    pub unsafe fn as_mut_slices(&mut self, range: Range<u64>) -> Result<Vec<IoSliceMut<'_>>> {
        let range = self.check_bounds(range)?;
        self.filled.remove(&range);
        let rooms = self.file.engine().rooms(&mut self.staged, range);
        // SAFETY: the stage has claimed the slots: no other stage has them, and no operation of
        // this crate stores to them. Readers of this crate load from them at most what they
        // discard. The borrow of the stage keeps it from making other slices. The caller promises
        // the rest.
        Ok(unsafe { rooms.into_slices() })
    }

    /// Notes that `range`, in bytes from the beginning of the stage, is filled: through the slices
    /// of [`as_mut_slices`](Self::as_mut_slices).
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at), and [`Error::Reversed`].
    ///
    /// # Safety
    /// All bytes of the range were stored to since the stage was made. Otherwise a commit would
    /// make older bytes, of any place of the file, the file's.
    pub unsafe fn assume_filled(&mut self, range: Range<u64>) -> Result<()> {
        let range = self.check_bounds(range)?;
        self.file.engine().flush_filled(&self.staged, range.clone());
        self.filled.add(range);
        Ok(())
    }

    /// Makes the filled bytes the file's, in one atomic operation, as a write of them would.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::write_at`]: an error means that nothing was written. The stage
    /// is then dropped. [`AtomicMappedFile::commit_stages`] leaves it as it is.
    ///
    /// [`Error::PastEnd`] if the file has become too short. It can only where the stage has lent
    /// nothing.
    pub fn commit(self) -> Result<()> {
        self.file.commit_stages(&mut [self])
    }

    /// Forgets what is filled, and gives back what is lent.
    pub(super) fn clear(&mut self) {
        self.filled.clear();
        self.file.engine().unstage(&self.staged);
        let start = self.staged.range().start;
        self.staged = Staged::empty(start);
    }

    /// Returns `true` if the stage has filled bytes past `len`.
    pub(super) fn reaches_past(&self, len: u64) -> bool {
        self.filled.iter().any(|range| range.end > len)
    }

    /// Returns the range in the file of `len` bytes at `offset` of the stage.
    fn check(&self, offset: u64, len: u64) -> Result<Range<u64>> {
        let engine = self.file.engine();
        engine.check_usable()?;
        let start = self.range().start;
        match offset.checked_add(len) {
            Some(end) if end <= self.len() || planted!(StageEndNotChecked) => {
                Ok(start + offset..start + end)
            }
            end => Err(Error::OutOfBounds {
                path: engine.path(),
                what: "bytes of the stage",
                offset: start,
                found: end.unwrap_or(u64::MAX),
                expected: self.len(),
            }),
        }
    }

    fn check_bounds(&self, range: Range<u64>) -> Result<Range<u64>> {
        let Range { start, end } = range;
        match end.checked_sub(start) {
            Some(len) => self.check(start, len),
            None => Err(Error::Reversed { path: self.file.engine().path(), start, end }),
        }
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.file.engine().unstage(&self.staged);
    }
}

impl fmt::Debug for Stage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage")
            .field("range", &self.range())
            .field("lent", &self.lent())
            .finish_non_exhaustive()
    }
}
