//! The part `loom`: the protocols of the lock words in every execution of the memory model.
//!
//! Owns: the part `loom`. It runs the models next to the code (`loom_models` in `src/lock` and
//! `src/engine`) in a build with `--cfg loom`, and sums up their output. Each model also runs
//! without a step or with a weaker order, and must fail then.

use crate::checker::{Checker, count};
use crate::part::{Outcome, Settings};
use crate::progress::Progress;

/// Runs the part. The models themselves determine the amount, quick or not.
pub fn run(_settings: &Settings, progress: &Progress) -> Outcome {
    let mut outcome = Outcome::of("loom");
    let arguments =
        ["--package", "atomic-mmap-instrumented", "--lib", "--features", "mutants", "loom_"];
    let checker = Checker { name: "loom", arguments: &arguments, variables: &[] };
    let said = match checker.run(progress) {
        Ok(said) => said,
        Err(why) => {
            outcome.skipped = Some(why);
            return outcome;
        }
    };
    let (planted, models): (Vec<&String>, Vec<&String>) =
        said.lines.iter().partition(|line| line.starts_with("planted "));
    outcome.schedules = said.lines.iter().map(|line| count(line)).sum();
    outcome.planted = planted.len() as u64;
    outcome.killed = planted.iter().filter(|line| line.contains(": found ")).count() as u64;
    outcome.runs = format!("{} models, {} executions", models.len(), outcome.schedules);
    if !said.passed || models.is_empty() {
        outcome.violations.push(format!("a model fails, or does not build:\n{}", said.rest));
    }
    outcome
}
