//! Calls on paths that no pattern describes.

use crate::calls::build;
use crate::common::{Scratch, has};
use std::path::Path;
use std::process::Command;

/// Returns how many system calls the program of `outside.c` makes.
fn count(scratch: &Scratch, program: &Path, is_preloaded: bool, args: &[&str]) -> usize {
    let trace = scratch.path("trace");
    let options = ["-o", trace.to_str().expect("text")];
    let mut traced = if is_preloaded {
        scratch.traced(&options)
    } else {
        let mut traced = Command::new("strace");
        traced.arg("-f").args(options);
        traced
    };
    traced.current_dir(scratch.path("folder")).arg(program).args(args);
    let output = traced.output().expect("run");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    std::fs::read_to_string(trace).expect("a trace").lines().count()
}

/// The kernel was asked three times where a path leads, before each call and after it.
#[test]
fn a_path_outside_of_all_patterns_costs_no_further_system_call() {
    const TIMES: usize = 300;
    if !has("strace") {
        return;
    }
    let scratch = Scratch::new();
    let program = build(&scratch, "outside.c", &["-O1"]);
    std::fs::create_dir(scratch.path("folder")).expect("a folder");
    for call in ["stat", "none", "open", "rename", "create"] {
        let calls = |is_preloaded| {
            let count =
                |times: usize| count(&scratch, &program, is_preloaded, &[call, &times.to_string()]);
            count(TIMES) - count(0)
        };
        let (stock, preloaded) = (calls(false), calls(true));
        // A folder is asked for again after a moment.
        assert!(preloaded * 10 <= stock * 13, "{call}: {preloaded} in place of {stock}");
    }
}

/// Links and folders lead to a chosen file, after the same text has led elsewhere. The shell finds
/// its companion, so the file was not opened past the library.
#[test]
fn no_way_to_a_chosen_file_counts_as_outside() {
    for (before, path) in [
        ("", "../x.dat"),
        ("ln -s ../x.dat link", "link"),
        ("ln -s ../x.dat link; ln -s link two", "two"),
        ("ln -s .. up", "up/x.dat"),
        ("mkdir a; ln -s a to; : >to/plain; [ -f to/plain ]; ln -sfn .. to", "to/x.dat"),
        ("cd ..", "x.dat"),
        ("cd ../folder; [ -f ./plain ]; cd ..", "./x.dat"),
    ] {
        let scratch = Scratch::new();
        let folder = scratch.folder().display();
        let lines = format!(
            "mkdir folder; cd folder; : >plain; [ -f plain ]; {before}
            exec 5<>{path}; echo new >&5; set -- {folder}/.atomic-mmap.*; [ -e \"$1\" ]; exec 5>&-"
        );
        scratch.shell("sh", &lines);
        assert_eq!(std::fs::read(scratch.path("x.dat")).expect("read"), b"new\n", "{path}");
        assert_eq!(scratch.companions(), [""; 0], "{path}");
    }
}

/// For 100 ms after the program itself had moved a folder, its files there were taken for others.
#[test]
fn a_call_that_leads_a_name_elsewhere_is_seen_at_once() {
    for case in ["rename", "whole", "exchange", "number", "symlink", "link", "mkdir"] {
        let scratch = Scratch::new();
        let program = build(&scratch, "moved.c", &["-O1"]);
        let mut command = scratch.command(&program);
        command.env("ATOMIC_MMAP_FILES", scratch.path("chosen/*.dat")).arg(case);
        let output = command.current_dir(scratch.folder()).output().expect("run");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{case}: {said}");
    }
}
