//! The pins of views: deploys the pages of a view and keeps their home slots as they are.
//!
//! A view within one page takes a fast path without a lock. The thread pins the page first. Then it
//! checks for a writer or a truncation that may have missed the pin. If there may be one, the
//! thread takes the pin back, and makes the view under locks. A check takes a nanosecond, but each
//! lock waits for all stores before it.
//!
//! Why this is correct:
//!
//! - A writer takes the page's word or its region's before it stores to a home slot, and then looks
//!   for pins. This thread pins first and then looks at both words. All four accesses are
//!   sequentially consistent, so one side sees the other: the writer finds the pin, or this thread
//!   finds the word locked.
//! - If an earlier lock holder has released the word, this thread sees all its changes. So a page
//!   stays as it is if its words are found free, and then its slices are found deployed.
//! - A truncation follows this order too: it sets `cutting` and then looks for pins.
//!
//! May import `commit`, `durable`, `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::{Side, Validity, span};
use crate::engine::Engine;
use crate::engine::deploy::region::{Pins, Which};
use crate::engine::plan::{self, RegionPlan};
use crate::error::{Error, Result};
use crate::mutant::{planted, unless};
use crate::pair::stats::Counter;
use crate::primitive::Ordering;
use crate::units::{PAGE, PageIndex};
use std::ops::Range;

impl Engine {
    /// Pins the pages of `range`, all of them deployed. Returns `false`, with nothing pinned, if
    /// they cannot all be deployed now. One reason is an older view of a page that was written
    /// since, or a stage over a page. Others are a file system that is too full to allocate the
    /// home slots, and a file that keeps durable points.
    pub fn pin(&self, range: Range<u64>) -> Result<bool> {
        self.check_readable()?;
        if !self.is_usable() {
            // A pin may have to deploy.
            return Ok(false);
        }
        // Taken before `resizing`: the thread that has the lane may itself wait for `resizing`.
        let lane = self.lane_fenced();
        self.verify_again(&lane, range.clone())?;
        // Perhaps only this thread's own unfenced write stood against the fast path.
        if self.pin_fast_path(&range) {
            return Ok(true);
        }
        let (offset, len) = (range.start, range.end - range.start);
        self.prefetch_view(offset);
        // Keeps the file from being truncated between the check of its length and the pins.
        let _no_resizing = (!planted!(PinWhileResizing)).then(|| self.resizing.read());
        {
            let _pinned = lane.pin();
            self.check_range(offset, len)?;
            self.load_range(range.clone())?;
        }
        if self.keeps_points || self.home.is_private() {
            // A pinned home slot and a durable reflection slot would leave a slice without a free
            // slot for its next version. So views are copies where durable points are kept.
            return Ok(false);
        }
        let _inside = self.enter_cut(&lane);
        let plans = self.plan_range(range.clone())?;
        let held = plan::lock_all(&plans);
        if self.check_usable_still().is_err() {
            return Ok(false);
        }
        unless!(PinWhileResizing, self.check_range(offset, len)?);
        for span in span::pages(range.clone()) {
            let page = span.page.start();
            match self.ensure_slots(&lane, Side::Home, page..page + PAGE as u64) {
                Err(Error::NoSpace { .. }) => return Ok(false),
                other => other?,
            }
        }
        for plan in &plans {
            // Makes all held locks exclusive for each region. That is more than needed, and
            // harmless.
            match self.deploy_locked(&lane, plan, &held, (Pins::Respect, Which::All)) {
                // For slice words that are not yet known to be allocated.
                Err(Error::NoSpace { .. }) => return Ok(false),
                other => other.map(drop)?,
            }
        }
        let is_free = |plan: &RegionPlan<'_>| {
            plan.pages().all(|n| plan.state.staged_slices(n).is_empty()) || planted!(ViewOverStage)
        };
        let is_deployed =
            |plan: &RegionPlan<'_>| plan.pages().all(|n| plan.state.validity(n) == Validity(0));
        let has_room = |plan: &RegionPlan<'_>| plan.pages().all(|n| plan.state.can_pin(n));
        let may_be_pinned = |plan| is_deployed(plan) && has_room(plan);
        if !plans.iter().all(may_be_pinned) && !planted!(PinAway) || !plans.iter().all(is_free) {
            return Ok(false);
        }
        for plan in &plans {
            self.note_loadable(plan.state, plan.index);
            unless!(PinNotCounted, plan.pages().for_each(|n| plan.state.pin(n)));
        }
        lane.stats.bump(Counter::Views, 1);
        Ok(true)
    }

    /// Removes the pins of `range`.
    #[inline]
    pub fn unpin(&self, range: Range<u64>) {
        for span in span::pages(range) {
            // The region has been loaded since the pin.
            if let Some(region) = self.state.loaded(span.page.region()) {
                unless!(PinNotGivenBack, region.unpin(span.page.in_region()));
            }
        }
    }

    /// Pins the home slots of the page that contains `range`. Returns `false`, with nothing pinned,
    /// unless this is the usual case. In that case the file is usable, and this thread has used it
    /// last and has published nothing since. The page is deployed and not locked.
    #[inline]
    pub fn pin_fast_path(&self, range: &Range<u64>) -> bool {
        let Some(lane) = self.cached_lane() else { return false };
        // The last byte of an empty or inverted range is before the first.
        let last = range.end.wrapping_sub(1);
        if last < range.start || range.start / PAGE as u64 != last / PAGE as u64 {
            return false;
        }
        let page = PageIndex::of(range.start);
        // Views are copies where durable points are kept.
        let is_pinnable = !self.keeps_points;
        let Some(region) = self.state.loaded(page.region()).filter(|_| is_pinnable) else {
            return false;
        };
        self.prefetch_view(range.start);
        let place = page.in_region();
        // Check before pinning: a lock holder that finds the pin would take a slower way for
        // nothing.
        let is_locked = region.lock.is_locked() || region.pages[place].lock.is_locked();
        let is_free = !is_locked || planted!(PinHeldPage);
        let is_at_home = region.validity(place) == Validity(0);
        // A shrink would fail if it saw this pin past the new end, even for a moment.
        let is_inside = last < self.len();
        let is_worth_it = is_free && is_at_home && is_inside;
        if !is_worth_it || !region.can_pin(place) || !region.pin_unless_locked(place) {
            return false;
        }
        // Check the length after `cutting`. A shrink keeps `cutting` set while it may still look
        // for pins, or truncate pages on which it has found none.
        let is_whole = !self.session.cutting.load(Ordering::SeqCst) && last < self.len();
        // Check these after the lock words: by now this thread sees all changes of their last
        // holders.
        let is_loadable = region.home_is_loadable() || self.page_is_allocated(Side::Home, page);
        let is_staged = !region.staged_slices(place).is_empty() && !planted!(FastViewOverStage);
        let is_still_at_home = region.validity(place) == Validity(0) && !is_staged;
        if is_whole && is_loadable && is_still_at_home {
            lane.stats.bump(Counter::Views, 1);
            return true;
        }
        unless!(PinNotGivenBack, region.unpin(place));
        false
    }
}
