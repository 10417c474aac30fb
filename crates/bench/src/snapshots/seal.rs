//! The time of a snapshot of a sparse file of 100 GiB, and of one of 1 MiB.

use super::row;
use crate::measure::median;
use crate::ours::Ours;
use crate::ratios::Found;
use crate::scratch::Scratch;
use crate::subject::Subject;
use atomic_mmap::Medium;
use std::io;
use std::time::Instant;

/// Number of snapshots, of which the median counts.
const COUNT: usize = 20;

/// Measures snapshots of a file that has one already. The first one makes the companion.
pub fn measure(medium: Medium, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let large = median_of(&Ours::open(&scratch.folder("large")?, 100 << 30, medium)?)?;
    let small = median_of(&Ours::open(&scratch.folder("small")?, 1 << 20, medium)?)?;
    // The goal is of a file in memory, and its row has no medium in its name.
    let name = match medium {
        Medium::Ram => "snapshot_100GiB_us".to_owned(),
        other => format!("{other}_snapshot_100GiB_us"),
    };
    found.add(&name, large, &format!("{small:.1} µs for a file of 1 MiB"));
    found.add(&row(medium, "snapshot_100GiB_vs_1MiB"), large / small, "");
    Ok(())
}

/// Returns the median in microseconds.
fn median_of(ours: &Ours) -> io::Result<f64> {
    ours.0.snapshot("first")?;
    let len = ours.0.len();
    let mut took = Vec::new();
    for n in 0..COUNT as u64 {
        // All over the file.
        (0..16).for_each(|part| ours.write(&n.to_le_bytes(), len / 16 * part + n * 64));
        let begin = Instant::now();
        ours.0.snapshot("next")?;
        took.push(begin.elapsed().as_secs_f64() * 1e6);
        ours.0.drop_snapshot("next")?;
    }
    Ok(median(took))
}
