//! Models of writers, views, watchers and first loads beside each other.

use super::{Slots, new_region};
use crate::lock::{LockGuard, lock_page, try_lock_page_exclusive};
use crate::pair::page_table::{PageTable, known};
use crate::pair::read_set::Watched;
use crate::pair::region::RegionState;
use crate::pair::space::unless_known;
use crate::primitive::explore::{Preemptions, holds, is_found, needs};
use crate::primitive::ordered::Missing;
use crate::primitive::{AtomicU8, AtomicU64, Mutex, Ordering, fence};
use crate::units::{PAGES_PER_REGION, RegionIndex};
use ::loom::thread;
use std::sync::Arc;

/// A transaction has read a page and watches it. Then it reads another page, with the second of two
/// changes that a writer makes. The writer's first change was to the watched page.
fn watch_against_writer(looks_at_the_holder: bool, looks_at_the_count: bool) {
    let region = new_region();
    let watched = Arc::new(Watched::new());
    let bytes = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let writer = thread::spawn({
        let (region, watched, bytes) =
            (Arc::clone(&region), Arc::clone(&watched), Arc::clone(&bytes));
        move || {
            for (n, bytes) in bytes.iter().enumerate() {
                let held = lock_page(&region.lock, &region.pages[n].lock);
                if region.stamped_pages() >> n & 1 == 1 {
                    if region.end_watch(1 << n) != 0 {
                        watched.note_change();
                    }
                    region.clear_stamped(1 << n);
                }
                held.close();
                bytes.store(1, Ordering::Relaxed);
            }
        }
    });
    let look = |n: usize| Some((region.lock.begin()?, region.pages[n].lock.begin()?));
    let is_still = |n: usize, seen: (crate::lock::Version, crate::lock::Version)| {
        region.lock.is_still(seen.0) && region.pages[n].lock.is_still(seen.1)
    };
    let read = |n: usize| {
        let seen = look(n)?;
        let value = bytes[n].load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        is_still(n, seen).then_some((seen, value))
    };
    let transaction = || {
        let (seen, first) = read(0)?;
        let count = watched.count();
        region.set_watched(0);
        let is_free = !region.lock.is_locked() && !region.pages[0].lock.is_locked();
        let is_watched = (is_free || !looks_at_the_holder) && region.is_watched(0);
        if !is_watched || !is_still(0, seen) {
            return None;
        }
        let (_, second) = read(1)?;
        (watched.count() == count || !looks_at_the_count).then_some((first, second))
    };
    assert_ne!(transaction(), Some((0, 1)), "the second change without the first one");
    writer.join().unwrap();
}

#[test]
fn a_change_of_a_watched_page_is_noticed() {
    holds("watched page", Preemptions(2), || watch_against_writer(true, true));
    is_found("watched page, held", Preemptions(3), || watch_against_writer(false, true));
    is_found("watched page, no count", Preemptions(2), || watch_against_writer(true, false));
}

/// A page is deployed and then written, beside a reader that began before the deployment. The slots
/// that it reads are free by then.
fn deployment(closes: bool) {
    let region = Arc::new(RegionState::new(0, &[1; PAGES_PER_REGION], None));
    let slots = Arc::new([Slots::default(), Slots::default()]);
    let other = thread::spawn({
        let (region, slots) = (Arc::clone(&region), Arc::clone(&slots));
        move || {
            let lock = || lock_page(&region.lock, &region.pages[0].lock);
            {
                let held = lock();
                if closes {
                    held.close();
                }
                region.set_slice_word(0, 0);
            }
            let held = lock();
            let free = region.validity(0).free().side(0);
            slots.iter().for_each(|word| word.of(free).store(1, Ordering::Relaxed));
            held.close();
            region.set_slice_word(0, 1);
        }
    });
    let read = || {
        let versions = (region.lock.begin()?, region.pages[0].lock.begin()?);
        let valid = region.validity(0).side(0);
        let values = [0, 1].map(|n| slots[n].of(valid).load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let still = region.lock.is_still(versions.0) && region.pages[0].lock.is_still(versions.1);
        still.then_some(values)
    };
    if let Some([a, b]) = read() {
        assert_eq!(a, b, "a slot that was free");
    }
    other.join().unwrap();
}

#[test]
fn deployment_changes_the_version_of_a_page() {
    holds("deployment", Preemptions(2), || deployment(true));
    is_found("deployment that does not close", Preemptions(2), || deployment(false));
}

/// Writers of two pages flip bits of one region word. Only one of them has the word locked; the
/// other does not wait for it. `drained` is what is durable: stored and then drained.
fn neighbours(takes_word: bool) {
    let region = new_region();
    let (medium, drained) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let flip = move |region: &RegionState, medium: &AtomicU64, drained: &AtomicU64, n: usize| {
        let held = lock_page(&region.lock, &region.pages[n].lock);
        let taken = region.try_lock_word();
        if taken.is_some() || !takes_word {
            let word = region.region_word() ^ 1 << n;
            medium.store(word, Ordering::Relaxed);
            drained.store(medium.load(Ordering::Relaxed), Ordering::Relaxed);
            held.close();
            region.flip_region_bits(1 << n);
        }
        let has_flipped = taken.is_some() || !takes_word;
        drop(taken);
        drop(held);
        u64::from(has_flipped) << n
    };
    let other = thread::spawn({
        let (region, medium, drained) =
            (Arc::clone(&region), Arc::clone(&medium), Arc::clone(&drained));
        move || flip(&region, &medium, &drained, 1)
    });
    let mine = flip(&region, &medium, &drained, 0);
    let flipped = mine | other.join().unwrap();
    assert!(flipped != 0, "one of them has the word");
    assert_eq!(region.region_word(), flipped, "a flip of the mirror was lost");
    assert_eq!(drained.load(Ordering::Relaxed), flipped, "a flip on the medium was lost");
}

#[test]
fn flips_of_one_region_word_exclude_each_other() {
    holds("neighbours", Preemptions(3), || neighbours(true));
    needs("neighbours", &[Missing::Acquire, Missing::Release], Preemptions(3), || neighbours(true));
    is_found("neighbours, word not taken", Preemptions(3), || neighbours(false));
}

#[derive(Clone, Copy, PartialEq)]
enum View {
    AsItIs,
    PinsUnlessHeld,
    PinsWithoutLock,
    ReadsUnpinned,
    NotLookedAt,
}

/// A view of a page with its slice at home, beside a writer that stores in place if no view pins
/// the page.
fn view_against_writer(kind: View, at_once: bool) {
    let region = new_region();
    let home = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let writer = thread::spawn({
        let (region, home) = (Arc::clone(&region), Arc::clone(&home));
        move || {
            let page = &region.pages[0].lock;
            let is_free = || kind == View::NotLookedAt || !region.is_pinned(0);
            let store = || home.iter().for_each(|word| word.store(1, Ordering::Relaxed));
            // Lock as a direct store does, or, if another thread holds the page, as all other
            // writers do.
            if at_once && let Some(held) = try_lock_page_exclusive(&region.lock, page) {
                if !is_free() {
                    return held.give_back_unchanged();
                }
                store();
                return;
            }
            let held = lock_page(&region.lock, page);
            if is_free() {
                held.close();
                store();
            }
        }
    });
    let page = &region.pages[0];
    if kind == View::PinsUnlessHeld {
        if !region.pin_unless_locked(0) {
            return writer.join().unwrap();
        }
    } else {
        let _held: Option<LockGuard<'_>> =
            (kind != View::PinsWithoutLock).then(|| lock_page(&region.lock, &page.lock));
        region.pin(0);
    }
    if kind == View::ReadsUnpinned {
        region.unpin(0);
    }
    let [a, b] = [0, 1].map(|n| home[n].load(Ordering::Relaxed));
    assert_eq!(a, b, "a view that changes");
    if kind != View::ReadsUnpinned {
        region.unpin(0);
    }
    writer.join().unwrap();
}

#[test]
fn pinned_bytes_do_not_change() {
    holds("view pin", Preemptions(3), || view_against_writer(View::AsItIs, false));
    needs("view pin", &[Missing::Release], Preemptions(3), || {
        view_against_writer(View::AsItIs, false);
    });
    let unless_held = || view_against_writer(View::PinsUnlessHeld, false);
    holds("view pin unless held", Preemptions(3), unless_held);
    // Beside a writer that takes the page exclusively in one step.
    holds("view pin, at once", Preemptions(2), || view_against_writer(View::AsItIs, true));
    let at_once = || view_against_writer(View::PinsUnlessHeld, true);
    holds("view pin unless held, at once", Preemptions(2), at_once);
    needs("view pin unless held, at once", &[Missing::SeqCst], Preemptions(2), at_once);
    let kinds = [Missing::Release, Missing::SeqCst];
    needs("view pin unless held", &kinds, Preemptions(3), unless_held);
    for (name, kind) in [
        ("view pin without the lock", View::PinsWithoutLock),
        ("view read unpinned", View::ReadsUnpinned),
        ("view pin not checked", View::NotLookedAt),
    ] {
        is_found(name, Preemptions(3), move || view_against_writer(kind, false));
    }
}

/// Two threads race to load a region for the first time.
fn first_load(of_one_state: bool) {
    // A short file: this model has a word for every region of a superchunk.
    let states = [
        Arc::new(PageTable::new(1).expect("a table")),
        Arc::new(PageTable::new(1).expect("a table")),
    ];
    let load = |state: &PageTable, words: u64| {
        let region = RegionIndex(0);
        if state.loaded(region).is_none() {
            let loaded = RegionState::new(words, &[words; PAGES_PER_REGION], None);
            state.insert(region, loaded).expect("memory");
        }
        let loaded = state.loaded(region).expect("just loaded");
        loaded.pin(8);
        (std::ptr::from_ref(loaded).addr(), loaded.pages[3].slice_word())
    };
    let other = thread::spawn({
        let state = Arc::clone(&states[usize::from(!of_one_state)]);
        move || load(&state, 5)
    });
    let mine = load(&states[0], 5);
    assert_eq!(mine, other.join().unwrap());
    let region = states[0].loaded(RegionIndex(0)).expect("loaded");
    assert_eq!(region.pins(8).expect("counts").load(Ordering::Relaxed), 2, "a pin was lost");
}

#[test]
fn two_threads_that_load_a_region_get_one_state() {
    holds("first load", Preemptions(2), || first_load(true));
    is_found("first load of two", Preemptions(2), || first_load(false));
}

/// Two threads race to store to a chunk for the first time.
fn first_allocation(note_before: bool) {
    let state = Arc::new(AtomicU8::new(0));
    let allocating = Arc::new(Mutex::new(()));
    let allocated = Arc::new(AtomicU64::new(0));
    let store = {
        let (state, allocating, allocated) =
            (Arc::clone(&state), Arc::clone(&allocating), Arc::clone(&allocated));
        move || {
            let done = unless_known(&allocating, &state, known::HOME, || {
                if note_before {
                    state.fetch_or(known::HOME, Ordering::Release);
                }
                allocated.store(allocated.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                state.fetch_or(known::HOME, Ordering::Release);
                Ok(())
            });
            assert!(done.is_ok());
            assert_eq!(allocated.load(Ordering::Relaxed), 1, "a store to a hole, or twice");
        }
    };
    let other = thread::spawn(store.clone());
    store();
    other.join().unwrap();
}

#[test]
fn a_chunk_is_allocated_once_and_before_the_first_store_to_it() {
    holds("first allocation", Preemptions(3), || first_allocation(false));
    needs("first allocation", &[Missing::Release, Missing::Acquire], Preemptions(3), || {
        first_allocation(false);
    });
    is_found("first allocation noted before", Preemptions(3), || first_allocation(true));
}
