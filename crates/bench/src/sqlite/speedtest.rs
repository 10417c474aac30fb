//! SQLite's `speedtest1`, as its sources have it: most of its transactions are large, and it
//! measures SQLite's own work more than that of the disk.
//!
//! `lab/sqlite.d/speedtest` gets the sources from Debian and builds the program, and the extension
//! of `crates/sqlite`. It uses that SQLite, and not the one of the other groups.

use super::modes::Mode;
use crate::measure::{Series, order, ratio};
use crate::ratios::Found;
use crate::scratch::Scratch;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The script's exit code where the sources of SQLite cannot be had.
const CANNOT_BE_HAD: i32 = 3;

/// The contenders, with the option for their journal.
const MODES: [(Mode, &str); 3] =
    [(Mode::OursFull, "delete"), (Mode::WalFull, "wal"), (Mode::TruncateFull, "truncate")];

/// Measures whole runs of the program, in turns.
///
/// # Errors
/// Returns an error of the system, or of the program.
pub fn measure(quick: bool, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/sqlite.d/speedtest");
    let built = Command::new(script).output()?;
    let said = String::from_utf8_lossy(&built.stdout).trim().to_owned();
    if built.status.code() == Some(CANNOT_BE_HAD) {
        println!("speedtest1: skipped: {said}");
        return Ok(());
    }
    let paths = said.split_once(' ').filter(|_| built.status.success());
    let (program, extension) = paths.ok_or_else(|| {
        let why = String::from_utf8_lossy(&built.stderr);
        io::Error::other(format!("speedtest1: {}: {said}\n{}", built.status, why.trim()))
    })?;
    let (rounds, size) = if quick { (1, "5") } else { (5, "50") };
    let mut series = vec![Series::default(); MODES.len()];
    for round in 0..rounds {
        for n in order(round, MODES.len()) {
            let (mode, journal) = MODES[n];
            let path = scratch.path().join(format!("speed-{round}-{}", mode.name()));
            let mut command = Command::new(program);
            command.args(["--journal", journal, "--size", size]).stdout(Stdio::null());
            if mode.is_ours() {
                command.args(["--vfs", "atomic-mmap"]).env("EXTENSION", extension);
            }
            scratch.sync()?;
            let began = Instant::now();
            let status = command.arg(&path).status()?;
            if !status.success() {
                return Err(io::Error::other(format!("speedtest1, {}: {status}", mode.name())));
            }
            series[n].0.push(began.elapsed().as_nanos() as f64);
        }
    }
    for ((mode, _), series) in MODES.iter().zip(&series) {
        let told = format!("milliseconds of speedtest1 --size {size}");
        found.add(&format!("sqlite_speedtest1_ms_{}", mode.name()), series.median() / 1e6, &told);
    }
    let told = "speed of speedtest1";
    found.add("sqlite_speedtest1_vs_wal_full", ratio(&series[1], &series[0]), told);
    found.add("sqlite_speedtest1_vs_truncate_full", ratio(&series[2], &series[0]), told);
    Ok(())
}
