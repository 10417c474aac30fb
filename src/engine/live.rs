//! Which live redo entries stand in the way, and how are they cleared?
//!
//! A redo entry is live until a newer entry over it in its lane has been drained: until then
//! recovery may replay it. The rules, checked by `docs/model/engine_commit.py`:
//! - an entry names physical slots, so a flip away from a slot makes its replay harmless:
//!   recovery replays only into slots that are valid;
//! - who writes to a slot that is *not* valid and that a live entry names clears the entry in its
//!   own first drain: nothing is lost if the clearing alone survives, because the slot is not
//!   valid. But an entry may name several slices, of which others are still valid and were stored
//!   in place without having been flushed: those are *settled* first, flushed and drained, or
//!   clearing would take an acknowledged write with it;
//!   A cleared entry keeps its sequence number, which voids the lane's older entry too: else that
//!   one would be replayed over what the cleared one had stored (the model found this);
//! - who would store in place into a slot that a live entry of another lane names, flips instead.
//!
//! All of this happens under the lock of the page that the entries name.

use super::Engine;
use super::lanes::{Lane, LiveEntry};
use super::state::{PageState, RegionState};
use super::stats::Counter;
use crate::bitmap::{Side, Slices, Validity};
use crate::format::entry::cleared;
use crate::format::layout;
use crate::mutant::{planted, unless};
use crate::units::{LaneIndex, PageIndex, SLICE};

/// A page of which slots are about to be written.
#[derive(Clone, Copy)]
pub(super) struct Target<'e> {
    pub page: PageIndex,
    pub region: &'e RegionState,
    /// The slices.
    pub slices: Slices,
    /// The slot of each.
    pub sides: Validity,
}

impl Target<'_> {
    fn state(&self) -> &PageState {
        &self.region.pages[self.page.in_region()]
    }

    /// Whether the entry names one of the slots.
    fn is_named_by(&self, entry: &LiveEntry) -> bool {
        same_slots(entry, self.slices, self.sides) != Slices::NONE
    }
}

/// The slices of `slices` that the entry names in the same slot as `sides`.
fn same_slots(entry: &LiveEntry, slices: Slices, sides: Validity) -> Slices {
    Slices(entry.slices & slices.0 & !(entry.sides ^ sides.0))
}

impl Engine {
    /// The live entries that name `page`. Forgets lanes that have none any more.
    fn live_entries(&self, page: PageIndex, state: &PageState) -> Vec<LiveEntry> {
        let mut lanes = state.lanes();
        let mut live = Vec::new();
        for n in super::plan::bits(lanes) {
            let index = LaneIndex(n as u16);
            let before = live.len();
            live.extend((0..2).filter_map(|at| self.lanes[index].live(index, at, page)));
            if live.len() == before {
                lanes &= !(1 << n);
            }
        }
        state.set_lanes(lanes);
        live
    }

    /// Whether a live entry of a lane other than `mine` names one of the valid slots of `slices`.
    #[inline]
    pub(super) fn another_lane_names(
        &self,
        mine: LaneIndex,
        page: PageIndex,
        state: &PageState,
        slices: Slices,
        valid: Validity,
    ) -> bool {
        if planted!(RedoOverOtherLane) {
            return false;
        }
        // Only private lanes have a bit: `mine` is one where the bit is set.
        if state.lanes() & !1u64.checked_shl(mine.0.into()).unwrap_or(0) == 0 {
            return false;
        }
        self.live_entries(page, state)
            .iter()
            .any(|entry| entry.lane != mine && !same_slots(entry, slices, valid).is_empty())
    }

    /// Clears every live entry that names one of the slots that are about to be written. The
    /// caller drains before anything makes those slots valid.
    pub(super) fn clear_live_entries<'e>(
        &'e self,
        lane: &Lane,
        targets: impl Iterator<Item = Target<'e>> + Clone,
    ) {
        let named = targets.filter(|target| target.state().lanes() != 0);
        let mut must_settle = false;
        for target in named.clone() {
            for entry in self.live_entries(target.page, target.state()) {
                if target.is_named_by(&entry) {
                    must_settle |= self.flush_valid_slots(&target, &entry);
                }
            }
        }
        if must_settle {
            // Orders the slices that these entries alone vouch for before the clearing of the
            // entries: both in one drain could keep the clearing and lose the slices.
            unless!(SettleNoDrain, self.drain(lane));
            lane.stats.bump(Counter::Settles, 1);
        }
        for target in named {
            for entry in self.live_entries(target.page, target.state()) {
                if target.is_named_by(&entry) {
                    unless!(NoClear, self.clear_entry(target.page, &entry));
                }
            }
        }
    }

    /// Flushes the slots that the entry names and that are valid now. False if there are none.
    fn flush_valid_slots(&self, target: &Target<'_>, entry: &LiveEntry) -> bool {
        let valid_now = target.region.validity(target.page.in_region());
        let vouched = same_slots(entry, Slices::ALL, valid_now);
        unless!(SettleNoFlush, self.flush_slots(target.page, vouched, valid_now));
        !vouched.is_empty()
    }

    /// Clears the entry's header, unless its owner has stored a newer one over it meanwhile, and
    /// flushes the line in both cases: what must be gone is the old header.
    fn clear_entry(&self, page: PageIndex, entry: &LiveEntry) {
        let at = layout::redo_entry(entry.lane, entry.position);
        let left = if planted!(ClearToZero) { 0 } else { cleared(entry.header) };
        self.reflection.replace_word_through(at, entry.header, left);
        self.lanes[entry.lane].forget(entry.position, page);
    }

    /// Flushes the slots `sides` of `slices`, without waiting.
    pub(super) fn flush_slots(&self, page: PageIndex, slices: Slices, sides: Validity) {
        for side in [Side::Home, Side::Reflection] {
            for run in sides.on(side, slices).runs() {
                let offset = page.start() + (run.start * SLICE) as u64;
                let (file, at) = self.slot(side, offset);
                file.flush(at, run.len() * SLICE);
            }
        }
    }

    /// Flushes what the lane's owner stored in place with its last redo entry, without waiting:
    /// the next drain of the same thread makes it durable, and the entry after the next may then
    /// be stored over the one that vouches for it.
    #[inline]
    pub(super) fn flush_last_in_place(&self, lane: &Lane) {
        // Pinned: if the entry still names its page, the page is still there.
        let _pinned = (!planted!(FlushLastUnpinned)).then(|| lane.pin());
        if let Some((page, slices, sides)) = lane.take_unflushed() {
            self.flush_slots(page, Slices(slices), Validity(sides));
        }
    }
}
