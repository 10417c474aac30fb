//! The use of the heap: a count around the system's allocator.
//!
//! The measuring program installs [`Counting`]; other programs get zero. Counting is active only
//! during the one measurement that needs it. Its locked instruction waits for all earlier stores,
//! which would distort times.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

static COUNTS: AtomicBool = AtomicBool::new(false);
static TAKEN: AtomicIsize = AtomicIsize::new(0);

/// Returns the bytes that `run` allocated and did not free. Only one call at a time.
pub fn taken_by(run: impl FnOnce()) -> usize {
    TAKEN.store(0, Ordering::SeqCst);
    COUNTS.store(true, Ordering::SeqCst);
    run();
    COUNTS.store(false, Ordering::SeqCst);
    TAKEN.load(Ordering::SeqCst).try_into().unwrap_or(0)
}

fn count(bytes: isize) {
    if COUNTS.load(Ordering::Relaxed) {
        TAKEN.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The system's allocator, with a count.
#[derive(Debug)]
pub struct Counting;

// SAFETY:
// - Every call goes to the system's allocator with its arguments, and the result is returned
//   unchanged. So the allocator's guarantees hold.
// - Counting neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's guarantees are those that `System` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize);
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}
