//! The atomics, locks and threads that the crate runs on. The one module that switches between
//! them.
//!
//! Owns: the names under which all shared state of threads is imported. In a normal build they are
//! those of `std`, `parking_lot`, `crossbeam-utils` and `once_cell` and nothing else. Under `--cfg
//! loom` and `--cfg shuttle` they are those of the model checkers, with the interfaces of the
//! normal build. So the schedules of the real code can be explored. (The idea is
//! crossbeam-epoch's.)
//!
//! Everything that a protocol depends on goes through here. Four kinds of state do not:
//! - state of the process and not of one execution of a model: the registry of open files, the
//!   generation of `fork`, the numbers of files, the kind of the fences. No thread waits or is
//!   scheduled while it uses them;
//! - counters of `stats`, which no decision depends on;
//! - predictions of future reads (`pair/hints`), on which only time depends;
//! - words of the mapping, which are not objects of the program. Under shuttle each access to
//!   mapped bytes begins with a [`yield_point`] instead.
//!
//! May import nothing from the crate.

#[cfg(all(test, loom))]
pub mod explore;
#[cfg(any(loom, shuttle))]
mod model;
#[cfg(not(any(loom, shuttle)))]
mod native;
#[cfg(loom)]
pub mod ordered;

#[cfg(any(loom, shuttle))]
pub use model::*;
#[cfg(not(any(loom, shuttle)))]
pub use native::*;

pub use std::sync::atomic::Ordering;

/// Creates `N` values, directly on the heap: they are too many for a stack.
pub fn many<T, const N: usize>(make: impl Fn() -> T) -> Box<[T; N]> {
    let all: Box<[T]> = (0..N).map(|_| make()).collect();
    all.try_into().unwrap_or_else(|_| unreachable!("{N} were made"))
}
