//! Figures of YCSB's operations in a page store.
//!
//! Owns: the workloads, as YCSB's core package defines them. Records have 1000 bytes and a hashed
//! order. A scrambled Zipf distribution of 0.99 chooses them, or prefers the latest ones. One
//! thread runs them. The notes of the figure name the differences.

use super::cell::{Times, in_turns};
use super::effort::Effort;
use super::field::{Contender, Field};
use super::figure::{Figure, lines};
use super::pages::{PageStore, VALUE, file_len};
use super::papers::ACUMEN;
use indicatif::ProgressBar;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// A workload of YCSB's core package.
#[derive(Debug)]
pub struct Workload {
    /// The letter.
    pub name: &'static str,
    /// Percentages of reads, updates, insertions and scans. All other steps are changes.
    shares: [(Step, u64); 4],
    latest: bool,
}

/// A step of a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Reads a record.
    Read,
    /// Writes a record, or a part of it.
    Update,
    /// Adds a record.
    Insert,
    /// Reads records in the order of their keys.
    Scan,
    /// Reads a record, changes it and writes it back.
    Change,
}

const fn workload(name: &'static str, shares: [u64; 4], latest: bool) -> Workload {
    let [reads, updates, inserts, scans] = shares;
    let shares = [
        (Step::Read, reads),
        (Step::Update, updates),
        (Step::Insert, inserts),
        (Step::Scan, scans),
    ];
    Workload { name, shares, latest }
}

impl Workload {
    /// Chooses a step by the shares.
    pub fn choose(&self, rng: &mut fastrand::Rng) -> Step {
        let mut choice = rng.u64(0..100);
        for (step, share) in self.shares {
            if choice < share {
                return step;
            }
            choice -= share;
        }
        Step::Change
    }

    /// Returns the number of the record that has this rank, of `there` records.
    pub fn record(&self, rank: u64, there: u64) -> u64 {
        if self.latest { there - 1 - rank } else { mix(rank) % there }
    }
}

/// In the order that YCSB recommends: workloads with inserts come last.
pub const WORKLOADS: [Workload; 6] = [
    workload("A", [50, 50, 0, 0], false),
    workload("B", [95, 5, 0, 0], false),
    workload("C", [100, 0, 0, 0], false),
    workload("F", [50, 0, 0, 0], false),
    workload("D", [95, 0, 5, 0], true),
    workload("E", [0, 0, 5, 95], false),
];

/// Most records of a scan.
pub const SCANNED: u64 = 100;

/// Measures and returns the figure.
pub fn figures(
    contenders: &[Contender],
    base: Option<&Path>,
    effort: &Effort,
    bar: &ProgressBar,
) -> io::Result<Vec<Figure>> {
    let room = effort.records * 3 / 2;
    let field = Field::of(contenders, base, file_len(room), bar)?;
    let zipf = Zipf::new(effort.records);
    let mut runs: Vec<Run<'_>> = Vec::new();
    let mut load = Vec::new();
    bar.inc_length(field.entrants.len() as u64);
    for entrant in &field.entrants {
        bar.set_message(format!("YCSB: {} loads", entrant.contender.kind.name));
        // The warm-up has filled the file. A directory of zeros is an empty store.
        clear(&*entrant.subject, file_len(room));
        let mut run = Run {
            store: PageStore::open(&*entrant.subject, room),
            versions: Vec::with_capacity(room as usize),
            room,
            value: [0; VALUE],
        };
        let begun = Instant::now();
        (0..effort.records).for_each(|_| run.insert());
        load.push(Some(begun.elapsed().as_nanos() as f64 / effort.records as f64));
        runs.push(run);
        bar.inc(1);
    }
    let mut columns: Vec<Times> = vec![load];
    for workload in &WORKLOADS {
        bar.set_message(format!("YCSB: {}", workload.name));
        columns.push(in_turns(&mut runs, effort.rounds, bar, |run, round| {
            Some(run.turn(workload, &zipf, effort.turn * 2, round as u64))
        }));
    }
    for (entrant, run) in field.entrants.iter().zip(runs) {
        run.check(&*entrant.subject, entrant.contender.kind.name);
    }
    let names = WORKLOADS.iter().map(|workload| workload.name);
    Ok(vec![Figure {
        id: "ycsb",
        title: "YCSB over a store of 8 KiB pages".to_owned(),
        repeats: format!(
            "{ACUMEN}, V-B, figure 4 (workloads; ten million records of 1 KiB in SQLite there, with \
             pages of 512 bytes to 4 KiB)"
        ),
        along: "workload",
        up: "operations a second",
        ticks: std::iter::once("load").chain(names).map(str::to_owned).collect(),
        joined: false,
        more_is_better: true,
        lines: lines(&field.contenders(), &columns, |_, time| 1e9 / time),
        notes: vec![
            format!(
                "{} records; the same store for each contender, which keeps its pages. A record that changes is \
                 a page of 8 KiB that is written, durably; a split is one transaction, or three writes \
                 where there are none. At the end every record is read back, from the pages alone.",
                effort.records
            ),
            "An update changes the record's whole value; YCSB's default changes one of ten fields, in the \
             same page. A database's own rows would hold the records without pages between: it is \
             measured here as what a page store could stand on."
                .to_owned(),
        ],
    }])
}

fn clear(subject: &dyn crate::subject::Subject, len: u64) {
    let zeros = vec![0; 64 << 10];
    for offset in (0..len).step_by(zeros.len()) {
        subject.write(&zeros[..zeros.len().min((len - offset) as usize)], offset);
        subject.sync();
    }
}

/// The store of one contender, and its expected records.
struct Run<'a> {
    store: PageStore<'a>,
    /// The version of each record, in the order of insertion.
    versions: Vec<u32>,
    room: u64,
    value: [u8; VALUE],
}

/// Returns the key of record number `n`, in hashed order.
pub fn key(n: u64) -> u64 {
    mix(n) >> 1 | 1
}

/// Permutes the numbers, with the last step of splitmix64.
fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ n >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ n >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ n >> 31
}

fn value_of(n: u64, version: u32, value: &mut [u8; VALUE]) {
    let word = mix(n << 32 | u64::from(version)).to_le_bytes();
    value.as_chunks_mut::<8>().0.fill(word);
}

impl Run<'_> {
    fn insert(&mut self) {
        let n = self.versions.len() as u64;
        if n == self.room {
            // The store of a very fast contender is full. It continues with updates.
            return self.update(n / 2);
        }
        self.versions.push(0);
        value_of(n, 0, &mut self.value);
        self.store.put(key(n), &self.value);
    }

    fn update(&mut self, n: u64) {
        let version = &mut self.versions[n as usize];
        *version += 1;
        value_of(n, *version, &mut self.value);
        self.store.put(key(n), &self.value);
    }

    fn read(&mut self, n: u64) {
        assert!(self.store.get(key(n), &mut self.value), "a record is lost");
        std::hint::black_box(&self.value);
    }

    /// Runs a turn. Returns the nanoseconds of an operation.
    fn turn(&mut self, workload: &Workload, zipf: &Zipf, time: Duration, round: u64) -> f64 {
        let mut rng = fastrand::Rng::with_seed(round);
        self.run(workload, zipf, time / 4, &mut rng);
        self.run(workload, zipf, time, &mut rng)
    }

    fn run(
        &mut self,
        workload: &Workload,
        zipf: &Zipf,
        time: Duration,
        rng: &mut fastrand::Rng,
    ) -> f64 {
        let begun = Instant::now();
        let mut done = 0;
        loop {
            for _ in 0..4 {
                self.step(workload, zipf, rng);
            }
            done += 4;
            let gone = begun.elapsed();
            if gone >= time {
                return gone.as_nanos() as f64 / f64::from(done);
            }
        }
    }

    fn step(&mut self, workload: &Workload, zipf: &Zipf, rng: &mut fastrand::Rng) {
        let rank = zipf.rank(rng.f64());
        let there = self.versions.len() as u64;
        let n = workload.record(rank, there);
        match workload.choose(rng) {
            Step::Read => self.read(n),
            Step::Update => self.update(n),
            Step::Insert => self.insert(),
            Step::Scan => {
                self.store.scan(key(n), 1 + rng.usize(0..SCANNED as usize));
            }
            Step::Change => {
                self.read(n);
                self.update(n);
            }
        }
    }

    /// Reads every record back from the pages, like a new opening.
    fn check(self, subject: &dyn crate::subject::Subject, name: &str) {
        let mut store = PageStore::open(subject, self.room);
        let (mut found, mut expected) = ([0; VALUE], [0; VALUE]);
        for (n, version) in (0..).zip(self.versions) {
            value_of(n, version, &mut expected);
            assert!(store.get(key(n), &mut found), "{name}: record {n} is lost");
            assert!(found == expected, "{name}: record {n} is not what was written");
        }
    }
}

/// Ranks by Zipf's law, after Gray and others, "Quickly generating billion-record synthetic
/// databases".
#[derive(Debug)]
pub struct Zipf {
    items: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

const THETA: f64 = 0.99;

impl Zipf {
    /// Makes ranks for this number of items.
    pub fn new(items: u64) -> Zipf {
        let zeta: f64 = (1..=items).map(|n| (n as f64).powf(-THETA)).sum();
        let zeta_2 = 1.0 + 2f64.powf(-THETA);
        let items = items as f64;
        let eta = (1.0 - (2.0 / items).powf(1.0 - THETA)) / (1.0 - zeta_2 / zeta);
        Zipf { items, zeta, alpha: 1.0 / (1.0 - THETA), eta }
    }

    /// Returns a rank. 0 is the most frequent one.
    pub fn rank(&self, uniform: f64) -> u64 {
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(THETA) {
            return 1;
        }
        let rank = self.items * (self.eta * uniform - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.items as u64 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_follow_the_shares() {
        let mut rng = fastrand::Rng::with_seed(1);
        let steps = [Step::Read, Step::Update, Step::Insert, Step::Scan, Step::Change];
        for (name, expected) in [
            ("A", [50, 50, 0, 0, 0]),
            ("C", [100, 0, 0, 0, 0]),
            ("E", [0, 0, 5, 95, 0]),
            ("F", [50, 0, 0, 0, 50]),
        ] {
            let workload = WORKLOADS.iter().find(|workload| workload.name == name);
            let workload = workload.expect("a workload");
            let chosen: Vec<Step> = (0..100_000).map(|_| workload.choose(&mut rng)).collect();
            for (step, expected) in steps.into_iter().zip(expected) {
                let found = chosen.iter().filter(|chosen| **chosen == step).count() as f64 / 1e3;
                assert!((found - f64::from(expected)).abs() < 1.0, "{name}, {step:?}: {found}");
                assert_eq!(found == 0.0, expected == 0, "{name}, {step:?}: {found}");
            }
        }
    }

    #[test]
    fn ranks_follow_the_law() {
        let zipf = Zipf::new(1000);
        let mut rng = fastrand::Rng::with_seed(1);
        let mut counts = vec![0.0; 1000];
        for _ in 0..200_000 {
            counts[zipf.rank(rng.f64()) as usize] += 1.0;
        }
        let expected = |rank: f64| 200_000.0 / zipf.zeta / rank.powf(THETA);
        // The first two are exact, the others approximate.
        assert!((counts[0] / expected(1.0) - 1.0_f64).abs() < 0.05);
        assert!((counts[1] / expected(2.0) - 1.0_f64).abs() < 0.05);
        let tail: f64 = counts[500..].iter().sum();
        let law: f64 = (501..=1000).map(|rank| expected(f64::from(rank))).sum();
        assert!((tail / law - 1.0).abs() < 0.1);
    }
}
