//! The numbers of errors: a negative `errno` where one fits, else a number of this interface.
//!
//! Invariant: a number is never given another meaning, and never used again.

use atomic_mmap::Error;
use std::ffi::c_int;
use std::io::ErrorKind;

/// A panic in the library, which is a bug in it. The file must be closed.
pub const ATO_EPANIC: c_int = -10000;
/// The handle was made by a parent process. A child opens the file anew.
pub const ATO_EFORKED: c_int = -10001;
/// A sync or a write-back failed before. Close the file and open it again: it holds the last
/// durable point, or a later one.
pub const ATO_EPOISONED: c_int = -10002;
/// The durable points of `sync_every_ms` fail, so nothing was written. Remove the cause, and call
/// `ato_sync`.
pub const ATO_EOVERDUE: c_int = -10003;
/// The file and its companions do not match. Nothing was changed.
pub const ATO_EMISMATCH: c_int = -10004;
/// An error of a kind that this version of the interface does not know.
pub const ATO_EOTHER: c_int = -10005;
/// The snapshot does not exist, or exists already, is being read, or is damaged, or its name is no
/// name. `ato_last_error` says which.
pub const ATO_ESNAPSHOT: c_int = -10006;
/// Bytes of the file are not those that were written. `ato_last_error` names the page, with its
/// offset and length. Nothing was read or changed. A write over all of the page replaces it.
pub const ATO_EDAMAGED: c_int = -10007;
/// A stream is damaged, ends too early, or does not fit the file. `ato_last_error` says which. The
/// file is unchanged.
pub const ATO_ESTREAM: c_int = -10008;

/// No error: `ato_close` has closed the file, which is complete as it is. But the process has lost
/// the right to remove its companions. They hold nothing any more, and the next open removes them.
/// `ato_last_error` names the call that was refused.
pub const ATO_CLOSED_WITH_COMPANIONS: c_int = 1;

/// Returns the number of an error.
pub(crate) fn of(error: &Error) -> c_int {
    let errno = match error {
        Error::PastEnd { .. }
        | Error::Reversed { .. }
        | Error::Overflow { .. }
        | Error::OutOfBounds { .. } => libc::ERANGE,
        Error::NoSpace { source, .. } => source.raw_os_error().unwrap_or(libc::ENOSPC),
        Error::TooLarge { .. } => libc::E2BIG,
        Error::TooLong { .. } => libc::EFBIG,
        Error::Conflict { .. } => libc::EAGAIN,
        Error::SelfConflict { .. } => libc::EDEADLK,
        Error::ReadOnly { .. } => libc::EROFS,
        Error::Pinned { .. } | Error::Busy { .. } | Error::StillOpen { .. } => libc::EBUSY,
        Error::NoAddressSpace { .. } => libc::ENOMEM,
        Error::DanglingLink { .. } => libc::ENOENT,
        Error::NotRegular { .. } | Error::OtherFile { .. } => libc::EINVAL,
        Error::UnsupportedFileSystem { .. } | Error::UnsupportedMedium { .. } => libc::ENOTSUP,
        Error::Untrusted { .. } | Error::Reserved { .. } => libc::EPERM,
        Error::MountedAlone { .. } => libc::EXDEV,
        Error::Io { source, .. }
        | Error::NoThread { source, .. }
        | Error::NotWritable { source, .. }
        | Error::FolderNotWritable { source, .. } => {
            source.raw_os_error().unwrap_or_else(|| of_kind(source.kind()))
        }
        Error::Forked { .. } => return ATO_EFORKED,
        Error::Poisoned { .. } => return ATO_EPOISONED,
        Error::Overdue { .. } => return ATO_EOVERDUE,
        Error::Mismatch { .. } => return ATO_EMISMATCH,
        Error::Snapshot { .. } => return ATO_ESNAPSHOT,
        Error::Damaged { .. } => return ATO_EDAMAGED,
        Error::Stream { .. } => return ATO_ESTREAM,
        _ => return ATO_EOTHER,
    };
    -errno
}

/// Returns the number of an error that no call of the system has returned.
fn of_kind(kind: ErrorKind) -> c_int {
    match kind {
        ErrorKind::AlreadyExists => libc::EEXIST,
        ErrorKind::ResourceBusy => libc::EBUSY,
        ErrorKind::IsADirectory => libc::EISDIR,
        ErrorKind::PermissionDenied => libc::EACCES,
        _ => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomic_mmap::{SnapshotError, StreamError};
    use std::io;
    use std::path::PathBuf;

    /// Programs are compiled with these numbers.
    #[test]
    fn the_numbers_stay() {
        let own = [
            ATO_EPANIC,
            ATO_EFORKED,
            ATO_EPOISONED,
            ATO_EOVERDUE,
            ATO_EMISMATCH,
            ATO_EOTHER,
            ATO_ESNAPSHOT,
            ATO_EDAMAGED,
            ATO_ESTREAM,
        ];
        assert!(own.into_iter().eq((-10008..=-10000).rev()), "{own:?}");
        let path = PathBuf::from("/f");
        let source = || io::Error::from_raw_os_error(libc::EDQUOT).into();
        let (offset, len, file_len) = (0, 1, 0);
        let expected = [
            (Error::PastEnd { path: path.clone(), offset, len, file_len }, -libc::ERANGE),
            (Error::Reversed { path: path.clone(), start: 1, end: 0 }, -libc::ERANGE),
            (Error::NoSpace { path: path.clone(), offset, len, source: source() }, -libc::EDQUOT),
            (Error::TooLarge { path: path.clone(), needed: 1, limit: 0 }, -libc::E2BIG),
            (Error::TooLong { path: path.clone(), len, max_len: 0 }, -libc::EFBIG),
            (Error::Conflict { path: path.clone() }, -libc::EAGAIN),
            (Error::ReadOnly { path: path.clone() }, -libc::EROFS),
            (Error::Pinned { path: path.clone(), len }, -libc::EBUSY),
            (
                Error::Busy { path: path.clone(), in_this_process: true, process: None },
                -libc::EBUSY,
            ),
            (Error::Reserved { path: path.clone(), offset }, -libc::EPERM),
            (Error::NotWritable { path: path.clone(), source: source() }, -libc::EDQUOT),
            (Error::Forked { path: path.clone() }, ATO_EFORKED),
            (Error::Poisoned { path: path.clone(), cause: String::new() }, ATO_EPOISONED),
            (
                Error::Snapshot {
                    path: path.clone(),
                    why: SnapshotError::NotFound { name: String::new() },
                },
                ATO_ESNAPSHOT,
            ),
            (Error::Damaged { path: path.clone(), offset: 4096, len: 4096 }, ATO_EDAMAGED),
            (Error::Stream { path: path.clone(), why: StreamError::NotEmpty }, ATO_ESTREAM),
            (Error::Overdue { path, cause: String::new() }, ATO_EOVERDUE),
        ];
        for (error, number) in expected {
            assert_eq!(of(&error), number, "{error}");
        }
    }
}
