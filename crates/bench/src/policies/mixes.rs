//! Mixes of reads and writes under each policy, at equal offsets.
//!
//! A cell is a share of reads, a size, and an order. Its value is the time of `Adaptive` by that of
//! the best of the other policies. The worst cell is the goal.

use super::{POLICIES, row};
use crate::figures::ycsb::Zipf;
use crate::measure::{Effort, Turn, ratio, take_turns};
use crate::ours::Ours;
use crate::ratios::Found;
use crate::ratios::run::{Pattern, touch_all};
use crate::scratch::Scratch;
use crate::subject::Subject;
use atomic_mmap::{AtomicMappedFile, DeployPolicy, Medium};
use std::hint::black_box;
use std::io;

/// Bytes of each policy's file. Warm-up reaches every page of it.
const LEN: u64 = 32 << 20;
const READS: [u64; 6] = [0, 20, 50, 80, 95, 100];
const SIZES: [(&str, usize); 5] =
    [("128B", 128), ("1KiB", 1024), ("4KiB", 4096), ("16KiB", 16 << 10), ("64KiB", 64 << 10)];

/// Measures all cells.
pub fn measure(
    effort: &Effort,
    medium: Medium,
    scratch: &Scratch,
    found: &mut Found,
) -> io::Result<()> {
    let open = |(name, policy): (&str, DeployPolicy)| -> io::Result<Ours> {
        let options = AtomicMappedFile::options().create(true).len(LEN).medium(medium);
        Ok(Ours(options.deploy(policy).open(scratch.folder(name)?.join("ours"))?))
    };
    let files: Vec<Ours> = POLICIES.into_iter().map(open).collect::<io::Result<_>>()?;
    files.iter().for_each(|ours| touch_all(ours, LEN));
    let mut worst = (0.0, String::new());
    for (name, len) in SIZES {
        for zipf in [None, Some(Zipf::new(LEN / len as u64))] {
            let order = if zipf.is_some() { "zipf" } else { "uniform" };
            for reads in READS {
                let value = cell(effort, &files, (len, reads, zipf.as_ref()));
                let cell = format!("{reads}_reads_{name}_{order}");
                found.add_detail(&row(medium, &format!("adaptive_{cell}")), value.0);
                if value.0 > worst.0 {
                    worst = (value.0, format!("{cell}: {}", value.1));
                }
            }
        }
    }
    found.add(&row(medium, "adaptive_worst"), worst.0, &worst.1);
    Ok(())
}

/// Returns the time of `Adaptive` by that of the best other policy, and the times of all.
fn cell(
    effort: &Effort,
    files: &[Ours],
    (len, reads, zipf): (usize, u64, Option<&Zipf>),
) -> (f64, String) {
    let pattern = Pattern::new(len);
    let places = LEN / len as u64;
    let run = |ours: &Ours, round: usize, count: usize| {
        let mut rng = fastrand::Rng::with_seed(round as u64 % 997);
        let data = pattern.piece(round % 256, len);
        let mut to = vec![0; len];
        for _ in 0..count {
            let place = match zipf {
                // Scrambled, so that the frequent places are not neighbours.
                Some(zipf) => zipf.rank(rng.f64()).wrapping_mul(0x9E37_79B9_7F4A_7C15) % places,
                None => rng.u64(..places),
            };
            let at = place * len as u64;
            if rng.u64(..100) < reads {
                ours.read(black_box(&mut to), at);
            } else {
                ours.write(data, at);
            }
        }
    };
    // Until each policy has its steady state: 200 operations for each page.
    let settle = (LEN / 4096 * 200).min(LEN * 200 / len as u64) as usize;
    files.iter().for_each(|ours| run(ours, 1, settle));
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for ours in files {
        turns.push(Box::new(|round, count| run(ours, round, count)));
    }
    let series = take_turns(effort, 64, &mut turns);
    let Some((adaptive, fixed)) = series.split_last() else { return (0.0, String::new()) };
    let best = fixed.iter().min_by(|a, b| a.median().total_cmp(&b.median()));
    let told: Vec<String> = POLICIES
        .iter()
        .zip(&series)
        .map(|((name, _), series)| format!("{name} {:.0} ns", series.median()))
        .collect();
    (best.map_or(0.0, |best| ratio(adaptive, best)), told.join(", "))
}
