//! Redo records, for slices without a free slot: the other slot is claimed by a view or by the
//! durable point (`pair::claims`). And for operations that write and change the length.
//!
//! The record carries the new bytes of those slices. They *stay*: they are stored over their valid
//! slots, once the record has committed. The other slices of the operation flip. The caller holds
//! the locks. Steps:
//! 1. Slices with a free slot are copied to it, as for a flip. What stages have filled is there.
//! 2. Active flip records that name the slices are invalidated. A drain.
//! 3. The record is stored, with the bytes of the slices that stay, and with the slice bits that
//!    flip. A drain: the commit point. From here on recovery finishes the operation.
//! 4. The locks are made exclusive; bytes and words are stored. A drain. The record ends. A drain.
//!
//! An operation that also changes the length is committed by a redo record as well, whatever its
//! slices are. The record then begins with the new length. Step 4 stores the length word, and
//! publishes the length while the locks are exclusive. `write::length` has the steps around these.
//!
//! The record carries new bytes and not old ones: the caller's buffer is already in the cache.
//! Where only a process crash counts, no drain waits: stores survive it in the order in which they
//! were made. After a power loss recovery then goes back to the durable point, and ignores all
//! records. Rules: `docs/model/logged_flips.py` and `docs/model/durable_points.py`.
//!
//! May import `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::span;
use crate::bitmap::{Slices, Validity, bits};
use crate::engine::Engine;
use crate::engine::plan::{Changes, Placed, RegionPlan, Segment};
use crate::engine::superblock::store_length;
use crate::error::Result;
use crate::format::entry::{LENGTH_ENTRY_LEN, REDO_INLINE, Redo, RedoPage, Spill, Undo, UndoBody};
use crate::format::layout;
use crate::lock::LockGuard;
use crate::mutant::{planted, unless};
use crate::pair::log::lanes::InUse;
use crate::pair::log::log_area::Extents;
use crate::pair::log::records::PageSlices;
use crate::pair::region::RegionState;
use crate::pair::stats::Counter;
use crate::primitive::{Ordering, fence};
use crate::units::{PageIndex, SLICE};

/// The slices of one page that an operation writes, with their bytes.
pub(super) struct PageWrite<'e> {
    pub page: PageIndex,
    pub region: &'e RegionState,
    /// The written slices, completed where the operation covers them only in part.
    pub slices: Slices,
    /// Those of them without a free slot.
    pub stays: Slices,
    /// Further slices, of which stages have filled the free slots. They flip.
    pub placed: Slices,
    /// The bytes of the written slices, one after the other.
    pub bytes: Vec<u8>,
}

impl<'e> PageWrite<'e> {
    fn valid(&self) -> Validity {
        self.region.validity(self.page.in_region())
    }

    pub fn flips(&self) -> Slices {
        self.slices.without(self.stays).or(self.placed)
    }

    /// Returns all slices of the page that change.
    pub fn changed(&self) -> Slices {
        self.slices.or(self.placed)
    }

    /// Returns the slot of each slice that is stored to.
    pub fn slots(&self) -> Validity {
        Validity(self.valid().0 ^ self.flips().0)
    }

    /// Returns the bytes of the slices of `some`, lowest first.
    fn bytes_of(&self, some: Slices) -> impl Iterator<Item = (usize, &[u8; SLICE])> {
        let all = bits(self.slices.0).zip(self.bytes.as_chunks().0);
        all.filter(move |(n, _)| some.0 >> n & 1 == 1)
    }

    /// Returns the written bytes as segments, run by run, up to byte `len` of the file.
    pub fn parts(&self, len: u64) -> impl Iterator<Item = Segment<'_>> {
        let mut rest = &self.bytes[..];
        self.slices.runs().filter_map(move |run| {
            let (data, later) = rest.split_at(run.len() * SLICE);
            rest = later;
            let offset = self.page.start() + (run.start * SLICE) as u64;
            let readable = len.saturating_sub(offset).min(data.len() as u64) as usize;
            (readable > 0).then(|| Segment { offset, data: &data[..readable] })
        })
    }

    /// Returns the slice word after the operation.
    fn new_word(&self) -> u64 {
        self.region.pages[self.page.in_region()].slice_word() ^ self.flips().0
    }

    fn to_record(&self) -> RedoPage {
        let mut bytes = Vec::with_capacity(self.stays.count() * SLICE);
        self.bytes_of(self.stays).for_each(|(_, slice)| bytes.extend_from_slice(slice));
        RedoPage {
            page: self.page,
            stays: self.stays.0,
            flips: self.flips().0,
            flipped: self.new_word() & self.flips().0,
            bytes,
        }
    }

    pub fn target(&self) -> PageSlices<'e> {
        PageSlices { page: self.page, region: self.region, slices: self.changed() }
    }
}

impl Engine {
    /// Returns `true` if slices of the segments have no free slot. The caller holds the locks.
    #[inline(always)]
    pub(in crate::engine) fn needs_redo(
        &self,
        plans: &[RegionPlan<'_>],
        segments: &[Segment<'_>],
    ) -> bool {
        plans.iter().any(|plan| plan.state.may_be_claimed(plan.touched))
            && self.are_claimed(segments)
    }

    #[inline(never)]
    fn are_claimed(&self, segments: &[Segment<'_>]) -> bool {
        segments.iter().flat_map(|segment| span::pages(segment.range())).any(|span| {
            self.state.loaded(span.page.region()).is_some_and(|region| {
                let claimed = region.claimed_slices(span.page.in_region());
                span.slices().without(claimed) != span.slices()
            })
        })
    }

    /// Commits changes of which some slices have no free slot, or that come with a new length in
    /// bytes. The caller holds the locks, and does not publish: this function does.
    pub(in crate::engine) fn commit_redo(
        &self,
        lane: &InUse<'_>,
        changes: &Changes<'_>,
        new_len: Option<u64>,
        held: &[LockGuard<'_>],
    ) -> Result<()> {
        self.check_not_marked(changes.ranges())?;
        if let Some(len) = new_len
            && planted!(LengthPublishedEarly)
        {
            self.publish_len(len);
        }
        let pages = self.assemble_pages(changes)?;
        let extents = self.reserve_redo(lane, &pages, new_len)?;
        let written = pages.iter().map(|page| (page.page, page.changed()));
        let sums = self.reckon_sums(lane, changes, new_len.unwrap_or(self.len()))?;
        // The durable point of a shrink must not find that there is no space.
        let shrinks = new_len.is_some_and(|len| len < self.len()) && !planted!(ShrinkWritesUnkept);
        let has_kept = (self.keeps_at_stores() || shrinks) && self.keep(lane, written)?;
        let unfinished = self.begin("commit of an operation");
        // Stores, step 1.
        self.store_sums(lane, &sums);
        for page in &pages {
            self.store_slices(lane, page, page.flips());
            self.note_changed(page.page);
        }
        // Step 2. A flip stores over free slots only; redo stores over valid ones. So the words
        // that active records cover must be durable before, and the records invalidated for good.
        let targets = pages.iter().map(PageWrite::target);
        let has_cleared = !planted!(RedoNoClear) && self.invalidate_records(lane, targets);
        let has_flips = pages.iter().any(|page| page.flips() != Slices::NONE);
        if has_cleared && !planted!(RedoNoDrainAfterClear)
            || has_flips && !planted!(RedoNoDrainAfterCopies)
            || has_kept && !planted!(RedoNoDrainAfterKeeps)
            || sums.are_some() && !planted!(RedoNoDrainAfterSums)
        {
            // Orders the copies and the invalidated headers before the record. The record's
            // checksum does not cover the copies. And recovery may store the record's bytes over a
            // slot that the lane's newest flip record names, and then lose power. If the medium
            // still has that flip record as active, the next recovery finds its data incomplete. It
            // would then use older records about the same page. Also orders what was kept for
            // snapshots, and the new sums, before the record: recovery repeats the stores of a
            // record.
            self.drain(lane);
        }
        // Step 3.
        let in_record = new_len.filter(|_| !planted!(RedoWithoutLength));
        self.store_redo_record(lane, &pages, in_record, extents.as_ref());
        // The commit point. Orders the record before the stores that it covers.
        unless!(RedoNoDrainAfterRecord, self.drain(lane));
        // Step 4.
        unless!(RedoNotClosed, held.iter().for_each(LockGuard::close));
        // Orders the closing, plain stores, before the slices, which may be streamed. A reader that
        // has begun to read these slots must not find new bytes in them under open words.
        fence(Ordering::SeqCst);
        for page in &pages {
            self.store_slices(lane, page, page.stays);
            self.store_new_word(lane, page);
        }
        if let Some(len) = new_len {
            unless!(RedoLengthNotStored, store_length(&self.reflection, layout::LENGTH_WORD, len));
            // Committed by the record. The locks are exclusive, so a reader that finds this length
            // waits for the bytes that belong to it.
            unless!(LengthPublishedAfterLocks, self.publish_len(len));
        }
        // Orders slices, words and length before the end of the record: once it has ended, recovery
        // does not store them again.
        unless!(RedoNoDrainBeforeEnd, self.drain(lane));
        unless!(RedoNotEnded, self.end_undo_record(lane));
        // Orders the end before the locks open: a later operation may store to these slots, and a
        // replay of this record would then undo it.
        unless!(RedoNoDrainAfterEnd, self.drain(lane));
        self.publish_sums(&sums);
        unfinished.end();
        extents.iter().for_each(|extents| self.give_back(extents));
        lane.stats.bump(Counter::Redo, 1);
        Ok(())
    }

    /// Returns what changes in each page.
    fn assemble_pages<'e>(&'e self, changes: &Changes<'_>) -> Result<Vec<PageWrite<'e>>> {
        let mut pages: Vec<PageWrite<'_>> = Vec::new();
        for span in changes.segments.iter().flat_map(|segment| span::pages(segment.range())) {
            match pages.last_mut() {
                Some(last) if last.page == span.page => last.slices = last.slices.or(span.slices()),
                _ => {
                    let region = self.region(span.page.region())?;
                    let (page, slices) = (span.page, span.slices());
                    let (stays, placed) = (Slices::NONE, Slices::NONE);
                    let bytes = Vec::new();
                    pages.push(PageWrite { page, region, slices, stays, placed, bytes });
                }
            }
        }
        for page in &mut pages {
            let claimed = page.region.claimed_slices(page.page.in_region());
            let claimed = claimed.without(changes.own_of(page.page));
            let claimed = if planted!(RedoFlipsClaimed) { Slices::NONE } else { claimed };
            page.stays = Slices(page.slices.0 & claimed.0);
            page.bytes = vec![0; page.slices.count() * SLICE];
            self.complete(&page.target(), changes.segments, &mut page.bytes)?;
        }
        let written = pages.len();
        for &Placed { page, slices: placed, .. } in changes.placed {
            let placed = if planted!(RedoForgetsPlaced) { Slices::NONE } else { placed };
            match pages[..written].binary_search_by_key(&page, |page| page.page) {
                Ok(n) => pages[n].placed = placed,
                Err(_) if placed.is_empty() => {}
                Err(_) => {
                    let (slices, stays, bytes) = (Slices::NONE, Slices::NONE, Vec::new());
                    let region = self.region(page.region())?;
                    pages.push(PageWrite { page, region, slices, stays, placed, bytes });
                }
            }
        }
        pages.sort_unstable_by_key(|page| page.page);
        Ok(pages)
    }

    /// Allocates everything that an operation on `pages` stores to. Returns the extents of a record
    /// that does not fit its lane.
    fn reserve_redo(
        &self,
        lane: &InUse<'_>,
        pages: &[PageWrite<'_>],
        new_len: Option<u64>,
    ) -> Result<Option<Extents<'_>>> {
        let len = pages.iter().map(|page| RedoPage::len(page.stays.0)).sum::<usize>()
            + new_len.map_or(0, |_| LENGTH_ENTRY_LEN);
        let needed = len as u64;
        if needed > layout::LOG_AREA_LEN && !planted!(LogNotMeasured) {
            return Err(self.too_large(needed));
        }
        for page in pages {
            // To that function the slots that are stored to are the free ones.
            let valid = page.slots().free();
            self.ensure_free_slots(lane, page.page, page.slices, valid, true)?;
        }
        self.ensure_lane(lane, lane.index())?;
        if len <= REDO_INLINE {
            return Ok(None);
        }
        let extents = self.log_area.take(needed);
        self.allocate_reflection(layout::LOG_AREA + extents.offset(), needed)?;
        Ok(Some(extents))
    }

    /// Stores the record about `pages` and the new length. It overflows into `extents` if there are
    /// any.
    fn store_redo_record(
        &self,
        lane: &InUse<'_>,
        pages: &[PageWrite<'_>],
        len: Option<u64>,
        extents: Option<&Extents<'_>>,
    ) {
        let mut body = Vec::new();
        Redo { len, pages: Vec::new() }.encode_to(&mut body);
        pages.iter().for_each(|page| page.to_record().encode_to(&mut body));
        let sequence = lane.next_undo();
        let seed = self.seed.undo(lane.index());
        let record = match extents {
            None => Undo::encode_redo(sequence, seed, &body),
            Some(extents) => {
                self.store(lane, &self.reflection, layout::LOG_AREA + extents.offset(), &body);
                lane.stats.bump(Counter::Overflow, 1);
                let spill = Spill::of(seed, sequence, extents.offset(), &body);
                Undo { sequence, body: UndoBody::SpilledRedo(spill) }.encode(seed)
            }
        };
        let at = layout::undo_entry(lane.index());
        unless!(RedoNoRecord, self.store(lane, &self.reflection, at, &record));
    }

    /// Stores slices of a page: those that flip into their free slots, the others into their valid
    /// ones.
    pub(super) fn store_slices(&self, lane: &InUse<'_>, page: &PageWrite<'_>, slices: Slices) {
        let slots = page.slots();
        let is_one = |(_, n): &(usize, usize)| slices.0 >> n & 1 == 1;
        let mut places = bits(page.slices.0).enumerate().filter(is_one).peekable();
        while let Some((place, first)) = places.next() {
            // Neighbours on one side are one copy.
            let (side, mut count) = (slots.side(first), 1);
            while places.next_if(|&(_, n)| n == first + count && slots.side(n) == side).is_some() {
                count += 1;
            }
            let (file, at) = self.slot(side, page.page.start() + (first * SLICE) as u64);
            self.store(lane, file, at, &page.bytes[place * SLICE..][..count * SLICE]);
        }
    }

    /// Stores the slice word of a page of which slices flip. The cached copy changes here too: the
    /// words are closed, and the operation is committed.
    pub(super) fn store_new_word(&self, lane: &InUse<'_>, page: &PageWrite<'_>) {
        if page.flips() != Slices::NONE {
            let word = page.new_word();
            self.reflection.store_word_through(layout::slice_word(page.page), word);
            page.region.set_slice_word(page.page.in_region(), word);
            lane.stats.bump(Counter::BytesWritten, SLICE as u64);
        }
    }
}
