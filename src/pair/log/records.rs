//! Active flip records: how a thread finds those that conflict with its write, and invalidates
//! them.
//!
//! A flip record covers one word: until the word is durable without the record, recovery sets the
//! slices' bits as the record says. It is active until a newer record over it in its lane has been
//! drained. Recovery ignores it earlier than that, once its batch of words has become durable. DRAM
//! keeps it longer, which costs a few needless invalidations. `docs/model/logged_flips.py` checks
//! these rules:
//! - A thread that moves slices in another way first invalidates all records that name one of them,
//!   in whichever slot. The first drain of that protocol covers this. Otherwise recovery would move
//!   the slices back. Before that, the thread writes back (flushes and drains) the words that only
//!   a record covers. Otherwise the invalidation would lose an acknowledged write. Those words were
//!   stored through the cache, so any thread can flush them.
//! - An invalidated record keeps its number and its page, and cancels older records of its lane
//!   about that page. One drain may cover the invalidation of two records, and a crash may keep
//!   only the newer one's part. The older record would then become active again. Records about
//!   other pages stay active, since their words may not be durable.
//! - A newer record of the same lane needs none of this, because recovery orders the records of one
//!   lane by number. The newer flip may even write to a slot that an older record names. Recovery
//!   verifies only the newest record's slots of each lane, since all older records were
//!   acknowledged. The newest record names slots that are valid, and no writer copies to those.
//! - A writer that finds its slices named by a record of another lane does not use a logged flip.
//!   It flips with two drains instead, since the records of two lanes have no order. In a file with
//!   page sums it does so for any record of the page: a record has the sum of the whole page.
//! - In a file with page sums a record covers the page's sum, as it covers the word.
//!
//! All of this happens under the lock of the page that the records name.
//!
//! May import `pair::log::lane`, `pair::{region, stats}`, `format`, `bitmap`, `units`.

use crate::bitmap::{self, Slices};
use crate::format::entry::Sequence;
use crate::format::{flip_record, layout};
use crate::mutant::{planted, unless};
use crate::pair::Pair;
use crate::pair::log::lane::{ActiveRecord, Lane};
use crate::pair::region::RegionState;
use crate::pair::stats::Counter;
use crate::units::{LaneIndex, PageIndex, RegionIndex, SLICE};

/// Slices of one page that are about to be moved.
#[derive(Clone, Copy)]
pub(crate) struct PageSlices<'e> {
    pub page: PageIndex,
    pub region: &'e RegionState,
    /// The slices to move.
    pub slices: Slices,
}

impl PageSlices<'_> {
    /// Returns the home offset of the first of these slices.
    #[inline(always)]
    pub fn start(&self) -> u64 {
        self.page.start() + (self.slices.0.trailing_zeros() as usize * SLICE) as u64
    }

    #[inline(always)]
    fn lanes(&self) -> u64 {
        self.region.lanes(self.page.in_region())
    }

    fn is_named_by(&self, entry: &ActiveRecord) -> bool {
        entry.slices & self.slices.0 != 0
    }
}

impl Pair {
    /// Returns the active flip records that name `page`. Clears the page's bits of lanes that have
    /// none any more.
    fn active_records(&self, page: PageIndex, region: &RegionState) -> Vec<ActiveRecord> {
        let mut lanes = region.lanes(page.in_region());
        let mut active = Vec::new();
        for n in crate::bitmap::bits(lanes) {
            let index = LaneIndex(n as u16);
            let before = active.len();
            active.extend(self.lanes[index].active(index, page));
            if active.len() == before {
                lanes &= !(1 << n);
            }
        }
        region.retain_lanes(page.in_region(), lanes);
        active
    }

    /// Returns `true` if an active flip record names one of the target's slices. Records of the
    /// lanes in `own` do not count: a flip by such a lane is ordered after them.
    #[inline(always)]
    pub(crate) fn is_named(&self, target: &PageSlices<'_>, own: u64) -> bool {
        let is_own = own != 0 && planted!(LoggedFlipOverOtherLane);
        target.lanes() & !own != 0 && !is_own && self.scan_records(target, own)
    }

    /// Looks at the records themselves, and clears stale bits.
    #[cold]
    fn scan_records(&self, target: &PageSlices<'_>, own: u64) -> bool {
        let active = self.active_records(target.page, target.region);
        let by_page = self.has_sums() && !planted!(RecordsConflictBySlice);
        let conflicts = |entry: &ActiveRecord| by_page || target.is_named_by(entry);
        active.iter().any(|entry| own >> entry.lane.0 & 1 == 0 && conflicts(entry))
    }

    /// Invalidates every active flip record that names one of the slices about to be moved. Returns
    /// `true` if it has invalidated one. The caller drains before it stores a word.
    pub(crate) fn invalidate_records<'e>(
        &'e self,
        lane: &Lane,
        targets: impl Iterator<Item = PageSlices<'e>> + Clone,
    ) -> bool {
        let named = targets.filter(|target| target.lanes() != 0);
        let mut must_write_back = false;
        for target in named.clone() {
            let mut active = self.active_records(target.page, target.region).into_iter();
            if active.any(|entry| target.is_named_by(&entry) && !entry.is_written_back) {
                unless!(WriteBackNoFlush, self.flush_word(target.page));
                must_write_back = true;
            }
        }
        if must_write_back {
            // Orders the words that records cover before the invalidation of those records. With
            // one drain for both, a crash could keep the invalidated records and lose the words.
            unless!(WriteBackNoDrain, self.drain(lane));
            lane.stats.bump(Counter::WordWriteBacks, 1);
        }
        let mut has_cleared = false;
        for target in named {
            for entry in self.active_records(target.page, target.region) {
                if target.is_named_by(&entry) {
                    unless!(NoClear, self.invalidate(target.page, &entry));
                    has_cleared = true;
                }
            }
        }
        has_cleared
    }

    /// Invalidates every active flip record that names a page of the region from place `from` on.
    /// The caller holds the region's lock, and drains afterwards.
    pub(crate) fn invalidate_all_records(
        &self,
        lane: &Lane,
        index: RegionIndex,
        region: &RegionState,
        from: usize,
    ) {
        let named = bitmap::bits(region.named_pages()).filter(move |&n| n >= from);
        let targets =
            named.map(|n| PageSlices { page: index.page(n), region, slices: Slices::ALL });
        self.invalidate_records(lane, targets);
    }

    /// Invalidates the record, unless its owner has stored a newer one over it meanwhile. Flushes
    /// the line in both cases, because the old header must be gone from the medium.
    fn invalidate(&self, page: PageIndex, entry: &ActiveRecord) {
        let at = layout::flip_record(entry.lane, entry.sequence.place());
        let seed = self.ring_seeds[usize::from(entry.lane.0)];
        let invalidated =
            if planted!(ClearToZero) { 0 } else { flip_record::invalidated(seed, entry.sequence) };
        self.reflection.replace_word_through(
            at,
            flip_record::header(seed, entry.sequence),
            invalidated,
        );
        self.lanes[entry.lane].forget(entry.sequence, page);
    }

    /// Flushes the slice word of `page`, and its sums if it has some, without waiting.
    #[inline]
    pub(crate) fn flush_word(&self, page: PageIndex) {
        self.reflection.flush_word(layout::slice_word(page));
        if self.has_sums() {
            self.flush_sums(page);
        }
    }

    /// Flushes the words that the lane's flip records before `end` cover, without waiting. After
    /// the next drain of this thread they are durable, and the records' ring places may be used
    /// again.
    #[inline]
    pub(crate) fn flush_pending_words(&self, lane: &Lane, end: Sequence) {
        // In a read section: if a record still names its page, the page still exists.
        let _pinned = (!planted!(FlushWordsUnpinned)).then(|| lane.pin());
        // After sequential writes, one line holds the words of many records.
        let mut last = None;
        for page in lane.pending_words(end) {
            let line = layout::slice_word(page) / SLICE as u64;
            if last.replace(line) != Some(line) {
                self.flush_word(page);
            } else if self.has_sums() {
                self.flush_sums(page);
            }
        }
    }

    /// Makes the words durable that the lane's flip records cover.
    pub(crate) fn write_back_own(&self, lane: &Lane) {
        let end = lane.upcoming();
        self.flush_pending_words(lane, end);
        self.drain(lane);
        lane.set_written_back(end);
        lane.stats.bump(Counter::WordWriteBacks, 1);
    }
}
