//! Redo records, for slices without a free slot: the other slot is claimed by a view or by the
//! durable point.
//!
//! **Under a view.** The pinned pages are logged as they will be. The record commits, and then they
//! are stored over their valid slots.
//!
//! **In place, on page cache.** A slice that has changed since the last durable point has a valid
//! slot and a durable slot, and no free one. A flip would overwrite the slot that a power loss goes
//! back to. So its valid slot is stored to in place, under a redo record that lies in the page
//! cache. After a process crash in the middle, recovery stores the bytes again. Neither the bytes
//! nor the record has to be durable: after a power loss recovery goes back to the durable point and
//! ignores all records. Steps, with the pages locked:
//! 1. Slices with a free slot are copied to it, as for a flip.
//! 2. A record is stored with the bytes of the other slices, and with the slice bits that flip: the
//!    commit point.
//! 3. The locks are closed; bytes and words are stored; the record ends; the new state is
//!    published.
//!
//! The record carries new bytes and not old ones: the caller's buffer is already in the cache.
//! Rules: `docs/model/durable_points.py`. No drain waits for anything here: stores survive a
//! process crash in the order in which they were made.
//!
//! May import `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::span::{self, PageSpan};
use crate::bitmap::{Side, Slices, Validity};
use crate::engine::plan::{RegionPlan, Segment, WordUpdate};
use crate::engine::{Engine, commit};
use crate::error::Result;
use crate::format::entry::{IN_PLACE_INLINE, InPlacePage, Spill, SpilledPage, Undo, UndoBody};
use crate::format::layout;
use crate::lock::{LockGuard, LockGuards};
use crate::mutant::{planted, unless};
use crate::pair::log::lanes::InUse;
use crate::pair::log::log_area::Extents;
use crate::pair::log::records::Target;
use crate::pair::stats::Counter;
use crate::primitive::{Ordering, fence};
use crate::units::{PAGE, PageIndex, SLICE};

/// Returns the written slices of a page in the form of a log record.
fn spilled((page, slices, bytes): (PageIndex, Slices, Box<[u8; PAGE]>)) -> SpilledPage {
    let mut data = Vec::with_capacity(slices.count() * SLICE);
    for run in slices.runs() {
        data.extend_from_slice(&bytes[run.start * SLICE..run.end * SLICE]);
    }
    SpilledPage { page, mask: slices.0, slices: data }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Which {
    Valid,
    Free,
}

/// The slices of a page that an operation writes, completed where it covers them only in part.
struct PageBuffer {
    span: PageSpan,
    slices: Slices,
    bytes: Box<[u8; PAGE]>,
}

impl PageBuffer {
    fn new(span: &PageSpan) -> Self {
        PageBuffer { span: *span, slices: Slices::NONE, bytes: Box::new([0; PAGE]) }
    }

    fn put(&mut self, span: &PageSpan, data: &[u8], engine: &Engine) -> Result<()> {
        let start = span.page.start();
        for at in [span.start, span.end - 1] {
            let slice = at / SLICE;
            let in_part = (slice * SLICE < span.start || (slice + 1) * SLICE > span.end)
                && self.slices.0 >> slice & 1 == 0;
            if in_part {
                let range = slice * SLICE..(slice + 1) * SLICE;
                let offset = start + range.start as u64;
                let place = span.page.in_region();
                let side = engine.region(span.page.region())?.validity(place).side(slice);
                let mut bytes = [0; SLICE];
                engine.load_slot(side, &mut bytes, offset)?;
                self.bytes[range].copy_from_slice(&bytes);
                self.slices = self.slices.or(Slices::range(slice, slice + 1));
            }
        }
        self.bytes[span.start..span.end].copy_from_slice(data);
        self.slices = self.slices.or(span.slices());
        Ok(())
    }

    fn of(&self, slices: Slices) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(slices.count() * SLICE);
        for run in slices.runs() {
            bytes.extend_from_slice(&self.bytes[run.start * SLICE..run.end * SLICE]);
        }
        bytes
    }
}

impl Engine {
    /// Commits parts that include pages without a free slot: a view pins the home slot of a slice,
    /// and the reflection slot is valid. The data goes through the log.
    pub(in crate::engine) fn commit_pinned(
        &self,
        lane: &InUse<'_>,
        segments: &[Segment<'_>],
        held: LockGuards<'_>,
    ) -> Result<()> {
        let mut pages: Vec<SpilledPage> = Vec::new();
        let mut last_page: Option<(PageIndex, Slices, Box<[u8; PAGE]>)> = None;
        for segment in segments {
            for span in span::pages(segment.range()) {
                if last_page.as_ref().is_none_or(|(page, ..)| *page != span.page) {
                    pages.extend(last_page.take().map(spilled));
                    let mut bytes = Box::new([0; PAGE]);
                    // Read the whole page, also past the end of the file: those bytes exist and are
                    // zero.
                    let start = span.page.start();
                    self.gather(&mut bytes[..], start..start + PAGE as u64)?;
                    last_page = Some((span.page, Slices::NONE, bytes));
                }
                if let Some((_, slices, bytes)) = &mut last_page {
                    let at = (span.offset() - segment.offset) as usize;
                    bytes[span.start..span.end].copy_from_slice(&segment.data[at..at + span.len()]);
                    *slices = slices.or(span.slices());
                }
            }
        }
        pages.extend(last_page.take().map(spilled));
        let mut bytes = Vec::new();
        pages.iter().for_each(|page| page.encode_to(&mut bytes));
        let needed = bytes.len() as u64;
        if needed > layout::LOG_AREA_LEN && !planted!(LogNotMeasured) {
            return Err(self.too_large(needed));
        }
        let mut targets = Vec::with_capacity(pages.len());
        for logged in &pages {
            let start = logged.page.start();
            self.ensure_slots(lane, Side::Reflection, start..start + PAGE as u64)?;
            self.ensure_slice_word(logged.page)?;
            self.note_changed(logged.page);
            let region = self.region(logged.page.region())?;
            targets.push(Target { page: logged.page, region, slices: Slices(logged.mask) });
        }
        self.ensure_lane(lane, lane.index())?;
        let extents = self.log_area.take(needed);
        self.allocate_reflection(layout::LOG_AREA + extents.offset(), needed)?;
        let close = || held.iter().for_each(LockGuard::close);
        self.commit_redo_pinned(lane, &bytes, &pages, &targets, &extents, close);
        self.give_back(&extents);
        Ok(())
    }

    /// Returns `true` if a view pins one of the pages while slices that are written are valid in
    /// the reflection file.
    pub(in crate::engine) fn must_log_data(
        &self,
        plans: &[RegionPlan<'_>],
        moves: &[WordUpdate],
    ) -> bool {
        let any_pin = plans.iter().any(|plan| plan.state.pinned_pages() & plan.touched != 0);
        any_pin
            && commit::updated_pages(moves).any(|(page, slices)| {
                self.state.touched(page.region()).is_some_and(|region| {
                    let n = page.in_region();
                    region.is_pinned(n) && !region.validity(n).in_reflection(slices).is_empty()
                })
            })
    }

    /// Returns `true` if slices of the parts have no free slot because they have changed since the
    /// last durable point.
    pub(in crate::engine) fn must_store_in_place(&self, segments: &[Segment<'_>]) -> bool {
        self.keeps_points
            && segments.iter().flat_map(|segment| span::pages(segment.range())).any(|span| {
                self.state.touched(span.page.region()).is_some_and(|region| {
                    let changed = region.changed_slices(span.page.in_region());
                    span.slices().without(changed) != span.slices()
                })
            })
    }

    /// Commits parts of which some slices have no free slot. The caller holds the locks.
    pub(in crate::engine) fn commit_in_place(
        &self,
        lane: &InUse<'_>,
        segments: &[Segment<'_>],
        held: &[LockGuard<'_>],
    ) -> Result<()> {
        // A durable point may have failed while this writer waited for its pages. Its full record
        // may be on the disk all the same, and covers the slots that are stored to here.
        unless!(InPlaceAfterFailure, self.check_usable()?);
        let (pages, flips) = self.assemble_pages(segments)?;
        let mut body = Vec::new();
        pages.iter().for_each(|page| page.encode_to(&mut body));
        let extents = self.reserve_in_place(lane, &pages, body.len())?;
        // Stores, step 1.
        for (page, bytes) in pages.iter().zip(&flips) {
            self.store_slices(lane, page, Slices(page.flips), Which::Free, bytes);
            self.note_changed(page.page);
        }
        // Step 2.
        let sequence = lane.next_undo();
        let seed = self.seed.undo(lane.index());
        let entry = match &extents {
            None => UndoBody::InPlace(pages),
            Some(extents) => {
                let at = layout::LOG_AREA + extents.offset();
                self.store(lane, &self.reflection, at, &body);
                lane.stats.bump(Counter::Spilled, 1);
                UndoBody::SpilledInPlace(Spill::of(seed, sequence, extents.offset(), &body))
            }
        };
        let entry = Undo { sequence, body: entry };
        let at = layout::undo_entry(lane.index());
        unless!(InPlaceNoEntry, self.store(lane, &self.reflection, at, &entry.encode(seed)));
        // Orders the record before the stores that it covers. A fence for the compiler only:
        // nothing waits.
        self.drain(lane);
        // Step 3.
        unless!(InPlaceNotClosed, held.iter().for_each(LockGuard::close));
        let pages = match entry.body {
            UndoBody::InPlace(pages) => pages,
            _ => InPlacePage::decode_all(&body).unwrap_or_default(),
        };
        pages.iter().for_each(|page| self.store_in_place(lane, page));
        // Orders bytes and words before the end of the record, for the compiler only.
        self.drain(lane);
        unless!(InPlaceNotEnded, self.reflection.store_word_through(at, 0));
        self.drain(lane);
        if let Some(extents) = &extents {
            self.give_back(extents);
        }
        lane.stats.bump(Counter::InPlace, 1);
        Ok(())
    }

    /// Returns the pages of a redo record, and the bytes of each page's slices that flip.
    fn assemble_pages(&self, segments: &[Segment<'_>]) -> Result<(Vec<InPlacePage>, Vec<Vec<u8>>)> {
        let mut pages: Vec<InPlacePage> = Vec::new();
        let mut flips: Vec<Vec<u8>> = Vec::new();
        let mut last: Option<PageBuffer> = None;
        for segment in segments {
            for span in span::pages(segment.range()) {
                if last.as_ref().is_none_or(|page| page.span.page != span.page) {
                    if let Some(done) = last.take() {
                        self.divide(done, &mut pages, &mut flips);
                    }
                    last = Some(PageBuffer::new(&span));
                }
                if let Some(page) = &mut last {
                    let at = (span.offset() - segment.offset) as usize;
                    page.put(&span, &segment.data[at..at + span.len()], self)?;
                }
            }
        }
        if let Some(done) = last.take() {
            self.divide(done, &mut pages, &mut flips);
        }
        Ok((pages, flips))
    }

    /// Allocates everything that a record of `len` bytes about `pages` stores to. Returns the
    /// extents of a record that does not fit its lane.
    fn reserve_in_place(
        &self,
        lane: &InUse<'_>,
        pages: &[InPlacePage],
        len: usize,
    ) -> Result<Option<Extents<'_>>> {
        for page in pages {
            let range = page.page.start()..page.page.start() + PAGE as u64;
            self.ensure_slots(lane, Side::Home, range.clone())?;
            self.ensure_slots(lane, Side::Reflection, range)?;
            self.ensure_slice_word(page.page)?;
        }
        self.ensure_lane(lane, lane.index())?;
        let needed = len as u64;
        if needed > layout::LOG_AREA_LEN {
            return Err(self.too_large(needed));
        }
        if len <= IN_PLACE_INLINE {
            return Ok(None);
        }
        let extents = self.log_area.take(needed);
        self.allocate_reflection(layout::LOG_AREA + extents.offset(), needed)?;
        Ok(Some(extents))
    }

    /// Stores what the record says of a page: the slices that stay where they are valid, and the
    /// word of those that flip. Step 3.
    fn store_in_place(&self, lane: &InUse<'_>, page: &InPlacePage) {
        self.store_slices(lane, page, Slices(page.stays), Which::Valid, &page.slices);
        if let Some(region) = self.state.touched(page.page.region())
            && page.flips != 0
        {
            let place = page.page.in_region();
            let word = region.pages[place].slice_word() & !page.flips | page.flipped;
            self.reflection.store_word_through(layout::slice_word(page.page), word);
            region.set_slice_word(place, word);
        }
    }

    /// Divides the slices of a page into those that are stored in place and those that flip.
    fn divide(&self, page: PageBuffer, pages: &mut Vec<InPlacePage>, flips: &mut Vec<Vec<u8>>) {
        let index = page.span.page;
        let Some(region) = self.state.touched(index.region()) else { return };
        let place = index.in_region();
        let changed = region.changed_slices(place);
        let changed = if planted!(InPlaceFlips) { Slices::NONE } else { changed };
        let stays = Slices(page.slices.0 & changed.0);
        let free = page.slices.without(changed);
        let flipped = !region.pages[place].slice_word() & free.0;
        pages.push(InPlacePage {
            page: index,
            stays: stays.0,
            flips: free.0,
            flipped,
            slices: page.of(stays),
        });
        flips.push(page.of(free));
    }

    /// Stores slices of a page, one after the other in `bytes`, into their valid or free slots.
    fn store_slices(
        &self,
        lane: &InUse<'_>,
        page: &InPlacePage,
        slices: Slices,
        which: Which,
        mut bytes: &[u8],
    ) {
        let Some(region) = self.state.touched(page.page.region()) else { return };
        let valid = region.validity(page.page.in_region());
        let to = if which == Which::Valid { valid } else { valid.targets() };
        for n in crate::bitmap::bits(slices.0) {
            let (now, rest) = bytes.split_at(SLICE);
            let (file, at) = self.slot(to.side(n), page.page.start() + (n * SLICE) as u64);
            self.store(lane, file, at, now);
            bytes = rest;
        }
    }

    /// Commits new slices of pages that a view pins, by a redo record. The slices go to the log,
    /// and from there into their reflection slots, whether those are valid or not. `close` makes
    /// readers wait. This function publishes by itself.
    fn commit_redo_pinned(
        &self,
        lane: &InUse<'_>,
        bytes: &[u8],
        pages: &[SpilledPage],
        targets: &[Target<'_>],
        extents: &Extents<'_>,
        close: impl FnOnce(),
    ) {
        // A flip stores over free slots only; this stores over slots that may be valid. So records
        // that name them must be invalidated for good before, and the words that those cover must
        // be durable.
        let has_cleared =
            !planted!(LoggedNoClear) && self.invalidate_records(lane, targets.iter().copied());
        if has_cleared {
            // Orders the invalidated headers before the record. Otherwise recovery may store the
            // redo data over a slot that the lane's newest record names, and then lose power. If
            // the medium still has that record as active, the next recovery finds its data
            // incomplete. It would then use older records about the same page.
            unless!(LoggedNoDrainAfterClear, self.drain(lane));
        }
        let sequence = lane.next_undo();
        let seed = self.seed.undo(lane.index());
        self.store(lane, &self.reflection, layout::LOG_AREA + extents.offset(), bytes);
        let spill = Spill::of(seed, sequence, extents.offset(), bytes);
        let entry = Undo { sequence, body: UndoBody::SpilledRedo(spill) }.encode(seed);
        self.store(lane, &self.reflection, layout::undo_entry(lane.index()), &entry);
        // The commit point: from here on recovery stores the slices, and no older record after
        // them.
        unless!(LoggedNoDrainAfterEntry, self.drain(lane));
        unless!(LoggedNotClosed, close());
        // Orders the closing, plain stores, before the slices, which may be streamed. A reader that
        // has begun to read these slots must not find new bytes in them under open words.
        fence(Ordering::SeqCst);
        for (logged, target) in pages.iter().zip(targets) {
            let mut slices = logged.slices.as_slice();
            for run in Slices(logged.mask).runs() {
                let (now, rest) = slices.split_at(run.len() * SLICE);
                let offset = logged.page.start() + (run.start * SLICE) as u64;
                self.store(lane, &self.reflection, layout::reflection(offset), now);
                slices = rest;
            }
            let place = target.page.in_region();
            let valid = Validity(target.region.validity(place).0 | logged.mask);
            let word = valid.slice_word(target.region.region_bit(place));
            self.reflection.store_word_through(layout::slice_word(logged.page), word);
            // The cached copy changes here too: the words are closed, and the operation is
            // committed.
            target.region.set_slice_word(place, word);
            lane.stats.bump(Counter::BytesWritten, SLICE as u64);
        }
        // Orders slices and words before the end of the record: once it has ended, recovery does
        // not store them again.
        unless!(LoggedNoDrainBeforeEnd, self.drain(lane));
        unless!(LoggedNotEnded, self.end_undo_record(lane));
        // Orders the end before the locks open: a later operation may store to these slots, and a
        // replay of this record would then undo it.
        unless!(LoggedNoDrainAfterEnd, self.drain(lane));
        lane.stats.bump(Counter::Pinned, 1);
    }
}
