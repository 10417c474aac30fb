//! How is a thread held in the middle of an operation, until another one has done something?
//!
//! Owns: [`Stops`], places at which threads of a simulated machine wait to be let go. Nobody waits for
//! ever: if the rule under test is that one thread waits for the other, the one that is held goes on
//! after [`PATIENCE`].

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a thread is held at most.
pub const PATIENCE: Duration = Duration::from_millis(400);

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
        self.lock().push(Stop { thread, access, step: Step::Armed });
    }

    /// Waits until the thread is there. False: it did not come.
    pub fn wait_for(&self, thread: u64) -> bool {
        let end = Instant::now() + 20 * PATIENCE;
        let mut all = self.lock();
        while !all.iter().any(|stop| stop.thread == thread && stop.step == Step::Reached) {
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
        all.iter_mut().filter(|stop| stop.thread == thread).for_each(|s| s.step = Step::LetGo);
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
        all.retain(|stop| !mine(stop));
    }
}
