//! Page and region locks with versions: a sequence lock in one word, in two granularities.
//!
//! Owns: the lock word and the two granularities (MGSP III-C2). Invariants:
//! - a page's writer holds either the lock of the page or that of its region, never both;
//! - a thread takes its locks in ascending order of place in the file, so no cycle of waiting
//!   exists;
//! - the version only grows, and grows at least whenever something that a reader could see has
//!   changed;
//! - while a word is *closed* (locked exclusively), readers wait. A writer closes a word to publish
//!   and to store in place, so that most commits wait for their drains without keeping readers
//!   waiting. Three kinds of writers close their words for longer: transactions that have read
//!   more than they write, redo records, and direct stores;
//! - a thread that calls [`fence_own_writes`] before it reads has made everything that it published
//!   visible to all threads before that read.
//!
//! May import `primitive`, `thread_cache` and `mutant`.
//!
//! Why words and not `parking_lot::RwLock`: a shared lock writes a shared cache line for every
//! small read, which takes 20 ns, where a version check takes less than 1 ns. And an unlock by an
//! atomic read-modify-write waits on x86 for all outstanding stores. After a logged flip that wait
//! would be a second drain. Unlocking here is one plain store. The wait for that store is left to
//! the thread's next read, since a next write does not need it.

mod acquire;
mod backoff;
mod fences;
mod guard;
#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(loom), not(shuttle)))]
mod tests;
mod word;

pub use acquire::{
    lock_page, lock_pages, lock_region, try_lock_page_exclusive, try_lock_page_stable,
};
pub use backoff::Backoff;
pub use fences::{fence_own_writes, make_exclusive_and_fence};
pub use guard::{ExclusiveGuard, LockGuard, LockGuards};
pub use word::{LockWord, Stamp, Version};
