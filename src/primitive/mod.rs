//! Which atomics, locks and threads does the crate run on? The one module that switches.
//!
//! Owns: the names under which everything that threads share is imported. In a normal build they are
//! those of `std`, `parking_lot`, `crossbeam-utils` and `once_cell` and nothing else. Under `--cfg loom` and
//! `--cfg shuttle` they are those of the model checkers, in the same shape, so that the schedules of
//! the real code can be explored. (The idea is crossbeam-epoch's.)
//!
//! What goes through here is what a protocol depends on. Four things do not:
//! - what belongs to the process and not to one execution of a model: the registry of open files, the
//!   generation of `fork`, the numbers of files, the kind of the fences. Nobody waits or is scheduled
//!   while it is used;
//! - counters of `stats`, which no decision depends on;
//! - guesses about what will be read (`engine/recent`, `engine/together`), on which nothing but time depends;
//! - words of the mapping, which are not objects of the program. Under shuttle each access to mapped
//!   bytes begins with a [`yield_point`] instead.
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

/// `N` of them, made where they stay: too many for a stack.
pub fn many<T, const N: usize>(make: impl Fn() -> T) -> Box<[T; N]> {
    let all: Box<[T]> = (0..N).map(|_| make()).collect();
    all.try_into().unwrap_or_else(|_| unreachable!("{N} were made"))
}
