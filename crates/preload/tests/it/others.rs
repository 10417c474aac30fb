//! Calls that reach a file by other ways than `open` and `write`: the cases of `others.c`, with and
//! without the preload.

use crate::calls::build;
use crate::common::Scratch;
use std::process::Command;

/// Runs a case both ways, in memory and on the disk.
fn run(case: &str, flags: &[&str]) {
    for make in [Scratch::new, Scratch::on_disk] {
        let scratch = make();
        let program = build(&scratch, "others.c", flags);
        let plain = Command::new(&program).arg(scratch.folder()).arg(case).status();
        assert!(plain.expect("run").success(), "{case} without the preload");

        let scratch = make();
        let program = build(&scratch, "others.c", flags);
        let mut command = scratch.command(&program);
        command.env("ATOMIC_MMAP_FILES", format!("{}/**.dat", scratch.folder().display()));
        let output = command.arg(scratch.folder()).arg(case).output().expect("run");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{case}: {}\n{said}\n{}", output.status, scratch.log());
        assert_eq!(scratch.companions(), [""; 0], "{case}");
    }
}

/// glibc writes the text by a call of its own.
#[test]
fn formatted_text_is_one_write() {
    run("formatted", &["-O0"]);
    run("formatted", &["-O2", "-D_FORTIFY_SOURCE=2"]);
}

/// Programs write the head of a log if `ftell` returns zero.
#[test]
fn a_stream_that_appends_tells_the_end() {
    run("appending", &["-O1"]);
}

/// They went to the home file, past its pair.
#[test]
fn calls_by_number_open_and_copy_as_those_by_name() {
    run("numbers", &["-O1"]);
}

/// A close wrote to the home file after `cp -p` had given it its time. Companions were readable by
/// those that a later `fchmod` shut out.
#[test]
fn times_and_modes_are_those_that_the_program_gives() {
    run("attributes", &["-O1"]);
}

/// Its folder could not be removed, and a kill left companions that nothing removed.
#[test]
fn an_open_file_that_is_removed_leaves_no_companions() {
    run("nameless", &["-O1"]);
}

/// A temporary file becomes a chosen one while it is open. Its descriptor wrote past the pair.
#[test]
fn descriptors_follow_their_file_to_a_chosen_name() {
    run("renamed", &["-O1"]);
}

/// The engine's thread took signals that the program had blocked: they ended it.
#[test]
fn blocked_signals_wait_for_the_program() {
    run("signals", &["-O1"]);
}

/// The kernel placed them by an offset and a length that it does not have.
#[test]
fn record_locks_lie_where_the_offset_and_the_end_are() {
    run("locks", &["-O1"]);
}

/// It read and wrote the home file, past the pair.
#[test]
fn a_descriptor_that_comes_by_a_socket_is_served() {
    run("received", &["-O1"]);
}
