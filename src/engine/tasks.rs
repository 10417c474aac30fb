//! The tasks of the worker thread: what each request means for the file.
//!
//! May import every other room of the engine. Owns nothing: a task finds the engine only while
//! other owners keep it.

use crate::engine::Engine;
use crate::engine::worker::{Request, Tasks};
use std::ops::ControlFlow;
use std::sync::Weak;

impl Tasks for Weak<Engine> {
    fn run(&self, request: Request) -> ControlFlow<()> {
        let Some(engine) = self.upgrade() else { return ControlFlow::Break(()) };
        match request {
            Request::Checkpoint => {
                // A checkpoint that fails has poisoned the handle, so the next call reports it.
                let _poisoned = engine.checkpoint_in_background();
            }
            Request::DurablePoint => engine.sync_at_interval(),
            Request::Snapshot => engine.snapshot_if_due(),
            Request::Collect => engine.collect_in_background(),
            Request::Scrub => engine.scrub(),
            Request::Flush => engine.flush_for_waiters(),
            Request::DeployIdle => engine.deploy_idle(),
            Request::Space => engine.give_back_space(),
            Request::AllocateAhead => engine.allocate_ahead(&engine.lane()),
        }
        ControlFlow::Continue(())
    }

    /// Poisons the handle. No durable point would be made any more, and no caller would be told.
    fn on_panic(&self) {
        if let Some(engine) = self.upgrade() {
            engine.poison_by_panic();
        }
    }
}
