//! Detection of forks: a process's generation number.
//!
//! Owns: the generation number of the process, which every `fork` increments in the child. A handle
//! that remembers another number was inherited, and must not be used: parent and child would share
//! the file but not the locks in memory.
//!
//! Invariants: the number changes only in a child, before `fork` returns there, and only once
//! [`arm`] has been called in an ancestor or in the process itself. A child that is made without
//! libc, by a raw `clone`, is not detected.
//!
//! May import: libc, std and `thread_cache`.

use std::sync::atomic::{AtomicU64, Ordering};

static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Returns the generation of this process.
#[inline]
pub fn generation() -> u64 {
    // Relaxed: the child is single-threaded when it counts, and threads that it starts later see
    // it.
    GENERATION.load(Ordering::Relaxed)
}

/// Makes forks count from now on. Registers the handler once, whatever the number of calls.
pub fn arm() {
    #[cfg(unix)]
    {
        static ARMED: std::sync::Once = std::sync::Once::new();
        ARMED.call_once(|| {
            // SAFETY:
            // - the handler is a plain function that lives as long as the process. If the library
            //   is unloaded, libc drops the handlers of the library that registered them;
            // - it only adds to an atomic and stores to a constant-initialized local of the thread,
            //   which is async-signal-safe, as a child of a process with threads demands.
            let refused = unsafe { libc::pthread_atfork(None, None, Some(count)) };
            // It fails only without memory for a list node, and then the promise cannot be kept.
            assert_eq!(refused, 0, "pthread_atfork: out of memory");
        });
    }
}

#[cfg(unix)]
extern "C" fn count() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    // The child's only thread. Its cached state replaces a check of the generation.
    crate::thread_cache::forget();
}

#[cfg(all(test, unix, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_another_generation() {
        arm();
        arm();
        let before = generation();
        // SAFETY: the child only reads an atomic and calls `_exit`, both async-signal-safe.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork failed");
        if child == 0 {
            // Counted once, although armed twice.
            let code = if generation() == before + 1 { 7 } else { 8 };
            // SAFETY: no precondition; none of the parent's cleanup is run.
            unsafe { libc::_exit(code) }
        }
        let mut status = 0;
        // SAFETY: our own child, and a live local for its status.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(waited, child);
        assert!(libc::WIFEXITED(status));
        assert_eq!(libc::WEXITSTATUS(status), 7);
        assert_eq!(generation(), before);
    }
}
