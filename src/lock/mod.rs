//! Who may write, and did anything change while I read? Page and region locks with versions.
//!
//! Owns: the lock word and the two granularities (MGSP III-C2). Invariants:
//! - a page's writer holds either the page's word or its region's word, never both;
//! - whoever takes a word has a lane of the file meanwhile: so who has the only one may take a page's word by plain
//!   stores, without a look at the region's ([`try_lock_page_alone`]);
//! - words are taken in ascending order of place in the file, so no cycle of waiting exists;
//! - the version only grows, and grows at least whenever something that a reader could see has
//!   changed;
//! - while a word is *closed*, readers wait. A word is closed for publishing and for stores in place,
//!   so that most commits keep no reader waiting while they wait for their drains; transactions
//!   that have read more than they write, logged data, and who puts pages together close theirs for longer;
//! - what a thread has published is seen by everybody before the thread looks at anything else, if
//!   it calls [`after_own_writes`] before it looks.
//!
//! May import `primitive`, `thread` and `mutant`.
//!
//! Why words and not `parking_lot::RwLock`: a shared lock writes a shared cache line for every
//! small read (20 ns where a version check costs under 1), and an unlock that is an atomic
//! read-modify-write waits on x86 for all outstanding stores, which after a vouched flip would
//! be a second drain. Unlocking here is one plain store, and the wait for it is left to the thread's next
//! read, if there is one: a next write needs nothing of the kind.

use crate::mutant::{planted, unless};
use crate::primitive::{AtomicU64, Backoff, Ordering, fence, sleep};
use crate::thread;
use smallvec::SmallVec;
use std::time::Duration;

/// Somebody writes under this word.
const HELD: u64 = 1;
/// Readers wait: what the word protects is being changed right now.
const CLOSED: u64 = 2;
/// Region words only: page locks below may be held. Set by the first page locker, and cleaned
/// lazily, by the next locker of the region: the lazily cleaned intention lock of MGSP.
const INTENT: u64 = 4;
/// Whoever holds the word will not change what it protects.
const STILL: u64 = 8;
const VERSION: u64 = !(HELD | CLOSED | INTENT | STILL);
const STEP: u64 = 16;

/// Lock and version in one word. 2^60 versions: it does not wrap.
#[derive(Debug, Default)]
pub struct LockWord(AtomicU64);

/// What a word said when a reader began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version(u64);

impl Version {
    /// A number that grows with the version, for sums over many words: as no version ever
    /// shrinks, two equal sums mean that none has changed.
    pub fn count(self) -> u64 {
        self.0
    }

    /// How many there were before.
    pub fn number(self) -> u64 {
        self.0 / STEP
    }
}

impl LockWord {
    /// Free, version zero.
    pub fn new() -> Self {
        LockWord(AtomicU64::new(0))
    }

    /// The version to read under, or `None` while the word is closed.
    #[inline]
    pub fn begin(&self) -> Option<Version> {
        let word = self.0.load(Ordering::Acquire);
        (word & CLOSED == 0 || planted!(ClosedIsOpen)).then_some(Version(word & VERSION))
    }

    /// Whether the word is open and still at `version`. The caller has put an acquire fence
    /// between its reads and this call.
    #[inline]
    pub fn is_still(&self, version: Version) -> bool {
        let closed = if planted!(ClosedIsStill) { 0 } else { CLOSED };
        self.0.load(Ordering::Relaxed) & (VERSION | closed) == version.0
    }

    /// As [`is_still`](Self::is_still), for the holder of the word, who may have closed it.
    pub fn is_still_for_holder(&self, version: Version) -> bool {
        self.0.load(Ordering::Relaxed) & VERSION == version.0
    }

    /// Whether somebody holds this word, to write under it or to keep writers away.
    pub fn is_held(&self) -> bool {
        self.0.load(Ordering::SeqCst) & HELD != 0
    }

    /// Returns `true` if a thread holds this word and will change nothing under it: as a durable point is made of it.
    #[inline]
    pub fn is_held_still(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (HELD | STILL) == HELD | STILL
    }

    /// Whether somebody may write under this word. For who has put a sequentially consistent fence
    /// before its look, as [`close_before_looking`] does.
    pub fn is_written_after_fence(&self) -> bool {
        self.0.load(Ordering::Acquire) & (HELD | STILL) == HELD
    }

    /// Makes readers wait. By the holder, before it changes what readers see.
    #[inline]
    fn close(&self) {
        // Only the holder stores to a held word, so load and store need not be one step.
        self.0.store(self.0.load(Ordering::Relaxed) | CLOSED, Ordering::Relaxed);
        // Orders the mark before the changes that follow: a reader that sees a change sees it.
        fence(Ordering::Release);
    }

    /// Lets go: with a new version if the word was closed, unchanged otherwise.
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

/// What a page's word and its region's said when a reader of the page began.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    region: u64,
    page: u64,
}

impl Look {
    /// The words to read under, or `None` while one is closed. [`LockWord::begin`] of both.
    #[inline]
    pub fn begin(region: &LockWord, page: &LockWord) -> Option<Look> {
        let (region, page) = (region.0.load(Ordering::Acquire), page.0.load(Ordering::Acquire));
        ((region | page) & CLOSED == 0 || planted!(ClosedIsOpen)).then_some(Look { region, page })
    }

    /// Whether both words are open and still at their versions: [`LockWord::is_still`] of both. The caller
    /// has put an acquire fence between its reads and this call.
    #[inline]
    pub fn is_still(self, region: &LockWord, page: &LockWord) -> bool {
        let closed = if planted!(ClosedIsStill) { 0 } else { CLOSED };
        let of_region = (region.0.load(Ordering::Relaxed) ^ self.region) & (VERSION | closed);
        let of_page = (page.0.load(Ordering::Relaxed) ^ self.page) & (VERSION | closed);
        (of_region == 0 || planted!(RegionNotLookedAtAgain))
            & (of_page == 0 || planted!(PageNotLookedAtAgain))
    }
}

/// The words that an operation holds: seldom more than a few.
pub type AllHeld<'a> = SmallVec<[Held<'a>; 8]>;

/// A page's or a region's word, held. Dropping it releases it.
#[derive(Debug)]
pub struct Held<'a>(&'a LockWord);

impl Held<'_> {
    /// Says that nothing will be changed under this word until it is dropped: writers wait, and
    /// nobody else has to.
    pub fn stays_as_it_is(&self) {
        // Only the holder stores to a held word.
        self.0.0.store(self.0.0.load(Ordering::Relaxed) | STILL, Ordering::Release);
    }

    /// Makes readers wait until this is dropped, and gives the word a new version then.
    #[inline]
    pub fn close(&self) {
        self.0.close();
    }

    /// Whether readers wait.
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

/// A page's word, held and closed from the first moment on. Dropping it releases it, with a new version.
///
/// No other bits were set when it was taken, and only its holder stores to a held word: so it is let go by one sum.
#[derive(Debug)]
pub struct HeldClosed<'a>(&'a LockWord);

impl HeldClosed<'_> {
    const TAKEN: u64 = HELD | CLOSED;

    /// Lets go of what was not changed: nobody has to read it again.
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

/// Waits, if this thread has published something since the last call, until everybody sees it. For
/// who is about to read without taking a lock.
///
/// An unlocking store may still be on its way when the next instructions load. Two threads that each
/// wrote and then looked at what the other writes could both find nothing: each read would come
/// before the other's write, in no order at all.
///
/// What is remembered is the thread's and not one file's: operations on two files have an order, too.
///
/// Whether it has.
#[inline]
pub fn after_own_writes() -> bool {
    let has_published = thread::take_published();
    if has_published {
        fence(Ordering::SeqCst);
    }
    has_published
}

/// Closes all words that are held, before their holder looks at the versions of words that others
/// hold: of two who close and then look at each other's words, one sees that the other has closed.
pub fn close_before_looking(held: &[Held<'_>]) {
    held.iter().for_each(Held::close);
    // Orders the closing, a plain store, before the looks.
    unless!(NoFenceBeforeMarks, fence(Ordering::SeqCst));
}

/// Takes a page's word, under its region's.
#[inline(always)]
pub fn lock_page<'a>(region: &LockWord, page: &'a LockWord) -> Held<'a> {
    match try_lock_page(region, page) {
        Some(held) => held,
        None => wait_for_page(region, page),
    }
}

/// The same, if nobody else has it, for who will change nothing under it: at no moment is it held in a way that would
/// make void what somebody has read. (As [`Held::stays_as_it_is`], in one step.)
pub fn try_lock_page_still<'a>(region: &LockWord, page: &'a LockWord) -> Option<Held<'a>> {
    try_lock_page_as(region, page, HELD | STILL)
}

/// The same, if nobody else has it, and readers wait from the first moment on. For who changes what the word protects at once:
/// fewer stores, and, where pages of the region were locked before, fewer looks.
///
/// What the holder changes is to come after a release fence, as behind [`Held::close`].
#[inline(always)]
pub fn try_lock_page_closed<'a>(region: &LockWord, page: &'a LockWord) -> Option<HeldClosed<'a>> {
    try_announced_page_closed(region, page).or_else(|| try_page_closed_again(region, page))
}

/// The same by plain stores, if nobody has it, for who is `alone` until this one is let go: no other thread takes a lock of
/// these, or looks at one to pin or to commit, meanwhile. So there is no region's word to be looked at.
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
    // Nobody looks at it now. Who does later has waited for the end of being alone, which releases.
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

/// Once pages are announced, if the region can be had.
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

// Out of the way, here and below: what waiting needs is not kept at hand where nobody waits.
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

/// Takes the words of several pages of one region, ascending, and appends them to `held`: all of
/// them or, for as long as somebody wants the whole region, none. Who held one page and waited for
/// the next would keep the region's locker waiting, and the region's locker keeps everybody out:
/// a deadlock.
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

/// The same again and again. The words from the place `before` on in `held` are those that were got hold of.
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

/// Takes a page's word once it is free. False: somebody wants the whole region.
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

/// Sets the intention on a region that nobody holds. False: somebody does, or was faster.
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

/// Whether nobody holds the region and the intention stands, after a page word was taken.
///
/// Sequentially consistent on both sides: either this load sees the region's holder, or the
/// region's holder, which looks at the page words after it has marked its own, sees ours. The
/// intention must still stand, or the next holder would not look.
#[inline]
fn is_announced(region: &LockWord) -> bool {
    region.0.load(Ordering::SeqCst) & (HELD | INTENT) == INTENT
}

/// Takes a region's word, and waits for the page locks below it.
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
        // What the page holders published must be seen from here on.
        fence(Ordering::Acquire);
    }
    Held(region)
}

/// Takes a region's word if nobody holds it, and says whether there was an intention.
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

/// Waits a little longer each time: spins, yields, sleeps. No wake-up is needed, so that unlocking
/// can be a plain store; the price is a tenth of a millisecond after a long wait.
#[derive(Debug)]
pub struct Patience {
    backoff: Backoff,
    sleep: Duration,
}

impl Patience {
    const FIRST_SLEEP: Duration = Duration::from_micros(20);
    const LONGEST_SLEEP: Duration = Duration::from_micros(100);

    /// Has not waited yet.
    pub fn new() -> Self {
        Patience { backoff: Backoff::new(), sleep: Self::FIRST_SLEEP }
    }

    /// Waits.
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

    /// The first version took the pages of an operation one by one and waited for the next with one
    /// in hand: it hung within seconds beside writers of the whole region.
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
            // It has the region, and waits for the page.
            while !r.word.is_held() {
                std::thread::yield_now();
            }
            assert!(!region.is_finished());
            drop(page);
        });
    }

    /// The same once more, step by step: whoever has a page when somebody wants the region gives it
    /// back while it waits for the next one.
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
