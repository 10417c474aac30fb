//! The sequences of calls by which SQLite writes, and what they become.

use crate::common::{Scratch, assert_whole, code, one, ours_with, run, stat, try_one};
use rusqlite::Connection;

/// Parameters for each medium, on a folder in memory.
const MEDIA: [&str; 3] = ["&medium=page-cache", "&medium=dax", "&medium=ram"];

/// Returns the files beside the database that this crate has not made.
fn others(scratch: &Scratch) -> Vec<String> {
    let names = scratch.names().into_iter();
    names.filter(|name| !name.starts_with(".atomic-mmap") && name != "x.db").collect()
}

/// Runs a statement, and returns how many operations of the file it was.
fn operations(connection: &Connection, sql: &str) -> u64 {
    let before = stat(connection, "transactions");
    run(connection, sql);
    stat(connection, "transactions") - before
}

const FILL: &str = "INSERT INTO t(b) WITH RECURSIVE n(i) AS \
                    (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) \
                    SELECT hex(randomblob(100)) FROM n;";

#[test]
fn a_transaction_is_one_operation_and_leaves_no_journal() {
    for mode in ["delete", "truncate", "persist", "memory"] {
        for (synchronous, medium) in ["full", "normal", "off"].iter().zip(MEDIA) {
            let scratch = Scratch::in_memory();
            let x = ours_with(&scratch.path("x.db"), medium);
            run(&x, &format!("PRAGMA synchronous = {synchronous}"));
            assert_eq!(one(&x, &format!("PRAGMA journal_mode = {mode}")), mode);
            let first = "CREATE TABLE t (a INTEGER PRIMARY KEY, b)";
            assert_eq!(operations(&x, first), 1, "{mode}, {synchronous}");
            run(&x, "BEGIN; INSERT INTO t(b) VALUES ('x')");
            assert_eq!(others(&scratch), [""; 0], "{mode}, {synchronous}");
            assert_eq!(operations(&x, "COMMIT"), 1, "{mode}, {synchronous}");
            assert_eq!(operations(&x, FILL), 1, "a file that grows");
            assert_eq!(operations(&x, "BEGIN; INSERT INTO t(b) VALUES (1); ROLLBACK"), 0);
            assert_eq!(others(&scratch), [""; 0]);
            assert_whole(&x);
        }
    }
}

/// A transaction that is larger than SQLite's page cache writes pages before it ends.
#[test]
fn pages_that_spill_are_published_with_their_transaction() {
    for medium in MEDIA {
        let scratch = Scratch::in_memory();
        let path = scratch.path("x.db");
        let x = ours_with(&path, &format!("{medium}&overlay_memory=30000"));
        run(&x, "PRAGMA cache_size = 5; CREATE TABLE t (a INTEGER PRIMARY KEY, b)");
        run(&x, FILL);
        let (len, asked) = (stat(&x, "len"), stat(&x, "bytes_asked"));
        run(&x, "BEGIN; UPDATE t SET b = 'spilled' || b; DELETE FROM t WHERE a > 400");
        assert_eq!(one(&x, "SELECT count(*) FROM t WHERE b LIKE 'spilled%'"), "400");
        assert_eq!(stat(&x, "bytes_asked"), asked, "nothing is published yet");
        run(&x, "ROLLBACK");
        assert_eq!(stat(&x, "bytes_asked"), asked, "pages that are as before are not written");
        assert_eq!(stat(&x, "len"), len);
        assert_eq!(one(&x, "SELECT count(*) FROM t WHERE b NOT LIKE 'spilled%'"), "500");
        run(&x, &format!("BEGIN; {FILL} {FILL}"));
        assert_eq!(stat(&x, "len"), len);
        run(&x, "ROLLBACK");
        assert_eq!((stat(&x, "len"), stat(&x, "bytes_asked")), (len, asked));
        run(&x, &format!("BEGIN; {FILL} SAVEPOINT s; DELETE FROM t; ROLLBACK TO s; {FILL} COMMIT"));
        assert_eq!(one(&x, "SELECT count(*) FROM t"), "1500");
        assert_whole(&x);
    }
}

/// SQLite shortens a file after it has synced it.
#[test]
fn a_commit_that_shortens_the_file_does_so() {
    for (medium, setting) in MEDIA.iter().zip(["NONE", "FULL", "INCREMENTAL"]) {
        let scratch = Scratch::in_memory();
        let x = ours_with(&scratch.path("x.db"), medium);
        run(&x, &format!("PRAGMA auto_vacuum = {setting}; CREATE TABLE t (a INTEGER, b)"));
        run(&x, FILL);
        let len = stat(&x, "len");
        run(&x, "DELETE FROM t WHERE rowid > 30");
        let mut vacuum = x.prepare("PRAGMA incremental_vacuum").expect("prepare");
        let mut steps = vacuum.query([]).expect("query");
        while steps.next().expect("a step").is_some() {}
        drop(steps);
        drop(vacuum);
        if setting == "NONE" {
            run(&x, "VACUUM");
        }
        assert!(stat(&x, "len") < len / 2, "{setting}");
        run(&x, "PRAGMA page_size = 1024; VACUUM");
        assert_eq!(one(&x, "PRAGMA page_size"), "1024");
        assert_eq!(one(&x, "SELECT count(*) FROM t"), "30");
        assert_whole(&x);
        drop(x);
        let len = std::fs::metadata(scratch.path("x.db")).expect("the file").len();
        let plain = crate::common::stock(&scratch.path("x.db"));
        assert_eq!(one(&plain, "SELECT page_count * 1024 FROM pragma_page_count"), len.to_string());
    }
}

#[test]
fn exclusive_locking_mode_publishes_each_transaction() {
    let scratch = Scratch::in_memory();
    let x = ours_with(&scratch.path("x.db"), "");
    run(&x, "PRAGMA locking_mode = EXCLUSIVE; CREATE TABLE t (a INTEGER PRIMARY KEY, b)");
    for mode in ["delete", "truncate", "persist"] {
        assert_eq!(one(&x, &format!("PRAGMA journal_mode = {mode}")), mode);
        assert_eq!(operations(&x, "INSERT INTO t(b) VALUES (1)"), 1);
        assert_eq!(operations(&x, "UPDATE t SET b = b + 1"), 1);
        run(&x, "BEGIN; DELETE FROM t; ROLLBACK");
    }
    assert_eq!(one(&x, "PRAGMA journal_mode = wal"), "persist", "as without WAL");
    assert_eq!(one(&x, "SELECT group_concat(b) FROM t"), "4,3,2");
}

/// Without a journal SQLite cannot roll back. The overlay can.
#[test]
fn a_rollback_without_a_journal_drops_the_overlay() {
    let scratch = Scratch::in_memory();
    let x = ours_with(&scratch.path("x.db"), "");
    run(&x, "PRAGMA cache_size = 5; CREATE TABLE t (a INTEGER PRIMARY KEY, b)");
    run(&x, FILL);
    assert_eq!(one(&x, "PRAGMA journal_mode = off"), "off");
    run(&x, "BEGIN; UPDATE t SET b = 'spilled' || b");
    let _aborted = x.execute_batch("ROLLBACK");
    assert_eq!(one(&x, "SELECT count(*) FROM t WHERE b LIKE 'spilled%'"), "0");
    assert_whole(&x);
}

#[test]
fn attached_databases_commit_together_with_a_super_journal() {
    let scratch = Scratch::in_memory();
    let x = ours_with(&scratch.path("x.db"), "");
    run(&x, "CREATE TABLE t (a)");
    run(&x, &format!("ATTACH '{}' AS y; CREATE TABLE y.t (a)", scratch.path("y.db").display()));
    run(&x, "BEGIN; INSERT INTO main.t VALUES (1); INSERT INTO y.t VALUES (2); COMMIT");
    run(&x, "BEGIN; INSERT INTO main.t VALUES (3); INSERT INTO y.t VALUES (4); ROLLBACK");
    assert_eq!(
        one(&x, "SELECT group_concat(a) FROM (SELECT * FROM t UNION ALL SELECT * FROM y.t)"),
        "1,2"
    );
    assert_eq!(others(&scratch), ["y.db"]);
    drop(x);
    assert_eq!(scratch.names(), ["x.db", "y.db"]);
}

/// SQLite deletes the super-journal after it has looked into the journals of all databases.
#[test]
fn a_commit_that_fails_in_one_database_leaves_no_super_journal() {
    for mode in ["delete", "truncate", "persist"] {
        let scratch = Scratch::in_memory();
        let x = ours_with(&scratch.path("x.db"), "");
        let y = format!("file:{}?vfs=atomic-mmap&max_len=2097152", scratch.path("y.db").display());
        run(&x, &format!("CREATE TABLE t (a); ATTACH '{y}' AS y; CREATE TABLE y.t (a)"));
        for name in ["main", "y"] {
            assert_eq!(one(&x, &format!("PRAGMA {name}.journal_mode = {mode}")), mode);
        }
        run(&x, "BEGIN; INSERT INTO main.t VALUES (1); INSERT INTO y.t VALUES (zeroblob(5000000))");
        assert_eq!(code(x.execute_batch("COMMIT")), 13, "y.db is full");
        assert_eq!(others(&scratch), ["y.db"], "{mode}");
        run(&x, "BEGIN; INSERT INTO main.t VALUES (2); INSERT INTO y.t VALUES (2); COMMIT");
        assert_eq!(one(&x, "SELECT group_concat(main.t.a || y.t.a) FROM main.t, y.t"), "22");
        assert_whole(&x);
    }
}

#[test]
fn pages_are_read_in_place_where_they_are_stable() {
    for (medium, is_mapped) in MEDIA.iter().zip([false, true, true]) {
        let scratch = Scratch::in_memory();
        let path = scratch.path("x.db");
        let x = ours_with(&path, medium);
        run(&x, "CREATE TABLE t (a INTEGER PRIMARY KEY, b)");
        run(&x, FILL);
        drop(x);
        let x = ours_with(&path, medium);
        assert_eq!(one(&x, "PRAGMA mmap_size = 1000000"), "1000000");
        for _ in 0..3 {
            assert_eq!(one(&x, "SELECT count(DISTINCT b) FROM t"), "500");
            run(
                &x,
                "UPDATE t SET b = b || a; INSERT INTO t(b) VALUES (1); DELETE FROM t WHERE b = 1",
            );
        }
        assert_eq!(stat(&x, "views") > 0, is_mapped, "{medium}");
        run(&x, "DELETE FROM t WHERE a > 3; VACUUM");
        assert_eq!(one(&x, "SELECT count(*) FROM t"), "3");
        assert_whole(&x);
    }
}

#[test]
fn every_page_size_works() {
    for size in [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536] {
        let scratch = Scratch::in_memory();
        let x = ours_with(&scratch.path("x.db"), "&medium=page-cache");
        run(&x, &format!("PRAGMA page_size = {size}; CREATE TABLE t (a INTEGER PRIMARY KEY, b)"));
        run(&x, FILL);
        assert_eq!(one(&x, "PRAGMA page_size"), size.to_string());
        drop(x);
        let plain = crate::common::stock(&scratch.path("x.db"));
        assert_eq!(one(&plain, "SELECT count(*) FROM t"), "500");
        assert_whole(&plain);
    }
}

#[test]
fn unknown_pragmas_and_parameters() {
    let scratch = Scratch::in_memory();
    let path = scratch.path("x.db");
    assert!(crate::common::try_ours(&path, "&durability=always").is_err());
    let message = atomic_mmap_sqlite::last_error().expect("a message");
    assert!(message.contains("durability=always"), "{message}");
    assert!(crate::common::try_ours(&path, "&durability=%1b[31m").is_err());
    let message = atomic_mmap_sqlite::last_error().expect("a message");
    assert!(message.contains(r"durability=\u{1b}[31m"), "no terminal obeys it: {message}");
    let x = ours_with(&path, "&max_len=4194304");
    assert_eq!(stat(&x, "max_len"), 4 << 20);
    assert!(try_one(&x, "PRAGMA atomic_mmap_nonsense").is_err(), "an unknown pragma has no rows");
}
