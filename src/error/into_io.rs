//! The conversion to the standard library's error.
//!
//! Owns: the choice of its kind.
//!
//! May import: nothing from the crate.

use super::{Error, SnapshotError, StreamError, StructureError};
use std::io;

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match &error {
            Error::PastEnd { .. }
            | Error::Reversed { .. }
            | Error::Overflow { .. }
            | Error::OutOfBounds { .. }
            | Error::OtherFile { .. }
            | Error::Reserved { .. }
            | Error::NotRegular { .. } => io::ErrorKind::InvalidInput,
            Error::NoSpace { .. } => io::ErrorKind::StorageFull,
            Error::TooLarge { .. } | Error::TooLong { .. } => io::ErrorKind::FileTooLarge,
            Error::Conflict { .. } => io::ErrorKind::WouldBlock,
            Error::SelfConflict { .. } => io::ErrorKind::Deadlock,
            Error::Busy { .. } | Error::Pinned { .. } | Error::StillOpen { .. } => {
                io::ErrorKind::ResourceBusy
            }
            Error::UnsupportedFileSystem { .. } | Error::UnsupportedMedium { .. } => {
                io::ErrorKind::Unsupported
            }
            Error::Mismatch { .. } | Error::InvalidValue { .. } | Error::Damaged { .. } => {
                io::ErrorKind::InvalidData
            }
            Error::Structure { why, .. } => kind_of_structure(why),
            Error::Snapshot { why, .. } => kind_of_snapshot(why),
            Error::Stream { why, .. } => kind_of_stream(why),
            Error::Untrusted { .. } | Error::ReadOnly { .. } => io::ErrorKind::PermissionDenied,
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

fn kind_of_structure(why: &StructureError) -> io::ErrorKind {
    use StructureError::{BadName, Full, OtherFile, RecordTooLong, Removed};
    match why {
        Full { .. } => io::ErrorKind::StorageFull,
        RecordTooLong { .. } => io::ErrorKind::FileTooLarge,
        BadName { .. } | OtherFile => io::ErrorKind::InvalidInput,
        Removed => io::ErrorKind::NotFound,
        _ => io::ErrorKind::InvalidData,
    }
}

fn kind_of_snapshot(why: &SnapshotError) -> io::ErrorKind {
    match why {
        SnapshotError::NotFound { .. } => io::ErrorKind::NotFound,
        SnapshotError::Exists { .. } => io::ErrorKind::AlreadyExists,
        SnapshotError::BadName { .. } => io::ErrorKind::InvalidInput,
        SnapshotError::InUse { .. } | SnapshotError::RollbackUnderWay { .. } => {
            io::ErrorKind::ResourceBusy
        }
        SnapshotError::TooMany { .. } => io::ErrorKind::StorageFull,
        SnapshotError::Damaged { .. } => io::ErrorKind::InvalidData,
    }
}

fn kind_of_stream(why: &StreamError) -> io::ErrorKind {
    match why {
        StreamError::Cut { .. } => io::ErrorKind::UnexpectedEof,
        StreamError::NoBase { .. } => io::ErrorKind::NotFound,
        StreamError::NotEmpty => io::ErrorKind::AlreadyExists,
        StreamError::WrongOrder { .. } => io::ErrorKind::InvalidInput,
        _ => io::ErrorKind::InvalidData,
    }
}
