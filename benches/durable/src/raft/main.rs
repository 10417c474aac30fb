//! Measures durable appends to Raft logs, and their opening after a crash.
//!
//! All contenders append equal entries with equal durability, alternating in the rounds of one run.
//! Prints a table, and writes `target/bench/raft.json`. See `README.md`.

mod crash;
#[path = "../disk.rs"]
#[allow(dead_code, reason = "its counters are of the other program")]
mod disk;
mod logs;
mod rocks;

use disk::{Disk, Scratch};
use logs::{Any, LIMIT, Log, NAMES, OURS, RAFT_LOG, ROCKS, command};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const USAGE: &str = "\
raft [--quick] [--check] [--dir PATH] [--rounds N] [--only NAME] [--entries N] [--groups N] [--append | --open]
  --quick   a third of the rounds, and a log of 64 MiB
  --check   one short turn of each, and a log of 4 MiB; no times count
  --dir     where the files lie (default: beside the program, in the target folder)
  --rounds  how often each contender gets a turn (default: 15)
  --only    only the contenders with this in their names, beside the limit
  --entries, --groups  only the appends of so many entries, or of so many groups
  --append  only the appends
  --open    only the opening after a crash";

/// Options with which some figures are not measured.
const PARTS: [&str; 5] = ["--only", "--entries", "--groups", "--append", "--open"];
/// Entries of an append, and groups.
const COUNTS: [u64; 3] = [1, 16, 256];
const GROUPS: [usize; 3] = [1, 8, 64];
/// After each turn, entries are purged but for this many of a group.
const KEPT: u64 = 1024;

struct Options {
    rounds: usize,
    turn: Duration,
    log: u64,
    dir: PathBuf,
    names: Vec<&'static str>,
    counts: Vec<u64>,
    groups: Vec<usize>,
    append: bool,
    open: bool,
    check: bool,
    is_part: bool,
}

impl Options {
    fn from_args(args: impl Iterator<Item = String>) -> Any<Options> {
        let mut options = Options {
            rounds: 15,
            turn: Duration::from_millis(250),
            log: 1 << 30,
            dir: std::env::current_exe()?.parent().ok_or("no folder")?.to_path_buf(),
            names: NAMES.to_vec(),
            counts: COUNTS.to_vec(),
            groups: GROUPS.to_vec(),
            append: true,
            open: true,
            check: false,
            is_part: false,
        };
        let mut args = args;
        while let Some(arg) = args.next() {
            options.is_part |= PARTS.contains(&arg.as_str());
            let mut value = || args.next().ok_or_else(|| format!("{arg} wants a value"));
            match arg.as_str() {
                "--quick" => (options.rounds, options.log) = (5, 64 << 20),
                "--check" => {
                    (options.rounds, options.log, options.check) = (1, 4 << 20, true);
                    options.turn = Duration::from_millis(20);
                }
                "--dir" => options.dir = value()?.into(),
                "--rounds" => options.rounds = value()?.parse()?,
                "--only" => {
                    let part = value()?;
                    options.names.retain(|name| *name == LIMIT || name.contains(&part));
                }
                "--entries" => options.counts = vec![value()?.parse()?],
                "--groups" => options.groups = vec![value()?.parse()?],
                "--append" => options.open = false,
                "--open" => options.append = false,
                _ => return Err(format!("{arg:?}?\n{USAGE}").into()),
            }
        }
        Ok(options)
    }
}

/// The measured numbers by their names: the lines of the JSON file.
type Found = BTreeMap<String, f64>;

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
    let mut args = std::env::args().skip(1).peekable();
    if args.peek().is_some_and(|arg| arg == crash::CHILD) {
        return crash::child(args.skip(1));
    }
    let mut options = Options::from_args(args)?;
    if let Some(kind) = disk::in_memory(&options.dir) {
        return Err(format!("{} is {kind}: nothing is durable there", options.dir.display()).into());
    }
    let scratch = Scratch::new(&options.dir, "raft")?;
    // A contender that is not installed is left out, in words.
    options.names.retain(|name| match logs::open(name, &scratch.0.join("probe"), 1) {
        Ok(_) => true,
        Err(error) => {
            println!("left out: {name}: {error}");
            false
        }
    });
    let mut found = Found::new();
    if options.append {
        let disk = Disk::under(&scratch.0);
        println!("| entries | groups | log | us an append | to {LIMIT} | us, median of each | |");
        println!("|---|---|---|---|---|---|---|");
        for (count, groups) in cells(&options.counts, &options.groups) {
            measure(&options, &scratch.0, &disk, (count, groups), &mut found)?;
        }
    }
    if options.open {
        crash::measure(&options, &scratch.0, &mut found)?;
    }
    if options.check {
        return Ok(());
    }
    goals(&found);
    // A part would replace the figures of a whole run.
    if options.is_part { Ok(()) } else { save(&found) }
}

/// Returns each number of entries with each number of groups.
fn cells(counts: &[u64], groups: &[usize]) -> impl Iterator<Item = (u64, usize)> {
    counts.iter().flat_map(|count| groups.iter().map(|groups| (*count, *groups)))
}

/// A contender with its measurements.
struct Seen {
    name: &'static str,
    log: Box<dyn Log>,
    /// The index of each group's next entry.
    next: Vec<AtomicU64>,
    /// Microseconds an append in each round: the time of the turn, by its appends.
    rounds: Vec<f64>,
    /// Microseconds of each append by itself.
    each: Vec<f64>,
}

/// Measures one row of the table for each contender.
fn measure(
    options: &Options,
    scratch: &Path,
    disk: &Disk,
    (count, groups): (u64, usize),
    found: &mut Found,
) -> Any<()> {
    let dir = scratch.join(format!("{count}-{groups}"));
    let mut seen = Vec::new();
    for name in &options.names {
        let log = logs::open(name, &dir.join(name), groups).map_err(|e| format!("{name}: {e}"))?;
        let next = (0..groups).map(|_| AtomicU64::new(1)).collect();
        seen.push(Seen { name, log, next, rounds: Vec::new(), each: Vec::new() });
    }
    // The first round warms up. A different contender starts each round.
    for round in 0..=options.rounds {
        for n in 0..seen.len() {
            let turn = (n + round) % seen.len();
            disk.wait_until_quiet();
            take_turn(&mut seen[turn], count, options.turn, round == 0)
                .map_err(|e| format!("{}: {e}", seen[turn].name))?;
        }
    }
    for one in &seen {
        check(one).map_err(|e| format!("{}: {e}", one.name))?;
    }
    let limit = seen[0].rounds.clone();
    let ours = seen.iter().find(|one| one.name == OURS).map(|one| one.rounds.clone());
    let mut remarks = Vec::new();
    for one in &seen {
        let row = format!("append_{count}_groups_{groups}_{}", one.name.replace([' ', ','], "_"));
        let (whole, to_limit) = (median(&one.rounds), median(&ratios(&one.rounds, &limit)));
        let each = median(&one.each);
        let mut last = String::new();
        found.insert(format!("{row}_us"), whole);
        found.insert(format!("{row}_us_each"), each);
        found.insert(format!("{row}_to_limit"), to_limit);
        if let Some(ours) = ours.as_ref().filter(|_| one.name != LIMIT && one.name != OURS) {
            let times = median(&ratios(&one.rounds, ours));
            found.insert(format!("{row}_to_atomic-mmap"), times);
            last = format!("{times:.2} times {OURS}");
        }
        println!(
            "| {count} | {groups} | {} | {whole:.0} | {to_limit:.2} | {each:.0} | {last} |",
            one.name
        );
        remarks.extend(one.log.remarks().map(|text| format!("{}: {text}", one.name)));
    }
    remarks.iter().for_each(|remark| println!("({count} entries, {groups} groups, {remark})"));
    drop(seen);
    Ok(std::fs::remove_dir_all(dir)?)
}

/// Lets a thread for each group append until the turn is over.
fn take_turn(one: &mut Seen, count: u64, turn: Duration, warming_up: bool) -> Any<()> {
    let (log, start) = (&*one.log, Instant::now());
    let append_all = |group: usize, next: &AtomicU64| -> Any<Vec<f64>> {
        let mut times = Vec::new();
        while times.is_empty() || start.elapsed() < turn {
            let begun = Instant::now();
            log.append(group, next.load(Ordering::Relaxed), count)?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
            next.fetch_add(count, Ordering::Relaxed);
        }
        Ok(times)
    };
    let times = std::thread::scope(|scope| -> Any<Vec<f64>> {
        let append_all = &append_all;
        let spawn = |(group, next)| scope.spawn(move || append_all(group, next));
        let threads: Vec<_> = one.next.iter().enumerate().map(spawn).collect();
        let mut times = Vec::new();
        for thread in threads {
            times.extend(thread.join().map_err(|_| "a panic")??);
        }
        Ok(times)
    })?;
    let took = start.elapsed().as_secs_f64() * 1e6;
    for (group, next) in one.next.iter().enumerate() {
        let end = next.load(Ordering::Relaxed).saturating_sub(KEPT);
        if end > 1 {
            log.purge(group, end)?;
        }
    }
    if !warming_up {
        one.rounds.push(took / times.len() as f64);
        one.each.extend(times);
    }
    Ok(())
}

/// Reads back the newest entry of each group, and one that was kept.
fn check(one: &Seen) -> Any<()> {
    for (group, next) in one.next.iter().enumerate() {
        let last = next.load(Ordering::Relaxed) - 1;
        for index in [last, last.saturating_sub(KEPT / 2).max(1)] {
            match one.log.get(group, index)? {
                Some(found) if found != command(index) => {
                    return Err(format!("entry {index} is not as written").into());
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the ratio of each round.
fn ratios(some: &[f64], to: &[f64]) -> Vec<f64> {
    some.iter().zip(to).map(|(one, other)| one / other).collect()
}

/// Prints each goal with the measured number.
fn goals(found: &Found) {
    println!("\n| goal | measured | |\n|---|---|---|");
    let say = |goal: &str, name: String, is_met: &dyn Fn(f64) -> bool| {
        if let Some(number) = found.get(&name) {
            let word = if is_met(*number) { "met" } else { "missed" };
            println!("| {goal} | {number:.2} | {word} |");
        }
    };
    let one = format!("append_1_groups_1_{OURS}_to_limit");
    say("an append of one entry takes at most 1.2 O_DSYNC writes", one, &|n| n <= 1.2);
    for (count, groups) in cells(&COUNTS, &GROUPS) {
        let name = |log| format!("append_{count}_groups_{groups}_{log}_to_atomic-mmap");
        let what = format!("{count} entries, {groups} groups");
        say(&format!("{what}: {RAFT_LOG} takes at least as long"), name(RAFT_LOG), &|n| n >= 1.0);
        say(&format!("{what}: {ROCKS} takes at least twice as long"), name(ROCKS), &|n| n >= 2.0);
    }
    say("opens after a crash in 20 ms", crash::name(OURS), &|n| n <= 20.0);
}

fn save(found: &Found) -> Any<()> {
    let mut json = String::new();
    for (name, number) in found {
        let comma = if json.is_empty() { "" } else { ",\n" };
        write!(json, "{comma}  \"{name}\": {number:.6}")?;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench/raft.json");
    std::fs::create_dir_all(path.parent().ok_or("no folder")?)?;
    std::fs::write(&path, format!("{{\n{json}\n}}\n"))?;
    println!("\n{}", path.display());
    Ok(())
}
