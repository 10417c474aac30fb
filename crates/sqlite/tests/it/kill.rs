//! A writer that is killed: every acknowledged transaction is there, and none in part.
//!
//! The variable `ATOMIC_MMAP_SQLITE_KILLS` sets the number of kills.

use crate::common::{
    Role, Scratch, assert_whole, child, lines, number_from, one, ours_with, run, try_one,
};
use fastrand::Rng;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Kills without the variable.
const KILLS: u64 = 32;

/// The parameters of a writer.
const WRITERS: [(&str, &str); 8] = [
    ("&medium=page-cache", "PRAGMA synchronous = FULL"),
    ("&medium=dax", "PRAGMA synchronous = NORMAL; PRAGMA cache_size = 5"),
    ("&medium=ram", "PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY"),
    ("&medium=page-cache&overlay_memory=20000", "PRAGMA synchronous = OFF; PRAGMA cache_size = 5"),
    ("&medium=page-cache", "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = TRUNCATE"),
    ("&medium=ram", "PRAGMA auto_vacuum = FULL; PRAGMA mmap_size = 1000000"),
    ("&medium=page-cache&snapshot_reads=1", "PRAGMA auto_vacuum = FULL"),
    (
        "&medium=dax&snapshot_reads=1&overlay_memory=20000",
        "PRAGMA cache_size = 5; PRAGMA journal_mode = PERSIST",
    ),
];

/// Returns 1 if the row of `total` is right.
const WHOLE: &str = "SELECT sum = (SELECT coalesce(sum(v), 0) FROM item) FROM total";

/// A transaction with the number `n`. The row of `total` tells what `item` has to hold.
fn transaction(random: &mut Rng, n: u64) -> String {
    let (from, count) = (random.u32(..500), random.u32(1..60));
    let change = match random.u8(..10) {
        0..5 => format!(
            "WITH RECURSIVE i(id) AS (SELECT {from} UNION ALL SELECT id + 1 FROM i LIMIT {count})
             INSERT OR REPLACE INTO item SELECT id, {n}, zeroblob({}) FROM i",
            random.u32(..2000)
        ),
        5..7 => format!("UPDATE item SET v = v + {n} WHERE id BETWEEN {from} AND {}", from + count),
        7..9 => format!("DELETE FROM item WHERE id BETWEEN {from} AND {}", from + count),
        _ => "DELETE FROM item WHERE id % 3 = 0".to_owned(),
    };
    let end = if random.u8(..8) == 0 { "ROLLBACK" } else { "COMMIT" };
    format!(
        "BEGIN; {change}; SAVEPOINT s; DELETE FROM item WHERE id % 5 = 1; ROLLBACK TO s;
         UPDATE total SET n = {n}, sum = (SELECT coalesce(sum(v), 0) FROM item); {end}"
    )
}

/// The role of a process that writes until it is killed. It says the number of each transaction
/// that SQLite has acknowledged.
pub fn write(role: &Role) {
    let (_, settings) = WRITERS[role.seed as usize % WRITERS.len()];
    let own = ours_with(&role.path, &role.parameters);
    run(&own, settings);
    if role.parameters.contains("snapshot_reads") {
        for _ in 0..2 {
            let path = role.path.clone();
            thread::spawn(move || read_for_ever(&path));
        }
    }
    let random = &mut Rng::with_seed(role.seed);
    let mut n: u64 = one(&own, "SELECT n FROM total").parse().expect("a number");
    // Every second writer is killed at any time, and the others after their first transaction.
    let mut is_open = role.seed.is_multiple_of(2);
    if is_open {
        println!(">open");
    }
    loop {
        n += 1;
        let sql = transaction(random, n);
        run(&own, &sql);
        if sql.ends_with("COMMIT") {
            println!(">{n}");
            if !std::mem::replace(&mut is_open, true) {
                println!(">open");
            }
        }
        if random.u8(..30) == 0 {
            run(&own, "VACUUM");
        }
        std::io::stdout().flush().expect("flush");
    }
}

/// Looks whether each read transaction sees one whole state, beside a writer.
fn read_for_ever(path: &Path) {
    let own = ours_with(path, "");
    loop {
        let look = || -> rusqlite::Result<bool> {
            own.execute_batch("BEGIN")?;
            let n = try_one(&own, "SELECT n FROM total")?;
            let is_whole = try_one(&own, WHOLE)? == "1";
            let is_same = try_one(&own, "SELECT n FROM total")? == n;
            own.execute_batch("COMMIT")?;
            Ok(is_whole && is_same)
        };
        match look() {
            Ok(true) => {}
            other => println!(">torn {other:?}"),
        }
    }
}

/// Starts a writer and kills it. Returns the last transaction that it has acknowledged.
fn kill_a_writer(role: &str, path: &Path, seed: u64, parameters: &str, random: &mut Rng) -> u64 {
    let mut writer = child(role, path, seed, parameters);
    let (say, heard) = mpsc::channel();
    let said = lines(&mut writer);
    let listener = thread::spawn(move || {
        let mut last = 0;
        for line in said {
            if line == "open" {
                say.send(()).expect("the test waits");
            } else {
                last = line.parse().unwrap_or_else(|_| panic!("the writer says {line}"));
            }
        }
        last
    });
    heard.recv().expect("the writer opens the database");
    thread::sleep(Duration::from_micros(random.u64(..60_000)));
    writer.kill().expect("kill");
    writer.wait().expect("wait");
    listener.join().expect("the last number")
}

#[test]
fn acknowledged_transactions_survive_kills_and_none_is_torn() {
    let kills = number_from("ATOMIC_MMAP_SQLITE_KILLS", KILLS);
    let scratch = Scratch::in_memory();
    let random = &mut Rng::with_seed(kills);
    let mut acknowledged = 0;
    for (n, (parameters, settings)) in WRITERS.iter().enumerate() {
        let path = scratch.path(&n.to_string());
        let x = ours_with(&path, parameters);
        run(&x, settings);
        run(&x, "CREATE TABLE item (id INTEGER PRIMARY KEY, v, x); CREATE INDEX i ON item (v, id)");
        run(&x, "CREATE TABLE total (n, sum); INSERT INTO total VALUES (0, 0)");
    }
    for kill in 0..kills {
        let writer = kill as usize % WRITERS.len();
        let (path, (parameters, _)) = (scratch.path(&writer.to_string()), WRITERS[writer]);
        let last = kill_a_writer("writer", &path, kill, parameters, random);
        let x = ours_with(&path, parameters);
        assert_whole(&x);
        let n: u64 = one(&x, "SELECT n FROM total").parse().expect("a number");
        assert!(n >= last, "kill {kill}: {last} was acknowledged, {n} is there");
        assert_eq!(one(&x, WHOLE), "1", "kill {kill}: a transaction is there in part");
        acknowledged += last;
    }
    assert!(acknowledged > 0, "the writers have done something");
}

/// Rows of a first transaction.
const ROWS: u64 = 3000;

/// The role of a process that makes a database by one transaction, which does not fit its memory.
pub fn write_first(role: &Role) {
    let own = ours_with(&role.path, &role.parameters);
    println!(">open");
    let rows = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {ROWS})
         SELECT i, zeroblob(1000) FROM n"
    );
    run(&own, &format!("BEGIN; CREATE TABLE t (a, b); INSERT INTO t {rows}; COMMIT"));
    println!(">1");
    std::thread::park();
}

#[test]
fn a_first_transaction_beyond_memory_is_whole_or_leaves_an_empty_database() {
    let scratch = Scratch::in_memory();
    let random = &mut Rng::with_seed(1);
    for kill in 0..12 {
        let path = scratch.path(&kill.to_string());
        let last = kill_a_writer("first", &path, 0, "&overlay_memory=100000", random);
        let x = ours_with(&path, "");
        assert_whole(&x);
        let tables: u64 = one(&x, "SELECT count(*) FROM sqlite_schema").parse().expect("a number");
        assert!(tables >= last, "kill {kill}: the transaction was acknowledged");
        if tables > 0 {
            assert_eq!(one(&x, "SELECT count(*) FROM t"), ROWS.to_string());
        }
    }
}
