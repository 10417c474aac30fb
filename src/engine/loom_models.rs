//! Model checks of small programs over lanes, page states and allocation flags, in every execution.

use crate::bitmap::{Side, Validity};
use crate::engine::read::range::Versions;
use crate::format::entry::Sequence;
use crate::lock::{
    AllHeld, Held, lock_page, lock_pages, lock_region, try_lock_page_alone, try_lock_page_closed,
    try_lock_page_still,
};
use crate::pair::gates::Gate;
use crate::pair::log::lanes::{LaneKeeper, Lanes, next_file_number};
use crate::pair::page_table::{State, known};
use crate::pair::read_set::Watched;
use crate::pair::region::RegionState;
use crate::pair::space::unless_known;
use crate::pair::stamps::{AllSeen, HomeWord};
use crate::primitive::explore::{Preemptions, holds, is_found, needs};
use crate::primitive::ordered::Missing;
use crate::primitive::{AtomicBool, AtomicU8, AtomicU64, Mutex, Ordering, fence};
use crate::units::{LaneIndex, PAGES_PER_REGION, PageIndex, RegionIndex};
use ::loom::thread;
use std::sync::{Arc, Weak};

struct Keeper {
    lanes: Lanes,
    drained: AtomicU64,
}

impl LaneKeeper for Keeper {
    fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    fn before_release(&self, _lane: LaneIndex) {
        self.drained.store(1, Ordering::Relaxed);
    }
}

fn new_keeper() -> (Arc<Keeper>, Weak<dyn LaneKeeper>) {
    let keeper = Arc::new(Keeper { lanes: Lanes::new(), drained: AtomicU64::new(0) });
    let weak: Weak<Keeper> = Arc::downgrade(&keeper);
    (keeper, weak)
}

/// Two threads compete for one private lane. Each record number of a lane is given out once, and
/// the second owner of the lane finds it drained.
fn two_threads_one_lane(are_shared: bool) {
    let (keeper, weak) = new_keeper();
    if are_shared {
        // With the bias revoked, a thread that claims a lane runs no fence of its own.
        keeper.lanes.share();
    }
    let file = next_file_number();
    let operate = {
        let (keeper, weak) = (Arc::clone(&keeper), weak);
        move || {
            let lane = keeper.lanes.mine(file, &weak);
            let number = lane.next_undo().bits();
            let is_second = number != Sequence::FIRST.bits();
            if lane.is_private() && is_second {
                assert_eq!(keeper.drained.load(Ordering::Relaxed), 1, "handed on undrained");
            }
            (lane.index(), number)
        }
    };
    let threads = [thread::spawn(operate.clone()), thread::spawn(operate)];
    let [first, second] = threads.map(|thread| thread.join().unwrap());
    assert_ne!(first, second, "one number for two entries");
}

#[test]
fn a_lane_belongs_to_one_thread_and_is_handed_on_drained() {
    holds("lane claim", Preemptions(3), || two_threads_one_lane(false));
    holds("lane claim, shared", Preemptions(3), || two_threads_one_lane(true));
    needs("lane claim, shared", &[Missing::Release, Missing::Acquire], Preemptions(3), || {
        two_threads_one_lane(true);
    });
}

#[derive(Clone, Copy, PartialEq)]
enum LeftOut {
    Nothing,
    Pin,
    Wait,
    /// Nothing is left out, and the read section is that of a fast-path read.
    NothingAtOnce,
}

const GONE: u64 = 9;

/// One thread loads a region and reads bytes, while another thread truncates them.
fn pin_against_cut(left_out: LeftOut) {
    let (keeper, weak) = new_keeper();
    let file = next_file_number();
    let len = Arc::new(AtomicU64::new(1));
    let bytes = Arc::new(AtomicU64::new(0));
    let touched = Arc::new(AtomicU64::new(0));
    let reader = thread::spawn({
        let (keeper, len, bytes, touched) =
            (Arc::clone(&keeper), Arc::clone(&len), Arc::clone(&bytes), Arc::clone(&touched));
        move || {
            let lane = keeper.lanes.mine(file, &weak);
            let pins_at_once = left_out == LeftOut::NothingAtOnce;
            let _at_once = pins_at_once.then(|| lane.pin_at_once());
            let _pinned = (left_out != LeftOut::Pin && !pins_at_once).then(|| lane.pin());
            let in_range = len.load(Ordering::Relaxed) == 1;
            if in_range {
                touched.store(1, Ordering::Relaxed);
                assert_ne!(bytes.load(Ordering::Relaxed), GONE, "read what was cut off");
            }
            in_range
        }
    });
    len.store(0, Ordering::Relaxed);
    if left_out != LeftOut::Wait {
        keeper.lanes.wait_for_pinned();
    }
    let sees_touched = touched.load(Ordering::Relaxed) == 1;
    bytes.store(GONE, Ordering::Relaxed);
    if reader.join().unwrap() {
        assert!(sees_touched, "what was touched before the cut is not seen by who cuts");
    }
}

#[test]
fn nothing_is_cut_off_under_who_is_pinned() {
    holds("lane pin", Preemptions(3), || pin_against_cut(LeftOut::Nothing));
    let kinds = [Missing::SeqCst, Missing::Release, Missing::Acquire];
    needs("lane pin", &kinds, Preemptions(3), || pin_against_cut(LeftOut::Nothing));
    holds("lane pin at once", Preemptions(3), || pin_against_cut(LeftOut::NothingAtOnce));
    needs("lane pin at once", &kinds, Preemptions(3), || pin_against_cut(LeftOut::NothingAtOnce));
    is_found("lane pin, not pinned", Preemptions(3), || pin_against_cut(LeftOut::Pin));
    is_found("lane pin, no wait", Preemptions(3), || pin_against_cut(LeftOut::Wait));
}

/// A lane's owner records one flip record over another, while another thread asks for the first
/// record's page.
fn record_of_an_entry() {
    let (keeper, _weak) = new_keeper();
    let index = LaneIndex(0);
    // Both numbers have the same place in the ring.
    let [first, second] = [2, 4].map(Sequence::from_bits);
    keeper.lanes[index].note(first, PageIndex(7), 71);
    let owner = thread::spawn({
        let keeper = Arc::clone(&keeper);
        move || keeper.lanes[index].note(second, PageIndex(8), 81)
    });
    for (page, said) in [(7, (first, 71)), (8, (second, 81))] {
        for entry in keeper.lanes[index].live(index, PageIndex(page)) {
            assert_eq!((entry.sequence, entry.slices), said);
        }
    }
    owner.join().unwrap();
}

/// An operation of two steps, beside a thread that must see a state with both or neither.
fn operation_against_cut(passes_the_gate: bool) {
    let (keeper, weak) = new_keeper();
    let file = next_file_number();
    let steps = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let operation = thread::spawn({
        let (keeper, steps) = (Arc::clone(&keeper), Arc::clone(&steps));
        move || {
            let lane = keeper.lanes.mine(file, &weak);
            let _inside = passes_the_gate.then(|| keeper.lanes.enter(Gate::Cut, &lane));
            steps[0].store(1, Ordering::Relaxed);
            steps[1].store(1, Ordering::Relaxed);
        }
    });
    {
        let _shut = keeper.lanes.shut(Gate::Cut);
        let [first, second] = [0, 1].map(|n: usize| steps[n].load(Ordering::Relaxed));
        assert_eq!(first, second, "the cut goes through an operation");
    }
    operation.join().unwrap();
    // The gate is open again, so later operations enter it.
    assert_eq!(steps[1].load(Ordering::Relaxed), 1);
}

#[test]
fn a_cut_is_taken_while_nobody_is_inside_the_gate() {
    holds("gate", Preemptions(3), || operation_against_cut(true));
    needs("gate", &[Missing::Release, Missing::Acquire], Preemptions(3), || {
        operation_against_cut(true);
    });
    is_found("gate, not passed", Preemptions(3), || operation_against_cut(false));
}

/// A thread takes a page by plain stores in a biased section (`write::direct`). Another thread, in
/// its first operation, claims a lane and locks the page, or its region as a whole.
fn alone_beside_another(by_region: bool) {
    let (keeper, weak) = new_keeper();
    let file = next_file_number();
    let region = new_region();
    let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let count = move |counts: &[AtomicU64; 2]| {
        for count in counts {
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    };
    let threads = [true, false].map(|may_be_alone| {
        let (keeper, weak) = (Arc::clone(&keeper), weak.clone());
        let (region, counts) = (Arc::clone(&region), Arc::clone(&counts));
        thread::spawn(move || {
            let lane = keeper.lanes.mine(file, &weak);
            let lock = &region.pages[0].lock;
            if may_be_alone {
                let alone = keeper.lanes.enter_alone(&lane);
                if let Some(_held) =
                    alone.as_ref().and_then(|alone| try_lock_page_alone(lock, alone))
                {
                    return count(&counts);
                }
                // Lock as other writers do, outside the biased section. No thread waits for a
                // thread that waits.
            }
            let _held = match by_region && !may_be_alone {
                true => lock_region(&region.lock, std::iter::once(lock)),
                false => lock_page(&region.lock, lock),
            };
            count(&counts);
        })
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for count in &*counts {
        assert_eq!(count.load(Ordering::Relaxed), 2, "both at the same time");
    }
}

#[test]
fn who_is_alone_takes_a_page_by_plain_stores() {
    holds("alone, and a page", Preemptions(3), || alone_beside_another(false));
    holds("alone, and its region", Preemptions(2), || alone_beside_another(true));
    // A missing Acquire is not found, since the threads that claim the first lanes run a fence.
    let kinds = [Missing::SeqCst, Missing::Release];
    needs("alone, and a page", &kinds, Preemptions(3), || alone_beside_another(false));
}

#[test]
fn a_record_is_never_seen_with_another_entrys_slices() {
    let kinds = [Missing::Release, Missing::Acquire, Missing::ReleaseFence, Missing::AcquireFence];
    holds("entry record", Preemptions(3), record_of_an_entry);
    needs("entry record", &kinds, Preemptions(3), record_of_an_entry);
}

fn new_region() -> Arc<RegionState> {
    Arc::new(RegionState::new(0, &[0; PAGES_PER_REGION], None))
}

/// A word with two slots for its value.
#[derive(Default)]
struct Slots([AtomicU64; 2]);

impl Slots {
    fn of(&self, side: Side) -> &AtomicU64 {
        &self.0[usize::from(side == Side::Reflection)]
    }
}

/// A page flips, by its own word or by its region's, beside a reader.
fn flip(by_region_word: bool, looks_again: bool) {
    let region = new_region();
    let slots = Arc::new(Slots::default());
    let writer = thread::spawn({
        let (region, slots) = (Arc::clone(&region), Arc::clone(&slots));
        move || {
            let held = lock_page(&region.lock, &region.pages[0].lock);
            let free = region.validity(0).targets().side(0);
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
                if region.known_at_home() >> n & 1 == 1 {
                    if region.end_watch(1 << n) != 0 {
                        watched.note_change();
                    }
                    region.forget_at_home(1 << n);
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
        let is_free = !region.lock.is_held() && !region.pages[0].lock.is_held();
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
fn what_a_transaction_watches_does_not_change_unnoticed() {
    holds("watched page", Preemptions(2), || watch_against_writer(true, true));
    is_found("watched page, held", Preemptions(3), || watch_against_writer(false, true));
    is_found("watched page, no count", Preemptions(2), || watch_against_writer(true, false));
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
            let free = region.validity(0).targets().side(0);
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
fn bringing_a_page_home_changes_its_version() {
    holds("deployment", Preemptions(2), || deployment(true));
    is_found("deployment that does not close", Preemptions(2), || deployment(false));
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
                    HomeWord::of(&word).clear();
                }
                let free = region.validity(0).targets().side(0);
                slots.iter().for_each(|word| word.of(free).store(value, Ordering::Relaxed));
                held.close();
                region.set_slice_word(0, region.pages[0].slice_word() ^ 1);
            }
        }
    });
    let finder = thread::spawn({
        let (region, word) = (Arc::clone(&region), Arc::clone(&word));
        move || {
            if let Some(_held) = try_lock_page_still(&region.lock, &region.pages[0].lock)
                && region.validity(0) == Validity(0)
            {
                HomeWord::of(&word).set();
            }
        }
    });
    let read = || {
        let word = HomeWord::of(&word);
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
fn who_reads_a_page_by_its_word_sees_one_state() {
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
            let held = try_lock_page_closed(&region.lock, &region.pages[0].lock);
            let held = held.expect("nobody else locks");
            HomeWord::of(&word).clear();
            if fences {
                fence(Ordering::Release);
            }
            bytes.iter().for_each(|byte| byte.store(1, Ordering::Relaxed));
            drop(held);
        }
    });
    let word = HomeWord::of(&word);
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
            HomeWord::of(&word).clear();
            held.close();
            bytes.iter().for_each(|byte| byte.store(1, Ordering::Relaxed));
        }
    });
    let word = HomeWord::of(&word);
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
                let mut held = AllHeld::new();
                lock_pages(&region.lock, region.pages[PAGES].iter().map(|p| &p.lock), &mut held);
                let taken = region.try_take_word();
                assert!(taken.is_some(), "there is nobody else");
                let valid = region.find_valid_side(PAGES).expect("both flip together");
                slots.iter().for_each(|s| s.of(valid.other()).store(value, Ordering::Relaxed));
                held.iter().for_each(Held::close);
                if by_region_word {
                    region.flip_region_bits(0b11);
                } else {
                    PAGES.for_each(|n| region.set_slice_word(n, !region.pages[n].slice_word()));
                }
            }
        }
    });
    if let Some(seen) = Versions::begin(&region, PAGES)
        && let Some(side) = region.valid_side(PAGES)
    {
        let [a, b] = [0, 1].map(|n: usize| slots[n].of(side).load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if seen.are_still(&region, PAGES) || !looks_again {
            assert_eq!(a, b, "half of it");
            assert_eq!(a == 1, side == Side::Reflection, "the side of another state");
        }
    }
    writer.join().unwrap();
}

#[test]
fn who_reads_pages_on_one_side_sees_one_state() {
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
            words.iter().for_each(|word| HomeWord::of(word).clear());
            held.iter().for_each(Held::close);
            bytes.iter().for_each(|byte| byte.store(1, Ordering::Relaxed));
            drop(held);
            for (n, word) in words.iter().enumerate() {
                if let Some(_held) = try_lock_page_still(&region.lock, &region.pages[n].lock) {
                    HomeWord::of(word).set();
                }
            }
        }
    });
    let look = || AllSeen::begin(words.iter().map(|word| Some(HomeWord::of(word))));
    if let Some(seen) = look() {
        let [a, b] = [0, 1].map(|n| bytes[n].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        assert!(!seen.are_still(look()) || a == b, "half of it");
    }
    writer.join().unwrap();
}

#[test]
fn who_reads_pages_by_their_words_sees_one_state() {
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
    let noted = |region: &RegionState| region.known_at_home_after_fence() & 1 != 0;
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
                HomeWord::of(&word).clear();
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
            if let Some(_held) = try_lock_page_still(&region.lock, &region.pages[0].lock) {
                region.note_at_home(0);
                if !cutting.load(Ordering::SeqCst) && len.load(Ordering::SeqCst) == 1 {
                    HomeWord::of(&word).set();
                } else {
                    region.forget_at_home(1);
                }
            }
        }
    });
    if len.load(Ordering::SeqCst) == 0 {
        assert!(HomeWord::of(&word).begin().is_none(), "read past the end");
    }
    reader.join().unwrap();
    cutter.join().unwrap();
    assert!(HomeWord::of(&word).begin().is_none(), "known past the end");
}

#[test]
fn no_page_past_the_end_is_known() {
    holds("cut page", Preemptions(3), || cut_page(true, true));
    needs("cut page", &[Missing::SeqCst], Preemptions(3), || cut_page(true, true));
    is_found("cut page, nobody says so", Preemptions(3), || cut_page(false, true));
    is_found("cut page, nobody waits", Preemptions(3), || cut_page(true, false));
}

/// Writers of two pages flip bits of one region word. Only one of them has the word locked; the
/// other does not wait for it. `drained` is what is durable: stored and then drained.
fn neighbours(takes_word: bool) {
    let region = new_region();
    let (medium, drained) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let flip = move |region: &RegionState, medium: &AtomicU64, drained: &AtomicU64, n: usize| {
        let held = lock_page(&region.lock, &region.pages[n].lock);
        let taken = region.try_take_word();
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
fn two_that_flip_bits_of_one_region_word_do_it_one_after_the_other() {
    holds("neighbours", Preemptions(3), || neighbours(true));
    needs("neighbours", &[Missing::Acquire, Missing::Release], Preemptions(3), || neighbours(true));
    is_found("neighbours, who do not take it", Preemptions(3), || neighbours(false));
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
            if at_once && let Some(held) = try_lock_page_closed(&region.lock, page) {
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
        if !region.pin_unless_held(0) {
            return writer.join().unwrap();
        }
    } else {
        let _held: Option<Held<'_>> =
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
fn what_a_view_pins_does_not_change() {
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
        ("view pin not looked at", View::NotLookedAt),
    ] {
        is_found(name, Preemptions(3), move || view_against_writer(kind, false));
    }
}

/// Two threads race to load a region for the first time.
fn first_touch(of_one_state: bool) {
    // A short file: this model has a word for every region of a superchunk.
    let states = [Arc::new(State::new(1)), Arc::new(State::new(1))];
    let touch = |state: &State, words: u64| {
        let region = RegionIndex(0);
        if state.touched(region).is_none() {
            state.touch(region, RegionState::new(words, &[words; PAGES_PER_REGION], None));
        }
        let touched = state.touched(region).expect("just touched");
        touched.pin(8);
        (std::ptr::from_ref(touched).addr(), touched.pages[3].slice_word())
    };
    let other = thread::spawn({
        let state = Arc::clone(&states[usize::from(!of_one_state)]);
        move || touch(&state, 5)
    });
    let mine = touch(&states[0], 5);
    assert_eq!(mine, other.join().unwrap());
    let region = states[0].touched(RegionIndex(0)).expect("touched");
    assert_eq!(region.pins(8).load(Ordering::Relaxed), 2, "a pin was lost");
}

#[test]
fn who_comes_first_to_a_region_and_who_comes_second_have_one_state() {
    holds("first touch", Preemptions(2), || first_touch(true));
    is_found("first touch of two", Preemptions(2), || first_touch(false));
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
            let done = unless_known(&allocating, &state, known::HOME, |_| {
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
fn a_chunk_is_allocated_once_and_before_anybody_stores_to_it() {
    holds("first allocation", Preemptions(3), || first_allocation(false));
    needs("first allocation", &[Missing::Release, Missing::Acquire], Preemptions(3), || {
        first_allocation(false);
    });
    is_found("first allocation noted before", Preemptions(3), || first_allocation(true));
}
