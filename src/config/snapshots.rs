//! When a file takes snapshots by itself, and which snapshots stay.
//!
//! May import nothing from the crate.

use std::time::Duration;

/// Which snapshots stay. Older ones are dropped first, until the others meet every limit.
///
/// ```
/// # let dir = atomic_mmap::doctest_dir();
/// # let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("x"), 4096)?;
/// use atomic_mmap::Retention;
///
/// for name in ["monday", "tuesday", "wednesday"] {
///     f.snapshot(name)?;
/// }
/// assert_eq!(f.retain_snapshots(Retention::new().number(2))?, 1);
/// assert_eq!(f.snapshots()[0].name, "tuesday");
/// # Ok::<(), atomic_mmap::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use]
pub struct Retention {
    pub(crate) number: Option<usize>,
    pub(crate) age: Option<Duration>,
    pub(crate) bytes: Option<u64>,
}

impl Retention {
    /// Returns limits that every snapshot meets.
    pub fn new() -> Self {
        Retention::default()
    }

    /// Keeps at most this many snapshots.
    pub fn number(mut self, most: usize) -> Self {
        self.number = Some(most);
        self
    }

    /// Keeps snapshots that are at most this old, by the system's clock. The newest snapshot always
    /// stays. A snapshot counts as no younger than a newer one, whatever the clock said: a time in
    /// the future counts as that of the next snapshot, or as now.
    pub fn age(mut self, most: Duration) -> Self {
        self.age = Some(most);
        self
    }

    /// Keeps as many snapshots as need at most this many bytes of records, all of the file's
    /// snapshots together. A record has 64 bytes, and the bytes that it keeps. The newest snapshot
    /// always stays.
    pub fn bytes(mut self, most: u64) -> Self {
        self.bytes = Some(most);
        self
    }
}

/// When a file takes snapshots by itself: as soon as one of the limits is reached since the last
/// one. A file that has not changed takes none.
///
/// The worker thread of the file takes them, and drops those that the limits do not keep. Writers
/// wait for it as for [`snapshot`](crate::AtomicMappedFile::snapshot). The thread looks every five
/// milliseconds, so a snapshot is that much late. A snapshot that fails is counted in
/// [`Stats::failed_snapshots`](crate::Stats::failed_snapshots), and tried again at the next look.
///
/// A change of the length, a rollback and an import count as a write of no bytes.
///
/// Names are `auto-` and the number of the snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use]
pub struct AutoSnapshots {
    pub(crate) writes: Option<u64>,
    pub(crate) bytes: Option<u64>,
    pub(crate) interval: Option<Duration>,
    pub(crate) keep: Retention,
}

impl AutoSnapshots {
    /// Returns limits that are never reached.
    pub fn new() -> Self {
        AutoSnapshots::default()
    }

    /// Takes a snapshot after this many writes and transactions. At least 1.
    pub fn writes(mut self, count: u64) -> Self {
        self.writes = Some(count.max(1));
        self
    }

    /// Takes a snapshot after writes of this many bytes in all. At least 1.
    pub fn bytes(mut self, count: u64) -> Self {
        self.bytes = Some(count.max(1));
        self
    }

    /// Takes a snapshot after this time.
    pub fn interval(mut self, time: Duration) -> Self {
        self.interval = Some(time);
        self
    }

    /// Sets which automatic snapshots stay. Snapshots with a name that the program has given all
    /// stay, and count for the limit of bytes only.
    pub fn keep(mut self, keep: Retention) -> Self {
        self.keep = keep;
        self
    }
}
