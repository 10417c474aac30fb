//! Snapshots: every command on them, its exit codes and its JSON.

use crate::common::{
    Holder, LEN, Run, Scratch, assert_known, command, damage, make, options, run, scratch,
};
use atomic_mmap::{AtomicMappedFile, CloseMode};
use snapbox::{assert_data_eq, str};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Runs `snapshot` and one of its commands on a file, with what comes after it.
fn snapshot(what: &str, path: &Path, after: &[&str]) -> Run {
    let mut command = command();
    command.args(["snapshot", what]).arg(path).args(after);
    Run(command.output().expect("run"))
}

/// Makes a file with a snapshot `known`, which has the known bytes. All bytes of the present are 9.
fn changed(scratch: &Scratch, mode: CloseMode) -> PathBuf {
    let path = scratch.file("home");
    make(&path, CloseMode::Spatial);
    snapshot("create", &path, &["known"]).code(0);
    change(&path, mode);
    path
}

fn change(path: &Path, mode: CloseMode) {
    let file = AtomicMappedFile::open(path).expect("open");
    file.write_at(&[9; LEN as usize], 0).expect("write");
    file.close(mode).expect("close");
}

#[track_caller]
fn assert_changed(path: &Path) {
    let bytes = std::fs::read(path).expect("read");
    assert!(bytes.len() as u64 == LEN && bytes.iter().all(|byte| *byte == 9));
}

#[test]
fn a_plain_file_gets_a_snapshot_and_loses_it() {
    let scratch = scratch();
    let path = scratch.file("plain");
    make(&path, CloseMode::Spatial);
    assert_eq!(scratch.names(), ["plain"]);
    assert_data_eq!(
        snapshot("list", &path, &[]).code(0).out(),
        str![[r#"
no snapshots

"#]]
    );
    assert_data_eq!(
        snapshot("create", &path, &["first"]).code(0).out(),
        str![[r#"
file     [..]/plain
name     first
number   1
created  20[..] UTC
length   293 KiB

"#]]
    );
    assert_known(&path);
    assert_eq!(scratch.names().len(), 3, "{:?}", scratch.names());
    assert_data_eq!(
        snapshot("list", &path, &[]).code(0).out(),
        str![[r#"
number  time                         length        held  name
     1  20[..] UTC     293 KiB     0 bytes  first

"#]]
    );
    assert_data_eq!(
        snapshot("drop", &path, &["first"]).code(0).out(),
        str![[r#"
file  [..]/plain
name  first
left  0

"#]]
    );
    assert_eq!(scratch.names(), ["plain"], "it is plain again");
    assert_known(&path);
}

#[test]
fn a_list_in_json() {
    let scratch = scratch();
    let path = changed(&scratch, CloseMode::Spatial);
    let created = snapshot("create", &path, &["a\nb", "--json"]).code(0).json();
    assert_eq!(
        (&created["command"], &created["name"]),
        (&"snapshot create".into(), &"a\nb".into())
    );
    assert_eq!((&created["number"], &created["length"]), (&2.into(), &LEN.into()));
    let before = scratch.contents();
    let list = snapshot("list", &path, &["--json"]).code(0).json();
    assert_eq!(list["command"], "snapshot list");
    let all = list["snapshots"].as_array().expect("snapshots");
    assert_eq!(all.len(), 2);
    let (first, second) = (&all[0], &all[1]);
    assert_eq!((&first["number"], &first["name"]), (&1.into(), &"known".into()));
    // The slices that were not zero were kept, and each has a page's record at most.
    let held = first["held"].as_u64().expect("a number");
    assert!((LEN..2 * LEN).contains(&held), "{list}");
    assert_eq!((&second["held"], &second["length"]), (&0.into(), &LEN.into()));
    assert_eq!(second["created"], created["created"]);
    assert_eq!((&second["automatic"], &second["undo"]), (&false.into(), &false.into()));
    let told = snapshot("list", &path, &[]).code(0).out();
    assert!(told.ends_with("  a\\nb\n"), "a name cannot break a line: {told}");
    assert_eq!(scratch.contents(), before, "a list writes nothing");
}

#[test]
fn a_copy_has_the_old_bytes() {
    for mode in [CloseMode::Spatial, CloseMode::Fast] {
        let scratch = scratch();
        let path = changed(&scratch, mode);
        let (before, copy) = (scratch.contents(), scratch.file("copy"));
        let to = copy.to_str().expect("a path");
        let copied = snapshot("copy", &path, &["known", to, "--json"]).code(0).json();
        assert_eq!((&copied["command"], &copied["to"]), (&"snapshot copy".into(), &to.into()));
        assert_eq!((&copied["name"], &copied["length"]), (&"known".into(), &LEN.into()));
        assert_known(&copy);
        assert_eq!(copy.metadata().expect("metadata").permissions().mode() & 0o777, 0o600);
        let again = snapshot("copy", &path, &["known", to, "--json"]).code(1).error();
        assert_eq!(again["code"], "failed");
        let nowhere = scratch.file("none").join("copy");
        snapshot("copy", &path, &["known", nowhere.to_str().expect("a path")]).code(1);
        std::fs::remove_file(&copy).expect("remove");
        assert_eq!(scratch.contents(), before, "nothing else is written");
    }
}

#[test]
fn a_rollback_and_back() {
    let scratch = scratch();
    let path = changed(&scratch, CloseMode::Fast);
    let undo = &["known", "--undo", "present", "--yes", "--json"][..];
    let back = snapshot("rollback", &path, undo).code(0).json();
    assert_eq!(back["command"], "snapshot rollback");
    assert_eq!((&back["rolled_back"], &back["undo"]), (&true.into(), &"present".into()));
    assert_eq!(back["length"], LEN);
    assert_known(&path);
    let list = snapshot("list", &path, &["--json"]).code(0).json();
    assert_eq!(
        (&list["snapshots"][1]["name"], &list["snapshots"][1]["undo"]),
        (&"present".into(), &true.into())
    );
    let before = scratch.contents();
    let taken = snapshot("rollback", &path, &["present", "--undo", "known", "-y", "--json"]);
    assert_eq!(taken.code(1).error()["code"], "snapshot-exists");
    assert_eq!(scratch.contents(), before);
    snapshot("rollback", &path, &["present", "--yes"]).code(0);
    assert_changed(&path);
}

#[test]
fn a_rollback_asks() {
    let scratch = scratch();
    let path = changed(&scratch, CloseMode::Spatial);
    let before = scratch.contents();
    for (answer, says) in [("n\n", ""), ("", "--yes does not ask"), ("Yes\n", "")] {
        let mut command = command();
        command.args(["snapshot", "rollback"]).arg(&path).arg("known").stdin(Stdio::piped());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().expect("start");
        let mut input = child.stdin.take().expect("its input");
        input.write_all(answer.as_bytes()).expect("answer");
        drop(input);
        let refused = Run(child.wait_with_output().expect("its output")).code(1);
        assert!(refused.err().contains("go back to \"known\", and lose the present? [y/N]"));
        assert!(refused.err().contains(says), "{}", refused.err());
        assert!(refused.out().contains("rolled back  no"), "{}", refused.out());
        assert_eq!(scratch.contents(), before);
    }
    let mut command = command();
    command.args(["snapshot", "rollback", "--undo", "now"]).arg(&path).arg("known");
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("start");
    child.stdin.take().expect("its input").write_all(b"y\n").expect("answer");
    let done = Run(child.wait_with_output().expect("its output")).code(0);
    assert!(done.err().contains("keep the present as \"now\"?"), "{}", done.err());
    assert_known(&path);
}

#[test]
fn what_retention_leaves() {
    let scratch = scratch();
    let path = scratch.file("home");
    make(&path, CloseMode::Spatial);
    let before = scratch.contents();
    let none = snapshot("retain", &path, &["--number", "1", "--json"]).code(0).json();
    assert_eq!((&none["command"], &none["dropped"]), (&"snapshot retain".into(), &0.into()));
    assert_eq!(scratch.contents(), before);
    for name in ["a", "b", "c", "d"] {
        snapshot("create", &path, &[name]).code(0);
    }
    change(&path, CloseMode::Spatial);
    let all = &["--number", "9", "--age", "1w", "--bytes", "1G", "--json"][..];
    let kept = snapshot("retain", &path, all).code(0).json();
    assert_eq!((&kept["dropped"], &kept["left"]), (&0.into(), &4.into()));
    assert!(kept["allocated"].as_u64().is_some_and(|bytes| bytes >= LEN), "{kept}");
    let fewer = snapshot("retain", &path, &["--number", "3", "--json"]).code(0).json();
    assert_eq!((&fewer["dropped"], &fewer["left"]), (&1.into(), &3.into()));
    let one = snapshot("retain", &path, &["--bytes", "0", "--json"]).code(0).json();
    assert_eq!((&one["dropped"], &one["left"]), (&2.into(), &1.into()));
    let list = snapshot("list", &path, &["--json"]).code(0).json();
    assert_eq!(list["snapshots"][0]["name"], "d", "the newest one stays");
    let old = snapshot("retain", &path, &["--age", "0s", "--json"]).code(0).json();
    assert_eq!((&old["dropped"], &old["left"]), (&0.into(), &1.into()), "the newest one stays");
    let all = snapshot("retain", &path, &["--number", "0"]).code(0).out();
    assert!(all.contains("dropped    1") && all.contains("allocated  0 bytes"), "{all}");
    assert_eq!(scratch.names(), ["home"]);
    assert_changed(&path);
    for wrong in [
        &[][..],
        &["--age", "7"],
        &["--age", "d"],
        &["--age", "99999999999999999w"],
        &["--bytes", "1X"],
        &["--number", "-1"],
    ] {
        snapshot("retain", &path, wrong).code(2);
    }
}

/// Every command on a snapshot by its name, and what comes after the name.
const BY_NAME: [(&str, &[&str]); 3] =
    [("drop", &[]), ("rollback", &["--yes"]), ("copy", &["/dev/shm/no-such-copy"])];

#[test]
fn names_that_no_snapshot_has_and_names_that_are_taken() {
    let scratch = scratch();
    let path = changed(&scratch, CloseMode::Fast);
    let plain = scratch.file("plain");
    make(&plain, CloseMode::Spatial);
    let before = scratch.contents();
    for path in [&path, &plain] {
        for (what, after) in BY_NAME {
            let arguments = [&["none"], after].concat();
            let failed = snapshot(what, path, &arguments).code(1);
            let advice = "there is no snapshot \"none\"; list the snapshots";
            assert!(failed.err().contains(advice), "{what}: {}", failed.err());
            let failed = snapshot(what, path, &[&arguments[..], &["--json"]].concat()).code(1);
            assert_eq!(failed.error()["code"], "no-such-snapshot", "{what}");
        }
    }
    let taken = snapshot("create", &path, &["known"]).code(1);
    assert!(taken.err().contains("drop it first, or choose another name"), "{}", taken.err());
    let taken = snapshot("create", &path, &["known", "--json"]).code(1).error();
    assert_eq!(taken["code"], "snapshot-exists");
    assert_eq!(scratch.contents(), before, "nothing is written");
    for bad in ["", &"x".repeat(65)] {
        let failed = snapshot("create", &plain, &[bad, "--json"]).code(1).error();
        assert_eq!(failed["code"], "bad-snapshot-name");
    }
    snapshot("drop", &plain, &[]).code(2);
    let missing = scratch.file("missing");
    for (what, after) in BY_NAME.into_iter().chain([("create", &[][..])]) {
        let failed = snapshot(what, &missing, &[&["a", "--json"], after].concat()).code(1);
        assert_eq!(failed.error()["code"], "failed", "{what}");
    }
    snapshot("list", &missing, &[]).code(1);
}

#[test]
fn a_file_in_use_is_busy() {
    let scratch = scratch();
    let path = scratch.file("used");
    let holder = Holder::start(&path);
    let others = [("create", &[][..]), ("list", &[]), ("retain", &["--number", "1"])];
    for (what, after) in BY_NAME.into_iter().chain(others) {
        let name = if matches!(what, "list" | "retain") { &[][..] } else { &["known"] };
        let busy = snapshot(what, &path, &[name, after, &["--json"]].concat()).code(5);
        assert_eq!(busy.error()["code"], "busy", "{what}");
    }
    holder.kill();
    snapshot("create", &path, &["known"]).code(0);
    assert_known(&path);
    run(&["settle", "--drop-snapshots"], &path).code(0);
    assert_eq!(scratch.names(), ["used"]);
}

/// Checks that every command is refused with this exit code and word.
#[track_caller]
fn all_say(path: &Path, code: i32, word: &str) {
    let others = [("create", &["new"][..]), ("list", &[]), ("retain", &["--number", "1"])];
    let by_name = BY_NAME.map(|(what, after)| (what, [&["known"], after].concat()));
    for (what, after) in by_name.into_iter().chain(others.map(|(what, of)| (what, of.to_vec()))) {
        let refused = snapshot(what, path, &[&after[..], &["--json"]].concat()).code(code);
        assert_eq!(refused.error()["code"], word, "{what}");
    }
}

#[test]
fn files_that_are_refused() {
    let scratch = scratch();
    let path = changed(&scratch, CloseMode::Fast);
    let file = std::fs::File::options().write(true).open(&path).expect("open");
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("set the time");
    all_say(&path, 6, "mismatch");
    run(&["repair", "--trust", "--yes"], &path).code(4);
    let has = |name: &&String| name.ends_with("snapshots");
    let store = scratch.file(scratch.names().iter().find(has).expect("a file of snapshots"));
    let store = std::fs::File::options().write(true).open(store).expect("open");
    for table in [0, 256 << 10] {
        // The magic and the pair's identifier stay, so that it is this file's.
        store.write_all_at(&[0xff; 8], table + 24).expect("damage");
    }
    all_say(&path, 3, "damaged");
}

/// The snapshots cannot be looked at then, and are not said to be missing.
#[test]
fn files_with_a_damaged_reflection_file() {
    let scratch = scratch();
    let path = changed(&scratch, CloseMode::Fast);
    damage(&scratch);
    all_say(&path, 3, "damaged");
}

#[test]
fn a_full_disk_leaves_no_copy() {
    let scratch = scratch();
    let path = changed(&scratch, CloseMode::Spatial);
    let full = scratch.file("full");
    std::fs::create_dir(&full).expect("a folder");
    let line = r#""$0" snapshot copy --json "$1" known "$2/copy""#;
    let Some(copied) = crate::refusals::on_a_full_disk(line, &path, &full) else { return };
    assert_eq!(copied.code(1).error()["code"], "no-space");
}

#[test]
fn a_snapshot_of_a_longer_file() {
    let scratch = scratch();
    let path = scratch.file("home");
    let file = options().open(&path).expect("create");
    file.write_at(b"end", LEN - 3).expect("write");
    file.snapshot("long").expect("snapshot");
    file.set_len(1000).expect("cut");
    file.close(CloseMode::Fast).expect("close");
    let copy = scratch.file("copy");
    snapshot("copy", &path, &["long", copy.to_str().expect("a path")]).code(0);
    let bytes = std::fs::read(&copy).expect("read");
    assert_eq!((bytes.len() as u64, &bytes[LEN as usize - 3..]), (LEN, &b"end"[..]));
    snapshot("rollback", &path, &["long", "--yes"]).code(0);
    assert_eq!(std::fs::read(&path).expect("read"), bytes);
}

/// A few bytes make a file of any length. `verify` once read each byte of its holes.
#[test]
fn holes_of_a_long_file_are_neither_verified_nor_copied() {
    const LONG: u64 = 1 << 40;
    let scratch = scratch();
    let path = scratch.file("long");
    let file = options().create(true).len(LONG).max_len(LONG).open(&path).expect("make");
    file.write_at(&[7; 5000], LONG / 2).expect("write");
    file.snapshot("sparse").expect("seal");
    file.write_at(&[8; 5000], LONG - 5000).expect("write");
    file.close(CloseMode::Fast).expect("close");
    let verified = run(&["verify", "--json"], &path).code(0).json();
    assert_eq!(verified["bytes_read"], 2 * (256 << 10), "{verified}");
    let copy = scratch.file("copy");
    snapshot("copy", &path, &["sparse", copy.to_str().expect("UTF-8")]).code(0);
    let copy = std::fs::File::open(copy).expect("open");
    let looked = copy.metadata().expect("look");
    assert_eq!(looked.len(), LONG);
    assert!(std::os::unix::fs::MetadataExt::blocks(&looked) * 512 < 1 << 20, "a sparse copy");
    let mut bytes = [0; 5000];
    copy.read_exact_at(&mut bytes, LONG / 2).expect("read");
    assert_eq!(bytes, [7; 5000]);
}
