//! The command line of the lab.

use lab::part::{Outcome, Settings, TENTHS};
use lab::progress::Progress;
use lab::report::Report;
use std::process::ExitCode;

/// A fast allocator: without it, half of the microseconds of a simulated recovery went into
/// allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Run = fn(&Settings, &Progress) -> Outcome;

/// The parts, in the order in which `all` runs them.
const PARTS: &[(&str, &str, Run)] = &[
    ("images", "is everything that a loss of power can leave recovered?", lab::images::run),
    (
        "identity",
        "is what belongs to others left alone, and what is ours found?",
        lab::identity::run,
    ),
    (
        "blocks",
        "is a full disk an error that changes nothing, whatever a block's size is?",
        lab::blocks::run,
    ),
    ("schedules", "is every schedule of several threads atomic?", lab::schedules::run),
    ("loom", "do the protocols hold in every execution?", lab::loom::run),
    ("histories", "is what threads see explained by some order?", lab::histories::run),
    ("mutants", "do the tests notice a bug in the engine?", lab::mutants::run),
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    ("corpora", "do the fuzzer's corpora notice a bug in recovery?", lab::corpora::run),
    (
        "faults",
        "does every failing system call end in the right error, with nothing lost?",
        lab::faults::run,
    ),
    #[cfg(target_os = "linux")]
    (
        "scribbles",
        "is each random overwrite harmless, or noticed before it is read?",
        lab::scribbles::run,
    ),
    #[cfg(target_os = "linux")]
    ("kills", "killed at any time, with several threads", lab::death::timed::run),
    #[cfg(target_os = "linux")]
    ("numbered", "killed at each store and call of each kind", lab::death::numbered::run),
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    ("steps", "single-stepped, and recovered after each instruction", lab::death::stepped::run),
];

/// Pieces of a part, to look for one planted bug. `all` does not run them.
const NARROW: &[(&str, &str, Run)] = &[
    ("disk", "the sequences of images behind a page cache", lab::images::run_on_disk),
    ("snapshots", "the sequences of images with snapshots", lab::images::run_with_snapshots),
    ("space", "the sequences of images with stages and sweeps", lab::images::run_with_space),
];

const HELP: &str = "\
usage: lab <part>|all [--quick] [--seed N] [--seconds N] [--tenth K]

  --quick   the amount for continuous integration; without it the long run
  --seed N  where random choices begin (default 1)
  --seconds N  stop after so long: a budget with --quick (images, schedules, histories, scribbles);
            otherwise to look for a bug that was planted in the engine
  --tenth K one tenth, 0 to 9: of the planted bugs, the failing calls, the kills

parts:
";

const DEFAULT_SEED: u64 = 1;

fn main() -> ExitCode {
    let mut wanted = None;
    let mut count = 0;
    let mut cast = None;
    let mut settings = Settings { seed: DEFAULT_SEED, quick: false, seconds: None, tenth: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => settings.quick = true,
            "--seed" => match words.next().and_then(|n| n.parse().ok()) {
                Some(seed) => settings.seed = seed,
                None => return usage("--seed wants a number"),
            },
            "--seconds" => match words.next().and_then(|n| n.parse().ok()) {
                Some(seconds) => settings.seconds = Some(seconds),
                None => return usage("--seconds wants a number"),
            },
            "--tenth" => match words.next().and_then(|n| n.parse().ok()) {
                Some(tenth) if tenth < TENTHS => settings.tenth = Some(tenth),
                _ => return usage("--tenth wants a number from 0 to 9"),
            },
            "--count" => match words.next().and_then(|n| n.parse().ok()) {
                Some(n) => count = n,
                None => return usage("--count wants a number"),
            },
            "--cast" => match words.next().and_then(|n| n.parse().ok()) {
                Some(n) => cast = Some(n),
                None => return usage("--cast wants a number"),
            },
            name if wanted.is_none() && !name.starts_with('-') => wanted = Some(word),
            other => return usage(&format!("{other} is not understood")),
        }
    }
    let Some(wanted) = wanted else { return usage("which part?") };
    if wanted == lab::schedules::INNER {
        return schedules_inner(&settings, count, cast);
    }
    let named = PARTS.iter().chain(NARROW).filter(|(name, ..)| wanted == *name);
    let parts: Vec<_> = if wanted == "all" { PARTS.iter().collect() } else { named.collect() };
    if parts.is_empty() {
        return usage(&format!("there is no part {wanted}"));
    }
    let mut report = Report::new(settings.seed);
    for (name, question, run) in parts {
        eprintln!("{name}: {question}");
        let progress = Progress::new(name);
        let outcome = run(&settings, &progress);
        report.add(outcome, progress.elapsed());
    }
    for (part, violation) in report.violations() {
        println!("violation in {part}: {violation}\n");
    }
    print!("{}", report.table());
    println!("{}", report.summary());
    if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the schedules, in the lab that was built with `--cfg shuttle`.
fn schedules_inner(settings: &Settings, count: u64, cast: Option<usize>) -> ExitCode {
    #[cfg(shuttle)]
    {
        println!("{}", lab::schedules::workload::run(settings, count, cast));
        ExitCode::SUCCESS
    }
    #[cfg(not(shuttle))]
    {
        let _ = (settings, count, cast);
        usage("this lab was built without --cfg shuttle")
    }
}

fn usage(problem: &str) -> ExitCode {
    eprint!("{problem}\n{HELP}");
    for (name, question, _) in PARTS {
        eprintln!("  {name:10} {question}");
    }
    ExitCode::from(2)
}
