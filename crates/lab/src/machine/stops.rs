//! Places at which a thread is held in the middle of an operation, until another thread has done
//! something.
//!
//! Owns: [`Stops`], the places at which threads of a simulated machine wait to be released. No
//! thread waits forever: a thread under test may have to wait for the held one, so the held one
//! continues after [`PATIENCE`].

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum time for which a thread is held.
pub const PATIENCE: Duration = Duration::from_millis(400);
/// Time after which a thread counts as never arriving, longer than any load of the machine costs.
const NEVER_COMES: Duration = Duration::from_secs(600);

/// The next access of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A flush of one word.
    FlushOfWord,
    /// A compare-and-swap of a word.
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

    /// Holds the thread before its next access of this kind (see `world::be_thread`).
    pub fn arm(&self, thread: u64, access: Access) {
        let mut all = self.lock();
        all.retain(|stop| stop.thread != thread || stop.step != Step::Passed);
        all.push(Stop { thread, access, step: Step::Armed });
    }

    /// Waits until the thread reaches or has passed its place. Returns `false` if it did not
    /// arrive.
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

    /// Releases the thread.
    pub fn let_go(&self, thread: u64) {
        let mut all = self.lock();
        let is_held = |stop: &&mut Stop| stop.thread == thread && stop.step != Step::Passed;
        all.iter_mut().filter(is_held).for_each(|stop| stop.step = Step::LetGo);
        self.changed.notify_all();
    }

    /// Holds the thread if a place is armed for this access. Every access calls it.
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
