//! Rows that are changed one by one: updates of 1 KiB, and small transactions.

use super::contest::{Contest, Entrant, Work};
use super::modes::{ALL, Mode, Place, SAFE};
use crate::ratios::Found;
use crate::scratch::Scratch;
use fastrand::Rng;
use rusqlite::{Connection, params};
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of a row that is updated.
const ROW: usize = 1024;
/// Rows of the table.
pub const ROWS: i64 = 20_000;
/// Rounds of small transactions before the turns.
const SMALL_WARM_UP: usize = 5_000;
/// The sizes of a page in bytes.
const PAGES: [u32; 5] = [512, 1024, 2048, 4096, 8192];

/// Makes a database with pages of `page` bytes, with which all contenders begin.
///
/// # Errors
/// Returns the error of SQLite.
pub fn seed(folder: &Path, page: u32) -> io::Result<PathBuf> {
    let path = folder.join(format!("rows-{page}"));
    let make = || {
        let db = Connection::open(&path)?;
        let settings = "PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY";
        db.execute_batch(&format!(
            "PRAGMA page_size = {page}; {settings};
             CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB NOT NULL);
             CREATE TABLE small (id INTEGER PRIMARY KEY AUTOINCREMENT, v TEXT NOT NULL);
             INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n
                LIMIT {ROWS}) SELECT i, zeroblob({ROW}) FROM n;"
        ))?;
        db.close().map_err(|(_, error)| error)
    };
    make().map_err(io::Error::other)?;
    Ok(path)
}

/// Replaces the value of one random row, in a transaction of its own.
pub fn update(db: &Connection) -> Work<'_> {
    Box::new(move |round, count| {
        let (mut rng, mut value) = (Rng::with_seed(round as u64), [0; ROW]);
        for _ in 0..count {
            rng.fill(&mut value);
            db.prepare_cached("UPDATE t SET v = ?2 WHERE id = ?1")?
                .execute(params![rng.i64(1..=ROWS), value])?;
        }
        Ok(())
    })
}

/// Inserts a row of 100 bytes, updates it and deletes it: three transactions, as Mobibench's.
fn three(db: &Connection) -> Work<'_> {
    Box::new(move |round, count| {
        let mut rng = Rng::with_seed(round as u64);
        let mut text = || -> String { (0..100).map(|_| rng.alphanumeric()).collect() };
        for _ in 0..count {
            db.prepare_cached("INSERT INTO small(v) VALUES (?)")?.execute([text()])?;
            let id = db.last_insert_rowid();
            db.prepare_cached("UPDATE small SET v = ? WHERE id = ?")?
                .execute(params![text(), id])?;
            db.prepare_cached("DELETE FROM small WHERE id = ?")?.execute([id])?;
        }
        Ok(())
    })
}

/// Measures updates of 1 KiB, one in a transaction.
///
/// # Errors
/// Returns an error of the system or of SQLite.
pub fn updates(contest: &Contest, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let entrants = contest.entrants(&seed(scratch.path(), 4096)?, &ALL)?;
    for entrant in &entrants {
        entrant.warm_up(update(&entrant.db), ROWS as usize)?;
    }
    let works = entrants.iter().map(|entrant| (entrant.mode, update(&entrant.db))).collect();
    let times = contest.run(scratch, true, works)?;
    let told = "throughput of updates of 1 KiB, one in a transaction";
    if contest.place == Place::Disk {
        times.add_all("update_1KiB", contest.place, found);
        let to = |mode| times.speed(Mode::OursFull, mode);
        found.add("sqlite_update_1KiB_vs_wal_full", to(Mode::WalFull), told);
        found.add("sqlite_update_1KiB_vs_truncate_full", to(Mode::TruncateFull), told);
        let off = times.speed(Mode::OursOff, Mode::WalNormal);
        found.add("sqlite_update_1KiB_off_vs_wal_normal", off, told);
    } else {
        times.add_all("pmem_update_1KiB", contest.place, found);
        let best = times.best_stock();
        let told = format!("{told}, to {}", best.name());
        found.add("sqlite_pmem_update_1KiB_vs_best", times.speed(Mode::OursFull, best), &told);
    }
    entrants.into_iter().try_for_each(Entrant::end)
}

/// Measures the same updates with all sizes of a page.
///
/// # Errors
/// Returns an error of the system or of SQLite.
pub fn page_sizes(contest: &Contest, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    for page in PAGES {
        let seed = seed(scratch.path(), page)?;
        let entrants = contest.entrants(&seed, &[Mode::OursFull, Mode::WalFull])?;
        for entrant in &entrants {
            entrant.warm_up(update(&entrant.db), ROWS as usize)?;
        }
        let works = entrants.iter().map(|entrant| (entrant.mode, update(&entrant.db))).collect();
        let times = contest.run(scratch, false, works)?;
        let name = format!("sqlite_update_1KiB_page_{page}_vs_wal_full");
        let told = format!("updates of 1 KiB with pages of {page} bytes");
        found.add(&name, times.speed(Mode::OursFull, Mode::WalFull), &told);
        entrants.into_iter().try_for_each(Entrant::end)?;
    }
    Ok(())
}

/// Measures an insertion, an update and a deletion of a small row, each in a transaction.
///
/// # Errors
/// Returns an error of the system or of SQLite.
pub fn small(contest: &Contest, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let entrants = contest.entrants(&seed(scratch.path(), 4096)?, SAFE)?;
    for entrant in &entrants {
        entrant.warm_up(three(&entrant.db), SMALL_WARM_UP)?;
    }
    let works = entrants.iter().map(|entrant| (entrant.mode, three(&entrant.db))).collect();
    let times = contest.run(scratch, true, works)?;
    times.add_all("small", contest.place, found);
    let told = "an insertion, an update and a deletion of 100 bytes, three transactions";
    found.add("sqlite_small_vs_wal_full", times.speed(Mode::OursFull, Mode::WalFull), told);
    entrants.into_iter().try_for_each(Entrant::end)
}
