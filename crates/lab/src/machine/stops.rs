//! How is a thread held in the middle of an operation, until another one has done something?
//!
//! Owns: [`Stops`], places at which threads of a simulated machine wait to be let go. Nobody waits for
//! ever: if the rule under test is that one thread waits for the other, the one that is held goes on
//! after [`PATIENCE`].

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a thread is held at most.
pub const PATIENCE: Duration = Duration::from_millis(400);
/// After which a thread is taken for one that never comes: more than any load of the machine costs.
const NEVER_COMES: Duration = Duration::from_secs(600);

/// What a thread is about to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Flush one word.
    FlushOfWord,
    /// Compare and swap a word.
    CompareExchange,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Armed,
    Reached,
    LetGo,
    Passed,
}

#[derive(Debug)]
struct Stop {
    thread: u64,
    access: Access,
    step: Step,
}

/// The places of one machine.
#[derive(Default, Debug)]
pub struct Stops {
    all: Mutex<Vec<Stop>>,
    changed: Condvar,
}

impl Stops {
    fn lock(&self) -> MutexGuard<'_, Vec<Stop>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds the thread (see `world::be_thread`) before the next access of this kind.
    pub fn arm(&self, thread: u64, access: Access) {
        let mut all = self.lock();
        all.retain(|stop| stop.thread != thread || stop.step != Step::Passed);
        all.push(Stop { thread, access, step: Step::Armed });
    }

    /// Waits until the thread is there, or was. False: it did not come.
    pub fn wait_for(&self, thread: u64) -> bool {
        let end = Instant::now() + NEVER_COMES;
        let has_come = |stop: &Stop| {
            stop.thread == thread && matches!(stop.step, Step::Reached | Step::Passed)
        };
        let mut all = self.lock();
        while !all.iter().any(has_come) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            all = self.changed.wait_timeout(all, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Lets the thread go.
    pub fn let_go(&self, thread: u64) {
        let mut all = self.lock();
        let is_held = |stop: &&mut Stop| stop.thread == thread && stop.step != Step::Passed;
        all.iter_mut().filter(is_held).for_each(|stop| stop.step = Step::LetGo);
        self.changed.notify_all();
    }

    /// Called by every access.
    pub(super) fn pass(&self, thread: u64, access: Access) {
        let mut all = self.lock();
        let mine = |stop: &Stop| stop.thread == thread && stop.access == access;
        let Some(stop) = all.iter_mut().find(|stop| mine(stop) && stop.step == Step::Armed) else {
            return;
        };
        stop.step = Step::Reached;
        self.changed.notify_all();
        let end = Instant::now() + PATIENCE;
        while !all.iter().any(|stop| mine(stop) && stop.step == Step::LetGo) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            all = self.changed.wait_timeout(all, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let has_passed = |stop: &&mut Stop| mine(stop) && stop.step != Step::Armed;
        all.iter_mut().filter(has_passed).for_each(|stop| stop.step = Step::Passed);
    }
}
