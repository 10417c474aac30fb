//! Planted bugs in the way back to a durable point: the corpora of the fuzzer must find each of
//! them.
//!
//! The second reading shares no code with recovery, so a planted bug in recovery makes the two
//! disagree. Each bug is planted in a child process, since it holds for the whole process. Bugs
//! elsewhere belong to the part `mutants`.
#![cfg(all(target_os = "linux", target_arch = "x86_64", not(atomic_mmap_portable)))]

use atomic_mmap::testing::mutants::{self, Mutant};
use lab::fuzzing::{TARGETS, templates};
use std::fs;
use std::panic;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

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
const BUG: &str = "LAB_FUZZING_NOTICES";

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

/// Runs the corpora with a planted bug in a child process. Returns the child's output.
fn run_with(bug: &str) -> String {
    let program = std::env::current_exe().expect("this program");
    let name = "planted_bugs_of_going_back_are_noticed";
    let child = Command::new(program)
        .args(["--exact", name, "--nocapture", "--ignored"])
        .env(BUG, bug)
        .output()
        .expect("a child");
    String::from_utf8_lossy(&child.stdout).into_owned()
}

fn be_the_child(bug: &str) {
    // The templates must come from an engine without a bug.
    templates::made();
    mutants::set(mutants::by_name(bug));
    let noticed = noticed_by().or_else(|| if bug == NO_BUG { None } else { noticed_at_random() });
    mutants::set(None);
    println!("\n{bug} noticed by {noticed:?}");
}

const NO_BUG: &str = "none";

/// Seconds if the build is optimized, and ten times as many if not.
#[test]
#[ignore = "slow without optimization: .ci/run runs it in a release build"]
fn planted_bugs_of_going_back_are_noticed() {
    if let Ok(bug) = std::env::var(BUG) {
        return be_the_child(&bug);
    }
    let next = AtomicUsize::new(0);
    let bugs: Vec<&str> = [NO_BUG].into_iter().chain(BUGS.iter().map(|bug| bug.name())).collect();
    let work = || {
        while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let said = run_with(bug);
            let is_noticed = said.contains(&format!("{bug} noticed by Some("));
            let is_quiet = said.contains(&format!("{bug} noticed by None"));
            let expected = if *bug == NO_BUG { is_quiet } else { is_noticed };
            assert!(expected, "{bug}: {said}");
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, |all| all.get());
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
}
