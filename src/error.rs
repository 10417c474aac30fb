//! What went wrong, where, and what can the caller do? Every error of the crate.
//!
//! May import nothing from the crate but its limits.

use crate::mutant::planted;
use std::io;
use std::path::{Path, PathBuf};

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong. Whatever is returned, nothing was changed by the call that returned it, unless
/// the variant says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The range does not lie within the file. Nothing was written.
    #[error(
        "{}: {len} bytes at offset {offset} do not lie within the file's {file_len} bytes; \
         grow the file with set_len first",
        path.display()
    )]
    OutOfRange {
        /// The home file.
        path: PathBuf,
        /// Offset that was asked for.
        offset: u64,
        /// Bytes that were asked for.
        len: u64,
        /// The file's logical length.
        file_len: u64,
    },

    /// Offset, count and size multiply or add up to more than a `u64` holds. Nothing was written.
    #[error("{}: {count} elements of {size} bytes at offset {offset} overflow", path.display())]
    Overflow {
        /// The home file.
        path: PathBuf,
        /// Offset that was asked for.
        offset: u64,
        /// Number of elements.
        count: u64,
        /// Bytes of one element.
        size: u64,
    },

    /// The range does not lie within the array or view that was asked for it, though it may lie
    /// within the file. Nothing was written.
    #[error(
        "{}: {what} up to {found} were asked for, at offset {offset}, and there are {expected}",
        path.display()
    )]
    Misfit {
        /// The home file.
        path: PathBuf,
        /// What is counted: elements of an array, bytes of a view.
        what: &'static str,
        /// Where the array or view begins in the file, in bytes.
        offset: u64,
        /// End of what was asked for, counted in `what`.
        found: u64,
        /// How many there are.
        expected: u64,
    },

    /// The file system is full. Nothing was changed; free space and call again. (From a `sync` that was to
    /// make the journal longer: the durable point was not made. Where that `sync` was part of a write, under
    /// [`Durability::EveryWrite`](crate::Durability::EveryWrite), the write is there and not yet durable.)
    ///
    /// A quota that is used up, and the process's limit on the length of files (`ulimit -f`), count as a
    /// full file system; `source` tells which it was.
    #[error("{}: {}", path.display(), no_space_message(*offset, *len, source))]
    NoSpace {
        /// The file that could not be extended: home file, reflection file or journal.
        path: PathBuf,
        /// Offset in that file, in bytes. 0 where the call has none.
        offset: u64,
        /// Bytes that were to be allocated. 0 where the call has no range: a name, an attribute, a length.
        len: u64,
        /// What the system said.
        source: io::Error,
    },

    /// The transaction or write needs more log than there is, or the durable point a longer journal than
    /// there may be. Nothing was changed.
    #[error(
        "{}: the operation needs {needed} bytes of log, {limit} is the most; split it",
        path.display()
    )]
    TooLarge {
        /// The home file, or the journal.
        path: PathBuf,
        /// Bytes of log that it needs.
        needed: u64,
        /// The most there is.
        limit: u64,
    },

    /// The file may not grow to this length while it is open. Nothing was changed.
    #[error(
        "{}: {len} bytes is more than this handle's reservation of {max_len}; open the file with \
         a larger Options::max_len (at most {})",
        path.display(), crate::MAX_LEN
    )]
    TooLong {
        /// The home file.
        path: PathBuf,
        /// Length that was asked for.
        len: u64,
        /// The most that this handle allows.
        max_len: u64,
    },

    /// Somebody else changed what the transaction has read. Nothing was changed; `transact`
    /// retries by itself.
    #[error("{}: another operation changed what this transaction has read; retry", path.display())]
    Conflict {
        /// The home file.
        path: PathBuf,
    },

    /// A `View` pins bytes that `set_len` would cut off. Nothing was changed; drop the view first.
    #[error("{}: a view pins bytes past the new length {len}; drop it first", path.display())]
    Pinned {
        /// The home file.
        path: PathBuf,
        /// Length that was asked for.
        len: u64,
    },

    /// The file is open already, here or in another process.
    #[error(
        "{}: already open in {}; share the handle with try_clone, or close the other one",
        path.display(),
        if *in_this_process { "this process" } else { "another process" }
    )]
    Busy {
        /// The home file.
        path: PathBuf,
        /// Whether this process has it open.
        in_this_process: bool,
    },

    /// The handle came into this process by `fork`. Open the file anew, after the parent closed it.
    #[error(
        "{}: this handle belongs to the parent process; a child opens the file anew",
        path.display()
    )]
    Forked {
        /// The home file.
        path: PathBuf,
    },

    /// An earlier failure left the handle in doubt, for good: on page cache, one in making a durable point or
    /// a checkpoint, or a panic in the middle of it. Close it and open the file again: opening recovers.
    #[error(
        "{}: unusable since {cause}{ADVICE}",
        path.display()
    )]
    Poisoned {
        /// The home file.
        path: PathBuf,
        /// The failure.
        cause: String,
    },

    /// Not a regular file.
    #[error("{}: not a regular file; only regular files can be mapped atomically", path.display())]
    NotRegular {
        /// What was to be opened.
        path: PathBuf,
    },

    /// The file system is one on which the promises do not hold.
    #[error(
        "{}: lies on {file_system}, where a mapping is not backed as the promises need; move the \
         file to a local file system, or accept process-death promises that nobody has tested \
         there with Options::allow_any_file_system(true)",
        path.display()
    )]
    UnsupportedFileSystem {
        /// What was to be opened.
        path: PathBuf,
        /// What it lies on.
        file_system: String,
    },

    /// The medium that was forced is not one that this build can serve.
    #[error("{}: medium {medium} cannot be served here: {why}", path.display())]
    UnsupportedMedium {
        /// What was to be opened.
        path: PathBuf,
        /// What was asked for.
        medium: String,
        /// Why not.
        why: &'static str,
    },

    /// The home file and its reflection file do not go together. Nothing was touched.
    #[error("{}", mismatch_message(home, reflection, why))]
    Mismatch {
        /// The home file.
        home: PathBuf,
        /// The reflection file.
        reflection: PathBuf,
        /// In which way.
        why: Mismatch,
    },

    /// A system call failed. If it was to make a durable point (in `sync`, or under
    /// [`Durability::EveryWrite`](crate::Durability::EveryWrite) in a write), what was written is in memory,
    /// nobody knows whether it is durable, and the handle is poisoned: open the file again.
    #[error("{}: {call} failed{}: {source}{}", path.display(), at(offset), advice_after(call))]
    Io {
        /// What was being done.
        call: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Offset in it, where there is one.
        offset: Option<u64>,
        /// What the system said.
        source: io::Error,
    },
}

/// In which way a home file and a reflection file do not go together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Mismatch {
    /// The home file says that a reflection file belongs to it, and there is none.
    ReflectionGone,
    /// There is a reflection file of a home file of this name, and the home file is gone.
    HomeGone,
    /// The reflection file belongs to another home file.
    Swapped,
    /// Another file took the place of the home file that a reflection file was made for.
    HomeReplaced,
    /// The home file is a copy of one that had a reflection file; the copy may lack what was there.
    HomeIsCopy,
    /// The file in the reflection file's place is nothing of ours.
    Foreign,
    /// The reflection file is of a newer version of this crate.
    Newer {
        /// Its format version.
        version: u32,
    },
    /// The reflection file is damaged: neither superblock is whole, or its log entries say what
    /// cannot have been written.
    Corrupt,
    /// The reflection file is shorter than what it describes.
    ReflectionTruncated,
    /// The home file is shorter than what the reflection file describes.
    HomeTruncated,
    /// The home file was changed since it was closed.
    HomeChanged,
    /// The machine was restarted while the file was in use without durable points, on a medium that promised
    /// to survive the death of the process only. Or the process died, where the system does not tell its
    /// boots apart.
    Restarted,
    /// The file was in use when the process died or the machine was restarted, and the journal of its
    /// durable points is gone.
    JournalGone,
}

fn mismatch_message(home: &Path, reflection: &Path, why: &Mismatch) -> String {
    let (home, reflection) = (home.display(), reflection.display());
    let discard = "open with OnMismatch::Discard to take the home file's bytes as they are";
    let trust = "or with OnMismatch::Trust to use the reflection file all the same";
    match why {
        Mismatch::ReflectionGone => format!(
            "{home}: its reflection file {reflection} is gone; put it back, or {discard} \
             (writes that were only there are lost)"
        ),
        Mismatch::HomeGone => format!(
            "{home}: does not exist, but its reflection file {reflection} does; put the home file \
             back, or open with OnMismatch::Discard to remove the reflection file"
        ),
        Mismatch::Swapped => format!(
            "{home}: the reflection file {reflection} belongs to another file; put the right one \
             in its place, or {discard} (the file in its place is removed)"
        ),
        Mismatch::HomeReplaced => format!(
            "{home}: took the place of a file that was not closed with CloseMode::Spatial, whose \
             reflection file {reflection} is still there; put the old home file back, or {discard} \
             (the reflection file is removed)"
        ),
        Mismatch::HomeIsCopy => format!(
            "{home}: is a copy of a file that was not closed with CloseMode::Spatial; writes that \
             are only in the original's reflection file are missing (this file's would be \
             {reflection}); copy it again after a spatial close, or {discard}"
        ),
        Mismatch::Foreign => format!(
            "{home}: {reflection} is not a reflection file; move it away (this crate removes \
             nothing that is not its own)"
        ),
        Mismatch::Newer { version } => format!(
            "{home}: the reflection file {reflection} is of format version {version}, newer than \
             this crate's {}; use a newer atomic-mmap",
            crate::format::layout::FORMAT_VERSION
        ),
        Mismatch::Corrupt => format!(
            "{home}: the superblocks or the log of the reflection file {reflection} are damaged; \
             restore both files from a backup, or {discard}"
        ),
        Mismatch::ReflectionTruncated => format!(
            "{home}: the reflection file {reflection} was truncated; restore both files from a \
             backup, or {discard}"
        ),
        Mismatch::HomeTruncated => format!(
            "{home}: shorter than its reflection file {reflection} says; restore both files from \
             a backup, or {discard}"
        ),
        Mismatch::HomeChanged => format!(
            "{home}: was changed since it was closed, while {reflection} holds a part of its \
             bytes; {discard}, {trust}"
        ),
        Mismatch::JournalGone => format!(
            "{home}: was in use, and the journal {reflection}.journal of its durable points is gone; \
             put it back, or {discard}"
        ),
        Mismatch::Restarted => format!(
            "{home}: the machine was restarted while the file was in use, and its medium survives \
             only the death of the process; what the kernel had not written back is lost; restore \
             both files from a backup, or {discard}, {trust} ({reflection})"
        ),
    }
}

/// The calls whose failure leaves the handle in doubt. Their message says what to do, as that of
/// [`Error::Poisoned`] does from then on.
pub(crate) const SYNC_FOR_A_POINT: &str = "sync for a durable point";
pub(crate) const WRITE_A_POINT: &str = "write of a durable point";
pub(crate) const SYNC_OF_LENGTH: &str = "sync of the new length";

const ADVICE: &str = "; drop every handle and open the file again to recover";

fn advice_after(call: &str) -> &'static str {
    if [SYNC_FOR_A_POINT, WRITE_A_POINT, SYNC_OF_LENGTH].contains(&call) { ADVICE } else { "" }
}

fn no_space_message(offset: u64, len: u64, source: &io::Error) -> String {
    let what = match len {
        0 => String::new(),
        _ => format!(" for {len} bytes at offset {offset}"),
    };
    match source.kind() {
        io::ErrorKind::FileTooLarge => {
            format!("too long{what}: {source}; nothing was changed, raise the limit and call again")
        }
        io::ErrorKind::QuotaExceeded => format!(
            "no space left{what} within the quota; nothing was changed, free space or raise the \
             quota, and call again"
        ),
        _ => format!(
            "no space left{what}; nothing was changed, free space on the file system and call again"
        ),
    }
}

/// Whether a call failed for want of space: on the file system, within a quota or a limit.
fn is_no_space(source: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

fn at(offset: &Option<u64>) -> String {
    offset.map_or_else(String::new, |offset| format!(" at offset {offset}"))
}

impl Error {
    /// An I/O error of a call that has no offset.
    pub(crate) fn io(call: &'static str, path: &Path, source: io::Error) -> Self {
        Self::of_call(call, path, None, 0, source)
    }

    /// An I/O error of a call at an offset of the file.
    pub(crate) fn io_at(call: &'static str, path: &Path, offset: u64, source: io::Error) -> Self {
        Self::of_call(call, path, Some(offset), 0, source)
    }

    /// What a call that needs storage for `len` bytes could not do.
    pub(crate) fn io_of_range(
        call: &'static str,
        path: &Path,
        offset: u64,
        len: u64,
        source: io::Error,
    ) -> Self {
        Self::of_call(call, path, Some(offset), len, source)
    }

    /// The one place that tells want of space from all other failures. A call that leaves the handle in
    /// doubt stays [`Error::Io`]: [`Error::NoSpace`] promises that nothing was changed.
    fn of_call(
        call: &'static str,
        path: &Path,
        offset: Option<u64>,
        len: u64,
        source: io::Error,
    ) -> Self {
        let path = path.to_owned();
        let is_in_doubt = !advice_after(call).is_empty();
        let is_told = len > 0 || !planted!(NoSpaceOfAllocationOnly);
        if is_no_space(&source) && !is_in_doubt && is_told {
            return Error::NoSpace { path, offset: offset.unwrap_or(0), len, source };
        }
        Error::Io { call, path, offset, source }
    }

    /// What is kept of an error as the cause of later ones, which say by themselves what to do.
    pub(crate) fn as_cause(&self) -> String {
        let mut said = self.to_string();
        if let Some(without) = said.strip_suffix(ADVICE) {
            said.truncate(without.len());
        }
        said
    }

    /// Whether repeating the transaction may succeed.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Conflict { .. })
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match &error {
            Error::OutOfRange { .. } | Error::Overflow { .. } | Error::Misfit { .. } => {
                io::ErrorKind::InvalidInput
            }
            Error::NoSpace { .. } => io::ErrorKind::StorageFull,
            Error::TooLarge { .. } | Error::TooLong { .. } => io::ErrorKind::FileTooLarge,
            Error::Conflict { .. } => io::ErrorKind::WouldBlock,
            Error::Busy { .. } | Error::Pinned { .. } => io::ErrorKind::ResourceBusy,
            Error::UnsupportedFileSystem { .. } | Error::UnsupportedMedium { .. } => {
                io::ErrorKind::Unsupported
            }
            Error::Mismatch { .. } => io::ErrorKind::InvalidData,
            Error::Io { source, .. } => source.kind(),
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
