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
//! takes the page's lock also closes it. That step is a plain store while the lock is biased to
//! this thread (`Lanes::enter_alone`).
//!
//! - Another thread may observe a torn store. Readers of the page therefore retry, by its deployed
//!   stamp or by versions (models in `loom_models`: `who_reads_a_page_by_its_word`,
//!   `a_reader_of_a_page_that_is_closed_at_once_sees_no_half_of_a_write`).
//! - A view keeps the bytes of the pages that it pins. Writes to those go another way
//!   (`what_a_view_pins_does_not_change`).
//! - Where a power loss counts, only a word of a line is stored atomically. Direct stores would
//!   then fit whole words in lines without active records, and nothing else; so they are not used
//!   there.
//!
//! May import: what `small` may.

use super::Engine;
use super::commit::Part;
use super::lanes::Lane;
use super::small::Small;
use super::state::RegionState;
use super::stats::Counter;
use crate::bitmap::Side;
use crate::lock::{HeldClosed, try_lock_page_alone, try_lock_page_closed};
use crate::mutant::planted;
use crate::platform::{InLine, Platform};
use crate::primitive::{Ordering, fence};
use crate::store::MappedFile;
use crate::units::{PAGE, PageIndex, RegionIndex, SLICE, WORD};

/// Configuration of direct stores: the part of a file that one instruction can store.
#[derive(Clone, Copy, Debug)]
pub(super) struct OneStore {
    /// Store unit in bytes: a write must lie within one aligned unit. A power of two; 0 disables
    /// direct stores.
    unit: usize,
    /// Mask of the offset bits within a unit.
    mask: usize,
    in_line: Option<InLine>,
}

impl OneStore {
    /// Returns the configuration for this platform. Direct stores are enabled for [`Small::Flip`]
    /// only.
    pub fn of(platform: &Platform, small: Small) -> Self {
        let in_line = platform.in_line().filter(|_| small == Small::Flip);
        let unit = match (small, in_line) {
            (Small::Flip, Some(_)) => SLICE,
            (Small::Flip, None) => WORD,
            _ => 0,
        };
        OneStore { unit, mask: unit.saturating_sub(1), in_line }
    }

    /// Returns `true` if `len` bytes at `offset` fit in one store unit. Empty writes never fit.
    #[inline(always)]
    pub fn takes(self, offset: u64, len: usize) -> bool {
        len.wrapping_sub(1) < self.unit - (offset as usize & self.mask)
    }
}

impl Engine {
    /// Returns the side that a direct store of `part` writes to. `None` if `part` does not fit one,
    /// or if its valid slot is not allocated. The caller holds the page lock and has checked that
    /// no view pins the page.
    #[inline]
    pub(super) fn goes_at_once(
        &self,
        region: &RegionState,
        page: PageIndex,
        part: &Part<'_>,
    ) -> Option<Side> {
        if !self.one_store.takes(part.offset, part.data.len()) {
            return None;
        }
        let side = valid_side(region, part.offset);
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

    /// Tries to write `data` by a direct store; `data` [fits](OneStore::takes) one. Returns
    /// `false`, with nothing stored, if the write needs another way.
    // Not a `Result`: that would be stored and loaded again. Inlined, so that the caller looks up
    // the cached lane, as for reads.
    #[inline(always)]
    pub(super) fn try_at_once(&self, data: &[u8], offset: u64) -> bool {
        match self.lane_at_hand_to_write() {
            Some(lane) => self.try_in_lane(lane, data, offset),
            None => self.try_in_other_lane(data, offset),
        }
    }

    /// Tries the direct store for a thread that used another file last, or has no lane of its own.
    #[cold]
    #[inline(never)]
    fn try_in_other_lane(&self, data: &[u8], offset: u64) -> bool {
        // Inside the closure of a transaction a write takes the general way, which records it.
        let lane = if self.is_usable() { self.lane_to_write() } else { None };
        lane.is_some_and(|lane| self.try_in_lane(&lane, data, offset))
    }

    /// Dispatches on the side this thread last stored to, so that the target address does not
    /// depend on a load.
    #[inline(always)]
    fn try_in_lane(&self, lane: &Lane, data: &[u8], offset: u64) -> bool {
        match lane.recent.stores_to() {
            Side::Home => self.try_on_side::<true>(lane, data, offset),
            Side::Reflection => self.try_away(lane, data, offset),
        }
    }

    #[inline(never)]
    fn try_away(&self, lane: &Lane, data: &[u8], offset: u64) -> bool {
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
        let alone = self.lanes.enter_alone(lane);
        let held = match &alone {
            Some(alone) => try_lock_page_alone(&state.lock, alone),
            None => try_lock_page_closed(&region.lock, &state.lock),
        };
        let Some(held) = held else { return false };
        debug_assert!(alone.is_none() || !region.lock.is_held(), "who is alone holds nothing else");
        debug_assert!(state.lock.begin().is_none(), "readers wait from the first moment on");
        // Where only the process can crash, no record outlives the locks of its operation.
        debug_assert_eq!(region.lanes(place), 0);
        let side = valid_side(region, offset);
        let is_as_expected = side == expected
            && ends_at <= self.len()
            && region.is_nobodys(place)
            && self.backs(region, page, expected)
            && !planted!(StoreToFreeSlot);
        if !is_as_expected {
            return self.try_held(lane, region, held, side, &Part { offset, data });
        }
        // Orders the lock word's mark before the store: a reader that has copied some of the new
        // bytes finds the mark.
        fence(Ordering::Release);
        region.assert_left_home(1 << place);
        self.store_to(file, at, data);
        lane.stats.bump(Counter::OneStore, 1);
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
    fn try_held(
        &self,
        lane: &Lane,
        region: &RegionState,
        held: HeldClosed<'_>,
        side: Side,
        part: &Part<'_>,
    ) -> bool {
        let (page, len) = (PageIndex::of(part.offset), part.data.len() as u64);
        let is_within = part.offset + len <= self.len() || planted!(LengthNotCheckedAgain);
        let is_pinned = region.is_pinned(page.in_region()) && !planted!(StoreOverView);
        if !is_within || is_pinned || !self.backs(region, page, side) {
            held.give_back_unchanged();
            return false;
        }
        self.leave_home(page.region(), region, 1 << page.in_region());
        // Orders two things before the store, as in `try_on_side`: the lock word's mark, and the
        // cleared deployed stamp.
        fence(Ordering::Release);
        self.store_elsewhere(lane, side, part);
        lane.stats.bump(Counter::BytesAsked, len);
        // As in `try_on_side`: the bytes are written already.
        drop(held);
        true
    }

    /// Stores a part that [fits](OneStore::takes) a direct store. The caller holds the page closed,
    /// and no view pins it. The part's slice is valid on `side` and allocated there.
    #[inline(never)]
    pub(super) fn store_elsewhere(&self, lane: &Lane, side: Side, part: &Part<'_>) {
        let side = if planted!(StoreToFreeSlot) { side.other() } else { side };
        lane.recent.note_stored(side);
        let (file, at) = self.slot(side, part.offset);
        self.store_to(file, at, part.data);
        lane.stats.bump(Counter::OneStore, 1);
    }

    /// Stores `bytes` at `at` by one instruction. The statistics count it as one written line: see
    /// `Lanes::stats`.
    #[inline(always)]
    fn store_to(&self, file: &MappedFile, at: u64, bytes: &[u8]) {
        if let (Some(how), Ok(slice)) = (self.one_store.in_line, <&[u8; SLICE]>::try_from(bytes)) {
            // A whole slice comes first and takes the fewest checks: it is the longest direct
            // store.
            return file.store_in_line(how, at, slice);
        }
        if let Some(how) = self.one_store.in_line
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

/// Returns the side on which the slice at `offset` is valid. The caller holds its page.
#[inline(always)]
fn valid_side(region: &RegionState, offset: u64) -> Side {
    region.side(PageIndex::of(offset).in_region(), offset as usize % PAGE / SLICE)
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use crate::bitmap::Validity;
    use crate::units::{PAGE, REGION, RegionIndex, SLICE};
    use crate::{AtomicMappedFile, Error, Medium};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Creates a file of one chunk, deployed and allocated as a whole.
    fn file(folder: &std::path::Path, medium: Medium) -> AtomicMappedFile {
        let options = AtomicMappedFile::options().create(true).len(2 << 20).medium(medium);
        let file = options.open(folder.join(medium.to_string())).expect("a pair");
        for _ in 0..2 {
            file.write_at(&[1; 2 << 20], 0).expect("a write");
            // A flip of two slices by the page's slice word.
            file.write_at(&[1; 128], 0).expect("a write");
        }
        file
    }

    fn validity(file: &AtomicMappedFile) -> Validity {
        file.engine().state.touched(RegionIndex(0)).expect("touched").validity(0)
    }

    /// Writes `len` twos and checks the bytes around them. Returns `true` if no valid slot has
    /// changed.
    fn stays(file: &AtomicMappedFile, offset: u64, len: usize) -> bool {
        let (mut expected, mut found) = ([0; PAGE], [0; PAGE]);
        file.read_at(&mut expected, 0).expect("a read");
        expected[offset as usize..][..len].fill(2);
        let before = validity(file);
        file.write_at(&vec![2; len], offset).expect("a write");
        file.read_at(&mut found, 0).expect("a read");
        assert!(found == expected, "{len} bytes at {offset}");
        validity(file) == before
    }

    #[test]
    fn what_one_instruction_stores_goes_where_it_belongs() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), Medium::Ram);
        assert_eq!(validity(&file), Validity(0));
        let writes = || file.stats().one_store_writes;
        let (before, in_words) =
            (writes(), [(0, 8), (64, 1), (133, 3), (63, 1), (4088, 8), (124, 4)]);
        for (offset, len) in in_words {
            assert!(stays(&file, offset, len), "{len} bytes at {offset}");
        }
        assert_eq!(writes() - before, in_words.len() as u64);
        // The store unit is a slice on some processors, and a word on the others.
        let has_slices = file.engine().one_store.unit == SLICE;
        for (offset, len) in [(6, 4), (1, 8), (8, 16), (64, 64), (65, 62), (4033, 63), (129, 20)] {
            assert_eq!(stays(&file, offset, len), has_slices, "{len} bytes at {offset}");
        }
        assert!(!has_slices || validity(&file) == Validity(0));
        file.deploy(0..PAGE as u64).expect("a deployment");
        for (offset, len) in [(60, 5), (0, 65), (127, 2), (4031, 2)] {
            assert!(!stays(&file, offset, len), "{len} bytes at {offset} are in two slices");
        }
        // Also a slice that is valid in the reflection file, and then one that is deployed.
        file.deploy(0..PAGE as u64).expect("a deployment");
        assert!(!stays(&file, 256, 128) && validity(&file).0 == 0b11 << 4);
        for (offset, len) in [(264, 8), (319, 1), (264, 4), (0, 8), (320, 8)] {
            assert!(stays(&file, offset, len), "{len} bytes at {offset}");
        }
        // A transaction that writes nothing else, after it has read the value.
        let before = validity(&file);
        assert_eq!(
            file.slot::<u64>(264).expect("a slot").fetch_add(1).expect("a sum"),
            u64::MAX / 255 * 2
        );
        assert!(validity(&file) == before && file.load::<u8>(264).expect("a read") == 3);
        file.transact(|tx| tx.store(264, &[1u8; 4]).and_then(|()| tx.store(512, &1u8)))
            .expect("two");
        assert!(validity(&file) != before, "not of two");
        // On either side that the thread may expect the slices on.
        for away in [256, 0] {
            file.write_at(&[2; 8], away).expect("a write");
            for (offset, len) in [(2 << 20, 1), (u64::MAX, 8), (u64::MAX, 1), ((2 << 20) - 1, 2)] {
                assert!(file.write_at(&vec![2; len], offset).is_err(), "{len} bytes at {offset}");
            }
        }
        file.write_at(&[], 0).expect("nothing");
    }

    /// A thread that has the only lane takes locks by plain stores, until another thread works on
    /// the file.
    #[test]
    fn a_thread_is_alone_until_another_one_comes() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), Medium::Ram);
        let is_alone = || {
            let engine = file.engine();
            engine.lanes.enter_alone(&engine.lane()).is_some()
        };
        // Without the usual asymmetric fences a lock is never biased.
        assert_eq!(is_alone(), crate::platform::barrier::is_usual());
        file.write_at(&[2; 8], 64).expect("a write");
        assert_eq!(is_alone(), crate::platform::barrier::is_usual(), "it is let go");
        std::thread::scope(|s| {
            s.spawn(|| assert_eq!(file.load::<u8>(64).expect("a read"), 2));
        });
        assert!(!is_alone(), "another thread has read");
        assert!(stays(&file, 8, 8));
    }

    /// One thread stores and reads back under a biased lock when a second thread begins. The second
    /// one locks the same page and its region, flips slices, and deploys.
    #[test]
    fn who_is_alone_loses_nothing_when_another_one_comes() {
        let folder = tempfile::tempdir().expect("a folder");
        for round in 0..60u64 {
            let folder = folder.path().join(round.to_string());
            std::fs::create_dir(&folder).expect("a folder");
            let file = file(&folder, Medium::Ram);
            let has_begun = AtomicBool::new(false);
            std::thread::scope(|s| {
                s.spawn(|| {
                    while !has_begun.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                    for n in 0..200u64 {
                        file.store(64, &n).expect("a write");
                        file.write_at(&[n as u8; 200], 128).expect("a flip");
                        if n.is_multiple_of(8) {
                            file.deploy(0..PAGE as u64).expect("a deployment");
                        }
                        assert_eq!(file.load::<u64>(64).expect("a read"), n);
                    }
                });
                for n in 0..2000u64 {
                    file.store(0, &n).expect("a write");
                    assert_eq!(file.load::<u64>(0).expect("a read"), n);
                    has_begun.store(n >= 5 * round, Ordering::Relaxed);
                }
            });
            assert_eq!(file.load::<u64>(0).expect("a read"), 1999);
            assert_eq!(file.load::<[u8; 200]>(128).expect("a read"), [199; 200]);
            file.close(crate::CloseMode::Spatial).expect("to close");
        }
    }

    /// A direct store counts as one written line, whatever part of the line it stores.
    #[test]
    fn each_is_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), Medium::Ram);
        let before = file.stats();
        (0..10).for_each(|n| file.write_at(&[n; 5], 8 * u64::from(n)).expect("a write"));
        let after = file.stats();
        assert_eq!(after.one_store_writes - before.one_store_writes, 10);
        assert_eq!(after.bytes_asked - before.bytes_asked, 50);
        assert_eq!(after.bytes_written - before.bytes_written, 10 * SLICE as u64);
        assert_eq!(after.flip_writes, before.flip_writes);
    }

    /// Other threads may observe a torn store, and then they retry.
    #[test]
    fn who_reads_meanwhile_reads_one_state() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), Medium::Ram);
        let is_done = AtomicBool::new(false);
        file.write_at(&[0; SLICE], 128).expect("a write");
        std::thread::scope(|s| {
            s.spawn(|| {
                for round in 0..200_000u32 {
                    file.write_at(&[round as u8; SLICE], 128).expect("a write");
                }
                is_done.store(true, Ordering::SeqCst);
            });
            while !is_done.load(Ordering::SeqCst) {
                let mut to = [0; SLICE];
                file.read_at(&mut to, 128).expect("a read");
                assert!(to.iter().all(|byte| *byte == to[0]), "torn: {to:?}");
            }
        });
    }

    /// A write that fails or is empty must neither make readers of the page retry nor clear the
    /// page's deployed stamp.
    #[test]
    fn what_stores_nothing_leaves_no_trace() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), Medium::Ram);
        file.set_len(8196).expect("shorter");
        file.deploy(0..8196).expect("a deployment");
        let region = file.engine().state.touched(RegionIndex(0)).expect("touched");
        let versions = || [0, 2].map(|n| region.pages[n].lock.begin().expect("open"));
        let (before, known) = (versions(), region.known_at_home());
        file.write_at(&[], 0).expect("nothing");
        assert!(file.write_at(&[2; 8], 8192).is_err() && file.write_at(&[2], 8196).is_err());
        assert_eq!((versions(), region.known_at_home()), (before, known));
        // A region lock clears the intention bit. The next page lock sets it again, once.
        file.set_len(2 << 20).expect("longer");
        file.write_at(&[3; REGION], 0).expect("a write");
        let (before, stores) = (versions(), file.stats().one_store_writes);
        file.write_at(&[4; 8], 8).expect("a write");
        assert_eq!(file.stats().one_store_writes, stores + 1);
        assert_eq!(versions()[0].number(), before[0].number() + 1, "one version more");
    }

    /// A thread that alternates between two files has no cached lane of either.
    #[test]
    fn who_works_on_two_files_stores_all_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        let [one, two] = ["one", "two"].map(|name| {
            let folder = folder.path().join(name);
            std::fs::create_dir(&folder).expect("a folder");
            file(&folder, Medium::Ram)
        });
        let before = [&one, &two].map(|file| file.stats());
        (0..10).for_each(|n| {
            [&one, &two].iter().for_each(|file| file.write_at(&[n; 8], 64).expect("a write"));
        });
        for (file, before) in [&one, &two].into_iter().zip(before) {
            assert_eq!(file.stats().one_store_writes, before.one_store_writes + 10);
            assert_eq!(file.load::<u8>(64).expect("a read"), 9);
        }
    }

    /// A write past a new end stores nothing and fails.
    #[test]
    fn past_the_end_nothing_is_stored() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), Medium::Ram);
        file.write_at(&[1; 8], 8192).expect("a write");
        file.set_len(8196).expect("shorter");
        assert!(matches!(file.write_at(&[2; 8], 8192), Err(Error::OutOfRange { .. })));
        file.write_at(&[3; 4], 8192).expect("up to the end");
        file.set_len(2 << 20).expect("longer");
        assert_eq!(file.load::<[u8; 8]>(8192).expect("a read"), [3, 3, 3, 3, 0, 0, 0, 0]);
    }

    #[test]
    fn what_a_view_pins_is_not_stored_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), Medium::Ram);
        let view = file.view(0..128).expect("a view");
        // The page may have a deployed stamp before the first write. It has none before the second,
        // since a slice is not deployed.
        for offset in [8, 72] {
            assert!(!stays(&file, offset, 8));
        }
        assert_eq!(view.to_vec().expect("its bytes"), [1; 128]);
        drop(view);
        assert!(stays(&file, 8, 8));
    }

    #[test]
    fn where_the_machine_may_die_nothing_is_stored_where_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        // A processor without the instructions of this medium cannot open it.
        let options = AtomicMappedFile::options().create(true).len(2 << 20).medium(Medium::Dax);
        if options.open(folder.path().join("probe")).is_err() {
            return;
        }
        let file = file(folder.path(), Medium::Dax);
        assert!(!stays(&file, 0, 8));
    }
}
