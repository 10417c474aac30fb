//! Runs other tests again, on files with sums.
//!
//! Each test runs this test program once more. Its environment gives every file sums that each read
//! verifies. So an operation or a crash that leaves a page without its sum fails there.

use atomic_mmap::INTEGRITY_VARIABLE;
use std::process::Command;

#[track_caller]
fn again(filters: &[&str]) {
    if std::env::var_os(INTEGRITY_VARIABLE).is_some() {
        return;
    }
    let program = std::env::current_exe().expect("this program");
    let run = Command::new(program).args(filters).env(INTEGRITY_VARIABLE, "on-read").output();
    let run = run.expect("run the tests");
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{text}\n{}", String::from_utf8_lossy(&run.stderr));
    assert!(!text.contains(" 0 passed"), "no test has one of these names: {filters:?}");
}

#[test]
fn random_operations_and_snapshots() {
    again(&["snapshots::model::"]);
}

#[test]
fn losses_of_power() {
    again(&["snapshots::power::a_rollback", "power::new_lengths"]);
}

#[test]
fn processes_that_are_killed() {
    again(&["snapshots::kill::"]);
}
