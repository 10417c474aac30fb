//! Tests of automatic snapshots, and of the limits of all snapshots.

use crate::common::{self, Ground, media, ram};
use atomic_mmap::{AtomicMappedFile, AutoSnapshots, CloseMode, Retention, SnapshotInfo};
use std::sync::Barrier;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

const LEN: u64 = 1 << 20;

fn open(ground: &Ground, path: &std::path::Path, auto: AutoSnapshots) -> AtomicMappedFile {
    ground.options().create(true).len(LEN).auto_snapshots(auto).open(path).expect("open")
}

/// Waits until the file has as many snapshots by now, and fails after a minute.
#[track_caller]
fn wait_for(file: &AtomicMappedFile, count: u64) {
    let begun = Instant::now();
    while file.stats().snapshots < count {
        assert!(begun.elapsed() < Duration::from_secs(60), "{} snapshots", file.stats().snapshots);
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_file_takes_snapshots_by_writes_and_by_bytes_and_by_time() {
    let limits = [
        AutoSnapshots::new().writes(10),
        AutoSnapshots::new().bytes(640),
        AutoSnapshots::new().interval(Duration::from_millis(1)),
    ];
    for (ground, limit) in media().iter().flat_map(|ground| limits.map(|limit| (ground, limit))) {
        let scratch = ground.scratch();
        let file = open(ground, &scratch.file("x"), limit.keep(Retention::new().number(2)));
        for round in 1..=4 {
            // The number of the last round is in each snapshot.
            (0..10).for_each(|n| file.write_at(&[round; 64], n * 4096).expect("write"));
            wait_for(&file, round.into());
        }
        let live = file.snapshots();
        assert!(live.iter().all(|info| info.is_automatic && info.name.starts_with("auto-")));
        let newest = live.last().expect("a snapshot");
        let mut first = [0; 1];
        file.open_snapshot(&newest.name).expect("open").read_at(&mut first, 0).expect("read");
        assert!(first[0] >= 3, "the newest snapshot is of round {}", first[0]);
        // The worker drops the older ones after the seal.
        let begun = Instant::now();
        while file.snapshots().len() > 2 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", file.snapshots());
            sleep(Duration::from_millis(1));
        }
        file.close(CloseMode::Fast).expect("close");
    }
}

#[test]
fn a_file_that_does_not_change_takes_no_snapshot() {
    let ground = ram();
    let scratch = ground.scratch();
    let auto = AutoSnapshots::new().interval(Duration::ZERO);
    let file = open(&ground, &scratch.file("x"), auto);
    file.write_at(&[1], 0).expect("write");
    wait_for(&file, 1);
    sleep(Duration::from_millis(50));
    assert_eq!(file.stats().snapshots, 1);
}

/// Automatic snapshots saw writes alone. A file that was shortened, or went back, had none for
/// ever.
#[test]
fn each_kind_of_change_is_followed_by_a_snapshot() {
    let ground = ram();
    let scratch = ground.scratch();
    let sender = ground.options().create(true).len(8192).open(scratch.file("s")).expect("open");
    sender.snapshot("sent").expect("seal");
    let mut stream = Vec::new();
    sender.export(None, "sent", &mut stream).expect("export");
    let changes: [&dyn Fn(&AtomicMappedFile); 5] = [
        &|file| file.set_len(2 * LEN).expect("longer"),
        &|file| file.set_len(4096).expect("shorter"),
        &|file| file.roll_back("mine", None).expect("back"),
        &|file| drop(file.import_over(&stream[..]).expect("import")),
        &|file| file.transact(|tx| tx.set_len(100)).expect("set the length"),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let auto = AutoSnapshots::new().writes(1);
        let file = open(&ground, &scratch.file(&format!("x{n}")), auto);
        file.snapshot("mine").expect("seal");
        file.write_at(&[1], 0).expect("write");
        wait_for(&file, 2);
        change(&file);
        let is_automatic = |info: &&SnapshotInfo| info.is_automatic;
        common::wait_until("a snapshot after the change", || {
            file.snapshots().iter().filter(is_automatic).count() == 2
        });
    }
}

/// Limits once applied with the next snapshot only. If they failed, the snapshot counted as failed,
/// and was sealed again five milliseconds later. The newest snapshot stays, however old it is.
#[test]
fn a_snapshot_grows_too_old_without_a_write() {
    let ground = ram();
    let scratch = ground.scratch();
    let keep = Retention::new().age(Duration::from_millis(20));
    let file = open(&ground, &scratch.file("x"), AutoSnapshots::new().writes(1).keep(keep));
    file.write_at(&[1], 0).expect("write");
    wait_for(&file, 1);
    file.snapshot("mine").expect("seal");
    let begun = Instant::now();
    while file.snapshots().len() > 1 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", file.snapshots());
        sleep(Duration::from_millis(1));
    }
    assert_eq!(file.snapshots()[0].name, "mine");
}

#[test]
fn a_name_that_the_program_has_given_is_left_alone() {
    let ground = ram();
    let scratch = ground.scratch();
    let file = open(&ground, &scratch.file("x"), AutoSnapshots::new().writes(1));
    file.snapshot("auto-2").expect("seal");
    file.write_at(&[1], 0).expect("write");
    wait_for(&file, 2);
    let names: Vec<String> = file.snapshots().into_iter().map(|info| info.name).collect();
    assert_eq!(names, ["auto-2", "auto-2+"]);
}

/// Whole segments counted, and each thread that writes has one of its own.
#[test]
fn a_limit_of_bytes_does_not_depend_on_the_number_of_threads() {
    for threads in [1, 4, 16] {
        let ground = ram();
        let scratch = ground.scratch();
        let file = ground.options().create(true).len(LEN).open(scratch.file("x")).expect("open");
        for n in 0..5_u8 {
            file.snapshot(&n.to_string()).expect("seal");
            let together = Barrier::new(threads);
            thread::scope(|scope| {
                for first in 0..threads {
                    let (file, together) = (&file, &together);
                    scope.spawn(move || {
                        // So each of them has a lane of its own.
                        together.wait();
                        for slice in (first..16).step_by(threads) {
                            file.write_at(&[n + 1; 64], slice as u64 * 4096).expect("write");
                        }
                        together.wait();
                    });
                }
            });
        }
        let retain = |bytes| file.retain_snapshots(Retention::new().bytes(bytes)).expect("retain");
        // 16 slices of each of five snapshots, each in a record of 128 bytes.
        assert_eq!(retain(5 * 16 * 128), 0, "{threads} threads");
        assert_eq!(retain(5 * 16 * 128 - 1), 1, "{threads} threads");
        assert_eq!(retain(2 * 16 * 128), 2, "{threads} threads");
    }
}

#[test]
fn limits_drop_the_oldest_and_keep_what_is_read() {
    let ground = ram();
    let scratch = ground.scratch();
    let file = ground.options().create(true).len(LEN).open(scratch.file("x")).expect("open");
    let names = || file.snapshots().into_iter().map(|info| info.name).collect::<Vec<_>>();
    for name in ["a", "b", "c", "d"] {
        file.snapshot(name).expect("seal");
        file.write_at(&[7; 3 * 4096], 0).expect("write");
    }
    let held: Vec<u64> = file.snapshots().iter().map(|info| info.held).collect();
    assert_eq!(held, [3 * 4096; 4]);
    assert_eq!(file.retain_snapshots(Retention::new()).expect("retain"), 0);
    let reader = file.open_snapshot("a").expect("open");
    assert_eq!(file.retain_snapshots(Retention::new().number(2)).expect("retain"), 2);
    assert_eq!(names(), ["a", "d"]);
    drop(reader);
    // The newest one stays whatever it takes.
    file.retain_snapshots(Retention::new().bytes(0)).expect("retain");
    assert_eq!(names(), ["d"]);
    sleep(Duration::from_millis(2));
    file.retain_snapshots(Retention::new().age(Duration::from_secs(1000))).expect("retain");
    assert_eq!(names(), ["d"]);
    // Nor is it ever too old.
    file.retain_snapshots(Retention::new().age(Duration::ZERO)).expect("retain");
    assert_eq!(names(), ["d"]);
    assert_eq!(file.retain_snapshots(Retention::new().number(0)).expect("retain"), 1);
    assert!(names().is_empty());
}
