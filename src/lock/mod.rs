//! Page and region locks with versions: a sequence lock in one word, in two granularities.
//!
//! Owns: the lock word and the two granularities (MGSP III-C2). Invariants:
//! - a page's writer holds either the lock of the page or that of its region, never both;
//! - a thread owns a lane of the file while it holds a lock. So the thread with the only lane may
//!   lock a page by plain stores, without a look at the region's lock word
//!   ([`try_lock_page_alone`]);
//! - a thread takes its locks in ascending order of place in the file, so no cycle of waiting
//!   exists;
//! - the version only grows, and grows at least whenever something that a reader could see has
//!   changed;
//! - while a word is *closed* (locked exclusively), readers wait. A writer closes a word to publish
//!   and to store in place, so that most commits wait for their drains without keeping readers
//!   waiting. Three kinds of writers close their words for longer: transactions that have read more
//!   than they write, logged data, and writers that defragment pages;
//! - a thread that calls [`after_own_writes`] before it reads has made everything that it published
//!   visible to all threads before that read.
//!
//! May import `primitive`, `thread` and `mutant`.
//!
//! Why words and not `parking_lot::RwLock`: a shared lock writes a shared cache line for every
//! small read, which takes 20 ns, where a version check takes less than 1 ns. And an unlock by an
//! atomic read-modify-write waits on x86 for all outstanding stores. After a logged flip that wait
//! would be a second drain. Unlocking here is one plain store. The wait for that store is left to
//! the thread's next read, since a next write does not need it.

use crate::mutant::{planted, unless};
use crate::primitive::{AtomicU64, Backoff, Ordering, fence, sleep};
use crate::thread;
use smallvec::SmallVec;
use std::time::Duration;

/// A thread has locked this word in order to write.
const HELD: u64 = 1;
/// Exclusive: readers wait, because the lock holder is changing what the word protects.
const CLOSED: u64 = 2;
/// Region words only: page locks below may be held. Set by the first thread that locks a page, and
/// cleared lazily by the next thread that locks the region: MGSP's lazily cleaned intention lock.
const INTENT: u64 = 4;
/// The lock holder will not change what the word protects.
const STILL: u64 = 8;
const VERSION: u64 = !(HELD | CLOSED | INTENT | STILL);
const STEP: u64 = 16;

/// Lock and version in one word. The version has 60 bits and does not wrap.
#[derive(Debug, Default)]
pub struct LockWord(AtomicU64);

/// The version that a reader found in a word when it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version(u64);

impl Version {
    /// Returns a number that grows with the version, for sums over many words. No version ever
    /// shrinks, so two equal sums mean that no version has changed.
    pub fn count(self) -> u64 {
        self.0
    }

    /// Returns the number of versions before this one.
    pub fn number(self) -> u64 {
        self.0 / STEP
    }
}

impl LockWord {
    /// Creates an unlocked word with version zero.
    pub fn new() -> Self {
        LockWord(AtomicU64::new(0))
    }

    /// Returns the version for an optimistic read, or `None` while the word is closed.
    #[inline]
    pub fn begin(&self) -> Option<Version> {
        let word = self.0.load(Ordering::Acquire);
        (word & CLOSED == 0 || planted!(ClosedIsOpen)).then_some(Version(word & VERSION))
    }

    /// Returns `true` if the word is open and still at `version`. The caller has executed an
    /// acquire fence between its reads and this call.
    #[inline]
    pub fn is_still(&self, version: Version) -> bool {
        let closed = if planted!(ClosedIsStill) { 0 } else { CLOSED };
        self.0.load(Ordering::Relaxed) & (VERSION | closed) == version.0
    }

    /// Returns `true` if the word is still at `version`. For the lock holder, which may have closed
    /// the word.
    pub fn is_still_for_holder(&self, version: Version) -> bool {
        self.0.load(Ordering::Relaxed) & VERSION == version.0
    }

    /// Returns `true` if a thread holds this word, to write under it or to keep writers away.
    pub fn is_held(&self) -> bool {
        self.0.load(Ordering::SeqCst) & HELD != 0
    }

    /// Returns `true` if a thread holds this word and will change nothing under it, as a durable
    /// point does.
    #[inline]
    pub fn is_held_still(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (HELD | STILL) == HELD | STILL
    }

    /// Returns `true` if a thread may be writing under this word. The caller has executed a
    /// sequentially consistent fence before this call, as [`close_before_looking`] does.
    pub fn is_written_after_fence(&self) -> bool {
        self.0.load(Ordering::Acquire) & (HELD | STILL) == HELD
    }

    /// Makes readers wait. The lock holder calls this before it changes what readers see.
    #[inline]
    fn close(&self) {
        // Only the lock holder stores to a locked word, so load and store need not be one atomic
        // step.
        self.0.store(self.0.load(Ordering::Relaxed) | CLOSED, Ordering::Relaxed);
        // Orders the bit before the changes that follow: a reader that sees a change sees the bit,
        // too.
        fence(Ordering::Release);
    }

    /// Unlocks the word, with a new version if the word was closed, and unchanged otherwise.
    #[inline]
    fn release(&self) {
        let word = self.0.load(Ordering::Relaxed);
        let step = if word & CLOSED != 0 { STEP } else { 0 };
        if step != 0 {
            thread::note_published();
        }
        let step = if word & CLOSED != 0 && !planted!(NoNewVersion) { STEP } else { 0 };
        // A plain store, see the module comment. Release: the changes come before it.
        self.0.store((word & !(HELD | CLOSED | STILL)) + step, Ordering::Release);
    }
}

/// The lock words of a page and of its region, as a reader of the page found them when it began.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    region: u64,
    page: u64,
}

impl Look {
    /// Returns both words for an optimistic read, or `None` while one of them is closed:
    /// [`LockWord::begin`] of both.
    #[inline]
    pub fn begin(region: &LockWord, page: &LockWord) -> Option<Look> {
        let (region, page) = (region.0.load(Ordering::Acquire), page.0.load(Ordering::Acquire));
        ((region | page) & CLOSED == 0 || planted!(ClosedIsOpen)).then_some(Look { region, page })
    }

    /// Returns `true` if both words are open and still at their versions: [`LockWord::is_still`] of
    /// both. The caller has executed an acquire fence between its reads and this call.
    #[inline]
    pub fn is_still(self, region: &LockWord, page: &LockWord) -> bool {
        let closed = if planted!(ClosedIsStill) { 0 } else { CLOSED };
        let of_region = (region.0.load(Ordering::Relaxed) ^ self.region) & (VERSION | closed);
        let of_page = (page.0.load(Ordering::Relaxed) ^ self.page) & (VERSION | closed);
        (of_region == 0 || planted!(RegionNotLookedAtAgain))
            & (of_page == 0 || planted!(PageNotLookedAtAgain))
    }
}

/// The locks that an operation holds, rarely more than a few.
pub type AllHeld<'a> = SmallVec<[Held<'a>; 8]>;

/// A guard for a locked page or region word. Dropping it unlocks the word.
#[derive(Debug)]
pub struct Held<'a>(&'a LockWord);

impl Held<'_> {
    /// Promises that nothing will be changed under this word until the guard is dropped. Only
    /// writers have to wait, and what a transaction has read stays valid.
    pub fn stays_as_it_is(&self) {
        // Only the lock holder stores to a locked word.
        self.0.0.store(self.0.0.load(Ordering::Relaxed) | STILL, Ordering::Release);
    }

    /// Makes readers wait until the guard is dropped. The drop then gives the word a new version.
    #[inline]
    pub fn close(&self) {
        self.0.close();
    }

    /// Returns `true` if the word is closed, so that readers wait.
    pub fn is_closed(&self) -> bool {
        self.0.0.load(Ordering::Relaxed) & CLOSED != 0
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.release();
    }
}

/// A guard for a page's word that was closed by the step that locked it. Dropping it unlocks the
/// word with a new version.
///
/// No other bits were set when the word was locked, and only its lock holder stores to it. So one
/// addition unlocks it.
#[derive(Debug)]
pub struct HeldClosed<'a>(&'a LockWord);

impl HeldClosed<'_> {
    const TAKEN: u64 = HELD | CLOSED;

    /// Unlocks the word without a new version, since nothing was changed: optimistic reads stay
    /// valid.
    #[inline(always)]
    pub fn give_back_unchanged(self) {
        self.let_go(0);
        std::mem::forget(self);
    }

    #[inline(always)]
    fn let_go(&self, step: u64) {
        let word = self.0.0.load(Ordering::Relaxed);
        debug_assert_eq!(word & !VERSION, Self::TAKEN, "taken as it is let go");
        // As in [`LockWord::release`].
        self.0.0.store(word.wrapping_add(step.wrapping_sub(Self::TAKEN)), Ordering::Release);
    }
}

impl Drop for HeldClosed<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        thread::note_published();
        self.let_go(if planted!(NoNewVersion) { 0 } else { STEP });
    }
}

/// Makes what this thread has published visible to all threads before its next read. Called before
/// a read that takes no lock.
///
/// An unlocking store may still be on its way when the next instructions load. Suppose that two
/// threads each write and then read what the other thread writes. Without the fence both could read
/// the old value: each read would come before the other thread's write, and no order of the four
/// operations explains that.
///
/// The flag for unfenced stores belongs to the thread and not to a file, because operations on two
/// files have an order, too.
///
/// Returns `true` if the thread had published something since the last call.
#[inline]
pub fn after_own_writes() -> bool {
    let has_published = thread::take_published();
    if has_published {
        fence(Ordering::SeqCst);
    }
    has_published
}

/// Closes all words in `held`, before their lock holder validates words that other threads hold. If
/// two threads close their words and then look at each other's, at least one sees the other's bit.
pub fn close_before_looking(held: &[Held<'_>]) {
    held.iter().for_each(Held::close);
    // Orders the closing, a plain store, before the loads that validate.
    unless!(NoFenceBeforeMarks, fence(Ordering::SeqCst));
}

/// Locks a page. `region` is the word of the page's region.
#[inline(always)]
pub fn lock_page<'a>(region: &LockWord, page: &'a LockWord) -> Held<'a> {
    match try_lock_page(region, page) {
        Some(held) => held,
        None => wait_for_page(region, page),
    }
}

/// Locks a page if it is free, for a lock holder that will change nothing under it. The word
/// carries `STILL` from the first moment on, as by [`Held::stays_as_it_is`]. So the lock never
/// invalidates what a transaction has read.
pub fn try_lock_page_still<'a>(region: &LockWord, page: &'a LockWord) -> Option<Held<'a>> {
    try_lock_page_as(region, page, HELD | STILL)
}

/// Locks a page exclusively if it is free, so that readers wait from the first moment on. For a
/// lock holder that changes at once what the word protects. This takes fewer stores than locking
/// and closing and, where pages of the region were locked before, fewer loads.
///
/// The lock holder executes a release fence before its changes, as [`Held::close`] does.
#[inline(always)]
pub fn try_lock_page_closed<'a>(region: &LockWord, page: &'a LockWord) -> Option<HeldClosed<'a>> {
    try_announced_page_closed(region, page).or_else(|| try_page_closed_again(region, page))
}

/// Locks a page exclusively by plain stores, if it is free. `_alone` proves that the thread is
/// alone on the file until it unlocks the page. Meanwhile no other thread takes one of these locks,
/// or looks at one to pin or to commit. So the region's word need not be checked.
#[inline(always)]
pub fn try_lock_page_alone<'a>(
    page: &'a LockWord,
    _alone: &'a impl Sized,
) -> Option<HeldClosed<'a>> {
    let seen = page.0.load(Ordering::Relaxed);
    if seen & HELD != 0 {
        return None;
    }
    let taken = if planted!(TakenOpen) { HELD } else { HeldClosed::TAKEN };
    // No other thread looks at the word now. A later one has waited for the end of this biased
    // section first; that end is a release.
    page.0.store(seen | taken, Ordering::Relaxed);
    Some(HeldClosed(page))
}

#[inline(always)]
fn try_announced_page_closed<'a>(region: &LockWord, page: &'a LockWord) -> Option<HeldClosed<'a>> {
    let taken = if planted!(TakenOpen) { HELD } else { HeldClosed::TAKEN };
    if !try_hold_as(page, taken) {
        return None;
    }
    let held = HeldClosed(page);
    if is_announced(region) {
        return Some(held);
    }
    held.give_back_unchanged();
    None
}

/// Sets the intention and tries again, if the region is free.
#[cold]
#[inline(never)]
fn try_page_closed_again<'a>(region: &LockWord, page: &'a LockWord) -> Option<HeldClosed<'a>> {
    if announce(region) { try_announced_page_closed(region, page) } else { None }
}

#[inline(always)]
fn try_lock_page<'a>(region: &LockWord, page: &'a LockWord) -> Option<Held<'a>> {
    try_lock_page_as(region, page, HELD)
}

#[inline(always)]
fn try_lock_page_as<'a>(region: &LockWord, page: &'a LockWord, held: u64) -> Option<Held<'a>> {
    if !announce(region) || !try_hold_as(page, held) {
        return None;
    }
    let held = Held(page);
    (is_announced(region) || planted!(RegionNotLookedAtAfterPage)).then_some(held)
}

// Kept out of line, here and below, so that the fast path does not carry what waiting needs.
#[cold]
fn wait_for_page<'a>(region: &LockWord, page: &'a LockWord) -> Held<'a> {
    let mut patience = Patience::new();
    loop {
        patience.wait();
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
    held: &mut AllHeld<'a>,
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
    held: &mut AllHeld<'a>,
    before: usize,
) {
    let mut patience = Patience::new();
    loop {
        unless!(PagesKeptWhileWaiting, held.truncate(before));
        patience.wait();
        if announce(region) && try_hold_all(region, pages.clone(), held) {
            return;
        }
    }
}

#[inline]
fn try_hold_all<'a>(
    region: &LockWord,
    pages: impl Iterator<Item = &'a LockWord>,
    held: &mut AllHeld<'a>,
) -> bool {
    for page in pages {
        if !try_hold(page) && !hold_while_announced(region, page) {
            return false;
        }
        held.push(Held(page));
    }
    is_announced(region)
}

/// Locks a page once it is free. Returns `false` if another thread wants the whole region.
#[cold]
#[inline(never)]
fn hold_while_announced(region: &LockWord, page: &LockWord) -> bool {
    let mut patience = Patience::new();
    loop {
        if !is_announced(region) {
            return false;
        }
        patience.wait();
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
    seen & HELD == 0
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
    region.0.load(Ordering::SeqCst) & (HELD | INTENT) == INTENT
}

/// Locks a region, and waits for the page locks below it.
#[inline]
pub fn lock_region<'a, 'p>(
    region: &'a LockWord,
    pages: impl Iterator<Item = &'p LockWord>,
) -> Held<'a> {
    let had_intent = match try_hold_region(region) {
        Some(had_intent) => had_intent,
        None => wait_for_region(region),
    };
    if had_intent {
        for page in pages {
            if page.is_held() && !planted!(PagesNotAwaited) {
                wait_until_free(page);
            }
        }
        // From here on this thread must see what the holders of page locks published.
        fence(Ordering::Acquire);
    }
    Held(region)
}

/// Locks a region if it is free, and returns whether the intention was set.
#[inline]
fn try_hold_region(region: &LockWord) -> Option<bool> {
    let seen = region.0.load(Ordering::Relaxed);
    let held = (seen | HELD) & !INTENT;
    let is_ours = seen & HELD == 0
        && region.0.compare_exchange(seen, held, Ordering::SeqCst, Ordering::Relaxed).is_ok();
    is_ours.then_some(seen & INTENT != 0)
}

#[cold]
fn wait_for_region(region: &LockWord) -> bool {
    let mut patience = Patience::new();
    loop {
        patience.wait();
        if let Some(had_intent) = try_hold_region(region) {
            return had_intent;
        }
    }
}

#[cold]
fn wait_until_free(page: &LockWord) {
    let mut patience = Patience::new();
    while page.is_held() {
        patience.wait();
    }
}

#[inline]
fn try_hold(page: &LockWord) -> bool {
    try_hold_as(page, HELD)
}

#[inline]
fn try_hold_as(page: &LockWord, held: u64) -> bool {
    let seen = page.0.load(Ordering::Relaxed);
    (seen & HELD == 0 || planted!(PageHeldTwice))
        && page.0.compare_exchange(seen, seen | held, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}

/// A backoff that waits a little longer each time: it spins, yields, then sleeps. No wake-up is
/// needed, so unlocking can be a plain store. The price is up to 100 microseconds after a long
/// wait.
#[derive(Debug)]
pub struct Patience {
    backoff: Backoff,
    sleep: Duration,
}

impl Patience {
    const FIRST_SLEEP: Duration = Duration::from_micros(20);
    const LONGEST_SLEEP: Duration = Duration::from_micros(100);

    /// Creates a backoff that has not waited yet.
    pub fn new() -> Self {
        Patience { backoff: Backoff::new(), sleep: Self::FIRST_SLEEP }
    }

    /// Waits for the next step.
    pub fn wait(&mut self) {
        if !self.backoff.is_completed() {
            self.backoff.snooze();
        } else {
            sleep(self.sleep);
            self.sleep = (self.sleep * 2).min(Self::LONGEST_SLEEP);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_models;

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    struct Region {
        word: LockWord,
        pages: [LockWord; 4],
        values: [AtomicU64; 4],
    }

    fn region() -> Region {
        Region {
            word: LockWord::new(),
            pages: std::array::from_fn(|_| LockWord::new()),
            values: [const { AtomicU64::new(0) }; 4],
        }
    }

    #[test]
    fn a_release_changes_the_version_only_if_something_was_published() {
        let r = region();
        let before = r.pages[0].begin().unwrap();
        drop(lock_page(&r.word, &r.pages[0]));
        assert!(r.pages[0].is_still(before));
        let held = lock_page(&r.word, &r.pages[0]);
        assert!(r.pages[0].is_still(before), "a reader does not wait for a writer that copies");
        held.close();
        assert!(r.pages[0].begin().is_none() && !r.pages[0].is_still(before));
        drop(held);
        assert!(r.pages[0].begin().unwrap().count() > before.count());
    }

    #[test]
    fn intention_is_cleaned_by_the_next_locker_of_the_region() {
        let r = region();
        drop(lock_page(&r.word, &r.pages[1]));
        assert_ne!(r.word.0.load(Ordering::Relaxed) & INTENT, 0);
        drop(lock_region(&r.word, r.pages.iter()));
        assert_eq!(r.word.0.load(Ordering::Relaxed) & INTENT, 0);
        drop(lock_page(&r.word, &r.pages[1]));
    }

    /// An operation that locked its pages one by one, and waited for the next with one in hand,
    /// would deadlock with writers of the whole region.
    #[test]
    fn several_page_locks_and_region_locks_do_not_wait_for_each_other_for_ever() {
        let r = region();
        std::thread::scope(|s| {
            for first in 0..2 {
                let r = &r;
                s.spawn(move || {
                    for _ in 0..2_000 {
                        let mut held = AllHeld::new();
                        lock_pages(&r.word, r.pages[first..first + 3].iter(), &mut held);
                        assert_eq!(held.len(), 3);
                    }
                });
            }
            for _ in 0..2 {
                s.spawn(|| {
                    for _ in 0..2_000 {
                        drop(lock_region(&r.word, r.pages.iter()));
                    }
                });
            }
        });
    }

    #[test]
    fn who_locks_a_region_waits_for_the_pages_holders() {
        let r = region();
        let page = lock_page(&r.word, &r.pages[2]);
        std::thread::scope(|s| {
            let region = s.spawn(|| drop(lock_region(&r.word, r.pages.iter())));
            // The other thread has locked the region and waits for the page.
            while !r.word.is_held() {
                std::thread::yield_now();
            }
            assert!(!region.is_finished());
            drop(page);
        });
    }

    /// Step by step: a thread that has locked a page gives it back when another thread wants the
    /// region, while it waits for the next page.
    #[test]
    fn who_waits_for_a_page_gives_the_others_back_to_who_wants_the_region() {
        let r = region();
        let second = lock_page(&r.word, &r.pages[1]);
        let is_held = |word: &LockWord| word.is_held();
        std::thread::scope(|s| {
            s.spawn(|| {
                let mut held = AllHeld::new();
                lock_pages(&r.word, r.pages[..3].iter(), &mut held);
                assert_eq!(held.len(), 3);
            });
            while !is_held(&r.pages[0]) {
                std::thread::yield_now();
            }
            let region = s.spawn(|| drop(lock_region(&r.word, r.pages.iter())));
            while !is_held(&r.word) {
                std::thread::yield_now();
            }
            drop(second);
            region.join().unwrap();
        });
    }

    /// Page writers and region writers exclude each other, and readers see no half of a region
    /// write: all four values are incremented together, or one alone.
    #[test]
    fn granularities_exclude_each_other() {
        let r = region();
        let (page_writes, region_writes) = (4_000, 2_000);
        std::thread::scope(|s| {
            for thread in 0..2 {
                let r = &r;
                s.spawn(move || {
                    for i in 0..page_writes {
                        let n = (i + thread) % 4;
                        let held = lock_page(&r.word, &r.pages[n]);
                        held.close();
                        let value = r.values[n].load(Ordering::Relaxed);
                        std::hint::spin_loop();
                        r.values[n].store(value + 1, Ordering::Relaxed);
                    }
                });
            }
            s.spawn(|| {
                for _ in 0..region_writes {
                    let held = lock_region(&r.word, r.pages.iter());
                    held.close();
                    for value in &r.values {
                        let v = value.load(Ordering::Relaxed);
                        std::hint::spin_loop();
                        value.store(v + 1, Ordering::Relaxed);
                    }
                }
            });
        });
        let sum: u64 = r.values.iter().map(|v| v.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 2 * page_writes as u64 + 4 * region_writes);
    }
}
