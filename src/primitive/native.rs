//! The primitives of a normal build: re-exports without any cost.

pub use crossbeam_utils::Backoff;
pub use once_cell::race::OnceBox;
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
pub use std::sync::OnceLock;
pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};
pub use std::thread::sleep;

use std::sync::atomic::Ordering;

/// Declares a thread local as [`std::thread_local`], for values of constant expressions.
macro_rules! local {
    (static $name:ident: $type:ty = $init:expr;) => {
        std::thread_local! { static $name: $type = const { $init }; }
    };
}
pub(crate) use local;

/// Marks a point at which a model's scheduler may switch threads. Does nothing here.
#[inline(always)]
pub fn yield_point() {}

/// Returns the thread's number, in the order of their first calls, or `None` if the thread is
/// ending.
pub fn thread_number() -> Option<u64> {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    std::thread_local! {
        static NUMBER: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.try_with(|number| *number).ok()
}
