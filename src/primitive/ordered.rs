//! loom's atomics, with orders that loom lacks, and with orders left out on purpose.
//!
//! - loom treats a sequentially consistent access as one that acquires and releases. Here a fence
//!   before and after the access gives back the missing order. This orders slightly more than the
//!   language does: bugs that depend on the difference are not found.
//! - loom keeps one last access to each word, to find out which orders it has to try. If a thread
//!   loads a word and then stores to it, this hides an earlier load by another thread: the store is
//!   never tried before that load. So each load here begins with a store to a second word, which no
//!   thread reads. That makes loads of one word depend on each other, and orders nothing.
//! - [`weakened`] runs a model with some kind of order missing everywhere. A model that passes then
//!   does not depend on that order, or does not check it. Each model is run like this, to know that
//!   it can fail.

use ::loom::sync::atomic as loom_atomic;
use std::cell::Cell;
use std::sync::atomic::Ordering;

/// A kind of order that is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// No order is missing.
    Nothing,
    /// Stores and read-modify-writes that should release do not.
    Release,
    /// Loads and read-modify-writes that should acquire do not.
    Acquire,
    /// Fences that should release do nothing.
    ReleaseFence,
    /// Fences that should acquire do nothing.
    AcquireFence,
    /// Sequentially consistent accesses and fences acquire and release only.
    SeqCst,
}

std::thread_local! {
    // loom runs all threads of a model on the thread that started it.
    static MISSING: Cell<Missing> = const { Cell::new(Missing::Nothing) };
}

#[cfg_attr(not(test), allow(dead_code, reason = "for models"))]
/// Runs `model` with orders of one kind missing.
pub fn weakened<R>(missing: Missing, model: impl FnOnce() -> R) -> R {
    struct Restore(Missing);
    impl Drop for Restore {
        fn drop(&mut self) {
            MISSING.set(self.0);
        }
    }
    let _restore = Restore(MISSING.replace(missing));
    model()
}

fn lacks(missing: Missing) -> bool {
    MISSING.get() == missing
}

/// Returns the order that remains without what is missing.
fn order(order: Ordering) -> Ordering {
    match order {
        Ordering::Release if lacks(Missing::Release) => Ordering::Relaxed,
        Ordering::AcqRel if lacks(Missing::Release) => Ordering::Acquire,
        Ordering::Acquire if lacks(Missing::Acquire) => Ordering::Relaxed,
        Ordering::AcqRel if lacks(Missing::Acquire) => Ordering::Release,
        other => other,
    }
}

/// Executes a fence as [`std::sync::atomic::fence`].
pub fn fence(order: Ordering) {
    match order {
        Ordering::Release if lacks(Missing::ReleaseFence) => {}
        Ordering::Acquire if lacks(Missing::AcquireFence) => {}
        Ordering::SeqCst if lacks(Missing::SeqCst) => loom_atomic::fence(Ordering::AcqRel),
        other => loom_atomic::fence(other),
    }
}

/// Runs an access between the fences that make up for what loom leaves out of its order.
fn with_fences<R>(order: Ordering, access: impl FnOnce() -> R) -> R {
    let fenced = order == Ordering::SeqCst && !lacks(Missing::SeqCst);
    if fenced {
        loom_atomic::fence(Ordering::SeqCst);
    }
    let result = access();
    if fenced {
        loom_atomic::fence(Ordering::SeqCst);
    }
    result
}

macro_rules! atomic {
    ($name:ident, $value:ty, $($fetch:ident)*) => {
        /// An atomic as its namesake in [`std::sync::atomic`].
        #[derive(Debug)]
        pub struct $name {
            word: loom_atomic::$name,
            looks: loom_atomic::AtomicBool,
        }

        #[allow(dead_code, reason = "each has what any of them needs")]
        impl $name {
            pub fn new(value: $value) -> Self {
                $name {
                    word: loom_atomic::$name::new(value),
                    looks: loom_atomic::AtomicBool::new(false),
                }
            }

            pub fn load(&self, by: Ordering) -> $value {
                self.looks.store(true, Ordering::Relaxed);
                with_fences(by, || self.word.load(order(by)))
            }

            pub fn store(&self, value: $value, by: Ordering) {
                with_fences(by, || self.word.store(value, order(by)));
            }

            pub fn swap(&self, value: $value, by: Ordering) -> $value {
                with_fences(by, || self.word.swap(value, order(by)))
            }

            pub fn compare_exchange(
                &self,
                old: $value,
                new: $value,
                by: Ordering,
                failing: Ordering,
            ) -> Result<$value, $value> {
                with_fences(by, || self.word.compare_exchange(old, new, order(by), order(failing)))
            }

            $(pub fn $fetch(&self, value: $value, by: Ordering) -> $value {
                with_fences(by, || self.word.$fetch(value, order(by)))
            })*
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(<$value>::default())
            }
        }
    };
}

atomic!(AtomicU8, u8, fetch_or fetch_and);
atomic!(AtomicU32, u32, fetch_add fetch_sub);
atomic!(AtomicU64, u64, fetch_add fetch_sub fetch_or fetch_and fetch_xor fetch_max);
atomic!(AtomicBool, bool, fetch_or fetch_and);
