//! The worker thread, for work that no caller waits for: checkpoints, and durable points at an
//! interval.
//!
//! Owns: one thread for each file. It starts when there is work for it, and ends when the file is
//! closed. It holds the engine only while it works. On a simulated machine there is no worker: the
//! thread that cannot go on without the work does it. So the locks here are real ones, even under a
//! model checker.

use crate::engine::Engine;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Shortest time between two durable points.
const SHORTEST: Duration = Duration::from_millis(1);

/// The worker thread, and the requests that it serves.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// How often durable points are made.
    every: Option<Duration>,
    /// `true` if a worker thread may be started.
    may_run: bool,
}

struct Shared {
    wishes: Mutex<Requests>,
    changed: Condvar,
}

#[derive(Default)]
struct Requests {
    checkpoint: bool,
    stop: bool,
}

impl Worker {
    /// Makes a worker that has no thread yet.
    pub fn new(every: Option<Duration>, may_run: bool) -> Self {
        let shared = Shared { wishes: Mutex::default(), changed: Condvar::new() };
        Worker { shared: Arc::new(shared), thread: Mutex::new(None), every, may_run }
    }

    /// Starts the thread if durable points are due at an interval.
    ///
    /// # Errors
    /// What the system says if no thread can be started: no point would be made then.
    pub fn begin_interval(&self, engine: &Weak<Engine>) -> io::Result<()> {
        if self.every.is_some() { self.begin(engine) } else { Ok(()) }
    }

    /// Requests a checkpoint, and does not wait for it.
    pub fn request_checkpoint(&self, engine: &Weak<Engine>) {
        if !self.may_run {
            return;
        }
        self.shared.wishes.lock().checkpoint = true;
        self.shared.changed.notify_one();
        // Without a thread, the writer that finds no room in the journal makes the checkpoint.
        let _made_by_a_writer_otherwise = self.begin(engine);
    }

    fn begin(&self, engine: &Weak<Engine>) -> io::Result<()> {
        let mut thread = self.thread.lock();
        if !self.may_run || thread.is_some() || self.shared.wishes.lock().stop {
            return Ok(());
        }
        let (shared, engine, every) = (self.shared.clone(), engine.clone(), self.every);
        let work = move || run(&shared, &engine, every);
        *thread = Some(std::thread::Builder::new().name("atomic-mmap".into()).spawn(work)?);
        Ok(())
    }

    /// Ends the thread and waits for it. A child of `fork` has no such thread.
    pub fn stop(&self, is_forked: bool) {
        if is_forked {
            // The thread belongs to the parent process, and must not be joined here.
            if let Some(mut thread) = self.thread.try_lock() {
                std::mem::forget(thread.take());
            }
            return;
        }
        self.shared.wishes.lock().stop = true;
        self.shared.changed.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _its_panic_was_printed = thread.join();
        }
    }
}

/// Poisons the handle if a panic ends the worker thread. No durable point would be made any more,
/// and no caller would be told.
struct EndsUnheard<'a>(&'a Weak<Engine>);

impl Drop for EndsUnheard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(engine) = self.0.upgrade()
        {
            engine.poison_by_panic();
        }
    }
}

fn run(shared: &Shared, engine: &Weak<Engine>, every: Option<Duration>) {
    let _not_unheard = EndsUnheard(engine);
    // `None` if the time is too far away for the clock: then never.
    let after = |every: Duration| Instant::now().checked_add(every.max(SHORTEST));
    let mut next = every.and_then(after);
    loop {
        let checkpoint = {
            let mut wishes = shared.wishes.lock();
            loop {
                if wishes.stop {
                    return;
                }
                if wishes.checkpoint || next.is_some_and(|next| Instant::now() >= next) {
                    break std::mem::take(&mut wishes.checkpoint);
                }
                match next {
                    Some(next) => {
                        let wait = next.saturating_duration_since(Instant::now());
                        let _timed_out_or_woken = shared.changed.wait_for(&mut wishes, wait);
                    }
                    None => shared.changed.wait(&mut wishes),
                }
            }
        };
        let Some(engine) = engine.upgrade() else { return };
        // A checkpoint that fails has poisoned the handle, so the next call reports it.
        if checkpoint {
            let _poisoned = engine.checkpoint_in_background();
        }
        if let (Some(every), Some(due)) = (every, next)
            && Instant::now() >= due
        {
            engine.sync_at_interval();
            next = after(every);
        }
    }
}
