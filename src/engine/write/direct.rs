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

use crate::bitmap::Side;
use crate::engine::Engine;
use crate::engine::plan::Segment;
use crate::engine::write::small::Small;
use crate::lock::{ExclusiveGuard, try_lock_page_exclusive};
use crate::mmap::MappedFile;
use crate::mutant::planted;
use crate::pair::log::lane::Lane;
use crate::pair::region::RegionState;
use crate::pair::stats::Counter;
use crate::platform::{InLine, Platform};
use crate::primitive::{Ordering, fence};
use crate::units::{PAGE, PageIndex, RegionIndex, SLICE, WORD};

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
    /// Returns the configuration for this platform. Direct stores are enabled for [`Small::Flip`]
    /// only.
    pub fn of(platform: &Platform, small: Small) -> Self {
        let in_line = platform.in_line().filter(|_| small == Small::Flip);
        let unit = match (small, in_line) {
            (Small::Flip, Some(_)) => SLICE,
            (Small::Flip, None) => WORD,
            _ => 0,
        };
        DirectStore { unit, mask: unit.saturating_sub(1), in_line }
    }

    /// Returns `true` if `len` bytes at `offset` fit in one store unit. Empty writes never fit.
    #[inline(always)]
    pub fn takes(self, offset: u64, len: usize) -> bool {
        len.wrapping_sub(1) < self.unit - (offset as usize & self.mask)
    }
}

/// Returns the side on which the slice at `offset` is valid. The caller holds its page.
#[inline(always)]
pub(in crate::engine) fn valid_side(region: &RegionState, offset: u64) -> Side {
    region.side(PageIndex::of(offset).in_region(), offset as usize % PAGE / SLICE)
}

impl Engine {
    /// Returns the side that a direct store of `segment` writes to. `None` if `segment` does not
    /// fit one, or if its valid slot is not allocated. The caller holds the page lock and has
    /// checked that no view pins the page.
    #[inline]
    pub(super) fn direct_side(
        &self,
        region: &RegionState,
        page: PageIndex,
        segment: &Segment<'_>,
    ) -> Option<Side> {
        if !self.direct.takes(segment.offset, segment.data.len()) {
            return None;
        }
        let side = valid_side(region, segment.offset);
        self.backs(region, page, side).then_some(side)
    }

    /// Returns `true` if the page's slots on `side`, some of which are valid, are allocated. The
    /// caller holds the page lock.
    #[inline(always)]
    fn backs(&self, region: &RegionState, page: PageIndex, side: Side) -> bool {
        let is_there = match side {
            Side::Home => region.home_is_loadable() || self.home_is_found(region, page.region()),
            Side::Reflection => self.side_is_allocated(page.region(), side, false),
        };
        is_there || planted!(StoreToHole)
    }

    #[cold]
    #[inline(never)]
    fn home_is_found(&self, region: &RegionState, index: RegionIndex) -> bool {
        // Cache the answer in the region for the next write.
        self.note_loadable(region, index);
        region.home_is_loadable()
    }

    /// Tries to write `data` by a direct store; `data` [fits](DirectStore::takes) one. Returns
    /// `false`, with nothing stored, if the write needs another way.
    // Not a `Result`: that would be stored and loaded again. Inlined, so that the caller looks up
    // the cached lane, as for reads.
    #[inline(always)]
    pub(super) fn try_direct(&self, data: &[u8], offset: u64) -> bool {
        match self.cached_lane_for_write() {
            Some(lane) => self.try_direct_on(lane, data, offset),
            None => self.try_direct_slow(data, offset),
        }
    }

    /// Tries the direct store for a thread that used another file last, or has no lane of its own.
    #[cold]
    #[inline(never)]
    fn try_direct_slow(&self, data: &[u8], offset: u64) -> bool {
        // Inside the closure of a transaction a write takes the general way, which records it.
        let lane = if self.is_usable() { self.lane_to_write() } else { None };
        lane.is_some_and(|lane| self.try_direct_on(&lane, data, offset))
    }

    /// Dispatches on the side this thread last stored to, so that the target address does not
    /// depend on a load.
    #[inline(always)]
    fn try_direct_on(&self, lane: &Lane, data: &[u8], offset: u64) -> bool {
        match lane.recent.stores_to() {
            Side::Home => self.try_on_side::<true>(lane, data, offset),
            Side::Reflection => self.try_direct_reflection(lane, data, offset),
        }
    }

    #[inline(never)]
    fn try_direct_reflection(&self, lane: &Lane, data: &[u8], offset: u64) -> bool {
        self.try_on_side::<false>(lane, data, offset)
    }

    /// Tries the direct store where the slice is expected to be deployed (`AT_HOME`), or else in
    /// the reflection file.
    ///
    /// Throughput depends on how many of these writes the processor's window holds, each with the
    /// cache miss of its slot. So this path has few instructions, and the slot's address does not
    /// depend on the page's state.
    // Inlined: a call, with the registers that it saves and moves, would take about 15 % of the
    // time.
    #[inline(always)]
    fn try_on_side<const AT_HOME: bool>(&self, lane: &Lane, data: &[u8], offset: u64) -> bool {
        let Some(ends_at) = offset.checked_add(data.len() as u64) else { return false };
        // An offset past the end may have no slot in the reflection file.
        if !AT_HOME && ends_at > self.len() {
            return false;
        }
        let expected = if AT_HOME { Side::Home } else { Side::Reflection };
        let (file, at) = self.slot(expected, offset);
        file.prefetch_store(at);
        let page = PageIndex::of(offset);
        let Some(region) = self.state.touched(page.region()) else { return false };
        let place = page.in_region();
        // The line of the page's lock needs no prefetch: it is loaded next.
        let state = &region.pages[place];
        let Some(held) = try_lock_page_exclusive(&region.lock, &state.lock) else { return false };
        debug_assert!(state.lock.begin().is_none(), "readers wait from the first moment on");
        // Where only the process can crash, no record outlives the locks of its operation.
        debug_assert_eq!(region.lanes(place), 0);
        let side = valid_side(region, offset);
        let is_as_expected = side == expected
            && ends_at <= self.len()
            && region.has_no_observers(place)
            && self.backs(region, page, expected)
            && !planted!(StoreToFreeSlot);
        if !is_as_expected {
            return self.try_direct_locked(lane, region, held, side, &Segment { offset, data });
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

    /// Completes the direct store where the fast path found something unusual. The caller holds the
    /// page and has found its slice valid on `side`. Returns `false`, with nothing stored, if the
    /// write needs another way.
    #[inline(never)]
    fn try_direct_locked(
        &self,
        lane: &Lane,
        region: &RegionState,
        held: ExclusiveGuard<'_>,
        side: Side,
        segment: &Segment<'_>,
    ) -> bool {
        let (page, len) = (PageIndex::of(segment.offset), segment.data.len() as u64);
        let is_within = segment.offset + len <= self.len() || planted!(LengthNotCheckedAgain);
        let is_pinned = region.is_pinned(page.in_region()) && !planted!(StoreOverView);
        if !is_within || is_pinned || !self.backs(region, page, side) {
            held.give_back_unchanged();
            return false;
        }
        self.clear_stamp(page.region(), region, 1 << page.in_region());
        // Orders two things before the store, as in `try_on_side`: the lock word's mark, and the
        // cleared deployed stamp.
        fence(Ordering::Release);
        self.store_direct(lane, side, segment);
        lane.stats.bump(Counter::BytesAsked, len);
        // As in `try_on_side`: the bytes are written already.
        drop(held);
        true
    }

    /// Stores a part that [fits](DirectStore::takes) a direct store. The caller holds the page
    /// closed, and no view pins it. The part's slice is valid on `side` and allocated there.
    #[inline(never)]
    pub(super) fn store_direct(&self, lane: &Lane, side: Side, segment: &Segment<'_>) {
        let side = if planted!(StoreToFreeSlot) { side.other() } else { side };
        lane.recent.note_stored(side);
        let (file, at) = self.slot(side, segment.offset);
        self.store_to(file, at, segment.data);
        lane.stats.bump(Counter::DirectStore, 1);
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
