//! The ends of a command: signals, closed pipes, usage.

use crate::common::{Run, command, make, run, scratch};
use atomic_mmap::CloseMode;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

fn interrupt(child: &std::process::Child) {
    let process = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).expect("send a signal");
}

#[test]
fn sigint_ends_a_stream_between_two_lines() {
    let scratch = scratch();
    let path = scratch.file("plain");
    std::fs::write(&path, [7; 5000]).expect("write");
    let mut command = command();
    let command = command.args(["watch", "--json", "--interval", "0.01"]).arg(&path);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    lines.next().expect("a line").expect("a line");
    interrupt(&child);
    for line in lines {
        let line = line.expect("a line");
        let _whole: serde_json::Value = serde_json::from_str(&line).expect("a whole object");
    }
    let ended = Run(child.wait_with_output().expect("its end")).code(130);
    assert!(ended.err().starts_with("interrupted"), "{}", ended.err());
}

#[test]
fn sigint_leaves_no_scratch_folder() {
    let scratch = scratch();
    let mut command = command();
    let command = command.args(["bench", "--seconds", "80000"]).arg(scratch.path());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
    while !scratch.names().iter().any(|name| scratch.file(name).join("bench").exists()) {
        std::thread::yield_now();
    }
    interrupt(&child);
    Run(child.wait_with_output().expect("its end")).code(130);
    assert_eq!(scratch.names(), [] as [&str; 0]);
}

#[test]
fn a_closed_pipe_is_no_failure_and_no_panic() {
    let scratch = scratch();
    let path = scratch.file("closed");
    make(&path, CloseMode::Fast);
    for arguments in [&["watch", "--interval", "0.01"][..], &["inspect"], &["heatmap"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = command().args(arguments).arg(&path).stdout(writer).output().expect("run");
        let ended = Run(ended).code(0);
        assert_eq!(ended.err(), "");
    }
}

#[test]
fn wrong_arguments_and_missing_files() {
    let scratch = scratch();
    let path = scratch.file("none");
    run(&["inspect", "--no-such"], &path).code(2);
    run(&["repair", "--discard", "--trust"], &path).code(2);
    run(&["watch", "--interval", "0"], &path).code(2);
    run(&["inspect", "--medium", "paper"], &path).code(2);
    for name in ["inspect", "verify", "settle", "repair", "stats", "heatmap", "watch"] {
        let failed = run(&[name, "--json"], &path).code(1).error();
        assert_eq!(failed["code"], "failed", "{name}");
        assert!(failed["message"].as_str().is_some_and(|text| text.contains("none")), "{failed}");
    }
    assert_eq!(scratch.names(), [] as [&str; 0], "nothing was created");
    let copied = command().arg("cp").args([&path, &path]).output().expect("run");
    assert_eq!(copied.status.code(), Some(1));
}
