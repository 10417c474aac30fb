//! Figures of volume: bytes written to the medium for each byte of the operations.

use super::effort::Effort;
use super::field::{Entrant, Field};
use super::figure::{Figure, Line};
use super::papers::{ADL, MGSP};
use super::script::{Data, Job, Script};
use crate::offsets::Order;
use indicatif::ProgressBar;
use std::time::Instant;

const PAPER_II: &str = "The paper's, for 1, 4 and 16 KiB: Libnvmmio 2.048, 2.013, 2.002; with a sync after 100 \
                        1.997, 1.967, 1.956; MGSP 1.088, 1.021, 1.014.";
const PAPER_2: &str = "The paper's, with blocks of 4 KiB: copy-on-write 29.8, 13.1, 4; ADL 2.01, 2, 2; ZCL, which \
                       flushes the caller's own persistent buffer, 1 for IOzone.";

/// Measures and returns all figures of this module.
pub fn figures(field: &Field, effort: &Effort, bar: &ProgressBar) -> Vec<Figure> {
    let random = |len| Job::writes(len, Order::Random);
    let sequential = |len| Job::writes(len, Order::Sequential);
    let every_100 = |len| Job { sync_every: 100, ..random(len) };
    let table_ii = [
        ("1 KiB", random(1024)),
        ("4 KiB", random(4096)),
        ("16 KiB", random(16384)),
        ("1 KiB, sync/100", every_100(1024)),
        ("4 KiB, sync/100", every_100(4096)),
        ("16 KiB, sync/100", every_100(16384)),
    ];
    let table_2 =
        [("138 B", sequential(138)), ("315 B", sequential(315)), ("1 KiB", sequential(1024))];
    vec![
        Figure {
            id: "volume-random",
            title: "Written for each byte of random writes".to_owned(),
            repeats: format!("{MGSP}, IV-E, table II (size, and a sync after each or after 100)"),
            ..of(field, effort, bar, &table_ii, PAPER_II)
        },
        Figure {
            id: "volume-sequential",
            title: "Written for each byte of sequential writes".to_owned(),
            repeats: format!(
                "{ADL}, 6.4, table 2 (size: RocksDB's writes were mostly 138 bytes, Redis' 315, \
                 IOzone's 1 KiB)"
            ),
            ..of(field, effort, bar, &table_2, PAPER_2)
        },
    ]
}

fn of(
    field: &Field,
    effort: &Effort,
    bar: &ProgressBar,
    jobs: &[(&str, Job)],
    paper: &'static str,
) -> Figure {
    bar.inc_length(jobs.len() as u64);
    let mut lines: Vec<Line> = field.entrants.iter().map(empty).collect();
    for (tick, job) in jobs {
        bar.set_message(format!("Volume: {tick}"));
        for (entrant, line) in field.entrants.iter().zip(&mut lines) {
            line.values.push(ratio(entrant, *job, field.len, effort));
        }
        bar.inc(1);
    }
    lines.retain(|line| line.values.iter().any(Option::is_some));
    let remarks = [
        "Contenders that store to mapped memory count whole cache lines. Those that call the kernel \
         count the bytes that they gave to it (wchar in /proc/self/io). A contender that is not here \
         (libpmemobj, LMDB through its mapping) reports nothing. Work left to the background is counted if it is done within 50 ms \
         after the last write.",
        "mmap + msync and pwrite count what they copy: a disk would write whole pages.",
    ];
    Figure {
        id: "",
        title: String::new(),
        repeats: String::new(),
        along: "bytes of a write",
        up: "bytes written for each byte asked for",
        ticks: jobs.iter().map(|(tick, _)| (*tick).to_owned()).collect(),
        joined: false,
        more_is_better: false,
        lines,
        notes: std::iter::once(paper).chain(remarks).map(str::to_owned).collect(),
    }
}

fn empty(entrant: &Entrant) -> Line {
    Line {
        name: entrant.contender.kind.name.to_owned(),
        source: entrant.contender.kind.source,
        group: entrant.contender.group,
        values: Vec::new(),
    }
}

fn ratio(entrant: &Entrant, job: Job, file: u64, effort: &Effort) -> Option<f64> {
    let subject = &*entrant.subject;
    let data = Data::new(job.len);
    // First finishes the background work of other turns.
    subject.sync();
    std::thread::sleep(effort.settle);
    let before = written(entrant)?;
    let mut script = Script::new(job, &data, file, 0, 0);
    let begun = Instant::now();
    let mut steps = 0;
    while begun.elapsed() < effort.volume || !u64::is_multiple_of(steps, job.sync_every) {
        script.step(subject);
        steps += 1;
    }
    subject.sync();
    std::thread::sleep(effort.settle);
    let bytes = written(entrant)? - before;
    let asked = steps * job.len as u64;
    Script::new(job, &data, file, 0, 0).check(subject, steps, entrant.contender.kind.name);
    // The kernel does not count the stores to a mapping, so a small count is not the volume.
    (bytes > asked / 2).then(|| bytes as f64 / asked as f64)
}

fn written(entrant: &Entrant) -> Option<u64> {
    entrant.subject.written().or_else(given_to_the_kernel)
}

fn given_to_the_kernel() -> Option<u64> {
    let counts = std::fs::read_to_string("/proc/self/io").ok()?;
    counts.lines().find_map(|line| line.strip_prefix("wchar: "))?.trim().parse().ok()
}
