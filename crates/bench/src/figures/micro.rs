//! Figures of plain writes and reads, by their size, their mix, and their syncs.

use super::cell::{Times, measure};
use super::effort::Effort;
use super::field::Field;
use super::figure::{Figure, lines, size};
use super::limits;
use super::papers::{ACUMEN, ADL, LIBNVMMIO, MGSP, RMMIO};
use super::script::Job;
use crate::offsets::Order;
use indicatif::ProgressBar;

/// Returns the throughput in MiB a second.
pub fn mib_per_second(bytes: usize, nanoseconds: f64) -> f64 {
    bytes as f64 * 1e9 / nanoseconds / f64::from(1 << 20)
}

pub const THROUGHPUT: &str = "MiB/s";

/// Measures and returns all figures of this module.
pub fn figures(field: &Field, effort: &Effort, bar: &ProgressBar) -> Vec<Figure> {
    let mut figures = Vec::new();
    for order in [Order::Random, Order::Sequential] {
        figures.push(over_size(field, effort, bar, order, 0));
    }
    for order in [Order::Random, Order::Sequential] {
        figures.push(over_size(field, effort, bar, order, 100));
    }
    figures.extend([1024, 4096].map(|len| over_mix(field, effort, bar, len)));
    figures.push(over_syncs(field, effort, bar));
    figures.push(unaligned(field, effort, bar));
    figures.push(around_blocks(field, effort, bar));
    figures
}

/// Measures a figure of throughputs, with one job for each tick.
pub fn throughputs(
    field: &Field,
    effort: &Effort,
    bar: &ProgressBar,
    jobs: &[(String, Job)],
    figure: Figure,
) -> Figure {
    let column = |(tick, job): &(String, Job)| {
        bar.set_message(format!("{}: {tick}", figure.title));
        measure(field, *job, effort, bar)
    };
    let columns: Vec<Times> = jobs.iter().map(column).collect();
    Figure {
        ticks: jobs.iter().map(|(tick, _)| tick.clone()).collect(),
        lines: lines(&field.contenders(), &columns, |n, time| {
            mib_per_second(jobs[n].1.bytes(), time)
        }),
        ..figure
    }
}

/// Returns an empty figure of throughputs.
pub fn throughput_figure(id: &'static str, title: String, along: &'static str) -> Figure {
    Figure {
        id,
        title,
        repeats: String::new(),
        along,
        up: THROUGHPUT,
        ticks: Vec::new(),
        joined: true,
        more_is_better: true,
        lines: Vec::new(),
        notes: Vec::new(),
    }
}

fn over_size(
    field: &Field,
    effort: &Effort,
    bar: &ProgressBar,
    order: Order,
    reads: u64,
) -> Figure {
    let what = if reads == 0 { "writes" } else { "reads" };
    let (id, how, paper) = match (order, reads) {
        (Order::Random, 0) => (
            "write-random",
            "Random",
            format!(
                "{ACUMEN}, V-A, figure 3a (size of the request, 8 GiB there); {MGSP}, IV-B, figure 8b \
                 (size, 1 GiB, a sync each)"
            ),
        ),
        (Order::Sequential, 0) => (
            "write-sequential",
            "Sequential",
            format!(
                "{LIBNVMMIO}, 4.2.2, figure 8 (size, 4 GiB there); {MGSP}, IV-B, figure 8a; {RMMIO}, \
                 IV-B, figures 9a and 9b (size up to 512 KiB)"
            ),
        ),
        (Order::Random, _) => (
            "read-random",
            "Random",
            format!("{MGSP}, IV-B, figure 8d; {LIBNVMMIO}, 4.2.2, figure 7 (4 KiB); size"),
        ),
        (Order::Sequential, _) => (
            "read-sequential",
            "Sequential",
            format!("{MGSP}, IV-B, figure 8c; {RMMIO}, IV-B, figure 9a (4 KiB); size"),
        ),
    };
    let durable = if reads == 0 { ", each of them durable" } else { "" };
    let jobs: Vec<(String, Job)> = effort
        .sizes
        .iter()
        .map(|&len| (size(len as u64), Job { reads, ..Job::writes(len, order) }))
        .collect();
    let title = format!("{how} {what}{durable}, one thread");
    let figure = throughput_figure(id, title, "bytes of an operation");
    let mut figure = throughputs(field, effort, bar, &jobs, figure);
    figure.repeats = paper;
    if reads > 0 {
        // Both limits read alike, so one line is enough.
        figure.lines.retain(|line| line.name != limits::TWO_DRAINS.name);
        if let Some(line) = figure.lines.iter_mut().find(|l| l.name == limits::ONE_DRAIN.name) {
            line.name = "limit: copy".to_owned();
        }
        figure.notes.push(
            "The figures before this one wrote the bytes that are read, in many sizes. No contender has been \
             told to tidy up."
                .to_owned(),
        );
    }
    figure
}

fn over_mix(field: &Field, effort: &Effort, bar: &ProgressBar, len: usize) -> Figure {
    let (id, repeats) = if len == 1024 {
        let shares = "share of reads, 1 KiB";
        ("mix-1KiB", format!("{ACUMEN}, V-A, figures 3a to 3f ({shares})"))
    } else {
        let papers = format!("{MGSP}, IV-B, figure 9; {LIBNVMMIO}, 4.2.1, figure 6");
        ("mix-4KiB", format!("{papers} (share of reads, 4 KiB)"))
    };
    let job =
        |&reads: &u64| (format!("{reads} %"), Job { reads, ..Job::writes(len, Order::Random) });
    let jobs: Vec<(String, Job)> = effort.shares.iter().map(job).collect();
    let title = format!("Reads among random durable writes of {}", size(len as u64));
    let figure = throughput_figure(id, title, "share of reads");
    Figure { repeats, ..throughputs(field, effort, bar, &jobs, figure) }
}

fn over_syncs(field: &Field, effort: &Effort, bar: &ProgressBar) -> Figure {
    let job = |sync_every: u64| {
        (sync_every.to_string(), Job { sync_every, ..Job::writes(4096, Order::Sequential) })
    };
    let title = "Sequential writes of 4 KiB, a sync after so many".to_owned();
    let figure = throughput_figure("syncs", title, "writes to a sync");
    Figure {
        repeats: format!(
            "{MGSP}, IV-A, figure 7; {LIBNVMMIO}, 4.2.2, figure 9 (writes between two syncs, 4 KiB)"
        ),
        notes: vec![
            "A contender with durable writes has nothing to do in a sync; the others promise less the \
             further the syncs lie apart."
                .to_owned(),
        ],
        ..throughputs(field, effort, bar, &[1, 10, 100].map(job), figure)
    }
}

fn unaligned(field: &Field, effort: &Effort, bar: &ProgressBar) -> Figure {
    let job = |len: usize| {
        // One page between two places, so that no two places share a page.
        let step = len as u64 + 8192;
        (size(len as u64), Job { step, plus: 1000, ..Job::writes(len, Order::Random) })
    };
    let jobs = [4096, 8192, 16384, 65536, 262_144].map(job);
    let title =
        "Random durable writes over several pages, 1000 bytes past a page's start".to_owned();
    let figure = throughput_figure("unaligned", title, "bytes of a write");
    Figure {
        repeats: format!(
            "{ADL}, 2 and table 1 (a write over blocks that it covers in part); {ACUMEN}, IV-D \
             (several pages in one operation); size"
        ),
        ..throughputs(field, effort, bar, &jobs, figure)
    }
}

fn around_blocks(field: &Field, effort: &Effort, bar: &ProgressBar) -> Figure {
    let job = |kib: usize| (format!("{kib} KiB"), Job::writes(kib << 10, Order::Sequential));
    let jobs = [1, 2, 3, 4, 5, 6, 8, 12].map(job);
    let title = "Sequential durable writes of sizes beside the block's".to_owned();
    let figure = throughput_figure("around-blocks", title, "bytes of a write");
    Figure {
        repeats: format!("{ADL}, 6.1, figure 4a (sizes from 1 to 12 KiB, 1 GiB there)"),
        ..throughputs(field, effort, bar, &jobs, figure)
    }
}
