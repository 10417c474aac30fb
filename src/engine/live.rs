//! Which live entries stand in the way, and how are they made void?
//!
//! An entry vouches for a word: until the word is durable by itself, recovery sets the slices' bits as the
//! entry says. It is live until a newer entry over it in its lane has been drained. (Recovery leaves it out earlier than
//! that, when a batch of words has become durable. To forget it then would save some void stores.) The rules, checked
//! by `docs/model/vouched_flips.py`:
//! - whoever moves slices in another way makes all entries void that name one of them, in whichever slot,
//!   with the first drain of that way: else recovery would move the slices back. Before that the
//!   words that only an entry vouches for are *settled*, flushed and drained, or the void entry would take
//!   an acknowledged write with it. They were stored through the cache, so anybody may flush them;
//! - a void entry keeps its number and its page, and voids older entries of its lane about that page. Both may
//!   have been made void in one drain of which only the newer one's part arrived: the older one would come
//!   back to life. Entries about other pages stay: their words may not be durable;
//! - a lane's own newer entry needs none of this, because recovery goes by their order. It may even go to a slot
//!   that an older one names: of a lane only the newest entry's slots are verified, since all others were
//!   acknowledged, and that one names slots that are valid, to which nobody copies;
//! - who finds slices named by an entry of another lane does not vouch for them, but flips with two drains:
//!   the entries of two lanes have no order.
//!
//! All of this happens under the lock of the page that the entries name.

use super::Engine;
use super::lanes::{InUse, Lane, LiveEntry};
use super::plan;
use super::state::RegionState;
use super::stats::Counter;
use crate::bitmap::Slices;
use crate::format::entry::Sequence;
use crate::format::{layout, vouch};
use crate::mutant::{planted, unless};
use crate::units::{LaneIndex, PageIndex, RegionIndex, SLICE};

/// A page of which slices are about to be moved.
#[derive(Clone, Copy)]
pub(super) struct Target<'e> {
    pub page: PageIndex,
    pub region: &'e RegionState,
    /// The slices.
    pub slices: Slices,
}

impl Target<'_> {
    /// Where the first of them begins at home.
    #[inline(always)]
    pub fn start(&self) -> u64 {
        self.page.start() + (self.slices.0.trailing_zeros() as usize * SLICE) as u64
    }

    #[inline(always)]
    fn lanes(&self) -> u64 {
        self.region.lanes(self.page.in_region())
    }

    fn is_named_by(&self, entry: &LiveEntry) -> bool {
        entry.slices & self.slices.0 != 0
    }
}

impl Engine {
    /// The live entries that name `page`. Forgets lanes that have none any more.
    fn live_entries(&self, page: PageIndex, region: &RegionState) -> Vec<LiveEntry> {
        let mut lanes = region.lanes(page.in_region());
        let mut live = Vec::new();
        for n in super::plan::bits(lanes) {
            let index = LaneIndex(n as u16);
            let before = live.len();
            live.extend(self.lanes[index].live(index, page));
            if live.len() == before {
                lanes &= !(1 << n);
            }
        }
        region.keep_lanes(page.in_region(), lanes);
        live
    }

    /// Whether a live entry names the page, of which a region's word says that one may. Forgets what is none.
    #[cold]
    pub(super) fn is_named(&self, region: &RegionState, page: PageIndex) -> bool {
        !self.live_entries(page, region).is_empty()
    }

    /// Whether a live entry of another lane than this names one of the target's slices.
    #[inline(always)]
    pub(super) fn another_lane_names(&self, lane: &InUse<'_>, target: &Target<'_>) -> bool {
        target.lanes() & !lane.bit() != 0
            && !planted!(VouchOverOtherLane)
            && self.look_for_another_lane(lane.index(), target)
    }

    #[cold]
    fn look_for_another_lane(&self, mine: LaneIndex, target: &Target<'_>) -> bool {
        let live = self.live_entries(target.page, target.region);
        live.iter().any(|entry| entry.lane != mine && target.is_named_by(entry))
    }

    /// Makes every live entry void that names one of the slices that are about to be moved. The
    /// caller drains before it stores a word. Whether there was one.
    pub(super) fn clear_live_entries<'e>(
        &'e self,
        lane: &Lane,
        targets: impl Iterator<Item = Target<'e>> + Clone,
    ) -> bool {
        let named = targets.filter(|target| target.lanes() != 0);
        let mut must_settle = false;
        for target in named.clone() {
            let mut live = self.live_entries(target.page, target.region).into_iter();
            if live.any(|entry| target.is_named_by(&entry) && !entry.is_settled) {
                unless!(SettleNoFlush, self.flush_word(target.page));
                must_settle = true;
            }
        }
        if must_settle {
            // Orders the words that entries vouch for before these become void: both in one drain could
            // keep the void entries and lose the words.
            unless!(SettleNoDrain, self.drain(lane));
            lane.stats.bump(Counter::Settles, 1);
        }
        let mut has_cleared = false;
        for target in named {
            for entry in self.live_entries(target.page, target.region) {
                if target.is_named_by(&entry) {
                    unless!(NoClear, self.make_void(target.page, &entry));
                    has_cleared = true;
                }
            }
        }
        has_cleared
    }

    /// Makes every live entry void that names a page of the region from place `from` on. The region's
    /// lock is held; the caller drains.
    pub(super) fn clear_all_entries(
        &self,
        lane: &Lane,
        index: RegionIndex,
        region: &RegionState,
        from: usize,
    ) {
        let named = plan::bits(region.named_pages()).filter(move |&n| n >= from);
        let targets = named.map(|n| Target { page: index.page(n), region, slices: Slices::ALL });
        self.clear_live_entries(lane, targets);
    }

    /// Makes the entry void, unless its owner has stored a newer one over it meanwhile, and
    /// flushes the line in both cases: what must be gone is the old header.
    fn make_void(&self, page: PageIndex, entry: &LiveEntry) {
        let at = layout::vouch(entry.lane, entry.sequence.place());
        let seed = self.ring_seeds[usize::from(entry.lane.0)];
        let void = if planted!(ClearToZero) { 0 } else { vouch::voided(seed, entry.sequence) };
        self.reflection.replace_word_through(at, vouch::header(seed, entry.sequence), void);
        self.lanes[entry.lane].forget(entry.sequence, page);
    }

    /// Flushes the slice word of `page`, without waiting.
    #[inline]
    pub(super) fn flush_word(&self, page: PageIndex) {
        self.reflection.flush_word(layout::slice_word(page));
    }

    /// Flushes the words that the lane's entries before `end` vouch for, without waiting: with the next
    /// drain of the same thread they are durable, and the entries' places may be used again.
    #[inline]
    pub(super) fn flush_unsettled(&self, lane: &Lane, end: Sequence) {
        // Pinned: if an entry still names its page, the page is still there.
        let _pinned = (!planted!(FlushWordsUnpinned)).then(|| lane.pin());
        // Writes in order have the words of many entries in one line.
        let mut last = None;
        for page in lane.unsettled(end) {
            let line = layout::slice_word(page) / SLICE as u64;
            if last.replace(line) != Some(line) {
                self.flush_word(page);
            }
        }
    }

    /// Makes the words durable that the lane's entries vouch for.
    pub(super) fn settle_own(&self, lane: &Lane) {
        let end = lane.upcoming();
        self.flush_unsettled(lane, end);
        self.drain(lane);
        lane.set_settled(end);
        lane.stats.bump(Counter::Settles, 1);
    }
}
