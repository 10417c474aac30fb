//! Failing system calls during durable points: all scenarios on a page cache in memory.
#![cfg(target_os = "linux")]

use lab::faults;
use lab::part::Settings;

fn assert_clean(name: &str) {
    let settings = Settings { seed: 1, quick: true, seconds: None, tenth: None };
    let violations = faults::check_some(name, &settings);
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn failing_syncs_of_both_files_poison() {
    assert_clean("points: by flush");
    assert_clean("points: a full journal");
}

#[test]
fn failures_in_the_background_poison() {
    assert_clean("points: checkpoint in the background");
    assert_clean("points: by themselves");
}

#[test]
fn failing_calls_of_all_or_nothing_and_of_every_write_lose_nothing() {
    assert_clean("points: all or nothing");
    assert_clean("points: every write");
    assert_clean("points: restarted in a sync");
}

#[test]
fn failing_calls_of_documents_leave_the_old_one_or_the_new_one() {
    assert_clean("documents");
}

#[test]
fn failing_calls_of_snapshots_leave_all_of_them() {
    assert_clean("snapshots: the first");
}
