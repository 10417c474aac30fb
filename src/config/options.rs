//! The options for opening a file.
//!
//! Module `recovery` performs the steps from a path to an open pair of files.

use crate::config::integrity::{Damage, DamageReporter, Integrity};
use crate::config::progress::{Progress, Reporter};
use crate::config::snapshots::AutoSnapshots;
use crate::config::{Allocation, CloseMode, DeployPolicy, Durability, Medium, OnMismatch};
use std::path::PathBuf;
use std::time::Duration;

/// Environment variable that forces the medium of every file: `dax`, `page-cache` or `ram`.
/// [`Options::medium`] takes precedence. A program with more rights than its caller, as a setuid
/// program, ignores the variable.
pub const MEDIUM_VARIABLE: &str = "ATOMIC_MMAP_MEDIUM";

/// Largest default length of a journal in bytes. It holds a thousand small durable points between
/// two checkpoints, or one point of 1 MiB in a slightly longer record.
pub(crate) const JOURNAL_LEN: u64 = 8 << 20;
/// Smallest default length of a journal in bytes. With it a file of a page takes less than 200 KiB
/// of disk in all.
const SHORT_JOURNAL_LEN: u64 = 128 << 10;
/// Bytes of the default journal for each byte of the file: a record of the whole file takes less
/// than a quarter of the journal.
const JOURNAL_PER_BYTE: u64 = 8;

/// Options for opening a file. See [`AtomicMappedFile::options`](crate::AtomicMappedFile::options).
#[derive(Clone, Debug)]
#[must_use]
pub struct Options {
    pub(crate) read_only: bool,
    pub(crate) create: bool,
    pub(crate) len: u64,
    pub(crate) max_len: Option<u64>,
    pub(crate) medium: Option<Medium>,
    pub(crate) identity: Option<(u64, u64)>,
    pub(crate) mark_at: Option<u64>,
    pub(crate) marks_database: bool,
    pub(crate) shows_appends: bool,
    pub(crate) any_file_system: bool,
    pub(crate) reflection_dir: Option<PathBuf>,
    pub(crate) deploy: DeployPolicy,
    pub(crate) allocation: Allocation,
    pub(crate) on_mismatch: OnMismatch,
    pub(crate) best_effort: bool,
    pub(crate) close_on_drop: CloseMode,
    pub(crate) durability: Durability,
    pub(crate) sync_every: Option<Duration>,
    pub(crate) auto_snapshots: Option<AutoSnapshots>,
    pub(crate) journal_len: Option<u64>,
    pub(crate) reflection_budget: Option<u64>,
    pub(crate) deploy_idle: Option<Duration>,
    pub(crate) busy_timeout: Duration,
    pub(crate) reporter: Reporter,
    pub(crate) integrity: Option<Integrity>,
    pub(crate) scrub: Option<u64>,
    pub(crate) damage_reporter: DamageReporter,
    /// `true` if cuts are taken although no durable points are kept: `Pair::keeps_cuts`. No caller
    /// can ask for that yet.
    pub(crate) keeps_cuts: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            read_only: false,
            create: false,
            len: 0,
            max_len: None,
            medium: None,
            identity: None,
            mark_at: None,
            marks_database: false,
            shows_appends: false,
            any_file_system: false,
            reflection_dir: None,
            deploy: DeployPolicy::Lazy,
            allocation: Allocation::OnDemand,
            on_mismatch: OnMismatch::Refuse,
            best_effort: false,
            close_on_drop: CloseMode::Spatial,
            durability: Durability::OnSync,
            sync_every: None,
            auto_snapshots: None,
            journal_len: None,
            reflection_budget: None,
            deploy_idle: None,
            busy_timeout: Duration::ZERO,
            reporter: Reporter::default(),
            integrity: None,
            scrub: None,
            damage_reporter: DamageReporter::default(),
            keeps_cuts: false,
        }
    }
}

impl Options {
    /// Opens the file for reading alone. Default: `false`.
    ///
    /// Neither the file nor its folder is written to, so the process needs no right to do so. A
    /// pair that a crash has left is recovered in memory: the handle reads what the next open for
    /// writing will find, and that open still recovers the files. Takes memory for the pages that
    /// recovery changes, and for a file that goes back to its last durable point also the time to
    /// read the words of all its pages.
    ///
    /// Any number of processes may read the file at once, but none beside a writer: both get
    /// [`Error::Busy`](crate::Error::Busy). Calls that would change the file return
    /// [`Error::ReadOnly`](crate::Error::ReadOnly). [`create`](Self::create), [`len`](Self::len),
    /// [`durability`](Self::durability), [`deploy`](Self::deploy) and
    /// [`sync_every`](Self::sync_every) have no effect, and closing changes nothing. With
    /// [`OnMismatch::Discard`] the handle reads the home file alone, and removes nothing.
    ///
    /// Linux only: elsewhere opening fails.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let path = dir.path().join("state.dat");
    /// use atomic_mmap::{AtomicMappedFile, CloseMode, Error};
    ///
    /// let f = AtomicMappedFile::create(&path, 1 << 20)?;
    /// f.store(0, &7_u64)?;
    /// f.close(CloseMode::Fast)?;
    /// # #[cfg(target_os = "linux")] {
    /// let f = AtomicMappedFile::options().read_only(true).open(&path)?;
    /// assert_eq!(f.load::<u64>(0)?, 7);
    /// assert!(matches!(f.store(0, &8_u64), Err(Error::ReadOnly { .. })));
    /// # }
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Creates the file if it does not exist. Default: `false`.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets the length, in bytes, of a file that is created or is empty. A file that has bytes
    /// keeps its length, also if it is shorter. Default: 0.
    ///
    /// [`AtomicMappedFile::create`](crate::AtomicMappedFile::create) also grows a shorter file.
    pub fn len(mut self, len: u64) -> Self {
        self.len = len;
        self
    }

    /// Opens only the file with these numbers of its device and its inode, as
    /// `std::os::unix::fs::MetadataExt` has them. Default: any file.
    ///
    /// For a program that has looked at the file before, by a descriptor: another user of the
    /// folder may have given its name to another file since. Opening is then
    /// [`Error::Io`](crate::Error::Io) of kind `NotFound`, and has changed nothing.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let path = dir.path().join("state.dat");
    /// # #[cfg(unix)] {
    /// use std::os::unix::fs::MetadataExt;
    ///
    /// let found = std::fs::File::create(&path)?.metadata()?;
    /// let options = atomic_mmap::AtomicMappedFile::options().len(4096);
    /// options.clone().identity(found.dev(), found.ino()).open(&path)?;
    /// assert!(options.identity(found.dev(), found.ino() + 1).open(&path).is_err());
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn identity(mut self, device: u64, inode: u64) -> Self {
        self.identity = Some((device, inode));
        self
    }

    /// Gives the crate the 64 bytes at `offset`, a multiple of 64, for a mark that says that the
    /// file is in use. They must be zero. Default: none.
    ///
    /// A file that is in use is complete only together with its companions, and so is a file after
    /// a crash or a fast close. A copy of the file alone (`cp`, an upload, most backups) lacks
    /// bytes. The mark travels with the copy, so that opening it is
    /// [`Error::Mismatch`](crate::Error::Mismatch) with
    /// [`Mismatch::LoneCopy`](crate::Mismatch::LoneCopy). Without a mark such a copy opens
    /// without an error, with old bytes or zeros. Files with [`Roots`](crate::Roots) at offset 0
    /// have a mark without this option.
    ///
    /// The mark is in the file from the first store on until a spatial close has made the file
    /// complete. The 64 bytes belong to the crate. Readers never see the mark: they read zeros
    /// there, also a [`read_only`](Self::read_only) handle that takes the home file alone
    /// ([`OnMismatch::Discard`]). Other programs see it. A write there is
    /// [`Error::Reserved`](crate::Error::Reserved). Writes to the page around the mark take longer,
    /// and the page is deployed at the spatial close only. A shorter file gets its mark when it is
    /// long enough.
    ///
    /// A loss of power in the middle of a spatial close may leave the file without its mark,
    /// although it is not complete. The next open in its place completes it. A copy that is made
    /// of it alone before that opens without an error.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// use atomic_mmap::{AtomicMappedFile, Error, Mismatch};
    ///
    /// let options = AtomicMappedFile::options().create(true).len(8192).mark_at(0);
    /// let (path, copy) = (dir.path().join("state.dat"), dir.path().join("copy.dat"));
    /// let file = options.clone().open(&path)?;
    /// file.write_at(b"the only copy of these bytes", 4096)?;
    /// std::fs::copy(&path, &copy)?;
    /// let why = options.open(&copy).err();
    /// assert!(matches!(why, Some(Error::Mismatch { why: Mismatch::LoneCopy, .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mark_at(mut self, offset: u64) -> Self {
        self.mark_at = Some(offset);
        self
    }

    /// Stores what an operation appends to the home file as well, before the file is longer. So a
    /// program that follows the home file, as `tail -f`, finds no zeroes there. Has no effect on a
    /// file with page sums, nor within a live snapshot. For the preload.
    #[doc(hidden)]
    pub fn shows_appends(mut self, shows: bool) -> Self {
        self.shows_appends = shows;
        self
    }

    /// Marks the header of a SQLite database while it is in use. For the VFS, which shows SQLite
    /// the real header.
    #[doc(hidden)]
    pub fn marks_database(mut self, marks: bool) -> Self {
        self.marks_database = marks;
        self
    }

    /// Sets the largest length, in bytes, that `set_len` may grow the open file to. At most
    /// [`MAX_LEN`](crate::MAX_LEN).
    ///
    /// Opening reserves twice this much address space, for home and reflection file, but no
    /// memory. If it cannot, opening fails with
    /// [`Error::NoAddressSpace`](crate::Error::NoAddressSpace).
    ///
    /// The default depends on the largest free range of address space:
    ///
    /// | largest free range | default |
    /// |---|---|
    /// | at least 64 TiB | 64 GiB |
    /// | at least 16 TiB | 8 GiB |
    /// | at least 32 GiB | 1 GiB |
    /// | less, as under `ulimit -v` | 1/32 of the range |
    ///
    /// If twice the file's length is more, or the length of its longest snapshot, and at most 1/8
    /// of the range, it is the default. The default is never less than the file's length. It is
    /// also never less than that of a snapshot to which the file was going back when a process
    /// died. Opening finishes that, and fails with [`Error::TooLong`](crate::Error::TooLong) if
    /// this option leaves no room for it.
    ///
    /// [`AtomicMappedFile::max_len`](crate::AtomicMappedFile::max_len) returns the value in use.
    pub fn max_len(mut self, max_len: u64) -> Self {
        self.max_len = Some(max_len);
        self
    }

    /// Forces the medium, for emulation and tests. For example, this can treat tmpfs as persistent
    /// memory, as PMDK's `PMEM_IS_PMEM_FORCE` does. The caller is responsible for promises that the
    /// hardware does not keep. Default: detect the medium.
    pub fn medium(mut self, medium: Medium) -> Self {
        self.medium = Some(medium);
        self
    }

    /// Opens the file even if its file system is not supported, and treats it as page cache.
    /// Default: `false`.
    ///
    /// Unsupported are network, FUSE, overlay and hugetlbfs file systems, where the promises of a
    /// mapping are untested. Also unsupported are btrfs with mixed block groups
    /// (`mkfs.btrfs -M`), and a btrfs subvolume under a quota. There a store to a full disk raises
    /// SIGBUS.
    pub fn allow_any_file_system(mut self, allow: bool) -> Self {
        self.any_file_system = allow;
        self
    }

    /// Sets the folder for the reflection file and the journal. Default: the home file's folder.
    ///
    /// One folder may serve files of several volumes. It must not lie in memory (tmpfs) unless the
    /// home file does.
    pub fn reflection_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.reflection_dir = Some(dir.into());
        self
    }

    /// Sets when pages are deployed into the user's file. Default: [`DeployPolicy::Lazy`].
    pub fn deploy(mut self, policy: DeployPolicy) -> Self {
        self.deploy = policy;
        self
    }

    /// Sets what to do if the files do not match. Default: [`OnMismatch::Refuse`].
    pub fn on_mismatch(mut self, choice: OnMismatch) -> Self {
        self.on_mismatch = choice;
        self
    }

    /// Opens files that would be refused, for reading alone: with what their companions still tell,
    /// or as the home file's bytes are. Has no effect without [`read_only`](Self::read_only).
    ///
    /// Bytes may then be old, or of different times:
    /// [`Inspection::doubtful`](crate::Inspection::doubtful) says where. It does not say so of a
    /// rollback that damage keeps from being finished: there each page is as before it or after it.
    pub fn best_effort(mut self, yes: bool) -> Self {
        self.best_effort = yes;
        self
    }

    /// Sets how dropping the last handle closes the file. Default: [`CloseMode::Spatial`].
    ///
    /// With [`Durability::AtomicSync`] it applies only if nothing has changed since the last
    /// durable point. Otherwise a drop closes with [`CloseMode::Unsynced`], so that an early return
    /// or a panic cannot make half a save durable. Call `sync` or `close` when a save is complete.
    pub fn close_on_drop(mut self, mode: CloseMode) -> Self {
        self.close_on_drop = mode;
        self
    }

    /// Sets when operations become durable. Default: [`Durability::OnSync`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Calls `sync` in the background after each `interval`. Default: never.
    ///
    /// It applies where durable points are kept: on [`Medium::PageCache`], and on every medium with
    /// [`Durability::AtomicSync`]. Elsewhere `sync` has nothing to do.
    ///
    /// Opening fails with [`Error::NoThread`](crate::Error::NoThread) if the background thread
    /// cannot be started. A failed sync poisons the handle, unless it fails before it writes
    /// anything, because the journal has no space to grow. Every write then fails with
    /// [`Error::Overdue`](crate::Error::Overdue) until a durable point is made.
    /// [`health`](crate::AtomicMappedFile::health) reports these errors, and
    /// [`Stats::failed_points`](crate::Stats::failed_points) counts them.
    pub fn sync_every(mut self, interval: Duration) -> Self {
        self.sync_every = Some(interval);
        self
    }

    /// Makes the file take snapshots by itself. Default: none.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// use atomic_mmap::{AtomicMappedFile, AutoSnapshots, Retention};
    ///
    /// let auto = AutoSnapshots::new().writes(100_000).keep(Retention::new().number(8));
    /// let options = AtomicMappedFile::options().create(true).len(1 << 20);
    /// let f = options.auto_snapshots(auto).open(dir.path().join("state.dat"))?;
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    pub fn auto_snapshots(mut self, when: AutoSnapshots) -> Self {
        self.auto_snapshots = Some(when);
        self
    }

    /// Sets the length up to which the journal of durable points grows, in bytes: 64 KiB to 1 GiB,
    /// in steps of 4 KiB. Default: eight times the file's length, at least 128 KiB and at most
    /// 8 MiB. While the file grows, the default rises each time it has doubled, as far as a
    /// [budget](Self::reflection_budget) has room for it.
    ///
    /// The journal exists on [`Medium::PageCache`], and on every medium with
    /// [`Durability::AtomicSync`]. A new journal takes 64 KiB. It doubles when a durable point
    /// finds no room, up to this length. On a full disk it keeps its length. A longer journal needs
    /// fewer checkpoints, which sync both files.
    ///
    /// An existing journal keeps the length that it has grown to, and is truncated to this length
    /// if it is longer. A change of up to a quarter of this length, at most 4 MiB, is synced
    /// without a sync of both files.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// let options = atomic_mmap::AtomicMappedFile::options().create(true).len(4096);
    /// let file = options.journal_len(64 << 10).open(dir.path().join("small.dat"))?;
    /// # drop(file);
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    pub fn journal_len(mut self, len: u64) -> Self {
        self.journal_len = Some(len);
        self
    }

    /// Sets when storage is allocated. Default: [`Allocation::OnDemand`].
    ///
    /// Has no effect with [`read_only`](Self::read_only).
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// use atomic_mmap::{Allocation, AtomicMappedFile};
    ///
    /// let options = AtomicMappedFile::options().create(true).len(4 << 20);
    /// let f = options.allocation(Allocation::Full).open(dir.path().join("ring.dat"))?;
    /// let before = f.stats();
    /// f.write_at(&[1; 100_000], 1 << 20)?;
    /// assert_eq!(f.stats().delta(&before).allocations, 0);
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    pub fn allocation(mut self, when: Allocation) -> Self {
        self.allocation = when;
        self
    }

    /// Sets how many bytes of storage the companions may take: reflection file, journal and store
    /// of snapshots. At least 4 MiB, and twice the [journal's length](Self::journal_len) more
    /// where there is one; a smaller number counts as that. Default: no limit.
    ///
    /// When half of it is taken, a background thread deploys the pages that have not changed
    /// for the longest time, and gives their space back. Where durable points are kept it makes
    /// such points, except with [`Durability::AtomicSync`]. A write without room in the budget
    /// waits for that thread; [`Stats::budget_waits`](crate::Stats::budget_waits) counts the
    /// waits.
    ///
    /// Opening fails with [`Error::NoThread`](crate::Error::NoThread) if the thread cannot be
    /// started. A budget never fails a write. If no space can be given back, the write takes more.
    /// So do an operation that is larger than the budget, pages that views pin, what snapshots
    /// keep, and with `AtomicSync` what has changed since the last `sync`.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// let options = atomic_mmap::AtomicMappedFile::options().create(true).len(1 << 30);
    /// let f = options.reflection_budget(32 << 20).open(dir.path().join("state.dat"))?;
    /// f.write_at(&[1; 100_000], 0)?;
    /// assert!(f.stats().reflection_allocated <= 32 << 20);
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    pub fn reflection_budget(mut self, bytes: u64) -> Self {
        self.reflection_budget = Some(bytes);
        self
    }

    /// Deploys pages in the background that have not changed for one to two times `after`, and
    /// gives back their space in the reflection file. Default: never.
    ///
    /// So a file that is idle becomes a plain file but for the length of its companions, reads find
    /// their bytes in one piece, and a spatial close has little to do. An operation waits only if
    /// it writes to a page that is just being deployed or given back, or allocates meanwhile: for
    /// one copy or one call. This is Libnvmmio's background checkpointing.
    ///
    /// Where durable points are kept, the thread makes two of them for a batch of pages. With
    /// [`Durability::AtomicSync`] it makes none: what has changed since the last `sync` stays where
    /// it is. Opening fails with [`Error::NoThread`](crate::Error::NoThread) if the background
    /// thread cannot be started.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// use std::time::Duration;
    ///
    /// let options = atomic_mmap::AtomicMappedFile::options().create(true).len(1 << 30);
    /// let options = options.deploy_idle(Duration::from_secs(5));
    /// let f = options.open(dir.path().join("state.dat"))?;
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    pub fn deploy_idle(mut self, after: Duration) -> Self {
        self.deploy_idle = Some(after);
        self
    }

    /// Waits up to `timeout` for a file that is open elsewhere, in another process or in this one.
    /// Opening fails with [`Error::Busy`](crate::Error::Busy) after that. Default: no time.
    ///
    /// Useful where a service restarts, and its predecessor still closes the file. The file's name
    /// is looked up again at each attempt, a few milliseconds apart. A file that replaces the busy
    /// one under this name is opened.
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// Calls `report` while a long open or close works, in the thread that does it. Default: no
    /// reports.
    ///
    /// Each [`Work`](crate::Work) begins with a report of 0 bytes done, and a successful one ends
    /// with all of them. There are at most a few thousand reports for each GiB. A panic in `report`
    /// ends the open or close as an error would: nothing is lost, and the next open recovers.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// use atomic_mmap::{AtomicMappedFile, CloseMode, Progress};
    ///
    /// let options = AtomicMappedFile::options().on_progress(|Progress { work, done, total, .. }| {
    ///     println!("{work:?}: {done} of {total} bytes");
    /// });
    /// let f = options.create(true).len(1 << 20).open(dir.path().join("state.dat"))?;
    /// f.write_at(&[1; 100_000], 0)?;
    /// f.close(CloseMode::Spatial)?; // Deploy: 262144 of 262144 bytes
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    pub fn on_progress(mut self, report: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.reporter = Reporter::new(report);
        self
    }

    /// Keeps a sum of 64 bits for each page, and notices bytes that no write has written. Default:
    /// as the file has it, which is [`Integrity::OnScrub`] if it has sums.
    ///
    /// Sums belong to the file: they stay from one open to the next. So a [spatial
    /// close](CloseMode::Spatial) leaves the companion files. Opening a file that has no sums yet
    /// reads all of its bytes once. [`Integrity::Off`] removes them.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// use atomic_mmap::{AtomicMappedFile, Integrity};
    ///
    /// let options = AtomicMappedFile::options().create(true).len(1 << 20);
    /// let options = options.integrity(Integrity::OnRead).on_damage(|damage| {
    ///     eprintln!("{}: {:?} is damaged", damage.path.display(), damage.range);
    /// });
    /// let f = options.open(dir.path().join("state.dat"))?;
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    pub fn integrity(mut self, integrity: Integrity) -> Self {
        self.integrity = Some(integrity);
        self
    }

    /// Verifies the file in the background, again and again. Reads about this many bytes a second,
    /// at least 80 KiB. Default: not at all.
    ///
    /// Needs [page sums](Self::integrity). [`Stats`](crate::Stats) counts the passes and the
    /// damage, and [`on_damage`](Self::on_damage) hears of it.
    pub fn scrub(mut self, bytes_per_second: u64) -> Self {
        self.scrub = Some(bytes_per_second);
        self
    }

    /// Calls `report` for each [damage](crate::Error::Damaged) that is noticed, from the thread
    /// that notices it. The thread may hold the page's lock, so `report` must not use the file.
    pub fn on_damage(mut self, report: impl Fn(&Damage<'_>) + Send + Sync + 'static) -> Self {
        self.damage_reporter = DamageReporter::new(report);
        self
    }

    /// Returns the length up to which the journal of a file of `len` bytes grows.
    pub(crate) fn journal_len_for(&self, len: u64) -> u64 {
        self.journal_len.unwrap_or_else(|| journal_len_by_default(len))
    }
}

/// Returns the length up to which the journal of a file of `len` bytes grows, unless the caller
/// asks for another one.
pub(crate) fn journal_len_by_default(len: u64) -> u64 {
    len.saturating_mul(JOURNAL_PER_BYTE).clamp(SHORT_JOURNAL_LEN, JOURNAL_LEN)
}
