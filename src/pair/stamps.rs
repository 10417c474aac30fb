//! Holds one stamp for each page, by which a read recognizes deployed pages with a single load.
//!
//! The cost of a read, beyond its one cache miss, is the number of its loads and stores. The
//! processor keeps each of them until all earlier ones are done, and its window is limited
//! (`docs/decisions/deployed-stamps.md`). Finding and judging the state of a page takes some ten
//! loads, the first of them in a chain. The stamp replaces all of them. The stamps of consecutive
//! pages lie next to each other in memory.
//!
//! A stamp is odd while its page is known to be deployed, loadable, and entirely inside the file.
//! This is not a heuristic. If a reader sees the same odd stamp before and after its copy, the copy
//! is consistent. The same holds for a read of several pages, if all their stamps were odd before
//! the copy and are unchanged after it. At every moment in between, all of these pages were
//! deployed.
//!
//! Invariants:
//! - a stamp changes only under the page's lock or its region's, and it only grows. So a stamp that
//!   has the same value twice did not change in between;
//! - a stamp is even before anything changes that it covers. A writer makes it even
//!   ([`Pair::clear_stamp`]) after it has taken its locks, and before a release fence. As a rule
//!   that is the fence of making the locks exclusive; it orders the stamp before the writer's
//!   changes;
//! - a shrink makes all stamps past the new end even before the new length becomes visible. From
//!   then until the truncation is done, no stamp becomes odd (`cutting`);
//! - the region has a bit for each page with a stamp that may be odd
//!   ([`RegionState::stamped_pages`]). A writer of other pages loads no stamp.
//!
//! A page gets an odd stamp when it is deployed. A sample of the reads that find a page deployed
//! also set its stamp. That takes the page's lock, if it is free. A concurrent writer waits
//! meanwhile; a transaction that has read the page does not notice.
//!
//! May import `pair::{region, hints, log, stats}`, `lock`, `bitmap`, `units`, and words and fences
//! of `platform`.

use crate::bitmap::{Side, Validity, bits, span};
use crate::lock::try_lock_page_stable;
use crate::mutant::{planted, unless};
use crate::pair::Pair;
use crate::pair::region::RegionState;
use crate::platform::{ZeroedWords, barrier};
use crate::primitive::{AtomicU64, OnceBox, Ordering};
use crate::units::{PAGE, PageIndex, RegionIndex};
use std::ops::Range;

/// One in this many reads that find their page deployed sets its stamp. Setting it takes as long as
/// one or two of these reads.
pub(crate) const NOTED: u32 = if cfg!(shuttle) { 1 } else { 13 };

/// The stamps cover `TIMES` the file's length at the moment they are created, and at least `LEAST`
/// bytes. Later pages never have one. They do not cover the maximum length, because reserved
/// address space counts against a process limit even if it is unused.
const TIMES: u64 = 4;

pub(crate) const LEAST: u64 = 1 << 30;

/// The stamps of all pages.
#[derive(Debug)]
pub struct DeployedStamps {
    max_len: u64,
    /// Created when the first page is stamped. A file that is only written has none.
    words: OnceBox<ZeroedWords>,
}

impl DeployedStamps {
    /// Creates the set for a file of at most `max_len` bytes, without allocating any stamp.
    pub fn new(max_len: u64) -> Self {
        DeployedStamps { max_len, words: OnceBox::new() }
    }

    /// Returns the stamp of `page`, if stamps exist and cover it.
    #[inline(always)]
    pub fn word(&self, page: PageIndex) -> Option<DeployedStamp<'_>> {
        self.words.get()?.get(page.0).map(DeployedStamp)
    }

    /// Starts a read of the pages with these numbers. Returns the sum of their stamps if all are
    /// odd.
    #[inline]
    pub fn begin_all(&self, pages: Range<u64>) -> Option<StampSum> {
        let words = self.words.get()?;
        let pages = if planted!(KnownByTheFirst) { pages.start..pages.start + 1 } else { pages };
        StampSum::begin(pages.map(|n| words.get(n).map(DeployedStamp)))
    }

    /// Returns `true` if `page` has a stamp, or may get one when stamps are created.
    pub fn may_have_word(&self, page: PageIndex) -> bool {
        self.words.get().is_none_or(|words| words.get(page.0).is_some())
    }

    /// Returns the stamp of `page`. Creates the stamps for a file of `len` bytes first if there are
    /// none.
    ///
    /// Memory is taken only where stamps are used: 8 bytes a page of the file, in whole memory
    /// pages. Returns `None` if the page is not covered, or if the system cannot provide memory on
    /// demand.
    pub fn make_word(&self, page: PageIndex, len: u64) -> Option<DeployedStamp<'_>> {
        self.words.get_or_init(|| {
            let covered = len.saturating_mul(TIMES).max(LEAST).min(self.max_len);
            Box::new(ZeroedWords::new(covered.div_ceil(PAGE as u64)))
        });
        self.word(page)
    }
}

/// The stamp of one page.
#[derive(Clone, Copy)]
pub struct DeployedStamp<'a>(&'a AtomicU64);

impl<'a> DeployedStamp<'a> {
    /// Wraps `word`. For models.
    #[cfg(all(test, loom))]
    pub fn of(word: &'a AtomicU64) -> Self {
        DeployedStamp(word)
    }

    /// Returns the stamp that a reader must find again after its copy, if it is odd.
    #[inline(always)]
    pub fn begin(self) -> Option<u64> {
        // Acquire: the bytes were copied to the home slots before the stamp became odd.
        let seen = self.0.load(Ordering::Acquire);
        (seen & 1 == 1).then_some(seen)
    }

    /// Returns `true` if the stamp is still `seen`. The caller has put an acquire fence between its
    /// reads and this call.
    #[inline(always)]
    pub fn is_still(self, seen: u64) -> bool {
        self.0.load(Ordering::Relaxed) == seen || planted!(HomeWordNotValidated)
    }

    /// Marks the page as deployed. The caller holds its lock.
    pub fn set(self) {
        let now = self.0.load(Ordering::Relaxed);
        if now.is_multiple_of(2) {
            // Release: the stores that deployed the page come first. A reader that finds the stamp
            // odd acquires it.
            self.0.store(now + 1, Ordering::Release);
        }
    }

    /// Clears the mark. The caller holds the page's lock, and a release fence follows before its
    /// changes.
    pub fn clear(self) {
        let now = self.0.load(Ordering::Relaxed);
        if !now.is_multiple_of(2) {
            let step = if planted!(HomeWordGoesBack) { now - 1 } else { now + 1 };
            // The fence of making the lock exclusive orders this store before the changes.
            self.0.store(step, Ordering::Relaxed);
        }
    }
}

/// The sum of the stamps of several pages, all of them odd. No stamp ever shrinks, so equal sums
/// mean that none has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StampSum(u64);

impl StampSum {
    /// Returns the sum that a reader must find again after its copy, if every page has an odd
    /// stamp.
    #[inline(always)]
    pub fn begin<'a>(words: impl Iterator<Item = Option<DeployedStamp<'a>>>) -> Option<StampSum> {
        let mut seen = words.map(|word| word?.begin());
        seen.try_fold(0u64, |sum, seen| Some(sum.wrapping_add(seen?))).map(StampSum)
    }

    /// Returns `true` if `now`, the sum of the stamps after the copy, equals this one. The caller
    /// has put an acquire fence between its reads and the computation of `now`.
    #[inline(always)]
    pub fn are_still(self, now: Option<StampSum>) -> bool {
        now == Some(self) || planted!(KnownNotValidated)
    }
}

impl Pair {
    /// Sets the stamp of `page`, if the page is free and deployed. The caller is in no read
    /// section.
    #[cold]
    #[inline(never)]
    pub(crate) fn stamp_sampled(&self, page: PageIndex) {
        let Some(region) = self.state.loaded(page.region()) else { return };
        let n = page.in_region();
        let is_known = region.stamped_pages() >> n & 1 == 1;
        // Checked without the lock first: a page that cannot be stamped is not to be locked by its
        // sampled reads.
        if is_known || !self.stamps.may_have_word(page) || !self.may_stamp(page, region) {
            return;
        }
        if let Some(_held) = try_lock_page_stable(&region.lock, &region.pages[n].lock) {
            self.stamp_deployed(page, region);
        }
    }

    /// Sets the stamps of all pages of `range` that are deployed and free, in regions that are
    /// loaded. The caller is in no read section.
    pub(crate) fn stamp_all_sampled(&self, range: Range<u64>) {
        let lane = self.lane();
        for span in span::regions(range) {
            let Some(region) = self.state.loaded(span.region) else { continue };
            {
                // Inside a read section and within the file, the allocation flags of the chunk
                // hold.
                let _pinned = lane.pin();
                if span.region.start() < self.len() {
                    self.note_loadable(region, span.region);
                }
            }
            span.pages.for_each(|n| self.stamp_sampled(span.region.page(n)));
        }
    }

    /// Sets the stamp of `page`, if the page is deployed and its stamp can be relied on. The caller
    /// holds the page's lock or its region's.
    pub(crate) fn stamp_deployed(&self, page: PageIndex, region: &RegionState) {
        let n = page.in_region();
        if region.stamped_pages() >> n & 1 == 1 {
            return;
        }
        // Set before the check of `cutting`. A shrink sets `cutting` before it looks at these bits.
        // So at least one of the two threads sees the other.
        region.set_stamped(n);
        let word = self.may_stamp(page, region).then(|| self.stamps.make_word(page, self.len()));
        match word.flatten() {
            Some(word) => word.set(),
            None => region.clear_stamped(1 << n),
        }
    }

    /// Returns `true` if the page is deployed, loadable and inside the file. For a caller that
    /// holds the page's lock, the answer stays true.
    fn may_stamp(&self, page: PageIndex, region: &RegionState) -> bool {
        // The length is loaded after `cutting`. If no shrink is under way, this is the length that
        // the last shrink has left, and the next shrink waits for the lock. SeqCst, as is the store
        // to `cutting`.
        let is_inside = (!self.session.cutting.load(Ordering::SeqCst)
            || planted!(KnownWhileCutting))
            && page.start() + PAGE as u64 <= self.len();
        let is_at_home = region.validity(page.in_region()) == Validity(0) || planted!(KnownAway);
        let is_loadable = region.home_is_loadable()
            || self.page_is_allocated(Side::Home, page)
            || planted!(HoleKnown);
        is_inside && is_at_home && is_loadable && barrier::is_usual()
    }

    /// Returns `true` if a writer of page `n` has to let a transaction pass that may have read it:
    /// the page has a stamp or is watched, and there is a turn. The caller holds the page's lock.
    #[inline(always)]
    pub(crate) fn is_in_turn(&self, region: &RegionState, n: usize) -> bool {
        region.stamped_pages() >> n & 1 == 1 && self.session.turn.load(Ordering::Relaxed)
    }

    /// Makes the stamps of the pages of `mask` even.
    ///
    /// The caller holds the locks of these pages, or their region's, and is about to change them. A
    /// release fence orders the stamps before its changes; as a rule that is the fence of making
    /// the locks exclusive.
    #[inline(always)]
    pub(crate) fn clear_stamp(&self, index: RegionIndex, region: &RegionState, mask: u64) {
        let known = region.stamped_pages() & mask;
        if known != 0 {
            unless!(HomeNotLeft, self.clear_stamps_of(index, region, known));
        }
    }

    #[cold]
    fn clear_stamps_of(&self, index: RegionIndex, region: &RegionState, known: u64) {
        if region.end_watch(known) != 0 {
            self.session.watched.note_change();
        }
        for n in bits(known) {
            if let Some(word) = self.stamps.word(index.page(n)) {
                word.clear();
            }
        }
        region.clear_stamped(known);
    }
}
