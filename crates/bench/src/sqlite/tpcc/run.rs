//! The measurement of TPC-C.

use super::{Terminal, check, load};
use crate::ratios::Found;
use crate::scratch::Scratch;
use crate::sqlite::contest::{Contest, Work};
use crate::sqlite::modes::{ALL, Mode, Place};
use rusqlite::Connection;
use std::io;
use std::path::{Path, PathBuf};

/// Number of warehouses.
pub const WAREHOUSES: i64 = 1;

/// Transactions before the turns.
pub const WARM_UP: usize = 2_000;

/// Makes the database with which all contenders begin.
///
/// # Errors
/// Returns the error of SQLite.
pub fn seed(folder: &Path) -> io::Result<PathBuf> {
    let path = folder.join("tpcc");
    let make = || {
        let db = Connection::open(&path)?;
        db.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY")?;
        load(&db, WAREHOUSES)?;
        check(&db, "loaded")?;
        db.close().map_err(|(_, error)| error)
    };
    make().map_err(io::Error::other)?;
    Ok(path)
}

/// Returns the work of one terminal.
pub fn work(db: &Connection) -> Work<'_> {
    Box::new(move |round, count| {
        let mut terminal = Terminal::new(db, WAREHOUSES, round as u64);
        (0..count).try_for_each(|_| terminal.step())
    })
}

/// Measures the mixture of all five transactions, and checks the consistency of each database.
///
/// # Errors
/// Returns an error of the system or of SQLite.
pub fn measure(contest: &Contest, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let seed = seed(scratch.path())?;
    let entrants = contest.entrants(&seed, &ALL)?;
    for entrant in &entrants {
        entrant.warm_up(work(&entrant.db), WARM_UP)?;
    }
    let works = entrants.iter().map(|entrant| (entrant.mode, work(&entrant.db))).collect();
    let times = contest.run(scratch, true, works)?;
    let told = "throughput of TPC-C's mixture, one terminal";
    match contest.place {
        Place::Disk => {
            times.add_all("tpcc", contest.place, found);
            let to = |mode| times.speed(Mode::OursFull, mode);
            found.add("sqlite_tpcc_vs_wal_full", to(Mode::WalFull), told);
            found.add("sqlite_tpcc_vs_truncate_full", to(Mode::TruncateFull), told);
            found.add("sqlite_tpcc_vs_delete_full", to(Mode::DeleteFull), told);
            let off = times.speed(Mode::OursOff, Mode::WalNormal);
            found.add("sqlite_tpcc_off_vs_wal_normal", off, told);
        }
        Place::Pmem => {
            times.add_all("pmem_tpcc", contest.place, found);
            let best = times.best_stock();
            let told = format!("{told}, to {}", best.name());
            found.add("sqlite_pmem_tpcc_vs_best", times.speed(Mode::OursFull, best), &told);
        }
    }
    for entrant in entrants {
        check(&entrant.db, entrant.mode.name()).map_err(io::Error::other)?;
        entrant.end()?;
    }
    Ok(())
}
