//! Measures the cost of a durable point against one `O_DSYNC` write, SQLite, LMDB and redb.
//!
//! All contenders do one job, alternating in the rounds of one run, on one file system. See
//! `README.md`.

mod disk;
mod stores;

use disk::{Disk, Scratch};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use stores::{Any, Change, NAMES, Shape, Store};

/// A turn ends after this time, even with work left.
const TURN: Duration = Duration::from_millis(400);

/// The size of a durable commit, and the threads that make it.
#[derive(Clone, Copy)]
struct Job {
    name: &'static str,
    what: &'static str,
    /// Length of a record in bytes.
    len: usize,
    /// Changes in each commit, each in another page of 4 KiB.
    changes: u64,
    threads: u64,
    every_write: bool,
    /// Commits in a turn, of all threads. All rounds together include several checkpoints.
    commits: u64,
}

const JOBS: [Job; 5] = [
    Job {
        name: "one",
        what: "a sync after one change of 64 bytes",
        len: 64,
        changes: 1,
        threads: 1,
        every_write: false,
        commits: 200,
    },
    Job {
        name: "hundred",
        what: "a sync after 100 changes of 64 bytes in different pages",
        len: 64,
        changes: 100,
        threads: 1,
        every_write: false,
        commits: 60,
    },
    Job {
        name: "mib",
        what: "a sync after 1 MiB: 256 changes of 4 KiB in different pages",
        len: 4096,
        changes: 256,
        threads: 1,
        every_write: false,
        commits: 10,
    },
    Job {
        name: "every1",
        what: "durable on every write of 64 bytes, 1 thread",
        len: 64,
        changes: 1,
        threads: 1,
        every_write: true,
        commits: 200,
    },
    Job {
        name: "every8",
        what: "durable on every write of 64 bytes, 8 threads",
        len: 64,
        changes: 1,
        threads: 8,
        every_write: true,
        commits: 400,
    },
];

struct Options {
    quick: bool,
    check: bool,
    dir: PathBuf,
    jobs: Vec<Job>,
    stores: Vec<&'static str>,
    rounds: usize,
    any: bool,
}

const USAGE: &str = "\
durable [--quick] [--check] [--dir PATH] [--job NAME]... [--store NAME]... [--rounds N] [--any]
  --quick   smaller files, fewer commits
  --check   a few commits of each; only what is read back counts, no times
  --dir     where the files lie (default: beside the program, in the target folder)
  --job     one, hundred, mib, every1, every8, pages-N (N pages of 4 KiB) (default: the first five)
  --store   only these, by a part of their names
  --rounds  how often each store gets a turn (default: 30)
  --any     also on tmpfs, where nothing is durable";

impl Options {
    fn from_args() -> Any<Options> {
        let mut options = Options {
            quick: false,
            check: false,
            dir: std::env::current_exe()?.parent().ok_or("no folder")?.to_path_buf(),
            jobs: Vec::new(),
            stores: Vec::new(),
            rounds: 30,
            any: false,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} wants a value"));
            match arg.as_str() {
                "--quick" => options.quick = true,
                "--check" => options.check = true,
                "--any" => options.any = true,
                "--dir" => options.dir = value()?.into(),
                "--rounds" => options.rounds = value()?.parse()?,
                "--job" => options.jobs.push(job(&value()?)?),
                "--store" => {
                    let part = value()?.to_lowercase();
                    let all = NAMES.iter().chain(&["O_DIRECT write"]);
                    let found = all.filter(|name| name.to_lowercase().contains(&part));
                    options.stores.extend(found.copied());
                }
                _ => return Err(format!("{arg:?}?\n{USAGE}").into()),
            }
        }
        if options.jobs.is_empty() {
            options.jobs.extend(JOBS);
        }
        if options.stores.is_empty() {
            options.stores.extend(NAMES);
        }
        Ok(options)
    }
}

fn job(name: &str) -> Any<Job> {
    if let Some(job) = JOBS.iter().find(|job| job.name == name) {
        return Ok(*job);
    }
    let pages: u64 = match name.strip_prefix("pages-").map(str::parse) {
        Some(Ok(pages)) if (1..=2048).contains(&pages) => pages,
        _ => return Err(format!("no job is called {name:?}\n{USAGE}").into()),
    };
    let what: &str = format!("a sync after {pages} changes of 4 KiB in different pages").leak();
    let commits = (2560 / pages).clamp(10, 100);
    Ok(Job { name: "pages", what, changes: pages, commits, ..JOBS[2] })
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Any<()> {
    let options = Options::from_args()?;
    if let Some(name) = disk::in_memory(&options.dir)
        && !(options.any || options.check)
    {
        return Err(format!("{} is {name}: nothing is durable there", options.dir.display()).into());
    }
    let scratch = Scratch::new(&options.dir, "durable")?;
    let disk = Disk::under(&scratch.0);
    println!("files in {}", scratch.0.display());
    for job in &options.jobs {
        measure(&options, job, &scratch.0, &disk)?;
    }
    Ok(())
}

/// A contender with its measurements.
struct Seen {
    name: &'static str,
    store: Box<dyn Store>,
    random: Random,
    /// The contents of the changed records, as their seeds.
    expected: HashMap<u64, u64>,
    /// The time of each commit.
    times: Vec<Duration>,
    /// The part of each commit after its changes.
    syncs: Vec<Duration>,
    /// The time of all turns together.
    took: Duration,
    commits: u64,
    bytes: u64,
    flushes: u64,
}

fn measure(options: &Options, job: &Job, scratch: &Path, disk: &Disk) -> Any<()> {
    let size: u64 = if options.quick { 8 << 20 } else { 64 << 20 };
    let shape = Shape { records: size / job.len as u64, len: job.len };
    let dir = scratch.join(format!("{}-bytes", job.len));
    std::fs::create_dir_all(&dir)?;
    let commits = match (options.check, options.quick) {
        (true, _) => job.threads * 3,
        (_, true) => job.commits / 2,
        _ => job.commits,
    };
    let rounds = if options.check { 1 } else { options.rounds };
    let mut seen = Vec::new();
    for name in &options.stores {
        let store =
            stores::open(name, &dir, shape, job.every_write).map_err(|e| format!("{name}: {e}"))?;
        // All contenders get one seed, so they change equal records in equal order.
        seen.push(Seen {
            name,
            store,
            random: Random(0x9E37_79B9_7F4A_7C15),
            expected: HashMap::new(),
            times: Vec::new(),
            syncs: Vec::new(),
            took: Duration::ZERO,
            commits: 0,
            bytes: 0,
            flushes: 0,
        });
    }
    // Fills every contender's cache, and makes the allocations of the first change of a page.
    if !options.check {
        for one in &mut seen {
            touch_every_page(one, shape).map_err(|e| format!("{}: {e}", one.name))?;
        }
    }
    // The first round warms up.
    for round in 0..=rounds {
        // A different contender starts each round.
        let shift = round % seen.len();
        for n in 0..seen.len() {
            let turn = (n + shift) % seen.len();
            let one = &mut seen[turn];
            disk.wait_until_quiet();
            take_turn(one, job, shape, commits, disk, round == 0)
                .map_err(|e| format!("{}: {e}", one.name))?;
        }
    }
    let mut remarks = Vec::new();
    let mut rows = Vec::new();
    for one in seen {
        let Seen { name, store, expected, .. } = one;
        remarks.extend(store.remarks().map(|remark| format!("{name}: {remark}")));
        // The written records exist, also after the store is opened again.
        drop(store);
        let store = stores::open(name, &dir, shape, false)?;
        let mut looked_at = 0;
        for (record, seed) in &expected {
            match store.get(*record)? {
                Some(bytes) if bytes == value(*seed, job.len) => looked_at += 1,
                Some(_) => return Err(format!("{name}: record {record} is not as written").into()),
                None => {}
            }
        }
        if options.check {
            println!("{:8} {name:18} {looked_at} records as written", job.name);
        }
        rows.push((name, one.times, one.syncs, one.took, one.commits, one.bytes, one.flushes));
    }
    if options.check {
        return Ok(());
    }
    println!("\n## {}: {}\n", job.name, job.what);
    println!(
        "| | commits/s | us, mean | us, median | of it the sync | us, p10 | us, p99 | to one O_DSYNC write: mean | median | p10 | KiB written | barriers |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    let mut limit = None;
    for (name, mut times, mut syncs, took, commits, bytes, flushes) in rows {
        times.sort_unstable();
        syncs.sort_unstable();
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let mean = us(took) / commits as f64;
        let median = us(times[times.len() / 2]);
        let sync = us(syncs[syncs.len() / 2]);
        let p99 = us(times[times.len() * 99 / 100]);
        let p10 = us(times[times.len() / 10]);
        let (limit_mean, limit_median, limit_p10) = *limit.get_or_insert((mean, median, p10));
        let per = |n: u64| n as f64 / commits as f64;
        let written = if disk.is_known() {
            format!("{:.1} | {:.2}", per(bytes) / 1024.0, per(flushes))
        } else {
            "? | ?".to_owned()
        };
        println!(
            "| {name} | {:.0} | {mean:.0} | {median:.0} | {sync:.0} | {p10:.0} | {p99:.0} | {:.2} | {:.2} | {:.2} | {written} |",
            1e6 / mean,
            mean / limit_mean,
            median / limit_median,
            p10 / limit_p10,
        );
    }
    remarks.iter().for_each(|remark| println!("\n{remark}"));
    Ok(())
}

/// Runs one contender's turn: `commits` commits by the job's threads.
fn take_turn(
    one: &mut Seen,
    job: &Job,
    shape: Shape,
    commits: u64,
    disk: &Disk,
    warming_up: bool,
) -> Any<()> {
    // Prepares all changes before the clock starts.
    let mut work: Vec<Vec<Vec<Change>>> = Vec::new();
    for thread in 0..job.threads {
        let commits = (0..commits / job.threads).map(|_| some_changes(one, job, shape, thread));
        work.push(commits.collect());
    }
    let before = disk.counts();
    let start = Instant::now();
    let store = &*one.store;
    let times = if let [mine] = &work[..] {
        vec![timed(store, mine)?]
    } else {
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                work.iter().map(|mine| scope.spawn(|| timed(store, mine))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| "a panic")?)
                .collect::<Any<Vec<_>>>()
        })?
    };
    let took = start.elapsed();
    for (mine, times) in work.iter().zip(&times) {
        for change in mine[..times.len()].iter().flatten() {
            one.expected.insert(change.record, change.seed);
        }
    }
    // Background writes count for their contender.
    disk.wait_until_quiet();
    let after = disk.counts();
    if !warming_up {
        let done = times.iter().map(Vec::len).sum::<usize>() as u64;
        one.took += took;
        for (whole, sync) in times.into_iter().flatten() {
            one.times.push(whole);
            one.syncs.push(sync);
        }
        one.commits += done;
        one.bytes += after.bytes - before.bytes;
        one.flushes += after.flushes - before.flushes;
    }
    Ok(())
}

/// Changes a record in each page, in commits of many.
fn touch_every_page(one: &mut Seen, shape: Shape) -> Any<()> {
    let in_page = 4096 / shape.len as u64;
    let mut pages: Vec<u64> = (0..shape.records / in_page).collect();
    for n in (1..pages.len()).rev() {
        pages.swap(n, one.random.below(n as u64 + 1) as usize);
    }
    for pages in pages.chunks(256) {
        let mut changes = Vec::new();
        for page in pages {
            let (record, seed) = (page * in_page + one.random.below(in_page), one.random.next());
            one.expected.insert(record, seed);
            changes.push(Change { record, seed, bytes: value(seed, shape.len) });
        }
        one.store.commit(&changes)?;
    }
    Ok(())
}

/// Returns the time of each commit, and of its part after the changes.
fn timed(store: &dyn Store, commits: &[Vec<Change>]) -> Any<Vec<(Duration, Duration)>> {
    let mut times = Vec::with_capacity(commits.len());
    let begun = Instant::now();
    for changes in commits {
        let start = Instant::now();
        let changed = store.commit(changes)?;
        let whole = start.elapsed();
        times.push((whole, whole.saturating_sub(changed)));
        // A slow contender does not delay the others for long.
        if begun.elapsed() > TURN {
            break;
        }
    }
    Ok(times)
}

/// Returns changes of random records, each in its own page. Threads share no page.
fn some_changes(one: &mut Seen, job: &Job, shape: Shape, thread: u64) -> Vec<Change> {
    let in_page = 4096 / shape.len as u64;
    let pages = shape.records / in_page;
    let mut taken = std::collections::HashSet::new();
    let mut changes = Vec::new();
    while (changes.len() as u64) < job.changes {
        let page = one.random.below(pages / job.threads) * job.threads + thread;
        let record = page * in_page + one.random.below(in_page);
        let seed = one.random.next();
        if taken.insert(page) {
            changes.push(Change { record, seed, bytes: value(seed, shape.len) });
        }
    }
    changes
}

/// Returns bytes that identify their change.
fn value(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed | 1);
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}
