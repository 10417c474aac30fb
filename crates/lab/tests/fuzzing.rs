//! The fuzz targets without the fuzzer: each over its corpus, and over mutations of it.
//!
//! The test needs only stable Rust, no coverage and no sanitizer. So machines without cargo-fuzz
//! run at least this. Targets that open many files for one input get fewer mutations. The mutations
//! are the same in every run. A failing input is written to the temporary folder of the system, for
//! `cargo fuzz run`.
#![cfg(all(target_os = "linux", target_arch = "x86_64", not(atomic_mmap_portable)))]

use lab::fuzzing::{TARGETS, Target, reading, templates};
use lab::part::Settings;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Maximum length of an input, as in `fuzz/run`.
const LONGEST: usize = 4096;

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut paths: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths.into_iter().map(|path| fs::read(path).expect("a seed")).collect()
}

#[track_caller]
fn run(name: &str, target: Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        let path = std::env::temp_dir().join(format!("atomic-mmap-fuzz-{name}"));
        fs::write(&path, input).expect("to keep the input");
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
        panic!(
            "{name}: {}\nthe input: {} (cargo +nightly fuzz run {name} {0})",
            text.unwrap_or_default(),
            path.display()
        );
    }
}

fn hold(name: &str, mutations: usize) {
    let (_, target) = TARGETS.into_iter().find(|(n, _)| *n == name).expect("a target");
    let corpus = corpus(name);
    for input in &corpus {
        run(name, target, input);
    }
    let settings = Settings { seed: 1, quick: true, seconds: None, tenth: None };
    let mut rng = settings.rng(name);
    for _ in 0..mutations {
        let mut input = corpus[rng.usize(..corpus.len())].clone();
        for _ in 0..1 + rng.usize(..6) {
            mutate(&mut input, &corpus, &mut rng);
        }
        input.truncate(LONGEST);
        run(name, target, &input);
    }
}

fn mutate(input: &mut Vec<u8>, corpus: &[Vec<u8>], rng: &mut fastrand::Rng) {
    let at = rng.usize(..input.len().max(1));
    match rng.u8(..8) {
        0..=2 if !input.is_empty() => input[at] ^= 1 << rng.u8(..8),
        3 | 4 if !input.is_empty() => input[at] = rng.u8(..),
        5 => input.truncate(at),
        6 => {
            let other = &corpus[rng.usize(..corpus.len())];
            let from = rng.usize(..other.len().max(1)).min(other.len());
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        _ => {
            let more: Vec<u8> = (0..1 + rng.usize(..20)).map(|_| rng.u8(..)).collect();
            let at = at.min(input.len());
            input.splice(at..at, more);
        }
    }
}

#[test]
fn entries_are_decoded() {
    hold("entry_decode", 2000);
}

#[test]
fn journals_are_decoded() {
    hold("journal_decode", 2000);
}

#[test]
fn snapshots_are_decoded() {
    hold("snapshots_decode", 2000);
}

#[test]
fn streams_are_decoded() {
    hold("export_decode", 2000);
}

#[test]
fn any_bytes_are_opened_or_refused() {
    hold("open_bytes", 500);
}

#[test]
fn changed_crash_images_are_opened_or_refused() {
    hold("open_mutated", 250);
}

#[test]
fn files_that_do_not_go_together_are_told_apart() {
    hold("mismatch", 150);
}

#[test]
fn files_hold_what_was_written_to_them() {
    hold("operations", 150);
}

#[test]
fn names_and_logs_hold_what_was_written_and_refuse_damaged_bytes() {
    hold("structures", 200);
}

/// Tests the second reading, which judges the engine. From a crash image, it must read the content
/// before or after the operation.
#[test]
fn the_second_reading_finds_what_was_written() {
    let (mut read, mut gone_back) = (0, 0);
    for (n, template) in templates::made().iter().enumerate() {
        if template.states.is_empty() {
            continue;
        }
        let found = reading::of_this_boot(&template.image);
        let found = found.unwrap_or_else(|| panic!("image {n} is no pair"));
        assert!(
            template.states.iter().any(|state| found.difference(state).is_none()),
            "image {n}: {:?}",
            template.states.iter().map(|state| found.difference(state)).collect::<Vec<_>>()
        );
        read += 1;
        if template.points.is_empty() {
            continue;
        }
        let found = reading::of_another_boot(&template.image);
        let found = found.unwrap_or_else(|| panic!("image {n} is no pair after a restart"));
        assert!(
            template.points.iter().any(|point| found.difference(point).is_none()),
            "image {n} after a restart: {:?}",
            template.points.iter().map(|point| found.difference(point)).collect::<Vec<_>>()
        );
        gone_back += 1;
    }
    assert!(gone_back > 40, "only {gone_back} images were read as after a restart");
    assert!(read >= templates::COUNT * 3 / 4, "only {read} images were read");
}
