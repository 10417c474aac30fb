//! The one room with `unsafe` code: SQLite's C interface, and three calls of the system.
//!
//! Everything else in the crate is safe. What makes this room sound:
//! - SQLite calls a method of a file with the pointer that `xOpen` has filled, from one thread at a
//!   time, and not after `xClose`. Its own threading modes see to that.
//! - A registered VFS, and what its `pAppData` points to, are never freed.
//! - No panic crosses the boundary: every entry catches it ([`caught`]).
//!
//! May import everything of the crate.

mod abi;
mod api;
mod extension;
pub(crate) mod guard;
pub(crate) mod mapping;
mod methods;
pub(crate) mod pinned;
mod registration;
mod vfs;

#[cfg(feature = "linked")]
pub use registration::{register, register_as_default};

use crate::failure::{self, Failure};
use api::Api;
use std::os::raw::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs an entry from SQLite. A panic becomes the result `otherwise`: the operation of the file
/// that it interrupted is whole or absent, and SQLite rolls back.
fn caught<R>(otherwise: R, entry: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(entry)).unwrap_or(otherwise)
}

/// Returns the code for SQLite, after it has passed the message on.
fn report(api: &Api, failure: Failure) -> c_int {
    if let Some(message) = failure.message {
        failure::keep(&message);
        api.log(failure.code.0, &message);
    }
    failure.code.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_result_code() {
        assert_eq!(caught(10, || panic!("this panic is part of the test")), 10);
        assert_eq!(caught(10, || 0), 0);
    }
}
