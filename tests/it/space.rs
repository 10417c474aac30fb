//! Tests full disks: each call returns a typed error and changes nothing, and no store gets a
//! SIGBUS.
//!
//! A child process mounts a small tmpfs or ext4 image in its own mount namespace, so the mount ends
//! with the child. A SIGBUS ends the child and fails the test. Mounts need root: without it the
//! tests print a message and return.

use crate::common::{
    self, Rng, assert_same, child_with_mounts, reflections_in, role, run, run_test,
};
use atomic_mmap::testing::call;
use atomic_mmap::testing::recorder::Recorder;
use atomic_mmap::{Allocation, AtomicMappedFile, CloseMode, DeployPolicy, Error, Medium, Options};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

const CHILD: &str =
    concat!(module_path!(), "::plays_the_child_on_a_small_file_system_if_it_is_one");
const PAGE: u64 = 4096;
/// Environment variable with a block device of persistent memory, which `lab/dax` has in its guest.
const DEVICE_VARIABLE: &str = "ATOMIC_MMAP_TEST_PMEM";

fn device() -> Option<PathBuf> {
    std::env::var_os(DEVICE_VARIABLE).map(PathBuf::from)
}

/// A file system of a few megabytes.
struct Small {
    folder: PathBuf,
    medium: Medium,
}

impl Small {
    fn tmpfs(folder: &Path, bytes: u64) -> Small {
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(folder));
        Small { folder: folder.to_owned(), medium: Medium::Ram }
    }

    fn ext4(folder: &Path) -> Small {
        let image = folder.with_extension("img");
        File::create(&image).expect("create").set_len(32 << 20).expect("make the image");
        run(Command::new("mkfs.ext4").arg("-q").arg(&image));
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(folder));
        Small { folder: folder.to_owned(), medium: Medium::PageCache }
    }

    /// Makes and mounts a disk of `bytes`, with a command that makes its file system.
    fn disk(folder: &Path, bytes: u64, make: &[&str]) -> Small {
        Small::try_disk(folder, bytes, make).expect("to mount it")
    }

    /// Returns `None` if the kernel does not mount it.
    fn try_disk(folder: &Path, bytes: u64, make: &[&str]) -> Option<Small> {
        let image = folder.with_extension("img");
        File::create(&image).expect("create").set_len(bytes).expect("make the image");
        run(Command::new(make[0]).args(&make[1..]).arg(&image));
        let mut mount = Command::new("mount");
        let told = mount.args(["-o", "loop"]).arg(&image).arg(folder).output().expect("mount");
        let small = Small { folder: folder.to_owned(), medium: Medium::PageCache };
        told.status.success().then_some(small)
    }

    fn persistent(folder: &Path) -> Small {
        let device = device().expect("a device");
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096"]).arg(&device).arg("32m"));
        let options = ["-t", "ext4", "-o", "dax=always"];
        run(Command::new("mount").args(options).arg(&device).arg(folder));
        Small { folder: folder.to_owned(), medium: Medium::Dax }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn options(&self) -> Options {
        common::options(self.medium).create(true).journal_len(1 << 20)
    }

    /// Fills the free space except for about `but` bytes, with another file.
    fn fill(&self, but: u64) {
        let path = self.file("filler");
        let mut file = File::options().create(true).append(true).open(&path).expect("filler");
        // Small writes at the end, so that no space is left.
        for size in [1 << 16, 4096, 512, 1] {
            let piece = vec![0xff; size];
            while file.write_all(&piece).is_ok() {}
        }
        file.sync_all().expect("sync");
        let len = file.metadata().expect("stat").len();
        file.set_len(len.saturating_sub(but)).expect("give some back");
        file.sync_all().expect("sync");
    }

    fn free(&self) {
        let filler = self.file("filler");
        let freed = fs::metadata(&filler).expect("stat").blocks() * 512;
        let before = self.available();
        fs::remove_file(&filler).expect("remove the filler");
        // ext4 frees blocks only when it commits its journal. Beside other syncs ours may come back
        // before they are free.
        common::wait_until("the filler's blocks are free", || {
            run(&mut Command::new("sync"));
            self.available() >= before + freed / 2
        });
    }

    /// Returns the bytes that are free.
    fn available(&self) -> u64 {
        let path = CString::new(self.folder.as_os_str().as_bytes()).expect("no NUL");
        // SAFETY: the path ends with a NUL, and the place is one of the type that is asked for.
        let told = unsafe {
            let mut told: libc::statvfs = std::mem::zeroed();
            assert_eq!(libc::statvfs(path.as_ptr(), &raw mut told), 0, "statvfs");
            told
        };
        told.f_bfree * told.f_frsize
    }
}

/// Returns the bytes of all blocks of the reflection files.
fn reflection_bytes(folder: &Path) -> u64 {
    reflections_in(folder).iter().map(|path| fs::metadata(path).expect("stat").blocks() * 512).sum()
}

/// Writes until the file system is full, and compares all bytes each time. Returns `true` if it
/// became full.
fn write_until_full(file: &AtomicMappedFile, model: &mut [u8], rng: &mut Rng) -> bool {
    let len = model.len() as u64;
    let mut is_full = false;
    let mut failed = 0;
    for n in 0..3000 {
        let size = match rng.below(6) {
            0 => 4096,
            1 => 10_000,
            2 => 262_144,
            3 => 3,
            _ => 1 + rng.below(5000),
        };
        let offset = match rng.below(3) {
            0 => rng.below(len / PAGE) * PAGE,
            _ => rng.below(len),
        };
        let size = size.min(len - offset);
        let data = rng.bytes(size as usize);
        let place = offset as usize..(offset + size) as usize;
        let result = match rng.below(4) {
            0 => {
                let mut tx = file.begin();
                tx.write_at(&data, offset).expect("note");
                tx.commit()
            }
            1 => file.view(offset..offset + size).and_then(|view| {
                assert_same(&view.to_vec()?, &model[place.clone()], "view");
                let result = file.write_at(&data, offset);
                assert_same(&view.to_vec()?, &model[place.clone()], "view, after the write");
                result
            }),
            _ => file.write_at(&data, offset),
        };
        match result {
            Ok(()) => model[place.clone()].copy_from_slice(&data),
            Err(Error::NoSpace { .. }) => {
                is_full = true;
                failed += 1;
            }
            Err(e) => panic!("write {n}: {e:?}"),
        }
        let mut found = vec![0; size as usize];
        file.read_at(&mut found, offset).expect("read");
        assert_same(&found, &model[place], &format!("write {n}"));
        if failed == 200 {
            break;
        }
    }
    read_everywhere(file, model);
    is_full
}

fn read_everywhere(file: &AtomicMappedFile, model: &[u8]) {
    assert_same(&common::read_all(file), model, "everything");
    for (n, page) in model.chunks(PAGE as usize).enumerate() {
        let mut found = vec![0; page.len()];
        file.read_at(&mut found, n as u64 * PAGE).expect("read a page");
        assert_same(&found, page, &format!("page {n}"));
    }
}

#[test]
fn plays_the_child_on_a_small_file_system_if_it_is_one() {
    let Some((role, folder)) = role() else { return };
    let mount = |kind: &str, size: u64| match kind {
        "tmpfs" => Small::tmpfs(&folder, size),
        "pmem" => Small::persistent(&folder),
        _ => Small::ext4(&folder),
    };
    match role.split(' ').collect::<Vec<_>>()[..] {
        ["blocks", kind] => {
            let (_, bytes, make) = BLOCKS.iter().find(|(name, ..)| *name == kind).expect("a kind");
            let small = match Small::try_disk(&folder, *bytes, make) {
                None if kind == "xfs-64k" => {
                    eprintln!("skipped: this kernel mounts no blocks larger than a page");
                    return;
                }
                small => small.expect("to mount it"),
            };
            grow_within_the_last_page(&small);
            spill_on_a_full_disk(&small);
        }
        ["journal"] => {
            let small = Small::disk(&folder, 160 << 20, BLOCKS[0].2);
            grow_the_journal_on_a_full_disk(&small);
        }
        ["limit"] => open_under_a_limit(&folder),
        ["mixed"] => {
            let small = Small::disk(&folder, 110 << 20, &["mkfs.btrfs", "-q", "-M"]);
            open_on_mixed_block_groups(&small);
            run(Command::new("umount").arg(&folder));
            let small = Small::disk(&folder, 110 << 20, &["mkfs.btrfs", "-q", "-f"]);
            small.options().len(9000).open(small.file("state.dat")).expect("open");
        }
        ["qgroup"] => open_under_a_limit_of_btrfs(&folder),
        ["quota"] => write_under_a_quota(&folder),
        ["full", kind] => {
            for policy in [DeployPolicy::Lazy, DeployPolicy::Eager, DeployPolicy::Manual] {
                let small = mount(kind, 3 << 20);
                fill_go_on_and_reopen(&small, policy);
                run(Command::new("umount").arg(&folder));
            }
        }
        ["dax"] => {
            let small = Small { medium: Medium::Dax, ..Small::tmpfs(&folder, 3 << 20) };
            fill_go_on_and_reopen(&small, DeployPolicy::Lazy);
        }
        ["sparse", kind] => sparse_file_larger_than_the_disk(&mount(kind, 4 << 20)),
        ["holes", kind] => read_holes_on_a_full_disk(&mount(kind, 6 << 20)),
        ["deploy", kind] => deploy_gives_space_back(&mount(kind, 32 << 20)),
        ["close", kind] => close_on_a_full_disk(&mount(kind, 20 << 20)),
        ["create", kind] => create_on_a_full_disk(&mount(kind, 2 << 20)),
        ["folios", kind] => write_beside_holes_on_a_full_disk(&mount(kind, 12 << 20)),
        ["grow", kind] => grow_on_a_full_disk(&mount(kind, 3 << 20)),
        ["snapshots", kind] => snapshots_on_a_full_disk(&mount(kind, 48 << 20)),
        ["snapshots-dax"] => {
            let small = Small { medium: Medium::Dax, ..Small::tmpfs(&folder, 48 << 20) };
            snapshots_on_a_full_disk(&small);
        }
        ["store-folios", "ext4"] => {
            fill_a_store_that_was_read_from_a_full_disk(&Small::ext4(&folder));
        }
        ["store", kind] => begin_a_store_on_a_full_disk(&mount(kind, 24 << 20)),
        ["import", kind] => import_on_a_full_disk(&mount(kind, 30 << 20)),
        ["import-dax"] => {
            let small = Small { medium: Medium::Dax, ..Small::tmpfs(&folder, 30 << 20) };
            import_on_a_full_disk(&small);
        }
        ["sync", kind] => sync_on_a_full_disk(&mount(kind, 40 << 20)),
        _ => panic!("no role {role}"),
    }
}

fn check(role: &str) {
    let kinds: &[&str] = if device().is_some() { &["pmem"] } else { &["tmpfs", "ext4"] };
    for kind in kinds {
        check_on(&format!("{role} {kind}"));
    }
}

fn check_on(role: &str) {
    // All tests share one device.
    static DEVICE: Mutex<()> = Mutex::new(());
    let _alone = device().map(|_| DEVICE.lock().unwrap_or_else(PoisonError::into_inner));
    let scratch = common::ram().scratch();
    let folder = scratch.file("small");
    fs::create_dir(&folder).expect("make a folder");
    if let Some(mut child) = child_with_mounts(CHILD, role, &folder) {
        let said = run_test(&mut child);
        said.lines()
            .filter(|line| line.starts_with("skipped"))
            .for_each(|line| eprintln!("{line}"));
    }
}

fn fill_go_on_and_reopen(small: &Small, policy: DeployPolicy) {
    // Longer than the free space, together with the reflection file. Reflection files on ext4 are
    // larger.
    let is_ext4 = small.medium == Medium::PageCache || device().is_some();
    let len = if is_ext4 { 24 << 20 } else { 5 << 20 };
    let path = small.file("state.dat");
    let mut model = vec![0; len as usize];
    let mut rng = Rng(len);
    let file = small.options().len(len).deploy(policy).open(&path).expect("open");
    small.fill(1 << 20);
    assert!(write_until_full(&file, &mut model, &mut rng), "never full");
    small.free();
    write_until_full(&file, &mut model, &mut rng);
    small.fill(0);
    read_everywhere(&file, &model);
    // In this order, so that the test also tries a close without space.
    match file.close(CloseMode::Fast) {
        Ok(_) | Err(Error::NoSpace { .. }) => {}
        Err(e) => panic!("fast close on a full disk: {e:?}"),
    }
    small.free();
    let file = small.options().deploy(policy).open(&path).expect("open again");
    read_everywhere(&file, &model);
    drop(file);
    let file = small.options().deploy(policy).open(&path).expect("open a third time");
    read_everywhere(&file, &model);
}

#[test]
fn a_full_disk_is_an_error_that_changes_nothing_and_passes_when_there_is_space() {
    check("full");
}

#[test]
fn a_full_disk_is_an_error_on_persistent_memory_as_well() {
    // With a real device, the test above covers this case.
    if device().is_none() && common::dax().is_some() {
        check_on("dax");
    }
}

fn sparse_file_larger_than_the_disk(small: &Small) {
    const GIB: u64 = 1 << 30;
    let len = 3 * GIB + 5000;
    let path = small.file("state.dat");
    let file = small.options().len(len).open(&path).expect("open");
    let places = [0, 100 << 20, GIB - 50, 2 * GIB, len - 5000];
    let mut written = Vec::new();
    for (n, at) in places.into_iter().enumerate() {
        let data = Rng(n as u64).bytes(5000);
        match file.write_at(&data, at) {
            Ok(()) => written.push((at, data)),
            Err(Error::NoSpace { .. }) => written.push((at, vec![0; 5000])),
            Err(e) => panic!("{e:?}"),
        }
    }
    let check = |file: &AtomicMappedFile| {
        for (at, data) in &written {
            let mut found = vec![0; data.len()];
            file.read_at(&mut found, *at).expect("read");
            assert_same(&found, data, &format!("at {at}"));
        }
        // Far from all written bytes.
        let mut found = vec![1; 8 << 20];
        file.read_at(&mut found, GIB / 2).expect("read holes");
        assert!(found.iter().all(|byte| *byte == 0));
    };
    check(&file);
    file.close(CloseMode::Fast).expect("close");
    let file = small.options().open(&path).expect("open");
    check(&file);
    match file.close(CloseMode::Spatial) {
        Ok(_) => assert!(reflections_in(&small.folder).is_empty()),
        Err(Error::NoSpace { .. }) => {}
        Err(e) => panic!("{e:?}"),
    }
    check(&small.options().open(&path).expect("open"));
}

#[test]
fn a_sparse_file_may_be_larger_than_the_disk() {
    check("sparse");
}

/// The page cache of ext4 (Linux 6.16) and xfs keeps readahead in large folios. The first store to
/// a folio allocates storage for all of it. With holes in the folio, a store to an allocated page
/// got a SIGBUS on a full disk.
fn write_beside_holes_on_a_full_disk(small: &Small) {
    let len = 8 << 20;
    let path = small.file("state.dat");
    File::create(&path).expect("create").set_len(len).expect("a sparse file");
    // Triggers readahead, in ever larger folios.
    std::io::copy(&mut File::open(&path).expect("open"), &mut std::io::sink()).expect("read");
    let mut model = vec![0; len as usize];
    let mut rng = Rng(len);
    let file = small.options().deploy(DeployPolicy::Manual).open(&path).expect("open");
    let mut found = vec![0; 1 << 20];
    for at in (0..len).step_by(1 << 20) {
        file.read_at(&mut found, at).expect("read holes");
    }
    for left in [600 << 10, 100 << 10, 0] {
        small.fill(left);
        for _ in 0..200 {
            let offset = rng.below(len / PAGE) * PAGE + 100;
            for _ in 0..2 {
                let data = rng.bytes(200);
                // A durable point in between makes the second write use the home slot, and not the
                // first slot again.
                file.sync().expect("what was written has its place in the journal");
                match file.write_at(&data, offset) {
                    Ok(()) => model[offset as usize..][..200].copy_from_slice(&data),
                    Err(Error::NoSpace { .. }) => break,
                    Err(e) => panic!("{e:?}"),
                }
            }
        }
        read_everywhere(&file, &model);
        small.free();
    }
    file.close(CloseMode::Spatial).expect("close");
    assert_same(&fs::read(&path).expect("read"), &model, "closed");
}

#[test]
fn a_full_disk_and_large_folios_are_no_sigbus() {
    check("folios");
}

fn read_holes_on_a_full_disk(small: &Small) {
    let len = 64 << 20;
    let file = small.options().len(len).open(small.file("state.dat")).expect("open");
    file.write_at(&[1; 100], 10).expect("write");
    small.fill(0);
    let mut found = vec![1; 1 << 20];
    for n in 1..64 {
        file.read_at(&mut found, n << 20).expect("read");
        assert!(found.iter().all(|byte| *byte == 0));
    }
    for n in 0..200 {
        assert_eq!(file.load::<u64>(len / 200 * n + 1000).expect("load"), 0);
    }
    // The pages after the written one, in one chunk with it.
    let mut beside = vec![1; 100_000];
    file.read_at(&mut beside, 4096).expect("read");
    assert!(beside.iter().all(|byte| *byte == 0));
    // A view of holes that cannot be allocated is a copy, and pins nothing.
    let view = file.view(30 << 20..33 << 20).expect("view");
    assert!(view.to_vec().expect("read").iter().all(|byte| *byte == 0));
    let sum = file.transact(|tx| tx.load::<u64>(40 << 20)).expect("read in a transaction");
    assert_eq!(sum, 0);
    file.deploy(PAGE..len).expect("nothing to deploy needs no space");
    match file.deploy(0..PAGE) {
        Ok(_) | Err(Error::NoSpace { .. }) => {}
        Err(e) => panic!("{e:?}"),
    }
    assert_eq!(file.load::<[u8; 100]>(10).expect("load"), [1; 100]);
}

#[test]
fn reading_what_was_never_written_needs_no_space() {
    check("holes");
}

fn deploy_gives_space_back(small: &Small) {
    let len = 10 << 20;
    let path = small.file("state.dat");
    let file = small.options().len(len).deploy(DeployPolicy::Manual).open(&path).expect("open");
    let data = Rng(1).bytes(len as usize);
    file.write_at(&data, 0).expect("write");
    file.sync().expect("sync");
    let before = reflection_bytes(&small.folder);
    assert!(before >= len, "{before} bytes in the reflection file");
    assert_eq!(file.deploy(0..len).expect("deploy"), len / PAGE);
    file.sync().expect("sync");
    let after = reflection_bytes(&small.folder);
    // The portable build has no call that frees blocks.
    let is_given_back = after + (8 << 20) < before;
    assert!(is_given_back || cfg!(atomic_mmap_portable), "{before} bytes before, {after} after");
    assert_same(&common::read_all(&file), &data, "deployed");
    // The range can be written again, to both slots.
    for _ in 0..2 {
        file.write_at(&data[1000..9000], 0).expect("write");
        file.write_at(&data[..8000], 0).expect("write");
        assert_same(&common::read_all(&file), &data, "written again");
    }
    file.close(CloseMode::Fast).expect("close");
    let file = small.options().open(&path).expect("open");
    assert_same(&common::read_all(&file), &data, "opened again");
}

#[test]
fn deploying_gives_the_reflection_files_space_back() {
    check("deploy");
}

fn close_on_a_full_disk(small: &Small) {
    let len = 8 << 20;
    let path = small.file("state.dat");
    let mut model = vec![0; len as usize];
    let file = small.options().len(len).deploy(DeployPolicy::Manual).open(&path).expect("open");
    let mut rng = Rng(4);
    for _ in 0..60 {
        let data = rng.bytes(3000);
        let at = rng.below(len - 3000);
        match file.write_at(&data, at) {
            Ok(()) => model[at as usize..at as usize + 3000].copy_from_slice(&data),
            Err(Error::NoSpace { .. }) => break,
            Err(e) => panic!("{e:?}"),
        }
    }
    small.fill(0);
    read_everywhere(&file, &model);
    let was_closed = match file.close(CloseMode::Spatial) {
        Ok(_) => true,
        Err(Error::NoSpace { .. }) => false,
        Err(e) => panic!("{e:?}"),
    };
    if was_closed {
        assert_same(&fs::read(&path).expect("read"), &model, "the plain file");
        assert!(reflections_in(&small.folder).is_empty());
    }
    small.free();
    let file = small.options().open(&path).expect("open again");
    read_everywhere(&file, &model);
    // The handle is dropped on a full disk: no caller gets the error, and nothing is lost.
    file.write_at(&[7; 5000], 3 << 20).expect("write");
    model[3 << 20..(3 << 20) + 5000].fill(7);
    small.fill(0);
    drop(file);
    small.free();
    let file = small.options().open(&path).expect("open a third time");
    read_everywhere(&file, &model);
    file.close(CloseMode::Spatial).expect("close with space");
    assert_same(&fs::read(&path).expect("read"), &model, "the plain file");
    assert!(reflections_in(&small.folder).is_empty());
}

#[test]
fn closing_on_a_full_disk_works_or_says_so_and_loses_nothing() {
    check("close");
}

fn create_on_a_full_disk(small: &Small) {
    small.fill(0);
    let path = small.file("state.dat");
    let error = small.options().len(1 << 20).open(&path).expect_err("no space");
    assert!(matches!(error, Error::NoSpace { .. }), "{error:?}");
    assert!(!path.exists(), "the file that was made is still there");
    assert!(reflections_in(&small.folder).is_empty());
    small.free();
    let file = small.options().len(1 << 20).open(&path).expect("open");
    file.write_at(&[1; 100], 0).expect("write");
}

#[test]
fn creating_on_a_full_disk_leaves_nothing_behind() {
    check("create");
}

fn grow_on_a_full_disk(small: &Small) {
    let path = small.file("state.dat");
    let file = small.options().len(10_000).open(&path).expect("open");
    file.write_at(&[1; 10_000], 0).expect("write");
    small.fill(0);
    // A new length takes no space. Writes past the old end do.
    match file.set_len(20 << 20) {
        Ok(()) => {
            let mut found = vec![1; 1 << 20];
            file.read_at(&mut found, 10 << 20).expect("read");
            assert!(found.iter().all(|byte| *byte == 0));
            let error = file.write_at(&[2; 100_000], 10 << 20).expect_err("no space");
            assert!(matches!(error, Error::NoSpace { .. }), "{error:?}");
        }
        Err(Error::NoSpace { .. }) => {}
        Err(e) => panic!("{e:?}"),
    }
    let mut found = [0; 10_000];
    file.read_at(&mut found, 0).expect("read");
    assert_eq!(found, [1; 10_000]);
    file.set_len(5000).expect("shrinking needs no space");
    small.free();
    file.set_len(1 << 20).expect("grow");
    file.write_at(&[3; 5000], 500_000).expect("write");
    drop(file);
    let plain = fs::read(&path).expect("read");
    assert_eq!(plain.len(), 1 << 20);
    assert_same(&plain[..5000], &[1; 5000], "the beginning");
    assert!(plain[5000..500_000].iter().all(|byte| *byte == 0));
    assert_same(&plain[500_000..505_000], &[3; 5000], "what was written then");
}

#[test]
fn a_file_grows_and_shrinks_on_a_full_disk_as_far_as_it_can() {
    check("grow");
}

/// More pages than the journal has room for, so it must grow without free space.
fn sync_on_a_full_disk(small: &Small) {
    let pages: u64 = 3000;
    let path = small.file("state.dat");
    let options = || small.options().journal_len(64 << 10).deploy(DeployPolicy::Manual);
    let file = options().len(pages * PAGE).open(&path).expect("open");
    let mut model = vec![0; (pages * PAGE) as usize];
    for page in 0..pages {
        let at = page * PAGE + page % 64 * 64;
        file.write_at(&[9; 64], at).expect("write");
        model[at as usize..][..64].fill(9);
    }
    small.fill(0);
    match file.sync() {
        Ok(_) => assert_ne!(small.medium, Medium::PageCache),
        Err(Error::NoSpace { path, .. }) => {
            assert!(path.extension().is_some_and(|last| last == "journal"), "{path:?}");
        }
        Err(e) => panic!("{e:?}"),
    }
    // The failed sync had no effect: the next sync records these pages again.
    match file.write_at(&[8; 64], 0) {
        Ok(()) => model[..64].fill(8),
        Err(Error::NoSpace { .. }) => {}
        Err(e) => panic!("{e:?}"),
    }
    read_everywhere(&file, &model);
    small.free();
    file.sync().expect("sync with space");
    assert!(small.medium != Medium::PageCache || file.stats().flush_points == 1);
    assert_eq!(file.stats().journal_points, 0);
    file.close(CloseMode::Fast).expect("close");
    read_everywhere(&options().open(&path).expect("open again"), &model);
}

#[test]
fn a_sync_that_finds_no_space_changes_nothing_and_passes_when_there_is_space() {
    check("sync");
}

/// File systems with blocks smaller than a page, of a page, and larger, and the commands that make
/// them. The kernel mounts blocks larger than a page since Linux 6.12.
const BLOCKS: [(&str, u64, &[&str]); 6] = [
    ("ext4-1k", 64 << 20, &["mkfs.ext4", "-q", "-b", "1024"]),
    ("ext4-2k", 64 << 20, &["mkfs.ext4", "-q", "-b", "2048"]),
    ("ext4-4k", 64 << 20, &["mkfs.ext4", "-q", "-b", "4096"]),
    ("ext3-1k", 64 << 20, &["mkfs.ext3", "-q", "-b", "1024"]),
    ("xfs-1k", 320 << 20, &["mkfs.xfs", "-q", "-f", "-b", "size=1024"]),
    ("xfs-64k", 600 << 20, &["mkfs.xfs", "-q", "-f", "-b", "size=65536"]),
];

fn is_there(program: &str) -> bool {
    Command::new(program).arg("-V").output().is_ok()
}

/// The page at the old end had blocks only up to the end. The growth allocated from the next page
/// on.
fn grow_within_the_last_page(small: &Small) {
    let path = small.file("grown.dat");
    let file = small.options().journal_len(64 << 10).len(5000).open(&path).expect("open");
    for n in 1..5 {
        file.write_at(&[n; 5000], 0).expect("write");
        file.sync().expect("sync");
    }
    small.fill(0);
    match file.set_len(8192) {
        Ok(()) => (1..5).for_each(|n| match file.write_at(&[n; 1000], 6000) {
            Ok(()) | Err(Error::NoSpace { .. }) => {
                let _point_or_no_space = file.sync();
            }
            Err(e) => panic!("{e:?}"),
        }),
        Err(Error::NoSpace { .. }) => {}
        Err(e) => panic!("{e:?}"),
    }
    let mut found = [0; 5000];
    file.read_at(&mut found, 0).expect("read");
    assert_eq!(found, [4; 5000]);
    // A failed growth had made the file longer. A store to the last page went to a hole.
    for n in 5..9 {
        let wrote = file.write_at(&[n; 800], 4200);
        assert!(matches!(wrote, Ok(()) | Err(Error::NoSpace { .. })), "{wrote:?}");
        let _point_or_no_space = file.sync();
    }
    drop(file);
    small.free();
}

/// In-place writes with records that overflow a lane. The engine allocated only the bytes of a
/// record in the log area, but a page fault needs the whole page.
fn spill_on_a_full_disk(small: &Small) {
    let len = 8 << 20;
    let path = small.file("spilled.dat");
    let file = small.options().len(len).open(&path).expect("open");
    for n in 1..3 {
        // The second write stores the changed slices in place.
        file.write_at(&vec![n; len as usize], 0).expect("write");
        if n == 1 {
            file.sync().expect("sync");
        }
    }
    let mut rng = Rng(len);
    let mut model = vec![2; len as usize];
    for n in 0..150 {
        small.fill([0, 4096, 9000, 70_000, 200_000][rng.below(5) as usize]);
        let size = [3000, 9001, 74_000, 301_001, 1_500_001][rng.below(5) as usize];
        let offset = rng.below(len - size);
        let data = vec![n as u8; size as usize];
        match file.write_at(&data, offset) {
            Ok(()) => model[offset as usize..][..data.len()].copy_from_slice(&data),
            Err(Error::NoSpace { .. }) => {}
            Err(e) => panic!("write {n}: {e:?}"),
        }
    }
    assert_ne!(file.stats().overflow_records, 0, "nothing was spilled");
    read_everywhere(&file, &model);
    small.free();
}

/// `mkfs.ext4` makes blocks of 1 KiB on a small disk. A full disk was a SIGBUS there.
#[test]
fn a_full_disk_is_an_error_whatever_its_block_size() {
    if device().is_some() {
        return;
    }
    for (kind, _, make) in BLOCKS {
        if is_there(make[0]) {
            check_on(&format!("blocks {kind}"));
        } else {
            eprintln!("skipped: there is no {} here", make[0]);
        }
    }
}

fn bytes_of_disk(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).expect("list").map(|entry| entry.expect("list").metadata());
    files.map(|told| told.expect("stat").blocks() * 512).sum()
}

/// Each page allocated a chunk of 2 MiB: 100,000 writes of 8 bytes took 8 GB.
#[test]
fn scattered_writes_take_the_pages_that_they_touch() {
    // On a DAX mount the first store to 2 MiB of a mapping makes the file system fill the hole
    // before the page, and the medium of such a mount takes whole chunks anyway.
    if common::persistent_folder().is_some() {
        return;
    }
    let Some(ground) = common::page_cache() else { return };
    let scratch = ground.scratch();
    let len = 1 << 30;
    let options = ground.options().create(true).len(len).journal_len(1 << 20);
    let file = options.open(scratch.file("sparse.dat")).expect("open");
    let mut rng = Rng(1);
    let writes = 4000;
    for n in 0..writes {
        file.write_at(&[n as u8 | 1; 8], rng.below(len / 8) * 8).expect("write");
    }
    // The page of each write, sometimes a second one after it, and a page of words of each kind for
    // each chunk.
    let words = 2 * (len / (2 << 20)) * PAGE;
    let taken = bytes_of_disk(scratch.path());
    assert!(taken < 2 * writes * PAGE + words + (8 << 20), "{taken} bytes for {writes} writes");
}

/// A failed growth left the journal at its new length, with a hole. The next session took the hole
/// for room, and one of its records failed.
fn grow_the_journal_on_a_full_disk(small: &Small) {
    let pages: u64 = 8192;
    let path = small.file("state.dat");
    let options = || small.options().journal_len(64 << 10).deploy(DeployPolicy::Manual);
    let file = options().len(pages * PAGE).open(&path).expect("open");
    let write_all = || {
        let parts: Vec<(u64, &[u8])> =
            (0..pages).map(|n| (n * PAGE + n % 2 * 64, &[9; 64][..])).collect();
        file.write_many(&parts).expect("write");
    };
    write_all();
    let journal = small.file(&format!(
        "{}.journal",
        file.reflection_path().file_name().expect("a name").to_string_lossy()
    ));
    let before = fs::metadata(&journal).expect("stat").len();
    small.fill(0);
    let error = file.sync().expect_err("the words of all pages do not fit");
    assert!(matches!(error, Error::NoSpace { .. }), "{error:?}");
    assert_eq!(fs::metadata(&journal).expect("stat").len(), before, "the journal is as it was");
    small.free();
    file.sync().expect("sync with space");
    file.close(CloseMode::Fast).expect("close");
}

#[test]
fn a_journal_that_could_not_grow_is_as_it_was() {
    if device().is_none() {
        check_on("journal");
    }
}

/// The state that an older version left: a length without blocks.
#[test]
fn a_hole_in_a_journal_is_no_room() {
    let Some(ground) = common::page_cache() else { return };
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let options = || ground.options().create(true).len(1 << 20).journal_len(64 << 10);
    let file = options().open(&path).expect("open");
    let mut journal = file.reflection_path().to_owned().into_os_string();
    journal.push(".journal");
    file.close(CloseMode::Fast).expect("close");
    let grown = File::options().write(true).open(&journal).expect("the journal");
    grown.set_len(4 << 20).expect("longer, and nothing behind it");
    let file = options().journal_len(4 << 20).open(&path).expect("open again");
    let told = fs::metadata(&journal).expect("stat");
    assert!(told.blocks() * 512 >= told.len(), "{} bytes of {}", told.blocks() * 512, told.len());
    drop(file);
}

/// A limit of the process is an error. The kernel would send a signal that ends the process.
fn open_under_a_limit(folder: &Path) {
    let limit = libc::rlimit { rlim_cur: 16 << 20, rlim_max: 16 << 20 };
    // SAFETY: the structure is readable, and the limit is that of this child.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    let path = folder.join("state.dat");
    let options = common::options(Medium::Ram).create(true);
    let error = options.len(64 << 10).open(&path).expect_err("the reflection file is longer");
    assert!(matches!(error, Error::NoSpace { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("ulimit -f") && text.contains("16777216"), "{text}");
    assert!(!path.exists() && reflections_in(folder).is_empty(), "something is left behind");
}

#[test]
fn the_limit_on_the_length_of_files_is_an_error_and_no_signal() {
    if !cfg!(atomic_mmap_portable) {
        check_on("limit");
    }
}

/// A full file system or a quota also affects names, attributes and lengths.
#[test]
fn want_of_space_is_told_of_every_call() {
    let ground = common::ram();
    let calls = [call::OPEN, call::SET_LEN, call::WRITE, call::RENAME, call::SET_XATTR];
    for (call, code) in calls.into_iter().flat_map(|c| [(c, libc::ENOSPC), (c, libc::EDQUOT)]) {
        let scratch = ground.scratch();
        let recorder = Recorder::new();
        recorder.fail_next(call, 1, code);
        let options = ground.options().create(true).len(10_000);
        let opened = options.open_recorded(&recorder, scratch.file("state.dat"));
        let error = opened.map(drop).expect_err(call);
        assert!(matches!(error, Error::NoSpace { .. }), "{call}: {error:?}");
    }
}

/// On btrfs a store to a written-back page takes space for the trees, which no call can reserve.
/// With mixed block groups data can fill that space. A full disk then ended in SIGBUS.
fn open_on_mixed_block_groups(small: &Small) {
    let path = small.file("state.dat");
    let refused = |options: Options, path: &Path| {
        let error = options.open(path).expect_err("refused");
        let is_said = matches!(&error, Error::UnsupportedFileSystem { file_system, .. }
            if file_system.contains("mixed block groups"));
        assert!(is_said && error.to_string().contains("mkfs.btrfs"), "{error:?}");
    };
    refused(small.options().len(9000), &path);
    assert!(!path.exists() && reflections_in(&small.folder).is_empty(), "something is left");
    // A file system with the companions alone is refused as well, since they are mapped.
    let elsewhere = small.folder.with_extension("elsewhere");
    refused(small.options().len(9000).reflection_dir(&small.folder), &elsewhere);
    assert!(!elsewhere.exists() && reflections_in(&small.folder).is_empty(), "something is left");
    // The caller can accept the risk.
    let options = small.options().len(9000).allow_any_file_system(true);
    let file = options.open(&path).expect("open");
    file.write_at(&[1; 5000], 10).expect("write");
    file.close(CloseMode::Spatial).expect("close");
}

#[test]
fn a_btrfs_with_mixed_block_groups_is_refused() {
    if device().is_some() {
        return;
    }
    if is_there("mkfs.btrfs") {
        check_on("mixed");
    } else {
        eprintln!("skipped: there is no mkfs.btrfs here");
    }
}

/// On btrfs a store to a page takes metadata, which counts for the quota. A used-up quota ended
/// stores in SIGBUS.
fn open_under_a_limit_of_btrfs(folder: &Path) {
    let small = Small::disk(folder, 110 << 20, &["mkfs.btrfs", "-q"]);
    let [limited, free] = ["limited", "free"].map(|name| small.file(name));
    let btrfs = |words: &[&str], folder: &Path| run(Command::new("btrfs").args(words).arg(folder));
    btrfs(&["quota", "enable"], folder);
    for made in [&limited, &free] {
        btrfs(&["subvolume", "create"], made);
    }
    let open = |folder: &Path| small.options().len(9000).open(folder.join("state.dat"));
    // Quotas without a limit change nothing.
    open(&limited).expect("open").close(CloseMode::Spatial).expect("close");
    btrfs(&["qgroup", "limit", "20M"], &limited);
    let error = open(&limited).expect_err("refused");
    let is_said = matches!(&error, Error::UnsupportedFileSystem { file_system, .. }
        if file_system.contains("quota"));
    assert!(is_said, "{error:?}");
    open(&free).expect("another subvolume");
    btrfs(&["qgroup", "limit", "none"], &limited);
    open(&limited).expect("the limit was taken away");
}

#[test]
fn a_btrfs_subvolume_under_a_quota_is_refused() {
    if device().is_some() {
        return;
    }
    if is_there("mkfs.btrfs") && is_there("btrfs") {
        check_on("qgroup");
    } else {
        eprintln!("skipped: there is no btrfs-progs here");
    }
}

/// The user of the limit.
const LIMITED: u32 = 65_534;

/// Limits the space of the user to `kib` KiB. The error names what the system lacks.
fn limit_user(folder: &Path, kib: u64) -> std::io::Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let folder = folder.to_string_lossy();
    let mount = mounts.lines().find(|line| line.split(' ').nth(1) == Some(&*folder));
    let device = mount.and_then(|line| line.split(' ').next()).expect("it is mounted");
    let device = std::ffi::CString::new(device).expect("a name");
    // SAFETY: the structure holds integers only, and zero is a valid value.
    let mut limit: libc::dqblk = unsafe { std::mem::zeroed() };
    limit.dqb_bhardlimit = kib;
    limit.dqb_bsoftlimit = kib;
    limit.dqb_valid = libc::QIF_BLIMITS;
    let call = libc::QCMD(libc::Q_SETQUOTA, libc::USRQUOTA);
    let at = (&raw mut limit).cast();
    // SAFETY: the name ends with NUL, and the call takes this structure.
    match unsafe { libc::quotactl(call, device.as_ptr(), LIMITED as libc::c_int, at) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Makes the process act as this user. It may become root again.
fn act_as(user: u32) {
    // SAFETY: no precondition.
    assert_eq!(unsafe { libc::seteuid(user) }, 0, "{}", std::io::Error::last_os_error());
}

/// Checks that a used-up quota is reported as lack of space, on a disk that has enough.
fn write_under_a_quota(folder: &Path) {
    let image = folder.with_extension("img");
    File::create(&image).expect("create").set_len(96 << 20).expect("make the image");
    let make = ["-q", "-O", "quota", "-E", "quotatype=usrquota"];
    let made = Command::new("mkfs.ext4").args(make).arg(&image).status();
    let mount = || {
        let options = ["-t", "ext4", "-o", "loop,usrquota"];
        Command::new("mount").args(options).arg(&image).arg(folder).status()
    };
    if !made.is_ok_and(|told| told.success()) || !mount().is_ok_and(|told| told.success()) {
        eprintln!("skipped: no ext4 with quotas can be made and mounted here");
        return;
    }
    let small = Small { folder: folder.to_owned(), medium: Medium::PageCache };
    std::os::unix::fs::chown(folder, Some(LIMITED), None).expect("give the folder away");
    if let Err(error) = limit_user(folder, 6 << 10) {
        eprintln!("skipped: no quota can be set here: {error}");
        return;
    }
    let path = small.file("state.dat");
    let len: u64 = 24 << 20;
    let mut model = vec![0; len as usize];
    let mut rng = Rng(len);
    act_as(LIMITED);
    let file = small.options().len(len).open(&path).expect("open");
    assert!(write_until_full(&file, &mut model, &mut rng), "the quota is no limit");
    let error = file.write_at(&vec![1; 8 << 20], 0).expect_err("more than the quota");
    let text = error.to_string();
    assert!(matches!(error, Error::NoSpace { .. }) && text.contains("quota"), "{text}");
    read_everywhere(&file, &model);
    // Within the last page, and past it.
    for longer in [len + 5000, len + 5100, len + (4 << 20)] {
        let grown = file.set_len(longer);
        assert!(matches!(grown, Ok(()) | Err(Error::NoSpace { .. })), "{grown:?}");
        let end = file.len();
        if end == len {
            continue;
        }
        let wrote = file.write_at(&[3; 100], end - 100);
        assert!(matches!(wrote, Ok(()) | Err(Error::NoSpace { .. })), "{wrote:?}");
    }
    file.set_len(len).expect("shorter");
    read_everywhere(&file, &model);
    let synced = file.sync();
    assert!(matches!(synced, Ok(_) | Err(Error::NoSpace { .. })), "{synced:?}");
    act_as(0);
    limit_user(folder, 60 << 10).expect("a higher limit");
    act_as(LIMITED);
    let data = rng.bytes(8 << 20);
    file.write_at(&data, 12_345).expect("what did not fit");
    model[12_345..12_345 + data.len()].copy_from_slice(&data);
    write_until_full(&file, &mut model, &mut rng);
    file.sync().expect("sync");
    read_everywhere(&file, &model);
    file.close(CloseMode::Fast).expect("close");
    let file = small.options().open(&path).expect("open again");
    read_everywhere(&file, &model);
    drop(file);
    act_as(0);
}

#[test]
fn a_quota_is_want_of_space_and_no_signal() {
    if device().is_some() {
        return;
    }
    if is_there("mkfs.ext4") {
        check_on("quota");
    } else {
        eprintln!("skipped: there is no mkfs.ext4 here");
    }
}

/// Fills the disk by what snapshots keep, and goes on at each step.
fn snapshots_on_a_full_disk(small: &Small) {
    let len = 6 << 20;
    let path = small.file("state.dat");
    let mut rng = Rng(31);
    let mut model = rng.bytes(len);
    fs::write(&path, &model).expect("plain");
    let open = || small.options().open(&path).expect("open");
    let file = open();
    // No space for the store.
    small.fill(0);
    match file.snapshot("none") {
        Ok(_) => file.drop_snapshot("none").expect("drop"),
        Err(Error::NoSpace { .. }) => {}
        Err(e) => panic!("{e:?}"),
    }
    file.health().expect("not poisoned");
    small.free();
    // All slices have both slots.
    for _ in 0..2 {
        model = rng.bytes(len);
        file.write_at(&model, 0).expect("write");
    }
    file.snapshot("a").expect("seal");
    let a = model.clone();
    small.fill(2 << 20);
    let mut is_full = false;
    for n in 0..60 {
        let data = rng.bytes(200_000);
        let at = n * 100_000;
        match file.write_at(&data, at) {
            Ok(()) => model[at as usize..][..data.len()].copy_from_slice(&data),
            Err(Error::NoSpace { .. }) => is_full = true,
            Err(e) => panic!("{e:?}"),
        }
        if n % 8 == 0 {
            match file.sync() {
                Ok(_) => {}
                Err(Error::NoSpace { .. }) => is_full = true,
                Err(e) => panic!("{e:?}"),
            }
        }
    }
    match file.snapshot("b") {
        Ok(_) => file.drop_snapshot("b").expect("drop"),
        Err(Error::NoSpace { .. }) => is_full = true,
        Err(e) => panic!("{e:?}"),
    }
    assert!(is_full, "never full");
    file.health().expect("not poisoned");
    read_everywhere(&file, &model);
    let check = |file: &AtomicMappedFile| {
        let found = file.open_snapshot("a").expect("a").read_vec().expect("read");
        assert_same(&found, &a, "a");
    };
    check(&file);
    // A rollback with a way back needs room for as much again.
    small.fill(0);
    let rolled = file.roll_back("a", Some("undo"));
    match rolled {
        Ok(()) => panic!("it fits"),
        Err(Error::NoSpace { .. }) => {}
        Err(e) => panic!("{e:?}"),
    }
    let is_poisoned = file.health().is_err();
    if !is_poisoned {
        read_everywhere(&file, &model);
    }
    drop(file);
    let full = small.options().open(&path);
    if let Err(e) = &full {
        assert!(matches!(e, Error::NoSpace { .. }), "{e:?}");
    }
    drop(full);
    small.free();
    let file = open();
    let names: Vec<String> = file.snapshots().into_iter().map(|s| s.name).collect();
    if names.len() == 2 {
        read_everywhere(&file, &a);
        let undo = file.open_snapshot("undo").expect("undo").read_vec().expect("read");
        assert_same(&undo, &model, "undo");
        file.roll_back("undo", None).expect("back");
    }
    read_everywhere(&file, &model);
    check(&file);
    // A drop needs no space.
    small.fill(0);
    for info in file.snapshots() {
        file.drop_snapshot(&info.name).expect("drop on a full disk");
    }
    read_everywhere(&file, &model);
    let is_usable = matches!(file.health(), Ok(()) | Err(Error::NotClosed { .. }));
    assert!(is_usable, "not poisoned");
    drop(file);
    small.free();
    drop(open());
    assert_same(&fs::read(&path).expect("read"), &model, "closed");
}

#[test]
fn snapshots_on_a_full_disk_are_an_error_that_changes_nothing() {
    check("snapshots");
}

#[test]
fn snapshots_on_a_full_persistent_memory() {
    check_on("snapshots-dax");
}

/// A store of snapshots that is read again from a disk must not stay in large folios. Openings and
/// backups read it in a row, and segments without storage lie among those with records. The first
/// store to a new segment got a SIGBUS on a full disk.
fn fill_a_store_that_was_read_from_a_full_disk(small: &Small) {
    let len = 4 << 20;
    let path = small.file("state.dat");
    let mut rng = Rng(37);
    let mut model = rng.bytes(len);
    let open = || small.options().open(&path).expect("open");
    fs::write(&path, &model).expect("plain");
    let file = open();
    file.snapshot("a").expect("seal");
    let a = model.clone();
    // Segments one by one: the disk has no room for a chunk of them. Each is taken by first
    // touches of pages, until there is no space at all.
    let write = |file: &AtomicMappedFile, model: &mut Vec<u8>, rng: &mut Rng, n: usize| {
        let at = n * PAGE as usize;
        let data = rng.bytes(PAGE as usize);
        match file.write_at(&data, at as u64) {
            Ok(()) => {
                model[at..at + data.len()].copy_from_slice(&data);
                true
            }
            Err(Error::NoSpace { .. }) => false,
            Err(e) => panic!("{e:?}"),
        }
    };
    small.fill(1 << 20);
    let count = (0..40).take_while(|n| write(&file, &mut model, &mut rng, *n)).count();
    assert!(count > 16, "{count} pages kept");
    drop(file);
    for round in 0..6 {
        // After a start of the machine nothing is in the page cache, and a backup reads the store.
        for entry in fs::read_dir(&small.folder).expect("a folder") {
            let mut file = File::open(entry.expect("an entry").path()).expect("open");
            let _a_folder_may_refuse = file.sync_all();
            // SAFETY: the descriptor is open, and nothing of ours is taken.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
            let _a_folder_may_refuse = std::io::copy(&mut file, &mut std::io::sink());
        }
        let file = match small.options().open(&path) {
            Ok(file) => file,
            Err(Error::NoSpace { .. }) => break,
            Err(e) => panic!("{e:?}"),
        };
        let found = file.open_snapshot("a").expect("a").read_vec().expect("read");
        assert_same(&found, &a, "a");
        if let Err(Error::Overdue { .. }) = file.health() {
            // It goes on once there is space for what the snapshot needs.
            small.fill((100 + 20 * round) << 10);
            let synced = file.sync();
            assert!(matches!(synced, Ok(_) | Err(Error::NoSpace { .. })), "{synced:?}");
            read_everywhere(&file, &model);
            continue;
        }
        small.fill((100 + 20 * round) << 10);
        let from = 100 * (round as usize + 1);
        let count = (from..from + 99).filter(|n| write(&file, &mut model, &mut rng, *n)).count();
        assert!(count > 0, "round {round}");
        read_everywhere(&file, &model);
        file.health().expect("not poisoned");
        drop(file);
    }
    small.free();
    let file = open();
    read_everywhere(&file, &model);
    let found = file.open_snapshot("a").expect("a").read_vec().expect("read");
    assert_same(&found, &a, "a");
}

#[test]
fn a_store_of_snapshots_beside_holes_of_a_full_disk_is_no_sigbus() {
    // Persistent memory has no page cache.
    if device().is_none() {
        check_on("store-folios ext4");
    }
}

/// The store gets its first segment on a full disk, and room for one segment comes free later. The
/// map of ends had no storage then, so a close or the next opening got a SIGBUS.
fn begin_a_store_on_a_full_disk(small: &Small) {
    let path = small.file("state.dat");
    let page = [7; PAGE as usize];
    let open = || small.options().len(1 << 20).allocation(Allocation::Full).open(&path);
    let file = open().expect("open");
    for n in 0..512 {
        file.write_at(&page, n % 256 * PAGE).expect("write");
    }
    file.sync().expect("sync");
    file.snapshot("first").expect("seal");
    let keep = |n: u64| match file.write_at(&page, n * PAGE).and_then(|()| file.sync()) {
        Ok(_) => 1,
        Err(Error::NoSpace { .. }) => 0,
        Err(e) => panic!("{e:?}"),
    };
    small.fill(0);
    assert_eq!(keep(0), 0, "no space for a segment");
    for left in [68 << 10, 136 << 10, 0] {
        small.fill(left);
        (0..3).map(keep).sum::<u64>();
    }
    file.health().expect("not poisoned");
    drop(file);
    for _ in 0..2 {
        match open() {
            Ok(_) | Err(Error::NoSpace { .. }) => {}
            Err(e) => panic!("{e:?}"),
        }
    }
    small.free();
    let file = open().expect("open");
    let found = file.open_snapshot("first").expect("first").read_vec().expect("read");
    assert!(found.iter().all(|byte| *byte == 7));
}

#[test]
fn a_store_that_begins_on_a_full_disk_is_no_sigbus() {
    check("store");
}

/// Imports an increment with less space than it needs, and then with enough.
fn import_on_a_full_disk(small: &Small) {
    let (mut rng, scratch) = (Rng(13), common::ram().scratch());
    let sender = common::ram().options().create(true).open(scratch.file("sender")).expect("open");
    let (first, last) = (rng.bytes(1 << 20), rng.bytes(3 << 20));
    let mut streams = [Vec::new(), Vec::new()];
    sender.replace(&first).expect("replace");
    sender.snapshot("a").expect("seal");
    sender.export(None, "a", &mut streams[0]).expect("an export");
    sender.replace(&last).expect("replace");
    sender.snapshot("b").expect("seal");
    sender.export(Some("a"), "b", &mut streams[1]).expect("an export");
    let path = small.file("replica");
    let (replica, _) = small.options().import(&path, &streams[0][..]).expect("a new file");
    let mut refused = 0;
    for megabytes in 0..24 {
        small.fill(megabytes << 20);
        let imported = replica.import(&streams[1][..]);
        small.free();
        match imported {
            Ok(_) => break,
            Err(Error::NoSpace { .. }) => refused += 1,
            Err(e) => panic!("{megabytes} MiB: {e:?}"),
        }
        replica.health().expect("not poisoned");
        read_everywhere(&replica, &first);
        assert_eq!(replica.snapshots().len(), 1);
        assert_eq!(AtomicMappedFile::import_progress(&path).expect("progress"), 0);
    }
    assert!(refused > 3, "{refused} refusals");
    read_everywhere(&replica, &last);
    drop(replica);
    let replica = small.options().open(&path).expect("open");
    read_everywhere(&replica, &last);
    for (name, bytes) in [("a", &first), ("b", &last)] {
        let found = replica.open_snapshot(name).expect("open").read_vec().expect("read");
        assert_same(&found, bytes, name);
    }
}

#[test]
fn an_import_on_a_full_disk_is_an_error_that_changes_nothing() {
    check("import");
    check_on("import-dax");
}
