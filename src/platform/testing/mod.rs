//! The other machines, which only tests run on, and the names of calls that tests use.
//!
//! Owns: the recorder, the interface of a simulated machine, the names of the calls to the
//! operating system, and children of `fork` for unit tests.
//!
//! Invariant: without the feature `recorder` only the names are built.
//!
//! May import: the vocabulary and the real machine of `platform`.

pub mod call;
#[cfg(all(test, unix, not(miri)))]
mod child;
#[cfg(feature = "recorder")]
#[doc(hidden)]
pub mod recorder;
#[cfg(feature = "recorder")]
#[doc(hidden)]
pub mod simulated;

#[cfg(all(test, unix, not(miri)))]
pub use child::exit_code_of;
