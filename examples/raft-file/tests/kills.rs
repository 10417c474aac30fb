//! Tests the example with a few kills, and without a partition: a test changes no network of its
//! machine.

use std::process::Command;

#[test]
fn no_acknowledged_write_is_lost_in_a_few_kills() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_raft-file"));
    let done =
        program.args(["--kills", "6", "--seed", "3", "--no-partition"]).output().expect("run");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    assert!(said.contains("0 lost, every answer explained, 3 equal files"), "{said}");
}
