//! Errors of snapshots.
//!
//! Owns: [`SnapshotError`] and its messages.
//!
//! Invariant: each message says what the caller can do about it.
//!
//! May import: `shown`.

use super::shown;

/// The reason why a call on a snapshot has failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// No live snapshot has this name or number.
    #[error("there is no snapshot \"{}\"; list the snapshots that there are", shown(name))]
    NotFound {
        /// The name, or the number in digits.
        name: String,
    },
    /// A live snapshot has this name already.
    #[error(
        "there is a snapshot \"{}\" already; drop it first, or choose another name",
        shown(name)
    )]
    Exists {
        /// The name.
        name: String,
    },
    /// The name is empty or too long, or contains a zero byte.
    #[error(
        "\"{}\" is no name of a snapshot: a name has 1 to {longest} bytes, and none is zero",
        shown(name)
    )]
    BadName {
        /// The name.
        name: String,
        /// The length of the longest name, in bytes.
        longest: usize,
    },
    /// A handle of the snapshot is open.
    #[error("snapshot {number} is being read; close its handles first")]
    InUse {
        /// The snapshot's number.
        number: u64,
    },
    /// There are as many snapshots as a file can have.
    #[error("there are {limit} snapshots, and that is the most; drop one first")]
    TooMany {
        /// The largest number of snapshots.
        limit: usize,
    },
    /// A rollback has not ended, and the file was opened for reading alone.
    #[error(
        "the rollback to snapshot {number} was cut off; open the file for writing once, which ends it"
    )]
    RollbackUnderWay {
        /// The number of the snapshot that the rollback goes to.
        number: u64,
    },
    /// The file of the snapshots contradicts its checksums. The storage, or another program, has
    /// changed it. The home file and its reflection file are not affected.
    #[error(
        "damaged at offset {offset}: {what}; restore this file from a backup, or move it away: the \
         snapshots are lost then, and the present content is whole, unless a rollback was cut off"
    )]
    Damaged {
        /// The offset of the contradiction in the file of the snapshots, in bytes.
        offset: u64,
        /// The contradiction.
        what: &'static str,
    },
}
