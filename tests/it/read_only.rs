//! Tests of opening for reading alone: it reads what the next opening for writing finds. It changes
//! nothing.

use crate::common::{self, Ground, Rng, Snapshot, assert_same, media, read_all, role};
use crate::durable::restarted;
use atomic_mmap::{
    AtomicMappedFile, CloseMode, DeployPolicy, Durability, Error, Medium, OnMismatch, Options,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const CHILD: &str = concat!(module_path!(), "::plays_the_child_if_it_is_one");
const LEN: u64 = 1_000_000;
const PAGE: u64 = 4096;
const LONG: u64 = 1 << 40;

fn reader() -> Options {
    AtomicMappedFile::options().read_only(true)
}

/// Opens the file for reading alone, and checks that the handle and its drop change nothing in the
/// folder.
#[track_caller]
fn read(path: &Path) -> Vec<u8> {
    let folder = path.parent().expect("a folder");
    let before = Snapshot::of(folder);
    let file = reader().open(path).expect("open for reading");
    let bytes = read_all(&file);
    let mut tx = file.begin();
    let mut again = vec![0; bytes.len()];
    tx.read_at(&mut again, 0).expect("a transaction may read");
    tx.commit().expect("and commit");
    assert!(again == bytes && file.view(0..bytes.len() as u64).expect("a view").to_vec().is_ok());
    before.assert_unchanged(folder, "open for reading");
    file.close(CloseMode::Spatial).expect("closing changes nothing");
    before.assert_unchanged(folder, "closed");
    bytes
}

/// Writes at random, and leaves slices of both files valid.
fn write_at_random(file: &AtomicMappedFile, rng: &mut Rng) {
    for _ in 0..40 {
        let len = [1, 64, 100, PAGE, 3 * PAGE, 70_000][rng.below(6) as usize];
        let offset = rng.below(file.len() - len + 1);
        let offset = if rng.below(2) == 0 { offset / PAGE * PAGE } else { offset };
        match rng.below(8) {
            0 => {
                let mut tx = file.begin();
                tx.write_at(&rng.bytes(len as usize), offset).expect("write");
                tx.write_at(&rng.bytes(9), rng.below(file.len() - 9)).expect("write");
                tx.commit().expect("commit");
            }
            1 => file.set_len(LEN / 2 + rng.below(LEN)).expect("another length"),
            2 => drop(file.sync().expect("sync")),
            _ => file.write_at(&rng.bytes(len as usize), offset).expect("write"),
        }
    }
}

fn options(ground: &Ground) -> Options {
    ground.options().create(true).len(LEN).deploy(DeployPolicy::Manual)
}

/// Makes a pair that was closed fast, with bytes in both files.
fn make_closed_fast(ground: &Ground, path: &Path) {
    let file = options(ground).open(path).expect("open");
    file.write_at(&[3; 100], 5000).expect("write");
    file.close(CloseMode::Fast).expect("close");
}

#[test]
fn a_reader_finds_what_the_next_writer_finds() {
    for ground in media() {
        for (n, end) in
            [CloseMode::Spatial, CloseMode::Fast, CloseMode::Unsynced].into_iter().enumerate()
        {
            for seed in 0..6 {
                let scratch = ground.scratch();
                let path = scratch.file("state.dat");
                let file = options(&ground).open(&path).expect("open");
                write_at_random(&file, &mut Rng(1 + 100 * n as u64 + seed));
                file.close(end).expect("close");
                let found = read(&path);
                let what = format!("{ground:?}, {end:?}, seed {seed}");
                let file = ground.options().open(&path).expect("open for writing");
                assert_same(&found, &read_all(&file), &what);
            }
        }
    }
}

#[test]
fn a_reader_goes_back_to_the_last_durable_point_as_a_writer_does() {
    let Some(ground) = common::page_cache() else { return };
    for seed in 0..4 {
        let scratch = ground.scratch();
        let file = options(&ground).open(scratch.file("state.dat")).expect("open");
        write_at_random(&file, &mut Rng(1 + seed));
        let copy = restarted(&ground, file.path());
        let found = read(copy.path());
        assert_same(&found, &read_all(&copy.open(&ground)), &format!("seed {seed}"));
    }
    // With all or nothing, after any end.
    let scratch = ground.scratch();
    let path = scratch.file("all or nothing");
    let file = options(&ground).durability(Durability::AtomicSync).open(&path).expect("open");
    file.write_at(&[1; 9000], 5).expect("write");
    file.sync().expect("sync");
    let expected = read_all(&file);
    file.write_at(&[2; 9000], 700).expect("write");
    drop(file);
    assert_same(&read(&path), &expected, "the last point");
}

#[test]
fn a_plain_file_is_read_as_it_is() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("plain");
        for bytes in [vec![7; 100_001], Vec::new()] {
            fs::write(&path, &bytes).expect("write");
            assert_same(&read(&path), &bytes, "plain");
        }
        assert!(reader().create(true).open(scratch.file("no such file")).is_err());
        assert!(!scratch.file("no such file").exists(), "a reader makes no file");
    }
}

#[test]
fn a_reader_changes_nothing_whatever_it_calls() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        make_closed_fast(&ground, &path);
        let before = Snapshot::of(scratch.path());
        // These have no effect: a reader has nothing to do.
        let options = reader().len(2 * LEN).durability(Durability::EveryWrite);
        let options = options.deploy(DeployPolicy::Eager).medium(ground.medium);
        let file = options.open(&path).expect("open for reading");
        let refused = |result: Result<(), Error>| {
            let error = result.expect_err("it is a reader");
            assert!(matches!(error, Error::ReadOnly { .. }), "{error:?}");
            assert!(error.to_string().contains("state.dat"), "{error}");
        };
        refused(file.write_at(&[1], 0));
        refused(file.write_at(&[1; 64], 64));
        refused(file.write_at(&vec![1; 70_000], 1));
        refused(file.store(8, &1_u64));
        refused(file.update(8, |n: &mut u64| *n += 1));
        refused(file.write_many(&[(0, b"a"), (9000, b"b")]));
        refused(file.transact(|tx| tx.write_at(&[1], 0)));
        refused(file.set_len(10));
        refused(file.set_len(2 * LEN));
        refused(file.deploy(0..LEN).map(drop));
        file.write_at(&[], 0).expect("nothing is written");
        file.sync().expect("there is nothing to do");
        file.health().expect("reads go on");
        for _ in 0..100 {
            file.read_at(&mut [0; 100], 5000).expect("read");
        }
        let copy = common::ram().scratch();
        file.copy_to(copy.file("copy")).expect("a copy elsewhere");
        assert_same(&fs::read(copy.file("copy")).expect("read"), &read_all(&file), "the copy");
        before.assert_unchanged(scratch.path(), "all calls");
        drop(file);
        before.assert_unchanged(scratch.path(), "dropped");
    }
}

#[test]
fn plays_the_child_if_it_is_one() {
    let Some((role, path)) = role() else { return };
    match &role[..] {
        "reads" => {
            let file = reader().medium(Medium::Ram).open(&path).expect("beside another reader");
            assert_eq!(file.load::<u64>(0).expect("load"), 7);
        }
        "reads without rights" => {
            // SAFETY: the calls take numbers, and change this process alone.
            let left = unsafe { libc::setgid(65_534) == 0 && libc::setuid(65_534) == 0 };
            assert!(left, "another user");
            assert!(AtomicMappedFile::open(&path).is_err(), "no right to write");
            let file = reader().open(&path).expect("the right to read is enough");
            assert_eq!(file.load::<u64>(0).expect("load"), 7);
        }
        "is refused" => {
            for options in [reader(), AtomicMappedFile::options()] {
                let result = options.medium(Medium::Ram).open(&path);
                assert!(matches!(result, Err(Error::Busy { in_this_process: false, .. })));
            }
        }
        "writes" => {
            let result = AtomicMappedFile::options().medium(Medium::Ram).open(&path);
            assert!(matches!(result, Err(Error::Busy { in_this_process: false, .. })));
        }
        role if role.starts_with("leaves a long file on ") => {
            let medium = role.rsplit(' ').next().and_then(|name| name.parse().ok());
            let options = common::options(medium.expect("a medium")).create(true).len(LONG);
            let file = options.durability(Durability::AtomicSync).max_len(LONG).open(&path);
            let file = file.expect("open");
            file.write_at(&[5; 9000], LONG / 2).expect("write");
            file.sync().expect("sync");
            file.write_at(&[6; 9000], LONG / 4).expect("write");
            common::crash();
        }
        other => panic!("{other}"),
    }
}

/// Recovery in private memory counted all of the file as data from then on: a look at a file of
/// some bytes and a TiB of holes took gigabytes and minutes.
#[test]
fn holes_of_a_file_that_a_reader_recovers_stay_holes() {
    for ground in common::media() {
        let scratch = ground.scratch();
        let path = scratch.file("long.dat");
        common::run_child(CHILD, &format!("leaves a long file on {}", ground.medium), &path);
        let file = reader().medium(ground.medium).max_len(LONG).open(&path).expect("open");
        assert_eq!(file.len(), LONG);
        let data = file.data().expect("the parts with bytes");
        let bytes: u64 = data.iter().map(|range| range.end - range.start).sum();
        assert!(bytes < 64 << 20, "{ground:?}: {bytes} bytes of data");
        assert!(data.iter().any(|range| range.contains(&(LONG / 2))), "{ground:?}: {data:?}");
        let mut back = [0; 9000];
        file.read_at(&mut back, LONG / 2).expect("read");
        assert_eq!(back, [5; 9000], "{ground:?}: it was synced");
        file.read_at(&mut back, LONG / 4).expect("read");
        assert_eq!(back, [0; 9000], "{ground:?}: it was taken back");
    }
}

#[test]
fn readers_share_a_file_and_exclude_writers() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let file = options(&ground).open(&path).expect("open");
    file.store(0, &7_u64).expect("store");
    common::run_child(CHILD, "is refused", &path);
    assert!(matches!(reader().open(&path), Err(Error::Busy { in_this_process: true, .. })));
    file.close(CloseMode::Fast).expect("close");
    let file = reader().medium(Medium::Ram).open(&path).expect("open for reading");
    common::run_child(CHILD, "reads", &path);
    common::run_child(CHILD, "writes", &path);
    drop(file);
    let file = ground.options().open(&path).expect("no reader is left");
    file.store(0, &8_u64).expect("store");
}

/// A file in a folder that another user may only read.
#[test]
fn a_reader_needs_no_right_to_write() {
    // SAFETY: the call takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("needs root, to become another user: skipped");
        return;
    }
    let Some(ground) = common::page_cache() else { return };
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let file = options(&ground).open(&path).expect("open");
    file.store(0, &7_u64).expect("store");
    file.close(CloseMode::Unsynced).expect("close");
    for entry in fs::read_dir(scratch.path()).expect("list") {
        let mode = fs::Permissions::from_mode(0o644);
        fs::set_permissions(entry.expect("list").path(), mode).expect("chmod");
    }
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let before = Snapshot::of(scratch.path());
    common::run_child(CHILD, "reads without rights", &path);
    before.assert_unchanged(scratch.path(), "read by another user");
}

/// The files do not match, and the caller wants the home file alone.
#[test]
fn discard_reads_the_home_file_and_removes_nothing() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        make_closed_fast(&ground, &path);
        let mut home = fs::read(&path).expect("read");
        home[100] = 9;
        fs::write(&path, &home).expect("another program");
        assert!(matches!(reader().open(&path), Err(Error::Mismatch { .. })));
        let before = Snapshot::of(scratch.path());
        let file = reader().on_mismatch(OnMismatch::Discard).open(&path).expect("discard");
        assert_same(&read_all(&file), &home, "the home file");
        drop(file);
        before.assert_unchanged(scratch.path(), "discarded by a reader");
    }
}
