//! The waiters of `flush_async`: futures that wait for a durable point without a thread of their
//! own.
//!
//! Owns: the list of waiters, and the rule by which they get their results.
//!
//! Invariants:
//! - A waiter on the list has a request to the worker behind it, or the thread that put it
//!   there serves it.
//! - A thread that takes waiters off the list gives each of them a result, even if it panics.
//!
//! So every waiter gets a result, unless the worker dies: `poison_by_panic` then fails those on the
//! list, and a waiter that comes later finds the handle poisoned. May import `plan`, `pair`, and
//! what lies below them.

use crate::config::shielded;
use crate::engine::Engine;
use crate::engine::durable::Durable;
use crate::engine::worker::Request;
use crate::error::{Error, Result, SYNC_FOR_A_POINT};
use crate::mutant::planted;
use crate::primitive::Mutex;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A future that waits for a durable point.
pub(crate) struct Waiter {
    state: Mutex<State>,
}

struct State {
    /// The task that is woken by the result.
    waker: Option<Waker>,
    /// The number of the durable point that was made. Taken by the future.
    result: Option<Result<u64>>,
}

impl Waiter {
    fn resolve(&self, result: Result<u64>) {
        let waker = {
            let mut state = self.state.lock();
            state.result = Some(result);
            state.waker.take()
        };
        // After the lock is open: the task may run at once, in this thread.
        if let Some(waker) = waker {
            shielded(|| waker.wake());
        }
    }
}

/// The waiters that the next request serves.
pub(super) type Waiters = Mutex<Vec<Arc<Waiter>>>;

/// Waiters that were taken off the list, and get their results by the thread that holds this.
struct Served<'e> {
    engine: &'e Engine,
    waiters: Vec<Arc<Waiter>>,
}

impl Served<'_> {
    fn resolve(&mut self, result: &Result<u64>) {
        for waiter in self.waiters.drain(..) {
            waiter.resolve(result.clone());
        }
    }
}

impl Drop for Served<'_> {
    /// A panic drops it before the waiters have a result.
    fn drop(&mut self) {
        if !self.waiters.is_empty() {
            self.resolve(&Err(self.engine.why_no_point()));
        }
    }
}

impl Engine {
    /// Polls for the durable point of this number. `waiter` belongs to the future, and is empty at
    /// first.
    ///
    /// Makes the point in this call if no worker thread can be started.
    pub fn poll_durable(
        &self,
        number: u64,
        waiter: &mut Option<Arc<Waiter>>,
        context: &Context<'_>,
    ) -> Poll<Result<u64>> {
        if let Some(waiter) = waiter {
            let mut state = waiter.state.lock();
            if let Some(result) = state.result.take() {
                return Poll::Ready(result);
            }
            state.waker = Some(context.waker().clone());
        }
        self.check_usable()?;
        let Some(durable) = &self.durable else { return Poll::Ready(Ok(0)) };
        let made = durable.durable_number();
        if made >= number {
            return Poll::Ready(Ok(made));
        }
        if waiter.is_some() {
            return Poll::Pending;
        }
        let state = State { waker: Some(context.waker().clone()), result: None };
        let new = waiter.insert(Arc::new(Waiter { state: Mutex::new(state) }));
        durable.waiters.lock().push(Arc::clone(new));
        // Listed first: the worker may take the list as soon as it has the request.
        if !self.worker.request(Request::Flush) {
            self.flush_for_waiters();
        }
        // After the list: if the worker dies before this check, the handle is poisoned. If it dies
        // later, it finds this waiter.
        self.check_usable()?;
        // The point may be made by now, in this call or by the worker.
        match new.state.lock().result.take() {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        }
    }

    /// Makes a durable point for all waiters that are on the list, and gives them its result. A
    /// waiter that comes later has a request of its own.
    pub(in crate::engine) fn flush_for_waiters(&self) {
        let Some(durable) = &self.durable else { return };
        let mut served = Served { engine: self, waiters: durable.take_waiters() };
        if planted!(FlushResolvedEarly) {
            served.resolve(&Ok(durable.durable_number()));
        }
        // The list was taken first, so this point has the operations before each of its numbers.
        let result = self.sync();
        served.resolve(&result);
    }

    /// Poisons the handle because a panic has ended the worker thread, and fails the waiters that
    /// it will not serve.
    pub(in crate::engine) fn poison_by_panic(&self) {
        self.poison_cut_off(&self.panicked());
        if let Some(durable) = &self.durable
            && !planted!(PanicUnheardByWaiters)
        {
            let mut served = Served { engine: self, waiters: durable.take_waiters() };
            served.resolve(&Err(self.why_no_point()));
        }
    }

    /// Returns the error of a waiter that no durable point was made for.
    fn why_no_point(&self) -> Error {
        self.check_usable().err().unwrap_or_else(|| self.panicked())
    }

    fn panicked(&self) -> Error {
        let cause = std::io::Error::other("a panic has ended the thread that makes durable points");
        Error::io(SYNC_FOR_A_POINT, self.home.path(), cause)
    }
}

impl Durable {
    fn take_waiters(&self) -> Vec<Arc<Waiter>> {
        std::mem::take(&mut *self.waiters.lock())
    }
}
