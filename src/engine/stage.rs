//! Stages: free slots that are lent out and filled before the operation that makes them valid.
//!
//! A stage claims the free slots of whole slices (`pair::claims`), in DRAM alone. What has no free
//! slot gets a buffer: the parts of slices at both ends of the range, slices that another stage
//! claims, pages that a view pins, and everything where durable points are kept. `write::staged`
//! commits.
//!
//! Invariants:
//! - A claimed slot is allocated before the first store to it.
//! - Each fill ends with a drain by its own thread. So the bytes are durable before the operation
//!   that makes them valid, and before the claim is given back, whichever thread does that.
//!
//! Rules: `docs/model/staging.py` and `docs/protocols/staging.md`.
//!
//! May import `deploy`, `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::span::{self, PageSpan, RegionSpan};
use crate::bitmap::{Side, Slices, Validity};
use crate::engine::Engine;
use crate::engine::plan::{self, RegionPlan};
use crate::error::{Error, Result};
use crate::lock::LockGuard;
use crate::mmap::Rooms;
use crate::mutant::unless;
use crate::pair::log::lane::Lane;
use crate::pair::log::lanes::InUse;
use crate::platform::ZeroedBytes;
use crate::units::{PageIndex, SLICE, SUPERCHUNK};
use std::ops::Range;

/// Where the bytes of a run lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lent {
    /// In the free slots of whole slices, all on this side.
    Slots(Side),
    /// In the stage's buffer.
    Buffer,
}

/// Neighbouring bytes of a stage in one piece of memory.
#[derive(Clone, Debug)]
struct Run {
    range: Range<u64>,
    lent: Lent,
}

/// The memory of a stage: slots that it claims, and buffers.
#[derive(Debug)]
pub(crate) struct Staged {
    /// The range of offsets in the file.
    range: Range<u64>,
    /// Runs that make up the range, in order.
    runs: Vec<Run>,
    /// The bytes of the runs in buffers, one after the other. They take memory once they are
    /// filled.
    buffers: ZeroedBytes,
}

/// A part of a stage that can be stored to.
enum PartMut<'s> {
    /// In slots on this side.
    Slots(Side),
    Buffer(&'s mut [u8]),
}

/// A part of a stage, with the place of its first byte.
enum Part<'s> {
    Slots(Side, Range<u64>),
    Buffer(&'s [u8]),
}

impl Staged {
    /// Makes a stage without bytes.
    pub fn empty(at: u64) -> Self {
        Staged { range: at..at, runs: Vec::new(), buffers: ZeroedBytes::default() }
    }

    /// Returns the range of offsets in the file.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Returns the number of bytes that lie in slots.
    pub fn lent(&self) -> u64 {
        let lent = self.runs.iter().filter(|run| run.lent != Lent::Buffer);
        lent.map(|run| run.range.end - run.range.start).sum()
    }

    /// Returns the claimed slices of each page, in order. A page may come more than once.
    pub fn claims(&self) -> impl Iterator<Item = PageSpan> {
        let slots = self.runs.iter().filter(|run| run.lent != Lent::Buffer);
        slots.flat_map(|run| span::pages(run.range.clone()))
    }

    /// Returns the parts of a range within the stage: those in slots as `None`, and the bytes of
    /// those in buffers.
    pub fn parts(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, Option<&[u8]>)> {
        self.parts_of(range).map(|part| match part {
            (range, Part::Slots(..)) => (range, None),
            (range, Part::Buffer(bytes)) => (range, Some(bytes)),
        })
    }

    fn parts_of(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, Part<'_>)> {
        let mut rest = &self.buffers[..];
        self.runs.iter().filter_map(move |run| {
            let len = (run.range.end - run.range.start) as usize;
            let here = run.range.start.max(range.start)..run.range.end.min(range.end);
            let part = match run.lent {
                Lent::Slots(side) => Part::Slots(side, here.clone()),
                Lent::Buffer => {
                    let (bytes, later) = rest.split_at(len);
                    rest = later;
                    let byte =
                        |at: u64| at.saturating_sub(run.range.start).min(len as u64) as usize;
                    let (from, to) = (byte(here.start), byte(here.end));
                    Part::Buffer(&bytes[from..to.max(from)])
                }
            };
            (!here.is_empty()).then_some((here, part))
        })
    }

    /// Returns the parts of a range within the stage, each with its own range.
    fn parts_mut(&mut self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, PartMut<'_>)> {
        let mut rest = &mut self.buffers[..];
        self.runs.iter().filter_map(move |run| {
            let here = run.range.start.max(range.start)..run.range.end.min(range.end);
            let part = match run.lent {
                Lent::Slots(side) => PartMut::Slots(side),
                Lent::Buffer => {
                    let len = run.range.end - run.range.start;
                    let bytes = rest.split_off_mut(..len as usize).unwrap_or_default();
                    let byte = |at: u64| at.saturating_sub(run.range.start).min(len) as usize;
                    let (from, to) = (byte(here.start), byte(here.end));
                    PartMut::Buffer(&mut bytes[from..to.max(from)])
                }
            };
            (!here.is_empty()).then_some((here, part))
        })
    }

    /// Adds bytes that follow the last ones.
    fn add(&mut self, lent: Lent, range: Range<u64>) {
        // The reflection pages of one superchunk lie together.
        let is_split = lent != Lent::Buffer && range.start.is_multiple_of(SUPERCHUNK as u64);
        match self.runs.last_mut() {
            Some(last) if last.lent == lent && !is_split => last.range.end = range.end,
            _ if range.is_empty() => {}
            _ => self.runs.push(Run { range, lent }),
        }
    }
}

/// Returns the slices of a page that a span covers from end to end.
fn whole_slices(span: &PageSpan) -> Slices {
    let (first, end) = (span.start.div_ceil(SLICE), span.end / SLICE);
    if first < end { Slices::range(first, end) } else { Slices::NONE }
}

impl Engine {
    /// Claims the free slots of `range` for a stage, and gives it buffers for the rest.
    ///
    /// # Errors
    /// `NoSpace` if the slots cannot be allocated: nothing was claimed.
    pub fn stage(&self, range: Range<u64>) -> Result<Staged> {
        self.check_usable()?;
        let range = self.check_bounds(range)?;
        self.check_writable()?;
        let mut staged = Staged { range: range.clone(), ..Staged::empty(0) };
        if self.keeps_points {
            staged.add(Lent::Buffer, range);
        } else if !range.is_empty() {
            let _room = self.admit(std::iter::once(range.clone()))?;
            // Taken before `resizing`: the thread that has the lane may itself wait for `resizing`.
            let lane = self.lane();
            // Keeps the file from being truncated between the check of its length and the claims.
            let _no_resizing = self.resizing.read();
            {
                let _pinned = lane.pin();
                self.check_range(range.start, range.end - range.start)?;
                self.load_range(range.clone())?;
            }
            for span in span::regions(range.clone()) {
                self.claim(&lane, &mut staged, &span).inspect_err(|_| self.unstage(&staged))?;
            }
        }
        let buffers = staged.runs.iter().filter(|run| run.lent == Lent::Buffer);
        let len = buffers.map(|run| run.range.end - run.range.start).sum();
        let buffers = ZeroedBytes::new(len).inspect_err(|_| self.unstage(&staged));
        staged.buffers = buffers.map_err(|e| Error::io("allocate memory", self.home.path(), e))?;
        Ok(staged)
    }

    /// Claims and allocates the free slots of one region. What is claimed when this fails is in
    /// `staged`.
    fn claim(&self, lane: &InUse<'_>, staged: &mut Staged, span: &RegionSpan) -> Result<()> {
        let region = self.region(span.region)?;
        let held = plan::lock_all(&[RegionPlan::touching(region, span)]);
        // Nothing that a reader sees changes under the locks.
        held.iter().for_each(LockGuard::mark_stable);
        for span in span::pages(span.bytes_of(&staged.range)) {
            let n = span.page.in_region();
            let claims = region.claim_free_slots(n, whole_slices(&span));
            let valid = region.validity(n);
            let byte = |slice: usize| span.page.start() + (slice * SLICE) as u64;
            let mut at = span.offset();
            for (side, run) in valid.free().runs(claims) {
                staged.add(Lent::Buffer, at..byte(run.start));
                staged.add(Lent::Slots(side), byte(run.start)..byte(run.end));
                at = byte(run.end);
            }
            staged.add(Lent::Buffer, at..span.offset() + span.len() as u64);
            self.allocate_claims(lane, span.page, claims, valid)?;
        }
        // For the commit, which would otherwise find out too late that there is no space.
        self.ensure_region_words(span.region.superchunk())?;
        self.ensure_lane(lane, lane.index())
    }

    fn allocate_claims(
        &self,
        lane: &Lane,
        page: PageIndex,
        claims: Slices,
        valid: Validity,
    ) -> Result<()> {
        if claims.is_empty() {
            return Ok(());
        }
        unless!(StageNotAllocated, self.ensure_free_slots(lane, page, claims, valid, true)?);
        Ok(())
    }

    /// Gives the claims of a stage back. Its stores are drained.
    pub fn unstage(&self, staged: &Staged) {
        for span in staged.claims() {
            // The region was loaded for the claim.
            if let Some(region) = self.state.loaded(span.page.region()) {
                let slices = span.slices();
                unless!(StageNotGivenBack, region.release_slots(span.page.in_region(), slices));
            }
        }
    }

    /// Stores `bytes` at offset `at` of the file, which lies in the stage with all of them.
    pub fn fill(&self, staged: &mut Staged, at: u64, bytes: &[u8]) {
        let lane = self.lane();
        let mut rest = bytes;
        for (range, part) in staged.parts_mut(at..at + bytes.len() as u64) {
            let (now, later) = rest.split_at((range.end - range.start) as usize);
            match part {
                PartMut::Buffer(room) => room.copy_from_slice(now),
                PartMut::Slots(side) => {
                    let (file, at) = self.slot(side, range.start);
                    self.store(&lane, file, at, now);
                }
            }
            rest = later;
        }
        self.end_fill(&lane);
    }

    /// Makes what this thread has stored to slots durable.
    fn end_fill(&self, lane: &Lane) {
        // Orders the bytes before the operation that makes them valid, and before the claim is
        // given back. Both may be done by another thread, which cannot wait for these stores.
        unless!(StageFillNotDrained, self.drain(lane));
    }

    /// Reads bytes of the stage back, from offset `at` of the file on.
    pub fn read_staged(&self, staged: &Staged, at: u64, to: &mut [u8]) {
        let mut rest = to;
        for (range, part) in staged.parts_of(at..at + rest.len() as u64) {
            let (now, later) = rest.split_at_mut((range.end - range.start) as usize);
            match part {
                Part::Buffer(bytes) => now.copy_from_slice(bytes),
                Part::Slots(side, range) => {
                    let (file, at) = self.slot(side, range.start);
                    file.copy_out(now, at);
                }
            }
            rest = later;
        }
    }

    /// Returns the memory of a part of the stage, in order.
    pub fn rooms<'s>(&'s self, staged: &'s mut Staged, range: Range<u64>) -> Rooms<'s> {
        let mut rooms = Rooms::default();
        for (range, part) in staged.parts_mut(range) {
            match part {
                PartMut::Buffer(room) => rooms.add_buffer(room),
                PartMut::Slots(side) => {
                    let (file, at) = self.slot(side, range.start);
                    rooms.add_mapped(file, at, (range.end - range.start) as usize);
                }
            }
        }
        rooms
    }

    /// Makes bytes durable that were stored to slots through the cache.
    pub fn flush_filled(&self, staged: &Staged, range: Range<u64>) {
        let lane = self.lane();
        for (range, part) in staged.parts_of(range) {
            if let Part::Slots(side, _) = part {
                let (file, at) = self.slot(side, range.start);
                unless!(StageNotFlushed, file.flush(at, (range.end - range.start) as usize));
            }
        }
        self.end_fill(&lane);
    }
}

#[cfg(all(test, target_os = "linux", not(loom), not(shuttle), not(miri)))]
mod tests {
    use crate::api::file::AtomicMappedFile;
    use crate::config::Medium;
    use crate::units::PAGE;
    use std::os::unix::fs::FileExt;

    /// Returns how many pages of memory a buffer has. The kernel may join its mapping with that of
    /// another test, so the sizes of mappings do not tell.
    fn resident(buffer: &[u8]) -> usize {
        let mut entries = vec![0; buffer.len() / PAGE * 8];
        let first = buffer.as_ptr() as u64 / PAGE as u64 * 8;
        let pagemap = std::fs::File::open("/proc/self/pagemap").expect("pagemap");
        pagemap.read_exact_at(&mut entries, first).expect("an entry a page");
        let (entries, _) = entries.as_chunks();
        entries.iter().filter(|entry| u64::from_le_bytes(**entry) >> 63 == 1).count()
    }

    /// A stage took memory for all of its range at once, and time to store zeros there.
    #[test]
    fn a_stage_takes_memory_as_it_is_filled() {
        let (dir, len) = (crate::doctest_dir(), 1 << 30);
        let options = AtomicMappedFile::options().create(true).len(len).medium(Medium::PageCache);
        let file = options.open(dir.path().join("state.dat")).expect("open");
        let engine = file.engine();
        let mut staged = engine.stage(0..len).expect("stage");
        assert_eq!(resident(&staged.buffers), 0);
        engine.fill(&mut staged, 5000, b"one");
        assert!((1..=512).contains(&resident(&staged.buffers)), "at most a page of 2 MiB");
        let mut found = [1; 5];
        engine.read_staged(&staged, 4999, &mut found);
        assert_eq!(&found, b"\0one\0");
    }
}
