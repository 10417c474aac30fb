//! A full disk. Needs root for its mount, and says so.

use crate::common::{Scratch, assert_whole, code, one, ours_with, run, stock, try_one};
use rusqlite::{Connection, ffi};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const FULL: i32 = 13;

/// A file system of its own, unmounted at the end of the test.
struct Mount(Scratch);

impl Mount {
    /// Mounts a tmpfs of `size`. Returns `None` without the right to do so.
    fn new(size: &str) -> Option<Self> {
        let scratch = Scratch::in_memory();
        std::fs::create_dir(scratch.path("m")).expect("a folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(scratch.path("m"));
        match mount.output() {
            Ok(output) if output.status.success() => Some(Mount(scratch)),
            _ => None,
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _best_effort = Command::new("umount").arg(self.0.path("m")).status();
    }
}

/// Fills the disk by a transaction. Makes room by `make_room`, and goes on. The close needs still
/// more room, which `grow` makes: without it the database keeps its companions and its mark.
fn fill(path: &Path, parameters: &str, make_room: impl FnOnce(), grow: impl FnOnce()) {
    let x = ours_with(path, parameters);
    run(&x, "CREATE TABLE t (a INTEGER PRIMARY KEY, b); INSERT INTO t(b) VALUES ('old')");
    let insert = "INSERT INTO t(b) SELECT hex(randomblob(50000)) FROM t";
    let result = loop {
        if let Err(error) = x.execute_batch(insert) {
            break Err::<(), _>(error);
        }
    };
    assert_eq!(code(result), FULL, "{parameters}");
    let count: u64 = one(&x, "SELECT count(*) FROM t").parse().expect("a number");
    assert!(count.is_power_of_two(), "all or none of the statement's {count} rows");
    assert_whole(&x);
    make_room();
    run(&x, "DELETE FROM t WHERE a > 1; INSERT INTO t(b) VALUES ('new')");
    assert_eq!(one(&x, "SELECT group_concat(b) FROM t"), "old,new");
    x.close().expect("close");
    grow();
    drop(ours_with(path, parameters));
    let plain = stock(path);
    assert_eq!(one(&plain, "SELECT group_concat(b) FROM t"), "old,new");
    assert_whole(&plain);
}

#[test]
fn a_database_at_its_largest_length_is_full() {
    let scratch = Scratch::in_memory();
    for (n, medium) in ["page-cache", "dax", "ram"].iter().enumerate() {
        fill(
            &scratch.path(&n.to_string()),
            &format!("&medium={medium}&max_len=2097152"),
            || {},
            || {},
        );
    }
}

#[test]
fn a_full_disk_leaves_the_database_as_it_was() {
    for memory in ["", "&overlay_memory=100000"] {
        let Some(mount) = Mount::new("40m") else {
            eprintln!("skipped: no right to mount a tmpfs");
            return;
        };
        // Every change needs some space, also one that deletes.
        let ballast = mount.0.path("m/ballast");
        std::fs::write(&ballast, vec![1; 4 << 20]).expect("write");
        let make_room = || std::fs::remove_file(&ballast).expect("remove");
        let grow = || {
            let mut remount = Command::new("mount");
            remount.args(["-o", "remount,size=80m"]).arg(mount.0.path("m"));
            assert!(remount.status().expect("mount").success());
        };
        fill(&mount.0.path("m/x.db"), &format!("&medium=page-cache{memory}"), make_room, grow);
    }
}

/// A commit copies what it changes for a reader first. Without space for that the commit fails.
#[test]
fn a_full_disk_leaves_readers_their_version() {
    for memory in ["", "&overlay_memory=0"] {
        let Some(mount) = Mount::new("24m") else {
            eprintln!("skipped: no right to mount a tmpfs");
            return;
        };
        let path = mount.0.path("m/x.db");
        let x = ours_with(&path, &format!("&medium=page-cache&snapshot_reads=1{memory}"));
        run(&x, "CREATE TABLE t (a INTEGER PRIMARY KEY, b); INSERT INTO t(b) VALUES ('old')");
        run(&x, "INSERT INTO t(b) SELECT hex(randomblob(1000000))");
        let reader = ours_with(&path, "");
        let (sum, count) =
            ("SELECT total(unicode(b)) || length(b) FROM t", "SELECT count(*) FROM t");
        run(&reader, "BEGIN");
        let before = one(&reader, sum);
        let mut commits = 0;
        let change = "UPDATE t SET b = hex(randomblob(length(b) / 2)) WHERE a > 1;
                      INSERT INTO t(b) SELECT hex(randomblob(500000))";
        let result = loop {
            match x.execute_batch(&format!("BEGIN; {change}; COMMIT")) {
                Ok(()) => commits += 1,
                failed => break failed,
            }
        };
        assert_eq!(code(result), FULL, "{memory}");
        let _ended = x.execute_batch("ROLLBACK");
        assert_eq!(one(&x, count), (2 + commits).to_string());
        assert_eq!(one(&reader, sum), before);
        assert_eq!(one(&reader, count), "2");
        assert_whole(&reader);
        assert_whole(&x);
        run(&reader, "COMMIT");
        assert_eq!(one(&reader, count), (2 + commits).to_string());
        drop(reader);
        x.close().expect("close");
        let plain = stock(&path);
        assert_eq!(one(&plain, count), (2 + commits).to_string());
        assert_whole(&plain);
    }
}

/// Fills the disk to its last page, by files beside the database. Returns their folder.
fn fill_up(mount: &Mount) -> PathBuf {
    let folder = mount.0.path("m/fill");
    std::fs::create_dir(&folder).expect("a folder");
    for (n, size) in [1 << 20, 4096].iter().enumerate() {
        let mut file = std::fs::File::create(folder.join(n.to_string())).expect("create");
        while file.write_all(&vec![1; *size]).is_ok() {}
    }
    folder
}

/// SQLite does not write back pages that were free before the transaction. A rollback that
/// published them would need space, and the database could not be read until there is some.
#[test]
fn a_database_is_readable_after_a_transaction_that_found_no_space() {
    for (parameters, locking) in [
        ("", "normal"),
        ("", "exclusive"),
        ("&overlay_memory=0", "normal"),
        ("&overlay_memory=0", "exclusive"),
    ] {
        let Some(mount) = Mount::new("24m") else {
            eprintln!("skipped: no right to mount a tmpfs");
            return;
        };
        let path = mount.0.path("m/x.db");
        let x = ours_with(&path, parameters);
        run(&x, "CREATE TABLE t (a INTEGER PRIMARY KEY, b); INSERT INTO t(b) VALUES ('old')");
        run(&x, "INSERT INTO t(b) SELECT hex(randomblob(2000000)); DELETE FROM t WHERE a = 2");
        run(&x, "INSERT INTO t(b) SELECT hex(randomblob(500000))");
        // Opened anew, the file has no space for changes but what the disk still has.
        x.close().expect("close");
        let x = ours_with(&path, parameters);
        run(&x, &format!("PRAGMA cache_size = 5; PRAGMA locking_mode = {locking}"));
        let count = "SELECT count(*) || ' ' || sum(length(b)) FROM t";
        let before = one(&x, count);
        let full = fill_up(&mount);
        for sql in [
            "INSERT INTO t(b) SELECT hex(randomblob(1400000))",
            "BEGIN; DELETE FROM t; INSERT INTO t(b) SELECT hex(randomblob(2300000)); COMMIT",
            "VACUUM",
        ] {
            assert_eq!(code(x.execute_batch(sql)), FULL, "{sql} {parameters} {locking}");
            let after = try_one(&x, count).expect(sql);
            assert_eq!(after, before, "{sql} {parameters} {locking}");
        }
        assert_whole(&x);
        std::fs::remove_dir_all(full).expect("remove");
        run(&x, "DELETE FROM t WHERE a > 1; INSERT INTO t(b) VALUES ('new')");
        x.close().expect("close");
        let plain = stock(&path);
        assert_eq!(one(&plain, "SELECT group_concat(b) FROM t"), "old,new");
        assert_whole(&plain);
    }
}

/// Says what VACUUM says before it writes: that the file is going to be `len` bytes long.
fn will_overwrite(connection: &Connection, mut len: i64) -> i32 {
    let argument = (&raw mut len).cast();
    // SAFETY: the connection is open, and SQLite documents this type of the argument.
    unsafe {
        let (db, name) = (connection.handle(), c"main".as_ptr());
        ffi::sqlite3_file_control(db, name, ffi::SQLITE_FCNTL_OVERWRITE, argument)
    }
}

#[test]
fn a_rewrite_that_does_not_fit_is_refused_before_its_first_page() {
    let Some(mount) = Mount::new("40m") else {
        eprintln!("skipped: no right to mount a tmpfs");
        return;
    };
    let path = mount.0.path("m/x.db");
    let x = ours_with(&path, "&medium=page-cache&max_len=100000000&overlay_memory=100000");
    run(&x, "CREATE TABLE t (a INTEGER PRIMARY KEY, b); INSERT INTO t(b) VALUES ('old')");
    for (len, expected) in [(50_000, 0), (1 << 20, 0), (90_000_000, FULL), (1 << 30, FULL)] {
        run(&x, "BEGIN IMMEDIATE");
        assert_eq!(will_overwrite(&x, len), expected, "{len} bytes");
        run(&x, "INSERT INTO t(b) VALUES ('new'); ROLLBACK");
    }
    run(&x, "VACUUM");
    assert_eq!(one(&x, "SELECT group_concat(b) FROM t"), "old");
    assert_whole(&x);
}
