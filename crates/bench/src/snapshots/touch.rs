//! The first write to a page after a snapshot, which keeps the old bytes, against a later write to
//! such a page.
//!
//! Both kinds take turns within a round, at pages that neither has touched in it. So the caches
//! have as little of one as of the other.

use super::row;
use crate::measure::{Effort, Series, ratio};
use crate::ours::Ours;
use crate::ratios::Found;
use crate::ratios::run::{FILE_BESIDE, Pattern, check_back, touch_all};
use crate::scratch::Scratch;
use crate::subject::Subject;
use atomic_mmap::Medium;
use std::io;
use std::time::Instant;

const PAGE: u64 = 4096;
/// Number of writes of one kind before those of the other.
const TURN: usize = 64;
const NAME: &str = "of this round";

/// Measures writes of whole pages.
pub fn measure(
    effort: &Effort,
    medium: Medium,
    scratch: &Scratch,
    found: &mut Found,
) -> io::Result<()> {
    let ours = Ours::open(&scratch.folder("touch")?, FILE_BESIDE, medium)?;
    touch_all(&ours, FILE_BESIDE);
    let pattern = Pattern::new(PAGE as usize);
    let mut offsets: Vec<u64> = (0..FILE_BESIDE).step_by(PAGE as usize).collect();
    let mut series = [Series::default(), Series::default()];
    for round in 0..effort.warm_up + effort.rounds {
        fastrand::Rng::with_seed(round as u64).shuffle(&mut offsets);
        let (kept, untouched) = offsets.split_at(offsets.len() / 2);
        ours.0.snapshot(NAME)?;
        kept.iter().for_each(|at| ours.write(pattern.piece(round + 1, PAGE as usize), *at));
        let took = one_round(&ours, pattern.piece(round, PAGE as usize), untouched, kept);
        if round >= effort.warm_up {
            series.iter_mut().zip(took).for_each(|(series, took)| series.0.push(took));
        }
        check_back(&ours, &pattern, round, &offsets[..100], PAGE as usize);
        ours.0.drop_snapshot(NAME)?;
    }
    let [first, later] = series;
    let told = format!("{:.0} : {:.0} ns", first.median(), later.median());
    found.add(&row(medium, "first_touch_4KiB"), ratio(&first, &later), &told);
    Ok(())
}

/// Writes to all pages, and returns the nanoseconds of a first and of a later write.
fn one_round(ours: &Ours, data: &[u8], untouched: &[u64], kept: &[u64]) -> [f64; 2] {
    let mut took = [0; 2];
    for (n, turns) in untouched.chunks(TURN).zip(kept.chunks(TURN)).enumerate() {
        let turns = [turns.0, turns.1];
        // Each kind is as often the first.
        for kind in [n % 2, 1 - n % 2] {
            let begin = Instant::now();
            turns[kind].iter().for_each(|at| ours.write(data, *at));
            took[kind] += begin.elapsed().as_nanos();
        }
    }
    took.map(|nanos| nanos as f64 / untouched.len() as f64)
}
