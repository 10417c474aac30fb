//! Holds the fast path of a read within one page.
//!
//! This is the frequent case. It costs at least a cache miss. A processor overlaps the misses of
//! all reads that fit its window of some 150 to 300 instructions. So the cost of a read is the
//! number of its instructions, loads and stores above all. This file has only those that a read
//! needs in the usual state, and tries once. In any other state the read begins anew in `read`,
//! which determines the reason.
//!
//! The steps are those of `read`: enter the read section, versions, range, copy, versions.

use super::Engine;
use super::at_home::makes_known;
use super::come_home::is_counted;
use super::lanes::{AtOnce, Lane};
use super::state::{PageState, RegionState};
use super::stats::Counter;
use crate::bitmap::span::slices_of;
use crate::bitmap::{Slices, Validity};
use crate::format::layout;
use crate::lock::Look;
use crate::mutant::planted;
use crate::primitive::{Ordering, fence};
use crate::units::{PAGE, PageIndex, SLICE, is_in_page};

/// A read of one page, in its read section.
struct Begun<'e> {
    pinned: AtOnce<'e>,
    region: &'e RegionState,
    page: &'e PageState,
    look: Look,
    /// The valid slot of each slice.
    validity: Validity,
}

impl Begun<'_> {
    /// Ends the read. Returns `true` if the copy made meanwhile is consistent.
    #[inline(always)]
    fn end(self, lane: &Lane) -> bool {
        // Orders the copy before the versions are validated.
        fence(Ordering::Acquire);
        let is_state = self.look.is_still(&self.region.lock, &self.page.lock);
        if is_state {
            self.pinned.has_read();
        } else {
            lane.stats.bump(Counter::ReadRetries, 1);
        }
        is_state
    }
}

impl Engine {
    /// Fills `to` from `offset`, if the bytes lie in one page that is deployed and not locked
    /// exclusively. This is the most frequent case. `lane` is the result of
    /// [`lane_at_hand`](Self::lane_at_hand). On `false` the contents of `to` are unspecified.
    #[inline(never)]
    pub(super) fn read_home(&self, lane: &Lane, to: &mut [u8], offset: u64) -> bool {
        let Some(begun) = self.begin_in_page(lane, to.len(), offset) else { return false };
        // The whole page must be deployed. Then it does not matter which slices are read.
        let is_copied = (begun.validity == Validity(0) || planted!(AwayTakenForHome))
            && (begun.region.home_is_loadable() || planted!(HoleReadAtOnce))
            && self.home.copy_out_in_page(to, offset);
        let number = begun.pinned.number();
        let is_done = is_copied && begun.end(lane);
        if is_done && makes_known(number) {
            self.make_known(PageIndex::of(offset));
        }
        is_done
    }

    /// Fills `to` from `offset`, with each byte from its valid slot. With `MAY_BE_BOTH` the valid
    /// slots may be mixed; without it, mixed bytes are left to the slow path. A range of several
    /// pages goes to [`read_several`](Self::read_several). On `false` the contents of `to` are
    /// unspecified.
    // Two instances with few values at a time, which call nothing before their end. That saves a
    // store and a load.
    #[inline(never)]
    pub(super) fn read_either<const MAY_BE_BOTH: bool>(
        &self,
        lane: &Lane,
        to: &mut [u8],
        offset: u64,
    ) -> bool {
        let (slots, len) = (self.slots(offset), to.len());
        if !is_in_page(offset, len) {
            return self.read_several(lane, to, offset);
        }
        // The home slot is already prefetched. Which slot is valid is known only once the page's
        // state is loaded.
        self.reflection.prefetch_read(layout::reflection(offset));
        let pinned = lane.pin_at_once();
        // The bounds are checked here, where the addresses are at hand, and before the length is
        // checked. A shrink first publishes the new length. Then it waits for all read sections,
        // and only then it reduces `backed`.
        let Some(filling) = slots.to_fill(to) else { return pinned.has_not_read() };
        let Some(begun) = self.begin_pinned(pinned, len, offset) else { return false };
        // For an empty range this is one slice or all of them, and nothing is loaded.
        let slices = Slices::first(slices_of(offset, len));
        let sides = begun.validity.bits_from(offset);
        let there = Slices(sides).and(slices);
        let are_on_one = there.is_all_or_none_of_first(slices);
        lane.recent.note_away(!there.is_empty());
        if MAY_BE_BOTH {
            lane.recent.note_both(!are_on_one);
        } else if !are_on_one {
            lane.recent.note_both(true);
            return begun.pinned.has_not_read();
        }
        // A valid reflection slot was written, so it is allocated. The home slots are either all
        // loadable or none. Combined as words, since two conditions would become two branches, one
        // of which depends on the side.
        let loadable = if planted!(HoleReadAtOnce) { 1 } else { begun.region.home_loadable() };
        if slices.without(there).0 & u64::from(loadable).wrapping_sub(1) != 0 {
            return begun.pinned.has_not_read();
        }
        // With `MAY_BE_BOTH` a range of whole lines is copied line by line, each line from its
        // side, even if it is uniform. No branch can predict which ranges are mixed. A range of
        // partial lines is copied so only if it is mixed: its ends are copied separately, which
        // takes longer than a misprediction.
        let are_lines = (offset as usize | len).is_multiple_of(SLICE);
        if !MAY_BE_BOTH || are_on_one && !are_lines {
            // If pages lie on either side, a branch on the side is mispredicted every other time.
            // The processor then drops the reads that it has begun ahead, and restarts them one by
            // one. So the slot is selected without a branch. The copy waits for the page's state,
            // but later reads do not.
            filling.fill_from_one(there == slices && !planted!(AwayReadAtHome));
        } else {
            filling.fill_from_sides(if planted!(PiecesReadAtHome) { 0 } else { sides });
        }
        let number = begun.pinned.number();
        if !begun.end(lane) {
            return false;
        }
        !is_counted(lane, number) || self.count_other_page(lane, offset)
    }

    /// Counts the read if it begins in another page than the read counted last. Also counts empty
    /// reads. Always returns `true`.
    #[cold]
    #[inline(never)]
    fn count_other_page(&self, lane: &Lane, offset: u64) -> bool {
        let page = PageIndex::of(offset);
        if lane.recent.reads_other_page(page) {
            self.count_read(page.start()..page.start() + PAGE as u64);
        }
        true
    }

    /// Enters a read section and checks everything that a read of `len` bytes of one page relies
    /// on.
    #[inline(always)]
    fn begin_in_page<'e>(&'e self, lane: &'e Lane, len: usize, offset: u64) -> Option<Begun<'e>> {
        if !is_in_page(offset, len) {
            return None;
        }
        self.begin_pinned(lane.pin_at_once(), len, offset)
    }

    /// Checks everything that a read of `len` bytes relies on, in the read section of `pinned`.
    #[inline(always)]
    fn begin_pinned<'e>(
        &'e self,
        pinned: AtOnce<'e>,
        len: usize,
        offset: u64,
    ) -> Option<Begun<'e>> {
        // The last byte, which is in the same page. For an empty range it is the byte before: an
        // empty range may begin at the end of the file.
        let last = offset.wrapping_add(len as u64).wrapping_sub(1);
        let first_len = if planted!(InPageLengthFirst) { self.len() } else { 0 };
        let page = PageIndex::of(offset);
        let region = self.state.touched(page.region())?;
        let place = page.in_region();
        let page = &region.pages[place];
        let look = Look::begin(&region.lock, &page.lock)?;
        // Checked after the versions are loaded. An earlier check may have seen the length before a
        // shrink. The versions may then include a write by a thread that has seen the shrink.
        let file_len = if planted!(InPageLengthFirst) { first_len } else { self.len() };
        if last >= file_len {
            return None;
        }
        let validity = region.validity_of(page, place);
        Some(Begun { pinned, region, page, look, validity })
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use crate::engine::recent::Expected;
    use crate::{AtomicMappedFile, Medium};

    #[test]
    fn what_is_as_usual_is_read_at_once_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = AtomicMappedFile::options().create(true).len(1 << 20).medium(Medium::Ram);
        let file = options.open(folder.path().join("state.dat")).expect("a pair");
        let engine = file.engine();
        let in_page = |to: &mut [u8], offset: u64| {
            engine.lane_at_hand().is_some_and(|lane| engine.read_either::<true>(lane, to, offset))
        };
        let at_once = |len: usize, offset: u64| in_page(&mut vec![0; len], offset);
        let short = |len: usize, offset: u64| {
            let mut to = vec![0; len];
            engine.lane_at_hand().is_some_and(|lane| engine.read_home(lane, &mut to, offset))
        };
        let data: Vec<u8> = (0..1 << 20).map(|n| (n % 251) as u8).collect();
        // Written twice, so that both slots are allocated and every page is deployed.
        for _ in 0..2 {
            file.write_at(&data, 0).expect("a write");
        }
        assert!(!at_once(1, 0), "this thread has published something");
        // The first read of each region notes that its chunk is loadable.
        let mut read = vec![0; data.len()];
        file.read_at(&mut read, 0).expect("a read");
        assert!(read == data && file.stats().reads == 1);

        for (len, offset) in [(1, 0), (64, 4032), (128, 8192), (127, (1 << 20) - 127)] {
            let mut read = vec![0; len];
            let lane = engine.lane_at_hand().expect("nothing was published");
            assert!(engine.read_home(lane, &mut read, offset));
            assert_eq!(read, data[offset as usize..][..len]);
        }
        assert!(at_once(4096, 4096) && short(4096, 4096) && !short(4097, 0));
        assert_eq!(file.stats().reads, 7, "each is counted");
        assert!(at_once(2, 4095) && at_once(4097, 0), "two pages, as such");
        assert!(at_once(0, 5) && !at_once(0, 0) && !at_once(0, (1 << 20) + 1));
        assert!(!at_once(1, 1 << 20) && !at_once(2, (1 << 20) - 1) && !at_once(1, u64::MAX));

        // Now slices 0 and 1 of page 1 are valid in the reflection file.
        file.write_at(&[7; 128], 4096).expect("a write");
        file.load::<u8>(0).expect("a read");
        assert!(short(64, 0) && !short(64, 4096 + 128), "not the whole page is at home");
        let mut expected = data[4096..8192].to_vec();
        expected[..128].fill(7);
        let mut read = vec![0; 4096];
        assert!(in_page(&mut read, 4096) && read == expected, "in two pieces");
        assert!(in_page(&mut read[..40], 4100) && read[..40] == [7; 40], "from reflection alone");
        let asks =
            engine.lane_at_hand().is_some_and(|lane| lane.recent.expected() != Expected::AtHome);
        assert!(asks, "both slots are asked for now");
        // A read that expects a uniform page accepts either side, and refuses mixed bytes.
        let on_one = |to: &mut [u8], offset: u64| {
            let lane = engine.lane_at_hand().expect("nothing was published");
            engine.read_either::<false>(lane, to, offset)
        };
        let before = file.stats().reads;
        assert!(on_one(&mut read[..40], 4100) && read[..40] == [7; 40], "away");
        assert!(on_one(&mut read[..64], 4096 + 64) && read[..64] == expected[64..128], "at home");
        assert_eq!(file.stats().reads, before + 2);
        assert!(!on_one(&mut read, 4096), "on both");
        assert_eq!(file.stats().reads, before + 2, "it was none");
        let expected_next = engine.lane_at_hand().map(|lane| lane.recent.expected());
        assert_eq!(expected_next, Some(Expected::OnBothSides));
        assert!(
            !at_once(1, u64::MAX) && !at_once(0, u64::MAX),
            "nor are they where there are none"
        );
        // As fragmented as a page can be.
        let slices: Vec<_> = (2..64).step_by(2).map(|slice| slice * 64).collect();
        slices.iter().for_each(|&at| expected[at as usize..][..64].fill(7));
        // All in one operation, so that none becomes a direct store.
        let parts: Vec<(u64, &[u8])> = slices.iter().map(|at| (4096 + at, &[7; 64][..])).collect();
        file.write_many(&parts).expect("a write");
        file.load::<u8>(0).expect("a read");
        assert!(in_page(&mut read, 4096) && read == expected, "in 64 pieces");
        for (start, len) in
            [(1, 4095), (0, 4095), (65, 200), (63, 2), (100, 20), (128, 640), (70, 58)]
        {
            let at_once = in_page(&mut read[..len], 4096 + start as u64);
            assert!(at_once && read[..len] == expected[start..start + len], "{len} from {start}");
        }
        assert_eq!(file.stats().deployments, 0);
        // Most of the page is valid in the reflection file.
        file.deploy(4096..8192).expect("a deployment");
        file.write_at(&[8; 4032], 4096).expect("a write");
        file.load::<u8>(0).expect("a read");
        expected[..4032].fill(8);
        assert!(in_page(&mut read, 4096) && read == expected, "from the other side");
        assert!(in_page(&mut read[..70], 4096 + 4000));
        assert!(read[..70] == expected[4000..4070]);

        let region = engine.state.touched(crate::units::RegionIndex(0)).expect("touched");
        let held = crate::lock::lock_page(&region.lock, &region.pages[2].lock);
        assert!(at_once(1, 8192), "who copies and drains keeps no reader waiting");
        held.close();
        assert!(!at_once(1, 8192) && at_once(1, 0));
        drop(held);
        file.load::<u8>(0).expect("a read");
        assert!(at_once(1, 8192));
        let elsewhere =
            || std::thread::scope(|s| s.spawn(|| at_once(1, 0)).join().expect("no panic"));
        assert!(!elsewhere(), "a thread without a lane");

        let cause = crate::Error::io("sync", file.path(), std::io::Error::other("a test"));
        engine.poison(&cause);
        assert!(!at_once(1, 0) && file.load::<u8>(0).is_err());
    }

    /// A hole is read through the file. Once it is filled, the fast path reads it.
    #[test]
    fn holes_are_not_loaded_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = AtomicMappedFile::options().create(true).len(4 << 20).medium(Medium::Ram);
        let file = options.open(folder.path().join("state.dat")).expect("a pair");
        let engine = file.engine();
        let long_at_once = |len: usize, offset: u64| {
            let mut to = vec![0; len];
            engine
                .lane_at_hand()
                .is_some_and(|lane| engine.read_either::<true>(lane, &mut to, offset))
        };
        let at_once = |offset: u64| long_at_once(1, offset);
        let short = |offset: u64| {
            let lane = engine.lane_at_hand().expect("nothing was published");
            engine.read_home(lane, &mut [0], offset)
        };
        for _ in 0..2 {
            assert_eq!(file.load::<u64>(2 << 20).expect("a hole"), 0);
        }
        assert!(!at_once(2 << 20) && !short(2 << 20));
        // The first write goes to the reflection file, and the home slots around stay a hole.
        file.store(2 << 20, &1u64).expect("a store");
        assert_eq!(file.load::<u64>(0).expect("a load"), 0);
        assert!(long_at_once(8, 2 << 20) && !long_at_once(8, (2 << 20) + 64));
        assert!(!long_at_once(128, 2 << 20), "some of it is in a hole");
        file.store(2 << 20, &1u64).expect("a store");
        assert_eq!(file.load::<u64>(2 << 20).expect("a load"), 1);
        assert!(at_once(2 << 20));
        // A range that was truncated and comes back is a hole again.
        file.set_len(1 << 20).expect("shorter");
        file.set_len(4 << 20).expect("longer");
        assert_eq!(file.load::<u64>(2 << 20).expect("a hole"), 0);
        assert!(!at_once(2 << 20));
    }
}
