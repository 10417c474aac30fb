//! Verifies pages by their sums.
//!
//! A page is verified at its first touch in a session, under its lock: any of its places may count
//! then. Later the sum in DRAM counts, and a reader verifies beside writers, as it reads.
//! `docs/protocols/sums.md` has the rules.
//!
//! May import `io`, `pair`, and what lies below them.

use crate::bitmap::{Slices, bits, span};
use crate::config::integrity::{Damage, Integrity};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::lock::lock_page;
use crate::mutant::planted;
use crate::page_sum;
use crate::pair::log::lane::Lane;
use crate::pair::region::RegionState;
use crate::pair::stats::Counter;
use crate::primitive::{Ordering, fence};
use crate::units::{PAGE, PAGES_PER_REGION, PageIndex, RegionIndex};
use std::ops::Range;

/// Number of attempts to verify a page beside its writers, before a reader takes the lock.
const ATTEMPTS: u32 = 32;

impl Engine {
    /// Returns the sum of what the page holds, up to byte `len` of the file. The caller holds its
    /// lock, or validates its version afterwards.
    pub(in crate::engine) fn sum_of_page(
        &self,
        page: PageIndex,
        region: &RegionState,
        len: u64,
    ) -> Result<u64> {
        let mut bytes = [0; PAGE];
        let valid = region.validity(page.in_region());
        self.load_slices(page, valid, Slices::ALL, &mut bytes)?;
        let readable = len.saturating_sub(page.start()).min(PAGE as u64) as usize;
        bytes[readable..].fill(0);
        Ok(page_sum::of_page(&bytes))
    }

    /// Verifies a page, unless that was done. The caller holds its lock.
    pub(in crate::engine) fn verify_under_lock(
        &self,
        lane: &Lane,
        page: PageIndex,
        region: &RegionState,
    ) -> Result<()> {
        let n = page.in_region();
        if !self.has_sums() {
            return Ok(());
        }
        if region.sums().verified() >> n & 1 == 1 || planted!(NotVerifiedBeforeWrite) {
            return Ok(());
        }
        let sum = self.sum_of_page(page, region, self.len())?;
        let stored = self.read_sums(page, 1)?;
        let place = stored.first().and_then(|stored| stored.place_of(page, sum));
        let place = place.or_else(|| planted!(DamageTakenForWhole).then_some(0));
        let Some(place) = place else { return Err(self.damaged(lane, page)) };
        region.sums().set(n, (place, sum), true);
        lane.stats.bump(Counter::PagesVerified, 1);
        Ok(())
    }

    /// Verifies a page that was verified before, beside its writers. Returns `false` if they
    /// change it too often.
    fn verify_beside_writers(
        &self,
        lane: &Lane,
        page: PageIndex,
        region: &RegionState,
    ) -> Result<bool> {
        let n = page.in_region();
        for _ in 0..ATTEMPTS {
            let _pinned = lane.pin();
            if page.start() >= self.len() {
                return Ok(true);
            }
            let version = || {
                let of_region = region.lock.begin()?.count();
                Some(of_region.wrapping_add(region.pages[n].lock.begin()?.count()))
            };
            let Some(before) = version() else { continue };
            let (sum, expected) =
                (self.sum_of_page(page, region, self.len())?, region.sums().sum(n));
            // Orders the copy before the version is validated.
            fence(Ordering::Acquire);
            if version() == Some(before) {
                return if sum == expected { Ok(true) } else { Err(self.damaged(lane, page)) };
            }
        }
        Ok(false)
    }

    /// Verifies a page. The caller holds no lock, and is in no read section.
    pub(in crate::engine) fn verify_page(
        &self,
        lane: &Lane,
        page: PageIndex,
        region: &RegionState,
    ) -> Result<()> {
        let n = page.in_region();
        let is_known = region.sums().verified() >> n & 1 == 1;
        if is_known && self.verify_beside_writers(lane, page, region)? {
            return Ok(());
        }
        let held = lock_page(&region.lock, &region.pages[n].lock);
        // Nothing changes under the lock: readers need not wait.
        held.mark_stable();
        if page.start() >= self.len() {
            return Ok(());
        }
        if is_known && region.sums().verified() >> n & 1 == 1 {
            let is_whole = self.sum_of_page(page, region, self.len())? == region.sums().sum(n);
            return if is_whole { Ok(()) } else { Err(self.damaged(lane, page)) };
        }
        self.verify_under_lock(lane, page, region)
    }

    /// Verifies a page, if the file has sums. The caller holds no lock, and is in no read section.
    pub(in crate::engine) fn verify_if_summed(
        &self,
        page: PageIndex,
        region: &RegionState,
    ) -> Result<()> {
        if self.has_sums() { self.verify_page(&self.lane_fenced(), page, region) } else { Ok(()) }
    }

    /// Verifies what a read of `len` bytes at `offset` touches: pages that were not verified in
    /// this session, or all of them where each read verifies. Does nothing past the file's end. The
    /// caller holds no lock, and is in no read section.
    #[inline(always)]
    pub(in crate::engine) fn verify_read(&self, offset: u64, len: u64) -> Result<()> {
        if !self.has_sums() {
            return Ok(());
        }
        self.verify_touched(offset..offset.saturating_add(len))
    }

    #[inline(never)]
    fn verify_touched(&self, range: Range<u64>) -> Result<()> {
        let range = range.start..range.end.min(self.len_now());
        if range.start >= range.end {
            return Ok(());
        }
        for span in span::regions(range) {
            let region = {
                let lane = self.lane_fenced();
                let _pinned = lane.pin();
                self.region(span.region)?
            };
            self.verify_pages((span.region, region), span.pages)?;
        }
        Ok(())
    }

    /// Verifies what a read of `range` touches, as [`verify_read`](Self::verify_read) does. The
    /// caller has loaded all regions that hold a byte other than zero.
    pub(in crate::engine) fn verify_loaded(&self, range: Range<u64>) -> Result<()> {
        if !self.has_sums() {
            return Ok(());
        }
        for (index, region) in self.state.loaded_regions() {
            if range.contains(&index.start()) {
                self.verify_pages((index, region), 0..PAGES_PER_REGION)?;
            }
        }
        Ok(())
    }

    fn verify_pages(
        &self,
        (index, region): (RegionIndex, &RegionState),
        pages: Range<usize>,
    ) -> Result<()> {
        let touched = Slices::range(pages.start, pages.end).0;
        let wanted = match self.integrity {
            Integrity::OnRead if !planted!(ReadVerifiesOnce) => touched,
            _ => touched & !region.sums().verified(),
        };
        if wanted == 0 {
            return Ok(());
        }
        let lane = self.lane_fenced();
        bits(wanted).try_for_each(|n| self.verify_page(&lane, index.page(n), region))
    }

    /// Counts and reports damage in a page. Returns its error.
    #[cold]
    fn damaged(&self, lane: &Lane, page: PageIndex) -> Error {
        let (offset, path) = (page.start(), self.path());
        let len = self.len().saturating_sub(offset).min(PAGE as u64);
        lane.stats.bump(Counter::DamagedPages, 1);
        event!(ERROR, file = %path.display(), offset, len, "damaged");
        self.damage_reporter.report(&Damage { path: &path, range: offset..offset + len });
        Error::Damaged { path, offset, len }
    }
}
