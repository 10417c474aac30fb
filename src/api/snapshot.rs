//! Snapshots: sealing, listing, reading and dropping them, and going back.
//!
//! A thin layer over the engine's snapshots. May import `file`, `value`, `view`, the engine, the
//! format and the errors.

use crate::api::file::AtomicMappedFile;
use crate::api::value::{Readable, load};
use crate::api::view::View;
use crate::config::snapshots::Retention;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::format::snapshots::table::{Entry, Flags};
use crate::pair::epochs::Sealed;
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The facts about a snapshot: [`AtomicMappedFile::snapshots`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SnapshotInfo {
    /// Its number. Numbers grow by one, and none is given twice.
    pub number: u64,
    /// Its name.
    pub name: String,
    /// When it was sealed, by the system's clock.
    pub created: SystemTime,
    /// The file's length in it, in bytes.
    pub len: u64,
    /// `true` if the file has taken it by itself: [`Options::auto_snapshots`].
    ///
    /// [`Options::auto_snapshots`]: crate::Options::auto_snapshots
    pub is_automatic: bool,
    /// `true` if it was the present before a rollback: [`AtomicMappedFile::roll_back`].
    pub is_undo: bool,
    /// Bytes of kept slices that only this snapshot needs, without the 64 of each record. Dropping
    /// the snapshot frees them for later snapshots, or gives them back to the file system.
    pub held: u64,
}

impl SnapshotInfo {
    pub(super) fn new(entry: Entry, held: u64) -> Self {
        SnapshotInfo {
            number: entry.number,
            created: UNIX_EPOCH + Duration::from_nanos(entry.nanos),
            len: entry.len,
            is_automatic: entry.flags.has(Flags::AUTOMATIC),
            is_undo: entry.flags.has(Flags::UNDO),
            held,
            name: entry.name,
        }
    }
}

impl AtomicMappedFile {
    /// Seals the present state of the whole file under a name, and returns what is known of it.
    ///
    /// This takes microseconds whatever the file's size, since nothing is copied. The first later
    /// write to a slice of 64 bytes keeps the old bytes, in the companion `.snapshots` of the file.
    /// The snapshot stays until it is [dropped](Self::drop_snapshot). It survives what the last
    /// completed write [survives](Self::survives), and each close. Where
    /// [durable points](crate::Durability) are kept, a snapshot is one, and takes as long as
    /// [`sync`](Self::sync).
    ///
    /// A name has 1 to 64 bytes. No other snapshot of the file may have it.
    ///
    /// A file with snapshots keeps its companions also after [`CloseMode::Spatial`]. Its bytes are
    /// then complete in the file itself, but another program that writes to it makes the next open
    /// fail, as after [`CloseMode::Fast`].
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("x"), 1 << 20)?;
    /// f.write_at(b"first", 0)?;
    /// f.snapshot("before")?;
    /// f.write_at(b"other", 0)?;
    /// let before = f.open_snapshot("before")?;
    /// let mut bytes = [0; 5];
    /// before.read_at(&mut bytes, 0)?;
    /// assert_eq!(&bytes, b"first");
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Snapshot`] if the name is taken or is no name, or the file has 1,000 snapshots.
    /// [`Error::NoSpace`], [`Error::Io`] if the companion cannot be made. The errors of
    /// [`sync`](Self::sync) where durable points are kept.
    ///
    /// [`CloseMode::Spatial`]: crate::CloseMode::Spatial
    /// [`CloseMode::Fast`]: crate::CloseMode::Fast
    /// [`Error::Snapshot`]: crate::Error::Snapshot
    /// [`Error::NoSpace`]: crate::Error::NoSpace
    /// [`Error::Io`]: crate::Error::Io
    pub fn snapshot(&self, name: &str) -> Result<SnapshotInfo> {
        let entry = self.engine().seal(name, Flags::default())?;
        // Nothing has changed since.
        Ok(SnapshotInfo::new(entry, 0))
    }

    /// Returns what is known of all snapshots of the file, the oldest first. A child of `fork` gets
    /// none.
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        let engine = self.engine();
        let live = engine.live_snapshots();
        let held = engine.held();
        let held = |entry: &Entry| held.get(&entry.number).copied().unwrap_or(0);
        live.into_iter()
            .map(|entry| (held(&entry), entry))
            .map(|(held, entry)| SnapshotInfo::new(entry, held))
            .collect()
    }

    /// Opens a snapshot for reading. It reads while other threads write, and is not dropped
    /// meanwhile. It is a further handle to the open file, as [`try_clone`](Self::try_clone)
    /// returns.
    ///
    /// # Errors
    /// [`Error::Snapshot`](crate::Error::Snapshot) if there is no snapshot of this name.
    pub fn open_snapshot(&self, name: &str) -> Result<Snapshot> {
        let file = self.try_clone()?;
        let entry = self.engine().begin_reading(name)?;
        let of = Sealed { number: entry.number, len: entry.len };
        Ok(Snapshot { file, of, name: entry.name })
    }

    /// Drops a snapshot, and gives back the space that only it needed. The other snapshots, older
    /// and newer ones, stay as they are. Writers go on meanwhile.
    ///
    /// # Errors
    /// [`Error::Snapshot`](crate::Error::Snapshot) if there is no snapshot of this name, or if one
    /// of its handles is open.
    pub fn drop_snapshot(&self, name: &str) -> Result<()> {
        self.engine().drop_snapshot(name)
    }

    /// Drops snapshots until the others meet the limits, the oldest first. Snapshots that handles
    /// read stay. Returns how many were dropped.
    ///
    /// # Errors
    /// Those of [`drop_snapshot`](Self::drop_snapshot).
    pub fn retain_snapshots(&self, keep: Retention) -> Result<u64> {
        self.engine().retain(keep, |_| true)
    }

    /// Gives the file the bytes and the length of a snapshot, as one operation: readers and writers
    /// see all of it or nothing, and so does a crash. If it is cut off, the next open finishes it.
    ///
    /// With `undo`, the present is sealed first under that name. Going back to it takes the
    /// rollback back. The snapshot itself stays.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("x"), 8)?;
    /// f.store(0, &1_u64)?;
    /// f.snapshot("one")?;
    /// f.store(0, &2_u64)?;
    /// f.roll_back("one", Some("two"))?;
    /// assert_eq!(f.load::<u64>(0)?, 1);
    /// f.roll_back("two", None)?;
    /// assert_eq!(f.load::<u64>(0)?, 2);
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Snapshot`] if there is no snapshot of this name, or `undo` is taken.
    /// [`Error::TooLong`] if the snapshot is longer than [`max_len`](Self::max_len). The others of
    /// [`set_len`](Self::set_len). Once the rollback is under way, an error poisons the handle, and
    /// the next open finishes it.
    ///
    /// [`Error::Snapshot`]: crate::Error::Snapshot
    /// [`Error::TooLong`]: crate::Error::TooLong
    pub fn roll_back(&self, name: &str, undo: Option<&str>) -> Result<()> {
        self.engine().roll_back(name, undo)
    }
}

/// A snapshot that is open for reading: [`AtomicMappedFile::open_snapshot`].
///
/// It has the reading half of the file's interface: [`read_at`](Self::read_at),
/// [`load`](Self::load), [`slot`](Self::slot), [`array`](Self::array) and [`view`](Self::view).
/// All calls of all its handles return bytes of the sealed state, however the file is written to,
/// deployed, or made longer or shorter meanwhile. [`Source`](crate::Source) is code's way to read
/// a file or a snapshot.
///
/// Its methods take `&self` and may be called from any number of threads.
pub struct Snapshot {
    file: AtomicMappedFile,
    pub(super) of: Sealed,
    name: String,
}

impl Snapshot {
    /// Returns the snapshot's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the snapshot's number.
    pub fn number(&self) -> u64 {
        self.of.number
    }

    /// Returns the file's length in the snapshot, in bytes.
    pub fn len(&self) -> u64 {
        self.of.len
    }

    /// Returns `true` if the file had no byte.
    pub fn is_empty(&self) -> bool {
        self.of.len == 0
    }

    /// Fills `buf` with the bytes that the snapshot has from byte `offset` on.
    ///
    /// # Errors
    /// [`Error::PastEnd`] past the snapshot's end. [`Error::Snapshot`] if kept bytes are damaged:
    /// they are not returned. [`Error::Poisoned`], [`Error::Forked`].
    ///
    /// [`Error::PastEnd`]: crate::Error::PastEnd
    /// [`Error::Snapshot`]: crate::Error::Snapshot
    /// [`Error::Poisoned`]: crate::Error::Poisoned
    /// [`Error::Forked`]: crate::Error::Forked
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.engine().read_snapshot(self.of, buf, offset)
    }

    /// Returns ranges of the snapshot, in ascending order: every byte outside of them is zero. As
    /// [`AtomicMappedFile::data`] does.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io), [`Error::Poisoned`](crate::Error::Poisoned),
    /// [`Error::Forked`](crate::Error::Forked).
    pub fn data(&self) -> Result<Vec<Range<u64>>> {
        self.engine().data_of_snapshot(self.of)
    }

    /// Returns all bytes of the snapshot.
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at).
    pub fn read_vec(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.engine().reserve(&mut bytes, self.of.len)?;
        bytes.resize(self.of.len as usize, 0);
        self.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Returns the value at byte `offset`, which may have any alignment.
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at). [`Error::InvalidValue`](crate::Error::InvalidValue) if
    /// the bytes are no valid value of `T`.
    pub fn load<T: Readable>(&self, offset: u64) -> Result<T> {
        load(&self.file, offset, |bytes| self.read_at(bytes, offset))
    }

    /// Returns a view of `range`, in bytes: a copy of them, made by this call.
    ///
    /// The bytes of a snapshot lie in several places, which only a wait of the writers could hold
    /// together. So the view owns its bytes, and [`as_copy`](View::as_copy) always returns them.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("x"), 1 << 20)?;
    /// f.write_at(b"over two pages", 4090)?;
    /// f.snapshot("before")?;
    /// f.write_at(b"over", 4090)?;
    /// f.set_len(100)?;
    /// let before = f.open_snapshot("before")?;
    /// let view = before.view(4090..4104)?;
    /// assert_eq!(view.as_copy(), Some(&b"over two pages"[..]));
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at). [`Error::Reversed`] if the range ends before it begins.
    /// [`Error::Io`] if there is no memory for the bytes.
    ///
    /// [`Error::Reversed`]: crate::Error::Reversed
    /// [`Error::Io`]: crate::Error::Io
    pub fn view(&self, range: Range<u64>) -> Result<View<'_>> {
        let Range { start, end } = range;
        let reversed = || Error::Reversed { path: self.engine().path(), start, end };
        let len = end.checked_sub(start).ok_or_else(reversed)?;
        let range = self.check_range(start, len)?;
        View::copied(&self.file, range, |copy| self.read_at(copy, start))
    }

    /// Returns the range of `len` bytes at `offset`, if it lies within the snapshot.
    pub(crate) fn check_range(&self, offset: u64, len: u64) -> Result<Range<u64>> {
        self.engine().check_range_of(self.of, offset, len)
    }

    pub(crate) fn file(&self) -> &AtomicMappedFile {
        &self.file
    }

    fn engine(&self) -> &Engine {
        self.file.engine()
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // In a child of `fork`, a thread of the parent may seem to hold the lock of the readers.
        if !self.engine().is_forked() {
            self.engine().epochs.end_reading(self.of.number);
        }
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Sealed { number, len } = self.of;
        let mut all = f.debug_struct("Snapshot");
        all.field("name", &self.name).field("number", &number).field("len", &len).finish()
    }
}
