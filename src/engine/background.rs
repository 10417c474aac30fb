//! What is done without anybody waiting for it? Checkpoints, and durable points at an interval.
//!
//! Owns: one thread a file, begun when there is something for it to do and ended by the closing of the
//! file. It holds the engine only while it works. On a simulated machine there is none: what it would
//! have done is done by whoever cannot go on without it. So the locks here are real ones under the model
//! checkers too.

use super::Engine;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two durable points at least.
const SHORTEST: Duration = Duration::from_millis(1);

/// The thread's work, and the thread.
pub(crate) struct Background {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// How often durable points are made.
    every: Option<Duration>,
    /// Whether there may be a thread.
    may_run: bool,
}

struct Shared {
    wishes: Mutex<Wishes>,
    changed: Condvar,
}

#[derive(Default)]
struct Wishes {
    checkpoint: bool,
    stop: bool,
}

impl Background {
    /// No thread yet.
    pub fn new(every: Option<Duration>, may_run: bool) -> Self {
        let shared = Shared { wishes: Mutex::default(), changed: Condvar::new() };
        Background { shared: Arc::new(shared), thread: Mutex::new(None), every, may_run }
    }

    /// Begins the thread if durable points are to be made at an interval.
    ///
    /// # Errors
    /// What the system says if no thread can be started: no point would be made then.
    pub fn begin_interval(&self, engine: &Weak<Engine>) -> io::Result<()> {
        if self.every.is_some() { self.begin(engine) } else { Ok(()) }
    }

    /// Asks for a checkpoint, and does not wait for it.
    pub fn ask_for_checkpoint(&self, engine: &Weak<Engine>) {
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

    /// Ends the thread and waits for it. In a child of `fork` there is none.
    pub fn stop(&self, is_forked: bool) {
        if is_forked {
            // The parent's thread is none of ours to wait for.
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

/// Poisons the handle if a panic ends the thread: no durable point would be made any more, and no caller would hear of it.
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
    // So far away that it cannot be told: never.
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
        // A checkpoint that fails has poisoned the handle: the next call says so.
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
