//! The errors of failed calls.
//!
//! Owns: the choice of the variant by the call and by the system's error.
//!
//! Invariant: a call that leaves doubt is never [`Error::NoSpace`], which promises that nothing was
//! changed.
//!
//! May import: `advice`, `doubt`, `shown` and the planted bugs.

use super::advice::{ADVICE, READ_OPEN};
use super::doubt::leaves_doubt;
use super::{Error, SnapshotError};
use crate::mutant::planted;
use std::io;
use std::path::Path;

/// Returns `true` if a call failed because the file system, a quota or a length limit is full.
pub(crate) fn is_no_space(source: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

impl Error {
    /// Returns the error of a file that this process has open.
    pub(crate) fn open_here(path: &Path) -> Self {
        Error::Busy { path: path.to_owned(), in_this_process: true, process: None }
    }

    /// Returns the error of a file that another process has open, with its number if that is known.
    pub(crate) fn open_elsewhere(path: &Path, process: Option<u32>) -> Self {
        Error::Busy { path: path.to_owned(), in_this_process: false, process }
    }

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
            event!(WARN, file = %crate::error::shown(&path), offset, len, %source, "no space");
            return Error::NoSpace {
                path,
                offset: offset.unwrap_or(0),
                len,
                source: source.into(),
            };
        }
        Error::Io { call, path, offset, source: source.into() }
    }

    /// Returns `true` if the step has failed that leaves the handle in doubt.
    pub(crate) fn leaves_doubt(&self) -> bool {
        matches!(self, Error::Io { call, .. } if leaves_doubt(call))
    }

    /// Returns `true` if the system has refused a call for lack of a right.
    pub(crate) fn is_refusal(&self) -> bool {
        use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        matches!(self, Error::Io { source, .. }
            if matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem))
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
            io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock => Error::NoAddressSpace {
                path: path.to_owned(),
                bytes,
                max_len,
                source: source.into(),
            },
            _ => Error::io("map", path, source),
        }
    }

    /// Returns the error of a damaged store of snapshots. `path` is the store's.
    pub(crate) fn damaged_snapshots(path: &Path, offset: u64, what: &'static str) -> Self {
        Error::Snapshot { path: path.to_owned(), why: SnapshotError::Damaged { offset, what } }
    }

    /// Returns the error of a home file that could not be opened, by a call that only reads or
    /// one that also writes.
    pub(crate) fn of_opening(path: &Path, reads_only: bool, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied if reads_only => Error::io(READ_OPEN, path, source),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Error::NotWritable { path: path.to_owned(), source: source.into() }
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
                Error::FolderNotWritable { home: home.to_owned(), folder, source: source.into() }
            }
            _ => Error::io(call, companion, source),
        }
    }

    /// Returns `true` for [`Error::Conflict`]: repeating the transaction may succeed.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Conflict { .. })
    }
}
