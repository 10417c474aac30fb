//! The SQLite that does not know this VFS: its files, its journals and its locks.

use crate::common::{
    Role, Scratch, assert_whole, child, code, lines, one, ours, ours_with, run, stock, try_one,
    try_ours,
};

const BUSY: i32 = 5;
const CANTOPEN: i32 = 14;

#[test]
fn a_stock_connection_finds_the_database_locked() {
    for folder in [Scratch::new(), Scratch::in_memory()] {
        let path = folder.path("x.db");
        let plain = stock(&path);
        run(&plain, "CREATE TABLE t (a); INSERT INTO t VALUES (1)");
        // In the middle of a transaction the other way round.
        run(&plain, "BEGIN; SELECT * FROM t");
        assert_eq!(code(try_ours(&path, "")), BUSY, "a stock reader is inside");
        // The attempt must not have dropped the lock of that reader.
        assert_eq!(code(try_ours(&path, "")), BUSY, "a stock reader is inside");
        run(&plain, "UPDATE t SET a = 2; COMMIT");
        let own = ours(&path);
        assert_eq!(one(&own, "SELECT a FROM t"), "2");
        run(&own, "UPDATE t SET a = 3");
        assert_eq!(code(try_one(&plain, "SELECT a FROM t")), BUSY);
        assert_eq!(code(plain.execute("UPDATE t SET a = 4", [])), BUSY);
        drop(own);
        assert_eq!(one(&plain, "SELECT a FROM t"), "3");
        run(&plain, "UPDATE t SET a = 5");
        assert_eq!(one(&ours(&path), "SELECT a FROM t"), "5");
    }
}

/// The role of a process that ends in the middle of a transaction of the stock VFS.
pub fn leave_hot_journal(role: &Role) {
    let plain = stock(&role.path);
    run(&plain, "PRAGMA cache_size = 5; BEGIN; UPDATE t SET a = a + 1000, b = zeroblob(500)");
    println!(">spilled");
    std::process::abort();
}

#[test]
fn a_hot_journal_of_the_stock_vfs_is_played_back() {
    play_back("");
    play_back("&snapshot_reads=1");
}

fn play_back(parameters: &str) {
    let scratch = Scratch::in_memory();
    let path = scratch.path("x.db");
    let plain = stock(&path);
    run(&plain, "CREATE TABLE t (a, b)");
    run(
        &plain,
        "INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
         SELECT 1, zeroblob(300) FROM n",
    );
    drop(plain);
    let mut victim = child("victim", &path, 0, "");
    assert_eq!(lines(&mut victim).next().expect("a line"), "spilled");
    victim.wait().expect("wait");
    let journal = std::fs::metadata(scratch.path("x.db-journal")).expect("a hot journal");
    assert!(journal.len() > 10_000);
    let (own, other) = (ours_with(&path, parameters), ours(&path));
    assert_eq!(one(&own, "SELECT sum(a) FROM t"), "300");
    assert_eq!(one(&other, "SELECT sum(a) FROM t"), "300");
    assert_whole(&own);
    assert!(!scratch.names().contains(&"x.db-journal".to_owned()), "played back");
    run(&own, "UPDATE t SET a = 2");
    drop((own, other));
    assert_eq!(scratch.names(), ["x.db"]);
    assert_eq!(one(&stock(&path), "SELECT sum(a) FROM t"), "600");
}

#[test]
fn a_database_in_wal_mode_is_refused_with_advice() {
    let scratch = Scratch::in_memory();
    let path = scratch.path("x.db");
    let plain = stock(&path);
    assert_eq!(one(&plain, "PRAGMA journal_mode = wal"), "wal");
    run(&plain, "CREATE TABLE t (a); INSERT INTO t VALUES (1)");
    drop(plain);
    let before = std::fs::read(&path).expect("read");
    assert_eq!(code(try_ours(&path, "")), CANTOPEN);
    let message = atomic_mmap_sqlite::last_error().expect("a message");
    assert!(message.contains("PRAGMA journal_mode=DELETE"), "{message}");
    assert!(std::fs::read(&path).expect("read") == before, "unchanged");
    let plain = stock(&path);
    assert_eq!(one(&plain, "PRAGMA journal_mode = delete"), "delete");
    drop(plain);
    let own = ours(&path);
    assert_eq!(one(&own, "SELECT a FROM t"), "1");
    assert_eq!(one(&own, "PRAGMA journal_mode = wal"), "delete", "no WAL on this VFS");
    drop(own);
    // A log with pages in it, whatever the header says.
    std::fs::write(scratch.path("x.db-wal"), b"a log").expect("write");
    assert_eq!(code(try_ours(&path, "")), CANTOPEN);
}

/// A backup copies the header of a database in WAL mode, too.
#[test]
fn pages_of_a_database_in_wal_mode_are_refused() {
    let scratch = Scratch::in_memory();
    let plain = stock(&scratch.path("plain.db"));
    assert_eq!(one(&plain, "PRAGMA journal_mode = wal"), "wal");
    run(&plain, "CREATE TABLE t (a)");
    let path = scratch.path("x.db");
    let mut own = ours(&path);
    run(&own, "CREATE TABLE old (a)");
    {
        let backup = rusqlite::backup::Backup::new(&plain, &mut own).expect("begin a backup");
        let _refused = backup.step(-1);
    }
    drop(own);
    let own = ours(&path);
    assert_eq!(one(&own, "SELECT name FROM sqlite_schema"), "old");
    assert_whole(&own);
}
