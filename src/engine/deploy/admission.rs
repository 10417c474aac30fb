//! Admission of operations by the budget of the companions' storage.
//!
//! An operation reserves room for what it may allocate before it takes a lane or a lock. Without
//! room it waits until the worker has given back space. If there is nothing to give back, the
//! operation goes on beyond the budget: a budget delays writers, and never fails them.
//!
//! May import `commit`, `durable`, `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::span;
use crate::engine::Engine;
use crate::engine::worker::Request;
use crate::error::Result;
use crate::format::layout;
use crate::mutant::planted;
use crate::pair::budget::{Budget, Room};
use crate::pair::stats::Counter;
use crate::primitive::Ordering;
use crate::units::{CHUNK, PAGE};
use std::ops::Range;

impl Engine {
    /// Reserves room in the budget for an operation that writes these ranges. Waits while there is
    /// none, in the order of arrival. Before that it lets a transaction pass that has the turn. The
    /// caller holds no lane, no lock and no gate, because the worker may need them. Returns `None`
    /// if there is no budget.
    #[inline]
    pub(in crate::engine) fn admit(
        &self,
        ranges: impl Iterator<Item = Range<u64>>,
    ) -> Result<Option<Room<'_>>> {
        if self.session.turn.load(Ordering::Relaxed) {
            self.let_turn_pass();
        }
        match &self.budget {
            Some(budget) if !planted!(NotAdmitted) => {
                self.admit_to(budget, self.most_allocated(ranges)).map(Some)
            }
            _ => Ok(None),
        }
    }

    #[inline(never)]
    fn admit_to<'e>(&'e self, budget: &'e Budget, bytes: u64) -> Result<Room<'e>> {
        // An operation that arrives goes ahead of those that wait if the first one still has room.
        let left = if planted!(BudgetWithoutQueue) { 0 } else { budget.kept_for_first() };
        let room = self.take_room(budget, bytes, left);
        let room = room.map_or_else(|| self.wait_for_room(budget, bytes), Ok)?;
        if budget.is_due(self.companions_take(budget)) {
            self.ask_for_space();
        }
        Ok(room)
    }

    /// Waits in the queue until there is room, or until there is nothing to give back for it.
    #[cold]
    fn wait_for_room<'e>(&'e self, budget: &'e Budget, bytes: u64) -> Result<Room<'e>> {
        let place = budget.queue(bytes);
        let mut found_nothing = false;
        loop {
            let seen = budget.turns();
            let is_first = budget.is_first(&place) || planted!(BudgetWithoutQueue);
            let room = match is_first {
                true if found_nothing => Some(self.take_room_anyway(budget, bytes)),
                true => self.take_room(budget, bytes, 0),
                false => None,
            };
            if let Some(room) = room {
                return Ok(room);
            }
            if is_first {
                budget.note_waiting(bytes);
                self.ask_for_space();
            }
            self.lane().stats.bump(Counter::BudgetWaits, 1);
            // A turn for another operation says nothing about this one.
            found_nothing = budget.wait(&place, is_first, seen) && is_first;
            self.check_usable()?;
        }
    }

    /// Lets the worker give back space. Does so in this thread if there is no worker.
    #[cold]
    pub(super) fn ask_for_space(&self) {
        if !self.worker.request(Request::Space) {
            while !self.give_back_batch() {}
        }
    }

    /// Returns the most bytes that an operation over these ranges allocates in the companions: a
    /// slot for each page, and the words of each chunk.
    fn most_allocated(&self, ranges: impl Iterator<Item = Range<u64>>) -> u64 {
        let sums = if self.has_sums() { layout::CHUNK_SUMS_LEN } else { 0 };
        let words = PAGE as u64 * (1 + u64::from(self.keeps_points)) + sums;
        let of = |range: Range<u64>| {
            let pages = span::pages(range.clone()).count() as u64;
            let chunks = range.end.div_ceil(CHUNK as u64) - range.start / CHUNK as u64;
            pages * PAGE as u64 + chunks * words
        };
        ranges.map(of).sum()
    }

    /// Measures the storage of the companions for the first time, and asks for space to be given
    /// back if an earlier session has left too much.
    pub(crate) fn begin_budget(&self) {
        let Some(budget) = &self.budget else { return };
        self.measure(budget);
        if budget.is_due(self.companions_take(budget)) {
            self.ask_for_space();
        }
    }
}
