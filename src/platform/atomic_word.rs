//! Atomic access to one 8-byte word of the mapping.
//!
//! Owns: the atomic word operations and their byte order (little-endian on media).
//!
//! Invariants: each operation is one aligned 8-byte access, so neither another thread nor a crash
//! sees a part of it. The only references into the mapping are the `&AtomicU64` that live inside
//! these functions for the length of one operation.
//!
//! May import: std only.

use std::sync::atomic::{AtomicU64, Ordering};

/// # Safety
/// `at` is aligned to 8 and in the mapping for 8 bytes.
#[inline(always)]
unsafe fn word<'a>(at: *const u8) -> &'a AtomicU64 {
    debug_assert!(at.addr().is_multiple_of(8));
    // SAFETY:
    // - valid for reads and writes of 8 bytes, and aligned: the caller's contract;
    // - no racing access that is not atomic: the mapping is touched only by these functions, by
    //   assembly (which the compiler cannot reason about) and by the portable copies, which use
    //   aligned 8-byte atomics as well.
    unsafe { AtomicU64::from_ptr(at.cast_mut().cast()) }
}

/// Loads a word (acquire).
///
/// # Safety
/// `at` is aligned to 8 and in the mapping for 8 bytes.
#[inline]
pub unsafe fn load(at: *const u8) -> u64 {
    // SAFETY: the caller's contract is the same.
    u64::from_le(unsafe { word(at) }.load(Ordering::Acquire))
}

/// Stores a word (release).
///
/// # Safety
/// As [`load`].
#[inline]
pub unsafe fn store(at: *mut u8, value: u64) {
    // SAFETY: the caller's contract is the same.
    unsafe { word(at) }.store(value.to_le(), Ordering::Release);
}

/// Stores `new` if the word holds `old`; otherwise returns the word's value as the error.
///
/// # Safety
/// As [`load`].
#[inline]
pub unsafe fn compare_exchange(at: *mut u8, old: u64, new: u64) -> Result<u64, u64> {
    // SAFETY: the caller's contract is the same.
    unsafe { word(at) }
        .compare_exchange(old.to_le(), new.to_le(), Ordering::AcqRel, Ordering::Acquire)
        .map(u64::from_le)
        .map_err(u64::from_le)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_little_endian_and_atomic_operations_return_the_old_value() {
        let mut cell = 0u64;
        let at = (&raw mut cell).cast::<u8>();
        // SAFETY: a live local of 8 bytes, aligned to 8, touched by this thread only.
        unsafe {
            store(at, 0x0102_0304_0506_0708);
            assert_eq!(at.read(), 8);
            assert_eq!(load(at), 0x0102_0304_0506_0708);
            assert_eq!(compare_exchange(at, 1, 2), Err(0x0102_0304_0506_0708));
            assert_eq!(compare_exchange(at, 0x0102_0304_0506_0708, 2), Ok(0x0102_0304_0506_0708));
            assert_eq!(load(at), 2);
        }
    }
}
