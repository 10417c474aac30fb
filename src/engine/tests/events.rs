//! Tests of the events, as a program gets them that subscribes to `tracing`.

use crate::error::Error;
use crate::platform::call;
use crate::platform::recorder::Recorder;
use crate::units::PAGE;
use crate::{AtomicMappedFile, CloseMode, Medium, Options};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Every line that was printed, of all tests of this process.
static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Longer than any step takes here, even on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(600);

struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LINES.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn subscribe() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let printer = tracing_subscriber::fmt().with_ansi(false).with_writer(|| Lines);
        let printer = printer.with_max_level(tracing::Level::DEBUG).finish();
        tracing::subscriber::set_global_default(printer).expect("the first");
    });
}

/// Returns the lines about files below `folder` that contain `what`.
fn lines(folder: &Path, what: &str) -> Vec<String> {
    let folder = folder.display().to_string();
    let lines = LINES.lock().expect("no panic");
    let lines = String::from_utf8_lossy(&lines).into_owned();
    let is_it = |line: &&str| line.contains(&folder) && line.contains(what);
    lines.lines().filter(is_it).map(str::to_owned).collect()
}

/// Returns the one line that contains `what`.
fn line(folder: &Path, what: &str) -> String {
    let found = lines(folder, what);
    let [line] = &found[..] else { panic!("{what}: {found:?}") };
    line.clone()
}

fn options(len: usize) -> Options {
    subscribe();
    AtomicMappedFile::options().create(true).len(len as u64).medium(Medium::PageCache)
}

#[test]
fn rare_things_are_events_and_writes_are_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = |what| lines(folder.path(), what);
    let path = folder.path().join("state.dat");
    let len = 1 << 20;
    let file = options(len).journal_len(64 << 10).open(&path).expect("create");
    let opened = line(folder.path(), "opened");
    assert!(opened.contains("Fresh") && opened.contains("INFO atomic_mmap"), "{opened}");
    file.write_at(&[1; 100_000], 0).expect("write");
    file.set_len(2 * len as u64).expect("grow");
    assert_eq!(lines("grows").len(), 1);
    let before = lines("").len();
    for n in 0..100 {
        file.write_at(&[n; 100], u64::from(n) * 100).expect("write");
    }
    assert_eq!(lines("").len(), before, "no event for a write");
    // The journal fills, and a thread makes a checkpoint.
    while lines("checkpoint").is_empty() {
        file.write_at(&[2; 3000], 50_000).expect("write");
        file.sync().expect("sync");
    }
    file.close(CloseMode::Unsynced).expect("close");
    assert_eq!(lines("closed").len(), 1);
    let again = options(len).open(&path).expect("open");
    assert!(lines("opened")[1].contains("Recover"));
    again.close(CloseMode::Fast).expect("close");

    if cfg!(atomic_mmap_portable) {
        return; // no attribute of the file tells there that a reflection file is missing
    }
    let names = std::fs::read_dir(folder.path()).expect("list");
    let names = names.map(|entry| entry.expect("an entry").path());
    let is_reflection = |path: &std::path::PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        name.starts_with(".atomic-mmap.") && !name.ends_with(".journal")
    };
    std::fs::remove_file(names.into_iter().find(is_reflection).expect("one")).expect("remove");
    let refused = options(len).open(&path);
    assert!(matches!(refused, Err(Error::Mismatch { .. })), "{refused:?}");
    assert!(lines("refused")[0].contains("ReflectionGone"));
}

#[test]
fn a_handle_that_is_poisoned_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let recorder = Recorder::new();
    let path = folder.path().join("state.dat");
    let file = options(PAGE).open_recorded(&recorder, path).expect("a pair");
    file.write_at(&[1; 8], 0).expect("a write");
    recorder.fail_from("any", 1, libc::EIO);
    file.sync().expect_err("no disk");
    let _they_came_up = recorder.heal();
    let poisoned = line(folder.path(), "poisoned");
    assert!(
        poisoned.contains("ERROR atomic_mmap") && poisoned.contains("os error 5"),
        "{poisoned}"
    );
}

#[test]
fn missing_space_and_points_that_are_overdue_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let recorder = Recorder::new();
    let pages = 4_000;
    let options = options(pages * PAGE).journal_len(64 << 10);
    let options = options.sync_every(Duration::from_millis(100));
    let path = folder.path().join("state.dat");
    let file = options.open_recorded(&recorder, path).expect("a pair");
    // Both slots of every page. Afterwards only the journal needs space.
    for fill in [1, 2] {
        file.write_at(&vec![fill; pages * PAGE], 0).expect("a write");
        file.sync().expect("a sync");
    }
    let begun = Instant::now();
    let mut at = (0..pages).cycle().map(|page| (page * PAGE + page % 64 * 64) as u64);
    {
        // A point waits for a thread that changes the length. So the record of the first one is
        // longer than the journal, however slow this thread is.
        let _held = file.engine().resizing.write();
        recorder.fail_from(call::ALLOCATE, 1, libc::ENOSPC);
        recorder.fail_from(call::WRITE, 1, libc::ENOSPC);
        for at in at.by_ref().take(pages) {
            file.store(at, &[3; 8]).expect("a write");
        }
    }
    loop {
        match file.store(at.next().expect("no end"), &begun.elapsed().as_nanos().to_le_bytes()) {
            Err(Error::Overdue { .. }) => break,
            other => other.expect("a write"),
        }
        assert!(begun.elapsed() < PATIENCE, "a failed point never happens");
    }
    assert!(lines(folder.path(), "no space").iter().all(|line| line.contains("WARN atomic_mmap")));
    assert!(lines(folder.path(), "overdue").iter().all(|line| line.contains("WARN atomic_mmap")));
    assert!(!lines(folder.path(), "no space").is_empty());
    assert!(!lines(folder.path(), "overdue").is_empty());
    let _they_came_up = recorder.heal();
}

#[test]
fn a_durable_point_that_takes_a_second_is_slow() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = options(PAGE).open(folder.path().join("state.dat")).expect("a pair");
    let begun = Instant::now();
    // Again if the thread that makes the point began late, on a loaded machine.
    while lines(folder.path(), "slow durable point").is_empty() {
        assert!(begun.elapsed() < PATIENCE, "no point is slow");
        file.write_at(&[1; 8], 0).expect("a write");
        std::thread::scope(|scope| {
            // A point waits for a thread that changes the length.
            let held = file.engine().resizing.write();
            let point = scope.spawn(|| file.sync().expect("a sync"));
            std::thread::sleep(Duration::from_millis(1200));
            assert!(!point.is_finished());
            drop(held);
        });
    }
    let slow = line(folder.path(), "slow durable point");
    assert!(slow.contains("WARN atomic_mmap") && slow.contains("took="), "{slow}");
}

#[test]
fn a_lane_that_is_recovered_is_told() {
    // Persistent memory needs instructions that write cache lines back.
    if !cfg!(all(target_arch = "x86_64", not(atomic_mmap_portable), not(miri))) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let open = || options(PAGE).medium(Medium::Dax).open(folder.path().join("state.dat"));
    let file = open().expect("a pair");
    file.write_at(&[1; 8], 0).expect("a small write, which a flip record commits");
    file.close(CloseMode::Unsynced).expect("a close");
    assert!(lines(folder.path(), "recovers a lane").is_empty());
    open().expect("a pair to recover");
    let recovers = line(folder.path(), "recovers a lane");
    assert!(recovers.contains("INFO atomic_mmap"), "{recovers}");
    assert!(recovers.contains("undo=0 flips=1 redo=0"), "{recovers}");
}
