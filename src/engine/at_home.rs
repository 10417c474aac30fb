//! Which pages are known to be at home, so that a read looks at one word for each and nothing else?
//!
//! What a read costs beyond its one miss is how many loads and stores it has: the processor keeps each until all before
//! it are done, and has room for so many (`docs/decisions/deployed-stamps.md`). To find a page's state takes four loads,
//! one after the other, and to judge it eight. So there is a word for each page, one behind the other, which says
//! all of that: it is odd while the page is known to be at home as a whole, loadable, and inside the file from end to end. A guess
//! it is not: who reads by an odd word that is the same after the copy as before has read a state. So has who reads
//! several pages by their words, if all of them were odd before the copy began and are the same after it has ended: at any
//! moment between, all were.
//!
//! Invariants:
//! - a word becomes odd, and even again, by who holds the page's lock or its region's, and grows with both: so a word
//!   that is still the same was so all the time;
//! - it is even before anything changes that it vouches for: who takes locks to write makes it so ([`Engine::leave_home`])
//!   before a release fence, as a rule that of closing them, which orders it before the changes;
//! - who cuts off makes even whatever is past the new end, before the new length is seen, and from then until it is done
//!   none becomes odd (`cutting`);
//! - a page of which the word may be odd is noted in its region ([`RegionState::known_at_home`]): who writes to others
//!   looks at no word.
//!
//! A page becomes known when it is brought home, and when it is found there by a read, now and then: that takes its
//! lock, if nobody has it. (Who wants to write it at that moment waits; who has read it in a transaction does not notice.)
//!
//! May import `state`, `come_home`, `lanes`, `plan`, `stats`, `lock`, `bitmap`, `units`, and words and fences of
//! `platform`.

use super::Engine;
use super::come_home::is_one_in;
use super::lanes::Lane;
use super::plan::{RegionPlan, bits};
use super::state::RegionState;
use super::stats::Counter;
use crate::bitmap::{Validity, span};
use crate::lock::try_lock_page_still;
use crate::mutant::{planted, unless};
use crate::platform::{ZeroedWords, barrier};
use crate::primitive::{AtomicU64, OnceBox, Ordering, fence};
use crate::units::{PAGE, PageIndex, RegionIndex, is_in_page};
use std::ops::Range;

/// One read in so many that finds its page at home makes it known: that takes as long as one or two of them do.
const NOTED: u32 = if cfg!(shuttle) { 1 } else { 13 };

/// There are words for so many times the bytes that the file has when they are made, and for so many bytes at least.
/// Later pages are never known. (Not for the longest that it may become: address space of this kind counts for what a
/// process may have, used or not, where that is limited.)
const TIMES: u64 = 4;
const LEAST: u64 = 1 << 30;

/// The words of all pages.
#[derive(Debug)]
pub struct AtHome {
    max_len: u64,
    /// Made when the first page becomes known: who only writes has none.
    words: OnceBox<ZeroedWords>,
}

impl AtHome {
    /// For a file of at most `max_len` bytes.
    pub fn new(max_len: u64) -> Self {
        AtHome { max_len, words: OnceBox::new() }
    }

    /// The page's, if words were made and it is among them.
    #[inline(always)]
    pub fn word(&self, page: PageIndex) -> Option<HomeWord<'_>> {
        self.words.get()?.get(page.0).map(HomeWord)
    }

    /// What a reader of the pages with these numbers is to find again, if all of them are known.
    #[inline]
    fn begin_all(&self, pages: Range<u64>) -> Option<AllSeen> {
        let words = self.words.get()?;
        let pages = if planted!(KnownByTheFirst) { pages.start..pages.start + 1 } else { pages };
        AllSeen::begin(pages.map(|n| words.get(n).map(HomeWord)))
    }

    /// Whether the page has a word, or may have one when there are some.
    fn may_have_word(&self, page: PageIndex) -> bool {
        self.words.get().is_none_or(|words| words.get(page.0).is_some())
    }

    /// The page's, made if there are none yet, for a file of `len` bytes. Takes 8 bytes for each page whose word is
    /// used, in pages of their own. None: it is not among them, or the system has no such memory.
    fn make_word(&self, page: PageIndex, len: u64) -> Option<HomeWord<'_>> {
        self.words.get_or_init(|| {
            let covered = len.saturating_mul(TIMES).max(LEAST).min(self.max_len);
            Box::new(ZeroedWords::new(covered.div_ceil(PAGE as u64)))
        });
        self.word(page)
    }
}

/// The word of one page.
#[derive(Clone, Copy)]
pub struct HomeWord<'a>(&'a AtomicU64);

impl<'a> HomeWord<'a> {
    /// For models.
    #[cfg(all(test, loom))]
    pub fn of(word: &'a AtomicU64) -> Self {
        HomeWord(word)
    }

    /// What a reader is to find again, if the page is known.
    #[inline(always)]
    pub fn begin(self) -> Option<u64> {
        // Acquire: what is at home was copied there before.
        let seen = self.0.load(Ordering::Acquire);
        (seen & 1 == 1).then_some(seen)
    }

    /// Whether it was odd all the time. The caller has put an acquire fence between its reads and this call.
    #[inline(always)]
    pub fn is_still(self, seen: u64) -> bool {
        self.0.load(Ordering::Relaxed) == seen || planted!(HomeWordNotLookedAtAgain)
    }

    /// The page is known from now on. By the holder.
    pub fn set(self) {
        let now = self.0.load(Ordering::Relaxed);
        if now.is_multiple_of(2) {
            // Release: what has brought the bytes home comes before. Whoever finds the word odd acquires it.
            self.0.store(now + 1, Ordering::Release);
        }
    }

    /// It is not. By the holder, before a release fence and its changes.
    pub fn clear(self) {
        let now = self.0.load(Ordering::Relaxed);
        if !now.is_multiple_of(2) {
            let step = if planted!(HomeWordGoesBack) { now - 1 } else { now + 1 };
            // Ordered before the changes by the fence of closing.
            self.0.store(step, Ordering::Relaxed);
        }
    }
}

/// What the words of several pages said, all of them odd: their sum. No word ever shrinks, so equal sums mean that none
/// has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllSeen(u64);

impl AllSeen {
    /// What a reader is to find again, if each page has a word and is known.
    #[inline(always)]
    pub fn begin<'a>(words: impl Iterator<Item = Option<HomeWord<'a>>>) -> Option<AllSeen> {
        let mut seen = words.map(|word| word?.begin());
        seen.try_fold(0u64, |sum, seen| Some(sum.wrapping_add(seen?))).map(AllSeen)
    }

    /// Whether all were odd all the time, by what they say now. The caller has put an acquire fence between its reads and
    /// the look that found that.
    #[inline(always)]
    pub fn are_still(self, now: Option<AllSeen>) -> bool {
        now == Some(self) || planted!(KnownNotLookedAtAgain)
    }
}

/// Whether the read with this number, which has found its page at home, is to make it known.
#[inline(always)]
pub(super) fn makes_known(number: u64) -> bool {
    is_one_in(NOTED, number)
}

impl Engine {
    /// Fills `to` from `offset`, if the bytes lie in one page that is known to be at home; what lies in several pages is
    /// [read so](Self::read_several). `lane` is the one [at hand](Self::lane_at_hand). False: it is not, and `to` is
    /// whatever it is.
    ///
    /// Same steps as any read: pin, versions, copy, versions.
    // A function of its own that has few values at a time: each register that it had to save would be a store.
    #[inline(never)]
    pub(super) fn read_known(&self, lane: &Lane, to: &mut [u8], offset: u64) -> bool {
        if !is_in_page(offset, to.len()) {
            // From here, where it is a jump: who reads within a page pays nothing for it.
            return self.read_several(lane, to, offset);
        }
        let Some(word) = self.at_home.word(PageIndex::of(offset)) else { return false };
        let pinned = lane.pin_at_once();
        let Some(seen) = word.begin() else { return pinned.has_not_read() };
        if !self.home.copy_out_in_page(to, offset) {
            return pinned.has_not_read();
        }
        // Orders the copy before the second look: what was copied under a word is looked at after it was copied.
        fence(Ordering::Acquire);
        if !word.is_still(seen) {
            lane.stats.bump(Counter::ReadRetries, 1);
            return pinned.has_not_read();
        }
        pinned.has_read();
        true
    }

    /// The same of bytes that lie in as many pages as they will, all of which are known to be at home: of these there is
    /// nothing to be found out, and they are copied in one piece.
    pub(super) fn read_all_known(&self, lane: &Lane, to: &mut [u8], offset: u64) -> bool {
        let end = offset.checked_add(to.len() as u64);
        // Of no bytes there is no page that could vouch for where they are.
        let Some(end) = end.filter(|end| *end > offset) else { return false };
        let pages = offset / PAGE as u64..end.div_ceil(PAGE as u64);
        let pinned = lane.pin_at_once();
        let Some(seen) = self.at_home.begin_all(pages.clone()) else {
            return pinned.has_not_read();
        };
        if !self.home.try_copy_out(to, offset) {
            return pinned.has_not_read();
        }
        // As above, of all words.
        fence(Ordering::Acquire);
        if !seen.are_still(self.at_home.begin_all(pages)) {
            lane.stats.bump(Counter::ReadRetries, 1);
            return pinned.has_not_read();
        }
        pinned.has_read();
        true
    }

    /// Makes the page known, if nobody holds it. While not pinned.
    #[cold]
    #[inline(never)]
    pub(super) fn make_known(&self, page: PageIndex) {
        let Some(region) = self.state.touched(page.region()) else { return };
        let n = page.in_region();
        let is_known = region.known_at_home() >> n & 1 == 1;
        // A look before: what cannot become known is not to be locked by one read in so many.
        if is_known || !self.at_home.may_have_word(page) || !self.may_be_known(page, region) {
            return;
        }
        if let Some(_held) = try_lock_page_still(&region.lock, &region.pages[n].lock) {
            self.arrive_home(page, region);
        }
    }

    /// Makes known all pages of `range` that are at home and that nobody holds, of regions that were touched. While not
    /// pinned.
    pub(super) fn make_all_known(&self, range: Range<u64>) {
        let lane = self.lane();
        for span in span::regions(range) {
            let Some(region) = self.state.touched(span.region) else { continue };
            {
                // Pinned, and within the file: what is known of its chunk holds.
                let _pinned = lane.pin();
                if span.region.start() < self.len() {
                    self.note_loadable(region, span.region);
                }
            }
            span.pages.for_each(|n| self.make_known(span.region.page(n)));
        }
    }

    /// Notes that the page is at home, if it is, and can be relied on. Under its lock, or its region's.
    pub(super) fn arrive_home(&self, page: PageIndex, region: &RegionState) {
        let n = page.in_region();
        if region.known_at_home() >> n & 1 == 1 {
            return;
        }
        // Noted before the look at `cutting`: who cuts off says so before it looks for what was noted. So one of the two
        // sees the other.
        region.note_at_home(n);
        let word =
            self.may_be_known(page, region).then(|| self.at_home.make_word(page, self.len()));
        match word.flatten() {
            Some(word) => word.set(),
            None => region.forget_at_home(1 << n),
        }
    }

    /// Whether the page is at home now, and can be relied on: for good, for who holds its lock.
    fn may_be_known(&self, page: PageIndex, region: &RegionState) -> bool {
        // The length after `cutting`: who finds no shrink under way sees how long the last one has left the file, and the
        // next one waits for the lock. SeqCst, as where it is said.
        let is_inside = (!self.cutting.load(Ordering::SeqCst) || planted!(KnownWhileCutting))
            && page.start() + PAGE as u64 <= self.len();
        let is_at_home = region.validity(page.in_region()) == Validity(0) || planted!(KnownAway);
        let is_loadable = region.home_is_loadable() || planted!(HoleKnown);
        is_inside && is_at_home && is_loadable && barrier::is_usual()
    }

    /// Pages of `mask` are not known to be at home any more. By who holds their locks, or the region's, and is about to
    /// change them: a release fence, as a rule that of closing them, orders this before its changes.
    #[inline(always)]
    pub(super) fn leave_home(&self, index: RegionIndex, region: &RegionState, mask: u64) {
        let known = region.known_at_home() & mask;
        if known != 0 {
            unless!(HomeNotLeft, self.leave_home_of(index, region, known));
        }
    }

    /// The same, for all pages of plans.
    #[inline]
    pub(super) fn leave_home_all(&self, plans: &[RegionPlan<'_>]) {
        plans.iter().for_each(|plan| self.leave_home(plan.index, plan.state, plan.touched));
    }

    #[cold]
    fn leave_home_of(&self, index: RegionIndex, region: &RegionState, known: u64) {
        if region.end_watch(known) != 0 {
            self.watched.note_change();
        }
        for n in bits(known) {
            if let Some(word) = self.at_home.word(index.page(n)) {
                word.clear();
            }
        }
        region.forget_at_home(known);
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use crate::units::{CHUNK, REGION};
    use crate::{AtomicMappedFile, CloseMode, Medium};

    const LEN: u64 = 2 * CHUNK as u64;
    const PAGES: u64 = LEN / PAGE as u64;

    fn page(n: u64) -> Range<u64> {
        n * PAGE as u64..(n + 1) * PAGE as u64
    }

    /// Of which every byte is `fill`, at home, and no page known to be.
    fn file(folder: &std::path::Path, medium: Medium, fill: u8) -> AtomicMappedFile {
        let options = AtomicMappedFile::options().create(true).len(LEN).medium(medium);
        let file = options.open(folder.join(medium.to_string())).expect("a pair");
        for _ in 0..2 {
            file.write_at(&vec![fill; LEN as usize], 0).expect("a write");
        }
        file
    }

    /// Whether the page is read by its word, and nothing else. All of it.
    fn is_known(file: &AtomicMappedFile, n: u64) -> bool {
        let engine = file.engine();
        // This thread has published nothing then.
        drop(engine.lane_after_own_writes());
        let lane = engine.lane_at_hand().expect("a lane");
        let mut to = [0; PAGE];
        let is_known = engine.read_known(lane, &mut to, page(n).start);
        if is_known {
            let mut again = [0; PAGE];
            assert!(engine.read_home(lane, &mut again, page(n).start), "it is at home");
            assert_eq!(to, again);
        }
        is_known
    }

    fn known(file: &AtomicMappedFile) -> Vec<u64> {
        (0..file.len().div_ceil(PAGE as u64)).filter(|n| is_known(file, *n)).collect()
    }

    /// Where no page is ever known, there is nothing to test.
    fn has_words(file: &AtomicMappedFile) -> bool {
        let has_words = file.engine().at_home.make_word(PageIndex(0), LEN).is_some();
        assert!(has_words || !cfg!(unix) || cfg!(miri), "this system has such memory");
        has_words
    }

    #[test]
    fn what_is_deployed_is_known_and_what_is_written_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        for medium in [Medium::Ram, Medium::PageCache] {
            let file = file(folder.path(), medium, 1);
            if !has_words(&file) {
                return;
            }
            assert!(known(&file).is_empty(), "{medium}");
            file.deploy(0..LEN).expect("a deployment");
            assert_eq!(known(&file).len() as u64, PAGES, "{medium}");
            let view = |range: Range<u64>| (medium == Medium::Ram).then(|| file.view(range));
            let pages = 64 * PAGE as u64;
            // Each way of writing, and the pages that it writes.
            type Way<'a> = (&'a str, Box<dyn Fn() + 'a>, Range<u64>);
            let write = |at: u64, len: usize| file.write_at(&vec![2; len], at).expect("a write");
            let ways: [Way<'_>; 9] = [
                ("a slice", Box::new(|| write(64, 64)), 0..1),
                ("a piece of slices", Box::new(|| write(PAGE as u64 + 5, 100)), 1..2),
                ("a page", Box::new(|| write(2 * PAGE as u64, PAGE)), 2..3),
                ("a page but for a byte", Box::new(|| write(3 * PAGE as u64, PAGE - 1)), 3..4),
                ("pages", Box::new(|| write(4 * PAGE as u64, 4 * PAGE)), 4..8),
                ("pages and pieces", Box::new(|| write(8 * PAGE as u64 + 7, 9 * PAGE)), 8..18),
                ("a region", Box::new(|| write(pages, REGION)), 64..128),
                (
                    "a transaction",
                    Box::new(|| {
                        let write = |tx: &mut crate::Transaction<'_>| {
                            tx.load::<u8>(page(140).start)?;
                            tx.write_at(&[2], page(130).start)?;
                            tx.write_at(&[2], page(132).start)
                        };
                        file.transact(write).expect("a transaction");
                    }),
                    130..133,
                ),
                (
                    "under a view",
                    Box::new(|| {
                        write(page(150).start, 1);
                        file.deploy(page(150)).expect("home");
                        let view = view(page(150));
                        // The first to the reflection file, the others through the log.
                        (0..3).for_each(|_| write(page(150).start + 10, 100));
                        drop(view);
                    }),
                    150..151,
                ),
            ];
            for (name, way, written) in ways {
                let before = known(&file);
                way();
                let is_written =
                    |n: &u64| written.contains(n) && (name != "a transaction" || *n != 131);
                let expected: Vec<u64> = before.into_iter().filter(|n| !is_written(n)).collect();
                assert_eq!(known(&file), expected, "{medium}: {name}");
            }
            // To the other side, and home again, where it is known, and stored to in place where durable points are kept.
            file.deploy(page(0)).expect("home");
            write(64, 65);
            file.sync().expect("a durable point");
            write(64, 65);
            file.engine().make_known(PageIndex(0));
            assert!(is_known(&file, 0), "{medium}");
            let before = file.stats().in_place_writes;
            file.write_at(&[3; 64], 64).expect("a write");
            let in_place = file.stats().in_place_writes - before;
            assert_eq!(in_place, u64::from(medium == Medium::PageCache));
            assert!(!is_known(&file, 0), "{medium}");
            assert_eq!(file.load::<u8>(64).expect("a read"), 3);
            file.deploy(0..LEN).expect("a deployment");
            assert_eq!(known(&file).len() as u64, PAGES, "{medium}");
            file.close(CloseMode::Fast).expect("closed");
        }
    }

    #[test]
    fn what_is_found_at_home_again_and_again_becomes_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), Medium::Ram, 1);
        if !has_words(&file) {
            return;
        }
        file.load::<u8>(0).expect("a read");
        let read = |n: u64, times: u64| {
            for _ in 0..times {
                file.load::<u64>(page(n).start + 8).expect("a read");
            }
        };
        read(5, 2 * u64::from(NOTED));
        assert_eq!(known(&file), [5]);
        // As many places in turn as there are reads between two that count, as whole numbers go.
        (0..100 * u64::from(NOTED)).for_each(|n| read(20 + n % u64::from(NOTED), 1));
        assert_eq!(known(&file).len() as u64, 1 + u64::from(NOTED));
        // Not what is held, or away, or cut in two by the end.
        let engine = file.engine();
        let region = engine.state.touched(RegionIndex(0)).expect("touched");
        let held = crate::lock::lock_page(&region.lock, &region.pages[6].lock);
        engine.make_known(PageIndex(6));
        assert!(!is_known(&file, 6), "no reader waits");
        drop(held);
        file.write_at(&[2; 65], page(7).start).expect("a write");
        engine.make_known(PageIndex(7));
        assert!(!is_known(&file, 7), "it is not at home");
        engine.make_known(PageIndex(6));
        assert!(is_known(&file, 6));
        file.set_len(LEN - 1).expect("shorter");
        engine.make_known(PageIndex(PAGES - 1));
        assert!(!is_known(&file, PAGES - 1), "it is not inside the file from end to end");
    }

    /// Who reads by a word looks at no length.
    #[test]
    fn what_is_cut_off_is_known_no_more() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), Medium::Ram, 1);
        if !has_words(&file) {
            return;
        }
        for new in [LEN - 1, LEN - PAGE as u64, REGION as u64 + 10, 100, 0] {
            file.set_len(LEN).expect("longer");
            for _ in 0..2 {
                file.write_at(&vec![1; LEN as usize], 0).expect("a write");
            }
            file.deploy(0..LEN).expect("a deployment");
            file.load::<u8>(0).expect("a read");
            assert!(is_known(&file, PAGES - 1));
            file.set_len(new).expect("shorter");
            file.set_len(LEN).expect("longer");
            let whole = new / PAGE as u64;
            assert_eq!(known(&file), (0..whole).collect::<Vec<_>>(), "{new}");
        }
        // Nor does it become known while it is cut off.
        for _ in 0..2 {
            file.write_at(&[1; PAGE], 0).expect("a write");
        }
        file.load::<u8>(0).expect("a read");
        let engine = file.engine();
        engine.cutting.store(true, Ordering::SeqCst);
        engine.make_known(PageIndex(0));
        assert!(!is_known(&file, 0));
        engine.cutting.store(false, Ordering::SeqCst);
        engine.make_known(PageIndex(0));
        assert!(is_known(&file, 0));
    }

    /// (Elsewhere nobody knows whether the home file has holes.)
    #[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
    #[test]
    fn what_lies_in_a_hole_is_not_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = AtomicMappedFile::options().create(true).len(LEN).medium(Medium::Ram);
        let file = options.open(folder.path().join("sparse")).expect("a pair");
        file.load::<u8>(0).expect("a read");
        assert!(has_words(&file));
        file.deploy(0..LEN).expect("nothing to deploy");
        file.engine().make_known(PageIndex(0));
        assert!(!is_known(&file, 0));
        for _ in 0..2 {
            file.write_at(&[1; 65], 0).expect("a write");
        }
        file.load::<u8>(0).expect("a read");
        file.engine().make_known(PageIndex(0));
        assert!(is_known(&file, 0), "it is no hole any more");
    }

    #[test]
    fn a_read_looks_at_the_word_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), Medium::Ram, 1);
        if !has_words(&file) {
            return;
        }
        file.deploy(0..LEN).expect("a deployment");
        assert!(is_known(&file, 3));
        // What any other read of the page would find out, and note.
        let region = file.engine().state.touched(RegionIndex(0)).expect("touched");
        region.set_home_loadable(false);
        assert_eq!(file.load::<u8>(page(3).start).expect("a read"), 1);
        assert!(!region.home_is_loadable(), "it was read otherwise");
        let mut two = [0; 2 * PAGE];
        file.read_at(&mut two, page(3).start + 8).expect("a read");
        assert!(two == [1; 2 * PAGE] && !region.home_is_loadable(), "so were several pages");
        file.write_at(&[1], page(3).start).expect("a write");
        region.set_home_loadable(false);
        file.load::<u8>(page(3).start + 100).expect("a read");
        assert!(region.home_is_loadable());
    }

    #[test]
    fn pages_in_a_row_are_read_by_their_words() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), Medium::Ram, 1);
        if !has_words(&file) {
            return;
        }
        let engine = file.engine();
        let by_words = |to: &mut [u8], offset: u64| {
            drop(engine.lane_after_own_writes());
            let lane = engine.lane_at_hand().expect("a lane");
            engine.read_all_known(lane, to, offset)
        };
        let at = |len: usize, offset: u64| by_words(&mut vec![0; len], offset);
        assert!(!at(2 * PAGE, 0), "nothing is known yet");
        let data: Vec<u8> = (0..LEN).map(|n| (n % 251) as u8).collect();
        for _ in 0..2 {
            file.write_at(&data, 0).expect("a write");
        }
        file.deploy(0..LEN).expect("a deployment");
        // Within a page, over two, a region, a chunk, and all there are.
        for (start, len) in [
            (5, 10),
            (4000, 200),
            (4096, 2 * PAGE),
            (REGION - 7, REGION + 9),
            (CHUNK - PAGE, 2 * PAGE),
            (0, LEN as usize),
        ] {
            let mut read = vec![0; len];
            let before = file.stats().reads;
            assert!(by_words(&mut read, start as u64) && read == data[start..][..len], "{start}");
            assert_eq!(file.stats().reads, before + 1, "it is counted");
        }
        let before = file.stats().reads;
        assert!(!at(2, LEN - 1) && !at(1, LEN) && !at(2, u64::MAX) && !at(1, u64::MAX));
        assert!(!at(0, 0) && !at(0, LEN) && !at(0, LEN + 1), "nobody vouches for no bytes");
        // Only if all are known: neither the first one nor the last one.
        file.write_at(&[7], page(5).start).expect("a write");
        for (first, pages, is_known) in
            [(3, 2, true), (4, 2, false), (5, 2, false), (4, 3, false), (6, 2, true)]
        {
            assert_eq!(at(pages * PAGE, page(first).start), is_known, "{pages} from {first}");
        }
        assert_eq!(file.stats().reads, before + 2, "what was not read is not counted");
    }

    #[test]
    fn pages_that_are_read_together_become_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), Medium::Ram, 1);
        if !has_words(&file) {
            return;
        }
        let read = |first: u64, pages: usize| {
            let mut to = vec![0; pages * PAGE];
            (0..2 * NOTED).for_each(|_| file.read_at(&mut to, page(first).start).expect("a read"));
        };
        read(62, 4);
        assert_eq!(known(&file), [62, 63, 64, 65], "of two regions");
        file.write_at(&[7; 65], page(8).start).expect("a write");
        read(7, 3);
        assert_eq!(known(&file), [62, 63, 64, 65], "one of them is not at home");
    }

    /// A file that became much longer since its words were made has none for what was added.
    #[test]
    fn pages_without_a_word_are_read_all_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), Medium::Ram, 1);
        if !has_words(&file) {
            return;
        }
        let at = 2 * LEAST;
        file.set_len(at + PAGE as u64).expect("longer");
        for _ in 0..2 {
            file.write_at(&[7; PAGE], at).expect("a write");
        }
        file.deploy(at..at + PAGE as u64).expect("a deployment");
        assert!(!is_known(&file, at / PAGE as u64));
        // Nobody takes its lock to find that out again.
        let may_have_word = |at| file.engine().at_home.may_have_word(PageIndex::of(at));
        assert!(!may_have_word(at) && may_have_word(0));
        (0..2 * NOTED).for_each(|_| assert_eq!(file.load::<u8>(at).expect("a read"), 7));
        assert!(!is_known(&file, at / PAGE as u64));
    }

    /// A thread that reads by words beside one that writes, deploys and cuts off: all bytes of a page, or of two that were
    /// written together, are one state.
    #[test]
    fn reads_by_a_word_see_one_state() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), Medium::Ram, 0);
        if !has_words(&file) {
            return;
        }
        let [is_done, is_enough] = [const { std::sync::atomic::AtomicBool::new(false) }; 2];
        let by_word = std::thread::scope(|s| {
            s.spawn(|| {
                // Until there was such a read, however busy the machine is.
                let goes_on = |round: &u64| *round <= 2000 || !is_enough.load(Ordering::SeqCst);
                for round in (1..1_000_000u64).take_while(goes_on) {
                    let fill = round as u8;
                    for n in 0..4 {
                        file.write_at(&[fill; PAGE], page(n).start).expect("a write");
                    }
                    file.write_at(&[fill; 2 * PAGE], page(4).start).expect("a write");
                    file.deploy(0..6 * PAGE as u64).expect("a deployment");
                    if round % 100 == 0 {
                        file.set_len(PAGE as u64 + 5).expect("shorter");
                        file.set_len(LEN).expect("longer");
                    }
                }
                is_done.store(true, Ordering::SeqCst);
            });
            let (mut by_word, mut by_words) = (0, 0);
            let (mut to, mut both) = ([0; PAGE], [0; 2 * PAGE]);
            let engine = file.engine();
            while !is_done.load(Ordering::SeqCst) {
                file.load::<u8>(0).expect("a read");
                for n in 0..4 {
                    let Some(lane) = engine.lane_at_hand() else { continue };
                    if engine.read_known(lane, &mut to, page(n).start) {
                        assert!(to.iter().all(|byte| *byte == to[0]), "torn");
                        by_word += 1;
                    }
                }
                let Some(lane) = engine.lane_at_hand() else { continue };
                if engine.read_all_known(lane, &mut both, page(4).start) {
                    assert!(both.iter().all(|byte| *byte == both[0]), "torn");
                    by_words += 1;
                }
                is_enough.fetch_or(by_word > 0 && by_words > 0, Ordering::SeqCst);
            }
            [by_word, by_words]
        });
        assert!(by_word.into_iter().all(|reads| reads > 0), "nothing was read by a word");
    }
}
