//! Changes of the file's length, in use and without moving the mapping.
//!
//! The logical length is a word of the reflection file. Storing it is the commit point, for a
//! growth and for a shrink that write no bytes. If the operation also writes, a redo record commits
//! the length with the bytes (`commit::redo`). `write::length` has the steps in their order.
//!
//! Bytes and words past the length are invisible. So a growth can prepare them before and a shrink
//! can clean them up after, without being atomic. The high-water word says how far there is
//! something to clean up: past `max(length, high-water mark)` every word and every home byte is
//! zero. A crash in between leaves the mark above the length. Then the next open cleans up, or the
//! next change of the length.
//!
//! May import `durable`, `plan`, `pair`, and what lies below them.

pub mod truncate;

use crate::bitmap::{Slices, Validity};
use crate::config::{Allocation, Medium};
use crate::engine::durable::point::CutGate;
use crate::engine::plan::{Changes, Segment};
use crate::engine::superblock::store_length;
use crate::engine::{Engine, plan};
use crate::error::{Error, Result, SYNC_OF_LENGTH, WRITE_AN_APPEND, is_no_space};
use crate::format::layout;
use crate::lock::LockGuard;
use crate::mutant::{planted, unless};
use crate::pair::gates::{ClosedGate, Gate};
use crate::pair::log::lane::Lane;
use crate::pair::log::lanes::InUse;
use crate::pair::marking::Place;
use crate::pair::region::RegionState;
use crate::platform::FileId;
use crate::primitive::{AtomicBool, Ordering, fence};
use crate::units::{CHUNK, ChunkIndex, PAGE, PAGES_PER_REGION, PageIndex, RegionIndex, SUPERCHUNK};

/// The section of a change of the length.
const RESIZE: &str = "change of the length";

/// Returns the place in its region of the first page that lies past `len` from its first byte on.
/// Returns 64 or more if the region has no such page.
fn first_cut_page(index: RegionIndex, len: u64) -> usize {
    PageIndex::of(len).0.saturating_sub(index.page(0).0) as usize
}

/// Returns the mask of a region's pages from place `from` on.
fn pages_from(from: usize) -> u64 {
    if from < PAGES_PER_REGION { !0 << from } else { 0 }
}

/// Returns `true` if a view pins a page of the region that `len` would truncate, or a stage claims
/// slots of it.
fn has_pins_past(
    (index, region): (RegionIndex, &RegionState),
    len: u64,
    mark: Option<Place>,
) -> bool {
    let from = first_cut_page(index, len);
    let is_staged = |n| {
        let is_here =
            |place: &Place| (place.page().region(), place.page().in_region()) == (index, n);
        let of_mark = mark.filter(is_here).map_or(Slices::NONE, Place::slices);
        !region.staged_slices(n).without(of_mark).is_empty() && !planted!(ShrinkUnderStage)
    };
    (from..region.pages.len()).any(|n| region.is_pinned(n) || is_staged(n))
}

/// A shrink between its preparation and its end. No view pins past the new end and no stage claims
/// slots there, no page there has a stamp or gets one, and no write in several pieces is in
/// progress.
pub(in crate::engine) struct Shrinking<'e> {
    /// The region that the new end cuts in two.
    pub boundary: (RegionIndex, &'e RegionState),
    _gate: Option<ClosedGate<'e>>,
    _cutting: Cutting<'e>,
}

/// The flag `cutting` of the session while it is set.
struct Cutting<'e>(&'e AtomicBool);

impl Drop for Cutting<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Engine {
    /// Finishes what an earlier change of the length has left: one that failed in the middle. The
    /// caller holds `resizing`, and the file is `len` bytes long.
    pub(in crate::engine) fn catch_up(&self, lane: &Lane, len: u64) -> Result<()> {
        if self.session.high_water.load(Ordering::Relaxed) > len && !planted!(NoCatchingUp) {
            self.finish_truncation_past(lane, len)?;
        }
        Ok(())
    }

    /// Prepares a growth from `old` to `new` bytes that writes `segments`: everything before the
    /// commit point. After that the caller may load, lock and write the pages past `old`, which no
    /// other operation reaches.
    pub(in crate::engine) fn prepare_growth(
        &self,
        lane: &Lane,
        (old, new): (u64, u64),
        segments: &[Segment<'_>],
    ) -> Result<()> {
        self.uncut(RESIZE, || self.prepare_growth_uncut(lane, (old, new), segments))
    }

    fn prepare_growth_uncut(
        &self,
        lane: &Lane,
        (old, new): (u64, u64),
        segments: &[Segment<'_>],
    ) -> Result<()> {
        unless!(
            GrowHighWaterNotRaised,
            store_length(&self.reflection, layout::HIGH_WATER_WORD, new)
        );
        // Orders the mark before the files' lengths. A home file that is longer than the mark would
        // look as if another program had changed it.
        unless!(GrowHighWaterNotDrained, self.drain(lane));
        if planted!(GrowLengthBeforeFiles) {
            store_length(&self.reflection, layout::LENGTH_WORD, new);
            self.drain(lane);
        }
        self.session.high_water.store(new, Ordering::Relaxed);
        {
            // No thread may record a chunk as allocated up to its old, shorter end.
            let _no_allocation = self.allocating.lock();
            // Before the file is longer. If there is no space for this page, a concurrent store to
            // it never meets a hole.
            unless!(GrowthReservesLater, self.reserve_rest_of_page(old, new)?);
            // The sum of the page that the old end cuts covers zeroes past that end.
            if self.shows_appends && !self.has_sums() {
                self.show_appended(old, segments)?;
            }
            self.set_file_lengths(new)?;
            unless!(GrowChunkNotExtended, self.extend_chunk(old, new)?);
        }
        if self.allocation == Allocation::Full {
            unless!(GrowthNotPopulated, self.populate(lane, old..new, |_| ())?);
        }
        // Files first: if the length were durable before the files have it, the file would look
        // truncated.
        unless!(GrowFilesNotSynced, self.sync_lengths()?);
        event!(DEBUG, file = %crate::error::shown(self.home.path()), old, new, "grows");
        Ok(())
    }

    /// Prepares a shrink to `new` bytes: everything before the locks.
    pub(in crate::engine) fn prepare_shrink<'e>(
        &'e self,
        lane: &Lane,
        new: u64,
    ) -> Result<Shrinking<'e>> {
        // Orders the mark before the search for pins. A view that pins without `resizing` and then
        // finds no mark knows that its pin is found (`deploy::pin`). All other pinning threads hold
        // `resizing` for reading.
        unless!(CuttingNotSaid, self.session.cutting.store(true, Ordering::SeqCst));
        let cutting = Cutting(&self.session.cutting);
        let mark = self.mark_past(new).map(|(_, place)| place);
        let pinned = |of| has_pins_past(of, new, mark) && !planted!(ShrinkUnderView);
        if self.regions_past(new).any(pinned) {
            return Err(Error::Pinned { path: self.path(), len: new });
        }
        self.clear_stamps_past(new);
        // Writes on both sides of the new end are done before any thread sees the new length or,
        // after a crash, finds it. A write in one piece holds the boundary region's lock. A write
        // in several pieces is inside the gate, where it may wait for that lock.
        let boundary = self.load_boundary(lane, new)?;
        let gate = (!planted!(LengthGateOpen)).then(|| self.lanes.close(Gate::Length));
        self.end_byte_mark_past(lane, new)?;
        Ok(Shrinking { boundary, _gate: gate, _cutting: cutting })
    }

    /// Commits a change of the length to `new` that writes no bytes, by the store of the length
    /// word. The caller has prepared it. `held` are its locks.
    ///
    /// # Errors
    /// Those of [`reckon_sums`](Self::reckon_sums): the page that the new end cuts has a new sum.
    pub(in crate::engine) fn commit_len(
        &self,
        lane: &Lane,
        new: u64,
        held: &[LockGuard<'_>],
    ) -> Result<()> {
        let sums = self.reckon_sums(lane, &Changes::of(&[]), new)?;
        self.store_sums(lane, &sums);
        if sums.are_some() && !planted!(ShrinkSumNotDrained) {
            // Orders the sum of the shorter page before the length.
            self.drain(lane);
        }
        let unfinished = self.begin(RESIZE);
        store_length(&self.reflection, layout::LENGTH_WORD, new);
        // The commit point: durable before any thread sees the new length. If the file has become
        // shorter, a writer that checked the old length may still write past the new end. That is
        // truncated later: the high-water mark is still up.
        if new > self.len() {
            unless!(GrowLengthNotDrained, self.drain(lane));
        } else {
            unless!(ShrinkLengthNotDrained, self.drain(lane));
        }
        // A transaction may have read bytes of the page that the new end cuts in two, and those are
        // gone now. It must not commit once the new length is visible. Whole pages past the end
        // need no new version, since the length itself is validated.
        unless!(ShrinkBoundaryNotClosed, held.iter().for_each(LockGuard::close));
        self.publish_len(new);
        self.publish_sums(&sums);
        // Relaxed: only automatic snapshots look at it.
        self.other_changes.fetch_add(1, Ordering::Relaxed);
        unfinished.end();
        Ok(())
    }

    /// Ends a shrink to `new` bytes, which is committed. The caller has given its locks back.
    pub(in crate::engine) fn finish_shrink(
        &self,
        lane: &InUse<'_>,
        new: u64,
        shrinking: Shrinking<'_>,
        cuts: CutGate<'_>,
    ) -> Result<()> {
        // Operations may go on past the gate: they find the new length.
        let Shrinking { _gate: gate, _cutting: cutting, .. } = shrinking;
        drop(gate);
        self.release_mark(new);
        let unfinished = self.begin(RESIZE);
        let finished = self.clean_up_past(lane, new, cuts);
        unfinished.end();
        drop(cutting);
        finished
    }

    /// Makes the durable point of a shrink, and cleans up behind its new end.
    fn clean_up_past(&self, lane: &InUse<'_>, new: u64, cuts: CutGate<'_>) -> Result<()> {
        if let Some(durable) = &self.durable {
            // The truncated bytes belong to the last durable point, so a new point without them
            // comes first. If it fails, the bytes past the length still belong to the old one, and
            // must not be cleaned up.
            unless!(
                ShrinkNoPoint,
                self.durable_point_while_resizing(lane, durable, cuts)
                    .inspect_err(|error| self.poison(error))?
            );
        }
        // Committed: the next call or open makes up for a failure from here on.
        let _caught_up_with_later = self.finish_truncation_past(lane, new);
        Ok(())
    }

    /// Clears the stamps of deployed pages past `new`, so that no reader goes there without a check
    /// of the length. Called while `cutting` is set, so no page there gets a new stamp.
    fn clear_stamps_past(&self, new: u64) {
        if planted!(CutStaysKnown) {
            return;
        }
        // Orders the store to `cutting` before the list of loaded regions. A thread that loads a
        // region later sees `cutting`.
        fence(Ordering::SeqCst);
        for (index, region) in self.regions_past(new) {
            let past = pages_from(first_cut_page(index, new));
            // A thread sets a page's bit before it checks `cutting`, and holds the page's lock. If
            // it checked too early, its bit is found here, and the region lock waits for it.
            if region.stamped_pages() & past != 0 {
                let _held = plan::lock_whole_region(region);
                self.clear_stamp(index, region, past);
            }
        }
    }

    /// Loads the region that `len` cuts in two. It is the only region past the end that an
    /// operation may still load. Its cached words must not be read from disk while the words past
    /// the end are zeroed.
    fn load_boundary(&self, lane: &Lane, len: u64) -> Result<(RegionIndex, &RegionState)> {
        let _pinned = lane.pin();
        let index = RegionIndex::of(len.min(self.max_len.saturating_sub(1)));
        Ok((index, self.region(index)?))
    }

    /// Finishes a truncation: zeroes and gives back everything past `len`, on the media and in the
    /// cached words. Then lowers the high-water mark.
    pub(in crate::engine) fn finish_truncation_past(&self, lane: &Lane, len: u64) -> Result<()> {
        if let Some(durable) = &self.durable {
            durable.on_truncate();
        }
        self.load_boundary(lane, len)?;
        // After this, every thread that checked its range against an older length has loaded its
        // regions. A thread that checks its range later loads no region past the end.
        unless!(CutNoWaitForLoads, self.wait_for_read_sections());
        let cut: Vec<(RegionIndex, &RegionState)> = self.regions_past(len).collect();
        let locked = if planted!(CutNotLocked) { &[] } else { &cut[..] };
        let held: Vec<LockGuard<'_>> =
            locked.iter().map(|(_, region)| plan::lock_whole_region(region)).collect();
        self.uncut(RESIZE, || self.truncate_held(lane, len, &cut, &held))
    }

    /// Truncates the file behind `len`, with the locks of the regions that this cuts.
    fn truncate_held(
        &self,
        lane: &Lane,
        len: u64,
        cut: &[(RegionIndex, &RegionState)],
        held: &[LockGuard<'_>],
    ) -> Result<()> {
        for (index, region) in cut {
            // Includes the page that the end cuts in two.
            let from = first_cut_page(*index, len);
            unless!(CutNoClear, self.invalidate_all_records(lane, *index, region, from));
        }
        // Orders the invalidated records before the zeroes over words and bytes past the length. A
        // record that was replayed later would put its bytes there.
        unless!(CutNoDrainAfterClear, self.drain(lane));
        held.iter().for_each(LockGuard::close);
        for (index, region) in cut {
            let from = first_cut_page(*index, len.next_multiple_of(PAGE as u64)).min(64);
            let mask = pages_from(from);
            unless!(CutRegionMirrorStays, region.flip_region_bits(region.region_word() & mask));
            unless!(
                CutSliceMirrorsStay,
                (from..PAGES_PER_REGION).for_each(|n| region.set_slice_word(n, 0))
            );
            (from..PAGES_PER_REGION).for_each(|n| region.set_durable(n, Validity(0)));
            self.clear_sums_from(region, from);
        }
        // A reader that began before the locks were exclusive may still be reading bytes past the
        // end.
        unless!(CutNoWaitForReaders, self.wait_for_read_sections());

        let _no_allocation = self.allocating.lock();
        if planted!(CutHighWaterFirst) {
            store_length(&self.reflection, layout::HIGH_WATER_WORD, len);
            self.drain(lane);
        }
        // A zero that arrives late could go over what is written past the length after a growth.
        truncate::zero_past(&self.home, &self.reflection, len, self.has_sums())
            .inspect_err(|_| unless!(FailedCutNotDrained, self.drain(lane)))?;
        // Orders the zeroes before the mark that says that there is nothing left to zero.
        unless!(CutZeroesNotDrained, self.drain(lane));
        // The chunk that the end cuts in two is left out: its first part stays allocated, and a
        // growth allocates the rest.
        let first_gone = ChunkIndex::of(len.next_multiple_of(CHUNK as u64));
        let gone = len.div_ceil(SUPERCHUNK as u64) as usize;
        unless!(CutStaysAllocated, self.state.forget_allocation(first_gone, gone));
        if let Some(pieces) = self.pieces_of(ChunkIndex::of(len)) {
            // The page that the end cuts in two stays allocated as well.
            let kept = len.next_multiple_of(PAGE as u64) - ChunkIndex::of(len).start();
            unless!(CutStaysAllocated, pieces.forget_from(kept as usize / PAGE));
        }
        self.recount_all();
        unless!(CutFilesNotSynced, self.sync_lengths()?);
        store_length(&self.reflection, layout::HIGH_WATER_WORD, len);
        // Orders the mark before everything that is written past the length after the next growth.
        unless!(CutHighWaterNotDrained, self.drain(lane));
        self.session.high_water.store(len, Ordering::Relaxed);
        Ok(())
    }

    /// Stores what an operation writes past `old` to the home file, which gets longer by that. The
    /// bytes lie past the length of the file and of its durable point, as zeroes do otherwise. So
    /// an operation that fails leaves nothing: `catch_up` or recovery cuts them off.
    ///
    /// Nothing is shown that lies within a live snapshot. A shrink keeps no zeroes, so a reader of
    /// the snapshot may find those in these slots. The caller holds `resizing`, so that no other
    /// thread seals a longer snapshot before the bytes are stored.
    fn show_appended(&self, old: u64, segments: &[Segment<'_>]) -> Result<()> {
        let sealed = if planted!(ShownInSnapshot) { 0 } else { self.epochs.longest() };
        for segment in segments {
            let from = segment.offset.max(old).max(sealed);
            let skipped = usize::try_from(from - segment.offset).unwrap_or(usize::MAX);
            let Some(bytes) = segment.data.get(skipped..).filter(|bytes| !bytes.is_empty()) else {
                continue;
            };
            let written = self.platform.write_at(self.home.file(), FileId::Home, bytes, from);
            written.map_err(|e| {
                let len = bytes.len() as u64;
                let call = if is_no_space(&e) { "write" } else { WRITE_AN_APPEND };
                let error = Error::io_of_range(call, self.home.path(), from, len, e);
                if error.leaves_doubt() {
                    // It may be the report of an earlier write-back: see `store_by_call`.
                    self.poison(&error);
                }
                error
            })?;
        }
        Ok(())
    }

    fn set_file_lengths(&self, len: u64) -> Result<()> {
        let io = |file: &crate::mmap::MappedFile, e| Error::io("change the length", file.path(), e);
        self.home.set_len(len).map_err(|e| io(&self.home, e))?;
        self.reflection.set_len(layout::reflection_len(len)).map_err(|e| io(&self.reflection, e))
    }

    /// Makes the files' lengths durable on DAX, where they must survive a power loss.
    fn sync_lengths(&self) -> Result<()> {
        if self.medium != Medium::Dax {
            return Ok(());
        }
        let sync = |file: &crate::mmap::MappedFile| {
            file.sync_all().map_err(|e| {
                let error = Error::io(SYNC_OF_LENGTH, file.path(), e);
                self.poison(&error);
                error
            })
        };
        sync(&self.home)?;
        sync(&self.reflection)
    }

    /// Returns the loaded regions that end past `len`.
    fn regions_past(&self, len: u64) -> impl Iterator<Item = (RegionIndex, &RegionState)> {
        self.state.loaded_regions().filter(move |(index, _)| RegionIndex(index.0 + 1).start() > len)
    }
}
