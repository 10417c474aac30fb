//! Random statements give the results that they give on the VFS that SQLite has.
//!
//! The variable `ATOMIC_MMAP_SQLITE_SEEDS` sets the number of histories.

use crate::common::{Scratch, assert_whole, number_from, ours_with, run, stock};
use fastrand::Rng;
use rusqlite::Connection;

/// Statements of one round. Some fail, on both sides alike.
fn statements(random: &mut Rng) -> String {
    let table = random.u8(..4);
    let key = random.u32(..400);
    let text = "x".repeat(random.usize(..3000));
    match random.u8(..40) {
        0..10 => {
            format!("INSERT OR REPLACE INTO t{table} VALUES ({key}, {}, '{text}')", random.u8(..))
        }
        10..14 => format!("UPDATE t{table} SET b = b + 1, c = '{text}' WHERE a > {key}"),
        14..17 => format!("DELETE FROM t{table} WHERE a % 7 = {}", key % 7),
        17 => format!("INSERT INTO t{table} SELECT a + 1000, b, c FROM t{} LIMIT 100", table ^ 1),
        18 => format!("CREATE INDEX IF NOT EXISTS i{table} ON t{table} (b, c)"),
        19 => format!("DROP INDEX IF EXISTS i{table}"),
        20 => format!("DELETE FROM t{table}"),
        21 => "VACUUM".to_owned(),
        22 => format!("INSERT INTO t{table} VALUES ({key}, 1, 'twice'), ({key}, 2, 'twice')"),
        23..28 => "BEGIN".to_owned(),
        28..32 => "COMMIT".to_owned(),
        32..34 => "ROLLBACK".to_owned(),
        34..36 => format!("SAVEPOINT s{table}"),
        36..38 => format!("ROLLBACK TO s{table}"),
        38 => format!("RELEASE s{table}"),
        _ => "PRAGMA incremental_vacuum(5)".to_owned(),
    }
}

/// Everything in the database, and the result of a statement.
fn contents(connection: &Connection) -> Vec<String> {
    let mut all = Vec::new();
    for sql in [
        "SELECT name || coalesce(sql, '') FROM sqlite_schema ORDER BY name",
        "SELECT a || '/' || b || '/' || c FROM t0 ORDER BY rowid",
        "SELECT a || '/' || b || '/' || c FROM t1 ORDER BY rowid",
        "SELECT a || '/' || b || '/' || c FROM t2 ORDER BY rowid",
        "SELECT a || '/' || b || '/' || c FROM t3 ORDER BY rowid",
    ] {
        let mut statement = connection.prepare(sql).expect("prepare");
        let rows = statement.query_map([], |row| row.get::<_, String>(0)).expect("query");
        all.extend(rows.map(|row| row.expect("a row")));
    }
    all
}

/// Runs a database of each kind through a few hundred statements.
fn compare(scratch: &Scratch, seed: u64, setting: &str, uri: &str) {
    let random = &mut Rng::with_seed(seed);
    let path = scratch.path(&format!("{seed}.db"));
    let mut databases = [stock(&scratch.path(&format!("{seed}.stock"))), ours_with(&path, uri)];
    let schema = (0..4).map(|n| format!("CREATE TABLE t{n} (a INTEGER PRIMARY KEY, b, c);"));
    let schema: String = schema.collect();
    for database in &databases {
        run(database, &format!("{setting} {schema}"));
    }
    for step in 0..300 {
        let sql = statements(random);
        let results = databases
            .each_ref()
            .map(|database| database.execute_batch(&sql).map_err(|error| error.to_string()));
        assert_eq!(results[0], results[1], "seed {seed}, step {step}: {sql}");
        if step % 20 == 0 {
            let [a, b] = databases.each_ref().map(contents);
            assert!(a == b, "seed {seed}, step {step}: {sql}");
        }
        if random.u8(..60) == 0 {
            let _open = databases[1].execute_batch("ROLLBACK");
            let _open = databases[0].execute_batch("ROLLBACK");
            databases[1] = Connection::open_in_memory().expect("close ours");
            databases[1] = ours_with(&path, uri);
            run(&databases[1], setting);
        }
    }
    for database in &databases {
        let _open = database.execute_batch("COMMIT");
        assert_whole(database);
    }
    let expected = contents(&databases[0]);
    assert!(expected == contents(&databases[1]), "seed {seed}");
    let [_, own] = databases;
    own.close().expect("close");
    if uri.contains("close=fast") {
        assert!(scratch.names().iter().any(|name| name.starts_with(".atomic-mmap")));
        ours_with(&path, "").close().expect("close");
    }
    // The close leaves a plain file of SQLite.
    assert!(!scratch.names().iter().any(|name| name.starts_with(".atomic-mmap")));
    let plain = stock(&path);
    assert_whole(&plain);
    assert!(expected == contents(&plain), "seed {seed}");
}

/// Settings that change the calls that a VFS gets, by their numbers. Each medium has some.
fn setting(n: u64) -> (&'static str, &'static str) {
    match n % 8 {
        0 => ("PRAGMA page_size = 4096;", "&medium=page-cache"),
        1 => ("PRAGMA page_size = 512; PRAGMA cache_size = 10;", "&overlay_memory=20000"),
        2 => ("PRAGMA synchronous = OFF; PRAGMA cache_size = 5;", "&medium=dax"),
        3 => ("PRAGMA journal_mode = MEMORY; PRAGMA cache_size = 5;", "&overlay_memory=0"),
        4 => ("PRAGMA journal_mode = PERSIST; PRAGMA auto_vacuum = FULL;", "&close=fast"),
        5 => ("PRAGMA journal_mode = TRUNCATE; PRAGMA page_size = 65536;", "&medium=page-cache"),
        6 => (
            "PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_size = 5;",
            "&medium=page-cache&durability=every-write",
        ),
        _ => ("PRAGMA auto_vacuum = INCREMENTAL; PRAGMA mmap_size = 10000000;", "&medium=ram"),
    }
}

#[test]
fn statements_do_what_they_do_on_the_stock_vfs() {
    let scratch = Scratch::in_memory();
    for seed in 0..number_from("ATOMIC_MMAP_SQLITE_SEEDS", 16) {
        let (setting, uri) = setting(seed);
        let reads = seed / 8 % 2;
        compare(&scratch, seed, setting, &format!("{uri}&snapshot_reads={reads}"));
    }
}
