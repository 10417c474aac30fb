//! Holds the state of pages and regions in DRAM, which is created when a region is loaded.
//!
//! Owns:
//! - for each page: its lock with the version, its cached slice word, its pins, and the lanes that
//!   may name it in active flip records;
//! - for each region: its lock and its cached region word.
//!
//! Invariant: the cached words equal the words on the medium as of the last commit that returned.
//! The cached words change only while the page's or the region's lock is held exclusively.
//!
//! Cost: 26 bytes a page of a loaded region, or 0.64 %. Durable words take 8 bytes a page more
//! where durable points are kept, pins 4 bytes where a view has pinned, claims 8 bytes where a
//! stage was made, snapshots 16 bytes, and page sums 16 bytes. The stamps of `pair::stamps` come on
//! top.
//!
//! Fields that every operation needs lie close together. Seldom ones are loaded only if a word
//! for the whole region says so. Beyond the hardware's limit, cache misses are most of the cost of
//! an operation (`docs/decisions/prefetch.md`).
//!
//! May import `pair::sums`, `lock`, `bitmap`, `units`, `primitive`.

use crate::bitmap::{Side, Slices, Validity};
use crate::lock::{Backoff, LockWord};
use crate::mutant::{planted, unless};
use crate::pair::sums::RegionSums;
use crate::primitive::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, OnceBox, Ordering, many};
use crate::units::PAGES_PER_REGION;
use std::ops::Range;

/// The state of one page that every operation needs. Four of them share a cache line.
#[derive(Debug)]
#[repr(align(16))]
pub struct PageState {
    /// The lock, with its version.
    pub lock: LockWord,
    slice_word: AtomicU64,
}

/// The slices of a page that a keep record of `epoch` or a later one has. Changed under the page's
/// lock.
#[derive(Debug)]
pub struct KeptSlices {
    /// 0 until a first operation in this session has looked. Not less than the epoch of any record
    /// that the session has added for the page.
    epoch: AtomicU64,
    slices: AtomicU64,
}

/// The state of one region and its pages.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct RegionState {
    /// The lock, with its version and the intention of page lock holders.
    pub lock: LockWord,
    region_word: AtomicU64,
    /// Pages with a lane in `lanes`. A writer skips all others.
    named_pages: AtomicU64,
    /// Pages with a pin in `pins`, or with staged slices. A writer skips all others.
    pinned_pages: AtomicU64,
    /// Pages that have changed since a consumer of changes took them last (`pair::dirty`). A bit
    /// may outlive its reason.
    changed: AtomicU64,
    /// The slots of each page's slices at the last durable point. `None` if no durable points are
    /// kept.
    pub(super) durable: Option<Box<[AtomicU64; PAGES_PER_REGION]>>,
    /// 1 if the home file's bytes may be loaded and stored through the mapping, because their chunk
    /// is known to be allocated (`known::HOME`). A copy of that flag for reads and direct stores,
    /// which load this line in any case.
    home_loadable: AtomicU8,
    /// `true` while a holder of some page locks has locked the region word.
    word_is_taken: AtomicBool,
    /// Pages with a deployed stamp (`pair::stamps`) that may be odd.
    stamped_pages: AtomicU64,
    /// Those of them with a stamp, and not only with a transaction that watches. For an assertion.
    #[cfg(any(debug_assertions, shuttle, feature = "mutants"))]
    with_stamp: AtomicU64,
    /// The state of each page.
    pub pages: [PageState; PAGES_PER_REGION],
    /// Private lanes with active flip records that may name a page, one bit a lane. Changed under
    /// the page's lock only. A bit may outlive its reason; the lock holder that finds this clears
    /// it.
    lanes: [AtomicU64; PAGES_PER_REGION],
    /// Number of views that need the home slots of a page to stay unchanged. Made by the first view
    /// that pins a page of the region.
    pins: OnceBox<[AtomicU32; PAGES_PER_REGION]>,
    /// The slices of each page with a free slot that a stage claims (`pair::claims`). Made by the
    /// first stage over a page of the region.
    pub(super) staged: OnceBox<[AtomicU64; PAGES_PER_REGION]>,
    /// The slices of each page that are kept for snapshots. Made by the first operation that looks.
    kept: OnceBox<[KeptSlices; PAGES_PER_REGION]>,
    /// The sums of the pages. Made by the first operation that needs one.
    sums: OnceBox<RegionSums>,
    /// Pages that transactions watch (`read::read_set`). Each has its bit in `stamped_pages` as
    /// well, because a writer checks only that.
    watched: AtomicU64,
    /// The counted reads of each page. The upper bits hold the low bits of the version that these
    /// reads have seen.
    reads: [AtomicU8; PAGES_PER_REGION],
}

// The words of a model checker are larger.
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<PageState>() == 16);

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<RegionState>() * 100 < crate::units::REGION, "below 1 %");

impl PageState {
    /// Returns the cached copy of the page's slice word.
    #[inline]
    pub fn slice_word(&self) -> u64 {
        self.slice_word.load(Ordering::Relaxed)
    }
}

/// The lock of a region word. Dropping it releases the word.
#[derive(Debug)]
pub struct WordGuard<'a>(&'a AtomicBool);

impl Drop for WordGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: the stores to the word and their drain come before.
        self.0.store(false, Ordering::Release);
    }
}

/// The bits of [`RegionState::reads`] that hold the count.
const READ_COUNT: u8 = 0b111;

impl RegionState {
    /// Creates the state of a region from its words on the medium.
    pub fn new(
        region_word: u64,
        slice_words: &[u64; PAGES_PER_REGION],
        durable: Option<&[u64; PAGES_PER_REGION]>,
    ) -> Self {
        RegionState {
            lock: LockWord::new(),
            region_word: AtomicU64::new(region_word),
            named_pages: AtomicU64::new(0),
            pinned_pages: AtomicU64::new(0),
            changed: AtomicU64::new(0),
            durable: durable
                .map(|words| Box::new(std::array::from_fn(|n| AtomicU64::new(words[n])))),
            home_loadable: AtomicU8::new(0),
            word_is_taken: AtomicBool::new(false),
            stamped_pages: AtomicU64::new(0),
            #[cfg(any(debug_assertions, shuttle, feature = "mutants"))]
            with_stamp: AtomicU64::new(0),
            pages: std::array::from_fn(|n| PageState {
                lock: LockWord::new(),
                slice_word: AtomicU64::new(slice_words[n]),
            }),
            lanes: std::array::from_fn(|_| AtomicU64::new(0)),
            pins: OnceBox::new(),
            staged: OnceBox::new(),
            kept: OnceBox::new(),
            sums: OnceBox::new(),
            watched: AtomicU64::new(0),
            reads: std::array::from_fn(|_| AtomicU8::new(0)),
        }
    }

    /// Returns `true` if the home file's bytes are known to be loadable.
    #[inline]
    pub fn home_is_loadable(&self) -> bool {
        self.home_loadable() != 0
    }

    /// Returns 1 if the home file's bytes are known to be loadable, and 0 otherwise.
    #[inline(always)]
    pub fn home_loadable(&self) -> u8 {
        // Acquire: the allocation comes before.
        self.home_loadable.load(Ordering::Acquire)
    }

    /// Notes whether the home file's bytes are loadable.
    pub fn set_home_loadable(&self, loadable: bool) {
        self.home_loadable.store(loadable.into(), Ordering::Release);
    }

    /// Returns the pages with a deployed stamp that may be odd, and those that a transaction
    /// watches.
    #[inline]
    pub fn stamped_pages(&self) -> u64 {
        // Sequentially consistent, as is the step that took the page's lock. A transaction that
        // watches the page first sets the bit, and then checks the lock. A shrink sets `cutting`
        // and fences before this load.
        self.stamped_pages.load(Ordering::SeqCst)
    }

    /// Returns `true` if a transaction watches page `n`: both of its bits are set.
    pub fn is_watched(&self, n: usize) -> bool {
        (self.watched.load(Ordering::SeqCst) & self.stamped_pages()) >> n & 1 == 1
    }

    /// Watches page `n`. The caller checks the page's lock afterwards. A writer checks the bit in
    /// `stamped_pages`.
    pub fn set_watched(&self, n: usize) {
        self.watched.fetch_or(1 << n, Ordering::SeqCst);
        self.stamped_pages.fetch_or(1 << n, Ordering::SeqCst);
    }

    /// Ends the watch of the pages of `mask`, and returns which of them were watched. The caller
    /// holds their locks.
    pub fn end_watch(&self, mask: u64) -> u64 {
        self.watched.fetch_and(!mask, Ordering::SeqCst) & mask
    }

    /// Notes that the stamp of page `n` may be odd. The caller holds the page's lock, and checks
    /// `cutting` afterwards.
    pub fn set_stamped(&self, n: usize) {
        #[cfg(any(debug_assertions, shuttle, feature = "mutants"))]
        self.with_stamp.fetch_or(1 << n, Ordering::Relaxed);
        self.stamped_pages.fetch_or(1 << n, Ordering::SeqCst);
    }

    /// Notes that the stamps of the pages of `mask` are even. The caller holds their locks.
    pub fn clear_stamped(&self, mask: u64) {
        #[cfg(any(debug_assertions, shuttle, feature = "mutants"))]
        self.with_stamp.fetch_and(!mask, Ordering::Relaxed);
        self.stamped_pages.fetch_and(!mask, Ordering::Relaxed);
    }

    /// Asserts that no page of `mask` is noted as stamped: a reader would trust its bytes, which
    /// are about to change.
    #[inline]
    pub fn assert_left_home(&self, mask: u64) {
        #[cfg(any(debug_assertions, shuttle, feature = "mutants"))]
        {
            // Not `stamped_pages`: a transaction may begin to watch a page while a writer holds it.
            //
            // Relaxed: the bits of the pages change under the locks that the caller holds.
            let known = self.with_stamp.load(Ordering::Relaxed) & mask;
            assert!(known == 0 || planted!(HomeNotLeft), "stamped pages: {known:x}");
        }
        #[cfg(not(any(debug_assertions, shuttle, feature = "mutants")))]
        let _ = mask;
    }

    /// Returns the cached copy of the region word.
    #[inline]
    pub fn region_word(&self) -> u64 {
        self.region_word.load(Ordering::Relaxed)
    }

    /// Locks the region word, on the medium and in its cached copy. For a holder of some page locks
    /// that is about to flip the bits of these pages. Returns `None` if another writer has the
    /// word. The holder of the region's lock needs no word lock, because no page is locked
    /// meanwhile.
    ///
    /// So no two writers share an update of the word. A shared update takes a locked instruction,
    /// which waits for all earlier stores, and needs the medium's line in the cache. The holder of
    /// the word stores it past the cache.
    #[inline]
    pub fn try_lock_word(&self) -> Option<WordGuard<'_>> {
        let is_free = !self.word_is_taken.load(Ordering::Relaxed)
            // Acquire: the previous holder has stored to the word and drained.
            && !self.word_is_taken.swap(true, Ordering::Acquire);
        (is_free || planted!(WordTakenTwice)).then(|| WordGuard(&self.word_is_taken))
    }

    /// Locks the region word, and waits while another writer has it. That writer waits for no lock
    /// of a page or region meanwhile.
    #[cold]
    pub fn take_word(&self) -> WordGuard<'_> {
        let mut backoff = Backoff::new();
        loop {
            backoff.wait();
            if let Some(taken) = self.try_lock_word() {
                return taken;
            }
        }
    }

    /// Flips bits of the cached region word. The locks of their pages are held exclusively. The
    /// caller has [locked](Self::try_lock_word) the region word, or holds the region's lock.
    #[inline]
    pub fn flip_region_bits(&self, mask: u64) {
        // Not in models: a model of these bits alone has no lock holders, and a scheduler counts
        // each load as a step.
        if cfg!(any(debug_assertions, feature = "mutants")) && !cfg!(any(loom, shuttle)) {
            let is_ours = self.word_is_taken.load(Ordering::Relaxed) || self.lock.is_locked();
            assert!(is_ours, "a thread that flips bits of the region word holds it, or the region");
        }
        self.assert_left_home(mask);
        self.region_word.store(self.region_word() ^ mask, Ordering::Relaxed);
    }

    /// Returns the region bit of page `n`.
    #[inline]
    pub fn region_bit(&self, n: usize) -> bool {
        self.region_word() >> n & 1 == 1
    }

    /// Returns the valid slots of page `n`.
    #[inline]
    pub fn validity(&self, n: usize) -> Validity {
        self.validity_of(&self.pages[n], n)
    }

    /// Returns the valid slots of `page`, which is page `n`.
    #[inline]
    pub fn validity_of(&self, page: &PageState, n: usize) -> Validity {
        Validity::new(page.slice_word(), self.region_bit(n) && !planted!(RegionBitIgnored))
    }

    /// Returns the valid slot of slice `slice` of page `n`. Cheaper than
    /// [`validity`](Self::validity) if only one slice matters.
    #[inline(always)]
    pub fn side(&self, n: usize, slice: usize) -> Side {
        match (self.pages[n].slice_word() >> slice ^ self.region_word() >> n) & 1 {
            0 => Side::Home,
            _ => Side::Reflection,
        }
    }

    /// Changes the cached slice word of page `n`. The page's lock or the region's is held
    /// exclusively.
    #[inline(always)]
    pub fn set_slice_word(&self, n: usize, word: u64) {
        self.assert_left_home(1 << n);
        self.pages[n].slice_word.store(word, Ordering::Relaxed);
    }

    /// Returns the side on which all slices of the pages are valid, if there is one. A caller
    /// without their locks validates the versions before and after, or treats the result as a hint.
    #[inline]
    pub fn valid_side(&self, pages: Range<usize>) -> Option<Side> {
        let (mut none, mut all) = (0, !0);
        for n in pages {
            let valid = self.validity(n).0;
            none |= valid;
            all &= valid;
        }
        match (none, all) {
            (0, _) => Some(Side::Home),
            (_, u64::MAX) => Some(Side::Reflection),
            _ => None,
        }
    }

    /// Returns the valid slots of page `n` at the last durable point. Where no durable points are
    /// kept, these are the valid slots of now.
    #[inline]
    pub fn durable(&self, n: usize) -> Validity {
        match &self.durable {
            Some(durable) => Validity(durable[n].load(Ordering::Relaxed)),
            None => self.validity(n),
        }
    }

    /// Sets the valid slots of page `n` at the last durable point. The caller holds the page's
    /// lock.
    pub fn set_durable(&self, n: usize, valid: Validity) {
        if let Some(durable) = &self.durable {
            durable[n].store(valid.0, Ordering::Relaxed);
        }
    }

    /// Notes that the pages of `mask` are about to change. Returns `true` if no page of the region
    /// was noted before.
    pub fn note_changed(&self, mask: u64) -> bool {
        let before = self.changed.load(Ordering::Relaxed);
        before & mask != mask && self.changed.fetch_or(mask, Ordering::Relaxed) == 0
    }

    /// Returns the noted pages, and clears the note. No thread commits meanwhile.
    pub fn take_changed(&self) -> u64 {
        self.changed.swap(0, Ordering::Relaxed)
    }

    /// Returns the pages of the region that active flip records may name.
    #[inline]
    pub fn named_pages(&self) -> u64 {
        self.named_pages.load(Ordering::Relaxed)
    }

    /// Returns the lanes with active flip records that may name page `n`. The caller holds the
    /// page's lock.
    #[inline]
    pub fn lanes(&self, n: usize) -> u64 {
        // A lock holder sets the bit of the lane before the bit of the page, and clears them in the
        // reverse order.
        if self.named_pages() >> n & 1 == 0 { 0 } else { self.lanes[n].load(Ordering::Relaxed) }
    }

    /// Notes that an active flip record of `lane` may name page `n`. The caller holds the page's
    /// lock.
    #[inline]
    pub fn set_lane_bit(&self, n: usize, lane: u16) {
        let lanes = self.lanes[n].load(Ordering::Relaxed);
        if lanes >> lane & 1 == 0 {
            self.lanes[n].store(lanes | 1 << lane, Ordering::Relaxed);
        }
        if self.named_pages() >> n & 1 == 0 && !planted!(NamedPageNotNoted) {
            self.named_pages.fetch_or(1 << n, Ordering::Relaxed);
        }
    }

    /// Replaces the set of lanes of page `n` by a subset. The caller holds the page's lock.
    pub fn retain_lanes(&self, n: usize, lanes: u64) {
        if lanes == 0 {
            self.forget_named_pages(1 << n);
        }
        self.lanes[n].store(lanes, Ordering::Relaxed);
    }

    /// Returns the pages of the region that a view may pin, or a stage claim slots of. A bit may
    /// outlive its reason.
    #[inline]
    pub fn pinned_pages(&self) -> u64 {
        // Sequentially consistent, as is the load of the pins: see `deploy::pin`.
        self.pinned_pages.load(Ordering::SeqCst)
    }

    /// Returns `true` if a view needs the home slots of page `n`. The caller holds the page's lock.
    #[inline(always)]
    pub fn is_pinned(&self, n: usize) -> bool {
        let count = || self.pins.get().map_or(0, |pins| pins[n].load(Ordering::SeqCst));
        self.pinned_pages() >> n & 1 == 1 && count() != 0
    }

    /// Returns `true` if page `n` has no pin and no deployed stamp, so that the lock holder may
    /// store to it directly. May return `false` for a stale pin.
    #[inline(always)]
    pub fn has_no_observers(&self, n: usize) -> bool {
        let pinned = if planted!(PinNotSeen) { 0 } else { self.pinned_pages() };
        let known = if planted!(KnownNotSeen) { 0 } else { self.stamped_pages() };
        (pinned | known) >> n & 1 == 0
    }

    /// Returns the pin count of page `n`, for a prefetch of its line, if the region has counts.
    #[inline]
    pub fn pins(&self, n: usize) -> Option<&AtomicU32> {
        self.pins.get().map(|pins| &pins[n])
    }

    /// Returns the lanes of page `n`, for a prefetch of their line.
    #[inline]
    pub fn named(&self, n: usize) -> &AtomicU64 {
        &self.lanes[n]
    }

    /// Returns `true` if the count has room for one more pin: any number of views can be leaked.
    #[inline]
    pub fn can_pin(&self, n: usize) -> bool {
        self.pins(n).is_none_or(|pins| pins.load(Ordering::Relaxed) < u32::MAX / 2)
    }

    /// Pins the home slots of page `n`. The caller holds the page's lock, or checks it afterwards.
    /// Both steps are sequentially consistent for that check.
    #[inline]
    pub fn pin(&self, n: usize) {
        let pins = self.pins.get_or_init(|| many(|| AtomicU32::new(0)));
        pins[n].fetch_add(1, Ordering::SeqCst);
        self.note_pinned(n);
    }

    /// Notes that page `n` has a pin or staged slices.
    #[inline]
    pub(super) fn note_pinned(&self, n: usize) {
        if self.pinned_pages() >> n & 1 == 0 {
            // Never cleared: a page that was viewed once may be viewed again. A writer that finds
            // the bit without a pin has only made one needless load.
            self.pinned_pages.fetch_or(1 << n, Ordering::SeqCst);
        }
    }

    /// Pins the home slots of page `n` without taking a lock. Returns `false`, with nothing pinned,
    /// if the page's lock or the region's is held. `deploy::pin` says why that is enough.
    #[inline]
    pub fn pin_unless_locked(&self, n: usize) -> bool {
        unless!(PinNotCounted, self.pin(n));
        let is_locked = self.lock.is_locked() || self.pages[n].lock.is_locked();
        if is_locked && !planted!(PinHeldPage) {
            unless!(PinNotGivenBack, self.unpin(n));
            return false;
        }
        true
    }

    /// Removes one pin of page `n`. Release: the view's reads come before it.
    #[inline]
    pub fn unpin(&self, n: usize) {
        let pins = self.pins(n).map_or(0, |pins| pins.fetch_sub(1, Ordering::Release));
        debug_assert!(pins > 0);
    }

    /// Returns the slices of page `n` that a record of `epoch` or a later one has, or `None` if the
    /// page does not remember that. `epoch` is that of the newest live snapshot that reaches the
    /// page. The caller holds the page's lock, or takes the answer for a hint.
    #[inline]
    pub fn kept_since(&self, n: usize, epoch: u64) -> Option<Slices> {
        let kept = &self.kept.get()?[n];
        let slices = || Slices(kept.slices.load(Ordering::Relaxed));
        match kept.epoch.load(Ordering::Relaxed) {
            0 => None,
            noted if noted == epoch => Some(slices()),
            noted if noted < epoch && planted!(KeptOverSeal) => Some(slices()),
            // The snapshot was sealed after all records of the page.
            noted if noted < epoch => Some(Slices::NONE),
            // That snapshot was dropped. An older one may have got more.
            _ if planted!(KeptOverDrop) => Some(Slices::NONE),
            _ => None,
        }
    }

    /// Notes the slices of page `n` that a record of `epoch` or a later one has. The caller holds
    /// the page's lock.
    pub fn set_kept_since(&self, n: usize, epoch: u64, slices: Slices) {
        let none = || KeptSlices { epoch: AtomicU64::new(0), slices: AtomicU64::new(0) };
        let kept = &self.kept.get_or_init(|| many(none))[n];
        kept.epoch.store(epoch, Ordering::Relaxed);
        kept.slices.store(slices.0, Ordering::Relaxed);
    }

    /// Returns the sums of the region's pages.
    pub fn sums(&self) -> &RegionSums {
        self.sums.get_or_init(|| Box::new(RegionSums::new()))
    }

    /// Counts a read of page `n`. Returns the number of reads counted since the last write of the
    /// page, or of its region as a whole, at most 7.
    ///
    /// The count is a heuristic. Two concurrent readers may count as one. Only the low bits of the
    /// version are kept, so a version may be taken for an older one.
    pub fn count_read(&self, n: usize) -> u8 {
        let (Some(region), Some(page)) = (self.lock.begin(), self.pages[n].lock.begin()) else {
            return 0;
        };
        let version = (region.number() + page.number()) << READ_COUNT.count_ones();
        let (version, known) = (version as u8, self.reads[n].load(Ordering::Relaxed));
        let before = if known & !READ_COUNT == version { known & READ_COUNT } else { 0 };
        let count = (before + 1).min(READ_COUNT);
        self.reads[n].store(version | count, Ordering::Relaxed);
        count
    }

    /// Resets the count of page `n`.
    pub fn forget_reads(&self, n: usize) {
        self.reads[n].store(0, Ordering::Relaxed);
    }

    /// Clears the bits of pages of `mask` that no lane names any more. The caller holds their
    /// locks, or the region's.
    pub fn forget_named_pages(&self, mask: u64) {
        self.named_pages.fetch_and(!mask, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// A transaction begins to watch a page in two steps. A writer that clears the page's bits
    /// between them leaves the second bit alone. An assertion once took that bit for a stamp, so a
    /// writer beside transactions of more than 32 pages panicked, in builds with assertions.
    #[test]
    fn a_writer_between_the_steps_of_a_watch_finds_no_stamp() {
        let region = RegionState::new(0, &[0; PAGES_PER_REGION], None);
        region.set_stamped(0);
        region.watched.fetch_or(1, Ordering::SeqCst);
        region.end_watch(region.stamped_pages() & 1);
        region.clear_stamped(1);
        region.stamped_pages.fetch_or(1, Ordering::SeqCst);
        region.set_slice_word(0, 1);
        region.set_stamped(1);
        let write = || region.set_slice_word(1, 1);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(write)).is_err(), "a stamp");
    }
}
