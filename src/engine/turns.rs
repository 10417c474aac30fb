//! Turns of transactions that have lost too often.
//!
//! One such transaction at a time has the turn. All pages that it reads are watched, and a writer
//! on the fast path that comes to a watched page takes the general path. All writers on the general
//! path wait before they take a lock, wherever they write. So the transaction ends, however many
//! small writes there are, and writers on the fast path go on elsewhere. Without a turn a writer
//! pays nothing.
//!
//! Invariant: no writer waits for ever. The body of the transaction may wait for a write of another
//! thread, so the wait is bounded: by a multiple of the longest run of the body.
//!
//! A child of `fork` locks nothing here. A thread of its parent may have held `state` at the fork,
//! and in the child that lock would stay locked.
//!
//! May import `pair`, and what lies below it.

use crate::engine::Engine;
use crate::lock::Backoff;
use crate::mutant::planted;
use crate::pair::stats::Counter;
use crate::primitive::Ordering;
use parking_lot::{Mutex, MutexGuard};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// The bounds of a writer's wait, and the runs of the body that it is as long as.
const PATIENCE: (Duration, Duration, u32) = (Duration::from_millis(10), Duration::from_secs(2), 4);

/// The turn of one file. The locks are real ones, since no thread waits for them.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Held by the thread that has the turn.
    taken: Mutex<()>,
    /// That thread, and how long a writer waits for it.
    state: Mutex<Option<(ThreadId, Duration)>>,
}

/// The turn. Dropping it ends it.
pub(crate) struct Turn<'e> {
    engine: &'e Engine,
    _taken: MutexGuard<'e, ()>,
}

impl Engine {
    /// Counts a transaction that something it has read has changed under.
    pub fn count_conflict(&self) {
        self.lane().stats.bump(Counter::Conflicts, 1);
    }

    /// Takes the turn for a transaction of this thread. Returns `None` if another one has it. Does
    /// not wait: the body of that one may run this transaction.
    pub fn take_turn(&self) -> Option<Turn<'_>> {
        if self.is_forked() {
            return None;
        }
        let taken = self.turns.taken.try_lock()?;
        *self.turns.state.lock() = Some((thread::current().id(), PATIENCE.0));
        self.session.turn.store(true, Ordering::SeqCst);
        Some(Turn { engine: self, _taken: taken })
    }

    /// Lets another thread's transaction end that has the turn. The caller holds no lane, no lock
    /// and no gate.
    #[cold]
    pub(super) fn let_turn_pass(&self) {
        if cfg!(any(loom, shuttle)) || self.is_forked() || planted!(TurnNotHeeded) {
            return;
        }
        let (mut backoff, begin) = (Backoff::new(), Instant::now());
        while self.session.turn.load(Ordering::Acquire)
            && self.turns.state.lock().is_some_and(|(owner, patience)| {
                owner != thread::current().id() && begin.elapsed() < patience
            })
        {
            backoff.wait();
        }
    }
}

impl Turn<'_> {
    /// Notes how long a run of the body took that was in vain.
    pub fn note_run(&self, took: Duration) {
        if self.engine.is_forked() {
            return;
        }
        if let Some((_, patience)) = &mut *self.engine.turns.state.lock() {
            *patience = (took * PATIENCE.2).max(*patience).min(PATIENCE.1);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.engine.is_forked() {
            return;
        }
        self.engine.session.turn.store(false, Ordering::Release);
        *self.engine.turns.state.lock() = None;
    }
}

#[cfg(all(test, unix, not(loom), not(shuttle), not(miri)))]
mod tests {
    use super::*;
    use crate::platform::exit_code_of;
    use crate::{AtomicMappedFile, Medium};

    #[test]
    fn a_child_of_fork_ends_a_turn_while_a_thread_of_its_parent_has_the_lock() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = AtomicMappedFile::options().create(true).len(4096).medium(Medium::Ram);
        let file = options.open(folder.path().join("state.dat")).expect("open");
        let engine = file.engine();
        let mut turn = engine.take_turn();
        assert!(turn.is_some(), "no other turn");
        let held = engine.turns.state.lock();
        let code = exit_code_of(|| {
            // The child's copy: the parent's turn goes on.
            let turn = turn.take().expect("a turn");
            turn.note_run(Duration::from_secs(1));
            engine.let_turn_pass();
            drop(turn);
            if engine.take_turn().is_none() { 7 } else { 8 }
        });
        assert_eq!(code, 7, "8: the child took a turn");
        drop(held);
        drop(turn);
        assert!(engine.take_turn().is_some(), "the parent goes on");
    }
}
