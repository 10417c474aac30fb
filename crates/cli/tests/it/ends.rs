//! The ends of a command: signals, closed pipes, usage.

use crate::common::{Run, Scratch, command, damage, make, run, scratch};
use atomic_mmap::CloseMode;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A command that runs. It is killed on drop, so that a test that fails leaves none.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Running {
        Running(command.stdout(Stdio::piped()).spawn().expect("start"))
    }

    fn lines(&mut self) -> std::io::Lines<BufReader<ChildStdout>> {
        BufReader::new(self.0.stdout.take().expect("its output")).lines()
    }

    fn interrupt(&self) {
        let process = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(process, rustix::process::Signal::INT)
            .expect("send a signal");
    }

    /// Waits for the end by SIGINT. Returns what was printed to standard error, if that is a pipe.
    #[track_caller]
    fn ends_interrupted(mut self) -> String {
        let mut said = String::new();
        if let Some(mut pipe) = self.0.stderr.take() {
            pipe.read_to_string(&mut said).expect("its errors");
        }
        assert_eq!(self.0.wait().expect("its end").code(), Some(130), "{said}");
        said
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _ended_already = self.0.wait();
    }
}

#[test]
fn sigint_ends_a_stream_between_two_lines() {
    let scratch = scratch();
    let path = scratch.file("plain");
    std::fs::write(&path, [7; 5000]).expect("write");
    let mut command = command();
    let command = command.args(["watch", "--json", "--interval", "0.01"]).arg(&path);
    let mut watch = Running::start(command.stderr(Stdio::piped()));
    let mut lines = watch.lines();
    lines.next().expect("a line").expect("a line");
    watch.interrupt();
    for line in lines {
        let line = line.expect("a line");
        let _whole: serde_json::Value = serde_json::from_str(&line).expect("a whole object");
    }
    let said = watch.ends_interrupted();
    assert_eq!(said, "interrupted; nothing was changed\n");
}

/// Starts a `bench` that does not end by itself.
fn bench(folder: &Scratch, companions: Option<&Scratch>) -> Running {
    let mut command = command();
    command.args(["bench", "--seconds", "80000"]).arg(folder.path());
    if let Some(companions) = companions {
        command.arg("--reflection-dir").arg(companions.path());
    }
    Running::start(command.stderr(Stdio::piped()))
}

#[test]
fn sigint_leaves_no_scratch_folder() {
    let scratch = scratch();
    let bench = bench(&scratch, None);
    while !scratch.names().iter().any(|name| scratch.file(name).join("bench").exists()) {
        std::thread::yield_now();
    }
    bench.interrupt();
    bench.ends_interrupted();
    assert_eq!(scratch.names(), [] as [&str; 0]);
}

/// A command may be anywhere between its first folder and its first file.
#[test]
fn sigint_right_after_the_scratch_folders() {
    for _ in 0..20 {
        let (scratch, companions) = (scratch(), scratch());
        let bench = bench(&scratch, Some(&companions));
        while scratch.names().is_empty() {
            std::thread::yield_now();
        }
        bench.interrupt();
        let said = bench.ends_interrupted();
        assert_eq!(said, "interrupted; nothing was changed\n");
        assert_eq!(scratch.names(), [] as [&str; 0]);
        assert_eq!(companions.names(), [] as [&str; 0]);
    }
}

#[test]
fn sigint_leaves_no_companions_in_their_folder() {
    let (scratch, companions) = (scratch(), scratch());
    let bench = bench(&scratch, Some(&companions));
    let has_companion = |name: &String| {
        let found = companions.file(name).read_dir().expect("list").next();
        found.is_some_and(|entry| entry.is_ok())
    };
    while !companions.names().iter().any(has_companion) {
        std::thread::yield_now();
    }
    bench.interrupt();
    bench.ends_interrupted();
    assert_eq!(scratch.names(), [] as [&str; 0]);
    assert_eq!(companions.names(), [] as [&str; 0]);
}

/// Returns the writing end of a pipe without a reader.
fn closed() -> std::io::PipeWriter {
    std::io::pipe().expect("a pipe").1
}

#[test]
fn a_closed_pipe_is_no_failure_and_no_panic() {
    let scratch = scratch();
    let path = scratch.file("closed");
    make(&path, CloseMode::Fast);
    for arguments in [&["watch", "--interval", "0.01"][..], &["inspect"], &["heatmap"]] {
        let ended = command().args(arguments).arg(&path).stdout(closed()).output().expect("run");
        let ended = Run(ended).code(0);
        assert_eq!(ended.err(), "");
    }
    damage(&scratch);
    let repair = &["repair", "--discard", "--yes"][..];
    for (code, arguments) in [
        (3, &["inspect"][..]),
        (3, &["verify"]),
        (3, &["stats"]),
        (3, &["stats", "--prometheus"]),
        (3, &["heatmap"]),
        (3, &["heatmap", "--form", "png"]),
        (3, &["watch", "--interval", "0.01"]),
        (3, &["repair"]),
        (4, repair),
    ] {
        let mut command = command();
        let ended = command.args(arguments).arg(&path).stdout(closed()).output().expect("run");
        assert_eq!(Run(ended).code(code).err(), "", "{arguments:?}");
    }
}

/// A picture that does not reach its reader is a failure, unlike standard output.
#[test]
fn a_picture_for_a_closed_pipe_is_a_failure() {
    let scratch = scratch();
    let path = scratch.file("closed");
    make(&path, CloseMode::Fast);
    let mut command = command();
    let command = command.args(["heatmap", "-o", "/dev/stdin", "--form", "svg"]).arg(&path);
    let failed = Run(command.stdin(closed()).output().expect("run")).code(1);
    assert!(failed.err().starts_with("error: /dev/stdin"), "{}", failed.err());
}

#[test]
fn a_closed_standard_error_changes_no_exit_code() {
    let scratch = scratch();
    let path = scratch.file("closed");
    make(&path, CloseMode::Fast);
    let missing = scratch.file("none");
    for (code, arguments, path) in [
        (1, &["inspect"][..], &missing),
        (1, &["inspect", "--json"], &missing),
        (0, &["-v", "settle"], &path),
    ] {
        let mut command = command();
        let ended = command.args(arguments).arg(path).stderr(closed()).output().expect("run");
        Run(ended).code(code);
    }
    make(&path, CloseMode::Fast);
    damage(&scratch);
    let mut repair = command();
    repair.args(["repair", "--discard"]).arg(&path);
    Run(repair.stderr(closed()).output().expect("run")).code(3);
    let mut watch = command();
    let watch = watch.args(["watch", "--json", "--interval", "0.01"]).arg(&path);
    let mut watch = Running::start(watch.stderr(closed()));
    let mut lines = watch.lines();
    lines.next().expect("a line").expect("a line");
    watch.interrupt();
    lines.for_each(drop);
    watch.ends_interrupted();
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
