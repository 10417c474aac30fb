//! The library in programs that have more rights than their callers, and its log.

use crate::calls::build;
use crate::common::{Scratch, library};
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;

/// A user that owns nothing.
const CALLER: u32 = 65_534;

/// The library appended lines with the caller's text to a file that only root may write to.
#[test]
fn a_setuid_program_obeys_no_variable_of_its_caller() {
    let scratch = Scratch::new();
    if scratch.folder().metadata().expect("look").uid() != 0 {
        return eprintln!("skipped: only root can make such a program");
    }
    let own = scratch.path("library.so");
    std::fs::copy(library(), &own).expect("copy");
    let program = build(&scratch, "secure.c", &["-Wl,--no-as-needed", own.to_str().expect("text")]);
    for (path, mode) in [(scratch.folder(), 0o755), (&program, 0o4755)] {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
    }
    let path = scratch.path("x.dat");
    std::fs::write(&path, [0; 8192]).expect("write");
    let run = |name: &str, value: &str, user: u32| {
        let mut command = scratch.command(&program);
        command.arg(&path).env_remove("LD_PRELOAD").env(name, value).uid(user).gid(user);
        let output = command.output().expect("run");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    };
    assert_eq!(run("ATOMIC_MMAP_MSYNC", "refused", 0), "obeyed, same", "by its owner");
    std::fs::remove_file(scratch.path("log")).expect("remove");
    // The last one would keep a program that obeys from its start.
    for (name, value) in [("ATOMIC_MMAP_MSYNC", "refused"), ("ATOMIC_MMAP_DEPLOY", "never")] {
        let said = run(name, value, CALLER);
        if said.ends_with("same") {
            return eprintln!("skipped: programs get no rights of their owners here");
        }
        assert_eq!((said.as_str(), scratch.log().as_str()), ("kept, more", ""));
    }
}

/// A name with a line feed made a second line, which could be that of another program.
#[test]
fn each_event_is_one_line_without_control_characters() {
    let scratch = Scratch::new();
    let mut command = scratch.command("/bin/cp");
    command.arg0("x\n* * * * * root\r\x1b]0;title\x07\u{9b}\u{202e}\\");
    command.args(["--reflink=always".as_ref(), scratch.path("a.dat").as_os_str()]);
    std::fs::write(scratch.path("a.dat"), [1; 8192]).expect("write");
    let output = command.arg(scratch.path("b.dat")).output().expect("run");
    assert!(!output.status.success(), "a clone is refused");
    let log = scratch.log();
    assert!(log.contains("refused"), "{log}");
    for line in log.lines() {
        let program = r"x\n* * * * * root\r\u{1b}]0;title\u{7}\u{9b}\u{202e}\[";
        assert!(line.starts_with(program) && !line.contains(char::is_control), "{line:?}");
    }
}

/// The kernel's rule for links in folders of all users may be off. A link of another user at the
/// log's name led the lines of root into any file.
#[test]
fn the_log_follows_no_link_of_another_user_in_a_folder_of_all_users() {
    let scratch = Scratch::new();
    let refuse = |log: &Path| {
        let mut command = scratch.command("/bin/cp");
        command.arg("--reflink=always").args([scratch.path("a.dat"), scratch.path("b.dat")]);
        command.env("ATOMIC_MMAP_LOG", log).output().expect("run").stderr
    };
    std::fs::write(scratch.path("a.dat"), [1; 8192]).expect("write");
    std::fs::set_permissions(scratch.folder(), Permissions::from_mode(0o1777)).expect("chmod");
    let target = scratch.path("target");
    for (link, to) in [("one", "target"), ("two", "one")] {
        symlink(to, scratch.path(link)).expect("a link");
    }
    refuse(&scratch.path("two"));
    let lines = std::fs::read(&target).expect("made by its own user");
    assert!(!lines.is_empty());
    for name in ["/dev/stderr", "/dev/fd/2"] {
        let said = String::from_utf8_lossy(&refuse(Path::new(name))).into_owned();
        assert!(said.contains("cp["), "{name}: {said}");
    }
    if lchown(scratch.path("one"), Some(CALLER - 1), None).is_err() {
        return eprintln!("skipped: only root can give a link away");
    }
    for name in ["one", "two"] {
        refuse(&scratch.path(name));
        assert!(std::fs::read(&target).expect("read") == lines, "{name}");
    }
}
