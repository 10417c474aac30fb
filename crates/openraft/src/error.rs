//! Errors of the log store. Each message names the file.

use atomic_mmap::{StructureError, shown};
use std::io;
use std::path::PathBuf;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a log store. openraft 0.9 gets it as the source of a `StorageError`, and 0.10 in an
/// `io::Error`.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation on the file failed. It has changed nothing. If waiting for its durable point
    /// failed, [`LogStore`](crate::LogStore) says what is left.
    #[error(transparent)]
    File(#[from] atomic_mmap::Error),

    /// A value could not be encoded. Nothing was changed.
    #[error("{}: group {}: {what} cannot be encoded: {source}", shown(path), shown(group))]
    Encode {
        /// The file.
        path: PathBuf,
        /// The name of the group.
        group: String,
        /// The value.
        what: String,
        /// The encoder's error.
        source: postcard::Error,
    },

    /// Stored bytes are no value of the expected type.
    #[error(
        "{}: group {}: {what} cannot be decoded ({source}); the types of the application have \
         changed since it was written, or the file is damaged",
        shown(path),
        shown(group)
    )]
    Decode {
        /// The file.
        path: PathBuf,
        /// The name of the group.
        group: String,
        /// The value.
        what: String,
        /// The decoder's error.
        source: postcard::Error,
    },

    /// The checksum of a vote or a log id is wrong: the storage has changed its bytes.
    #[error(
        "{}: group {}: the checksum of {what} is wrong; the file is damaged",
        shown(path),
        shown(group)
    )]
    Checksum {
        /// The file.
        path: PathBuf,
        /// The name of the group.
        group: String,
        /// The value.
        what: String,
    },

    /// Entries do not follow the end of the log, or one another. Nothing was changed.
    #[error(
        "{}: group {}: entry {found} would leave a hole or overwrite entries: the next one is \
         {expected}",
        shown(path),
        shown(group)
    )]
    NotConsecutive {
        /// The file.
        path: PathBuf,
        /// The name of the group.
        group: String,
        /// The index that the next entry must have.
        expected: u64,
        /// The index that it has.
        found: u64,
    },

    /// The file has bytes, and none of a replicated file in this version's layout. Nothing was
    /// changed.
    #[error(
        "{}: not a replicated file of this version; give it an empty file, or one that it has made",
        shown(path)
    )]
    NotReplicated {
        /// The file.
        path: PathBuf,
    },

    /// A committed command calls a function that this node has not registered. The command was not
    /// applied here, and the node stops.
    #[error(
        "{}: a committed command calls the function {function:?}, which this node has not \
         registered; register it and start the node again",
        shown(path)
    )]
    NoFunction {
        /// The file.
        path: PathBuf,
        /// The name of the function.
        function: String,
    },

    /// A function panicked. The command was not applied here, and the node stops.
    #[error("{}: the function {function:?} of a committed command panicked", shown(path))]
    FunctionPanicked {
        /// The file.
        path: PathBuf,
        /// The name of the function.
        function: String,
    },

    /// A network has delivered the stream of another snapshot than it said. The file has that
    /// snapshot's state, and the node stops.
    #[error("{}: the stream of snapshot {found:?} came as that of {wanted:?}", shown(path))]
    OtherSnapshot {
        /// The file.
        path: PathBuf,
        /// The name of the announced snapshot.
        wanted: String,
        /// The name of the snapshot in the stream.
        found: String,
    },

    /// The state machine has failed before it had the effects of the entries to be purged. The log
    /// was not changed.
    #[error(
        "{}: group {}: the entries up to {index} stay: the state machine has failed before it \
         had their effects durably; its own error says why",
        shown(path),
        shown(group)
    )]
    NotInstalled {
        /// The file.
        path: PathBuf,
        /// The name of the group.
        group: String,
        /// The index of the last entry that was to be purged.
        index: u64,
    },

    /// A received snapshot cannot be sent on before it is installed.
    #[error("this snapshot was received; install it, and send the machine's own snapshot then")]
    NotSealed,

    /// The temporary file of a snapshot's stream could not be written or read. The replicated file
    /// was not changed.
    #[error("{}: the stream of a snapshot beside it: {source}", shown(path))]
    Stream {
        /// The replicated file.
        path: PathBuf,
        /// The system's error.
        source: atomic_mmap::IoError,
    },
}

impl Error {
    pub(crate) fn stream(file: &atomic_mmap::AtomicMappedFile, source: io::Error) -> Error {
        Error::Stream { path: file.path().into(), source: source.into() }
    }

    /// Returns `true` if the disk, a quota or a limit of the file or log is full.
    pub fn is_full(&self) -> bool {
        use atomic_mmap::Error::{NoSpace, Structure, TooLarge, TooLong};
        match self {
            Error::File(NoSpace { .. } | TooLarge { .. } | TooLong { .. }) => true,
            Error::File(Structure { why, .. }) => matches!(why, StructureError::Full { .. }),
            _ => false,
        }
    }
}

/// Contains the error. The kind is that of the file's or the stream's error, `InvalidData` for
/// stored bytes that are no value, and `InvalidInput` for what a caller passed.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match &error {
            Error::File(file) => io::Error::from(file.clone()).kind(),
            Error::Stream { source, .. } => source.kind(),
            Error::Decode { .. } | Error::Checksum { .. } | Error::NotReplicated { .. } => {
                io::ErrorKind::InvalidData
            }
            Error::Encode { .. } | Error::NotConsecutive { .. } | Error::NotSealed => {
                io::ErrorKind::InvalidInput
            }
            Error::OtherSnapshot { .. } => io::ErrorKind::InvalidData,
            Error::NoFunction { .. }
            | Error::FunctionPanicked { .. }
            | Error::NotInstalled { .. } => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
