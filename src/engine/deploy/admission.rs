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
use crate::units::{CHUNK, PAGE};
use std::ops::Range;

impl Engine {
    /// Reserves room in the budget for an operation that writes these ranges. Waits while there is
    /// none. The caller holds no lane, no lock and no gate, because the worker may need them.
    /// Returns `None` if there is no budget.
    #[inline]
    pub(in crate::engine) fn admit(
        &self,
        ranges: impl Iterator<Item = Range<u64>>,
    ) -> Result<Option<Room<'_>>> {
        match &self.budget {
            Some(budget) if !planted!(NotAdmitted) => {
                self.admit_to(budget, self.most_allocated(ranges)).map(Some)
            }
            _ => Ok(None),
        }
    }

    #[inline(never)]
    fn admit_to<'e>(&'e self, budget: &'e Budget, bytes: u64) -> Result<Room<'e>> {
        let mut found_nothing = false;
        loop {
            let seen = budget.turns();
            let room = match self.take_room(budget, bytes) {
                None if found_nothing => Some(self.take_room_anyway(budget, bytes)),
                room => room,
            };
            if room.is_none() {
                budget.note_waiting(bytes);
            }
            if room.is_none() || budget.is_due(self.companions_take(budget)) {
                self.ask_for_space();
            }
            if let Some(room) = room {
                return Ok(room);
            }
            self.lane().stats.bump(Counter::BudgetWaits, 1);
            found_nothing = budget.wait(seen);
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
