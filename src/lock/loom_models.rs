//! Loom models of the lock words: every execution of small programs, and the failures that appear
//! where a step is missing.
//!
//! May import: the parent, `primitive` and loom.

use super::*;
use crate::primitive::explore::{Preemptions, holds, is_found, needs};
use crate::primitive::ordered::Missing;
use crate::primitive::{AtomicU64, Ordering, fence};
use ::loom::thread;
use std::sync::Arc;

/// A region of two pages, with two words of bytes in each.
struct Region {
    word: LockWord,
    pages: [LockWord; 2],
    bytes: [[AtomicU64; 2]; 2],
}

impl Region {
    fn new() -> Arc<Region> {
        Arc::new(Region {
            word: LockWord::new(),
            pages: Default::default(),
            bytes: Default::default(),
        })
    }

    fn lock_page(&self, n: usize) -> LockGuard<'_> {
        lock_page(&self.word, &self.pages[n])
    }

    fn lock_region(&self) -> LockGuard<'_> {
        lock_region(&self.word, self.pages.iter())
    }

    fn set(&self, page: usize, value: u64) {
        self.bytes[page].iter().for_each(|word| word.store(value, Ordering::Relaxed));
    }

    fn get(&self, page: usize) -> [u64; 2] {
        [0, 1].map(|n| self.bytes[page][n].load(Ordering::Relaxed))
    }

    /// Adds one in two steps: two threads that run this at the same time lose one.
    fn count(&self, page: usize) {
        let word = &self.bytes[page][0];
        word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Makes one attempt of an optimistic read of one page.
    fn read(&self, page: usize) -> Option<[u64; 2]> {
        let look = Stamp::begin(&self.word, &self.pages[page])?;
        let read = self.get(page);
        fence(Ordering::Acquire);
        look.is_still(&self.word, &self.pages[page]).then_some(read)
    }

    fn version_sum(&self) -> Option<u64> {
        self.pages.iter().try_fold(self.word.begin()?.count(), |sum, page| {
            Some(sum.wrapping_add(page.begin()?.count()))
        })
    }

    /// Makes one attempt of an optimistic read of both pages.
    fn read_both(&self) -> Option<[u64; 2]> {
        let before = self.version_sum()?;
        let read = [self.get(0)[0], self.get(1)[1]];
        fence(Ordering::Acquire);
        (self.version_sum()? == before).then_some(read)
    }
}

const ALL: [Missing; 4] =
    [Missing::Release, Missing::Acquire, Missing::ReleaseFence, Missing::AcquireFence];

#[derive(Clone, Copy, PartialEq)]
enum LeftOut {
    Nothing,
    Closing,
    SecondLook,
}

/// Runs a writer of a page and a concurrent reader of it.
fn torn_page(left_out: LeftOut) {
    let r = Region::new();
    let writer = thread::spawn({
        let r = Arc::clone(&r);
        move || {
            let held = r.lock_page(0);
            if left_out != LeftOut::Closing {
                held.close();
            }
            r.set(0, 1);
        }
    });
    let read = if left_out == LeftOut::SecondLook { Some(r.get(0)) } else { r.read(0) };
    if let Some([a, b]) = read {
        assert_eq!(a, b);
    }
    writer.join().unwrap();
    assert_eq!(r.read(0), Some([1, 1]));
}

#[test]
fn a_reader_of_a_page_sees_no_half_of_a_write() {
    holds("page version", Preemptions(3), || torn_page(LeftOut::Nothing));
    needs("page version", &ALL, Preemptions(3), || torn_page(LeftOut::Nothing));
    is_found("page version, not closed", Preemptions(3), || torn_page(LeftOut::Closing));
    is_found("page version, one look", Preemptions(3), || torn_page(LeftOut::SecondLook));
}

/// Runs a writer that closes a page with the step that locks it, and a concurrent reader of the
/// page.
fn torn_page_closed_at_once() {
    let r = Region::new();
    // The intention is set by an earlier page lock.
    drop(r.lock_page(0));
    let writer = thread::spawn({
        let r = Arc::clone(&r);
        move || {
            let held =
                try_lock_page_exclusive(&r.word, &r.pages[0]).expect("no other thread locks");
            fence(Ordering::Release);
            r.set(0, 1);
            drop(held);
        }
    });
    if let Some([a, b]) = r.read(0) {
        assert_eq!(a, b);
    }
    writer.join().unwrap();
    assert_eq!(r.read(0), Some([1, 1]));
}

#[test]
fn a_reader_beside_a_lock_taken_exclusively_sees_no_half_of_a_write() {
    holds("closed at once", Preemptions(3), torn_page_closed_at_once);
    // The release fence is not missed here: to this checker, taking a lock is a full fence.
    // `a_stamped_read_sees_one_state`, with a page's word between the two threads, does need it.
    let kinds = [Missing::Release, Missing::Acquire, Missing::AcquireFence];
    needs("closed at once", &kinds, Preemptions(3), torn_page_closed_at_once);
}

/// Runs a writer of a region and a concurrent reader of both its pages.
fn torn_region(sum: bool) {
    let r = Region::new();
    let writer = thread::spawn({
        let r = Arc::clone(&r);
        move || {
            let held = r.lock_region();
            held.close();
            r.set(0, 1);
            r.set(1, 1);
        }
    });
    let read = if sum { r.read_both() } else { Some([r.get(0)[0], r.get(1)[1]]) };
    if let Some([a, b]) = read {
        assert_eq!(a, b);
    }
    writer.join().unwrap();
}

#[test]
fn a_reader_of_two_pages_sees_no_half_of_a_region_write() {
    holds("version sum", Preemptions(3), || torn_region(true));
    needs("version sum", &ALL, Preemptions(3), || torn_region(true));
    is_found("version sum, not validated", Preemptions(3), || torn_region(false));
}

/// Runs a writer of a region and a concurrent reader of one of its pages.
fn torn_page_of_region() {
    let r = Region::new();
    let writer = thread::spawn({
        let r = Arc::clone(&r);
        move || {
            let held = r.lock_region();
            held.close();
            r.set(0, 1);
        }
    });
    if let Some([a, b]) = r.read(0) {
        assert_eq!(a, b);
    }
    writer.join().unwrap();
}

#[test]
fn a_reader_of_a_page_sees_no_half_of_a_write_to_its_region() {
    holds("region version", Preemptions(3), torn_page_of_region);
    needs("region version", &ALL, Preemptions(3), torn_page_of_region);
}

/// Runs two writers that count in one page.
fn counting(first: fn(&Region), second: fn(&Region)) {
    counting_in(Region::new(), first, second);
}

/// Runs two writers that count in one page, where a page of the region was locked before.
fn counting_where_announced(first: fn(&Region), second: fn(&Region)) {
    let r = Region::new();
    drop(r.lock_page(1));
    counting_in(r, first, second);
}

fn counting_in(r: Arc<Region>, first: fn(&Region), second: fn(&Region)) {
    let other = thread::spawn({
        let r = Arc::clone(&r);
        move || first(&r)
    });
    second(&r);
    other.join().unwrap();
    assert_eq!(r.get(0)[0], 2);
}

fn count_by_page(r: &Region) {
    let _held = r.lock_page(0);
    r.count(0);
}

/// Tries to lock the page exclusively, or locks it the usual way, as a direct store does.
fn count_by_page_closed_at_once(r: &Region) {
    match try_lock_page_exclusive(&r.word, &r.pages[0]) {
        Some(_held) => r.count(0),
        None => count_by_page(r),
    }
}

fn count_by_pages(r: &Region) {
    let mut held = super::LockGuards::new();
    lock_pages(&r.word, r.pages.iter(), &mut held);
    r.count(0);
}

fn count_by_region(r: &Region) {
    let _held = r.lock_region();
    r.count(0);
}

fn count_by_region_that_does_not_wait(r: &Region) {
    let _held = lock_region(&r.word, std::iter::empty());
    r.count(0);
}

#[test]
fn writers_of_a_page_exclude_each_other() {
    holds("page and page", Preemptions(3), || counting(count_by_page, count_by_page));
    needs("page and page", &[Missing::Release], Preemptions(3), || {
        counting(count_by_page, count_by_page);
    });
}

#[test]
fn writers_of_a_page_and_of_its_region_exclude_each_other() {
    holds("page and region", Preemptions(3), || counting(count_by_page, count_by_region));
    needs("page and region", &[Missing::Release, Missing::SeqCst], Preemptions(3), || {
        counting(count_by_page, count_by_region);
    });
    is_found("page and region, no wait", Preemptions(3), || {
        counting(count_by_page, count_by_region_that_does_not_wait);
    });
    holds("region and region", Preemptions(3), || counting(count_by_region, count_by_region));
}

#[test]
fn an_exclusive_page_lock_excludes_all_others() {
    let closed = count_by_page_closed_at_once as fn(&Region);
    for other in [count_by_page, closed, count_by_region, count_by_pages] {
        holds("closed and others", Preemptions(2), move || counting_where_announced(closed, other));
        holds("closed and others, first", Preemptions(2), move || counting(closed, other));
    }
    needs("closed and region", &[Missing::Release, Missing::SeqCst], Preemptions(3), || {
        counting_where_announced(count_by_page_closed_at_once, count_by_region);
    });
    is_found("closed and region, no wait", Preemptions(3), || {
        counting_where_announced(count_by_page_closed_at_once, count_by_region_that_does_not_wait);
    });
}

#[test]
fn writers_of_several_pages_and_of_their_region_exclude_each_other_and_end() {
    holds("pages and region", Preemptions(3), || counting(count_by_pages, count_by_region));
    holds("pages and page", Preemptions(2), || counting(count_by_pages, count_by_page));
    needs("pages and region", &[Missing::SeqCst], Preemptions(3), || {
        counting(count_by_pages, count_by_region);
    });
}

/// Locks the pages of an operation one by one, and waits for the next page with one in hand.
fn one_by_one(r: &Region) {
    let _first = r.lock_page(0);
    let _second = r.lock_page(1);
    r.count(0);
}

#[test]
fn pages_taken_one_by_one_wait_for_the_region_for_ever() {
    is_found("pages one by one", Preemptions(3), || counting(one_by_one, count_by_region));
}

/// Runs three threads that lock: pages, the region, a page.
#[test]
fn three_granularities_at_once_end() {
    holds("pages, region and page", Preemptions(1), || {
        let r = Region::new();
        let others = [count_by_pages as fn(&Region), count_by_region].map(|count| {
            let r = Arc::clone(&r);
            thread::spawn(move || count(&r))
        });
        count_by_page(&r);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(r.get(0)[0], 3);
    });
}

/// Runs two threads, each of which writes a page and then reads the other's.
fn write_and_look(look: fn()) {
    let r = Region::new();
    let go = move |r: &Region, mine: usize| {
        {
            let held = r.lock_page(mine);
            held.close();
            r.set(mine, 1);
        }
        look();
        r.read(1 - mine)
    };
    let other = thread::spawn({
        let r = Arc::clone(&r);
        move || go(&r, 1)
    });
    let mine = go(&r, 0);
    let theirs = other.join().unwrap();
    assert!(mine != Some([0, 0]) || theirs != Some([0, 0]), "neither saw the other");
}

/// Unlocking is a plain store, which the thread's next read may overtake.
#[test]
fn store_buffering_is_forbidden() {
    let look = || {
        fence_own_writes();
    };
    holds("own writes first", Preemptions(3), move || write_and_look(look));
    needs("own writes first", &[Missing::SeqCst], Preemptions(3), move || {
        write_and_look(look);
    });
    is_found("own writes not waited for", Preemptions(3), || write_and_look(|| {}));
}

/// A transaction has read page 0 and writes page 1. A write to page 0 follows. A reader of both
/// pages must not see the second write without the first.
fn commit_order(close_first: bool) {
    let r = Region::new();
    let transaction = thread::spawn({
        let r = Arc::clone(&r);
        move || {
            let version = r.pages[0].begin()?;
            let region_version = r.word.begin()?;
            let held = r.lock_page(1);
            if close_first {
                make_exclusive_and_fence(std::slice::from_ref(&held));
            }
            let holds = !r.word.is_written_after_fence()
                && !r.pages[0].is_written_after_fence()
                && r.word.is_still(region_version)
                && r.pages[0].is_still(version);
            if !holds {
                return None;
            }
            held.close();
            r.set(1, 1);
            // It has read the value from before the write.
            Some(version.count() == 0)
        }
    });
    let writer = thread::spawn({
        let r = Arc::clone(&r);
        move || {
            let held = r.lock_page(0);
            held.close();
            r.set(0, 1);
        }
    });
    let read = r.read_both();
    writer.join().unwrap();
    if transaction.join().unwrap() == Some(true) {
        // So the transaction comes before the write.
        assert_ne!(read, Some([1, 0]));
    }
}

#[test]
fn a_reader_of_a_write_sees_the_transaction_that_came_before_it() {
    holds("exclusive before validation", Preemptions(2), || commit_order(true));
    is_found("exclusive after validation", Preemptions(2), || commit_order(false));
}
