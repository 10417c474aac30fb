//! How does a small write go that finds everything as usual?
//!
//! The most frequent of all, and the one of which most is seen beyond the hardware's limit. What a processor can
//! look ahead while it waits for a drain is a few hundred instructions: what lies beyond begins when the wait is
//! over. So what will be missed is asked for first, everything is looked at once and in the order of what is
//! likely, and whatever is not as usual goes the general way (`in_page`), from the beginning.
//!
//! Same order of steps as there: lock, looks, copy, and the steps of a flip. (What one instruction stores where only the
//! process dies has a shorter way: `one_store`.)

use super::Engine;
use super::commit::{Part, publish};
use super::in_page::is_whole_slices;
use super::lanes::InUse;
use super::live::Target;
use super::plan::WordMove;
use super::stats::Counter;
use super::vouched::{COMPLETED_AT_MOST, Draft, SLICES, VOUCHED_AT_MOST};
use crate::bitmap::Slices;
use crate::error::Result;
use crate::format::entry::WordId;
use crate::format::layout;
use crate::lock::{Held, lock_page};
use crate::mutant::{planted, unless};
use crate::platform::{Persistence, Platform};
use crate::terms::DeployPolicy;
use crate::units::{PAGE, PageIndex, SLICE};

/// How a small write of this file goes, if everything is as usual.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Small {
    /// By a vouched flip: one drain.
    Vouched,
    /// By a flip whose drains cost nothing, because only the process dies; or by one store, if that is all.
    Flip,
    /// Something is to be done beside: it always goes the general way.
    General,
}

impl Small {
    pub fn of(platform: &Platform, keeps_points: bool, policy: DeployPolicy) -> Small {
        match platform.persistence() {
            _ if keeps_points || policy == DeployPolicy::Eager => Small::General,
            Persistence::Process => Small::Flip,
            Persistence::Flush | Persistence::Caches => Small::Vouched,
        }
    }

    /// Most bytes of a write that goes so. A whole page is a small one if one drain is enough for it.
    #[inline(always)]
    pub fn longest(self) -> usize {
        match self {
            Small::Vouched => VOUCHED_AT_MOST,
            Small::Flip | Small::General => PAGE - 1,
        }
    }
}

// It is one page's.
const _: () = assert!(VOUCHED_AT_MOST <= PAGE);

impl Engine {
    /// Writes `data`, which is no [longer](Small::longest) than a small write is, and lies within a page.
    // Here and below: what follows is called last, so that nothing has to be kept over a call.
    #[inline]
    pub(super) fn write_small(&self, data: &[u8], offset: u64) -> Result<()> {
        if self.small == Small::General {
            return self.write_anyhow(data, offset);
        }
        let is_vouched = self.small == Small::Vouched;
        match (is_vouched, is_whole_slices(&Part { offset, data })) {
            (true, true) => self.write_small_of::<true, true>(data, offset),
            (true, false) => self.write_small_of::<true, false>(data, offset),
            (false, true) => self.write_small_of::<false, true>(data, offset),
            (false, false) => self.write_small_of::<false, false>(data, offset),
        }
    }

    /// Writes `data`, by an entry that vouches for it if it `IS_VOUCHED`; it `IS_WHOLE` if it covers its slices from end
    /// to end.
    // Each kind has a function of its own, which keeps no values for the others: what does not fit the registers is
    // stored, and behind a drain there is room for some sixty stores.
    #[inline(never)]
    fn write_small_of<const IS_VOUCHED: bool, const IS_WHOLE: bool>(
        &self,
        data: &[u8],
        offset: u64,
    ) -> Result<()> {
        if self.try_small::<IS_VOUCHED, IS_WHOLE>(data, offset) {
            return Ok(());
        }
        self.write_anyhow(data, offset)
    }

    /// Writes `data`, if it lies within a page and there is nothing unusual about it. False: it is not done, and
    /// nothing was stored.
    #[inline(always)]
    fn try_small<const IS_VOUCHED: bool, const IS_WHOLE: bool>(
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
        // As early as can be, so that it is within what the processor looks ahead while it waits for the drain of
        // the operation before: requests for what will be missed.
        let page = PageIndex::of(offset);
        let Some(lane) = self.lane_to_write() else { return false };
        let is_cold = !lane.recent.has(page);
        if is_cold {
            self.ask_for_small::<IS_VOUCHED, IS_WHOLE>(offset, data.len());
        }
        let Some(region) = self.state.touched(page.region()) else { return false };
        let place = page.in_region();
        let state = &region.pages[place];
        if is_cold {
            self.platform.prefetch_own(state);
            self.platform.prefetch_own(&region.lock);
            self.platform.prefetch_own(region.named(place));
        }
        if IS_VOUCHED && (!lane.is_private() || !lane.is_allocated()) {
            return false;
        }
        let target = Target { page, region, slices: Slices::of_bytes(start, end) };
        // Taking the lock waits for the drain of the operation before. What is computed here is computed
        // meanwhile; under the lock it is seen whether it was right.
        let draft = (IS_VOUCHED && IS_WHOLE)
            .then(|| self.draft(&lane, &target, region.validity(place), data));
        let held = lock_page(&region.lock, &state.lock);
        self.leave_home(page.region(), region, 1 << place);
        let is_usual = (ends_at <= self.len() || planted!(LengthNotCheckedAgain))
            && !region.is_pinned(place)
            && self.page_is_allocated(page)
            && draft.as_ref().is_none_or(|draft| is_still_right(draft, &target))
            && if IS_VOUCHED {
                !self.another_lane_names(&lane, &target)
            } else {
                region.lanes(place) == 0 || !self.is_named(region, page)
            };
        if !is_usual {
            return false;
        }
        let word = WordId::Slice(page);
        let change = WordMove { word, mask: target.slices.0, old: state.slice_word() };
        if !IS_WHOLE {
            let part = Part { offset, data };
            return self.flip_completed::<IS_VOUCHED>(&lane, &target, &change, held, &part);
        }
        lane.stats.bump(Counter::BytesAsked, data.len() as u64);
        match &draft {
            Some(draft) => self.commit_by_vouched_flip(&lane, &target, &change, held, data, draft),
            None => self.flip_at_once(&lane, &target, &change, held, data),
        }
        true
    }

    /// Flips the target's slices to `bytes`, which are all of them, by a flip that nothing vouches for.
    #[inline(always)]
    fn flip_at_once(
        &self,
        lane: &InUse<'_>,
        target: &Target<'_>,
        change: &WordMove,
        held: Held<'_>,
        bytes: &[u8],
    ) {
        let free = target.region.validity(target.page.in_region()).targets();
        self.copy_slices(lane, target, free, bytes);
        self.commit_by_flip(lane, change);
        unless!(SmallNotClosed, held.close());
        unless!(SmallNotPublished, publish(target.region, change));
    }

    /// Writes a little part that covers some of the target's slices in part. False: what is around it could not be
    /// read.
    #[inline(never)]
    fn flip_completed<const IS_VOUCHED: bool>(
        &self,
        lane: &InUse<'_>,
        target: &Target<'_>,
        change: &WordMove,
        held: Held<'_>,
        part: &Part<'_>,
    ) -> bool {
        let parts = std::slice::from_ref(part);
        if IS_VOUCHED {
            if self.vouch_for_parts(lane, target, change, held, parts).is_err() {
                return false;
            }
        } else {
            // Where drains cost nothing.
            let mut room = [0; SLICES * SLICE];
            let Ok(bytes) = self.complete(target, parts, &mut room) else { return false };
            self.flip_at_once(lane, target, change, held, bytes);
        }
        lane.stats.bump(Counter::BytesAsked, part.data.len() as u64);
        true
    }

    /// Asks for what a small write will touch in the files.
    #[inline(always)]
    fn ask_for_small<const IS_VOUCHED: bool, const IS_WHOLE: bool>(&self, start: u64, len: usize) {
        if IS_WHOLE && IS_VOUCHED {
            // Of the slots only the translations are wanted, on both sides, since it is not known yet which one
            // is written: a line that is streamed to must not be in the cache. One beside will do. (Where there may be
            // none, the last one: by the time that it is streamed to, it has come and can go.)
            let beside = start ^ (PAGE / 2) as u64;
            let last = start + len.saturating_sub(SLICE) as u64;
            self.ask_for_slots(if len > PAGE / 2 { last } else { beside });
        } else {
            // They are stored to through the cache, or the slices at the ends are loaded to be completed.
            self.ask_for_slots(start);
            let last = start + (len as u64).saturating_sub(1);
            if last / SLICE as u64 != start / SLICE as u64 {
                self.ask_for_slots(last);
            }
        }
        // The word is stored through the cache, here as there.
        self.reflection.prefetch_write(layout::slice_word(PageIndex::of(start)));
    }
}

/// Whether what the draft supposes of the page is true. Under the page's lock.
#[inline(always)]
fn is_still_right(draft: &Draft, target: &Target<'_>) -> bool {
    draft.valid == target.region.validity(target.page.in_region())
        || planted!(DraftNotLookedAtAgain)
}
