//! Is this file open in this process already? By device and inode, not by name.

// Not `primitive`'s: the set is the process's, and nobody waits while holding it.
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// A file of a process: a child of `fork` has none of its parent's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    fork_generation: u64,
    device: u64,
    inode: u64,
}

static OPEN: Mutex<BTreeSet<Key>> = Mutex::new(BTreeSet::new());

/// The file is registered while this lives.
#[derive(Debug)]
pub(crate) struct Registration(Key);

impl Registration {
    /// Registers a file, or finds that it is open.
    pub fn new(device: u64, inode: u64) -> Option<Self> {
        let key = Key { fork_generation: crate::platform::fork::generation(), device, inode };
        // Not `then_some`: a registration that is made and dropped would lock again.
        OPEN.lock().insert(key).then(|| Registration(key))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // In a child of `fork` another thread of the parent may have held the lock for ever, and
        // the parent's files are not registered there.
        if self.0.fork_generation == crate::platform::fork::generation() {
            OPEN.lock().remove(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first version dropped the second registration while it held the lock of the set, and
    /// hung.
    #[test]
    fn a_second_registration_is_refused_and_the_first_one_stays() {
        let first = Registration::new(u64::MAX, 1).expect("nobody else");
        assert!(Registration::new(u64::MAX, 1).is_none());
        assert!(Registration::new(u64::MAX, 1).is_none());
        drop(first);
        assert!(Registration::new(u64::MAX, 1).is_some());
    }
}
