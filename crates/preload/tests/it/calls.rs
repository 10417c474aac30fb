//! `tests/calls.c` with and without the preload: the calls do what the kernel does.

use crate::common::{Scratch, has, library};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds a program of `tests`.
pub fn build(scratch: &Scratch, source: &str, flags: &[&str]) -> PathBuf {
    build_as(scratch, "program", source, flags)
}

pub fn build_as(scratch: &Scratch, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let program = scratch.path(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let built =
        Command::new("cc").arg("-pthread").args(flags).arg(source).arg("-o").arg(&program).status();
    assert!(built.expect("a C compiler").success());
    program
}

#[test]
fn calls_do_what_the_kernel_does_and_refusals_have_their_numbers() {
    // Both sets of names, `open` and `open64`, and those that check buffers.
    for flags in [&["-O0"][..], &["-O2", "-D_FILE_OFFSET_BITS=64", "-D_FORTIFY_SOURCE=2"]] {
        for scratch in [Scratch::new(), Scratch::on_disk()] {
            let program = build(&scratch, "calls.c", flags);
            let plain = Command::new(&program).arg(scratch.folder()).status();
            assert!(plain.expect("run").success(), "without the preload");
            std::fs::remove_file(scratch.path("x.dat")).expect("remove");
            scratch
                .run(program.to_str().expect("text"), &[scratch.folder().as_ref(), "yes".as_ref()]);
            assert_eq!(
                std::fs::read(scratch.path("x.dat")).expect("read"),
                b"parent+again!newleft"
            );
            assert_eq!(scratch.companions(), [""; 0]);
            let log = scratch.log();
            for word in ["shared mmap", "copy_file_range", "io_uring_setup", "flock"] {
                assert!(log.contains(word), "{word} is not in the log:\n{log}");
            }
        }
    }
}

#[test]
fn calls_on_files_of_any_name_do_what_the_kernel_does() {
    let scratch = Scratch::new();
    let program = build(&scratch, "calls.c", &["-O0"]);
    let plain = Command::new(&program).arg(scratch.folder()).arg("any").status();
    assert!(plain.expect("run").success(), "without the preload");
    let mut command = scratch.command(&program);
    command.arg(scratch.folder()).args(["yes", "any"]);
    let output = command.env("ATOMIC_MMAP_FILES", scratch.path("**")).output().expect("run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The whole process ended by SIGABRT, also if the call was on a pipe.
#[test]
fn a_thread_that_is_cancelled_in_a_call_ends_alone() {
    for scratch in [Scratch::new(), Scratch::on_disk()] {
        let program = build(&scratch, "cancel.c", &["-O1", "-rdynamic"]);
        let first = build_as(&scratch, "first.so", "cancel.c", &["-DLIBRARY", "-shared", "-fPIC"]);
        for own in [None, Some(library())] {
            let all = own.iter().chain([&first]).map(|path| path.to_str().expect("text"));
            let mut command = scratch.command(&program);
            command.env("LD_PRELOAD", all.collect::<Vec<_>>().join(":"));
            let output = command.arg(scratch.folder()).output().expect("run");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{own:?}: {}\n{said}", output.status);
        }
        assert_eq!(scratch.companions(), [""; 0]);
    }
}

#[test]
fn threads_and_processes_are_in_no_others_way() {
    let scratch = Scratch::new();
    let program = build(&scratch, "races.c", &["-O1"]);
    let plain = Command::new(&program).arg(scratch.folder()).status();
    assert!(plain.expect("run").success(), "without the preload");
    scratch.run(program.to_str().expect("text"), &[scratch.folder().as_ref()]);
    assert_eq!(scratch.companions(), [""; 0]);
    if has("strace") {
        // The kernel's closes are slow, so that calls come between.
        // So are the calls by which a thread that starts a program gives its offsets away.
        for (case, slow) in
            [("closes", "close:delay_enter=500"), ("starts", "lseek:delay_enter=3000")]
        {
            let slow = format!("inject={slow}");
            let mut traced = scratch.traced(&["-o", "/dev/null", "-e", &slow]);
            let output =
                traced.arg(&program).arg(scratch.folder()).arg(case).output().expect("run");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{case}: {said}\n{}", scratch.log());
        }
    }
}

/// Descriptors stay open at an `execl` as at an `execv`. Calls of another library do so, too.
#[test]
fn programs_that_execl_starts_take_descriptors_over() {
    for scratch in [Scratch::new(), Scratch::on_disk()] {
        for flags in ["-O0", "-O2"] {
            let program = build(&scratch, "lists.c", &[flags, "-ldl"]);
            let shared = [flags, "-DLIBRARY", "-shared", "-fPIC"];
            let library = build_as(&scratch, "library.so", "lists.c", &shared);
            let (folder, program) = (scratch.folder(), program.to_str().expect("text"));
            for args in [&[folder.as_os_str()][..], &[folder.as_os_str(), library.as_os_str()]] {
                let plain = Command::new(program).args(args).status();
                assert!(plain.expect("run").success(), "without the preload");
                scratch.run(program, args);
                assert_eq!(scratch.companions(), [""; 0]);
            }
        }
    }
}

#[test]
fn without_the_variable_nothing_is_intercepted() {
    let scratch = Scratch::new();
    let mut command = scratch.command("sh");
    let watch = "exec 3>x.dat; echo hello >&3; ls -A; stat -c %s x.dat";
    command.env_remove("ATOMIC_MMAP_FILES").current_dir(scratch.folder()).args(["-c", watch]);
    let output = command.output().expect("run");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "x.dat\n6\n");
}

#[test]
fn wrong_settings_keep_a_program_from_starting() {
    let scratch = Scratch::new();
    for (name, value) in [
        ("ATOMIC_MMAP_FILES", "x.dat"),
        ("ATOMIC_MMAP_DURABILITY", "sync"),
        ("ATOMIC_MMAP_DEPLOY", "often"),
        ("ATOMIC_MMAP_DEPLOY_IDLE", "5"),
        ("ATOMIC_MMAP_REFLECTION_BUDGET", "64MB"),
        ("ATOMIC_MMAP_HOME", "1"),
        ("ATOMIC_MMAP_MSYNC", "yes"),
        ("ATOMIC_MMAP_COPIES", "yes"),
        ("ATOMIC_MMAP_MEDIUM", "disk"),
    ] {
        let output = scratch.command("true").env(name, value).output().expect("run");
        assert_eq!(output.status.code(), Some(127), "{name}={value}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(name));
    }
}
