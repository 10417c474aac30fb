//! The part `corpora`: the corpora of the fuzzer find bugs that are planted in the way back to a
//! durable point.
//!
//! Owns: the part `corpora`. The second reading shares no code with recovery, so a planted bug in
//! recovery makes the two disagree. Each bug is planted in a child process, since it holds for the
//! whole process. Bugs elsewhere belong to the part `mutants`.

use crate::fuzzing::{TARGETS, templates};
use crate::part::{Outcome, Settings};
use crate::progress::Progress;
use atomic_mmap::testing::mutants::{self, Mutant};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{fs, io, panic};

/// Number of random inputs that are tried if the corpora do not notice a bug.
const RANDOM: u64 = 3_000;

/// The targets with inputs that open pairs, the quickest first.
const OPENING: [&str; 4] = ["open_mutated", "mismatch", "open_bytes", "operations"];

/// Returns the target and the input that notice the planted bug.
fn noticed_by() -> Option<String> {
    for name in OPENING {
        let (_, target) = TARGETS.into_iter().find(|(n, _)| *n == name).expect("a target");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
        let mut paths: Vec<_> = fs::read_dir(&folder)
            .expect("a corpus")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        paths.sort();
        for path in paths {
            let input = fs::read(&path).expect("a seed");
            if panic::catch_unwind(|| target(&input)).is_err() {
                return Some(path.display().to_string());
            }
        }
    }
    None
}

/// Returns the number of the random input to `operations` that notices the bug. A process dies at
/// an event with a certain number, so every change of the engine changes the input that hits the
/// window.
fn noticed_at_random() -> Option<String> {
    let (_, operations) = TARGETS.into_iter().find(|(n, _)| *n == "operations").expect("a target");
    (0..RANDOM).find_map(|n| {
        let mut rng = fastrand::Rng::with_seed(n);
        let input: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(300).collect();
        panic::catch_unwind(|| operations(&input)).is_err().then(|| format!("random input {n}"))
    })
}

/// Names the planted bug of a child process.
const BUG: &str = "LAB_CORPORA";

const BUGS: [Mutant; 12] = [
    Mutant::FloorNotChecked,
    Mutant::NotReplayed,
    Mutant::WorkingWordsKept,
    Mutant::RegionWordsKept,
    Mutant::PastPointKept,
    Mutant::OpeningIsNoPoint,
    Mutant::BackAfterDeath,
    Mutant::RestartNotNoticed,
    Mutant::RedoFlipsClaimed,
    Mutant::RecordOfOldLength,
    Mutant::ShrinkNoPoint,
    Mutant::ChangeNotNoted,
];

const NO_BUG: &str = "none";

/// Runs the corpora with a planted bug in a child process. Returns the child's output.
fn run_with(bug: &str) -> io::Result<String> {
    let child = Command::new(std::env::current_exe()?).arg("corpora").env(BUG, bug).output()?;
    Ok(String::from_utf8_lossy(&child.stdout).into_owned())
}

/// Plays the child. Says whether the planted bug was noticed, and by which input.
fn be_the_child(bug: &str) {
    // The templates must come from an engine without a bug.
    templates::made();
    mutants::set(mutants::by_name(bug));
    let noticed = noticed_by().or_else(|| if bug == NO_BUG { None } else { noticed_at_random() });
    mutants::set(None);
    println!("{bug} noticed by {noticed:?}");
}

/// Runs the part. The corpora determine the amount, quick or not.
pub fn run(_settings: &Settings, progress: &Progress) -> Outcome {
    let mut outcome = Outcome::of("corpora");
    if let Ok(bug) = std::env::var(BUG) {
        be_the_child(&bug);
        return outcome;
    }
    let bugs: Vec<&str> = [NO_BUG].into_iter().chain(BUGS.iter().map(|bug| bug.name())).collect();
    let (next, said) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let answer = run_with(bug).unwrap_or_else(|error| error.to_string());
            said.lock().unwrap_or_else(PoisonError::into_inner).push((*bug, answer));
            progress.tick(format_args!("{bug}"));
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, |all| all.get());
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    for (bug, said) in said.into_inner().unwrap_or_else(PoisonError::into_inner) {
        let is_noticed = said.contains(&format!("{bug} noticed by Some("));
        let is_quiet = said.contains(&format!("{bug} noticed by None"));
        outcome.killed += u64::from(is_noticed);
        if !(if bug == NO_BUG { is_quiet } else { is_noticed }) {
            outcome.violations.push(format!("{bug}: {said}"));
        }
    }
    outcome.planted = BUGS.len() as u64;
    outcome.runs = format!("the corpora of {} targets, with each bug and without", OPENING.len());
    outcome
}
