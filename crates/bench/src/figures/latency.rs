//! Figures of latency: the slowest of many operations.

use super::effort::Effort;
use super::field::Field;
use super::figure::{Figure, Line};
use super::papers::{LIBNVMMIO, RMMIO};
use super::script::{Data, Job, Script};
use crate::measure::order;
use crate::offsets::Order;
use crate::subject::Subject;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use std::time::{Duration, Instant};

const PERCENTILES: [(&str, f64); 6] = [
    ("p50", 50.0),
    ("p90", 90.0),
    ("p99", 99.0),
    ("p99.9", 99.9),
    ("p99.99", 99.99),
    ("p99.999", 99.999),
];

/// Measures and returns all figures of this module.
pub fn figures(field: &Field, effort: &Effort, bar: &ProgressBar) -> Vec<Figure> {
    let writes = |len| Job::writes(len, Order::Random);
    let table = format!("{LIBNVMMIO}, 4.2.4, table 2");
    [
        (
            "latency-write-4KiB",
            "a durable random write of 4 KiB",
            writes(4096),
            format!("{table}; {RMMIO}, IV-B, figure 9c"),
        ),
        (
            "latency-read-4KiB",
            "a random read of 4 KiB",
            Job { reads: 100, ..writes(4096) },
            table.clone(),
        ),
        ("latency-write-64B", "a durable random write of 64 bytes", writes(64), table),
    ]
    .map(|(id, what, job, papers)| {
        let mut figure = of(field, effort, bar, job, what);
        figure.id = id;
        figure.repeats = format!("{papers} (latency by percentiles)");
        figure
    })
    .into()
}

fn of(field: &Field, effort: &Effort, bar: &ProgressBar, job: Job, what: &str) -> Figure {
    bar.set_message(format!("Latency of {what}"));
    let data = Data::new(job.len);
    let mut histograms = vec![histogram(); field.entrants.len()];
    let time = effort.latency / effort.rounds as u32;
    bar.inc_length(effort.rounds as u64);
    for round in 0..effort.rounds {
        for n in order(round, histograms.len()) {
            let entrant = &field.entrants[n];
            let subject = &*entrant.subject;
            let script = || Script::new(job, &data, field.len, 0, round as u64);
            let steps = record(script(), subject, time, &mut histograms[n]);
            script().check(subject, steps, entrant.contender.kind.name);
        }
        bar.inc(1);
    }
    let clock = clock();
    let lines = field
        .entrants
        .iter()
        .zip(&histograms)
        .map(|(entrant, histogram)| Line {
            name: entrant.contender.kind.name.to_owned(),
            source: entrant.contender.kind.source,
            group: entrant.contender.group,
            values: PERCENTILES.map(|(_, at)| percentile(histogram, at)).into(),
        })
        .collect();
    Figure {
        id: "",
        title: format!("Latency of {what}"),
        repeats: String::new(),
        along: "percentile",
        up: "ns",
        ticks: PERCENTILES.map(|(name, _)| name.to_owned()).into(),
        joined: true,
        more_is_better: false,
        lines,
        notes: vec![format!(
            "Looking at the clock, {clock} ns here, is in all of them. A percentile is left out where fewer \
             than five operations lie beyond it. The upper ones belong to the machine as well: on a shared one \
             the limit's say how much."
        )],
    }
}

fn histogram() -> Histogram<u64> {
    // From a nanosecond to a minute, with two digits: one percent.
    Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("good bounds")
}

fn percentile(histogram: &Histogram<u64>, at: f64) -> Option<f64> {
    let beyond = histogram.len() as f64 * (100.0 - at) / 100.0;
    (beyond >= 5.0).then(|| histogram.value_at_percentile(at) as f64)
}

/// Records each operation after a quarter of the time. Returns the number of all operations.
fn record(
    mut script: Script<'_>,
    subject: &dyn Subject,
    time: Duration,
    histogram: &mut Histogram<u64>,
) -> u64 {
    let begun = Instant::now();
    let mut before = begun;
    let mut steps = 0;
    loop {
        script.step(subject);
        steps += 1;
        let now = Instant::now();
        let gone = now - begun;
        if gone > time / 4 {
            histogram.saturating_record((now - before).as_nanos() as u64);
        }
        if gone > time {
            return steps;
        }
        before = now;
    }
}

/// Measures the cost of a clock call.
fn clock() -> u128 {
    let begun = Instant::now();
    for _ in 0..1000 {
        std::hint::black_box(Instant::now());
    }
    begun.elapsed().as_nanos() / 1000
}
