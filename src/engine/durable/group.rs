//! Group commit of durable points: one thread leads a turn, and the others wait for it.
//!
//! Calls that arrive while a point is being made share the next one.
//!
//! May import `plan`, `pair`, and what lies below them.

use crate::engine::Engine;
use crate::engine::durable::Durable;
use crate::engine::durable::point::CutGate;
use crate::error::{Error, Result};
use crate::mutant::{planted, unless};

/// The turns of threads that make durable points. One thread leads a turn, and the others wait for
/// it.
#[derive(Default)]
pub(in crate::engine) struct Turns {
    /// Number of turns that were begun.
    pub(super) begun: u64,
    /// Number of turns that have ended, with a durable point or without.
    over: u64,
    /// The last turn that made a durable point.
    made: u64,
}

/// A guard of the thread that leads the current turn.
pub(super) struct Leader<'e> {
    pub(super) durable: &'e Durable,
    pub(super) has_ended: bool,
}

impl Leader<'_> {
    /// Ends the turn, and wakes the threads that wait for it.
    pub(super) fn end(&mut self, is_made: bool) {
        self.has_ended = true;
        let mut turns = self.durable.turns.lock();
        turns.over = turns.begun;
        if is_made {
            turns.made = turns.begun;
        }
        self.durable.turn_is_over.notify_all();
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        // Dropped by a panic: the threads that wait for this turn must not wait for ever.
        if !self.has_ended && !planted!(CutOffLeadStays) {
            self.end(false);
        }
    }
}

impl Durable {
    /// Returns the number of the first durable point that holds everything that had returned when
    /// this was called. The turn that is under way may have taken its cut already.
    pub fn next_number(&self) -> u64 {
        self.turns.lock().begun + u64::from(!planted!(NumberTooEarly))
    }

    /// Returns the number of the last durable point that a turn has made, 0 if there is none.
    pub fn durable_number(&self) -> u64 {
        self.turns.lock().made
    }
}

impl Engine {
    /// Makes a durable point that holds everything that had returned when this was called, and
    /// returns its number.
    pub(in crate::engine) fn durable_point(&self, durable: &Durable) -> Result<u64> {
        self.durable_point_of(durable, u64::MAX, |_| ())
    }

    /// Returns once the durable point of this number is made, or a later one. Returns the number of
    /// the last one. A number above that of the next point stands for the next point.
    ///
    /// Calls that arrive while a point is being made share the next one: one of them leads, the
    /// others wait. The error of a point that this thread leads is passed to `on_failure` before
    /// another point can be made.
    pub(super) fn durable_point_of(
        &self,
        durable: &Durable,
        number: u64,
        on_failure: impl Fn(&Error),
    ) -> Result<u64> {
        // A waiting thread must not keep its lane. Shared lanes are few, and the leader and the
        // writers need them.
        let _lane = planted!(FollowersKeepLanes).then(|| self.lane());
        let mut turns = durable.turns.lock();
        // A cut that was begun before may lack what this thread has written.
        let mine = number.min(turns.begun + 1);
        while turns.made < mine {
            if turns.begun > turns.over {
                durable.turn_is_over.wait(&mut turns);
                continue;
            }
            // No thread leads. A turn that failed made nothing for the threads that waited for it.
            turns.begun += 1;
            let number = turns.begun;
            drop(turns);
            let mut lead = Leader { durable, has_ended: false };
            #[cfg(feature = "tracing")]
            let begun = std::time::Instant::now();
            // The leader may have to wait for a lane here. That wait ends, because a thread that
            // has a lane never waits for a turn.
            let lane = self.lane();
            let result = {
                // The cut has one length, and no thread finishes a truncation meanwhile.
                let _no_resizing = self.resizing.read();
                let made = self.make_durable_point(&lane, durable, CutGate::Open);
                made.inspect_err(|error| unless!(FailureToldLate, on_failure(error)))
            };
            drop(lane);
            #[cfg(feature = "tracing")]
            crate::events::note_point(self.home.path(), number, begun.elapsed());
            lead.end(result.is_ok() || planted!(FailedTurnCounts));
            if planted!(FailureToldLate) {
                return result.map(|()| number).inspect_err(on_failure);
            }
            return result.map(|()| number);
        }
        Ok(turns.made)
    }

    /// Parks the calling thread until the durable point that is being made is over, and returns
    /// `true` if there was one. The caller has no lane and is inside no gate: the thread that makes
    /// the point may need a lane, and closes a gate.
    #[cold]
    pub(in crate::engine) fn wait_for_point(&self) -> bool {
        let Some(durable) = &self.durable else { return false };
        let mut turns = durable.turns.lock();
        let turn = turns.begun;
        let is_being_made = turn > turns.over;
        while turns.over < turn {
            durable.turn_is_over.wait(&mut turns);
        }
        is_being_made
    }
}
