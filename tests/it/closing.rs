//! Tests that a close needs nothing new, and that it says what it could not do.

use crate::common::{self, Ground, assert_same, media, page_cache, read_all, role, run_child};
use atomic_mmap::testing::call;
use atomic_mmap::testing::recorder::Recorder;
use atomic_mmap::{Allocation, AtomicMappedFile, CloseMode, Closed, Durability, Error, Roots};
use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const LEN: u64 = 100_000;
const CHILD: &str = concat!(module_path!(), "::plays_the_child_if_it_is_one");

#[test]
fn plays_the_child_if_it_is_one() {
    let Some((role, path)) = role() else { return };
    let file =
        common::options(role.split(' ').next().expect("a medium").parse().expect("a medium"))
            .create(true)
            .len(LEN)
            .open(&path)
            .expect("open");
    file.write_at(&[7; 9000], 50).expect("write");
    file.sync().expect("sync");
    let mut taken = Vec::new();
    match role.split(' ').next_back() {
        Some("chroot") => {
            let empty = path.with_extension("empty");
            fs::create_dir(&empty).expect("a folder");
            let empty = CString::new(empty.as_os_str().as_bytes()).expect("no zero byte");
            // SAFETY: the name is a C string.
            let done = unsafe { libc::chroot(empty.as_ptr()) };
            assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
            std::env::set_current_dir("/").expect("the new root");
        }
        _ => {
            let few = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
            // SAFETY: the limit is read from a live structure.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) }, 0);
            while let Ok(one) = File::open("/dev/null") {
                taken.push(one);
            }
        }
    }
    file.write_at(&[8; 100], 20_000).expect("write");
    assert!(matches!(file.close(CloseMode::Spatial).expect("close"), Closed::Last));
}

/// After `chroot`, and without a free descriptor, a close failed, and the handle was gone.
#[test]
fn a_close_opens_nothing_and_looks_nothing_up_by_a_path() {
    for ground in media() {
        // SAFETY: no precondition.
        let is_root = unsafe { libc::geteuid() } == 0;
        for how in ["descriptors", "chroot"].into_iter().take(1 + usize::from(is_root)) {
            let scratch = ground.scratch();
            let path = scratch.file("state.dat");
            run_child(CHILD, &format!("{} {how}", ground.medium), &path);
            let bytes = fs::read(&path).expect("read");
            let mut expected = vec![0; LEN as usize];
            expected[50..9050].fill(7);
            expected[20_000..20_100].fill(8);
            assert_same(&bytes, &expected, how);
            let names = fs::read_dir(scratch.path()).expect("list").count();
            assert_eq!(names, 1 + usize::from(how == "chroot"), "{how}: companions");
        }
    }
}

/// Opens a file and lets its close fail with EACCES, as after `setuid` or under landlock.
fn refused(ground: &Ground, path: &Path, call: &'static str, nth: usize) {
    let recorder = Recorder::new();
    let options = ground.options().create(true).len(LEN);
    let file = options.open_recorded(&recorder, path).expect("open");
    file.write_at(&[7; 9000], 50).expect("write");
    recorder.fail_from(call, nth, libc::EACCES);
    let closed = file.close(CloseMode::Spatial).expect("close");
    assert!(matches!(closed, Closed::WithCompanions(Error::Io { .. })), "{call}: {closed:?}");
    assert!(!recorder.heal(), "{call} has failed");
}

/// A close that may not remove a companion left the files as a crash does. The next opening took
/// back what another program had written since.
#[test]
fn a_close_that_may_remove_nothing_leaves_a_plain_file() {
    for ground in media() {
        let is_durable = ground.medium == atomic_mmap::Medium::PageCache;
        let mut calls = vec![(call::REMOVE, 1), (call::SET_XATTR, 1)];
        // The journal goes first.
        calls.extend(is_durable.then_some((call::REMOVE, 2)));
        for (call, nth) in calls {
            let scratch = ground.scratch();
            let path = scratch.file("state.dat");
            refused(&ground, &path, call, nth);
            let mut bytes = fs::read(&path).expect("read");
            assert_eq!((bytes.len() as u64, &bytes[50..9050]), (LEN, &[7; 9000][..]), "{call}");
            bytes[..100].fill(9);
            fs::write(&path, &bytes).expect("another program");
            let file = ground.options().open(&path).expect("the companions hold nothing");
            assert_same(&read_all(&file), &bytes, call);
            assert!(matches!(file.close(CloseMode::Spatial).expect("close"), Closed::Last));
            assert_eq!(fs::read_dir(scratch.path()).expect("list").count(), 1, "{call}");
        }
    }
}

/// A `close` with another handle alive returned `Ok` and closed nothing.
#[test]
fn a_close_counts_the_handles_that_are_open() {
    let scratch = common::ram().scratch();
    let path = scratch.file("state.dat");
    let file = AtomicMappedFile::create(&path, 1 << 20).expect("create");
    let roots = Roots::open(file.try_clone().expect("clone")).expect("roots");
    let log = roots.log("events").expect("a log");
    let count =
        |file: &AtomicMappedFile| match file.try_clone().expect("clone").close(CloseMode::Fast) {
            Err(Error::StillOpen { handles, path: of }) if of == path => handles,
            other => panic!("{other:?}"),
        };
    let of_all = count(&file);
    drop(log);
    assert!(count(&file) < of_all, "a log owns a handle");
    drop(roots);
    assert_eq!(count(&file), 1);
    let slot = file.slot::<u64>(800_000).expect("slot").into_owned().expect("owned");
    assert_eq!(count(&file), 2);
    drop(slot);
    assert!(matches!(file.close(CloseMode::Spatial).expect("close"), Closed::Last));
    assert_eq!(fs::read_dir(scratch.path()).expect("list").count(), 1);
}

/// A drop swallowed its error.
#[test]
fn the_error_of_a_drop_is_told_once_by_the_next_handle() {
    let Some(ground) = page_cache() else { return };
    for durability in [Durability::OnSync, Durability::EveryWrite] {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let recorder = Recorder::new();
        let options = ground.options().create(true).len(LEN).durability(durability);
        let file = options.open_recorded(&recorder, &path).expect("open");
        file.write_at(&[7; 9000], 50).expect("write");
        let model = read_all(&file);
        recorder.fail_from(call::SYNC_ALL, 1, libc::EIO);
        drop(file);
        assert!(!recorder.heal(), "it has failed");
        let file = ground.options().open(&path).expect("open");
        let error = file.health().expect_err("the drop failed");
        assert!(matches!(&error, Error::NotClosed { .. }), "{error:?}");
        assert!(error.to_string().contains("Input/output error"), "{error}");
        file.health().expect("told once");
        assert_same(&read_all(&file), &model, "recovered");
        file.close(CloseMode::Spatial).expect("close");
        ground.options().open(&path).expect("open").health().expect("closed since");
    }
}

/// The disk that a drop found full is full for the next opening as well. An opening that failed at
/// its end took the message with it.
#[test]
fn the_error_of_a_drop_outlives_openings_that_fail() {
    let Some(ground) = page_cache() else { return };
    let (scratch, recorder) = (ground.scratch(), Recorder::new());
    let path = scratch.file("state.dat");
    let options = ground.options().create(true).len(LEN).allocation(Allocation::Full);
    let open = || options.clone().open_recorded(&recorder, &path);
    let drop_in_vain = |file: AtomicMappedFile| {
        file.write_at(&[7; 9000], 50).expect("write");
        recorder.fail_from(call::SYNC_ALL, 1, libc::EIO);
        drop(file);
        assert!(!recorder.heal(), "it has failed");
    };
    let assert_told = |file: &AtomicMappedFile| {
        let error = file.health().expect_err("the drop failed");
        assert!(matches!(&error, Error::NotClosed { .. }), "{error:?}");
    };
    drop_in_vain(open().expect("open"));
    let opened = (1..).find_map(|nth| {
        recorder.fail_from(call::ALLOCATE, nth, libc::ENOSPC);
        let opened = open();
        assert_eq!(opened.is_err(), !recorder.heal(), "attempt {nth}: {opened:?}");
        opened.ok()
    });
    let file = opened.expect("an opening with enough space");
    assert_told(&file);
    drop_in_vain(file);
    let error = AtomicMappedFile::create(&path, u64::MAX).expect_err("too long");
    assert!(matches!(error, Error::TooLong { .. }), "{error:?}");
    assert_told(&open().expect("open"));
}

/// On tmpfs a store to a mapping moves no time, and elsewhere only the first one of a page. So a
/// close left a time at which a backup had already copied the file.
#[test]
fn a_close_moves_the_time_of_a_file_that_has_changed() {
    for ground in media() {
        for (size, mode) in
            [(8, CloseMode::Spatial), (4096, CloseMode::Fast), (0, CloseMode::Spatial)]
        {
            let scratch = ground.scratch();
            let path = scratch.file("state.dat");
            fs::write(&path, vec![1; LEN as usize]).expect("write");
            let file = ground.options().open(&path).expect("open");
            if size > 0 {
                file.write_at(&vec![7; size], 12_345).expect("write");
            }
            let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1 << 30);
            let home = File::options().write(true).open(&path).expect("open");
            home.set_modified(old).expect("a backup has seen this time");
            // Nothing is deployed in the session, but by the close of the next one.
            file.close(mode).expect("close");
            let time = || fs::metadata(&path).expect("stat").modified().expect("a time");
            assert_eq!(time() != old, size > 0, "{size} bytes, {mode:?} on {}", ground.medium);
            if mode == CloseMode::Fast {
                let file = ground.options().open(&path).expect("the close has noted the time");
                home.set_modified(old).expect("set");
                file.close(CloseMode::Spatial).expect("close");
                assert_ne!(time(), old, "deployed by the close");
            }
        }
    }
}
