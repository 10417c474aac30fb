//! Holds deployment, the pins of views, and giving reflection pages back to the file system.
//!
//! Deployment copies valid reflection slots into the home slots, and then clears their bits (Acumen
//! IV-C). The home slots are not valid while they are copied to, or they get the bytes that they
//! already hold (see `together`). Each word that is stored moves whole pages. So after a crash each
//! page is either deployed or not, with equal bytes. A page that its region bit alone has sent to
//! the reflection file is deployed by that bit; any other page by its slice word. So the word was
//! stored before, and needs no allocation.

use super::Engine;
use super::commit::{Part, publish};
use super::gates::Gate;
use super::lanes::Lane;
use super::le_word;
use super::live::Target;
use super::plan::{self, RegionPlan, WordMove};
use super::state::known;
use super::stats::Counter;
use crate::bitmap::span;
use crate::bitmap::{Side, Slices, Validity};
use crate::error::{Error, Result};
use crate::format::entry::WordId;
use crate::format::layout;
use crate::lock::Held;
use crate::mutant::{planted, unless};
use crate::primitive::Ordering;
use crate::units::{
    CHUNK, ChunkIndex, PAGE, PageIndex, REGIONS_PER_CHUNK, RegionIndex, SLICE, SUPERCHUNK,
};
use std::ops::Range;

/// What happens to pages that a view pins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pins {
    /// They are not deployed.
    Respect,
    /// They are deployed: no view can be used any more.
    Ignore,
}

/// Which pages are deployed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    /// All that are not deployed yet.
    All,
    /// The pages of a region, unless all of them that lie in the range are in the reflection file
    /// as a whole. From there they are read as fast.
    Scattered,
}

/// Where the deployed bytes are copied from.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// The valid reflection slots.
    Reflection,
    /// These segments, which have just overwritten the pages as a whole and are published: see
    /// `together`.
    Written(&'a [Part<'a>]),
}

/// The outcome of giving back the reflection pages of a chunk.
enum Punched {
    GivenBack,
    NothingToGive,
    /// The file system does not support holes, for this chunk or any other.
    Unsupported,
}

impl Engine {
    /// Deploys all pages of `range`, except those that a view pins. Returns the number of pages
    /// that were deployed.
    pub fn deploy(&self, range: Range<u64>) -> Result<u64> {
        self.check_usable()?;
        let Some(durable) = &self.durable else {
            self.touch_regions_with_words(range.clone())?;
            let deployed = self.deploy_pages(range.clone(), Pins::Respect, Which::All)?;
            self.make_all_known(range);
            return Ok(deployed);
        };
        // A slice that has changed since the last durable point has no free slot at home. And a
        // deployed slice leaves a slot that belongs to that point. So a durable point is made
        // before, and another one after.
        self.durable_point(durable)?;
        self.touch_regions_with_words(range.clone())?;
        let deployed = self.deploy_pages(range.clone(), Pins::Respect, Which::All)?;
        self.durable_point(durable)?;
        self.make_all_known(range);
        Ok(deployed)
    }

    /// Deploys pages of `range` in regions that are loaded. `pins` and `which` select the pages.
    /// Returns the number of pages that were deployed.
    pub(super) fn deploy_pages(&self, range: Range<u64>, pins: Pins, which: Which) -> Result<u64> {
        self.check_usable()?;
        let mut deployed = 0;
        let lane = self.lane();
        for span in span::regions(range.clone()) {
            let Some(region) = self.state.touched(span.region) else { continue };
            let plan = RegionPlan::touching(region, &span);
            // Checked without locks: a page that is written meanwhile need not be deployed by this
            // call.
            let stays = |n: usize| {
                let away = region.validity(n).in_reflection(Slices::ALL);
                away.without(region.changed_slices(n)).is_empty()
                    || pins == Pins::Respect && region.is_pinned(n)
            };
            let is_away = |n: usize| region.validity(n) == Validity(!0);
            let is_as_good = which == Which::Scattered && plan.pages().all(is_away);
            if is_as_good || plan.pages().all(stays) {
                continue;
            }
            let _inside = self.durable.is_some().then(|| self.lanes.enter(Gate::Cut, &lane));
            let held = plan::lock_all(&[plan]);
            self.check_range(range.start, range.end - range.start)?;
            deployed += self.deploy_held(&lane, &plan, &held, pins, Source::Reflection)?;
        }
        Ok(deployed)
    }

    /// Deploys the pages of the plan, with two drains for all of them. `held` includes their locks.
    /// Returns the number of pages that were deployed.
    pub(super) fn deploy_held(
        &self,
        lane: &Lane,
        plan: &RegionPlan<'_>,
        held: &[Held<'_>],
        pins: Pins,
        source: Source<'_>,
    ) -> Result<u64> {
        let region = plan.state;
        // If a slice has changed since the last durable point, its home slot belongs to that point,
        // so the slice stays behind.
        let away = |n: usize| {
            let kept =
                if planted!(DeployDurableSlots) { Slices::NONE } else { region.changed_slices(n) };
            region.validity(n).in_reflection(Slices::ALL).without(kept)
        };
        // A page that its region bit alone has sent to the reflection file is deployed by that bit,
        // unless slices stay behind. The region word is allocated already.
        let may_by_region_bit = |n: usize| {
            let comes_as_a_whole = away(n) == Slices::ALL || planted!(DeployChangedByRegionBit);
            region.region_bit(n) && comes_as_a_whole
        };
        let pages: Vec<usize> = plan
            .pages()
            .filter(|&n| !away(n).is_empty())
            .filter(|&n| pins == Pins::Ignore || !region.is_pinned(n) || planted!(DeployOverView))
            .collect();
        // If another writer has locked the region word, these pages are deployed by their slice
        // words, if those can be allocated. The word stays locked until this function returns: no
        // other writer stores to it before it is drained and its cached copy is changed.
        let needs_word = !plan.is_exclusive() && pages.iter().any(|&n| may_by_region_bit(n));
        let taken =
            needs_word.then(|| self.take_word(plan, || self.ensure_slice_word(plan.index.page(0))));
        let has_word = !matches!(taken, Some(None));
        let _taken = taken.flatten().filter(|_| !planted!(DeployWordGivenBack));
        let by_region_bit = |n: usize| has_word && may_by_region_bit(n);
        for &n in &pages {
            let start = plan.index.page(n).start();
            let slots = start..start + PAGE as u64;
            unless!(DeployHomeNotAllocated, self.ensure_slots(lane, Side::Home, slots)?);
            if !by_region_bit(n) {
                // The word was stored before, so it is allocated. But that may have been before
                // this file was opened, so the flag may not be set yet.
                self.ensure_slice_word(plan.index.page(n))?;
            }
        }
        pages.iter().for_each(|&n| self.note_changed(plan.index.page(n)));
        let targets =
            pages.iter().map(|&n| Target { page: plan.index.page(n), region, slices: away(n) });
        unless!(DeployNoClear, self.clear_live_entries(lane, targets));
        for &n in &pages {
            if let Source::Written(parts) = source {
                self.copy_home_written(lane, plan.index.page(n), parts);
                continue;
            }
            for run in away(n).runs() {
                let offset = plan.index.page(n).start() + (run.start * SLICE) as u64;
                let (len, from) = (run.len() * SLICE, layout::reflection(offset));
                self.home.copy_across(offset, &self.reflection, from, len);
                lane.stats.bump(Counter::BytesWritten, len as u64);
            }
        }
        if pages.is_empty() {
            return Ok(0);
        }
        let (by_region, by_slices): (Vec<usize>, Vec<usize>) =
            pages.iter().partition(|&&n| by_region_bit(n));
        let mut moves: Vec<WordMove> = by_slices
            .iter()
            .map(|&n| WordMove {
                word: WordId::Slice(plan.index.page(n)),
                mask: away(n).0,
                old: region.pages[n].slice_word(),
            })
            .collect();
        if !by_region.is_empty() {
            moves.push(WordMove {
                word: WordId::Region(plan.index),
                mask: by_region.iter().fold(0, |mask, n| mask | 1 << n),
                old: region.region_word(),
            });
        }
        // Orders the home slots, and the invalidation of active records that name them, before the
        // words that make them valid.
        unless!(DeployNoDrainBeforeWords, self.drain(lane));
        self.store_moved_words(lane, &moves);
        // Orders the words before the next writer's stores to the reflection slots. If a word were
        // lost, those slots would be valid again.
        unless!(DeployNoDrainAfterWords, self.drain(lane));
        unless!(DeployNotClosed, held.iter().for_each(Held::close));
        moves.iter().for_each(|change| publish(region, change));
        if pins == Pins::Respect {
            // The file stays in use, so readers profit from the loadable flag and the stamps.
            self.note_loadable(region, plan.index);
            pages.iter().for_each(|&n| self.arrive_home(plan.index.page(n), region));
        }
        lane.stats.bump(Counter::Deployments, pages.len() as u64);
        Ok(pages.len() as u64)
    }

    /// Pins the pages of `range`, all of them deployed. Returns `false`, with nothing pinned, if
    /// they cannot all be deployed now. One reason is an older view of a page that was written
    /// since. Others are a file system that is too full to allocate the home slots, and a file that
    /// keeps durable points.
    pub fn pin(&self, range: Range<u64>) -> Result<bool> {
        self.check_usable()?;
        // Taken before `resizing`: the thread that has the lane may itself wait for `resizing`.
        let lane = self.lane_after_own_writes();
        // Perhaps only this thread's own unfenced write stood against the fast path.
        if self.pin_in_page(&range) {
            return Ok(true);
        }
        let (offset, len) = (range.start, range.end - range.start);
        self.ask_for_view(offset);
        // Keeps the file from being truncated between the check of its length and the pins.
        let _no_resizing = (!planted!(PinWhileResizing)).then(|| self.resizing.read());
        {
            let _pinned = lane.pin();
            self.check_range(offset, len)?;
            self.touch_all(range.clone())?;
        }
        if self.durable.is_some() {
            // A pinned home slot and a durable reflection slot would leave a slice without a free
            // slot for its next version. So views are copies where durable points are kept.
            return Ok(false);
        }
        let plans = self.plan_range(range.clone())?;
        let held = plan::lock_all(&plans);
        unless!(PinWhileResizing, self.check_range(offset, len)?);
        for span in span::pages(range.clone()) {
            let page = span.page.start();
            match self.ensure_slots(&lane, Side::Home, page..page + PAGE as u64) {
                Err(Error::NoSpace { .. }) => return Ok(false),
                other => other?,
            }
        }
        for plan in &plans {
            // Makes all held locks exclusive for each region. That is more than needed, and
            // harmless.
            match self.deploy_held(&lane, plan, &held, Pins::Respect, Source::Reflection) {
                // For slice words that are not yet known to be allocated.
                Err(Error::NoSpace { .. }) => return Ok(false),
                other => other.map(drop)?,
            }
        }
        let at_home =
            |plan: &RegionPlan<'_>| plan.pages().all(|n| plan.state.validity(n) == Validity(0));
        let has_room = |plan: &RegionPlan<'_>| plan.pages().all(|n| plan.state.can_pin(n));
        if !plans.iter().all(|plan| at_home(plan) && has_room(plan)) && !planted!(PinAway) {
            return Ok(false);
        }
        for plan in &plans {
            self.note_loadable(plan.state, plan.index);
            unless!(PinNotCounted, plan.pages().for_each(|n| plan.state.pin(n)));
        }
        lane.stats.bump(Counter::Views, 1);
        Ok(true)
    }

    /// Removes the pins of `range`.
    #[inline]
    pub fn unpin(&self, range: Range<u64>) {
        for span in span::pages(range) {
            // The region has been loaded since the pin.
            if let Some(region) = self.state.touched(span.page.region()) {
                unless!(PinNotGivenBack, region.unpin(span.page.in_region()));
            }
        }
    }

    /// Gives the reflection pages of each chunk within `range` back to the file system, if all
    /// slices of the chunk are valid at home. Returns the number of chunks.
    pub fn punch_deployed(&self, range: Range<u64>) -> Result<u64> {
        self.check_usable()?;
        let lane = self.lane();
        let _one_at_a_time = self.resizing.write();
        let mut punched = 0;
        let mut chunk = ChunkIndex::of(range.start.next_multiple_of(CHUNK as u64));
        // The end of the file may cut its last chunk short.
        let end = if range.end == self.len() { u64::MAX } else { range.end };
        while chunk.start() < range.end && chunk.start() + (CHUNK as u64) <= end {
            match self.punch_chunk(&lane, chunk)? {
                Punched::GivenBack => punched += 1,
                Punched::NothingToGive => {}
                Punched::Unsupported => break,
            }
            chunk.0 += 1;
        }
        Ok(punched)
    }

    fn punch_chunk(&self, lane: &Lane, chunk: ChunkIndex) -> Result<Punched> {
        let len = (CHUNK as u64).min(self.len().saturating_sub(chunk.start()));
        let at = layout::reflection(chunk.start());
        let is_hole = || -> Result<bool> {
            let io = |e| Error::io_at("look for holes", self.reflection.path(), at, e);
            Ok(self.reflection.next_data(at).map_err(io)?.is_none_or(|data| data >= at + len))
        };
        let known_allocated =
            self.chunk_state(chunk).load(Ordering::Acquire) & known::REFLECTION != 0;
        if len == 0 || !known_allocated && is_hole()? {
            return Ok(Punched::NothingToGive);
        }
        let first = chunk.first_region();
        let in_chunk = || (0..REGIONS_PER_CHUNK as u64).map(|n| RegionIndex(first.0 + n));
        let inside = || in_chunk().filter(|r| r.start() < chunk.start() + len);
        {
            let _pinned = lane.pin();
            inside().try_for_each(|r| self.region(r).map(|_| ()))?;
        }
        let regions: Vec<_> = inside().filter_map(|r| Some((r, self.state.touched(r)?))).collect();
        let held: Vec<Held<'_>> =
            regions.iter().map(|(_, state)| plan::lock_whole_region(state)).collect();
        let away = |(_, state): &(RegionIndex, &super::RegionState)| {
            let is_durable = |n| state.durable(n) != Validity(0) && !planted!(PunchDurableSlots);
            (0..64).any(|n| state.validity(n) != Validity(0) || is_durable(n))
        };
        if regions.iter().any(away) && !planted!(PunchValidSlots) {
            return Ok(Punched::NothingToGive);
        }
        // Flip records may still name these slots, but do no harm. If a newer record moved a slice
        // home, the newer record counts. If the slice was deployed, that has invalidated the older
        // records (`punch` of the model). No reader may still copy from an old valid slot: on tmpfs
        // its load would allocate.
        unless!(PunchNoWait, self.wait_for_readers());
        let _no_allocation = self.allocating.lock();
        let punched = self.reflection.punch(at, len).map_err(|source| Error::Io {
            call: "punch a hole",
            path: self.reflection.path().to_owned(),
            offset: Some(at),
            source,
        })?;
        if punched {
            let gone = if planted!(PunchedStaysAllocated) { 0 } else { known::REFLECTION };
            self.chunk_state(chunk).fetch_and(!gone, Ordering::Release);
            if let Some(pieces) = self.pieces_of(chunk) {
                pieces.forget_side(Side::Reflection);
            }
            lane.stats.bump(Counter::Punches, 1);
        }
        drop(held);
        Ok(if punched { Punched::GivenBack } else { Punched::Unsupported })
    }

    /// Loads every region of `range` that has a nonzero word, skipping holes. Only in those may
    /// pages need deployment. The other regions still take no DRAM.
    pub(super) fn touch_regions_with_words(&self, range: Range<u64>) -> Result<()> {
        if self.fresh {
            // Every word was zero when the file was opened, so a nonzero word belongs to a loaded
            // region.
            return Ok(());
        }
        let lane = self.lane();
        let _pinned = lane.pin();
        let mut start = range.start;
        while start < range.end.min(self.len()) {
            let next = (start / SUPERCHUNK as u64 + 1) * SUPERCHUNK as u64;
            // The words of one superchunk are contiguous.
            let last = next.min(range.end) - 1;
            let (from, to) = (RegionIndex::of(start), RegionIndex::of(last));
            let (words, end) = (layout::region_word(from), layout::region_word(to) + 8);
            unless!(
                RegionWordsNotVisited,
                self.touch_by_words(words, end, |n| RegionIndex(from.0 + n))?
            );
            let (from, to) = (PageIndex::of(start), PageIndex::of(last));
            let (words, end) = (layout::slice_word(from), layout::slice_word(to) + 8);
            unless!(
                SliceWordsNotVisited,
                self.touch_by_words(words, end, |n| PageIndex(from.0 + n).region())?
            );
            if self.durable.is_some() {
                // A slice that was deployed since the last durable point has zeroes in both of its
                // working words.
                let (words, end) = (layout::durable_word(from), layout::durable_word(to) + 8);
                self.touch_by_words(words, end, |n| PageIndex(from.0 + n).region())?;
            }
            start = next;
        }
        Ok(())
    }

    /// Loads the region of every nonzero word of `at..end`. The caller is in a read section.
    fn touch_by_words(
        &self,
        at: u64,
        end: u64,
        region_of: impl Fn(u64) -> RegionIndex,
    ) -> Result<()> {
        let path = self.reflection.path();
        let io = |at: u64| move |e| Error::io_at("read words", path, at, e);
        let mut from = at;
        while let Some(data) = self.reflection.next_data(from).map_err(io(from))?
            && data.max(from) < end
        {
            from = data.max(from) / 8 * 8;
            let piece_end = (from + 1).next_multiple_of(PAGE as u64).min(end);
            let mut bytes = vec![0; (piece_end - from) as usize];
            self.reflection.read_file(&mut bytes, from).map_err(io(from))?;
            for (n, word) in bytes.chunks_exact(8).enumerate() {
                if le_word(word) != 0 {
                    let region = region_of((from - at) / 8 + n as u64);
                    if region.start() < self.len() {
                        self.region(region)?;
                    }
                }
            }
            from = piece_end;
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use crate::units::REGION;
    use crate::{AtomicMappedFile, Medium};

    /// A slice is valid at home now, and in the reflection file at the durable point. A deployment
    /// makes durable points before it gives space back, but another thread may write in between.
    #[test]
    fn slots_of_the_durable_point_are_not_given_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let len = 2 << 20;
        let file = AtomicMappedFile::options()
            .create(true)
            .len(len)
            .medium(Medium::PageCache)
            .open(folder.path().join("state.dat"))
            .expect("a pair");
        let slice = |n: u8| file.write_at(&[n; 64], 64).expect("a write");
        slice(1);
        file.sync().expect("a durable point");
        slice(2);
        let engine = file.engine();
        let region = engine.state.touched(crate::units::RegionIndex(0)).expect("it was written");
        assert_eq!((region.validity(0).0, region.durable(0).0), (0, 0b10));
        assert_eq!(engine.punch_deployed(0..len).expect("no error"), 0);
        // After the next durable point the slots are free.
        file.sync().expect("a durable point");
        if cfg!(all(target_os = "linux", not(atomic_mmap_portable))) {
            assert_eq!(engine.punch_deployed(0..len).expect("no error"), 1);
        }
    }

    /// A page that its region bit has sent to the reflection file is deployed by that bit: no slice
    /// words are allocated for it.
    #[test]
    fn what_a_region_word_has_sent_away_comes_home_by_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = AtomicMappedFile::options().create(true).len(REGION as u64);
        let file =
            options.medium(Medium::Ram).open(folder.path().join("state.dat")).expect("a pair");
        let pages = |n: u64| n * PAGE as u64..(n + 8) * PAGE as u64;
        file.write_at(&[1; 8 * PAGE], pages(0).start).expect("a write");
        file.write_at(&[2; 8 * PAGE], pages(8).start).expect("a write");
        let region = file.engine().state.touched(RegionIndex(0)).expect("it was written");
        assert_eq!(region.region_word(), 0xFFFF, "by the region's word");
        // First one page, under its own lock. Then pages of which one has a nonzero slice word by
        // now.
        assert_eq!(file.deploy(pages(0).start..PAGE as u64).expect("a deployment"), 1);
        assert_eq!((region.region_word(), region.pages[0].slice_word()), (0xFFFE, 0));
        file.write_at(&[3; 128], 64).expect("a write");
        file.write_at(&[4; 128], PAGE as u64).expect("a write");
        assert_eq!(file.deploy(0..REGION as u64).expect("a deployment"), 16);
        assert_eq!(region.region_word(), 0b10, "page 1 was sent away by both");
        assert_eq!((0..64).filter(|n| region.validity(*n).0 != 0).count(), 0);
        let mut read = vec![0; 16 * PAGE];
        file.read_at(&mut read, 0).expect("a read");
        let mut expected = [[1; 8 * PAGE], [2; 8 * PAGE]].concat();
        expected[64..192].fill(3);
        expected[PAGE..PAGE + 128].fill(4);
        assert!(read == expected);
    }

    /// Slices stay behind if their home slots belong to the durable point. So the page is not
    /// deployed by its region bit, which would move all slices.
    #[test]
    fn what_stays_behind_is_not_moved_by_a_region_bit() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = AtomicMappedFile::options().create(true).len(REGION as u64);
        let file = options
            .medium(Medium::PageCache)
            .open(folder.path().join("state.dat"))
            .expect("a pair");
        file.write_at(&[1; 64], 64).expect("a write");
        file.sync().expect("a durable point");
        file.write_at(&[2; REGION], 0).expect("a write");
        file.sync().expect("a durable point");
        file.write_at(&[3; 64], 64).expect("a write");
        let engine = file.engine();
        let region = engine.state.touched(RegionIndex(0)).expect("it was written");
        assert_eq!((region.validity(0).0, region.durable(0).0), (!0, !0b10));
        let own_word = region.pages[0].slice_word();
        assert!(region.region_bit(0) && own_word == 0, "its own word says nothing any more");
        engine.deploy_pages(0..REGION as u64, Pins::Respect, Which::All).expect("a deployment");
        assert_eq!(region.validity(0).0, 0b10);
        let mut read = [0; PAGE];
        file.read_at(&mut read, 0).expect("a read");
        assert!(
            read[64..128] == [3; 64] && read[..64] == [2; 64] && read[128..] == [2; PAGE - 128]
        );
    }
}
