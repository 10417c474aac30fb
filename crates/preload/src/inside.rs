//! The guard against the library's own calls.
//!
//! The library exports `open`, so the calls of this crate, of atomic-mmap and of the standard
//! library within it arrive here again. A thread that is inside gets libc's calls.
//!
//! May import nothing from the crate.

use std::cell::Cell;

thread_local! {
    // Without a destructor and without an allocation: the first call of a thread may come from
    // `malloc`.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Returns `true` if this thread is inside the library.
pub(crate) fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// The thread is inside while this lives.
pub(crate) struct Inside(());

impl Inside {
    pub fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Inside(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}
