//! The turns of all contenders, and their rows in the table.

use super::modes::{Mode, Place, SAFE};
use crate::measure::{Series, order, ratio};
use crate::ratios::Found;
use crate::scratch::Scratch;
use rusqlite::Connection;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The work of a contender in its turn, over and over: the first number is a seed, and the second
/// one how many transactions it runs.
pub type Work<'a> = Box<dyn FnMut(usize, usize) -> rusqlite::Result<()> + 'a>;

/// Transactions between two looks at the clock.
pub const BATCH: usize = 16;

/// Bytes of the write that is the limit, and of its file.
const BLOCK: usize = 4096;
const BLOCKS: u64 = 2048;

/// Where a group of contenders runs, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Contest {
    pub place: Place,
    /// Number of rounds that count, after one that does not.
    rounds: usize,
    /// Time of a turn. A write-ahead log has several checkpoints in it, unless the disk is slow.
    turn: Duration,
}

/// A database of one contender.
#[derive(Debug)]
pub struct Entrant {
    pub mode: Mode,
    pub db: Connection,
    path: PathBuf,
}

/// The times of all contenders.
#[derive(Debug)]
pub struct Times {
    modes: Vec<Mode>,
    series: Vec<Series>,
    /// The times of the disk's limit, and what it is.
    limit: Option<(Series, &'static str)>,
}

impl Contest {
    /// Makes the effort of a quick look, or of results that are kept.
    pub fn new(place: Place, quick: bool) -> Contest {
        let (rounds, turn) = match (quick, place) {
            (true, Place::Disk) => (5, 600),
            (false, Place::Disk) => (9, 3_000),
            (true, Place::Pmem) => (5, 150),
            (false, Place::Pmem) => (15, 500),
        };
        Contest { place, rounds, turn: Duration::from_millis(turn) }
    }

    /// Returns a contest with turns of half the time, for a group of many.
    pub fn halved(self) -> Contest {
        Contest { turn: self.turn / 2, ..self }
    }

    /// Makes a copy of the database `seed` for each mode, and opens it.
    ///
    /// # Errors
    /// Returns the error of the system or of SQLite.
    pub fn entrants(&self, seed: &Path, modes: &[Mode]) -> io::Result<Vec<Entrant>> {
        modes.iter().map(|mode| Entrant::new(*mode, seed, self.place)).collect()
    }

    /// Lets all contenders take turns, and the limit of a disk as well if `with_limit` is set.
    ///
    /// # Errors
    /// Returns the error of the system, or of SQLite if a transaction fails.
    pub fn run<'a>(
        &self,
        scratch: &Scratch,
        with_limit: bool,
        works: Vec<(Mode, Work<'a>)>,
    ) -> io::Result<Times> {
        let modes: Vec<Mode> = works.iter().map(|(mode, _)| *mode).collect();
        let mut works: Vec<Work<'a>> = works.into_iter().map(|(_, work)| work).collect();
        let mut limit = None;
        if with_limit && self.place == Place::Disk {
            let (work, told) = durable_writes(scratch.path())?;
            works.push(work);
            limit = Some(told);
        }
        let mut series = vec![Series::default(); works.len()];
        for round in 0..=self.rounds {
            for n in order(round, works.len()) {
                scratch.sync()?;
                let (began, mut count) = (Instant::now(), 0);
                while began.elapsed() < self.turn {
                    works[n](round << 20 | count, BATCH).map_err(io::Error::other)?;
                    count += BATCH;
                }
                let each = began.elapsed().as_nanos() as f64 / count as f64;
                if round > 0 {
                    series[n].0.push(each);
                }
            }
        }
        let limit = limit.and_then(|told| Some((series.pop()?, told)));
        Ok(Times { modes, series, limit })
    }
}

/// Returns the limit of a disk, and what it is: a block that is written to a file of written
/// blocks, durably. It goes past the page cache where the file system allows that.
fn durable_writes(folder: &Path) -> io::Result<(Work<'static>, &'static str)> {
    #[repr(align(4096))]
    struct Block([u8; BLOCK]);
    let path = folder.join("limit");
    fs::write(&path, vec![1; BLOCK * BLOCKS as usize])?;
    File::open(&path)?.sync_all()?;
    let open = |flags| OpenOptions::new().write(true).custom_flags(flags).open(&path);
    let (file, told) = match open(libc::O_DSYNC | libc::O_DIRECT) {
        Ok(file) => (file, "the disk's limit: 4 KiB written with O_DSYNC and O_DIRECT"),
        Err(_) => (open(libc::O_DSYNC)?, "the disk's limit: 4 KiB written with O_DSYNC, cached"),
    };
    let (block, mut at) = (Box::new(Block([2; BLOCK])), 0);
    let work = move |_, count| {
        for _ in 0..count {
            file.write_all_at(&block.0, at % BLOCKS * BLOCK as u64).expect("write");
            at += 1;
        }
        Ok(())
    };
    Ok((Box::new(work), told))
}

impl Entrant {
    /// Copies the database `seed`, and opens the copy.
    ///
    /// # Errors
    /// Returns the error of the system or of SQLite.
    pub fn new(mode: Mode, seed: &Path, place: Place) -> io::Result<Entrant> {
        let path = seed.with_extension(mode.name());
        fs::copy(seed, &path)?;
        Entrant::adopt(mode, &path, place)
    }

    /// Opens the database at `path`, after it has reached the disk and left the page cache, as
    /// after a restart of the machine.
    ///
    /// # Errors
    /// Returns the error of the system or of SQLite.
    pub fn adopt(mode: Mode, path: &Path, place: Place) -> io::Result<Entrant> {
        let file = File::open(path)?;
        file.sync_all()?;
        // The copy has filled the page cache by large folios. Stores to a mapping write whole
        // folios back, and calls do not.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        let db = mode.open(path, place).map_err(io::Error::other)?;
        Ok(Entrant { mode, db, path: path.to_owned() })
    }

    /// Opens another connection to the database.
    ///
    /// # Errors
    /// Returns the error of SQLite.
    pub fn another(&self, place: Place) -> io::Result<Connection> {
        self.mode.open(&self.path, place).map_err(io::Error::other)
    }

    /// Runs `count` transactions of `work` without a sync, so that the files have their space and
    /// their lengths. Later turns measure what lasts.
    ///
    /// # Errors
    /// Returns the error of SQLite.
    pub fn warm_up(&self, mut work: Work<'_>, count: usize) -> io::Result<()> {
        let mut run = || {
            let synchronous: i64 = self.db.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
            self.db.execute_batch("PRAGMA synchronous = OFF")?;
            work(usize::MAX - 1, count)?;
            self.db.execute_batch(&format!("PRAGMA synchronous = {synchronous}"))
        };
        run().map_err(io::Error::other)
    }

    /// Closes the database, and returns where it lies.
    ///
    /// # Errors
    /// Returns the error of SQLite.
    pub fn close(self) -> io::Result<PathBuf> {
        self.db.close().map_err(|(_, error)| io::Error::other(error))?;
        Ok(self.path)
    }

    /// Closes the database and removes it.
    ///
    /// # Errors
    /// Returns the error of the system or of SQLite.
    pub fn end(self) -> io::Result<()> {
        fs::remove_file(self.close()?)
    }
}

impl Times {
    fn of(&self, mode: Mode) -> Option<&Series> {
        self.series.get(self.modes.iter().position(|known| *known == mode)?)
    }

    /// Returns the throughput of the mode `of` to that of `to`: a median of the rounds' ratios.
    pub fn speed(&self, of: Mode, to: Mode) -> f64 {
        let times = self.of(to).zip(self.of(of));
        times.map_or(f64::NAN, |(to, of)| ratio(to, of))
    }

    /// Returns the fastest mode of SQLite's own that keeps a transaction whole.
    pub fn best_stock(&self) -> Mode {
        let time = |mode: &Mode| self.of(*mode).map_or(f64::INFINITY, Series::median);
        let stock = SAFE.iter().copied().filter(|mode| !mode.is_ours());
        stock.min_by(|a, b| time(a).total_cmp(&time(b))).expect("there are some")
    }

    /// Adds a row for each contender: microseconds of a transaction, and the durability.
    pub fn add_all(&self, what: &str, place: Place, found: &mut Found) {
        for (mode, series) in self.modes.iter().zip(&self.series) {
            let name = format!("sqlite_{what}_us_{}", mode.name());
            found.add(&name, series.median() / 1e3, mode.durability(place));
        }
        if let Some((limit, told)) = &self.limit {
            found.add(&format!("sqlite_{what}_us_odsync"), limit.median() / 1e3, told);
        }
    }
}
