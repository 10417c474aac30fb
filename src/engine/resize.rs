//! How does the length change, in use and without moving the mapping?
//!
//! The logical length is a word of the reflection file: storing it is the commit point, both ways.
//! What lies past it is invisible, so it can be prepared before (growing) and cleaned up after
//! (shrinking) without being atomic. The high-water word says how far there is something to clean
//! up: past `max(length, high-water mark)` every word and every home byte is zero. A crash in
//! between leaves the mark above the length, and the next open (or the next `set_len`) cleans up.

use super::Engine;
use super::clean_up;
use super::gates::Gate;
use super::lanes::Lane;
use super::own_changes;
use super::plan;
use super::state::RegionState;
use crate::bitmap::Validity;
use crate::error::{Error, Result, SYNC_OF_LENGTH};
use crate::format::layout;
use crate::lock::Held;
use crate::mutant::{planted, unless};
use crate::primitive::{Ordering, fence};
use crate::terms::{Durability, Medium};
use crate::units::{CHUNK, ChunkIndex, PAGE, PAGES_PER_REGION, PageIndex, RegionIndex, SUPERCHUNK};

impl Engine {
    /// Makes the file `new` bytes long. New bytes are zero; bytes past the end are gone.
    pub fn set_len(&self, new: u64) -> Result<()> {
        self.change_len(new)?;
        match &self.durable {
            Some(durable) if self.durability == Durability::EveryWrite => {
                self.durable_point(durable)
            }
            _ => Ok(()),
        }
    }

    fn change_len(&self, new: u64) -> Result<()> {
        self.check_usable()?;
        if new > self.max_len {
            return Err(Error::TooLong { path: self.path(), len: new, max_len: self.max_len });
        }
        // Before `resizing`: who has a lane may be waiting for that.
        let lane = self.lane();
        let _one_at_a_time = (!planted!(ResizingNotLocked)).then(|| self.resizing.write());
        let old = self.len();
        if let Some(durable) = &self.durable
            && new > old
        {
            self.check_not_overdue(durable)?;
        }
        if self.high_water.load(Ordering::Relaxed) > old && !planted!(NoCatchingUp) {
            // A shrink or a growth that was not finished for lack of something.
            self.clean_up_past(&lane, old)?;
        }
        match new.cmp(&old) {
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => self.grow(&lane, old, new),
            std::cmp::Ordering::Less => self.shrink(&lane, old, new),
        }
    }

    fn grow(&self, lane: &Lane, old: u64, new: u64) -> Result<()> {
        unless!(
            GrowHighWaterNotRaised,
            self.reflection.store_word_through(layout::HIGH_WATER_WORD, new)
        );
        // Orders the mark before the files' lengths: a home file that is longer than the mark was
        // changed behind our back.
        unless!(GrowHighWaterNotDrained, self.drain(lane));
        if planted!(GrowLengthBeforeFiles) {
            self.reflection.store_word_through(layout::LENGTH_WORD, new);
            self.drain(lane);
        }
        self.high_water.store(new, Ordering::Relaxed);
        {
            // Nobody may note a chunk as allocated by its old, shorter end.
            let _no_allocation = self.allocating.lock();
            // Before the file is longer: if there is no space for it, who stores to that page finds no hole.
            unless!(GrowthReservesLater, self.reserve_rest_of_page(old, new)?);
            self.set_file_lengths(new)?;
            unless!(GrowChunkNotExtended, self.extend_chunk(old, new)?);
        }
        // Files first: a length that the files do not have would be a file cut short.
        unless!(GrowFilesNotSynced, self.sync_lengths()?);
        self.reflection.store_word_through(layout::LENGTH_WORD, new);
        // The commit point: durable before anybody uses the new bytes.
        unless!(GrowLengthNotDrained, self.drain(lane));
        if let Some(durable) = &self.durable {
            durable.has_grown();
        }
        self.publish_len(new);
        own_changes::note_length(self.number, None);
        Ok(())
    }

    /// Shows the new length, before this thread looks at anything else.
    fn publish_len(&self, new: u64) {
        // Orders what was closed before the length: a transaction that has closed its words and finds the old length is
        // seen by whoever finds the new one.
        fence(Ordering::SeqCst);
        self.len.store(new, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    fn shrink(&self, lane: &Lane, old: u64, new: u64) -> Result<()> {
        debug_assert!(new < old);
        // Orders the mark before the looks for pins: who pins without `resizing` and then finds no mark
        // knows that its pin is found (`pin_in_page`). Everybody else who pins reads `resizing`.
        unless!(CuttingNotSaid, self.cutting.store(true, Ordering::SeqCst));
        let shrunk = self.shrink_unless_pinned(lane, new);
        self.cutting.store(false, Ordering::SeqCst);
        shrunk
    }

    fn shrink_unless_pinned(&self, lane: &Lane, new: u64) -> Result<()> {
        let pinned =
            |(index, region)| has_pins_past(index, region, new) && !planted!(ShrinkUnderView);
        if self.touched_past(new).any(pinned) {
            return Err(Error::Pinned { path: self.path(), len: new });
        }
        self.leave_home_past(new);
        // Who writes to both sides of the new end is done before anybody sees the new length, or finds it. In one
        // piece, it holds the boundary's lock; in several, it is inside the gate, where it may wait for that lock.
        let boundary = self.touch_boundary(lane, new)?;
        let gate = (!planted!(LengthGateOpen)).then(|| self.lanes.shut(Gate::Length));
        let held = (!planted!(ShrinkBoundaryNotLocked)).then(|| plan::lock_whole_region(boundary));
        self.reflection.store_word_through(layout::LENGTH_WORD, new);
        // The commit point, before anybody sees the new length. What is still written past the new
        // end by who had checked the old one is cut off below. The high-water mark still says
        // `old`: there is something to clean up.
        unless!(ShrinkLengthNotDrained, self.drain(lane));
        // A transaction may have read bytes that are gone now, of the page that the new end cuts in two. It must not
        // commit any more when the new length is seen. (Whole pages past the end are found out by the length.)
        unless!(ShrinkBoundaryNotClosed, held.iter().for_each(Held::close));
        self.publish_len(new);
        drop((held, gate));
        own_changes::note_length(self.number, Some(new));
        if let Some(durable) = &self.durable {
            // What is cut off belongs to the last durable point: first a new one, without it. And the
            // cut is durable before the next: that may grow the file again, over zeroes.
            // If it fails, what lies past the length is the point's still: nobody may clean up there.
            unless!(
                ShrinkNoPoint,
                self.durable_point_while_resizing(lane, durable, false)
                    .inspect_err(|error| self.poison(error))?
            );
        }
        // Committed: what goes wrong from here on is caught up with by the next call or open.
        let _caught_up_with_later = self.clean_up_past(lane, new);
        Ok(())
    }

    /// Nobody reads past `new` any more without a look at the length. While `cutting`: so no page there becomes known
    /// again. (No lock is taken where none is known: who writes there is waited for where that matters, and not here.)
    fn leave_home_past(&self, new: u64) {
        if planted!(CutStaysKnown) {
            return;
        }
        // Orders what was said before the look at which regions there are: whoever touches one later sees it.
        fence(Ordering::SeqCst);
        for (index, region) in self.touched_past(new) {
            let past = pages_from(first_cut_page(index, new));
            // Who makes one known has noted it before its look at `cutting`: if that came too early, it is waited for.
            if region.known_at_home_after_fence() & past != 0 {
                let _held = plan::lock_whole_region(region);
                self.leave_home(index, region, past);
            }
        }
    }

    /// Touches the region that `len` cuts in two. It is the only one past the end that an operation
    /// may still touch: its mirrors must not be read while the words past the end are zeroed.
    fn touch_boundary(&self, lane: &Lane, len: u64) -> Result<&RegionState> {
        let _pinned = lane.pin();
        self.region(RegionIndex::of(len.min(self.max_len.saturating_sub(1))))
    }

    /// Zeroes and gives back everything past the length `len`, on the media and in the mirrors, and
    /// lowers the high-water mark.
    pub(super) fn clean_up_past(&self, lane: &Lane, len: u64) -> Result<()> {
        if let Some(durable) = &self.durable {
            durable.end_was_cut();
        }
        self.touch_boundary(lane, len)?;
        // Whoever checked its range against an older length has touched its regions after this,
        // and whoever checks it from now on touches none past the end.
        unless!(CutNoWaitForTouches, self.wait_for_readers());
        let cut: Vec<(RegionIndex, &RegionState)> = self.touched_past(len).collect();
        let locked = if planted!(CutNotLocked) { &[] } else { &cut[..] };
        let held: Vec<Held<'_>> =
            locked.iter().map(|(_, region)| plan::lock_whole_region(region)).collect();
        for (index, region) in &cut {
            // The page that the end cuts in two as well.
            let from = first_cut_page(*index, len);
            unless!(CutNoClear, self.clear_all_entries(lane, *index, region, from));
        }
        // Orders the end of the entries before the words and bytes past the length are zeroed:
        // an entry that were replayed after that would put its bytes there.
        unless!(CutNoDrainAfterClear, self.drain(lane));
        held.iter().for_each(Held::close);
        for (index, region) in &cut {
            let from = first_cut_page(*index, len.next_multiple_of(PAGE as u64)).min(64);
            let mask = pages_from(from);
            unless!(CutRegionMirrorStays, region.flip_region_bits(region.region_word() & mask));
            unless!(
                CutSliceMirrorsStay,
                (from..PAGES_PER_REGION).for_each(|n| region.set_slice_word(n, 0))
            );
            (from..PAGES_PER_REGION).for_each(|n| region.set_durable(n, Validity(0)));
        }
        // Who began to read before the words were closed may still be at the bytes past the end.
        unless!(CutNoWaitForReaders, self.wait_for_readers());

        let _no_allocation = self.allocating.lock();
        if planted!(CutHighWaterFirst) {
            self.reflection.store_word_through(layout::HIGH_WATER_WORD, len);
            self.drain(lane);
        }
        clean_up::zero_past(&self.home, &self.reflection, len)?;
        // Orders the zeroes before the mark that says that there is nothing left to zero.
        unless!(CutZeroesNotDrained, self.drain(lane));
        // Not of the chunk that the end cuts in two: its first part stays allocated, and growing
        // allocates the rest.
        let first_gone = ChunkIndex::of(len.next_multiple_of(CHUNK as u64));
        let gone = len.div_ceil(SUPERCHUNK as u64) as usize;
        unless!(CutStaysAllocated, self.state.forget_allocation(first_gone, gone));
        if let Some(pieces) = self.pieces_of(ChunkIndex::of(len)) {
            // The page that the end cuts in two stays as well.
            let kept = len.next_multiple_of(PAGE as u64) - ChunkIndex::of(len).start();
            unless!(CutStaysAllocated, pieces.forget_from(kept as usize / PAGE));
        }
        unless!(CutFilesNotSynced, self.sync_lengths()?);
        self.reflection.store_word_through(layout::HIGH_WATER_WORD, len);
        // Orders the mark before whatever is written past the length after the next growth.
        unless!(CutHighWaterNotDrained, self.drain(lane));
        self.high_water.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn set_file_lengths(&self, len: u64) -> Result<()> {
        let io =
            |file: &crate::store::MappedFile, e| Error::io("change the length", file.path(), e);
        self.home.set_len(len).map_err(|e| io(&self.home, e))?;
        self.reflection.set_len(layout::reflection_len(len)).map_err(|e| io(&self.reflection, e))
    }

    /// Makes the files' lengths survive the loss of power, where that is promised.
    fn sync_lengths(&self) -> Result<()> {
        if self.medium != Medium::Dax {
            return Ok(());
        }
        let sync = |file: &crate::store::MappedFile| {
            file.sync_all().map_err(|e| {
                let error = Error::io(SYNC_OF_LENGTH, file.path(), e);
                self.poison(&error);
                error
            })
        };
        sync(&self.home)?;
        sync(&self.reflection)
    }

    /// The touched regions that end past `len`.
    fn touched_past(&self, len: u64) -> impl Iterator<Item = (RegionIndex, &RegionState)> {
        self.state.all_touched().filter(move |(index, _)| RegionIndex(index.0 + 1).start() > len)
    }
}

/// The place of the first page of the region that lies past `len` from its first byte on; 64 or
/// more if there is none.
fn first_cut_page(index: RegionIndex, len: u64) -> usize {
    PageIndex::of(len).0.saturating_sub(index.page(0).0) as usize
}

/// All pages of a region from `from` on: bit = place.
fn pages_from(from: usize) -> u64 {
    if from < PAGES_PER_REGION { !0 << from } else { 0 }
}

/// Whether a view pins a page of the region that `len` would cut.
fn has_pins_past(index: RegionIndex, region: &RegionState, len: u64) -> bool {
    let from = first_cut_page(index, len);
    (from..region.pages.len()).any(|n| region.is_pinned(n))
}
