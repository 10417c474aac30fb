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
//! for.
//!
//! May import `pair::allocated`, `bitmap`, `mmap`, `primitive`.

use crate::bitmap::Side;
use crate::mutant::planted;
use crate::pair::Pair;
use crate::primitive::{AtomicU64, Ordering};
use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// The least budget, without what the journal may take: the lanes, some words, and room for a few
/// operations.
const LEAST: u64 = 4 << 20;

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
    /// count, when they were measured last: lanes, log, region words, journal, snapshots.
    others: AtomicU64,
    /// Bytes that running operations may allocate.
    reserved: AtomicU64,
    /// Bytes that the largest of the waiting operations may allocate.
    waiting: AtomicU64,
    turns: Mutex<Turns>,
    changed: Condvar,
}

/// The turns in which space is given back.
#[derive(Clone, Copy, Default, Debug)]
struct Turns {
    /// Number of turns that are over.
    over: u64,
    /// `true` if the last of them found nothing to give back.
    found_nothing: bool,
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
        *turns = Turns { over: turns.over + 1, found_nothing };
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

    /// Waits for a while until a turn after turn `seen` is over. Returns `true` if that one has
    /// found nothing to give back.
    pub fn wait(&self, seen: u64) -> bool {
        let mut turns = self.turns.lock();
        if turns.over == seen {
            let _timed_out_or_woken = self.changed.wait_for(&mut turns, LOOK_EVERY);
        }
        turns.over > seen && turns.found_nothing
    }
}

impl Pair {
    /// Returns the bytes of storage that the companions have, as far as that is known.
    pub(crate) fn companions_take(&self, budget: &Budget) -> u64 {
        self.allocated.bytes(Side::Reflection) + budget.others.load(Ordering::Relaxed)
    }

    /// Reserves room for an operation that allocates at most `bytes`. Returns `None` if there is
    /// none.
    pub(crate) fn take_room<'a>(&self, budget: &'a Budget, bytes: u64) -> Option<Room<'a>> {
        let room = self.take_room_anyway(budget, bytes);
        let reserved = budget.reserved.load(Ordering::Relaxed);
        let allowed = budget.allowed.load(Ordering::Relaxed);
        let fits = self.companions_take(budget) + reserved <= allowed;
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

    /// Measures what the companions have besides slots and words. `beside` are the bytes of the
    /// files beside the reflection file.
    pub(crate) fn measure_companions(&self, budget: &Budget, beside: u64) {
        // No allocation may come between the two numbers.
        let _no_allocation = self.allocating.lock();
        let known = self.allocated.bytes(Side::Reflection);
        let of_reflection = self.reflection.storage().unwrap_or(known);
        budget.others.store(of_reflection.saturating_sub(known) + beside, Ordering::Relaxed);
    }
}
