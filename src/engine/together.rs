//! Defragmentation on write: deploys fragmented pages that a write covers from end to end.
//!
//! Small writes leave a page fragmented: its slices lie on both sides. A write of the whole page
//! leaves it fragmented, since each slice goes to its other slot. Readers gather fragmented pages
//! piece by piece, which takes up to twice as long. A reader deploys a page for about the time that
//! a few of those reads lose together ([`come_home`](super::come_home)). A writer of the whole page
//! has the bytes at hand and needs less than half of that. After its commit it copies them to the
//! home slots too, and changes the words.
//!
//! A writer cannot know which pages will be read. So writes defragment about the number of pages
//! that recent reads found fragmented, whichever those were. This debt is kept in [`Lost`]. As a
//! rule the copies take no more time than those reads have lost.
//!
//! May import: `commit`, `come_home`, `deploy`, `lanes`, `plan`, `bitmap`, `lock`, `units`.

use super::Engine;
use super::come_home::LONG;
use super::commit::Part;
use super::deploy::{Pins, Source};
use super::lanes::Lane;
use super::plan::{Plans, RegionPlan, bits};
use crate::bitmap::Validity;
use crate::lock::Held;
use crate::mutant::planted;
use crate::primitive::{Ordering, fence};
use crate::units::{PAGE, PageIndex};
use std::ops::Range;
// Not modelled: only time depends on it.
use std::sync::atomic::AtomicI64;

/// Fragmentation debt: the number of pages that were read in pieces and not paid for by a
/// defragmented page yet.
#[derive(Debug)]
pub(super) struct Lost(AtomicI64);

/// Most pages of one region that one write defragments.
const MOST: u32 = (LONG / PAGE as u64) as u32;
/// Upper limit of the debt: a thread that begins to write only does not pay for all earlier reads.
const REMEMBERED: i64 = 256;

impl Lost {
    /// Returns a debt of zero. Models of schedules are short and begin with the largest debt
    /// instead.
    pub fn new() -> Self {
        Lost(AtomicI64::new(if cfg!(shuttle) { REMEMBERED } else { 0 }))
    }

    /// Adds `pages` to the debt. Concurrent calls may overshoot [`REMEMBERED`].
    fn note(&self, pages: i64) {
        // At its limit the debt is only loaded, and its line stays in all caches. This is usual
        // where no thread makes page-aligned writes.
        if self.0.load(Ordering::Relaxed) < REMEMBERED {
            self.0.fetch_add(pages, Ordering::Relaxed);
        }
    }

    /// Returns `true` if there is any debt.
    fn are_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0 || planted!(TogetherForNothing)
    }

    /// Deducts `pages` if the debt covers them, and returns whether it did.
    fn take(&self, pages: i64) -> bool {
        // Two concurrent calls may both deduct the same debt: then it falls below zero.
        let is_enough = self.0.load(Ordering::Relaxed) >= pages || planted!(TogetherForNothing);
        if is_enough {
            self.0.fetch_sub(pages, Ordering::Relaxed);
        }
        is_enough
    }
}

impl Engine {
    /// Records that a read gathered `range` from `pieces` pieces.
    pub(super) fn note_pieces(&self, range: &Range<u64>, pieces: usize) {
        if pieces < 2 {
            // Also if no bytes were read.
            return;
        }
        let pages = PageIndex::of(range.end - 1).0 - PageIndex::of(range.start).0 + 1;
        let more = (pieces as u64).saturating_sub(pages);
        if more > 0 && self.is_for_readers() {
            // One additional piece is not one fragmented page. But a read cannot have found more
            // fragmented pages than it read.
            self.lost.note(more.min(pages) as i64);
        }
    }

    /// Adds to `found`, which is empty, the pages to defragment: fragmented ones that the operation
    /// writes whole. The caller holds the locks.
    // Not returned by value, for the reason given at `plan_writes`: the caller needs it directly
    // after the copy.
    #[inline]
    pub(super) fn find_to_put_together<'e>(&self, plans: &[RegionPlan<'e>], found: &mut Plans<'e>) {
        if self.lost.are_any() && self.is_for_readers() {
            self.find_scattered(plans, found);
        }
    }

    #[inline(never)]
    fn find_scattered<'e>(&self, plans: &[RegionPlan<'e>], found: &mut Plans<'e>) {
        // In a long write, checking each page would cost a miss for every few of them. Long reads
        // deploy what they find fragmented there.
        let is_short = |plan: &&RegionPlan<'_>| plan.whole.count_ones() <= MOST;
        for plan in plans.iter().filter(is_short) {
            let is_scattered =
                |n: &usize| !matches!(plan.state.validity(*n), Validity(0 | u64::MAX));
            let pages = bits(plan.whole).filter(is_scattered).fold(0, |mask: u64, n| mask | 1 << n);
            if pages != 0 && self.lost.take(pages.count_ones().into()) {
                found.push(RegionPlan { touched: pages, whole: pages, ..*plan });
            }
        }
    }

    /// Deploys the pages in `scattered`. The caller has just committed and published `parts`, and
    /// its words are still closed.
    #[cold]
    pub(super) fn put_together(
        &self,
        lane: &Lane,
        scattered: &[RegionPlan<'_>],
        parts: &[Part<'_>],
        held: &[Held<'_>],
    ) {
        debug_assert!(held.iter().all(Held::is_closed), "readers wait until all of it is done");
        // Orders the closing, plain stores, before the copy, which may be streamed. A reader that
        // has begun to read the old slots must not find new bytes in them under open words.
        fence(Ordering::SeqCst);
        for plan in scattered {
            // The write is committed, so a failed deployment is not its failure.
            let _next_time_otherwise =
                self.deploy_held(lane, plan, held, Pins::Respect, Source::Written(parts));
        }
    }

    /// Copies a page to its home slots in one piece; one of `parts` covers it from end to end. Home
    /// slots that are valid already get the bytes that they hold.
    pub(super) fn copy_home_written(&self, lane: &Lane, page: PageIndex, parts: &[Part<'_>]) {
        let start = page.start();
        // The parts are sorted and do not overlap.
        let part = &parts[parts.partition_point(|part| part.range().end <= start)];
        let at = (start - part.offset) as usize;
        self.store(lane, &self.home, start, &part.data[at..at + PAGE]);
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use crate::{AtomicMappedFile, DeployPolicy, Medium};

    const LEN: u64 = 1 << 20;
    /// Start of the four pages.
    const START: u64 = 8 * PAGE as u64;
    const COUNT: usize = 4;

    fn file(folder: &std::path::Path, policy: DeployPolicy) -> AtomicMappedFile {
        let options = AtomicMappedFile::options().create(true).len(LEN).medium(Medium::Ram);
        options.deploy(policy).open(folder.join("state.dat")).expect("a pair")
    }

    /// Writes some slices of each page, which sends them to the other side.
    fn scatter(file: &AtomicMappedFile, n: u8) {
        let pages = (START..).step_by(PAGE).take(COUNT);
        for at in pages.flat_map(|page| [page + 200, page + 2000]) {
            file.write_at(&[n; 100], at).expect("a write");
        }
    }

    fn read(file: &AtomicMappedFile) -> Vec<u8> {
        let mut found = vec![0; COUNT * PAGE];
        file.read_at(&mut found, START).expect("a read");
        found
    }

    /// Writes the pages, and returns how many of them the write deployed.
    fn write(file: &AtomicMappedFile, n: u8) -> u64 {
        let before = file.stats().deployments;
        let bytes: Vec<u8> = (0..COUNT * PAGE).map(|at| n ^ (at / 64) as u8).collect();
        file.write_at(&bytes, START).expect("a write");
        let deployed = file.stats().deployments - before;
        assert!(read(file) == bytes);
        deployed
    }

    #[test]
    fn what_was_read_in_pieces_is_put_together_by_who_writes_all_of_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), DeployPolicy::Lazy);
        assert_eq!(write(&file, 1), 0, "away as a whole");
        scatter(&file, 2);
        assert_eq!(write(&file, 3), 0, "nobody has read it in pieces");
        // The last write left the pages fragmented, and then they were read.
        assert_eq!(write(&file, 4), COUNT as u64);
        let region = file.engine().state.touched(crate::units::RegionIndex(0)).expect("touched");
        assert!((8..12).all(|n| region.validity(n) == Validity(0)));
        assert_eq!(write(&file, 5), 0, "in one piece");
        scatter(&file, 6);
        assert_eq!(write(&file, 7), 0, "for each read once");
    }

    #[test]
    fn what_a_view_pins_goes_through_the_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), DeployPolicy::Lazy);
        scatter(&file, 1);
        read(&file);
        let page = START..START + PAGE as u64;
        let view = file.view(page.clone()).expect("a view");
        let seen = view.to_vec().expect("its bytes");
        file.write_at(&[2; 100], START + 200).expect("a write");
        read(&file);
        assert_eq!(write(&file, 3), 0, "all of it");
        assert!(view.to_vec().expect("its bytes") == seen);
    }

    #[test]
    fn reads_of_long_ago_are_not_made_up_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), DeployPolicy::Lazy);
        scatter(&file, 0);
        // A thread that only reads deploys the fragmented pages that it finds.
        (0..1000).for_each(|_| {
            scatter(&file, 0);
            read(&file);
        });
        let mut deployed = 0;
        for n in 0..100 {
            scatter(&file, n);
            let before = file.stats().deployments;
            file.write_at(&[n; COUNT * PAGE], START).expect("a write");
            deployed += file.stats().deployments - before;
        }
        let most = REMEMBERED as u64 + COUNT as u64;
        assert!((REMEMBERED as u64..=most).contains(&deployed), "{deployed}");
    }

    #[test]
    fn nothing_comes_home_by_a_write_where_it_is_to_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), DeployPolicy::Manual);
        scatter(&file, 1);
        read(&file);
        assert_eq!(write(&file, 2) + write(&file, 3), 0);
    }

    /// Pages of a region that is locked as a whole, pages of two regions, and pages of several
    /// parts.
    #[test]
    fn a_write_puts_only_those_together_that_are_in_pieces() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), DeployPolicy::Lazy);
        let mut expected = vec![0; LEN as usize];
        let page = |n: u64| n * PAGE as u64;
        let mut write = |parts: &[(u64, usize)], n: u8| {
            let mut tx = file.begin();
            for &(at, len) in parts {
                let bytes: Vec<u8> = (0..len).map(|at| n ^ (at / 64) as u8).collect();
                tx.write_at(&bytes, at).expect("a write");
                expected[at as usize..at as usize + len].copy_from_slice(&bytes);
            }
            let before = file.stats().deployments;
            tx.commit().expect("a commit");
            let deployed = file.stats().deployments - before;
            // Gather directly: a read might deploy the pages.
            let mut found = vec![0; LEN as usize];
            file.engine().gather(&mut found, 0..LEN).expect("bytes");
            assert!(found == expected);
            deployed
        };
        /// Fragmented pages, the parts that are written, and the number of pages that are deployed.
        type Case<'a> = (&'a [u64], &'a [(u64, usize)], u64);
        let cases: [Case<'_>; 4] = [
            (&[3, 7, 11], &[(0, 12 * PAGE)], 3),
            (&[61, 66], &[(page(60), 8 * PAGE)], 2),
            (&[20, 70, 71], &[(page(20), 2 * PAGE), (page(70), 100), (page(71), PAGE)], 2),
            // The write is too long for its pages to be checked.
            (&[130, 140], &[(page(128), 17 * PAGE)], 0),
        ];
        for (n, (scattered, parts, deployed)) in (1..).zip(cases) {
            for &place in scattered {
                let slices: Vec<_> = (0..6).map(|n| (page(place) + n * 256, 64)).collect();
                write(&slices, 100 + n);
                let mut bytes = [0; 2 * PAGE];
                file.read_at(&mut bytes, page(place) - 64).expect("a read");
            }
            assert_eq!(write(parts, n), deployed, "{n}");
        }
    }
}
