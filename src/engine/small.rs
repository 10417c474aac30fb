//! How does a small write go that finds everything as usual?
//!
//! The most frequent of all, and the one of which most is seen beyond the hardware's limit. What a processor can
//! look ahead while it waits for a drain is a few hundred instructions: what lies beyond begins when the wait is
//! over. So what will be missed is asked for first, everything is looked at once and in the order of what is
//! likely, and whatever is not as usual goes the general way (`in_page`), from the beginning.
//!
//! Same order of steps as there: lock, looks, copy, and the steps of a flip.

use super::Engine;
use super::commit::{Part, publish};
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
    /// By a flip whose drains cost nothing, because only the process dies.
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
}

/// Whether what the draft supposes of the page is true. Under the page's lock.
#[inline(always)]
fn is_still_right(draft: &Draft, target: &Target<'_>) -> bool {
    draft.valid == target.region.validity(target.page.in_region())
        || planted!(DraftNotLookedAtAgain)
}

impl Engine {
    /// Writes a part that lies within a page, if there is nothing unusual about it. `None`: not done, and nothing
    /// was stored.
    #[inline]
    pub(super) fn write_small(&self, part: &Part<'_>) -> Option<Result<()>> {
        if self.small == Small::General || !self.is_usable() {
            return None;
        }
        let &Part { offset, data } = part;
        let ends_at = offset.checked_add(data.len() as u64)?;
        let start = offset as usize % PAGE;
        let end = start + data.len();
        let is_whole = (offset | data.len() as u64).is_multiple_of(SLICE as u64);
        let is_of_our_shape =
            !data.is_empty() && end <= PAGE && (is_whole || data.len() <= COMPLETED_AT_MOST);
        if ends_at > self.len() || !is_of_our_shape {
            return None;
        }
        // As early as can be, so that it is within what the processor looks ahead while it waits for the drain of
        // the operation before: requests for what will be missed.
        let page = PageIndex::of(offset);
        let lane = self.lane();
        let is_little = data.len() <= VOUCHED_AT_MOST;
        let is_cold = !lane.recent.has(page);
        if is_cold {
            self.ask_for_small(offset, data.len(), is_whole, is_little);
        }
        let region = self.state.touched(page.region())?;
        let place = page.in_region();
        if is_cold {
            self.platform.prefetch_own(&region.pages[place]);
            self.platform.prefetch_own(&region.lock);
            self.platform.prefetch_own(region.named(place));
        }
        let slices = Slices::of_bytes(start, end);
        let is_vouched = self.small == Small::Vouched && is_little;
        if is_vouched && (!lane.is_private() || !lane.is_allocated()) {
            return None;
        }
        let state = &region.pages[place];
        let target = Target { page, region, slices };
        // Taking the lock waits for the drain of the operation before. What is computed here is computed
        // meanwhile; under the lock it is seen whether it was right.
        let draft = (is_vouched && is_whole)
            .then(|| self.draft(&lane, &target, region.validity(place), data));
        let held = lock_page(&region.lock, &state.lock);
        let is_usual = (ends_at <= self.len() || planted!(LengthNotCheckedAgain))
            && !region.is_pinned(place)
            && self.all_is_allocated(page.region(), true)
            && draft.as_ref().is_none_or(|draft| is_still_right(draft, &target))
            && if is_vouched {
                !self.another_lane_names(&lane, &target)
            } else {
                region.lanes(place) == 0 || !self.is_named(region, page)
            };
        if !is_usual {
            return None;
        }
        let word = WordId::Slice(page);
        let change = WordMove { word, mask: slices.0, alone: true, old: state.slice_word() };
        if !is_whole {
            return Some(self.flip_completed(&lane, &target, &change, held, part));
        }
        match &draft {
            Some(draft) => self.commit_by_vouched_flip(&lane, &target, &change, held, data, draft),
            None => self.flip_at_once(&lane, &target, &change, held, data),
        }
        lane.stats.bump(Counter::BytesAsked, data.len() as u64);
        Some(Ok(()))
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

    /// Writes a little part that covers some of the target's slices in part.
    #[inline(never)]
    fn flip_completed(
        &self,
        lane: &InUse<'_>,
        target: &Target<'_>,
        change: &WordMove,
        held: Held<'_>,
        part: &Part<'_>,
    ) -> Result<()> {
        let parts = std::slice::from_ref(part);
        if self.small == Small::Vouched {
            self.vouch_for_parts(lane, target, change, held, parts)?;
        } else {
            // Where drains cost nothing.
            let mut room = [0; SLICES * SLICE];
            let bytes = self.complete(target, parts, &mut room)?;
            self.flip_at_once(lane, target, change, held, bytes);
        }
        lane.stats.bump(Counter::BytesAsked, part.data.len() as u64);
        Ok(())
    }

    /// Asks for what a small write will touch in the files.
    #[inline(always)]
    fn ask_for_small(&self, start: u64, len: usize, is_whole: bool, is_little: bool) {
        if is_whole && self.small == Small::Vouched {
            // Of the slots only the translations are wanted, on both sides, since it is not known yet which one
            // is written: a line that is streamed to must not be in the cache. One beside will do.
            self.ask_for_slots(start ^ (PAGE / 2) as u64);
        } else {
            // They are stored to through the cache, or the slices at the ends are loaded to be completed.
            self.ask_for_slots(start);
            let last = start + (len as u64).saturating_sub(1);
            if last / SLICE as u64 != start / SLICE as u64 {
                self.ask_for_slots(last);
            }
        }
        // The word of a flip that nothing vouches for is streamed to.
        if is_little {
            self.reflection.prefetch_write(layout::slice_word(PageIndex::of(start)));
        }
    }
}
