//! Exploration of models: runs a model of real code through all its executions, and counts them.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release --lib loom_ -- --nocapture`. Each line begins with
//! `loom:`; the crash lab reads them.

use super::ordered::{Missing, weakened};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of thread switches after which an execution counts as endless.
const SWITCHES: usize = 3_000;

/// The bound of an exploration: switches away from a thread that could have gone on.
#[derive(Clone, Copy)]
pub struct Preemptions(pub usize);

fn run(bound: Preemptions, model: impl Fn() + Send + Sync + 'static) -> (bool, u64) {
    let executions = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&executions);
    let mut builder = ::loom::model::Builder::new();
    builder.preemption_bound = Some(bound.0);
    builder.max_branches = SWITCHES;
    let passed = catch_unwind(AssertUnwindSafe(|| {
        builder.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            model();
        });
    }));
    (passed.is_ok(), executions.load(Ordering::Relaxed))
}

/// Checks that every execution of `model` passes.
#[track_caller]
pub fn holds(name: &str, bound: Preemptions, model: impl Fn() + Send + Sync + 'static) {
    let (passed, executions) = run(bound, model);
    println!("loom: {name}: {executions} executions");
    assert!(passed, "{name}: execution {executions} fails");
}

/// Checks that some execution of `model`, in which something is left out, fails.
#[track_caller]
pub fn is_found(name: &str, bound: Preemptions, model: impl Fn() + Send + Sync + 'static) {
    let (passed, executions) = run(bound, model);
    let verdict = if passed { "missed" } else { "found" };
    println!("loom: planted {name}: {verdict} after {executions} executions");
    assert!(!passed, "{name} was not found");
}

/// Checks that some execution of `model` fails when orders of each of these kinds are missing
/// everywhere.
#[track_caller]
pub fn needs(
    name: &str,
    kinds: &[Missing],
    bound: Preemptions,
    model: impl Fn() + Send + Sync + Clone + 'static,
) {
    for &kind in kinds {
        let model = model.clone();
        weakened(kind, || is_found(&format!("{name} without {kind:?}"), bound, model));
    }
}
