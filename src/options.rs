//! How is a file opened? Options.
//!
//! Owns: what a caller can ask for. The steps that lead from a path to an open pair of files are
//! `recovery`'s.

use crate::engine::journal::JOURNAL_LEN;
use crate::error::Result;
use crate::file::AtomicMappedFile;
use crate::platform::Platform;
use crate::terms::{CloseMode, DeployPolicy, Durability, Medium, OnMismatch};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Environment variable that forces the medium of every file: `dax`, `page-cache` or `ram`.
/// [`Options::medium`] goes before it.
pub const MEDIUM_VARIABLE: &str = "ATOMIC_MMAP_MEDIUM";

/// Options for opening a file. See [`AtomicMappedFile::options`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Options {
    pub(crate) create: bool,
    pub(crate) len: u64,
    pub(crate) max_len: Option<u64>,
    pub(crate) medium: Option<Medium>,
    pub(crate) any_file_system: bool,
    pub(crate) reflection_dir: Option<PathBuf>,
    pub(crate) deploy: DeployPolicy,
    pub(crate) on_mismatch: OnMismatch,
    pub(crate) close_on_drop: CloseMode,
    pub(crate) durability: Durability,
    pub(crate) sync_every: Option<Duration>,
    pub(crate) journal_len: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            create: false,
            len: 0,
            max_len: None,
            medium: None,
            any_file_system: false,
            reflection_dir: None,
            deploy: DeployPolicy::Lazy,
            on_mismatch: OnMismatch::Refuse,
            close_on_drop: CloseMode::Spatial,
            durability: Durability::BySync,
            sync_every: None,
            journal_len: JOURNAL_LEN,
        }
    }
}

impl Options {
    /// Creates the file if it does not exist. Default: no.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Length in bytes of a file that is created, or that is empty. A file that has bytes keeps
    /// its length. Default: 0.
    pub fn len(mut self, len: u64) -> Self {
        self.len = len;
        self
    }

    /// The most that `set_len` may grow the file to while it is open: so much address space is
    /// reserved (twice: home and reflection file), and no memory. At most
    /// [`MAX_LEN`](crate::MAX_LEN).
    ///
    /// Default: 64 GiB, or twice the length where that is more. It is less where the process has
    /// less than 64 TiB of address space left in one piece: 8 GiB, below 16 TiB 1 GiB, below 32 GiB
    /// a 32nd of the piece (under `ulimit -v`), and never less than the length.
    /// [`AtomicMappedFile::max_len`] tells what it is. What was chosen here is reserved or refused
    /// ([`Error::NoAddressSpace`](crate::Error::NoAddressSpace)).
    pub fn max_len(mut self, max_len: u64) -> Self {
        self.max_len = Some(max_len);
        self
    }

    /// Forces the medium, for emulation and tests: tmpfs treated as pmem, as PMDK's
    /// `PMEM_IS_PMEM_FORCE` does. Promises that the hardware does not keep are then the caller's.
    pub fn medium(mut self, medium: Medium) -> Self {
        self.medium = Some(medium);
        self
    }

    /// Opens the file even if it lies on a network, FUSE, overlay or hugetlbfs file system, where
    /// nobody has tested what a mapping promises. It counts as page cache. The same for a btrfs with mixed
    /// block groups (`mkfs.btrfs -M`) and a subvolume of one under a quota, where a store to a full disk
    /// ends in SIGBUS.
    pub fn allow_any_file_system(mut self, allow: bool) -> Self {
        self.any_file_system = allow;
        self
    }

    /// The folder for the reflection file and the journal. Default: the home file's own. One folder serves the
    /// files of several volumes. It must not lie in memory (tmpfs) unless the home file does.
    pub fn reflection_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.reflection_dir = Some(dir.into());
        self
    }

    /// When slices are brought home.
    pub fn deploy(mut self, policy: DeployPolicy) -> Self {
        self.deploy = policy;
        self
    }

    /// What to do if the files do not go together.
    pub fn on_mismatch(mut self, choice: OnMismatch) -> Self {
        self.on_mismatch = choice;
        self
    }

    /// How dropping the last handle closes the file. Default: [`CloseMode::Spatial`].
    ///
    /// With [`Durability::AllOrNothing`] this is for a file in which nothing has changed since the last durable point.
    /// Otherwise dropping closes with [`CloseMode::Unsynced`], whatever is chosen here: a handle that an early return or
    /// a panic drops makes no half of a save durable. Call `sync`, or `close`, when it is whole.
    pub fn close_on_drop(mut self, mode: CloseMode) -> Self {
        self.close_on_drop = mode;
        self
    }

    /// When what has returned is durable. Default: by `sync`.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Calls `sync` in the background, again and again after so long, where durable points are kept: on
    /// [`Medium::PageCache`], and with [`Durability::AllOrNothing`] everywhere. (Elsewhere `sync` has nothing
    /// to do.) Default: no.
    ///
    /// Opening fails with [`Error::NoThread`](crate::Error::NoThread) if no thread can be started for it. A point that
    /// fails poisons the handle, as any `sync` that fails does; or, where it failed before anything was done (no space
    /// for a longer journal), every write fails with [`Error::Overdue`](crate::Error::Overdue) until a point is made.
    /// [`health`](AtomicMappedFile::health) asks, and [`Stats::failed_points`](crate::Stats::failed_points) counts.
    pub fn sync_every(mut self, interval: Duration) -> Self {
        self.sync_every = Some(interval);
        self
    }

    /// Bytes of the journal of durable points, when it is made: from 64 KiB to 1 GiB, in steps of 4 KiB.
    /// (One that is there already does not get longer, but it is cut to this length.) A longer one makes
    /// fewer checkpoints, and a change of up to a quarter of it (4 MiB at most) is made durable by a `sync`
    /// that need not wait for both files. Default: 8 MiB. It is made on page cache, and with
    /// [`Durability::AllOrNothing`].
    pub fn journal_len(mut self, len: u64) -> Self {
        self.journal_len = len;
        self
    }

    /// Opens the file.
    ///
    /// # Errors
    /// [`Error::Busy`](crate::Error::Busy) if it is open already,
    /// [`Error::Mismatch`](crate::Error::Mismatch) if the two files do not go together,
    /// [`Error::UnsupportedFileSystem`](crate::Error::UnsupportedFileSystem),
    /// [`Error::NotWritable`](crate::Error::NotWritable),
    /// [`Error::FolderNotWritable`](crate::Error::FolderNotWritable),
    /// [`Error::NoAddressSpace`](crate::Error::NoAddressSpace),
    /// [`Error::TooLong`](crate::Error::TooLong), [`Error::NoSpace`](crate::Error::NoSpace),
    /// [`Error::NoThread`](crate::Error::NoThread), or what the system says. Neither file was changed
    /// then, but for what
    /// [`OnMismatch::Discard`] has removed and what recovery has finished: both are final.
    /// [`Error::Untrusted`](crate::Error::Untrusted) if another user's file or a link lies where a companion
    /// is to be, [`Error::MountedAlone`](crate::Error::MountedAlone) for a single file that is mounted into
    /// another file system's folder.
    pub fn open(self, path: impl AsRef<Path>) -> Result<AtomicMappedFile> {
        AtomicMappedFile::open_on(Platform::native(), self, path.as_ref())
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
