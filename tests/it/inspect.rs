//! Tests of looks at a pair: they say what the next opening does, and change nothing.

use crate::common::{self, Ground, Snapshot, media};
use atomic_mmap::{
    AtomicMappedFile, CloseMode, Decision, DeployPolicy, Error, Inspection, Medium, Mismatch,
};
use std::collections::BTreeMap;
use std::path::Path;

const LEN: u64 = 1 << 20;

/// Looks at the file, and checks that this changes nothing in the folder.
#[track_caller]
fn look(ground: &Ground, path: &Path) -> Inspection {
    let folder = path.parent().expect("a folder");
    let before = Snapshot::of(folder);
    let found = ground.options().inspect(path).expect("inspect");
    before.assert_unchanged(folder, "inspected");
    found
}

fn pages(look: &Inspection) -> BTreeMap<u64, u64> {
    let mut pages = BTreeMap::new();
    look.each_reflected_page(|offset, slices| {
        assert!(pages.insert(offset, slices).is_none());
    })
    .expect("read the words");
    pages
}

/// Makes a pair, and leaves it as a crash does, with a deployed page and others.
fn make(ground: &Ground, path: &Path, mode: CloseMode) {
    let options = ground.options().create(true).len(LEN).deploy(DeployPolicy::Manual);
    let file = options.open(path).expect("create");
    // Whole pages of a region, which its word tells, and slices.
    file.write_at(&[1; 3 * 4096], 0).expect("write");
    file.write_at(&[2; 64], 500_032).expect("write");
    file.deploy(4096..8192).expect("deploy");
    file.close(mode).expect("close");
}

#[test]
fn a_look_says_what_opening_does() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("looked-at.dat");
        std::fs::write(&path, vec![7; 5000]).expect("a plain file");
        let found = look(&ground, &path);
        assert_eq!((found.len, found.home_len, found.is_open), (5000, 5000, false));
        assert_eq!((found.decision, found.uuid.is_some()), (Some(Decision::Fresh), false));
        std::fs::remove_file(&path).expect("remove");

        make(&ground, &path, CloseMode::Fast);
        let found = look(&ground, &path);
        assert_eq!((found.len, found.decision), (LEN, Some(Decision::Reuse)));
        assert!(found.reflection.as_ref().is_some_and(|path| path.exists()));
        let expected = BTreeMap::from([(0, !0), (8192, !0), (499_712, 1 << 5)]);
        assert_eq!(pages(&found), expected, "{found:?}");

        // Another program writes to it.
        let modified = std::time::SystemTime::UNIX_EPOCH;
        let home = std::fs::File::options().write(true).open(&path).expect("open");
        home.set_modified(modified).expect("set the time");
        let found = look(&ground, &path);
        assert_eq!(found.decision, Some(Decision::Refuse(Mismatch::HomeChanged)));
        assert_eq!(found.if_discarded, Some(Decision::Discard));
        assert_eq!(found.if_trusted, Some(Decision::Reuse));

        std::fs::remove_file(found.reflection.as_ref().expect("a file")).expect("remove");
        let is_marked = found.mark != "None";
        let found = look(&ground, &path);
        let gone = Decision::Refuse(Mismatch::ReflectionGone);
        // Other systems keep no marks.
        assert_eq!(found.decision, Some(if is_marked { gone } else { Decision::Fresh }));
        assert_eq!(found.if_trusted, found.decision);
    }
}

#[test]
fn a_look_at_a_crashed_pair_says_that_opening_recovers() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("crashed.dat");
        make(&ground, &path, CloseMode::Unsynced);
        let found = look(&ground, &path);
        assert_eq!(found.decision, Some(Decision::Recover), "{found:?}");
        let file = ground.options().open(&path).expect("open");
        assert_eq!(file.len(), found.len);
        file.close(CloseMode::Spatial).expect("close");
        assert_eq!(look(&ground, &path).decision, Some(Decision::Fresh));
    }
}

/// Also here, where the same process has it open.
#[test]
fn a_look_at_an_open_file_does_not_disturb_it() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("open.dat");
        let options = ground.options().create(true).len(LEN).deploy(DeployPolicy::Manual);
        let file = options.open(&path).expect("create");
        file.write_at(&[3; 4096], 8192).expect("write");
        let found = look(&ground, &path);
        assert!(found.is_open && found.decision.is_none(), "{found:?}");
        assert_eq!(found.len, LEN);
        assert_eq!(pages(&found), BTreeMap::from([(8192, !0)]));
        // The lock is still held.
        assert!(matches!(ground.options().open(&path), Err(Error::Busy { .. })));
        file.write_at(&[4; 4096], 8192).expect("the file is still usable");
        file.close(CloseMode::Spatial).expect("close");
    }
}

#[test]
fn damage_is_a_finding_and_no_error() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let path = scratch.file("damaged.dat");
    make(&ground, &path, CloseMode::Fast);
    let reflection = scratch.reflections().pop().expect("a reflection file");
    let file = std::fs::File::options().write(true).open(&reflection).expect("open");
    for superblock in [0, 4096] {
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 8], superblock + 100)
            .expect("damage");
    }
    let found = look(&ground, &path);
    assert_eq!(found.decision, Some(Decision::Refuse(Mismatch::Corrupt)));
    assert!(found.uuid.is_none() && found.reflection.is_some());
    assert_eq!(pages(&found), BTreeMap::new(), "words that no superblock vouches for");
    let missing = AtomicMappedFile::options().medium(Medium::Ram).inspect(scratch.file("none"));
    assert!(matches!(missing, Err(Error::Io { .. })), "{missing:?}");
}
