//! Tests that every page is allocated before it is stored to.
//!
//! The recording platform notes every allocation, hole and store. A store to an unallocated page
//! would be a SIGBUS on a full file system. Here it is a failure on any file system.

use crate::common::{
    self, Ground, Rng, crash, media, media_in_memory, role, run_child, wait_until,
};
use atomic_mmap::testing::entry::{OldBits, Seed, Sequence, Undo, UndoBody, WordId};
use atomic_mmap::testing::recorder::{Event, Recorder, What};
use atomic_mmap::testing::superblock::{Judged, SUPERBLOCK_LEN, Superblock, judge};
use atomic_mmap::testing::{FileId, LaneIndex, PageIndex, call, layout};
use atomic_mmap::{Allocation, AtomicMappedFile, CloseMode, Error};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const CHILD: &str = concat!(module_path!(), "::plays_the_child_if_it_is_one");
const PAGE: u64 = 4096;
/// Smallest block size of the supported file systems: ext4 on small disks.
const BLOCK: u64 = 1024;
const CHUNK: u64 = 2 << 20;
const LEN: u64 = 4 * CHUNK - 1000;

/// Leaves a pair in use, with a flip record for one bitmap word.
#[test]
fn plays_the_child_if_it_is_one() {
    let Some((_, path)) = role() else { return };
    let Some(ground) = common::dax() else { return };
    let file = ground.options().open(path).expect("open");
    file.write_at(&[7; 100], 5 * PAGE).expect("write");
    crash();
}

fn grounds() -> Vec<Ground> {
    [Some(common::ram()), common::dax()].into_iter().flatten().collect()
}

/// The allocated blocks of both files, and the lengths of the files.
#[derive(Default)]
struct Allocated {
    blocks: [BTreeSet<u64>; 2],
    lens: [Option<u64>; 2],
}

impl Allocated {
    fn of(&mut self, file: FileId) -> &mut BTreeSet<u64> {
        &mut self.blocks[usize::from(file == FileId::Reflection)]
    }

    fn has_page(&mut self, file: FileId, page: u64) -> bool {
        let len = self.lens[usize::from(file == FileId::Reflection)].unwrap_or(u64::MAX);
        let end = ((page + 1) * PAGE).min(len.div_ceil(BLOCK).saturating_mul(BLOCK));
        (page * PAGE / BLOCK..end.div_ceil(BLOCK)).all(|block| self.of(file).contains(&block))
    }

    /// Asks the file system for the blocks of both files.
    fn look(home: &Path, reflection: &Path) -> Allocated {
        let per_page = PAGE / BLOCK;
        let blocks = [home, reflection].map(|path| {
            let pages = pages_with_storage(path).into_iter();
            pages.flat_map(|page| page * per_page..(page + 1) * per_page).collect()
        });
        let len = |path: &Path| fs::metadata(path).ok().map(|told| told.len());
        Allocated { blocks, lens: [len(home), len(reflection)] }
    }

    /// Follows the trace. Panics at a store to a page with a hole in it, or at a flush of that
    /// page.
    #[track_caller]
    fn follow(&mut self, recorder: &Recorder, what: &str) {
        let blocks = |offset: u64, len: u64| offset / BLOCK..(offset + len).div_ceil(BLOCK);
        for event in recorder.take() {
            let (file, offset, len) = match event.what {
                What::Allocate { file, offset, len } => {
                    self.of(file).extend(blocks(offset, len));
                    continue;
                }
                What::Write { file, offset, bytes } => {
                    self.of(file).extend(blocks(offset, bytes.len() as u64));
                    continue;
                }
                What::Punch { file, offset, len } => {
                    let gone = offset.div_ceil(BLOCK)..(offset + len) / BLOCK;
                    self.of(file).retain(|block| !gone.contains(block));
                    continue;
                }
                What::SetLen { file, len } => {
                    self.of(file).retain(|block| block * BLOCK < len);
                    self.lens[usize::from(file == FileId::Reflection)] = Some(len);
                    continue;
                }
                What::Copy { file, offset, bytes, .. } => (file, offset, bytes.len() as u64),
                // A flush of an unallocated page would be a fault on persistent memory.
                What::Flush { file, offset, len } => (file, offset, len),
                What::Store { file, offset, .. } | What::CompareExchange { file, offset, .. } => {
                    (file, offset, 8)
                }
                _ => continue,
            };
            for page in offset / PAGE..(offset + len).div_ceil(PAGE) {
                let whole = self.has_page(file, page);
                assert!(whole, "{what}: {file:?} page {page} has a hole");
            }
        }
    }
}

fn pages_with_storage(path: &Path) -> BTreeSet<u64> {
    let Ok(file) = File::open(path) else { return BTreeSet::new() };
    let seek = |from: u64, how: libc::c_int| {
        // SAFETY: the file descriptor is live, and no other code uses its position.
        u64::try_from(unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, how) }).ok()
    };
    let mut pages = BTreeSet::new();
    let mut at = 0;
    while let Some(data) = seek(at, libc::SEEK_DATA) {
        at = seek(data, libc::SEEK_HOLE).expect("an end");
        pages.extend(data / PAGE..at.div_ceil(PAGE));
    }
    pages
}

fn random_op(file: &AtomicMappedFile, rng: &mut Rng) -> Result<(), Error> {
    let len = file.len();
    let size = [8, 100, 300, PAGE, 5000, 3 * PAGE, 300_000][rng.below(7) as usize].min(len);
    let at = rng.below(len - size + 1);
    let at = if rng.below(2) == 0 { at / PAGE * PAGE } else { at };
    let data = rng.bytes(size as usize);
    match rng.below(22) {
        20..=21 => {
            let mut stage = file.stage(at..at + size)?;
            stage.fill_from(&mut &data[..], 0..size)?;
            stage.commit()
        }
        0..=9 => file.write_at(&data, at),
        10..=12 => file.transact(|tx| {
            tx.write_at(&data, at)?;
            tx.write_at(&[1; 40], rng.below(len - 40))
        }),
        13..=14 => {
            let view = file.view(at..at + size)?;
            file.write_at(&data, at)?;
            file.write_at(&data[1..], at)?;
            drop(view);
            Ok(())
        }
        15 => file.deploy(0..len).map(|_| ()),
        16 if len > CHUNK + layout::BATCH as u64 * PAGE => write_deploy_and_write(file),
        16 => grow_within_the_last_page(file),
        17 => file.set_len(1000 + rng.below(LEN)),
        18 => file.set_len(LEN + rng.below(3) * PAGE),
        _ => file.read_at(&mut vec![0; size as usize], at),
    }
}

/// Writes more bitmap words than a lane holds.
fn write_many_words(file: &AtomicMappedFile) {
    let pages = (0..360).step_by(3);
    file.transact(|tx| pages.clone().try_for_each(|n| tx.write_at(&[7; 9], n * PAGE)))
        .expect("write");
}

/// Grows the file within its last page. Where blocks are smaller than a page, the page is in use
/// but the blocks past the old end are not allocated.
fn grow_within_the_last_page(file: &AtomicMappedFile) -> Result<(), Error> {
    let page = file.len() / PAGE * PAGE;
    file.set_len(page + 1000)?;
    (1..4u8).try_for_each(|n| file.write_at(&[n; 500], page + 100))?;
    file.set_len(page + PAGE)?;
    (1..4u8).try_for_each(|n| file.write_at(&[n; 500], page + 3000))
}

/// Writes to a page and deploys it, then fills a batch of flip records. The lane flushes the words
/// of a deployed page when the batch ends. The batch is of another chunk, so that the words stay
/// given back.
fn write_deploy_and_write(file: &AtomicMappedFile) -> Result<(), Error> {
    file.write_at(&[1; PAGE as usize], 0)?;
    file.write_at(&[2; 50], 0)?;
    file.deploy(0..file.len())?;
    (0..layout::BATCH as u64).try_for_each(|n| file.write_at(&[3; 50], CHUNK + n * PAGE))
}

#[test]
fn nothing_is_stored_to_a_hole() {
    for ground in grounds() {
        for seed in 0..6 {
            let scratch = ground.scratch();
            let path = scratch.file("state.dat");
            let recorder = Recorder::new();
            let mut rng = Rng(seed);
            let mut allocated = Allocated::default();
            for session in 0..3 {
                let options = ground.options().create(true).len(LEN).max_len(2 * LEN);
                let options = options.allocation(match (seed + session) % 3 {
                    0 => Allocation::OnDemand,
                    1 => Allocation::Ahead,
                    _ => Allocation::Full,
                });
                let file = options.open_recorded(&recorder, &path).expect("open");
                match seed % 2 {
                    _ if session != 0 => {}
                    0 => write_many_words(&file),
                    // Small writes alone: their flip records are the first use of a lane.
                    _ => (0..3).for_each(|n| file.write_at(&[n; 50], 5 * PAGE).expect("write")),
                }
                for n in 0..40 {
                    // Sometimes no whole chunk can be allocated. The engine then allocates only
                    // what it needs.
                    if rng.below(8) == 0 {
                        recorder.fail_next(call::ALLOCATE, 1, libc::ENOSPC);
                    }
                    match random_op(&file, &mut rng) {
                        Ok(()) | Err(Error::NoSpace { .. }) => {}
                        Err(e) => panic!("{e}"),
                    }
                    recorder.heal();
                    let what = format!("{}, seed {seed}, {session}, op {n}", ground.medium);
                    allocated.follow(&recorder, &what);
                }
                file.close(CloseMode::Fast).expect("close");
            }
        }
    }
}

/// Returns how many allocations of slots and words were made since the trace was taken last.
fn allocations(recorder: &Recorder) -> usize {
    let is_one = |event: &Event| match event.what {
        What::Allocate { file: FileId::Home, .. } => true,
        What::Allocate { file: FileId::Reflection, offset, .. } => offset >= layout::superchunk(0),
        _ => false,
    };
    recorder.take().iter().filter(|event| is_one(event)).count()
}

/// A service that must not fail on a full disk asks for all storage at once.
#[test]
fn a_file_that_is_allocated_in_full_needs_nothing_later() {
    for ground in media() {
        let scratch = ground.scratch();
        let recorder = Recorder::new();
        let options = ground.options().create(true).len(LEN).max_len(3 * LEN);
        let options = options.allocation(Allocation::Full);
        let file = options.open_recorded(&recorder, scratch.file("state.dat")).expect("open");
        assert!(allocations(&recorder) > 0);
        let mut rng = Rng(5);
        for round in 0..2 {
            let len = file.len();
            for n in 0..200 {
                let size = [8, 64, 1000, PAGE, 3 * PAGE + 5][rng.below(5) as usize];
                let data = rng.bytes(size as usize);
                file.write_at(&data, rng.below(len - size)).expect("write");
                // Free slots of a page may belong to the last durable point.
                if n % 50 == 0 {
                    file.sync().expect("sync");
                }
            }
            assert_eq!(allocations(&recorder), 0, "{}, round {round}", ground.medium);
            file.set_len(2 * LEN).expect("longer");
            assert!(round > 0 || allocations(&recorder) > 0);
        }
    }
}

#[test]
fn a_full_disk_fails_the_open_that_allocates_in_full_and_leaves_nothing() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let recorder = Recorder::new();
        let options = ground.options().create(true).len(LEN).max_len(3 * LEN);
        let options = options.allocation(Allocation::Full);
        let all = {
            let file = options.clone().open_recorded(&recorder, &path).expect("open");
            drop(file);
            fs::remove_file(&path).expect("removed");
            let of_slots = |event: &Event| matches!(event.what, What::Allocate { .. });
            recorder.take().iter().filter(|event| of_slots(event)).count()
        };
        recorder.fail_from(call::ALLOCATE, all, libc::ENOSPC);
        match options.clone().open_recorded(&recorder, &path) {
            Err(Error::NoSpace { .. }) => {}
            other => panic!("{}: {other:?}", ground.medium),
        }
        recorder.heal();
        assert_eq!(fs::read_dir(scratch.path()).expect("a folder").count(), 0, "{}", ground.medium);
        let file = options.open_recorded(&recorder, &path).expect("open");
        file.write_at(b"before", 0).expect("write");
        recorder.fail_from(call::ALLOCATE, 4, libc::ENOSPC);
        let grown = file.set_len(2 * LEN);
        assert!(matches!(grown, Err(Error::NoSpace { .. })), "{}: {grown:?}", ground.medium);
        recorder.heal();
        assert_eq!(file.len(), LEN);
        file.set_len(2 * LEN).expect("longer");
        assert_eq!(file.load::<[u8; 6]>(0).expect("read"), *b"before");
    }
}

/// The background thread allocates the chunks to come, and writers find them.
#[test]
fn chunks_are_allocated_before_a_sequential_writer_comes_to_them() {
    for ground in media_in_memory() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let options = ground.options().create(true).len(8 * CHUNK);
        let file = options.allocation(Allocation::Ahead).open(&path).expect("open");
        let write = |chunk: u64| {
            for at in (chunk * CHUNK..(chunk + 1) * CHUNK).step_by(1 << 16) {
                file.write_at(&[chunk as u8 + 1; 1 << 16], at).expect("write");
            }
        };
        write(0);
        assert_eq!(file.stats().allocations_ahead, 0, "no writer goes on");
        for chunk in 1..5 {
            write(chunk);
            // Each chunk asks for the second one behind it.
            wait_until("the next chunks are there", || file.stats().allocations_ahead > chunk);
        }
        let storage = fs::metadata(file.reflection_path()).expect("a file").blocks() * 512;
        assert!(storage >= 7 * CHUNK, "{}: {storage}", ground.medium);
        (5..8).for_each(write);
        let mut found = vec![0; 8 << 21];
        file.read_at(&mut found, 0).expect("read");
        assert!(found.chunks(1 << 21).zip(1..).all(|(chunk, n)| chunk.iter().all(|b| *b == n)));
        file.close(CloseMode::Unsynced).expect("close");
    }
}

/// Returns how many bytes of the file are mapped by pages of 2 MiB.
fn in_huge_pages(path: &Path) -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").expect("mappings");
    let mut lines = maps.lines().skip_while(|line| !line.ends_with(&*path.to_string_lossy()));
    let told = lines.find_map(|line| line.strip_prefix("ShmemPmdMapped:")).expect("the file's");
    told.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// Returns `true` if files in the folder can use pages of 2 MiB: on tmpfs, since Linux 6.1.
fn has_huge_pages(folder: &Path) -> bool {
    const LEN: usize = CHUNK as usize;
    let path = folder.join("a-page-of-2-MiB");
    let file = File::create_new(&path).expect("a file");
    file.write_all_at(&[1; LEN], 0).expect("some bytes");
    let map =
        |at: *mut u8, len: usize, access: libc::c_int, how: libc::c_int, file: libc::c_int| {
            // SAFETY: the mapping is new. The kernel chooses its address, or it lies within the
            // mapping below.
            let map = unsafe { libc::mmap(at.cast(), len, access, how, file, 0) };
            assert_ne!(map, libc::MAP_FAILED);
            map.cast::<u8>()
        };
    // Twice the length, so that it contains a multiple of 2 MiB.
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let reserved = map(std::ptr::null_mut(), 2 * LEN, libc::PROT_NONE, anonymous, -1);
    let at = reserved.wrapping_add(reserved.addr().next_multiple_of(LEN) - reserved.addr());
    let (access, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
    map(at, LEN, access, how, file.as_raw_fd());
    // The value of `MADV_COLLAPSE` in linux/mman.h.
    let collapse = 25;
    // SAFETY: the range is the mapping, and the file has this length.
    let done = unsafe { libc::madvise(at.cast(), LEN, collapse) } == 0;
    // SAFETY: the mapping was made above and is not used any more.
    unsafe { libc::munmap(reserved.cast(), 2 * LEN) };
    fs::remove_file(path).expect("gone");
    done
}

/// On small pages each random write missed the TLB twice, and the first stores to a chunk took 512
/// page faults. A chunk that is hardly used stays in single pages: 100,000 scattered writes took a
/// chunk each.
#[test]
fn chunks_in_memory_are_single_pages_and_take_no_more_space() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let options = ground.options().create(true).len(3 * CHUNK - 5000);
    let file = options.open(&path).expect("open");
    let pages_in_use = || fs::metadata(&path).expect("a file").blocks() * 512 / PAGE;
    let write_three = |pages: u64| {
        for n in 0..3u8 {
            // The first write goes to the reflection file, the second one to the home file.
            for page in (0..2 * pages).step_by(2) {
                file.write_at(&[n; 100], CHUNK + page * PAGE + 77).expect("write");
                file.write_at(&[n; 100], 2 * CHUNK + page * PAGE + 77).expect("write");
            }
        }
    };
    write_three(30);
    assert_eq!(pages_in_use(), 60, "scattered pages alone");
    // A quarter, and one more.
    write_three(CHUNK / PAGE / 4 + 1);
    assert_eq!(pages_in_use(), 2 * CHUNK / PAGE - 1, "two chunks, as far as the file has them");
    let mut read = [0; 100];
    file.read_at(&mut read, CHUNK + 77).expect("read");
    assert_eq!(read, [2; 100]);
    if !has_huge_pages(path.parent().expect("a folder")) {
        eprintln!("skipped in part: this system makes no huge pages of files in memory");
        return;
    }
    assert_eq!(in_huge_pages(&path), CHUNK, "the whole chunk, and not the one at the end");
    assert_eq!(in_huge_pages(file.reflection_path()), CHUNK);
    // All pages but two are given back, and those two stay small pages.
    file.deploy(0..file.len()).expect("deploy");
    file.set_len(CHUNK + 5000).expect("shorter");
    assert_eq!(pages_in_use(), 2);
    file.read_at(&mut read, CHUNK + 77).expect("read");
    assert_eq!(read, [2; 100]);
}

/// Recovers a word with a valid flip record that was never stored, and a word that is
/// rolled back. A backup that drops pages of zeroes leaves holes at both places.
#[test]
fn what_is_recovered_is_not_stored_to_a_hole() {
    let Some(ground) = common::dax() else { return };
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let file = ground.options().create(true).len(LEN).open(&path).expect("open");
    let reflection = file.reflection_path().to_owned();
    file.close(CloseMode::Fast).expect("close");
    run_child(CHILD, "crash", &path);
    let word = layout::slice_word(PageIndex(5));
    let bytes = fs::OpenOptions::new().read(true).write(true).open(&reflection).expect("open");
    bytes.write_all_at(&[0; 8], word).expect("the word never arrived");
    let taken_back = PageIndex(1500);
    leave_undo_entry(&bytes, taken_back);
    for file in [&path, &reflection] {
        dig_holes(file);
    }
    let mut allocated = Allocated::look(&path, &reflection);
    assert!(!allocated.of(FileId::Reflection).contains(&(word / BLOCK)));
    let recorder = Recorder::new();
    let file = ground.options().open_recorded(&recorder, &path).expect("open");
    allocated.follow(&recorder, "recovery");
    for word in [word, layout::slice_word(taken_back)] {
        assert!(allocated.of(FileId::Reflection).contains(&(word / BLOCK)), "not recovered");
    }
    let mut found = [0; 100];
    file.read_at(&mut found, 5 * PAGE).expect("read");
    assert_eq!(found, [7; 100]);
    drop(file);
}

/// Leaves the undo record of an operation that was about to move a slice of `page`, in an unused
/// lane.
fn leave_undo_entry(reflection: &File, page: PageIndex) {
    let copies = layout::SUPERBLOCKS.map(|at| {
        let mut bytes = [0; SUPERBLOCK_LEN];
        reflection.read_exact_at(&mut bytes, at).expect("a superblock");
        Superblock::decode(&bytes)
    });
    let [a, b] = copies;
    let Judged::Valid(superblock) = judge(a, b) else { panic!("a whole superblock") };
    let lane = LaneIndex(layout::LANE_COUNT as u16 - 1);
    let words = vec![OldBits { word: WordId::Slice(page), mask: 1, old: 0 }];
    let entry = Undo { sequence: Sequence::FIRST, body: UndoBody::Inline(words) };
    let seed = Seed::new(&superblock.uuid, superblock.session).undo(lane);
    reflection.write_all_at(&entry.encode(seed), layout::undo_entry(lane)).expect("an entry");
}

/// Makes a hole of every page that holds zeroes only.
fn dig_holes(path: &Path) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).expect("open");
    for page in pages_with_storage(path) {
        let mut bytes = [0; PAGE as usize];
        let at = page * PAGE;
        if file.read_exact_at(&mut bytes, at).is_ok() && bytes.iter().all(|byte| *byte == 0) {
            let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: the file descriptor is live, and the file is not mapped.
            let done = unsafe {
                libc::fallocate(file.as_raw_fd(), how, at as libc::off_t, PAGE as libc::off_t)
            };
            assert_eq!(done, 0, "punch a hole");
        }
    }
}
