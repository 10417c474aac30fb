//! What can be promised, and what can be chosen? The words that options, engine and recovery share.
//!
//! May import nothing from the crate.

use std::fmt;

/// What a file lies on, and so what its promises are. Found at open, never downgraded in silence.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Medium {
    /// Persistent memory mapped with `MAP_SYNC` (pmem, CXL, NVDIMM): what has returned survives
    /// the loss of power.
    Dax,
    /// A file system with a page cache on a disk or SSD: what has returned survives the death of
    /// the process; a loss of power goes back to the last `sync`, exactly. See [`Durability`].
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
    /// Nothing: until the next `sync` it is taken back by every end but a call of `close`.
    Nothing,
    /// The death of the process: kill, panic, abort.
    ProcessDeath,
    /// The loss of power.
    PowerLoss,
}

impl fmt::Display for Survives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Survives::Nothing => "nothing before the next sync",
            Survives::ProcessDeath => "the death of the process",
            Survives::PowerLoss => "the loss of power",
        })
    }
}

impl Medium {
    /// What an operation survives once `write_at` or `commit` has returned.
    pub fn after_write(self, durability: Durability) -> Survives {
        match (self, durability) {
            (_, Durability::AllOrNothing) => Survives::Nothing,
            (Medium::Dax, _) | (Medium::PageCache, Durability::EveryWrite) => Survives::PowerLoss,
            (Medium::PageCache | Medium::Ram, _) => Survives::ProcessDeath,
        }
    }

    /// What every operation before it survives, as one state, once `sync` has returned.
    pub fn after_sync(self) -> Survives {
        match self {
            Medium::Dax | Medium::PageCache => Survives::PowerLoss,
            Medium::Ram => Survives::ProcessDeath,
        }
    }
}

/// When is what has returned durable, where the medium does not make it so at once?
///
/// A *durable point* is a state that a loss of power goes back to. [`sync`](crate::AtomicMappedFile::sync)
/// makes one; so do opening and closing (but for [`CloseMode::Unsynced`]),
/// [`deploy`](crate::AtomicMappedFile::deploy), making the file shorter,
/// and, but for [`AllOrNothing`](Self::AllOrNothing), a write that would otherwise overflow the log (more than
/// 256 MiB written again since the last one).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// When `sync` has returned. What has returned since survives the death of the process, and is
    /// taken back, whole, by a loss of power.
    #[default]
    BySync,
    /// When the write has returned. Writes of several threads share one barrier. (A reader may see
    /// a write in the moment before it is durable. Who answers by what it has read, and not by what it has
    /// written, calls `sync` before.) On `Medium::Ram` the same as `BySync`.
    EveryWrite,
    /// When `sync` has returned, and until then not at all: what has returned since the last durable point
    /// is taken back, whole, by the death of the process as well (the atomic msync of Libnvmmio). On every
    /// medium. Dropping the last handle makes no durable point: what an early return or a panic has left half done is
    /// taken back by the next open.
    AllOrNothing,
}

/// When slices are brought home into the user's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum DeployPolicy {
    /// When reads have lost about as much time as it takes (Acumen's lazy deployment, IV-C, with thresholds: see
    /// `docs/decisions/deploy-on-read.md`): a page after some 30 reads (8, if they are of more than a page) that did not
    /// find it at home, with no write of the page in between, by threads that as a rule write nothing meanwhile (and
    /// with it those beside it in its 64 KiB, if they lie in the reflection file as a whole); what a read of 64 KiB or more
    /// has found in too many pieces, at once; pages in pieces that a write of several covers from end to end, about as
    /// many as were read in pieces lately (at most 16 of a region); and what is viewed. Other reads take their bytes from
    /// where they lie, and so do all where durable points are kept. A short read takes no space: nothing comes home to a
    /// hole. To a transaction that has read a page, its coming home is a change (and that of 32 KiB and more one of the
    /// 256 KiB around them, as a write of so many is): it may end in [`Error::Conflict`](crate::Error::Conflict) for that.
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
    /// No durable point is made: both files stay as the death of the process would leave them, and the next open
    /// recovers. With [`Durability::AllOrNothing`] it takes back what was written since the last durable point.
    /// Otherwise it finds everything that had returned; a loss of power before that goes back to the last durable
    /// point. Writes nothing. Until then no other program may read or change the home file.
    Unsynced,
}

/// What to do if the home file and the reflection file do not go together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum OnMismatch {
    /// Return [`Error::Mismatch`](crate::Error::Mismatch) and touch nothing.
    #[default]
    Refuse,
    /// Take the home file's bytes as they are. The reflection file is removed, whatever is in it, if it is
    /// certainly this home file's; one that may be another's stays, and so does a file that is not ours.
    /// Refused where a mark tells of a reflection file and another file has its name, or one of a newer
    /// version.
    Discard,
    /// Use the reflection file although the home file was changed since it was closed, or the
    /// machine was restarted while it was in use. Other mismatches are refused.
    Trust,
}
