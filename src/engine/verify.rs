//! Verifies pages by their sums.
//!
//! A page is verified at its first touch in a session, under its lock: any of its places may count
//! then. Later the sum in DRAM counts. Where each read verifies, a reader sums the very bytes that
//! it has copied, beside writers.
//! `docs/protocols/sums.md` has the rules.
//!
//! May import `io`, `pair`, and what lies below them.

use crate::bitmap::{Slices, bits, span};
use crate::config::integrity::{Damage, Integrity};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::lock::lock_page;
use crate::mutant::{planted, unless};
use crate::page_sum;
use crate::pair::log::lane::Lane;
use crate::pair::region::RegionState;
use crate::pair::stats::Counter;
use crate::pair::sums::StoredSums;
use crate::primitive::{Ordering, fence};
use crate::units::{PAGE, PageIndex};
use std::ops::Range;

/// Number of attempts to verify a page beside its writers, before a reader takes the lock.
const ATTEMPTS: u32 = 32;

/// The result of a comparison of bytes with the sums of their pages.
pub(in crate::engine) enum Compared {
    Whole,
    /// Some page was not verified in this session.
    Unknown,
    /// The page does not have its sum.
    Damaged(PageIndex),
}

impl Engine {
    /// Returns the sum of what the page holds, up to byte `len` of the file. The caller holds its
    /// lock, or validates its version afterwards.
    pub(in crate::engine) fn sum_of_page(
        &self,
        page: PageIndex,
        region: &RegionState,
        len: u64,
    ) -> Result<u64> {
        self.load_page(page, region, len).map(|bytes| page_sum::of_page(&bytes))
    }

    /// Returns what the page holds, up to byte `len` of the file, and zeroes past it. The caller
    /// holds its lock, or validates its version afterwards.
    pub(in crate::engine) fn load_page(
        &self,
        page: PageIndex,
        region: &RegionState,
        len: u64,
    ) -> Result<[u8; PAGE]> {
        let mut bytes = [0; PAGE];
        let valid = region.validity(page.in_region());
        self.load_slices(page, valid, Slices::ALL, &mut bytes)?;
        zero_past(page, len, &mut bytes);
        Ok(bytes)
    }

    /// Verifies a page, unless that was done. The caller holds its lock.
    pub(in crate::engine) fn verify_under_lock(
        &self,
        lane: &Lane,
        page: PageIndex,
        region: &RegionState,
    ) -> Result<()> {
        let is_whole = self.is_whole_at_first_touch(lane, page, region)?;
        if is_whole { Ok(()) } else { Err(self.damaged(lane, page)) }
    }

    /// Returns `true` if the page was verified, or is from now on. Does not count or report damage.
    /// The caller holds its lock.
    pub(in crate::engine) fn is_whole_at_first_touch(
        &self,
        lane: &Lane,
        page: PageIndex,
        region: &RegionState,
    ) -> Result<bool> {
        let n = page.in_region();
        if !self.has_sums() {
            return Ok(true);
        }
        if region.sums().is_verified(n) || planted!(NotVerifiedBeforeWrite) {
            return Ok(true);
        }
        let sum = self.sum_of_page(page, region, self.len())?;
        let stored = self.read_sums(page, 1)?;
        let place = stored.first().and_then(|stored| stored.place_of(page, sum));
        let place = place.or_else(|| planted!(DamageTakenForWhole).then_some(0));
        let Some(place) = place else { return Ok(false) };
        region.sums().set(n, (place, sum), true);
        if !stored.iter().all(StoredSums::are_equal) && !self.reflection.is_private() {
            // A crash has left older ones.
            unless!(StaleSumsLeftByCrash, self.replace_stale_sums(page, region.sums()));
        }
        lane.stats.bump(Counter::PagesVerified, 1);
        Ok(true)
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
        if region.sums().is_verified(n) && self.verify_beside_writers(lane, page, region)? {
            return Ok(());
        }
        let held = lock_page(&region.lock, &region.pages[n].lock);
        // Nothing changes under the lock: readers need not wait.
        held.mark_stable();
        if page.start() >= self.len() {
            return Ok(());
        }
        self.check_under_lock(lane, page, region)
    }

    /// Verifies a page, also if that was done. The caller holds its lock.
    pub(in crate::engine) fn check_under_lock(
        &self,
        lane: &Lane,
        page: PageIndex,
        region: &RegionState,
    ) -> Result<()> {
        let is_whole = self.is_whole(lane, page, region)?;
        if is_whole { Ok(()) } else { Err(self.damaged(lane, page)) }
    }

    /// Returns `true` if the page has its sum. Does not count or report damage. The caller holds
    /// its lock.
    pub(in crate::engine) fn is_whole(
        &self,
        lane: &Lane,
        page: PageIndex,
        region: &RegionState,
    ) -> Result<bool> {
        let n = page.in_region();
        if !region.sums().is_verified(n) {
            return self.is_whole_at_first_touch(lane, page, region);
        }
        Ok(self.sum_of_page(page, region, self.len())? == region.sums().sum(n))
    }

    /// Returns the stored sum of the state of a page that its settled slots have, if it is known:
    /// that of the last durable point where those are kept, and elsewhere that of the present. The
    /// caller holds the page's lock.
    pub(in crate::engine) fn settled_sum(
        &self,
        page: PageIndex,
        region: &RegionState,
    ) -> Result<Option<u64>> {
        let n = page.in_region();
        if !self.has_sums() || !region.sums().is_verified(n) {
            return Ok(None);
        }
        if self.keeps_points && region.sums().has_moved(n) && !planted!(PresentSumKept) {
            let places = self.read_sums(page, 1)?;
            return Ok(places.first().map(|places| places.at(region.sums().durable_place(n))));
        }
        Ok(Some(page_sum::stored(page, region.sums().sum(n))))
    }

    /// Verifies a page, if the file has sums. The caller holds no lock, and is in no read section.
    pub(in crate::engine) fn verify_if_summed(
        &self,
        page: PageIndex,
        region: &RegionState,
    ) -> Result<()> {
        if self.has_sums() { self.verify_page(&self.lane_fenced(), page, region) } else { Ok(()) }
    }

    /// Verifies the pages of `range` that were not verified in this session, as far as the file
    /// reaches. The caller holds no lock, and is in no read section.
    #[inline(always)]
    pub(in crate::engine) fn verify_new(&self, lane: &Lane, range: Range<u64>) -> Result<()> {
        if self.has_sums() { self.verify_pages(lane, range, false) } else { Ok(()) }
    }

    /// Verifies the pages of `range` as [`verify_new`](Self::verify_new) does, and where each read
    /// verifies, all of them.
    #[inline(always)]
    pub(in crate::engine) fn verify_again(&self, lane: &Lane, range: Range<u64>) -> Result<()> {
        let is_on_read = self.integrity == Integrity::OnRead && !planted!(ReadVerifiesOnce);
        if self.has_sums() { self.verify_pages(lane, range, is_on_read) } else { Ok(()) }
    }

    #[inline(never)]
    fn verify_pages(&self, lane: &Lane, range: Range<u64>, also_known: bool) -> Result<()> {
        let range = range.start..range.end.min(self.len_now());
        if range.start >= range.end {
            return Ok(());
        }
        for span in span::regions(range) {
            let region = match self.state.loaded(span.region) {
                Some(region) => region,
                None => {
                    let _pinned = lane.pin();
                    self.region(span.region)?
                }
            };
            let known = if also_known { 0 } else { region.sums().verified() };
            let wanted = Slices::range(span.pages.start, span.pages.end).0 & !known;
            bits(wanted).try_for_each(|n| self.verify_page(lane, span.region.page(n), region))?;
        }
        Ok(())
    }

    /// Gathers `range` to `to`, and verifies it. The caller holds the locks of its pages.
    pub(in crate::engine) fn gather_verified(
        &self,
        lane: &Lane,
        to: &mut [u8],
        range: Range<u64>,
    ) -> Result<()> {
        if self.has_sums() {
            for page in span::pages(range.clone()).map(|span| span.page) {
                self.verify_under_lock(lane, page, self.region(page.region())?)?;
            }
        }
        self.gather(to, range.clone())?;
        match self.compare_gathered(to, &range)? {
            Compared::Damaged(page) => Err(self.damaged(lane, page)),
            Compared::Whole | Compared::Unknown => Ok(()),
        }
    }

    /// Compares the bytes of `range`, which were just gathered to `to`, with the sums of their
    /// pages, where each read verifies. So a reader gets no byte that is not part of a right sum.
    ///
    /// The caller holds the locks of the pages, or validates their versions before it relies on the
    /// result.
    #[inline(always)]
    pub(in crate::engine) fn compare_gathered(
        &self,
        to: &mut [u8],
        range: &Range<u64>,
    ) -> Result<Compared> {
        match self.integrity {
            Integrity::OnRead if !planted!(ReadVerifiesOnce) => self.compare_with_sums(to, range),
            _ => Ok(Compared::Whole),
        }
    }

    #[inline(never)]
    fn compare_with_sums(&self, to: &mut [u8], range: &Range<u64>) -> Result<Compared> {
        for span in span::pages(range.clone()) {
            let region = self.region(span.page.region())?;
            let n = span.page.in_region();
            if !region.sums().is_verified(n) {
                return Ok(Compared::Unknown);
            }
            let from = (span.offset() - range.start) as usize;
            let piece = &mut to[from..from + span.len()];
            let sum = match <&[u8; PAGE]>::try_from(&*piece) {
                Ok(bytes) => page_sum::of_page(bytes),
                Err(_) => {
                    let bytes = self.load_page(span.page, region, self.len())?;
                    // The bytes that are summed are those that the reader gets.
                    piece.copy_from_slice(&bytes[span.start..span.end]);
                    page_sum::of_page(&bytes)
                }
            };
            if sum != region.sums().sum(n) {
                return Ok(Compared::Damaged(span.page));
            }
        }
        Ok(Compared::Whole)
    }

    /// Counts and reports damage in a page. Returns its error.
    #[cold]
    pub(in crate::engine) fn damaged(&self, lane: &Lane, page: PageIndex) -> Error {
        let (offset, path) = (page.start(), self.path());
        let len = self.len().saturating_sub(offset).min(PAGE as u64);
        lane.stats.bump(Counter::DamagedPages, 1);
        event!(ERROR, file = %crate::error::shown(&path), offset, len, "damaged");
        self.damage_reporter.report(&Damage { path: &path, range: offset..offset + len });
        Error::Damaged { path, offset, len }
    }
}

/// Zeroes the bytes of a page past byte `len` of the file.
pub(in crate::engine) fn zero_past(page: PageIndex, len: u64, bytes: &mut [u8; PAGE]) {
    let there = len.saturating_sub(page.start()).min(PAGE as u64) as usize;
    bytes[there..].fill(0);
}
