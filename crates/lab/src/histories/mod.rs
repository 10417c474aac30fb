//! The part `histories`: some order of the operations explains what threads see of the real crate.
//!
//! Owns: the part `histories`. Threads read, write, exchange, run transactions, commit stages, take
//! views and deploy pages, on overlapping ranges. Some files have a worker that deploys cold pages.
//! The part records the result of each operation with the moments of its call and its return. The
//! checker then looks for an order. Known bad histories test the checker: it must reject them
//! ([`known`]).
//!
//! | module | contents |
//! |---|---|
//! | [`history`] | histories of operations |
//! | [`check`] | the search for an order that explains a history |
//! | [`known`] | known good and bad histories |
//! | [`record`] | the operations of the threads, and their recording |

pub mod check;
pub mod history;
pub mod known;
pub mod record;

use crate::part::{Outcome, Settings};
use crate::progress::Progress;
use atomic_mmap::{AtomicMappedFile, CloseMode, DeployPolicy, Error, Medium};
use history::{History, Operation, Value};
use record::{CELL_COUNT, FILE_LEN, Mix, Recorder};
use std::path::Path;
use std::time::{Duration, Instant};

const THREADS: usize = 4;
/// Number of operations of a thread in one history.
const OPERATIONS: usize = 60;
/// Time of a quick run. The next constant is that of a long run.
const QUICK: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(1800);
/// Number of violations after which the part ends.
const ENOUGH: usize = 3;

/// Runs the part.
pub fn run(settings: &Settings, progress: &Progress) -> Outcome {
    let mut outcome = Outcome::of("histories");
    look_at_the_checker(&mut outcome);
    let amount = if settings.quick { QUICK } else { LONG };
    let time = settings.seconds.map_or(amount, Duration::from_secs);
    let counts = record_for(settings, time, &mut outcome.violations, |counts| {
        progress.tick(format_args!("{} histories, {}", counts.histories, counts.operations));
    });
    outcome.runs = format!("{} histories of {} operations", counts.histories, counts.operations);
    outcome
}

/// Runs the part for a short time. Returns the first violation, to test planted bugs.
pub fn quick_check(settings: &Settings, time: Duration) -> Option<String> {
    let mut violations = Vec::new();
    record_for(settings, time, &mut violations, |_| ());
    violations.into_iter().next()
}

fn look_at_the_checker(outcome: &mut Outcome) {
    for (name, history) in known::bad() {
        outcome.planted += 1;
        if check::check(&history).is_err() {
            outcome.killed += 1;
        } else {
            outcome.violations.push(format!("the checker accepts {name}"));
        }
    }
    for (name, history) in known::good() {
        if let Err(message) = check::check(&history) {
            outcome.violations.push(format!("the checker rejects {name}: {message}"));
        }
    }
}

#[derive(Default)]
struct Counts {
    histories: u64,
    operations: u64,
}

/// The parameters of a file and of its use.
#[derive(Clone, Copy)]
struct Setting {
    medium: Medium,
    policy: DeployPolicy,
    /// The interval of background deployment by the worker.
    idle: Option<Duration>,
}

const SOON: Option<Duration> = Some(Duration::from_millis(1));
const SETTINGS: [Setting; 6] = [
    Setting { medium: Medium::Dax, policy: DeployPolicy::Lazy, idle: None },
    Setting { medium: Medium::Ram, policy: DeployPolicy::Lazy, idle: SOON },
    Setting { medium: Medium::Dax, policy: DeployPolicy::Eager, idle: None },
    Setting { medium: Medium::Ram, policy: DeployPolicy::Manual, idle: None },
    Setting { medium: Medium::Dax, policy: DeployPolicy::Adaptive, idle: SOON },
    Setting { medium: Medium::PageCache, policy: DeployPolicy::Lazy, idle: SOON },
];

/// Number of histories that are recorded on one file.
const HISTORIES_A_FILE: u64 = 100;

fn record_for(
    settings: &Settings,
    time: Duration,
    violations: &mut Vec<String>,
    mut tick: impl FnMut(&Counts),
) -> Counts {
    let end = Instant::now() + time;
    let mut counts = Counts::default();
    let mut rng = settings.rng("histories");
    let scratch = crate::scratch::Scratch::in_memory("histories");
    for n in 0.. {
        if Instant::now() >= end || violations.len() >= ENOUGH {
            break;
        }
        let setting = SETTINGS[n % SETTINGS.len()];
        let path = scratch.path().join(format!("{n}.dat"));
        let found = record_file(setting, &path, &mut rng, end, &mut counts);
        let _gone_with_the_folder_otherwise = std::fs::remove_file(&path);
        match found {
            Ok(found) => violations.extend(found.map(|text| {
                let Setting { medium, policy, idle } = setting;
                format!("seed {}, {medium:?}, {policy:?}, {idle:?}: {text}", settings.seed)
            })),
            // A build without the necessary instructions has no `Dax`.
            Err(Error::UnsupportedMedium { .. }) => {}
            Err(error) => violations.push(format!("{:?}: {error}", setting.medium)),
        }
        tick(&counts);
    }
    counts
}

/// Records histories of one file. Returns the first one that no order explains.
fn record_file(
    setting: Setting,
    path: &Path,
    rng: &mut fastrand::Rng,
    end: Instant,
    counts: &mut Counts,
) -> Result<Option<String>, Error> {
    let options = AtomicMappedFile::options();
    let options = match setting.idle {
        Some(interval) => options.deploy_idle(interval),
        None => options,
    };
    let file = options
        .create(true)
        .len(FILE_LEN)
        .medium(setting.medium)
        .deploy(setting.policy)
        .close_on_drop(CloseMode::Fast)
        .open(path)?;
    let recorder = Recorder::new(file);
    let mut initial: Vec<Value> = vec![0; CELL_COUNT];
    let mut next_value = 1;
    for _ in 0..HISTORIES_A_FILE {
        if Instant::now() >= end {
            break;
        }
        let history = record_once(&recorder, initial, &mut next_value, rng)?;
        counts.histories += 1;
        counts.operations += history.operations.len() as u64;
        if let Err(message) = check::check(&history) {
            return Ok(Some(message));
        }
        // The next history begins with the final values of this one.
        initial = history.initial;
        if let Some(last) = history.operations.last() {
            last.reads.iter().for_each(|&(cell, value)| initial[cell] = value);
        }
    }
    recorder.into_file().close(CloseMode::Spatial)?;
    Ok(None)
}

fn record_once(
    recorder: &Recorder,
    initial: Vec<Value>,
    next_value: &mut Value,
    rng: &mut fastrand::Rng,
) -> Result<History, Error> {
    let first = rng.usize(0..CELL_COUNT);
    let cells = (first, (first + rng.usize(0..4)).min(CELL_COUNT - 1));
    let cells = if rng.u32(0..3) == 0 { (0, CELL_COUNT - 1) } else { cells };
    let mix = Mix { cells, mostly_deploys: rng.u32(0..4) == 0, operations: OPERATIONS };
    let mut results: Vec<Result<Vec<Operation>, Error>> = Vec::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let first_value = *next_value;
                // The maximum number of values that a thread can use.
                *next_value += (OPERATIONS * 3 * CELL_COUNT) as u64;
                let mut rng = rng.fork();
                scope.spawn(move || recorder.work(thread, mix, first_value, &mut rng))
            })
            .collect();
        results = threads.into_iter().map(|t| t.join().expect("a worker panicked")).collect();
    });
    let mut history = History { initial, operations: Vec::new() };
    for result in results {
        history.operations.extend(result?);
    }
    history.operations.push(recorder.read_all(THREADS)?);
    Ok(history)
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn what_threads_see_has_an_order() {
        let settings = Settings { seed: 1, quick: true, seconds: None, tenth: None };
        assert_eq!(quick_check(&settings, Duration::from_secs(4)), None);
    }
}
