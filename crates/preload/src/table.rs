//! The meaning of each descriptor of the process.
//!
//! Invariants:
//! - A descriptor that is neither chosen nor the library's own has the byte 0. So it costs one
//!   load.
//! - The kernel closes chosen descriptors at an exec. `KEPT` is what the program has asked for.
//!
//! May import: `description`.

use crate::description::Description;
use arc_swap::ArcSwapOption;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Descriptors from here on are never chosen.
pub(crate) const LIMIT: usize = 1 << 16;

/// A chosen file.
const CHOSEN: u8 = 1;
/// A descriptor of the library, which the program may not close or replace.
const PRIVATE: u8 = 2;
/// A chosen file that stays open at an exec.
const KEPT: u8 = 4;

static KINDS: [AtomicU8; LIMIT] = [const { AtomicU8::new(0) }; LIMIT];
static SLOTS: [ArcSwapOption<Description>; LIMIT] = [const { ArcSwapOption::const_empty() }; LIMIT];

#[inline]
fn kind(fd: c_int) -> u8 {
    // Acquire: a thread that finds a descriptor chosen finds its description.
    usize::try_from(fd)
        .ok()
        .and_then(|n| KINDS.get(n))
        .map_or(0, |kind| kind.load(Ordering::Acquire))
}

/// Returns `true` if the descriptor is a chosen file.
#[inline]
pub(crate) fn is_chosen(fd: c_int) -> bool {
    kind(fd) & CHOSEN != 0
}

/// Returns `true` if the descriptor is the library's own.
#[inline]
pub(crate) fn is_private(fd: c_int) -> bool {
    kind(fd) & PRIVATE != 0
}

/// Returns the description of a chosen descriptor.
#[inline]
pub(crate) fn get(fd: c_int) -> Option<arc_swap::Guard<Option<Arc<Description>>>> {
    if !is_chosen(fd) {
        return None;
    }
    let guard = SLOTS[fd as usize].load();
    guard.is_some().then_some(guard)
}

/// Returns a share of the description of a chosen descriptor.
pub(crate) fn share(fd: c_int) -> Option<Arc<Description>> {
    is_chosen(fd).then(|| SLOTS[fd as usize].load_full()).flatten()
}

/// Enters a chosen descriptor. Returns the one that was there.
pub(crate) fn put(fd: c_int, of: Arc<Description>, is_kept: bool) -> Option<Arc<Description>> {
    let before = SLOTS[fd as usize].swap(Some(of));
    KINDS[fd as usize].store(CHOSEN | if is_kept { KEPT } else { 0 }, Ordering::Release);
    before
}

/// Takes a chosen descriptor out.
pub(crate) fn take(fd: c_int) -> Option<Arc<Description>> {
    if !is_chosen(fd) {
        return None;
    }
    KINDS[fd as usize].store(0, Ordering::Release);
    SLOTS[fd as usize].swap(None)
}

/// Returns `true` if the program wants a chosen descriptor to stay open at an exec.
pub(crate) fn is_kept(fd: c_int) -> bool {
    kind(fd) & KEPT != 0
}

/// Notes what the program wants at an exec.
pub(crate) fn keep(fd: c_int, is_kept: bool) {
    if is_chosen(fd) {
        KINDS[fd as usize].store(CHOSEN | if is_kept { KEPT } else { 0 }, Ordering::Release);
    }
}

/// Notes whether a descriptor is the library's own.
pub(crate) fn set_private(fd: c_int, is_private: bool) {
    if let Some(kind) = usize::try_from(fd).ok().and_then(|n| KINDS.get(n)) {
        kind.store(if is_private { PRIVATE } else { 0 }, Ordering::Release);
    }
}

/// Returns the first chosen or private descriptor from `fd` on.
pub(crate) fn next(fd: c_int) -> Option<c_int> {
    let from = usize::try_from(fd).unwrap_or(0);
    (from..LIMIT).find(|&n| KINDS[n].load(Ordering::Acquire) != 0).map(|n| n as c_int)
}
