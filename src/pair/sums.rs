//! Holds the sums of a region's pages in DRAM, and reads and stores them on the medium.
//!
//! A page has three places for its sum (`format::layout`). One of them holds the sum of what the
//! page holds in the present. Where durable points are kept, one holds that of the last durable
//! point. A new sum goes to a place that is neither, so that what a crash goes back to keeps its
//! sum. After an opening it is not known which place counts: the first operation that touches the
//! page compares what it finds with all of them.
//!
//! Invariant: a page is verified if, and only if, its sum in DRAM is that of its valid slices, up
//! to the file's length. The state of a page changes under its lock.
//!
//! May import `mmap`, `format`, `page_sum`, `error`, `units`, `primitive`.

use crate::config::integrity::Integrity;
use crate::error::{Error, Result};
use crate::format::layout::{self, PAGE_SUMS_LEN, SUM_PLACES};
use crate::format::le_word;
use crate::mmap::MappedFile;
use crate::mutant::{planted, unless};
use crate::page_sum;
use crate::pair::Pair;
use crate::platform::Copying;
use crate::primitive::{AtomicU8, AtomicU64, Ordering};
use crate::units::{PAGES_PER_REGION, PageIndex, WORD};

/// The sum of one page.
#[derive(Debug)]
struct PageSum {
    /// The sum of the page in the present, if the page is verified.
    sum: AtomicU64,
    /// The place of that sum.
    present: AtomicU8,
    /// The place of the sum at the last durable point. Equal to `present` if the page has not
    /// changed since, or if no durable points are kept.
    durable: AtomicU8,
}

/// The sums of the pages of one region.
#[derive(Debug)]
pub struct RegionSums {
    /// The pages that are verified.
    verified: AtomicU64,
    pages: [PageSum; PAGES_PER_REGION],
}

impl RegionSums {
    /// Makes the sums of a region of which no page is verified.
    pub fn new() -> Self {
        let unknown = |_| PageSum {
            sum: AtomicU64::new(0),
            present: AtomicU8::new(0),
            durable: AtomicU8::new(0),
        };
        RegionSums { verified: AtomicU64::new(0), pages: std::array::from_fn(unknown) }
    }

    /// Returns the pages that are verified, one bit a page.
    #[inline]
    pub fn verified(&self) -> u64 {
        // Acquire: the sums of these pages come before.
        self.verified.load(Ordering::Acquire)
    }

    /// Returns `true` if page `n` is verified.
    #[inline]
    pub fn is_verified(&self, n: usize) -> bool {
        self.verified() >> n & 1 == 1
    }

    /// Returns the sum of page `n`, which is verified. A caller without its lock validates the
    /// page's version afterwards.
    pub fn sum(&self, n: usize) -> u64 {
        self.pages[n].sum.load(Ordering::Relaxed)
    }

    /// Returns the place for the next sum of page `n`. The caller holds the page's lock.
    pub fn free_place(&self, n: usize) -> u8 {
        let page = &self.pages[n];
        let (present, durable) =
            (page.present.load(Ordering::Relaxed), page.durable.load(Ordering::Relaxed));
        if planted!(SumOverDurable) {
            return (0..).find(|place| *place != present).unwrap_or(0);
        }
        (0..).find(|place| *place != present && *place != durable).unwrap_or(0)
    }

    /// Sets the sum of page `n`, which lies in `place`. Where no durable points are kept, that is
    /// also the place of the durable state. The caller holds the page's lock.
    pub fn set(&self, n: usize, (place, sum): (u8, u64), is_durable: bool) {
        let page = &self.pages[n];
        page.sum.store(sum, Ordering::Relaxed);
        page.present.store(place, Ordering::Relaxed);
        if is_durable {
            page.durable.store(place, Ordering::Relaxed);
        }
        // Release: a thread that finds the page verified finds its sum.
        self.verified.fetch_or(1 << n, Ordering::Release);
    }

    /// Returns the place of the sum of page `n` at the last durable point. The caller holds the
    /// page's lock.
    pub fn durable_place(&self, n: usize) -> u8 {
        self.pages[n].durable.load(Ordering::Relaxed)
    }

    /// Returns the places of page `n` that neither the present nor the last durable point needs.
    /// The caller holds the page's lock.
    fn stale_places(&self, n: usize) -> impl Iterator<Item = u8> {
        let page = &self.pages[n];
        let needed = [page.present.load(Ordering::Relaxed), page.durable.load(Ordering::Relaxed)];
        (0..SUM_PLACES as u8).filter(move |place| !needed.contains(place))
    }

    /// Returns `true` if the sum of page `n` has moved since the last durable point.
    pub fn has_moved(&self, n: usize) -> bool {
        let page = &self.pages[n];
        page.present.load(Ordering::Relaxed) != page.durable.load(Ordering::Relaxed)
    }

    /// Notes that the present of page `n` is the last durable point. The caller holds the page's
    /// lock.
    pub fn set_durable(&self, n: usize) {
        let page = &self.pages[n];
        page.durable.store(page.present.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The three places of a page, as they are on the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredSums([u64; SUM_PLACES]);

impl StoredSums {
    /// Returns the place that holds this sum of the page.
    pub fn place_of(&self, page: PageIndex, sum: u64) -> Option<u8> {
        let stored = page_sum::stored(page, sum);
        self.0.iter().position(|place| *place == stored).map(|place| place as u8)
    }

    /// Returns what a place holds.
    pub fn at(&self, place: u8) -> u64 {
        self.0[usize::from(place)]
    }

    /// Returns what one of the places holds.
    pub fn any(&self) -> u64 {
        self.0[0]
    }

    /// Returns `true` if all places hold one sum.
    pub fn are_equal(&self) -> bool {
        self.0.iter().all(|place| *place == self.0[0])
    }
}

impl Pair {
    /// Returns `true` if the file has page sums.
    #[inline(always)]
    pub(crate) fn has_sums(&self) -> bool {
        self.integrity != Integrity::Off
    }

    /// Reads the sums of `count` consecutive pages of one region. They may lie in a hole.
    pub(crate) fn read_sums(&self, first: PageIndex, count: usize) -> Result<Vec<StoredSums>> {
        let at = layout::page_sums(first);
        let mut bytes = [0; PAGES_PER_REGION * PAGE_SUMS_LEN];
        let bytes = &mut bytes[..count * PAGE_SUMS_LEN];
        let read = self.reflection.read_file(bytes, at);
        read.map_err(|e| Error::io_at("read page sums", self.reflection.path(), at, e))?;
        let words = |page: &[u8]| {
            StoredSums(std::array::from_fn(|n| le_word(&page[n * WORD..(n + 1) * WORD])))
        };
        Ok(bytes.chunks_exact(PAGE_SUMS_LEN).map(words).collect())
    }

    /// Stores the sum of a page to one of its places, past the cache. The caller drains before
    /// it opens the page's lock: otherwise the store may arrive over the sum of a later operation.
    /// The places are allocated.
    pub(crate) fn store_sum(&self, page: PageIndex, place: u8, sum: u64) {
        self.reflection.store_word_through(place_at(page, place), page_sum::stored(page, sum));
    }

    /// Stores the sum of a page to all of its places, through the cache. A flip record covers it,
    /// or the next opening stores it again. The caller holds the page's lock, and the places are
    /// allocated.
    #[inline]
    pub(crate) fn store_covered_sum(&self, page: PageIndex, sum: u64) {
        (0..SUM_PLACES as u8).for_each(|place| self.store_cached_sum(page, place, sum));
    }

    /// Stores the sum of a page to one of its places, through the cache, and does not flush it.
    #[inline(always)]
    fn store_cached_sum(&self, page: PageIndex, place: u8, sum: u64) {
        self.reflection.store_word(place_at(page, place), page_sum::stored(page, sum));
    }

    /// Stores the present sum of a page to each place that no state needs any more: neither the
    /// present nor the last durable point. So no older state of the page passes after a crash, and
    /// no lost block. The caller holds the page's lock, and the places are allocated.
    pub(crate) fn replace_stale_sums(&self, page: PageIndex, sums: &RegionSums) {
        let n = page.in_region();
        let mut stale = sums.stale_places(n).peekable();
        if stale.peek().is_none() {
            return;
        }
        // Through the cache, where it cannot arrive late: no drain follows, and the next operation
        // may take this place.
        stale.for_each(|place| match planted!(StaleSumStreamed) {
            true => self.store_sum(page, place, sums.sum(n)),
            false => self.store_cached_sum(page, place, sums.sum(n)),
        });
        self.flush_sums(page);
    }

    /// Flushes the line with the places of a page, without waiting.
    #[inline]
    pub(crate) fn flush_sums(&self, page: PageIndex) {
        unless!(CoveredSumNotFlushed, self.reflection.flush_word(place_at(page, 0)));
    }
}

fn place_at(page: PageIndex, place: u8) -> u64 {
    layout::page_sums(page) + u64::from(place) * WORD as u64
}

/// Stores a stored sum to all places of a page, which are allocated. The next drain makes them
/// durable.
pub(crate) fn store_all_places(reflection: &MappedFile, page: PageIndex, stored: u64) {
    let words = [stored; SUM_PLACES].map(u64::to_le_bytes);
    reflection.copy_in(layout::page_sums(page), words.as_flattened(), Copying::BySize);
}
