//! Tests that a limited, filtered or hidden system causes a clear error, or none.
//!
//! A child process sets a limit (`setrlimit`), a filter (seccomp), another user or no `/proc`, and
//! then uses a file. A test that needs root is skipped without it, with a message. Each refusal
//! leaves the folder unchanged.

use crate::common::{
    self, Ground, Snapshot, child_with_mounts, media, ram, read_all, role, run, run_child, run_test,
};
use atomic_mmap::testing::{call, recorder::Recorder};
use atomic_mmap::{
    Array, AtomicMappedFile, CloseMode, Error, IoError, Medium, Slot, Survives, Transaction, View,
};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::path::Path;

const CHILD: &str = concat!(module_path!(), "::plays_the_child_if_it_is_one");
const GIB: u64 = 1 << 30;
const NOBODY: u32 = 65_534;

#[test]
fn plays_the_child_if_it_is_one() {
    let Some((role, path)) = role() else { return };
    match role.split(' ').collect::<Vec<_>>()[..] {
        ["many"] => open_many(&path),
        ["addresses"] => open_with_few_addresses(&path),
        ["memory"] => write_with_little_memory(&path),
        ["descriptors"] => open_with_few_descriptors(&path),
        ["locked"] => open_with_little_locked_memory(&path),
        ["locked-as-root"] => use_with_all_memory_locked(&path),
        ["folder"] => open_in_a_folder_that_takes_no_file(&path),
        ["no-proc"] => use_without_proc(&path),
        ["read-only"] => open_on_a_read_only_file_system(&path),
        ["filter", medium, errno, when] => {
            let medium = medium.parse().expect("a medium");
            use_with_a_filter(&path, medium, errno.parse().expect("a number"), when);
        }
        _ => panic!("no role {role}"),
    }
}

fn is_root() -> bool {
    // SAFETY: no precondition.
    unsafe { libc::geteuid() == 0 }
}

fn limit(what: libc::__rlimit_resource_t, soft: u64) {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the calls read and write one live limit of this process.
    let done = unsafe {
        libc::getrlimit(what, &raw mut now) == 0 && {
            now.rlim_cur = soft.min(now.rlim_max);
            libc::setrlimit(what, &raw const now) == 0
        }
    };
    assert!(done, "{}", io::Error::last_os_error());
}

/// Becomes another user, without the rights of root.
fn become_unprivileged() {
    if is_root() {
        // SAFETY: the arguments are plain numbers.
        let done = unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
    }
}

/// Hands a folder to the user that the child becomes.
fn for_the_unprivileged(folder: &Path) {
    if is_root() {
        chown(folder, Some(NOBODY), None).expect("chown");
    }
}

#[track_caller]
fn assert_says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
}

/// Writes in several ways from two threads, and reads all bytes back.
fn use_it(file: &AtomicMappedFile) {
    for (offset, len) in [(0, 4096), (4090, 100), (100_000, 70_000), (262_000, 5000)] {
        file.write_at(&vec![7; len], offset).expect("write");
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            file.write_at(&[8; 10_000], 200_000).expect("write of another thread");
            file.sync().expect("sync of another thread");
        });
    });
    file.sync().expect("sync");
    let view = file.view(4090..4190).expect("view");
    assert_eq!(view.to_vec().expect("read"), [7; 100]);
    drop(view);
    file.set_len(1 << 20).expect("grow");
    file.write_at(&[9; 5000], (1 << 20) - 5000).expect("write");
    file.set_len(300_000).expect("shrink");
    file.deploy(0..300_000).expect("deploy");
    file.transact(|tx| tx.write_at(&[6; 3], 10)).expect("transact");
}

fn expected_after_use() -> Vec<u8> {
    let mut bytes = vec![0; 300_000];
    for (offset, len) in [(0, 4096), (4090, 100), (100_000, 70_000), (262_000, 5000)] {
        bytes[offset..offset + len].fill(7);
    }
    bytes[200_000..210_000].fill(8);
    bytes[10..13].fill(6);
    bytes
}

// ---- limits -------------------------------------------------------------------------------------

/// Each file reserved twice 64 GiB of the 128 TiB address space of a process. At most 1,018 files
/// could be open.
#[test]
fn more_than_a_thousand_files_are_open_in_one_process() {
    let scratch = ram().scratch();
    run_child(CHILD, "many", scratch.path());
}

fn open_many(folder: &Path) {
    const FILES: usize = 1_100;
    limit(libc::RLIMIT_NOFILE, u64::MAX);
    let mut files = Vec::new();
    for n in 0..FILES {
        let folder = folder.join((n / 50).to_string());
        fs::create_dir_all(&folder).expect("a folder");
        let options = ram().options().create(true).len(4096);
        match options.open(folder.join(n.to_string())) {
            Ok(file) => files.push(file),
            // With the usual hard limit of descriptors this test cannot open enough files.
            Err(Error::Io { source, .. }) if source.raw_os_error() == Some(libc::EMFILE) => {
                eprintln!("only {n} files' descriptors: skipped");
                return;
            }
            Err(e) => panic!("file {n}: {e}"),
        }
    }
    for (n, file) in files.iter().enumerate() {
        file.write_at(&n.to_le_bytes(), 8).expect("write");
        assert!(file.max_len() >= GIB, "file {n} may grow to {}", file.max_len());
    }
    assert_eq!(files[0].max_len(), 64 * GIB);
}

/// Opening reserved 128 GiB even under a smaller limit of `ulimit -v`.
#[test]
fn a_limit_of_address_space_makes_the_default_smaller_and_is_named_where_it_is_met() {
    let scratch = ram().scratch();
    run_child(CHILD, "addresses", scratch.path());
}

fn address_space_in_use() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").expect("statm");
    pages.split(' ').next().and_then(|n| n.parse::<u64>().ok()).expect("a number") * 4096
}

fn open_with_few_addresses(folder: &Path) {
    limit(libc::RLIMIT_AS, address_space_in_use() + 2 * GIB);
    let file = ram().options().create(true).len(4096).open(folder.join("small")).expect("open");
    let most = file.max_len();
    assert!((16 << 20..GIB).contains(&most), "{most}");
    file.write_at(b"there", 4000).expect("write");
    file.set_len(most).expect("grow");
    let error = file.set_len(most + 1).expect_err("beyond the reservation");
    assert!(matches!(error, Error::TooLong { .. }), "{error:?}");
    assert_says(&error, &["Options::max_len", &most.to_string()]);
    drop(file);

    let before = Snapshot::of(folder);
    let options = || ram().options().create(true).len(4096);
    let error = options().max_len(64 * GIB).open(folder.join("large")).expect_err("no addresses");
    let Error::NoAddressSpace { max_len, bytes, .. } = &error else { panic!("{error:?}") };
    assert!(*max_len == 64 * GIB && bytes >= max_len, "{error:?}");
    assert_says(&error, &["Options::max_len", "ulimit -v", &(64 * GIB).to_string()]);
    before.assert_unchanged(folder, "no addresses");
    let file = options().max_len(1 << 20).open(folder.join("large")).expect("as it advises");
    drop(file);

    // Not even the log area of a reflection file fits.
    limit(libc::RLIMIT_AS, address_space_in_use() + (100 << 20));
    let before = Snapshot::of(folder);
    let error = options().open(folder.join("none")).expect_err("no addresses");
    assert!(matches!(error, Error::NoAddressSpace { .. }), "{error:?}");
    before.assert_unchanged(folder, "no addresses at all");
}

/// The state of a region once came from the heap, which ends the process where it has no memory.
#[test]
fn an_operation_without_memory_for_its_state_fails_and_changes_nothing() {
    let scratch = ram().scratch();
    run_child(CHILD, "memory", scratch.path());
}

fn write_with_little_memory(folder: &Path) {
    let path = folder.join("file");
    let file = ram().options().create(true).len(4 * GIB).open(&path).expect("open");
    file.write_at(b"one", 0).expect("write");
    let status = fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find(|line| line.starts_with("VmData:")).expect("VmData");
    let in_use: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("kB");
    limit(libc::RLIMIT_DATA, (in_use + 1024) << 10);
    let refused = file.write_many(&[(0, b"two"), (2 * GIB, b"two")]);
    limit(libc::RLIMIT_DATA, u64::MAX);
    let error = refused.expect_err("no memory for the state of a second GiB");
    assert_says(&error, &["memory", &path.display().to_string(), &(2 * GIB).to_string()]);
    let mut bytes = [0; 3];
    file.read_at(&mut bytes, 0).expect("read");
    assert_eq!(&bytes, b"one", "both or none");
    file.write_many(&[(0, b"two"), (2 * GIB, b"two")]).expect("with memory");
    file.read_at(&mut bytes, 2 * GIB).expect("read");
    assert_eq!(&bytes, b"two");
}

#[test]
fn a_limit_of_descriptors_is_named() {
    let scratch = ram().scratch();
    run_child(CHILD, "descriptors", scratch.path());
}

fn open_with_few_descriptors(folder: &Path) {
    let in_use = fs::read_dir("/proc/self/fd").expect("list").count() as u64;
    limit(libc::RLIMIT_NOFILE, in_use + 4);
    let mut files = Vec::new();
    let error = loop {
        let path = folder.join(files.len().to_string());
        match ram().options().create(true).len(4096).open(path) {
            Ok(file) => files.push(file),
            Err(error) => break error,
        }
        assert!(files.len() < 10, "a limit that is none");
    };
    assert_says(&error, &["ulimit -n"]);
    for file in files {
        file.write_at(b"goes on", 0).expect("write");
    }
}

/// With this flag the kernel counts every mapping as locked memory, and returns EAGAIN.
#[test]
fn mlockall_is_named_where_it_leaves_no_room_for_a_mapping() {
    let scratch = ram().scratch();
    for_the_unprivileged(scratch.path());
    run_child(CHILD, "locked", scratch.path());
}

fn lock_all(flags: libc::c_int) {
    // SAFETY: the arguments are plain numbers.
    let done = unsafe { libc::mlockall(flags) };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}

fn open_with_little_locked_memory(folder: &Path) {
    limit(libc::RLIMIT_MEMLOCK, 64 << 20);
    become_unprivileged();
    lock_all(libc::MCL_FUTURE);
    let before = Snapshot::of(folder);
    let error = ram().options().create(true).len(4096).open(folder.join("x")).expect_err("locked");
    assert!(matches!(error, Error::NoAddressSpace { .. }), "{error:?}");
    assert_says(&error, &["mlockall", "ulimit -l", "Options::max_len"]);
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::OutOfMemory);
    before.assert_unchanged(folder, "locked");
}

#[test]
fn a_process_that_locks_all_its_memory_may_use_files() {
    if !is_root() {
        eprintln!("only root may lock as much: skipped");
        return;
    }
    for ground in media() {
        let scratch = ground.scratch();
        run_child(CHILD, "locked-as-root", scratch.path());
    }
}

fn use_with_all_memory_locked(folder: &Path) {
    lock_all(libc::MCL_CURRENT | libc::MCL_FUTURE);
    let path = folder.join("state.dat");
    let file = AtomicMappedFile::create(&path, 300_000).expect("open");
    use_it(&file);
    lock_all(libc::MCL_CURRENT | libc::MCL_FUTURE);
    assert_eq!(read_all(&file), expected_after_use());
    file.close(CloseMode::Spatial).expect("close");
    assert_eq!(fs::read(&path).expect("read"), expected_after_use());
}

// ---- what may not be written to -----------------------------------------------------------------

#[test]
fn a_folder_that_takes_no_file_is_named_with_the_way_out() {
    let scratch = ram().scratch();
    for_the_unprivileged(scratch.path());
    run_child(CHILD, "folder", scratch.path());
}

fn open_in_a_folder_that_takes_no_file(folder: &Path) {
    become_unprivileged();
    let (closed, other) = (folder.join("closed"), folder.join("other"));
    fs::create_dir(&closed).expect("a folder");
    fs::create_dir(&other).expect("a folder");
    fs::write(closed.join("state.dat"), [5; 5000]).expect("write");
    fs::write(closed.join("read-only.dat"), [5; 5000]).expect("write");
    let may = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
    };
    may(&closed.join("read-only.dat"), 0o444);
    may(&closed, 0o555);
    let before = Snapshot::of(&closed);
    let name = closed.display().to_string();

    let error = ram().options().open(closed.join("state.dat")).expect_err("no reflection file");
    let Error::FolderNotWritable { folder, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*folder, closed);
    assert_says(&error, &["Options::reflection_dir", &name]);
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::PermissionDenied);

    let error = ram().options().create(true).open(closed.join("new")).expect_err("no new file");
    assert!(matches!(error, Error::NotWritable { .. }), "{error:?}");
    assert_says(&error, &[&name, "folder"]);

    let error = ram().options().open(closed.join("read-only.dat")).expect_err("read-only");
    assert!(matches!(error, Error::NotWritable { .. }), "{error:?}");
    assert_says(&error, &["read-only.dat", "reading and writing"]);
    before.assert_unchanged(&closed, "refused");

    let elsewhere = ram().options().reflection_dir(&other);
    let file = elsewhere.open(closed.join("state.dat")).expect("as it advises");
    file.write_at(b"there", 0).expect("write");
    file.close(CloseMode::Spatial).expect("close");
    assert_eq!(&fs::read(closed.join("state.dat")).expect("read")[..5], b"there");
    may(&closed, 0o755);
}

#[test]
fn a_read_only_file_system_is_said_to_be_one() {
    let scratch = ram().scratch();
    if let Some(mut child) = child_with_mounts(CHILD, "read-only", scratch.path()) {
        run_test(&mut child);
    }
}

fn open_on_a_read_only_file_system(folder: &Path) {
    let mount = |options: &str| {
        run(std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(folder));
    };
    mount("size=1m");
    fs::write(folder.join("state.dat"), [5; 5000]).expect("write");
    mount("remount,ro");
    let error = ram().options().open(folder.join("state.dat")).expect_err("read-only");
    assert!(matches!(error, Error::NotWritable { .. }), "{error:?}");
    assert_says(&error, &["state.dat", "read-only"]);
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn a_link_to_nothing_is_said_to_be_one() {
    let scratch = ram().scratch();
    let link = scratch.file("link");
    symlink("no-folder/nothing-here", &link).expect("a link");
    let before = Snapshot::of(scratch.path());
    // If the folder exists, creating makes the target of the link.
    for create in [false, true] {
        let options = ram().options().create(create).len(4096);
        let error = options.open(&link).expect_err("a link to nothing");
        assert_says(&error, &["link", "nothing-here", "does not exist"]);
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::NotFound);
        before.assert_unchanged(scratch.path(), "a link to nothing");
    }
}

// ---- filters and hidden things ------------------------------------------------------------------

/// A container may hide `/proc`. The crate then cannot tell the boots of the system apart.
#[test]
fn files_open_where_proc_is_hidden() {
    for ground in [Some(ram()), common::page_cache()].into_iter().flatten() {
        let scratch = ground.scratch();
        if let Some(mut child) = child_with_mounts(CHILD, "no-proc", scratch.path()) {
            run_test(&mut child);
        }
    }
}

fn use_without_proc(folder: &Path) {
    run(std::process::Command::new("mount").args(["-t", "tmpfs", "none", "/proc"]));
    assert!(!Path::new("/proc/self").exists());
    let path = folder.join("state.dat");
    let file = AtomicMappedFile::create(&path, 300_000).expect("open");
    use_it(&file);
    if file.medium() == Medium::PageCache {
        assert_eq!(file.survives(), Survives::Nothing, "no boot is known");
    }
    file.close(CloseMode::Fast).expect("close");
    let file = AtomicMappedFile::open(&path).expect("open again");
    assert_eq!(read_all(&file), expected_after_use());
}

/// Docker's filter returned EPERM for unknown calls, and other filters return ENOSYS. A container
/// starts with its filter. A process may set one before it opens a file, or later.
#[test]
fn calls_that_a_filter_refuses_have_another_way() {
    for ground in media() {
        for errno in [libc::EPERM, libc::ENOSYS] {
            for when in ["container", "early", "late"] {
                let scratch = ground.scratch();
                let role = format!("filter {} {errno} {when}", ground.medium);
                run_child(CHILD, &role, scratch.path());
            }
        }
    }
}

/// Refuses the calls of this thread, and of the threads that it starts, from now on.
fn refuse(calls: &[libc::c_long], errno: libc::c_int) {
    let answers: Vec<_> = calls.iter().map(|call| (*call, errno)).collect();
    crate::common::filter::answer(&answers).expect("a filter of calls");
}

fn use_with_a_filter(folder: &Path, medium: Medium, errno: libc::c_int, when: &str) {
    let refused = [
        libc::SYS_membarrier,
        libc::SYS_pwritev2,
        libc::SYS_fallocate,
        libc::SYS_fadvise64,
        libc::SYS_madvise,
        libc::SYS_mincore,
    ];
    if when == "container" {
        // The standard library probes for `statx` once in a process.
        refuse(&[&refused[..], &[libc::SYS_statx]].concat(), errno);
        run_child(CHILD, &format!("filter {medium} {errno} inside"), folder);
        return;
    }
    let ground = Ground { base: folder.to_owned(), medium };
    let path = folder.join("state.dat");
    if when == "early" {
        refuse(&refused, errno);
    }
    let file = ground.options().create(true).len(300_000).open(&path).expect("open");
    if when == "late" {
        refuse(&refused, errno);
    }
    // SAFETY: the arguments are plain numbers.
    let fenced = unsafe { libc::syscall(libc::SYS_membarrier, 0, 0, 0) };
    assert_eq!(fenced, -1, "a filter that filters");
    use_it(&file);
    file.close(CloseMode::Fast).expect("close");
    let file = ground.options().open(&path).expect("open again");
    assert_eq!(read_all(&file), expected_after_use());
    file.close(CloseMode::Spatial).expect("close");
}

/// Tests that correctness never depends on `madvise`.
#[test]
fn advice_that_the_system_refuses_is_no_error() {
    for ground in media() {
        for errno in [libc::EINVAL, libc::EPERM, libc::ENOSYS, libc::EBADF] {
            let scratch = ground.scratch();
            let recorder = Recorder::new();
            recorder.fail_from(call::ADVISE, 1, errno);
            let options = ground.options().create(true).len(300_000);
            let file = options.open_recorded(&recorder, scratch.file("state.dat")).expect("open");
            use_it(&file);
            assert_eq!(read_all(&file), expected_after_use());
        }
    }
}

// ---- words --------------------------------------------------------------------------------------

/// A range that ended before its start was reported with a length of 18446744073709551615 bytes.
#[test]
#[allow(clippy::reversed_empty_ranges, reason = "that is what is tested")]
fn a_reversed_range_is_said_to_be_one() {
    for ground in media() {
        let scratch = ground.scratch();
        let options = ground.options().create(true).len(8192);
        let file = options.open(scratch.file("state.dat")).expect("open");
        let view = |range| file.view(range).map(drop).expect_err("reversed");
        let deploy = |range| file.deploy(range).map(drop).expect_err("reversed");
        let errors =
            [view(10..5), view(8192..0), view(u64::MAX..0), deploy(10..5), deploy(u64::MAX..7)];
        for error in errors {
            assert!(matches!(error, Error::Reversed { .. }), "{error:?}");
            assert_says(&error, &["ends before it begins", "state.dat"]);
            assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidInput);
        }
        assert!(file.view(5..5).expect("an empty range").is_empty());
        let error = file.view(5..9000).map(drop).expect_err("past the end");
        assert!(matches!(error, Error::PastEnd { .. }), "{error:?}");
    }
}

/// A process cannot clone the handle of another process.
#[test]
fn advice_on_a_file_in_use_is_for_the_process_that_gets_it() {
    let path = || "state.dat".into();
    let here = Error::Busy { path: path(), in_this_process: true, process: None };
    let elsewhere = Error::Busy { path: path(), in_this_process: false, process: Some(4711) };
    assert_says(&here, &["this process", "try_clone"]);
    assert_says(&elsewhere, &["another process", "close it"]);
    assert!(!elsewhere.to_string().contains("try_clone"), "{elsewhere}");
}

/// After a caught panic the handle still works.
#[test]
fn a_handle_outlives_a_panic_in_a_callers_closure() {
    fn may_be_caught<T: UnwindSafe + RefUnwindSafe>() {}
    may_be_caught::<AtomicMappedFile>();
    may_be_caught::<View<'_>>();
    may_be_caught::<Slot<u64>>();
    may_be_caught::<Slot<u64, &AtomicMappedFile>>();
    may_be_caught::<Array<u64>>();
    may_be_caught::<Array<u64, &AtomicMappedFile>>();
    may_be_caught::<atomic_mmap::Snapshot>();
    may_be_caught::<Array<u64, &atomic_mmap::Snapshot>>();
    may_be_caught::<Transaction<'_>>();
    for ground in media() {
        let scratch = ground.scratch();
        let options = ground.options().create(true).len(8192);
        let file = options.open(scratch.file("state.dat")).expect("open");
        file.store(0, &1u64).expect("store");
        let in_a_transaction = catch_unwind(|| {
            file.transact(|tx| -> Result<(), Error> {
                tx.store(0, &2u64)?;
                tx.store(5000, &2u64)?;
                panic!("as planned")
            })
        });
        assert!(in_a_transaction.is_err());
        let in_an_update = catch_unwind(|| {
            file.update(0, |n: &mut u64| {
                *n = 3;
                panic!("as planned")
            })
        });
        let _: Result<Result<(), Error>, _> = in_an_update.inspect(|_| panic!("no panic"));
        let mut begun = file.begin();
        begun.store(0, &4u64).expect("store");
        let moved = catch_unwind(AssertUnwindSafe(move || {
            let _dropped = begun;
            panic!("as planned")
        }));
        assert!(moved.is_err());
        assert_eq!(file.load::<u64>(0).expect("load"), 1, "rolled back");
        assert_eq!(file.load::<u64>(5000).expect("load"), 0, "rolled back");
        file.store(0, &5u64).expect("the handle is usable");
        std::thread::scope(|scope| {
            scope.spawn(|| file.store(5000, &5u64).expect("by other threads as well"));
        });
        file.close(CloseMode::Spatial).expect("close");
    }
}

/// `source` is the system's error itself, in the error, in a clone and in the error of `io`.
#[test]
fn a_clone_of_an_error_has_its_words_and_its_sources() {
    use std::error::Error as _;
    let system = io::Error::other(AllocationFailed);
    let error = Error::Io { call: "read", path: "x".into(), offset: None, source: system.into() };
    let clone = error.clone();
    assert_eq!(
        (clone.to_string(), format!("{clone:?}")),
        (error.to_string(), format!("{error:?}"))
    );
    for error in [error, clone] {
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        let inner = source.and_then(io::Error::get_ref);
        assert!(inner.is_some_and(|inner| inner.is::<AllocationFailed>()), "{error:?}");
        let error = io::Error::from(error);
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        assert!(matches!(inner, Some(Error::Io { call: "read", .. })), "{error:?}");
    }
    let conflict = Error::Conflict { path: "x".into() };
    assert!(conflict.source().is_none() && conflict.clone().is_conflict());
}

#[derive(Debug)]
struct AllocationFailed;

impl std::fmt::Display for AllocationFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the allocation failed")
    }
}

impl std::error::Error for AllocationFailed {}

#[test]
fn errors_become_io_errors_of_the_right_kind() {
    use io::ErrorKind as Kind;
    let path = || "x".into();
    let source = |kind: Kind| IoError::from(kind);
    let denied = || source(Kind::PermissionDenied);
    let table = [
        (Error::Reversed { path: path(), start: 2, end: 1 }, Kind::InvalidInput),
        (Error::PastEnd { path: path(), offset: 2, len: 1, file_len: 1 }, Kind::InvalidInput),
        (Error::NotRegular { path: path() }, Kind::InvalidInput),
        (Error::InvalidValue { path: path(), offset: 0, type_name: "bool" }, Kind::InvalidData),
        (Error::TooLong { path: path(), len: 2, max_len: 1 }, Kind::FileTooLarge),
        (Error::Busy { path: path(), in_this_process: false, process: None }, Kind::ResourceBusy),
        (Error::NotWritable { path: path(), source: denied() }, Kind::PermissionDenied),
        (
            Error::FolderNotWritable { home: path(), folder: path(), source: denied() },
            Kind::PermissionDenied,
        ),
        (Error::DanglingLink { path: path(), target: path() }, Kind::NotFound),
        (
            Error::NoAddressSpace {
                path: path(),
                bytes: 2,
                max_len: 1,
                source: source(Kind::OutOfMemory),
            },
            Kind::OutOfMemory,
        ),
        (
            Error::NoSpace { path: path(), offset: 0, len: 1, source: source(Kind::StorageFull) },
            Kind::StorageFull,
        ),
        (
            Error::Io { call: "read", path: path(), offset: None, source: source(Kind::TimedOut) },
            Kind::TimedOut,
        ),
        (Error::Conflict { path: path() }, Kind::WouldBlock),
        (Error::Forked { path: path() }, Kind::Other),
    ];
    for (error, kind) in table {
        let text = error.to_string();
        let error = io::Error::from(error);
        assert_eq!(error.kind(), kind, "{text}");
        assert_eq!(error.to_string(), text, "an error keeps its words");
    }
}
