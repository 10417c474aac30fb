//! The lab's command line.

use lab::part::{Outcome, Settings};
use lab::progress::Progress;
use lab::report::Report;
use std::process::ExitCode;

type Run = fn(&Settings, &Progress) -> Outcome;

/// The parts, in the order in which `all` runs them.
const PARTS: &[(&str, &str, Run)] = &[
    ("loom", "do the protocols hold in every execution?", lab::loom::run),
    ("schedules", "do workloads hold under chosen schedules?", lab::schedules::run),
    ("histories", "is what threads see explained by some order?", lab::histories::run),
];

const HELP: &str = "\
usage: lab <part>|all [--quick] [--seed N]

  --quick   the amount for continuous integration; without it the long run
  --seed N  where random choices begin (default 1)

parts:
";

const DEFAULT_SEED: u64 = 1;

fn main() -> ExitCode {
    let mut wanted = None;
    let mut settings = Settings { seed: DEFAULT_SEED, quick: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => settings.quick = true,
            "--seed" => match words.next().and_then(|n| n.parse().ok()) {
                Some(seed) => settings.seed = seed,
                None => return usage("--seed wants a number"),
            },
            name if wanted.is_none() && !name.starts_with('-') => wanted = Some(word),
            other => return usage(&format!("{other} is not understood")),
        }
    }
    let Some(wanted) = wanted else { return usage("which part?") };
    let parts: Vec<_> =
        PARTS.iter().filter(|(name, ..)| wanted == "all" || wanted == *name).collect();
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

fn usage(problem: &str) -> ExitCode {
    eprint!("{problem}\n{HELP}");
    for (name, question, _) in PARTS {
        eprintln!("  {name:10} {question}");
    }
    ExitCode::from(2)
}
