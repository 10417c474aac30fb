//! Where the kept bytes of each page are, in DRAM.
//!
//! Owns: for each page its keep records, by epoch. Invariant: a record that is named here is whole
//! in the file, as far as this process sees it, and stays there until it is no longer named and
//! all readers have left ([`collect`](super::collect)).
//!
//! A shard's lock is taken last and held briefly: nothing else is locked under it. May import
//! `live`, `format::snapshots`, `bitmap`, `primitive`, `units`, and the planted bugs.

use super::live::Live;
use crate::bitmap::Slices;
use crate::format::snapshots::SegmentIndex;
use crate::format::snapshots::segment::Record;
use crate::primitive::{Mutex, many};
use crate::units::{PageIndex, SLICE};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::ops::Range;

const SHARDS: usize = 64;

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
    /// Returns the record that is in the file.
    pub fn record(&self, page: PageIndex) -> Record {
        Record { epoch: self.epoch, page, mask: self.mask }
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
        let before = self.mask.and(Slices::range(0, run.start)).count();
        &self.bytes[before * SLICE..][..run.len() * SLICE]
    }
}

/// The records of a page, in ascending order of their epochs.
pub(super) type Records = SmallVec<[Kept; 2]>;

/// The records of all pages.
pub(super) struct Index {
    shards: Box<[Mutex<HashMap<PageIndex, Records>>; SHARDS]>,
}

impl Index {
    /// Makes an index of nothing.
    pub fn new() -> Self {
        Index { shards: many(|| Mutex::new(HashMap::new())) }
    }

    fn shard(&self, page: PageIndex) -> &Mutex<HashMap<PageIndex, Records>> {
        &self.shards[page.0 as usize % SHARDS]
    }

    /// Adds a record. Its bytes have been stored.
    pub fn add(&self, page: PageIndex, kept: Kept) {
        let mut shard = self.shard(page).lock();
        let records = shard.entry(page).or_default();
        let after = records.partition_point(|record| record.epoch <= kept.epoch);
        records.insert(after, kept);
    }

    /// Returns the union of the masks of the page's records of this epoch and later ones.
    pub fn kept_since(&self, page: PageIndex, epoch: u64) -> Slices {
        let shard = self.shard(page).lock();
        let records = shard.get(&page).map_or(&[][..], |records| records);
        let since = records.iter().rev().take_while(|record| record.epoch >= epoch);
        since.fold(Slices::NONE, |all, record| all.or(record.mask))
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
        let shard = self.shard(page).lock();
        let records = shard.get(&page).map_or(&[][..], |records| records);
        let from = records.partition_point(|record| record.epoch < epoch);
        for record in &records[from..] {
            let part = rest.and(record.mask);
            if !part.is_empty() {
                found.push((part, *record));
                rest = rest.without(part);
            }
        }
        (found, rest)
    }

    /// Returns the pages that have a record of this epoch or a later one, in ascending order.
    pub fn pages_since(&self, epoch: u64) -> Vec<PageIndex> {
        let mut pages = Vec::new();
        for shard in self.shards.iter() {
            let shard = shard.lock();
            let has_since =
                |records: &Records| records.last().is_some_and(|record| record.epoch >= epoch);
            pages.extend(shard.iter().filter(|(_, records)| has_since(records)).map(|(p, _)| *p));
        }
        pages.sort_unstable();
        pages
    }

    /// Forgets the records that no live snapshot needs. Calls `needed` with each of the others, and
    /// the slices of it that are needed.
    pub fn prune(&self, live: &Live, mut needed: impl FnMut(PageIndex, Kept, Slices)) {
        for shard in self.shards.iter() {
            shard.lock().retain(|page, records| {
                let all = records.clone();
                let mut n = 0;
                records.retain(|record| {
                    let slices = live.needed(&all, n);
                    n += 1;
                    if !slices.is_empty() {
                        needed(*page, *record, slices);
                    }
                    !slices.is_empty()
                });
                !records.is_empty()
            });
        }
    }

    /// Replaces the record at `old` by one with the bytes of its needed slices.
    pub fn replace(&self, page: PageIndex, old: RecordAt, new: Kept) {
        let mut shard = self.shard(page).lock();
        let mut records = shard.get_mut(&page).into_iter().flatten();
        if let Some(record) = records.find(|record| record.at == old) {
            debug_assert_eq!(record.epoch, new.epoch);
            *record = new;
        }
    }

    /// Calls `f` with the records of each page, in no order.
    pub fn for_each_page(&self, mut f: impl FnMut(&[Kept])) {
        self.shards.iter().for_each(|shard| shard.lock().values().for_each(|records| f(records)));
    }
}
