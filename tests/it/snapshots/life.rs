//! Tests the store of snapshots as a companion: how it is made, found, refused and removed.

use crate::common::{self, Ground, Scratch, assert_same, crash, media, read_all, role, run_child};
use atomic_mmap::testing::recorder::{Death, Recorder};
use atomic_mmap::{
    AtomicMappedFile, CloseMode, Distrust, Durability, Error, Medium, OnMismatch, Options,
    SnapshotError,
};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

const CHILD: &str = concat!(module_path!(), "::plays_the_child_if_it_is_one");
const PAGE: u64 = 4096;
const LEN: u64 = 40 * PAGE + 100;

#[test]
fn plays_the_child_if_it_is_one() {
    let Some((role, path)) = role() else { return };
    let mut words = role.split(' ');
    let (what, medium) = (words.next().expect("a role"), words.next().expect("a medium"));
    let ground = media().into_iter().find(|ground| ground.medium.to_string() == medium);
    let options = ground.expect("a medium").options();
    match what {
        "seals" => {
            let recorder = Recorder::new();
            let file = options.open_recorded(&recorder, &path).expect("open");
            recorder.kill_at(words.next().expect("n").parse().expect("a number"), Death::Before);
            file.snapshot("a").expect("seal");
            recorder.spare();
            println!("sealed");
            crash();
        }
        "opens" => {
            let recorder = Recorder::new();
            recorder.kill_at(words.next().expect("n").parse().expect("a number"), Death::Before);
            let _file = options.open_recorded(&recorder, &path).expect("open");
            recorder.spare();
            println!("opened");
            crash();
        }
        "writes" => {
            let file = options.open(&path).expect("open");
            write_later(&file);
            crash();
        }
        "shrinks" => {
            let file = options.open(&path).expect("open");
            file.set_len(3 * PAGE + 70).expect("shrink");
            file.write_at(&[4; 50], 0).expect("write");
            crash();
        }
        _ => panic!("no role {role}"),
    }
}

/// A file with a snapshot "a", and what it holds.
struct Sealed {
    ground: Ground,
    scratch: Scratch,
    a: Vec<u8>,
}

impl Sealed {
    fn on_each_medium() -> Vec<Sealed> {
        media().into_iter().map(Sealed::new).collect()
    }

    fn new(ground: Ground) -> Sealed {
        let sealed = Sealed { scratch: ground.scratch(), ground, a: Vec::new() };
        let file = sealed.options().create(true).len(LEN).open(sealed.path()).expect("open");
        file.write_at(&[1; 9000], 3000).expect("write");
        file.write_at(&[2; 500], LEN - 700).expect("write");
        let a = read_all(&file);
        file.snapshot("a").expect("seal");
        write_later(&file);
        file.close(CloseMode::Fast).expect("close");
        Sealed { a, ..sealed }
    }

    fn options(&self) -> Options {
        self.ground.options()
    }

    fn path(&self) -> PathBuf {
        self.scratch.file("state.dat")
    }

    fn open(&self) -> AtomicMappedFile {
        self.options().open(self.path()).unwrap_or_else(|e| panic!("{}: {e}", self.ground.medium))
    }

    fn store(&self) -> PathBuf {
        let found = stores_in(self.scratch.path());
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    }

    #[track_caller]
    fn assert_has_a(&self, file: &AtomicMappedFile, what: &str) {
        let names: Vec<String> = file.snapshots().into_iter().map(|info| info.name).collect();
        assert_eq!(names, ["a"], "{what} on {}", self.ground.medium);
        let found = common::read_snapshot(file, "a");
        assert_same(&found, &self.a, &format!("{what} on {}", self.ground.medium));
    }

    /// Opening fails, and changes nothing.
    #[track_caller]
    fn refused(&self, what: &str) -> Error {
        let before = common::Snapshot::of(self.scratch.path());
        let error = self.options().open(self.path()).expect_err(what);
        before.assert_unchanged(self.scratch.path(), what);
        error
    }
}

/// Goes over parts of what "a" has, and over what it has not.
fn write_later(file: &AtomicMappedFile) {
    file.write_at(&[3; 6000], 5000).expect("write");
    file.write_at(&[3; 60], LEN - 60).expect("write");
    file.write_at(&[3; 10], 20 * PAGE).expect("write");
}

fn stores_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("list").map(|entry| entry.expect("list").path());
    entries.filter(|path| path.to_string_lossy().contains(".snapshots")).collect()
}

fn is_of_another_pair(error: &Error) -> bool {
    matches!(error, Error::Untrusted { why: Distrust::IsOfAnotherPair, .. })
}

#[test]
fn snapshots_survive_both_closes_and_the_last_one_takes_the_store_along() {
    for sealed in Sealed::on_each_medium() {
        let mut present = sealed.a.clone();
        for mode in [CloseMode::Fast, CloseMode::Spatial, CloseMode::Fast, CloseMode::Spatial] {
            let file = sealed.open();
            sealed.assert_has_a(&file, "an opening");
            file.write_at(&[mode as u8 + 5; 300], 4000).expect("write");
            present = read_all(&file);
            file.close(mode).expect("close");
            if mode == CloseMode::Spatial {
                assert_same(&fs::read(sealed.path()).expect("read"), &present, "a plain file");
            }
            sealed.store();
        }
        for mode in [CloseMode::Fast, CloseMode::Spatial] {
            let file = sealed.open();
            if file.snapshots().is_empty() {
                file.snapshot("a").expect("seal");
            }
            file.drop_snapshot("a").expect("drop");
            file.close(mode).expect("close");
            assert!(stores_in(sealed.scratch.path()).is_empty(), "{mode:?}");
        }
        assert_same(&fs::read(sealed.path()).expect("read"), &present, "a plain file");
        assert_eq!(fs::read_dir(sealed.scratch.path()).expect("list").count(), 1);
    }
}

#[test]
fn a_store_has_the_rights_of_its_file_and_is_made_at_the_first_snapshot() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let file = ground.options().create(true).len(LEN).open(&path).expect("open");
        assert!(stores_in(scratch.path()).is_empty());
        file.snapshot("a").expect("seal");
        let stores = stores_in(scratch.path());
        let [store] = &stores[..] else { panic!("{stores:?}") };
        let mode = |path: &Path| fs::metadata(path).expect("stat").mode() & 0o777;
        assert_eq!(mode(store), mode(&path));
        file.close(CloseMode::Fast).expect("close");
    }
}

/// A session dies at any step of the first snapshot. The next one finds the snapshot or
/// nothing of it.
#[test]
fn a_death_at_each_step_of_the_first_snapshot() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let mut outcomes = [0, 0];
        for nth in 0.. {
            let _there_may_be_none = fs::remove_file(&path);
            for entry in fs::read_dir(scratch.path()).expect("list") {
                fs::remove_file(entry.expect("list").path()).expect("remove");
            }
            let file = ground.options().create(true).len(LEN).open(&path).expect("open");
            file.write_at(&[7; 100], 50).expect("write");
            file.close(CloseMode::Fast).expect("close");
            let ended = child_output("seals", &ground, nth, &path);
            let file = ground.options().open(&path).expect("open");
            let names: Vec<String> = file.snapshots().into_iter().map(|info| info.name).collect();
            outcomes[names.len()] += 1;
            match &names[..] {
                [] => assert!(!ended, "{nth}"),
                [name] => {
                    let found = file.open_snapshot(name).expect("open").read_vec().expect("read");
                    assert_same(&found, &read_all(&file), "the snapshot");
                }
                more => panic!("{more:?}"),
            }
            assert_eq!(stores_in(scratch.path()).len(), names.len(), "a leftover after {nth}");
            if names.is_empty() {
                file.snapshot("a").expect("seal");
            }
            file.close(CloseMode::Fast).expect("close");
            if ended {
                break;
            }
        }
        assert!(outcomes[0] > 5 && outcomes[1] > 1, "{outcomes:?}");
    }
}

/// From any call on, each call of the first snapshot fails, also the removal of what was made. The
/// store may then have its own name, with nothing in it. The next snapshot found its name taken for
/// as long as the file was open.
#[test]
fn a_first_snapshot_succeeds_after_one_that_failed_at_any_step() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        for nth in 1.. {
            let recorder = Recorder::new();
            let options = ground.options().create(true).len(LEN);
            let mut file = options.open_recorded(&recorder, &path).expect("open");
            recorder.fail_from("any", nth, libc::EIO);
            let sealed = file.snapshot("a");
            let has_failed = !recorder.heal();
            assert!(sealed.is_err() || !has_failed, "a failure at {nth} was not told");
            if matches!(file.health(), Err(Error::Poisoned { .. })) {
                // A failed durable point.
                assert_eq!(ground.medium, Medium::PageCache);
                drop(file);
                file = ground.options().open(&path).expect("open");
            }
            if has_failed && file.snapshots().is_empty() {
                file.snapshot("a").unwrap_or_else(|e| panic!("{} {nth}: {e}", ground.medium));
            }
            assert_eq!(stores_in(scratch.path()).len(), 1, "{nth}");
            file.drop_snapshot("a").expect("drop");
            file.close(CloseMode::Spatial).expect("close");
            fs::remove_file(&path).expect("remove");
            if !has_failed {
                break;
            }
        }
    }
}

/// An opening that dies at any step is repeated, and finds all of the snapshot.
#[test]
fn a_death_at_each_step_of_an_opening() {
    for ground in media() {
        let sealed = Sealed::new(ground);
        for crashed in [false, true] {
            // Many events are lines that are flushed, one like the other.
            for nth in (0..40).chain((40..).step_by(7)) {
                if crashed {
                    run_child(CHILD, &format!("writes {}", sealed.ground.medium), sealed.path());
                }
                let ended = child_output("opens", &sealed.ground, nth, &sealed.path());
                if nth % 4 == 0 || ended {
                    let file = sealed.open();
                    sealed.assert_has_a(&file, &format!("a death before {nth}"));
                    file.close(CloseMode::Fast).expect("close");
                }
                if ended {
                    break;
                }
            }
        }
    }
}

/// Returns `true` if the child has come to its end.
fn child_output(role: &str, ground: &Ground, nth: usize, path: &Path) -> bool {
    let role = format!("{role} {} {nth}", ground.medium);
    let output = common::child(CHILD, &role, path).output().expect("a child");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(common::ran_its_test(&told), "{output:?}");
    told.contains("sealed") || told.contains("opened")
}

/// In page cache, only a durable point keeps for snapshots. Recovery makes one of the state that a
/// crashed process has left.
#[test]
fn a_crashed_session_takes_nothing_from_a_snapshot() {
    for sealed in Sealed::on_each_medium() {
        for what in ["writes", "shrinks", "writes"] {
            let file = sealed.open();
            file.set_len(LEN).expect("grow");
            file.write_at(&[9; 20_000], 2000).expect("write");
            file.sync().expect("sync");
            drop(file);
            run_child(CHILD, &format!("{what} {}", sealed.ground.medium), sealed.path());
            let reader = sealed.options().read_only(true).open(sealed.path()).expect("a reader");
            sealed.assert_has_a(&reader, &format!("a reader after {what}"));
            drop(reader);
            let file = sealed.open();
            sealed.assert_has_a(&file, what);
            let len = if what == "shrinks" { 3 * PAGE + 70 } else { LEN };
            assert_eq!(file.len(), len);
            file.close(CloseMode::Fast).expect("close");
            sealed.assert_has_a(&sealed.open(), "the opening after that");
        }
    }
}

#[test]
fn a_file_in_the_place_of_the_store_is_refused_unless_it_is_the_store() {
    let ground = common::page_cache().unwrap_or_else(common::ram);
    let (sealed, other) = (Sealed::new(ground.clone()), Sealed::new(ground));
    let (store, aside) = (sealed.store(), sealed.scratch.file("aside"));
    fs::rename(&store, &aside).expect("rename");

    common::copy_file(&other.store(), &store);
    assert!(is_of_another_pair(&sealed.refused("another pair's")));
    fs::remove_file(&store).expect("remove");

    fs::write(&store, "notes of another program").expect("write");
    assert!(is_of_another_pair(&sealed.refused("another program's")));
    fs::remove_file(&store).expect("remove");

    symlink(&aside, &store).expect("link");
    let error = sealed.refused("a link");
    assert!(matches!(error, Error::Untrusted { why: Distrust::IsLink, .. }), "{error:?}");
    fs::remove_file(&store).expect("remove");

    fs::create_dir(&store).expect("a folder");
    let error = sealed.refused("a folder");
    assert!(matches!(error, Error::Untrusted { why: Distrust::IsIrregular, .. }), "{error:?}");
    fs::remove_dir(&store).expect("remove");

    fs::hard_link(&aside, &store).expect("link");
    let error = sealed.refused("a hard link");
    assert!(matches!(error, Error::Untrusted { why: Distrust::HasLinks(2), .. }), "{error:?}");
    fs::remove_file(&store).expect("remove");

    fs::rename(&aside, &store).expect("rename");
    sealed.assert_has_a(&sealed.open(), "the store itself");
}

/// A session that did not have the store has kept nothing in it.
#[test]
fn a_store_of_another_time_is_refused_and_a_missing_one_is_no_snapshot() {
    for sealed in Sealed::on_each_medium() {
        let (store, aside) = (sealed.store(), sealed.scratch.file("aside"));
        fs::rename(&store, &aside).expect("rename");
        let file = sealed.open();
        assert!(file.snapshots().is_empty());
        write_later(&file);
        file.close(CloseMode::Fast).expect("close");
        fs::rename(&aside, &store).expect("rename");
        assert!(is_of_another_pair(&sealed.refused("an older store")));
        fs::remove_file(&store).expect("remove");
        sealed.open().close(CloseMode::Spatial).expect("close");
        assert_eq!(fs::read_dir(sealed.scratch.path()).expect("list").count(), 1);
    }
}

#[test]
fn a_damaged_store_is_told_and_the_present_is_whole_without_it() {
    for sealed in Sealed::on_each_medium() {
        let store = sealed.store();
        let file = fs::OpenOptions::new().write(true).open(&store).expect("open");
        for table in [0, 256 << 10] {
            file.write_all_at(b"scribbled", table + 20).expect("write");
        }
        drop(file);
        let error = sealed.refused("a damaged store");
        let Error::Snapshot { path, why: SnapshotError::Damaged { .. } } = &error else {
            panic!("{error:?}")
        };
        assert_eq!(path, &store);
        fs::remove_file(&store).expect("remove");
        let file = sealed.open();
        let mut bytes = [0; 10];
        file.read_at(&mut bytes, 20 * PAGE).expect("read");
        assert_eq!(bytes, [3; 10]);
    }
}

#[test]
fn a_reader_reads_snapshots_and_changes_nothing() {
    for sealed in Sealed::on_each_medium() {
        let before = common::Snapshot::of(sealed.scratch.path());
        let reader = sealed.options().read_only(true).open(sealed.path()).expect("a reader");
        sealed.assert_has_a(&reader, "a reader");
        let error = reader.snapshot("b").expect_err("a reader");
        assert!(matches!(error, Error::ReadOnly { .. }), "{error:?}");
        reader.close(CloseMode::Fast).expect("close");
        before.assert_unchanged(sealed.scratch.path(), "a reader");
    }
}

#[test]
fn a_discarded_pair_takes_its_snapshots_along_and_leaves_those_of_others() {
    for sealed in Sealed::on_each_medium() {
        fs::write(sealed.path(), [8; LEN as usize]).expect("change the home file");
        let options = sealed.options().on_mismatch(OnMismatch::Discard);
        let file = options.open(sealed.path()).expect("discard");
        assert!(file.snapshots().is_empty());
        assert!(stores_in(sealed.scratch.path()).is_empty());
        file.snapshot("b").expect("seal");
        file.close(CloseMode::Fast).expect("close");

        let other = Sealed::new(sealed.ground.clone());
        let store = sealed.store();
        common::copy_file(&other.store(), &store);
        let theirs = fs::read(&store).expect("read");
        fs::write(sealed.path(), [9; LEN as usize]).expect("change the home file");
        let file = options_of(&sealed).open(sealed.path()).expect("discard");
        assert!(file.snapshots().is_empty());
        file.close(CloseMode::Spatial).expect("close");
        assert_same(&fs::read(&store).expect("read"), &theirs, "another pair's store");
    }
}

fn options_of(sealed: &Sealed) -> Options {
    sealed.options().on_mismatch(OnMismatch::Discard)
}

/// A backup program restores each file under its old name, as another file.
#[test]
fn restored_copies_have_their_snapshots() {
    for sealed in Sealed::on_each_medium() {
        let companions: Vec<PathBuf> = fs::read_dir(sealed.scratch.path())
            .expect("list")
            .map(|entry| entry.expect("list").path())
            .filter(|path| *path != sealed.path())
            .collect();
        for path in companions {
            let copy = sealed.scratch.file("copy");
            common::copy_file(&path, &copy);
            fs::rename(&copy, &path).expect("rename");
        }
        let file = sealed.open();
        sealed.assert_has_a(&file, "a copy");
        write_later(&file);
        file.close(CloseMode::Spatial).expect("close");
        sealed.assert_has_a(&sealed.open(), "a copy");
    }
}

#[test]
fn an_inspection_lists_the_snapshots() {
    for sealed in Sealed::on_each_medium() {
        let file = sealed.open();
        file.snapshot("b").expect("seal");
        for is_open in [true, false] {
            let look = sealed.options().inspect(sealed.path()).expect("look");
            assert_eq!(look.is_open, is_open);
            let found: Vec<_> = look.snapshots.iter().map(|of| (of.number, &*of.name)).collect();
            assert_eq!(found, [(1, "a"), (2, "b")]);
            assert!(look.snapshots.iter().all(|of| of.len == LEN));
            assert_eq!(look.snapshot_file, Some(sealed.store()));
            if is_open {
                file.close(CloseMode::Fast).expect("close");
                break;
            }
        }
        let look = sealed.options().inspect(sealed.path()).expect("look");
        assert_eq!((look.is_open, look.snapshots.len()), (false, 2));
    }
}

/// With `AtomicSync` a crash goes back to the last durable point, and each snapshot is one.
#[test]
fn a_crash_of_atomic_sync_goes_back_and_keeps_the_snapshots() {
    for sealed in Sealed::on_each_medium() {
        let options = sealed.options().durability(Durability::AtomicSync);
        let file = options.open(sealed.path()).expect("open");
        write_later(&file);
        file.snapshot("b").expect("seal");
        let b = read_all(&file);
        file.write_at(&[6; 9000], 100).expect("write");
        file.close(CloseMode::Unsynced).expect("close");
        let file = sealed.options().open(sealed.path()).expect("open");
        assert_same(&read_all(&file), &b, "the last point");
        for (name, expected) in [("a", &sealed.a), ("b", &b)] {
            let found = file.open_snapshot(name).expect("open").read_vec().expect("read");
            assert_same(&found, expected, name);
        }
    }
}
