//! Huge pages, and pages that are brought into a mapping before they are used. Both are hints.
//!
//! May import: the mapping and the calls of `linux`, libc.

use super::{FileSystem, HUGE_PAGE, Mapping, fallocate, stat_file_system};
use std::fs::File;
use std::sync::atomic::Ordering;

/// Makes the 2 MiB of the file at `offset`, a multiple of 2 MiB, one huge page, where the file lies
/// on tmpfs. This requests the page explicitly, so it works even where the mount and the system
/// give huge pages only on request, or never by themselves. Holes in the range become allocated.
/// Only a hint. Returns `true` if there is such a page.
pub fn take_huge_page(file: &File, mapping: &Mapping, offset: u64) -> bool {
    /// From linux/mman.h, since 6.1. Only some C libraries' libc bindings have it.
    const MADV_COLLAPSE: libc::c_int = 25;
    let ends_at = offset.checked_add(HUGE_PAGE as u64);
    let is_mapped = ends_at.is_some_and(|end| end <= mapping.len() as u64);
    if !is_mapped || mapping.only_small_pages.load(Ordering::Relaxed) || !has_ram_for(file) {
        return false;
    }
    // The kernel makes no huge page of nothing: one small page has to exist.
    let is_taken = fallocate(file, 0, offset, 1).is_ok() && {
        let at = mapping.base().wrapping_add(offset as usize);
        // SAFETY: the range is within the mapping (just compared), and its contents stay as they
        // are.
        unsafe { libc::madvise(at.cast(), HUGE_PAGE, MADV_COLLAPSE) == 0 }
    };
    // An older kernel, or fragmented memory, where each search for a huge page takes long.
    mapping.only_small_pages.store(!is_taken, Ordering::Relaxed);
    is_taken
}

/// Brings the pages of the range into the mapping, as a store to each would. Only a hint: an older
/// kernel brings in each page with the first store.
pub fn bring_in(mapping: &Mapping, offset: u64, len: u64) {
    /// From linux/mman.h, since 5.14. Only some C libraries' libc bindings have it.
    const MADV_POPULATE_WRITE: libc::c_int = 23;
    let is_mapped = offset.checked_add(len).is_some_and(|end| end <= mapping.len() as u64);
    if is_mapped {
        let at = mapping.base().wrapping_add(offset as usize);
        // SAFETY: the range is within the mapping (just compared), and its contents stay as they
        // are.
        let _a_hint = unsafe { libc::madvise(at.cast(), len as usize, MADV_POPULATE_WRITE) };
    }
}

/// Returns `true` if the file lies on tmpfs and a huge page fits there. Where the last small pages
/// are in use, a huge page must not be taken in vain.
#[allow(clippy::unnecessary_cast, reason = "the fields' types differ between architectures")]
fn has_ram_for(file: &File) -> bool {
    let Ok(told) = stat_file_system(file) else { return false };
    let is_unlimited = told.f_blocks == 0;
    let free = (told.f_bavail as u64).saturating_mul(told.f_bsize as u64);
    let is_tmpfs = FileSystem::from_magic(told.f_type as u32) == FileSystem::Ram("tmpfs");
    is_tmpfs && (is_unlimited || free >= HUGE_PAGE as u64)
}
