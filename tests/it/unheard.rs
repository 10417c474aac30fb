//! Tests that the program learns of every promised durable point that could not be made.
//!
//! A program that chose an interval does not call `sync`. The next write reports the failure.

use crate::common::{self, Ground, HANGS, read_all, role, run_child};
use atomic_mmap::testing::call;
use atomic_mmap::testing::recorder::Recorder;
use atomic_mmap::{AtomicMappedFile, CloseMode, Error, Medium};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

const CHILD: &str = concat!(module_path!(), "::plays_the_child_if_it_is_one");
const LEN: u64 = 1 << 20;
const PAGE: u64 = 4096;

type Call<'a> = &'a dyn Fn() -> Result<(), Error>;

fn ground() -> Option<Ground> {
    let ground = common::page_cache();
    if ground.is_none() {
        eprintln!("no page cache here: skipped");
    }
    ground
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < HANGS, "{what} never happens");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Takes the right to start threads from this process. The limit does not bind root, so root
/// becomes another user.
fn start_no_more_threads() {
    // SAFETY: no precondition. Only the idle test harness has another thread in this child.
    let (user, limited) = unsafe {
        if libc::geteuid() == 0 {
            libc::setgid(65534);
            libc::setuid(65534);
        }
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        (libc::geteuid(), libc::setrlimit(libc::RLIMIT_NPROC, &none))
    };
    assert!(user != 0 && limited == 0, "no root, and no thread");
    let thread = std::thread::Builder::new().spawn(|| ());
    assert!(thread.is_err(), "this is about a process without threads");
}

#[test]
fn plays_the_child_if_it_is_one() {
    let Some((_, path)) = role() else { return };
    let options = || {
        let options = common::options(Medium::PageCache).create(true).len(LEN);
        options.sync_every(Duration::from_millis(2))
    };
    let files = |path: &Path| fs::read_dir(path.parent().expect("a folder")).expect("list").count();
    start_no_more_threads();
    let error = options().open(&path).expect_err("no point would be made");
    assert!(matches!(error, Error::NoThread { .. }), "{error:?}");
    assert!(error.to_string().contains("ulimit -u"), "says what to do: {error}");
    assert_eq!(files(&path), 0, "what this open has made is gone");
    // Checkpoints need no thread: a writer makes them.
    let options = || common::options(Medium::PageCache).create(true).len(LEN);
    let file = options().journal_len(64 << 10).open(&path).expect("needs no thread");
    for n in 0..100_u64 {
        file.store(0, &n).expect("store");
        file.sync().expect("sync");
    }
    assert!(file.stats().checkpoints > 0);
    // Without the thread, the poll makes the durable point.
    file.store(8, &1_u64).expect("store");
    let number = pollster::block_on(file.flush_async()).expect("needs no thread");
    assert_eq!(number, file.durable_number());
    file.close(CloseMode::Fast).expect("close");
    options()
        .sync_every(Duration::from_secs(30))
        .open(&path)
        .expect_err("the pair is there, the thread is not");
    let file = options().open(&path).expect("and the pair is as it was");
    assert_eq!(file.load::<u64>(0).expect("load"), 99);
}

/// In a container at its process limit `sync_every` made no durable point, but opening returned
/// `Ok`.
#[test]
fn opening_fails_if_no_thread_can_make_the_points_of_an_interval() {
    let Some(ground) = ground() else { return };
    let scratch = ground.scratch();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o777)).expect("for all users");
    run_child(CHILD, "no threads", scratch.file("state.dat"));
}

/// Writes to both slots of every page. Afterwards only the journal needs space.
fn allocate_everything(file: &AtomicMappedFile) {
    for fill in [1, 2] {
        file.write_at(&vec![fill; file.len() as usize], 0).expect("write");
        file.sync().expect("sync");
    }
}

/// Writes a slice of each page until a durable point fails, because its record makes the journal
/// grow. Each write is within a page and allocates nothing.
fn write_until_a_point_fails(file: &AtomicMappedFile) {
    let begin = Instant::now();
    for round in 0_u64.. {
        for page in 0..file.len() / PAGE {
            match file.store(page * PAGE + page % 64 * 64, &round) {
                Ok(()) => {}
                Err(Error::Overdue { .. }) => return,
                Err(e) => panic!("{e:?}"),
            }
        }
        assert!(begin.elapsed() < HANGS, "a failed point never happens");
    }
}

/// On a full disk no point of the interval was made. Ten writes returned `Ok`, and no call reported
/// it.
#[test]
fn writes_fail_while_the_points_of_an_interval_fail_and_go_on_after_the_next_one() {
    let Some(ground) = ground() else { return };
    let scratch = ground.scratch();
    let pages = 4_000;
    let recorder = Recorder::new();
    let options = ground.options().create(true).len(pages * PAGE).journal_len(64 << 10);
    let options = options.sync_every(Duration::from_millis(300));
    let file = options.open_recorded(&recorder, scratch.file("state.dat")).expect("open");
    file.health().expect("nothing has failed");
    // A point of all these pages needs a longer journal, which the full disk refuses.
    allocate_everything(&file);
    recorder.fail_from(call::ALLOCATE, 1, libc::ENOSPC);
    write_until_a_point_fails(&file);
    wait_until("a failed point", || file.stats().failed_points > 0);
    let before = read_all(&file);
    let calls: [(&str, Call<'_>); 6] = [
        ("health", &|| file.health()),
        ("write_at", &|| file.write_at(&[9; 3], 5)),
        ("write_many", &|| file.write_many(&[(0, &[9]), (PAGE, &[9])])),
        ("update", &|| file.update(0, |n: &mut u64| *n += 1)),
        ("transact", &|| file.transact(|tx| tx.store(0, &9_u64))),
        ("set_len", &|| file.set_len((pages + 1) * PAGE)),
    ];
    for (name, call) in calls {
        let error = call().expect_err(name);
        assert!(matches!(error, Error::Overdue { .. }), "{name}: {error:?}");
        let text = error.to_string();
        assert!(text.contains(".journal") && text.contains("call sync"), "{name}: {text}");
    }
    assert_eq!(read_all(&file), before, "nothing was written, and readers go on");
    let error = file.sync().expect_err("there is no space");
    assert!(!matches!(error, Error::Overdue { .. }), "a caller that syncs hears why: {error:?}");
    recorder.heal();
    file.sync().expect("there is space again");
    file.health().expect("and it is made up for");
    file.write_at(&[9; 3], 5).expect("writes go on");
}

/// Tests that the interval resumes by itself after the cause of the failure is gone.
#[test]
fn the_next_point_of_an_interval_ends_what_was_overdue() {
    let Some(ground) = ground() else { return };
    let scratch = ground.scratch();
    let pages = 4_000;
    let recorder = Recorder::new();
    let options = ground.options().create(true).len(pages * PAGE).journal_len(64 << 10);
    let options = options.sync_every(Duration::from_millis(300));
    let file = options.open_recorded(&recorder, scratch.file("state.dat")).expect("open");
    allocate_everything(&file);
    recorder.fail_from(call::ALLOCATE, 1, libc::ENOSPC);
    write_until_a_point_fails(&file);
    wait_until("a failed point", || file.health().is_err());
    recorder.heal();
    wait_until("a point", || file.health().is_ok());
    file.write_at(&[9; 3], 5).expect("writes go on");
}
