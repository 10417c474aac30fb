//! Tests of the locks with real threads.
//!
//! May import: the parent and std.

use super::word::INTENT;
use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

struct Region {
    word: LockWord,
    pages: [LockWord; 4],
    values: [AtomicU64; 4],
}

fn region() -> Region {
    Region {
        word: LockWord::new(),
        pages: std::array::from_fn(|_| LockWord::new()),
        values: [const { AtomicU64::new(0) }; 4],
    }
}

#[test]
fn a_release_changes_the_version_only_if_something_was_published() {
    let r = region();
    let before = r.pages[0].begin().unwrap();
    drop(lock_page(&r.word, &r.pages[0]));
    assert!(r.pages[0].is_still(before));
    let held = lock_page(&r.word, &r.pages[0]);
    assert!(r.pages[0].is_still(before), "a reader does not wait for a writer that copies");
    held.close();
    assert!(r.pages[0].begin().is_none() && !r.pages[0].is_still(before));
    drop(held);
    assert!(r.pages[0].begin().unwrap().count() > before.count());
}

#[test]
fn intention_is_cleaned_by_the_next_locker_of_the_region() {
    let r = region();
    drop(lock_page(&r.word, &r.pages[1]));
    assert_ne!(r.word.0.load(Ordering::Relaxed) & INTENT, 0);
    drop(lock_region(&r.word, r.pages.iter()));
    assert_eq!(r.word.0.load(Ordering::Relaxed) & INTENT, 0);
    drop(lock_page(&r.word, &r.pages[1]));
}

/// An operation that locked its pages one by one, and waited for the next with one in hand,
/// would deadlock with writers of the whole region.
#[test]
fn several_page_locks_and_region_locks_do_not_wait_for_each_other_for_ever() {
    let r = region();
    std::thread::scope(|s| {
        for first in 0..2 {
            let r = &r;
            s.spawn(move || {
                for _ in 0..2_000 {
                    let mut held = LockGuards::new();
                    lock_pages(&r.word, r.pages[first..first + 3].iter(), &mut held);
                    assert_eq!(held.len(), 3);
                }
            });
        }
        for _ in 0..2 {
            s.spawn(|| {
                for _ in 0..2_000 {
                    drop(lock_region(&r.word, r.pages.iter()));
                }
            });
        }
    });
}

#[test]
fn a_region_lock_waits_for_page_lock_holders() {
    let r = region();
    let page = lock_page(&r.word, &r.pages[2]);
    std::thread::scope(|s| {
        let region = s.spawn(|| drop(lock_region(&r.word, r.pages.iter())));
        // The other thread has locked the region and waits for the page.
        while !r.word.is_locked() {
            std::thread::yield_now();
        }
        assert!(!region.is_finished());
        drop(page);
    });
}

/// Step by step: a thread that has locked a page gives it back when another thread wants the
/// region, while it waits for the next page.
#[test]
fn a_thread_that_waits_for_a_page_releases_its_pages_to_a_region_locker() {
    let r = region();
    let second = lock_page(&r.word, &r.pages[1]);
    let is_locked = |word: &LockWord| word.is_locked();
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut held = LockGuards::new();
            lock_pages(&r.word, r.pages[..3].iter(), &mut held);
            assert_eq!(held.len(), 3);
        });
        while !is_locked(&r.pages[0]) {
            std::thread::yield_now();
        }
        let region = s.spawn(|| drop(lock_region(&r.word, r.pages.iter())));
        while !is_locked(&r.word) {
            std::thread::yield_now();
        }
        drop(second);
        region.join().unwrap();
    });
}

/// Page writers and region writers exclude each other, and readers see no half of a region
/// write: all four values are incremented together, or one alone.
#[test]
fn granularities_exclude_each_other() {
    let r = region();
    let (page_writes, region_writes) = (4_000, 2_000);
    std::thread::scope(|s| {
        for thread in 0..2 {
            let r = &r;
            s.spawn(move || {
                for i in 0..page_writes {
                    let n = (i + thread) % 4;
                    let held = lock_page(&r.word, &r.pages[n]);
                    held.close();
                    let value = r.values[n].load(Ordering::Relaxed);
                    std::hint::spin_loop();
                    r.values[n].store(value + 1, Ordering::Relaxed);
                }
            });
        }
        s.spawn(|| {
            for _ in 0..region_writes {
                let held = lock_region(&r.word, r.pages.iter());
                held.close();
                for value in &r.values {
                    let v = value.load(Ordering::Relaxed);
                    std::hint::spin_loop();
                    value.store(v + 1, Ordering::Relaxed);
                }
            }
        });
    });
    let sum: u64 = r.values.iter().map(|v| v.load(Ordering::Relaxed)).sum();
    assert_eq!(sum, 2 * page_writes as u64 + 4 * region_writes);
}
