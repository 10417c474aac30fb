//! The budget of the companions' storage: its limits, and what counts against it.
//!
//! Marks, from low to high: down to `low` the worker gives space back. It is asked to each time the
//! companions have grown by a sixteenth of the budget. From `early` on nothing is allocated ahead
//! of need, from `urgent` on pages need not be cold, and beyond `limit` an operation waits. If
//! there is nothing to give back, the limit rises a little until there is. So a writer does not
//! wait in vain for each operation.
//!
//! Invariant: what running operations may allocate is reserved before they take a lock. So the sum
//! of storage and reservations passes `limit` only for an operation that no space can be given back
//! for. Operations that wait get their rooms in the order of arrival. An operation that arrives
//! while others wait takes a room if the first of those still has room beside it, so a large one
//! does not starve beside small ones.
//!
//! May import `pair::allocated`, `bitmap`, `format::layout`, `mmap`, `primitive`, `units`.

use crate::bitmap::Side;
use crate::format::layout;
use crate::mutant::planted;
use crate::pair::Pair;
use crate::primitive::{AtomicU64, Ordering};
use crate::units::PAGE;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::Duration;

/// The least budget, without what the journal may take: the lanes, some words, and room for a few
/// operations.
const LEAST: u64 = 4 << 20;

/// Bytes by which the file system's tree of the reflection file's extents may grow between two
/// measurements, at least: a few of its blocks.
const TREE: u64 = 4 * PAGE as u64;

/// The part of the budget by which it may grow in addition. The worker measures each time the
/// companions have grown by a sixteenth. If every page of that is an extent, the tree has grown by
/// a block for each 170 of them, since a block of 340 entries may be half full.
const TREE_PART: u64 = 16 * 170;

/// Longest time until a waiting thread looks for itself.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The budget of one file. On simulated machines no thread waits, so the lock is a real one.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    /// Bytes from which on an operation waits: the limit, or more if nothing can be given back.
    allowed: AtomicU64,
    /// Bytes from which on the worker is asked.
    ask_at: AtomicU64,
    /// Bytes of the companions that [`Allocated`](crate::pair::allocated::Allocated) does not
    /// count: lanes, log, region words, journal, snapshots. As measured last, with what was noted
    /// since then.
    others: AtomicU64,
    /// Bytes that running operations may allocate.
    reserved: AtomicU64,
    /// Bytes that the largest of the waiting operations may allocate.
    waiting: AtomicU64,
    /// Bytes that the first operation of the queue may allocate, for those that arrive.
    first: AtomicU64,
    turns: Mutex<Turns>,
    changed: Condvar,
}

/// The turns in which space is given back, and the operations that wait for them.
#[derive(Default, Debug)]
struct Turns {
    /// Number of turns that are over.
    over: u64,
    /// `true` if the last of them found nothing to give back.
    found_nothing: bool,
    /// The numbers of the waiting operations and the bytes that they may allocate, in the order of
    /// their arrival.
    queue: VecDeque<(u64, u64)>,
    /// The number of the last operation that has waited.
    last: u64,
}

/// The place of an operation in the queue. Dropping it lets the next one try.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    budget: &'a Budget,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut turns = self.budget.turns.lock();
        turns.queue.retain(|(number, _)| *number != self.number);
        self.budget.note_first(&turns);
        self.budget.changed.notify_all();
    }
}

/// Room in the budget for one operation. Dropping it ends the reservation.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.budget.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Budget {
    /// Makes a budget of `bytes`, or of the least that serves beside a journal of `journal` bytes.
    pub fn new(bytes: u64, journal: u64) -> Self {
        let limit = bytes.max(LEAST + 2 * journal);
        Budget {
            limit,
            allowed: AtomicU64::new(limit),
            ask_at: AtomicU64::new(limit / 2),
            others: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            first: AtomicU64::new(0),
            turns: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Returns the bytes of the longest journal that a budget of `bytes` has room for.
    pub fn longest_journal(bytes: u64) -> u64 {
        bytes.saturating_sub(LEAST) / 2
    }

    /// Returns the bytes down to which space is given back: fewer if a large operation waits.
    pub fn low(&self) -> u64 {
        let waiting = self.waiting.load(Ordering::Relaxed);
        (self.limit / 8 * 5).min(self.limit.saturating_sub(waiting))
    }

    /// Returns the bytes from which on nothing is allocated ahead of need.
    pub fn early(&self) -> u64 {
        self.limit / 4 * 3
    }

    /// Returns `true` if companions of `taken` bytes take too many for a turn to begin.
    pub fn is_tight(&self, taken: u64) -> bool {
        taken > self.limit / 2 || self.waiting.load(Ordering::Relaxed) != 0
    }

    /// Returns `true` if the worker has to be asked, where the companions take `taken` bytes.
    #[inline]
    pub fn is_due(&self, taken: u64) -> bool {
        taken > self.ask_at.load(Ordering::Relaxed)
    }

    /// Returns `true` if companions of `taken` bytes leave no time to find the cold pages.
    pub fn is_urgent(&self, taken: u64) -> bool {
        taken > self.limit / 16 * 15 || self.waiting.load(Ordering::Relaxed) != 0
    }

    /// Ends a turn that has left the companions with `taken` bytes, and wakes the threads that
    /// wait.
    pub fn end_turn(&self, found_nothing: bool, taken: u64) {
        let more = taken + self.limit / 16;
        let allowed = if found_nothing { self.limit.max(more) } else { self.limit };
        self.allowed.store(allowed, Ordering::Relaxed);
        self.waiting.store(0, Ordering::Relaxed);
        self.ask_at.store(more.max(self.limit / 8 * 5), Ordering::Relaxed);
        let mut turns = self.turns.lock();
        turns.over += 1;
        turns.found_nothing = found_nothing;
        self.changed.notify_all();
    }

    /// Returns the number of turns that are over.
    pub fn turns(&self) -> u64 {
        self.turns.lock().over
    }

    /// Notes that an operation that may allocate `bytes` is about to wait.
    pub fn note_waiting(&self, bytes: u64) {
        self.waiting.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Returns `true` if an operation has noted that it waits, and no turn has ended since then.
    pub fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// Returns the bytes that an operation leaves to the first one of the queue when it arrives.
    #[inline]
    pub fn kept_for_first(&self) -> u64 {
        self.first.load(Ordering::Relaxed)
    }

    fn note_first(&self, turns: &Turns) {
        let bytes = turns.queue.front().map_or(0, |(_, bytes)| *bytes);
        self.first.store(bytes, Ordering::Relaxed);
    }

    /// Enters the queue of the waiting operations with one that may allocate `bytes`.
    pub fn queue(&self, bytes: u64) -> Place<'_> {
        let mut turns = self.turns.lock();
        turns.last += 1;
        let number = turns.last;
        turns.queue.push_back((number, bytes));
        self.note_first(&turns);
        Place { budget: self, number }
    }

    /// Returns `true` if the operation is the first one of the queue.
    pub fn is_first(&self, place: &Place<'_>) -> bool {
        self.turns.lock().is_first(place)
    }

    /// Waits for a while until a turn after turn `seen` is over, or until an operation that was not
    /// the first one of the queue is. Returns `true` if that turn has found nothing to give back.
    pub fn wait(&self, place: &Place<'_>, was_first: bool, seen: u64) -> bool {
        let mut turns = self.turns.lock();
        let is_first = turns.is_first(place);
        if turns.over == seen && (was_first || !is_first) {
            let _timed_out_or_woken = self.changed.wait_for(&mut turns, LOOK_EVERY);
        }
        turns.over > seen && turns.found_nothing
    }
}

impl Turns {
    fn is_first(&self, place: &Place<'_>) -> bool {
        self.queue.front().is_some_and(|(number, _)| *number == place.number)
    }
}

impl Pair {
    /// Returns the bytes of storage that the companions have, as far as that is known.
    pub(crate) fn companions_take(&self, budget: &Budget) -> u64 {
        self.allocated.bytes(Side::Reflection) + budget.others.load(Ordering::Relaxed)
    }

    /// Reserves room for an operation that allocates at most `bytes`. Returns `None` if there is
    /// none, or if less than `left` bytes would be left.
    pub(crate) fn take_room<'a>(
        &self,
        budget: &'a Budget,
        bytes: u64,
        left: u64,
    ) -> Option<Room<'a>> {
        let room = self.take_room_anyway(budget, bytes);
        let reserved = budget.reserved.load(Ordering::Relaxed);
        let allowed = budget.allowed.load(Ordering::Relaxed);
        let fits = self.companions_take(budget) + reserved + left <= allowed;
        (fits || planted!(BudgetNotHeeded)).then_some(room)
    }

    /// Reserves room for an operation beyond the limit: no space can be given back for it.
    pub(crate) fn take_room_anyway<'a>(&self, budget: &'a Budget, bytes: u64) -> Room<'a> {
        budget.reserved.fetch_add(bytes, Ordering::Relaxed);
        Room { budget, bytes }
    }

    /// Returns `true` if `bytes` may be allocated ahead of need.
    pub(crate) fn may_allocate_ahead(&self, bytes: u64) -> bool {
        self.budget.as_ref().is_none_or(|budget| {
            self.companions_take(budget) + bytes <= budget.early() || planted!(AheadOfBudget)
        })
    }

    /// Counts storage that the reflection file has got and
    /// [`Allocated`](crate::pair::allocated::Allocated) does not count, until the next measurement.
    pub(crate) fn note_others(&self, bytes: u64) {
        if let Some(budget) = &self.budget {
            budget.others.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Measures what the companions have besides slots and words, and adds what no operation
    /// reserves: the growth of the file system's tree, and the region words of one superchunk.
    /// `beside` are the bytes of the files beside the reflection file.
    pub(crate) fn measure_companions(&self, budget: &Budget, beside: u64) {
        // No allocation may come between the two numbers.
        let _no_allocation = self.allocating.lock();
        let known = self.allocated.bytes(Side::Reflection);
        let of_reflection = self.reflection.storage().unwrap_or(known);
        let others = of_reflection.saturating_sub(known) + beside;
        let slack = TREE + budget.limit / TREE_PART + layout::REGION_WORDS_LEN;
        budget.others.store(others + slack, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn operations_that_wait_are_served_in_the_order_of_their_arrival() {
        let budget = Budget::new(1 << 30, 0);
        assert_eq!(budget.kept_for_first(), 0);
        let [large, small, third] = [900, 1, 20].map(|bytes| budget.queue(bytes));
        assert!(budget.is_first(&large) && !budget.is_first(&small));
        drop(small);
        assert!(!budget.is_first(&third));
        assert_eq!(budget.kept_for_first(), 900);
        drop(large);
        assert!(budget.is_first(&third), "the one before it has given up");
        assert_eq!(budget.kept_for_first(), 20);
        // It was not the first one when it looked, so it does not wait.
        assert!(!budget.wait(&third, false, budget.turns()));
        drop(third);
        assert_eq!(budget.kept_for_first(), 0);
    }
}
