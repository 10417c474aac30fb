//! How much of the heap does something take? A count around the system's allocator.
//!
//! The program that measures installs [`Counting`]; who does not gets zero. Counting is off but for the one
//! measurement that asks: a locked instruction waits for all stores before it, and would be seen in times.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

static COUNTS: AtomicBool = AtomicBool::new(false);
static TAKEN: AtomicIsize = AtomicIsize::new(0);

/// Bytes that were asked for and not given back while `run` ran. One at a time.
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

/// The system's allocator, and a count.
#[derive(Debug)]
pub struct Counting;

// SAFETY:
// - every call goes to the system's allocator with the arguments that came, and its answer goes back: what
//   it guarantees holds;
// - counting neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are those that `System` asks for.
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
