//! Detection of forks: a process's generation number, and values that a child does not inherit.
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

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

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

/// A value that each process makes for itself, when it first needs it. A thread of the parent may
/// have been changing the parent's at the `fork`, and its locks would stay locked in the child.
pub struct PerProcess<T: 'static> {
    make: fn() -> T,
    /// Null, or the value of this process or of an ancestor.
    newest: AtomicPtr<Made<T>>,
}

struct Made<T> {
    generation: u64,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    /// Describes a value that `make` makes.
    pub const fn new(make: fn() -> T) -> Self {
        PerProcess { make, newest: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the value of this process.
    pub fn get(&'static self) -> &'static T {
        let generation = generation();
        loop {
            // Acquire: the value is found complete.
            let newest = self.newest.load(Ordering::Acquire);
            // SAFETY: null, or a box that was leaked below and that no thread changes.
            match unsafe { newest.as_ref() } {
                Some(made) if made.generation == generation => return &made.value,
                _ => {}
            }
            let own = Box::into_raw(Box::new(Made { generation, value: (self.make)() }));
            let (order, failed) = (Ordering::AcqRel, Ordering::Relaxed);
            if self.newest.compare_exchange(newest, own, order, failed).is_err() {
                // SAFETY: the box of a few lines above. Another thread was first, so no thread has
                // found it.
                drop(unsafe { Box::from_raw(own) });
            }
        }
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
    use crate::platform::exit_code_of;

    #[test]
    fn a_child_has_another_generation() {
        arm();
        arm();
        let before = generation();
        // Counted once, although armed twice.
        let code = exit_code_of(|| if generation() == before + 1 { 7 } else { 8 });
        assert_eq!(code, 7);
        assert_eq!(generation(), before);
    }

    #[test]
    fn a_child_makes_its_own_value() {
        static VALUE: PerProcess<AtomicU64> = PerProcess::new(|| AtomicU64::new(5));
        arm();
        VALUE.get().store(6, Ordering::Relaxed);
        let code = exit_code_of(|| {
            let found = VALUE.get().swap(9, Ordering::Relaxed);
            if found == 5 && VALUE.get().load(Ordering::Relaxed) == 9 { 7 } else { 8 }
        });
        assert_eq!(code, 7);
        assert_eq!(VALUE.get().load(Ordering::Relaxed), 6);
    }
}
