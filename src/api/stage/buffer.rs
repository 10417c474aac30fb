//! The memory that bytes go through on their way from a reader into slots.
//!
//! The system's copy into memory that is not in the cache takes longer than a copy into memory that
//! is, and a streamed copy from there (`docs/decisions/staging.md`). So each thread keeps one
//! buffer, which stays in its cache.
//!
//! May import nothing from the crate.

use std::cell::Cell;

/// Bytes of a buffer: a quarter of the smallest second-level cache that we know.
const LEN: usize = 64 << 10;

std::thread_local! {
    static KEPT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The buffer of a thread.
pub(super) struct Buffer;

impl Buffer {
    /// Calls `work` with the thread's buffer. A call inside `work` gets another one.
    pub fn lend<R>(work: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut buffer = KEPT.try_with(Cell::take).unwrap_or_default();
        buffer.resize(LEN, 0);
        let result = work(&mut buffer);
        // A thread that is ending keeps none.
        let _dropped_otherwise = KEPT.try_with(|kept| kept.set(buffer));
        result
    }
}
