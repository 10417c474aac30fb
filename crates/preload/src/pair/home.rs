//! Open files that become complete in place: `ATOMIC_MMAP_HOME`.
//!
//! A file that was changed is deployed at an interval, so that programs without the library find
//! its bytes in the home file.

use super::{Ordering, Pair, State, all};
use crate::errno::Errno;
use crate::inside::Inside;
use atomic_mmap::Error;

/// Completes each file that was changed since the last call.
pub(crate) fn come_home() {
    for pair in all() {
        pair.come_home();
    }
}

impl Pair {
    /// Notes a change that has been made.
    pub(super) fn note_change(&self) {
        // A look comes first, so that threads that write do not take the line from each other.
        if !self.is_changed.load(Ordering::Relaxed) {
            // Release: the thread that finds this finds the change.
            self.is_changed.store(true, Ordering::Release);
        }
    }

    fn come_home(&self) {
        // Acquire: see `note_change`. A change after this is for the next call.
        if !self.is_changed.swap(false, Ordering::Acquire) {
            return;
        }
        let _inside = Inside::enter(); // before the lock: see `close_all`
        if let State::Open { file, is_read_only: false } = &*self.state.read() {
            match file.deploy(0..file.len()) {
                Ok(_) => {}
                // Another thread has made the file shorter.
                Err(Error::PastEnd { .. }) => self.note_change(),
                // No attempt succeeds before the file is closed.
                Err(error @ Error::Poisoned { .. }) => _ = Errno::of(&error),
                Err(error) => {
                    let _logged = Errno::of(&error);
                    self.note_change();
                }
            }
        }
    }
}
