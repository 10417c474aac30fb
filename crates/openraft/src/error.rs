//! Errors of the log store. Each message names the file.

use atomic_mmap::StructureError;
use std::path::PathBuf;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a log store. openraft gets it as the source of a `StorageError`.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation on the file failed. It has changed nothing. If waiting for its durable point
    /// failed, [`LogStore`](crate::LogStore) says what is left.
    #[error(transparent)]
    File(#[from] atomic_mmap::Error),

    /// A value could not be encoded. Nothing was changed.
    #[error("{}: group {group}: {what} cannot be encoded: {source}", path.display())]
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
        "{}: group {group}: {what} cannot be decoded ({source}); the types of the application have \
         changed since it was written, or the file is damaged",
        path.display()
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
    #[error("{}: group {group}: the checksum of {what} is wrong; the file is damaged", path.display())]
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
        "{}: group {group}: entry {found} would leave a hole or overwrite entries: the next one is \
         {expected}",
        path.display()
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
}

impl Error {
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
