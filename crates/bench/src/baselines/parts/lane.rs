//! The lanes of threads. Each thread gets the next lane. Two threads may share one, so a lane has a
//! lock.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of lanes of every protocol.
pub const LANES: usize = 16;

/// A value on its own cache lines.
#[repr(align(128))]
#[derive(Debug, Default)]
pub struct Padded<T>(pub T);

/// Returns this thread's lane.
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
