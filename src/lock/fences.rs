//! The two fences that order a thread's own unlocking and closing before its later loads.
//!
//! Owns: [`fence_own_writes`] for readers, and [`make_exclusive_and_fence`] for lock holders that
//! validate.
//!
//! Invariants: those of the parent.
//!
//! May import: `guard`, `primitive`, `thread_cache` and the planted bugs.

use super::guard::LockGuard;
use crate::mutant::unless;
use crate::primitive::{Ordering, fence};
use crate::thread_cache;

/// Makes what this thread has published visible to all threads before its next read. Called before
/// a read that takes no lock.
///
/// An unlocking store may still be on its way when the next instructions load. Suppose that two
/// threads each write and then read what the other thread writes. Without the fence both could read
/// the old value: each read would come before the other thread's write, and no order of the four
/// operations explains that.
///
/// The flag for unfenced stores belongs to the thread and not to a file, because operations on two
/// files have an order, too.
///
/// Returns `true` if the thread had published something since the last call.
#[inline]
pub fn fence_own_writes() -> bool {
    let has_published = thread_cache::take_published();
    if has_published {
        fence(Ordering::SeqCst);
    }
    has_published
}

/// Closes all words in `held`, before their lock holder validates words that other threads hold. If
/// two threads close their words and then look at each other's, at least one sees the other's bit.
pub fn make_exclusive_and_fence(held: &[LockGuard<'_>]) {
    held.iter().for_each(LockGuard::close);
    // Orders the closing, a plain store, before the loads that validate.
    unless!(NoFenceBeforeReadSet, fence(Ordering::SeqCst));
}
