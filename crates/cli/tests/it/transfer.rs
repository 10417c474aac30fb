//! `send` and `receive`: from file to file, broken and refused transfers.

use crate::common::{LEN, Run, Scratch, assert_known, command, make, run, scratch};
use atomic_mmap::{AtomicMappedFile, CloseMode};
use snapbox::{assert_data_eq, str};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

fn send(path: &Path, arguments: &[&str]) -> Run {
    let mut command = command();
    command.arg("send").arg(path).args(arguments);
    Run(command.output().expect("run"))
}

/// Returns the stream of a `send`.
#[track_caller]
fn sent(path: &Path, arguments: &[&str]) -> Vec<u8> {
    let run = send(path, arguments).code(0);
    assert_eq!(run.err(), "");
    run.0.stdout
}

fn receive(path: &Path, stream: &[u8], arguments: &[&str]) -> Run {
    let mut command = command();
    command.arg("receive").arg(path).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("start");
    // A stream that is refused may be read in part alone.
    let _closed_early = child.stdin.take().expect("its input").write_all(stream);
    Run(child.wait_with_output().expect("wait"))
}

/// Makes a file with the known bytes in the snapshot `known`, and other bytes in `other`.
fn with_two(scratch: &Scratch) -> PathBuf {
    let path = scratch.file("home");
    make(&path, CloseMode::Spatial);
    let file = AtomicMappedFile::open(&path).expect("open");
    file.snapshot("known").expect("seal");
    file.write_at(b"other", 200_000).expect("write");
    file.snapshot("other").expect("seal");
    path
}

#[test]
fn a_replica_gets_a_whole_file_and_then_what_changes() {
    let scratch = scratch();
    let (path, replica) = (with_two(&scratch), scratch.file("replica"));
    let before = scratch.contents();
    let whole = sent(&path, &["known"]);
    assert!(whole.len() < LEN as usize / 10, "zeros are not sent: {}", whole.len());
    let increment = sent(&path, &["other", "--from", "known"]);
    assert!(increment.len() < 1000, "{}", increment.len());
    assert_eq!(sent(&path, &["2", "--from", "1"]), increment, "numbers name snapshots as well");
    assert_eq!(scratch.contents(), before, "a sender changes nothing");
    assert_data_eq!(
        receive(&replica, &whole, &[]).code(0).out(),
        str![[r#"
file     [..]/replica
name     known
number   1
created  20[..] UTC
length   293 KiB
pages    4

"#]]
    );
    assert_known(&replica);
    let taken = receive(&replica, &increment, &["--json"]).code(0).json();
    assert_eq!((&taken["name"], &taken["pages"]), (&"other".into(), &1.into()));
    assert_eq!(std::fs::read(&replica).expect("read"), std::fs::read(&path).expect("read"));
    let list = |path: &Path| run(&["snapshot", "list", "--json"], path).code(0).json();
    let facts = |path: &Path| {
        let all = list(path)["snapshots"].as_array().expect("a list").clone();
        all.into_iter().map(|of| [of["name"].clone(), of["created"].clone()]).collect::<Vec<_>>()
    };
    assert_eq!(facts(&replica), facts(&path));
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let scratch = scratch();
    let (path, replica) = (with_two(&scratch), scratch.file("replica"));
    let whole = sent(&path, &["known"]);
    let increment = sent(&path, &["other", "--from", "known"]);
    let error = |run: Run, exit: i32, code: &str| {
        assert_eq!(run.code(exit).error()["code"], code);
    };
    error(send(&path, &["--json", "absent"]), 1, "no-such-snapshot");
    error(send(&path, &["--json", "known", "--from", "other"]), 1, "failed");
    error(receive(&replica, &increment, &["--json"]), 1, "no-base");
    error(receive(&replica, b"no stream", &["--json"]), 1, "stream-cut");
    let mut damaged = whole.clone();
    damaged[1000] ^= 1;
    error(receive(&replica, &damaged, &["--json"]), 1, "stream-damaged");
    assert!(!replica.exists());
    receive(&replica, &whole, &[]).code(0);
    error(receive(&replica, &whole, &["--json"]), 1, "snapshot-exists");
    run(&["snapshot", "drop"], &replica).code(2);
    let file = AtomicMappedFile::open(&replica).expect("open");
    file.write_at(b"mine!", 7).expect("write");
    file.drop_snapshot("known").expect("drop");
    drop(file);
    let own = std::fs::read(&replica).expect("read");
    error(receive(&replica, &whole, &["--json"]), 1, "not-empty");
    error(receive(&replica, &increment, &["--json"]), 6, "mismatch");
    assert_eq!(std::fs::read(&replica).expect("read"), own);
    receive(&replica, &whole, &["--replace"]).code(0);
    assert_known(&replica);
}

/// A sender decides how long a file gets, and needs 368 bytes for 2 TiB.
#[test]
fn a_stream_of_a_file_that_is_too_long_makes_and_changes_nothing() {
    let scratch = scratch();
    let (path, replica) = (with_two(&scratch), scratch.file("replica"));
    let file = AtomicMappedFile::open(&path).expect("open");
    file.set_len(5 << 20).expect("grow");
    file.snapshot("long").expect("seal");
    file.close(CloseMode::Spatial).expect("close");
    let stream = sent(&path, &["long"]);
    let of = |len: &str, more: &[&str]| {
        receive(&replica, &stream, &[&["--json", "--max-len", len], more].concat())
    };
    let before = scratch.contents();
    assert_eq!(of("5242879", &[]).code(1).error()["code"], "too-long");
    assert_eq!(scratch.contents(), before);
    std::fs::write(&replica, "content").expect("write");
    let before = scratch.contents();
    assert_eq!(of("3M", &["--replace"]).code(1).error()["code"], "too-long");
    assert_eq!(scratch.contents(), before);
    of("5M", &["--replace"]).code(0);
    assert_eq!(std::fs::metadata(&replica).expect("stat").len(), 5 << 20);
}

#[test]
fn a_broken_transfer_goes_on() {
    let scratch = scratch();
    let path = scratch.file("home");
    let file = AtomicMappedFile::create(&path, 150 * 4096).expect("create");
    file.write_at(&[7; 150 * 4096], 0).expect("write");
    file.snapshot("all").expect("seal");
    drop(file);
    let replica = scratch.file("replica");
    let whole = sent(&path, &["all"]);
    let broken = receive(&replica, &whole[..whole.len() / 2], &["--json"]).code(1).error();
    assert_eq!(broken["code"], "stream-cut");
    let progress = run(&["receive", "--progress", "--json"], &replica).code(0).json();
    assert_eq!(progress["frames"], 1);
    let rest = sent(&path, &["all", "--first-frame", "1"]);
    assert!(rest.len() < whole.len());
    receive(&replica, &rest, &[]).code(0);
    assert_eq!(std::fs::read(&replica).expect("read"), std::fs::read(&path).expect("read"));
    let progress = run(&["receive", "--progress", "--json"], &replica).code(0).json();
    assert_eq!(progress["frames"], 0);
}

/// The example of the README, as it stands there.
#[test]
fn the_example_of_the_readme_runs() {
    let text = include_str!("../../README.md");
    let script = text.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next());
    let script = format!("set -euo pipefail\n{}", script.expect("an example"));
    let program = Path::new(env!("CARGO_BIN_EXE_atomic-mmap")).parent().expect("a folder");
    let others = std::env::var("PATH").unwrap_or_default();
    let scratch = scratch();
    let mut bash = std::process::Command::new("bash");
    bash.env("PATH", format!("{}:{others}", program.display())).current_dir(scratch.path());
    for variable in ["ATOMIC_MMAP_MEDIUM", "CLICOLOR_FORCE", "COLUMNS"] {
        bash.env_remove(variable);
    }
    let run = Run(bash.args(["-c", &script]).output().expect("run")).code(0);
    let (out, err) = (run.out(), run.err());
    let said = |line: &str| out.lines().any(|found| found == line);
    assert!(said("the transfer broke") && said("page sums        of 1 pages"), "{out}{err}");
    assert!(err.contains("before its last frame") && err.lines().count() == 1, "{err}");
    let replica = std::fs::read(scratch.file("replica")).expect("read");
    assert_eq!(replica, b"the ledger of tuesday\n");
    let list = names_of_snapshots(&scratch.file("replica"));
    assert_eq!(list, ["monday", "tuesday"]);
}

fn names_of_snapshots(path: &Path) -> Vec<String> {
    let list = run(&["snapshot", "list", "--json"], path).code(0).json();
    let all = list["snapshots"].as_array().expect("a list").iter();
    all.map(|of| of["name"].as_str().expect("a name").to_owned()).collect()
}

/// It named the file, though the full disk is that of the output.
#[test]
fn a_sender_to_a_full_disk_names_the_output() {
    let scratch = scratch();
    let path = scratch.file("sent");
    make(&path, CloseMode::Spatial);
    Run(command().args(["snapshot", "create"]).arg(&path).arg("s").output().expect("run")).code(0);
    let full = std::fs::File::options().write(true).open("/dev/full").expect("open");
    let mut command = command();
    let ended = command.arg("send").arg(&path).arg("s").stdout(full).output().expect("run");
    let said = Run(ended).code(1).err();
    assert!(said.starts_with("error: standard output: No space left"), "{said}");
}
