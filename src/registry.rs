//! Is this file open in this process already? By device and inode, not by name.

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
        OPEN.lock().insert(key).then_some(Registration(key))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        OPEN.lock().remove(&self.0);
    }
}
