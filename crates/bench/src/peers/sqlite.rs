//! SQLite: a table of rows, write-ahead log, durable with each transaction.

use super::blocks::{BLOCK, parts};
use crate::subject::{Kind, Subject};
use rusqlite::{Connection, OptionalExtension};
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// SQLite in its fastest setup here: a write-ahead log, one connection that locks the file for
/// good, and a cache that holds the whole database.
pub const SQLITE: Kind = Kind {
    name: "SQLite",
    source: "WAL, synchronous=FULL, exclusive, a page a row of 4 KiB",
    durable_writes: true,
    open: |folder, len| Ok(Box::new(Sqlite::open(folder, len).map_err(io::Error::other)?)),
};

/// One connection behind a mutex. Several connections with a busy handler are slower.
struct Sqlite(Mutex<Connection>);

const SELECT: &str = "SELECT v FROM t WHERE id = ?1";
const UPDATE: &str = "UPDATE t SET v = ?2 WHERE id = ?1";
const INSERT: &str = "INSERT INTO t VALUES(?1, ?2)";

impl Sqlite {
    fn open(folder: &Path, len: u64) -> rusqlite::Result<Sqlite> {
        let db = Connection::open(folder.join("rows.db"))?;
        // One row for each page. With 4 KiB a row takes two pages: small writes take an equal time,
        // reads 50 % more, and writes of 64 KiB 25 % less. With 16 KiB small writes take 25 to 50 %
        // more.
        db.execute_batch("PRAGMA page_size = 8192; PRAGMA locking_mode = EXCLUSIVE;")?;
        let mode: String = db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        assert_eq!(mode, "wal", "SQLite's journal mode");
        let kibibytes = len / 1024 * 3 + (64 << 10);
        db.execute_batch(&format!(
            "PRAGMA synchronous = FULL; PRAGMA cache_size = -{kibibytes};
             CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB NOT NULL)"
        ))?;
        Ok(Sqlite(Mutex::new(db)))
    }

    fn db(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes rows, within the open transaction or each in its own.
    fn change(db: &Connection, data: &[u8], offset: u64) -> rusqlite::Result<()> {
        let mut update = db.prepare_cached(UPDATE)?;
        for part in parts(offset, data.len()) {
            let id = part.block as i64;
            let piece = &data[part.data.clone()];
            let mut row = [0; BLOCK];
            let value: &[u8] = if part.is_whole() {
                piece
            } else {
                let mut select = db.prepare_cached(SELECT)?;
                let copy = |found: &rusqlite::Row<'_>| {
                    row.copy_from_slice(found.get_ref(0)?.as_blob()?);
                    Ok(())
                };
                select.query_row([id], copy).optional()?;
                row[part.inside.clone()].copy_from_slice(piece);
                &row
            };
            if update.execute((id, value))? == 0 {
                db.prepare_cached(INSERT)?.execute((id, value))?;
            }
        }
        Ok(())
    }

    fn commit(db: &Connection, changes: &[(u64, &[u8])]) -> rusqlite::Result<()> {
        db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        for (offset, data) in changes {
            Sqlite::change(db, data, *offset)?;
        }
        db.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }

    fn fill(db: &Connection, to: &mut [u8], offset: u64) -> rusqlite::Result<()> {
        let mut select = db.prepare_cached(SELECT)?;
        for part in parts(offset, to.len()) {
            let piece = &mut to[part.data.clone()];
            let copy = |found: &rusqlite::Row<'_>| {
                piece.copy_from_slice(&found.get_ref(0)?.as_blob()?[part.inside.clone()]);
                Ok(())
            };
            if select.query_row([part.block as i64], copy).optional()?.is_none() {
                to[part.data].fill(0);
            }
        }
        Ok(())
    }
}

impl Subject for Sqlite {
    fn write(&self, data: &[u8], offset: u64) {
        Sqlite::commit(&self.db(), &[(offset, data)]).expect("SQLite commits");
    }

    fn read(&self, to: &mut [u8], offset: u64) {
        Sqlite::fill(&self.db(), to, offset).expect("SQLite reads");
    }

    fn transact(&self, parts: &[(u64, &[u8])]) -> bool {
        Sqlite::commit(&self.db(), parts).expect("SQLite commits");
        true
    }
}
