//! Copies between the caller's bytes and the slots, and prefetches.
//!
//! May import `plan`, `pair`, and what lies below them.

pub mod gather;
pub mod partial;
pub mod prefetch;
pub mod scatter;
