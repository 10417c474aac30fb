//! Errors of the structures above the engine: named roots and logs.
//!
//! Owns: [`StructureError`] and its messages.
//!
//! Invariant: each message says what the caller can do about it.
//!
//! May import: `shown`.

use super::shown;

/// The reason why a call on [`Roots`](crate::Roots) or a [`Log`](crate::Log) has failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StructureError {
    /// The bytes are not zero, and this crate has not written them.
    #[error(
        "{expected} was expected, and there are other bytes; name the right file and offset, or use \
         a file of zeros"
    )]
    Foreign {
        /// The structure that was expected.
        expected: &'static str,
    },
    /// A newer version of this crate has written the bytes.
    #[error("version {version} of this structure is newer than this crate; use a newer version")]
    Newer {
        /// The structure's version.
        version: u32,
    },
    /// The bytes contradict their checksum or each other. The storage, or another program, has
    /// changed them.
    #[error("damaged: {what}; restore the file from a backup")]
    Damaged {
        /// The contradiction.
        what: &'static str,
    },
    /// The name belongs to something of another type.
    #[error(
        "\"{}\" is {}, and {} was expected; use the type that it was made with, or another name",
        shown(name),
        shown(found),
        shown(expected)
    )]
    WrongType {
        /// The name.
        name: String,
        /// The type that the file holds.
        found: String,
        /// The type that the caller has asked for.
        expected: String,
    },
    /// The name is empty, or too long.
    #[error("\"{}\" is no name: a name has 1 to {longest} bytes", shown(name))]
    BadName {
        /// The name.
        name: String,
        /// The length of the longest name, in bytes.
        longest: usize,
    },
    /// The log or the directory has no room left.
    #[error(
        "full: {needed} more were needed, and {limit} is the most ({what}); remove some, or raise \
         the limit if it is yours"
    )]
    Full {
        /// The unit of `needed` and `limit`.
        what: &'static str,
        /// The amount that the call needed.
        needed: u64,
        /// The most that there can be.
        limit: u64,
    },
    /// A record is longer than a log can hold.
    #[error("a record of {len} bytes is longer than {longest}; split it")]
    RecordTooLong {
        /// The record's length, in bytes.
        len: u64,
        /// The length of the longest record, in bytes.
        longest: u64,
    },
    /// The transaction belongs to another open file.
    #[error("the transaction belongs to another file; begin it on this file")]
    OtherFile,
    /// The log was removed, or its creation was rolled back.
    #[error("this log no longer exists; call Roots::log again")]
    Removed,
}
