//! The fast path of page-aligned writes: whole pages of one region, all valid on one side.
//!
//! This is the usual case of large aligned writes. No active record names the pages, everything is
//! allocated, and all slices are valid on one side. The write is then one copy to the other side
//! and one word.
//!
//! The cost is the time for which the memory is idle: from the end of the last drain until the
//! first store of this write. That drain may be the previous operation's, and taking a lock waits
//! for it. So this path reads everything that it needs without the lock, while the processor would
//! wait. Under the lock it only validates that. If anything has changed or is unusual, nothing has
//! been stored, and the write takes the general way.
//!
//! May import `deploy`, `durable`, `commit`, `io`, `plan`, `pair`, and what lies below
//! them.

use crate::bitmap::{Side, Slices, bits};
use crate::config::DeployPolicy;
use crate::engine::Engine;
use crate::engine::commit::publish;
use crate::engine::plan::{self, PAGES_FOR_REGION_LOCK, WordUpdate};
use crate::error::Result;
use crate::format::entry::WordId;
use crate::lock::{LockGuard, LockGuards, lock_page, lock_pages};
use crate::mutant::{planted, unless};
use crate::pair::region::RegionState;
use crate::pair::stats::Counter;
use crate::platform::Copying;
use crate::units::{PAGE, PAGES_PER_REGION, PageIndex};
use std::ops::Range;
use std::slice;

impl Engine {
    /// Writes `data`, which covers one or more whole pages, or spans several pages.
    /// [`prefetch_pages`](Self::prefetch_pages) has prefetched what it needs first.
    // Not inlined: a large stack frame means many stores, which wait behind those of the previous
    // operation.
    #[inline(never)]
    pub(super) fn write_aligned(&self, data: &[u8], offset: u64) -> Result<()> {
        if self.try_aligned(data, offset) {
            return Ok(());
        }
        self.write_slow(data, offset)
    }

    /// Writes `data` if it is one or more whole pages of one region, in their usual state.
    /// Otherwise returns `false`, with nothing stored.
    #[inline(always)]
    fn try_aligned(&self, data: &[u8], offset: u64) -> bool {
        let page = PageIndex::of(offset);
        let (first, count) = (page.in_region(), data.len() / PAGE);
        let is_whole = offset.is_multiple_of(PAGE as u64)
            && data.len().is_multiple_of(PAGE)
            && first + count <= PAGES_PER_REGION;
        let end = offset.saturating_add(data.len() as u64);
        // A slot that is not valid may belong to the last durable point, where those are kept.
        if !is_whole
            || self.keeps_points
            || self.policy == DeployPolicy::Eager
            || !self.is_usable()
            || end > self.len()
        {
            return false;
        }
        let Some(region) = self.state.touched(page.region()) else { return false };
        let pages = first..first + count;
        let Some(valid) = region.valid_side(pages.clone()) else { return false };
        let free = valid.other();
        let (file, at) = self.slot(free, offset);
        let Some(lane) = self.lane_to_write() else { return false };

        let (one, mut several, _taken);
        let held = if count == 1 {
            one = lock_page(&region.lock, &region.pages[first].lock);
            slice::from_ref(&one)
        } else if count >= PAGES_FOR_REGION_LOCK as usize {
            one = plan::lock_whole_region(region);
            slice::from_ref(&one)
        } else {
            several = LockGuards::new();
            let locks = region.pages[pages.clone()].iter().map(|page| &page.lock);
            lock_pages(&region.lock, locks, &mut several);
            // Held until the end of the operation: no other writer may store to the word
            // before it is drained and its cached copy changed. A writer that does not get the word
            // takes the general way.
            let Some(word) = region.try_lock_word() else { return false };
            _taken = Some(word).filter(|_| !planted!(WholeWordGivenBack));
            &several[..]
        };
        self.clear_stamp(page.region(), region, Slices::range(pages.start, pages.end).0);
        if end > self.len() && !planted!(LengthNotCheckedAgain)
            || region.valid_side(pages.clone()) != Some(valid) && !planted!(WholeNotLookedAtAgain)
            || !self.is_usual(region, page, pages.clone(), free)
        {
            return false;
        }
        file.copy_in(at, data, Copying::BySize);
        let (word, mask, old) = if count == 1 {
            (WordId::Slice(page), Slices::ALL.0, region.pages[first].slice_word())
        } else {
            let mask = Slices::range(pages.start, pages.end).0;
            (WordId::Region(page.region()), mask, region.region_word())
        };
        let change = WordUpdate { word, mask, old };
        self.commit_flip(&lane, &change);
        unless!(WholeNotClosed, held.iter().for_each(LockGuard::close));
        unless!(WholeNotPublished, publish(region, &change));
        lane.stats.bump(Counter::BytesWritten, data.len() as u64);
        lane.stats.bump(Counter::BytesAsked, data.len() as u64);
        true
    }

    /// Returns `true` if the free slots of the pages can be copied to at once. Then no active
    /// record names the pages, no view pins them, and the slots and the word are allocated. The
    /// caller holds the locks.
    #[inline]
    pub(in crate::engine) fn is_usual(
        &self,
        region: &RegionState,
        page: PageIndex,
        pages: Range<usize>,
        free: Side,
    ) -> bool {
        let mask = Slices::range(pages.start, pages.end).0;
        let named = if planted!(WholeNoClear) { 0 } else { region.named_pages() };
        let pinned = if planted!(WholeOverView) { 0 } else { region.pinned_pages() };
        let one = pages.len() == 1;
        // A page's bit may outlive its reason, so look at the records themselves; that also clears
        // stale bits.
        let named = bits(named & mask).any(|n| self.is_named(region, page.region().page(n)));
        !named
            && pinned & mask == 0
            && (self.side_is_allocated(page.region(), free, one) || planted!(WholeNotAllocated))
            && (one || self.region_words_are_allocated(page.region().superchunk()))
    }
}
