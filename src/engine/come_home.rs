//! When does a reader bring home what it has found elsewhere?
//!
//! A read of a page that is not at home takes a little longer than one of a page that is; to bring it home takes as
//! long as a few dozen of those have lost together; and whoever writes the page next may send it away again. Nobody
//! knows what comes. So a page comes home after about as many reads as have lost what that costs: whatever comes, by
//! this reckoning that takes about twice as long as the better of the two, at most. Reads are counted for each page, and
//! a write of the page begins anew: pages that are written as often as they are read seldom come home.
//!
//! What is read again and again at the same place is in the processor's caches, and loses next to nothing: of several
//! reads within one page, with none of another page between, at most one is counted. To count is to store to a cache
//! line that reads do not need otherwise. So one read of [`SAMPLED`] is counted ([`SAMPLED_OF_SEVERAL`], if it is of more
//! than a page), and as a rule none of a thread that writes now and then.
//!
//! Of a long read it is known at once what it has lost: in how many pieces its bytes were.
//!
//! All this by policy `Lazy`, and not where durable points are kept: what comes home is a change that the next one
//! would have to tell of. Short reads take no space: to a hole of the home file they bring nothing. What goes wrong is
//! no failure of the read, which has its bytes.
//!
//! May import `deploy`, `lanes`, `plan`, `space`, `state`, `bitmap`.

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

/// A read of so many bytes is long.
pub(super) const LONG: u64 = 64 << 10;

/// One read of so many is counted. (In a model of schedules, which are short, a page comes home with the first one.)
const SAMPLED: u32 = if cfg!(shuttle) { 1 } else { 7 };
/// The same of reads of several pages: what those lose is more, what counting takes is little beside, and there is no read
/// of 64 bytes that would have to pay for it.
const SAMPLED_OF_SEVERAL: u32 = if cfg!(shuttle) { 1 } else { 2 };
/// So many counted ones are enough.
const ENOUGH: u8 = if cfg!(shuttle) { 1 } else { 4 };
/// 2^32 divided by the golden section. Its multiples are spread evenly: who goes through seven places again and again
/// would have one of them counted by every seventh read. (Nearly in step with it are Fibonacci's numbers: of so many places
/// some wait for their turn for about twice as many rounds.)
const GOLDEN: u32 = 0x9E37_79B9;

/// Whether the read with this number is one of those of which one in `many` is taken. (Of numbers, one instruction finds
/// that out, and a comparison.)
#[inline(always)]
pub(super) fn is_one_in(many: u32, number: u64) -> bool {
    (number as u32).wrapping_mul(GOLDEN) <= u32::MAX / many
}

/// Who has written something is taken, after so many reads, for somebody who only reads. What it has brought home is
/// such a write: so no more than one read in so many takes the time of a deployment as well.
const ONLY_READS: u64 = if cfg!(shuttle) { 0 } else { 64 };

/// So many pages, aligned, are a block: what was written as one (a database's page of up to 64 KiB) and lies in the
/// reflection file as a whole comes home as one, so that it stays on one side: then it is written, and read, in one
/// piece. Not more, since a read is not to wait for so many bytes.
const BLOCK: usize = 16;
const _: () = assert!(PAGES_PER_REGION.is_multiple_of(BLOCK));

/// Whether the lane's read with this number, within a page, is counted if its page is not at home. (The processor foresees
/// it nearly always.)
#[inline(always)]
pub(super) fn is_counted(lane: &Lane, number: u64) -> bool {
    is_one_in(SAMPLED, number) && only_reads(lane)
}

/// The same of a read of `len` bytes.
pub(super) fn is_counted_of(lane: &Lane, number: u64, len: usize) -> bool {
    is_one_in(if len > PAGE { SAMPLED_OF_SEVERAL } else { SAMPLED }, number) && only_reads(lane)
}

/// Whether the lane's thread has written nothing for a while.
#[inline(always)]
fn only_reads(lane: &Lane) -> bool {
    lane.reads().wrapping_sub(lane.recent.reads_before_write()) >= ONLY_READS
}

/// Whether it takes less time to bring so many bytes home that were read in so many pieces than to read them like
/// that a few times more. Each piece begins with a miss; in short reads as many of those are under way as there can
/// be. The writes pay for it which have scattered the bytes: none comes home that was not written since. See
/// `docs/decisions/long-reads.md`.
fn are_too_many(pieces: usize, len: u64) -> bool {
    len >= LONG && pieces as u64 > 1 + len / LONG
}

/// The pages that come home with page `n`: if it lies in the reflection file as a whole, those beside it in its block
/// that do so, too.
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

/// Whether somebody writes where these pages, to come home, are locked.
fn are_held(region: &RegionState, pages: &Range<usize>) -> bool {
    let locks_region = pages.len() >= PAGES_FOR_REGION_LOCK as usize;
    let locked = if locks_region { &region.pages } else { &region.pages[pages.clone()] };
    region.lock.is_held() || locked.iter().any(|page| page.lock.is_held())
}

impl Engine {
    /// What follows a read of `range`, in so many pieces; whether it [`is_counted`]. While no lane is borrowed.
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

    /// Counts a read of each of these pages, and brings home those that were read often enough. While no lane is
    /// borrowed, and not pinned.
    #[inline(never)]
    pub(super) fn count_read(&self, range: Range<u64>) {
        if !self.is_for_readers() {
            return;
        }
        // Neighbours come home together, by the same drains.
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
                // A reader is not to wait for who writes. (It may have to if somebody begins just now, or, once for a
                // chunk, allocates.)
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

    /// Whether all that the page needs to come home is there.
    fn takes_no_space(&self, page: PageIndex) -> bool {
        // The word that has sent it away is there. Whether its slots at home are?
        let lane = self.lane();
        let _pinned = lane.pin();
        // Pinned, and within the file: what is found out about its chunk holds.
        let is_loadable = || self.home_is_loadable(ChunkIndex::of(page.start())).unwrap_or(false);
        page.start() < self.len() && is_loadable()
    }

    fn known_of(&self, page: PageIndex) -> u8 {
        self.chunk_state(ChunkIndex::of(page.start())).load(Ordering::Acquire)
    }

    /// Whether readers bring anything home.
    pub(super) fn is_for_readers(&self) -> bool {
        self.policy == DeployPolicy::Lazy && self.durable.is_none()
    }

    #[cold]
    fn come_home(&self, range: Range<u64>, which: Which) {
        if !range.is_empty() {
            // Of the last page there may be less than that.
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

    /// Of which everything is at home.
    fn file(folder: &std::path::Path, policy: DeployPolicy) -> AtomicMappedFile {
        let options = AtomicMappedFile::options().create(true).len(LEN).medium(Medium::Ram);
        let file = options.deploy(policy).open(folder.join("state.dat")).expect("a pair");
        for _ in 0..2 {
            file.write_at(&[1; LEN as usize], 0).expect("a write");
        }
        file.deploy(0..LEN).expect("a deployment");
        file
    }

    /// So many reads of 16 bytes at `offset`, and of two other pages in turn with it. How many pages come home by them.
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
        // Within a page, and over two.
        for (offset, pages) in [(4096, 1), (3 * 4096 - 8, 2)] {
            // Each sends its slices to the other side: away, and home, and away.
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
        // So does what is read once from one end to the other, if by small reads.
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
        // Numbers of places that are in step with what is counted, if anything is: how many are counted of so many, as
        // whole numbers go, and after how many the counted ones are nearly the same ones again (Fibonacci's numbers).
        for count in [SAMPLED.into(), 9 * u64::from(SAMPLED), 8, 13, 21, 34, 55, 89] {
            let before = file.stats().deployments;
            let places = (0..count).map(|n| n * 4096);
            places.clone().for_each(|at| file.write_at(&[7; 65], at).expect("a write"));
            for _ in 0..50_000 / count {
                places.clone().for_each(|at| assert_eq!(file.load::<u8>(at).expect("a read"), 7));
            }
            assert_eq!(file.stats().deployments - before, count, "of {count}");
            // Home as a whole, so that what is written next is away.
            file.deploy(0..LEN).expect("a deployment");
        }
    }

    #[test]
    fn what_was_written_as_a_block_stays_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), DeployPolicy::Lazy);
        file.write_at(&[7; 64 << 10], 64 << 10).expect("a write");
        assert_eq!(after_reads(&file, MANY, (64 << 10) + 3 * 4096), 16);
        // By words of their own.
        (0..16).for_each(|n| {
            file.write_at(&[7; 4096], (768 << 10) + n * 4096).expect("a write");
        });
        assert_eq!(after_reads(&file, MANY, (768 << 10) + 3 * 4096), 16);
        // Of what is longer, so much at a time.
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

    /// The words that would be needed for anything else are not there.
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

    // (Elsewhere nobody knows whether the home file has holes.)
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
        // Of eight pages the region is locked, so all others matter.
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
