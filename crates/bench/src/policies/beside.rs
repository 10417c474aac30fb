//! The crate with `Adaptive` and background deployment beside the baselines: mixes of writes and
//! reads, and YCSB over the page store.
//!
//! A default file reads what lies on both sides in pieces. These settings bring such pages home.

use super::row;
use crate::baselines;
use crate::figures::field::{Group, of_groups};
use crate::figures::{self, ycsb};
use crate::measure::Effort;
use crate::ours::{WITH_WORKER, open_with_worker};
use crate::ratios::Found;
use crate::ratios::run::{FILE_BESIDE, worst_mix};
use crate::scratch::Scratch;
use atomic_mmap::Medium;
use indicatif::ProgressBar;
use std::io;

/// Measures the worst mix of `ratios` with these settings.
pub fn mixes(effort: &Effort, scratch: &Scratch, quick: bool, found: &mut Found) -> io::Result<()> {
    let ours = open_with_worker(&scratch.folder("beside")?, FILE_BESIDE)?;
    worst_mix(effort, scratch, quick, &ours, found, &mut |_, _, _| ())
}

/// Measures YCSB B to E: the crate's operations a second by those of the best baseline.
pub fn page_store(quick: bool, found: &mut Found) -> io::Result<()> {
    let effort = if quick { figures::effort::QUICK } else { figures::effort::FULL };
    let all = of_groups(&[(Group::Ours, &[WITH_WORKER]), (Group::Baseline, baselines::ALL)]);
    let mut worst = (f64::INFINITY, String::new());
    for figure in ycsb::figures(&all, None, &effort, &ProgressBar::hidden())? {
        for (n, tick) in figure.ticks.iter().enumerate() {
            let speeds = figure.lines.iter().map(|line| line.values[n].unwrap_or(0.0));
            let Some((ours, best)) = speeds.clone().next().zip(speeds.skip(1).reduce(f64::max))
            else {
                continue;
            };
            found.add_detail(&row(Medium::Dax, &format!("ycsb_{tick}_vs_baselines")), ours / best);
            if ["B", "C", "D", "E"].contains(&&**tick) && ours / best < worst.0 {
                worst =
                    (ours / best, format!("{tick}: {ours:.0} and {best:.0} operations a second"));
            }
        }
    }
    found.add("ycsb_worst_vs_baselines", worst.0, &worst.1);
    Ok(())
}
