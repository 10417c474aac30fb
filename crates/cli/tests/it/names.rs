//! Names that others have chosen, in everything that the commands print.

use crate::common::{LEN, Run, command, make, options, scratch};
use atomic_mmap::CloseMode;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

/// The name of a snapshot: it goes to another line, clears the screen, and reorders what follows.
const SEALED: &str = "\x01\t\r\n\x1b[2J\x7f\u{85}\u{9b}\u{202e}\u{2066}\u{200f}\u{2028}\"\\é";

/// Names of files: of every byte that one may have, and of the characters past the first 128.
fn names() -> [OsString; 2] {
    let bytes: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
    let wide = ('\u{80}'..='\u{9f}').chain("\u{61c}\u{200e}\u{2029}\u{202a}\u{202e}".chars());
    [
        OsStr::from_bytes(&bytes).into(),
        wide.chain("\u{2066}\u{2069}é".chars()).collect::<String>().into(),
    ]
}

/// Checks what a run has printed.
#[track_caller]
fn check(run: &Run, what: &[&OsStr]) {
    for bytes in [&run.0.stdout, &run.0.stderr] {
        let text = str::from_utf8(bytes).unwrap_or_else(|_| panic!("{what:?}: no text"));
        let is_obeyed = |c: char| {
            c.is_control() && c != '\n'
                || matches!(c, '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{2028}'..='\u{202e}')
                || ('\u{2066}'..='\u{2069}').contains(&c)
        };
        let found = text.find(is_obeyed);
        assert!(found.is_none(), "{what:?} prints {found:?} of {text:?}");
    }
}

/// Runs a command with an answer or a stream, and checks what it prints. In JSON it is an object.
#[track_caller]
fn said(arguments: &[&OsStr], input: &Path, code: i32) {
    for flags in [&[][..], &["--json"], &["--verbose"]] {
        let mut command = command();
        let input = File::open(input).expect("open");
        let run = command.args(arguments).args(flags).stdin(input).output().expect("run");
        let run = Run(run);
        check(&run, arguments);
        let is_known = [Some(0), Some(code)].contains(&run.0.status.code());
        assert!(is_known, "{arguments:?} {flags:?}: {}{}", run.out(), run.err());
        if flags == ["--json"] && !run.out().is_empty() {
            run.out().lines().for_each(|line| {
                serde_json::from_str::<serde_json::Value>(line).expect("an object");
            });
        }
    }
}

#[test]
fn what_commands_print_of_any_name_is_obeyed_by_no_terminal() {
    for name in names() {
        let scratch = scratch();
        let nothing = Path::new("/dev/null");
        let path = scratch.path().join(&name);
        make(&path, CloseMode::Fast);
        let path = path.as_os_str();
        let s = OsStr::new;
        for look in ["inspect", "verify", "stats", "heatmap", "repair"] {
            said(&[s(look), path], nothing, 0);
        }
        said(&[s("stats"), s("--prometheus"), path], nothing, 2);
        said(&[s("watch"), s("--count=1"), s("--interval=0.01"), path], nothing, 0);
        said(&[s("heatmap"), s("--output"), path, path], nothing, 2);
        said(&[s("repair"), s("--pages"), path], nothing, 0);
        let sealed = s(SEALED);
        said(&[s("snapshot"), s("create"), path, sealed], nothing, 1);
        said(&[s("snapshot"), s("list"), path], nothing, 0);
        said(&[s("snapshot"), s("rollback"), path, sealed, s("--undo"), s("\x1b")], nothing, 1);
        said(&[s("snapshot"), s("rollback"), path, sealed, s("--yes")], nothing, 0);
        for what in ["drop", "rollback"] {
            said(&[s("snapshot"), s(what), path, s("\x1b[31m")], nothing, 1);
        }
        said(&[s("send"), path, s("\x1b[31m")], nothing, 1);
        let copy = scratch.file("copy\x1b");
        said(&[s("snapshot"), s("copy"), path, sealed, copy.as_os_str()], nothing, 1);
        said(&[s("cp"), path, copy.as_os_str()], nothing, 1);
        said(&[s("inspect"), s("one"), path], nothing, 2);
        said(&[s("settle"), path], nothing, 2);
        said(&[s("settle"), path, s("--drop-snapshots")], nothing, 0);
        said(&[s("snapshot"), s("retain"), path, s("--number=1")], nothing, 0);
    }
}

#[test]
fn what_refusals_print_of_any_name_is_obeyed_by_no_terminal() {
    for name in names() {
        let scratch = scratch();
        let nothing = Path::new("/dev/null");
        let s = OsStr::new;
        let below = scratch.path().join(&name);
        std::fs::create_dir(&below).expect("a folder");
        let (folder, absent) = (below.as_os_str(), below.join(&name));
        let (link, dangling) = (scratch.file("link"), scratch.file("dangling"));
        symlink(&below, &link).expect("a link");
        symlink(&absent, &dangling).expect("a link");
        for path in [folder, absent.as_os_str(), link.as_os_str(), dangling.as_os_str()] {
            for look in ["inspect", "verify", "stats", "heatmap", "repair", "settle"] {
                said(&[s(look), path], nothing, 1);
            }
            said(&[s("cp"), path, path], nothing, 1);
            said(&[s("receive"), path], nothing, 1);
            said(&[s("snapshot"), s("list"), path], nothing, 1);
        }
        let folders = s("--reflection-dir");
        said(&[s("doctor"), folder], nothing, 0);
        said(&[s("doctor"), absent.as_os_str()], nothing, 1);
        said(&[s("bench"), absent.as_os_str()], nothing, 1);
        said(&[s("doctor"), folder, folders, absent.as_os_str()], nothing, 1);
        said(&[s("man"), link.join("x").join(&name).as_os_str()], nothing, 1);
        // A pair that does not fit, of which messages name both files.
        let path = absent.as_path();
        make(path, CloseMode::Fast);
        let file = File::options().write(true).open(path).expect("open");
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("set the time");
        said(&[s("verify"), path.as_os_str()], nothing, 6);
        said(&[s("settle"), path.as_os_str()], nothing, 6);
        said(&[s("repair"), s("--discard"), path.as_os_str()], nothing, 6);
        said(&[s("repair"), s("--discard"), s("--yes"), path.as_os_str()], nothing, 4);
    }
}

/// The base name of a stream is its sender's, and was printed as it was.
#[test]
fn what_the_names_in_streams_print_is_obeyed_by_no_terminal() {
    let scratch = scratch();
    let file = options().open(scratch.file("sent")).expect("open");
    file.snapshot(SEALED).expect("seal");
    file.write_at(b"changed", LEN - 100).expect("write");
    file.snapshot("\x1b]0;later\x07").expect("seal");
    file.close(CloseMode::Spatial).expect("close");
    let (whole, increment) = (scratch.file("whole"), scratch.file("increment"));
    for (from, stream) in [(None, &whole), (Some(SEALED), &increment)] {
        let mut sends = command();
        sends
            .arg("send")
            .arg(scratch.file("sent"))
            .arg(from.map_or(SEALED, |_| "\x1b]0;later\x07"));
        sends.args(from.map(|from| ["--from", from]).into_iter().flatten());
        let sent = sends.stdout(File::create(stream).expect("create")).stderr(Stdio::inherit());
        assert!(sent.status().expect("run").success());
    }
    let (new, other) = (scratch.file("new"), scratch.file("other"));
    make(&other, CloseMode::Spatial);
    let s = OsStr::new;
    said(&[s("receive"), new.as_os_str()], &increment, 1);
    said(&[s("receive"), other.as_os_str()], &increment, 6);
    said(&[s("receive"), other.as_os_str()], &whole, 1);
    said(&[s("receive"), new.as_os_str()], &whole, 1);
    said(&[s("receive"), s("--progress"), new.as_os_str()], &whole, 0);
    said(&[s("snapshot"), s("create"), new.as_os_str(), s(SEALED)], &whole, 1);
}
