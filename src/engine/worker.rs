//! The worker: one background thread a file, for work that no caller waits for.
//!
//! Owns: the queue of requests, the timers, and the thread that serves both. The thread starts with
//! the first request or timer, and ends when the file is closed. The worker knows no engine. The
//! rooms below the tasks request work here, and [`Tasks`], in `engine::tasks`, does it. On a
//! simulated machine there is no worker: the thread that cannot go on without the work does it. So
//! the locks here are real ones, even under a model checker.
//!
//! A further task is one more [`Request`], and one more arm in `engine::tasks`. May import
//! `platform::signals`.

use crate::platform::signals;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Shortest time between two runs of a timer's task.
const SHORTEST: Duration = Duration::from_millis(1);

/// A request that the worker serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// A checkpoint, if one is still due.
    Checkpoint,
    /// A durable point that is due at an interval.
    DurablePoint,
    /// An automatic snapshot, if one is due.
    Snapshot,
    /// A step of the return of space that dropped snapshots needed.
    Collect,
    /// A step of the scrub.
    Scrub,
    /// A durable point for the waiters of `durable::flush`.
    Flush,
    /// A batch of background deployment.
    DeployIdle,
    /// A batch of space to give back.
    Space,
    /// The chunks that sequential writers will come to.
    AllocateAhead,
}

/// The tasks behind the requests. They hold the file only while they work.
pub(crate) trait Tasks: Send + Sync {
    /// Does what was requested. Breaks if the file is gone, which ends the thread.
    fn run(&self, request: Request) -> ControlFlow<()>;

    /// Is called when a panic ends the thread: no request is served any more.
    fn on_panic(&self);
}

/// A request that the worker makes by itself, at an interval.
pub(crate) type Timer = (Request, Duration);

/// The worker thread of one file, and the requests for it.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// `true` if a worker thread may be started.
    may_run: bool,
}

struct Shared {
    tasks: Box<dyn Tasks>,
    timers: Vec<Timer>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    /// The requests in order, each at most once.
    requests: VecDeque<Request>,
    must_stop: bool,
}

impl Queue {
    fn push(&mut self, request: Request) {
        if !self.requests.contains(&request) {
            self.requests.push_back(request);
        }
    }
}

impl Worker {
    /// Makes a worker that has no thread yet.
    pub fn new(tasks: Box<dyn Tasks>, timers: Vec<Timer>, may_run: bool) -> Self {
        let (queue, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { tasks, timers, queue, changed });
        Worker { shared, thread: Mutex::new(None), may_run }
    }

    /// Starts the thread if there is a timer.
    ///
    /// # Errors
    /// The system's error if no thread can be started: no timer would be due then.
    pub fn begin_timers(&self) -> io::Result<()> {
        if self.shared.timers.is_empty() { Ok(()) } else { self.begin() }
    }

    /// Queues a request unless it is queued already, and does not wait for it. Returns `false` if
    /// there is no thread that will serve it.
    pub fn request(&self, request: Request) -> bool {
        if !self.may_run {
            return false;
        }
        self.shared.queue.lock().push(request);
        self.shared.changed.notify_one();
        self.begin().is_ok()
    }

    fn begin(&self) -> io::Result<()> {
        let mut thread = self.thread.lock();
        if !self.may_run || thread.is_some() || self.shared.queue.lock().must_stop {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let work = move || serve(&shared);
        let builder = std::thread::Builder::new().name("atomic-mmap".into());
        // A handler of the program must not run on this thread: see `signals`.
        *thread = Some(signals::without(|| builder.spawn(work))?);
        Ok(())
    }

    /// Ends the thread and waits for it: a request that is being served ends first, and all others
    /// are dropped. A child of `fork` has no such thread.
    pub fn stop(&self, is_forked: bool) {
        if is_forked {
            // The thread belongs to the parent process, and must not be joined here.
            if let Some(mut thread) = self.thread.try_lock() {
                std::mem::forget(thread.take());
            }
            return;
        }
        self.shared.queue.lock().must_stop = true;
        self.shared.changed.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _its_panic_was_printed = thread.join();
        }
    }
}

impl Drop for Worker {
    /// Ends a thread that was not stopped, and does not wait for it: the thread itself may drop the
    /// last owner. After a fork this tells only the copies of the child.
    fn drop(&mut self) {
        if let Some(mut queue) = self.shared.queue.try_lock() {
            queue.must_stop = true;
        }
        self.shared.changed.notify_all();
    }
}

/// Tells the tasks if a panic ends the worker thread.
struct EndsUnheard<'a>(&'a dyn Tasks);

impl Drop for EndsUnheard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.on_panic();
        }
    }
}

/// Serves requests and timers until the worker is stopped.
fn serve(shared: &Shared) {
    let _not_unheard = EndsUnheard(&*shared.tasks);
    // `None` if the time is too far away for the clock: then never.
    let after = |every: Duration| Instant::now().checked_add(every.max(SHORTEST));
    let mut due: Vec<Option<Instant>> =
        shared.timers.iter().map(|&(_, every)| after(every)).collect();
    while let Some(request) = shared.next(&mut due) {
        if shared.tasks.run(request).is_break() {
            return;
        }
        // The time begins anew when the task is over. So a slow task leaves time for the others.
        for ((of, every), due) in shared.timers.iter().zip(&mut due) {
            if *of == request {
                *due = after(*every);
            }
        }
    }
}

impl Shared {
    /// Waits for the next request, and takes it. Queues the requests of timers that are due, behind
    /// those that are there. Returns `None` if the worker is to stop.
    fn next(&self, due: &mut [Option<Instant>]) -> Option<Request> {
        let mut queue = self.queue.lock();
        loop {
            if queue.must_stop {
                return None;
            }
            for ((request, _), due) in self.timers.iter().zip(&mut *due) {
                if due.is_some_and(|due| Instant::now() >= due) {
                    queue.push(*request);
                    *due = None;
                }
            }
            if let Some(request) = queue.requests.pop_front() {
                return Some(request);
            }
            match due.iter().flatten().min() {
                Some(next) => {
                    let wait = next.saturating_duration_since(Instant::now());
                    let _timed_out_or_woken = self.changed.wait_for(&mut queue, wait);
                }
                None => self.changed.wait(&mut queue),
            }
        }
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests;
