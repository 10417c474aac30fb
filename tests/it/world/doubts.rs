//! Situations in which it is in doubt which files belong together, and of which time they are.

use super::mounts::{Volume, check, keep, set_back};
use super::*;
use crate::common;
use atomic_mmap::testing::layout;
use atomic_mmap::testing::marker;
use atomic_mmap::testing::recorder::{Recorder, What};
use atomic_mmap::testing::{FileId, call};
use atomic_mmap::{Decision, Error, Medium, Mismatch, OnMismatch};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// A sweep fails one call in this many: the lab's part `faults` fails every one.
const EVERY: usize = 3;
const PAGES: [u64; 3] = [0, 1, 70];

fn disk() -> common::Ground {
    common::page_cache().unwrap_or_else(common::ram)
}

fn write(file: &AtomicMappedFile, bytes: &[u8; 4]) {
    PAGES.iter().for_each(|page| file.write_at(bytes, page * 4096 + 100).expect("write"));
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("list") {
        let path = entry.expect("an entry").path();
        let there = to.join(path.file_name().expect("a name"));
        if path.is_dir() { copy(&path, &there) } else { common::copy_file(&path, &there) }
    }
}

pub fn play(test: &str, base: &Path) {
    match test {
        "trust" => trust_fails_once(base),
        "discard" => discard_dies(base),
        "unmarked" => unmarked_elsewhere(base),
        "ram" => forced_ram(base),
        "renamed" => renamed(base),
        "sweep even" => sweep(base, 0),
        "sweep odd" => sweep(base, 1),
        "failures same" => sweep_failures(base, false),
        "failures elsewhere" => sweep_failures(base, true),
        test if test.starts_with("dies ") => dies_at(&test[5..], base),
        "back by one" => back_by_one(base),
        "kept mark" => kept_mark(base),
        "bare snapshot" => bare_snapshot(base),
        "emptied" => emptied(base),
        "unsynced mark" => unsynced_mark(base),
        "restored elsewhere" => discarded_under_another_name(base),
        test => panic!("{test}"),
    }
}

/// Homes of one name in two folders, companions in one folder; all restored without attributes.
#[test]
fn two_files_of_one_name_with_one_reflection_folder_are_restored() {
    for mode in [CloseMode::Unsynced, CloseMode::Fast] {
        let scratch = disk().scratch();
        let root = scratch.file("root");
        let open = |root: &Path, which: &str| {
            options().reflection_dir(root.join("common")).open(root.join(which).join("state.dat"))
        };
        for folder in ["a", "b", "common"] {
            fs::create_dir_all(root.join(folder)).expect("a folder");
        }
        for (which, bytes) in [("a", b"aaaa"), ("b", b"bbbb")] {
            let file = open(&root, which).expect("open");
            write(&file, bytes);
            file.sync().expect("sync");
            file.close(mode).expect("close");
        }
        let mut wrong = Vec::new();
        for which in ["a", "b"] {
            let restored = scratch.file(&format!("restored-{which}"));
            copy(&root, &restored);
            match open(&restored, which) {
                Ok(file) => {
                    let all = PAGES.map(|page| {
                        let mut bytes = [0; 4];
                        file.read_at(&mut bytes, page * 4096 + 100).expect("read");
                        String::from_utf8_lossy(&bytes).into_owned()
                    });
                    if all.iter().any(|state| *state != which.repeat(4)) {
                        wrong.push(format!("{which}: {all:?}"));
                    }
                }
                Err(e) => wrong.push(format!("{which}: {e}")),
            }
        }
        println!("{mode:?}: {wrong:#?}");
        assert!(wrong.is_empty(), "{mode:?}: {wrong:#?}");
    }
}

/// A plain file is refused because a file of this name in another folder has its companions there.
#[test]
fn a_plain_file_opens_beside_companions_of_one_of_the_same_name_elsewhere() {
    let scratch = disk().scratch();
    for folder in ["a", "b", "common"] {
        fs::create_dir_all(scratch.file(folder)).expect("a folder");
    }
    let options = || options().reflection_dir(scratch.file("common"));
    let first = options().open(scratch.file("a/state.dat")).expect("open");
    write_and_sync(&first);
    fs::write(scratch.file("b/state.dat"), vec![7; LEN as usize]).expect("write");
    drop(options().open(scratch.file("b/state.dat")).expect("a plain file"));
}

/// The caller trusts a closed pair; opening fails once, for want of a thing that comes later.
fn trust_fails_once(base: &Path) {
    let homes = Volume::new("ext4", base, "homes").expect("ext4");
    let others = Volume::new("ext4", base, "companions").expect("ext4");
    let options = || options().reflection_dir(&others.folder);
    let file = options().open(homes.state()).expect("open");
    write_and_sync(&file);
    file.close(CloseMode::Fast).expect("close");
    run_touch(&homes.state());
    let error = options().open(homes.state()).expect_err("touched");
    assert!(matches!(error, Error::Mismatch { why: Mismatch::HomeChanged, .. }), "{error:?}");
    let recorder = Recorder::new();
    recorder.fail_next(call::SET_XATTR, 1, libc::ENOSPC);
    let trust = || options().on_mismatch(OnMismatch::Trust);
    trust().open_recorded(&recorder, homes.state()).expect_err("no space for once");
    let file = trust().open(homes.state()).unwrap_or_else(|e| panic!("a second time: {e}"));
    assert_eq!(state_of(&file), "paid");
}

fn run_touch(path: &Path) {
    common::run(Command::new("touch").args(["-d", "2001-01-01"]).arg(path));
}

#[test]
fn an_opening_by_trust_that_failed_is_made_again() {
    check("doubts trust");
}

/// A discard fails after its first step, companions elsewhere.
fn discard_dies(base: &Path) {
    let homes = Volume::new("ext4", base, "homes").expect("ext4");
    let others = Volume::new("ext4", base, "companions").expect("ext4");
    let options = || options().reflection_dir(&others.folder);
    let file = options().open(homes.state()).expect("open");
    write_and_sync(&file);
    file.close(CloseMode::Fast).expect("close");
    run_touch(&homes.state());
    let recorder = Recorder::new();
    recorder.fail_next(call::REMOVE_XATTR, 1, libc::EIO);
    let discard = options().on_mismatch(OnMismatch::Discard);
    discard.open_recorded(&recorder, homes.state()).expect_err("a failure");
    drop(options().open(homes.state()).unwrap_or_else(|e| panic!("in silence: {e}")));
}

#[test]
fn a_discard_that_failed_leaves_nothing_that_is_refused() {
    check("doubts discard");
}

/// A mark is gone, companions on another volume.
fn unmarked_elsewhere(base: &Path) {
    let homes = Volume::new("ext4", base, "homes").expect("ext4");
    let others = Volume::new("ext4", base, "companions").expect("ext4");
    let options = || options().reflection_dir(&others.folder);
    let file = options().open(homes.state()).expect("open");
    write_and_sync(&file);
    file.close(CloseMode::Fast).expect("close");
    let home = fs::File::open(homes.state()).expect("open").into();
    Recorder::new().platform().remove_xattr(&home, marker::NAME).expect("remove");
    let error = options().open(homes.state()).expect_err("its mark is gone");
    assert!(matches!(error, Error::Mismatch { why: Mismatch::MarkGone, .. }), "{error:?}");
    let file = options().on_mismatch(OnMismatch::Trust).open(homes.state()).expect("believed");
    assert_eq!(state_of(&file), "paid");
}

#[test]
fn a_mark_that_is_gone_is_told_with_companions_elsewhere() {
    check("doubts unmarked");
}

/// A plain file, forced to be in memory, and the power goes soon.
fn forced_ram(base: &Path) {
    let volume = Volume::new("ext4", base, "disk").expect("ext4");
    fs::write(volume.state(), vec![b'x'; LEN as usize]).expect("write");
    let image = base.join("plain.img");
    keep(&volume, &image);
    let options = || options().medium(Medium::Ram);
    let file = options().open(volume.state()).expect("open");
    write_and_sync(&file);
    file.deploy(0..LEN).expect("home");
    // The kernel writes back the home file, and not the reflection file yet.
    fs::File::open(volume.state()).expect("open").sync_all().expect("sync");
    let image = base.join("lost.img");
    common::run(Command::new("cp").arg("--sparse=always").arg(&volume.image).arg(&image));
    write_more(&file);
    drop(file);
    set_back(&volume, &image);
    match options().open(volume.state()) {
        Ok(file) => panic!("in silence: {}", state_of(&file)),
        Err(e) => println!("refused: {e}"),
    }
}

#[test]
fn a_loss_of_power_of_a_file_that_was_forced_to_memory_is_told() {
    check("doubts ram");
}

/// Written by a newer version, which writes a longer mark.
#[test]
fn a_pair_of_a_newer_version_is_refused_whatever_its_mark_looks_like() {
    let scratch = disk().scratch();
    let path = scratch.file("state.dat");
    closed_fast(&path);
    let reflection = companions_in(scratch.path()).remove(0);
    let mut bytes = fs::read(&reflection).expect("read");
    for at in layout::SUPERBLOCKS {
        bytes[at as usize + 8] = 77;
    }
    fs::write(&reflection, bytes).expect("write");
    let home = fs::File::open(&path).expect("open").into();
    let platform = Recorder::new().platform();
    let mut mark = platform.get_xattr(&home, marker::NAME).expect("ask").expect("a mark");
    mark.extend([1; 100]);
    platform.set_xattr(&home, marker::NAME, &mark).expect("set");
    match options().open(&path) {
        Ok(file) => panic!("taken for a plain file: {:?}", state_of(&file)),
        Err(e) => {
            assert!(matches!(e, Error::Mismatch { why: Mismatch::Newer { .. }, .. }), "{e:?}")
        }
    }
}

/// Another process has the reflection file locked.
#[test]
fn a_discard_that_is_told_busy_has_changed_nothing() {
    let scratch = disk().scratch();
    let path = scratch.file("state.dat");
    closed_fast(&path);
    run_touch(&path);
    let other = fs::File::open(&companions_in(scratch.path())[0]).expect("open");
    other.lock().expect("lock");
    let before = common::Snapshot::of(scratch.path());
    let error = options().on_mismatch(OnMismatch::Discard).open(&path).expect_err("in use");
    assert!(matches!(error, Error::Busy { .. }), "{error:?}");
    before.assert_unchanged(scratch.path(), "busy");
}

/// A journal alone is nothing, and the next opening takes it.
#[test]
fn a_journal_alone_is_taken() {
    let scratch = disk().scratch();
    let path = scratch.file("state.dat");
    closed_fast(&path);
    let reflection = companions_in(scratch.path()).remove(0);
    fs::remove_file(&reflection).expect("remove");
    let discard = options().on_mismatch(OnMismatch::Discard);
    let file = discard.open(&path).expect("its bytes");
    file.close(CloseMode::Spatial).expect("close");
    let left = companions_in(scratch.path());
    assert!(left.is_empty(), "{left:?}");
}

/// A tool wrote an earlier state in place, with its attributes: it had none.
#[test]
fn trust_after_a_mark_that_is_gone_tells_that_the_file_has_changed() {
    let scratch = disk().scratch();
    let path = scratch.file("state.dat");
    let file = options().open(&path).expect("open");
    write(&file, b"old1");
    file.close(CloseMode::Spatial).expect("close");
    let backup = fs::read(&path).expect("read");
    let file = options().open(&path).expect("open");
    write(&file, b"new2");
    file.deploy(0..4096).expect("half of it");
    file.close(CloseMode::Fast).expect("close");
    fs::write(&path, backup).expect("restore in place");
    let home = fs::File::open(&path).expect("open").into();
    Recorder::new().platform().remove_xattr(&home, marker::NAME).expect("remove");
    let error = options().open(&path).expect_err("changed");
    assert!(matches!(error, Error::Mismatch { why: Mismatch::HomeChanged, .. }), "{error:?}");
}

/// Leaves a pair with this text and a home file of this length, in use or closed.
fn leave(path: &Path, bytes: &[u8; 4], len: u64, mode: CloseMode) {
    let file = AtomicMappedFile::options().create(true).len(len).journal_len(64 << 10);
    let file = file.open(path).expect("open");
    write(&file, bytes);
    file.sync().expect("sync");
    file.close(mode).expect("close");
}

/// Files of one name came and went, and left their companions. All of the folder is restored
/// without attributes. `plain`: the last one was closed spatially.
fn restored_beside_leftovers(len: u64, mode: CloseMode, last: CloseMode) -> Result<String, String> {
    let scratch = disk().scratch();
    let data = scratch.file("data");
    fs::create_dir(&data).expect("a folder");
    let path = data.join("state.dat");
    for n in 0..6 {
        leave(&path, b"old!", len, mode);
        // Kept elsewhere, so that inode numbers differ.
        fs::rename(&path, scratch.file(&format!("kept-{n}"))).expect("move");
    }
    // The last one, in a folder of its own until then.
    leave(&path, b"mine", LEN, last);
    let restored = scratch.file("restored");
    copy(&data, &restored);
    let file = options().open(restored.join("state.dat")).map_err(|e| e.to_string())?;
    let all = PAGES.map(|page| {
        let mut bytes = [0; 4];
        file.read_at(&mut bytes, page * 4096 + 100).expect("read");
        String::from_utf8_lossy(&bytes).into_owned()
    });
    Ok(format!("{all:?}"))
}

fn is_mine_or_refused(found: Result<String, String>) {
    println!("{found:?}");
    if let Ok(state) = found {
        assert_eq!(state, format!("{:?}", ["mine"; 3]));
    }
}

#[test]
fn restored_beside_leftovers_of_another_length() {
    for mode in [CloseMode::Fast, CloseMode::Unsynced] {
        for last in [CloseMode::Fast, CloseMode::Spatial] {
            let found = restored_beside_leftovers(2 * LEN, mode, last);
            assert_eq!(found, Ok(format!("{:?}", ["mine"; 3])), "{mode:?}, {last:?}");
        }
    }
}

#[test]
fn restored_beside_leftovers_in_use() {
    is_mine_or_refused(restored_beside_leftovers(LEN, CloseMode::Unsynced, CloseMode::Unsynced));
}

#[test]
fn a_plain_file_restored_beside_leftovers_in_use() {
    is_mine_or_refused(restored_beside_leftovers(LEN, CloseMode::Unsynced, CloseMode::Spatial));
}

/// Leftovers of spatial closes that did not come to their end, under names that no opening looks
/// at.
#[test]
fn spatial_closes_that_failed_refuse_no_file() {
    let scratch = disk().scratch();
    let path = scratch.file("state.dat");
    fs::write(&path, vec![7; LEN as usize]).expect("write");
    for n in 0..20 {
        if n == 0 {
            // Something lies at the first two names.
            let file = options().open(&path).expect("open");
            let name = file.reflection_path().to_owned();
            file.close(CloseMode::Spatial).expect("close");
            fs::write(&name, b"notes").expect("write");
            let file = options().open(&path).expect("open");
            let name = file.reflection_path().to_owned();
            file.close(CloseMode::Spatial).expect("close");
            fs::write(&name, b"notes").expect("write");
        }
        let recorder = Recorder::new();
        let file = options().open_recorded(&recorder, &path);
        let file = file.unwrap_or_else(|e| {
            panic!("{n}: {e}; {} companions", companions_in(scratch.path()).len())
        });
        recorder.fail_from(call::REMOVE, 1, libc::EIO);
        file.close(CloseMode::Spatial).expect_err("a failure");
    }
}

/// The spatial close of a snapshot's original died after it had emptied the companions.
pub fn emptied(base: &Path) {
    let common = base.join("common");
    fs::create_dir(&common).expect("a folder");
    let volume = Volume::new("ext4", base, "disk").expect("ext4");
    let options = || options().reflection_dir(&common);
    let recorder = Recorder::new();
    let file = options().open_recorded(&recorder, volume.state()).expect("open");
    write_and_sync(&file);
    file.deploy(0..4096).expect("a part of it");
    file.sync().expect("sync");
    let image = base.join("snapshot.img");
    common::run(&mut Command::new("sync"));
    common::run(Command::new("cp").arg("--sparse=always").arg(&volume.image).arg(&image));
    recorder.fail_from(call::REMOVE_XATTR, 1, libc::EIO);
    file.close(CloseMode::Spatial).expect_err("dies after the emptied state");
    let beside = base.join("beside");
    fs::create_dir(&beside).expect("a folder");
    volume.mount_image(&image, &beside);
    match options().open(beside.join("state.dat")) {
        Ok(file) => println!("in silence: {}", state_of(&file)),
        Err(e) => println!("refused: {e}"),
    }
}

#[test]
fn a_snapshot_of_a_pair_that_was_emptied_since_is_refused() {
    check("doubts emptied");
}

/// The companions' volume is set back over the whole last session, in which nothing came home.
fn back_by_one(base: &Path) {
    let homes = Volume::new("ext4", base, "homes").expect("ext4");
    let others = Volume::new("ext4", base, "companions").expect("ext4");
    fs::write(homes.state(), vec![b'x'; LEN as usize]).expect("write");
    let options = || options().reflection_dir(&others.folder);
    options().open(homes.state()).expect("open").close(CloseMode::Fast).expect("close");
    let old = base.join("old.img");
    keep(&others, &old);
    let file = options().open(homes.state()).expect("open");
    write_and_sync(&file);
    file.close(CloseMode::Fast).expect("close");
    set_back(&others, &old);
    let error = options().open(homes.state()).expect_err("of the session before");
    assert!(matches!(error, Error::Mismatch { why: Mismatch::RolledBack, .. }), "{error:?}");
}

#[test]
fn companions_that_were_set_back_by_one_session_are_recognised() {
    check("doubts back by one");
}

/// The process has lost the right to the mark since the opening. A fast close failed.
fn kept_mark(base: &Path) {
    let homes = Volume::new("ext4", base, "homes").expect("ext4");
    let others = Volume::new("ext4", base, "companions").expect("ext4");
    fs::write(homes.state(), vec![b'x'; LEN as usize]).expect("write");
    let options = || options().reflection_dir(&others.folder);
    let close = |call, errno| {
        let recorder = Recorder::new();
        let file = options().open_recorded(&recorder, homes.state()).expect("open");
        write_and_sync(&file);
        recorder.fail_from(call, 1, errno);
        let closed = file.close(CloseMode::Fast);
        assert!(!recorder.heal(), "{call} has failed");
        closed
    };
    let old = base.join("old");
    for call in [call::SET_XATTR, call::GET_XATTR] {
        options().open(homes.state()).expect("open").close(CloseMode::Fast).expect("close");
        copy(&others.folder, &old);
        close(call, libc::EACCES).expect("closed without the right");
        let look = options().inspect(homes.state()).expect("inspect");
        assert_eq!(look.decision, Some(Decision::Reuse), "{call}");
        copy(&old, &others.folder);
        let error = options().open(homes.state()).expect_err("of the session before");
        let is_told = matches!(error, Error::Mismatch { why: Mismatch::HomeChanged, .. });
        assert!(is_told, "{call}: {error:?}");
        let wish = options().on_mismatch(OnMismatch::Discard);
        wish.open(homes.state()).expect("anew").close(CloseMode::Fast).expect("close");
    }
    assert!(matches!(close(call::SET_XATTR, libc::EIO), Err(Error::Io { .. })));
}

#[test]
fn a_fast_close_does_without_the_right_to_the_mark() {
    check("doubts kept mark");
}

/// Returns a recorder that keeps no attributes.
fn without_attributes() -> Recorder {
    let recorder = Recorder::new();
    for call in [call::GET_XATTR, call::SET_XATTR, call::REMOVE_XATTR] {
        recorder.fail_from(call, 1, libc::EOPNOTSUPP);
    }
    recorder
}

/// A snapshot on a file system without attributes, beside its original, goes on with its own bytes.
fn bare_snapshot(base: &Path) {
    let common = base.join("common");
    fs::create_dir(&common).expect("a folder");
    let volume = Volume::new("ext4", base, "disk").expect("ext4");
    let open = |path: &Path, wish| {
        let options = options().reflection_dir(&common).on_mismatch(wish);
        options.open_recorded(&without_attributes(), path)
    };
    let file = open(&volume.state(), OnMismatch::Refuse).expect("open");
    write_and_sync(&file);
    file.close(CloseMode::Fast).expect("close");
    let image = base.join("snapshot.img");
    common::run(&mut Command::new("sync"));
    common::run(Command::new("cp").arg("--sparse=always").arg(&volume.image).arg(&image));
    let beside = base.join("beside");
    fs::create_dir(&beside).expect("a folder");
    volume.mount_image(&image, &beside);
    let path = beside.join("state.dat");
    let error = open(&path, OnMismatch::Refuse).expect_err("perhaps a snapshot");
    println!("{error}");
    let file = open(&path, OnMismatch::Discard).expect("its bytes");
    write_more(&file);
    file.sync().expect("sync");
    file.close(CloseMode::Fast).expect("close");
    match open(&path, OnMismatch::Refuse) {
        Ok(file) => println!("{}", state_of(&file)),
        Err(e) => println!("again: {e}"),
    }
    let file = open(&path, OnMismatch::Discard).expect("nothing to discard");
    assert_eq!(state_of(&file), "more");
}

#[test]
fn a_snapshot_without_attributes_is_discarded_once() {
    check("doubts bare snapshot");
}

/// How a sweep leaves the pair, and what the next opening wishes and may find.
struct Case {
    name: &'static str,
    leave: fn(&Options, &Path),
    wish: OnMismatch,
    may_find: &'static [&'static str],
}

fn cases() -> Vec<Case> {
    let close = |options: &Options, path: &Path| {
        let file = options.clone().open(path).expect("open");
        write_and_sync(&file);
        file.deploy(0..4096).expect("a part of it");
        file.close(CloseMode::Fast).expect("close");
    };
    vec![
        Case {
            name: "plain",
            leave: |_, path| fs::write(path, vec![b'x'; LEN as usize]).expect("write"),
            wish: OnMismatch::Refuse,
            may_find: &["xxxx"],
        },
        Case { name: "closed", leave: close, wish: OnMismatch::Refuse, may_find: &["paid"] },
        Case {
            name: "died",
            leave: |options, path| {
                let file = options.clone().open(path).expect("open");
                write_and_sync(&file);
                write_more(&file);
                file.close(CloseMode::Unsynced).expect("close");
            },
            wish: OnMismatch::Refuse,
            may_find: &["more"],
        },
        Case {
            name: "touched, trust",
            leave: |options, path| {
                let file = options.clone().open(path).expect("open");
                write_and_sync(&file);
                file.close(CloseMode::Fast).expect("close");
                run_touch(path);
            },
            wish: OnMismatch::Trust,
            may_find: &["paid", "HomeChanged"],
        },
        Case {
            name: "touched, discard",
            leave: |options, path| {
                let file = options.clone().open(path).expect("open");
                write_and_sync(&file);
                file.close(CloseMode::Fast).expect("close");
                run_touch(path);
            },
            wish: OnMismatch::Discard,
            may_find: &["\0\0\0\0", "HomeChanged"],
        },
        Case {
            name: "journal gone",
            leave: |options, path| {
                let file = options.clone().open(path).expect("open");
                write_and_sync(&file);
                let journal = file.reflection_path().with_added_extension("journal");
                file.close(CloseMode::Unsynced).expect("close");
                fs::remove_file(journal).expect("remove");
            },
            wish: OnMismatch::Refuse,
            may_find: &["paid"],
        },
        Case {
            name: "cut off, discard",
            leave: |options, path| {
                let file = options.clone().open(path).expect("open");
                write_and_sync(&file);
                let reflection = file.reflection_path().to_owned();
                file.close(CloseMode::Fast).expect("close");
                let reflection = fs::File::options().write(true).open(reflection).expect("open");
                reflection.set_len(1 << 20).expect("cut");
            },
            wish: OnMismatch::Discard,
            may_find: &["\0\0\0\0", "ReflectionTruncated"],
        },
        Case {
            name: "mark gone, discard",
            leave: unmark,
            wish: OnMismatch::Discard,
            // On another volume the companions may be another file's, and stay.
            may_find: &["\0\0\0\0", "\0\0\0\0, left: 2", "MarkGone"],
        },
        Case {
            name: "mark gone, trust",
            leave: unmark,
            wish: OnMismatch::Trust,
            may_find: &["paid", "MarkGone"],
        },
        Case {
            name: "junk",
            leave: |options, path| {
                fs::write(path, vec![b'x'; LEN as usize]).expect("write");
                for _ in 0..2 {
                    let file = options.clone().open(path).expect("open");
                    let name = file.reflection_path().to_owned();
                    file.close(CloseMode::Spatial).expect("close");
                    fs::write(name, b"notes").expect("write");
                }
            },
            wish: OnMismatch::Refuse,
            may_find: &["xxxx"],
        },
        Case {
            name: "restored bare",
            leave: |options, path| restore(options, path, false),
            wish: OnMismatch::Refuse,
            may_find: &["paid"],
        },
        Case {
            name: "restored",
            leave: |options, path| restore(options, path, true),
            wish: OnMismatch::Refuse,
            may_find: &["paid"],
        },
    ]
}

fn unmark(options: &Options, path: &Path) {
    let file = options.clone().open(path).expect("open");
    write_and_sync(&file);
    file.close(CloseMode::Fast).expect("close");
    let home = fs::File::open(path).expect("open").into();
    Recorder::new().platform().remove_xattr(&home, marker::NAME).expect("remove");
}

fn restore(options: &Options, path: &Path, with_attributes: bool) {
    let file = options.clone().open(path).expect("open");
    write_and_sync(&file);
    file.close(CloseMode::Unsynced).expect("close");
    let companions = folder_of(folder_of(path)).join("companions");
    for folder in [folder_of(path), &companions] {
        for entry in fs::read_dir(folder).expect("list") {
            let path = entry.expect("an entry").path();
            if !path.is_file() {
                continue;
            }
            let copy = folder.join("copy");
            if with_attributes {
                common::run(Command::new("cp").arg("-a").arg(&path).arg(&copy));
            } else {
                common::run(Command::new("cp").arg("--sparse=always").arg(&path).arg(&copy));
            }
            fs::rename(&copy, &path).expect("rename");
        }
    }
}

/// All calls of an opening fail once, one after the other.
fn sweep_failures(base: &Path, elsewhere: bool) {
    let homes = Volume::new("ext4", base, "homes").expect("ext4");
    let companions = Volume::new("ext4", base, "companions").expect("ext4");
    let path = homes.state();
    let dir = if elsewhere { companions.folder.clone() } else { homes.folder.clone() };
    let swept = || options().reflection_dir(&dir);
    for case in cases() {
        let mut told = std::collections::BTreeMap::<String, Vec<usize>>::new();
        for nth in (1..400).step_by(EVERY) {
            for folder in [&homes.folder, &companions.folder] {
                for entry in fs::read_dir(folder).expect("list") {
                    let _folders_stay = fs::remove_file(entry.expect("an entry").path());
                }
            }
            (case.leave)(&swept(), &path);
            let before = companions_in(&dir);
            let recorder = Recorder::new();
            recorder.fail_next("any", nth, libc::EIO);
            let failed = swept().on_mismatch(case.wish).open_recorded(&recorder, &path);
            let is_over = recorder.heal();
            let mut found = String::new();
            if let Ok(file) = failed {
                found += "went on, ";
                file.close(CloseMode::Unsynced).expect("close");
            }
            match swept().open(&path) {
                Ok(file) => {
                    let all = PAGES.map(|page| {
                        let mut bytes = [0; 4];
                        file.read_at(&mut bytes, page * 4096 + 100).expect("read");
                        String::from_utf8_lossy(&bytes).into_owned()
                    });
                    let is_one = all[0] == all[1] && all[1] == all[2];
                    found += &if is_one { all[0].clone() } else { format!("{all:?}") };
                    file.close(CloseMode::Spatial).expect("close");
                    let left = companions_in(&dir);
                    let more =
                        left.iter().filter(|name| case.name != "junk" || !before.contains(name));
                    let more = more.count();
                    if more > 0 {
                        found += &format!(", left: {more}");
                    }
                }
                Err(Error::Mismatch { why, .. }) => found += &format!("{why:?}"),
                Err(e) => found += &format!("{e:?}"),
            }
            if is_over {
                break;
            }
            told.entry(found).or_default().push(nth);
        }
        for (found, at) in &told {
            let ok = case.may_find.contains(&found.trim_start_matches("went on, "));
            println!(
                "SWEEP {}: {found:?} {} at {at:?}",
                case.name,
                if ok { "fine" } else { "WRONG" }
            );
        }
    }
    homes.unmount();
    companions.unmount();
}

/// Runs a sweep in a child. Each is a test of its own, since mostly it waits for the disk.
fn run_sweep(name: &str) {
    let scratch = disk().scratch();
    let role = format!("mounts doubts {name}");
    let Some(mut child) = common::child_with_mounts(CHILD, &role, scratch.path()) else { return };
    let told = common::run_test(&mut child);
    print!("{told}");
    assert!(!told.contains("WRONG"), "{told}");
}

#[test]
fn an_opening_with_failing_calls() {
    run_sweep("failures same");
}

#[test]
fn an_opening_with_failing_calls_and_companions_elsewhere() {
    run_sweep("failures elsewhere");
}

fn swept(path: &Path) -> Options {
    options().reflection_dir(folder_of(folder_of(path)).join("companions"))
}

pub fn dies_at(role: &str, path: &Path) {
    let (nth, name) = role.split_once(' ').expect("a number and a case");
    let case = cases().into_iter().find(|case| case.name == name).expect("a case");
    let recorder = Recorder::new();
    recorder.kill_at(nth.parse().expect("a number"), atomic_mmap::testing::recorder::Death::Before);
    let file = swept(path).on_mismatch(case.wish).open_recorded(&recorder, path).expect("open");
    recorder.spare();
    println!("opened");
    file.close(CloseMode::Unsynced).expect("close");
}

/// Prints what is found after a death before each thing that an opening does, companions elsewhere.
/// In every second case, from `first` on.
fn sweep(base: &Path, first: usize) {
    let homes = Volume::new("ext4", base, "homes").expect("ext4");
    let others = Volume::new("ext4", base, "companions").expect("ext4");
    let path = homes.state();
    for case in cases().into_iter().skip(first).step_by(2) {
        let mut told = std::collections::BTreeMap::<String, Vec<usize>>::new();
        for nth in (1..400).step_by(EVERY) {
            for folder in [&homes.folder, &others.folder] {
                for entry in fs::read_dir(folder).expect("list") {
                    let _folders_stay = fs::remove_file(entry.expect("an entry").path());
                }
            }
            (case.leave)(&swept(&path), &path);
            let role = format!("mounts doubts dies {nth} {}", case.name);
            let output = common::child(CHILD, &role, &path).output().expect("a child");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(common::ran_its_test(&text), "{output:?}");
            if text.contains("opened") {
                break;
            }
            let found = match swept(&path).open(&path) {
                Ok(file) => {
                    let all = PAGES.map(|page| {
                        let mut bytes = [0; 4];
                        file.read_at(&mut bytes, page * 4096 + 100).expect("read");
                        String::from_utf8_lossy(&bytes).into_owned()
                    });
                    if all[0] == all[1] && all[1] == all[2] {
                        all[0].clone()
                    } else {
                        format!("{all:?}")
                    }
                }
                Err(Error::Mismatch { why, .. }) => format!("{why:?}"),
                Err(e) => format!("{e:?}"),
            };
            told.entry(found).or_default().push(nth);
        }
        for (found, at) in &told {
            let ok = case.may_find.contains(&found.as_str());
            println!(
                "SWEEP {}: {found:?} {} at {at:?}",
                case.name,
                if ok { "fine" } else { "WRONG" }
            );
        }
    }
    homes.unmount();
    others.unmount();
}

#[test]
fn an_opening_that_died_anywhere_with_companions_elsewhere() {
    run_sweep("sweep even");
}

#[test]
fn an_opening_that_died_anywhere_with_companions_elsewhere_in_the_other_cases() {
    run_sweep("sweep odd");
}

/// A file was renamed while it was closed, and its volume was mounted anew where it was.
fn renamed(base: &Path) {
    let common = base.join("common");
    fs::create_dir(&common).expect("a folder");
    let volume = Volume::new("ext4", base, "disk").expect("ext4");
    let options = || options().reflection_dir(&common);
    let file = options().open(volume.state()).expect("open");
    write_and_sync(&file);
    file.close(CloseMode::Fast).expect("close");
    let device = || fs::metadata(&volume.folder).expect("stat").dev();
    let before = device();
    volume.move_to_another_device(&volume.folder);
    assert_ne!(device(), before);
    let path = volume.folder.join("renamed.dat");
    fs::rename(volume.state(), &path).expect("rename");
    // It may as well be a snapshot.
    let error = options().open(&path).expect_err("on another device, by another name");
    assert!(matches!(error, Error::Mismatch { why: Mismatch::MayBeSnapshot, .. }), "{error:?}");
    let file = options().on_mismatch(OnMismatch::Trust).open(&path).expect("the caller knows");
    assert_eq!(state_of(&file), "paid");
}

#[test]
fn a_file_that_was_renamed_opens_after_a_remount() {
    check("doubts renamed");
}

/// A restore kept the attributes and not the parts of a second of its times.
#[test]
fn a_closed_pair_that_was_restored_with_whole_seconds_opens() {
    let scratch = disk().scratch();
    let data = scratch.file("data");
    fs::create_dir(&data).expect("a folder");
    closed_fast(&data.join("state.dat"));
    let restored = scratch.file("restored");
    fs::create_dir(&restored).expect("a folder");
    for entry in fs::read_dir(&data).expect("list") {
        let path = entry.expect("an entry").path();
        let how = "--preserve=xattr,mode,ownership";
        common::run(Command::new("cp").arg(how).arg(&path).arg(&restored));
    }
    let file = options().open(restored.join("state.dat")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(state_of(&file), "paid");
}

/// A spatial close of a file under one of the further names dies after the mark is gone.
#[test]
fn an_emptied_leftover_under_a_further_name_is_removed() {
    let scratch = disk().scratch();
    let path = scratch.file("state.dat");
    fs::write(&path, vec![7; LEN as usize]).expect("write");
    for _ in 0..2 {
        let file = options().open(&path).expect("open");
        let name = file.reflection_path().to_owned();
        file.close(CloseMode::Spatial).expect("close");
        fs::write(name, b"notes").expect("write");
    }
    let before = companions_in(scratch.path());
    let recorder = Recorder::new();
    let file = options().open_recorded(&recorder, &path).expect("open");
    recorder.fail_from(call::REMOVE, 1, libc::EIO);
    file.close(CloseMode::Spatial).expect_err("a failure");
    options().open(&path).expect("open").close(CloseMode::Spatial).expect("close");
    assert_eq!(companions_in(scratch.path()), before);
}

/// In a folder of very many names nothing is searched, and a pair under a further name lost its
/// mark.
#[test]
fn a_mark_that_is_gone_is_told_for_further_names_in_a_long_folder() {
    let scratch = disk().scratch();
    let path = scratch.file("state.dat");
    fs::write(&path, vec![b'x'; LEN as usize]).expect("write");
    for _ in 0..2 {
        let file = options().open(&path).expect("open");
        let name = file.reflection_path().to_owned();
        file.close(CloseMode::Spatial).expect("close");
        fs::write(name, b"notes").expect("write");
    }
    closed_fast(&path);
    let home = fs::File::open(&path).expect("open").into();
    Recorder::new().platform().remove_xattr(&home, marker::NAME).expect("remove");
    for n in 0..3000 {
        fs::write(scratch.file(&format!("{n}")), b"").expect("write");
    }
    match options().open(&path) {
        Ok(file) => assert_eq!(state_of(&file), "paid"),
        Err(e) => println!("{e}"),
    }
}

/// An opening set the mark and failed before the sync. The next one found the mark that it wanted,
/// and did not sync it either: a power loss could leave the mark of an older session beside the
/// superblock.
fn unsynced_mark(base: &Path) {
    let homes = Volume::new("ext4", base, "homes").expect("ext4");
    let others = Volume::new("ext4", base, "companions").expect("ext4");
    // A journal's header would give the second opening another session.
    let options = || options().reflection_dir(&others.folder).medium(Medium::Ram);
    let file = options().open(homes.state()).expect("open");
    write_and_sync(&file);
    file.close(CloseMode::Fast).expect("close");
    let recorder = Recorder::new();
    recorder.fail_next(call::SYNC_ALL, 1, libc::EIO);
    options().open_recorded(&recorder, homes.state()).expect_err("the mark is not durable");
    recorder.take();
    let file = options().open_recorded(&recorder, homes.state()).expect("open");
    let events: Vec<What> = recorder.take().into_iter().map(|event| event.what).collect();
    let is_synced = |event: &What| matches!(event, What::Sync { file: FileId::Home, all: true });
    let is_superblock =
        |event: &What| matches!(event, What::Write { file: FileId::Reflection, .. });
    let synced = events.iter().position(is_synced).expect("the mark is made durable");
    let says = events.iter().position(is_superblock).expect("a session begins");
    assert!(synced < says, "{synced} {says}");
    drop(file);
}

#[test]
fn a_mark_that_an_opening_left_is_made_durable_before_it_counts() {
    check("doubts unsynced mark");
}

/// A pair was restored, keeps its companions' names of the old inode, and lost its mark. After a
/// discard the search for companions under other names refused the file again.
fn discarded_under_another_name(base: &Path) {
    let homes = Volume::new("ext4", base, "homes").expect("ext4");
    let others = Volume::new("ext4", base, "companions").expect("ext4");
    let open = |wish| {
        let options = options().reflection_dir(&others.folder).on_mismatch(wish);
        options.open(homes.state())
    };
    let file = open(OnMismatch::Refuse).expect("open");
    write_and_sync(&file);
    file.close(CloseMode::Fast).expect("close");
    for path in companions_in(&others.folder).into_iter().chain([homes.state()]) {
        let copy = path.with_added_extension("copy");
        common::run(Command::new("cp").arg("-a").arg(&path).arg(&copy));
        fs::rename(&copy, &path).expect("rename");
    }
    let file = open(OnMismatch::Refuse).expect("restored");
    assert_eq!(state_of(&file), "paid");
    file.close(CloseMode::Fast).expect("close");
    // The first session after a restore begins before its mark, and says so.
    open(OnMismatch::Refuse).expect("again").close(CloseMode::Fast).expect("close");
    let leftovers = companions_in(&others.folder);
    let home = fs::File::open(homes.state()).expect("open").into();
    Recorder::new().platform().remove_xattr(&home, marker::NAME).expect("take the mark off");
    open(OnMismatch::Refuse).expect_err("its mark is gone");
    drop(open(OnMismatch::Discard).expect("its bytes as they are"));
    drop(open(OnMismatch::Refuse).expect("a plain file"));
    assert_eq!(companions_in(&others.folder), leftovers);
}

#[test]
fn a_pair_under_another_name_is_discarded_once() {
    check("doubts restored elsewhere");
}
