//! New files that are written in a row, by the time of allocation.
//!
//! Each run makes a file, writes all of it twice and removes it: the first pass takes storage in
//! the reflection file, the second one in the home file. Opening does not count.

use super::row;
use crate::measure::median;
use crate::ratios::Found;
use crate::scratch::Scratch;
use atomic_mmap::{Allocation, AtomicMappedFile, CloseMode, Medium};
use std::io;
use std::time::Instant;

const LEN: u64 = 256 << 20;
const SIZES: [(&str, usize); 2] = [("4KiB", 4 << 10), ("64KiB", 64 << 10)];
const TIMES: [(&str, Allocation); 3] =
    [("on_demand", Allocation::OnDemand), ("ahead", Allocation::Ahead), ("full", Allocation::Full)];

/// Measures the time and the tail of both passes, to those of allocation on demand.
pub fn measure(
    medium: Medium,
    scratch: &Scratch,
    quick: bool,
    found: &mut Found,
) -> io::Result<()> {
    for (size, len) in SIZES {
        // For each time of allocation: the nanoseconds of a write, and their p99.9.
        let mut all = [const { (Vec::new(), Vec::new()) }; TIMES.len()];
        for _ in 0..if quick { 5 } else { 15 } {
            for ((_, when), (times, tails)) in TIMES.iter().zip(&mut all) {
                let (time, tail) = fill(medium, scratch, *when, len)?;
                times.push(time);
                tails.push(tail);
            }
        }
        let [demand, others @ ..] = all.map(|(times, tails)| (median(times), median(tails)));
        for ((name, _), (time, tail)) in TIMES[1..].iter().zip(others) {
            let name = row(medium, &format!("fill_{size}_{name}_vs_on_demand"));
            let told = format!(
                "{:.0} and {time:.0} ns, p99.9 {:.0} and {:.0} us",
                demand.0,
                demand.1 / 1e3,
                tail / 1e3
            );
            found.add(&name, time / demand.0, &told);
            found.add_detail(&format!("{name}_tail"), tail / demand.1);
        }
    }
    Ok(())
}

/// Returns the mean and the p99.9 of a write, in nanoseconds.
fn fill(medium: Medium, scratch: &Scratch, when: Allocation, len: usize) -> io::Result<(f64, f64)> {
    let path = scratch.folder("fill")?.join("ours");
    let options = AtomicMappedFile::options().create(true).len(LEN).medium(medium);
    let file = options.allocation(when).open(&path)?;
    let data = vec![7; len];
    let mut times = Vec::with_capacity(2 * LEN as usize / len);
    let begun = Instant::now();
    for _ in 0..2 {
        for at in (0..LEN).step_by(len) {
            let begun = Instant::now();
            file.write_at(&data, at)?;
            times.push(begun.elapsed().as_nanos() as u64);
        }
    }
    let mean = begun.elapsed().as_nanos() as f64 / times.len() as f64;
    // A spatial close removes the companions.
    file.close(CloseMode::Spatial)?;
    std::fs::remove_file(&path)?;
    times.sort_unstable();
    Ok((mean, times[times.len() * 999 / 1000] as f64))
}
