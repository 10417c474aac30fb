//! The part `mutants`: every planted bug, and the test that notices it first.
//!
//! The bugs are in `atomic-mmap` itself (`src/mutant/bugs.rs`, feature `mutants`), one line each.
//! For each bug, `killers` names its killers: tests of the crate or parts of the lab. A killer is a
//! process of its own, and the environment tells it which bug to plant. If a killer fails, panics,
//! hangs or dies by a signal, it has noticed the bug. Each killer first runs without a bug, and
//! must pass.
//!
//! | variable | meaning |
//! |---|---|
//! | `LAB_MUTANTS` | plants only the bugs with this text in their names |
//!
//! `--tenth K` plants the bugs of one tenth, and those that are cheap to plant (`is_cheap`).

mod killers;
mod snapshots;
mod space;
mod stages;
mod sums;

use crate::part::{Outcome, Settings};
use crate::progress::Progress;
use atomic_mmap::testing::mutants::{self, Mutant};
use killers::{Fate, Killer, fate, is_cheap};
use std::collections::HashMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Environment variable that selects some of the bugs.
const SOME: &str = "LAB_MUTANTS";
/// Number of times that all killers run before a bug counts as surviving.
const ATTEMPTS: usize = 4;
/// A killer hangs if it takes this number of times longer than without a bug.
const PATIENCE: u32 = 6;
/// Minimum time before a killer counts as hung.
const AT_LEAST: Duration = Duration::from_secs(12);
/// Maximum time of a killer without a bug.
const LONGEST: Duration = Duration::from_secs(120);

/// The end of a killer, and its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Passed,
    Failed,
    Hung,
}

/// The killers, and the time of each without a bug.
struct Killers {
    binaries: HashMap<String, PathBuf>,
    /// Names of the tests of each binary that was asked for them.
    names: Mutex<HashMap<String, Vec<String>>>,
    /// Folder for all files of the killers, because a killed process cannot clean up.
    scratch: tempfile::TempDir,
    /// Folder of the crate, in which tests find their data.
    folder: PathBuf,
    normal: Mutex<HashMap<Killer, Duration>>,
}

/// Name of the binary with the integration tests of the crate, one module a topic.
const INTEGRATION: &str = "it";
/// Name of loom's models among the test binaries.
const LOOM: &str = "--cfg loom";
/// Name of the lab that was built for schedules.
const SHUTTLE: &str = "--cfg shuttle";
/// Number of schedules of one cast for one bug: some seconds.
const SCHEDULES: &str = "6000";

fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// The packages with tests that notice planted bugs. Tests of other packages have names that are
/// also used here.
const PACKAGES: [&str; 2] = ["/crates/instrumented/Cargo.toml\"", "/crates/lab/Cargo.toml\""];

/// Builds test binaries, and returns the paths of those in [`PACKAGES`] by their names.
fn test_binaries(command: &mut Command, folder: &Path) -> io::Result<HashMap<String, PathBuf>> {
    let output = command.current_dir(folder).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other("the tests cannot be built"));
    }
    // One line for each artifact. That of a test has the path of an executable.
    let text = String::from_utf8_lossy(&output.stdout);
    let is_ours = |line: &&str| PACKAGES.iter().any(|package| line.contains(package));
    let executables = text.lines().filter(is_ours).filter_map(|line| {
        let (_, rest) = line.split_once("\"executable\":\"")?;
        Some(PathBuf::from(rest.split_once('"')?.0))
    });
    let named = executables.filter_map(|path| {
        let name = path.file_stem()?.to_str()?.rsplit_once('-')?.0;
        // The unit tests have the name of the crate, not of the package that builds them.
        Some((name.trim_end_matches("_instrumented").to_owned(), path))
    });
    Ok(named.collect())
}

/// Asks a test binary for the names of its tests.
fn names_of(binary: &Path) -> io::Result<Vec<String>> {
    let mut command = Command::new(binary);
    let output = command.args(["--list", "--format", "terse"]).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("{} lists no tests", binary.display())));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_owned())).collect())
}

impl Killers {
    /// Builds the tests of the crate with all planted bugs, unless they exist.
    fn build() -> io::Result<Killers> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
        let workspace = ["test", "--workspace", "--no-run", "--quiet", "--message-format=json"];
        let mut binaries = test_binaries(Command::new(cargo()).args(workspace), &folder)?;
        // With the flags and the folder of the part `loom`, so that cargo builds nothing twice.
        let mut loom = Command::new(cargo());
        loom.args([
            "test",
            "--release",
            "--package",
            "atomic-mmap-instrumented",
            "--lib",
            "--features",
            "mutants",
        ])
        .args(["--no-run", "--quiet", "--message-format=json"])
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", crate::checker::target(&folder, "loom"));
        let models = test_binaries(&mut loom, &folder)?;
        binaries.extend(models.into_values().map(|path| (LOOM.to_owned(), path)));
        let lab = crate::schedules::build()?;
        let lab = lab.ok_or_else(|| io::Error::other("no lab with --cfg shuttle"))?;
        binaries.insert(SHUTTLE.to_owned(), lab);
        let shm = Path::new("/dev/shm");
        let scratch = if shm.is_dir() { tempfile::tempdir_in(shm)? } else { tempfile::tempdir()? };
        let (names, normal) = (Mutex::default(), Mutex::default());
        Ok(Killers { binaries, names, scratch, folder, normal })
    }

    fn binary(&self, name: &str) -> io::Result<&Path> {
        let path = self.binaries.get(name).map(PathBuf::as_path);
        path.ok_or_else(|| io::Error::other(format!("no tests {name}")))
    }

    /// Returns the names of the tests of a binary.
    fn names(&self, binary: &str) -> io::Result<Vec<String>> {
        let mut known = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(names) = known.get(binary) {
            return Ok(names.clone());
        }
        let names = names_of(self.binary(binary)?)?;
        known.insert(binary.to_owned(), names.clone());
        Ok(names)
    }

    /// Returns a command that runs the tests of a place with `filter` in their names, and no other.
    fn tests(&self, place: &str, filter: &str) -> io::Result<Command> {
        // A module comes first: a program of the lab may have its name, and unit tests.
        let module = format!("{place}::");
        let is_module = self.names(INTEGRATION)?.iter().any(|name| name.starts_with(&module));
        let (binary, prefix) = if is_module { (INTEGRATION, &*module) } else { (place, "") };
        let mut asked = self.names(binary)?;
        asked.retain(|name| name.strip_prefix(prefix).is_some_and(|rest| rest.contains(filter)));
        if asked.is_empty() {
            return Err(io::Error::other(format!("no test {filter} in {place}")));
        }
        let mut command = Command::new(self.binary(binary)?);
        command.args(["--exact", "--test-threads=2"]).args(asked);
        Ok(command)
    }

    fn command(&self, killer: Killer, attempt: usize) -> io::Result<Command> {
        let command = match killer {
            Killer::Test(place, filter, environment) => {
                let mut command = self.tests(place, filter)?;
                command.envs(environment.iter().filter_map(|setting| setting.split_once('=')));
                command
            }
            Killer::Loom(model) => {
                let path = self.binaries.get(LOOM).ok_or_else(|| io::Error::other("no models"))?;
                let mut command = Command::new(path);
                command.arg(model);
                command
            }
            Killer::Lab(words) => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(words);
                command
            }
            Killer::Schedules(cast) => {
                let path = self.binaries.get(SHUTTLE).ok_or_else(|| io::Error::other("no lab"))?;
                let mut command = Command::new(path);
                // Each attempt uses another seed.
                let seed = (21 + attempt).to_string();
                command.args([crate::schedules::INNER, "--seed", &seed, "--count", SCHEDULES]);
                command.args(["--cast", cast]);
                command
            }
        };
        Ok(command)
    }

    fn run(
        &self,
        killer: Killer,
        mutant: Option<Mutant>,
        attempt: usize,
    ) -> io::Result<(End, Duration)> {
        let mut command = self.command(killer, attempt)?;
        match mutant {
            Some(mutant) => command.env(mutants::VARIABLE, mutant.name()),
            None => command.env_remove(mutants::VARIABLE),
        };
        command.current_dir(&self.folder).env_remove(SOME);
        // All files in memory, except those of tests about the file systems of a disk.
        command.env("ATOMIC_MMAP_TEST_RAM_DIR", self.scratch.path());
        if !matches!(killer, Killer::Test("world", ..)) {
            command.env("ATOMIC_MMAP_TEST_DIR", self.scratch.path());
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // A process group of its own, because its children must die with it.
        command.process_group(0);
        let start = Instant::now();
        let normal =
            self.normal.lock().unwrap_or_else(PoisonError::into_inner).get(&killer).copied();
        let limit = match (mutant, normal) {
            (Some(_), Some(normal)) => (normal * PATIENCE).max(AT_LEAST),
            _ => LONGEST,
        };
        let end = match wait(&mut command.spawn()?, limit)? {
            None => End::Hung,
            Some(status) if status.success() => End::Passed,
            Some(_) => End::Failed,
        };
        let took = start.elapsed();
        if mutant.is_none() {
            let mut normal = self.normal.lock().unwrap_or_else(PoisonError::into_inner);
            normal.insert(killer, took);
        }
        Ok((end, took))
    }
}

/// Waits for the child. After the time limit, kills it with its children.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit {
            // SAFETY: no precondition; the group is this child's, which was not waited for yet.
            unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Does `work` for all of `items`, on all processors.
fn for_all<T: Sync>(items: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(item);
                }
            });
        }
    });
}

/// Plants every bug, and prints the list of the killers that noticed them.
pub fn run(settings: &Settings, progress: &Progress) -> Outcome {
    let mut outcome = Outcome::of("mutants");
    let some = std::env::var(SOME).unwrap_or_default();
    let is_chosen = |mutant: &Mutant| {
        mutant.name().contains(&some) && (settings.has_name(mutant.name()) || is_cheap(*mutant))
    };
    let chosen: Vec<Mutant> = mutants::ALL.iter().copied().filter(is_chosen).collect();
    let killers = match Killers::build() {
        Ok(killers) => killers,
        Err(error) => {
            outcome.skipped = Some(error.to_string());
            return outcome;
        }
    };
    let violations = Mutex::new(Vec::new());
    let violation = |text: String| {
        violations.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    };
    // Without a bug, everything passes.
    let mut all: Vec<Killer> = Vec::new();
    for mutant in &chosen {
        if let Fate::KilledBy(by) = fate(*mutant) {
            let new: Vec<Killer> = by.into_iter().filter(|killer| !all.contains(killer)).collect();
            all.extend(new);
        }
    }
    for_all(&all, |killer| {
        progress.tick(format_args!("without a bug: {killer}"));
        match killers.run(*killer, None, 0) {
            Ok((End::Passed, _)) => {}
            Ok((end, _)) => violation(format!("{killer}: {end:?} without a bug")),
            Err(error) => violation(format!("{killer}: {error}")),
        }
    });
    let (done, killed) = (AtomicU64::new(0), AtomicU64::new(0));
    let lines = Mutex::new(Vec::new());
    for_all(&chosen, |mutant| {
        let what = match fate(*mutant) {
            Fate::KilledBy(by) => match noticed_at_last(&killers, *mutant, &by) {
                Ok(Some(what)) => {
                    killed.fetch_add(1, Ordering::Relaxed);
                    what
                }
                Ok(None) => "SURVIVES".into(),
                Err(error) => {
                    violation(format!("{}: {error}", mutant.name()));
                    "not run".into()
                }
            },
            Fate::Equivalent(proof) => format!("equivalent: {proof}"),
        };
        let line = format!("{:32} {:22} {what}", mutant.name(), mutant.file());
        lines.lock().unwrap_or_else(PoisonError::into_inner).push((*mutant as u16, line));
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        progress.tick(format_args!("{done} of {} bugs", chosen.len()));
    });
    let mut lines = lines.into_inner().unwrap_or_else(PoisonError::into_inner);
    lines.sort();
    if let Some(tenth) = settings.tenth {
        println!("tenth {tenth} of the planted bugs (0 to 9, by their names), and all cheap ones:");
    }
    println!("{:32} {:22} noticed by", "planted bug", "in");
    lines.iter().for_each(|(_, line)| println!("{line}"));
    let is_equivalent = |mutant: &&Mutant| matches!(fate(**mutant), Fate::Equivalent(_));
    let equivalent = chosen.iter().filter(is_equivalent).count();
    outcome.planted = (chosen.len() - equivalent) as u64;
    outcome.killed = killed.into_inner();
    outcome.runs = format!(
        "{}{} of {} planted one at a time, {equivalent} of them proven to change nothing; {} killers",
        settings.tenth_in_words(),
        chosen.len(),
        mutants::ALL.len(),
        all.len()
    );
    outcome.violations = violations.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcome
}

/// Calls [`first_to_notice`] several times. A test that holds a window open for other threads sees
/// nothing on a busy machine. And a few random schedules may miss the right one.
fn noticed_at_last(killers: &Killers, mutant: Mutant, by: &[Killer]) -> io::Result<Option<String>> {
    for attempt in 0..ATTEMPTS {
        let noticed = first_to_notice(killers, mutant, by, attempt)?;
        if noticed.is_some() {
            return Ok(noticed);
        }
    }
    Ok(None)
}

fn first_to_notice(
    killers: &Killers,
    mutant: Mutant,
    by: &[Killer],
    attempt: usize,
) -> io::Result<Option<String>> {
    for killer in by {
        let (end, took) = killers.run(*killer, Some(mutant), attempt)?;
        if end != End::Passed {
            let hangs = if end == End::Hung { " (hangs)" } else { "" };
            return Ok(Some(format!("{killer}{hangs}, {:.1} s", took.as_secs_f64())));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_has_its_killers_or_a_reason_to_have_none() {
        for mutant in mutants::ALL {
            let (Fate::KilledBy(_) | Fate::Equivalent(_)) = fate(*mutant);
        }
    }
}
