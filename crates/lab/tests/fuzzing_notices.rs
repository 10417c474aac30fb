//! Would the fuzzer notice a wrong recovery? Bugs of going back are planted, and the corpora must find each.
//!
//! How: the second reading shares no code with recovery, so a bug that is planted there makes the two
//! disagree. A binary of its own: a bug is planted for the whole process. Of durable points only; that
//! all else is noticed is `lab mutants`' question.
#![cfg(all(target_os = "linux", target_arch = "x86_64", not(atomic_mmap_portable)))]

use atomic_mmap::testing::mutants::{self, Mutant};
use lab::fuzzing::{TARGETS, templates};
use std::fs;
use std::panic;
use std::path::Path;

/// Random inputs that are tried where the corpora do not notice a bug.
const RANDOM: u64 = 3_000;

/// The targets whose inputs open pairs: the quickest first.
const OPENING: [&str; 4] = ["open_mutated", "mismatch", "open_bytes", "operations"];

/// The target and the input that notice the bug that is planted.
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

/// The number of the random input to `operations` that notices it: where a process dies at an event of a
/// certain number, which input hits the window changes with every change of the engine.
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
    // Made by an engine without a bug.
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
        // A thread of its own: with files that no panic has left open.
        let look = || noticed_by().or_else(noticed_at_random);
        let noticed = std::thread::spawn(look).join().expect("no panic");
        mutants::set(None);
        assert!(noticed.is_some(), "{}: nobody notices", mutant.name());
        println!("{}: {}", mutant.name(), noticed.expect("as above"));
    }
}
