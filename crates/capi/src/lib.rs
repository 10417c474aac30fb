//! The C interface of [`atomic_mmap`]: a thin layer over the crate's public interface.
//!
//! `include/atomic_mmap.h` is the interface. It is generated from the comments of this crate, and
//! `tests/interface.rs` checks that it is current. `README.md` says how to build and link it.
//!
//! | file | contents |
//! |---|---|
//! | `code` | the numbers of errors |
//! | `boundary` | the way of each call across the boundary: panics, errors, handles |
//! | `memory` | the memory that a caller names: paths, buffers, results |
//! | `options` | `ato_options` |
//! | `file` | calls on an open file |
//! | `transaction` | calls on a transaction |
//! | `stage` | calls on a stage |
//! | `mapping` | `ato_mmap`, `ato_memcpy`, `ato_munmap` |
//! | `snapshot` | `ato_snapshot` and its kin |
//! | `integrity` | `ato_verify` |
//! | `stream` | `ato_export` and `ato_import` |
//! | `stats` | `ato_stats` |
//!
//! Invariants:
//! 1. No panic crosses the boundary. A panic in a call on a file ends the use of that file.
//! 2. A failed call says why, for its thread, in `ato_last_error`.
//! 3. A number that a program may have compiled in never changes its meaning.

#![allow(non_camel_case_types, reason = "the names are those of the C interface")]

pub mod boundary;
pub mod code;
pub mod file;
pub mod integrity;
pub mod mapping;
mod memory;
pub mod options;
pub mod snapshot;
pub mod stage;
pub mod stats;
pub mod stream;
pub mod transaction;

use std::ffi::{c_char, c_int};

/// The version of this interface: a thousand times the minor number, and the patch number.
pub const ATO_VERSION_NUMBER: c_int = 1000;

/// Returns [`ATO_VERSION_NUMBER`] of the library that is linked.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ato_version_number() -> c_int {
    ATO_VERSION_NUMBER
}

/// Returns the version of the library that is linked, as text. Never NULL, valid for ever.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ato_version() -> *const c_char {
    const VERSION: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
        concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes(),
    ) {
        Ok(version) => version,
        Err(_) => panic!("a version has no zero byte"),
    };
    VERSION.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_the_version_is_that_of_the_package() {
        let part = |text: &str| text.parse::<c_int>().expect("a number");
        let number = part(env!("CARGO_PKG_VERSION_MAJOR")) * 1_000_000
            + part(env!("CARGO_PKG_VERSION_MINOR")) * 1000
            + part(env!("CARGO_PKG_VERSION_PATCH"));
        assert_eq!(ATO_VERSION_NUMBER, number);
    }
}
