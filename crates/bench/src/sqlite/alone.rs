//! One contender alone, for a profiler.

use super::contest::{BATCH, Entrant, Work};
use super::modes::{ALL, Mode, Place};
use super::{rows, tpcc};
use crate::scratch::Scratch;
use rusqlite::Connection;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

/// Makes the work of a contender on its database.
type Task = fn(&Connection) -> Work<'_>;

/// Runs transactions of `task` in `mode` for `time`, and says each second what one has taken.
///
/// # Errors
/// Returns an error of the system or of SQLite.
pub fn run(task: &str, mode: &str, place: Place, base: &Path, time: Duration) -> io::Result<()> {
    let scratch = match place {
        Place::Disk => Scratch::new(Some(base))?,
        Place::Pmem => Scratch::new(None)?,
    };
    let folder = scratch.path();
    let unknown = || io::Error::other(format!("no mode {mode}: {:?}", ALL.map(Mode::name)));
    let mode = ALL.into_iter().find(|known| known.name() == mode).ok_or_else(unknown)?;
    let (seed, task_of, warm_up): (_, Task, _) = match task {
        "tpcc" => (tpcc::run::seed(folder)?, tpcc::run::work, tpcc::run::WARM_UP),
        "update" => (rows::seed(folder, 4096)?, rows::update, rows::ROWS as usize),
        _ => return Err(io::Error::other("sqlite: tpcc or update")),
    };
    let entrant = Entrant::new(mode, &seed, place)?;
    entrant.warm_up(task_of(&entrant.db), warm_up)?;
    let mut work = task_of(&entrant.db);
    let (end, mut count) = (Instant::now() + time, 0);
    while Instant::now() < end {
        let (before, began, first) = (dirtied()?, Instant::now(), count);
        while began.elapsed() < Duration::from_secs(1) {
            work(count, BATCH).map_err(io::Error::other)?;
            count += BATCH;
        }
        let each = began.elapsed().as_secs_f64() * 1e6 / (count - first) as f64;
        let bytes = (dirtied()? - before) / (count - first) as u64;
        println!("{task} {}: {each:.1} µs, {bytes} bytes written, each", mode.name());
    }
    drop(work);
    if mode.is_ours() {
        let stats = entrant.db.query_row("PRAGMA atomic_mmap_stats", [], |r| r.get::<_, String>(0));
        println!("{}", stats.map_err(io::Error::other)?);
    }
    entrant.end()
}

/// Returns the bytes that this process has written so far, as the kernel counts dirty pages.
///
/// # Errors
/// Returns an error where the system does not count them.
fn dirtied() -> io::Result<u64> {
    let counts = fs::read_to_string("/proc/self/io")?;
    let line = counts.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    let number = line.and_then(|number| number.trim().parse().ok());
    number.ok_or_else(|| io::Error::other("no write_bytes in /proc/self/io"))
}
