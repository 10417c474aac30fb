//! The meaning of each descriptor of the process.
//!
//! Invariants:
//! - A descriptor that is neither chosen nor the library's own has the byte 0. So it costs one
//!   load.
//! - The kernel closes chosen descriptors at an exec, except those for which a start is counted.
//!   `KEPT` is what the program has asked for.
//! - The byte of a chosen descriptor is not 0 while the kernel's descriptor is that of the home
//!   file. While the kernel closes it, the byte is `CLOSING`.
//!
//! May import: `description`.

use crate::description::Description;
use arc_swap::ArcSwapOption;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicUsize, Ordering};

/// Descriptors from here on are never chosen.
pub(crate) const LIMIT: usize = 1 << 16;

/// A chosen file.
const CHOSEN: u8 = 1;
/// A descriptor of the library, which the program may not close or replace.
const PRIVATE: u8 = 2;
/// A chosen file that stays open at an exec.
const KEPT: u8 = 4;
/// A chosen file that the kernel is closing. Another thread may have got the number again.
const CLOSING: u8 = 8;

/// One byte a descriptor.
static KINDS: [AtomicU8; LIMIT] = [const { AtomicU8::new(0) }; LIMIT];
/// The descriptions of the chosen descriptors.
static SLOTS: [ArcSwapOption<Description>; LIMIT] = [const { ArcSwapOption::const_empty() }; LIMIT];
/// How many threads are starting a program that gets a number. Relaxed: a thread changes the
/// kernel's flag with the lock of a description, and has its own start counted before.
static STARTS: [AtomicU16; LIMIT] = [const { AtomicU16::new(0) }; LIMIT];
/// Their sum: a child of `fork` seldom has to look for any. Relaxed, as `STARTS`.
static ALL_STARTS: AtomicUsize = AtomicUsize::new(0);

/// A description that a call uses.
pub(crate) type Guard = arc_swap::Guard<Option<Arc<Description>>>;

/// The entry that a call finds.
pub(crate) enum Found {
    /// Not chosen.
    Libcs,
    /// A chosen file, with its description.
    Chosen(Guard),
    /// A thread is closing a chosen file. Another thread may have got the number already.
    Closing,
}

#[inline]
fn kind(fd: c_int) -> u8 {
    // Acquire: a thread that finds a descriptor chosen finds its description.
    usize::try_from(fd)
        .ok()
        .and_then(|n| KINDS.get(n))
        .map_or(0, |kind| kind.load(Ordering::Acquire))
}

/// Returns what a descriptor is.
#[inline]
pub(crate) fn find(fd: c_int) -> Found {
    let kind = kind(fd);
    if kind & (CHOSEN | CLOSING) == 0 {
        return Found::Libcs;
    }
    let guard = SLOTS[fd as usize].load();
    if kind & CHOSEN != 0 && guard.is_some() { Found::Chosen(guard) } else { Found::Closing }
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

/// Returns a share of the description of a chosen descriptor.
pub(crate) fn share(fd: c_int) -> Option<Arc<Description>> {
    is_chosen(fd).then(|| SLOTS[fd as usize].load_full()).flatten()
}

/// Returns `true` if a descriptor has this description.
pub(crate) fn is_of(fd: c_int, of: &Description) -> bool {
    share(fd).is_some_and(|there| std::ptr::eq(&*there, of))
}

/// Enters a chosen descriptor. Returns the one that was there.
pub(crate) fn put(fd: c_int, of: Arc<Description>, is_kept: bool) -> Option<Arc<Description>> {
    let before = SLOTS[fd as usize].swap(Some(of));
    // Release: the description comes before the byte that tells of it.
    KINDS[fd as usize].store(byte(is_kept), Ordering::Release);
    before
}

fn byte(is_kept: bool) -> u8 {
    CHOSEN | if is_kept { KEPT } else { 0 }
}

/// Changes the byte of a descriptor, if it is chosen. Returns `true` if it was.
fn change(fd: c_int, to: u8) -> bool {
    let kinds = usize::try_from(fd).ok().and_then(|n| KINDS.get(n));
    let changed = kinds.map(|kind| {
        // AcqRel: of two threads that close a descriptor, one does so. It finds the description.
        kind.fetch_update(Ordering::AcqRel, Ordering::Acquire, |kind| {
            (kind & CHOSEN != 0).then_some(to)
        })
    });
    changed.is_some_and(|changed| changed.is_ok())
}

/// Takes a chosen descriptor out, after the kernel has given its number to another file.
pub(crate) fn take(fd: c_int) -> Option<Arc<Description>> {
    change(fd, 0).then(|| SLOTS[fd as usize].swap(None)).flatten()
}

/// Takes a chosen descriptor out before the kernel closes it. [`closed`] must follow that.
pub(crate) fn begin_close(fd: c_int) -> Option<Arc<Description>> {
    change(fd, CLOSING).then(|| SLOTS[fd as usize].swap(None)).flatten()
}

/// Ends what [`begin_close`] has begun. Another thread may have got the number meanwhile.
pub(crate) fn closed(fd: c_int) {
    if let Some(kind) = usize::try_from(fd).ok().and_then(|n| KINDS.get(n)) {
        // Release: the kernel's call comes before. Without success there is nothing to see.
        let _reused = kind.compare_exchange(CLOSING, 0, Ordering::Release, Ordering::Relaxed);
    }
}

/// Returns `true` if the program wants a chosen descriptor to stay open at an exec.
pub(crate) fn is_kept(fd: c_int) -> bool {
    kind(fd) & KEPT != 0
}

/// Notes what the program wants at an exec.
pub(crate) fn keep(fd: c_int, is_kept: bool) {
    change(fd, byte(is_kept));
}

/// Notes that a thread is going to start a program that gets a chosen descriptor.
pub(crate) fn begin_start(fd: c_int) {
    ALL_STARTS.fetch_add(1, Ordering::Relaxed);
    STARTS[fd as usize].fetch_add(1, Ordering::Relaxed);
}

/// Ends what [`begin_start`] has begun.
pub(crate) fn end_start(fd: c_int) {
    // A child of `fork` may have forgotten the start.
    let less = |count: u16| count.checked_sub(1);
    let ended = STARTS[fd as usize].fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    if ended.is_ok() {
        ALL_STARTS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns `true` if a thread is starting a program that gets a descriptor.
pub(crate) fn is_starting(fd: c_int) -> bool {
    STARTS[fd as usize].load(Ordering::Relaxed) > 0
}

/// Forgets the starts of other threads, which a child of `fork` does not have. Returns the numbers
/// of those starts.
pub(crate) fn forget_starts() -> impl Iterator<Item = c_int> {
    let limit = if ALL_STARTS.swap(0, Ordering::Relaxed) > 0 { LIMIT } else { 0 };
    (0..limit).filter(|n| STARTS[*n].swap(0, Ordering::Relaxed) > 0).map(|n| n as c_int)
}

/// Notes whether a descriptor is the library's own.
pub(crate) fn set_private(fd: c_int, is_private: bool) {
    if let Some(kind) = usize::try_from(fd).ok().and_then(|n| KINDS.get(n)) {
        let (from, to) = if is_private { (0, PRIVATE) } else { (PRIVATE, 0) };
        // Release, as any change of a byte: the kernel's call comes before it. Without success the
        // byte is that of a chosen file, and stays.
        let _other = kind.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed);
    }
}

/// Returns the first chosen or private descriptor from `fd` on.
pub(crate) fn next(fd: c_int) -> Option<c_int> {
    let from = usize::try_from(fd).unwrap_or(0);
    let is_ours = |n: &usize| KINDS[*n].load(Ordering::Acquire) & (CHOSEN | PRIVATE) != 0;
    (from..LIMIT).find(is_ours).map(|n| n as c_int)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::Errno;

    #[test]
    fn a_number_has_starts_until_the_last_one_ends() {
        const FD: c_int = 40_001;
        begin_start(FD);
        begin_start(FD);
        end_start(FD);
        assert!(is_starting(FD) && !is_starting(FD + 1));
        end_start(FD);
        end_start(FD);
        assert!(!is_starting(FD));
        begin_start(FD);
        assert!(forget_starts().eq([FD]) && !is_starting(FD) && forget_starts().eq([]));
    }

    #[test]
    fn a_descriptor_that_closes_is_not_taken_for_one_of_libc() {
        const FD: c_int = 40_000;
        let of = || Arc::new(Description::new(Err(Errno::IO), libc::O_RDWR, 0));
        assert!(matches!(find(FD), Found::Libcs) && begin_close(FD).is_none());
        assert!(put(FD, of(), true).is_none() && is_kept(FD) && next(FD) == Some(FD));
        assert!(matches!(find(FD), Found::Chosen(_)));
        assert!(begin_close(FD).is_some() && begin_close(FD).is_none());
        set_private(FD, false);
        assert!(matches!(find(FD), Found::Closing) && !is_chosen(FD) && next(FD) != Some(FD));
        keep(FD, true);
        assert!(put(FD, of(), false).is_none(), "another thread has got the number");
        closed(FD);
        assert!(matches!(find(FD), Found::Chosen(_)) && !is_kept(FD));
        assert!(begin_close(FD).is_some());
        closed(FD);
        assert!(matches!(find(FD), Found::Libcs));
        assert!(put(FD, of(), false).is_none() && take(FD).is_some() && take(FD).is_none());
        assert!(matches!(find(FD), Found::Libcs));
    }
}
