//! When does a writer put pages together again that lie in pieces?
//!
//! What small writes leave of a page lies on both sides, slice by slice, and a write of the whole page leaves it so: each
//! slice goes to where it is not. Who reads such pages gathers them piece by piece, which takes up to twice as long. To
//! bring one home takes a reader as long as a few such reads lose together ([`come_home`](super::come_home)); who writes
//! all of it has the bytes at hand, and may do it for less than half of that: it copies them to the home slots as well,
//! once they count, and lets the words say so.
//!
//! Whether somebody will read what was written, nobody knows. So about as many pages are put together as were lately read in
//! pieces ([`Lost`]), whichever these were: as a rule that takes no more time than those reads have lost.
//!
//! May import `commit`, `come_home`, `deploy`, `lanes`, `plan`, `bitmap`, `lock`, `units`.

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
// Not modelled: nothing but time depends on it.
use std::sync::atomic::AtomicI64;

/// How many pages were read in pieces for which none was put together yet.
#[derive(Debug)]
pub(super) struct Lost(AtomicI64);

/// Pages of one region that are put together by one write, at most.
const MOST: u32 = (LONG / PAGE as u64) as u32;
/// No more are remembered: who begins to write only does not pay for all that was read before.
const REMEMBERED: i64 = 256;

impl Lost {
    /// None. (In a model of schedules, which are short, no read has to come before.)
    pub fn new() -> Self {
        Lost(AtomicI64::new(if cfg!(shuttle) { REMEMBERED } else { 0 }))
    }

    /// So many more. (Several at the same time may be remembered beyond what is.)
    fn note(&self, pages: i64) {
        // Where nobody writes whole pages, readers only look: the line stays in all caches.
        if self.0.load(Ordering::Relaxed) < REMEMBERED {
            self.0.fetch_add(pages, Ordering::Relaxed);
        }
    }

    /// Whether there are any.
    fn are_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0 || planted!(TogetherForNothing)
    }

    /// Whether there are so many. They are not any more.
    fn take(&self, pages: i64) -> bool {
        // Of two at the same time both may get what there is only once: then it falls below zero.
        let is_enough = self.0.load(Ordering::Relaxed) >= pages || planted!(TogetherForNothing);
        if is_enough {
            self.0.fetch_sub(pages, Ordering::Relaxed);
        }
        is_enough
    }
}

impl Engine {
    /// Notes that `range` was read in so many pieces.
    pub(super) fn note_pieces(&self, range: &Range<u64>, pieces: usize) {
        if pieces < 2 {
            // Also of no bytes.
            return;
        }
        let pages = PageIndex::of(range.end - 1).0 - PageIndex::of(range.start).0 + 1;
        let more = (pieces as u64).saturating_sub(pages);
        if more > 0 && self.is_for_readers() {
            // One more piece is not a page in pieces; but who has found many has not found more pages than there are.
            self.lost.note(more.min(pages) as i64);
        }
    }

    /// Puts the pages that an operation writes whole and is to put together into `found`, which are none: they lie in
    /// pieces. Under the locks.
    // Not returned, as plans are not (`plan_writes`): this is asked for right behind the copy.
    #[inline]
    pub(super) fn find_to_put_together<'e>(&self, plans: &[RegionPlan<'e>], found: &mut Plans<'e>) {
        if self.lost.are_any() && self.is_for_readers() {
            self.find_scattered(plans, found);
        }
    }

    #[inline(never)]
    fn find_scattered<'e>(&self, plans: &[RegionPlan<'e>], found: &mut Plans<'e>) {
        // To look at each page of a long write is a miss for every few of them. (Of what is longer, long reads bring home
        // what they find in pieces.)
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

    /// Brings the pages home of which `parts` have just been committed and published. Their words are still closed.
    #[cold]
    pub(super) fn put_together(
        &self,
        lane: &Lane,
        scattered: &[RegionPlan<'_>],
        parts: &[Part<'_>],
        held: &[Held<'_>],
    ) {
        debug_assert!(held.iter().all(Held::is_closed), "readers wait until all of it is done");
        // Orders the closing, plain stores, before the copy, which may be streamed: who has begun to read what was
        // valid before is not to find new bytes there under words that are open.
        fence(Ordering::SeqCst);
        for plan in scattered {
            // The write is committed; that it could not be brought home now is no failure of it.
            let _next_time_otherwise =
                self.deploy_held(lane, plan, held, Pins::Respect, Source::Written(parts));
        }
    }

    /// Copies a page, which one of `parts` covers from end to end, to its home slots: all of it, in one piece. What is
    /// valid there already is the same.
    pub(super) fn copy_home_written(&self, lane: &Lane, page: PageIndex, parts: &[Part<'_>]) {
        let start = page.start();
        // Sorted, and none overlaps another.
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
    /// Four pages.
    const START: u64 = 8 * PAGE as u64;
    const COUNT: usize = 4;

    fn file(folder: &std::path::Path, policy: DeployPolicy) -> AtomicMappedFile {
        let options = AtomicMappedFile::options().create(true).len(LEN).medium(Medium::Ram);
        options.deploy(policy).open(folder.join("state.dat")).expect("a pair")
    }

    /// Some slices of each page go to the other side.
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

    /// Writes the pages, and says how many of them came home by that.
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
        // The write has left it in pieces, and then it was read.
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
        // (What a thread that only reads finds, it brings home itself.)
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

    /// Pages of one region that is locked as a whole, of two, and of several parts.
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
            // Not by a read, which might bring them home.
            let mut found = vec![0; LEN as usize];
            file.engine().gather(&mut found, 0..LEN).expect("bytes");
            assert!(found == expected);
            deployed
        };
        /// Pages in pieces, the parts that are written, and how many pages come home.
        type Case<'a> = (&'a [u64], &'a [(u64, usize)], u64);
        let cases: [Case<'_>; 4] = [
            (&[3, 7, 11], &[(0, 12 * PAGE)], 3),
            (&[61, 66], &[(page(60), 8 * PAGE)], 2),
            (&[20, 70, 71], &[(page(20), 2 * PAGE), (page(70), 100), (page(71), PAGE)], 2),
            // Too long to be looked at.
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
