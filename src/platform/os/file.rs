//! An open file, and the lock that this process took through it.
//!
//! Owns: [`File`], a file of the operating system or, for tests, of a simulated machine.
//!
//! Invariant: whatever drops the last handle of a file, an error or a panic included, its lock is
//! free from then on. Closing the descriptor would not do, since a process that another thread is
//! starting may have inherited it, and keeps it open until its `exec`.
//!
//! May import: std, `fork`, and the simulated machine.

use super::fork;
#[cfg(feature = "recorder")]
use crate::platform::machine::FileNumber;
use std::fs::TryLockError;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A handle of an open file. Its clones share the lock, and the last one closes the file.
#[derive(Clone, Debug)]
pub enum File {
    /// A file of the operating system.
    System(Arc<Open>),
    /// A file of a simulated machine, which does not count its open handles.
    #[cfg(feature = "recorder")]
    Simulated(FileNumber),
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> File {
        File::System(Arc::new(Open { file, locked_in: AtomicU64::new(NOT_LOCKED) }))
    }
}

impl File {
    /// Returns the operating system's file.
    ///
    /// # Panics
    /// If the file is one of a simulated machine: a mix-up of platforms, a bug of this crate.
    pub(super) fn system(&self) -> &std::fs::File {
        &self.open().file
    }

    /// Returns the operating system's file with its lock. Panics as [`system`](Self::system).
    pub(super) fn open(&self) -> &Open {
        match self {
            File::System(open) => open,
            #[cfg(feature = "recorder")]
            File::Simulated(_) => panic!("a simulated file was handed to the real machine"),
        }
    }

    /// Returns the number of a simulated machine's file.
    ///
    /// # Panics
    /// If the file is one of the operating system: a mix-up of platforms, a bug of this crate.
    #[cfg(feature = "recorder")]
    pub(super) fn number(&self) -> FileNumber {
        match self {
            File::Simulated(number) => *number,
            File::System(_) => panic!("a real file was handed to a simulated machine"),
        }
    }
}

const NOT_LOCKED: u64 = u64::MAX;

/// A file of the operating system, and whether this process holds its lock.
#[derive(Debug)]
pub struct Open {
    file: std::fs::File,
    /// The generation of the process that locked it, or [`NOT_LOCKED`]. A child of `fork` shares
    /// the lock with its parent, and leaves it alone.
    locked_in: AtomicU64,
}

impl Open {
    /// Takes the exclusive lock. Returns `false` if another open file has one.
    pub(super) fn try_lock(&self) -> io::Result<bool> {
        self.note(self.file.try_lock())
    }

    /// Takes the shared lock. Returns `false` if another open file has the exclusive one.
    pub(super) fn try_lock_shared(&self) -> io::Result<bool> {
        self.note(self.file.try_lock_shared())
    }

    fn note(&self, locked: Result<(), TryLockError>) -> io::Result<bool> {
        match locked {
            Ok(()) => {
                fork::arm();
                self.locked_in.store(fork::generation(), Ordering::Relaxed);
                Ok(true)
            }
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    pub(super) fn unlock(&self) -> io::Result<()> {
        self.locked_in.store(NOT_LOCKED, Ordering::Relaxed);
        self.file.unlock()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if *self.locked_in.get_mut() == fork::generation() {
            // It cannot fail for an open file, and its end follows in any case.
            let _best_effort = self.file.unlock();
        }
    }
}

#[cfg(all(test, unix, not(miri)))]
mod tests {
    use super::*;
    use std::path::Path;

    fn open(path: &Path) -> File {
        let mut how = std::fs::OpenOptions::new();
        File::from(
            how.read(true).write(true).create(true).truncate(false).open(path).expect("open"),
        )
    }

    /// Starts a child that has this process's descriptors. The child runs `act` and then waits.
    fn fork(act: impl FnOnce()) -> libc::pid_t {
        // SAFETY: glibc keeps its heap usable in a child, which needs no other lock: it closes
        // files and calls `pause`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork failed");
        if child == 0 {
            act();
            loop {
                // SAFETY: no precondition.
                unsafe { libc::pause() };
            }
        }
        child
    }

    fn kill(child: libc::pid_t) {
        // SAFETY: our own child, which was not waited for, so that the number is still its own.
        let killed = unsafe { libc::kill(child, libc::SIGKILL) };
        assert_eq!(killed, 0);
        // SAFETY: as above. The status is not wanted.
        let waited = unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        assert_eq!(waited, child);
    }

    /// A panic in a close dropped the files without a call that unlocks them. A process that
    /// another thread was starting had inherited them, so the next opening failed with `Busy`.
    #[test]
    fn the_last_handle_takes_the_lock_with_it_although_a_child_has_the_descriptor() {
        let path = std::env::temp_dir().join(format!("atomic-mmap-lock-{}", std::process::id()));
        for take in [Open::try_lock, Open::try_lock_shared] {
            let (file, other) = (open(&path), open(&path));
            assert!(take(file.open()).expect("lock"));
            let child = fork(|| ());
            let second = file.clone();
            drop(file);
            assert!(!other.open().try_lock().expect("lock"), "a handle is left");
            drop(second);
            assert!(other.open().try_lock().expect("lock"));
            kill(child);
        }
        std::fs::remove_file(&path).expect("remove");
    }

    #[test]
    fn a_child_leaves_the_lock_of_its_parent_alone() {
        let path = std::env::temp_dir().join(format!("atomic-mmap-child-{}", std::process::id()));
        let (file, other) = (open(&path), open(&path));
        assert!(file.open().try_lock().expect("lock"));
        let (mut ends, mut own) = ([0; 2], Some(file));
        // SAFETY: an array of two descriptors.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        let child = fork(|| {
            drop(own.take());
            // SAFETY: a live byte, and the descriptor that the parent made.
            unsafe { libc::write(ends[1], [1_u8].as_ptr().cast(), 1) };
        });
        let mut done = [0_u8];
        // SAFETY: a live byte to read to, and a descriptor of this process.
        assert_eq!(unsafe { libc::read(ends[0], done.as_mut_ptr().cast(), 1) }, 1);
        assert!(!other.open().try_lock().expect("lock"), "the parent has it");
        kill(child);
        drop(own);
        assert!(other.open().try_lock().expect("lock"));
        drop(other);
        std::fs::remove_file(&path).expect("remove");
    }
}
