//! `bench`: writes and durable points in a folder, for a few seconds.

use crate::args::{Bench, Common};
use crate::outcome::{Failure, Outcome};
use crate::progress::PairScratch;
use crate::report::Report;
use atomic_mmap::{AtomicMappedFile, CloseMode};
use std::time::{Duration, Instant};

/// The length of the file, in bytes: small enough to fit any disk.
const LEN: u64 = 16 << 20;

pub fn run(common: &Common, of: &Bench) -> Result<Outcome, Failure> {
    let scratch = PairScratch::within(&of.folder, common)?;
    let options = scratch.options(common).create(true).len(LEN);
    let file = scratch.home().inside(|| Ok(options.open("bench")?))?;
    let time = Duration::from_secs_f64(of.seconds);
    let mut report = Report::new("bench");
    report.path("folder", Some(&of.folder));
    report.text("medium", Some(file.medium().to_string()));
    let before = file.stats();
    for (name, len, syncs) in [
        ("write_64", 64, false),
        ("write_4096", 4096, false),
        ("write_64_and_sync", 64, true),
        ("write_4096_and_sync", 4096, true),
    ] {
        let rate = measure(&file, len, syncs, time)?;
        report.add(name, rate, format!("{rate:.0} a second"));
    }
    let stats = file.stats().delta(&before);
    report.count("durable_points", stats.journal_points + stats.flush_points);
    if common.json {
        // All counters of the library, for the curious.
        report.add("stats", serde_json::to_value(stats).unwrap_or_default(), "");
    }
    file.close(CloseMode::Spatial)?;
    report.print(common.json)?;
    Ok(Outcome::Ok)
}

/// Writes at places that are spread over the file, and returns the operations a second.
fn measure(
    file: &AtomicMappedFile,
    len: usize,
    syncs: bool,
    time: Duration,
) -> Result<f64, Failure> {
    let (bytes, places) = (vec![0x5a; len], LEN / len as u64);
    let (begun, mut done) = (Instant::now(), 0_u64);
    loop {
        // An odd step visits every place of a power of two.
        file.write_at(&bytes, done.wrapping_mul(0x9e37_79b9) % places * len as u64)?;
        if syncs {
            file.sync()?;
        }
        done += 1;
        if (syncs || done % 64 == 0) && begun.elapsed() >= time {
            return Ok(done as f64 / begun.elapsed().as_secs_f64());
        }
    }
}
