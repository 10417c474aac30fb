//! The public types for promises and choices, which options, engine and recovery share.
//!
//! May import nothing from the crate.

pub mod integrity;
pub mod options;
pub mod progress;
pub mod snapshots;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The kind of storage under a file. It is detected at open and determines the promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Medium {
    /// Persistent memory mapped with `MAP_SYNC` (pmem, CXL, NVDIMM). A completed operation survives
    /// power loss.
    Dax,
    /// A file system with a page cache, on a disk or SSD. A completed operation survives a process
    /// crash. A power loss goes back to exactly the state of the last `sync`. See [`Durability`].
    PageCache,
    /// A file system in RAM (tmpfs). A completed operation survives a process crash. Nothing
    /// survives a restart of the machine.
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

/// The error for a name that is not the name of a medium.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is not a medium; the media are dax, page-cache and ram")]
pub struct UnknownMedium(String);

/// The crash that a completed operation survives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[non_exhaustive]
pub enum Survives {
    /// Nothing, before the next `sync` or `close`. Any other end of the process takes it back.
    Nothing,
    /// A crash of the process: kill, panic, abort.
    ProcessCrash,
    /// A power loss, or any other crash of the machine.
    PowerLoss,
}

impl fmt::Display for Survives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Survives::Nothing => "nothing before the next sync",
            Survives::ProcessCrash => "a process crash",
            Survives::PowerLoss => "a power loss",
        })
    }
}

impl Medium {
    /// Returns what an operation survives once `write_at` or `commit` has returned.
    pub fn after_write(self, durability: Durability) -> Survives {
        match (self, durability) {
            (_, Durability::AtomicSync) => Survives::Nothing,
            (Medium::Dax, _) | (Medium::PageCache, Durability::EveryWrite) => Survives::PowerLoss,
            (Medium::PageCache | Medium::Ram, _) => Survives::ProcessCrash,
        }
    }

    /// Returns what all operations before a `sync` survive, as one state, once it has returned.
    pub fn after_sync(self) -> Survives {
        match self {
            Medium::Dax | Medium::PageCache => Survives::PowerLoss,
            Medium::Ram => Survives::ProcessCrash,
        }
    }
}

/// When operations become durable, on a medium that does not make each of them durable at once.
///
/// A *durable point* is a state of the file that a power loss goes back to (also called a
/// consistency point). These make one:
/// - [`sync`](crate::AtomicMappedFile::sync), opening and closing, except
///   [`CloseMode::Unsynced`];
/// - [`deploy`](crate::AtomicMappedFile::deploy), and a `set_len` that shrinks the file;
/// - a write that would overflow the log, except with [`AtomicSync`](Self::AtomicSync). The
///   log holds 256 MiB of bytes rewritten since the last durable point.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// `sync` makes all operations before it durable. Later operations survive a process crash. A
    /// power loss takes back all of them, and nothing older.
    #[default]
    OnSync,
    /// Each write is durable when it returns. Writes of concurrent threads share one barrier.
    ///
    /// A reader may see a write shortly before it is durable. A thread that acts on what it has
    /// read, and not on what it has written, must call `sync` first. On [`Medium::Ram`] this equals
    /// [`OnSync`](Self::OnSync).
    EveryWrite,
    /// `sync` makes all operations before it durable. Any crash, even of the process only, takes
    /// back all operations since the last durable point. This holds on every medium.
    ///
    /// Dropping the last handle makes no durable point. So the next open takes back what an early
    /// return or a panic has left incomplete. This is the atomic `msync` of Libnvmmio.
    AtomicSync,
}

/// When pages are deployed: when their bytes are copied from the reflection file to the home file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum DeployPolicy {
    /// Deploys a page once reads have cost about as much as deploying it would. Also deploys what a
    /// view reads. This is Acumen's lazy deployment (section IV-C), with thresholds.
    ///
    /// A short read never fills a hole of the home file. Where durable points are kept, no
    /// read deploys. A deployment counts as a change of the page, so it may
    /// end a transaction that has read the page in [`Error::Conflict`](crate::Error::Conflict). See
    /// `docs/protocols/deploy.md`.
    #[default]
    Lazy = Self::DEPLOYS_READS,
    /// Deploys after every write, so that reads never do. This is Acumen's option for low tail
    /// latency (section IV-F). [`write_at_eager`](crate::AtomicMappedFile::write_at_eager) does so
    /// for one write.
    Eager = Self::DEPLOYS_WRITES,
    /// Deploys only for views, `deploy` and a spatial close.
    Manual = 0,
    /// As `Lazy`, and deploys a page right after a write if it was read often since the write
    /// before. It decides for each page and at once. For files of which some pages are read much
    /// more often than they are written.
    ///
    /// Where durable points are kept, it does what `Lazy` does.
    Adaptive = Self::DEPLOYS_READS | Self::DEPLOYS_WRITES,
}

impl DeployPolicy {
    /// A bit of the policies by which reads deploy pages.
    pub(crate) const DEPLOYS_READS: u8 = 1;
    /// A bit of the policies by which writes may deploy pages.
    pub(crate) const DEPLOYS_WRITES: u8 = 2;
}

/// When storage is allocated. A write to allocated storage cannot fail for lack of space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum Allocation {
    /// Each operation allocates what it needs, and a little more where writes follow each other.
    #[default]
    OnDemand,
    /// In RAM and on persistent memory, a background thread also allocates before sequential
    /// writers: the next 4 MiB of the file that they write to. A writer that goes on through a new
    /// file then seldom waits for the file system. On a disk nothing is allocated ahead, as there
    /// was nothing to gain. With a [budget](crate::Options::reflection_budget), only the home file
    /// is allocated ahead. This is RMMIO's extension of a pool that runs low.
    Ahead,
    /// An open allocates all of both files, and a growth what it adds. Both fail with
    /// [`Error::NoSpace`](crate::Error::NoSpace) if there is too little. After that a write
    /// allocates only for a log record of more than 4 KiB, for the journal and for snapshots. Space
    /// that is given back has to be allocated anew: by
    /// [`deploy`](crate::AtomicMappedFile::deploy), [`deploy_idle`](crate::Options::deploy_idle) or
    /// a spatial close. In RAM and on persistent memory the pages are brought into the mapping as
    /// well.
    ///
    /// The companions take as much storage as the file. With a
    /// [budget](crate::Options::reflection_budget), only the home file is allocated.
    Full,
}

/// How a file is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum CloseMode {
    /// Deploys everything and removes the companions. The home file is then a complete, plain file
    /// of exactly its logical length. Takes time in proportion to the bytes in the reflection
    /// file. This is Acumen's spatial mode.
    #[default]
    Spatial,
    /// Keeps the companions, and the next open continues with them. Keep them together with the
    /// file. Takes constant time, plus a sync of what the kernel has not yet written. Until the
    /// next open no other program may read or change the home file. This is Acumen's fast mode.
    Fast,
    /// Makes no durable point and writes nothing. Both files stay as a process crash would leave
    /// them, and the next open recovers. Until then no other program may read or change the home
    /// file.
    ///
    /// With [`Durability::AtomicSync`] the next open takes back everything since the last durable
    /// point. Otherwise it recovers every operation that had returned, unless a power loss goes
    /// back to the last durable point first.
    Unsynced,
}

/// The answer to a home file and a reflection file that do not match.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum OnMismatch {
    /// Returns [`Error::Mismatch`](crate::Error::Mismatch) and changes nothing.
    #[default]
    Refuse,
    /// Takes the home file's bytes as they are. Removes the reflection file if it certainly belongs
    /// to this home file. Keeps a reflection file that may belong to another home file, and any
    /// file that this crate did not make.
    ///
    /// Refused as [`Mismatch::Foreign`](crate::Mismatch::Foreign) if the home file has a reflection
    /// file and a foreign file has its name. Refused as
    /// [`Mismatch::Newer`](crate::Mismatch::Newer) if the reflection file is of a newer version.
    Discard,
    /// Uses the reflection file despite one of these:
    /// - the home file was changed since it was closed;
    /// - the machine was restarted while the file was in use;
    /// - the home file has lost its attribute;
    /// - the volume may be a snapshot, or mounted elsewhere.
    ///
    /// Other mismatches are refused.
    Trust,
}

/// Calls a function that the caller of the crate has given, for its effect alone. Its panic is
/// printed and ends there: a fault of a report ends no operation, and no thread of the crate.
pub(crate) fn shielded(call: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(call)) {
        // It may panic itself when it is dropped.
        std::mem::forget(payload);
    }
}
