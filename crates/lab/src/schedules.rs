//! Do whole workloads on the real crate hold under schedules that a scheduler chose?
//!
//! Owns: the part `schedules`. It runs this crate's own tests in a build with `--cfg shuttle`, in which
//! the engine's atomics and locks, and every access to mapped bytes, are places where shuttle goes on
//! with a thread of its choice. A few threads work on a new file, what they saw is written down as in
//! [`histories`](crate::histories), and the checker looks for an order.
//!
//! A schedule is repeated by its text: shuttle prints it with the failure, and
//! `ATOMIC_MMAP_LAB_REPLAY=<text>` runs it again (of the test that failed).
//!
//! Under shuttle every access is sequentially consistent: weaker orders are loom's (`loom`).

use crate::checker::{Checker, count};
use crate::part::{Outcome, Settings};
use crate::progress::Progress;

/// Schedules of each kind: quick, and long.
const QUICK: u64 = 20_000;
const LONG: u64 = 1_000_000;
/// Seconds after which a kind ends, done or not.
const QUICK_SECONDS: u64 = 180;
const LONG_SECONDS: u64 = 7200;

/// What the tests are told.
const SCHEDULES: &str = "ATOMIC_MMAP_LAB_SCHEDULES";
const SECONDS: &str = "ATOMIC_MMAP_LAB_SECONDS";
const SEED: &str = "ATOMIC_MMAP_LAB_SEED";

/// Runs the part.
pub fn run(settings: &Settings, progress: &Progress) -> Outcome {
    let (schedules, seconds) =
        if settings.quick { (QUICK, QUICK_SECONDS) } else { (LONG, LONG_SECONDS) };
    run_for(settings, schedules, seconds, progress)
}

/// Runs a few schedules. The first violation, if there is one: for those who planted a bug.
pub fn quick_check(settings: &Settings, schedules: u64, progress: &Progress) -> Option<String> {
    run_for(settings, schedules, QUICK_SECONDS, progress).violations.into_iter().next()
}

fn run_for(settings: &Settings, schedules: u64, seconds: u64, progress: &Progress) -> Outcome {
    let mut outcome = Outcome::of("schedules");
    let variables = [
        (SCHEDULES, schedules.to_string()),
        (SECONDS, seconds.to_string()),
        (SEED, settings.seed.to_string()),
    ];
    let arguments = ["--package", "lab", "--lib", "schedules_"];
    let checker = Checker { name: "shuttle", arguments: &arguments, variables: &variables };
    let said = match checker.run(progress) {
        Ok(said) => said,
        Err(why) => {
            outcome.skipped = Some(why);
            return outcome;
        }
    };
    outcome.schedules = said.lines.iter().map(|line| count(line)).sum();
    outcome.runs = format!("{} kinds, {} schedules", said.lines.len(), outcome.schedules);
    if !said.passed || said.lines.is_empty() {
        outcome.violations.push(format!("a schedule fails, or does not build:\n{}", said.rest));
    }
    outcome
}

#[cfg(all(test, shuttle))]
mod schedules_of_the_engine {
    use crate::histories::check::check;
    use crate::histories::history::History;
    use crate::histories::record::{CELL_COUNT, FILE_LEN, Mix, Recorder};
    use crate::scratch::Scratch;
    use atomic_mmap::{AtomicMappedFile, CloseMode, DeployPolicy, Medium};
    use shuttle::rand::RngCore;
    use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// Operations of a thread.
    const OPERATIONS: usize = 4;

    fn number(variable: &str, otherwise: u64) -> u64 {
        std::env::var(variable).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
    }

    #[derive(Clone, Copy)]
    struct Kind {
        name: &'static str,
        medium: Medium,
        policy: DeployPolicy,
        threads: usize,
        mostly_deploys: bool,
    }

    /// One execution: a new file, a few threads, and an order of what they did.
    fn execute(kind: Kind, path: &PathBuf) {
        // Drawn from the schedule's own numbers, so that it can be repeated.
        let mut rng = fastrand::Rng::with_seed(shuttle::rand::thread_rng().next_u64());
        let file = AtomicMappedFile::options()
            .create(true)
            .len(FILE_LEN)
            .medium(kind.medium)
            .deploy(kind.policy)
            .close_on_drop(CloseMode::Fast)
            .open(path)
            .expect("open");
        let recorder = Arc::new(Recorder::new(file));
        let first = rng.usize(0..CELL_COUNT - 2);
        let last = if kind.mostly_deploys { first } else { first + rng.usize(0..3) };
        let mostly_deploys = kind.mostly_deploys;
        let operations = if mostly_deploys { OPERATIONS / 2 } else { OPERATIONS };
        let mix = Mix { cells: (first, last), mostly_deploys, operations };
        let mut history = History::of_zeroes(CELL_COUNT);
        // So that there is something to bring home.
        history.operations.push(recorder.write_all(kind.threads, 1_000_000).expect("write"));
        let threads: Vec<_> = (0..kind.threads)
            .map(|thread| {
                let (recorder, mut rng) = (Arc::clone(&recorder), rng.fork());
                shuttle::thread::spawn(move || {
                    let first_value = 1 + thread as u64 * 1000;
                    recorder.work(thread, mix, first_value, &mut rng).expect("work")
                })
            })
            .collect();
        for thread in threads {
            history.operations.extend(thread.join().expect("a worker panicked"));
        }
        history.operations.push(recorder.read_all(kind.threads).expect("read"));
        if let Err(message) = check(&history) {
            panic!("{}: {message}", kind.name);
        }
        let recorder = Arc::into_inner(recorder).expect("all threads have ended");
        let reflection = recorder.file().reflection_path().to_owned();
        drop(recorder);
        std::fs::remove_file(path).expect("remove");
        let _is_gone_after_a_spatial_close = std::fs::remove_file(reflection);
    }

    fn explore(kind: Kind, scheduler: impl Scheduler + 'static) {
        let scratch = Scratch::in_memory("schedules");
        let executions = Arc::new(AtomicU64::new(0));
        let mut config = shuttle::Config::new();
        // Frames of the engine hold buffers of a page.
        config.stack_size = 1 << 19;
        config.max_steps = shuttle::MaxSteps::FailAfter(1_000_000);
        config.max_time = Some(Duration::from_secs(number(super::SECONDS, 60)));
        config.silence_warnings = true;
        let path = scratch.path().join("state.dat");
        let counted = Arc::clone(&executions);
        let body = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            execute(kind, &path);
        };
        match std::env::var("ATOMIC_MMAP_LAB_REPLAY") {
            Ok(schedule) => {
                let scheduler = ReplayScheduler::new_from_encoded(&schedule);
                shuttle::Runner::new(scheduler, config).run(body);
            }
            Err(_) => {
                shuttle::Runner::new(scheduler, config).run(body);
            }
        }
        println!("shuttle: {}: {} schedules", kind.name, executions.load(Ordering::Relaxed));
    }

    fn random(kind: Kind) {
        let schedules = number(super::SCHEDULES, 200) as usize;
        explore(kind, RandomScheduler::new_from_seed(number(super::SEED, 1), schedules));
    }

    fn by_priority(kind: Kind) {
        let schedules = number(super::SCHEDULES, 200) as usize;
        explore(kind, PctScheduler::new_from_seed(number(super::SEED, 1), 3, schedules));
    }

    const LAZY: DeployPolicy = DeployPolicy::Lazy;

    #[test]
    fn schedules_at_random_of_three_threads_on_persistent_memory() {
        random(Kind {
            name: "random, three threads, dax",
            medium: Medium::Dax,
            policy: LAZY,
            threads: 3,
            mostly_deploys: false,
        });
    }

    #[test]
    fn schedules_at_random_of_three_threads_in_memory() {
        random(Kind {
            name: "random, three threads, ram",
            medium: Medium::Ram,
            policy: LAZY,
            threads: 3,
            mostly_deploys: false,
        });
    }

    #[test]
    fn schedules_by_priority_of_two_threads_on_persistent_memory() {
        by_priority(Kind {
            name: "by priority, two threads, dax",
            medium: Medium::Dax,
            policy: DeployPolicy::Eager,
            threads: 2,
            mostly_deploys: false,
        });
    }

    #[test]
    fn schedules_by_priority_of_three_threads_that_mostly_bring_home() {
        by_priority(Kind {
            name: "by priority, three threads, mostly deploys",
            medium: Medium::Ram,
            policy: DeployPolicy::Manual,
            threads: 3,
            mostly_deploys: true,
        });
    }

    #[test]
    fn schedules_by_priority_of_three_threads_in_memory() {
        by_priority(Kind {
            name: "by priority, three threads, ram",
            medium: Medium::Ram,
            policy: LAZY,
            threads: 3,
            mostly_deploys: false,
        });
    }
}
