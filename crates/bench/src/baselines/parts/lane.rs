//! Which lane is this thread's? Threads are dealt round; two may have the same, so a lane has a lock.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of lanes of everything that has lanes.
pub const LANES: usize = 16;

/// What is on cache lines of its own.
#[repr(align(128))]
#[derive(Debug, Default)]
pub struct Padded<T>(pub T);

/// This thread's lane.
#[inline]
pub fn mine() -> usize {
    thread_local! {
        static MINE: usize = {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            NEXT.fetch_add(1, Ordering::Relaxed) % LANES
        };
    }
    MINE.with(|mine| *mine)
}
