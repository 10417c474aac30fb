//! How is a state read that no operation is half way through?
//!
//! Optimistically: note the versions, copy, look at the versions again. Nothing shared is written (but one read in
//! seven of what is not at home is counted, of more than a page one in two, see `come_home`; what was in pieces is noted,
//! see `together`; and one in 13 of what is found at home, see `at_home`), so small reads scale with the cores. Over many
//! pages the versions are summed instead of kept: no version ever shrinks, so equal sums mean that none has changed. Who
//! loses too often takes the locks.
//!
//! While it copies, a reader is pinned: nobody cuts a file off or punches a hole under it.

use super::Engine;
use super::at_home::makes_known;
use super::come_home::is_counted_of;
use super::lanes::Lane;
use super::plan::{self, Plans, RegionPlan};
use super::recent::Expected;
use super::state::RegionState;
use super::stats::Counter;
use crate::bitmap::span;
use crate::error::Result;
use crate::lock::{Patience, after_own_writes};
use crate::mutant::{planted, unless};
use crate::primitive::{Ordering, fence};
use crate::terms::Medium;
use crate::units::is_in_page;
use std::ops::Range;

/// Optimistic attempts before the locks are taken.
pub(super) const ATTEMPTS: u32 = 32;

/// A read of so many bytes asks for what is not in the page cache, once for so many: the question costs as
/// much as copying 15 KiB.
const ASK_AHEAD: usize = 256 << 10;
const ASK_AGAIN: u64 = 2 << 20;

impl Engine {
    /// Fills `to` from `offset`: the state between two operations, over all pages.
    // What the thread remembers is looked up where this is called: a program finds its own threads' memory by an address,
    // a library, such as this crate is, by a call.
    #[inline(always)]
    pub fn read(&self, to: &mut [u8], offset: u64) -> Result<()> {
        // Nearly always that is where the bytes are. The earlier they are asked for, the more reads are
        // under way at the same time.
        self.home.prefetch_read(offset);
        let is_done = match self.lane_at_hand() {
            Some(lane) => self.read_at_once(lane, to, offset),
            None => self.read_behind_own_write(to, offset),
        };
        if is_done { Ok(()) } else { self.read_anyhow(to, offset) }
    }

    /// The same, tried once, as what the thread has read lately lets expect. `lane` is the one at hand. False: something
    /// is not as usual.
    #[inline(always)]
    fn read_at_once(&self, lane: &Lane, to: &mut [u8], offset: u64) -> bool {
        match lane.recent.expected() {
            Expected::AtHome => {
                self.read_known(lane, to, offset) || self.read_home(lane, to, offset)
            }
            Expected::OnOneSide => self.read_either::<false>(lane, to, offset),
            Expected::OnBothSides => self.read_either::<true>(lane, to, offset),
        }
    }

    /// The same, once everybody sees what this thread has written, if that is all that is in the way.
    #[inline(never)]
    fn read_behind_own_write(&self, to: &mut [u8], offset: u64) -> bool {
        // Else the mark is left to who can note it in the lane.
        let Some(lane) = self.lane_behind_own_write() else { return false };
        after_own_writes();
        lane.recent.note_write(lane.reads());
        self.read_at_once(lane, to, offset)
    }

    /// The same, whatever the range is and whatever is found.
    #[inline(never)]
    fn read_anyhow(&self, to: &mut [u8], offset: u64) -> Result<()> {
        self.check_usable()?;
        let are_several = !is_in_page(offset, to.len());
        // Several pages were tried as such, where the lane was at hand.
        let mut are_tried = are_several && self.lane_at_hand().is_some();
        let lane = self.lane_after_own_writes();
        // Perhaps nothing was in the way but that the page is not at home, or that the thread has worked on another file.
        if !are_tried && let Some(at_hand) = self.lane_at_hand() {
            if self.read_either::<true>(at_hand, to, offset) {
                return Ok(());
            }
            are_tried = are_several;
        }
        if !are_tried {
            self.ask_ahead(offset, to.len());
        }
        let mut pieces = 0;
        let mut patience = Patience::new();
        for attempt in 0..ATTEMPTS {
            if self.try_read(&lane, to, offset, &mut pieces)? {
                let number = lane.stats.bump(Counter::Reads, 1);
                if are_several {
                    lane.recent.note_both(pieces > 1);
                }
                let is_counted = is_counted_of(&lane, number, to.len());
                drop(lane);
                let range = offset..offset + to.len() as u64;
                self.after_read(range.clone(), pieces, is_counted);
                // In more pieces some are elsewhere. (Or in another chunk: those do not become known by this.)
                if pieces == 1 && makes_known(number) {
                    self.make_all_known(range);
                }
                return Ok(());
            }
            lane.stats.bump(Counter::ReadRetries, 1);
            if attempt > 0 {
                patience.wait();
            }
        }
        self.read_locked(&lane, to, offset)
    }

    /// The kernel was told to read nothing ahead (`Platform::expect_random`), so a long read asks.
    #[inline]
    pub(super) fn ask_ahead(&self, offset: u64, len: usize) {
        if len >= ASK_AHEAD && self.medium == Medium::PageCache {
            self.will_need(offset, len as u64);
        }
    }

    #[cold]
    fn will_need(&self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.len());
        for at in (offset..end).step_by(ASK_AGAIN as usize) {
            self.home.will_need(at, (end - at).min(ASK_AGAIN));
        }
    }

    /// One optimistic attempt. `Ok(false)`: something changed meanwhile. `pieces` is what the
    /// bytes were gathered from.
    pub(super) fn try_read(
        &self,
        lane: &Lane,
        to: &mut [u8],
        offset: u64,
        pieces: &mut usize,
    ) -> Result<bool> {
        let _pinned = (!planted!(ReadUnpinned)).then(|| lane.pin());
        let range = self.check_range(offset, to.len() as u64)?;
        if range.is_empty() {
            return Ok(true);
        }
        let Some(before) = self.version_sum(&range)? else {
            return Ok(false);
        };
        // Again, after the versions: at this moment the file is as long and the pages are as they are copied below. A
        // length that was looked at before may be the one before a shrink, and a version the one after a write whose
        // writer has seen the shrink.
        unless!(ReadLengthFirst, self.check_range(offset, to.len() as u64)?);
        *pieces = self.gather(to, range.clone())?;
        // Orders the copy before the second look: what was copied under a version is looked at
        // after it was copied.
        fence(Ordering::Acquire);
        Ok(self.version_sum(&range)? == Some(before) || planted!(PagesNotLookedAtAgain))
    }

    /// The sum of all versions under which `range` is read, or `None` while one is closed.
    fn version_sum(&self, range: &Range<u64>) -> Result<Option<u64>> {
        let mut sum = 0u64;
        for span in span::regions(range.clone()) {
            let Some(of_region) = version_sum_of(self.region(span.region)?, span.pages) else {
                return Ok(None);
            };
            sum = sum.wrapping_add(of_region);
        }
        Ok(Some(sum))
    }

    /// Reads under the locks: for who was overtaken too often.
    #[cold]
    fn read_locked(&self, lane: &Lane, to: &mut [u8], offset: u64) -> Result<()> {
        let range = {
            // The regions are touched while pinned, and locked while not.
            let _pinned = lane.pin();
            let range = self.check_range(offset, to.len() as u64)?;
            self.touch_all(range.clone())?;
            range
        };
        let plans = self.plan_range(range.clone())?;
        let _held = plan::lock_all(&plans);
        // Under the locks: the file may have become shorter before they were taken.
        if !planted!(LengthNotCheckedAgain) {
            self.check_range(offset, to.len() as u64)?;
        }
        self.gather(to, range)?;
        lane.stats.bump(Counter::Reads, 1);
        Ok(())
    }

    /// Touches every region of the range. While pinned, after the range was checked.
    pub(super) fn touch_all(&self, range: Range<u64>) -> Result<()> {
        span::regions(range).try_for_each(|span| self.region(span.region).map(|_| ()))
    }

    /// A plan that locks every page of `range`, whose regions were touched.
    pub(super) fn plan_range(&self, range: Range<u64>) -> Result<Plans<'_>> {
        span::regions(range)
            .map(|span| Ok(RegionPlan::touching(self.region(span.region)?, &span)))
            .collect()
    }
}

/// The sum of the versions of these pages and of their region, or `None` while one is closed.
#[inline]
pub(super) fn version_sum_of(region: &RegionState, pages: Range<usize>) -> Option<u64> {
    let of_region = region.lock.begin()?.count();
    let sum = if planted!(RegionNotSummed) { 0 } else { of_region };
    region.pages[pages]
        .iter()
        .try_fold(sum, |sum, page| Some(sum.wrapping_add(page.lock.begin()?.count())))
}
