//! Runs a model of real code through all its executions, and says how many there were.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release --lib loom_ -- --nocapture`. Each line begins with
//! `loom:`; the crash lab reads them.

use super::ordered::{Missing, weakened};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Times that one execution may switch threads before it counts as one that does not end.
const SWITCHES: usize = 3_000;

/// How much of a model is explored: switches away from a thread that could have gone on.
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

/// Every execution of `model` must pass.
#[track_caller]
pub fn holds(name: &str, bound: Preemptions, model: impl Fn() + Send + Sync + 'static) {
    let (passed, executions) = run(bound, model);
    println!("loom: {name}: {executions} executions");
    assert!(passed, "{name}: execution {executions} fails");
}

/// Some execution of `model`, in which something was left out, must fail.
#[track_caller]
pub fn is_found(name: &str, bound: Preemptions, model: impl Fn() + Send + Sync + 'static) {
    let (passed, executions) = run(bound, model);
    let verdict = if passed { "missed" } else { "found" };
    println!("loom: planted {name}: {verdict} after {executions} executions");
    assert!(!passed, "{name} was not found");
}

/// Some execution of `model` must fail when orders of each of these kinds are missing everywhere.
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
