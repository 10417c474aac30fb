//! Prefetches: lock words, page states, slots and translations.
//!
//! A locked instruction waits for all stores before it, and ends the overlap of cache misses. So an
//! operation prefetches what its locks and copies need before the first lock, all in one place. A
//! prefetch without a cached translation stalls the processor's window, so these requests overlap
//! only if they are close together. All of it is a guess, made without a lock: a wrong guess costs
//! time, never correctness. Only a look ahead of a scan may load a region's state, so it happens in
//! a read section.
//!
//! May import `plan`, `pair`, and what lies below them.

use crate::bitmap::span::{self, RegionSpan};
use crate::bitmap::{Slices, bits};
use crate::config::Medium;
use crate::engine::Engine;
use crate::engine::plan::{PAGES_FOR_REGION_LOCK, RegionPlan, Segment};
use crate::format::layout;
use crate::pair::log::lane::Lane;
use crate::pair::log::records::PageSlices;
use crate::pair::region::RegionState;
use crate::platform::STREAM_FROM_UNFLUSHED;
use crate::units::{PAGE, PAGES_PER_REGION, PageIndex, RegionIndex, SLICE};
use std::ops::Range;

/// Parts of one operation that are prefetched. More requests than the processor can have in flight
/// still help: with 64 scattered parts a write takes 10 % less time than with 16. But a line that
/// comes too early may be evicted before its use.
pub(in crate::engine) const PREFETCHED_SEGMENTS: usize = 64;

/// Pages of which the states share a line.
const PAGES_OF_A_LINE: usize = 4;

/// Regions of one operation of which the states are prefetched: one for each prefetched part, if
/// the parts are scattered.
const PREFETCHED_REGIONS: usize = 64;

/// Regions of one part, after the first, of which the locks are prefetched before there is a plan.
const LOCKS_PREFETCHED_EARLY: u64 = 4;

/// Pages of which the translations share a line of the page table. The translations of later pages
/// are found while the earlier pages are copied.
const PAGES_OF_TRANSLATIONS: usize = 8;

/// Old slices that are prefetched to be kept. The processor prefetches further ones by itself.
const OWED_PREFETCHED: usize = 8;

const HALF: usize = PAGE / 2;

/// Returns the offset of a line in the page at `offset` that gives the page's translation. The
/// write begins at `offset`. A line that is streamed to must not be in the cache: the store would
/// wait for its eviction. So the line is not written at all, or written so late that it has arrived
/// and been evicted by then. A line of a neighbouring page would not load the page's own
/// translation.
#[inline(always)]
fn beside(offset: u64) -> u64 {
    let line = if offset as usize % PAGE >= SLICE { 0 } else { PAGE - SLICE };
    PageIndex::of(offset).start() + line as u64
}

/// A read of at least `READ_AHEAD` bytes requests readahead, in calls of `READ_AHEAD_STEP` bytes.
/// One request costs as much as copying 15 KiB.
const READ_AHEAD: usize = 256 << 10;

const READ_AHEAD_STEP: u64 = 2 << 20;

impl Engine {
    /// Prefetches what a write of `len` bytes at `offset` needs first: locks, page states and
    /// translations. The write covers one or more whole pages, or spans several pages.
    ///
    /// The caller is the entry point of writes, before it calls a function. Behind the previous
    /// operation's drain there is room for about sixty stores, and a function begins by storing the
    /// registers that it saves. Later instructions wait for the drain, and their misses would begin
    /// after it.
    #[inline(always)]
    pub(in crate::engine) fn prefetch_pages(&self, len: usize, offset: u64) {
        let page = PageIndex::of(offset);
        let Some(region) = self.state.loaded(page.region()) else { return };
        let (first, into) = (page.in_region(), offset as usize % PAGE);
        let count = (into + len).div_ceil(PAGE);
        if count > 1 {
            self.platform.prefetch_own(&region.lock);
        }
        if count < PAGES_FOR_REGION_LOCK as usize {
            self.platform.prefetch_own(&region.pages[first]);
            if count > 1 {
                let last = (first + count).min(PAGES_PER_REGION) - 1;
                self.platform.prefetch_own(&region.pages[last]);
            }
        }
        // Translations on both sides: the free one is not known yet.
        let beside = beside(offset);
        self.prefetch_slots(beside);
        if count > PAGES_OF_TRANSLATIONS {
            self.prefetch_slots(beside + (PAGES_OF_TRANSLATIONS * PAGE) as u64);
        }
    }

    /// Prefetches the locks of the next regions after the one of a part's first page, if the part
    /// extends into them.
    #[inline]
    pub(in crate::engine) fn prefetch_more_regions(&self, segment: &Segment<'_>) {
        let (first, last) =
            (RegionIndex::of(segment.offset).0, RegionIndex::of(segment.range().end - 1).0);
        for n in first + 1..=last.min(first + LOCKS_PREFETCHED_EARLY) {
            let Some(region) = self.state.loaded(RegionIndex(n)) else { break };
            self.platform.prefetch_own(&region.lock);
        }
    }

    /// Prefetches both slots of the home byte at `offset`.
    #[inline(always)]
    fn prefetch_slots(&self, offset: u64) {
        self.home.prefetch_store(offset);
        self.reflection.prefetch_store(layout::reflection(offset));
    }

    /// Prefetches what the commit of `segments` needs for the first page of each. A single part
    /// needs no call: its first page was [prefetched](Self::prefetch_pages) before.
    #[inline]
    pub(in crate::engine) fn prefetch_first_pages(&self, lane: &Lane, segments: &[Segment<'_>]) {
        for segment in segments.iter().take(PREFETCHED_SEGMENTS) {
            let page = PageIndex::of(segment.offset);
            if !lane.recent.has(page) && self.prefetch_state(page).is_some() {
                self.prefetch_translations(segment.offset, segment.data.len());
            }
        }
    }

    /// Prefetches the partly covered slices at the ends of `segments`. Their addresses depend on
    /// other prefetched lines, so these requests come last: they would delay the others.
    #[inline]
    pub(in crate::engine) fn prefetch_ends(&self, segments: &[Segment<'_>]) {
        for segment in segments.iter().take(PREFETCHED_SEGMENTS) {
            let end = segment.range().end;
            if !segment.offset.is_multiple_of(SLICE as u64) {
                self.prefetch_slice(segment.offset);
            }
            if !end.is_multiple_of(SLICE as u64) {
                self.prefetch_slice(end - 1);
            }
        }
    }

    /// Prefetches the lock and the state of `page`, and returns the state of its region.
    #[inline(always)]
    fn prefetch_state(&self, page: PageIndex) -> Option<&RegionState> {
        let region = self.state.loaded(page.region())?;
        self.platform.prefetch_own(&region.lock);
        self.platform.prefetch_own(&region.pages[page.in_region()]);
        Some(region)
    }

    /// Prefetches the translations of the page at `offset`, for a write of `len` bytes that streams
    /// to it.
    #[inline(always)]
    fn prefetch_translations(&self, offset: u64, len: usize) {
        self.prefetch_slots(match len {
            // Another line of the page, which is not written.
            0..=HALF => offset ^ HALF as u64,
            _ => beside(offset),
        });
    }

    /// Prefetches the valid slot of the slice that contains `offset`. The commit loads it, since
    /// the slice is partly covered.
    #[inline]
    fn prefetch_slice(&self, offset: u64) {
        let page = PageIndex::of(offset);
        let Some(region) = self.state.loaded(page.region()) else { return };
        let slice = (offset % PAGE as u64) as usize / SLICE;
        let (file, at) = self.slot(region.validity(page.in_region()).side(slice), offset);
        file.prefetch_read(at);
    }

    /// Prefetches the page states of the next region, as far as its pages lie before `end`. The
    /// commit reads them after it has copied the pages of this region.
    pub(super) fn prefetch_next_region(&self, region: RegionIndex, end: u64) {
        let next = RegionIndex(region.0 + 1);
        let pages = end.saturating_sub(next.start()).div_ceil(PAGE as u64);
        if pages == 0 {
            return;
        }
        let Some(state) = self.state.loaded(next) else { return };
        for page in state.pages.iter().take(pages as usize).step_by(PAGES_OF_A_LINE) {
            self.platform.prefetch_own(page);
        }
    }

    /// Prefetches the page states of an operation. Each lock waits for all stores before it, so
    /// locking without these requests would wait for one miss after another.
    pub(in crate::engine) fn prefetch_states(&self, plans: &[RegionPlan<'_>]) {
        for (nth, plan) in plans.iter().take(PREFETCHED_REGIONS).enumerate() {
            self.platform.prefetch_own(&plan.state.lock);
            if plan.is_exclusive() && nth > 0 {
                // The states are prefetched during the copies before.
                continue;
            }
            // Four pages share a line, see `PAGES_OF_A_LINE`.
            let mut lines = plan.touched | plan.touched >> 1;
            lines |= lines >> 2;
            for n in bits(lines & 0x1111_1111_1111_1111) {
                self.platform.prefetch_own(&plan.state.pages[n]);
            }
        }
    }

    /// Prefetches the state that a view of the page at `offset` checks first, and its first bytes.
    pub(in crate::engine) fn prefetch_view(&self, offset: u64) {
        let page = PageIndex::of(offset);
        self.home.prefetch_read(offset);
        if let Some(region) = self.prefetch_state(page)
            && let Some(pins) = region.pins(page.in_region())
        {
            self.platform.prefetch_own(pins);
        }
    }

    /// Requests readahead for a long read, because the kernel was told to do none
    /// (`Platform::expect_random`).
    #[inline]
    pub(in crate::engine) fn ask_ahead(&self, offset: u64, len: usize) {
        if len >= READ_AHEAD && self.medium == Medium::PageCache {
            self.will_need(offset, len as u64);
        }
    }

    /// Requests readahead if this thread's reads are in order. Only a read that covers a page's
    /// first byte is noted: a scan has one for each page.
    #[inline(always)]
    pub(in crate::engine) fn follow(&self, lane: &Lane, offset: u64, len: usize) {
        let begins_a_page = offset.wrapping_neg() % (PAGE as u64) < len as u64;
        if begins_a_page && len < READ_AHEAD && self.medium == Medium::PageCache {
            self.follow_pages(lane, offset, len);
        }
    }

    #[inline(never)]
    fn follow_pages(&self, lane: &Lane, offset: u64, len: usize) {
        let page = PAGE as u64;
        let last = offset.saturating_add(len as u64).saturating_sub(1) / page;
        if let Some(ahead) = lane.recent.follows(offset.div_ceil(page), last) {
            self.read_ahead(lane, ahead.start.saturating_mul(page)..ahead.end.saturating_mul(page));
        }
    }

    /// Requests the slots of a range in which pages are about to be read one by one: those of the
    /// home file, and the slots of pages that have bytes in the reflection file. All come in single
    /// pages, as without a request.
    #[cold]
    fn read_ahead(&self, lane: &Lane, range: Range<u64>) {
        let end = range.end.min(self.len());
        if range.start >= end {
            return;
        }
        self.home.will_need_data(range.start, end - range.start);
        let mut away = 0..0;
        for span in span::regions(range.start..end) {
            let Some(pages) = self.pages_away(lane, &span) else { break };
            for n in bits(pages) {
                let slot = layout::reflection(span.region.page(n).start());
                if slot != away.end {
                    self.reflection.will_need_data(away.start, away.end - away.start);
                    away = slot..slot;
                }
                away.end += PAGE as u64;
            }
        }
        self.reflection.will_need_data(away.start, away.end - away.start);
    }

    /// Returns those pages of a region that have bytes in the reflection file, or `None` if the
    /// file does not reach that far any more. One region at a time: a thread that shortens the file
    /// waits for the read section, and no request is made in it.
    pub(in crate::engine) fn pages_away(&self, lane: &Lane, span: &RegionSpan) -> Option<u64> {
        let _pinned = lane.pin();
        // In the read section: no region past the end may be loaded.
        if span.region.start() >= self.len() {
            return None;
        }
        let region = self.region(span.region).ok()?;
        let is_away = |n: &usize| region.validity_of(&region.pages[*n], *n).0 != 0;
        Some(span.pages.clone().filter(is_away).fold(0, |pages, n| pages | 1 << n))
    }

    #[cold]
    fn will_need(&self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.len());
        for at in (offset..end).step_by(READ_AHEAD_STEP as usize) {
            self.home.will_need(at, (end - at).min(READ_AHEAD_STEP));
        }
    }

    /// Prefetches what the commit of `segment`, which lies in one page, will touch: both slots, the
    /// slice word, and the page's state. These lines are far apart, so no other access brings them
    /// into the cache. Without the prefetches the misses would follow one after the other.
    /// `WHOLE_LINES` says that the segment covers its slices from end to end.
    #[inline(always)]
    pub(in crate::engine) fn prefetch_in_page<const WHOLE_LINES: bool>(
        &self,
        lane: &Lane,
        segment: &Segment<'_>,
    ) {
        let (start, len) = (segment.offset, segment.data.len());
        let page = PageIndex::of(start);
        if lane.recent.has(page) {
            return;
        }
        let last = start + len.saturating_sub(1) as u64;
        if WHOLE_LINES && (self.mode.has_drains || len >= STREAM_FROM_UNFLUSHED) {
            // Only the translations of the slots are wanted: a line that is streamed to must not be
            // in the cache. They are wanted on both sides, since the free one is not known yet.
            // Another line of the page gives them. If there may be none, take the last line
            // written: it can arrive and be evicted before it is streamed to.
            self.prefetch_slots(if len > HALF { last } else { start ^ HALF as u64 });
        } else {
            // The slots are stored to through the cache, or the slices at the ends are loaded to be
            // completed. A single miss among more bytes is not worth the risk.
            self.prefetch_slots(start);
            if last / SLICE as u64 != start / SLICE as u64 {
                self.prefetch_slots(last);
            }
        }
        // The slice word is stored through the cache in both cases.
        self.reflection.prefetch_write(layout::slice_word(page));
        if let Some(region) = self.prefetch_state(page) {
            self.platform.prefetch_own(region.named(page.in_region()));
        }
    }

    /// Prefetches what a write to these slices of a page needs for snapshots: the page's memory,
    /// and if some are owed, their old bytes and the page's entry in the index.
    #[inline]
    pub(in crate::engine) fn prefetch_owed(&self, target: &PageSlices<'_>) {
        let PageSlices { page, region, slices } = *target;
        let epoch = self.epochs.newest_reaching(page);
        let kept = region.kept_since(page.in_region(), epoch).unwrap_or(Slices::NONE);
        let owed = slices.without(kept);
        let Some(store) = self.snapshots.get().filter(|_| epoch != 0 && !owed.is_empty()) else {
            return;
        };
        store.prefetch(page, &self.platform);
        let valid = region.validity(page.in_region());
        for slice in bits(owed.0).take(OWED_PREFETCHED) {
            let (file, at) = self.slot(valid.side(slice), page.start() + (slice * SLICE) as u64);
            file.prefetch_read(at);
        }
    }
}
