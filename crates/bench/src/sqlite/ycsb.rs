//! YCSB A to F on a table of SQLite: records of ten fields of 100 bytes.
//!
//! An update changes one field, as YCSB's default does. Each operation is a transaction.

use super::contest::{Contest, Entrant, Work};
use super::modes::Mode;
use crate::figures::ycsb::{SCANNED, Step, WORKLOADS, Workload, Zipf, key};
use crate::ratios::Found;
use crate::scratch::Scratch;
use fastrand::Rng;
use rusqlite::{Connection, params};
use std::io;
use std::path::{Path, PathBuf};

/// Records at the beginning.
const RECORDS: u64 = 20_000;
/// Bytes of a field.
const FIELD: usize = 100;

fn seed(folder: &Path) -> io::Result<PathBuf> {
    let path = folder.join("ycsb");
    let make = || {
        let db = Connection::open(&path)?;
        let fields: Vec<String> = (0..10).map(|n| format!("field{n} BLOB")).collect();
        db.execute_batch(&format!(
            "PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY;
             CREATE TABLE usertable (id INTEGER PRIMARY KEY, {}); BEGIN",
            fields.join(", ")
        ))?;
        let mut rng = Rng::with_seed(1);
        (0..RECORDS).try_for_each(|n| insert(&db, n, &mut rng))?;
        db.execute_batch("COMMIT")?;
        db.close().map_err(|(_, error)| error)
    };
    make().map_err(io::Error::other)?;
    Ok(path)
}

fn field(rng: &mut Rng) -> [u8; FIELD] {
    let mut field = [0; FIELD];
    rng.fill(&mut field);
    field
}

fn insert(db: &Connection, n: u64, rng: &mut Rng) -> rusqlite::Result<()> {
    let mut insert = db.prepare_cached("INSERT INTO usertable VALUES (?,?,?,?,?,?,?,?,?,?,?)")?;
    insert.raw_bind_parameter(1, key(n) as i64)?;
    for at in 2..=11 {
        insert.raw_bind_parameter(at, field(rng))?;
    }
    insert.raw_execute()?;
    Ok(())
}

fn read(db: &Connection, n: u64) -> rusqlite::Result<()> {
    let mut select = db.prepare_cached("SELECT * FROM usertable WHERE id = ?")?;
    let bytes = select.query_row([key(n) as i64], |row| Ok(row.get_ref(1)?.as_blob()?.len()))?;
    assert_eq!(bytes, FIELD, "a record is lost");
    Ok(())
}

fn update(db: &Connection, n: u64, rng: &mut Rng) -> rusqlite::Result<()> {
    let sql = format!("UPDATE usertable SET field{} = ? WHERE id = ?", rng.u8(0..10));
    let changed = db.prepare_cached(&sql)?.execute(params![field(rng), key(n) as i64])?;
    assert_eq!(changed, 1, "a record is lost");
    Ok(())
}

fn scan(db: &Connection, n: u64, count: u64) -> rusqlite::Result<()> {
    let sql = "SELECT * FROM usertable WHERE id >= ? ORDER BY id LIMIT ?";
    let mut select = db.prepare_cached(sql)?;
    let mut rows = select.query([key(n) as i64, count as i64])?;
    while let Some(row) = rows.next()? {
        std::hint::black_box(row.get_ref(1)?);
    }
    Ok(())
}

/// Returns the work of one workload. `there` is the number of records, which insertions raise.
fn work<'a>(
    db: &'a Connection,
    workload: &'a Workload,
    zipf: &'a Zipf,
    there: &'a mut u64,
) -> Work<'a> {
    Box::new(move |round, count| {
        let mut rng = Rng::with_seed(round as u64);
        for _ in 0..count {
            let n = workload.record(zipf.rank(rng.f64()), *there);
            match workload.choose(&mut rng) {
                Step::Read => read(db, n)?,
                Step::Update => update(db, n, &mut rng)?,
                Step::Insert => {
                    insert(db, *there, &mut rng)?;
                    *there += 1;
                }
                Step::Scan => scan(db, n, rng.u64(1..=SCANNED))?,
                Step::Change => {
                    db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
                    read(db, n)?;
                    update(db, n, &mut rng)?;
                    db.prepare_cached("COMMIT")?.execute([])?;
                }
            }
        }
        Ok(())
    })
}

/// Measures all workloads.
///
/// # Errors
/// Returns an error of the system or of SQLite.
pub fn measure(contest: &Contest, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let modes = [Mode::OursFull, Mode::WalFull, Mode::TruncateFull];
    let entrants = contest.entrants(&seed(scratch.path())?, &modes)?;
    let zipf = Zipf::new(RECORDS);
    let mut there = modes.map(|_| RECORDS);
    for (entrant, there) in entrants.iter().zip(&mut there) {
        // Half of the operations of this workload are updates.
        entrant.warm_up(work(&entrant.db, &WORKLOADS[0], &zipf, there), RECORDS as usize)?;
    }
    for workload in &WORKLOADS {
        let works = entrants.iter().zip(&mut there);
        let works = works.map(|(e, there)| (e.mode, work(&e.db, workload, &zipf, there)));
        let times = contest.run(scratch, false, works.collect())?;
        let name = format!("ycsb_{}", workload.name);
        times.add_all(&name, contest.place, found);
        let told = format!("throughput of YCSB {}", workload.name);
        for mode in [Mode::WalFull, Mode::TruncateFull] {
            let speed = times.speed(Mode::OursFull, mode);
            found.add(&format!("sqlite_{name}_vs_{}", mode.name()), speed, &told);
        }
    }
    entrants.into_iter().try_for_each(Entrant::end)
}
