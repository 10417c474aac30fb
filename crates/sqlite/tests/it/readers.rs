//! Read transactions with `snapshot_reads`: each sees one state, and blocks no commit.
//!
//! The variable `ATOMIC_MMAP_SQLITE_SEEDS` sets the number of histories.

use crate::common::{
    Scratch, assert_whole, number_from, one, ours_with, run, stat, stock, try_one, try_ours,
};
use atomic_mmap::AtomicMappedFile;
use fastrand::Rng;
use rusqlite::Connection;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const BUSY: i32 = 5;
const BUSY_SNAPSHOT: i32 = 5 | 2 << 8;
const SNAPSHOTS: &str = "&snapshot_reads=1";
/// How long a writer waits for another one: longer than any test takes.
const HANGS: Duration = Duration::from_secs(600);
const ROWS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
                    SELECT i, 100, hex(randomblob(200)) FROM n";

fn with_rows(path: &Path, parameters: &str) -> Connection {
    let own = ours_with(path, &format!("{SNAPSHOTS}{parameters}"));
    run(&own, "CREATE TABLE t (id INTEGER PRIMARY KEY, v, x)");
    run(&own, &format!("INSERT INTO t {ROWS}"));
    own
}

/// Returns the extended result code of an error, and 0 without one.
fn extended_code<T>(result: rusqlite::Result<T>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(rusqlite::Error::SqliteFailure(error, _)) => error.extended_code,
        Err(other) => panic!("another error: {other}"),
    }
}

#[test]
fn a_reader_sees_its_state_while_writers_commit() {
    for parameters in ["&medium=page-cache", "&medium=dax", "&medium=ram&overlay_memory=10000"] {
        let scratch = Scratch::in_memory();
        let path = scratch.path("x.db");
        let (a, b) = (with_rows(&path, parameters), ours_with(&path, ""));
        let sum = "SELECT sum(v) || ' ' || count(*) || ' ' || max(id) FROM t";
        run(&b, "BEGIN");
        assert_eq!(one(&b, sum), "20000 200 200");
        run(&a, "UPDATE t SET v = v + 1");
        run(&a, "INSERT INTO t SELECT id + 1000, v, hex(x) FROM t; DELETE FROM t WHERE id < 1100");
        run(&a, "VACUUM");
        assert_eq!(one(&b, sum), "20000 200 200");
        assert_whole(&b);
        assert_eq!(one(&a, sum), "10201 101 1200");
        assert!(stat(&a, "copied_for_readers") > 0);
        assert_eq!(extended_code(b.execute_batch("UPDATE t SET v = 0")), BUSY_SNAPSHOT);
        assert_eq!(one(&b, sum), "20000 200 200", "and goes on");
        run(&b, "COMMIT");
        assert_eq!(one(&b, sum), "10201 101 1200", "its page cache is dropped");
        assert_eq!(stat(&a, "copied_for_readers"), 0);
        run(&b, "UPDATE t SET v = 1");
        assert_eq!(one(&a, sum), "101 101 1200");
        drop((a, b));
        let plain = stock(&path);
        assert_eq!(one(&plain, sum), "101 101 1200");
        assert_whole(&plain);
        assert_eq!(scratch.names(), ["x.db"]);
    }
}

/// SQLite reads pages in place while it steps through a query, where it may. Pages that are pinned
/// for that would fail a commit that makes the file shorter.
#[test]
fn a_query_under_way_fails_no_commit() {
    for medium in ["&medium=dax", "&medium=ram", "&medium=page-cache"] {
        let scratch = Scratch::in_memory();
        let path = scratch.path("x.db");
        with_rows(&path, medium).close().expect("close");
        let uri = format!("{SNAPSHOTS}{medium}");
        let (a, reader) = (ours_with(&path, &uri), ours_with(&path, &uri));
        assert_eq!(one(&reader, "PRAGMA mmap_size = 1000000"), "1000000");
        let mut all = reader.prepare("SELECT length(x) FROM t ORDER BY id DESC").expect("prepare");
        let mut rows = all.query([]).expect("query");
        let mut count = 0;
        while let Some(row) = rows.next().expect("a row") {
            assert_eq!(row.get::<_, i64>(0).expect("a number"), 400);
            if count == 3 {
                run(&a, "DELETE FROM t WHERE id > 10; VACUUM");
            }
            count += 1;
        }
        assert_eq!(count, 200);
        assert_eq!(one(&reader, "SELECT count(*) FROM t"), "10");
    }
}

/// `PRAGMA data_version` changes when SQLite drops a connection's page cache.
#[test]
fn the_page_cache_is_dropped_for_a_new_version_alone() {
    let scratch = Scratch::in_memory();
    let path = scratch.path("x.db");
    let (a, b) = (with_rows(&path, "&medium=ram"), ours_with(&path, ""));
    run(&a, "PRAGMA cache_size = 5");
    let drops = || one(&b, "PRAGMA data_version");
    one(&b, "SELECT count(*) FROM t");
    let first = drops();
    run(&a, "BEGIN; UPDATE t SET v = 1, x = x || x; ROLLBACK");
    assert_eq!(drops(), first, "nothing was committed");
    run(&b, "BEGIN; SELECT count(*) FROM t");
    run(&a, "UPDATE t SET v = 1 WHERE id = 7");
    assert_eq!(drops(), first, "its version stays");
    run(&b, "COMMIT");
    let second = drops();
    assert_ne!(second, first);
    assert_eq!(one(&b, "SELECT v FROM t WHERE id = 7"), "1");
    assert_eq!(drops(), second);
}

/// Others see the last state before an exclusive session, which counts changes once, until its end.
#[test]
fn commits_of_an_exclusive_session_are_visible_at_its_end() {
    let scratch = Scratch::in_memory();
    let path = scratch.path("x.db");
    let (a, b) = (with_rows(&path, ""), ours_with(&path, ""));
    let v = "SELECT group_concat(DISTINCT v) FROM t";
    assert_eq!(one(&b, v), "100");
    run(&a, "PRAGMA locking_mode = EXCLUSIVE");
    for n in 1..4 {
        run(&a, &format!("UPDATE t SET v = {n}"));
        assert_eq!(one(&b, v), "100");
        assert_eq!(extended_code(b.execute_batch("UPDATE t SET v = 0")), BUSY);
    }
    run(&a, "PRAGMA locking_mode = NORMAL");
    assert_eq!(one(&a, v), "3");
    assert_eq!(one(&b, v), "3");
    run(&b, "UPDATE t SET v = 7");
    assert_eq!(one(&a, v), "7");
}

/// Runs random statements on three connections of each kind, and compares every answer.
fn compare_with_wal(scratch: &Scratch, seed: u64) {
    let random = &mut Rng::with_seed(seed);
    let settings = ["", "&medium=dax", "&medium=ram&overlay_memory=20000", "&medium=page-cache"];
    let (path, stock_path) = (scratch.path(&format!("{seed}.db")), scratch.path("stock"));
    let uri = format!("{SNAPSHOTS}{}", settings[seed as usize % settings.len()]);
    let own = [(); 3].map(|()| ours_with(&path, &uri));
    let journal = ["DELETE", "TRUNCATE", "PERSIST", "MEMORY"][seed as usize / 4 % 4];
    let plain = [(); 3].map(|()| stock(&stock_path));
    assert_eq!(one(&plain[0], "PRAGMA journal_mode = wal"), "wal");
    for connection in own.iter().chain(&plain) {
        run(connection, "PRAGMA cache_size = 5");
    }
    for connection in &own {
        assert!(one(connection, &format!("PRAGMA journal_mode = {journal}")).len() > 3);
    }
    for first in [&own[0], &plain[0]] {
        run(first, "CREATE TABLE t (id INTEGER PRIMARY KEY, v, x)");
    }
    for step in 0..600 {
        let (n, key) = (random.usize(..3), random.u32(..300));
        let sql = match random.u8(..40) {
            0..5 => "BEGIN".to_owned(),
            5..7 => "BEGIN IMMEDIATE".to_owned(),
            7..13 => "COMMIT".to_owned(),
            13..15 => "ROLLBACK".to_owned(),
            15..23 => {
                let x = random.usize(..2000);
                format!("INSERT OR REPLACE INTO t VALUES ({key}, {step}, zeroblob({x}))")
            }
            23..26 => format!("UPDATE t SET v = v + 1 WHERE id < {key}"),
            26..28 => format!("DELETE FROM t WHERE id % 7 = {}", key % 7),
            28 => "VACUUM".to_owned(),
            29 => format!("CREATE TABLE IF NOT EXISTS t{} (a)", key % 9),
            30 => format!("INSERT OR REPLACE INTO t SELECT id + 1000, v, x FROM t LIMIT {key}"),
            _ => "SELECT count(*) || ' ' || ifnull(sum(id * v + length(x)), 0) || ' ' ||
                  (SELECT group_concat(name) FROM sqlite_schema) FROM t"
                .to_owned(),
        };
        let answer = |connection: &Connection| match sql.starts_with("SELECT") {
            true => match try_one(connection, &sql) {
                Ok(text) => text,
                failed => extended_code(failed).to_string(),
            },
            false => extended_code(connection.execute_batch(&sql)).to_string(),
        };
        let (ours, expected) = (answer(&own[n]), answer(&plain[n]));
        assert_eq!(ours, expected, "seed {seed}, step {step}, connection {n}: {sql}");
    }
    for connection in own.iter().chain(&plain) {
        let _none = connection.execute_batch("ROLLBACK");
    }
    own.iter().for_each(assert_whole);
    assert_eq!(stat(&own[0], "copied_for_readers"), 0);
    drop(plain);
    for name in ["stock", "stock-wal", "stock-shm"] {
        let _absent = std::fs::remove_file(scratch.path(name));
    }
    let own = own.map(Connection::close);
    assert!(own.iter().all(Result::is_ok));
    assert_whole(&stock(&path));
}

#[test]
fn connections_answer_as_those_of_the_stock_vfs_in_wal_mode() {
    let scratch = Scratch::in_memory();
    for seed in 0..number_from("ATOMIC_MMAP_SQLITE_SEEDS", 16) {
        compare_with_wal(&scratch, seed);
    }
}

/// Threads move amounts between rows. No reader ever finds the database busy, and each sees one sum
/// for its whole transaction.
#[test]
fn readers_are_never_busy_and_see_one_state() {
    for parameters in ["&medium=page-cache", "&medium=ram", "&medium=dax&overlay_memory=20000"] {
        let scratch = Scratch::in_memory();
        let path = scratch.path("x.db");
        let first = with_rows(&path, parameters);
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let write = |seed| {
                let own = ours_with(&path, "");
                own.busy_timeout(HANGS).expect("a time");
                let mode = ["DELETE", "PERSIST", "TRUNCATE"][seed as usize];
                assert_eq!(one(&own, &format!("PRAGMA journal_mode = {mode}")).len(), mode.len());
                let random = &mut Rng::with_seed(seed);
                for n in 0..60 {
                    let (a, b) = (random.u8(1..200), random.u8(1..200));
                    run(
                        &own,
                        &format!(
                            "BEGIN IMMEDIATE; UPDATE t SET v = v - 7 WHERE id = {a};
                             UPDATE t SET v = v + 7, x = hex(randomblob({})) WHERE id = {b};
                             COMMIT",
                            random.u32(..500)
                        ),
                    );
                    if n % 30 == 29 {
                        run(&own, "VACUUM");
                    }
                }
            };
            let writers: Vec<_> = (0..3).map(|seed| scope.spawn(move || write(seed))).collect();
            for _ in 0..3 {
                scope.spawn(|| {
                    let own = ours_with(&path, "");
                    while !ended.load(Ordering::Relaxed) {
                        run(&own, "BEGIN");
                        let rows = "SELECT group_concat(id || ':' || v || x) FROM t";
                        let before = one(&own, rows);
                        assert_eq!(one(&own, "SELECT sum(v) FROM t"), "20000");
                        assert!(before == one(&own, rows), "another state");
                        run(&own, "COMMIT");
                    }
                });
            }
            let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            ended.store(true, Ordering::Relaxed);
            assert!(results.iter().all(Result::is_ok));
        });
        assert_whole(&first);
        assert_eq!(stat(&first, "copied_for_readers"), 0);
    }
}

/// A transaction over two databases that fails in the second one. The first one has published, and
/// SQLite undoes that: readers never see it.
#[test]
fn readers_do_not_see_what_is_undone() {
    for mode in ["delete", "truncate", "persist"] {
        let scratch = Scratch::in_memory();
        let path = scratch.path("x.db");
        let (x, reader) = (with_rows(&path, ""), ours_with(&path, ""));
        let y = scratch.path("y.db");
        run(&x, &format!("ATTACH 'file:{}?vfs=atomic-mmap&max_len=2097152' AS y", y.display()));
        run(&x, "CREATE TABLE y.t (a)");
        for name in ["main", "y"] {
            assert_eq!(one(&x, &format!("PRAGMA {name}.journal_mode = {mode}")), mode);
        }
        run(&reader, "BEGIN; SELECT count(*) FROM t");
        run(&x, "BEGIN; UPDATE main.t SET v = 0; INSERT INTO y.t VALUES (zeroblob(5000000))");
        assert_eq!(extended_code(x.execute_batch("COMMIT")), 13, "y.db is full");
        assert_eq!(one(&reader, "SELECT sum(v) FROM t"), "20000");
        run(&reader, "COMMIT");
        assert_eq!(one(&reader, "SELECT sum(v) FROM t"), "20000");
        run(&reader, "UPDATE t SET v = 1");
        assert_eq!(one(&x, "SELECT sum(v) FROM t"), "200");
        assert_whole(&x);
    }
}

#[test]
fn wal_mode_is_answered_if_the_program_wants_that() {
    let scratch = Scratch::in_memory();
    let path = scratch.path("x.db");
    let x = ours_with(&path, "&wal=as-snapshots");
    let mode = |x: &Connection, sql: &str| one(x, &format!("PRAGMA {sql}"));
    assert_eq!(mode(&x, "journal_mode"), "delete");
    assert_eq!(mode(&x, "journal_mode = WAL"), "wal");
    assert_eq!(mode(&x, "main.journal_mode"), "wal");
    run(&x, "CREATE TABLE t (a); INSERT INTO t VALUES (1); PRAGMA wal_checkpoint(TRUNCATE)");
    let y = ours_with(&path, "");
    assert_eq!(mode(&y, "journal_mode"), "wal");
    run(&y, "BEGIN; SELECT a FROM t");
    run(&x, "UPDATE t SET a = 2");
    assert_eq!(one(&y, "SELECT a FROM t"), "1");
    run(&y, "COMMIT");
    assert_eq!(mode(&y, "journal_mode = truncate"), "truncate");
    assert_eq!(mode(&x, "journal_mode"), "delete", "a connection has its own");
    drop((x, y));
    assert_eq!(one(&stock(&path), "PRAGMA journal_mode"), "delete");
    let x = ours_with(&path, SNAPSHOTS);
    assert_eq!(mode(&x, "journal_mode = WAL"), "delete", "not asked for");
    drop(x);
    assert!(try_ours(&path, "&snapshot_reads=2").is_err());
}

/// Snapshots of the file, which a user has made, and reads of earlier versions do not meet.
#[test]
fn snapshots_of_the_user_stay() {
    let scratch = Scratch::in_memory();
    let path = scratch.path("x.db");
    let x = with_rows(&path, "");
    x.close().expect("close");
    let bytes = std::fs::read(&path).expect("read");
    let file = AtomicMappedFile::options().open(&path).expect("open");
    file.snapshot("mine").expect("seal");
    drop(file);
    let (x, reader) = (ours_with(&path, SNAPSHOTS), ours_with(&path, SNAPSHOTS));
    run(&reader, "BEGIN; SELECT count(*) FROM t");
    run(&x, "UPDATE t SET v = 3; DELETE FROM t WHERE id > 100; VACUUM");
    assert_eq!(one(&reader, "SELECT sum(v) FROM t"), "20000");
    drop((x, reader));
    let file = AtomicMappedFile::options().open(&path).expect("open");
    let names: Vec<String> = file.snapshots().into_iter().map(|known| known.name).collect();
    assert_eq!(names, ["mine"]);
    assert!(file.open_snapshot("mine").expect("open").read_vec().expect("read") == bytes);
    file.drop_snapshot("mine").expect("drop");
    drop(file);
    assert_eq!(one(&ours_with(&path, SNAPSHOTS), "SELECT sum(v) FROM t"), "300");
}
