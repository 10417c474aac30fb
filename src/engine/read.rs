//! How is a state read that no operation is half way through?
//!
//! Optimistically: note the versions, copy, look at the versions again. Nothing shared is written,
//! so small reads scale with the cores. Over many pages the versions are summed instead of kept:
//! no version ever shrinks, so equal sums mean that none has changed. Who loses too often takes
//! the locks.
//!
//! While it copies, a reader is pinned: nobody cuts a file off or punches a hole under it.

use super::Engine;
use super::lanes::Lane;
use super::plan::{self, RegionPlan};
use super::state::RegionState;
use super::stats::Counter;
use crate::bitmap::span::{self, PageSpan};
use crate::bitmap::{Side, Slices};
use crate::error::{Error, Result};
use crate::lock::{Patience, Version, after_own_writes};
use crate::mutant::planted;
use crate::primitive::{Ordering, fence};
use crate::terms::DeployPolicy;
use crate::units::{ChunkIndex, PageIndex, SLICE};
use std::ops::Range;

/// Optimistic attempts before the locks are taken.
const ATTEMPTS: u32 = 32;

/// A page that a read finds in more pieces than this is deployed afterwards (policy `Lazy`): the
/// next read copies one piece. Each piece beyond the first costs a few nanoseconds, a deployment
/// two drains; see `docs/performance.md`.
const GATHER_AT_MOST: usize = 8;

/// What a transaction has read: a page, and the versions under which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadMark {
    pub page: PageIndex,
    pub region_version: Version,
    pub page_version: Version,
}

impl Engine {
    /// Fills `to` from `offset`: the state between two operations, over all pages.
    #[inline]
    pub fn read(&self, to: &mut [u8], offset: u64) -> Result<()> {
        self.check_usable()?;
        after_own_writes();
        let lane = self.lane();
        let mut pieces = 0;
        let mut patience = Patience::new();
        for attempt in 0..ATTEMPTS {
            if self.try_read(&lane, to, offset, &mut pieces)? {
                lane.stats.bump(Counter::Reads, 1);
                if pieces > GATHER_AT_MOST && self.policy == DeployPolicy::Lazy {
                    drop(lane);
                    self.deploy_for_reader(offset..offset + to.len() as u64);
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

    /// One optimistic attempt. `Ok(false)`: something changed meanwhile. `pieces` is the largest
    /// number of pieces that one page was gathered from.
    #[inline]
    fn try_read(
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
        let first = PageIndex::of(range.start);
        if first == PageIndex::of(range.end - 1) {
            return self.try_read_page(to, range, first, pieces);
        }
        let Some(before) = self.version_sum(&range)? else {
            return Ok(false);
        };
        *pieces = self.gather(to, range.clone())?;
        // Orders the copy before the second look: what was copied under a version is looked at
        // after it was copied.
        fence(Ordering::Acquire);
        Ok(self.version_sum(&range)? == Some(before) || planted!(PagesNotLookedAtAgain))
    }

    #[inline]
    fn try_read_page(
        &self,
        to: &mut [u8],
        range: Range<u64>,
        page: PageIndex,
        pieces: &mut usize,
    ) -> Result<bool> {
        let region = self.region(page.region())?;
        let state = &region.pages[page.in_region()];
        let (Some(region_version), Some(page_version)) = (region.lock.begin(), state.lock.begin())
        else {
            return Ok(false);
        };
        let start = (range.start - page.start()) as usize;
        let span = PageSpan { page, start, end: start + to.len() };
        let validity = region.validity(page.in_region());
        let region_stays = planted!(RegionNotLookedAtAgain);
        let page_stays = planted!(PageNotLookedAtAgain);
        if validity.in_reflection(span.slices()).is_empty()
            && self.home_is_loadable(ChunkIndex::of(range.start))?
        {
            self.home.copy_out(to, range.start);
        } else {
            *pieces = self.gather(to, range)?;
        }
        // As above: the second look comes after the copy.
        fence(Ordering::Acquire);
        Ok((region.lock.is_still(region_version) || region_stays)
            && (state.lock.is_still(page_version) || page_stays))
    }

    /// The sum of all versions under which `range` is read, or `None` while one is closed.
    fn version_sum(&self, range: &Range<u64>) -> Result<Option<u64>> {
        let mut sum = 0u64;
        for span in span::regions(range.clone()) {
            let region = self.region(span.region)?;
            let Some(version) = region.lock.begin() else {
                return Ok(None);
            };
            sum = sum.wrapping_add(if planted!(RegionNotSummed) { 0 } else { version.count() });
            for page in &region.pages[span.pages] {
                let Some(version) = page.lock.begin() else {
                    return Ok(None);
                };
                sum = sum.wrapping_add(version.count());
            }
        }
        Ok(Some(sum))
    }

    /// Copies `range` from the valid slots, neighbouring pieces in one. What it copies is a state
    /// only if the caller's versions (or locks) say so. Returns the largest number of pieces that
    /// one page was in.
    pub(super) fn gather(&self, to: &mut [u8], range: Range<u64>) -> Result<usize> {
        let base = range.start;
        let mut most = 0;
        let mut pending: Option<(Side, Range<u64>)> = None;
        let mut take = |side: Side, piece: Range<u64>| -> Result<()> {
            if let Some((pending_side, pending_range)) = &mut pending {
                // A chunk is the unit of what is known about holes, and divides a superchunk.
                let joins = *pending_side == side
                    && pending_range.end == piece.start
                    && (ChunkIndex::of(pending_range.start) == ChunkIndex::of(piece.start)
                        || planted!(ReadJoinsChunks));
                if joins {
                    pending_range.end = piece.end;
                    return Ok(());
                }
                let ready = std::mem::replace(pending_range, piece);
                let ready_side = std::mem::replace(pending_side, side);
                let into = (ready.start - base) as usize..(ready.end - base) as usize;
                return self.load_slot(ready_side, &mut to[into], ready.start);
            }
            pending = Some((side, piece));
            Ok(())
        };
        for span in span::pages(range) {
            let region = self.region(span.page.region())?;
            let validity = region.validity(span.page.in_region());
            let slices = span.slices();
            if validity.in_reflection(slices).is_empty() {
                take(Side::Home, span.offset()..span.offset() + span.len() as u64)?;
                most = most.max(1);
                continue;
            }
            let mut pieces = 0;
            let mut rest = slices;
            while !rest.is_empty() {
                let first = rest.0.trailing_zeros() as usize;
                let side = validity.side(first);
                let Some(run) = validity.on(side, rest).runs().next() else { break };
                rest = rest.without(Slices::range(run.start, run.end));
                let start = (run.start * SLICE).max(span.start);
                let end = (run.end * SLICE).min(span.end);
                let at = span.page.start();
                take(side, at + start as u64..at + end as u64)?;
                pieces += 1;
            }
            most = most.max(pieces);
        }
        if let Some((side, ready)) = pending {
            let into = (ready.start - base) as usize..(ready.end - base) as usize;
            self.load_slot(side, &mut to[into], ready.start)?;
        }
        Ok(most)
    }

    /// Fills `to` from the slots on `side` of the home bytes at `offset`, within one chunk.
    pub(super) fn load_slot(&self, side: Side, to: &mut [u8], offset: u64) -> Result<()> {
        let (file, at) = self.slot(side, offset);
        // A valid reflection slot was written, so it is allocated; a home slot may be a hole.
        if side == Side::Reflection || self.home_is_loadable(ChunkIndex::of(offset))? {
            file.copy_out(to, at);
            return Ok(());
        }
        file.read_file(to, at).map_err(|source| Error::Io {
            call: "read",
            path: file.path().to_owned(),
            offset: Some(at),
            source,
        })
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
    pub(super) fn plan_range(&self, range: Range<u64>) -> Result<Vec<RegionPlan<'_>>> {
        span::regions(range)
            .map(|span| Ok(RegionPlan::touching(self.region(span.region)?, &span)))
            .collect()
    }

    /// Fills `to` from `offset` and appends the pages' versions to `marks`. `Ok(false)`: what
    /// `marks` held before is not the newest any more, so the two reads are not of one state.
    pub fn read_marked(
        &self,
        to: &mut [u8],
        offset: u64,
        marks: &mut Vec<ReadMark>,
    ) -> Result<bool> {
        self.check_usable()?;
        after_own_writes();
        let known = marks.len();
        let lane = self.lane();
        let mut patience = Patience::new();
        for _ in 0..ATTEMPTS {
            marks.truncate(known);
            if self.try_read_marked(&lane, to, offset, marks)? {
                lane.stats.bump(Counter::Reads, 1);
                return Ok(self.marks_hold(&marks[..known])? || planted!(EarlierMarksNotChecked));
            }
            if !self.marks_hold(&marks[..known])? {
                break;
            }
            lane.stats.bump(Counter::ReadRetries, 1);
            patience.wait();
        }
        marks.truncate(known);
        Ok(false)
    }

    fn try_read_marked(
        &self,
        lane: &Lane,
        to: &mut [u8],
        offset: u64,
        marks: &mut Vec<ReadMark>,
    ) -> Result<bool> {
        let _pinned = lane.pin();
        let range = self.check_range(offset, to.len() as u64)?;
        let known = marks.len();
        for span in span::pages(range.clone()) {
            let region = self.region(span.page.region())?;
            let page = &region.pages[span.page.in_region()];
            let (Some(region_version), Some(page_version)) =
                (region.lock.begin(), page.lock.begin())
            else {
                return Ok(false);
            };
            marks.push(ReadMark { page: span.page, region_version, page_version });
        }
        self.gather(to, range)?;
        // As above: the second look comes after the copy.
        fence(Ordering::Acquire);
        Ok(self.marks_hold(&marks[known..])? || planted!(MarkedNotLookedAtAgain))
    }

    /// Whether nothing that was read has changed since.
    pub fn marks_hold(&self, marks: &[ReadMark]) -> Result<bool> {
        for mark in marks {
            let region = self.region(mark.page.region())?;
            if !mark.holds(region) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl ReadMark {
    /// Whether the page is as it was read, for who holds its lock.
    pub(super) fn holds_for_holder(&self, region: &RegionState) -> bool {
        region.lock.is_still_for_holder(self.region_version)
            && region.pages[self.page.in_region()].lock.is_still_for_holder(self.page_version)
    }

    /// Whether the page is as it was read, and not about to be changed this moment.
    pub(super) fn holds(&self, region: &RegionState) -> bool {
        region.lock.is_still(self.region_version)
            && region.pages[self.page.in_region()].lock.is_still(self.page_version)
    }
}
