//! Direct stores: small writes that one instruction stores, on a medium where only the process can
//! crash.
//!
//! A killed process has executed an instruction or not. So a direct store goes to the valid slot of
//! its slice, and needs no free slot and no bitmap word. A flip takes about twice the time: it also
//! copies the slice to another file and stores a word in a third place. After a flip the page is
//! not deployed any more; after a direct store it still is. Every processor can store within an
//! aligned word; with AVX-512 it can store any part of a slice.
//!
//! The steps are those of every store in place: lock, close, validate, store. Here the step that
//! takes the page's lock also closes it.
//!
//! - Another thread may observe a torn store. Readers of the page therefore retry, by its deployed
//!   stamp or by versions (models in `loom_models`: `a_stamped_read_sees_one_state`,
//!   `a_reader_beside_a_lock_taken_exclusively_sees_no_half_of_a_write`).
//! - A view keeps the bytes of the pages that it pins. Writes to those go another way
//!   (`pinned_bytes_do_not_change`).
//! - Where a power loss counts, only a word of a line is stored atomically. Direct stores would
//!   then fit whole words in lines without active records, and nothing else; so they are not used
//!   there.
//!
//! May import `deploy`, `durable`, `commit`, `io`, `plan`, `pair`, and what lies below
//! them.

use crate::bitmap::{Side, Slices};
use crate::engine::Engine;
use crate::engine::plan::Segment;
use crate::engine::sums::NewSums;
use crate::engine::write::Mode;
use crate::lock::{ExclusiveGuard, try_lock_page_exclusive};
use crate::mmap::MappedFile;
use crate::mutant::planted;
use crate::pair::gates::Gate;
use crate::pair::log::lane::Lane;
use crate::pair::log::records::PageSlices;
use crate::pair::region::RegionState;
use crate::pair::stats::Counter;
use crate::platform::{InLine, Platform};
use crate::primitive::{Ordering, fence};
use crate::units::{PAGE, PageIndex, SLICE, WORD};

/// Configuration of direct stores: the part of a file that one instruction can store.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct DirectStore {
    /// Store unit in bytes: a write must lie within one aligned unit. A power of two; 0 disables
    /// direct stores.
    pub(in crate::engine) unit: usize,
    /// Mask of the offset bits within a unit.
    mask: usize,
    in_line: Option<InLine>,
}

impl DirectStore {
    /// Returns the configuration for this platform. Direct stores are enabled for plain files where
    /// only the process can crash.
    pub fn of(platform: &Platform, mode: Mode) -> Self {
        let is_enabled = mode.is_fast && !mode.has_drains;
        let in_line = platform.in_line().filter(|_| is_enabled);
        let unit = match in_line {
            Some(_) => SLICE,
            None if is_enabled => WORD,
            None => 0,
        };
        DirectStore { unit, mask: unit.saturating_sub(1), in_line }
    }

    /// Returns `true` if `len` bytes at `offset` fit in one store unit. Empty writes never fit.
    #[inline(always)]
    pub fn takes(self, offset: u64, len: usize) -> bool {
        len.wrapping_sub(1) < self.unit - (offset as usize & self.mask)
    }
}

impl Engine {
    /// Tries to write `data` by a direct store; `data` [fits](DirectStore::takes) one. Returns
    /// `false`, with nothing stored, if the write needs another way.
    // Not a `Result`: that would be stored and loaded again. Inlined, so that the caller looks up
    // the cached lane, as for reads.
    #[inline(always)]
    pub(super) fn try_direct(&self, data: &[u8], offset: u64) -> bool {
        match self.cached_lane_for_write() {
            Some(lane) if lane.recent.stores_to() == Some(Side::Home) => {
                self.try_direct_on(Side::Home, lane, data, offset)
            }
            lane => self.try_direct_slow(lane, data, offset),
        }
    }

    /// Tries the direct store for a thread that stored to the reflection file last, or that used
    /// another file last, or has no lane of its own.
    #[inline(never)]
    fn try_direct_slow(&self, lane: Option<&Lane>, data: &[u8], offset: u64) -> bool {
        // `try_direct_gated` stores the page's sum.
        if self.has_sums() {
            return false;
        }
        // Inside the closure of a transaction a write takes the general way, which records it.
        let mine = if lane.is_none() && self.is_usable() { self.lane_to_write() } else { None };
        let Some(lane) = lane.or(mine.as_deref()) else { return false };
        let Some(expected) = lane.recent.stores_to() else { return false };
        self.try_direct_on(expected, lane, data, offset)
    }

    /// Tries the direct store where the slice is expected to be valid on the side `expected`.
    ///
    /// Throughput depends on how many of these writes the processor's window holds, each with the
    /// cache miss of its slot. So this path has few instructions, and the slot's address does not
    /// depend on the page's state.
    // Inlined: a call, with the registers that it saves and moves, would take about 15 % of the
    // time.
    #[inline(always)]
    fn try_direct_on(&self, expected: Side, lane: &Lane, data: &[u8], offset: u64) -> bool {
        let Some(ends_at) = offset.checked_add(data.len() as u64) else { return false };
        // An offset past the end may have no slot in the reflection file.
        if expected == Side::Reflection && ends_at > self.len() {
            return false;
        }
        let (file, at) = self.slot(expected, offset);
        file.prefetch_store(at);
        let page = PageIndex::of(offset);
        let Some(region) = self.state.loaded(page.region()) else { return false };
        let place = page.in_region();
        // The line of the page's lock needs no prefetch: it is loaded next.
        let state = &region.pages[place];
        let Some(held) = try_lock_page_exclusive(&region.lock, &state.lock) else { return false };
        debug_assert!(state.lock.begin().is_none(), "readers wait from the first moment on");
        // Where only the process can crash, no record outlives the locks of its operation.
        debug_assert_eq!(region.lanes(place), 0);
        let is_as_expected = region.side(place, offset as usize % PAGE / SLICE) == expected
            && ends_at <= self.len()
            && region.has_no_observers(place)
            && !self.epochs.is_on()
            && self.is_backed(page, region, expected)
            && !planted!(StoreToFreeSlot);
        if !is_as_expected {
            return self.try_direct_locked(lane, region, held, &Segment { offset, data });
        }
        // Orders the lock word's mark before the store: a reader that has copied some of the new
        // bytes finds the mark.
        fence(Ordering::Release);
        region.assert_left_home(1 << place);
        self.store_to(file, at, data);
        lane.stats.bump(Counter::DirectStore, 1);
        lane.stats.bump(Counter::BytesAsked, data.len() as u64);
        // Readers see the bytes from here on. A process that is killed here has already written
        // them.
        drop(held);
        true
    }

    /// Writes as [`try_direct`](Self::try_direct) does, where the file has had a snapshot or has
    /// page sums: inside the gate of cuts. What a snapshot reads is kept first, and the new sum is
    /// stored.
    #[inline(never)]
    pub(super) fn try_direct_gated(&self, data: &[u8], offset: u64) -> bool {
        let segment = Segment { offset, data };
        let page = PageIndex::of(offset);
        let has_more = self.epochs.is_on() || self.has_sums();
        let is_possible = has_more && !self.is_forked();
        let Some(ends_at) = offset.checked_add(data.len() as u64).filter(|_| is_possible) else {
            return false;
        };
        let Some(lane) = self.lane_to_write() else { return false };
        let Some(region) = self.state.loaded(page.region()) else { return false };
        let place = page.in_region();
        let start = offset as usize % PAGE;
        let slices = Slices::of_bytes(start, start + data.len());
        let target = PageSlices { page, region, slices };
        self.prefetch_owed(&target);
        self.prefetch_summed(&target);
        let inside = self.lanes.enter(Gate::Cut, &lane);
        let state = &region.pages[place];
        let Some(held) = try_lock_page_exclusive(&region.lock, &state.lock) else { return false };
        let is_within = ends_at <= self.len() || planted!(LengthNotCheckedAgain);
        let is_allowed = is_within && self.check_usable_still().is_ok();
        let is_kept = || {
            let owed = self.owed_slices((page.region(), region), place, slices);
            if owed.is_empty() || planted!(DirectStoreOwes) {
                return true;
            }
            let kept = self.keep_owed(&lane, &target, owed);
            // Orders the kept bytes before the store that goes over them.
            self.drain(&lane);
            kept.is_ok()
        };
        // A killed process leaves the sum of what the page holds in one of its places: the sum is
        // stored before the one instruction that changes the page.
        let sums = || match self.has_sums() {
            false => Some(NewSums::none()),
            true if !region.sums().is_verified(place) || self.ensure_slice_word(page).is_err() => {
                None
            }
            true => self.next_sums(&target, &segment).ok(),
        };
        let sums = if is_allowed { sums() } else { None };
        let is_stored = sums.is_some_and(|sums| {
            if !is_kept() {
                return false;
            }
            self.store_sums(&lane, &sums);
            let is_stored = self.store_direct(&lane, region, &segment, || ());
            if is_stored {
                self.publish_sums(&sums);
            }
            is_stored
        });
        if !is_stored {
            held.give_back_unchanged();
            return false;
        }
        lane.stats.bump(Counter::BytesAsked, data.len() as u64);
        drop(held);
        drop(inside);
        true
    }

    /// Completes the direct store where `try_direct_on` found something unusual. The caller holds
    /// the page. Returns `false`, with nothing stored, if the write needs another way.
    #[inline(never)]
    fn try_direct_locked(
        &self,
        lane: &Lane,
        region: &RegionState,
        held: ExclusiveGuard<'_>,
        segment: &Segment<'_>,
    ) -> bool {
        let is_within = segment.end() <= self.len() || planted!(LengthNotCheckedAgain);
        // Snapshots may need the old bytes. `try_direct_gated` keeps them.
        let is_free = !self.epochs.is_on() || planted!(DirectStoreKeepsNothing);
        if !is_free {
            lane.recent.note_gated();
        }
        if !is_within || !is_free || !self.store_direct(lane, region, segment, || ()) {
            held.give_back_unchanged();
            return false;
        }
        lane.stats.bump(Counter::BytesAsked, segment.data.len() as u64);
        // The guard is dropped. As in `try_direct_on`, the bytes are written already.
        true
    }

    /// Stores `segment` to its valid slot. Returns `false`, with nothing stored, if it does not
    /// [fit](DirectStore::takes) a direct store, if a view pins its page, or if the slot may be a
    /// hole. The caller holds the page's lock, and `close` makes that exclusive.
    #[inline(never)]
    pub(super) fn store_direct(
        &self,
        lane: &Lane,
        region: &RegionState,
        segment: &Segment<'_>,
        close: impl FnOnce(),
    ) -> bool {
        if !self.direct.takes(segment.offset, segment.data.len()) {
            return false;
        }
        let page = PageIndex::of(segment.offset);
        let (index, place) = (page.region(), page.in_region());
        let side = region.side(place, segment.offset as usize % PAGE / SLICE);
        // Cache the answer in the region for the next write.
        self.note_loadable(region, index);
        let is_pinned = region.is_pinned(place) && !planted!(StoreOverView);
        if is_pinned || !self.is_backed(page, region, side) || self.is_in_turn(region, place) {
            return false;
        }
        self.clear_stamp(index, region, 1 << place);
        close();
        // Orders two things before the store, as in `try_direct_on`: the lock word's mark, and the
        // cleared deployed stamp.
        fence(Ordering::Release);
        let side = if planted!(StoreToFreeSlot) { side.other() } else { side };
        lane.recent.note_stored(side);
        let (file, at) = self.slot(side, segment.offset);
        self.store_to(file, at, segment.data);
        lane.stats.bump(Counter::DirectStore, 1);
        true
    }

    /// Returns `true` if the page's slots on `side` are known to be allocated. The caller holds the
    /// page, and some of its slices are valid there.
    #[inline(always)]
    fn is_backed(&self, page: PageIndex, region: &RegionState, side: Side) -> bool {
        let is_there = match side {
            Side::Home => region.home_is_loadable(),
            Side::Reflection => self.side_is_allocated(page.region(), side, false),
        };
        is_there || self.page_is_allocated(side, page) || planted!(StoreToHole)
    }

    /// Stores `bytes` at `at` by one instruction. The statistics count it as one written line: see
    /// `Lanes::stats`.
    #[inline(always)]
    fn store_to(&self, file: &MappedFile, at: u64, bytes: &[u8]) {
        if let (Some(how), Ok(slice)) = (self.direct.in_line, <&[u8; SLICE]>::try_from(bytes)) {
            // A whole slice comes first and takes the fewest checks: it is the longest direct
            // store.
            return file.store_in_line(how, at, slice);
        }
        if let Some(how) = self.direct.in_line
            && (bytes.len() != WORD || !at.is_multiple_of(WORD as u64))
        {
            return file.store_in_line(how, at, bytes);
        }
        if let Ok(word) = bytes.try_into() {
            return file.store_word(at, u64::from_le_bytes(word));
        }
        // The bytes around it keep their values: no other thread stores there while the page is
        // locked.
        let (at, start) = (at - at % WORD as u64, at as usize % WORD);
        let mut word = file.load_word(at).to_le_bytes();
        word[start..start + bytes.len()].copy_from_slice(bytes);
        file.store_word(at, u64::from_le_bytes(word));
    }
}
