//! Tests of `pair::stamps`.

use super::fixture::{fill, open, options};
use crate::pair::stamps::{LEAST, NOTED};
use crate::primitive::Ordering;
use crate::units::{CHUNK, PAGE, PageIndex, REGION, RegionIndex};
use crate::{AtomicMappedFile, CloseMode, Medium};
use std::ops::Range;

const LEN: u64 = 2 * CHUNK as u64;

const PAGES: u64 = LEN / PAGE as u64;

fn page(n: u64) -> Range<u64> {
    n * PAGE as u64..(n + 1) * PAGE as u64
}

/// Opens a pair in which every byte is `byte` and every page is deployed, but none is stamped.
fn file(folder: &std::path::Path, medium: Medium, byte: u8) -> AtomicMappedFile {
    let file = open(folder, options(LEN).medium(medium));
    fill(&file, byte, LEN);
    file
}

/// Returns `true` if the whole page is read by its stamp alone.
fn is_known(file: &AtomicMappedFile, n: u64) -> bool {
    let engine = file.engine();
    // Afterwards this thread has no unfenced publication.
    drop(engine.lane_fenced());
    let lane = engine.cached_lane().expect("a lane");
    let mut to = [0; PAGE];
    let is_known = engine.read_stamped(lane, &mut to, page(n).start);
    if is_known {
        let mut again = [0; PAGE];
        assert!(engine.read_page(lane, &mut again, page(n).start), "it is deployed");
        assert_eq!(to, again);
    }
    is_known
}

fn known(file: &AtomicMappedFile) -> Vec<u64> {
    (0..file.len().div_ceil(PAGE as u64)).filter(|n| is_known(file, *n)).collect()
}

/// Returns `true` if this system provides stamps at all; otherwise there is nothing to test.
fn has_words(file: &AtomicMappedFile) -> bool {
    let has_words = file.engine().stamps.make_word(PageIndex(0), LEN).is_some();
    assert!(has_words || !cfg!(unix) || cfg!(miri), "this system has such memory");
    has_words
}

#[test]
fn deployment_sets_stamps_and_writes_clear_them() {
    for medium in [Medium::Ram, Medium::PageCache] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), medium, 1);
        if !has_words(&file) {
            return;
        }
        assert!(known(&file).is_empty(), "{medium}");
        file.deploy(0..LEN).expect("a deployment");
        assert_eq!(known(&file).len() as u64, PAGES, "{medium}");
        let view = |range: Range<u64>| (medium == Medium::Ram).then(|| file.view(range));
        let pages = 64 * PAGE as u64;
        // Each way to write, and the pages that it writes.
        type Way<'a> = (&'a str, Box<dyn Fn() + 'a>, Range<u64>);
        let write = |at: u64, len: usize| file.write_at(&vec![2; len], at).expect("a write");
        let ways: [Way<'_>; 9] = [
            ("a slice", Box::new(|| write(64, 64)), 0..1),
            ("a piece of slices", Box::new(|| write(PAGE as u64 + 5, 100)), 1..2),
            ("a page", Box::new(|| write(2 * PAGE as u64, PAGE)), 2..3),
            ("a page but for a byte", Box::new(|| write(3 * PAGE as u64, PAGE - 1)), 3..4),
            ("pages", Box::new(|| write(4 * PAGE as u64, 4 * PAGE)), 4..8),
            ("pages and pieces", Box::new(|| write(8 * PAGE as u64 + 7, 9 * PAGE)), 8..18),
            ("a region", Box::new(|| write(pages, REGION)), 64..128),
            (
                "a transaction",
                Box::new(|| {
                    let write = |tx: &mut crate::Transaction<'_>| {
                        tx.load::<u8>(page(140).start)?;
                        tx.write_at(&[2], page(130).start)?;
                        tx.write_at(&[2], page(132).start)
                    };
                    file.transact(write).expect("a transaction");
                }),
                130..133,
            ),
            (
                "under a view",
                Box::new(|| {
                    write(page(150).start, 1);
                    file.deploy(page(150)).expect("home");
                    let view = view(page(150));
                    // The first write goes to the reflection file, the others through the log.
                    (0..3).for_each(|_| write(page(150).start + 10, 100));
                    drop(view);
                }),
                150..151,
            ),
        ];
        for (name, way, written) in ways {
            let before = known(&file);
            way();
            let is_written =
                |n: &u64| written.contains(n) && (name != "a transaction" || *n != 131);
            let expected: Vec<u64> = before.into_iter().filter(|n| !is_written(n)).collect();
            assert_eq!(known(&file), expected, "{medium}: {name}");
        }
        // The page moves to the reflection file, is deployed and stamped again. Where durable
        // points are kept, it is then stored to in place.
        file.deploy(page(0)).expect("home");
        write(64, 65);
        file.sync().expect("a durable point");
        write(64, 65);
        file.engine().stamp_sampled(PageIndex(0));
        assert!(is_known(&file, 0), "{medium}");
        let before = file.stats().redo_writes;
        file.write_at(&[3; 64], 64).expect("a write");
        let in_place = file.stats().redo_writes - before;
        assert_eq!(in_place, u64::from(medium == Medium::PageCache));
        assert!(!is_known(&file, 0), "{medium}");
        assert_eq!(file.load::<u8>(64).expect("a read"), 3);
        file.deploy(0..LEN).expect("a deployment");
        assert_eq!(known(&file).len() as u64, PAGES, "{medium}");
        file.close(CloseMode::Fast).expect("closed");
    }
}

#[test]
fn repeated_reads_of_a_deployed_page_set_its_stamp() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), Medium::Ram, 1);
    if !has_words(&file) {
        return;
    }
    file.load::<u8>(0).expect("a read");
    let read = |n: u64, times: u64| {
        for _ in 0..times {
            file.load::<u64>(page(n).start + 8).expect("a read");
        }
    };
    read(5, 2 * u64::from(NOTED));
    assert_eq!(known(&file), [5]);
    // Reads cycle over `NOTED` pages, one read in `NOTED` being sampled. In whole numbers it
    // takes a few cycles more until each page had its turn.
    (0..100 * u64::from(NOTED)).for_each(|n| read(20 + n % u64::from(NOTED), 1));
    assert_eq!(known(&file).len() as u64, 1 + u64::from(NOTED));
    // A page is not stamped if it is locked, not deployed, or cut in two by the end of the
    // file.
    let engine = file.engine();
    let region = engine.state.loaded(RegionIndex(0)).expect("loaded");
    let held = crate::lock::lock_page(&region.lock, &region.pages[6].lock);
    engine.stamp_sampled(PageIndex(6));
    assert!(!is_known(&file, 6), "no reader waits");
    drop(held);
    file.write_at(&[2; 65], page(7).start).expect("a write");
    engine.stamp_sampled(PageIndex(7));
    assert!(!is_known(&file, 7), "it is not deployed");
    engine.stamp_sampled(PageIndex(6));
    assert!(is_known(&file, 6));
    file.set_len(LEN - 1).expect("shorter");
    engine.stamp_sampled(PageIndex(PAGES - 1));
    assert!(!is_known(&file, PAGES - 1), "it is not inside the file from end to end");
}

/// A read by the stamp does not check the length.
#[test]
fn truncate_clears_stamps() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), Medium::Ram, 1);
    if !has_words(&file) {
        return;
    }
    for new in [LEN - 1, LEN - PAGE as u64, REGION as u64 + 10, 100, 0] {
        file.set_len(LEN).expect("longer");
        for _ in 0..2 {
            file.write_at(&vec![1; LEN as usize], 0).expect("a write");
        }
        file.deploy(0..LEN).expect("a deployment");
        file.load::<u8>(0).expect("a read");
        assert!(is_known(&file, PAGES - 1));
        file.set_len(new).expect("shorter");
        file.set_len(LEN).expect("longer");
        let whole = new / PAGE as u64;
        assert_eq!(known(&file), (0..whole).collect::<Vec<_>>(), "{new}");
    }
    // Nor is a page stamped while a shrink truncates.
    for _ in 0..2 {
        file.write_at(&[1; PAGE], 0).expect("a write");
    }
    file.load::<u8>(0).expect("a read");
    let engine = file.engine();
    engine.session.cutting.store(true, Ordering::SeqCst);
    engine.stamp_sampled(PageIndex(0));
    assert!(!is_known(&file, 0));
    engine.session.cutting.store(false, Ordering::SeqCst);
    engine.stamp_sampled(PageIndex(0));
    assert!(is_known(&file, 0));
}

/// On other systems it is unknown whether the home file has holes.
#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
#[test]
fn a_page_in_a_hole_gets_no_stamp() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = open(folder.path(), options(LEN));
    file.load::<u8>(0).expect("a read");
    assert!(has_words(&file));
    file.deploy(0..LEN).expect("nothing to deploy");
    file.engine().stamp_sampled(PageIndex(0));
    assert!(!is_known(&file, 0));
    for _ in 0..2 {
        file.write_at(&[1; 65], 0).expect("a write");
    }
    file.load::<u8>(0).expect("a read");
    file.engine().stamp_sampled(PageIndex(0));
    assert!(is_known(&file, 0), "it is no hole any more");
}

#[test]
fn a_read_checks_the_stamp_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), Medium::Ram, 1);
    if !has_words(&file) {
        return;
    }
    file.deploy(0..LEN).expect("a deployment");
    assert!(is_known(&file, 3));
    // Any other read of the page would find and set this flag.
    let region = file.engine().state.loaded(RegionIndex(0)).expect("loaded");
    region.set_home_loadable(false);
    assert_eq!(file.load::<u8>(page(3).start).expect("a read"), 1);
    assert!(!region.home_is_loadable(), "it was read otherwise");
    let mut two = [0; 2 * PAGE];
    file.read_at(&mut two, page(3).start + 8).expect("a read");
    assert!(two == [1; 2 * PAGE] && !region.home_is_loadable(), "so were several pages");
    file.write_at(&[1], page(3).start).expect("a write");
    region.set_home_loadable(false);
    file.load::<u8>(page(3).start + 100).expect("a read");
    assert!(region.home_is_loadable());
}

#[test]
fn consecutive_pages_are_read_by_their_stamps() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), Medium::Ram, 1);
    if !has_words(&file) {
        return;
    }
    let engine = file.engine();
    let by_words = |to: &mut [u8], offset: u64| {
        drop(engine.lane_fenced());
        let lane = engine.cached_lane().expect("a lane");
        engine.read_stamped_range(lane, to, offset)
    };
    let at = |len: usize, offset: u64| by_words(&mut vec![0; len], offset);
    assert!(!at(2 * PAGE, 0), "no page has a stamp yet");
    let data: Vec<u8> = (0..LEN).map(|n| (n % 251) as u8).collect();
    for _ in 0..2 {
        file.write_at(&data, 0).expect("a write");
    }
    file.deploy(0..LEN).expect("a deployment");
    // Within a page, over two pages, a region, a chunk, and the whole file.
    for (start, len) in [
        (5, 10),
        (4000, 200),
        (4096, 2 * PAGE),
        (REGION - 7, REGION + 9),
        (CHUNK - PAGE, 2 * PAGE),
        (0, LEN as usize),
    ] {
        let mut read = vec![0; len];
        let before = file.stats().reads;
        assert!(by_words(&mut read, start as u64) && read == data[start..][..len], "{start}");
        assert_eq!(file.stats().reads, before + 1, "it is counted");
    }
    let before = file.stats().reads;
    assert!(!at(2, LEN - 1) && !at(1, LEN) && !at(2, u64::MAX) && !at(1, u64::MAX));
    assert!(!at(0, 0) && !at(0, LEN) && !at(0, LEN + 1), "no stamp covers an empty range");
    // Only if all pages are stamped, the first one and the last one included.
    file.write_at(&[7], page(5).start).expect("a write");
    for (first, pages, is_known) in
        [(3, 2, true), (4, 2, false), (5, 2, false), (4, 3, false), (6, 2, true)]
    {
        assert_eq!(at(pages * PAGE, page(first).start), is_known, "{pages} from {first}");
    }
    assert_eq!(file.stats().reads, before + 2, "what was not read is not counted");
}

#[test]
fn pages_that_are_read_together_get_stamps() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), Medium::Ram, 1);
    if !has_words(&file) {
        return;
    }
    let read = |first: u64, pages: usize| {
        let mut to = vec![0; pages * PAGE];
        (0..2 * NOTED).for_each(|_| file.read_at(&mut to, page(first).start).expect("a read"));
    };
    read(62, 4);
    assert_eq!(known(&file), [62, 63, 64, 65], "of two regions");
    file.write_at(&[7; 65], page(8).start).expect("a write");
    read(7, 3);
    assert_eq!(known(&file), [62, 63, 64, 65], "one of them is not deployed");
}

/// A file that became much longer since its stamps were created has none for the added pages.
#[test]
fn pages_without_a_stamp_are_read_all_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), Medium::Ram, 1);
    if !has_words(&file) {
        return;
    }
    let at = 2 * LEAST;
    file.set_len(at + PAGE as u64).expect("longer");
    for _ in 0..2 {
        file.write_at(&[7; PAGE], at).expect("a write");
    }
    file.deploy(at..at + PAGE as u64).expect("a deployment");
    assert!(!is_known(&file, at / PAGE as u64));
    // No read takes the page's lock to find that out again.
    let may_have_word = |at| file.engine().stamps.may_have_word(PageIndex::of(at));
    assert!(!may_have_word(at) && may_have_word(0));
    (0..2 * NOTED).for_each(|_| assert_eq!(file.load::<u8>(at).expect("a read"), 7));
    assert!(!is_known(&file, at / PAGE as u64));
}

/// One thread reads by stamps while another one writes, deploys and truncates. All bytes of one
/// page are of one state; so are those of two pages that were written together.
#[test]
fn stamped_reads_see_one_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), Medium::Ram, 0);
    if !has_words(&file) {
        return;
    }
    let [is_done, is_enough] = [const { std::sync::atomic::AtomicBool::new(false) }; 2];
    let by_word = std::thread::scope(|s| {
        s.spawn(|| {
            // Continues until there was one read of each kind, however busy the machine is.
            let goes_on = |round: &u64| *round <= 2000 || !is_enough.load(Ordering::SeqCst);
            for round in (1..1_000_000u64).take_while(goes_on) {
                let fill = round as u8;
                for n in 0..4 {
                    file.write_at(&[fill; PAGE], page(n).start).expect("a write");
                }
                file.write_at(&[fill; 2 * PAGE], page(4).start).expect("a write");
                file.deploy(0..6 * PAGE as u64).expect("a deployment");
                if round % 100 == 0 {
                    file.set_len(PAGE as u64 + 5).expect("shorter");
                    file.set_len(LEN).expect("longer");
                }
            }
            is_done.store(true, Ordering::SeqCst);
        });
        let (mut by_word, mut by_words) = (0, 0);
        let (mut to, mut both) = ([0; PAGE], [0; 2 * PAGE]);
        let engine = file.engine();
        while !is_done.load(Ordering::SeqCst) {
            file.load::<u8>(0).expect("a read");
            for n in 0..4 {
                let Some(lane) = engine.cached_lane() else { continue };
                if engine.read_stamped(lane, &mut to, page(n).start) {
                    assert!(to.iter().all(|byte| *byte == to[0]), "torn");
                    by_word += 1;
                }
            }
            let Some(lane) = engine.cached_lane() else { continue };
            if engine.read_stamped_range(lane, &mut both, page(4).start) {
                assert!(both.iter().all(|byte| *byte == both[0]), "torn");
                by_words += 1;
            }
            is_enough.fetch_or(by_word > 0 && by_words > 0, Ordering::SeqCst);
        }
        [by_word, by_words]
    });
    assert!(by_word.into_iter().all(|reads| reads > 0), "nothing was read by a word");
}
