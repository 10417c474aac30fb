//! One contender alone, for a profiler.

use super::contest::Entrant;
use super::modes::{Mode, Place};
use super::tpcc::{self, Terminal};
use super::{rows, volume};
use crate::scratch::Scratch;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// All modes. A name chooses one of them.
const MODES: [Mode; 7] = [
    Mode::OursFull,
    Mode::OursOff,
    Mode::WalFull,
    Mode::WalNormal,
    Mode::TruncateFull,
    Mode::DeleteFull,
    Mode::Unsafe,
];

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
    let unknown = || io::Error::other(format!("no mode {mode}: {:?}", MODES.map(Mode::name)));
    let mode = MODES.into_iter().find(|known| known.name() == mode).ok_or_else(unknown)?;
    let seed = match task {
        "tpcc" => tpcc::run::seed(folder)?,
        "update" => rows::seed(folder, 4096)?,
        _ => return Err(io::Error::other("sqlite: tpcc or update")),
    };
    let entrant = Entrant::new(mode, &seed, place)?;
    // As the contest does it.
    match task {
        "tpcc" => entrant.warm_up(tpcc::run::work(&entrant.db), tpcc::run::WARM_UP)?,
        _ => entrant.warm_up(rows::update(&entrant.db), rows::ROWS as usize)?,
    }
    let mut terminal = Terminal::new(&entrant.db, tpcc::run::WAREHOUSES, 1);
    let mut update = rows::update(&entrant.db);
    let mut step = |round| match task {
        "tpcc" => terminal.step(),
        _ => update(round, 1),
    };
    let (end, mut count) = (Instant::now() + time, 0);
    while Instant::now() < end {
        let (before, began, first) = (volume::dirtied()?, Instant::now(), count);
        while began.elapsed() < Duration::from_secs(1) {
            step(count).map_err(io::Error::other)?;
            count += 1;
        }
        let each = began.elapsed().as_secs_f64() * 1e6 / (count - first) as f64;
        let bytes = (volume::dirtied()? - before) / (count - first) as u64;
        println!("{task} {}: {each:.1} µs, {bytes} bytes written, each", mode.name());
    }
    drop(update);
    if mode.is_ours() {
        let stats = entrant.db.query_row("PRAGMA atomic_mmap_stats", [], |r| r.get::<_, String>(0));
        println!("{}", stats.map_err(io::Error::other)?);
    }
    entrant.end()
}
