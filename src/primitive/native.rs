//! The primitives of a normal build: re-exports, and nothing that costs anything.

pub use crossbeam_utils::Backoff;
pub use once_cell::race::OnceBox;
pub use parking_lot::{Condvar, Mutex, RwLock};
pub use std::sync::OnceLock;
pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};
pub use std::thread::sleep;

use std::sync::atomic::Ordering;

/// As [`std::thread_local`], for values that are made by a constant expression.
macro_rules! local {
    (static $name:ident: $type:ty = $init:expr;) => {
        std::thread_local! { static $name: $type = const { $init }; }
    };
}
pub(crate) use local;

/// A place where a model's scheduler may go on with another thread. There is none.
#[inline(always)]
pub fn yield_point() {}

/// A number for each thread, in the order of their first calls. None: the thread is ending.
pub fn thread_number() -> Option<u64> {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    std::thread_local! {
        static NUMBER: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.try_with(|number| *number).ok()
}
