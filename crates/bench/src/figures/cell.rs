//! The measurement of a cell: all contenders take turns.
//!
//! Owns: the turns. In each round every contender has one, in another order in each. A quarter of a
//! turn passes before the clock starts. The value of a cell is the median over all rounds.

use super::effort::Effort;
use super::field::{Entrant, Field};
use super::script::{Data, Job, Script};
use crate::measure::order;
use crate::subject::Subject;
use indicatif::ProgressBar;
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

/// The nanoseconds of an operation, for each contender. `None`: not supported.
pub type Times = Vec<Option<f64>>;

/// Measures one job for all contenders.
pub fn measure(field: &Field, job: Job, effort: &Effort, bar: &ProgressBar) -> Times {
    let data = Data::new(job.len);
    let mut entrants: Vec<&Entrant> = field.entrants.iter().collect();
    // Long enough for a fair distribution by the scheduler.
    let time = if job.threads > 1 { effort.turn * 4 } else { effort.turn };
    in_turns(&mut entrants, effort.rounds, bar, |entrant, round| {
        turn(entrant, job, &data, field.len, time, round as u64)
    })
}

/// Runs the turns of all contenders. Returns the medians.
pub fn in_turns<E>(
    entrants: &mut [E],
    rounds: usize,
    bar: &ProgressBar,
    mut turn: impl FnMut(&mut E, usize) -> Option<f64>,
) -> Times {
    let mut results = vec![Vec::new(); entrants.len()];
    bar.inc_length(rounds as u64);
    for round in 0..rounds {
        for n in order(round, entrants.len()) {
            results[n].extend(turn(&mut entrants[n], round));
        }
        bar.inc(1);
    }
    results.into_iter().map(median).collect()
}

/// Returns the median.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn turn(
    entrant: &Entrant,
    job: Job,
    data: &Data,
    file: u64,
    time: Duration,
    round: u64,
) -> Option<f64> {
    let subject = &*entrant.subject;
    let script = |thread| Script::new(job, data, file, thread, round);
    let together = Barrier::new(job.threads);
    let begun = OnceLock::new();
    let one = |thread| {
        let mut script = script(thread);
        let warm = run(&mut script, subject, Instant::now(), time / 4)?;
        // No thread measures while another one still warms up.
        together.wait();
        // One start for all threads: with too few cores, the time in which a thread waits counts as
        // well.
        let begun = *begun.get_or_init(Instant::now);
        let steps = run(&mut script, subject, begun, time)?;
        Some((warm, steps, Instant::now()))
    };
    let done: Vec<Option<(u64, u64, Instant)>> = if job.threads == 1 {
        vec![one(0)]
    } else {
        std::thread::scope(|scope| {
            let one = &one;
            let threads: Vec<_> =
                (0..job.threads).map(|thread| scope.spawn(move || one(thread))).collect();
            threads
                .into_iter()
                .map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        })
    };
    let done: Vec<(u64, u64, Instant)> = done.into_iter().collect::<Option<_>>()?;
    for (thread, (warm, steps, _)) in done.iter().enumerate() {
        script(thread).check(subject, warm + steps, entrant.contender.kind.name);
    }
    let end = done.iter().map(|(_, _, end)| *end).max()?;
    let steps: u64 = done.iter().map(|(_, steps, _)| steps).sum();
    Some((end - *begun.get()?).as_nanos() as f64 / steps as f64)
}

/// Counts the operations until `time` has passed. Returns `None` if they are not supported.
fn run(
    script: &mut Script<'_>,
    subject: &dyn Subject,
    begun: Instant,
    time: Duration,
) -> Option<u64> {
    // A clock call costs as much as a small write, so it runs only every few microseconds.
    let mut steps = 0;
    let mut batch = 1;
    let mut last = begun.elapsed();
    loop {
        for _ in 0..batch {
            if !script.step(subject) {
                return None;
            }
        }
        steps += batch;
        let gone = begun.elapsed();
        if gone >= time {
            return Some(steps);
        }
        if gone - last < Duration::from_micros(20) {
            batch *= 2;
        }
        last = gone;
    }
}
