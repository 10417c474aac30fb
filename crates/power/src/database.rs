//! Databases of SQLite on the VFS of `crates/sqlite`, and the states that a power loss may leave.
//!
//! Transaction number `n` changes rows of `item`, and notes in `total` its number and the sum of
//! all rows. So a database names its last transaction, and the sum shows whether it is whole.
//! Number 1 makes the tables. Each acknowledged transaction must be there.

use crate::Anything;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;

/// The variable that plants a bug: SQLite calls no `xSync`, and its COMMIT acknowledges what is not
/// durable.
const NOT_SYNCED: &str = "LAB_POWER_SQLITE_NOT_SYNCED";

/// A database, and how the writer uses it.
#[derive(Clone, Copy)]
pub struct Database {
    pub name: &'static str,
    /// Parameters of the URI.
    parameters: &'static str,
    /// Pragmas of each connection.
    pragmas: &'static str,
}

pub const DATABASES: &[Database] = &[
    Database { name: "full.db", parameters: "", pragmas: "PRAGMA synchronous = FULL" },
    // A small cache spills in the middle of transactions, and the overlay goes to a temporary file.
    Database {
        name: "spills.db",
        parameters: "&overlay_memory=20000",
        pragmas: "PRAGMA synchronous = NORMAL; PRAGMA cache_size = 5; PRAGMA page_size = 1024",
    },
];

impl Database {
    /// Opens the database in `folder`. The last close leaves its companions if `close` is `fast`.
    pub fn open(&self, folder: &Path, close: &str) -> Anything<Connection> {
        atomic_mmap_sqlite::register()?;
        let path = folder.join(self.name);
        let uri = format!(
            "file:{}?vfs=atomic-mmap&medium=page-cache&close={close}{}",
            path.display(),
            self.parameters
        );
        let opened = Connection::open_with_flags(uri, OpenFlags::default());
        let why = |e| format!("{e}: {}", atomic_mmap_sqlite::last_error().unwrap_or_default());
        let connection = opened.map_err(why)?;
        connection.execute_batch(self.pragmas)?;
        if std::env::var_os(NOT_SYNCED).is_some() {
            connection.execute_batch("PRAGMA synchronous = OFF")?;
        }
        Ok(connection)
    }
}

/// Runs transaction `n`.
pub fn run(connection: &Connection, n: u64, seed: u64) -> Anything<()> {
    let mut random = fastrand::Rng::with_seed(seed ^ n.wrapping_mul(0x9E37_79B9));
    if n == 1 {
        let tables = "BEGIN; CREATE TABLE item (id INTEGER PRIMARY KEY, v, x);
                      CREATE INDEX v ON item (v, id);
                      CREATE TABLE total (n, sum); INSERT INTO total VALUES (1, 0); COMMIT";
        return Ok(connection.execute_batch(tables)?);
    }
    let (from, count) = (random.u32(..200), random.u32(1..30));
    let change = match random.u8(..10) {
        0..6 => format!(
            "WITH RECURSIVE i(id) AS (SELECT {from} UNION ALL SELECT id + 1 FROM i LIMIT {count})
             INSERT OR REPLACE INTO item SELECT id, {n}, randomblob({}) FROM i",
            random.u32(..1500)
        ),
        6..8 => format!("UPDATE item SET v = v + {n} WHERE id BETWEEN {from} AND {from} + {count}"),
        _ => format!("DELETE FROM item WHERE id BETWEEN {from} AND {from} + {count}"),
    };
    connection.execute_batch(&format!(
        "BEGIN; DELETE FROM item WHERE id % 7 = 1; ROLLBACK;
         BEGIN; {change};
         UPDATE total SET n = {n}, sum = (SELECT coalesce(sum(v), 0) FROM item); COMMIT"
    ))?;
    if random.u8(..12) == 0 {
        connection.execute_batch("VACUUM")?;
    }
    Ok(())
}

/// Returns the number of the last transaction in a database, 0 if there is none. Fails if the
/// database is damaged, or holds a transaction in part.
pub fn last(connection: &Connection) -> Anything<u64> {
    let found: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if found != "ok" {
        return Err(format!("integrity_check: {found}").into());
    }
    let tables = "SELECT count(*) FROM sqlite_schema";
    if connection.query_row(tables, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(0);
    }
    let total = "SELECT n, sum, (SELECT coalesce(sum(v), 0) FROM item) FROM total";
    let get = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let (n, sum, is): (i64, i64, i64) = connection.query_row(total, [], get)?;
    if sum != is {
        return Err(format!("transaction {n} is there in part: {is} for {sum}").into());
    }
    Ok(n.cast_unsigned())
}
