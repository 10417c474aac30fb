//! Planted bugs in the way back to a durable point: the corpora of the fuzzer must find each of
//! them.
//!
//! The second reading shares no code with recovery, so a planted bug in recovery makes the two
//! disagree. A binary of its own, because a bug is planted for the whole process. Bugs elsewhere
//! belong to the part `mutants`.
#![cfg(all(target_os = "linux", target_arch = "x86_64", not(atomic_mmap_portable)))]

use atomic_mmap::testing::mutants::{self, Mutant};
use lab::fuzzing::{TARGETS, templates};
use std::fs;
use std::panic;
use std::path::Path;

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

#[test]
fn planted_bugs_of_going_back_are_noticed() {
    // The templates must come from an engine without a bug.
    templates::made();
    assert_eq!(noticed_by(), None, "without a bug");
    for mutant in [
        Mutant::FloorNotChecked,
        Mutant::NotReplayed,
        Mutant::WorkingWordsKept,
        Mutant::RegionWordsKept,
        Mutant::PastPointKept,
        Mutant::OpeningIsNoPoint,
        Mutant::BackAfterDeath,
        Mutant::RestartNotNoticed,
        Mutant::InPlaceFlips,
        Mutant::RecordOfOldLength,
        Mutant::ShrinkNoPoint,
        Mutant::ChangeNotNoted,
    ] {
        mutants::set(Some(mutant));
        // A thread of its own, with files that no panic has left open.
        let look = || noticed_by().or_else(noticed_at_random);
        let noticed = std::thread::spawn(look).join().expect("no panic");
        mutants::set(None);
        assert!(noticed.is_some(), "{}: no case notices it", mutant.name());
        println!("{}: {}", mutant.name(), noticed.expect("as above"));
    }
}
