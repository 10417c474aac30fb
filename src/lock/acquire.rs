//! The locking of pages and of regions.
//!
//! Owns: the steps by which a thread gets a lock: of one page, of several pages of one region, and
//! of a whole region.
//!
//! Invariants: those of the parent. The region's word carries the intention before a page of the
//! region is locked.
//!
//! May import: `word`, `guard`, `backoff`, `primitive` and the planted bugs.

use super::backoff::Backoff;
use super::guard::{ExclusiveGuard, LockGuard, LockGuards};
use super::word::{INTENT, LOCKED, LockWord, STABLE};
use crate::mutant::{planted, unless};
use crate::primitive::{Ordering, fence};

/// Locks a page. `region` is the word of the page's region.
#[inline(always)]
pub fn lock_page<'a>(region: &LockWord, page: &'a LockWord) -> LockGuard<'a> {
    match try_lock_page(region, page) {
        Some(held) => held,
        None => wait_for_page(region, page),
    }
}

/// Locks a page if it is free, for a lock holder that will change nothing under it. The word
/// carries `STABLE` from the first moment on, as by [`LockGuard::mark_stable`]. So the lock never
/// invalidates what a transaction has read.
pub fn try_lock_page_stable<'a>(region: &LockWord, page: &'a LockWord) -> Option<LockGuard<'a>> {
    try_lock_page_as(region, page, LOCKED | STABLE)
}

/// Locks a page exclusively if it is free, so that readers wait from the first moment on. For a
/// lock holder that changes at once what the word protects. This takes fewer stores than locking
/// and closing and, where pages of the region were locked before, fewer loads.
///
/// The lock holder executes a release fence before its changes, as [`LockGuard::close`] does.
#[inline(always)]
pub fn try_lock_page_exclusive<'a>(
    region: &LockWord,
    page: &'a LockWord,
) -> Option<ExclusiveGuard<'a>> {
    try_announced_page_closed(region, page).or_else(|| try_page_exclusive_slow(region, page))
}

#[inline(always)]
fn try_announced_page_closed<'a>(
    region: &LockWord,
    page: &'a LockWord,
) -> Option<ExclusiveGuard<'a>> {
    let taken = if planted!(TakenOpen) { LOCKED } else { ExclusiveGuard::TAKEN };
    if !try_hold_as(page, taken) {
        return None;
    }
    let held = ExclusiveGuard(page);
    if is_announced(region) {
        return Some(held);
    }
    held.give_back_unchanged();
    None
}

/// Sets the intention and tries again, if the region is free.
#[cold]
#[inline(never)]
fn try_page_exclusive_slow<'a>(
    region: &LockWord,
    page: &'a LockWord,
) -> Option<ExclusiveGuard<'a>> {
    if announce(region) { try_announced_page_closed(region, page) } else { None }
}

#[inline(always)]
fn try_lock_page<'a>(region: &LockWord, page: &'a LockWord) -> Option<LockGuard<'a>> {
    try_lock_page_as(region, page, LOCKED)
}

#[inline(always)]
fn try_lock_page_as<'a>(region: &LockWord, page: &'a LockWord, held: u64) -> Option<LockGuard<'a>> {
    if !announce(region) || !try_hold_as(page, held) {
        return None;
    }
    let held = LockGuard(page);
    (is_announced(region) || planted!(RegionNotValidatedAfterPage)).then_some(held)
}

// Kept out of line, here and below, so that the fast path does not carry what waiting needs.
#[cold]
fn wait_for_page<'a>(region: &LockWord, page: &'a LockWord) -> LockGuard<'a> {
    let mut backoff = Backoff::new();
    loop {
        backoff.wait();
        if let Some(held) = try_lock_page(region, page) {
            return held;
        }
    }
}

/// Locks several pages of one region, ascending, and appends them to `held`. While another thread
/// wants the whole region, this holds none of them. Otherwise there would be a deadlock: a thread
/// that held one page and waited for the next would keep the region's locker waiting. The region's
/// locker in turn keeps every other thread out.
pub fn lock_pages<'a>(
    region: &LockWord,
    pages: impl Iterator<Item = &'a LockWord> + Clone,
    held: &mut LockGuards<'a>,
) {
    let before = held.len();
    if announce(region) && try_hold_all(region, pages.clone(), held) {
        return;
    }
    wait_for_pages(region, pages, held, before);
}

/// Retries [`lock_pages`] until it succeeds. The guards from index `before` on in `held` are those
/// that the failed attempt obtained.
#[cold]
#[inline(never)]
fn wait_for_pages<'a>(
    region: &LockWord,
    pages: impl Iterator<Item = &'a LockWord> + Clone,
    held: &mut LockGuards<'a>,
    before: usize,
) {
    let mut backoff = Backoff::new();
    loop {
        unless!(PagesKeptWhileWaiting, held.truncate(before));
        backoff.wait();
        if announce(region) && try_hold_all(region, pages.clone(), held) {
            return;
        }
    }
}

#[inline]
fn try_hold_all<'a>(
    region: &LockWord,
    pages: impl Iterator<Item = &'a LockWord>,
    held: &mut LockGuards<'a>,
) -> bool {
    for page in pages {
        if !try_hold(page) && !hold_while_announced(region, page) {
            return false;
        }
        held.push(LockGuard(page));
    }
    is_announced(region)
}

/// Locks a page once it is free. Returns `false` if another thread wants the whole region.
#[cold]
#[inline(never)]
fn hold_while_announced(region: &LockWord, page: &LockWord) -> bool {
    let mut backoff = Backoff::new();
    loop {
        if !is_announced(region) {
            return false;
        }
        backoff.wait();
        if try_hold(page) {
            return true;
        }
    }
}

/// Sets the intention on a free region. Returns `false` if the region is locked or another thread
/// changed its word first.
#[inline]
fn announce(region: &LockWord) -> bool {
    let seen = region.0.load(Ordering::Acquire);
    seen & LOCKED == 0
        && (seen & INTENT != 0
            || region
                .0
                .compare_exchange(seen, seen | INTENT, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok())
}

/// Returns `true` if the region is free and its intention is set, after a page was locked.
///
/// Sequentially consistent on both sides. The region's locker looks at the page words after it has
/// marked its own word. So either this load sees the region's locker, or the region's locker sees
/// our page lock. The intention must still be set, or the next locker of the region would not look.
#[inline]
fn is_announced(region: &LockWord) -> bool {
    region.0.load(Ordering::SeqCst) & (LOCKED | INTENT) == INTENT
}

/// Locks a region, and waits for the page locks below it.
#[inline]
pub fn lock_region<'a, 'p>(
    region: &'a LockWord,
    pages: impl Iterator<Item = &'p LockWord>,
) -> LockGuard<'a> {
    let had_intent = match try_hold_region(region) {
        Some(had_intent) => had_intent,
        None => wait_for_region(region),
    };
    if had_intent {
        for page in pages {
            if page.is_locked() && !planted!(PagesNotAwaited) {
                wait_until_free(page);
            }
        }
        // From here on this thread must see what the holders of page locks published.
        fence(Ordering::Acquire);
    }
    LockGuard(region)
}

/// Locks a region if it is free, and returns whether the intention was set.
#[inline]
fn try_hold_region(region: &LockWord) -> Option<bool> {
    let seen = region.0.load(Ordering::Relaxed);
    let held = (seen | LOCKED) & !INTENT;
    let is_ours = seen & LOCKED == 0
        && region.0.compare_exchange(seen, held, Ordering::SeqCst, Ordering::Relaxed).is_ok();
    is_ours.then_some(seen & INTENT != 0)
}

#[cold]
fn wait_for_region(region: &LockWord) -> bool {
    let mut backoff = Backoff::new();
    loop {
        backoff.wait();
        if let Some(had_intent) = try_hold_region(region) {
            return had_intent;
        }
    }
}

#[cold]
fn wait_until_free(page: &LockWord) {
    let mut backoff = Backoff::new();
    while page.is_locked() {
        backoff.wait();
    }
}

#[inline]
fn try_hold(page: &LockWord) -> bool {
    try_hold_as(page, LOCKED)
}

#[inline]
fn try_hold_as(page: &LockWord, held: u64) -> bool {
    let seen = page.0.load(Ordering::Relaxed);
    (seen & LOCKED == 0 || planted!(PageHeldTwice))
        && page.0.compare_exchange(seen, seen | held, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}
