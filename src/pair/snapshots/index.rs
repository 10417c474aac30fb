//! Where the kept bytes of each page are, in DRAM.
//!
//! Owns: for each page its keep records, by epoch. Invariant: a record that is named here is whole
//! in the file, as far as this process sees it, and stays there until it is no longer named and
//! all readers have left ([`collect`](super::collect)).
//!
//! A page's lock here is taken last and held briefly: nothing else is locked under it. May import
//! `live`, `format`, `bitmap`, `platform`, `primitive`, `units`, and the planted bugs.

use super::live::{Before, Live};
use crate::bitmap::Slices;
use crate::format::layout::MAX_LEN;
use crate::format::snapshots::SegmentIndex;
use crate::format::snapshots::segment::{Record, record_len};
use crate::platform::Platform;
use crate::primitive::{AtomicU64, Mutex, OnceBox, Ordering, many};
use crate::units::{PAGES_PER_REGION, PageIndex, REGIONS_PER_SUPERCHUNK, RegionIndex, SUPERCHUNK};
use smallvec::SmallVec;
use std::ops::Range;

/// The offset of a record in the store's file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub(super) struct RecordAt(pub u64);

impl RecordAt {
    /// Returns the segment that holds the record.
    pub fn segment(self) -> SegmentIndex {
        SegmentIndex::of(self.0)
    }
}

/// A keep record of a page: where it is, and what it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kept {
    pub epoch: u64,
    pub mask: Slices,
    pub at: RecordAt,
}

impl Kept {
    /// Returns the bytes of the record.
    pub fn len(&self) -> usize {
        record_len(self.mask)
    }

    /// Returns `true` if it is this record of the page that is in the file.
    pub fn is(&self, page: PageIndex, record: &Record) -> bool {
        (self.epoch, page, self.mask) == (record.epoch, record.page, record.mask)
    }
}

/// The kept slices of a record, after a check of their checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptSlices<'b> {
    pub(super) mask: Slices,
    /// The slices one after the other.
    pub(super) bytes: &'b [u8],
}

impl<'b> KeptSlices<'b> {
    /// Returns the bytes of a run of slices that the record has.
    pub fn run(&self, run: Range<usize>) -> &'b [u8] {
        let before = self.mask.and(Slices::range(0, run.start)).bytes();
        &self.bytes[before..][..Slices::range(run.start, run.end).bytes()]
    }
}

/// The records of a page, in ascending order of their epochs.
type Records = Vec<Kept>;

/// The records of a region.
struct OfRegion {
    /// The records of each page. A lock for each page lies in the line of its records.
    pages: [Mutex<Records>; PAGES_PER_REGION],
    /// The latest epoch of a record that the region has had. A walk that asks for later ones leaves
    /// the region out.
    latest: AtomicU64,
}

impl OfRegion {
    fn new() -> Self {
        let pages = std::array::from_fn(|_| Mutex::new(Records::new()));
        OfRegion { pages, latest: AtomicU64::new(0) }
    }
}

/// The regions of a superchunk. One is made at its first record.
type Regions = [OnceBox<OfRegion>; REGIONS_PER_SUPERCHUNK];

/// Pages and records after which a walk in steps pauses, at the end of a region. Pages without a
/// record count as well, because a walk locks each of them.
const AT_A_TIME: usize = 8192;

/// The number of superchunks of the longest file.
const SUPERCHUNKS: usize = (MAX_LEN / SUPERCHUNK as u64) as usize;

/// The records of all pages. A page's entry is found by arithmetic.
pub(super) struct Index {
    superchunks: Box<[OnceBox<Regions>; SUPERCHUNKS]>,
    /// How often all pages were gone through.
    #[cfg(test)]
    pub walks: std::sync::atomic::AtomicUsize,
}

impl Index {
    /// Makes an index of nothing. Takes 16 KiB.
    pub fn new() -> Self {
        Index {
            superchunks: many(OnceBox::new),
            #[cfg(test)]
            walks: Default::default(),
        }
    }

    fn region(&self, index: RegionIndex) -> Option<&OfRegion> {
        self.superchunks[index.superchunk()].get()?[index.in_superchunk()].get()
    }

    fn load_region(&self, index: RegionIndex) -> &OfRegion {
        let regions = self.superchunks[index.superchunk()].get_or_init(|| many(OnceBox::new));
        regions[index.in_superchunk()].get_or_init(|| Box::new(OfRegion::new()))
    }

    /// Returns the regions that have had a record, in ascending order.
    fn regions(&self) -> impl Iterator<Item = (RegionIndex, &OfRegion)> {
        self.regions_from(RegionIndex(0))
    }

    fn regions_from(&self, from: RegionIndex) -> impl Iterator<Item = (RegionIndex, &OfRegion)> {
        #[cfg(test)]
        if from.0 == 0 {
            self.walks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        let superchunks = self.superchunks.iter().enumerate().skip(from.superchunk());
        let made = superchunks.filter_map(|(n, regions)| Some((n, regions.get()?)));
        made.flat_map(|(n, regions)| {
            let index = move |m| RegionIndex::in_superchunk_of(n, m);
            regions.iter().enumerate().filter_map(move |(m, of)| Some((index(m), of.get()?)))
        })
        .skip_while(move |(index, _)| *index < from)
    }

    /// Calls `f` with the records of a page, in ascending order of their epochs.
    fn with_records<T>(&self, page: PageIndex, f: impl FnOnce(&[Kept]) -> T) -> T {
        match self.region(page.region()) {
            Some(of) => f(&of.pages[page.in_region()].lock()),
            None => f(&[]),
        }
    }

    /// Prefetches the entry of a page, if there is one.
    #[inline]
    pub fn prefetch(&self, page: PageIndex, platform: &Platform) {
        if let Some(of) = self.region(page.region()) {
            platform.prefetch_own(&of.pages[page.in_region()]);
        }
    }

    /// Adds a record. Its bytes have been stored.
    pub fn add(&self, page: PageIndex, kept: Kept) {
        let of = self.load_region(page.region());
        // Mostly the epoch is there, and lanes share the line. Before the record, so that a walk
        // that comes after the record comes after its epoch.
        if of.latest.load(Ordering::Relaxed) < kept.epoch {
            of.latest.fetch_max(kept.epoch, Ordering::Relaxed);
        }
        let mut records = of.pages[page.in_region()].lock();
        let later = records.iter().rev().take_while(|record| record.epoch > kept.epoch).count();
        let place = records.len().saturating_sub(later);
        records.insert(place, kept);
    }

    /// Returns the page's records of this epoch and later ones, the oldest first.
    pub fn since(&self, page: PageIndex, epoch: u64) -> Vec<Kept> {
        self.with_records(page, |records| {
            let from = records.partition_point(|record| record.epoch < epoch);
            records[from..].to_vec()
        })
    }

    /// Returns the union of the masks of the page's records of this epoch and later ones.
    pub fn kept_since(&self, page: PageIndex, epoch: u64) -> Slices {
        self.with_records(page, |records| {
            let since = records.iter().rev().take_while(|record| record.epoch >= epoch);
            since.fold(Slices::NONE, |all, record| all.or(record.mask))
        })
    }

    /// Returns the records that have `wanted` slices as they were at the seal of `epoch`, each with
    /// the slices to take from it, oldest first. Also returns the slices that no record has.
    pub fn find(
        &self,
        page: PageIndex,
        epoch: u64,
        wanted: Slices,
    ) -> (SmallVec<[(Slices, Kept); 2]>, Slices) {
        let (mut found, mut rest) = (SmallVec::new(), wanted);
        self.with_records(page, |records| {
            let from = records.partition_point(|record| record.epoch < epoch);
            for record in &records[from..] {
                let part = rest.and(record.mask);
                if !part.is_empty() {
                    found.push((part, *record));
                    rest = rest.without(part);
                }
                if rest.is_empty() {
                    break;
                }
            }
        });
        (found, rest)
    }

    /// Returns the pages that have a record of an epoch of this range, in ascending order.
    pub fn pages_within(&self, epochs: Range<u64>) -> Vec<PageIndex> {
        let mut pages = Vec::new();
        for (index, of) in self.regions() {
            if of.latest.load(Ordering::Relaxed) < epochs.start {
                continue;
            }
            for (n, records) in of.pages.iter().enumerate() {
                if records.lock().iter().any(|record| epochs.contains(&record.epoch)) {
                    pages.push(index.page(n));
                }
            }
        }
        pages
    }

    /// Goes through the records of some regions from `from` on, by `visit`, which returns how many
    /// records a region had. Returns the region to go on with, if any is left.
    fn some_regions(
        &self,
        from: RegionIndex,
        mut visit: impl FnMut(RegionIndex, &OfRegion) -> usize,
    ) -> Option<RegionIndex> {
        let mut visited = 0_usize;
        for (index, of) in self.regions_from(from) {
            if visited >= AT_A_TIME {
                return Some(index);
            }
            visited = visited.saturating_add(PAGES_PER_REGION).saturating_add(visit(index, of));
        }
        None
    }

    /// Forgets the records of some regions that no live snapshot needs. Calls `needed` with each of
    /// the others, and the slices of it that are needed. Returns the region to go on with.
    pub fn prune_some(
        &self,
        from: RegionIndex,
        live: &Live,
        mut needed: impl FnMut(Kept, Slices),
    ) -> Option<RegionIndex> {
        self.some_regions(from, |_, of| {
            let mut visited = 0_usize;
            for records in &of.pages {
                let mut records = records.lock();
                visited = visited.saturating_add(records.len());
                let mut before = Before::default();
                records.retain(|record| {
                    let slices = live.needed(&before, record);
                    before.add(record);
                    if !slices.is_empty() {
                        needed(*record, slices);
                    }
                    !slices.is_empty()
                });
                if records.len() < records.capacity() / 4 {
                    records.shrink_to_fit();
                }
            }
            visited
        })
    }

    /// Calls `f` with the pages of some regions that have records, and these. Returns the region to
    /// go on with.
    pub fn some_pages(
        &self,
        from: RegionIndex,
        mut f: impl FnMut(PageIndex, &[Kept]),
    ) -> Option<RegionIndex> {
        self.some_regions(from, |index, of| {
            let mut visited = 0_usize;
            for (n, records) in of.pages.iter().enumerate() {
                let records = records.lock();
                visited = visited.saturating_add(records.len());
                f(index.page(n), &records);
            }
            visited
        })
    }

    /// Replaces the record at `old` by one with the bytes of its needed slices.
    pub fn replace(&self, page: PageIndex, old: RecordAt, new: Kept) {
        let Some(of) = self.region(page.region()) else { return };
        let mut records = of.pages[page.in_region()].lock();
        if let Some(record) = records.iter_mut().find(|record| record.at == old) {
            debug_assert_eq!(record.epoch, new.epoch);
            *record = new;
        }
    }

    /// Calls `f` with each page that has records, in ascending order, and its records.
    pub fn for_each_page(&self, mut f: impl FnMut(PageIndex, &[Kept])) {
        for (index, of) in self.regions() {
            for (n, records) in of.pages.iter().enumerate() {
                let records = records.lock();
                if !records.is_empty() {
                    f(index.page(n), &records);
                }
            }
        }
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    /// Regions without a record counted for nothing, so one step went through all of them.
    #[test]
    fn a_step_is_bounded_by_the_regions_that_it_visits() {
        let index = Index::new();
        let regions = 2 * AT_A_TIME / PAGES_PER_REGION + 1;
        for n in 0..regions as u64 {
            index.load_region(RegionIndex(n));
        }
        let (mut from, mut visited) = (Some(RegionIndex(0)), Vec::new());
        while let Some(first) = from {
            let before = visited.len();
            from = index.some_regions(first, |index, _| {
                visited.push(index.0);
                0
            });
            assert!(visited.len() - before <= AT_A_TIME / PAGES_PER_REGION);
        }
        assert_eq!(visited, (0..regions as u64).collect::<Vec<_>>());
    }

    /// A rollback to the newest snapshot, as an import ends with one, went through the records of
    /// all pages behind the closed gate. The test lets a region look as one of older records.
    #[test]
    fn a_walk_for_late_epochs_leaves_out_regions_of_earlier_ones() {
        let index = Index::new();
        let page = |region| RegionIndex(region).page(3);
        for (region, epoch) in [(0, 1), (0, 4), (1, 2), (2, 5), (2, 3)] {
            index.add(page(region), Kept { epoch, mask: Slices(1), at: RecordAt(0) });
        }
        assert_eq!(index.pages_within(0..u64::MAX), [page(0), page(1), page(2)]);
        assert_eq!(index.pages_within(4..u64::MAX), [page(0), page(2)]);
        assert_eq!(index.pages_within(2..4), [page(1), page(2)]);
        index.load_region(RegionIndex(2)).latest.store(1, Ordering::Relaxed);
        assert_eq!(index.pages_within(4..u64::MAX), [page(0)]);
    }
}
