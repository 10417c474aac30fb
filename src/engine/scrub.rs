//! Verifies ranges of pages: when a caller asks, and in the background at a chosen rate.
//!
//! Each page is verified by itself, beside its writers. So a pass takes as long as the file is
//! large, and holds no other thread up.
//!
//! May import `sums`, `pair`, and what lies below them.

use crate::config::progress::Work;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::pair::region::RegionState;
use crate::pair::stats::Counter;
use crate::primitive::Mutex;
use crate::units::{PAGE, PAGES_PER_REGION, PageIndex, REGION, RegionIndex};
use std::ops::Range;
use std::time::Duration;

/// Time between two steps of a scrub.
pub(crate) const STEP_EVERY: Duration = Duration::from_millis(50);

/// Steps of a scrub in a second.
const STEPS: u64 = 20;

/// The scrub of one file.
pub(crate) struct Scrub {
    /// Pages of each step, at least one.
    pages: u64,
    /// The page that the next step begins with.
    next: Mutex<PageIndex>,
}

impl Scrub {
    /// Makes a scrub of about this many bytes a second.
    pub fn new(bytes_per_second: u64) -> Self {
        let pages = (bytes_per_second / PAGE as u64).div_ceil(STEPS).max(1);
        Scrub { pages, next: Mutex::new(PageIndex(0)) }
    }
}

/// The pages that a verification has looked at.
#[derive(Default)]
pub(crate) struct Verified {
    pub pages: u64,
    /// The pages that are damaged, as ranges of offsets in bytes.
    pub damaged: Vec<Range<u64>>,
}

impl Engine {
    /// Verifies all pages of `range` that hold something. Goes on after a damaged page.
    pub fn verify(&self, range: Range<u64>) -> Result<Verified> {
        self.check_usable()?;
        let mut verified = Verified::default();
        if range.is_empty() || !self.has_sums() {
            return Ok(verified);
        }
        let regions = self.regions_to_verify(range.clone())?;
        let mut meter = self.reporter.begin(Work::Verify, (regions.len() * REGION) as u64);
        for (index, region) in regions {
            for n in 0..PAGES_PER_REGION {
                let page = index.page(n);
                let is_inside =
                    page.start() < range.end && page.start() + PAGE as u64 > range.start;
                if is_inside && page.start() < self.len_now() {
                    self.verify_one(page, region, &mut verified)?;
                }
            }
            meter.add(REGION as u64);
        }
        Ok(verified)
    }

    /// Returns the regions of `range` that hold a byte other than zero, or should.
    fn regions_to_verify(&self, range: Range<u64>) -> Result<Vec<(RegionIndex, &RegionState)>> {
        self.load_regions_with_bytes(range.clone())?;
        let is_inside = |index: RegionIndex| {
            index.start() < range.end && index.start() + REGION as u64 > range.start
        };
        Ok(self.state.loaded_regions().filter(|(index, _)| is_inside(*index)).collect())
    }

    fn verify_one(
        &self,
        page: PageIndex,
        region: &RegionState,
        verified: &mut Verified,
    ) -> Result<()> {
        verified.pages += 1;
        let lane = self.lane_fenced();
        match self.verify_page(&lane, page, region) {
            Err(Error::Damaged { offset, len, .. }) => verified.damaged.push(offset..offset + len),
            other => other?,
        }
        Ok(())
    }

    /// Takes the next step of the scrub, for the worker. Damage is counted and reported, and the
    /// scrub goes on.
    pub fn scrub(&self) {
        let Some(scrub) = &self.scrub else { return };
        let mut next = scrub.next.lock();
        let (mut verified, mut pages) = (Verified::default(), scrub.pages);
        // A pass looks once for what there is. What is written meanwhile is loaded.
        if *next == PageIndex(0) && self.load_regions_with_bytes(0..self.len_now()).is_err() {
            return;
        }
        let mut page = *next;
        while page.start() < self.len_now() {
            let Some(region) = self.state.loaded(page.region()) else {
                page = RegionIndex(page.region().0 + 1).page(0);
                continue;
            };
            if pages == 0 {
                *next = page;
                return;
            }
            pages -= 1;
            // A page that cannot be read now is looked at in the next pass.
            let _read_later_otherwise = self.verify_one(page, region, &mut verified);
            page = PageIndex(page.0 + 1);
        }
        *next = PageIndex(0);
        self.lane().stats.bump(Counter::ScrubPasses, 1);
    }
}
