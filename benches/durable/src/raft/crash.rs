//! The time of opening a long log after a crash.
//!
//! A child opens the log and kills itself in the midst of its work. So each child but the first
//! one opens a log that crashed, and says how long that took.

use super::logs::{self, Any, LEN, LIMIT, Log, NAMES};
use super::{Found, Options, median};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// The argument of a child. A name, a folder and bytes follow.
pub const CHILD: &str = "--plays-the-child";
/// Entries of an append that fills the log.
const BATCH: u64 = 4096;

pub fn name(log: &str) -> String {
    format!("open_after_crash_{}_ms", log.replace([' ', ','], "_"))
}

/// Opens the log, prints the milliseconds, appends, and dies of SIGKILL.
pub fn child(mut args: impl Iterator<Item = String>) -> Any<()> {
    let mut next = || args.next().ok_or("an argument is missing");
    let (name, dir, bytes) = (next()?, next()?, next()?.parse::<u64>()?);
    let start = Instant::now();
    let log = logs::open(&name, Path::new(&dir), 1)?;
    let took = start.elapsed();
    let entries = bytes / LEN as u64 / BATCH * BATCH;
    let begin = find_end(&*log, entries)?;
    for first in (begin..=entries).step_by(BATCH as usize) {
        log.append(0, first, BATCH)?;
    }
    for first in begin.max(entries + 1)..begin.max(entries + 1) + 10 {
        log.append(0, first, 1)?;
    }
    println!("{}", took.as_secs_f64() * 1e3);
    // SAFETY: a signal to this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    Ok(())
}

/// Returns the index of the next entry: 1, or one behind the filled part.
fn find_end(log: &dyn Log, filled: u64) -> Any<u64> {
    if log.get(0, 1).is_err() {
        return Ok(1);
    }
    let mut next = filled + 1;
    while log.get(0, next).is_ok() {
        next += 1;
    }
    match log.get(0, next - 1)? {
        Some(found) if found == logs::command(next - 1) => Ok(next),
        _ => Err("the last entry is not as written".into()),
    }
}

pub fn measure(options: &Options, scratch: &Path, found: &mut Found) -> Any<()> {
    println!("\n| log of {} MiB | ms to open after a crash |\n|---|---|", options.log >> 20);
    for name in NAMES.iter().filter(|name| options.names.contains(name) && **name != LIMIT) {
        let dir = scratch.join("crash");
        let mut times = Vec::new();
        for round in 0..=options.rounds.min(7) {
            let mut child = Command::new(std::env::current_exe()?);
            child.arg(CHILD).arg(name).arg(&dir).arg(options.log.to_string());
            let output = child.output()?;
            let text = String::from_utf8_lossy(&output.stdout);
            let time = text.trim().parse::<f64>();
            let time = time.map_err(|_| {
                format!("{name}: {text}{}", String::from_utf8_lossy(&output.stderr))
            })?;
            // The first child has made the log.
            if round > 0 {
                times.push(time);
            }
        }
        println!("| {name} | {:.2} |", median(&times));
        found.insert(self::name(name), median(&times));
        std::fs::remove_dir_all(dir)?;
    }
    Ok(())
}
