//! Tests that a small file is cheap: descriptors, barriers, bytes of disk, mappings and threads.
//!
//! The limits are those that the guide states.

use crate::common::{self, Ground, Scratch, media, role, run_child};
use atomic_mmap::testing::recorder::{Event, Recorder, What};
use atomic_mmap::{AtomicMappedFile, CloseMode, Durability, Medium, Options};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const CHILD: &str = concat!(module_path!(), "::plays_the_child_if_it_is_one");
const LEN: u64 = 4096;
/// Most bytes of disk of a file of one page and its companions.
const DISK_BYTES: u64 = 200 << 10;
/// Most bytes of memory of the process for a file in use, but for its mapped pages.
const OWN_MEMORY: usize = 128 << 10;
/// Files that are open at one time in the usual tests. The ignored test opens 10,000.
const SOME: usize = 200;

#[test]
fn plays_the_child_if_it_is_one() {
    let Some((role, path)) = role() else { return };
    let (medium, count) = role.split_once(' ').expect("a medium and a number");
    let count = count.parse().expect("a number");
    let ground = media().into_iter().find(|ground| ground.medium.to_string() == medium);
    open_many(&ground.expect("a medium"), &path, count);
}

fn entries(folder: &str) -> usize {
    fs::read_dir(folder).expect("list").count()
}

fn mappings() -> usize {
    fs::read_to_string("/proc/self/maps").expect("the mappings").lines().count()
}

/// Returns the bytes of this process's own memory.
fn own_memory() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("the state of this process");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
}

/// Raises the limit of this process. Returns how many of `count` files it allows, with a message if
/// those are fewer.
fn allow_files(count: usize, each: usize) -> usize {
    /// Descriptors that the process needs besides.
    const OTHERS: usize = 50;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is writable.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    let needed = (count * each + OTHERS) as libc::rlim_t;
    let set = |most: libc::rlim_t| {
        // More than the hard limit needs a privilege.
        let wanted = libc::rlimit { rlim_cur: most, rlim_max: limit.rlim_max.max(most) };
        // SAFETY: the structure is readable, and the limit is that of this child.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const wanted) == 0 }
    };
    if limit.rlim_cur >= needed || set(needed) {
        return count;
    }
    assert!(set(limit.rlim_max), "the hard limit can be had");
    let fewer = (limit.rlim_max as usize).saturating_sub(OTHERS) / each;
    eprintln!("{} descriptors allow {fewer} of {count} files: the rest is skipped", limit.rlim_max);
    fewer
}

/// Opens `count` files, and counts what each takes while it is idle and while it is in use.
fn open_many(ground: &Ground, folder: &Path, count: usize) {
    let each = if ground.medium == Medium::PageCache { 3 } else { 2 };
    let count = allow_files(count, each);
    let open = |n: usize| {
        let options = ground.options().create(true).len(LEN);
        options.open(folder.join(format!("{n}.dat"))).expect("open")
    };
    // The first file makes what the process keeps: threads of the test, tables, caches.
    drop(open(count));
    let counts = || (entries("/proc/self/fd"), mappings(), entries("/proc/self/task"));
    let (before, memory) = (counts(), own_memory());
    let files: Vec<AtomicMappedFile> = (0..count).map(open).collect();
    for state in ["idle", "in use"] {
        let now = counts();
        // One more for the folder, which all of them share.
        assert_eq!(now.0 - before.0, count * each + 1, "descriptors, {state}");
        assert_eq!(now.2, before.2, "threads, {state}");
        // 10,000 files must stay below the system's default of 65,530 mappings.
        assert!(now.1 - before.1 <= count * 6, "{} mappings, {state}", now.1 - before.1);
        for (file, n) in files.iter().zip(1u64..) {
            for round in 0..2 {
                file.store(8, &(n + round)).expect("store");
                file.sync().expect("sync");
            }
        }
    }
    for (file, n) in files.iter().zip(1u64..) {
        assert_eq!(file.load::<u64>(8).expect("load"), n + 1);
    }
    let each = own_memory().saturating_sub(memory) / count;
    assert!(each <= OWN_MEMORY, "{each} bytes of memory for each file");
    // The lists of more files are large themselves.
    if count <= SOME {
        assert_no_huge_page_may_come();
    }
}

/// Fails if the kernel may back a sparsely used table with a huge page. A file takes 2 MiB for each
/// of these where the system gives huge pages unasked. Ten thousand files in use took 40 GiB there.
fn assert_no_huge_page_may_come() {
    const HUGE: usize = 2 << 20;
    /// At a multiple of this lies an arena of the allocator.
    const ARENA: usize = 64 << 20;
    let maps = fs::read_to_string("/proc/self/smaps").expect("the mappings");
    let mut large = None;
    let mut tables = 0;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().expect("a word");
        if let Some((from, to)) = first.split_once('-') {
            let at = |hex| usize::from_str_radix(hex, 16).expect("an address");
            let (access, inode) = (words.next(), words.nth(2));
            let is_table = access == Some("rw-p") && inode == Some("0") && words.next().is_none();
            let is_table = is_table && !at(from).is_multiple_of(ARENA);
            large = (is_table && at(to) - at(from) >= HUGE).then_some(line);
        } else if let (Some(mapping), "VmFlags:") = (large, first) {
            tables += 1;
            assert!(line.contains(" nh"), "{mapping} may get huge pages: {line}");
        }
    }
    assert!(tables > 0, "no table was looked at");
}

fn open_many_in_a_child(ground: &Ground, count: usize) {
    let scratch = ground.scratch();
    let output = run_child(CHILD, &format!("{} {count}", ground.medium), scratch.path());
    output.lines().filter(|line| line.contains("skipped")).for_each(|line| eprintln!("{line}"));
}

#[test]
fn each_of_many_files_takes_few_descriptors_few_mappings_and_no_thread() {
    for ground in media() {
        open_many_in_a_child(&ground, SOME);
    }
}

/// Takes a few seconds in memory, and a minute or more on a disk.
#[test]
#[ignore = "takes minutes: lab/long files"]
fn ten_thousand_files_are_open_in_one_process() {
    for ground in media() {
        open_many_in_a_child(&ground, 10_000);
    }
}

/// Returns the calls that wait for a disk.
fn barriers(recorder: &Recorder) -> Vec<Event> {
    let is_barrier = |event: &Event| {
        matches!(event.what, What::Sync { .. } | What::SyncDir { .. } | What::WriteDurably { .. })
    };
    recorder.take().into_iter().filter(is_barrier).collect()
}

#[test]
fn a_small_file_takes_few_barriers() {
    for ground in media() {
        let scratch = ground.scratch();
        let recorder = Recorder::new();
        let path = scratch.file("state.dat");
        let options = || ground.options().create(true).len(LEN);
        let open = || options().open_recorded(&recorder, &path).expect("open");
        // In this order: RAM, page cache, persistent memory.
        let check = |most: [usize; 3], what: &str| {
            let most = match ground.medium {
                Medium::Ram => most[0],
                Medium::PageCache => most[1],
                _ => most[2],
            };
            let found = barriers(&recorder);
            assert!(found.len() <= most, "{what} on {}: {found:#?}", ground.medium);
        };
        for mode in [CloseMode::Fast, CloseMode::Spatial] {
            let file = open();
            check(if mode == CloseMode::Fast { [0, 3, 3] } else { [0, 3, 1] }, "opening");
            file.write_at(b"something", 5).expect("write");
            file.sync().expect("sync");
            // The first point of a pair also syncs its new journal.
            check(if mode == CloseMode::Fast { [0, 4, 0] } else { [0, 3, 0] }, "the first point");
            file.write_at(b"more", 50).expect("write");
            file.sync().expect("sync");
            check([0, 1, 0], "each further point");
            file.close(mode).expect("close");
            check([0, 2, 2], "closing");
        }
    }
}

/// A shrink makes a durable point itself, and that point is the one of the `sync` that follows. The
/// first growth after it syncs both files, and each further point is one record again.
#[test]
fn a_shrink_that_is_durable_takes_one_barrier() {
    let Some(ground) = common::page_cache() else { return };
    let scratch = ground.scratch();
    let recorder = Recorder::new();
    let options = || ground.options().create(true).len(30_000);
    let path = scratch.file("document");
    let open = |options: Options| options.open_recorded(&recorder, &path).expect("open");
    let check = |expected: usize, what: &str| {
        let found = barriers(&recorder);
        assert_eq!(found.len(), expected, "{what}: {found:#?}");
    };
    let file = open(options());
    file.replace(&[1; 20_000]).and_then(|()| file.sync()).expect("the first point");
    barriers(&recorder);
    for len in [9000, 5000, 4096, 1] {
        file.replace(&vec![2; len]).expect("shorter");
        check(1, "a shorter document");
        assert_eq!(file.sync().expect("sync"), file.durable_number());
        check(0, "a sync with nothing to record");
        file.write_at(&[3], 0).and_then(|()| file.sync()).expect("a write");
        check(1, "a point after a shrink");
    }
    for (len, expected) in [(8000, 3), (9000, 1)] {
        file.replace(&vec![4; len]).and_then(|()| file.sync()).expect("longer");
        check(expected, "a growth");
    }
    // A growth and a shrink to the same length, and then to a shorter one.
    file.set_len(20_000).and_then(|()| file.set_len(9000)).expect("back");
    check(0, "the length of the last point");
    file.set_len(20_000).and_then(|()| file.set_len(8000)).expect("shorter");
    check(3, "a growth over truncated bytes, and a shrink");
    assert_eq!(file.read_vec().expect("read"), [4; 8000]);
    file.close(CloseMode::Fast).expect("close");
    let file = open(options().durability(Durability::EveryWrite));
    file.replace(&[5; 100]).expect("shorter");
    barriers(&recorder);
    file.replace(&[6; 50]).expect("shorter");
    check(1, "a shorter document of a file that makes each write durable");
    assert_eq!(file.read_vec().expect("read"), [6; 50]);
}

fn disk_bytes(scratch: &Scratch) -> u64 {
    let files = fs::read_dir(scratch.path()).expect("list");
    files.map(|file| file.expect("list").metadata().expect("stat").blocks() * 512).sum()
}

#[test]
fn a_small_file_takes_little_disk_however_often_it_is_written() {
    for ground in media() {
        let scratch = ground.scratch();
        let options = ground.options().create(true).len(LEN);
        let file = options.open(scratch.file("state.dat")).expect("open");
        for round in 0..300u64 {
            let taken = disk_bytes(&scratch);
            assert!(taken <= DISK_BYTES, "{taken} bytes in round {round} on {}", ground.medium);
            file.store(round % 500 * 8, &round).expect("store");
            file.sync().expect("sync");
        }
        file.close(CloseMode::Fast).expect("close");
        let taken = disk_bytes(&scratch);
        assert!(taken <= DISK_BYTES, "{taken} bytes after closing on {}", ground.medium);
    }
}
