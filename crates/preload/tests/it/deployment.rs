//! The settings of deployment: its policy, deployment in the background, and the budget.

use crate::calls::build;
use crate::common::{Scratch, child};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// How long a test waits for what must come.
const LIMIT: Duration = Duration::from_secs(100);
/// Bytes that [`write_much`] writes.
const MUCH: u64 = 32 * MIB;

/// A shell that has written to a file, and has it open.
struct Holder(Child);

impl Holder {
    fn start(scratch: &Scratch, settings: &[(&str, &str)]) -> Holder {
        let mut command = scratch.command("sh");
        command.current_dir(scratch.folder()).envs(settings.iter().copied());
        command.args(["-c", "exec 3<>x.dat; echo hello >&3; echo written; read end"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("its output");
        BufReader::new(out).read_line(&mut line).expect("a line");
        assert_eq!(line, "written\n");
        Holder(child)
    }

    fn end(mut self) {
        let mut input = self.0.stdin.take().expect("its input");
        input.write_all(b"\n").expect("write");
        assert!(self.0.wait().expect("its end").success());
    }
}

/// The policy decides whether a write is in the home file when it returns, and the time when it is
/// there at last.
#[test]
fn writes_come_home_as_the_settings_say() {
    let scratch = Scratch::new();
    let path = scratch.path("x.dat");
    let memory = ("ATOMIC_MMAP_MEDIUM", "ram");
    for (settings, is_at_home) in [
        (&[memory][..], false),
        (&[memory, ("ATOMIC_MMAP_DEPLOY", "manual")], false),
        (&[memory, ("ATOMIC_MMAP_DEPLOY", "eager")], true),
    ] {
        // The bytes that every program sees: those of the home file.
        std::fs::write(&path, [0; 8192]).expect("write");
        let holder = Holder::start(&scratch, settings);
        let bytes = std::fs::read(&path).expect("read");
        assert_eq!(bytes.starts_with(b"hello\n"), is_at_home, "{settings:?}");
        holder.end();
        assert!(std::fs::read(&path).expect("read").starts_with(b"hello\n"));
    }

    std::fs::write(&path, [0; 8192]).expect("write");
    let idle = ("ATOMIC_MMAP_DEPLOY_IDLE", "10ms");
    let holder = Holder::start(&scratch, &[memory, ("ATOMIC_MMAP_DEPLOY", "manual"), idle]);
    while !std::fs::read(&path).expect("read").starts_with(b"hello\n") {
        std::thread::sleep(Duration::from_millis(1));
    }
    holder.end();
    assert_eq!(scratch.companions(), [""; 0]);
}

/// A program without the preload found zeroes in an open file, and copies had them. A page that is
/// written again and again is never idle, and its bytes come home all the same.
#[test]
fn an_open_file_is_complete_again_at_each_interval() {
    let ends = "exec 3<>x.dat; echo hello >&3; echo written; read end";
    let goes_on = "exec 3<>x.dat; echo hello >&3; echo written
        until [ -e end ]; do echo more >&3; done";
    // A child by fork completes what it has taken over.
    let forks = "exec 3<>x.dat; (echo hello >&3; echo written; until [ -e end ]; do :; done)";
    for (make, medium) in [
        (Scratch::new as fn() -> Scratch, "ram"),
        (Scratch::new, "page-cache"),
        (Scratch::on_disk, "page-cache"),
    ] {
        for lines in [ends, goes_on, forks] {
            let scratch = make();
            let path = scratch.path("x.dat");
            std::fs::write(&path, [0; 8192]).expect("write");
            let mut command = scratch.command("bash");
            command.current_dir(scratch.folder()).args(["-c", lines]);
            command.env("ATOMIC_MMAP_MEDIUM", medium).env("ATOMIC_MMAP_HOME", "20ms");
            command.env("ATOMIC_MMAP_DEPLOY", "manual");
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().expect("a shell");
            let mut line = String::new();
            let out = child.stdout.as_mut().expect("its output");
            BufReader::new(out).read_line(&mut line).expect("a line");
            assert_eq!(line, "written\n", "{medium}: {lines}");
            let since = Instant::now();
            while !std::fs::read(&path).expect("read").starts_with(b"hello\n") {
                assert!(since.elapsed() < LIMIT, "{medium}: {lines}: {}", scratch.log());
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(!scratch.companions().is_empty(), "the file is open");
            std::fs::write(scratch.path("end"), "").expect("write");
            drop(child.stdin.take());
            child.wait().expect("its end");
            assert!(std::fs::read(&path).expect("read").starts_with(b"hello\n"), "{lines}");
            assert_eq!((scratch.companions(), scratch.log()), (vec![], String::new()), "{lines}");
        }
    }
}

/// After an error, nothing came home until the next change.
#[test]
fn a_file_that_could_not_be_completed_is_tried_again() {
    let scratch = Scratch::new();
    let program = build(&scratch, "home.c", &["-O1"]);
    let path = scratch.path("x.dat");
    // Its pages get disk space when they come home.
    std::fs::File::create(&path).and_then(|file| file.set_len(65_536)).expect("a file");
    let mut command = scratch.command(&program);
    command.env("ATOMIC_MMAP_MEDIUM", "ram").env("ATOMIC_MMAP_HOME", "10ms");
    let output = command.current_dir(scratch.folder()).output().expect("run");
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) {
        eprintln!("skipped: no filter of calls");
        return;
    }
    assert!(output.status.success(), "{said}\n{}", scratch.log());
    assert!(std::fs::read(&path).expect("read").iter().all(|byte| *byte == b'b'));
    assert_eq!(scratch.companions(), [""; 0]);
}

/// `tail -f` showed zeroes for what was appended since the last interval, and never showed the
/// bytes, since it does not read a place twice.
#[test]
fn a_file_that_is_followed_shows_no_zeroes_for_what_is_appended() {
    for make in [Scratch::new as fn() -> Scratch, Scratch::on_disk] {
        let scratch = make();
        let path = scratch.path("x.log");
        std::fs::write(&path, "").expect("write");
        let lines =
            "exec 3>>x.log; for ((i = 0; i < 3000; i++)); do echo line $i >&3; done; read end";
        let mut command = scratch.command("bash");
        command.current_dir(scratch.folder()).args(["-c", lines]);
        command.env("ATOMIC_MMAP_FILES", scratch.path("*.log")).env("ATOMIC_MMAP_HOME", "1h");
        command.stdin(Stdio::piped());
        let mut child = command.spawn().expect("a shell");
        let expected: String = (0..3000).map(|i| format!("line {i}\n")).collect();
        let (mut log, mut seen) = (std::fs::File::open(&path).expect("open"), Vec::new());
        let since = Instant::now();
        while seen.len() < expected.len() {
            log.read_to_end(&mut seen).expect("follow");
            assert!(expected.as_bytes().starts_with(&seen), "{:?}", String::from_utf8_lossy(&seen));
            assert!(since.elapsed() < LIMIT, "{}", scratch.log());
        }
        assert!(!scratch.companions().is_empty(), "the file is open");
        drop(child.stdin.take());
        child.wait().expect("its end");
        assert_eq!(std::fs::read(&path).expect("read"), expected.as_bytes());
        assert_eq!((scratch.companions(), scratch.log()), (vec![], String::new()));
    }
}

/// Writes [`MUCH`], and tells how many bytes of disk the companions have at most taken.
pub fn write_much(path: &Path) {
    let mut file = std::fs::File::options().write(true).open(path).expect("open");
    let mut most = 0;
    for _ in 0..MUCH / (64 << 10) {
        file.write_all(&[7; 64 << 10]).expect("write");
        let entries = path.parent().expect("a folder").read_dir().expect("list");
        let blocks = entries
            .map(|entry| entry.expect("an entry"))
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(".atomic-mmap."));
        most = most.max(blocks.map(|e| e.metadata().expect("a companion").blocks() * 512).sum());
    }
    println!(">{most}");
}

#[test]
fn companions_stay_within_the_budget() {
    let most = |budget: Option<&str>| -> u64 {
        let scratch = Scratch::new();
        let path = scratch.path("x.dat");
        let made = std::fs::File::create(&path).and_then(|file| file.set_len(MUCH));
        made.expect("a file");
        let mut command = child(&scratch, "much", &path, 0);
        command.env("ATOMIC_MMAP_MEDIUM", "ram");
        if let Some(budget) = budget {
            command.env("ATOMIC_MMAP_REFLECTION_BUDGET", budget);
        }
        let output = command.output().expect("run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(std::fs::read(&path).expect("read").iter().all(|byte| *byte == 7));
        let said = String::from_utf8_lossy(&output.stdout);
        // The harness may leave its own words at the beginning of the line.
        said.split_once('>').expect("a line").1.trim().parse().expect("a number")
    };
    assert!(most(None) > MUCH / 2);
    assert!(most(Some("8M")) < MUCH / 2);
}

/// The thread in the background is in no way of forks, execs, renames and closes.
#[test]
fn calls_do_what_they_do_beside_deployment_in_the_background() {
    for make in [Scratch::new, Scratch::on_disk] {
        for (source, arguments) in [("calls.c", &["yes"][..]), ("races.c", &[])] {
            let scratch = make();
            let program = build(&scratch, source, &["-O1"]);
            let mut command = scratch.command(&program);
            command.arg(scratch.folder()).args(arguments);
            command.env("ATOMIC_MMAP_DEPLOY", "adaptive");
            command.env("ATOMIC_MMAP_DEPLOY_IDLE", "1ms");
            command.env("ATOMIC_MMAP_HOME", "1ms");
            command.env("ATOMIC_MMAP_REFLECTION_BUDGET", "4M");
            let output = command.output().expect("run");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{source}: {said}\n{}", scratch.log());
            assert_eq!(scratch.companions(), [""; 0], "{source}");
        }
    }
}
