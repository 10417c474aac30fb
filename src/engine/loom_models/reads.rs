//! Models of readers beside writers, deployments and truncations.

use super::{Slots, new_region};
use crate::bitmap::{Side, Validity};
use crate::engine::read::version_sum_of;
use crate::lock::{
    LockGuard, LockGuards, lock_page, lock_pages, lock_region, try_lock_page_exclusive,
    try_lock_page_stable,
};
use crate::pair::region::RegionState;
use crate::pair::stamps::{DeployedStamp, StampSum};
use crate::primitive::explore::{Preemptions, holds, is_found, needs};
use crate::primitive::ordered::Missing;
use crate::primitive::{AtomicBool, AtomicU64, Ordering, fence};
use ::loom::thread;
use std::sync::Arc;

/// A page flips, by its own word or by its region's, beside a reader.
fn flip(by_region_word: bool, looks_again: bool) {
    let region = new_region();
    let slots = Arc::new(Slots::default());
    let writer = thread::spawn({
        let (region, slots) = (Arc::clone(&region), Arc::clone(&slots));
        move || {
            let held = lock_page(&region.lock, &region.pages[0].lock);
            let free = region.validity(0).free().side(0);
            slots.of(free).store(1, Ordering::Relaxed);
            held.close();
            if by_region_word {
                region.flip_region_bits(1);
            } else {
                region.set_slice_word(0, 1);
            }
        }
    });
    let read = || {
        let versions = (region.lock.begin()?, region.pages[0].lock.begin()?);
        let valid = region.validity(0).side(0);
        let value = slots.of(valid).load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let still = region.lock.is_still(versions.0) && region.pages[0].lock.is_still(versions.1);
        (still || !looks_again).then_some((valid, value))
    };
    let first = read();
    let second = read();
    for (valid, value) in [first, second].into_iter().flatten() {
        assert_eq!(value, u64::from(valid == Side::Reflection), "the slot of another state");
    }
    if let (Some((_, first)), Some((_, second))) = (first, second) {
        assert!(first <= second, "went back");
    }
    writer.join().unwrap();
}

#[test]
fn a_reader_takes_a_slot_and_what_is_in_it_from_one_state() {
    // A missing Release at the unlock is not found: only one word is published, and making the lock
    // exclusive has a fence.
    let kinds = [Missing::Acquire, Missing::ReleaseFence, Missing::AcquireFence];
    for by_region_word in [false, true] {
        let name = if by_region_word { "region word" } else { "slice word" };
        holds(name, Preemptions(2), move || flip(by_region_word, true));
        needs(name, &kinds, Preemptions(2), move || flip(by_region_word, true));
        let once = format!("{name}, one look");
        is_found(&once, Preemptions(2), move || flip(by_region_word, false));
    }
}

/// A shrink, and then a write by a thread that has seen the shorter length, to a page before the
/// new end. The reader loads the length after the page's version, or before it.
fn length_beside_a_cut(looks_after: bool) {
    let region = new_region();
    let len = Arc::new(AtomicU64::new(2));
    let byte = Arc::new(AtomicU64::new(0));
    let writer = thread::spawn({
        let (region, len, byte) = (Arc::clone(&region), Arc::clone(&len), Arc::clone(&byte));
        move || {
            // One thread stands for two: the truncating thread, and a writer that has seen the new
            // length. Their steps are ordered.
            len.store(1, Ordering::SeqCst);
            let held = lock_page(&region.lock, &region.pages[0].lock);
            held.close();
            byte.store(1, Ordering::Relaxed);
        }
    });
    let read = || {
        let before = (!looks_after).then(|| len.load(Ordering::SeqCst));
        let page = &region.pages[0].lock;
        let seen = (region.lock.begin()?, page.begin()?);
        let len = before.unwrap_or_else(|| len.load(Ordering::SeqCst));
        let value = byte.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_state = region.lock.is_still(seen.0) && page.is_still(seen.1);
        is_state.then_some((len, value))
    };
    assert_ne!(read(), Some((2, 1)), "the old length, and what came after the new one");
    writer.join().unwrap();
}

#[test]
fn a_read_sees_no_length_older_than_its_bytes() {
    holds("length after versions", Preemptions(3), || length_beside_a_cut(true));
    is_found("length before versions", Preemptions(3), || length_beside_a_cut(false));
}

/// A page with a deployed stamp is written twice: it moves to the reflection file and back home.
/// Another thread may stamp it meanwhile. A reader checks only the stamp.
fn known_page(leaves: bool) {
    let region = new_region();
    let word = Arc::new(AtomicU64::new(1));
    let slots = Arc::new([Slots::default(), Slots::default()]);
    let writer = thread::spawn({
        let (region, word, slots) = (Arc::clone(&region), Arc::clone(&word), Arc::clone(&slots));
        move || {
            for value in [1, 2] {
                let held = lock_page(&region.lock, &region.pages[0].lock);
                if leaves {
                    DeployedStamp::of(&word).clear();
                }
                let free = region.validity(0).free().side(0);
                slots.iter().for_each(|word| word.of(free).store(value, Ordering::Relaxed));
                held.close();
                region.set_slice_word(0, region.pages[0].slice_word() ^ 1);
            }
        }
    });
    let finder = thread::spawn({
        let (region, word) = (Arc::clone(&region), Arc::clone(&word));
        move || {
            if let Some(_held) = try_lock_page_stable(&region.lock, &region.pages[0].lock)
                && region.validity(0) == Validity(0)
            {
                DeployedStamp::of(&word).set();
            }
        }
    });
    let read = || {
        let word = DeployedStamp::of(&word);
        let seen = word.begin()?;
        let values = [0, 1].map(|n| slots[n].of(Side::Home).load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        word.is_still(seen).then_some(values)
    };
    let (first, second) = (read(), read());
    for [a, b] in [first, second].into_iter().flatten() {
        assert_eq!(a, b, "a slot that was free");
    }
    if let (Some([first, _]), Some([second, _])) = (first, second) {
        assert!(first <= second, "went back");
    }
    finder.join().unwrap();
    writer.join().unwrap();
    if let Some([value, _]) = read() {
        assert_eq!(value, 2);
    }
}

#[test]
fn a_stamped_read_sees_one_state() {
    // A missing Release at the stamp's store is not found: a lock is taken before, which is a full
    // fence to this checker.
    let kinds = [Missing::Acquire, Missing::AcquireFence];
    holds("known page", Preemptions(2), || known_page(true));
    needs("known page", &kinds, Preemptions(2), || known_page(true));
    is_found("known page that is not left", Preemptions(2), || known_page(false));
    holds("known page, stored to in place", Preemptions(2), stored_in_place);
    needs(
        "known page, stored to in place",
        &[Missing::ReleaseFence, Missing::AcquireFence],
        Preemptions(2),
        stored_in_place,
    );
    holds("known page, stored to at once", Preemptions(2), || stored_at_once(true));
    is_found("known page, stored to at once, no fence", Preemptions(2), || stored_at_once(false));
}

/// A writer changes a stamped page by a direct store (`write::direct`). One step takes the page
/// exclusively, before the stamp is cleared.
fn stored_at_once(fences: bool) {
    let region = new_region();
    drop(lock_page(&region.lock, &region.pages[0].lock));
    let word = Arc::new(AtomicU64::new(1));
    let bytes = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let writer = thread::spawn({
        let (region, word, bytes) = (Arc::clone(&region), Arc::clone(&word), Arc::clone(&bytes));
        move || {
            let held = try_lock_page_exclusive(&region.lock, &region.pages[0].lock);
            let held = held.expect("no other thread locks");
            DeployedStamp::of(&word).clear();
            if fences {
                fence(Ordering::Release);
            }
            bytes.iter().for_each(|byte| byte.store(1, Ordering::Relaxed));
            drop(held);
        }
    });
    let word = DeployedStamp::of(&word);
    if let Some(seen) = word.begin() {
        let [a, b] = [0, 1].map(|n| bytes[n].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        assert!(a == b || !word.is_still(seen), "half of it");
    }
    writer.join().unwrap();
}

/// A writer stores to the home bytes of a stamped page in place. A redo record has those bytes.
fn stored_in_place() {
    let region = new_region();
    let word = Arc::new(AtomicU64::new(1));
    let bytes = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let writer = thread::spawn({
        let (region, word, bytes) = (Arc::clone(&region), Arc::clone(&word), Arc::clone(&bytes));
        move || {
            let held = lock_page(&region.lock, &region.pages[0].lock);
            DeployedStamp::of(&word).clear();
            held.close();
            bytes.iter().for_each(|byte| byte.store(1, Ordering::Relaxed));
        }
    });
    let word = DeployedStamp::of(&word);
    if let Some(seen) = word.begin() {
        let [a, b] = [0, 1].map(|n| bytes[n].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        assert!(a == b || !word.is_still(seen), "half of it");
    }
    writer.join().unwrap();
}

/// Two pages are written together, first to one side and then to the other, by the region's word or
/// by their own words. A reader reads both.
fn pages_on_one_side(by_region_word: bool, looks_again: bool) {
    const PAGES: std::ops::Range<usize> = 0..2;
    let region = new_region();
    let slots = Arc::new([Slots::default(), Slots::default()]);
    let writer = thread::spawn({
        let (region, slots) = (Arc::clone(&region), Arc::clone(&slots));
        move || {
            for value in [1, 2] {
                let mut held = LockGuards::new();
                lock_pages(&region.lock, region.pages[PAGES].iter().map(|p| &p.lock), &mut held);
                let taken = region.try_lock_word();
                assert!(taken.is_some(), "no other thread takes the word");
                let valid = region.valid_side(PAGES).expect("both flip together");
                slots.iter().for_each(|s| s.of(valid.other()).store(value, Ordering::Relaxed));
                held.iter().for_each(LockGuard::close);
                if by_region_word {
                    region.flip_region_bits(0b11);
                } else {
                    PAGES.for_each(|n| region.set_slice_word(n, !region.pages[n].slice_word()));
                }
            }
        }
    });
    if let Some(seen) = version_sum_of(&region, PAGES)
        && let Some(side) = region.valid_side(PAGES)
    {
        let [a, b] = [0, 1].map(|n: usize| slots[n].of(side).load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if version_sum_of(&region, PAGES) == Some(seen) || !looks_again {
            assert_eq!(a, b, "half of it");
            assert_eq!(a == 1, side == Side::Reflection, "the side of another state");
        }
    }
    writer.join().unwrap();
}

#[test]
fn a_read_of_pages_on_one_side_sees_one_state() {
    let kinds = [Missing::Acquire, Missing::ReleaseFence, Missing::AcquireFence];
    for by_region_word in [false, true] {
        let words = if by_region_word { "the region's word" } else { "their own words" };
        let name = format!("pages on one side, {words}");
        holds(&name, Preemptions(2), move || pages_on_one_side(by_region_word, true));
        needs(&name, &kinds, Preemptions(2), move || pages_on_one_side(by_region_word, true));
        let once = format!("{name}, one look");
        is_found(&once, Preemptions(2), move || pages_on_one_side(by_region_word, false));
    }
}

/// Two pages are written together in place, and get their stamps again one after the other. A
/// reader reads both.
fn known_pages() {
    let region = new_region();
    let words = Arc::new([AtomicU64::new(1), AtomicU64::new(1)]);
    let bytes = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let writer = thread::spawn({
        let (region, words, bytes) = (Arc::clone(&region), Arc::clone(&words), Arc::clone(&bytes));
        move || {
            let held = [0, 1].map(|n| lock_page(&region.lock, &region.pages[n].lock));
            words.iter().for_each(|word| DeployedStamp::of(word).clear());
            held.iter().for_each(LockGuard::close);
            bytes.iter().for_each(|byte| byte.store(1, Ordering::Relaxed));
            drop(held);
            for (n, word) in words.iter().enumerate() {
                if let Some(_held) = try_lock_page_stable(&region.lock, &region.pages[n].lock) {
                    DeployedStamp::of(word).set();
                }
            }
        }
    });
    let look = || StampSum::begin(words.iter().map(|word| Some(DeployedStamp::of(word))));
    if let Some(seen) = look() {
        let [a, b] = [0, 1].map(|n| bytes[n].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        assert!(!seen.are_still(look()) || a == b, "half of it");
    }
    writer.join().unwrap();
}

#[test]
fn a_stamped_read_of_several_pages_sees_one_state() {
    holds("known pages", Preemptions(3), known_pages);
    needs(
        "known pages",
        &[Missing::Acquire, Missing::ReleaseFence, Missing::AcquireFence],
        Preemptions(3),
        known_pages,
    );
}

/// A page is truncated, beside one thread that stamps it and one that has seen the new length.
fn cut_page(says_so: bool, locks: bool) {
    let region = new_region();
    let noted = |region: &RegionState| region.stamped_pages() & 1 != 0;
    let word = Arc::new(AtomicU64::new(0));
    let cutting = Arc::new(AtomicBool::new(false));
    let len = Arc::new(AtomicU64::new(1));
    let cutter = thread::spawn({
        let (region, word) = (Arc::clone(&region), Arc::clone(&word));
        let (cutting, len) = (Arc::clone(&cutting), Arc::clone(&len));
        move || {
            if says_so {
                cutting.store(true, Ordering::SeqCst);
            }
            fence(Ordering::SeqCst);
            if noted(&region) {
                let pages = region.pages.iter().take(1).map(|page| &page.lock);
                let _held = locks.then(|| lock_region(&region.lock, pages));
                DeployedStamp::of(&word).clear();
            }
            len.store(0, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            cutting.store(false, Ordering::SeqCst);
        }
    });
    let reader = thread::spawn({
        let (region, word) = (Arc::clone(&region), Arc::clone(&word));
        let (cutting, len) = (Arc::clone(&cutting), Arc::clone(&len));
        move || {
            if let Some(_held) = try_lock_page_stable(&region.lock, &region.pages[0].lock) {
                region.set_stamped(0);
                if !cutting.load(Ordering::SeqCst) && len.load(Ordering::SeqCst) == 1 {
                    DeployedStamp::of(&word).set();
                } else {
                    region.clear_stamped(1);
                }
            }
        }
    });
    if len.load(Ordering::SeqCst) == 0 {
        assert!(DeployedStamp::of(&word).begin().is_none(), "read past the end");
    }
    reader.join().unwrap();
    cutter.join().unwrap();
    assert!(DeployedStamp::of(&word).begin().is_none(), "known past the end");
}

#[test]
fn no_page_past_the_end_has_a_stamp() {
    holds("cut page", Preemptions(3), || cut_page(true, true));
    needs("cut page", &[Missing::SeqCst], Preemptions(3), || cut_page(true, true));
    is_found("cut page, not announced", Preemptions(3), || cut_page(false, true));
    is_found("cut page, not locked", Preemptions(3), || cut_page(true, false));
}
