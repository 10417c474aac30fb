//! The verification of pages by their sums.
//!
//! Invariant: a field of `ato_verification` is only ever added at the end.

use crate::boundary::{Failure, ato_file};
use crate::file::{on, range};
use crate::memory;
use atomic_mmap::Verification;
use std::ffi::c_int;

/// The result of `ato_verify`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ato_verification {
    /// Number of pages that were verified. Pages that were never written do not count. 0 if the
    /// file has no sums.
    pub pages: u64,
    /// Number of damaged pages among them.
    pub damaged: u64,
    /// Offset of the first damaged page in the file, in bytes. 0 if there is none.
    pub first_offset: u64,
    /// Length of the first damaged page in bytes: 4096, or less at the end of the file. 0 if there
    /// is none.
    pub first_len: u64,
}

impl From<Verification> for ato_verification {
    fn from(found: Verification) -> Self {
        let first = found.damaged.first().cloned().unwrap_or_default();
        ato_verification {
            pages: found.pages,
            damaged: found.damaged.len() as u64,
            first_offset: first.start,
            first_len: first.end - first.start,
        }
    }
}

/// Verifies the pages of a range, in bytes, by their sums, and stores what was found. Other threads
/// go on reading and writing. Damage is no error of this call. The next damaged page is found by a
/// call with the range behind the first one.
///
/// Only a file with page sums (`integrity` in `ato_options`) has something to verify.
///
/// `size` is `sizeof(ato_verification)`: a program of an earlier version gets the fields that it
/// knows. Fields that this version does not know become zero.
///
/// Returns `-ERANGE` if the bytes do not all lie within the file.
///
/// # Safety
/// `file` is an open handle. `report` names `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_verify(
    file: *const ato_file,
    offset: u64,
    len: u64,
    report: *mut ato_verification,
    size: usize,
) -> c_int {
    // SAFETY: the caller names the handle and the place.
    unsafe {
        on(file, |file| {
            if report.is_null() {
                return Err(Failure::argument("there is no place for the report"));
            }
            let found = file.verify(range(offset, len)?)?;
            memory::put_sized(report, size, &ato_verification::from(found));
            Ok(())
        })
    }
}
