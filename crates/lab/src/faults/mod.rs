//! The part `faults`: every failing system call ends in the right error, and nothing is lost.
//!
//! Every system call of the crate passes one gate (`platform/os/calls/gate.rs`), where a recorder
//! counts it and can make it fail. The scenarios together make every call in every state. The part
//! runs each scenario once without failures, to learn its calls. Then it runs the scenario once for
//! each call and each failure.
//!
//! | file | contents |
//! |---|---|
//! | [`scenarios`] | the scenarios |
//! | [`sweep`] | the choice of the failing call, and the run |
//! | [`judge`] | the rules that must hold |
//! | [`files`] | the files of a pair as values |
//! | [`plants`] | planted faults that the judge must find |
//!
//! The environment variable `LAB_FAULTS` selects the scenarios with this text in their names. A
//! name includes its ground: "points: by flush on page cache".

pub mod files;
pub mod judge;
pub mod plants;
pub mod scenarios;
pub mod sweep;

use crate::part::{Outcome, Settings};
use crate::progress::Progress;
use atomic_mmap::Medium;
use atomic_mmap::testing::call;
use plants::Plant;
use scenarios::{Ground, Scenario, Start};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use sweep::{Breadth, Subject};

/// Time after which a run counts as hung.
const HANGS: Duration = Duration::from_secs(600);
/// Number of violations that are printed.
const MOST_TOLD: usize = 40;

/// All failures at every call.
const LONG: Breadth = Breadth {
    once: &[libc::ENOSPC, libc::EINTR, libc::ENOMEM, libc::EDQUOT],
    lasting: &[libc::EIO, libc::ENOSPC, libc::ENOMEM, libc::EDQUOT],
    short: &[1, 8, 100, 511],
    turns: false,
};
/// All failures, in turns over the calls. Each medium begins with another turn.
const QUICK: Breadth = Breadth { lasting: &[libc::EIO, libc::ENOSPC], turns: true, ..LONG };
/// EIO, once at each call.
const LEAST: Breadth = Breadth { once: &[], lasting: &[], short: &[], turns: true };

/// A folder that is removed with its contents on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(base: &str) -> Folder {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(base).join(format!("atomic-mmap-faults-{}-{n}", std::process::id()));
        fs::create_dir(&path).expect("a scratch folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _best_effort = fs::remove_dir_all(&self.0);
    }
}

/// One scenario on one ground.
struct Task {
    ground: Ground,
    breadth: Breadth,
    scenario: Scenario,
    start: Start,
    /// Another task sweeps over the first operation, which is the same there.
    skips_first: bool,
    /// The turn of the first call.
    turn: usize,
}

/// The results of all threads.
#[derive(Default)]
struct Tally {
    scenarios: AtomicU64,
    places: AtomicU64,
    runs: AtomicU64,
    skewed: AtomicU64,
    recoveries: AtomicU64,
    calls: Mutex<BTreeSet<&'static str>>,
    violations: Mutex<Vec<String>>,
}

/// The work of all threads.
struct Work {
    tasks: Vec<Task>,
    next: AtomicUsize,
    deadline: Option<Instant>,
    settings: Settings,
    tally: Tally,
    /// The current run of each thread, and its start.
    at: Vec<Mutex<Option<(Instant, String)>>>,
    _folders: Vec<Folder>,
}

impl Work {
    fn new(settings: &Settings, only: impl Fn(&Ground, &Scenario) -> bool, small: bool) -> Work {
        let memory = Folder::new(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" });
        let disk = Folder::new("/tmp");
        let breadth = if settings.quick { QUICK } else { LONG };
        let in_memory =
            |name, medium| Ground { name, base: memory.0.clone(), forced: Some(medium) };
        let mut grounds = vec![
            (in_memory("dax", Medium::Dax), breadth.clone()),
            (in_memory("page cache", Medium::PageCache), breadth.clone()),
            (Ground { name: "ram", base: memory.0.clone(), forced: None }, breadth.clone()),
        ];
        if !small {
            let breadth = if settings.quick { LEAST } else { QUICK };
            grounds.push((Ground { name: "disk", base: disk.0.clone(), forced: None }, breadth));
        }
        let mut tasks = Vec::new();
        for (turn, (ground, breadth)) in grounds.into_iter().enumerate() {
            let turn = turn + settings.seed as usize;
            if !is_served(&ground) {
                continue;
            }
            let mut scenarios = scenarios::all(ground.medium());
            scenarios.retain(|scenario| only(&ground, scenario));
            let starts: BTreeMap<String, Start> =
                sweep::starts(&ground, &scenarios, &ground.base.join("starts"));
            let mut seen = BTreeSet::new();
            for scenario in scenarios {
                let Scenario { kind, quirk, elsewhere, lacking, ops, .. } = &scenario;
                let skips_first = !seen
                    .insert(format!("{kind:?} {quirk:?} {elsewhere} {lacking:?} {:?}", ops[0]));
                let start = starts[&format!("{:?}", scenario.kind)].clone();
                let (ground, breadth) = (ground.clone(), breadth.clone());
                tasks.push(Task { ground, breadth, scenario, start, skips_first, turn });
            }
        }
        let threads = thread::available_parallelism().map_or(1, |n| n.get()).clamp(1, 4);
        Work {
            tasks,
            next: AtomicUsize::new(0),
            deadline: None,
            settings: settings.clone(),
            tally: Tally::default(),
            at: (0..threads).map(|_| Mutex::new(None)).collect(),
            _folders: vec![memory, disk],
        }
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() > deadline)
    }

    /// Runs all tasks. Reports a thread that hangs, and does not wait for it.
    fn run(self, progress: Option<&Progress>) -> Arc<Work> {
        let work = Arc::new(self);
        let threads: Vec<_> = (0..work.at.len())
            .map(|n| {
                let work = Arc::clone(&work);
                thread::spawn(move || {
                    while let Some(task) = work.tasks.get(work.next.fetch_add(1, Ordering::Relaxed))
                    {
                        work.task(n, task);
                    }
                    *work.at[n].lock().expect("no panic") = None;
                })
            })
            .collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            thread::sleep(Duration::from_millis(20));
            if let Some(progress) = progress {
                let done = work.next.load(Ordering::Relaxed).min(work.tasks.len());
                let runs = work.tally.runs.load(Ordering::Relaxed);
                progress.tick(format_args!("{done} of {} tasks, {runs} runs", work.tasks.len()));
            }
            for at in &work.at {
                let at = at.lock().expect("no panic").clone();
                if let Some((_, what)) = at.filter(|(since, _)| since.elapsed() > HANGS) {
                    work.tally.violations.lock().expect("no panic").push(format!("{what}: hangs"));
                    return work;
                }
            }
        }
        for thread in threads {
            if thread.join().is_err() {
                let text = "the lab itself panicked, see above".to_owned();
                work.tally.violations.lock().expect("no panic").push(text);
            }
        }
        work
    }

    fn task(&self, thread: usize, task: &Task) {
        let base = task.ground.base.join(format!("thread-{thread}"));
        let mut subject = Subject {
            scenario: &task.scenario,
            ground: &task.ground,
            start: &task.start,
            baseline: Vec::new(),
            plant: None,
        };
        let tally = &self.tally;
        let Some(report) = subject.calibrate(&base) else { return };
        tally.scenarios.fetch_add(1, Ordering::Relaxed);
        let first = usize::from(task.skips_first);
        let places = subject.baseline.iter().filter(|(op, _)| *op >= first).count();
        tally.places.fetch_add(places as u64, Ordering::Relaxed);
        let names = subject.baseline.iter().map(|(_, called)| called.call);
        tally.calls.lock().expect("no panic").extend(names);
        if !report.violations.is_empty() {
            // A scenario that fails without an injected failure cannot test failures.
            tally.violations.lock().expect("no panic").extend(report.violations);
            return;
        }
        // With a deadline, run every third failure, and others on each medium. A quick run skips
        // failures of durable points on a disk, where each run waits for the disk a dozen times.
        let is_slow = self.settings.quick
            && task.ground.name == "disk"
            && task.scenario.name.starts_with(scenarios::OF_POINTS);
        // A tenth selects other failures on each medium. Ten tenths with one seed run each failure
        // once.
        let (skip, step) = match (self.deadline.is_some(), self.settings.tenth, is_slow) {
            (true, ..) => (task.turn % 3, 3),
            (_, Some(tenth), _) => {
                ((task.turn - self.settings.seed as usize + tenth as usize) % 10, 10)
            }
            (_, None, true) => (task.turn % 10, 10),
            _ => (0, 1),
        };
        let plans = subject.plans(&task.breadth, first, task.turn);
        for plan in plans.into_iter().skip(skip).step_by(step) {
            if self.is_late() {
                return;
            }
            let what = format!("{} on {}: {plan:?}", task.scenario.name, task.ground.name);
            *self.at[thread].lock().expect("no panic") = Some((Instant::now(), what));
            let report = subject.run(plan, &base);
            tally.runs.fetch_add(1, Ordering::Relaxed);
            tally.skewed.fetch_add(u64::from(report.is_skewed), Ordering::Relaxed);
            tally.recoveries.fetch_add(report.recoveries, Ordering::Relaxed);
            if !report.violations.is_empty() {
                tally.violations.lock().expect("no panic").extend(report.violations);
            }
        }
    }
}

/// Returns `true` if this build supports the medium of the ground.
fn is_served(ground: &Ground) -> bool {
    let path = ground.base.join("probe");
    let file = ground.options().create(true).open(&path);
    let is_served = file.is_ok();
    drop(file);
    let _was_made = fs::remove_file(path);
    is_served
}

/// Plants wrong failure handling, and counts the cases that the judge notices.
fn plant(those: impl Iterator<Item = Plant>) -> (u64, Vec<String>) {
    let folder = Folder::new(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" });
    let medium = Medium::PageCache;
    let ground = Ground { name: "planted", base: folder.0.clone(), forced: Some(medium) };
    let mut all = scenarios::all(medium);
    all.retain(|scenario| Plant::ALL.iter().any(|plant| plant.scenario() == scenario.name));
    let starts = sweep::starts(&ground, &all, &folder.0.join("starts"));
    let (mut killed, mut missed) = (0, Vec::new());
    for plant in those {
        let scenario = all.iter().find(|s| s.name == plant.scenario()).expect("it is there");
        let start = &starts[&format!("{:?}", scenario.kind)];
        let base = folder.0.join("run");
        let (ground, baseline) = (&ground, Vec::new());
        let mut subject = Subject { scenario, ground, start, baseline, plant: None };
        subject.calibrate(&base);
        subject.plant = Some(plant);
        let breadth = match plant {
            Plant::ShowsInterruptions => Breadth { once: &[libc::EINTR], ..LEAST },
            _ => LEAST,
        };
        let is_found = |plan| !subject.run(plan, &base).violations.is_empty();
        match subject.plans(&breadth, 0, 0).into_iter().any(is_found) {
            true => killed += 1,
            false => missed.push(format!("planted fault {plant:?} was not noticed")),
        }
    }
    (killed, missed)
}

fn told(mut violations: Vec<String>) -> Vec<String> {
    let more = violations.len().saturating_sub(MOST_TOLD);
    violations.truncate(MOST_TOLD);
    if more > 0 {
        violations.push(format!("and {more} more"));
    }
    violations
}

/// Runs the part.
pub fn run(settings: &Settings, progress: &Progress) -> Outcome {
    let some = std::env::var("LAB_FAULTS").unwrap_or_default();
    let is_chosen = |ground: &Ground, scenario: &Scenario| {
        format!("{} on {}", scenario.name, ground.name).contains(&some)
    };
    let work = Work::new(settings, is_chosen, false).run(Some(progress));
    let tally = &work.tally;
    let mut violations = std::mem::take(&mut *tally.violations.lock().expect("no panic"));
    let reached = tally.calls.lock().expect("no panic").clone();
    for name in call::ALL {
        if some.is_empty() && !reached.contains(name) {
            violations.push(format!("no scenario makes the call {name}"));
        }
    }
    let (runs, skewed) = (&tally.runs, &tally.skewed);
    if skewed.load(Ordering::Relaxed) * 50 > runs.load(Ordering::Relaxed) {
        violations.push(format!("{skewed:?} of {runs:?} runs made other calls than planned"));
    }
    let (killed, missed) = plant(Plant::ALL.into_iter());
    violations.extend(missed);
    let count = |n: &AtomicU64| n.load(Ordering::Relaxed);
    Outcome {
        runs: format!(
            "{}{} scenarios, {} places, 6 errors and short results, once and lasting: {} runs",
            settings.tenth_in_words(),
            count(&tally.scenarios),
            count(&tally.places),
            count(&tally.runs),
        ),
        recoveries: count(&tally.recoveries),
        killed,
        planted: Plant::ALL.len() as u64,
        violations: told(violations),
        ..Outcome::of("faults")
    }
}

/// Returns the violations of the scenarios with `name` in their names, on a page cache in memory.
pub fn check_some(name: &str, settings: &Settings) -> Vec<String> {
    let only = |ground: &Ground, scenario: &Scenario| {
        ground.name == "page cache" && scenario.name.contains(name)
    };
    let work = Work::new(settings, only, true).run(None);
    told(std::mem::take(&mut *work.tally.violations.lock().expect("no panic")))
}

/// Returns the violations that a part of the sweep finds within this time, to kill mutants.
pub fn quick_check(seconds: u64) -> Vec<String> {
    let settings = Settings { seed: 1, quick: true, seconds: None, tenth: None };
    let mut work = Work::new(&settings, |_, _| true, true);
    work.deadline = Some(Instant::now() + Duration::from_secs(seconds));
    // A stride brings tasks of every kind to the front.
    let mut tasks: Vec<Option<Task>> = work.tasks.drain(..).map(Some).collect();
    let stride = 7;
    for first in 0..stride {
        work.tasks.extend(tasks.iter_mut().skip(first).step_by(stride).filter_map(Option::take));
    }
    let work = work.run(None);
    told(std::mem::take(&mut *work.tally.violations.lock().expect("no panic")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs every third failure of a few scenarios. The lab runs all of them.
    #[test]
    fn failing_system_calls_lose_nothing() {
        let settings = Settings { seed: 1, quick: true, seconds: None, tenth: None };
        let chosen = [
            ("page cache", "create"),
            ("page cache", "open after a crash"),
            ("page cache", "sync"),
            ("dax", "first writes of a session"),
            ("dax", "lengths"),
            ("ram", "Changed, Discard"),
        ];
        let only =
            |ground: &Ground, scenario: &Scenario| chosen.contains(&(ground.name, &*scenario.name));
        let mut work = Work::new(&settings, only, true);
        work.deadline = Some(Instant::now() + Duration::from_secs(600));
        let work = work.run(None);
        let tally = &work.tally;
        let violations = tally.violations.lock().expect("no panic").clone();
        assert!(violations.is_empty(), "{:#?}", told(violations));
        assert_eq!(tally.scenarios.load(Ordering::Relaxed), chosen.len() as u64);
        assert!(tally.runs.load(Ordering::Relaxed) > 100);
        assert!(tally.recoveries.load(Ordering::Relaxed) > 50);
        assert!(tally.skewed.load(Ordering::Relaxed) < 5);
    }

    /// Plants one in four. The lab plants all of them.
    #[test]
    fn the_judge_finds_planted_faults() {
        let some = || Plant::ALL.into_iter().step_by(4);
        let (killed, missed) = plant(some());
        assert!(missed.is_empty(), "{missed:#?}");
        assert_eq!(killed, some().count() as u64);
    }
}
