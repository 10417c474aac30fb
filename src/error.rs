//! Every error of the crate. Each message says what failed, where, and what the caller can do.
//!
//! May import nothing from the crate except its limits.

use crate::mutant::planted;
use std::io;
use std::path::{Path, PathBuf};

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate. The call that returned it has changed nothing, unless the variant says
/// otherwise.
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
        /// The requested offset, in bytes.
        offset: u64,
        /// The requested length, in bytes.
        len: u64,
        /// The file's length, in bytes.
        file_len: u64,
    },

    /// The range ends before it begins. Nothing was changed.
    #[error("{}: the range {start}..{end} ends before it begins", path.display())]
    Reversed {
        /// The home file.
        path: PathBuf,
        /// The start of the range, in bytes.
        start: u64,
        /// The end of the range, in bytes.
        end: u64,
    },

    /// `offset + count * size` exceeds `u64::MAX`. Nothing was written.
    #[error("{}: {count} elements of {size} bytes at offset {offset} overflow", path.display())]
    Overflow {
        /// The home file.
        path: PathBuf,
        /// The requested offset, in bytes.
        offset: u64,
        /// The number of elements.
        count: u64,
        /// The size of one element, in bytes.
        size: u64,
    },

    /// The range does not lie within the array or view, though it may lie within the file. Nothing
    /// was written.
    #[error(
        "{}: {what} up to {found} were asked for, at offset {offset}, and there are {expected}",
        path.display()
    )]
    Misfit {
        /// The home file.
        path: PathBuf,
        /// The unit of `found` and `expected`: elements of an array, or bytes of a view.
        what: &'static str,
        /// The start of the array or view in the file, in bytes.
        offset: u64,
        /// The end of the requested range.
        found: u64,
        /// The length of the array or view.
        expected: u64,
    },

    /// The file system is full. Nothing was changed. Free some space and call again.
    ///
    /// An exhausted quota, and the process's limit on file lengths (`ulimit -f`), count as a full
    /// file system; `source` tells which it was. A `sync` that cannot extend the journal makes no
    /// durable point. If that `sync` was part of a write, under
    /// [`Durability::EveryWrite`](crate::Durability::EveryWrite), the write has happened but is not
    /// yet durable.
    #[error("{}: {}", path.display(), no_space_message(*offset, *len, source))]
    NoSpace {
        /// The file that could not be extended: home file, reflection file or journal.
        path: PathBuf,
        /// The offset in that file, in bytes. 0 if the call has none.
        offset: u64,
        /// The number of bytes to allocate. 0 if the call has no range.
        len: u64,
        /// The system's error.
        source: io::Error,
    },

    /// The write or transaction needs more log space than exists, or the durable point a longer
    /// journal than allowed. Nothing was changed.
    #[error(
        "{}: the operation needs {needed} bytes of log, {limit} is the most; split it",
        path.display()
    )]
    TooLarge {
        /// The home file, or the journal.
        path: PathBuf,
        /// The log space needed, in bytes.
        needed: u64,
        /// The largest log space, in bytes.
        limit: u64,
    },

    /// The length exceeds the address space reserved at open. Nothing was changed.
    #[error(
        "{}: {len} bytes is more than the {max_len} bytes that this handle has reserved address \
         space for; open the file with a larger Options::max_len (at most {})",
        path.display(), crate::MAX_LEN
    )]
    TooLong {
        /// The home file.
        path: PathBuf,
        /// The requested length, in bytes.
        len: u64,
        /// The largest length that this handle allows, in bytes.
        max_len: u64,
    },

    /// Another operation has changed what the transaction has read. The transaction has written
    /// nothing. `transact` retries by itself.
    #[error("{}: another operation changed what this transaction has read; retry", path.display())]
    Conflict {
        /// The home file.
        path: PathBuf,
    },

    /// The closure of `transact` or `update` has changed what its own transaction has read, by
    /// another operation on the file. Every repetition would meet the same conflict.
    ///
    /// The transaction has written nothing. The other operation has taken effect. Write through
    /// the transaction instead.
    #[error(
        "{}: a closure changed what its own transaction has read, by another operation on the same \
         file; read and write through the transaction inside the closure",
        path.display()
    )]
    SelfConflict {
        /// The home file.
        path: PathBuf,
    },

    /// A `View` pins bytes that `set_len` would remove. Nothing was changed. Drop the view first.
    #[error("{}: a view pins bytes past the new length {len}; drop it first", path.display())]
    Pinned {
        /// The home file.
        path: PathBuf,
        /// The requested length, in bytes.
        len: u64,
    },

    /// The file is already open, in this process or in another one.
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
        /// `true` if this process has it open, `false` if another one has.
        in_this_process: bool,
    },

    /// The handle was inherited by `fork`. Open the file again after the parent has closed it.
    #[error(
        "{}: this handle belongs to the parent process; a child opens the file anew",
        path.display()
    )]
    Forked {
        /// The home file.
        path: PathBuf,
    },

    /// An earlier failure has made the handle permanently unusable: a durable point or checkpoint
    /// that failed or panicked, or a failed sync of a new length on `Medium::Dax`. Drop every
    /// handle and open the file again: opening recovers.
    #[error(
        "{}: unusable since {cause}{ADVICE}",
        path.display()
    )]
    Poisoned {
        /// The home file.
        path: PathBuf,
        /// The message of the earlier failure.
        cause: String,
    },

    /// A durable point of [`Options::sync_every`](crate::Options::sync_every) has failed, and none
    /// was made since. Nothing was written.
    ///
    /// Earlier operations are in memory and survive a process crash, unless
    /// [`Durability::AllOrNothing`](crate::Durability::AllOrNothing) was chosen. Writes succeed
    /// again after the next durable point, made at the next interval or by a call of `sync`.
    #[error(
        "{}: nothing was written, since the durable point of sync_every is overdue ({cause}); remove the cause and \
         call sync",
        path.display()
    )]
    Overdue {
        /// The home file.
        path: PathBuf,
        /// The message of the failure of the last durable point.
        cause: String,
    },

    /// The thread for [`Options::sync_every`](crate::Options::sync_every) could not be started. The
    /// file was not opened.
    #[error(
        "{}: no thread could be started for Options::sync_every: {source}; raise the limit of threads (ulimit -u, \
         pids.max of the control group), or leave the option out and call sync",
        path.display()
    )]
    NoThread {
        /// The home file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },

    /// The system has no address space for the file's mappings. Nothing was changed.
    ///
    /// The limit may be the process's (`ulimit -v`, or `ulimit -l` after `mlockall`), the kernel's
    /// number of mappings (`vm.max_map_count`), or the processor's address range.
    #[error(
        "{}: no address space for a mapping of {bytes} bytes ({source}); the file was opened for \
         up to {max_len} bytes, so open it with a smaller Options::max_len, {}",
        path.display(), address_space_advice(source)
    )]
    NoAddressSpace {
        /// The file that could not be mapped: home file or reflection file.
        path: PathBuf,
        /// The requested address space, in bytes.
        bytes: u64,
        /// The file length to reserve, in bytes: [`Options::max_len`](crate::Options::max_len), or
        /// its default.
        max_len: u64,
        /// The system's error.
        source: io::Error,
    },

    /// The process may not open the home file for reading and writing, or may not create it. There
    /// is no read-only mode. Nothing was changed.
    #[error(
        "{}: cannot be opened for reading and writing: {source}; the file and its folder need \
         write permission, and the file system must not be mounted read-only",
        path.display()
    )]
    NotWritable {
        /// The home file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },

    /// The process may not create the reflection file or journal in the folder. Nothing was
    /// changed.
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
        /// The system's error.
        source: io::Error,
    },

    /// The path is a symbolic link to a file that does not exist. Nothing was changed.
    #[error(
        "{}: is a link to {}, which does not exist; create that file first, or remove the link",
        path.display(), target.display()
    )]
    DanglingLink {
        /// The link.
        path: PathBuf,
        /// The link's target.
        target: PathBuf,
    },

    /// The path is not a regular file. Nothing was changed.
    #[error("{}: not a regular file; only regular files can be mapped atomically", path.display())]
    NotRegular {
        /// The path that was opened.
        path: PathBuf,
    },

    /// The promises do not hold on this file system. Nothing was changed.
    #[error(
        "{}: lies on {file_system}, where a mapping is not backed as the promises need; move the \
         file to a local file system, or accept process-death promises that nobody has tested \
         there with Options::allow_any_file_system(true)",
        path.display()
    )]
    UnsupportedFileSystem {
        /// The home file.
        path: PathBuf,
        /// The name of the file system.
        file_system: String,
    },

    /// The forced medium is not available on this system or in this build. Nothing was changed.
    #[error("{}: medium {medium} cannot be served here: {why}", path.display())]
    UnsupportedMedium {
        /// The home file.
        path: PathBuf,
        /// The forced medium.
        medium: String,
        /// The reason.
        why: &'static str,
    },

    /// A file with the name of a companion is not safe to use: it may be another user's trap.
    /// Nothing was written to it.
    #[error("{}: {} must not be used for its companion: {why}", home.display(), path.display())]
    Untrusted {
        /// The home file.
        home: PathBuf,
        /// The file with the companion's name.
        path: PathBuf,
        /// The reason.
        why: Distrust,
    },

    /// The home file is mounted by itself into a folder of another file system, as `docker run -v`
    /// does with one file. Its companions would lie on that file system and be lost with it.
    /// Nothing was changed.
    #[error(
        "{}: is mounted by itself into a folder that does not belong to it; mount the folder that \
         holds the file, or name a folder on the file's own volume with Options::reflection_dir",
        path.display()
    )]
    MountedAlone {
        /// The home file.
        path: PathBuf,
    },

    /// The home file and its reflection file do not match. Nothing was changed.
    #[error("{}", mismatch_message(home, reflection, why))]
    Mismatch {
        /// The home file.
        home: PathBuf,
        /// The reflection file.
        reflection: PathBuf,
        /// The kind of mismatch.
        why: Mismatch,
    },

    /// A system call failed.
    ///
    /// If the call was part of a durable point, the writes are in memory, and it is unknown whether
    /// they are durable. The handle is then poisoned: open the file again. `sync` makes a durable
    /// point. So does each write under [`Durability::EveryWrite`](crate::Durability::EveryWrite).
    #[error(
        "{}: {call} failed{}: {source}{}",
        path.display(), at(offset), advice_after(call, source)
    )]
    Io {
        /// The name of the failed step.
        call: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The offset in the file, in bytes, if the call has one.
        offset: Option<u64>,
        /// The system's error.
        source: io::Error,
    },
}

/// The reason why a file is not safe to use as a companion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Distrust {
    /// The file is a symbolic link, which may point to any file.
    #[error(
        "it is a symbolic link, and none is followed; remove it, or name the folder that it leads to \
         with Options::reflection_dir"
    )]
    IsLink,
    /// The file has several hard links, so a write to it may change another file.
    #[error("it has {0} hard links, and may be another file as well; remove its other names")]
    HasLinks(u64),
    /// The file's owner is neither the home file's owner nor the user of this process.
    #[error(
        "user {owner} owns it, and the home file is user {home_owner}'s; if it is right, give it to \
         that user with chown, else move it away"
    )]
    IsOwnedBy {
        /// The user id of the file's owner.
        owner: u32,
        /// The user id of the home file's owner.
        home_owner: u32,
    },
    /// The file is mounted by itself into the folder, and hides another file.
    #[error("it is mounted by itself and hides the file of the folder; unmount it")]
    IsMountedAlone,
    /// The file is the journal of another pair, or not a journal.
    #[error(
        "it does not belong to the pair; if the right journal exists, put it back, else move this away"
    )]
    IsOfAnotherPair,
    /// The file is not a regular file.
    #[error("it is not a regular file; move it away")]
    IsIrregular,
}

/// The way in which a home file and a reflection file do not match.
///
/// `docs/recovery.md` says for each what happened and what to do about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Mismatch {
    /// The home file's attribute names a reflection file, which does not exist.
    ReflectionGone,
    /// The reflection file belongs to another home file.
    Swapped,
    /// Another file has replaced the home file of the existing reflection file.
    HomeReplaced,
    /// The home file is a copy of one that had a reflection file. The copy may lack the bytes of
    /// that reflection file.
    HomeIsCopy,
    /// The file with the reflection file's name is not a reflection file.
    Foreign,
    /// A newer version of this crate has written the reflection file.
    Newer {
        /// The reflection file's format version.
        version: u32,
    },
    /// The reflection file is damaged: neither superblock is whole, or the log has entries that no
    /// version of this crate writes.
    Corrupt,
    /// The reflection file is shorter than its superblock requires.
    ReflectionTruncated,
    /// The home file is shorter than the reflection file requires.
    HomeTruncated,
    /// The home file has changed since it was closed.
    HomeChanged,
    /// The machine was restarted while the file was in use without durable points, on a medium that
    /// only survives process crashes. Or the process crashed, and the system cannot tell that the
    /// page cache is still the one it wrote to.
    Restarted,
    /// The file was in use when the process crashed or the machine was restarted, and its journal
    /// is missing.
    JournalGone,
    /// The file was in use when the process crashed or the machine was restarted. The journal with
    /// its name belongs to another pair, or to another time of this pair.
    JournalSwapped,
    /// The reflection file belongs to the home file, but the home file's attribute is missing. A
    /// program has removed the attribute, or an earlier state of the home file was restored.
    MarkGone,
    /// The home file was last opened on another device and by another path, and its companions lie
    /// on another volume. Either its volume is mounted elsewhere now, or this is a snapshot of the
    /// volume, and the reflection file belongs to the original.
    MayBeSnapshot,
    /// The home file and the reflection file lie on different volumes and are of different times,
    /// because one of the volumes was rolled back.
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
             restored from a backup, {discard}"
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

/// The steps that poison the handle if they fail. The message of their error tells the caller to
/// open the file again. Later calls return [`Error::Poisoned`] with that advice.
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
        "; a file that is open takes up to five descriptors: raise the limit (ulimit -n), or close \
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

/// Returns advice that names the exceeded limit. After `mlockall` the kernel returns EAGAIN, not
/// ENOMEM.
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

/// Returns `true` if a call failed because the file system, a quota or a length limit is full.
fn is_no_space(source: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

fn at(offset: &Option<u64>) -> String {
    offset.map_or_else(String::new, |offset| format!(" at offset {offset}"))
}

impl Error {
    /// Returns the error of a failed call that has no offset.
    pub(crate) fn io(call: &'static str, path: &Path, source: io::Error) -> Self {
        Self::of_call(call, path, None, 0, source)
    }

    /// Returns the error of a failed call at `offset` of the file.
    pub(crate) fn io_at(call: &'static str, path: &Path, offset: u64, source: io::Error) -> Self {
        Self::of_call(call, path, Some(offset), 0, source)
    }

    /// Returns the error of a failed call that needs storage for `len` bytes at `offset`.
    pub(crate) fn io_of_range(
        call: &'static str,
        path: &Path,
        offset: u64,
        len: u64,
        source: io::Error,
    ) -> Self {
        Self::of_call(call, path, Some(offset), len, source)
    }

    /// Returns [`Error::NoSpace`] for a lack of space, and [`Error::Io`] otherwise. A call that
    /// poisons the handle always gets `Io`, because `NoSpace` promises that nothing was changed.
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

    /// Returns the message for the cause of later errors, without the advice: they add their own.
    pub(crate) fn as_cause(&self) -> String {
        let mut said = self.to_string();
        if let Some(without) = said.strip_suffix(ADVICE) {
            said.truncate(without.len());
        }
        said
    }

    /// Returns the error of a failed `mmap` call. `max_len` is the file length to reserve.
    pub(crate) fn of_mapping(path: &Path, bytes: u64, max_len: u64, source: io::Error) -> Self {
        match source.kind() {
            // WouldBlock is EAGAIN: the limit of locked memory is exceeded.
            io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock => {
                Error::NoAddressSpace { path: path.to_owned(), bytes, max_len, source }
            }
            _ => Error::io("map", path, source),
        }
    }

    /// Returns the error of a home file that could not be opened.
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

    /// Returns the error of a companion of `home` that could not be created.
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

    /// Returns `true` for [`Error::Conflict`]: repeating the transaction may succeed.
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
