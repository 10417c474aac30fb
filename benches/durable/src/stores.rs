//! The measured stores. Each holds equal records and makes equal changes durable.

use atomic_mmap::{AtomicMappedFile, Durability};
use heed::types::{Bytes, U64};
use heed::{Env, EnvOpenOptions, byteorder::BigEndian};
use redb::{ReadableDatabase, TableDefinition};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub type Any<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// New bytes of a record.
pub struct Change {
    pub record: u64,
    /// The seed of the bytes.
    pub seed: u64,
    pub bytes: Vec<u8>,
}

/// The number of records, and their length in bytes.
#[derive(Clone, Copy)]
pub struct Shape {
    pub records: u64,
    pub len: usize,
}

pub trait Store: Send + Sync {
    /// Makes the changes durable, all or none. Any thread may call it. Returns the time before the
    /// durable part began, if the store separates the two.
    fn commit(&self, changes: &[Change]) -> Any<Duration>;
    /// Returns the bytes of a record, or `None` if the store keeps no records.
    fn get(&self, record: u64) -> Any<Option<Vec<u8>>>;
    /// Returns remarks of the store about itself.
    fn remarks(&self) -> Option<String> {
        None
    }
}

/// The names of all stores. Opening creates and fills a missing store.
pub const NAMES: [&str; 7] = [
    "O_DSYNC write",
    "pages + fdatasync",
    "atomic-mmap",
    "SQLite WAL",
    "SQLite TRUNCATE",
    "LMDB",
    "redb",
];

pub fn open(name: &str, dir: &Path, shape: Shape, every_write: bool) -> Any<Box<dyn Store>> {
    Ok(match name {
        "O_DSYNC write" => Box::new(Limit::open(&dir.join("limit"), shape, Way::Dsync)?),
        "O_DIRECT write" => Box::new(Limit::open(&dir.join("direct"), shape, Way::Direct)?),
        "pages + fdatasync" => Box::new(Limit::open(&dir.join("pages"), shape, Way::Pages)?),
        "atomic-mmap" => Box::new(Ours::open(&dir.join("ours"), shape, every_write)?),
        "SQLite WAL" => Box::new(Sqlite::open(&dir.join("wal.db"), shape, "WAL")?),
        "SQLite TRUNCATE" => Box::new(Sqlite::open(&dir.join("truncate.db"), shape, "TRUNCATE")?),
        "LMDB" => Box::new(Lmdb::open(&dir.join("lmdb"), shape)?),
        "redb" => Box::new(Redb::open(&dir.join("redb"), shape)?),
        _ => return Err(format!("no store is called {name:?}").into()),
    })
}

/// Returns the bytes of every record before its first change.
pub fn filler(len: usize) -> Vec<u8> {
    vec![0x5A; len]
}

// --- The limits of the device ------------------------------------------------------------------

#[derive(PartialEq)]
enum Way {
    /// One write through the cache with one barrier, at the next offset, like a journal.
    Dsync,
    /// Like `Dsync`, but past the cache.
    Direct,
    /// Each record in its place with `pwrite`, and then one `fdatasync`. Not atomic.
    Pages,
}

/// A file that was written before and takes the bytes of the changes, in whole blocks.
struct Limit {
    file: File,
    way: Way,
    shape: Shape,
    next: AtomicU64,
}

const BLOCK: usize = 4096;
const RING: u64 = 4 << 20;

impl Limit {
    fn open(path: &Path, shape: Shape, way: Way) -> Any<Limit> {
        let len = if way == Way::Pages { shape.records * shape.len as u64 } else { RING };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path)?;
        if file.metadata()?.len() != len {
            let block = vec![0x5A; BLOCK];
            (0..len).step_by(BLOCK).try_for_each(|at| file.write_all_at(&block, at))?;
            file.sync_all()?;
        }
        let flags = match way {
            Way::Dsync => libc::O_DSYNC,
            Way::Direct => libc::O_DSYNC | libc::O_DIRECT,
            Way::Pages => 0,
        };
        let file = options.custom_flags(flags).open(path)?;
        Ok(Limit { file, way, shape, next: AtomicU64::new(0) })
    }
}

impl Store for Limit {
    fn commit(&self, changes: &[Change]) -> Any<Duration> {
        let start = Instant::now();
        if self.way == Way::Pages {
            for change in changes {
                self.file.write_all_at(&change.bytes, change.record * self.shape.len as u64)?;
            }
            let changed = start.elapsed();
            self.file.sync_data()?;
            return Ok(changed);
        }
        let len = changes.iter().map(|c| c.bytes.len()).sum::<usize>().next_multiple_of(BLOCK);
        let mut bytes = vec![0u8; len + BLOCK];
        let skip = bytes.as_ptr().align_offset(BLOCK);
        let bytes = &mut bytes[skip..skip + len];
        let mut at = 0;
        for change in changes {
            bytes[at..at + change.bytes.len()].copy_from_slice(&change.bytes);
            at += change.bytes.len();
        }
        let pieces = RING / len as u64;
        let place = self.next.fetch_add(1, Ordering::Relaxed) % pieces * len as u64;
        let put = self.file.write_at(bytes, place)?;
        if put == len { Ok(Duration::ZERO) } else { Err("a short write".into()) }
    }

    fn get(&self, record: u64) -> Any<Option<Vec<u8>>> {
        if self.way != Way::Pages {
            return Ok(None);
        }
        let mut bytes = vec![0; self.shape.len];
        self.file.read_exact_at(&mut bytes, record * self.shape.len as u64)?;
        Ok(Some(bytes))
    }
}

// --- This crate --------------------------------------------------------------------------------

struct Ours {
    file: AtomicMappedFile,
    shape: Shape,
    every_write: bool,
}

impl Ours {
    fn open(path: &Path, shape: Shape, every_write: bool) -> Any<Ours> {
        let len = shape.records * shape.len as u64;
        let exists = path.exists();
        let options = |durability| {
            let mut options =
                AtomicMappedFile::options().create(true).len(len).durability(durability);
            // For trials of other lengths than the default.
            if let Some(bytes) = std::env::var("JOURNAL_LEN").ok().and_then(|n| n.parse().ok()) {
                options = options.journal_len(bytes);
            }
            options
        };
        if !exists {
            let file = options(Durability::OnSync).open(path)?;
            let piece = vec![0x5A; 64 << 10];
            (0..len).step_by(piece.len()).try_for_each(|at| file.write_at(&piece, at))?;
            file.sync()?;
        }
        let durability = if every_write { Durability::EveryWrite } else { Durability::OnSync };
        Ok(Ours { file: options(durability).open(path)?, shape, every_write })
    }
}

impl Store for Ours {
    fn commit(&self, changes: &[Change]) -> Any<Duration> {
        let start = Instant::now();
        for change in changes {
            self.file.write_at(&change.bytes, change.record * self.shape.len as u64)?;
        }
        if self.every_write {
            return Ok(Duration::ZERO);
        }
        let changed = start.elapsed();
        self.file.sync()?;
        Ok(changed)
    }

    fn get(&self, record: u64) -> Any<Option<Vec<u8>>> {
        let mut bytes = vec![0; self.shape.len];
        self.file.read_at(&mut bytes, record * self.shape.len as u64)?;
        Ok(Some(bytes))
    }

    fn remarks(&self) -> Option<String> {
        let s = self.file.stats();
        Some(format!(
            "{} durable points by the journal, {} by a flush, {} checkpoints",
            s.journal_points, s.flush_points, s.checkpoints
        ))
    }
}

// --- SQLite ------------------------------------------------------------------------------------

/// One connection behind a mutex. Several connections with a busy handler are slower.
struct Sqlite(Mutex<rusqlite::Connection>);

const UPDATE: &str = "UPDATE t SET v = ?2 WHERE id = ?1";

impl Sqlite {
    fn open(path: &Path, shape: Shape, mode: &str) -> Any<Sqlite> {
        let exists = path.exists();
        let db = rusqlite::Connection::open(path)?;
        let is: String =
            db.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |row| row.get(0))?;
        if !is.eq_ignore_ascii_case(mode) {
            return Err(format!("SQLite's journal mode is {is}").into());
        }
        // 128 MiB: the whole database stays in its cache.
        db.execute_batch("PRAGMA synchronous = FULL; PRAGMA cache_size = -131072;")?;
        if !exists {
            db.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB NOT NULL); BEGIN")?;
            let value = filler(shape.len);
            {
                let mut insert = db.prepare("INSERT INTO t VALUES(?1, ?2)")?;
                for record in 0..shape.records {
                    insert.execute((record as i64, &value))?;
                }
            }
            db.execute_batch("COMMIT")?;
            if mode == "WAL" {
                db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
            }
        }
        Ok(Sqlite(Mutex::new(db)))
    }
}

impl Store for Sqlite {
    fn commit(&self, changes: &[Change]) -> Any<Duration> {
        let start = Instant::now();
        let db = self.0.lock().map_err(|_| "poisoned")?;
        let mut update = db.prepare_cached(UPDATE)?;
        let several = changes.len() > 1;
        if several {
            db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        }
        for change in changes {
            if update.execute((change.record as i64, &change.bytes))? != 1 {
                return Err("a record is not there".into());
            }
        }
        if !several {
            return Ok(Duration::ZERO);
        }
        let changed = start.elapsed();
        db.prepare_cached("COMMIT")?.execute([])?;
        Ok(changed)
    }

    fn get(&self, record: u64) -> Any<Option<Vec<u8>>> {
        let db = self.0.lock().map_err(|_| "poisoned")?;
        let mut select = db.prepare_cached("SELECT v FROM t WHERE id = ?1")?;
        Ok(Some(select.query_row([record as i64], |row| row.get(0))?))
    }
}

// --- LMDB --------------------------------------------------------------------------------------

struct Lmdb {
    env: Env,
    table: heed::Database<U64<BigEndian>, Bytes>,
}

impl Lmdb {
    fn open(dir: &Path, shape: Shape) -> Any<Lmdb> {
        let exists = dir.exists();
        std::fs::create_dir_all(dir)?;
        // SAFETY: no other code uses the folder, and no flag disables LMDB's own protection.
        let env = unsafe { EnvOpenOptions::new().map_size(1 << 30).open(dir)? };
        let mut tx = env.write_txn()?;
        let table = env.create_database(&mut tx, None)?;
        if !exists {
            let value = filler(shape.len);
            for record in 0..shape.records {
                table.put(&mut tx, &record, value.as_slice())?;
            }
        }
        tx.commit()?;
        Ok(Lmdb { env, table })
    }
}

impl Store for Lmdb {
    fn commit(&self, changes: &[Change]) -> Any<Duration> {
        let start = Instant::now();
        let mut tx = self.env.write_txn()?;
        for change in changes {
            self.table.put(&mut tx, &change.record, change.bytes.as_slice())?;
        }
        let changed = start.elapsed();
        tx.commit()?;
        Ok(changed)
    }

    fn get(&self, record: u64) -> Any<Option<Vec<u8>>> {
        let tx = self.env.read_txn()?;
        Ok(self.table.get(&tx, &record)?.map(<[u8]>::to_vec))
    }
}

// --- redb --------------------------------------------------------------------------------------

struct Redb(redb::Database);

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("t");

impl Redb {
    fn open(path: &Path, shape: Shape) -> Any<Redb> {
        let exists = path.exists();
        let db = redb::Database::builder().set_cache_size(512 << 20).create(path)?;
        if !exists {
            let value = filler(shape.len);
            let tx = db.begin_write()?;
            {
                let mut table = tx.open_table(TABLE)?;
                for record in 0..shape.records {
                    table.insert(record, value.as_slice())?;
                }
            }
            tx.commit()?;
        }
        Ok(Redb(db))
    }
}

impl Store for Redb {
    fn commit(&self, changes: &[Change]) -> Any<Duration> {
        let start = Instant::now();
        // A transaction starts with `Durability::Immediate`.
        let tx = self.0.begin_write()?;
        {
            let mut table = tx.open_table(TABLE)?;
            for change in changes {
                table.insert(change.record, change.bytes.as_slice())?;
            }
        }
        let changed = start.elapsed();
        tx.commit()?;
        Ok(changed)
    }

    fn get(&self, record: u64) -> Any<Option<Vec<u8>>> {
        let tx = self.0.begin_read()?;
        let table = tx.open_table(TABLE)?;
        Ok(table.get(record)?.map(|value| value.value().to_vec()))
    }
}
