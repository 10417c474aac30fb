//! Files that an open refuses, and places that refuse a file.

use crate::common::{LEN, Run, assert_known, command, damage, make, options, run, scratch, write};
use atomic_mmap::CloseMode;
use snapbox::{assert_data_eq, str};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs every command that looks, and checks the exit code and the kind.
#[track_caller]
fn all_say(path: &Path, code: i32, kind: &str) {
    for look in [&["inspect"][..], &["verify"], &["repair"], &["repair", "--dry-run", "--discard"]]
    {
        let json = run(&[look, &["--json"]].concat(), path).code(code).json();
        assert_eq!(json["decision"], "refuse", "{look:?}");
        assert_eq!(json["mismatch"], kind, "{look:?}");
    }
    assert_eq!(run(&["verify", "--json"], path).json()["ok"], false);
    let watch = &["watch", "--count", "1", "--interval", "0.01"][..];
    for look in [&["stats"][..], &["heatmap"], watch] {
        run(&[look, &["--json"]].concat(), path).code(code).json();
    }
    let failed = run(&["settle", "--json"], path).code(code).error();
    assert_eq!(failed["code"], if code == 3 { "damaged" } else { "mismatch" });
}

pub fn answer(arguments: &[&str], path: &Path, answer: &str) -> Run {
    let mut command = command();
    let child = command.args(arguments).arg(path).stdin(Stdio::piped());
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
    child.stdin.take().expect("its input").write_all(answer.as_bytes()).expect("answer");
    Run(child.wait_with_output().expect("its output"))
}

#[test]
fn a_damaged_reflection_file() {
    let scratch = scratch();
    let path = scratch.file("damaged");
    make(&path, CloseMode::Fast);
    damage(&scratch);
    let before = scratch.contents();
    all_say(&path, 3, "corrupt");
    assert_data_eq!(
        run(&["repair", "--dry-run"], &path).code(3).out(),
        str![[r#"
file           [..]/damaged
mark           names this file
found          a damaged reflection file
decision       refused: the reflection file is damaged
mismatch       the reflection file is damaged
if discarded   the file's bytes as they are; companions count no more
if trusted     refused as well
discard loses  unknown: companions tell nothing; they hold bytes since [..]
in doubt       [..] (cp --best-effort lists them)
repaired       no

"#]]
    );
    run(&["repair", "--trust", "--yes"], &path).code(3);
    let refused = answer(&["repair", "--discard"], &path, "");
    assert!(refused.err().contains("--yes does not ask"), "{}", refused.err());
    refused.code(3);
    answer(&["repair", "--discard"], &path, "n\n").code(3);
    assert_eq!(scratch.contents(), before, "nothing was agreed to");
    let asked = answer(&["repair", "--discard"], &path, "y\n").code(4);
    assert!(asked.err().contains("let the companions"), "{}", asked.err());
    assert!(asked.out().contains("repaired       yes"), "{}", asked.out());
    // Its superblocks no longer name a home file, so it may be another file's.
    let stays = scratch.reflection();
    let stays = stays.file_name().and_then(|name| name.to_str()).expect("a name");
    let line = asked.out().lines().last().map(str::to_owned).expect("a line");
    assert!(line.starts_with("left over      /") && line.ends_with(stays), "{line}");
    run(&["verify"], &path).code(0);
    assert_eq!(path.metadata().expect("metadata").len(), LEN);
}

#[test]
fn a_foreign_file_in_the_place_of_the_reflection_file() {
    let scratch = scratch();
    let path = scratch.file("home");
    make(&path, CloseMode::Fast);
    std::fs::write(scratch.reflection(), b"of another program").expect("write");
    all_say(&path, 6, "foreign");
    let repaired = run(&["repair", "--discard", "--yes", "--json"], &path).code(6).json();
    assert_eq!(repaired["repaired"], false);
    assert_eq!(std::fs::read(scratch.reflection()).expect("read"), b"of another program");
}

#[test]
fn a_home_file_that_was_cut() {
    let scratch = scratch();
    let path = scratch.file("cut");
    make(&path, CloseMode::Fast);
    File::options().write(true).open(&path).expect("open").set_len(1000).expect("cut");
    all_say(&path, 3, "home-truncated");
    let repaired = run(&["repair", "--discard", "--yes", "--json"], &path).code(4).json();
    assert_eq!(repaired["left_over"], serde_json::json!([]));
    assert_eq!(scratch.names(), ["cut"]);
    assert_eq!(path.metadata().expect("metadata").len(), 1000);
}

#[test]
fn a_file_that_was_changed() {
    let scratch = scratch();
    let path = scratch.file("changed");
    make(&path, CloseMode::Fast);
    let file = File::options().write(true).open(&path).expect("open");
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("set the time");
    all_say(&path, 6, "home-changed");
    let told = run(&["repair"], &path).code(6).out();
    let has = |name: &str, text: &str| {
        told.lines().any(|line| line.starts_with(name) && line.contains(text))
    };
    assert!(has("discard loses", " and only there"), "{told}");
    assert!(has("trust loses", " KiB of the file, where companions have other bytes"), "{told}");
    let repaired = run(&["repair", "--trust", "--yes", "--json"], &path).code(4).json();
    assert_eq!(repaired["repaired"], true);
    assert_known(&path);
}

/// It was told of companions that are not there, and of a trust in them.
#[test]
fn a_home_file_that_was_copied_alone() {
    let (scratch, other) = (scratch(), scratch());
    let path = scratch.file("state");
    // The command finds the mark where a directory of roots has it.
    let file = options().mark_at(64).open(&path).expect("create");
    write(&file);
    file.close(CloseMode::Fast).expect("close");
    let copy = other.file("copy");
    let bytes = std::fs::read(&path).expect("read");
    std::fs::write(&copy, bytes).expect("a copy");
    all_say(&copy, 6, "lone-copy");
    assert_data_eq!(
        run(&["repair"], &copy).code(6).out(),
        str![[r#"
file           [..]/copy
mark           none, and the bytes of the file say that it was in use
found          no reflection file
decision       refused: the file was in use, as its bytes say, and has no companions here
mismatch       the file was in use, as its bytes say, and has no companions here
if discarded   the file's bytes as they are; companions count no more
if trusted     refused as well
discard loses  unknown: where companions had bytes, these are old or zeros
in doubt       [..] (cp --best-effort lists them)
repaired       no

"#]]
    );
    run(&["repair", "--trust", "--yes"], &copy).code(6);
    let to = other.file("to");
    let json = command_of_cp(&copy, &to).code(6).json();
    assert_eq!(json["in_doubt"], serde_json::json!([format!("0..{LEN}")]));
    let asked = answer(&["repair", "--discard"], &copy, "y\n").code(4);
    assert!(asked.err().contains("may be old, or zeros"), "{}", asked.err());
    run(&["verify"], &copy).code(0);
}

fn command_of_cp(from: &Path, to: &Path) -> Run {
    let mut command = command();
    command.args(["cp", "--best-effort", "--json"]).arg(from).arg(to);
    Run(command.output().expect("run"))
}

#[test]
fn a_file_that_was_moved() {
    let (scratch, other) = (scratch(), scratch());
    let path = scratch.file("before");
    make(&path, CloseMode::Fast);
    let renamed = scratch.file("after");
    std::fs::rename(&path, &renamed).expect("rename");
    run(&["verify"], &renamed).code(0);
    let moved = other.file("after");
    std::fs::rename(&renamed, &moved).expect("move");
    all_say(&moved, 6, "reflection-gone");
    let here = scratch.path().to_str().expect("a path");
    run(&["verify", "--reflection-dir", here], &moved).code(0);
    run(&["settle", "--reflection-dir", here], &moved).code(0);
    assert_known(&moved);
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns a command that runs as another user, if that is possible here.
fn as_another_user() -> Option<Command> {
    const USER: u32 = 65_534;
    if !is_root() {
        println!("skipped: only root can be another user");
        return None;
    }
    let mut command = command();
    command.uid(USER).gid(USER);
    // The program may lie in a folder that is not open to others.
    let starts = command.arg("--version").stdout(Stdio::null()).status();
    if !starts.is_ok_and(|status| status.success()) {
        println!("skipped: another user may not start the program");
        return None;
    }
    let mut command = crate::common::command();
    command.uid(USER).gid(USER);
    Some(command)
}

#[test]
fn another_user_and_a_folder_that_is_read_only() {
    let Some(mut command) = as_another_user() else { return };
    let scratch = scratch();
    let path = scratch.file("theirs");
    make(&path, CloseMode::Fast);
    for (path, mode) in [(scratch.path().to_owned(), 0o555), (path.clone(), 0o444)] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("set the mode");
    }
    std::fs::set_permissions(scratch.reflection(), PermissionsExt::from_mode(0o444))
        .expect("set the mode");
    for look in ["inspect", "verify", "stats", "heatmap"] {
        let mut command = as_another_user().expect("as before");
        Run(command.arg(look).arg(&path).output().expect("run")).code(0);
    }
    let may = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode));
    may(0o000).expect("set the mode");
    for look in ["inspect", "verify", "stats"] {
        let mut command = as_another_user().expect("as before");
        let said = Run(command.arg(look).arg(&path).output().expect("run")).code(1).err();
        let asks = said.contains("open for reading") && said.contains("read permission");
        assert!(asks && !said.contains("write"), "{look}: {said}");
    }
    may(0o444).expect("set the mode");
    let before = scratch.contents();
    let settled = command.arg("settle").arg(&path).output().expect("run");
    let settled = Run(settled).code(1);
    assert!(settled.err().contains("write permission"), "{}", settled.err());
    assert_eq!(scratch.contents(), before);
}

/// Runs the command in a shell with a disk of 8 KiB. `$0` is the program, `$1` a file, `$2` the
/// disk. What is left on the disk is printed.
pub fn on_a_full_disk(line: &str, path: &Path, disk: &Path) -> Option<Run> {
    let can = Command::new("unshare").args(["-m", "true"]).stderr(Stdio::null()).status();
    if !is_root() || !can.is_ok_and(|status| status.success()) {
        println!("skipped: only root can mount");
        return None;
    }
    let mount = r#"mount -t tmpfs -o size=8k none "$2" || exit 99;"#;
    let script = format!(r#"{mount} {line}; code=$?; ls -A "$2"; exit $code"#);
    let mut unshare = Command::new("unshare");
    unshare.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_atomic-mmap")]);
    let ended = unshare.args([path, disk]).output().expect("run");
    if ended.status.code() == Some(99) {
        println!("skipped: no disk can be mounted: {}", String::from_utf8_lossy(&ended.stderr));
        return None;
    }
    Some(Run(ended))
}

#[test]
fn a_full_disk() {
    let scratch = scratch();
    let path = scratch.file("home");
    make(&path, CloseMode::Fast);
    let full = scratch.file("full");
    std::fs::create_dir(&full).expect("a folder");
    let copy = on_a_full_disk(r#""$0" cp --json "$1" "$2/copy""#, &path, &full);
    let Some(copied) = copy else { return };
    assert_eq!(copied.code(1).error()["code"], "no-space");
    let bench = on_a_full_disk(r#""$0" -v bench "$2""#, &path, &full).expect("as before").code(1);
    assert!(bench.err().contains("WARN atomic_mmap: no space"), "{}", bench.err());
    assert_eq!(bench.out(), "", "nothing is left");
}

#[test]
fn a_reflection_file_that_was_cut() {
    let scratch = scratch();
    let path = scratch.file("cut");
    make(&path, CloseMode::Fast);
    let reflection = File::options().write(true).open(scratch.reflection()).expect("open");
    reflection.set_len(8192).expect("cut");
    all_say(&path, 3, "reflection-truncated");
}

/// A repair of a file that only a process crash has left did nothing, and its bytes stayed away.
#[test]
fn a_crashed_file_is_repaired_by_a_recovery() {
    for way in ["--trust", "--discard"] {
        let scratch = scratch();
        let path = scratch.file("crashed");
        make(&path, CloseMode::Unsynced);
        run(&["repair"], &path).code(0);
        run(&["repair", way, "--yes"], &path).code(4);
        assert_known(&path);
        assert_eq!(scratch.names().len(), 1, "companions");
    }
}
