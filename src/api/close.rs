//! The end of a handle: `close`, and the drop of the last one.
//!
//! Owns: [`Shared`], which the handles of one open file have in common.
//!
//! May import: `file`, the engine and below.

use crate::AtomicMappedFile;
use crate::config::{CloseMode, Durability};
use crate::engine::Engine;
use crate::engine::close::Closed;
use crate::error::{Error, Result};
use crate::mutant::planted;
use crate::primitive::Mutex;
use std::sync::Arc;

/// State that all handles of one open file share. Dropped with the last handle.
pub(crate) struct Shared {
    engine: Arc<Engine>,
    close_mode: Mutex<CloseMode>,
}

impl Shared {
    pub(super) fn new(engine: Arc<Engine>, close_mode: CloseMode) -> Self {
        Shared { engine, close_mode: Mutex::new(close_mode) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.engine.close_dropped(*self.close_mode.get_mut());
    }
}

impl AtomicMappedFile {
    /// Closes the file, by its last handle, and says how.
    ///
    /// If other handles are open, this one ends, and the file stays open: the error counts them.
    /// A log, a directory of roots, and slots and arrays by `into_owned` have one: drop them first.
    /// The last handle then closes the file, in the mode given to the latest `close` of any handle.
    ///
    /// [`CloseMode::Spatial`] and [`CloseMode::Fast`] make a durable point of everything that has
    /// returned. With [`Durability::AtomicSync`] they make it at once, even if other handles are
    /// left. [`CloseMode::Unsynced`] makes no durable point.
    ///
    /// A close needs no free descriptor and looks nothing up by a path. So it works after `chroot`,
    /// and if all descriptors are taken. If the process may no longer remove the companions, they
    /// stay: [`Closed::WithCompanions`].
    ///
    /// Dropping the last handle also closes the file. The error of a drop is told by
    /// [`health`](Self::health) of the next handle in this process. It uses the mode of
    /// the latest `close`, or of [`Options::close_on_drop`](crate::Options::close_on_drop) if
    /// `close` was never called. With
    /// [`Durability::AtomicSync`] a drop never makes a durable point. If the file has changed
    /// since the last one, the drop uses [`CloseMode::Unsynced`], and the next open takes the
    /// changes back.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// use atomic_mmap::{AtomicMappedFile, CloseMode, Closed, Error};
    ///
    /// let f = AtomicMappedFile::create(dir.path().join("state.dat"), 4096)?;
    /// let counter = f.slot::<u64>(0)?.into_owned()?;
    /// let other = f.try_clone()?;
    /// assert!(matches!(other.close(CloseMode::Fast), Err(Error::StillOpen { handles: 2, .. })));
    /// drop(counter);
    /// assert!(matches!(f.close(CloseMode::Spatial)?, Closed::Last));
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::StillOpen`] if other handles are open. [`Error::NoSpace`] if holes in the home file
    /// cannot be filled. [`Error::Forked`], [`Error::Poisoned`], [`Error::Io`]. The last four leave
    /// the files as a crash would: nothing is lost, and the next open recovers.
    pub fn close(self, mode: CloseMode) -> Result<Closed> {
        let path = self.engine().path();
        if self.engine().is_forked() {
            // The lock below may be locked for ever, by a thread of the parent process.
            return Err(Error::Forked { path });
        }
        *self.shared.close_mode.lock() = mode;
        let handles = Arc::strong_count(&self.shared).saturating_sub(1);
        if handles > 0
            && mode != CloseMode::Unsynced
            && self.durability() == Durability::AtomicSync
            && !planted!(EarlierCloseNoPoint)
        {
            // The last handle may be dropped instead of closed. A drop makes no durable point.
            self.engine().sync()?;
        }
        match Arc::into_inner(self.shared) {
            // The drop of `last` then finds the engine closed.
            Some(last) => last.engine.close(mode),
            // Another thread may end its handle at the same time, so that it is the last one.
            None => Err(Error::StillOpen { path, handles: handles.max(1) }),
        }
    }
}
