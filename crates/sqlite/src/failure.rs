//! Failures of calls from SQLite: a result code, and a message for people.
//!
//! SQLite passes on only the code of a VFS. So the message goes to SQLite's log, and to
//! [`last_error`]. May import nothing from the crate.

use std::cell::RefCell;
use std::{fmt, io};

/// A result code of SQLite, as its documentation lists them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Code(pub i32);

impl Code {
    pub const OK: Code = Code(0);
    pub const ERROR: Code = Code(1);
    pub const BUSY: Code = Code(5);
    pub const READONLY: Code = Code(8);
    pub const IOERR: Code = Code(10);
    pub const NOTFOUND: Code = Code(12);
    pub const FULL: Code = Code(13);
    pub const CANTOPEN: Code = Code(14);
    pub const MISUSE: Code = Code(21);
    pub const WARNING: Code = Code(28);
    pub const BUSY_SNAPSHOT: Code = Code(5 | 2 << 8);
    pub const IOERR_READ: Code = Code(10 | 1 << 8);
    pub const IOERR_SHORT_READ: Code = Code(10 | 2 << 8);
    pub const IOERR_WRITE: Code = Code(10 | 3 << 8);
    pub const IOERR_FSYNC: Code = Code(10 | 4 << 8);
    pub const IOERR_TRUNCATE: Code = Code(10 | 6 << 8);
    pub const IOERR_NOMEM: Code = Code(10 | 12 << 8);
    pub const IOERR_MMAP: Code = Code(10 | 24 << 8);
}

/// A failed call. Without a message it is an answer that SQLite expects, as busy.
#[derive(Debug)]
pub(crate) struct Failure {
    pub code: Code,
    pub message: Option<String>,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Returns a failure with a message. What a terminal obeys is escaped here, for each message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Failure { code, message: Some(atomic_mmap::shown(&message.into()).to_string()) }
    }

    /// Returns `true` if SQLite rolls a transaction back after this failure of a write. After
    /// others the transaction may go on.
    pub fn ends_transaction(&self) -> bool {
        matches!(Code(self.code.0 & 0xFF), Code::FULL | Code::IOERR)
    }

    pub fn busy() -> Self {
        Failure { code: Code::BUSY, message: None }
    }

    /// Returns the failure of a writer that has read an earlier version than the newest one.
    pub fn stale() -> Self {
        Failure { code: Code::BUSY_SNAPSHOT, message: None }
    }

    /// Returns the failure of a call of atomic-mmap. `otherwise` is the code of an error that has
    /// none of its own.
    pub fn of(error: &atomic_mmap::Error, otherwise: Code) -> Self {
        use atomic_mmap::Error;
        let code = match error {
            Error::NoSpace { .. } | Error::TooLarge { .. } | Error::TooLong { .. } => Code::FULL,
            Error::Poisoned { .. } | Error::Overdue { .. } => Code::IOERR_FSYNC,
            Error::Busy { .. } => Code::BUSY,
            Error::ReadOnly { .. } => Code::READONLY,
            Error::Forked { .. } => Code::MISUSE,
            Error::NoAddressSpace { .. } => Code::IOERR_NOMEM,
            _ => otherwise,
        };
        Failure::new(code, error.to_string())
    }

    /// Returns the failure of a call of the system.
    pub fn of_io(error: &io::Error, otherwise: Code, what: &str) -> Self {
        let is_full = matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        );
        Failure::new(if is_full { Code::FULL } else { otherwise }, format!("{what}: {error}"))
    }
}

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Returns the message of the last call of SQLite that this VFS has failed in this thread.
///
/// SQLite has no place for it: an open that fails is "unable to open database file", whatever the
/// reason. In SQL the function `atomic_mmap_error()` returns it, on the connection that has loaded
/// the extension.
pub fn last_error() -> Option<String> {
    LAST.with_borrow(Clone::clone)
}

/// Keeps a message for [`last_error`].
pub(crate) fn keep(message: &str) {
    LAST.with_borrow_mut(|last| *last = Some(message.to_owned()));
}

/// The VFS could not be registered.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RegisterError {
    /// SQLite is older than 3.37.
    TooOld {
        /// The version of SQLite, as 3036000.
        version: i32,
    },
    /// SQLite has no default VFS to lie on, or a result code of its own refused the registration.
    Refused {
        /// The result code.
        code: i32,
    },
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegisterError::TooOld { version } => {
                write!(f, "SQLite {version} is too old for the VFS atomic-mmap; it needs 3.37")
            }
            RegisterError::Refused { code } => {
                write!(f, "SQLite refuses the VFS atomic-mmap with the result code {code}")
            }
        }
    }
}

impl std::error::Error for RegisterError {}

#[cfg(test)]
mod tests {
    use super::*;
    use atomic_mmap::Error;
    use std::path::PathBuf;

    #[test]
    fn errors_have_the_codes_that_sqlite_acts_on() {
        let (path, cause) = (PathBuf::from("x.db"), "a failed sync".to_owned());
        let cases = [
            (Error::TooLong { path: path.clone(), len: 2, max_len: 1 }, Code::FULL),
            (Error::TooLarge { path: path.clone(), needed: 2, limit: 1 }, Code::FULL),
            (Error::Poisoned { path: path.clone(), cause }, Code::IOERR_FSYNC),
            (Error::Busy { path: path.clone(), in_this_process: false, process: None }, Code::BUSY),
            (Error::ReadOnly { path: path.clone() }, Code::READONLY),
            (Error::Forked { path: path.clone() }, Code::MISUSE),
            (Error::Conflict { path }, Code::IOERR_WRITE),
        ];
        for (error, code) in cases {
            let failure = Failure::of(&error, Code::IOERR_WRITE);
            assert_eq!(failure.code, code, "{error}");
            assert!(failure.message.expect("a message").contains("x.db"));
        }
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(Failure::of_io(&full, Code::IOERR_WRITE, "x").code, Code::FULL);
    }
}
