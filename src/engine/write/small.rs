//! The fast path of small writes: a write within one page that finds everything in its usual state.
//!
//! This is the most frequent write, and the one in which software overhead shows most. While a
//! processor waits for a drain, it looks ahead over a few hundred instructions. Work beyond that
//! window begins after the drain. So this path prefetches first the lines that would miss. It
//! validates everything once, most likely obstacle first. Whatever is unusual starts again from the
//! beginning in the general way (`write::page`).
//!
//! The order is that of `write::page`: lock, validate, copy, and the steps of a flip. Direct stores
//! have a shorter path of their own: `write::direct`.
//!
//! May import `deploy`, `durable`, `commit`, `io`, `plan`, `pair`, and what lies below
//! them.

use crate::bitmap::Slices;
use crate::config::DeployPolicy;
use crate::engine::Engine;
use crate::engine::commit::logged_flip::{COMPLETED_AT_MOST, DraftRecord, LOGGED_AT_MOST, SLICES};
use crate::engine::commit::publish;
use crate::engine::plan::{Segment, WordUpdate, is_whole_slices};
use crate::error::Result;
use crate::format::entry::WordId;
use crate::lock::{LockGuard, lock_page};
use crate::mutant::{planted, unless};
use crate::pair::log::lanes::InUse;
use crate::pair::log::records::Target;
use crate::pair::stats::Counter;
use crate::platform::{Persistence, Platform};
use crate::units::{PAGE, PageIndex, SLICE};

/// The way that small writes of this file take in the usual case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum Small {
    /// A logged flip: one drain.
    FlippedSlices,
    /// A flip, or a direct store if the write fits one. Drains cost nothing, since only the process
    /// can crash.
    Flip,
    /// Always the general way: each write of this file has more to do.
    General,
}

impl Small {
    pub fn of(platform: &Platform, keeps_cuts: bool, policy: DeployPolicy) -> Small {
        match platform.persistence() {
            _ if keeps_cuts || policy == DeployPolicy::Eager => Small::General,
            Persistence::Process => Small::Flip,
            Persistence::Flush | Persistence::Caches => Small::FlippedSlices,
        }
    }

    /// Returns the length in bytes of the longest small write. A whole page counts as small if it
    /// needs only one drain.
    #[inline(always)]
    pub fn longest(self) -> usize {
        match self {
            Small::FlippedSlices => LOGGED_AT_MOST,
            Small::Flip | Small::General => PAGE - 1,
        }
    }
}

// A logged flip stays within one page.
const _: () = assert!(LOGGED_AT_MOST <= PAGE);

/// Returns `true` if the draft's assumption about the page still holds. The caller holds the page's
/// lock.
#[inline(always)]
fn is_still_right(draft: &DraftRecord, target: &Target<'_>) -> bool {
    draft.valid == target.region.validity(target.page.in_region())
        || planted!(DraftNotLookedAtAgain)
}

impl Engine {
    /// Writes `data`, which is not [longer](Small::longest) than a small write and lies within a
    /// page.
    // Here and below, the last step is a tail call, so that no value has to be saved over a call.
    #[inline]
    pub(super) fn write_small(&self, data: &[u8], offset: u64) -> Result<()> {
        if self.small == Small::General {
            return self.write_slow(data, offset);
        }
        let is_logged = self.small == Small::FlippedSlices;
        match (is_logged, is_whole_slices(&Segment { offset, data })) {
            (true, true) => self.write_small_of::<true, true>(data, offset),
            (true, false) => self.write_small_of::<true, false>(data, offset),
            (false, true) => self.write_small_of::<false, true>(data, offset),
            (false, false) => self.write_small_of::<false, false>(data, offset),
        }
    }

    /// Writes `data`: by a logged flip if `IS_LOGGED`. `IS_WHOLE` says that it covers its slices
    /// from end to end.
    // One function for each kind, which keeps no values for the other kinds. Values that do not fit
    // the registers are stored, and there is room for only about sixty stores behind a drain.
    #[inline(never)]
    fn write_small_of<const IS_LOGGED: bool, const IS_WHOLE: bool>(
        &self,
        data: &[u8],
        offset: u64,
    ) -> Result<()> {
        if self.try_small::<IS_LOGGED, IS_WHOLE>(data, offset) {
            return Ok(());
        }
        self.write_slow(data, offset)
    }

    /// Writes `data` if it lies within a page and everything is in its usual state. Otherwise
    /// returns `false`, with nothing stored.
    #[inline(always)]
    fn try_small<const IS_LOGGED: bool, const IS_WHOLE: bool>(
        &self,
        data: &[u8],
        offset: u64,
    ) -> bool {
        let start = offset as usize % PAGE;
        let end = start + data.len();
        let is_of_our_shape =
            !data.is_empty() && end <= PAGE && (IS_WHOLE || data.len() <= COMPLETED_AT_MOST);
        let ends_at = offset.wrapping_add(data.len() as u64);
        if !is_of_our_shape || ends_at < offset || ends_at > self.len() || !self.is_usable() {
            return false;
        }
        // Prefetch as early as possible: the processor then reaches these requests while it waits
        // for the drain of the previous operation.
        let page = PageIndex::of(offset);
        let Some(lane) = self.lane_to_write() else { return false };
        let is_cold = !lane.recent.has(page);
        if is_cold {
            self.prefetch_small::<IS_LOGGED, IS_WHOLE>(offset, data.len());
        }
        let Some(region) = self.state.touched(page.region()) else { return false };
        let place = page.in_region();
        let state = &region.pages[place];
        if is_cold {
            self.platform.prefetch_own(state);
            self.platform.prefetch_own(&region.lock);
            self.platform.prefetch_own(region.named(place));
        }
        if IS_LOGGED && (!lane.is_private() || !lane.is_allocated()) {
            return false;
        }
        let target = Target { page, region, slices: Slices::of_bytes(start, end) };
        // Taking the lock waits for the drain of the previous operation. The draft is computed
        // during that wait, and validated under the lock.
        let draft = (IS_LOGGED && IS_WHOLE)
            .then(|| self.draft(&lane, &target, region.validity(place), data));
        let held = lock_page(&region.lock, &state.lock);
        self.clear_stamp(page.region(), region, 1 << place);
        let is_usual = (ends_at <= self.len() || planted!(LengthNotCheckedAgain))
            && !region.is_pinned(place)
            && self.page_is_allocated(page)
            && draft.as_ref().is_none_or(|draft| is_still_right(draft, &target))
            && if IS_LOGGED {
                !self.conflicts_with_other_lane(&lane, &target)
            } else {
                region.lanes(place) == 0 || !self.is_named(region, page)
            };
        if !is_usual {
            return false;
        }
        let word = WordId::Slice(page);
        let change = WordUpdate { word, mask: target.slices.0, old: state.slice_word() };
        if !IS_WHOLE {
            let segment = Segment { offset, data };
            return self.flip_completed::<IS_LOGGED>(&lane, &target, &change, held, &segment);
        }
        lane.stats.bump(Counter::BytesAsked, data.len() as u64);
        match &draft {
            Some(draft) => self.commit_logged_flip(&lane, &target, &change, held, data, draft),
            None => self.flip_whole(&lane, &target, &change, held, data),
        }
        true
    }

    /// Flips all slices of the target to `bytes`, without a log record.
    #[inline(always)]
    fn flip_whole(
        &self,
        lane: &InUse<'_>,
        target: &Target<'_>,
        change: &WordUpdate,
        held: LockGuard<'_>,
        bytes: &[u8],
    ) {
        let free = target.region.validity(target.page.in_region()).targets();
        self.copy_slices(lane, target, free, bytes);
        self.commit_flip(lane, change);
        unless!(SmallNotClosed, held.close());
        unless!(SmallNotPublished, publish(target.region, change));
    }

    /// Writes a short part that covers some slices of the target only in part. Returns `false`,
    /// with nothing stored, if the bytes around it could not be read.
    #[inline(never)]
    fn flip_completed<const IS_LOGGED: bool>(
        &self,
        lane: &InUse<'_>,
        target: &Target<'_>,
        change: &WordUpdate,
        held: LockGuard<'_>,
        segment: &Segment<'_>,
    ) -> bool {
        let segments = std::slice::from_ref(segment);
        if IS_LOGGED {
            if self.commit_segments_logged(lane, target, change, held, segments).is_err() {
                return false;
            }
        } else {
            // Drains cost nothing here, so there is no record.
            let mut room = [0; SLICES * SLICE];
            let Ok(bytes) = self.complete(target, segments, &mut room) else { return false };
            self.flip_whole(lane, target, change, held, bytes);
        }
        lane.stats.bump(Counter::BytesAsked, segment.data.len() as u64);
        true
    }
}
