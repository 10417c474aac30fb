//! The snapshot store of an open pair: what is live, what is kept, and where.
//!
//! | file | holds |
//! |---|---|
//! | `mod` | the store, its table, and lookups |
//! | `open` | how a store is made, and found again |
//! | `append` | the appenders of lanes |
//! | `index` | the records of each page, in DRAM |
//! | `live` | which kept slices live snapshots need |
//! | `segments` | which segments are free, and their storage |
//! | `runs` | sets of segments |
//! | `collect` | the way by which storage becomes free |
//!
//! Owns: the companion file with the snapshots, through its mapping. Invariants:
//! - A record is a fact: the slices of a page as they were at the seal of its epoch. So it does no
//!   harm whenever it comes back, and needs no order against anything but what relies on it.
//! - A segment has one appender between append and drain: its lane. Otherwise the drain of one lane
//!   would not cover a torn record of another, which ends the segment before its own record.
//! - The copy of the table that counts is durable before the other one is stored to.
//! - The store makes nothing durable but the length of its file where a drain is to suffice. It
//!   stores such that a drain of the calling thread does ([`MappedFile::drains_are_durable`]), or
//!   else a [`sync`](Store::sync). The caller orders these against its own stores.
//!
//! Order of locks: `collecting`, a cursor, `segments`, then a page of the index or the table.
//!
//! May import what lies below the engine: `mmap`, `pair::space`, `format`, `bitmap`, `error`,
//! `platform`, `primitive`, `units`, and the planted bugs.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

pub mod append;
mod collect;
mod index;
mod live;
#[cfg(all(test, feature = "recorder", not(loom), not(shuttle)))]
mod model_tests;
mod open;
mod runs;
mod segments;
#[cfg(all(test, feature = "recorder", not(loom), not(shuttle)))]
mod tests;

pub(crate) use index::KeptSlices;

use crate::bitmap::Slices;
use crate::error::{Error, Result};
use crate::format::snapshots::segment::{
    LONGEST_RECORD, RECORD_HEADER, Record, SEGMENT_HEADER, SealSum, SegmentHeader,
};
use crate::format::snapshots::table::{Entry, Table};
use crate::format::snapshots::{SegmentIndex, TABLES};
use crate::mmap::MappedFile;
use crate::mutant::{planted, unless};
use crate::platform::{Copying, Platform};
use crate::primitive::{AtomicBool, Mutex, Ordering};
use crate::units::PageIndex;
use append::Cursors;
use collect::Collection;
use index::{Index, Kept};
use live::{Before, Live};
use segments::Segments;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

/// The snapshot store of a pair.
pub(crate) struct Store {
    file: MappedFile,
    uuid: [u8; 16],
    /// The table that was stored last.
    table: Mutex<Table>,
    cursors: Cursors,
    index: Index,
    segments: Mutex<Segments>,
    /// Held while storage is made free: one thread at a time. Has what was begun.
    collecting: Mutex<Option<Collection>>,
    /// `true` if storage may be made free by a collection that has not begun.
    wanted: AtomicBool,
    /// `true` if something was stored since the last sync began.
    unsynced: AtomicBool,
    /// The offset of the damage that this opening has found first.
    damage: Option<u64>,
    /// Segments that lack something, while their ends are in the map.
    lost: Vec<SegmentIndex>,
    /// The highest number of a snapshot that may lack bytes, and the offset of the damage.
    doubt: (u64, u64),
}

/// Returns the error of a store with wrong bytes at `offset`.
fn damaged(file: &MappedFile, offset: u64) -> Error {
    Error::damaged_snapshots(file.path(), offset, "the checksum is wrong")
}

impl Store {
    /// Returns the store's file.
    pub fn file(&self) -> &MappedFile {
        &self.file
    }

    /// Returns the offset of the first damage that opening has found, if any: a segment that lacks
    /// something before its end, a record of a snapshot that was never sealed, or a segment of a
    /// later opening. None of it counts. All snapshots that were sealed by then may lack bytes.
    pub fn damage(&self) -> Option<u64> {
        self.damage
    }

    /// Returns an error if snapshot `k` may lack bytes that were kept for it.
    pub fn check(&self, k: u64) -> Result<()> {
        let what = "bytes that were kept for this snapshot may be lost; drop the snapshot";
        self.check_as(k, what)
    }

    /// Fails as [`check`](Self::check) does, with these words.
    pub fn check_as(&self, k: u64, what: &'static str) -> Result<()> {
        let (doubted, offset) = self.doubt;
        if k > doubted || planted!(DoubtIgnored) {
            return Ok(());
        }
        Err(Error::damaged_snapshots(self.file.path(), offset, what))
    }

    /// Returns the live snapshots, in ascending order of their numbers.
    pub fn live(&self) -> Vec<Entry> {
        self.table.lock().entries.clone()
    }

    /// Returns the highest number that was ever given to a snapshot of the pair.
    pub fn highest(&self) -> u64 {
        self.table.lock().highest
    }

    /// Returns the number of the last opening that the store tells of.
    pub fn opening(&self) -> u64 {
        self.table.lock().opening
    }

    /// Returns the number of the snapshot that a rollback under way goes to, or 0.
    pub fn rollback(&self) -> u64 {
        self.table.lock().rollback
    }

    /// Changes the table. The new one is durable with the caller's next drain, or the next sync
    /// where drains are not durable. Until then a power loss may bring the old one back.
    ///
    /// The caller has made every earlier change durable, since the new table goes over the copy
    /// before that. If `change` fails, nothing is changed. It fails as damage does at the end of a
    /// number's range, which a damaged table alone comes to.
    pub fn change_table<T>(&self, change: impl FnOnce(&mut Table) -> Result<T>) -> Result<T> {
        let mut table = self.table.lock();
        let mut new = table.clone();
        let result = change(&mut new)?;
        new.generation = new.generation.saturating_add(1);
        if !new.is_sound() {
            // No opening would accept it.
            let what = "a number in the table has come to the end of its range";
            return Err(Error::damaged_snapshots(self.file.path(), new.place(), what));
        }
        self.store_table(&new);
        *table = new;
        Ok(result)
    }

    /// Stores the table again, to the other copy: damage to one of them then loses nothing. The
    /// caller has made the table durable, and drains or syncs before it changes it again.
    pub fn repeat_table(&self) {
        // It fails at the last generation alone. The table then stays in one copy.
        let _one_copy_counts: Result<()> = self.change_table(|_| Ok(()));
    }

    /// Stores the ends of all segments, at the end of a session. All records are durable, and none
    /// will follow.
    pub fn mark_all_ends(&self) {
        self.close_cursors();
        let mut segments = self.segments.lock();
        unless!(CloseMarksNoEnds, segments.mark_ends(&self.file, |_| true));
        drop(segments);
        self.note_stored();
    }

    /// Stores the number of the ends to the table. All of them are durable.
    pub fn count_ends(&self) -> Result<()> {
        let ended = self.segments.lock().ended(&self.file);
        self.change_table(|table| {
            unless!(CloseCountsNoEnds, table.closed = ended.saturating_add(1));
            Ok(())
        })
    }

    /// Stores a table to its place, which holds the copy that does not count.
    fn store_table(&self, table: &Table) {
        let at = if planted!(TableOverNewest) { TABLES[0] } else { table.place() };
        self.file.copy_in(at, &table.encode(), Copying::BySize);
        self.note_stored();
    }

    /// Notes that bytes were stored. Comes after their stores.
    fn note_stored(&self) {
        // Release: the sync that finds the flag comes after the stores.
        self.unsynced.store(true, Ordering::Release);
    }

    /// Makes everything durable that was stored before the call. Where drains are durable, each
    /// thread drains its own stores instead.
    pub fn sync(&self) -> io::Result<()> {
        // Cleared before the sync: what is stored meanwhile needs the next one. Acquire: as in
        // `note_stored`.
        let was = self.unsynced.swap(false, Ordering::AcqRel);
        let filled = self.segments.lock().filled();
        let synced = self.file.sync_data();
        match &synced {
            // The records of the segments that were full before are durable. A later sync makes
            // their ends durable: nothing waits for that.
            Ok(()) => {
                self.segments.lock().mark_ends(&self.file, |full| full.number <= filled);
            }
            Err(_) if was => self.note_stored(),
            Err(_) => {}
        }
        synced
    }

    /// Returns `true` if something was stored since the last sync began.
    pub fn is_unsynced(&self) -> bool {
        self.unsynced.load(Ordering::Acquire)
    }

    /// Returns the union of the masks of the page's records of epoch `epoch` and later ones. The
    /// caller holds the page's lock, so none is added meanwhile.
    pub fn kept_since(&self, page: PageIndex, epoch: u64) -> Slices {
        self.index.kept_since(page, epoch)
    }

    /// Prefetches what [`Appender::keep`](append::Appender::keep) changes for a page.
    #[inline]
    pub fn prefetch(&self, page: PageIndex, platform: &Platform) {
        self.index.prefetch(page, platform);
    }

    /// Looks up slices of a page as they were at the seal of snapshot `k`. Calls `copy` with each
    /// record that has some, the oldest first: the slices to take from it, and its bytes.
    /// Returns the slices that no record has.
    ///
    /// Fails if the bytes of a record are no longer those that were kept, or may be missing. The
    /// caller holds the page's lock: bytes of an operation that has not drained may not be visible
    /// yet. It reads the bytes before it releases the lock, since `collect` waits for that before
    /// it frees them.
    pub fn find(
        &self,
        page: PageIndex,
        k: u64,
        wanted: Slices,
        mut copy: impl FnMut(Slices, KeptSlices<'_>),
    ) -> Result<Slices> {
        self.check(k)?;
        let (found, rest) = self.index.find(page, k, wanted);
        for (part, kept) in found {
            let mut buffer = [0; LONGEST_RECORD];
            let checked = self.kept_record(page, kept, &mut buffer).is_some();
            if !checked && !planted!(FoundUnchecked) {
                return Err(damaged(&self.file, kept.at.0));
            }
            let bytes = &buffer[RECORD_HEADER..kept.len()];
            copy(part, KeptSlices { mask: kept.mask, bytes });
        }
        Ok(rest)
    }

    /// Returns the stored sum of a page at the seal of snapshot `k`, if the first record since then
    /// has it. Of the records that may be the first one, that is one with the lowest epoch. The sum
    /// of a later epoch is that of a later state. The caller holds the page's lock and is in a read
    /// section, as for [`find`](Self::find).
    pub fn sum_at(&self, page: PageIndex, k: u64) -> Option<u64> {
        let mut buffer = [0; LONGEST_RECORD];
        let mut since = self.index.since(page, k);
        if planted!(AnySumTaken) {
            since.reverse();
        }
        let mut first = None;
        for kept in since {
            let record = self.kept_record(page, kept, &mut buffer);
            match record.map_or(SealSum::Unknown, |(record, _)| record.sum) {
                SealSum::Later => {}
                _ if first.is_some_and(|first| first != kept.epoch) => return None,
                SealSum::Known(sum) => return Some(sum),
                SealSum::Unknown => first = Some(kept.epoch),
            }
        }
        None
    }

    /// Reads a record and its kept slices to `buffer`. Returns `None` if they are not whole.
    fn kept_record<'b>(
        &self,
        page: PageIndex,
        kept: Kept,
        buffer: &'b mut [u8; LONGEST_RECORD],
    ) -> Option<(Record, &'b [u8])> {
        let mut header = [0; SEGMENT_HEADER];
        let segment = kept.at.segment();
        self.file.copy_out(&mut header, segment.start());
        let seed = SegmentHeader::decode(&self.uuid, segment, &header)?.seed(&self.uuid, segment);
        let bytes = &mut buffer[..kept.len()];
        self.file.copy_out(bytes, kept.at.0);
        let record = Record::decode(seed, bytes).filter(|record| kept.is(page, record))?;
        Some((record, &bytes[RECORD_HEADER..]))
    }

    /// Returns the pages that have a record of epoch `k` or later, in ascending order. Only these
    /// pages can differ between snapshot `k` and the present, as far as records were kept.
    pub fn pages_since(&self, k: u64) -> Vec<PageIndex> {
        self.pages_within(k..u64::MAX)
    }

    /// Returns the pages that have a record of an epoch of this range, in ascending order.
    pub fn pages_within(&self, epochs: Range<u64>) -> Vec<PageIndex> {
        self.index.pages_within(epochs)
    }

    /// Passes the kept slices that live snapshots need to `take`, in parts: the places of these
    /// snapshots among the live ones, and the bytes.
    fn each_need(&self, live: &Live, mut take: impl FnMut(Range<usize>, usize)) {
        self.index.for_each_page(|_, records| {
            let mut before = Before::default();
            for record in records {
                live.each_need(&before, record, |needing, part| take(needing, part.bytes()));
                before.add(record);
            }
        });
    }

    /// Returns, for each live snapshot, the bytes of kept slices that only it needs.
    pub fn held(&self) -> BTreeMap<u64, u64> {
        let live = Live::of(&self.table.lock());
        let mut held = vec![0_u64; live.numbers().len()];
        self.each_need(&live, |needing, bytes| {
            if needing.len() == 1 {
                held[needing.start] = held[needing.start].saturating_add(bytes as u64);
            }
        });
        live.numbers().iter().copied().zip(held).collect()
    }

    /// Returns how many snapshots of `order`, from its first on, have to go until all others need
    /// at most `most` bytes of records, and the bytes that they need then. `order` ascends.
    pub fn drops_for(&self, order: &[u64], most: u64) -> (usize, u64) {
        let live = Live::of(&self.table.lock());
        // Bytes that become free with each of them, by the last one that needs them.
        let (mut total, mut freed) = (0_u64, vec![0_u64; order.len()]);
        let places: Vec<Option<usize>> =
            live.numbers().iter().map(|number| order.binary_search(number).ok()).collect();
        // The place after the last one, up to each, that stays.
        let mut stays = vec![0_usize];
        for (n, place) in (1..).zip(&places) {
            let before = stays.last().copied().unwrap_or(0);
            stays.push(if place.is_none() { n } else { before });
        }
        self.each_need(&live, |needing, bytes| {
            let bytes = bytes.saturating_add(RECORD_HEADER) as u64;
            total = total.saturating_add(bytes);
            let last = needing.end.saturating_sub(1);
            if stays[needing.end] <= needing.start
                && let Some(place) = places[last]
            {
                freed[place] = freed[place].saturating_add(bytes);
            }
        });
        let mut count = 0;
        while total > most && count < order.len() {
            total = total.saturating_sub(freed[count]);
            count = count.saturating_add(1);
        }
        (count, total)
    }

    /// Returns how often all records were gone through.
    #[cfg(all(test, not(loom), not(shuttle)))]
    pub fn walks(&self) -> usize {
        self.index.walks.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns the bytes of segments in use.
    pub fn used(&self) -> u64 {
        self.segments.lock().used()
    }
}
