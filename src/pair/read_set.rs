//! Holds the types of a transaction's read set, and the count of changes to watched pages.
//!
//! `read::read_set` says how a read set is validated. May import
//! `pair::region`, `lock`, `units`, `primitive`.

use crate::lock::Version;
use crate::mutant::{planted, unless};
use crate::pair::region::RegionState;
use crate::primitive::{AtomicU64, Ordering};
use crate::units::PageIndex;

/// Up to this number of entries are validated one by one after each read.
pub(crate) const FEW: usize = if cfg!(shuttle) { 1 } else { 32 };

/// An entry of the read set: a page, and the versions under which it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadSetEntry {
    pub page: PageIndex,
    pub region_version: Version,
    pub page_version: Version,
}

/// The answers to a transaction about the file's length, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Told {
    /// The end of the furthest read: the file reaches at least to here.
    pub at_least: u64,
    /// The furthest end of an accepted write.
    pub writes_to: u64,
    /// The length that an error has named, or that the transaction has asked for.
    pub exactly: Option<u64>,
}

impl Told {
    /// Returns `true` if a file of `len` bytes agrees with what the reads were told.
    pub fn holds(&self, len: u64) -> bool {
        let is_long_enough = self.at_least <= len || planted!(TruncatedEntriesHold);
        let is_exact = self.exactly.is_none_or(|told| told == len);
        is_long_enough && (is_exact || planted!(ToldLengthHolds))
    }
}

/// The read set of a transaction.
#[derive(Default, Debug)]
pub(crate) struct ReadSet {
    pub pages: Vec<ReadSetEntry>,
    pub told: Told,
    /// The file's length when the whole read set was last found valid.
    pub seen_len: u64,
    /// The count of changes of watched pages when all entries were last found watched and valid.
    pub watched_at: Option<u64>,
}

impl ReadSet {
    /// Returns the number of entries. Each read adds one for each of its pages.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Returns `true` if nothing was read, and nothing was told about the length.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.told.at_least == 0 && self.told.exactly.is_none()
    }

    /// Returns `true` if a file of `len` bytes agrees with what reads and writes were told.
    pub fn told_holds_for_all(&self, len: u64) -> bool {
        self.told.holds(len) && self.told.writes_to <= len
    }
}

/// The count of changes of watched pages.
#[derive(Debug)]
pub struct Watched(AtomicU64);

impl Watched {
    /// Creates a count of zero.
    pub fn new() -> Self {
        Watched(AtomicU64::new(0))
    }

    /// Counts a change of a watched page that is about to happen. The caller holds the page's lock,
    /// so a thread that sees the change also sees the count.
    pub fn note_change(&self) {
        unless!(WatchedNotCounted, self.0.fetch_add(1, Ordering::SeqCst));
    }

    /// Returns the number of changes so far.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl ReadSetEntry {
    /// Returns `true` if the page is unchanged. The caller holds its lock.
    pub(crate) fn holds_for_holder(&self, region: &RegionState) -> bool {
        region.lock.is_still_for_holder(self.region_version)
            && region.pages[self.page.in_region()].lock.is_still_for_holder(self.page_version)
    }

    /// Returns `true` if the page is unchanged, and not locked exclusively.
    pub(crate) fn holds(&self, region: &RegionState) -> bool {
        region.lock.is_still(self.region_version)
            && region.pages[self.page.in_region()].lock.is_still(self.page_version)
    }
}
