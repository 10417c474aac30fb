//! The other machines, which only tests run on, and the names of calls that tests use.
//!
//! Owns: the recorder, the interface of a simulated machine, and the names of the calls to the
//! operating system.
//!
//! Invariant: without the feature `recorder` only the names are built.
//!
//! May import: the vocabulary and the real machine of `platform`.

pub mod call;
#[cfg(feature = "recorder")]
#[doc(hidden)]
pub mod recorder;
#[cfg(feature = "recorder")]
#[doc(hidden)]
pub mod simulated;
