//! Every error of the crate. Each message says what failed, where, and what the caller can do.
//!
//! Owns: [`Error`], its variants and their messages. Longer messages have their own files.
//!
//! May import: nothing from the crate except its limits.

mod advice;
mod constructors;
mod distrust;
mod doubt;
mod into_io;
mod io_error;
mod mismatch;
mod shown;
mod snapshot;
mod stream;
mod structure;
mod surface;

use advice::{ADVICE, address_space_advice, advice_after, at, busy_message, no_space_message};
pub(crate) use constructors::is_no_space;
pub use distrust::Distrust;
pub(crate) use doubt::{
    SYNC_FOR_A_POINT, SYNC_OF_LENGTH, SYNC_OF_SNAPSHOTS, WRITE_A_POINT, WRITE_A_RUN,
    WRITE_AN_APPEND,
};
pub use io_error::IoError;
pub use mismatch::Mismatch;
use mismatch::mismatch_message;
pub use shown::{is_obeyed, shown, variants};
pub use snapshot::SnapshotError;
use std::path::PathBuf;
pub use stream::StreamError;
pub use structure::StructureError;
pub use surface::{Interface, in_words_of};

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate. The call that returned it has changed nothing, unless the variant says
/// otherwise.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The range does not lie within the file. Nothing was written.
    #[error(
        "{}: {len} bytes at offset {offset} do not lie within the file's {file_len} bytes; \
         grow the file with set_len first",
        shown(path)
    )]
    PastEnd {
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
    #[error("{}: the range {start}..{end} ends before it begins", shown(path))]
    Reversed {
        /// The home file.
        path: PathBuf,
        /// The start of the range, in bytes.
        start: u64,
        /// The end of the range, in bytes.
        end: u64,
    },

    /// `offset + count * size` exceeds `u64::MAX`. Nothing was written.
    #[error("{}: {count} elements of {size} bytes at offset {offset} overflow", shown(path))]
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
        shown(path)
    )]
    OutOfBounds {
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

    /// The bytes in the file are no valid value of the type that was asked for. For example, a
    /// `bool` is 0 or 1. Nothing was changed. A `store` replaces the bytes.
    #[error(
        "{}: the bytes at offset {offset} are no valid value of type {type_name}; load them as another \
         type, or store a value there first",
        shown(path)
    )]
    InvalidValue {
        /// The home file.
        path: PathBuf,
        /// The offset of the value in the file, in bytes.
        offset: u64,
        /// The name of the type.
        type_name: &'static str,
    },

    /// The bytes of a page are not those that were written: a stray write has changed them, or the
    /// medium. Nothing was changed, and nothing was read. The other pages are as they were.
    ///
    /// Only a file with [page sums](crate::Integrity) notices that. A write over all of the page,
    /// up to the file's end, replaces its bytes.
    #[error(
        "{}: the {len} bytes at offset {offset} are damaged: they are not those that were written; \
         repair them from a snapshot, or write over all of them with those of a backup",
        shown(path)
    )]
    Damaged {
        /// The home file.
        path: PathBuf,
        /// The offset of the page in the file, in bytes.
        offset: u64,
        /// The length of the page, in bytes: 4096, or less at the file's end.
        len: u64,
    },

    /// The file system is full. Nothing was changed. Free some space and call again.
    ///
    /// An exhausted quota, and the process's limit on file lengths (`ulimit -f`), count as a full
    /// file system; `source` tells which it was. A `sync` that cannot extend the journal makes no
    /// durable point. If that `sync` was part of a write, under
    /// [`Durability::EveryWrite`](crate::Durability::EveryWrite), the write has happened but is not
    /// yet durable.
    #[error("{}: {}", shown(path), no_space_message(*offset, *len, source))]
    NoSpace {
        /// The file that could not be extended: home file, reflection file or journal.
        path: PathBuf,
        /// The offset in that file, in bytes. 0 if the call has none.
        offset: u64,
        /// The number of bytes to allocate. 0 if the call has no range.
        len: u64,
        /// The system's error.
        source: IoError,
    },

    /// The write or transaction needs more log space than exists, or the durable point a longer
    /// journal than allowed. Nothing was changed.
    #[error(
        "{}: the operation needs {needed} bytes of log, {limit} is the most; split it",
        shown(path)
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
        shown(path),
        crate::MAX_LEN
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
    #[error("{}: another operation changed what this transaction has read; retry", shown(path))]
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
        shown(path)
    )]
    SelfConflict {
        /// The home file.
        path: PathBuf,
    },

    /// A stage was committed to another file than it was made of. Nothing was changed.
    #[error("{}: the stage belongs to another open file; commit it there", shown(path))]
    OtherFile {
        /// The home file of the commit.
        path: PathBuf,
    },

    /// The file was opened with [`Options::read_only`](crate::Options::read_only). Nothing was
    /// changed.
    #[error(
        "{}: opened for reading alone; open it without Options::read_only to change it",
        shown(path)
    )]
    ReadOnly {
        /// The home file.
        path: PathBuf,
    },

    /// The range reaches into the 64 bytes of the file's byte mark, which only the crate writes:
    /// [`Options::mark_at`](crate::Options::mark_at). Nothing was written.
    #[error(
        "{}: the 64 bytes at offset {offset} belong to the mark that says that the file is in use; write before or \
         behind them",
        shown(path)
    )]
    Reserved {
        /// The home file.
        path: PathBuf,
        /// The offset of the mark, in bytes.
        offset: u64,
    },

    /// A `View` pins bytes that `set_len` would remove, or a `Stage` has lent some. Nothing was
    /// changed. Drop it first.
    #[error("{}: a view or stage pins bytes past the new length {len}; drop it first", shown(path))]
    Pinned {
        /// The home file.
        path: PathBuf,
        /// The requested length, in bytes.
        len: u64,
    },

    /// The file is already open, in this process or in another one.
    #[error(
        "{}: already open in {}",
        shown(path),
        busy_message(*in_this_process, *process)
    )]
    Busy {
        /// The home file.
        path: PathBuf,
        /// `true` if this process has it open, `false` if another one has.
        in_this_process: bool,
        /// The number of the process that has it open, where the system tells it.
        process: Option<u32>,
    },

    /// Other handles of the file are open, so [`close`](crate::AtomicMappedFile::close) has ended
    /// this handle alone. A log, a directory of roots, and slots and arrays by `into_owned` have
    /// one. The last handle closes the file, in the mode of this call if no other follows.
    #[error(
        "{}: not closed: {handles} more of its handles are open (also logs, roots, and owned \
         slots and arrays have one); drop them first",
        shown(path)
    )]
    StillOpen {
        /// The home file.
        path: PathBuf,
        /// How many other handles there were.
        handles: usize,
    },

    /// The last handle was dropped before, in this process, and the close that a drop makes had
    /// failed. The file was recovered since, as after a crash.
    #[error(
        "{}: the last drop of a handle could not close the file ({cause}); it was recovered; to \
         hear of such an error, call close",
        shown(path)
    )]
    NotClosed {
        /// The home file.
        path: PathBuf,
        /// The message of that failure.
        cause: String,
    },

    /// The handle was inherited by `fork`. Open the file again after the parent has closed it.
    #[error(
        "{}: this handle belongs to the parent process; a child opens the file anew",
        shown(path)
    )]
    Forked {
        /// The home file.
        path: PathBuf,
    },

    /// An earlier failure has made it unknown what the disk has: a durable point or checkpoint that
    /// failed, a failed write of a long run or an append, a failed sync of a new length on
    /// `Medium::Dax`. The handle can only read from then on. After an error of a rollback or an
    /// import under way, or a panic in the middle of an operation, it cannot even do that. Drop
    /// every handle and open the file again: opening recovers.
    #[error("{}: unusable since {cause}{ADVICE}", shown(path))]
    Poisoned {
        /// The home file.
        path: PathBuf,
        /// The message of the earlier failure.
        cause: String,
    },

    /// A durable point of [`Options::sync_every`](crate::Options::sync_every) has failed, or the
    /// opening after a process crash had no space for one, and none was made since. Nothing was
    /// written.
    ///
    /// Earlier operations are in memory and survive a process crash, unless
    /// [`Durability::AtomicSync`](crate::Durability::AtomicSync) was chosen. Writes succeed
    /// again after the next durable point, made at the next interval or by a call of `sync`. Where
    /// it lacked space, make some, or drop snapshots before:
    /// [`drop_snapshot`](crate::AtomicMappedFile::drop_snapshot) needs none.
    #[error(
        "{}: nothing was written, since a durable point is overdue ({cause}); remove the cause and call sync",
        shown(path)
    )]
    Overdue {
        /// The home file.
        path: PathBuf,
        /// The message of the failure of the last durable point.
        cause: String,
    },

    /// The thread for [`Options::sync_every`](crate::Options::sync_every),
    /// [`auto_snapshots`](crate::Options::auto_snapshots), [`scrub`](crate::Options::scrub),
    /// [`deploy_idle`](crate::Options::deploy_idle) or
    /// [`reflection_budget`](crate::Options::reflection_budget) could not be started. The file was
    /// not opened.
    #[error(
        "{}: no thread could be started for the file's intervals: {source}; raise the limit of threads (ulimit -u, \
         pids.max of the control group), or leave out what Options asks of a thread: sync_every, auto_snapshots, \
         scrub, deploy_idle, reflection_budget",
        shown(path)
    )]
    NoThread {
        /// The home file.
        path: PathBuf,
        /// The system's error.
        source: IoError,
    },

    /// The system has no address space for the file's mappings. Nothing was changed.
    ///
    /// The limit may be the process's (`ulimit -v`, or `ulimit -l` after `mlockall`), the kernel's
    /// number of mappings (`vm.max_map_count`), or the processor's address range.
    #[error(
        "{}: no address space for a mapping of {bytes} bytes ({source}); the file was opened for \
         up to {max_len} bytes, so open it with a smaller Options::max_len, {}",
        shown(path),
        address_space_advice(source)
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
        source: IoError,
    },

    /// The process may not open the home file for reading and writing, or may not create it. There
    /// is no read-only mode. Nothing was changed.
    #[error(
        "{}: cannot be opened for reading and writing: {source}; the file and its folder need \
         write permission, and the file system must not be mounted read-only",
        shown(path)
    )]
    NotWritable {
        /// The home file.
        path: PathBuf,
        /// The system's error.
        source: IoError,
    },

    /// The process may not create the reflection file or journal in the folder. Nothing was
    /// changed.
    #[error(
        "{}: its reflection file and journal cannot be made in the folder {}: {source}; make that \
         folder writable, or choose another one on the same file system with \
         Options::reflection_dir",
        shown(home),
        shown(folder)
    )]
    FolderNotWritable {
        /// The home file.
        home: PathBuf,
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        source: IoError,
    },

    /// The path is a symbolic link to a file that does not exist. Nothing was changed.
    #[error(
        "{}: is a link to {}, which does not exist; create that file first, or remove the link",
        shown(path),
        shown(target)
    )]
    DanglingLink {
        /// The link.
        path: PathBuf,
        /// The link's target.
        target: PathBuf,
    },

    /// The path is not a regular file. Nothing was changed.
    #[error("{}: not a regular file; only regular files can be mapped atomically", shown(path))]
    NotRegular {
        /// The path that was opened.
        path: PathBuf,
    },

    /// The promises do not hold on this file system. Nothing was changed.
    #[error(
        "{}: lies on {file_system}, where a mapping is not backed as the promises need; move the \
         file to a local file system, or accept process-death promises that are not tested \
         there with Options::allow_any_file_system(true)",
        shown(path)
    )]
    UnsupportedFileSystem {
        /// The home file.
        path: PathBuf,
        /// The name of the file system.
        file_system: String,
    },

    /// The forced medium is not available on this system or in this build. Nothing was changed.
    #[error("{}: medium {} cannot be served here: {why}", shown(path), shown(medium))]
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
    #[error("{}: {} must not be used for its companion: {why}", shown(home), shown(path))]
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
        shown(path)
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

    /// A call on [`Roots`](crate::Roots) or a [`Log`](crate::Log) failed. Nothing was changed.
    #[error("{}: at offset {offset}: {why}", shown(path))]
    Structure {
        /// The home file.
        path: PathBuf,
        /// The offset of the structure, or of the bytes in question.
        offset: u64,
        /// The reason.
        why: StructureError,
    },

    /// A call on a snapshot failed, or the file that holds the snapshots is damaged. Nothing was
    /// changed.
    #[error("{}: {why}", shown(path))]
    Snapshot {
        /// The home file. For damage, the file that holds the snapshots.
        path: PathBuf,
        /// The reason.
        why: SnapshotError,
    },

    /// An export or import failed. The receiving file is unchanged.
    #[error("{}: {why}", shown(path))]
    Stream {
        /// The home file.
        path: PathBuf,
        /// The reason.
        why: StreamError,
    },

    /// A system call failed.
    ///
    /// If the call was part of a durable point, the writes are in memory, and it is unknown whether
    /// they are durable. The handle is then poisoned: open the file again. `sync` makes a durable
    /// point. So does each write under [`Durability::EveryWrite`](crate::Durability::EveryWrite).
    #[error("{}: {call} failed{}: {source}{}", shown(path), at(offset), advice_after(call, source))]
    Io {
        /// The name of the failed step.
        call: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The offset in the file, in bytes, if the call has one.
        offset: Option<u64>,
        /// The system's error.
        source: IoError,
    },
}
