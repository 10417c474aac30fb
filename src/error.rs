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

    /// The range ends before it begins. Nothing was changed.
    #[error("{}: the range {start}..{end} ends before it begins", path.display())]
    Reversed {
        /// The home file.
        path: PathBuf,
        /// Where the range begins, in bytes.
        start: u64,
        /// Where it ends, in bytes.
        end: u64,
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
        "{}: {len} bytes is more than the {max_len} bytes that this handle has reserved address \
         space for; open the file with a larger Options::max_len (at most {})",
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

    /// The closure of `transact` or `update` has changed what its own transaction had read, by another operation on the
    /// same file: each repetition would meet the same conflict. Nothing of the transaction was written; what the other
    /// operation wrote has happened, once. Write through the transaction instead.
    #[error(
        "{}: a closure changed what its own transaction has read, by another operation on the same \
         file; read and write through the transaction inside the closure",
        path.display()
    )]
    SelfConflict {
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

    /// The file is open already, in this process or in another one.
    #[error(
        "{}: already open in {}",
        path.display(),
        if *in_this_process {
            "this process; share the handle with try_clone, or close it first"
        } else {
            "another process; only one process at a time may have it open, so that process has to \
             close it first, or end"
        }
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

    /// The durable points of [`Options::sync_every`](crate::Options::sync_every) fail: the last one that was due was not made,
    /// and none since. Nothing was written. What had returned before is in memory and survives the death of the process,
    /// unless [`Durability::AllOrNothing`](crate::Durability::AllOrNothing) was chosen. Writes go on after the next durable
    /// point, which comes with the next interval or by a call of `sync`.
    #[error(
        "{}: nothing was written, since the durable point of sync_every is overdue ({cause}); remove the cause and \
         call sync",
        path.display()
    )]
    Overdue {
        /// The home file.
        path: PathBuf,
        /// Why the last point failed.
        cause: String,
    },

    /// No thread could be started that makes the durable points of
    /// [`Options::sync_every`](crate::Options::sync_every). The file was not opened.
    #[error(
        "{}: no thread could be started for Options::sync_every: {source}; raise the limit of threads (ulimit -u, \
         pids.max of the control group), or leave the option out and call sync",
        path.display()
    )]
    NoThread {
        /// The home file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// The system has no address space for the file's mappings. Neither file was changed.
    ///
    /// The limit is the process's (`ulimit -v`, and `ulimit -l` after `mlockall`), the kernel's
    /// count of mappings (`vm.max_map_count`), or the processor's range of addresses.
    #[error(
        "{}: no address space for a mapping of {bytes} bytes ({source}); the file was opened for \
         up to {max_len} bytes, so open it with a smaller Options::max_len, {}",
        path.display(), address_space_advice(source)
    )]
    NoAddressSpace {
        /// The file that could not be mapped: home file or reflection file.
        path: PathBuf,
        /// Bytes of address space that were asked for.
        bytes: u64,
        /// The length that the reservation was for: [`Options::max_len`](crate::Options::max_len),
        /// or the default.
        max_len: u64,
        /// What the system said.
        source: io::Error,
    },

    /// The home file may not be opened for reading and writing, or not be created. There is no
    /// read-only mode. Nothing was changed.
    #[error(
        "{}: cannot be opened for reading and writing: {source}; the file and its folder need \
         write permission, and the file system must not be mounted read-only",
        path.display()
    )]
    NotWritable {
        /// The home file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// The folder takes no new file, so no reflection file or journal can be made in it. Nothing
    /// was changed.
    #[error(
        "{}: its reflection file and journal cannot be made in the folder {}: {source}; make that \
         folder writable, or choose another one on the same file system with \
         Options::reflection_dir",
        home.display(), folder.display()
    )]
    FolderNotWritable {
        /// The home file.
        home: PathBuf,
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// The path is a symbolic link, and nothing is where it points. Nothing was changed.
    #[error(
        "{}: is a link to {}, which does not exist; create that file first, or remove the link",
        path.display(), target.display()
    )]
    DanglingLink {
        /// The link.
        path: PathBuf,
        /// Where it points.
        target: PathBuf,
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

    /// A file lies where a companion of the home file is to be, and must not be used: it may be a trap.
    /// Nothing was written to it.
    #[error("{}: {} must not be used for its companion: {why}", home.display(), path.display())]
    Untrusted {
        /// The home file.
        home: PathBuf,
        /// The file in the companion's place.
        path: PathBuf,
        /// Why not.
        why: Distrust,
    },

    /// The home file is mounted by itself, into a folder of another file system (`docker run -v` of one
    /// file). Its companions would lie elsewhere, and be lost without it. Nothing was touched.
    #[error(
        "{}: is mounted by itself into a folder that does not belong to it; mount the folder that \
         holds the file, or name a folder on the file's own volume with Options::reflection_dir",
        path.display()
    )]
    MountedAlone {
        /// The home file.
        path: PathBuf,
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
    #[error(
        "{}: {call} failed{}: {source}{}",
        path.display(), at(offset), advice_after(call, source)
    )]
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

/// Why a file must not be used for a companion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Distrust {
    /// It is a symbolic link, which may lead to any file.
    #[error(
        "it is a symbolic link, and none is followed; remove it, or name the folder that it leads to \
         with Options::reflection_dir"
    )]
    IsLink,
    /// It has further names, so another file may be changed by writing to it.
    #[error("it has {0} hard links, and may be another file as well; remove its other names")]
    HasLinks(u64),
    /// It belongs to a user who neither owns the home file nor is this process's.
    #[error(
        "user {owner} owns it, and the home file is user {home_owner}'s; if it is right, give it to \
         that user with chown, else move it away"
    )]
    IsOwnedBy {
        /// The user number of its owner.
        owner: u32,
        /// The user number of the home file's owner.
        home_owner: u32,
    },
    /// It is mounted by itself into the folder: another file is hidden by it.
    #[error("it is mounted by itself and hides the file of the folder; unmount it")]
    IsMountedAlone,
    /// It is a journal that another pair has written, or a file that is no journal.
    #[error(
        "it does not belong to the pair; if the right journal exists, put it back, else move this away"
    )]
    IsOfAnotherPair,
    /// It is not a regular file.
    #[error("it is not a regular file; move it away")]
    IsIrregular,
}

/// In which way a home file and a reflection file do not go together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Mismatch {
    /// The home file says that a reflection file belongs to it, and there is none.
    ReflectionGone,
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
    /// to survive the death of the process only. Or the process died, and nothing tells that the page cache is
    /// still there.
    Restarted,
    /// The file was in use when the process died or the machine was restarted, and the journal of its
    /// durable points is gone.
    JournalGone,
    /// The same, and the journal in its place is that of another pair, or of another time of this one.
    JournalSwapped,
    /// The reflection file is the home file's, and was written when the home file had its attribute, which
    /// is gone. A program has removed it, or an earlier state of the home file was restored in its place.
    MarkGone,
    /// The pair was last opened on another device and by another path, while its companions lie on a third
    /// one. Either the volume is mounted elsewhere now, or this is a snapshot of it, and the reflection
    /// file is the original's.
    MayBeSnapshot,
    /// The home file and the reflection file lie on different volumes, and are of different times: one of
    /// the volumes was rolled back.
    RolledBack,
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
        Mismatch::Swapped => format!(
            "{home}: the reflection file {reflection} belongs to another file; put the right one \
             in its place, or {discard} (that file stays as it is)"
        ),
        Mismatch::HomeReplaced => format!(
            "{home}: took the place of a file that was not closed with CloseMode::Spatial, whose \
             reflection file {reflection} is still there; put the old home file back, or {discard} \
             (that reflection file stays as it is)"
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
        Mismatch::JournalSwapped => format!(
            "{home}: was in use, and {reflection}.journal is a journal of another pair or of another \
             time; put the right one in its place, or {discard}"
        ),
        Mismatch::MarkGone => format!(
            "{home}: its attribute is gone, and its reflection file {reflection} says that it had one; if a \
             tool has removed the attribute, open with OnMismatch::Trust; if the home file was \
             restored from a backup, {discard} (that reflection file is removed)"
        ),
        Mismatch::MayBeSnapshot => format!(
            "{home}: was last opened on another device and by another path, and {reflection} is its \
             reflection file, or that of the original of this snapshot; if the volume was only \
             mounted elsewhere, mount it where it was or open with OnMismatch::Trust; if this is a \
             snapshot, {discard} (that reflection file stays as it is)"
        ),
        Mismatch::RolledBack => format!(
            "{home}: is of another time than its reflection file {reflection}: the volume of one of \
             them was rolled back; roll the other one back to that time, or {discard} (that \
             reflection file stays as it is)"
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

fn leaves_doubt(call: &str) -> bool {
    [SYNC_FOR_A_POINT, WRITE_A_POINT, SYNC_OF_LENGTH].contains(&call)
}

fn advice_after(call: &str, source: &io::Error) -> &'static str {
    if leaves_doubt(call) {
        ADVICE
    } else if is_out_of_descriptors(source) {
        "; a file that is open takes up to four descriptors: raise the limit (ulimit -n), or close \
         other files"
    } else {
        ""
    }
}

#[cfg(unix)]
fn is_out_of_descriptors(source: &io::Error) -> bool {
    matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

#[cfg(not(unix))]
fn is_out_of_descriptors(_source: &io::Error) -> bool {
    false
}

/// Names the limit that the call has met. After `mlockall` the kernel says EAGAIN, not ENOMEM.
fn address_space_advice(source: &io::Error) -> &'static str {
    if source.kind() == io::ErrorKind::WouldBlock {
        "or raise the limit of locked memory (ulimit -l), which counts every mapping of a process \
         that has called mlockall(MCL_FUTURE)"
    } else {
        "or raise what limits it: ulimit -v, or vm.max_map_count where very many files are open"
    }
}

fn no_space_message(offset: u64, len: u64, source: &io::Error) -> String {
    let what = match (offset, len) {
        (0, 0) => String::new(),
        (_, 0) => format!(" at offset {offset}"),
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
        let is_in_doubt = leaves_doubt(call);
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

    /// The error of a mapping that was refused. `max_len` is the length that it was made for.
    pub(crate) fn of_mapping(path: &Path, bytes: u64, max_len: u64, source: io::Error) -> Self {
        match source.kind() {
            // WouldBlock is EAGAIN: the limit of locked memory.
            io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock => {
                Error::NoAddressSpace { path: path.to_owned(), bytes, max_len, source }
            }
            _ => Error::io("map", path, source),
        }
    }

    /// The error of a home file that was not opened.
    pub(crate) fn of_opening(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Error::NotWritable { path: path.to_owned(), source }
            }
            io::ErrorKind::NotFound => match std::fs::read_link(path) {
                Ok(target) => Error::DanglingLink { path: path.to_owned(), target },
                Err(_) => Error::io("open", path, source),
            },
            _ => Error::io("open", path, source),
        }
    }

    /// The error of a companion of `home` that was not made.
    pub(crate) fn of_companion(
        home: &Path,
        companion: &Path,
        call: &'static str,
        source: io::Error,
    ) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                let folder = companion.parent().filter(|folder| !folder.as_os_str().is_empty());
                let folder = folder.unwrap_or(Path::new(".")).to_owned();
                Error::FolderNotWritable { home: home.to_owned(), folder, source }
            }
            _ => Error::io(call, companion, source),
        }
    }

    /// Whether repeating the transaction may succeed.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Conflict { .. })
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match &error {
            Error::OutOfRange { .. }
            | Error::Reversed { .. }
            | Error::Overflow { .. }
            | Error::Misfit { .. }
            | Error::NotRegular { .. } => io::ErrorKind::InvalidInput,
            Error::NoSpace { .. } => io::ErrorKind::StorageFull,
            Error::TooLarge { .. } | Error::TooLong { .. } => io::ErrorKind::FileTooLarge,
            Error::Conflict { .. } => io::ErrorKind::WouldBlock,
            Error::SelfConflict { .. } => io::ErrorKind::Deadlock,
            Error::Busy { .. } | Error::Pinned { .. } => io::ErrorKind::ResourceBusy,
            Error::UnsupportedFileSystem { .. } | Error::UnsupportedMedium { .. } => {
                io::ErrorKind::Unsupported
            }
            Error::Mismatch { .. } => io::ErrorKind::InvalidData,
            Error::Untrusted { .. } => io::ErrorKind::PermissionDenied,
            Error::MountedAlone { .. } => io::ErrorKind::CrossesDevices,
            Error::NoAddressSpace { .. } => io::ErrorKind::OutOfMemory,
            Error::DanglingLink { .. } => io::ErrorKind::NotFound,
            Error::Io { source, .. }
            | Error::NoThread { source, .. }
            | Error::NotWritable { source, .. }
            | Error::FolderNotWritable { source, .. } => source.kind(),
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
