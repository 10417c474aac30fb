//! The numbers of errors that programs get. A panic is an error, too.
//!
//! May import: `log`, and what puts off cancellation.

use crate::log;
use atomic_mmap::{Error, SnapshotError};
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A number of the system, as `errno`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub c_int);

pub(crate) type Result<T> = std::result::Result<T, Errno>;

impl Errno {
    pub const BAD_DESCRIPTOR: Errno = Errno(libc::EBADF);
    pub const INVALID: Errno = Errno(libc::EINVAL);
    pub const IO: Errno = Errno(libc::EIO);
    pub const UNSUPPORTED: Errno = Errno(libc::EOPNOTSUPP);

    /// Returns the number of an error of atomic-mmap, and notes its message in the log.
    pub fn of(error: &Error) -> Errno {
        log::line(&error.to_string());
        Errno(number(error))
    }
}

/// Runs `body`. A panic becomes an error, and a cancellation of the thread waits.
pub(crate) fn caught<R>(body: impl FnOnce() -> Result<R>) -> Result<R> {
    #[cfg(not(test))] // as `ffi` is
    let _ends_first = crate::ffi::Uncancelled::new();
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        // The payload of a panic may panic itself when it is dropped.
        std::mem::forget(panic);
        log::line("a panic, which is a bug of atomic-mmap; the call fails with EIO");
        Err(Errno::IO)
    })
}

fn number(error: &Error) -> c_int {
    match error {
        Error::NoSpace { source, .. } => source.raw_os_error().unwrap_or(libc::ENOSPC),
        Error::TooLarge { .. } | Error::TooLong { .. } => libc::EFBIG,
        Error::ReadOnly { .. } => libc::EROFS,
        Error::Busy { .. } | Error::Pinned { .. } => libc::EBUSY,
        Error::NoAddressSpace { .. } => libc::ENOMEM,
        Error::UnsupportedFileSystem { .. } | Error::UnsupportedMedium { .. } => libc::EOPNOTSUPP,
        Error::Untrusted { .. } | Error::Reserved { .. } => libc::EPERM,
        Error::MountedAlone { .. } => libc::EXDEV,
        Error::Mismatch { .. }
        | Error::Snapshot { why: SnapshotError::RollbackUnderWay { .. }, .. } => libc::EUCLEAN,
        Error::Io { source, .. }
        | Error::NoThread { source, .. }
        | Error::NotWritable { source, .. }
        | Error::FolderNotWritable { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        _ => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn programs_get_numbers_that_they_can_act_on() {
        let path = PathBuf::from("/f");
        let source = || std::io::Error::from_raw_os_error(libc::EDQUOT).into();
        let cause = String::new();
        let cases = [
            (
                Error::NoSpace { path: path.clone(), offset: 0, len: 1, source: source() },
                libc::EDQUOT,
            ),
            (Error::TooLarge { path: path.clone(), needed: 2, limit: 1 }, libc::EFBIG),
            (
                Error::Busy { path: path.clone(), in_this_process: false, process: None },
                libc::EBUSY,
            ),
            (Error::NotWritable { path: path.clone(), source: source() }, libc::EDQUOT),
            (Error::Forked { path: path.clone() }, libc::EIO),
            (
                Error::Snapshot {
                    path: path.clone(),
                    why: SnapshotError::RollbackUnderWay { number: 1 },
                },
                libc::EUCLEAN,
            ),
            (
                Error::Snapshot {
                    path: path.clone(),
                    why: SnapshotError::Damaged { offset: 0, what: "" },
                },
                libc::EIO,
            ),
            (Error::Poisoned { path, cause }, libc::EIO),
        ];
        for (error, expected) in cases {
            assert_eq!(number(&error), expected, "{error}");
        }
    }
}
