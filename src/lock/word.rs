//! The lock word, and what a reader does with it.
//!
//! Owns: the bits of the word, its version, and the checks of an optimistic read.
//!
//! Invariants: those of the parent. Only the lock holder stores to a locked word.
//!
//! May import: `primitive`, `thread_cache` and the planted bugs.

use crate::mutant::planted;
use crate::primitive::{AtomicU64, Ordering, fence};
use crate::thread_cache;

/// A thread has locked this word in order to write.
pub(super) const LOCKED: u64 = 1;

/// Exclusive: readers wait, because the lock holder is changing what the word protects.
pub(super) const CLOSED: u64 = 2;

/// Region words only: page locks below may be held. Set by the first thread that locks a page, and
/// cleared lazily by the next thread that locks the region: MGSP's lazily cleaned intention lock.
pub(super) const INTENT: u64 = 4;

/// The lock holder will not change what the word protects.
pub(super) const STABLE: u64 = 8;

pub(super) const VERSION: u64 = !(LOCKED | CLOSED | INTENT | STABLE);

pub(super) const STEP: u64 = 16;

/// Lock and version in one word. The version has 60 bits and does not wrap.
#[derive(Debug, Default)]
pub struct LockWord(pub(super) AtomicU64);

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
    pub fn is_locked(&self) -> bool {
        self.0.load(Ordering::SeqCst) & LOCKED != 0
    }

    /// Returns `true` if a thread holds this word and will change nothing under it, as a durable
    /// point does.
    #[inline]
    pub fn is_stable(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (LOCKED | STABLE) == LOCKED | STABLE
    }

    /// Returns `true` if a thread may be writing under this word. The caller has executed a
    /// sequentially consistent fence before this call, as
    /// [`make_exclusive_and_fence`](super::make_exclusive_and_fence) does.
    pub fn is_written_after_fence(&self) -> bool {
        self.0.load(Ordering::Acquire) & (LOCKED | STABLE) == LOCKED
    }

    /// Makes readers wait. The lock holder calls this before it changes what readers see.
    #[inline]
    pub(super) fn close(&self) {
        // Only the lock holder stores to a locked word, so load and store need not be one atomic
        // step.
        self.0.store(self.0.load(Ordering::Relaxed) | CLOSED, Ordering::Relaxed);
        // Orders the bit before the changes that follow: a reader that sees a change sees the bit,
        // too.
        fence(Ordering::Release);
    }

    /// Unlocks the word, with a new version if the word was closed, and unchanged otherwise.
    #[inline]
    pub(super) fn release(&self) {
        let word = self.0.load(Ordering::Relaxed);
        let step = if word & CLOSED != 0 { STEP } else { 0 };
        if step != 0 {
            thread_cache::note_published();
        }
        let step = if word & CLOSED != 0 && !planted!(NoNewVersion) { STEP } else { 0 };
        // A plain store, see the module comment. Release: the changes come before it.
        self.0.store((word & !(LOCKED | CLOSED | STABLE)) + step, Ordering::Release);
    }
}

/// The lock words of a page and of its region, as a reader of the page found them when it began.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    region: u64,
    page: u64,
}

impl Stamp {
    /// Returns both words for an optimistic read, or `None` while one of them is closed:
    /// [`LockWord::begin`] of both.
    #[inline]
    pub fn begin(region: &LockWord, page: &LockWord) -> Option<Stamp> {
        let (region, page) = (region.0.load(Ordering::Acquire), page.0.load(Ordering::Acquire));
        ((region | page) & CLOSED == 0 || planted!(ClosedIsOpen)).then_some(Stamp { region, page })
    }

    /// Returns `true` if both words are open and still at their versions: [`LockWord::is_still`] of
    /// both. The caller has executed an acquire fence between its reads and this call.
    #[inline]
    pub fn is_still(self, region: &LockWord, page: &LockWord) -> bool {
        let closed = if planted!(ClosedIsStill) { 0 } else { CLOSED };
        let of_region = (region.0.load(Ordering::Relaxed) ^ self.region) & (VERSION | closed);
        let of_page = (page.0.load(Ordering::Relaxed) ^ self.page) & (VERSION | closed);
        (of_region == 0 || planted!(RegionNotValidated))
            & (of_page == 0 || planted!(PageNotValidated))
    }
}
