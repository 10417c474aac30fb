//! Tests of background deployment and of the budget of the companions.

use crate::common::{Ground, Rng, Scratch, assert_same, media, role, run_child, wait_until};
use atomic_mmap::testing::recorder::{Recorder, What};
use atomic_mmap::testing::{FileId, PageIndex, RegionIndex, layout};
use atomic_mmap::{AtomicMappedFile, CloseMode, DeployPolicy, Durability, Medium, Options};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const CHILD: &str = concat!(module_path!(), "::a_killed_process_with_a_worker_leaves_whole_writes");
const PAGE: usize = 4096;
const MIB: u64 = 1 << 20;
/// The least budget, with the shortest journal.
const BUDGET: u64 = 4 * MIB + 2 * JOURNAL;
const JOURNAL: u64 = 64 << 10;

fn options(ground: &Ground, len: u64) -> Options {
    ground.options().create(true).len(len).journal_len(JOURNAL)
}

/// Returns the bytes of storage of all companions in the folder.
fn taken(scratch: &Scratch) -> u64 {
    let entries = fs::read_dir(scratch.path()).expect("a folder").filter_map(Result::ok);
    let ours = entries.filter(|one| one.file_name().to_string_lossy().starts_with(".atomic-mmap."));
    ours.filter_map(|one| one.metadata().ok()).map(|told| told.blocks() * 512).sum()
}

/// Writes at random places, and keeps a copy.
fn write_at_random(file: &AtomicMappedFile, model: &mut [u8], rng: &mut Rng, times: u64) {
    for _ in 0..times {
        let size = [8, 64, 1000, PAGE, 3 * PAGE + 5][rng.below(5) as usize];
        let at = rng.below((model.len() - size) as u64) as usize;
        let data = rng.bytes(size);
        file.write_at(&data, at as u64).expect("write");
        model[at..at + size].copy_from_slice(&data);
    }
}

#[track_caller]
fn assert_holds(file: &AtomicMappedFile, model: &[u8]) {
    let mut found = vec![0; model.len()];
    file.read_at(&mut found, 0).expect("read");
    assert_same(&found, model, "the file");
}

#[test]
fn an_idle_file_comes_home_and_its_space_is_given_back() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let options = options(&ground, 8 * MIB).deploy_idle(Duration::from_millis(5));
        let file = options.open(&path).expect("open");
        let mut model = vec![0; 8 << 20];
        write_at_random(&file, &mut model, &mut Rng(1), 500);
        let before = taken(&scratch);
        wait_until("nothing is left", || file.stats().reflection_allocated == 0);
        assert!(taken(&scratch) < before, "{}", ground.medium);
        assert!(file.stats().cold_deployments > 0);
        assert_holds(&file, &model);
        assert_eq!(file.deploy(0..8 * MIB).expect("deploy"), 0, "all of it is at home");
        // Later writes come home as well.
        write_at_random(&file, &mut model, &mut Rng(2), 50);
        wait_until("nothing is left again", || file.stats().reflection_allocated == 0);
        file.close(CloseMode::Unsynced).expect("close");
        let file = ground.options().open(&path).expect("open");
        assert_holds(&file, &model);
    }
}

/// Changes since the last `sync` must be able to go back.
#[test]
fn with_atomic_sync_the_worker_makes_no_durable_point() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let options = options(&ground, MIB).durability(Durability::AtomicSync);
        let file = options.clone().deploy_idle(Duration::from_millis(1)).open(&path).expect("open");
        file.write_at(&[1; 5000], 100).expect("write");
        file.sync().expect("sync");
        wait_until("the save comes home", || file.stats().cold_deployments == 2);
        file.write_at(&[2; 5000], 100).expect("write");
        file.write_at(&[2; 5000], 500_000).expect("write");
        // Until the worker has looked twice, as its deployment of another page shows.
        file.sync().expect("sync");
        file.write_at(&[3; 5000], 100).expect("write");
        wait_until("what was synced comes home", || file.stats().cold_deployments >= 4);
        file.close(CloseMode::Unsynced).expect("close");
        let file = options.open(&path).expect("open");
        assert_eq!(file.load::<u8>(100).expect("load"), 2, "{}: no point since", ground.medium);
        assert_eq!(file.load::<u8>(500_000).expect("load"), 2);
    }
}

#[test]
fn the_companions_stay_below_their_budget() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let options = options(&ground, 32 * MIB).reflection_budget(0);
        let file = options.clone().open(&path).expect("open");
        let mut model = vec![0; 32 << 20];
        let mut rng = Rng(7);
        for _ in 0..60 {
            write_at_random(&file, &mut model, &mut rng, 100);
            assert!(taken(&scratch) <= BUDGET, "{}: {}", ground.medium, taken(&scratch));
        }
        // In a row: here the crate would allocate chunks ahead of need.
        for (n, page) in model.chunks_exact_mut(PAGE).enumerate() {
            file.write_at(&[n as u8; PAGE], (n * PAGE) as u64).expect("write");
            page.fill(n as u8);
            assert!(n % 32 != 0 || taken(&scratch) <= BUDGET, "{}", ground.medium);
        }
        assert_holds(&file, &model);
        file.close(CloseMode::Fast).expect("close");
        // A session without a budget leaves more than the next one may take.
        let file = ground.options().open(&path).expect("open");
        for at in (0..32 * MIB).step_by(8192) {
            file.write_at(&[9; 100], at).expect("write");
            model[at as usize..][..100].fill(9);
        }
        file.close(CloseMode::Fast).expect("close");
        assert!(taken(&scratch) > BUDGET);
        let file = options.open(&path).expect("open");
        wait_until("the budget is met", || taken(&scratch) <= BUDGET);
        assert_holds(&file, &model);
    }
}

/// A budget delays, and never fails an operation: not one that is larger, not beside pins, and not
/// a save that `AtomicSync` holds together.
#[test]
fn what_no_space_can_be_given_back_for_takes_more() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let options = options(&ground, 16 * MIB).reflection_budget(0);
        let file = options.clone().open(&path).expect("open");
        let large = Rng(3).bytes(12 << 20);
        file.write_at(&large, 1000).expect("one operation");
        let views: Vec<_> =
            (0..16).map(|n| file.view(n * MIB..(n + 1) * MIB).expect("view")).collect();
        file.write_at(&large, 999).expect("under views");
        drop(views);
        file.write_at(&[1; 100], 5).expect("after them");
        wait_until("the budget is met", || taken(&scratch) <= BUDGET);
        file.close(CloseMode::Spatial).expect("close");

        let file = options.durability(Durability::AtomicSync).open(&path).expect("open");
        let mut model = vec![0; 16 << 20];
        file.read_at(&mut model, 0).expect("read");
        for n in 0..2000 {
            let at = n * 8000;
            file.write_at(&[n as u8; 4096], at).expect("a part of the save");
            model[at as usize..][..4096].fill(n as u8);
        }
        // A save gives back what the save before it has left.
        wait_until("the budget is met", || {
            file.sync().expect("the save");
            taken(&scratch) <= BUDGET
        });
        assert_holds(&file, &model);
    }
}

/// Media without durable points: elsewhere a write changes a slice, and that stays until a point.
#[test]
fn writes_deploy_as_the_policy_of_the_moment_says() {
    for ground in media().into_iter().filter(|ground| ground.medium != Medium::PageCache) {
        let scratch = ground.scratch();
        let options = options(&ground, MIB).deploy(DeployPolicy::Manual);
        let file = options.open(scratch.file("state.dat")).expect("open");
        // More than a slice, which is no direct store.
        let deployed_by_write = |n: u8| {
            let before = file.stats().deployments;
            file.write_at(&[n; 100], 60).expect("write");
            file.stats().deployments - before
        };
        assert_eq!(deployed_by_write(1), 0, "{}", ground.medium);
        assert_eq!(file.deploy_policy(), DeployPolicy::Manual);
        let before = file.stats().deployments;
        file.write_at_eager(&[2; 100], 300).expect("write");
        assert_eq!(file.stats().deployments - before, 1, "of the page with both writes");
        file.set_deploy_policy(DeployPolicy::Eager);
        assert_eq!(deployed_by_write(3), 1);
        // A page that only writes come to stays where it is.
        file.set_deploy_policy(DeployPolicy::Adaptive);
        assert_eq!([deployed_by_write(4), deployed_by_write(5), deployed_by_write(6)], [0; 3]);
        file.deploy(0..MIB).expect("deploy");
        for n in 7..10 {
            for _ in 0..200 {
                file.load::<u64>(64).expect("read");
            }
            assert_eq!(deployed_by_write(n), 1, "{}: it is read often", ground.medium);
        }
        assert_eq!(deployed_by_write(10), 0, "no reader has come since");
        let found: [u8; 100] = file.load(60).expect("read");
        assert_eq!(found, [10; 100]);
    }
}

#[test]
fn stages_heed_the_budget_as_writes_do() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let options = options(&ground, 32 * MIB).reflection_budget(0);
        let file = options.open(&path).expect("open");
        let mut model = vec![0; 32 << 20];
        for (n, bytes) in model.chunks_exact_mut(512 << 10).enumerate() {
            bytes.fill(n as u8 + 1);
            let at = (n * bytes.len()) as u64;
            let mut stage = file.stage(at..at + bytes.len() as u64).expect("stage");
            stage.write_at(bytes, 0).expect("fill");
            assert!(taken(&scratch) <= BUDGET, "{}: {}", ground.medium, taken(&scratch));
            stage.commit().expect("commit");
            assert!(taken(&scratch) <= BUDGET, "{}: {}", ground.medium, taken(&scratch));
        }
        assert_holds(&file, &model);
    }
}

/// One small write in each chunk of a sparse file took 2 MiB each in memory, and a page of words
/// with each page on a disk.
#[test]
fn sparse_writes_leave_nothing_once_they_have_come_home() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let options = options(&ground, 2 << 30).deploy_idle(Duration::from_millis(20));
        let file = options.open(&path).expect("open");
        for chunk in 0..1024_u64 {
            file.write_at(&[chunk as u8 | 1; 64], chunk * 2 * MIB).expect("write");
        }
        let home = || fs::metadata(&path).expect("stat").blocks() * 512;
        wait_until("all is home", || file.stats().reflection_allocated == 0);
        let touched = 1024 * PAGE as u64;
        assert!(taken(&scratch) * 10 <= touched * 11, "{}: {}", ground.medium, taken(&scratch));
        // A file system counts the tree of the file's extents as well.
        assert!(home() * 10 <= touched * 11, "{}: {}", ground.medium, home());
        for chunk in 0..1024_u64 {
            let found: [u8; 64] = file.load(chunk * 2 * MIB).expect("load");
            assert_eq!(found, [chunk as u8 | 1; 64]);
            assert_eq!(file.load::<u64>(chunk * 2 * MIB + 64).expect("load"), 0);
        }
        assert!(home() * 10 <= touched * 11, "a read fills no hole");
    }
}

/// Each thread owns every fourth page, and fills it with one byte at a time.
#[test]
fn writers_and_readers_go_on_while_the_worker_deploys_and_punches() {
    const THREADS: usize = 4;
    const PAGES: usize = 4096;
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let options = options(&ground, (PAGES * PAGE) as u64).reflection_budget(0);
        let file = options.deploy_idle(Duration::from_millis(1)).open(&path).expect("open");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let file = &file;
                    scope.spawn(move || {
                        let mut rng = Rng(thread as u64);
                        let mut mine = vec![0_u8; PAGES / THREADS];
                        for n in 0..3000_u64 {
                            let place = rng.below(mine.len() as u64) as usize;
                            let at = ((place * THREADS + thread) * PAGE) as u64;
                            let mut found = [0; PAGE];
                            file.read_at(&mut found, at).expect("read");
                            assert_eq!(found, [mine[place]; PAGE], "page {}", at / PAGE as u64);
                            mine[place] = (n % 255) as u8 + 1;
                            file.write_at(&[mine[place]; PAGE], at).expect("write");
                        }
                    })
                })
                .collect();
            let reader = scope.spawn(|| {
                let mut rng = Rng(99);
                while !done.load(Ordering::Relaxed) {
                    let at = rng.below(PAGES as u64) * PAGE as u64;
                    let mut found = [0; PAGE];
                    file.read_at(&mut found, at).expect("read");
                    assert!(found.iter().all(|byte| *byte == found[0]), "a torn page at {at}");
                }
            });
            writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
            done.store(true, Ordering::Relaxed);
            reader.join().expect("a reader");
        });
    }
}

#[test]
fn a_killed_process_with_a_worker_leaves_whole_writes() {
    if let Some((_, path)) = role() {
        let ground = media().into_iter().find(|one| path.starts_with(&one.base)).expect("a ground");
        let options = options(&ground, 16 * MIB).reflection_budget(0);
        let file = options.deploy_idle(Duration::from_millis(1)).open(path).expect("open");
        for n in 0_u64.. {
            let at = (n * 7919 % 4096) * PAGE as u64;
            file.write_at(&[(n % 255) as u8 + 1; PAGE], at).expect("write");
            if n == 20_000 {
                crate::common::crash();
            }
        }
    }
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        run_child(CHILD, "writes", &path);
        let file = ground.options().open(&path).expect("open");
        for n in 15_905..=20_000_u64 {
            let mut found = [0; PAGE];
            let at = (n * 7919 % 4096) * PAGE as u64;
            file.read_at(&mut found, at).expect("read");
            assert_eq!(found, [(n % 255) as u8 + 1; PAGE], "{}: write {n}", ground.medium);
        }
    }
}

/// A page with set bits in both words is deployed. If one of the words were zeroed alone, a crash
/// would leave the page with the stale slots of the reflection file.
#[test]
fn both_words_of_a_deployed_page_are_zeroed_by_one_record() {
    let Some(ground) = crate::common::dax() else { return };
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let recorder = Recorder::new();
    let options = options(&ground, 2 * MIB).deploy(DeployPolicy::Manual);
    let file = options.open_recorded(&recorder, &path).expect("open");
    // By the region word to the reflection file, and one page back home by its slice word.
    file.write_at(&[1; 8 * PAGE], 0).expect("write");
    file.write_at(&[2; PAGE], PAGE as u64).expect("write");
    recorder.take();
    let before = file.stats();
    file.deploy(0..2 * MIB).expect("deploy");
    assert_eq!(file.stats().undo_writes, before.undo_writes, "it is no write of the program");
    let trace: Vec<What> = recorder.take().into_iter().map(|event| event.what).collect();
    let is_store =
        |what: &What, at: u64| matches!(what, What::Store { offset, .. } if *offset == at);
    let last = |at: u64| trace.iter().rposition(|what| is_store(what, at)).expect("a store");
    let words = [layout::region_word(RegionIndex(0)), layout::slice_word(PageIndex(1))].map(last);
    let (first, second) = (words[0].min(words[1]), words[0].max(words[1]));
    let lanes = layout::LANES..layout::LOG_AREA;
    let is_record = |what: &What| matches!(what, What::Copy { file: FileId::Reflection, offset, .. } if lanes.contains(offset));
    let record = trace[..first].iter().rposition(is_record).expect("an undo record");
    let drains = |range: std::ops::Range<usize>| {
        trace[range].iter().filter(|what| **what == What::Drain).count()
    };
    assert_eq!(drains(record..first), 1, "the record is durable before the words");
    assert_eq!(drains(first..second), 0, "the words are covered together");
    let is_end = |what: &What| matches!(what, What::Store { offset, value: 0, .. } if lanes.contains(offset));
    let end = second + trace[second..].iter().position(is_end).expect("the end of the record");
    assert_eq!(drains(second..end), 1, "the words are durable before the end");
    assert!(drains(end..trace.len()) >= 1, "the end is durable");
    assert_eq!(file.stats().reflection_allocated, 0);
}

/// Flip records name sides. A record that gave the slice word its old value at the next opening
/// would give the page its stale slots.
#[test]
fn flip_records_about_a_page_with_zeroed_words_do_no_harm() {
    let Some(ground) = crate::common::dax() else { return };
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let options = options(&ground, 2 * MIB).deploy(DeployPolicy::Manual);
    let file = options.clone().open(&path).expect("open");
    file.write_at(&[1; 8 * PAGE], 0).expect("write");
    for slice in 0..64 {
        file.write_at(&[2; 64], (PAGE + slice * 64) as u64).expect("write");
    }
    // A pinned page keeps the words of the chunk. Otherwise the records would go with them.
    let view = file.view(MIB..MIB + 100).expect("view");
    file.write_at(&[3; 100], MIB).expect("write");
    file.deploy(0..2 * MIB).expect("deploy");
    drop(view);
    file.close(CloseMode::Unsynced).expect("close");
    let file = options.open(&path).expect("open");
    let mut found = [0; 3 * PAGE];
    file.read_at(&mut found, 0).expect("read");
    assert!(found[..PAGE] == [1; PAGE] && found[2 * PAGE..] == [1; PAGE]);
    assert!(found[PAGE..2 * PAGE] == [2; PAGE]);
}
