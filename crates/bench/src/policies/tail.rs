//! The slowest of many reads and writes under each policy, beside the raw copy: a table, and a plot
//! in `target/bench/tail.svg`.
//!
//! Half of the operations are reads, and all are of 4 KiB at random places. The contenders take
//! turns, and each operation is timed alone. A row is the time at a percentile. It has no goal. On
//! a shared machine the highest ones belong to the machine as well, as those of the copy show.

use super::POLICIES;
use crate::measure::order;
use crate::ours::Ours;
use crate::ratios::limit::Limit;
use crate::ratios::run::touch_all;
use crate::ratios::{Found, Options};
use crate::scratch::Scratch;
use atomic_mmap::{AtomicMappedFile, DeployPolicy, Medium};
use hdrhistogram::Histogram;
use plotters::prelude::*;
use std::hint::black_box;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of each file.
const LEN: u64 = 128 << 20;
/// Bytes of an operation.
const SIZE: usize = 4096;
const PERCENTILES: [(&str, f64); 5] =
    [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99), ("p99.999", 99.999)];
const ROUNDS: usize = 20;

type Read<'a> = Box<dyn Fn(&mut [u8], u64) + 'a>;
type Write<'a> = Box<dyn Fn(&[u8], u64) + 'a>;

/// A contender, and the times of its operations in nanoseconds.
struct Entrant<'a> {
    name: &'a str,
    read: Read<'a>,
    write: Write<'a>,
    reads: Histogram<u64>,
    writes: Histogram<u64>,
}

/// Measures everything, and prints the table.
///
/// # Errors
/// Returns an error of the system or the crate.
pub fn measure(options: &Options) -> io::Result<Found> {
    let scratch = Scratch::new(options.base.as_deref())?;
    let limit = Limit::open(&scratch.folder("limit")?, LEN)?;
    let lazy = ("lazy + worker", DeployPolicy::Lazy);
    let open = |(name, policy): (&str, DeployPolicy)| -> io::Result<Ours> {
        let options = AtomicMappedFile::options().create(true).len(LEN).medium(Medium::Dax);
        let options = options.deploy(policy);
        let options = match name == lazy.0 {
            true => options.deploy_idle(Duration::from_millis(10)).reflection_budget(LEN / 4),
            false => options,
        };
        Ok(Ours(options.open(scratch.folder(name)?.join("ours"))?))
    };
    let kinds = || POLICIES.into_iter().chain([lazy]);
    let files: Vec<Ours> = kinds().map(open).collect::<io::Result<_>>()?;
    files.iter().for_each(|ours| touch_all(ours, LEN));
    let mut entrants = vec![entrant(
        "copy",
        |to, at| limit.copy_out(to, at),
        |data, at| limit.copy_one_drain(data, at),
    )];
    for ((name, _), ours) in kinds().zip(&files) {
        entrants.push(entrant(
            name,
            |to, at| ours.0.read_at(to, at).expect("in range"),
            |data, at| ours.0.write_at(data, at).expect("in range"),
        ));
    }
    let turn = Duration::from_millis(if options.quick { 100 } else { 500 });
    for round in 0..ROUNDS {
        for n in order(round, entrants.len()) {
            run(&mut entrants[n], round as u64, turn);
        }
    }
    let mut found = Found::default();
    for entrant in &entrants {
        for (what, times) in [("read", &entrant.reads), ("write", &entrant.writes)] {
            for (name, at) in PERCENTILES {
                let row = format!("tail_{what}_{}_{name}", entrant.name.replace(" + ", "_"));
                // Fewer than five operations say nothing.
                if times.len() as f64 * (100.0 - at) / 100.0 >= 5.0 {
                    let told = format!("ns, of {} operations", times.len());
                    found.add(&row, times.value_at_percentile(at) as f64, &told);
                }
            }
        }
    }
    let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    std::fs::create_dir_all(&out)?;
    draw(&out.join("tail.svg"), &entrants).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(found)
}

fn entrant<'a>(
    name: &'a str,
    read: impl Fn(&mut [u8], u64) + 'a,
    write: impl Fn(&[u8], u64) + 'a,
) -> Entrant<'a> {
    let times = || Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("good bounds");
    let (read, write) = (Box::new(read), Box::new(write));
    Entrant { name, read, write, reads: times(), writes: times() }
}

/// Runs one turn. The first quarter of its time does not count.
fn run(entrant: &mut Entrant<'_>, seed: u64, turn: Duration) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let data: Vec<u8> = (0..SIZE).map(|n| (n + seed as usize) as u8).collect();
    let mut to = vec![0; SIZE];
    let begun = Instant::now();
    let mut before = begun;
    loop {
        let at = rng.u64(..LEN / SIZE as u64) * SIZE as u64;
        let is_read = rng.bool();
        match is_read {
            true => (entrant.read)(black_box(&mut to), at),
            false => (entrant.write)(&data, at),
        }
        let now = Instant::now();
        if now - begun > turn / 4 {
            let times = if is_read { &mut entrant.reads } else { &mut entrant.writes };
            times.saturating_record((now - before).as_nanos() as u64);
        }
        if now - begun > turn {
            return;
        }
        before = now;
    }
}

/// Draws the percentiles: reads on the left, writes on the right.
fn draw(path: &Path, entrants: &[Entrant<'_>]) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(path, (1200, 520)).into_drawing_area();
    root.fill(&WHITE)?;
    let halves = root.split_evenly((1, 2));
    let last = PERCENTILES.len() - 1;
    for (half, title) in halves.iter().zip(["reads of 4 KiB, ns", "writes of 4 KiB, ns"]) {
        let of = |entrant: &Entrant<'_>| {
            let times = if title.starts_with("reads") { &entrant.reads } else { &entrant.writes };
            PERCENTILES.map(|(_, at)| times.value_at_percentile(at) as f64)
        };
        let most = entrants.iter().flat_map(of).fold(1000.0, f64::max);
        let mut chart = ChartBuilder::on(half)
            .caption(title, ("sans-serif", 20))
            .margin(10)
            .x_label_area_size(30)
            .y_label_area_size(70)
            .build_cartesian_2d(0..last, (10.0..most * 1.5).log_scale())?;
        let name = |n: &usize| PERCENTILES[*n].0.to_owned();
        chart.configure_mesh().x_labels(last + 1).x_label_formatter(&name).draw()?;
        for (n, entrant) in entrants.iter().enumerate() {
            let color = if n == 0 { BLACK.to_rgba() } else { Palette99::pick(n).to_rgba() };
            let line = LineSeries::new(of(entrant).into_iter().enumerate(), color.stroke_width(2));
            let drawn = chart.draw_series(line)?.label(entrant.name);
            drawn.legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color));
        }
        let mut labels = chart.configure_series_labels();
        labels.position(SeriesLabelPosition::UpperLeft).border_style(BLACK).draw()?;
    }
    root.present()?;
    Ok(())
}
