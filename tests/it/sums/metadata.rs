//! Tests that damage is noticed in what the files say about themselves: words, superblocks, sums of
//! pages, and records of the journal.
//!
//! Each overwrites one of these while the file is closed, and opens it. `lab scribbles` has found
//! all of this damage: an opening once took it for what was written.

use super::{LEN, PAGE, options, written};
use crate::common::{Ground, Rng, Scratch, assert_same, media, page_cache, reflections_in};
use crate::durable::restarted;
use atomic_mmap::testing::superblock::{Copy, Superblock};
use atomic_mmap::testing::{PageIndex, layout};
use atomic_mmap::{
    AtomicMappedFile, CloseMode, DeployPolicy, Durability, Error, Integrity, Mismatch, OnMismatch,
    Options,
};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    File::options().write(true).open(path).expect("open").write_all_at(bytes, at).expect("write");
}

fn reflection(path: &Path) -> PathBuf {
    reflections_in(path.parent().expect("a folder")).pop().expect("one")
}

/// A lower number in the length word once opened the file shorter.
#[test]
fn a_damaged_length_is_noticed() {
    let lengths = [0, 50 * PAGE, LEN, LEN + PAGE, u64::MAX];
    let words = [layout::LENGTH_WORD, layout::HIGH_WATER_WORD];
    for ground in media() {
        for mode in [CloseMode::Fast, CloseMode::Unsynced] {
            let (_scratch, path, file) = written(&ground, Integrity::OnRead);
            file.close(mode).expect("close");
            for (at, len) in words.into_iter().flat_map(|at| lengths.map(|len| (at, len))) {
                let mut was = [0; 8];
                let companion = File::open(reflection(&path)).expect("open");
                companion.read_exact_at(&mut was, at).expect("read");
                overwrite(&reflection(&path), at, &len.to_le_bytes());
                let error = options(&ground).open(&path).expect_err("damaged");
                assert!(
                    matches!(error, Error::Mismatch { why: Mismatch::Corrupt, .. }),
                    "{} {mode:?} {at} {len}: {error}",
                    ground.medium
                );
                overwrite(&reflection(&path), at, &was);
            }
            let file = options(&ground).open(&path).expect("nothing was changed");
            assert_eq!(file.len(), LEN, "{} {mode:?}", ground.medium);
            assert_eq!(file.verify(0..LEN).expect("verify").damaged, []);
        }
    }
}

/// Where only a durable point counts, the words may hold whatever the kernel has written back.
#[test]
fn a_damaged_length_is_no_harm_where_a_record_has_it() {
    let Some(ground) = page_cache() else { return };
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let options = options(&ground).durability(Durability::AtomicSync);
    let file = options.clone().open(&path).expect("open");
    file.write_at(&[5; 100], 5 * PAGE).expect("write");
    file.sync().expect("sync");
    file.close(CloseMode::Unsynced).expect("close");
    overwrite(&reflection(&path), layout::LENGTH_WORD, &[0x77; 16]);
    let file = options.open(&path).expect("open");
    assert_eq!((file.len(), file.verify(0..LEN).expect("verify").damaged), (LEN, vec![]));
}

/// A file with four durable points, which count after every end. Page 9 is in the last one alone,
/// and page 7 in all others.
fn with_points(ground: &Ground) -> (Scratch, PathBuf, Options) {
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let options = options(ground).durability(Durability::AtomicSync);
    let file = options.clone().open(&path).expect("open");
    for n in 1..4 {
        file.write_at(&[n; 100], 5 * PAGE).expect("write");
        file.write_at(&[n; 100], 7 * PAGE).expect("write");
        file.sync().expect("sync");
    }
    file.write_at(&[4; 100], 5 * PAGE).expect("write");
    file.write_at(&[4; 100], 9 * PAGE).expect("write");
    file.sync().expect("sync");
    file.close(CloseMode::Unsynced).expect("close");
    (scratch, path, options)
}

fn damage_record(path: &Path, number: u64) {
    let journal = reflection(path).with_added_extension("journal");
    let bytes = std::fs::read(&journal).expect("read");
    let is_record = |at: &usize| {
        let number_of = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8"));
        bytes[*at..].starts_with(b"AtomJrnl") && number_of(at + 16) == number
    };
    let record = (0..bytes.len()).step_by(4096).find(is_record).expect("a record");
    overwrite(&journal, record as u64 + 40, &[9; 8]);
}

#[track_caller]
fn assert_journal_refused(result: Result<AtomicMappedFile, Error>) {
    let error = result.expect_err("damaged");
    let is_told = matches!(error, Error::Mismatch { why: Mismatch::JournalSwapped, .. });
    assert!(is_told && error.to_string().contains("or damaged"), "{error}");
}

#[track_caller]
fn assert_points(file: &AtomicMappedFile) {
    let at = |page: u64| {
        let mut to = [0];
        file.read_at(&mut to, page * PAGE).map(|()| to[0])
    };
    assert_eq!([5, 7, 9].map(|page| at(page).expect("read")), [4, 3, 4]);
}

/// The newest record of a journal is damaged. An opening once took it for a torn one, and the point
/// before it came back in part.
#[test]
fn a_damaged_newest_record_is_noticed() {
    let Some(ground) = page_cache() else { return };
    let (_scratch, path, options) = with_points(&ground);
    let image = restarted(&ground, &path);
    for home in [&path, &image.home] {
        damage_record(home, 4);
        assert_journal_refused(options.clone().open(home));
    }
    // Nothing was changed, and the caller may take the home file as it is.
    assert_journal_refused(options.clone().open(&path));
    let discards = options.clone().on_mismatch(OnMismatch::Discard);
    assert_eq!(discards.open(&path).expect("discard").len(), LEN);
}

/// After a restart of the machine, the records behind a damaged one are no whole point.
#[test]
fn a_damaged_older_record_is_noticed_where_it_is_needed() {
    let Some(ground) = page_cache() else { return };
    let (_scratch, path, options) = with_points(&ground);
    let image = restarted(&ground, &path);
    damage_record(&image.home, 3);
    assert_journal_refused(options.clone().open(&image.home));
    // The page cache has what that record holds.
    damage_record(&path, 3);
    assert_points(&options.open(&path).expect("open"));
}

/// After a process crash the working state counts, and no record is replayed.
#[test]
fn a_damaged_record_is_no_harm_where_none_is_needed() {
    let Some(ground) = page_cache() else { return };
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let file = options(&ground).open(&path).expect("open");
    for (n, page) in [(3, 7), (4, 5), (4, 9)] {
        file.write_at(&[n; 100], page * PAGE).expect("write");
        file.sync().expect("sync");
    }
    file.close(CloseMode::Unsynced).expect("close");
    damage_record(&path, 3);
    assert_points(&options(&ground).open(&path).expect("open"));
}

/// Zeroes the home slots of a page, and returns the first byte of it that the next opening reads.
fn lose_block(ground: &Ground, path: &Path, page: u64) -> Result<u8, Error> {
    overwrite(path, page * PAGE, &[0; PAGE as usize]);
    let file = options(ground).open(path).expect("open");
    let mut to = [1];
    file.read_at(&mut to, page * PAGE).map(|()| to[0])
}

/// The places of a page that was never written hold 0, which is the sum of a page of zeroes. A
/// write once left older sums in two of them, and a lost block passed after a crash.
#[test]
fn a_lost_block_of_a_page_that_was_written_once_is_noticed() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let file = options(&ground).open(&path).expect("open");
        file.write_at(&[7; PAGE as usize], 5 * PAGE).expect("write");
        // Where durable points are kept, a power loss goes back to zeroes until there is a point.
        file.sync().expect("sync");
        file.write_at(&[8; PAGE as usize], 5 * PAGE).expect("write");
        file.sync().expect("sync");
        file.deploy(0..LEN).expect("deploy");
        file.close(CloseMode::Unsynced).expect("close");
        let found = lose_block(&ground, &path, 5);
        assert!(matches!(found, Err(Error::Damaged { .. })), "{}: {found:?}", ground.medium);
    }
}

/// A page may be spread over both files. Without one of them it may be an older state.
#[test]
fn a_lost_block_that_leaves_an_older_state_is_noticed() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        // The slices that are written stay where they are: in the reflection file.
        let file = options(&ground).deploy(DeployPolicy::Manual).open(&path).expect("open");
        file.write_at(&[7; 64], 5 * PAGE).expect("write");
        file.sync().expect("sync");
        file.deploy(0..LEN).expect("deploy");
        file.write_at(&[8; 256], 5 * PAGE + 64).expect("write");
        file.sync().expect("sync");
        file.close(CloseMode::Unsynced).expect("close");
        let lost = layout::reflection(5 * PAGE);
        overwrite(&reflection(&path), lost, &[0; PAGE as usize]);
        let file = options(&ground).open(&path).expect("open");
        let found = file.read_at(&mut [0; 128], 5 * PAGE);
        assert!(matches!(found, Err(Error::Damaged { .. })), "{}: {found:?}", ground.medium);
    }
}

/// A power loss may leave the sum of zeroes in a place. The first touch replaces it.
#[test]
fn a_block_that_is_lost_after_its_page_was_touched_is_noticed() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let file = options(&ground).open(&path).expect("open");
        file.write_at(&[7; PAGE as usize], 5 * PAGE).expect("write");
        file.sync().expect("sync");
        file.deploy(0..LEN).expect("deploy");
        file.close(CloseMode::Unsynced).expect("close");
        overwrite(&reflection(&path), layout::page_sums(PageIndex(5)), &[0; 8]);
        let file = options(&ground).open(&path).expect("open");
        assert_eq!(file.verify(0..LEN).expect("verify").damaged, [], "{}", ground.medium);
        file.close(CloseMode::Unsynced).expect("close");
        let found = lose_block(&ground, &path, 5);
        assert!(matches!(found, Err(Error::Damaged { .. })), "{}: {found:?}", ground.medium);
    }
}

/// Before the first durable point a power loss goes back to a page of zeroes. Its sum is there.
#[test]
fn a_page_goes_back_to_zeroes_until_a_durable_point() {
    let Some(ground) = page_cache() else { return };
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let file = options(&ground).open(&path).expect("open");
    file.write_at(&[7; 100], 6 * PAGE).expect("write");
    file.sync().expect("sync");
    for n in [7; 100] {
        file.write_at(&[n; 100], 5 * PAGE).expect("write");
    }
    let image = restarted(&ground, &path);
    let found = image.open(&ground);
    assert_eq!(found.verify(0..LEN).expect("verify").damaged, []);
    let mut to = [1; 100];
    found.read_at(&mut to, 5 * PAGE).expect("read");
    assert_eq!(to, [0; 100]);
}

/// Overwrites a byte of one of the superblocks: of the newest, or of the older one.
fn damage_superblock(path: &Path, is_newest: bool) {
    let file = File::open(reflection(path)).expect("open");
    let session = |at: &u64| {
        let mut bytes = [0; 512];
        file.read_exact_at(&mut bytes, *at).expect("read");
        match Superblock::decode(&bytes) {
            Copy::Valid(superblock) => superblock.session,
            _ => 0,
        }
    };
    let mut places = layout::SUPERBLOCKS;
    places.sort_by_key(session);
    overwrite(&reflection(path), places[usize::from(is_newest)] + 100, &[0xee]);
}

/// The older superblock of a new pair says that the pair is being made, so that nothing in it
/// counts. That of a later session voids the log records of the crashed one. An opening once went
/// on by them.
#[test]
fn a_damaged_superblock_of_a_crashed_session_is_noticed() {
    for ground in media() {
        for sessions in 1..4 {
            let scratch = ground.scratch();
            let path = scratch.file("state.dat");
            for session in 0..sessions {
                let file = options(&ground).open(&path).expect("open");
                file.write_at(&[session; PAGE as usize], 5 * PAGE).expect("write");
                let is_last = session + 1 == sessions;
                let mode = if is_last { CloseMode::Unsynced } else { CloseMode::Fast };
                file.close(mode).expect("close");
            }
            damage_superblock(&path, true);
            let error = options(&ground).open(&path).expect_err("damaged");
            assert!(
                matches!(error, Error::Mismatch { why: Mismatch::Corrupt, .. }),
                "{} {sessions}: {error}",
                ground.medium
            );
            // The caller may take the home file as it is.
            let discards = options(&ground).on_mismatch(OnMismatch::Discard);
            assert_eq!(discards.open(&path).expect("discard").len(), LEN);
        }
    }
}

/// After a close either superblock tells enough, and after a crash the newest one alone.
#[test]
fn a_damaged_superblock_that_is_not_needed_is_no_harm() {
    let cases = [(CloseMode::Fast, true), (CloseMode::Fast, false), (CloseMode::Unsynced, false)];
    for ground in media() {
        for (mode, is_newest) in cases {
            let (_scratch, path, file) = written(&ground, Integrity::OnRead);
            file.close(mode).expect("close");
            damage_superblock(&path, is_newest);
            overwrite(&reflection(&path), layout::BEGUN_WORD, &[0x77; 8]);
            let file = options(&ground).open(&path).expect("open");
            let found = file.read_vec().expect("read");
            assert_same(&found, &Rng(4).bytes(LEN as usize), &format!("{mode:?} {is_newest}"));
        }
    }
}
