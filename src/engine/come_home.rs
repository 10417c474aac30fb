//! Deployment on read: deploys pages that reads keep finding in the reflection file.
//!
//! A read of a page that is not deployed takes a little longer than one of a deployed page.
//! Deploying the page takes the time that a few dozen of those reads lose together, and the next
//! writer may undeploy it again. The future is not known. So a page is deployed once its reads have
//! lost about what that costs. In the worst case this takes about twice the time of the better
//! choice. Reads are counted for each page, and a write of the page resets its count. Pages that
//! are written about as often as they are read are seldom deployed.
//!
//! A page that is read repeatedly stays in the processor's caches, and those reads lose next to
//! nothing. So of several reads within one page, with no read of another page between them, at most
//! one is counted. Counting stores to a cache line that reads do not need otherwise. So one read in
//! [`SAMPLED`] is counted, or one in [`SAMPLED_OF_SEVERAL`] if it spans pages. As a rule no read is
//! counted of a thread that writes now and then.
//!
//! For a long read the loss is known at once: the number of pieces in which its bytes lay.
//!
//! All this applies under policy `Lazy` only. Nor does it apply where durable points are kept: a
//! deployment is a change that the next durable point would have to record. Short reads allocate
//! nothing: they do not deploy into a hole of the home file. A failed deployment does not fail the
//! read, which has its bytes already.
//!
//! May import: `deploy`, `lanes`, `plan`, `space`, `state`, `bitmap`.

use super::Engine;
use super::deploy::{Pins, Which};
use super::lanes::Lane;
use super::plan::PAGES_FOR_REGION_LOCK;
use super::state::{RegionState, known};
use crate::bitmap::{Validity, span};
use crate::primitive::Ordering;
use crate::terms::DeployPolicy;
use crate::units::{ChunkIndex, PAGE, PAGES_PER_REGION, PageIndex};
use std::ops::Range;

/// Shortest length in bytes of a long read.
pub(super) const LONG: u64 = 64 << 10;

/// One read in this many is counted. Models of schedules are short, so their first read deploys the
/// page.
const SAMPLED: u32 = if cfg!(shuttle) { 1 } else { 7 };
/// One read of several pages in this many is counted. Those reads lose more, and counting costs
/// little in comparison. No read of 64 bytes has to pay for it.
const SAMPLED_OF_SEVERAL: u32 = if cfg!(shuttle) { 1 } else { 2 };
/// Counted reads after which a page is deployed.
const ENOUGH: u8 = if cfg!(shuttle) { 1 } else { 4 };
/// 2^32 divided by the golden ratio. Its multiples are spread evenly. Sampling each seventh read
/// would always count the same page of a thread that cycles through seven pages. Cycles of a
/// Fibonacci number of pages are nearly in step with this constant: some of their pages wait about
/// twice as long.
const GOLDEN: u32 = 0x9E37_79B9;

/// Returns `true` for about one number in `many`, evenly spread. Takes one multiplication and one
/// comparison.
#[inline(always)]
pub(super) fn is_one_in(many: u32, number: u64) -> bool {
    (number as u32).wrapping_mul(GOLDEN) <= u32::MAX / many
}

/// A thread counts as read-only after this many reads since its last write. A deployment counts as
/// a write, so a thread deploys at most once per this many reads.
const ONLY_READS: u64 = if cfg!(shuttle) { 0 } else { 64 };

/// Pages in an aligned block. A database page of up to 64 KiB, written as one block, may lie in the
/// reflection file as a whole. Then it is deployed as one, so that it stays on one side and in one
/// piece. Blocks are not larger, since a read must not wait for the copy of more bytes.
const BLOCK: usize = 16;
const _: () = assert!(PAGES_PER_REGION.is_multiple_of(BLOCK));

/// Returns `true` if the lane's read with this number is counted, should its page not be deployed.
/// The read lies within one page. The processor predicts this branch nearly always.
#[inline(always)]
pub(super) fn is_counted(lane: &Lane, number: u64) -> bool {
    is_one_in(SAMPLED, number) && only_reads(lane)
}

/// Returns `true` if the lane's read with this number, of `len` bytes, is counted, should its pages
/// not be deployed.
pub(super) fn is_counted_of(lane: &Lane, number: u64, len: usize) -> bool {
    is_one_in(if len > PAGE { SAMPLED_OF_SEVERAL } else { SAMPLED }, number) && only_reads(lane)
}

/// Returns `true` if the lane's thread has written nothing for a while.
#[inline(always)]
fn only_reads(lane: &Lane) -> bool {
    lane.reads().wrapping_sub(lane.recent.reads_before_write()) >= ONLY_READS
}

/// Returns `true` if `len` bytes in this number of pieces take less time to deploy than to read a
/// few more times. Each piece begins with a miss, but in short reads all those misses overlap. The
/// deployment is paid for by the writes that have fragmented the bytes: only pages written since
/// are deployed. See `docs/decisions/long-reads.md`.
fn are_too_many(pieces: usize, len: u64) -> bool {
    len >= LONG && pieces as u64 > 1 + len / LONG
}

/// Returns the pages to deploy together with page `n`. If it lies in the reflection file as a
/// whole, these include its neighbours in the block that do too.
fn with_its_block(region: &RegionState, n: usize) -> Range<usize> {
    let is_away = |n: &usize| region.validity(*n) == Validity(!0);
    if !is_away(&n) {
        return n..n + 1;
    }
    let start = n / BLOCK * BLOCK;
    let before = (start..n).rev().take_while(is_away).count();
    let behind = (n + 1..start + BLOCK).take_while(is_away).count();
    n - before..n + 1 + behind
}

/// Returns `true` if a writer holds a lock that the deployment of these pages would take.
fn are_held(region: &RegionState, pages: &Range<usize>) -> bool {
    let locks_region = pages.len() >= PAGES_FOR_REGION_LOCK as usize;
    let locked = if locks_region { &region.pages } else { &region.pages[pages.clone()] };
    region.lock.is_held() || locked.iter().any(|page| page.lock.is_held())
}

impl Engine {
    /// Runs after a read of `range`, which lay in `pieces` pieces. `is_counted` is the result of
    /// the function of that name. The thread has borrowed no lane.
    pub(super) fn after_read(&self, range: Range<u64>, pieces: usize, is_counted: bool) {
        let len = range.end - range.start;
        if are_too_many(pieces, len) && self.is_for_readers() {
            self.come_home(range, Which::Scattered);
        } else if len < LONG {
            self.note_pieces(&range, pieces);
            if is_counted {
                self.count_read(range);
            }
        }
    }

    /// Counts a read of each page, and deploys the pages with enough counted reads. The thread has
    /// borrowed no lane and is in no read section.
    #[inline(never)]
    pub(super) fn count_read(&self, range: Range<u64>) {
        if !self.is_for_readers() {
            return;
        }
        // Neighbours are deployed together, with shared drains.
        let mut enough = 0..0;
        for span in span::pages(range) {
            let Some(region) = self.state.touched(span.page.region()) else { continue };
            let n = span.page.in_region();
            let may_come = region.validity(n) != Validity(0)
                && !region.is_pinned(n)
                && self.known_of(span.page) & known::HOME_HAS_HOLES == 0;
            if !may_come || region.count_read(n) < ENOUGH {
                continue;
            }
            let pages = with_its_block(region, n);
            if are_held(region, &pages) {
                // A reader must not wait for a writer. It may still have to, if a writer locks just
                // now. Allocation may also delay it, once per chunk.
                continue;
            }
            region.forget_reads(n);
            if self.takes_no_space(span.page) {
                let start = span.page.region().start();
                let byte = |n: usize| start + (n * PAGE) as u64;
                if byte(pages.start) > enough.end {
                    self.come_home(enough, Which::All);
                    enough = byte(pages.start)..byte(pages.end);
                }
                enough.end = enough.end.max(byte(pages.end));
            }
        }
        self.come_home(enough, Which::All);
    }

    /// Returns `true` if deploying the page needs no allocation.
    fn takes_no_space(&self, page: PageIndex) -> bool {
        // The word that undeployed the page is allocated, so only its home slots may be missing.
        let lane = self.lane();
        let _pinned = lane.pin();
        // In a read section and within the file: what is learned about the chunk stays true.
        let is_loadable = || self.home_is_loadable(ChunkIndex::of(page.start())).unwrap_or(false);
        page.start() < self.len() && is_loadable()
    }

    fn known_of(&self, page: PageIndex) -> u8 {
        self.chunk_state(ChunkIndex::of(page.start())).load(Ordering::Acquire)
    }

    /// Returns `true` if reads of this file deploy pages.
    pub(super) fn is_for_readers(&self) -> bool {
        self.policy == DeployPolicy::Lazy && self.durable.is_none()
    }

    #[cold]
    fn come_home(&self, range: Range<u64>, which: Which) {
        if !range.is_empty() {
            // The last page may end past the file.
            let end = range.end.min(self.len());
            let _next_time_otherwise = self.deploy_pages(range.start..end, Pins::Respect, which);
        }
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use crate::{AtomicMappedFile, Medium};

    const LEN: u64 = 1 << 20;

    /// Creates a file with all pages deployed.
    fn file(folder: &std::path::Path, policy: DeployPolicy) -> AtomicMappedFile {
        let options = AtomicMappedFile::options().create(true).len(LEN).medium(Medium::Ram);
        let file = options.deploy(policy).open(folder.join("state.dat")).expect("a pair");
        for _ in 0..2 {
            file.write_at(&[1; LEN as usize], 0).expect("a write");
        }
        file.deploy(0..LEN).expect("a deployment");
        file
    }

    /// Reads 16 bytes at `offset` `count` times, alternating with two other pages. Returns the
    /// number of deployed pages.
    fn after_reads(file: &AtomicMappedFile, count: u64, offset: u64) -> u64 {
        let before = file.stats().deployments;
        for _ in 0..count {
            assert_eq!(file.load::<[u8; 16]>(offset).expect("a read"), [7; 16]);
            for elsewhere in [LEN / 2, LEN - 4096] {
                assert_eq!(file.load::<u8>(elsewhere).expect("a read"), 1);
            }
        }
        file.stats().deployments - before
    }

    const FEW: u64 = ONLY_READS / 3 + SAMPLED as u64 * (ENOUGH as u64 - 2);
    const MANY: u64 = ONLY_READS / 3 + SAMPLED as u64 * (ENOUGH as u64 + 2);

    #[test]
    fn a_page_comes_home_after_many_reads_without_a_write() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), DeployPolicy::Lazy);
        let write = |offset| file.write_at(&[7; 100], offset).expect("a write");
        // A range within a page, and one over two pages.
        for (offset, pages) in [(4096, 1), (3 * 4096 - 8, 2)] {
            // Each write sends its slices to the other side: undeployed, deployed, undeployed.
            for _ in 0..51 {
                write(offset);
                assert_eq!(after_reads(&file, FEW, offset), 0, "a write begins anew");
            }
            assert_eq!(after_reads(&file, MANY, offset), pages);
            assert_eq!(after_reads(&file, 4 * MANY, offset), 0, "they are at home");
            write(offset);
            assert_eq!(after_reads(&file, MANY, offset), pages, "once more");
        }
        let view = file.view(4096..4096 + 100).expect("a view");
        write(4096);
        assert_eq!(after_reads(&file, 4 * MANY, 4096), 0, "not while somebody looks at it");
        drop(view);
        assert_eq!(after_reads(&file, MANY, 4096), 1);
    }

    #[test]
    fn what_is_read_at_one_place_only_stays_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), DeployPolicy::Lazy);
        // Pages that short reads visit once, from one end to the other, are not deployed either.
        file.write_at(&[7; 65], 0).expect("a write");
        (1..256).for_each(|page| file.write_at(&[7; 65], page * 4096).expect("a write"));
        for _ in 0..1000 {
            file.load::<u8>(0).expect("a read");
        }
        for at in (0..LEN).step_by(16) {
            file.load::<[u8; 16]>(at).expect("a read");
        }
        assert_eq!(file.stats().deployments, 0);
    }

    #[test]
    fn each_of_several_places_is_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), DeployPolicy::Lazy);
        // Page counts that might be in step with the sampling: the sampling rate and a multiple of
        // it. Fibonacci numbers too: after that number of pages, nearly the same reads are counted
        // again.
        for count in [SAMPLED.into(), 9 * u64::from(SAMPLED), 8, 13, 21, 34, 55, 89] {
            let before = file.stats().deployments;
            let places = (0..count).map(|n| n * 4096);
            places.clone().for_each(|at| file.write_at(&[7; 65], at).expect("a write"));
            for _ in 0..50_000 / count {
                places.clone().for_each(|at| assert_eq!(file.load::<u8>(at).expect("a read"), 7));
            }
            assert_eq!(file.stats().deployments - before, count, "of {count}");
            // Deploy all, so that the next writes go to the reflection file.
            file.deploy(0..LEN).expect("a deployment");
        }
    }

    #[test]
    fn what_was_written_as_a_block_stays_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), DeployPolicy::Lazy);
        file.write_at(&[7; 64 << 10], 64 << 10).expect("a write");
        assert_eq!(after_reads(&file, MANY, (64 << 10) + 3 * 4096), 16);
        // Each page by its own slice word.
        (0..16).for_each(|n| {
            file.write_at(&[7; 4096], (768 << 10) + n * 4096).expect("a write");
        });
        assert_eq!(after_reads(&file, MANY, (768 << 10) + 3 * 4096), 16);
        // A longer range is deployed block by block.
        file.write_at(&[7; 128 << 10], 256 << 10).expect("a write");
        assert_eq!(after_reads(&file, 4 * MANY, 256 << 10), 16);
    }

    #[test]
    fn what_is_read_together_comes_home_sooner() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), DeployPolicy::Lazy);
        let read = |times: u64| {
            let (mut to, before) = ([0; 2 * PAGE], file.stats().deployments);
            (0..times).for_each(|_| file.read_at(&mut to, 8 * PAGE as u64).expect("a read"));
            assert_eq!(to, [7; 2 * PAGE]);
            file.stats().deployments - before
        };
        for _ in 0..3 {
            file.write_at(&[7; 2 * PAGE], 8 * PAGE as u64).expect("a write");
            (0..ONLY_READS).for_each(|_| assert_eq!(file.load::<u8>(0).expect("a read"), 1));
            assert_eq!(read(u64::from(SAMPLED_OF_SEVERAL) * (u64::from(ENOUGH) - 2)), 0);
            assert_eq!(read(u64::from(SAMPLED_OF_SEVERAL) * 4), 2);
        }
    }

    /// The slice words, which any other way would need, are not allocated.
    #[test]
    fn what_was_only_ever_written_by_regions_comes_home() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = AtomicMappedFile::options().create(true).len(LEN).medium(Medium::Ram);
        let file = options.open(folder.path().join("state.dat")).expect("a pair");
        for _ in 0..2 {
            file.write_at(&[1; LEN as usize], 0).expect("a write");
        }
        file.write_at(&[7; 64 << 10], 0).expect("a write");
        assert_eq!(file.engine().known_of(PageIndex(0)) & known::SLICE_WORDS, 0);
        assert_eq!(after_reads(&file, MANY, 3 * 4096), BLOCK as u64);
        assert_eq!(file.engine().known_of(PageIndex(0)) & known::SLICE_WORDS, 0, "nor now");
    }

    // Other systems do not report holes of the home file.
    #[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
    #[test]
    fn what_was_written_before_it_was_opened_comes_home() {
        let folder = tempfile::tempdir().expect("a folder");
        let before = file(folder.path(), DeployPolicy::Lazy);
        before.write_at(&[7; 4096], 4096).expect("a write");
        before.write_at(&[7; 64 << 10], 64 << 10).expect("a write");
        before.close(crate::CloseMode::Fast).expect("closed");
        let options = AtomicMappedFile::options().medium(Medium::Ram);
        let file = options.open(folder.path().join("state.dat")).expect("a pair");
        assert_eq!(after_reads(&file, MANY, 64 << 10), 16);
        assert_eq!(after_reads(&file, MANY, 4096), 1);
    }

    #[test]
    fn no_reader_waits_for_a_writer() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), DeployPolicy::Lazy);
        file.write_at(&[7; 4096], 4096).expect("a write");
        let region = file.engine().state.touched(crate::units::RegionIndex(0)).expect("touched");
        // A deployment of eight pages locks the region, so the locks of all its pages matter.
        for (held, read, pages) in [(1, 1, 1), (9, 8, 8), (40, 8, 8)] {
            if read == 8 {
                file.write_at(&[7; 8 * 4096], 8 * 4096).expect("a write");
            }
            let held = crate::lock::lock_page(&region.lock, &region.pages[held].lock);
            assert_eq!(after_reads(&file, 4 * MANY, read * 4096), 0);
            drop(held);
            assert_eq!(after_reads(&file, MANY, read * 4096), pages);
        }
    }

    #[test]
    fn nothing_comes_home_by_another_policy_or_to_a_hole() {
        let folder = tempfile::tempdir().expect("a folder");
        let manual = file(folder.path(), DeployPolicy::Manual);
        manual.write_at(&[7; 65], 0).expect("a write");
        assert_eq!(after_reads(&manual, 4 * MANY, 0), 0);
        drop(manual);
        let sparse = file(folder.path(), DeployPolicy::Lazy);
        sparse.set_len(8 << 20).expect("longer");
        sparse.write_at(&[7; 4096], 4 << 20).expect("a write");
        assert_eq!(after_reads(&sparse, 4 * MANY, 4 << 20), 0, "the home file has a hole there");
    }
}
