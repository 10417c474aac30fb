//! Tests that a crash leaves each page its sum, where random tests on files with sums cannot tell.
//!
//! Like [`crate::durable`], with files that have sums. A copy of the files holds all that the
//! kernel would have written back, or not.

use super::{LEN, PAGE, options};
use crate::common::{Rng, Scratch, assert_same, crash, dax, media, read_all, role, run_child};
use crate::durable::{ground, restarted};
use atomic_mmap::testing::recorder::{Recorder, What};
use atomic_mmap::testing::{FileId, PageIndex, layout};
use atomic_mmap::{AtomicMappedFile, CloseMode, Integrity, Medium};
use std::os::unix::fs::FileExt;

/// Makes a file, and a durable point by which both files are synced. No record holds its sums.
fn synced(ground: &crate::common::Ground) -> (Scratch, AtomicMappedFile, Vec<u8>) {
    let scratch = ground.scratch();
    let file = options(ground).len(PAGE).open(scratch.file("state.dat")).expect("open");
    // The first growth asks for that.
    file.set_len(LEN).expect("grow");
    let bytes = Rng(21).bytes(LEN as usize);
    file.write_at(&bytes, 0).expect("write");
    let before = file.stats().flush_points;
    file.sync().expect("sync");
    assert_eq!(file.stats().flush_points, before + 1, "the point syncs both files");
    (scratch, file, bytes)
}

/// Later sums must not go over those of the last durable point, which no record repeats.
#[test]
fn pages_of_a_durable_point_keep_their_sums_beside_later_writes() {
    let Some(ground) = ground() else { return };
    let (scratch, file, bytes) = synced(&ground);
    for times in 1..5 {
        for page in 0..LEN / PAGE {
            file.write_at(&[times; 100], page * PAGE + 70 * u64::from(times)).expect("write");
        }
        let found = restarted(&ground, &scratch.file("state.dat")).open(&ground);
        assert_same(&read_all(&found), &bytes, &format!("the point, after {times} writes"));
        assert_eq!(found.verify(0..LEN).expect("verify").damaged, []);
    }
}

/// The record of a point is all that is durable of it. The places have the sums of an older point.
#[test]
fn a_record_brings_the_sums_of_its_pages() {
    let Some(ground) = ground() else { return };
    let (scratch, file, mut bytes) = synced(&ground);
    let at = layout::page_sums(PageIndex(3));
    let mut older = [0; layout::PAGE_SUMS_LEN];
    let reflection = std::fs::File::open(file.reflection_path()).expect("open");
    reflection.read_exact_at(&mut older, at).expect("read");
    file.write_at(&[5; 300], 3 * PAGE + 200).expect("write");
    bytes[3 * PAGE as usize + 200..][..300].fill(5);
    let before = file.stats().journal_points;
    file.sync().expect("sync");
    assert_eq!(file.stats().journal_points, before + 1, "the journal has a record of the point");
    let image = restarted(&ground, &scratch.file("state.dat"));
    image.reflection().write_all_at(&older, at).expect("write");
    let found = image.open(&ground);
    assert_same(&read_all(&found), &bytes, "the last point");
}

/// A superblock that says that there are sums must find all of them on the medium.
#[test]
fn the_first_sums_are_durable_before_a_superblock_tells_of_them() {
    for ground in media().into_iter().filter(|ground| ground.medium != Medium::Ram) {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let plain = ground.options().create(true).len(LEN).integrity(Integrity::Off);
        let file = plain.open(&path).expect("open");
        file.write_at(&Rng(22).bytes(LEN as usize), 0).expect("write");
        file.close(CloseMode::Fast).expect("close");
        let recorder = Recorder::new();
        let file = options(&ground).open_recorded(&recorder, &path).expect("open with sums");
        let events: Vec<What> = recorder.take().into_iter().map(|event| event.what).collect();
        let sums = layout::page_sums(PageIndex(0))..layout::page_sums(PageIndex(LEN / PAGE + 1));
        let last = events.iter().rposition(|what| {
            matches!(what, What::Copy { file: FileId::Reflection, offset, .. }
                if sums.contains(offset))
        });
        let after = &events[last.expect("sums are stored")..];
        let superblock = after.iter().position(|what| match what {
            What::Copy { file: FileId::Reflection, offset, .. }
            | What::Write { file: FileId::Reflection, offset, .. }
            | What::WriteDurably { file: FileId::Reflection, offset, .. } => {
                layout::SUPERBLOCKS.contains(offset)
            }
            _ => false,
        });
        let between = &after[..superblock.expect("a superblock tells of them")];
        let is_sync =
            |what: &What| matches!(what, What::Sync { file: FileId::Reflection, all: true });
        assert!(between.iter().any(is_sync), "{}: {between:?}", ground.medium);
        drop(file);
    }
}

const CHILD: &str = concat!(module_path!(), "::plays_the_child_if_it_is_one");

#[test]
fn plays_the_child_if_it_is_one() {
    let Some((what, path)) = role() else { return };
    let Some(ground) = dax() else { return };
    let file = options(&ground).len(LEN).open(path).expect("open");
    let write = |slice: u64, page: u64| {
        file.write_at(&[slice as u8 + 1; 64], page * PAGE + slice * 64).expect("write");
    };
    match &*what {
        "other slices by a transaction" => {
            write(0, 3);
            // Slices of the page that no record names, and some of the next page.
            file.write_at(&[7; 128], 4 * PAGE - 64).expect("write");
        }
        "other slices by another thread" => {
            // In both orders: recovery takes the records of one thread before those of the other.
            write(0, 3);
            std::thread::scope(|scope| {
                scope.spawn(|| [3, 4].map(|page| write(5, page)));
            });
            write(0, 4);
        }
        other => panic!("{other}"),
    }
    crash();
}

/// A flip record has the sum of its whole page. Once another operation has changed other slices of
/// the page, recovery must not store that sum.
#[test]
fn recovery_brings_back_no_older_sum_of_a_page() {
    let Some(ground) = dax() else { return };
    for what in ["other slices by a transaction", "other slices by another thread"] {
        let scratch = ground.scratch();
        run_child(CHILD, what, scratch.file("state.dat"));
        let file = options(&ground).open(scratch.file("state.dat")).expect("open");
        assert_eq!(file.verify(0..LEN).expect("verify").damaged, [], "{what}");
    }
}
