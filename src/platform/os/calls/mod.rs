//! The operating system's face of [`Platform`](crate::platform::Platform).
//!
//! Owns: the retry of interrupted calls, the continuation of short reads and writes, and the
//! fallbacks where a call is not supported.
//!
//! Invariants:
//! - Every attempt at every call passes the gate (`attempt!` of `gate`), so a recorder sees it and
//!   can make it fail, be interrupted or be short; retries and fallbacks lie outside the gate and
//!   are reached too.
//! - An error means that the call did nothing that the caller could use; no call is repeated after
//!   an error other than an interruption.
//!
//! May import: `sys`, `at`, `cache`, `name`, `positioned`, `stat`, `allocate`, the recorder, and
//! the planted bugs.

mod attributes;
mod folder;
mod gate;
mod identity;
mod limit;
mod mapping;
mod open;
mod storage;
#[cfg(all(test, unix, not(miri)))]
mod tests;
mod transfer;

pub use open::OpenHow;

/// Bytes of a huge page.
const HUGE_PAGE: u64 = 2 << 20;
