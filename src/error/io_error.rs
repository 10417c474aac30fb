//! A system's error that several owners share.
//!
//! Owns: [`IoError`].
//!
//! May import: `shown`.

use super::shown;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

/// A system's error. Clones share one [`io::Error`], so an [`Error`](crate::Error) can be cloned.
///
/// It dereferences to the [`io::Error`]. [`Error::source`](std::error::Error::source) of the error
/// that holds it returns that `io::Error`.
///
/// ```
/// # let dir = atomic_mmap::doctest_dir();
/// use atomic_mmap::{AtomicMappedFile, Error};
/// use std::error::Error as _;
/// use std::io;
///
/// let error = AtomicMappedFile::open(dir.path().join("none")).unwrap_err();
/// let for_another_thread = error.clone();
/// if let Error::Io { source, .. } = &for_another_thread {
///     assert_eq!(source.kind(), io::ErrorKind::NotFound);
/// }
/// let source = error.source().and_then(|e| e.downcast_ref::<io::Error>());
/// assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::NotFound));
/// ```
#[derive(Clone)]
pub struct IoError(Arc<io::Error>);

impl From<io::Error> for IoError {
    fn from(error: io::Error) -> Self {
        IoError(Arc::new(error))
    }
}

impl From<io::ErrorKind> for IoError {
    fn from(kind: io::ErrorKind) -> Self {
        io::Error::from(kind).into()
    }
}

// No `std::error::Error`: so `Error::source` is the `io::Error` itself, and not this wrapper.
impl Deref for IoError {
    type Target = io::Error;

    fn deref(&self) -> &io::Error {
        &self.0
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An error of the caller's reader may hold names.
        fmt::Display::fmt(&shown(&self.0.to_string()), f)
    }
}

impl fmt::Debug for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
