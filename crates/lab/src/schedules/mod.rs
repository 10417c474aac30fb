//! The part `schedules`: every schedule of several threads is atomic, and so is a crash in its
//! middle.
//!
//! | file | contents |
//! |---|---|
//! | `durable` | durable linearizability of histories |
//! | `space` | stages and background deployment (`--cfg shuttle` only) |
//! | `workload` | the threads under shuttle's scheduler (`--cfg shuttle` only) |
//!
//! This file is the part. The crate's threads and locks must be shuttle's, so the lab builds itself
//! once more with `--cfg shuttle` and runs the schedules there.

pub mod durable;
#[cfg(shuttle)]
mod space;
#[cfg(shuttle)]
pub mod workload;

use crate::part::{Outcome, Settings};
use crate::progress::Progress;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The hidden command of the lab that was built with `--cfg shuttle`.
pub const INNER: &str = "schedules-inner";
const QUICK: u64 = 100_000;
const LONG: u64 = 2_000_000;
/// Number of schedules of one process, with a line of progress after each process.
const BATCH: u64 = 5_000;
/// As [`BATCH`], with a budget of seconds. A process that has begun ends its batch.
const SHORT_BATCH: u64 = 500;

/// Runs the part.
pub fn run(settings: &Settings, progress: &Progress) -> Outcome {
    let mut outcome = Outcome::of("schedules");
    let wanted = if settings.quick { QUICK } else { LONG };
    let size = if settings.seconds.is_some() { SHORT_BATCH } else { BATCH };
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    progress.say(format_args!("building the lab with --cfg shuttle"));
    let binary = match build() {
        Ok(Some(binary)) => binary,
        Ok(None) => {
            outcome.violations.push("the lab does not build with --cfg shuttle".into());
            return outcome;
        }
        Err(e) => {
            outcome.skipped = Some(format!("cargo cannot be run: {e}"));
            return outcome;
        }
    };
    // The budget is for schedules: building may take longer than all of it.
    let begun = progress.elapsed();
    let next = std::sync::atomic::AtomicU64::new(0);
    let shared = std::sync::Mutex::new(&mut outcome);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let batch = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let left = wanted.saturating_sub(batch * size).min(size);
                    let over = settings
                        .seconds
                        .is_some_and(|seconds| (progress.elapsed() - begun).as_secs() >= seconds);
                    if left == 0 || over {
                        break;
                    }
                    let seed = settings.seed.wrapping_mul(1_000_003).wrapping_add(batch);
                    let result = run_batch(&binary, seed, left);
                    let mut outcome = shared.lock().expect("no panic under it");
                    match result {
                        Ok(count) => {
                            outcome.schedules += count;
                            // A crash at a random step and two recoveries follow each schedule.
                            outcome.recoveries += count * 2;
                        }
                        Err(problem) => outcome.violations.push(problem),
                    }
                    progress.tick(format_args!("{} schedules", outcome.schedules));
                    if !outcome.violations.is_empty() {
                        break;
                    }
                }
            });
        }
    });
    outcome.runs =
        format!("{} schedules of 2 and 3 threads, random and by priority", outcome.schedules);
    outcome
}

/// Builds the lab with `--cfg shuttle` and returns its path. Returns `None` if it does not build.
pub(crate) fn build() -> std::io::Result<Option<PathBuf>> {
    let root = crate::root();
    let status = Command::new("cargo")
        .args(["build", "--quiet", "--release", "-p", "lab", "--target-dir", "target/shuttle"])
        .env("RUSTFLAGS", "--cfg shuttle")
        .current_dir(&root)
        .stdout(Stdio::null())
        .status()?;
    Ok(status.success().then(|| root.join("target/shuttle/release/lab")))
}

fn run_batch(binary: &std::path::Path, seed: u64, count: u64) -> Result<u64, String> {
    let what = || format!("lab {INNER} --seed {seed} --count {count}");
    let mut child = Command::new(binary)
        .args([INNER, "--seed", &seed.to_string(), "--count", &count.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{}: {e}", what()))?;
    let errors = child.stderr.take().expect("a pipe");
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        let _what_was_read_counts = BufReader::new(errors).read_to_string(&mut text);
        text
    });
    let out = BufReader::new(child.stdout.take().expect("a pipe"));
    let done = out.lines().map_while(Result::ok).find_map(|line| line.parse().ok());
    let status = child.wait().map_err(|e| format!("{}: {e}", what()))?;
    let errors = errors.join().unwrap_or_default();
    match done {
        Some(done) if status.success() => Ok(done),
        _ => {
            let end = errors.len().min(6_000);
            let end = (0..=end).rev().find(|n| errors.is_char_boundary(*n)).unwrap_or(0);
            Err(format!("{} (the binary in target/shuttle): {}", what(), &errors[..end]))
        }
    }
}
