//! Calls on mappings that fail, and ends of programs: the cases of `faults.c`.

use crate::calls::build;
use crate::common::{Scratch, has};

/// Runs a case with the kernel's tracking, and without it.
fn run(scratch: &Scratch, case: &str) {
    let program = build(scratch, "faults.c", &["-O1"]);
    for way in ["atomic", "atomic-compare"] {
        for name in ["x.dat", "y.dat"] {
            let _none = std::fs::remove_file(scratch.path(name));
        }
        let _none = std::fs::remove_dir(scratch.path("folder"));
        let mut command = scratch.command(&program);
        let chosen = format!("{}/**.dat", scratch.folder().display());
        command
            .env("ATOMIC_MMAP_FILES", chosen)
            .arg(scratch.folder())
            .arg(case)
            .env("ATOMIC_MMAP_MSYNC", way);
        let output = command.output().expect("run");
        let said = String::from_utf8_lossy(&output.stderr);
        let status = output.status;
        assert!(status.success(), "{case} {way}: {status}\n{said}\n{}", scratch.log());
        assert_eq!(scratch.companions(), [""; 0], "{case} {way}");
    }
}

#[test]
fn a_fixed_mmap_that_fails_leaves_what_is_there() {
    run(&Scratch::new(), "fixed");
}

#[test]
fn munmap_checks_all_regions_before_it_ends_the_first() {
    run(&Scratch::new(), "several");
}

#[test]
fn advice_takes_effect_beside_a_region() {
    run(&Scratch::new(), "advice");
}

#[test]
fn stores_after_an_exec_that_failed_are_published_at_the_end() {
    run(&Scratch::new(), "execs");
}

#[test]
fn exit_waits_for_the_durable_point_of_another_thread() {
    if !has("strace") {
        return;
    }
    let scratch = Scratch::on_disk();
    let program = build(&scratch, "faults.c", &["-O1"]);
    let slow = "inject=pwritev2:delay_enter=1500000";
    let mut traced = scratch.traced(&["-o", "/dev/null", "-E", "ATOMIC_MMAP_MSYNC=atomic"]);
    let traced = traced.args(["-e", slow]).arg(program).arg(scratch.folder()).arg("beside");
    let output = traced.output().expect("run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{}", scratch.log());
}

/// There the engine calls `syncfs`, with the lock of a file.
#[test]
fn a_folder_that_cannot_be_read_is_synced_without_a_deadlock() {
    for scratch in [Scratch::new(), Scratch::on_disk()] {
        run(&scratch, "unreadable");
    }
}

#[test]
fn daemon_and_exit_group_publish() {
    run(&Scratch::new(), "ends");
}

#[test]
fn many_regions_leave_the_program_its_descriptors() {
    run(&Scratch::new(), "descriptors");
}

#[test]
fn a_thread_with_a_small_stack_publishes() {
    run(&Scratch::new(), "stack");
}

#[test]
fn without_memory_a_publication_is_made_later() {
    run(&Scratch::new(), "memory");
}
