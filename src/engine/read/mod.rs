//! Holds the general read: it returns a state that no operation is in the middle of.
//!
//! A read is optimistic: it notes the versions, copies, and validates the versions. It writes no
//! shared line, so small reads scale with the cores. There are two exceptions, both
//! sampled:
//! - of the reads that find pages not deployed, one in seven is counted, and one in two if it
//!   covers more than a page (`deploy::on_read`);
//! - of the reads that find pages deployed, one in 13 sets their stamps (`pair::stamps`).
//!
//! Over many pages the versions are summed instead of kept. No version ever shrinks, so equal sums
//! mean that none has changed. A reader that fails too often takes the locks.
//!
//! While it copies, a reader is in a read section: no truncation and no hole punch removes bytes
//! under it.
//!
//! May import `deploy`, `verify`, `io`, `plan`, `pair`, and what lies below them.

pub mod all;
pub mod page;
pub mod read_set;
pub mod stamped;

use crate::bitmap::span;
use crate::engine::deploy::policy::is_counted_of;
use crate::engine::io::gather::Gathered;
use crate::engine::verify::Compared;
use crate::engine::{Engine, plan};
use crate::error::{Error, Result};
use crate::lock::{Backoff, fence_own_writes};
use crate::mutant::{planted, unless};
use crate::pair::hints::samples_stamp;
use crate::pair::log::lane::Lane;
use crate::pair::log::lanes::InUse;
use crate::pair::region::RegionState;
use crate::pair::stats::Counter;
use crate::primitive::{Ordering, fence};
use crate::units::is_in_page;
use std::ops::Range;

/// Number of optimistic attempts before a read takes the locks.
const ATTEMPTS: u32 = 32;

/// Returns the sum of the versions of these pages and of their region, or `None` while one of the
/// locks is exclusive.
#[inline]
pub(in crate::engine) fn version_sum_of(region: &RegionState, pages: Range<usize>) -> Option<u64> {
    let of_region = region.lock.begin()?.count();
    let sum = if planted!(RegionNotSummed) { 0 } else { of_region };
    region.pages[pages]
        .iter()
        .try_fold(sum, |sum, page| Some(sum.wrapping_add(page.lock.begin()?.count())))
}

impl Engine {
    /// Fills `to` from `offset` with one state over all pages: no operation is half visible in it.
    // Inlined into the caller, because thread-local memory is found by an address in a program, but
    // by a call in a library.
    #[inline(always)]
    pub fn read(&self, to: &mut [u8], offset: u64) -> Result<()> {
        // Nearly always the bytes are in the home file. The earlier they are requested, the more
        // reads overlap.
        self.home.prefetch_read(offset);
        let lane = self.cached_lane().or_else(|| self.lane_behind_own_write());
        // The fast path that this thread's recent reads suggest, once.
        let is_done = lane.is_some_and(|lane| {
            self.follow(lane, offset, to.len());
            (lane.recent.expects_home() && self.read_stamped(lane, to, offset))
                || self.read_page(lane, to, offset)
        });
        if is_done { Ok(()) } else { self.read_slow(to, offset) }
    }

    /// Returns the lane at hand after a fence for this thread's own writes, if nothing else stands
    /// in the way of the fast path.
    #[inline(never)]
    fn lane_behind_own_write(&self) -> Option<&Lane> {
        // Otherwise leave the flag set: the slow path clears it and records the write in the lane.
        let lane = self.cached_lane_dirty()?;
        fence_own_writes();
        lane.recent.note_write(lane.reads());
        Some(lane)
    }

    /// Reads any range in any state: the slow path.
    #[inline(never)]
    fn read_slow(&self, to: &mut [u8], offset: u64) -> Result<()> {
        self.check_readable()?;
        // If the lane was at hand, the fast path was tried.
        let is_tried = self.cached_lane().is_some();
        let lane = self.lane_fenced();
        if !is_tried {
            self.follow(&lane, offset, to.len());
            // Perhaps the thread's last operation was merely on another file.
            match self.cached_lane() {
                Some(cached_lane) if self.read_page(cached_lane, to, offset) => return Ok(()),
                Some(_) => {}
                None => self.ask_ahead(offset, to.len()),
            }
        }
        let mut backoff = Backoff::new();
        let range = offset..offset.saturating_add(to.len() as u64);
        for attempt in 0..ATTEMPTS {
            self.verify_new(&lane, range.clone())?;
            if let Some(gathered) = self.try_read(&lane, to, offset, false)? {
                self.after_read(lane, range, gathered);
                return Ok(());
            }
            lane.stats.bump(Counter::ReadRetries, 1);
            if attempt > 0 {
                backoff.wait();
            }
        }
        self.read_locked(&lane, to, offset)
    }

    /// Returns all bytes of one state.
    pub fn read_whole(&self) -> Result<Vec<u8>> {
        self.check_readable()?;
        let mut bytes = Vec::new();
        let mut backoff = Backoff::new();
        for _ in 0..ATTEMPTS {
            let len = self.len_now();
            self.resize_buffer(&mut bytes, len)?;
            self.ask_ahead(0, bytes.len());
            let lane = self.lane_fenced();
            self.verify_new(&lane, 0..len)?;
            match self.try_read(&lane, &mut bytes, 0, true) {
                Ok(Some(gathered)) => {
                    self.after_read(lane, 0..len, gathered);
                    return Ok(bytes);
                }
                // The file has become shorter.
                Ok(None) | Err(Error::PastEnd { .. }) => {}
                Err(error) => return Err(error),
            }
            lane.stats.bump(Counter::ReadRetries, 1);
            drop(lane);
            backoff.wait();
        }
        // Before `resizing`: a thread that has a lane may be waiting for `resizing`.
        let lane = self.lane();
        let _same_length = self.resizing.read();
        self.resize_buffer(&mut bytes, self.len())?;
        self.read_locked(&lane, &mut bytes, 0)?;
        Ok(bytes)
    }

    fn resize_buffer(&self, bytes: &mut Vec<u8>, len: u64) -> Result<()> {
        self.reserve(bytes, len.saturating_sub(bytes.len() as u64))?;
        bytes.resize(len as usize, 0);
        Ok(())
    }

    /// Does what follows a successful read: counts it, and deploys or stamps pages. `lane` is given
    /// back before that.
    fn after_read(&self, lane: InUse<'_>, range: Range<u64>, gathered: Gathered) {
        let Gathered { pieces, is_away } = gathered;
        let len = (range.end - range.start) as usize;
        let number = lane.stats.bump(Counter::Reads, 1);
        if !is_in_page(range.start, len) {
            lane.recent.note_away(is_away);
            lane.recent.note_both(pieces > 1);
        }
        let is_counted = is_counted_of(&lane, number, len);
        drop(lane);
        self.on_read(range.clone(), pieces, is_counted);
        // Several pieces mean that some pages are not deployed, or that the range spans chunks.
        // Pages of a range that spans chunks are not stamped by this read.
        if pieces == 1 && !is_away && samples_stamp(number) {
            self.stamp_all_sampled(range);
        }
    }

    /// Makes one optimistic attempt. Returns where the bytes were, or `None` if a version has
    /// changed meanwhile. If `is_whole` is `true`, the range must be the whole file: `None` if it
    /// was not.
    pub(in crate::engine) fn try_read(
        &self,
        lane: &Lane,
        to: &mut [u8],
        offset: u64,
        is_whole: bool,
    ) -> Result<Option<Gathered>> {
        let _pinned = (!planted!(ReadUnpinned)).then(|| lane.pin());
        let range = self.check_range(offset, to.len() as u64)?;
        if range.is_empty() {
            let holds = !is_whole || self.len() == 0;
            return Ok(holds.then(Gathered::default));
        }
        let Some(before) = self.version_sum(&range)? else {
            return Ok(None);
        };
        self.check_readable_still()?;
        // Checked again, after the versions: at this moment the file has this length, and the pages
        // are as they are copied below. The first check may have seen the length before a shrink.
        // The versions may then include a write by a thread that has seen the shrink.
        unless!(ReadLengthFirst, self.check_range(offset, to.len() as u64)?);
        if is_whole && self.len() != range.end && !planted!(WholeMayBePart) {
            return Ok(None);
        }
        let found = self.gather(to, range.clone())?;
        let compared = self.compare_gathered(to, &range)?;
        // Orders the copy before the versions are validated.
        fence(Ordering::Acquire);
        let is_state = self.version_sum(&range)? == Some(before) || planted!(PagesNotValidated);
        match compared {
            Compared::Damaged(page) if is_state => Err(self.damaged(lane, page)),
            // The file has grown. The next attempt verifies the new pages first.
            Compared::Unknown => Ok(None),
            _ => Ok(is_state.then_some(found)),
        }
    }

    /// Returns the sum of all versions of `range`, or `None` while one of the locks is exclusive.
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

    /// Reads under the locks, after all optimistic attempts have failed.
    #[cold]
    fn read_locked(&self, lane: &Lane, to: &mut [u8], offset: u64) -> Result<()> {
        let range = {
            // Regions are loaded inside a read section, and locked outside of it.
            let _pinned = lane.pin();
            let range = self.check_range(offset, to.len() as u64)?;
            self.load_range(range.clone())?;
            range
        };
        let plans = self.plan_range(range.clone())?;
        let _held = plan::lock_all(&plans);
        self.check_readable_still()?;
        // Checked again under the locks, because the file may have become shorter before they were
        // taken.
        if !planted!(LengthNotCheckedAgain) {
            self.check_range(offset, to.len() as u64)?;
        }
        self.gather_verified(lane, to, range)?;
        lane.stats.bump(Counter::Reads, 1);
        Ok(())
    }
}
