//! Children: their output arrives, or they fail.

use crate::calls::{build, build_as};
use crate::common::{Scratch, has, library};
use std::fs::OpenOptions;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs lines of a shell in the folder, under the preload or without it.
fn run(scratch: &Scratch, is_preloaded: bool, lines: &str) -> Output {
    let mut command = if is_preloaded { scratch.command("bash") } else { Command::new("bash") };
    command.args(["-c", lines]).current_dir(scratch.folder()).output().expect("run")
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// The child of a fork found its standard output closed: its output vanished without an error, or
/// went over the bytes of the next file that it opened.
#[test]
fn the_output_of_a_child_arrives() {
    let report = "#include <fcntl.h>\n#include <stdio.h>\nint main(void) {
        int db = open(\"db\", O_RDWR); puts(\"report\"); return db < 0; }";
    for (needs, lines) in [
        ("timeout", "timeout 50 /usr/bin/env echo 1 >out.dat"),
        ("python3", "timeout 50 python3 -c 'print(1)' >out.dat"),
        ("sqlite3", "{ sqlite3 :memory: 'select 1'; } >out.dat"),
        ("sqlite3", "sqlite3 :memory: 'select 1' >out.dat"),
        ("bash", "for i in 1 2 3; do /bin/echo $i; done >out.dat"),
        ("bash", "for i in 1 2; do (echo in $i; /bin/echo out $i); done >out.dat"),
        ("bash", "{ seq 3 | while read n; do echo $n; done; echo end; } >out.dat 2>&1"),
        ("bash", "echo first >out.dat; { /bin/echo second; echo third; } >>out.dat"),
        (
            "bash",
            "mkfifo go; exec 3<>go; { (read line <go; echo late) & echo first; } >out.dat; echo >&3; wait",
        ),
        ("xargs", "echo 1 | xargs /bin/echo >out.dat"),
        ("xargs", "{ echo 1 2 3 | xargs -n 1 /bin/echo; } >out.dat"),
        ("find", "find db -exec /bin/echo {} \\; >out.dat"),
        (
            "python3",
            "python3 -c 'import subprocess as s; s.run([\"/bin/echo\", \"1\"], stdout=open(\"out.dat\", \"w\"))'",
        ),
        (
            "python3",
            "python3 -c 'import os; print(1, flush=True); os.system(\"echo 2\"); print(os.fork() and os.wait()[1])' >out.dat",
        ),
        ("perl", "perl -e 'open(STDOUT, \">\", \"out.dat\"); system(\"/bin/echo 1\")'"),
        (
            "awk",
            "awk 'BEGIN { print 1; fflush(); system(\"echo 2\"); print 3 | \"cat\" }' >out.dat",
        ),
        ("bash", "echo 1 2 >in.dat; { /bin/cat; } <in.dat >out"),
        ("bash", "printf '1\\n2\\n' >in.dat; { read line; head -n 1; } <in.dat >out"),
        (
            "git",
            "git -C repo bundle create -q \"$PWD/out.dat\" HEAD; git bundle list-heads out.dat >out",
        ),
        ("cc", "{ ./report; } >out.dat"),
    ] {
        if !has(needs) {
            continue;
        }
        let [stock, preloaded] = [false, true].map(|is_preloaded| {
            let scratch = Scratch::new();
            std::fs::write(scratch.path("db"), "data of the database").expect("write");
            std::fs::write(scratch.path("report.c"), report).expect("write");
            let made = match needs {
                "cc" => "cc -o report report.c",
                "git" => {
                    "git init -q repo; seq 9000 >repo/f; git -C repo add f
                    GIT_AUTHOR_DATE='@1000000000 +0000' GIT_COMMITTER_DATE='@1000000000 +0000' git -C repo -c user.name=a -c user.email=a@b commit -qm x"
                }
                _ => "true",
            };
            assert!(run(&scratch, false, made).status.success(), "{made}");
            let output = run(&scratch, is_preloaded, lines);
            let files = ["out.dat", "out", "db"].map(|name| read(&scratch.path(name)));
            assert_eq!(scratch.companions(), [""; 0], "{lines}");
            let log = scratch.log();
            assert!(log.lines().all(|line| line.contains("copy_file_range")), "{lines}: {log}");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.code(), output.stdout, said, files)
        });
        assert_eq!(preloaded, stock, "{lines}");
        assert!(stock.3[0].len() + stock.3[1].len() > 1, "{lines}: {stock:?}");
    }
}

/// A program that C starts gets the descriptors that stay open, whatever call starts it. A record
/// lock would end with a close: such a file does not rest, and no child writes to it in silence.
#[test]
fn each_call_that_starts_a_program_hands_descriptors_on_or_fails() {
    for (way, expected) in [
        ("system", "two"),
        ("popen", "two"),
        ("posix_spawn", "two"),
        ("fork", "two"),
        ("quiet", "2"),
    ] {
        if way == "quiet" && !has("sqlite3") {
            continue;
        }
        let scratch = Scratch::new();
        let program = build(&scratch, "children.c", &["-O1"]);
        let run = |locked: &[&str]| {
            let mut command = scratch.command(&program);
            command.current_dir(scratch.folder()).arg(way).args(locked).output().expect("run")
        };
        let output = run(&[]);
        assert!(output.status.success(), "{way}: {output:?}\n{}", scratch.log());
        assert_eq!(read(&scratch.path("x.dat")), format!("one\n{expected}\nthree\n"), "{way}");
        assert_eq!(scratch.log(), "", "{way}");

        for locked in ["locked", "partly"] {
            let output = run(&[locked]);
            assert_eq!(output.status.code(), Some(3), "{way}, {locked}: {output:?}");
            assert_eq!(read(&scratch.path("x.dat")), "one\nthree\n", "{way}, {locked}");
        }
        let log = scratch.log();
        let name = if way == "quiet" { "sqlite3" } else { "/bin/echo" };
        let path = scratch.path("x.dat");
        assert!(log.contains(name) && log.contains(&*path.to_string_lossy()), "{way}: {log}");
    }
}

/// The code 74 took the place of any other code, and a caller could not tell why a program failed.
#[test]
fn a_program_that_loses_its_output_ends_with_its_own_error_or_with_74() {
    let scratch = Scratch::new();
    let source = "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\nint main(int count, char **args) {
        puts(\"lost\"); int code = atoi(args[1]); if (count == 2) return code;
        fflush(stdout); if (*args[2] == 'e') exit(code); _exit(code); }";
    std::fs::write(scratch.path("lost.c"), source).expect("write");
    let program = scratch.path("lost");
    let built = Command::new("cc").arg(scratch.path("lost.c")).arg("-o").arg(&program).status();
    assert!(built.expect("a C compiler").success());

    let mut holder = scratch.command("sh");
    holder.args(["-c", "exec 5<>x.dat; echo held >&5; echo ready; read line; exec 5>&-"]);
    let holder = holder.current_dir(scratch.folder()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = holder.spawn().expect("run");
    let mut ready = [0; 6];
    holder.stdout.as_mut().expect("a pipe").read_exact(&mut ready).expect("ready");
    for (code, expected) in [(0, 74), (3, 3)] {
        for way in [None, Some("exit"), Some("_exit")] {
            let file = OpenOptions::new().append(true).open(scratch.path("x.dat")).expect("open");
            let mut command = scratch.command(&program);
            command.arg(code.to_string()).args(way).stdout(file);
            assert_eq!(command.status().expect("run").code(), Some(expected), "{way:?}");
        }
    }
    drop(holder.stdin.take());
    assert!(holder.wait().expect("wait").code().is_some());
    assert_eq!(read(&scratch.path("x.dat")), "held\n");
}

/// A start that ended took the descriptors from the start of another thread, and one that was
/// cancelled left them to all later programs.
#[test]
fn programs_that_threads_start_at_once_get_their_descriptors() {
    let scratch = Scratch::new();
    let program = build(&scratch, "starts.c", &["-O1", "-rdynamic"]);
    let first = build_as(&scratch, "first.so", "starts.c", &["-DLIBRARY", "-shared", "-fPIC"]);
    for is_preloaded in [false, true] {
        let mut command = scratch.command(&program);
        if is_preloaded {
            command.env("LD_PRELOAD", format!("{}:{}", library().display(), first.display()));
        } else {
            command.env("LD_PRELOAD", &first);
        }
        let output = command.arg(scratch.folder()).output().expect("run");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{is_preloaded}: {said}\n{}", scratch.log());
        assert_eq!(read(&scratch.path("x.dat")), "early\nlate\n");
        assert_eq!(scratch.companions(), [""; 0]);
    }
}

/// A program that only inherits a descriptor is in no other's way.
#[test]
fn a_child_that_does_not_use_a_file_leaves_it_to_its_parent() {
    let scratch = Scratch::new();
    let lines = "exec 4>&1; mkfifo end; { cat end >&4 & echo one; /bin/echo two; echo three >end; wait; echo four; } >out.dat";
    let output = run(&scratch, true, lines);
    assert!(output.status.success() && output.stdout == b"three\n", "{output:?}");
    assert_eq!(read(&scratch.path("out.dat")), "one\ntwo\nfour\n");
    assert_eq!(scratch.log(), "");
}
