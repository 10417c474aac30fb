//! Exit codes, and the errors that lead to them.

use crate::report::{SCHEMA, json_line, tell};
use crate::verdict::is_damage;
use atomic_mmap::{Error, Interface, SnapshotError, StreamError, in_words_of, shown};
use serde_json::json;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// How a command ended. The numbers are the exit codes, which never change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Outcome {
    Ok = 0,
    Failed = 1,
    Usage = 2,
    Damaged = 3,
    Repaired = 4,
    Busy = 5,
    Mismatch = 6,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> ExitCode {
        ExitCode::from(outcome as u8)
    }
}

/// Why a command did not do its work.
#[derive(Debug)]
pub enum Failure {
    File(Error),
    /// Reading or writing elsewhere failed: what was tried, and the system's error.
    Io(String, io::Error),
    /// The arguments do not go together.
    Usage(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::File(error)
    }
}

impl Failure {
    pub fn io(path: &Path) -> impl FnOnce(io::Error) -> Failure {
        move |e| Failure::Io(shown(path).to_string(), e)
    }

    pub fn printing(error: io::Error) -> Failure {
        Failure::Io("standard output".into(), error)
    }

    pub fn outcome(&self) -> Outcome {
        match self {
            Failure::File(Error::Busy { .. }) => Outcome::Busy,
            Failure::File(Error::Mismatch { why, .. }) if is_damage(*why) => Outcome::Damaged,
            Failure::File(Error::Mismatch { .. }) => Outcome::Mismatch,
            Failure::File(Error::Damaged { .. }) => Outcome::Damaged,
            Failure::File(Error::Snapshot { why: SnapshotError::Damaged { .. }, .. }) => {
                Outcome::Damaged
            }
            Failure::File(Error::Stream {
                why: StreamError::WrongBase { .. } | StreamError::Gap { .. },
                ..
            }) => Outcome::Mismatch,
            Failure::File(_) | Failure::Io(..) => Outcome::Failed,
            Failure::Usage(_) => Outcome::Usage,
        }
    }

    /// Returns a word for the error, which never changes.
    fn code(&self) -> &'static str {
        match self.outcome() {
            Outcome::Busy => "busy",
            Outcome::Damaged => "damaged",
            Outcome::Mismatch => "mismatch",
            Outcome::Usage => "usage",
            _ => match self {
                Failure::File(Error::NoSpace { .. }) => "no-space",
                Failure::File(Error::TooLong { .. }) => "too-long",
                Failure::File(Error::UnsupportedFileSystem { .. }) => "unsupported-file-system",
                Failure::File(Error::Untrusted { .. }) => "untrusted",
                Failure::File(Error::Snapshot { why, .. }) => snapshot_code(why),
                Failure::File(Error::Stream { why, .. }) => stream_code(why),
                Failure::Io(_, error) if error.kind() == io::ErrorKind::StorageFull => "no-space",
                _ => "failed",
            },
        }
    }

    fn message(&self) -> String {
        match self {
            Failure::File(error) => in_words_of(Interface::Command, &error.to_string()),
            Failure::Io(what, error) => format!("{what}: {error}"),
            Failure::Usage(what) => what.clone(),
        }
    }

    /// Prints the error to standard error.
    pub fn print(&self, as_json: bool) {
        let (code, message) = (self.code(), self.message());
        if as_json {
            let error = json!({ "code": code, "message": message });
            tell(&json_line(&json!({ "schema": SCHEMA, "error": error })));
        } else {
            tell(&format!("error: {}\n", shown(&message)));
        }
    }
}

fn snapshot_code(why: &SnapshotError) -> &'static str {
    match why {
        SnapshotError::NotFound { .. } => "no-such-snapshot",
        SnapshotError::Exists { .. } => "snapshot-exists",
        SnapshotError::BadName { .. } => "bad-snapshot-name",
        SnapshotError::TooMany { .. } => "too-many-snapshots",
        SnapshotError::RollbackUnderWay { .. } => "rollback-under-way",
        _ => "failed",
    }
}

fn stream_code(why: &StreamError) -> &'static str {
    match why {
        StreamError::Damaged { .. } => "stream-damaged",
        StreamError::Cut { .. } => "stream-cut",
        StreamError::NotEmpty => "not-empty",
        StreamError::NoBase { .. } => "no-base",
        _ => "failed",
    }
}
