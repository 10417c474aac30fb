//! What can a caller do with an open file? The handle.
//!
//! A thin layer: checks that are about the API are here, everything else is the engine's.

use crate::engine::Engine;
use crate::engine::stats::Stats;
use crate::error::{Error, Result};
use crate::mutant::planted;
use crate::options::Options;
use crate::platform::Platform;
use crate::primitive::Mutex;
use crate::terms::{CloseMode, Durability, Medium, Survives};
use crate::transaction::Transaction;
use crate::view::View;
use std::fmt;
use std::ops::Range;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::Path;
use std::sync::Arc;

/// A memory-mapped file in which every operation is all or nothing.
///
/// A write of any size at any offset is one operation, and so is a transaction over any number of
/// ranges. A crash at any instruction leaves each operation whole or absent; readers never see a
/// part of one; operations are linearizable. What a completed operation survives depends on the
/// medium, which the handle reports: [`medium`](Self::medium), [`survives`](Self::survives).
///
/// The handle is [`UnwindSafe`]: a panic in a closure of [`transact`](Self::transact) rolls that
/// transaction back, and the handle goes on to be usable.
///
/// All methods take `&self`, from any number of threads. [`try_clone`](Self::try_clone) gives more
/// handles to the same mapping; the file is closed with the last one.
///
/// ```
/// # let dir = atomic_mmap::doctest_dir();
/// use atomic_mmap::AtomicMappedFile;
///
/// let f = AtomicMappedFile::create(dir.path().join("state.dat"), 1 << 20)?;
/// f.write_at(b"all or nothing", 4090)?; // over a page boundary: still one operation
/// let mut back = [0; 14];
/// f.read_at(&mut back, 4090)?;
/// assert_eq!(&back, b"all or nothing");
/// # Ok::<(), atomic_mmap::Error>(())
/// ```
pub struct AtomicMappedFile {
    /// The one of `shared`, at hand: every operation begins here.
    engine: Arc<Engine>,
    shared: Arc<Shared>,
}

/// What the handles of one open file have in common. Dropped with the last handle.
struct Shared {
    engine: Arc<Engine>,
    close_mode: Mutex<CloseMode>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Nobody is left to hear of an error: the files are then as a crash would leave them, and
        // the next open recovers.
        let _recovered_by_the_next_open = self.engine.close_dropped(*self.close_mode.get_mut());
    }
}

impl AtomicMappedFile {
    /// Options for opening: creation, length, medium and more.
    pub fn options() -> Options {
        Options::default()
    }

    /// Opens an existing file. Same as `options().open(path)`.
    ///
    /// # Errors
    /// See [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path)
    }

    /// Opens a file, and makes it with `len` zero bytes if it does not exist or is empty. Same as
    /// `options().create(true).len(len).open(path)`.
    ///
    /// # Errors
    /// See [`Options::open`].
    pub fn create(path: impl AsRef<Path>, len: u64) -> Result<Self> {
        Self::options().create(true).len(len).open(path)
    }

    pub(crate) fn open_on(platform: Platform, options: Options, path: &Path) -> Result<Self> {
        let close_mode = Mutex::new(options.close_on_drop);
        let engine = crate::recovery::open(platform, &options, path)?;
        let shared = Arc::new(Shared { engine: Arc::clone(&engine), close_mode });
        Ok(AtomicMappedFile { engine, shared })
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Writes all of `buf` at `offset`, in bytes. One atomic operation, whatever its size.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] past the file's end, [`Error::NoSpace`] on a full file system,
    /// [`Error::TooLarge`], [`Error::Overdue`], [`Error::Poisoned`], [`Error::Forked`]. Nothing was written then. With
    /// [`Durability::EveryWrite`] also what [`sync`](Self::sync) returns: the write is in memory then, and
    /// nobody knows whether it is durable.
    #[inline]
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.engine().write(buf, offset)
    }

    /// Writes to several places in one atomic operation. Of each part: its offset, in bytes, and what is written there.
    /// They may come in any order, and where they overlap the later one counts.
    ///
    /// What a [`transaction`](Self::begin) does that reads nothing, without its copy of what it is to write. (If some
    /// overlap, or touch within a page, all are copied.)
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("x"), 1 << 20)?;
    /// let (page, head) = ([7; 4096], 1_u64.to_le_bytes());
    /// f.write_many(&[(8192, &page), (0, &head)])?; // the page and who points to it: both or none
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at). [`Error::OutOfRange`] if any part lies past the file's end.
    pub fn write_many(&self, parts: &[(u64, &[u8])]) -> Result<()> {
        crate::transaction::write_many(self, parts)
    }

    /// Fills `buf` from `offset`, in bytes, with one state: never a part of an operation.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] past the file's end (then `buf` is as it was), [`Error::Poisoned`],
    /// [`Error::Forked`], or what the system says.
    #[inline]
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.engine().read(buf, offset)
    }

    /// Begins a transaction: any number of reads and writes that happen together or not at all.
    /// Dropped without [`commit`](Transaction::commit), it is rolled back.
    pub fn begin(&self) -> Transaction<'_> {
        Transaction::new(self)
    }

    /// Runs `body` in a transaction and commits it, again and again until nobody else has changed
    /// what it read. `body` may run several times: it should do nothing but read and write through
    /// the transaction. If it returns an error that is not [`Error::Conflict`], the transaction is
    /// rolled back and the error returned.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("x"), 4096)?;
    /// let total = f.transact(|tx| {
    ///     let a: u64 = tx.load(0)?;
    ///     let b: u64 = tx.load(2048)?;
    ///     tx.store(0, &(a + 1))?;
    ///     tx.store(2048, &(b + 1))?;
    ///     Ok(a + b + 2)
    /// })?;
    /// assert_eq!(total, 2);
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// `body` may use the file by other operations as well: those happen each time it runs, and stay. If one of them
    /// changes what the transaction has read, every run would meet a conflict, so that is an error. A transaction on
    /// another file, or on other pages of this one, is none.
    ///
    /// # Errors
    /// Those of `body`, and those of [`Transaction::commit`] but for the conflict. [`Error::SelfConflict`] if `body` has
    /// changed, by another operation of the same thread, what the transaction has read: a page, or the length. A region
    /// of 64 pages counts as a page for operations that change 8 of its pages or more, and for a shrink that ends in it.
    pub fn transact<R, E: From<Error>>(
        &self,
        mut body: impl FnMut(&mut Transaction<'_>) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        crate::transaction::transact(self, &mut body)
    }

    /// Pins `range` (in bytes) and gives access to it without copying. The bytes of a view stay as
    /// they are while it lives; writers go on meanwhile, and later readers see what they write. On
    /// [`Medium::PageCache`], and with [`Durability::AllOrNothing`], it is a private copy.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Reversed`], [`Error::Poisoned`], [`Error::Forked`], or what
    /// the system says.
    #[inline]
    pub fn view(&self, range: Range<u64>) -> Result<View<'_>> {
        View::new(self, range)
    }

    /// Brings all slices of the pages of `range` (in bytes) home into the user's file, and gives
    /// the reflection file's space behind them back to the file system, in chunks of 2 MiB. Pages
    /// that a view pins are left. Returns the number of pages that were brought home. On
    /// [`Medium::PageCache`], and with [`Durability::AllOrNothing`], it makes two durable points: one before,
    /// one after.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Reversed`], [`Error::NoSpace`] (what was brought home stays
    /// so), [`Error::Poisoned`], [`Error::Forked`], or what the system says. Those of
    /// [`sync`](Self::sync) where it makes durable points.
    pub fn deploy(&self, range: Range<u64>) -> Result<u64> {
        let engine = self.engine();
        engine.check_usable()?;
        let range = engine.check_bounds(range)?;
        let pages = engine.deploy(range.clone())?;
        engine.punch_deployed(range)?;
        Ok(pages)
    }

    /// Makes a durable point: everything that had returned when this was called, by any thread, is
    /// one state that survives what [`survives_after_sync`](Self::survives_after_sync) says. A loss of
    /// power goes back to exactly this state (`docs/design.md`, "Durable points"). Returns at once on
    /// [`Medium::Dax`] and [`Medium::Ram`], unless [`Durability::AllOrNothing`] was chosen, and where nothing
    /// has changed since the last one.
    ///
    /// Readers go on meanwhile, and so do writers to pages that have not changed since the last durable
    /// point. Calls of several threads at the same time share one barrier. A change of up to a quarter of
    /// the journal ([`Options::journal_len`]; 2 MiB unless chosen) costs one write and one barrier, a larger
    /// one a sync of both files and a short record with a barrier of its own.
    ///
    /// ```
    /// use atomic_mmap::{AtomicMappedFile, Survives};
    /// # let dir = atomic_mmap::doctest_dir();
    /// let f = AtomicMappedFile::create(dir.path().join("state.dat"), 1 << 20)?;
    /// f.write_at(b"accepted", 0)?;
    /// f.write_at(b"paid", 5000)?;
    /// f.sync()?;
    /// assert!(f.survives_after_sync() >= Survives::ProcessDeath);
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`] if the system could not write, and from then on [`Error::Poisoned`] from every
    /// call, for good: nobody knows then which durable point a loss of power goes back to. Opening the
    /// file again finds everything that had returned (with [`Durability::AllOrNothing`]: everything up to
    /// the last durable point, or up to the one that was being made). [`Error::NoSpace`] and
    /// [`Error::TooLarge`] if very many pages have changed and the journal cannot grow for their words: the
    /// last durable point stands, and nothing is lost. [`Error::Forked`].
    pub fn sync(&self) -> Result<()> {
        self.engine().sync()
    }

    /// Writes a consistent copy of the file to a new file at `path`, while this one is open and in use: one
    /// state, in which every operation is whole or absent. The copy is a plain file without companions, has
    /// the owner and permissions of the home file where the process may give them, and is durable when this
    /// returns. What was written before the call is in it, synced or not.
    ///
    /// Writers and `set_len` wait until it returns, readers go on. It takes the time that copying the bytes
    /// takes, and DRAM of 1 % of them. A crash leaves no file at `path`, and perhaps an unfinished one
    /// beside it whose name begins with `.atomic-mmap-copy-`.
    ///
    /// A file that is open must not be copied by other means (`cp`): a part of its bytes is in the reflection
    /// file.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("state.dat"), 1 << 20)?;
    /// f.write_at(b"all of it", 4090)?;
    /// f.copy_to(dir.path().join("backup.dat"))?;
    /// assert_eq!(&std::fs::read(dir.path().join("backup.dat"))?[4090..4099], b"all of it");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`] of kind `AlreadyExists` if something is at `path`, which stays; [`Error::NoSpace`],
    /// [`Error::Poisoned`], [`Error::Forked`], or what the system says. Nothing is left at `path` then.
    pub fn copy_to(&self, path: impl AsRef<Path>) -> Result<()> {
        crate::copy::copy_to(self.engine(), path.as_ref())
    }

    /// Changes the file's length in bytes, in use and without moving the mapping: the length is
    /// part of the atomic state. New bytes are zero; bytes past the new end are gone for good. Where durable
    /// points are kept, making the file shorter makes one; and the one after that, or after the first growth since
    /// then or since opening, syncs both files, however little has changed.
    ///
    /// # Errors
    /// [`Error::TooLong`] past [`Options::max_len`], [`Error::Pinned`] if a view pins what would be
    /// cut off, [`Error::Overdue`] of a longer length, [`Error::Poisoned`], [`Error::Forked`], or what the system says. On [`Medium::Dax`] a
    /// failed sync of the new lengths poisons the handle, as in [`sync`](Self::sync); a shrink has
    /// succeeded nevertheless. So has one whose durable point failed.
    pub fn set_len(&self, len: u64) -> Result<()> {
        self.engine().set_len(len)
    }

    /// The file's logical length in bytes.
    pub fn len(&self) -> u64 {
        self.engine().len_now()
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most that [`set_len`](Self::set_len) may grow the file to.
    pub fn max_len(&self) -> u64 {
        self.engine().max_len
    }

    /// What the file was found to lie on, or was forced to be treated as.
    pub fn medium(&self) -> Medium {
        self.engine().medium
    }

    /// When what has returned is durable, as it was chosen.
    pub fn durability(&self) -> Durability {
        self.engine().durability
    }

    /// What an operation survives once it has returned.
    ///
    /// [`Survives::Nothing`] on [`Medium::PageCache`] where the system does not tell whether the page cache is
    /// still the one that was stored to (no `/proc` or `/sys`, a boot id of a container's own), unless every
    /// write is durable: after any end but a closing the file goes back to the last durable point.
    pub fn survives(&self) -> Survives {
        match self.medium().after_write(self.durability()) {
            Survives::ProcessDeath if self.engine().goes_back_after_death() => Survives::Nothing,
            promised => promised,
        }
    }

    /// What every operation before it survives, as one state, once [`sync`](Self::sync) has returned.
    pub fn survives_after_sync(&self) -> Survives {
        self.medium().after_sync()
    }

    /// The home file's absolute path when it was opened, with every link followed.
    pub fn path(&self) -> &Path {
        self.engine().home.path()
    }

    /// The reflection file's path.
    pub fn reflection_path(&self) -> &Path {
        self.engine().reflection.path()
    }

    /// What all handles of this file did since it was opened.
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// Returns an error if the next write would fail whatever it writes: [`Error::Overdue`] if the durable points of
    /// [`Options::sync_every`] fail, [`Error::Poisoned`], [`Error::Forked`]. For a program that writes seldom and wants to
    /// hear of it. Touches no file.
    ///
    /// # Errors
    /// As said.
    pub fn health(&self) -> Result<()> {
        self.engine().health()
    }

    /// Another handle to the same open file.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Forked`].
    pub fn try_clone(&self) -> Result<Self> {
        self.engine().check_usable()?;
        Ok(AtomicMappedFile { engine: Arc::clone(&self.engine), shared: Arc::clone(&self.shared) })
    }

    /// Closes this handle. With the last handle the file is closed, in the mode that was asked for last.
    ///
    /// Dropping the last handle does the same, in the mode that another handle's `close` asked for last, or with
    /// [`Options::close_on_drop`], and hears of no error. With [`Durability::AllOrNothing`] a drop never makes a durable
    /// point: if something has changed since the last one, it closes with [`CloseMode::Unsynced`], and the next open
    /// takes that back.
    ///
    /// [`CloseMode::Spatial`] and [`CloseMode::Fast`] make a durable point of everything that has returned. With
    /// [`Durability::AllOrNothing`] they do so at once, also if other handles are left. [`CloseMode::Unsynced`] makes
    /// none.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the home file had holes that cannot be filled, or what the system
    /// says. The files are then as a crash would leave them, nothing is lost, and opening the file
    /// again recovers. [`Error::Forked`], [`Error::Poisoned`].
    pub fn close(self, mode: CloseMode) -> Result<()> {
        if self.engine().is_forked() {
            // Another thread of the parent may have held the lock below for ever.
            return Err(Error::Forked { path: self.engine().path() });
        }
        *self.shared.close_mode.lock() = mode;
        let is_last = Arc::strong_count(&self.shared) == 1;
        if !is_last
            && mode != CloseMode::Unsynced
            && self.durability() == Durability::AllOrNothing
            && !planted!(EarlierCloseNoPoint)
        {
            // The last handle may be dropped, which makes no durable point.
            self.engine().sync()?;
        }
        match Arc::into_inner(self.shared) {
            // The drop that follows finds the engine closed.
            Some(last) => last.engine.close(mode),
            None => Ok(()),
        }
    }
}

// A panic that is caught leaves no operation in the middle. Code of the caller runs within a call
// in `transact` and `update` only, where no page is locked and nothing is stored: the transaction is
// dropped, which rolls it back. A panic in the middle of a durable point poisons the handle, so
// that every later call is an error. Nothing else in the engine panics after its first store.
impl UnwindSafe for AtomicMappedFile {}
impl RefUnwindSafe for AtomicMappedFile {}

impl fmt::Debug for AtomicMappedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtomicMappedFile")
            .field("path", &self.path())
            .field("len", &self.len())
            .field("medium", &self.medium())
            .finish_non_exhaustive()
    }
}
