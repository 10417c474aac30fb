//! Tests which files belong together: copies, backups, leftovers, journals of another time.

use super::*;
use crate::common::{self, Ground, Snapshot};
use atomic_mmap::testing::layout;
use atomic_mmap::testing::superblock::{Copy, Superblock};
use atomic_mmap::{Error, Mismatch, OnMismatch};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;

fn disk() -> Ground {
    common::page_cache().unwrap_or_else(common::ram)
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).expect("stat").ino()
}

/// Copies all files of a folder, like a backup.
fn copy_all(from: &Path, to: &Path, keeps_attributes: bool) {
    fs::create_dir(to).expect("a folder");
    for entry in fs::read_dir(from).expect("list") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        if keeps_attributes {
            common::run(Command::new("cp").arg("-a").arg(&path).arg(to));
        } else {
            common::copy_file(&path, &to.join(name));
        }
    }
}

/// Checks that a restored pair opens. No page cache holds stores to the copies, so a pair that was
/// in use goes back to its last durable point.
#[track_caller]
fn opens_restored(path: &Path, what: &str) {
    let file = options().open(path).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(state_of(&file), "paid", "{what}");
    write_more(&file);
    file.close(CloseMode::Spatial).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(&fs::read(path).expect("read")[100..104], b"more", "{what}");
    let left = companions_in(folder_of(path));
    assert!(left.is_empty(), "{what}: {left:?}");
}

#[test]
fn a_pair_that_was_restored_together_opens_under_new_inode_numbers() {
    for (end, leave) in ENDS {
        for keeps_attributes in [true, false] {
            let what = format!("{end}, with attributes: {keeps_attributes}");
            let scratch = disk().scratch();
            let data = scratch.file("data");
            fs::create_dir(&data).expect("a folder");
            leave(&data.join("state.dat"));
            copy_all(&data, &scratch.file("backup"), keeps_attributes);
            // While the original exists, and after it was removed.
            copy_all(&scratch.file("backup"), &scratch.file("beside"), keeps_attributes);
            opens_restored(&scratch.file("beside").join("state.dat"), &what);
            fs::remove_dir_all(&data).expect("remove");
            copy_all(&scratch.file("backup"), &data, keeps_attributes);
            opens_restored(&data.join("state.dat"), &what);
        }
    }
}

/// The home file was copied before a write and its companions after it, both without attributes. A
/// read returned slices of both times.
#[test]
fn a_home_file_that_was_copied_at_another_time_than_its_companions_is_refused() {
    for len in [LEN, 4 << 20] {
        let scratch = disk().scratch();
        let (data, new) = (scratch.file("data"), scratch.file("new"));
        fs::create_dir(&data).expect("a folder");
        let path = data.join("state.dat");
        let options = || options().len(len);
        let file = options().open(&path).expect("open");
        write_and_sync(&file);
        file.deploy(0..len).expect("deploy");
        file.close(CloseMode::Fast).expect("close");
        let early = fs::read(&path).expect("read");
        let file = options().open(&path).expect("open");
        write_more(&file);
        file.deploy(0..4096).expect("deploy");
        file.close(CloseMode::Fast).expect("close");
        copy_all(&data, &new, false);
        let late = fs::read(&path).expect("read");
        assert!(early != late);
        let path = new.join("state.dat");
        fs::write(&path, &early).expect("write");
        let error = options().open(&path).expect_err("of two times");
        assert!(matches!(error, Error::Mismatch { why: Mismatch::HomeChanged, .. }), "{error:?}");
        fs::write(&path, &late).expect("write");
        assert_eq!(state_of(&options().open(&path).expect("of one time")), "more");
    }
}

/// The first opening after a restore left the companions under their old names, but the mark named
/// the new inode only. The second opening did not find the companions.
#[test]
fn a_restored_pair_opens_again_and_again() {
    for (end, leave) in ENDS {
        for keeps_attributes in [true, false] {
            let what = format!("{end}, with attributes: {keeps_attributes}");
            let scratch = disk().scratch();
            let (data, new) = (scratch.file("data"), scratch.file("new"));
            fs::create_dir(&data).expect("a folder");
            leave(&data.join("state.dat"));
            copy_all(&data, &new, keeps_attributes);
            let path = new.join("state.dat");
            for n in 0..3_u8 {
                let file = options().open(&path).unwrap_or_else(|e| panic!("{what}, {n}: {e}"));
                let mut found = [0];
                file.read_at(&mut found, 5000).expect("read");
                assert_eq!(found[0], n, "{what}");
                file.write_at(&[n + 1], 5000).expect("write");
                file.close(CloseMode::Fast).expect("close");
                run_child(CHILD, "die again", &path);
            }
            drop(options().open(&path).expect("open"));
            assert!(companions_in(&new).is_empty(), "{what}");
        }
    }
}

/// A backup of an earlier session is restored, but the journal stays and holds records of later
/// sessions. The new sessions got the numbers of those later sessions again. So recovery took the
/// old records for new ones.
#[test]
fn sessions_after_a_restore_take_no_record_of_those_before_it() {
    let Some(ground) = common::page_cache() else { return };
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let write = |file: &AtomicMappedFile, n: u8| {
        file.write_at(&[n; 64], 4096 * u64::from(n)).expect("write");
        file.sync().expect("sync");
    };
    closed_fast(&path);
    let reflection = companions_in(scratch.path()).remove(0);
    let backup = [&path, &reflection].map(|path| {
        (path.clone(), fs::read(path).expect("read"), fs::metadata(path).expect("stat"))
    });
    // More records than the session after the restore will write, so the last ones stay.
    let file = options().open(&path).expect("open");
    (1..8).for_each(|n| write(&file, n));
    file.close(CloseMode::Fast).expect("close");
    options().open(&path).expect("open").close(CloseMode::Fast).expect("close");
    for (path, bytes, stat) in &backup {
        let file = fs::File::options().write(true).open(path).expect("open");
        file.write_all_at(bytes, 0).expect("write");
        file.set_len(bytes.len() as u64).expect("cut");
        file.set_modified(stat.modified().expect("a time")).expect("its time");
    }
    let file = options().open(&path).expect("the backup");
    let before = fs::read(&reflection).expect("read");
    write(&file, 20);
    write(&file, 21);
    std::mem::forget(file);
    // A loss of power: recovery uses the last durable point.
    let copy = scratch.file("copy");
    copy_all_files(&[&path, &reflection, &reflection.with_added_extension("journal")], &copy);
    // The kernel wrote back no part of the reflection file: all synced bytes are in the journal.
    fs::write(copy.join(reflection.file_name().expect("a name")), before).expect("write");
    let file = options().open(copy.join("state.dat")).expect("goes back");
    for (n, expected) in [(1, 0), (5, 0), (20, 20), (21, 21)] {
        let mut found = [0; 64];
        file.read_at(&mut found, 4096 * n).expect("read");
        assert_eq!(found, [expected; 64], "page {n}");
    }
}

/// Copies files with their attributes to a new folder. The restored pair goes back to its last
/// durable point.
fn copy_all_files(files: &[&Path], to: &Path) {
    fs::create_dir(to).expect("a folder");
    common::run(Command::new("cp").arg("-a").args(files).arg(to));
}

#[test]
fn a_pair_that_was_restored_under_the_names_of_its_new_inode_opens() {
    for (end, leave) in ENDS {
        let scratch = disk().scratch();
        let (data, new) = (scratch.file("data"), scratch.file("new"));
        fs::create_dir(&data).expect("a folder");
        leave(&data.join("state.dat"));
        copy_all(&data, &new, false);
        let old_name = format!(".atomic-mmap.{:x}", inode(&data.join("state.dat")));
        let new_name = format!(".atomic-mmap.{:x}", inode(&new.join("state.dat")));
        for suffix in ["", ".journal"] {
            let from = new.join(format!("{old_name}{suffix}"));
            fs::rename(from, new.join(format!("{new_name}{suffix}"))).expect("rename");
        }
        opens_restored(&new.join("state.dat"), end);
    }
}

#[test]
fn a_pair_in_an_archive_opens_after_it_was_unpacked() {
    for (end, leave) in ENDS {
        let scratch = disk().scratch();
        let (data, new) = (scratch.file("data"), scratch.file("new"));
        fs::create_dir(&data).expect("a folder");
        fs::create_dir(&new).expect("a folder");
        leave(&data.join("state.dat"));
        let archive = scratch.file("backup.tar");
        common::run(Command::new("tar").arg("-cSf").arg(&archive).arg("-C").arg(&data).arg("."));
        common::run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&new));
        opens_restored(&new.join("state.dat"), end);
    }
}

#[test]
fn a_pair_that_was_moved_opens_with_everything() {
    for (end, leave) in ENDS {
        let scratch = disk().scratch();
        let (data, other) = (scratch.file("data"), scratch.file("other"));
        fs::create_dir(&data).expect("a folder");
        leave(&data.join("state.dat"));
        // The folder is renamed, and then each file is moved to another one.
        fs::rename(&data, scratch.file("renamed")).expect("rename");
        fs::create_dir(&other).expect("a folder");
        for entry in fs::read_dir(scratch.file("renamed")).expect("list") {
            let path = entry.expect("an entry").path();
            fs::rename(&path, other.join(path.file_name().expect("a name"))).expect("move");
        }
        // The permissions change as well, as some clusters do at each mount.
        common::run(Command::new("chmod").arg("600").arg(other.join("state.dat")));
        let file = options().open(other.join("state.dat")).expect("open");
        let expected = if end == "died" { "more" } else { "paid" };
        assert_eq!(state_of(&file), expected, "{end}");
    }
}

#[test]
fn a_plain_copy_that_took_the_place_of_an_incomplete_file_is_recognised() {
    for (end, leave) in ENDS {
        let scratch = disk().scratch();
        let path = scratch.file("state.dat");
        leave(&path);
        // The original is kept, so that the copy gets another inode number.
        fs::hard_link(&path, scratch.file("kept")).expect("link");
        let elsewhere = disk().scratch();
        fs::copy(&path, elsewhere.file("copy")).expect("copy");
        fs::remove_file(&path).expect("remove");
        fs::rename(scratch.file("kept"), elsewhere.file("kept")).expect("move");
        fs::copy(elsewhere.file("copy"), &path).expect("copy");
        let before = Snapshot::of(scratch.path());
        let error = options().open(&path).expect_err("a copy without companions");
        let is_told = matches!(error, Error::Mismatch { why: Mismatch::HomeReplaced, .. });
        assert!(is_told, "{end}: {error:?}");
        before.assert_unchanged(scratch.path(), end);
    }
}

/// After a crash the files were deleted, except for the hidden ones. A file system may give the old
/// inode number to the next file.
#[test]
fn a_new_file_with_the_inode_number_of_a_removed_one_opens() {
    let scratch = disk().scratch();
    died(&scratch.file("old.dat"));
    let old = inode(&scratch.file("old.dat"));
    fs::remove_file(scratch.file("old.dat")).expect("remove");
    let before: Vec<PathBuf> = companions_in(scratch.path());
    let mut open = Vec::new();
    for n in 0..60 {
        let path = scratch.file(&format!("new-{n}.dat"));
        let file = options().open(&path).unwrap_or_else(|e| panic!("file {n}: {e}"));
        let mut bytes = [1; 4];
        file.read_at(&mut bytes, 100).expect("read");
        assert_eq!(bytes, [0; 4], "slices of the removed file");
        let is_again = inode(&path) == old;
        open.push(file);
        if is_again {
            break;
        }
    }
    drop(open);
    assert_eq!(companions_in(scratch.path()), before, "the leftover is not ours to remove");
}

/// Without a birth time and a mark, only the inode number connects the two files.
#[test]
fn an_inode_number_alone_proves_nothing_where_marks_are_kept() {
    let scratch = disk().scratch();
    let path = scratch.file("state.dat");
    died(&path);
    let home = fs::File::open(&path).expect("open").into();
    let platform = atomic_mmap::testing::recorder::Recorder::new().platform();
    if platform.get_xattr(&home, "user.atomic_mmap").expect("read the mark").is_none() {
        eprintln!("no attributes here: skipped");
        return;
    }
    platform.remove_xattr(&home, "user.atomic_mmap").expect("take the mark off");
    change_superblocks(&companions_in(scratch.path())[0], |superblock| {
        superblock.identity.born = None;
    });
    // A superblock that tells of no mark was written before one could be set.
    let tells = |is_marked| {
        let change = |superblock: &mut Superblock| superblock.is_marked = is_marked;
        change_superblocks(&companions_in(scratch.path())[0], change);
    };
    tells(false);
    let before = Snapshot::of(scratch.path());
    let error = options().open(&path).expect_err("perhaps another file");
    assert!(matches!(error, Error::Mismatch { why: Mismatch::Swapped, .. }), "{error:?}");
    before.assert_unchanged(scratch.path(), "an inode number");
    tells(true);
    let leftover = companions_in(scratch.path()).remove(0);
    let [bytes, theirs] = [&path, &leftover].map(|path| fs::read(path).expect("read"));
    let file = options().open(&path).expect("perhaps another file");
    assert_ne!(file.reflection_path(), leftover);
    write_more(&file);
    file.close(CloseMode::Spatial).expect("close");
    let now = fs::read(&path).expect("read");
    assert!(now[..100] == bytes[..100] && now[104..] == bytes[104..], "its own bytes");
    assert!(fs::read(&leftover).expect("read") == theirs, "the leftover stays");
}

fn change_superblocks(reflection: &Path, change: impl Fn(&mut Superblock)) {
    let file = fs::File::options().read(true).write(true).open(reflection).expect("open");
    for at in layout::SUPERBLOCKS {
        let mut bytes = [0; 512];
        file.read_exact_at(&mut bytes, at).expect("read");
        let Copy::Valid(mut superblock) = Superblock::decode(&bytes) else { continue };
        change(&mut superblock);
        file.write_all_at(&superblock.encode(), at).expect("write");
    }
}

#[test]
fn discard_leaves_what_may_be_anothers() {
    let scratch = disk().scratch();
    let (one, other) = (scratch.file("one.dat"), scratch.file("other.dat"));
    closed_fast(&one);
    closed_fast(&other);
    // The companion of another file lies in the place of the first file's companion, which was
    // removed.
    let place = scratch.file(&format!(".atomic-mmap.{:x}", inode(&one)));
    let theirs = scratch.file(&format!(".atomic-mmap.{:x}", inode(&other)));
    fs::rename(&theirs, &place).expect("rename");
    fs::rename(theirs.with_added_extension("journal"), place.with_added_extension("journal"))
        .expect("rename");
    let error = options().open(&one).expect_err("another's");
    assert!(matches!(error, Error::Mismatch { why: Mismatch::Swapped, .. }), "{error:?}");
    let discard = options().on_mismatch(OnMismatch::Discard);
    drop(discard.open(&one).expect("its bytes as they are"));
    fs::rename(&place, &theirs).expect("put it back");
    fs::rename(place.with_added_extension("journal"), theirs.with_added_extension("journal"))
        .expect("put it back");
    assert_eq!(state_of(&options().open(&other).expect("open")), "paid");
}

/// A journal that is older than its pair lacks the records of later syncs. Recovery took it for a
/// journal without records.
#[test]
fn a_journal_of_another_pair_or_time_is_refused() {
    let Some(ground) = common::page_cache() else { return };
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let journal_of =
        |path: &Path| folder_of(path).join(format!(".atomic-mmap.{:x}.journal", inode(path)));
    died(&path);
    let journal = journal_of(&path);
    let right = fs::read(&journal).expect("read");
    let older = {
        let earlier = scratch.file("earlier");
        fs::create_dir(&earlier).expect("a folder");
        died(&earlier.join("state.dat"));
        fs::read(journal_of(&earlier.join("state.dat"))).expect("read")
    };
    // In use, of another boot: recovery uses the last durable point, and the journal holds it.
    let reflection = journal.with_extension("");
    let boot = |superblock: &mut Superblock| superblock.boot_id = [0xb0; 16];
    change_superblocks(&reflection, boot);
    let refused = |bytes: &[u8], what: &str| {
        fs::write(&journal, bytes).expect("write");
        let before = Snapshot::of(scratch.path());
        let error = options().open(&path).expect_err(what);
        let is_told = matches!(error, Error::Mismatch { why: Mismatch::JournalSwapped, .. });
        assert!(is_told, "{what}: {error:?}");
        before.assert_unchanged(scratch.path(), what);
    };
    refused(&older, "of another pair");
    refused(&vec![0; right.len()], "of nothing");
    // The next session writes records as well. Then its reflection file is replaced by the older
    // one.
    fs::write(&journal, &right).expect("write");
    let kept = fs::read(&reflection).expect("read");
    refuses_a_journal_that_goes_on(&path, kept, Some(&right));
    // The older session made no durable point, so its floor tells nothing.
    let path = scratch.file("without.dat");
    run_child(CHILD, "die again", &path);
    let reflection = journal_of(&path).with_extension("");
    change_superblocks(&reflection, boot);
    refuses_a_journal_that_goes_on(&path, fs::read(&reflection).expect("read"), None);
    // A closed pair needs no record, and would write over those of the other pair.
    let path = scratch.file("closed.dat");
    closed_fast(&path);
    fs::write(journal_of(&path), &older).expect("write");
    let error = options().open(&path).expect_err("of another pair");
    assert!(matches!(error, Error::Untrusted { .. }), "{error:?}");
    assert!(fs::read(journal_of(&path)).expect("read") == older, "it was written to");
}

/// Opens a pair that was in use under another boot, so that it goes back, and makes a durable
/// point. Then neither an `older` journal fits the newer reflection file, nor the newer journal the
/// `kept` one.
fn refuses_a_journal_that_goes_on(path: &Path, kept: Vec<u8>, older: Option<&[u8]>) {
    let reflection = folder_of(path).join(format!(".atomic-mmap.{:x}", inode(path)));
    let journal = reflection.with_added_extension("journal");
    let file = options().open(path).expect("goes back");
    write_more(&file);
    file.sync().expect("sync");
    std::mem::forget(file);
    let later = fs::read(&journal).expect("read");
    let name = path.file_name().expect("a name");
    let copy = path.with_added_extension("copy");
    fs::create_dir(&copy).expect("a folder");
    let older = older.map(|older| (fs::read(&reflection).expect("read"), older, "older"));
    for (reflection_bytes, journal_bytes, what) in
        older.into_iter().chain([(kept, &later[..], "newer")])
    {
        let home = copy.join(name);
        fs::copy(path, &home).expect("copy");
        let name = format!(".atomic-mmap.{:x}", inode(&home));
        fs::write(copy.join(&name), &reflection_bytes).expect("write");
        fs::write(copy.join(format!("{name}.journal")), journal_bytes).expect("write");
        let error = options().open(&home).expect_err(what);
        let is_told = matches!(error, Error::Mismatch { why: Mismatch::JournalSwapped, .. });
        assert!(is_told, "a journal that is {what}: {error:?}");
    }
}
