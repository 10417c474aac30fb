//! Tests of `deploy`.

use super::fixture::{new_file, open, options};
use crate::Medium;
use crate::engine::deploy::punch::PunchOutcome;
use crate::engine::deploy::region::{Pins, Which};
use crate::pair::page_table::known;
use crate::units::{CHUNK, ChunkIndex, PAGE, PageIndex, REGION, RegionIndex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A slice is valid at home now, and in the reflection file at the durable point. A deployment
/// makes durable points before it gives space back, but another thread may write in between.
#[test]
fn slots_of_the_durable_point_are_not_given_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let len = 2 << 20;
    let file = open(folder.path(), options(len).medium(Medium::PageCache));
    let slice = |n: u8| file.write_at(&[n; 64], 64).expect("a write");
    slice(1);
    file.sync().expect("a durable point");
    slice(2);
    let engine = file.engine();
    let region = engine.state.loaded(crate::units::RegionIndex(0)).expect("it was written");
    assert_eq!((region.validity(0).0, region.durable(0).0), (0, 0b10));
    assert_eq!(engine.punch_deployed(0..len).expect("no error"), 0);
    // After the next durable point the slots are free.
    file.sync().expect("a durable point");
    if cfg!(all(target_os = "linux", not(atomic_mmap_portable))) {
        assert_eq!(engine.punch_deployed(0..len).expect("no error"), 1);
    }
}

/// A page that its region bit has sent to the reflection file is deployed by that bit: no slice
/// words are allocated for it.
#[test]
fn a_region_word_deploys_the_pages_that_it_undeployed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = new_file(folder.path(), REGION as u64);
    let pages = |n: u64| n * PAGE as u64..(n + 8) * PAGE as u64;
    file.write_at(&[1; 8 * PAGE], pages(0).start).expect("a write");
    file.write_at(&[2; 8 * PAGE], pages(8).start).expect("a write");
    let region = file.engine().state.loaded(RegionIndex(0)).expect("it was written");
    assert_eq!(region.region_word(), 0xFFFF, "by the region's word");
    // First one page, under its own lock. Then pages of which one has a nonzero slice word by
    // now.
    assert_eq!(file.deploy(pages(0).start..PAGE as u64).expect("a deployment"), 1);
    assert_eq!((region.region_word(), region.pages[0].slice_word()), (0xFFFE, 0));
    file.write_at(&[3; 128], 64).expect("a write");
    file.write_at(&[4; 128], PAGE as u64).expect("a write");
    assert_eq!(file.engine().deploy(0..REGION as u64).expect("a deployment"), 16);
    assert_eq!(region.region_word(), 0b10, "both words have undeployed page 1");
    assert_eq!(region.pages[1].slice_word(), !0);
    // Zeroed, so that their storage can be given back.
    let before = region.lock.begin();
    file.engine().punch_deployed(0..REGION as u64).expect("no error");
    assert_eq!((region.region_word(), region.pages[1].slice_word()), (0, 0));
    assert_ne!(region.lock.begin(), before, "a reader may have seen one of the words before");
    assert_eq!((0..64).filter(|n| region.validity(*n).0 != 0).count(), 0);
    let mut read = vec![0; 16 * PAGE];
    file.read_at(&mut read, 0).expect("a read");
    let mut expected = [[1; 8 * PAGE], [2; 8 * PAGE]].concat();
    expected[64..192].fill(3);
    expected[PAGE..PAGE + 128].fill(4);
    assert!(read == expected);
}

/// Slices stay behind if their home slots belong to the durable point. So the page is not
/// deployed by its region bit, which would move all slices.
#[test]
fn a_region_bit_does_not_move_slices_that_stay_undeployed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = open(folder.path(), options(REGION as u64).medium(Medium::PageCache));
    file.write_at(&[1; 64], 64).expect("a write");
    file.sync().expect("a durable point");
    file.write_at(&[2; REGION], 0).expect("a write");
    file.sync().expect("a durable point");
    file.write_at(&[3; 64], 64).expect("a write");
    let engine = file.engine();
    let region = engine.state.loaded(RegionIndex(0)).expect("it was written");
    assert_eq!((region.validity(0).0, region.durable(0).0), (!0, !0b10));
    let own_word = region.pages[0].slice_word();
    assert!(region.region_bit(0) && own_word == 0, "its own word says nothing any more");
    engine.deploy_pages(0..REGION as u64, Pins::Respect, Which::All).expect("a deployment");
    assert_eq!(region.validity(0).0, 0b10);
    let mut read = [0; PAGE];
    file.read_at(&mut read, 0).expect("a read");
    assert!(read[64..128] == [3; 64] && read[..64] == [2; 64] && read[128..] == [2; PAGE - 128]);
}

/// A thread that is about to load a region finds its words, or finds that they have no storage. It
/// must not find storage that is given back right after.
#[test]
fn words_are_given_back_after_all_threads_that_may_load_their_region() {
    if cfg!(not(all(target_os = "linux", not(atomic_mmap_portable)))) {
        return; // The portable path gives nothing back.
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = new_file(folder.path(), CHUNK as u64);
    let engine = file.engine();
    // Words alone, without a slot: only the words are given back.
    file.load::<u8>(0).expect("a read");
    engine.ensure_slice_word(PageIndex(0)).expect("storage");
    let is_over = AtomicBool::new(false);
    let has_words = || engine.alloc_flags_of(PageIndex(0)) & known::SLICE_WORDS != 0;
    std::thread::scope(|scope| {
        let lane = engine.lane();
        let reading = lane.pin();
        scope.spawn(|| {
            engine.punch_chunk(ChunkIndex(0), |_| !0).expect("no error");
            is_over.store(true, Ordering::SeqCst);
        });
        while has_words() {
            assert!(!is_over.load(Ordering::SeqCst), "the words are kept");
            std::thread::yield_now();
        }
        // The flag is gone first. The storage goes after this read section.
        std::thread::sleep(Duration::from_millis(30));
        assert!(!is_over.load(Ordering::SeqCst), "the punch does not wait");
        drop(reading);
    });
    assert!(!has_words() && file.stats().punches == 1);
}

/// A chunk keeps its words while one of them is not zero.
#[test]
fn words_in_use_are_not_given_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = new_file(folder.path(), 2 * CHUNK as u64);
    let engine = file.engine();
    file.write_at(&[1; 64], 64).expect("a write");
    file.write_at(&[2; 64], (CHUNK - PAGE) as u64).expect("a write");
    file.engine().deploy(0..PAGE as u64).expect("a deployment");
    engine.punch_chunk(ChunkIndex(0), |_| !0).expect("no error");
    let has_words = || engine.alloc_flags_of(PageIndex(0)) & known::SLICE_WORDS != 0;
    assert!(has_words(), "a word of another region is not zero");
    assert_eq!(file.load::<u8>((CHUNK - PAGE) as u64).expect("a read"), 2);
    file.deploy(0..CHUNK as u64).expect("a deployment");
    assert_eq!(has_words(), cfg!(not(all(target_os = "linux", not(atomic_mmap_portable)))));
    // They are allocated anew by a write of more than a slice, which is no direct store.
    file.write_at(&[3; 128], 128).expect("a write");
    assert!(has_words());
    file.close(crate::CloseMode::Unsynced).expect("a close");
    let file = open(folder.path(), options(0));
    let found: [u8; 192] = file.load(0).expect("a read");
    assert_eq!([found[64], found[128]], [1, 3]);
}

/// A page that its region bit has sent to the reflection file has no word that is set. The next
/// durable point stores one. The crash lab's schedules found it stored to a hole.
#[test]
fn words_that_the_next_point_stores_are_not_given_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = open(folder.path(), options(CHUNK as u64).medium(Medium::PageCache));
    let engine = file.engine();
    file.write_at(&[1; 2 * PAGE], 0).expect("a write");
    let region = engine.state.loaded(RegionIndex(0)).expect("it was written");
    assert!(region.region_bit(0) && region.pages[0].slice_word() == 0);
    engine.punch_chunk(ChunkIndex(0), |_| !0).expect("no error");
    assert_ne!(engine.alloc_flags_of(PageIndex(0)) & known::SLICE_WORDS, 0);
    file.sync().expect("a durable point");
    assert_eq!(region.durable(0).0, !0);
}

/// The punch looks at the pages without locks, and waits for readers. A page that is written
/// meanwhile has its bytes where the look found none.
#[test]
fn a_page_that_is_written_while_a_punch_waits_is_not_given_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = new_file(folder.path(), CHUNK as u64);
    let engine = file.engine();
    // Both slots of the first pages have storage, and the pages are at home.
    let write = |n: u8| file.write_at(&[n; 4 * PAGE], 0).expect("a write");
    write(1);
    write(2);
    let region = engine.state.loaded(RegionIndex(0)).expect("it was written");
    assert_eq!(region.validity(0).0, 0);
    let written = |index| if index == RegionIndex(0) { 0xF } else { 0 };
    std::thread::scope(|scope| {
        let lane = engine.lane();
        let reading = lane.pin();
        let punch = scope.spawn(|| engine.punch_chunk(ChunkIndex(0), written).expect("no error"));
        // Long enough for its look, as a rule. Otherwise the look finds the write.
        std::thread::sleep(Duration::from_millis(30));
        scope.spawn(|| write(3)).join().expect("a write beside the punch");
        drop(reading);
        let outcome = punch.join().expect("a punch");
        assert_eq!(outcome, PunchOutcome::NothingToGive, "no page was as the look had found it");
    });
    assert_eq!(region.validity(0).0, !0, "the write went to the slots that the look had found");
    let found: [u8; 4 * PAGE] = file.load(0).expect("a read");
    assert!(found == [3; 4 * PAGE]);
}

/// Background deployment gives back the space of cold pages alone: a page that is often written is
/// at home every other time.
#[test]
fn pages_that_may_not_be_given_back_keep_their_storage() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = new_file(folder.path(), CHUNK as u64);
    let engine = file.engine();
    for n in 1..3 {
        file.write_at(&[n; 16 * PAGE], 0).expect("a write");
    }
    let storage = |n: usize| {
        let pages = n..n + 1;
        engine.has_storage(ChunkIndex(0), &pages).expect("no error")
    };
    engine.punch_chunk(ChunkIndex(0), |_| 0).expect("no error");
    assert!(storage(0) && storage(8));
    engine.punch_chunk(ChunkIndex(0), |_| !0xFF).expect("no error");
    if cfg!(all(target_os = "linux", not(atomic_mmap_portable))) {
        assert_eq!([storage(0), storage(7), storage(8), storage(15)], [true, true, false, false]);
    }
    let found: [u8; 16 * PAGE] = file.load(0).expect("a read");
    assert!(found == [2; 16 * PAGE]);
}
