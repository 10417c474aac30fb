//! The interface as a program in C sees it: the header, the symbols, the examples.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Number of kills of the example.
const KILLS: u64 = 200;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the shared library that cargo has built for this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    test.with_file_name("libatomic_mmap_c.so")
}

/// Returns the output of a command, which must end well.
#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{command:?}: {said}{}", text(&output.stderr));
    said
}

fn is_there(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output();
    let there = there.is_ok_and(|output| output.status.success());
    if !there {
        println!("skipped: no {program}");
    }
    there
}

/// Returns a folder for files: in memory if there is one, where a sync costs nothing.
fn folder() -> TempDir {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.expect("a folder")
}

/// Compiles a source in C with every warning an error, and returns the program. Returns `None`
/// without a compiler.
fn compiled(source: &str, to: &Path) -> Option<PathBuf> {
    if !is_there("cc") {
        return None;
    }
    // The names that `install.sh` gives.
    for link in ["libatomic_mmap.so", "libatomic_mmap.so.0"] {
        std::os::unix::fs::symlink(library(), to.join(link)).expect("a link");
    }
    let source = root().join(source);
    let program = to.join(source.file_stem().expect("a name"));
    run(Command::new("cc")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
        .arg(&source)
        .arg("-I")
        .arg(root().join("include"))
        .arg("-L")
        .arg(to)
        .arg(format!("-Wl,-rpath,{}", to.display()))
        .args(["-latomic_mmap", "-o"])
        .arg(&program));
    Some(program)
}

/// Returns a command that runs a program, and fails if it uses memory that it must not use.
fn valgrind(program: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["-q", "--error-exitcode=9", "--leak-check=full"]).arg(program);
    command
}

/// Returns the header that the sources give.
fn header() -> String {
    let config =
        cbindgen::Config::from_file(root().join("cbindgen.toml")).expect("a configuration");
    let mut header = Vec::new();
    cbindgen::Builder::new()
        .with_crate(root())
        .with_config(config)
        .generate()
        .expect("a header")
        .write(&mut header);
    String::from_utf8(header).expect("text").replace("// # Safety\n", "// Requires:\n")
}

#[test]
fn the_header_is_that_of_the_sources() {
    let path = root().join("include/atomic_mmap.h");
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::write(&path, header()).expect("to write the header");
    }
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == header(),
        "{} is not current: UPDATE_HEADER=1 cargo test -p atomic-mmap-capi",
        path.display()
    );
}

/// A program that was linked with these names finds each of them in later versions.
#[test]
fn the_library_has_the_names_of_the_header_and_no_others() {
    if !is_there("nm") {
        return;
    }
    let symbols =
        run(Command::new("nm").args(["-D", "--defined-only", "-f", "posix"]).arg(library()));
    let mut found: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').next()).collect();
    found.sort_unstable();
    let expected = include_str!("symbols.txt");
    let expected: Vec<&str> = expected.lines().collect();
    assert_eq!(found, expected);
    let header = header();
    for name in expected {
        assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
    }
}

/// Runs a test in C, also under valgrind.
fn test(source: &str) {
    let folder = folder();
    let Some(program) = compiled(source, folder.path()) else { return };
    let files = || tempfile::tempdir_in(folder.path()).expect("a folder");
    assert_eq!(run(Command::new(&program).arg(files().path()).arg("fork")), "ok\n");
    for medium in ["ram", "page-cache"] {
        let files = files();
        run(Command::new(&program).env("ATOMIC_MMAP_MEDIUM", medium).arg(files.path()));
    }
    if is_there("valgrind") {
        run(valgrind(&program).arg(files().path()));
    }
}

#[test]
fn each_call_does_what_the_header_says() {
    test("tests/calls.c");
}

/// Also a stage of another file, one that is named twice, and one that two threads use.
#[test]
fn calls_on_stages_do_what_the_header_says() {
    test("tests/stages.c");
}

#[test]
fn the_example_of_acumens_calls_runs() {
    let folder = folder();
    let Some(program) = compiled("examples/c/mapping.c", folder.path()) else { return };
    let file = folder.path().join("accounts.dat");
    assert_eq!(run(Command::new(&program).arg(&file)), "Ada 1852\n3200 bytes\n");
    assert_eq!(std::fs::metadata(&file).expect("the file").len(), 3200);
    if is_there("valgrind") {
        run(valgrind(&program).arg(&file));
    }
}

/// The input breaks off in the middle of a block, which is not in the file then.
#[test]
fn the_example_of_stages_takes_whole_blocks() {
    let folder = folder();
    let Some(program) = compiled("examples/c/stages.c", folder.path()) else { return };
    let (file, input) = (folder.path().join("blocks.dat"), folder.path().join("input"));
    const BLOCK: usize = 65536;
    let bytes: Vec<u8> = (0..BLOCK * 5 / 2).map(|n| (n % 251) as u8).collect();
    std::fs::write(&input, &bytes).expect("the input");
    let mut runs = vec![Command::new(&program)];
    if is_there("valgrind") {
        runs.push(valgrind(&program));
    }
    for (n, mut command) in runs.into_iter().enumerate() {
        let input = std::fs::File::open(&input).expect("the input");
        let blocks = (n + 1) * 2;
        assert_eq!(run(command.arg(&file).stdin(input)), format!("{blocks} blocks\n"));
        let found = atomic_mmap::AtomicMappedFile::options().open(&file).expect("the file");
        let found = found.read_vec().expect("its bytes");
        assert_eq!(found[..8], (blocks as u64).to_ne_bytes());
        for blocks in found[4096..4096 + blocks * BLOCK].chunks(2 * BLOCK) {
            assert!(*blocks == bytes[..2 * BLOCK]);
        }
        assert!(found[4096 + blocks * BLOCK..].iter().all(|byte| *byte == 0));
    }
}

/// The program is killed in mid-write again and again. All of its records always have one number,
/// and none that it has acknowledged is lost.
#[test]
fn the_example_that_is_killed_leaves_whole_records() {
    let folder = folder();
    let Some(program) = compiled("examples/c/records.c", folder.path()) else { return };
    let file = folder.path().join("records.dat");
    let command = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.arg(&file).args(arguments);
        command
    };
    let mut acknowledged = String::from("0");
    for kill in 0..KILLS {
        let mut child = command(&["write"]).stdout(Stdio::piped()).spawn().expect("the program");
        let mut lines = BufReader::new(child.stdout.take().expect("its output"));
        // Another moment each time: after some writes, in the middle of the next one.
        for _ in 0..1 + kill * 7 % 23 {
            acknowledged.clear();
            lines.read_line(&mut acknowledged).expect("a number");
        }
        child.kill().expect("to kill it");
        child.wait().expect("its end");
        let number = acknowledged.trim_end().to_owned();
        assert!(number.parse::<u64>().is_ok(), "kill {kill}: {number:?}");
        run(&mut command(&["check", &number]));
    }
    if is_there("valgrind") {
        run(valgrind(&program).arg(&file).args(["write", "5"]));
    }
}

/// Runs `install.sh` in a folder, of a copy of this package, with what this test was built with.
/// Returns the folder with the copy, in `tree`, and the script's exit code.
fn installed(arguments: &[&str], stage: Option<&str>) -> (TempDir, i32) {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    for name in ["bin", "tree/include", "target/release", "here"] {
        std::fs::create_dir_all(at(name)).expect("a folder");
    }
    for name in ["install.sh", "Cargo.toml", "include/atomic_mmap.h"] {
        std::fs::copy(root().join(name), at("tree").join(name)).expect("a copy");
    }
    for name in ["libatomic_mmap_c.so", "libatomic_mmap_c.a"] {
        std::fs::copy(library().with_file_name(name), at("target/release").join(name))
            .expect("a library");
    }
    let cargo = format!(
        "#!/bin/sh\n[ $1 = build ] || echo '{{\"target_directory\":\"{}\"}}'\n",
        at("target").display()
    );
    std::fs::write(at("bin/cargo"), cargo).expect("a cargo that builds nothing");
    run(Command::new("chmod").arg("+x").arg(at("bin/cargo")));
    let path = std::env::var("PATH").expect("a path");
    let mut install = Command::new("bash");
    install.env("PATH", format!("{}:{path}", at("bin").display())).env_remove("DESTDIR");
    if let Some(stage) = stage {
        install.env("DESTDIR", stage);
    }
    let output =
        install.arg(at("tree/install.sh")).args(arguments).current_dir(at("here")).output();
    let output = output.expect("bash");
    println!("{}", String::from_utf8_lossy(&output.stderr));
    (folder, output.status.code().expect("an end"))
}

/// A relative `--destdir` lay in the source tree, `DESTDIR` was ignored, and a relative prefix came
/// into the pkg-config file.
#[test]
fn the_script_installs_below_the_callers_folder_and_refuses_relative_prefixes() {
    let of_option: &[&str] = &["--prefix", "/usr", "--destdir", "stage"];
    for (arguments, stage) in [(of_option, None), (&of_option[..2], Some("stage"))] {
        let (folder, code) = installed(arguments, stage);
        assert_eq!(code, 0);
        let at = folder.path().join("here/stage/usr");
        assert!(at.join("include/atomic_mmap.h").exists());
        let package = std::fs::read_to_string(at.join("lib/pkgconfig/atomic-mmap.pc"));
        assert!(package.expect("a file").contains("libdir=/usr/lib\n"));
        assert_eq!(std::fs::read_dir(folder.path().join("tree")).expect("it").count(), 3);
    }
    for arguments in [["--prefix", "usr"], ["--libdir", "lib"]] {
        let (folder, code) = installed(&arguments, Some("stage"));
        assert_eq!(code, 2, "{arguments:?}");
        assert_eq!(std::fs::read_dir(folder.path().join("here")).expect("it").count(), 0);
    }
}

/// They had the debug information of Rust's library, too: 17.5 and 52 MB.
#[test]
fn the_installed_libraries_are_stripped_and_programs_link_them() {
    if !is_there("strip") || !is_there("readelf") {
        return;
    }
    let (folder, code) = installed(&["--prefix", "/usr", "--destdir", "stage"], None);
    assert_eq!(code, 0);
    let libraries = folder.path().join("here/stage/usr/lib");
    for name in ["libatomic_mmap.so", "libatomic_mmap.a"] {
        let sections = run(Command::new("readelf").arg("-SW").arg(libraries.join(name)));
        assert!(sections.contains(".text") && !sections.contains(".debug_info"), "{name}");
    }
    if is_there("cc") {
        let program = folder.path().join("records");
        run(Command::new("cc")
            .arg(root().join("examples/c/records.c"))
            .arg("-I")
            .arg(root().join("include"))
            .arg(libraries.join("libatomic_mmap.a"))
            .args(["-lpthread", "-ldl", "-lm", "-o"])
            .arg(&program));
        run(Command::new(&program).arg(folder.path().join("r.dat")).args(["write", "5"]));
    }
}

#[test]
fn the_example_in_python_counts() {
    if !is_there("python3") {
        return;
    }
    let folder = folder();
    let file = folder.path().join("counter.dat");
    for count in 1..=3 {
        let mut python = Command::new("python3");
        python.arg(root().join("examples/python/counter.py")).arg(library()).arg(&file);
        assert_eq!(run(&mut python), format!("{count}\n"));
    }
}
