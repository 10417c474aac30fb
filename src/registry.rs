//! Holds the set of files that this process has open, by device and inode.

// Not from `primitive`: the set belongs to the process, and no thread blocks while it holds the
// lock.
use crate::platform::FileStat;
use crate::platform::fork::{self, PerProcess};
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};

/// A file that this process has open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    device: u64,
    inode: u64,
}

/// The most messages that wait for an opening. A program may open no file a second time.
const MOST_MESSAGES: usize = 256;

/// The message of a drop that could not close a file.
#[derive(Debug)]
struct NotClosed {
    of: Key,
    born: Option<(i64, u32)>,
    cause: String,
}

/// The state of this process.
#[derive(Default)]
struct Registry {
    open: Mutex<BTreeSet<Key>>,
    /// The messages for the next opening of each file, the oldest first. Locked while `open` is
    /// not.
    not_closed: Mutex<VecDeque<NotClosed>>,
}

static REGISTRY: PerProcess<Registry> = PerProcess::new(Registry::default);

/// A file's entry in the set. Dropping it removes the entry.
#[derive(Debug)]
pub(crate) struct Registration {
    key: Key,
    /// The generation of the process that has the entry.
    of_process: u64,
    /// The birth of the file, which tells it apart from an earlier file with its number.
    born: Option<(i64, u32)>,
}

impl Registration {
    /// Registers a file. Returns `None` if it is already registered.
    pub fn new(stat: &FileStat) -> Option<Self> {
        let FileStat { dev: device, ino: inode, btime: born, .. } = *stat;
        let (key, of_process) = (Key { device, inode }, fork::generation());
        // Not `then_some`, which would build a registration and drop it. The drop would lock again.
        let is_new = REGISTRY.get().open.lock().insert(key);
        is_new.then(|| Registration { key, of_process, born })
    }

    /// Keeps the message of a drop that could not close this file.
    pub fn note_not_closed(&self, cause: String) {
        let mut messages = REGISTRY.get().not_closed.lock();
        messages.retain(|one| one.of != self.key);
        if messages.len() >= MOST_MESSAGES {
            messages.pop_front();
        }
        messages.push_back(NotClosed { of: self.key, born: self.born, cause });
    }

    /// Returns the message of the last drop in this process that could not close this file, once.
    pub fn take_not_closed(&self) -> Option<String> {
        let mut messages = REGISTRY.get().not_closed.lock();
        let at = messages.iter().position(|one| one.of == self.key)?;
        // The file of another birth is gone.
        messages.remove(at).filter(|one| one.born == self.born).map(|one| one.cause)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // A child of `fork` has no entry to remove.
        if self.of_process == fork::generation() {
            REGISTRY.get().open.lock().remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also checks that a refused registration does not deadlock on the lock of the set.
    #[test]
    fn a_second_registration_is_refused_and_the_first_one_stays() {
        let first = Registration::new(&stat(1, None)).expect("no other registration");
        assert!(Registration::new(&stat(1, None)).is_none());
        assert!(Registration::new(&stat(1, Some((3, 4)))).is_none());
        drop(first);
        assert!(Registration::new(&stat(1, None)).is_some());
    }

    #[test]
    fn a_message_is_told_once_and_not_to_a_later_file_with_the_same_number() {
        let open = |inode, born| Registration::new(&stat(inode, born)).expect("it is closed");
        let told = |inode, born| open(inode, born).take_not_closed();
        let (old, new) = (Some((3, 4)), Some((3, 5)));
        open(2, old).note_not_closed("first".into());
        open(2, old).note_not_closed("second".into());
        assert_eq!(told(2, old).as_deref(), Some("second"));
        assert_eq!(told(2, old), None);
        open(2, old).note_not_closed("of the old file".into());
        assert_eq!(told(2, new), None);
        assert_eq!(told(2, old), None, "that file is gone");
        let more = 10..10 + MOST_MESSAGES as u64 + 1;
        more.clone().for_each(|inode| open(inode, None).note_not_closed("one of many".into()));
        assert_eq!(told(10, None), None, "there are too many");
        assert!(told(more.end - 1, None).is_some());
        assert!(REGISTRY.get().not_closed.lock().len() < MOST_MESSAGES);
    }

    #[cfg(all(unix, not(miri)))]
    #[test]
    fn a_child_of_fork_opens_files_while_a_thread_of_its_parent_has_the_locks() {
        fork::arm();
        let open = || Registration::new(&stat(3, None));
        let mut of_parent = Some(open().expect("no other registration"));
        let registry = REGISTRY.get();
        let held = (registry.open.lock(), registry.not_closed.lock());
        let code = crate::platform::exit_code_of(|| {
            let own = open().expect("the child has not opened the file");
            drop(of_parent.take());
            own.note_not_closed("of the child".into());
            let is_told = own.take_not_closed().is_some();
            if is_told && open().is_none() { 7 } else { 8 }
        });
        assert_eq!(code, 7);
        drop(held);
        assert!(open().is_none(), "the parent's registration stays");
    }

    fn stat(ino: u64, btime: Option<(i64, u32)>) -> FileStat {
        FileStat {
            dev: u64::MAX,
            ino,
            len: 0,
            mtime: (0, 0),
            ctime: (0, 0),
            btime,
            is_regular: true,
            is_link: false,
            links: 1,
            uid: 0,
            gid: 0,
            mode: 0,
            blocks: 0,
        }
    }
}
