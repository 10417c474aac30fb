//! Tests files at the names of a plain file's companions that belong to others: leftovers,
//! companions of other files, traps.
//!
//! A home file gets its mark before its pair is in use. So a file without a mark needs no file at
//! those names.

use super::*;
use crate::common;
use atomic_mmap::testing::layout;
use atomic_mmap::testing::marker;
use atomic_mmap::testing::recorder::Recorder;
use atomic_mmap::{Error, Mismatch, OnMismatch};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

/// Returns a folder on a file system that keeps marks, or `None`.
fn marked_disk() -> Option<common::Scratch> {
    let scratch = common::page_cache().unwrap_or_else(common::ram).scratch();
    let probe = File::create(scratch.file("probe")).expect("create");
    let platform = Recorder::new().platform();
    let keeps = platform.keeps_xattrs(&probe.into(), marker::NAME).expect("ask");
    if !keeps {
        eprintln!("no attributes here: skipped");
    }
    keeps.then_some(scratch)
}

fn take_mark_off(path: &Path) {
    let home = File::open(path).expect("open").into();
    Recorder::new().platform().remove_xattr(&home, marker::NAME).expect("take the mark off");
}

/// Returns the names of the companions of a file, in the order of their use.
fn names_of(path: &Path) -> Vec<PathBuf> {
    let stat = fs::metadata(path).expect("stat");
    let usual = format!(".atomic-mmap.{:x}", stat.ino());
    let born = stat.created().ok().map(|born| {
        let born = born.duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        (born.as_secs(), born.subsec_nanos())
    });
    let (seconds, nanos) = born.unwrap_or_default();
    let by_birth = format!("{usual}-{seconds:x}.{nanos:x}");
    let further = (2..16).map(|n| format!("{by_birth}-{n:x}"));
    let names = [usual, by_birth.clone()].into_iter().chain(further);
    names.map(|name| folder_of(path).join(name)).collect()
}

/// Returns files that may lie in the way, by name.
fn junk(folder: &Path) -> Vec<(&'static str, PathBuf)> {
    let path = folder.join("other.dat");
    closed_fast(&path);
    let whole = companions_in(folder).remove(0);
    // A reflection file is mostly a hole, and the copies have it as well.
    let like_whole = |what: &'static str, change: &dyn Fn(&fs::File)| {
        let changed = folder.join(what);
        common::copy_file(&whole, &changed);
        change(&fs::File::options().read(true).write(true).open(&changed).expect("open"));
        (what, changed)
    };
    let set = |file: &fs::File, at: u64, change: &dyn Fn(u8) -> u8| {
        for superblock in layout::SUPERBLOCKS {
            let mut byte = [0];
            file.read_exact_at(&mut byte, superblock + at).expect("read");
            file.write_all_at(&[change(byte[0])], superblock + at).expect("write");
        }
    };
    let bytes = |what: &'static str, bytes: &[u8]| {
        fs::write(folder.join(what), bytes).expect("write");
        (what, folder.join(what))
    };
    vec![
        like_whole("another file's", &|_| {}),
        like_whole("damaged", &|file| set(file, 200, &|byte| byte ^ 1)),
        like_whole("of a newer version", &|file| set(file, 8, &|_| 77)),
        like_whole("cut off", &|file| file.set_len(3000).expect("cut off")),
        bytes("notes", b"notes of another program"),
        bytes("nothing", b""),
    ]
}

/// A corrupt, newer, foreign or other user's file at the names of its companions made a plain file
/// unusable. After each spatial close the refusal came back.
#[test]
fn a_plain_file_opens_beside_whatever_lies_at_its_names() {
    let Some(scratch) = marked_disk() else { return };
    let kept = marked_disk().expect("as before");
    for (what, junk) in junk(kept.path()) {
        for taken in [1, 5] {
            let folder = scratch.file(&format!("{what} {taken}"));
            fs::create_dir(&folder).expect("a folder");
            let path = folder.join("state.dat");
            fs::write(&path, vec![7; LEN as usize]).expect("write");
            let names = names_of(&path);
            for name in &names[..taken] {
                common::copy_file(&junk, name);
            }
            for n in 0..3 {
                let file = options().open(&path).unwrap_or_else(|e| panic!("{what}, {n}: {e}"));
                assert_eq!(file.reflection_path(), names[taken], "{what}");
                file.write_at(&[n], 5000).expect("write");
                file.close(CloseMode::Fast).expect("close");
                // The mark connects them.
                let file = options().open(&path).unwrap_or_else(|e| panic!("{what}, {n}: {e}"));
                assert_eq!(file.reflection_path(), names[taken], "{what}");
                file.close(CloseMode::Spatial).expect("close");
                let mut expected = vec![7; LEN as usize];
                expected[5000] = n;
                assert!(fs::read(&path).expect("read") == expected, "{what}");
            }
            for name in &names[..taken] {
                assert!(common::data_of(name) == common::data_of(&junk), "{what}: it stays");
            }
        }
    }
}

/// A tool has removed the attribute of an incomplete pair. Its home file alone holds old bytes.
#[test]
fn a_mark_that_is_gone_is_told_and_neither_taken_for_a_plain_file_nor_believed() {
    let Some(scratch) = marked_disk() else { return };
    for (end, leave) in ENDS {
        let path = scratch.file(&format!("{end}.dat"));
        let stripped = || {
            leave(&path);
            take_mark_off(&path);
        };
        stripped();
        let before = common::Snapshot::of(scratch.path());
        let error = options().open(&path).expect_err("its mark is gone");
        assert!(matches!(error, Error::Mismatch { why: Mismatch::MarkGone, .. }), "{error:?}");
        before.assert_unchanged(scratch.path(), "refused");
        let trust = options().on_mismatch(OnMismatch::Trust).open(&path).expect("believed");
        assert_eq!(state_of(&trust), if end == "died" { "more" } else { "paid" });
        trust.close(CloseMode::Spatial).expect("close");
        fs::remove_file(&path).expect("remove");
        stripped();
        let bytes = fs::read(&path).expect("read");
        let discard = options().on_mismatch(OnMismatch::Discard).open(&path).expect("its bytes");
        discard.close(CloseMode::Spatial).expect("close");
        assert!(fs::read(&path).expect("read") == bytes, "{end}: as they were");
        assert!(companions_in(scratch.path()).is_empty(), "{end}: it was this file's own");
        drop(options().open(&path).expect("a plain file"));
        fs::remove_file(&path).expect("remove");
    }
}

/// A discard left the reflection file of an earlier file with this name in place. After each
/// spatial close that file made the next opening fail.
#[test]
fn a_leftover_of_a_replaced_file_is_discarded_once() {
    let Some(scratch) = marked_disk() else { return };
    let path = scratch.file("state.dat");
    died(&path);
    // The folder keeps its inode number from the files that follow.
    fs::create_dir(scratch.file("elsewhere")).expect("a folder");
    fs::hard_link(&path, scratch.file("elsewhere/old")).expect("a link");
    let leftover = companions_in(scratch.path()).remove(0);
    let theirs = fs::read(&leftover).expect("read");
    fs::write(scratch.file("new"), vec![8; LEN as usize]).expect("write");
    fs::rename(scratch.file("new"), &path).expect("as an editor does");
    let error = options().open(&path).expect_err("replaced");
    assert!(matches!(error, Error::Mismatch { why: Mismatch::HomeReplaced, .. }), "{error:?}");
    let discard = options().on_mismatch(OnMismatch::Discard).open(&path).expect("its bytes");
    discard.close(CloseMode::Spatial).expect("close");
    for n in 0..3 {
        let file = options().open(&path).unwrap_or_else(|e| panic!("{n}: {e}"));
        file.close(CloseMode::Spatial).expect("close");
    }
    assert!(fs::read(&path).expect("read") == vec![8; LEN as usize], "its own bytes");
    assert!(fs::read(&leftover).expect("read") == theirs, "it stays");
    // The caller has not asked to discard anything for the next file in this place.
    fs::write(scratch.file("new"), vec![9; LEN as usize]).expect("write");
    fs::rename(scratch.file("new"), &path).expect("as an editor does");
    options().open(&path).expect_err("replaced again");
}

/// Two volumes share one folder for companions, and their home files have one inode number and
/// birth time. Both were opened at the same time. One opening reported that a file exists, or that
/// its own file was busy.
#[test]
fn an_opening_takes_another_name_while_the_usual_one_is_being_made() {
    let scratch = common::page_cache().unwrap_or_else(common::ram).scratch();
    let path = scratch.file("state.dat");
    fs::write(&path, vec![7; LEN as usize]).expect("write");
    let names = names_of(&path);
    // The state of the other opening.
    let theirs = names[0].with_added_extension("new");
    let other = File::create(&theirs).expect("create");
    other.lock().expect("lock");
    let file = options().open(&path).expect("under another name");
    assert_eq!(file.reflection_path(), names[1]);
    drop(file);
    assert!(theirs.exists(), "the other opening goes on with it");
    // A link in the place of an unfinished file of another name is in no opening's way.
    let link = names[1].with_added_extension("new");
    std::os::unix::fs::symlink("nowhere", &link).expect("a link");
    // The other opening has died and left the file. Unlocked first: a child process that another
    // test is starting keeps a copy of the handle until its `exec`.
    other.unlock().expect("unlock");
    drop(other);
    let file = options().open(&path).expect("open");
    assert_eq!(file.reflection_path(), names[0]);
    assert!(!theirs.exists() && link.is_symlink());
    drop(file);
    assert!(fs::read(&path).expect("read") == vec![7; LEN as usize]);
}
