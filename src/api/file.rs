//! The handle to an open file.
//!
//! A thin layer: it checks arguments of the API and leaves the rest to the engine.

use crate::api::close::Shared;
use crate::api::view::View;
use crate::config::options::Options;
use crate::config::{DeployPolicy, Durability, Medium, Survives};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::pair::stats::Stats;
use crate::platform::{Name, Platform};
use std::fmt;
use std::ops::Range;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::Path;
use std::sync::Arc;

/// A memory-mapped file in which every operation is atomic.
///
/// A write of any size at any offset is one operation, and so is a transaction over any number of
/// ranges. A crash at any instruction leaves each operation whole or absent. Readers never see
/// part of an operation. Operations are linearizable. What a completed operation survives depends
/// on the medium, which the handle reports: [`medium`](Self::medium),
/// [`survives`](Self::survives).
///
/// The handle is [`UnwindSafe`]: a panic in a closure of [`transact`](Self::transact) rolls that
/// transaction back, and the handle stays usable.
///
/// All methods take `&self` and may be called from any number of threads.
/// [`try_clone`](Self::try_clone) returns further handles to the same mapping. The file closes
/// with its last handle.
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
    /// A copy of `shared.engine`, which saves every operation one load.
    engine: Arc<Engine>,
    pub(super) shared: Arc<Shared>,
}

impl AtomicMappedFile {
    /// Returns the default options for opening a file: see [`Options`].
    pub fn options() -> Options {
        Options::default()
    }

    /// Opens an existing file. Short for `options().open(path)`.
    ///
    /// # Errors
    /// See [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path)
    }

    /// Opens a file, and creates it if it does not exist. It is then at least `len` bytes long: a
    /// new, empty or shorter file grows with zero bytes. A longer file keeps its length.
    ///
    /// Calls `options().create(true).len(len).open(path)`, and then [`set_len`](Self::set_len) if
    /// the file is shorter.
    ///
    /// # Errors
    /// See [`Options::open`] and [`set_len`](Self::set_len).
    pub fn create(path: impl AsRef<Path>, len: u64) -> Result<Self> {
        let file = Self::options().create(true).len(len).open(path)?;
        if file.len() < len {
            file.set_len(len).inspect_err(|_| file.engine().leave_not_closed())?;
        }
        Ok(file)
    }

    pub(crate) fn open_on(platform: Platform, options: Options, path: &Path) -> Result<Self> {
        let name =
            platform.name(path).map_err(|e| Error::of_opening(path, options.read_only, e))?;
        Self::open_named(platform, options, (path, &name))
    }

    /// Opens the file of a path that the caller gave, and that was resolved to a name.
    pub(crate) fn open_named(
        platform: Platform,
        options: Options,
        of: (&Path, &Name),
    ) -> Result<Self> {
        let options = options.into_opened();
        let engine = crate::recovery::open(platform, &options, of)?;
        let shared = Arc::new(Shared::new(Arc::clone(&engine), options.close_on_drop));
        Ok(AtomicMappedFile { engine, shared })
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Writes all of `buf` at byte `offset`, as one atomic operation of any size.
    ///
    /// # Errors
    /// [`Error::PastEnd`] past the file's end, [`Error::NoSpace`] on a full file system,
    /// [`Error::TooLarge`], [`Error::Overdue`], [`Error::Poisoned`], [`Error::Forked`]. An error
    /// means that nothing was written.
    ///
    /// With [`Durability::EveryWrite`], also the errors of [`sync`](Self::sync). The write is then
    /// in memory, and it is unknown whether it is durable.
    #[inline]
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.engine().write(buf, offset)
    }

    /// Writes as [`write_at`](Self::write_at) does, and deploys the written pages at once, whatever
    /// the policy. So the next reads of these pages find their bytes in one piece.
    ///
    /// On [`Medium::PageCache`], and with [`Durability::AtomicSync`], the bytes stay where they are
    /// until the next durable point. A deployment that fails does not fail the write.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at).
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("state.dat"), 4096)?;
    /// f.write_at_eager(b"read by many", 100)?;
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    pub fn write_at_eager(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.engine().write_eagerly(buf, offset)
    }

    /// Returns the policy by which pages are deployed.
    pub fn deploy_policy(&self) -> DeployPolicy {
        self.engine().policy()
    }

    /// Changes the policy by which pages are deployed, for all handles of this file. Operations
    /// that run meanwhile may go by the old one. Nothing is stored: the next open begins with that
    /// of its options.
    pub fn set_deploy_policy(&self, policy: DeployPolicy) {
        self.engine().set_policy(policy);
    }

    /// Writes to several places in one atomic operation. Each part is a byte offset and the bytes
    /// to write there. Parts may come in any order. Where parts overlap, the later one wins.
    ///
    /// Equivalent to a [`transaction`](Self::begin) that only writes, but without its copy of the
    /// bytes. If parts overlap, or touch within a page, all parts are copied once.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("x"), 1 << 20)?;
    /// let (page, head) = ([7; 4096], 1_u64.to_le_bytes());
    /// f.write_many(&[(8192, &page), (0, &head)])?; // the page and its pointer: both or none
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at). [`Error::PastEnd`] if any part lies past the
    /// file's end.
    pub fn write_many(&self, segments: &[(u64, &[u8])]) -> Result<()> {
        crate::api::transaction::write_many(self, segments)
    }

    /// Fills `buf` with the bytes at byte `offset`. All of them belong to one state of the file.
    ///
    /// # Errors
    /// [`Error::PastEnd`] past the file's end, which leaves `buf` unchanged.
    /// [`Error::Poisoned`], [`Error::Forked`], [`Error::Io`].
    #[inline]
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.engine().read(buf, offset)
    }

    /// Pins the bytes of `range` and returns a view that reads them without copying.
    ///
    /// The bytes of a view do not change while it lives. Writers are not blocked, and other
    /// readers see what they write. On [`Medium::PageCache`], and with
    /// [`Durability::AtomicSync`], a view is a private copy.
    ///
    /// # Errors
    /// [`Error::PastEnd`], [`Error::Reversed`], [`Error::Poisoned`], [`Error::Forked`],
    /// [`Error::Io`].
    #[inline]
    pub fn view(&self, range: Range<u64>) -> Result<View<'_>> {
        View::new(self, range)
    }

    /// Deploys the pages of `range`, in bytes: copies their current bytes from the reflection file
    /// into the user's file. Returns the number of pages deployed.
    ///
    /// Frees the space of the reflection file behind `range`, in chunks of 2 MiB. Skips pages that
    /// a view pins. On [`Medium::PageCache`], and with [`Durability::AtomicSync`], makes two
    /// durable points: one before and one after.
    ///
    /// # Errors
    /// [`Error::PastEnd`], [`Error::Reversed`], [`Error::Poisoned`], [`Error::Forked`],
    /// [`Error::Io`]. [`Error::NoSpace`]; pages deployed before it stay deployed. Those of
    /// [`sync`](Self::sync) where it makes durable points.
    pub fn deploy(&self, range: Range<u64>) -> Result<u64> {
        let engine = self.engine();
        engine.check_usable()?;
        engine.check_writable()?;
        let range = engine.check_bounds(range)?;
        let pages = engine.deploy(range.clone())?;
        engine.punch_deployed(range)?;
        Ok(pages)
    }

    /// Makes a durable point: a state of the file that a power loss goes back to exactly.
    ///
    /// The point contains every operation, by any thread, that had returned before this call.
    /// [`survives_after_sync`](Self::survives_after_sync) tells what it survives. Returns at once
    /// if nothing has changed since the last durable point. Also returns at once on
    /// [`Medium::Dax`] and [`Medium::Ram`], unless [`Durability::AtomicSync`] was chosen.
    ///
    /// Does not block readers, nor writers to pages that have not changed since the last durable
    /// point. Concurrent calls share one barrier. A change of up to a quarter of the journal, at
    /// most 4 MiB, costs one write and one barrier ([`Options::journal_len`]; by default 2 MiB, and
    /// less for a file below 1 MiB). A larger change costs a sync of both files and one more
    /// barrier.
    ///
    /// ```
    /// use atomic_mmap::{AtomicMappedFile, Survives};
    /// # let dir = atomic_mmap::doctest_dir();
    /// let f = AtomicMappedFile::create(dir.path().join("state.dat"), 1 << 20)?;
    /// f.write_at(b"accepted", 0)?;
    /// f.write_at(b"paid", 5000)?;
    /// f.sync()?;
    /// assert!(f.survives_after_sync() >= Survives::ProcessCrash);
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// Returns the number of the point, for [`wait_durable`](Self::wait_durable). Returns 0 where
    /// no durable points are kept.
    ///
    /// # Errors
    /// [`Error::Io`] if the system could not write. It is then unknown which durable point a power
    /// loss goes back to, and every later call returns [`Error::Poisoned`]. Reopening the file
    /// recovers every operation that had returned. With [`Durability::AtomicSync`] it recovers
    /// the last durable point, or the one being made.
    ///
    /// [`Error::NoSpace`] or [`Error::TooLarge`] if very many pages have changed and the journal
    /// cannot grow to record them. The last durable point then stays in force, and no write is
    /// lost.
    ///
    /// [`Error::Poisoned`], [`Error::Forked`].
    pub fn sync(&self) -> Result<u64> {
        let number = self.engine().sync()?;
        self.engine().mark_if_wanted();
        Ok(number)
    }

    /// Sets the file's byte mark at `offset`: [`Options::mark_at`]. For the structure that has
    /// reserved the 64 bytes there.
    pub(crate) fn mark_at(&self, offset: u64) -> Result<()> {
        self.engine().mark_at(offset)
    }

    /// Writes a consistent copy of the open file to a new file at `path`.
    ///
    /// The copy is one state, in which every operation is whole or absent. It contains everything
    /// written before the call, synced or not. It is a plain file without companions, and durable
    /// when this returns. It gets the owner and permissions of the home file, as far as the
    /// process may set them.
    ///
    /// Blocks writers and `set_len` until it returns, but not readers. Takes the time of copying
    /// the bytes, and memory of 1 % of their size. A crash leaves no file at `path`. It may leave
    /// an unfinished file in the same folder, with a name that begins `.atomic-mmap-copy-`.
    ///
    /// Never copy an open file by other means, like `cp`: some of its bytes are in the
    /// reflection file.
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
    /// [`Error::Io`] of kind `AlreadyExists` if `path` exists; the existing file stays unchanged.
    /// [`Error::NoSpace`], [`Error::Poisoned`], [`Error::Forked`], or another [`Error::Io`].
    /// These leave nothing at `path`.
    pub fn copy_to(&self, path: impl AsRef<Path>) -> Result<()> {
        crate::api::copy::copy_to(self.engine(), path.as_ref())
    }

    /// Changes the file's length, in bytes. The file may be in use, and the mapping does not move.
    ///
    /// The length is part of the atomic state. New bytes are zero; bytes past the new end are lost
    /// for good.
    ///
    /// Where durable points are kept, a shrink makes one. The durable point after a shrink syncs
    /// both files, even if few bytes have changed. So does the one after the first growth since
    /// that shrink or since opening.
    ///
    /// # Errors
    /// [`Error::TooLong`] past [`max_len`](Self::max_len), [`Error::Pinned`] if a view pins bytes
    /// past the new end or a stage has lent some, [`Error::Overdue`] for a growth,
    /// [`Error::NoSpace`], [`Error::Poisoned`], [`Error::Forked`], [`Error::Io`].
    ///
    /// On [`Medium::Dax`] a failed sync of the new length poisons the handle, as in
    /// [`sync`](Self::sync). A shrink has taken effect even if that sync, or its durable point,
    /// fails.
    pub fn set_len(&self, len: u64) -> Result<()> {
        self.engine().set_len(len)
    }

    /// Makes `data` the whole contents of the file: its length and its bytes, in one operation.
    ///
    /// Readers find the old contents or the new ones, whole. So does an open after a crash.
    /// After a spatial close the file is exactly these bytes.
    ///
    /// With the length that the file has already, this is [`write_at`](Self::write_at). With
    /// another length it waits for a durable point that is being made. A shorter file makes a
    /// durable point, as by [`set_len`](Self::set_len).
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// use atomic_mmap::{AtomicMappedFile, CloseMode};
    ///
    /// let path = dir.path().join("settings.json");
    /// let f = AtomicMappedFile::create(&path, 0)?;
    /// f.replace(br#"{"volume": 11}"#)?;
    /// f.replace(br#"{"volume": 3}"#)?; // shorter by a byte
    /// assert_eq!(f.read_vec()?, br#"{"volume": 3}"#);
    /// f.close(CloseMode::Spatial)?;
    /// assert_eq!(std::fs::read(&path)?, br#"{"volume": 3}"#);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at), except [`Error::PastEnd`], and those of
    /// [`set_len`](Self::set_len). An error means that nothing has changed, with the exceptions
    /// that those two name.
    pub fn replace(&self, data: &[u8]) -> Result<()> {
        self.engine().replace(data)
    }

    /// Returns the whole contents of the file. Length and bytes belong to one state.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Forked`], [`Error::Io`].
    ///
    /// # Panics
    /// If there is no memory for the bytes, as [`Vec`] does.
    pub fn read_vec(&self) -> Result<Vec<u8>> {
        self.engine().read_whole()
    }

    /// Returns ranges of the file, in ascending order: every byte outside of them was zero at a
    /// moment of this call. So a program that reads a sparse file reads what it has storage for.
    /// The ranges are multiples of 256 KiB, up to the file's end.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # use atomic_mmap::AtomicMappedFile;
    /// let f = AtomicMappedFile::create(dir.path().join("sparse"), 1 << 30)?;
    /// f.write_at(b"in the midst", 1 << 29)?;
    /// assert_eq!(f.data()?, [1 << 29..(1 << 29) + (256 << 10)]);
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Poisoned`], [`Error::Forked`].
    pub fn data(&self) -> Result<Vec<Range<u64>>> {
        self.engine().data_of_file()
    }

    /// Returns the file's length in bytes.
    pub fn len(&self) -> u64 {
        self.engine().len_now()
    }

    /// Returns `true` if the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the largest length that [`set_len`](Self::set_len) accepts, in bytes.
    pub fn max_len(&self) -> u64 {
        self.engine().max_len
    }

    /// Returns the medium that was detected, or forced by [`Options::medium`].
    pub fn medium(&self) -> Medium {
        self.engine().medium
    }

    /// Returns the choice of [`Options::durability`].
    pub fn durability(&self) -> Durability {
        self.engine().durability
    }

    /// Returns what an operation survives once it has returned.
    ///
    /// [`Survives::Nothing`] on [`Medium::PageCache`] where the system cannot identify the page
    /// cache: without `/proc` or `/sys`, or in a container with a boot id of its own. There even a
    /// process crash goes back to the last durable point. With [`Durability::EveryWrite`] each
    /// write is durable, so this does not apply.
    ///
    /// ```
    /// use atomic_mmap::{AtomicMappedFile, Medium, Survives};
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let path = dir.path().join("state.dat");
    ///
    /// let f = AtomicMappedFile::create(&path, 1 << 20)?;
    /// match f.medium() {
    ///     Medium::Dax => assert_eq!(f.survives(), Survives::PowerLoss),
    ///     _ => assert_eq!(f.survives(), Survives::ProcessCrash),
    /// }
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    pub fn survives(&self) -> Survives {
        match self.medium().after_write(self.durability()) {
            Survives::ProcessCrash if self.engine().goes_back_after_death() => Survives::Nothing,
            promised => promised,
        }
    }

    /// Returns what the operations before a call of [`sync`](Self::sync) survive, as one state,
    /// once that call has returned.
    pub fn survives_after_sync(&self) -> Survives {
        self.medium().after_sync()
    }

    /// Returns the home file's absolute path at the time of opening, with every link followed.
    pub fn path(&self) -> &Path {
        self.engine().home.path()
    }

    /// Returns the reflection file's path.
    pub fn reflection_path(&self) -> &Path {
        self.engine().reflection.path()
    }

    /// Returns what all handles of this file have done since it was opened.
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// Returns an error if every write would fail now. Accesses no file. A program that writes
    /// rarely can call it to notice a failure early.
    ///
    /// # Errors
    /// [`Error::Overdue`] if the durable points of [`Options::sync_every`] fail,
    /// [`Error::Poisoned`], [`Error::Forked`]. Once, and although writes succeed:
    /// [`Error::NotClosed`] if the last drop of a handle of this file, in this process, could not
    /// close it.
    pub fn health(&self) -> Result<()> {
        self.engine().health()
    }

    /// Returns another handle to the same open file.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Forked`].
    pub fn try_clone(&self) -> Result<Self> {
        self.engine().check_readable()?;
        Ok(AtomicMappedFile { engine: Arc::clone(&self.engine), shared: Arc::clone(&self.shared) })
    }
}

// A caught panic leaves no operation half done. Caller code runs inside a call only in `transact`
// and `update`. There no page is locked and nothing is stored, and dropping the transaction rolls
// it back. A panic of the engine itself leaves the operation as if it had not begun. Or it poisons
// the handle (`pair::unfinished`), so every later call returns an error, and the next open
// recovers. `tests/it/panics.rs` tries each step of each operation.
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

impl Options {
    /// Opens the file, and recovers it if the last process crashed.
    ///
    /// # Errors
    /// - [`Error::Busy`] if the file is already open.
    /// - [`Error::Mismatch`] if the home file and its companions do not match.
    /// - [`Error::UnsupportedFileSystem`], [`Error::UnsupportedMedium`], [`Error::NotRegular`],
    ///   [`Error::DanglingLink`].
    /// - [`Error::NotWritable`], [`Error::FolderNotWritable`].
    /// - [`Error::NoAddressSpace`], [`Error::TooLong`], [`Error::NoSpace`], [`Error::NoThread`].
    /// - [`Error::Untrusted`] if a link, or another user's file, has the name of a companion.
    /// - [`Error::MountedAlone`] if the file is mounted by itself into a folder of another file
    ///   system.
    /// - [`Error::Io`] if a system call fails.
    ///
    /// An error leaves the files unchanged, with two exceptions, which are final: what
    /// [`Discard`](crate::OnMismatch::Discard) has removed, and what recovery has completed.
    pub fn open(self, path: impl AsRef<Path>) -> Result<AtomicMappedFile> {
        AtomicMappedFile::open_on(Platform::native(), self, path.as_ref())
    }

    /// Looks at the file and its companions: what they hold, and what an open would do. Changes
    /// nothing, waits for nothing, and also looks at a file that is open in another process.
    /// Options that say where companions and medium are apply. Tries the file's lock twice, for
    /// microseconds: an open for writing at that moment is [`Error::Busy`].
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let path = dir.path().join("state.dat");
    /// use atomic_mmap::{AtomicMappedFile, CloseMode, Decision};
    ///
    /// AtomicMappedFile::create(&path, 4096)?.close(CloseMode::Fast)?;
    /// let look = AtomicMappedFile::options().inspect(&path)?;
    /// assert_eq!((look.len, look.decision), (4096, Some(Decision::Reuse)));
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`open`](Self::open) up to the decision, but for [`Error::Busy`] and
    /// [`Error::Mismatch`], which are findings here.
    pub fn inspect(&self, path: impl AsRef<Path>) -> Result<crate::Inspection> {
        let options = self.clone().read_only(true).into_opened();
        crate::recovery::inspect::inspect(Platform::native(), &options, path.as_ref())
    }

    /// Opens the file on a recording platform.
    #[cfg(feature = "recorder")]
    #[doc(hidden)]
    pub fn open_recorded(
        self,
        recorder: &crate::platform::recorder::Recorder,
        path: impl AsRef<Path>,
    ) -> Result<AtomicMappedFile> {
        AtomicMappedFile::open_on(recorder.platform(), self, path.as_ref())
    }

    /// Opens the file of a simulated machine.
    #[cfg(feature = "recorder")]
    #[doc(hidden)]
    pub fn open_simulated(
        self,
        machine: std::sync::Arc<dyn crate::platform::machine::Machine>,
        path: impl AsRef<Path>,
    ) -> Result<AtomicMappedFile> {
        AtomicMappedFile::open_on(Platform::simulated(machine), self, path.as_ref())
    }
}
