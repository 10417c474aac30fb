//! Tests of opens and closes that take long: waiting for a busy file, and reports of progress.

use crate::common::{self, Ground, media, role};
use crate::durable::restarted;
use atomic_mmap::testing::call;
use atomic_mmap::testing::recorder::{Event, Recorder, What};
use atomic_mmap::{AtomicMappedFile, CloseMode, DeployPolicy, Error, Medium, Progress, Work};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const CHILD: &str = concat!(module_path!(), "::plays_the_child_if_it_is_one");
const REGION: u64 = 262_144;

#[test]
fn plays_the_child_if_it_is_one() {
    let Some((_, path)) = role() else { return };
    println!("waits");
    let options = common::options(Medium::Ram).busy_timeout(Duration::MAX);
    let file = options.open(&path).expect("the parent closes it");
    assert_eq!(file.load::<u64>(0).expect("load"), 7);
}

fn new_file(ground: &Ground, path: &Path) -> AtomicMappedFile {
    let options = ground.options().create(true).len(8 * REGION).deploy(DeployPolicy::Manual);
    let file = options.open(path).expect("open");
    file.store(0, &7_u64).expect("store");
    file
}

#[test]
fn an_open_waits_for_a_file_that_is_busy() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let file = new_file(&ground, &path);
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| {
                let options = ground.options().busy_timeout(Duration::MAX);
                options.open(&path).expect("it gets its turn").load::<u64>(0)
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiting.is_finished(), "it is still open");
            file.close(CloseMode::Spatial).expect("close");
            assert_eq!(waiting.join().expect("no panic").expect("load"), 7);
        });
    }
}

#[test]
fn an_open_waits_for_another_process() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let file = new_file(&ground, &path);
    let mut command = common::child(CHILD, "waits", &path);
    let child = command.stdout(std::process::Stdio::piped()).spawn().expect("a child");
    std::thread::sleep(Duration::from_millis(20));
    file.close(CloseMode::Spatial).expect("close");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("waits"), "{said}");
}

/// A look at a file takes the lock of a reader for a moment, to see if the file is open. An opening
/// at that moment was refused, as if another process had the file open.
#[test]
fn an_open_waits_for_a_look() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    new_file(&ground, &path).close(CloseMode::Fast).expect("close");
    let look = std::fs::File::open(&path).expect("open");
    look.lock_shared().expect("lock");
    let recorder = Recorder::new();
    std::thread::scope(|threads| {
        let opening = threads.spawn(|| ground.options().open_recorded(&recorder, &path));
        // The opening has seen that no writer has the file.
        let has_seen = |event: &Event| matches!(event.what, What::Os(call::UNLOCK));
        while !recorder.take().iter().any(has_seen) && !opening.is_finished() {
            std::thread::yield_now();
        }
        look.unlock().expect("unlock");
        opening.join().expect("no panic").expect("the look is over");
    });
}

#[test]
fn an_open_gives_up_after_its_time_and_not_before() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let file = new_file(&ground, &path);
    for patience in [Duration::ZERO, Duration::from_millis(30)] {
        let begun = Instant::now();
        let result = ground.options().busy_timeout(patience).open(&path);
        assert!(matches!(result, Err(Error::Busy { in_this_process: true, .. })), "{result:?}");
        assert!(begun.elapsed() >= patience);
    }
    // Any other error comes at once: the test would not end otherwise.
    let options = ground.options().busy_timeout(Duration::MAX);
    assert!(options.open(scratch.file("no such file")).is_err());
    drop(file);
}

/// The reports that an open or a close has made.
type Reports = Arc<Mutex<Vec<Progress>>>;

fn listener(reports: &Reports) -> impl Fn(Progress) + Send + Sync + 'static {
    let reports = Arc::clone(reports);
    move |progress| reports.lock().expect("no panic").push(progress)
}

/// Checks one piece of work, and returns how much it was.
#[track_caller]
fn check(reports: &Reports, work: Work) -> u64 {
    let reports = reports.lock().expect("no panic");
    let of_work: Vec<_> = reports.iter().filter(|report| report.work == work).collect();
    let (first, last) = (of_work.first().expect("a report"), of_work.last().expect("a report"));
    assert!(of_work.is_sorted_by_key(|report| report.done), "{of_work:?}");
    assert!(of_work.iter().all(|report| report.total == first.total), "{of_work:?}");
    assert_eq!((first.done, last.done), (0, last.total), "{of_work:?}");
    last.total
}

#[test]
fn a_spatial_close_reports_what_it_deploys() {
    for ground in media() {
        let scratch = ground.scratch();
        let reports = Reports::default();
        let options = ground.options().create(true).len(8 * REGION).deploy(DeployPolicy::Manual);
        let file = options.on_progress(listener(&reports)).open(scratch.file("state.dat"));
        let file = file.expect("open");
        for region in [0, 3, 5] {
            file.write_at(&[1; 100], region * REGION + 50).expect("write");
        }
        assert!(reports.lock().expect("no panic").is_empty(), "nothing takes long yet");
        file.close(CloseMode::Spatial).expect("close");
        assert_eq!(check(&reports, Work::Deploy), 3 * REGION, "{ground:?}");
    }
}

#[test]
fn an_open_reports_what_it_replays() {
    let Some(ground) = common::page_cache() else { return };
    let scratch = ground.scratch();
    let file = new_file(&ground, &scratch.file("state.dat"));
    for n in 0..20_u64 {
        file.store(n * 4096, &n).expect("store");
        file.sync().expect("sync");
    }
    let reports = Reports::default();
    let copy = restarted(&ground, file.path());
    let options = ground.options().on_progress(listener(&reports));
    let opened = options.open(copy.path()).expect("goes back to the last durable point");
    assert!(check(&reports, Work::Replay) >= 20 * 4096);
    assert_eq!(opened.load::<u64>(19 * 4096).expect("load"), 19);
}

/// A caller that gives up by a panic loses nothing.
#[test]
fn a_panic_in_a_report_leaves_what_a_crash_would() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let options = ground.options().create(true).len(8 * REGION).deploy(DeployPolicy::Manual);
        let gives_up = |progress: Progress| assert!(progress.done == 0, "given up, as planned");
        let file = options.on_progress(gives_up).open(&path).expect("open");
        for region in 0..8 {
            file.store(region * REGION, &region).expect("store");
        }
        let close = AssertUnwindSafe(|| file.close(CloseMode::Spatial));
        assert!(catch_unwind(close).is_err(), "it was given up");
        let file = ground.options().open(&path).expect("recovers");
        for region in 0..8 {
            assert_eq!(file.load::<u64>(region * REGION).expect("load"), region);
        }
    }
}
