//! How is a file opened? Options, and the names of what was achieved.
//!
//! Owns: what a caller can ask for, and the order of the steps that lead from a path to an
//! [`Engine`]. The judgement of what is found on the way is `recovery`'s.

use crate::error::Result;
use crate::file::AtomicMappedFile;
use crate::platform::Platform;
use std::fmt;
use std::path::{Path, PathBuf};

/// Environment variable that forces the medium of every file: `dax`, `page-cache` or `ram`.
/// [`Options::medium`] goes before it.
pub const MEDIUM_VARIABLE: &str = "ATOMIC_MMAP_MEDIUM";

/// What a file lies on, and so what its promises are. Found at open, never downgraded in silence.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Medium {
    /// Persistent memory mapped with `MAP_SYNC` (pmem, CXL, NVDIMM): what has returned survives
    /// the loss of power.
    Dax,
    /// A file system with a page cache on a disk or SSD: what has returned survives the death of
    /// the process. After a loss of power nothing is promised yet but what was last closed; `sync`
    /// makes both files durable, without an atomic cut between operations.
    PageCache,
    /// A file system in RAM (tmpfs): what has returned survives the death of the process, and
    /// nothing survives the machine.
    Ram,
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Medium::Dax => "dax",
            Medium::PageCache => "page-cache",
            Medium::Ram => "ram",
        })
    }
}

impl std::str::FromStr for Medium {
    type Err = UnknownMedium;

    fn from_str(name: &str) -> std::result::Result<Self, UnknownMedium> {
        match name {
            "dax" => Ok(Medium::Dax),
            "page-cache" => Ok(Medium::PageCache),
            "ram" => Ok(Medium::Ram),
            _ => Err(UnknownMedium(name.to_owned())),
        }
    }
}

/// A name that is no medium's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no medium: dax, page-cache and ram are")]
pub struct UnknownMedium(String);

/// What a completed operation survives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[non_exhaustive]
pub enum Survives {
    /// The death of the process: kill, panic, abort.
    ProcessDeath,
    /// The loss of power.
    PowerLoss,
}

impl Medium {
    /// What an operation survives once `write_at` or `commit` has returned.
    pub fn after_write(self) -> Survives {
        match self {
            Medium::Dax => Survives::PowerLoss,
            Medium::PageCache | Medium::Ram => Survives::ProcessDeath,
        }
    }

    /// What every operation before it survives, as one consistent state, once `sync` has returned.
    /// On page cache that is the death of the process until durable points exist: `sync` writes
    /// both files to the disk, but operations that run at the same time may be in part.
    pub fn after_sync(self) -> Survives {
        self.after_write()
    }
}

/// When slices are brought home into the user's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum DeployPolicy {
    /// On the first read that finds a page in so many pieces that copying them home pays, and for
    /// every view (Acumen's lazy deployment, IV-C, with a threshold: see `docs/performance.md`).
    #[default]
    Lazy,
    /// After every write: reads never wait for a deployment (Acumen's flag for tail latency, IV-F).
    Eager,
    /// For views, `deploy` and a spatial close only.
    Manual,
}

/// How a file is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum CloseMode {
    /// Everything is brought home: the home file is complete and plain, exactly as long as its
    /// logical length, and the reflection file is removed. Takes time in proportion to what lies
    /// in the reflection file. Acumen's spatial mode.
    #[default]
    Spatial,
    /// Both files stay; the next open goes on with them. Takes constant time, but for a sync of
    /// what the kernel has not written. Acumen's fast mode. Until then nobody else may read or
    /// change the home file.
    Fast,
}

/// What to do if the home file and the reflection file do not go together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum OnMismatch {
    /// Return [`Error::Mismatch`](crate::Error::Mismatch) and touch nothing.
    #[default]
    Refuse,
    /// Take the home file's bytes as they are and remove the reflection file, whatever is in it.
    /// A file that is not ours, or of a newer version, is never removed.
    Discard,
    /// Use the reflection file although the home file was changed since it was closed, or the
    /// machine was restarted while it was in use. Other mismatches are refused.
    Trust,
}

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
    /// reserved (twice: home and reflection file), and no memory. Default: twice the length, at
    /// least 64 GiB. At most [`MAX_LEN`](crate::MAX_LEN).
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
    /// nobody has tested what a mapping promises. It counts as page cache.
    pub fn allow_any_file_system(mut self, allow: bool) -> Self {
        self.any_file_system = allow;
        self
    }

    /// The folder for the reflection file. Default: the home file's own.
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

    /// How dropping the last handle closes the file.
    pub fn close_on_drop(mut self, mode: CloseMode) -> Self {
        self.close_on_drop = mode;
        self
    }

    /// Opens the file.
    ///
    /// # Errors
    /// [`Error::Busy`](crate::Error::Busy) if it is open already,
    /// [`Error::Mismatch`](crate::Error::Mismatch) if the two files do not go together,
    /// [`Error::UnsupportedFileSystem`](crate::Error::UnsupportedFileSystem),
    /// [`Error::TooLong`](crate::Error::TooLong), [`Error::NoSpace`](crate::Error::NoSpace), or
    /// what the system says. Neither file was changed then.
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
}
