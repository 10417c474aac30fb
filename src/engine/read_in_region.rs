//! Holds the fast path of a read of several pages of one region that are uniform, all on one side.
//!
//! A block that was written as one, as a rule by a database, lies on one side and is read as one.
//! No pieces need to be gathered: versions, side, copy, versions. The path is tried once. In any
//! other state the read begins anew in `read`, which determines the reason.
//!
//! May import what `read` may.

use super::Engine;
use super::at_home::makes_known;
use super::come_home::is_counted_of;
use super::lanes::Lane;
use super::read::version_sum_of;
use super::recent::Expected;
use super::state::RegionState;
use super::stats::Counter;
use crate::bitmap::Side;
use crate::format::layout;
use crate::mutant::planted;
use crate::primitive::{Ordering, fence};
use crate::units::PageIndex;
use std::ops::Range;

/// The sum of the versions of a region and some of its pages at the start of a read.
pub(super) struct Versions(u64);

impl Versions {
    /// Returns the sum for these pages, or `None` while one of the locks is exclusive.
    #[inline(always)]
    pub fn begin(region: &RegionState, pages: Range<usize>) -> Option<Self> {
        version_sum_of(region, pages).map(Versions)
    }

    /// Returns `true` if no version has changed. The caller has put an acquire fence between its
    /// reads and this call.
    #[inline(always)]
    pub fn are_still(&self, region: &RegionState, pages: Range<usize>) -> bool {
        version_sum_of(region, pages) == Some(self.0) || planted!(SeveralNotLookedAtAgain)
    }
}

impl Engine {
    /// Fills `to` from `offset` by a fast path for several pages, if one applies. `lane` is the
    /// result of [`lane_at_hand`](Self::lane_at_hand). On `false` the contents of `to` are
    /// unspecified.
    #[inline(never)]
    pub(super) fn read_several(&self, lane: &Lane, to: &mut [u8], offset: u64) -> bool {
        self.ask_ahead(offset, to.len());
        match lane.recent.expected() {
            Expected::AtHome => {
                self.read_all_known(lane, to, offset) || self.read_in_region(lane, to, offset)
            }
            // Pages that are written now and then are seldom stamped.
            Expected::OnOneSide => {
                self.read_in_region(lane, to, offset) || self.read_all_known(lane, to, offset)
            }
            // The slow path reads mixed pages, and notes when they are uniform again.
            Expected::OnBothSides => self.read_all_known(lane, to, offset),
        }
    }

    /// Fills `to` from `offset` in one copy, if the range lies in one region and all its pages are
    /// uniform on one side. On `false` the contents of `to` are unspecified.
    pub(super) fn read_in_region(&self, lane: &Lane, to: &mut [u8], offset: u64) -> bool {
        let end = offset.checked_add(to.len() as u64);
        let Some(end) = end.filter(|end| *end > offset) else { return false };
        let (first, last) = (PageIndex::of(offset), PageIndex::of(end - 1));
        if first.region() != last.region() {
            return false;
        }
        let pages = first.in_region()..last.in_region() + 1;
        // The home slot is already prefetched. Which slot is valid is known only once the pages'
        // states are loaded.
        self.reflection.prefetch_read(layout::reflection(offset));
        let pinned = lane.pin_at_once();
        let first_len = if planted!(SeveralLengthFirst) { self.len() } else { 0 };
        let Some(region) = self.state.touched(first.region()) else {
            return pinned.has_not_read();
        };
        let Some(seen) = Versions::begin(region, pages.clone()) else {
            return pinned.has_not_read();
        };
        // Checked after the versions, as in `read_in_page`.
        let file_len = if planted!(SeveralLengthFirst) { first_len } else { self.len() };
        if end > file_len {
            return pinned.has_not_read();
        }
        let Some(side) = region.valid_side(pages.clone()) else {
            // Mixed pages are noted by the slow path, which counts the pieces.
            lane.recent.note_away(true);
            return pinned.has_not_read();
        };
        lane.recent.note_both(false);
        let side = if planted!(SeveralReadAtHome) { Side::Home } else { side };
        let is_home = side == Side::Home;
        lane.recent.note_away(!is_home);
        // A valid reflection slot was written, so it is allocated.
        if is_home && !region.home_is_loadable() && !planted!(HoleOfSeveralRead) {
            return pinned.has_not_read();
        }
        let (file, at) = self.slot(side, offset);
        if !file.try_copy_out(to, at) {
            return pinned.has_not_read();
        }
        // Orders the copy before the versions are validated.
        fence(Ordering::Acquire);
        if !seen.are_still(region, pages) {
            lane.stats.bump(Counter::ReadRetries, 1);
            return pinned.has_not_read();
        }
        let number = pinned.number();
        pinned.has_read();
        if is_counted_of(lane, number, to.len()) {
            self.after_read(offset..end, 1, true);
        }
        if is_home && makes_known(number) {
            self.make_all_known(offset..end);
        }
        true
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use crate::units::{PAGE, REGION};
    use crate::{AtomicMappedFile, Medium};
    use std::sync::atomic::{AtomicBool, Ordering};

    const LEN: u64 = 4 << 20;
    const BLOCK: usize = 2 * PAGE;

    /// Opens a pair in which every byte of the first half is `fill` and every page is deployed.
    fn file(folder: &std::path::Path, fill: u8) -> AtomicMappedFile {
        let options = AtomicMappedFile::options().create(true).len(LEN).medium(Medium::Ram);
        let file = options.open(folder.join("state.dat")).expect("a pair");
        for _ in 0..2 {
            file.write_at(&vec![fill; LEN as usize / 2], 0).expect("a write");
        }
        file
    }

    /// Returns `true` if the fast path reads the range, which must then hold `expected`.
    fn at_once(file: &AtomicMappedFile, offset: u64, expected: &[u8]) -> bool {
        // Fences this thread's own writes.
        file.load::<u8>(LEN / 4).expect("a read");
        let mut to = vec![0xee; expected.len()];
        let engine = file.engine();
        let lane = engine.lane_at_hand().expect("a lane");
        let before = file.stats().reads;
        let is_read = engine.read_in_region(lane, &mut to, offset);
        assert_eq!(file.stats().reads - before, u64::from(is_read), "each is counted");
        assert!(!is_read || to == expected, "not what is there");
        is_read
    }

    #[test]
    fn pages_on_one_side_are_read_at_once_and_no_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), 1);
        let region = REGION as u64;
        file.read_at(&mut vec![0; REGION], 0).expect("a read");
        assert!(at_once(&file, 0, &[1; BLOCK]), "at home");
        assert!(at_once(&file, 0, &[1; 9]) && at_once(&file, 4090, &[1; 9]), "of any length");
        assert!(at_once(&file, 0, &[1; REGION]) && !at_once(&file, 1, &[1; REGION]), "two regions");
        file.write_at(&[2; BLOCK], BLOCK as u64).expect("a write");
        assert!(at_once(&file, BLOCK as u64, &[2; BLOCK]), "away");
        assert!(at_once(&file, BLOCK as u64 + 100, &[2; BLOCK - 200]), "a part of it");
        assert!(!at_once(&file, PAGE as u64, &[0; BLOCK]), "one here and one there");
        file.write_at(&[3; 65], BLOCK as u64).expect("a write");
        assert!(!at_once(&file, BLOCK as u64, &[0; BLOCK]), "in pieces");
        assert!(!at_once(&file, LEN - 100, &[0; 101]) && !at_once(&file, u64::MAX, &[0; 2]));
        assert!(!at_once(&file, 0, &[]), "nothing");

        let state = file.engine().state.touched(crate::units::RegionIndex(0)).expect("touched");
        let held = crate::lock::lock_page(&state.lock, &state.pages[1].lock);
        assert!(at_once(&file, 0, &[1; BLOCK]), "who copies and drains keeps no reader waiting");
        held.close();
        assert!(!at_once(&file, 0, &[1; BLOCK]));
        drop(held);
        assert!(at_once(&file, 0, &[1; BLOCK]));
        assert!(!at_once(&file, 3 * region - 100, &[1; 200]), "over a region's end");
    }

    #[test]
    fn pages_in_a_hole_are_not_loaded_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), 1);
        let hole = LEN - REGION as u64;
        let mut to = [1; BLOCK];
        file.read_at(&mut to, hole).expect("a hole");
        assert!(to == [0; BLOCK] && !at_once(&file, hole, &[0; BLOCK]));
        file.write_at(&[5; BLOCK], hole).expect("a write");
        assert!(at_once(&file, hole, &[5; BLOCK]), "what was written is there");
        assert!(!at_once(&file, hole + BLOCK as u64, &[0; BLOCK]), "and a hole behind it");
    }

    #[test]
    fn a_block_that_is_written_again_and_again_is_read_in_one_state() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), 0);
        let is_done = AtomicBool::new(false);
        let read = std::thread::scope(|s| {
            s.spawn(|| {
                for round in 0..30_000u32 {
                    file.write_at(&[round as u8; BLOCK], BLOCK as u64).expect("a write");
                }
                is_done.store(true, Ordering::SeqCst);
            });
            let (mut to, mut read) = ([0; BLOCK], 0);
            while !is_done.load(Ordering::SeqCst) {
                let engine = file.engine();
                let Some(lane) = engine.lane_at_hand() else {
                    // The thread has deployed a page.
                    file.load::<u8>(0).expect("a read");
                    continue;
                };
                if engine.read_in_region(lane, &mut to, BLOCK as u64) {
                    assert!(to.iter().all(|byte| *byte == to[0]), "torn");
                    read += 1;
                }
            }
            read
        });
        assert!(read > 0, "nothing was read at once");
    }
}
