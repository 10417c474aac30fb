//! Holds the set of files that this process has open, by device and inode.

// Not from `primitive`: the set belongs to the process, and no thread blocks while it holds the
// lock.
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// A file that one process has open. A child of `fork` has another generation than its parent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    fork_generation: u64,
    device: u64,
    inode: u64,
}

static OPEN: Mutex<BTreeSet<Key>> = Mutex::new(BTreeSet::new());

/// A file's entry in the set. Dropping it removes the entry.
#[derive(Debug)]
pub(crate) struct Registration(Key);

impl Registration {
    /// Registers a file. Returns `None` if it is already registered.
    pub fn new(device: u64, inode: u64) -> Option<Self> {
        let key = Key { fork_generation: crate::platform::fork::generation(), device, inode };
        // Not `then_some`, which would build a registration and drop it. The drop would lock again.
        OPEN.lock().insert(key).then(|| Registration(key))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // In a child of `fork`, a thread of the parent may have locked the set, which then stays
        // locked. The child has no entry to remove.
        if self.0.fork_generation == crate::platform::fork::generation() {
            OPEN.lock().remove(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also checks that a refused registration does not deadlock on the lock of the set.
    #[test]
    fn a_second_registration_is_refused_and_the_first_one_stays() {
        let first = Registration::new(u64::MAX, 1).expect("no other registration");
        assert!(Registration::new(u64::MAX, 1).is_none());
        assert!(Registration::new(u64::MAX, 1).is_none());
        drop(first);
        assert!(Registration::new(u64::MAX, 1).is_some());
    }
}
