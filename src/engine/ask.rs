//! What will an operation over several pages need, and is it asked for in time?
//!
//! A locked instruction waits for all stores before it, and ends the overlap of cache misses. So what the
//! locks and the copies of an operation need is asked for before the first lock, all at once: a request whose
//! address has no translation at hand keeps the processor's window from going on, so they overlap only where
//! they are close together. All of it is a guess, without a lock: a wrong one costs time and nothing else.
//!
//! For writes within one page `in_page` asks by itself.

use super::Engine;
use super::lanes::Lane;
use super::plan::{PAGES_FOR_REGION_LOCK, Part, RegionPlan, bits};
use crate::format::layout;
use crate::units::{PAGE, PAGES_PER_REGION, PageIndex, RegionIndex, SLICE};

/// Parts of one operation whose lines are asked for ahead. (More than the processor waits for at a time: 64 scattered
/// parts took 0.9 of the time they take where only the first 16 are asked for. But what is asked for early is to be there
/// still when it is needed.)
pub(super) const ASKED_PARTS: usize = 64;
/// Pages whose states share a line.
const PAGES_OF_A_LINE: usize = 4;
/// Regions of one operation whose states are asked for ahead: as many, for scattered parts.
const ASKED_REGIONS: usize = 64;

/// Regions of one part, behind the first, whose locks are asked for before it is known what it needs.
const LOCKS_ASKED_EARLY: u64 = 4;
/// Pages whose translations lie in one line of the page table. Those further on are found while the pages
/// before are copied.
const PAGES_OF_TRANSLATIONS: usize = 8;
const HALF: usize = PAGE / 2;

impl Engine {
    /// Asks for what a write of `len` bytes at `offset`, one or several whole pages or over several, needs first: locks, what
    /// is known of its pages, and translations.
    ///
    /// By who is asked to write, before it calls a function: behind the drain of the operation before there is room for some
    /// sixty stores, and a function begins with as many as it has registers to save. What comes after that waits for the
    /// drain, and a miss would begin when it is over.
    #[inline(always)]
    pub(super) fn ask_for_pages(&self, len: usize, offset: u64) {
        let page = PageIndex::of(offset);
        let Some(region) = self.state.touched(page.region()) else { return };
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
        // Translations on both sides: it is not known yet which one is free.
        let beside = beside(offset);
        self.ask_for_slots(beside);
        if count > PAGES_OF_TRANSLATIONS {
            self.ask_for_slots(beside + (PAGES_OF_TRANSLATIONS * PAGE) as u64);
        }
    }

    /// Asks for the locks of the next regions behind that of a part's first page, if it goes on there.
    #[inline]
    pub(super) fn ask_for_more_regions(&self, part: &Part<'_>) {
        let (first, last) =
            (RegionIndex::of(part.offset).0, RegionIndex::of(part.range().end - 1).0);
        for n in first + 1..=last.min(first + LOCKS_ASKED_EARLY) {
            let Some(region) = self.state.touched(RegionIndex(n)) else { break };
            self.platform.prefetch_own(&region.lock);
        }
    }

    /// Asks for both slots of the home byte at `offset`, wherever it is.
    #[inline(always)]
    pub(super) fn ask_for_slots(&self, offset: u64) {
        self.home.prefetch_store(offset);
        self.reflection.prefetch_store(layout::reflection(offset));
    }

    /// Asks for what the commit of `parts`, several or over several pages, needs of the first page of each. (The first page
    /// of one part alone was [asked for](Self::ask_for_pages) before.)
    #[inline]
    pub(super) fn ask_for_first_pages(&self, lane: &Lane, parts: &[Part<'_>]) {
        for part in parts.iter().take(ASKED_PARTS) {
            let page = PageIndex::of(part.offset);
            if !lane.recent.has(page) {
                self.ask_for_first_page(page, part);
            }
        }
    }

    /// Asks for the slices at the ends of `parts` that are covered in part. They hang on something else that is asked for,
    /// so they come last: they would keep everything behind them waiting.
    #[inline]
    pub(super) fn ask_for_ends(&self, parts: &[Part<'_>]) {
        for part in parts.iter().take(ASKED_PARTS) {
            let end = part.range().end;
            if !part.offset.is_multiple_of(SLICE as u64) {
                self.ask_for_slice(part.offset);
            }
            if !end.is_multiple_of(SLICE as u64) {
                self.ask_for_slice(end - 1);
            }
        }
    }

    /// Asks for the locks, and for the translations of the first addresses on both sides: it is not known yet
    /// which one is stored to.
    #[inline]
    fn ask_for_first_page(&self, page: PageIndex, part: &Part<'_>) {
        let Some(region) = self.state.touched(page.region()) else { return };
        self.platform.prefetch_own(&region.lock);
        self.platform.prefetch_own(&region.pages[page.in_region()]);
        self.ask_for_slots(match part.data.len() {
            // A line of the page that is not written.
            0..=HALF => part.offset ^ HALF as u64,
            _ => beside(part.offset),
        });
    }

    /// Asks for the valid slot of the slice that holds the byte at `offset`: it is loaded, since the slice is
    /// covered in part.
    #[inline]
    fn ask_for_slice(&self, offset: u64) {
        let page = PageIndex::of(offset);
        let Some(region) = self.state.touched(page.region()) else { return };
        let slice = (offset % PAGE as u64) as usize / SLICE;
        let (file, at) = self.slot(region.validity(page.in_region()).side(slice), offset);
        file.prefetch_read(at);
    }

    /// Asks for what is known of the pages of the next region, as far as they lie before `end`: they are looked at
    /// when those of this one have been copied.
    pub(super) fn ask_for_next_region(&self, region: RegionIndex, end: u64) {
        let next = RegionIndex(region.0 + 1);
        let pages = end.saturating_sub(next.start()).div_ceil(PAGE as u64);
        if pages == 0 {
            return;
        }
        let Some(state) = self.state.touched(next) else { return };
        if state.are_alike() {
            // Pages that are written whole are not looked at.
            return;
        }
        for page in state.pages.iter().take(pages as usize).step_by(PAGES_OF_A_LINE) {
            self.platform.prefetch_own(page);
        }
    }

    /// Asks for what is known of the pages of an operation. Each lock waits for all stores before it: taken
    /// one after the other, they would each wait for a miss.
    pub(super) fn ask_for_states(&self, plans: &[RegionPlan<'_>]) {
        for (nth, plan) in plans.iter().take(ASKED_REGIONS).enumerate() {
            self.platform.prefetch_own(&plan.state.lock);
            if plan.is_exclusive() && (nth > 0 || plan.state.are_alike()) {
                // Its pages come while those before are copied, or are not looked at, unless somebody has locked some.
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
}

/// A line of the page at `offset`, which is written from there on, whose translation is the page's. A line that is streamed to
/// must not be in the cache, or not any more: the store would wait until it is out again. So it is one that is not written, or is
/// written late: by then it has come and can go. (A line of the page beside would leave the page's own translation to be found.)
#[inline(always)]
fn beside(offset: u64) -> u64 {
    let line = if offset as usize % PAGE >= SLICE { 0 } else { PAGE - SLICE };
    PageIndex::of(offset).start() + line as u64
}
