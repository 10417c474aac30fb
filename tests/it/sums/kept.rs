//! Tests that nothing makes damage good, and that no step takes whole bytes for damaged.
//!
//! The model `docs/model/page_sums.py` found each of these histories in the code as it was first
//! written.

use super::{LEN, PAGE, options, written};
use crate::common::{Ground, Rng, Scratch, assert_same, media, page_cache, reflections_in};
use crate::durable::restarted;
use atomic_mmap::testing::recorder::Recorder;
use atomic_mmap::testing::{PageIndex, call, layout};
use atomic_mmap::{AtomicMappedFile, CloseMode, Error, Integrity};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

fn flip_a_bit(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).expect("open");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ 0x10], at).expect("write");
}

fn again(ground: &Ground, path: &Path) -> AtomicMappedFile {
    options(ground).integrity(Integrity::OnScrub).open(path).expect("open")
}

#[track_caller]
fn assert_damaged(result: Result<(), Error>, what: &str) {
    assert!(matches!(result, Err(Error::Damaged { .. })), "{what}: {result:?}");
}

/// A shrink kept the bytes of a damaged page for a snapshot, with a good checksum of their own.
#[test]
fn a_shrink_keeps_no_damaged_bytes() {
    for ground in media() {
        let (_scratch, path, file) = written(&ground, Integrity::OnScrub);
        file.snapshot("a").expect("seal");
        file.close(CloseMode::Fast).expect("close");
        let file = again(&ground, &path);
        flip_a_bit(&path, 5 * PAGE + 7);
        assert_damaged(file.set_len(PAGE), "the shrink");
        assert_eq!(file.len(), LEN, "nothing was changed");
        let found = file.open_snapshot("a").expect("open").read_at(&mut [0; 20], 5 * PAGE);
        assert_damaged(found, "shrink");
    }
}

/// A rollback failed behind its intention, and the next opening took the damaged page for whole.
#[test]
fn a_rollback_over_damage_does_not_begin() {
    for ground in media() {
        let (_scratch, path, file) = written(&ground, Integrity::OnScrub);
        file.snapshot("a").expect("seal");
        file.write_at(&[1; 10], 5 * PAGE).expect("write");
        file.close(CloseMode::Fast).expect("close");
        let file = again(&ground, &path);
        flip_a_bit(&path, 5 * PAGE + 1000);
        assert_damaged(file.roll_back("a", None), "the rollback");
        file.close(CloseMode::Unsynced).expect("close");
        let file = again(&ground, &path);
        assert_damaged(file.read_at(&mut [0; 20], 5 * PAGE + 990), "rollback");
    }
}

/// A durable point kept the bytes of a damaged page that a deployment had brought home.
#[test]
fn a_durable_point_keeps_no_damaged_bytes() {
    let Some(ground) = page_cache() else { return };
    let (_scratch, path, file) = written(&ground, Integrity::OnScrub);
    file.write_at(&[1; 10], 5 * PAGE).expect("write");
    file.sync().expect("sync");
    file.snapshot("b").expect("seal");
    file.close(CloseMode::Fast).expect("close");
    let reflection = reflections_in(path.parent().expect("a folder")).pop().expect("one");
    flip_a_bit(&reflection, layout::reflection(5 * PAGE) + 3);
    let file = again(&ground, &path);
    file.deploy(5 * PAGE..6 * PAGE).expect("deploy");
    file.sync().expect("sync");
    let found = file.open_snapshot("b").expect("open").read_at(&mut [0; 10], 5 * PAGE);
    assert_damaged(found, "the snapshot");
}

/// A transaction that wrote and made the file shorter left the page that it cut out of the next
/// point. A loss of power then left that page without a sum that fits.
#[test]
fn a_page_that_a_transaction_cuts_is_in_the_next_point() {
    let Some(ground) = page_cache() else { return };
    let (_scratch, path, file) = written(&ground, Integrity::OnScrub);
    let reflection = reflections_in(path.parent().expect("a folder")).pop().expect("one");
    let at = layout::page_sums(PageIndex(5));
    let mut places = [0; 32];
    File::open(&reflection).expect("open").read_exact_at(&mut places, at).expect("read");
    file.transact(|t| {
        t.write_at(&[1; 10], 0)?;
        t.set_len(5 * PAGE + 1000)
    })
    .expect("commit");
    let image = crate::durable::restarted(&ground, &path);
    // The power has taken all stores to the places of the page.
    for (n, word) in places.chunks(8).enumerate() {
        image.store(at + n as u64 * 8, u64::from_le_bytes(word.try_into().expect("8")));
    }
    let file = image.open(&ground);
    assert_eq!(file.len(), 5 * PAGE + 1000);
    file.read_at(&mut [0; 20], 5 * PAGE).expect("no damage");
}

/// An import found a damaged page behind its commit point, and poisoned the handle.
#[test]
fn an_import_over_damage_fails_before_it_changes_anything() {
    for ground in media() {
        let (_scratch, path, file) = written(&ground, Integrity::OnScrub);
        let before = crate::common::read_all(&file);
        let other = ground.scratch();
        let source = options(&ground).open(other.file("source.dat")).expect("open");
        source.write_at(&Rng(8).bytes(LEN as usize), 0).expect("write");
        source.snapshot("sent").expect("seal");
        let mut stream = Vec::new();
        source.export(None, "sent", &mut stream).expect("export");
        file.snapshot("own").expect("seal");
        file.close(CloseMode::Fast).expect("close");
        let file = again(&ground, &path);
        flip_a_bit(&path, 5 * PAGE + 7);
        assert_damaged(file.import_over(&stream[..]).map(drop), "the import");
        flip_a_bit(&path, 5 * PAGE + 7);
        assert_eq!(crate::common::read_all(&file), before, "nothing was changed");
        file.import_over(&stream[..]).expect("import");
        assert_eq!(crate::common::read_all(&file), crate::common::read_all(&source));
        assert_eq!(file.verify(0..LEN).expect("verify").damaged, []);
    }
}

/// A rollback or an import to a shorter state met a damaged page past its end, or the page that the
/// end cuts, behind its commit point. Then the file could not be opened any more.
#[test]
fn a_shorter_state_is_not_taken_over_damage_past_its_end() {
    for ground in media() {
        for at in [9 * PAGE + 200, 20 * PAGE] {
            let (_scratch, path, file) = written(&ground, Integrity::OnScrub);
            file.set_len(9 * PAGE + 100).expect("shorter");
            file.snapshot("short").expect("seal");
            let mut stream = Vec::new();
            file.export(None, "short", &mut stream).expect("export");
            file.set_len(LEN).expect("longer");
            file.write_at(&Rng(9).bytes((LEN - 9 * PAGE - 100) as usize), 9 * PAGE + 100)
                .expect("write");
            file.snapshot("long").expect("seal");
            file.deploy(0..LEN).expect("deploy");
            file.drop_snapshot("short").expect("drop");
            file.import_over(&stream[..]).expect("import");
            file.roll_back("long", None).expect("back");
            file.deploy(0..LEN).expect("deploy");
            let before = crate::common::read_all(&file);
            file.close(CloseMode::Fast).expect("close");
            let file = again(&ground, &path);
            flip_a_bit(&path, at);
            assert_damaged(file.roll_back("short", None), "the rollback");
            file.drop_snapshot("short").expect("drop");
            assert_damaged(file.import_over(&stream[..]).map(drop), "the import");
            file.write_at(&[0], 0).expect("the handle is not poisoned");
            file.write_at(&before[..1], 0).expect("write");
            flip_a_bit(&path, at);
            assert_eq!(crate::common::read_all(&file), before, "nothing was changed");
            file.import_over(&stream[..]).expect("import");
            assert_eq!(file.len(), 9 * PAGE + 100);
        }
    }
}

/// A snapshot verified a page at its first touch in the session, and never again.
#[test]
fn a_snapshot_reads_no_damaged_slots_of_a_page_that_was_verified() {
    for ground in media() {
        let (_scratch, path, file) = written(&ground, Integrity::OnScrub);
        file.close(CloseMode::Fast).expect("close");
        let file = options(&ground).open(&path).expect("open");
        file.snapshot("a").expect("seal");
        let snapshot = file.open_snapshot("a").expect("open");
        snapshot.read_at(&mut [0; 20], 5 * PAGE).expect("read");
        flip_a_bit(&path, 5 * PAGE + 3);
        assert_damaged(file.read_at(&mut [0; 20], 5 * PAGE), "the present");
        assert_damaged(snapshot.read_at(&mut [0; 20], 5 * PAGE), &format!("{}", ground.medium));
    }
}

/// Where points are kept, a snapshot reads slots of the last point, and the sum that is compared is
/// that of the present.
#[test]
fn a_snapshot_reads_no_damaged_slots_of_the_last_point() {
    let Some(ground) = page_cache() else { return };
    let (_scratch, path, file) = written(&ground, Integrity::OnScrub);
    file.close(CloseMode::Fast).expect("close");
    let file = options(&ground).open(&path).expect("open");
    file.snapshot("a").expect("seal");
    file.write_at(&[7; 64], 5 * PAGE).expect("write");
    flip_a_bit(&path, 5 * PAGE + 3);
    file.read_at(&mut [0; 20], 5 * PAGE).expect("the present is in the other slot");
    let snapshot = file.open_snapshot("a").expect("open");
    assert_damaged(snapshot.read_at(&mut [0; 20], 5 * PAGE), "the snapshot");
}

/// Bytes that were damaged after the first touch of their page were kept with a good checksum of
/// their own. A snapshot read them, and a rollback brought them back, as what had been written.
#[test]
fn damage_that_was_kept_is_noticed() {
    for ground in media() {
        let (_scratch, path, file) = written(&ground, Integrity::OnScrub);
        file.close(CloseMode::Fast).expect("close");
        let file = options(&ground).open(&path).expect("open");
        file.snapshot("a").expect("seal");
        let snapshot = file.open_snapshot("a").expect("open");
        let mut before = [0; 2 * PAGE as usize];
        snapshot.read_at(&mut before, 5 * PAGE).expect("read");
        flip_a_bit(&path, 5 * PAGE + 1000);
        for page in [5, 6] {
            file.write_at(&[1; 10], page * PAGE + 1010).expect("a write beside the damaged bytes");
        }
        file.sync().expect("a durable point keeps");
        let stats = file.stats();
        assert!(stats.kept_slices >= 2, "{}: {stats:?}", ground.medium);
        let what = format!("{}", ground.medium);
        assert_damaged(snapshot.read_at(&mut [0; 10], 5 * PAGE + 995), &what);
        let mut whole = [0; PAGE as usize];
        snapshot.read_at(&mut whole, 6 * PAGE).expect("the other page");
        assert_eq!(whole[..], before[PAGE as usize..], "{what}");
        drop(snapshot);
        // The present is whole by then, and only the kept slice is damaged.
        file.write_at(&[3; PAGE as usize], 5 * PAGE).expect("a write over the page");
        file.sync().expect("sync");
        file.read_at(&mut [0; PAGE as usize], 5 * PAGE).expect("the present");
        let mut present = [0; PAGE as usize];
        file.read_at(&mut present, 6 * PAGE).expect("read");
        assert_damaged(file.roll_back("a", None), &what);
        file.read_at(&mut whole, 6 * PAGE).expect("the handle is not poisoned");
        assert_eq!(whole, present, "{what}: nothing was changed");
    }
}

/// Pages that an opening after a crash has kept have no sum of the seal: a later state's sum must
/// not be taken for it.
#[test]
fn a_snapshot_without_a_sum_of_the_seal_is_read() {
    let Some(ground) = page_cache() else { return };
    let (_scratch, path, file) = written(&ground, Integrity::OnScrub);
    file.snapshot("a").expect("seal");
    let before = crate::common::read_all(&file);
    file.write_at(&[1; 300], 5 * PAGE + 1000).expect("write");
    // The next opening keeps for "a" what the session had to keep at its next point.
    file.close(CloseMode::Unsynced).expect("close");
    let file = options(&ground).open(&path).expect("open");
    file.snapshot("b").expect("seal");
    file.write_at(&[2; 300], 5 * PAGE + 2000).expect("write");
    file.sync().expect("a durable point keeps for b");
    let found = file.open_snapshot("a").expect("open").read_vec().expect("no damage");
    crate::common::assert_same(&found, &before, "the snapshot");
}

/// Slices of page 5 that the crashed session had written over, and that a snapshot reads.
const WRITTEN: usize = 3 * 64;

/// A file with a snapshot. Its process crashed after a write that no durable point has.
fn crashed_beside_a_snapshot(ground: &Ground) -> (Scratch, PathBuf) {
    let (scratch, path, file) = written(ground, Integrity::OnScrub);
    file.snapshot("a").expect("seal");
    file.write_at(&[1; WRITTEN], 5 * PAGE).expect("write");
    file.close(CloseMode::Unsynced).expect("close");
    (scratch, path)
}

fn on_read(ground: &Ground, path: &Path) -> AtomicMappedFile {
    options(ground).integrity(Integrity::OnRead).open(path).expect("open")
}

/// An opening once kept for a snapshot what a damaged durable word named, without a look at sums.
#[test]
fn an_opening_that_keeps_for_a_snapshot_notices_a_damaged_durable_word() {
    let Some(ground) = page_cache() else { return };
    let companion =
        |path: &Path| reflections_in(path.parent().expect("folder")).pop().expect("one");
    let at = layout::durable_word(PageIndex(5));
    for bit in [0, 1, 2, 40] {
        let (_scratch, path) = crashed_beside_a_snapshot(&ground);
        let mut word = [0; 8];
        let reflection = companion(&path);
        File::open(&reflection).expect("open").read_exact_at(&mut word, at).expect("read");
        word[bit / 8] ^= 1 << (bit % 8);
        let file = File::options().write(true).open(&reflection).expect("open");
        file.write_all_at(&word, at).expect("write");
        let file = on_read(&ground, &path);
        let found = file.open_snapshot("a").expect("open").read_at(&mut [0; 20], 5 * PAGE);
        assert_damaged(found, &format!("bit {bit}"));
        let mut present = [0; WRITTEN];
        file.read_at(&mut present, 5 * PAGE).expect("the present is whole");
        assert_eq!(present, [1; WRITTEN]);
    }
}

/// An opening keeps slices of a whole page with the sum of the seal. So the page can be repaired.
#[test]
fn what_an_opening_keeps_for_a_snapshot_is_proven_by_its_sum() {
    let Some(ground) = page_cache() else { return };
    let (_scratch, path) = crashed_beside_a_snapshot(&ground);
    let bytes = Rng(4).bytes(LEN as usize);
    let whole = &bytes[5 * PAGE as usize..6 * PAGE as usize];
    let file = on_read(&ground, &path);
    let mut to = [0; PAGE as usize];
    file.open_snapshot("a").expect("open").read_at(&mut to, 5 * PAGE).expect("read");
    assert!(to == whole);
    // The snapshot holds all of the page, and has its sum from the opening.
    file.write_at(&[2; PAGE as usize], 5 * PAGE).expect("write");
    file.sync().expect("sync");
    file.deploy(0..LEN).expect("deploy");
    flip_a_bit(&path, 5 * PAGE + 9);
    let done = file.repair(0..LEN).expect("repair");
    assert_eq!(done.repaired.len(), 1, "{done:?}");
    file.read_at(&mut to, 5 * PAGE).expect("read");
    assert!(to == whole);
}

/// An opening that finished a rollback took the sums of its pages for those in a place that held
/// another one. The next durable point kept that other sum for a snapshot, as the sum of its seal.
#[test]
fn an_opening_that_finishes_a_rollback_keeps_pages_with_their_sums() {
    let Some(ground) = page_cache() else { return };
    // Each of these points moves the sums to another place.
    for points in 1..4 {
        let (scratch, recorder) = (ground.scratch(), Recorder::new());
        let path = scratch.file("state.dat");
        let with_sums = options(&ground).integrity(Integrity::OnRead).journal_len(64 << 10);
        let file = with_sums.open_recorded(&recorder, &path).expect("open");
        file.write_at(&Rng(4).bytes(LEN as usize), 0).expect("write");
        file.snapshot("a").expect("seal");
        for n in 0..points {
            file.write_at(&Rng(n).bytes(LEN as usize), 0).expect("write");
            // Too long for the journal: no record repeats the sums.
            file.sync().expect("sync");
        }
        let before = crate::common::read_all(&file);
        // The first page was kept for "undo", and no other one, when the power fails.
        recorder.fail_next(call::READ, 2, libc::EIO);
        let Err(Error::Io { call: failed, .. }) = file.roll_back("a", Some("undo")) else {
            panic!("a read fails");
        };
        assert_eq!(failed, "read page sums");
        let image = restarted(&ground, &path);
        let found = on_read(&ground, image.path());
        let undo = found.open_snapshot("undo").expect("the rollback had begun").read_vec();
        assert_same(&undo.expect("no damage"), &before, &format!("after {points} points"));
    }
}
