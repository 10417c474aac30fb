//! Texts: help, completions, man pages, colours, and the commands that look at a folder.

use crate::common::{Run, command, run, scratch};

/// The commands, as `--help` lists them.
const COMMANDS: [&str; 15] = [
    "inspect",
    "verify",
    "settle",
    "repair",
    "stats",
    "heatmap",
    "watch",
    "cp",
    "snapshot",
    "send",
    "receive",
    "doctor",
    "bench",
    "completions",
    "man",
];

#[test]
fn help_texts() {
    // SNAPSHOTS=overwrite writes them anew.
    for (arguments, text) in [
        (&["--help"][..], snapbox::file!["texts/help.txt"]),
        (&["repair", "--help"], snapbox::file!["texts/repair.txt"]),
        (&["heatmap", "--help"], snapbox::file!["texts/heatmap.txt"]),
        (&["stats", "--help"], snapbox::file!["texts/stats.txt"]),
        (&["verify", "--help"], snapbox::file!["texts/verify.txt"]),
        (&["send", "--help"], snapbox::file!["texts/send.txt"]),
        (&["receive", "--help"], snapbox::file!["texts/receive.txt"]),
        (&["snapshot", "--help"], snapbox::file!["texts/snapshot.txt"]),
        (&["snapshot", "retain", "--help"], snapbox::file!["texts/snapshot-retain.txt"]),
    ] {
        let said = Run(command().args(arguments).output().expect("run")).code(0).out();
        snapbox::assert_data_eq!(said, text);
    }
    let nothing = Run(command().output().expect("run")).code(2);
    assert!(nothing.err().contains("Usage: atomic-mmap"), "{}", nothing.err());
}

#[test]
fn colours_follow_the_variables() {
    let help = |variables: &[(&str, &str)]| {
        let mut command = command();
        command.arg("--help").envs(variables.iter().copied());
        Run(command.output().expect("run")).code(0).out()
    };
    assert!(help(&[("CLICOLOR_FORCE", "1")]).contains('\x1b'));
    assert!(!help(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]).contains('\x1b'));
    assert!(!help(&[]).contains('\x1b'), "a pipe is no terminal");
}

#[test]
fn completions_and_man_pages_name_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let text = Run(command().args(["completions", shell]).output().expect("run")).code(0).out();
        for name in COMMANDS {
            assert!(text.contains(name), "{shell}: {name}");
        }
    }
    let scratch = scratch();
    run(&["man"], scratch.path()).code(0);
    let names = scratch.names();
    for name in COMMANDS {
        assert!(names.contains(&format!("atomic-mmap-{name}.1")), "{name}: {names:?}");
    }
    for name in ["create", "list", "drop", "rollback", "copy", "retain"] {
        assert!(names.contains(&format!("atomic-mmap-snapshot-{name}.1")), "{name}: {names:?}");
    }
    let page = Run(command().arg("man").output().expect("run")).code(0).out();
    assert!(page.starts_with(".ie") && page.contains("130"), "{page}");
}

#[test]
fn doctor_says_what_the_library_says() {
    let scratch = scratch();
    let said = run(&["doctor", "--json"], scratch.path()).code(0).json();
    let file = crate::common::options().open(scratch.file("asked")).expect("open");
    assert_eq!(said["medium"], file.medium().to_string());
    assert_eq!(said["map_sync"], false);
    for name in ["o_direct", "punch_hole", "xattr", "membarrier", "boot_id"] {
        assert!(said[name].is_boolean(), "{name}: {said}");
    }
    drop(file);
    assert_eq!(scratch.names(), ["asked"], "its scratch folder is gone");
    let forced =
        run(&["doctor", "--json", "--medium", "page-cache"], scratch.path()).code(0).json();
    assert_eq!(forced["sync_survives"], "power-loss");
    let by_option = run(&["doctor", "--medium", "dax"], scratch.path()).code(0);
    let mut by_variable = command();
    by_variable.env("ATOMIC_MMAP_MEDIUM", "dax").arg("doctor").arg(scratch.path());
    for forced in [by_option, Run(by_variable.output().expect("run")).code(0)] {
        let said = forced.out();
        let has = |begins: &str, ends: &str| {
            said.lines().any(|line| line.starts_with(begins) && line.ends_with(ends))
        };
        assert!(has("medium", "dax (forced)") && has("map sync", "unknown: the medium is forced"));
        assert!(!said.contains("MAP_SYNC"), "{said}");
    }
    let forced = run(&["doctor", "--json", "--medium", "dax"], scratch.path()).code(0).json();
    assert_eq!(forced["map_sync"], serde_json::Value::Null);
    run(&["doctor"], &scratch.file("none")).code(1);
}

/// Companions are named by inodes.
#[test]
fn doctor_says_which_companion_belongs_to_which_file() {
    let scratch = scratch();
    for name in ["one", "two"] {
        crate::common::make(&scratch.file(name), atomic_mmap::CloseMode::Fast);
    }
    std::fs::write(scratch.file(".atomic-mmap.1"), "of no file").expect("write");
    let told = run(&["doctor", "--json"], scratch.path()).code(0).json();
    let look = |name: &str| run(&["inspect", "--json"], &scratch.file(name)).code(0).json();
    let all = told["companions"].as_array().expect("a list");
    assert_eq!(all.len(), 2, "{told}");
    for name in ["one", "two"] {
        let is_of = |of: &&serde_json::Value| of["file"].as_str().expect("a path").ends_with(name);
        let of = all.iter().find(is_of).expect("its companion");
        let path = look(name)["reflection_file"].as_str().expect("a path").to_owned();
        assert!(path.ends_with(of["companion"].as_str().expect("a name")), "{told}");
    }
    assert_eq!(told["of_no_file_here"], serde_json::json!([".atomic-mmap.1"]));
    let told = run(&["doctor"], scratch.path()).code(0).out();
    assert!(told.contains(" of one, .atomic-mmap.") && told.contains(" of two\n"), "{told}");
}

#[test]
fn bench_measures_and_leaves_nothing() {
    let scratch = scratch();
    let said = run(&["bench", "--json", "--seconds", "0.01"], scratch.path()).code(0).json();
    for name in ["write_64", "write_4096", "write_64_and_sync", "write_4096_and_sync"] {
        assert!(said[name].as_f64().is_some_and(|rate| rate > 0.0), "{name}: {said}");
    }
    assert!(said["stats"]["bytes_asked"].as_u64().is_some_and(|bytes| bytes > 0), "{said}");
    assert_eq!(scratch.names(), [] as [&str; 0]);
}
