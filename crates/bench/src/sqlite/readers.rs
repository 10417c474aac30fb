//! Updates of 1 KiB beside a thread that reads, with and without reads of earlier versions.

use super::contest::{Contest, Entrant, Work};
use super::modes::{Mode, Place};
use super::rows::{ROWS, seed, update};
use crate::ratios::Found;
use crate::scratch::Scratch;
use fastrand::Rng;
use rusqlite::Connection;
use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const MODES: [Mode; 3] = [Mode::OursSnapshots, Mode::OursFull, Mode::WalFull];
/// Rows that a read transaction reads.
const READS: usize = 20;
/// The longest wait for another connection.
const PATIENCE: Duration = Duration::from_secs(60);

/// Read transactions of one mode, and the seconds in which they ran.
#[derive(Default)]
struct Reads {
    count: Cell<u64>,
    seconds: Cell<f64>,
}

impl Reads {
    fn of_a_second(&self) -> f64 {
        self.count.get() as f64 / self.seconds.get()
    }
}

/// Runs updates while another thread reads in transactions of [`READS`] rows. An update and a read
/// that meet wait as SQLite's busy handler does.
fn update_beside_a_reader<'a>(
    db: &'a Connection,
    mut reader: Connection,
    reads: &'a Reads,
) -> Work<'a> {
    let mut updates = update(db);
    Box::new(move |round, count| {
        let (began, is_over) = (Instant::now(), AtomicBool::new(false));
        let (reader, is_over) = (&mut reader, &is_over);
        let (updated, read) = thread::scope(|scope| {
            let reading = scope.spawn(move || read_until(reader, round, is_over));
            let updated = updates(round, count);
            is_over.store(true, Ordering::Relaxed);
            (updated, reading.join().expect("no panic"))
        });
        reads.count.set(reads.count.get() + read?);
        reads.seconds.set(reads.seconds.get() + began.elapsed().as_secs_f64());
        updated
    })
}

/// Reads in transactions until `is_over`, and returns their number.
fn read_until(db: &mut Connection, seed: usize, is_over: &AtomicBool) -> rusqlite::Result<u64> {
    let (mut rng, mut count) = (Rng::with_seed(seed as u64), 0);
    while !is_over.load(Ordering::Relaxed) {
        let transaction = db.transaction()?;
        {
            let mut row = transaction.prepare_cached("SELECT length(v) FROM t WHERE id = ?")?;
            for _ in 0..READS {
                row.query_row([rng.i64(1..=ROWS)], |row| row.get::<_, i64>(0))?;
            }
        }
        transaction.commit()?;
        count += 1;
    }
    Ok(count)
}

/// Measures updates alone, and beside a reader.
///
/// # Errors
/// Returns an error of the system or of SQLite.
pub fn measure(contest: &Contest, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let place = contest.place;
    let prefix = if place == Place::Pmem { "sqlite_pmem_" } else { "sqlite_" };
    let entrants = contest.entrants(&seed(scratch.path(), 4096)?, &MODES)?;
    let reads = MODES.map(|_| Reads::default());
    for entrant in &entrants {
        entrant.warm_up(update(&entrant.db), ROWS as usize)?;
        entrant.db.busy_timeout(PATIENCE).map_err(io::Error::other)?;
    }
    let alone = entrants.iter().map(|entrant| (entrant.mode, update(&entrant.db))).collect();
    let times = contest.run(scratch, false, alone)?;
    let told = "throughput of updates of 1 KiB, snapshot_reads on to off, no reader";
    let cost = times.speed(Mode::OursSnapshots, Mode::OursFull);
    found.add(&format!("{prefix}snapshots_alone_vs_off"), cost, told);

    let beside = |(entrant, reads)| -> io::Result<(Mode, Work<'_>)> {
        let entrant: &Entrant = entrant;
        let reader = entrant.another(place)?;
        reader.busy_timeout(PATIENCE).map_err(io::Error::other)?;
        Ok((entrant.mode, update_beside_a_reader(&entrant.db, reader, reads)))
    };
    let works = entrants.iter().zip(&reads).map(beside).collect::<io::Result<_>>()?;
    let times = contest.run(scratch, false, works)?;
    times.add_all(&format!("{}readers_update", &prefix["sqlite_".len()..]), place, found);
    let told = format!("updates of 1 KiB beside a thread that reads {READS} rows a transaction");
    let read = "read transactions of that thread";
    for (to, name, n) in [(Mode::OursFull, "off", 1), (Mode::WalFull, "wal_full", 2)] {
        let speed = times.speed(Mode::OursSnapshots, to);
        found.add(&format!("{prefix}snapshots_readers_vs_{name}"), speed, &told);
        let ratio = reads[0].of_a_second() / reads[n].of_a_second();
        found.add(&format!("{prefix}snapshots_readers_reads_vs_{name}"), ratio, read);
    }
    for (mode, reads) in MODES.iter().zip(&reads) {
        let name = format!("{prefix}readers_reads_per_s_{}", mode.name());
        found.add(&name, reads.of_a_second(), read);
    }
    entrants.into_iter().try_for_each(Entrant::end)
}
