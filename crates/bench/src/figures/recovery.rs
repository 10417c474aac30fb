//! Figures of recovery: the time to open a file after its process was killed.

use super::cell::median;
use super::death::Death;
use super::effort::Effort;
use super::field::{Contender, Group};
use super::figure::{Figure, Line, size};
use super::papers::{ADL, MGSP};
use crate::ours::{OURS, Ours};
use crate::scratch::Scratch;
use atomic_mmap::{CloseMode, Medium};
use indicatif::ProgressBar;
use std::io;
use std::path::Path;
use std::time::Instant;

/// Number of changed pages in files of all sizes.
const CHANGED: u64 = 256;
/// Number of changed pages in the sparse file. It is small, since each page takes a chunk of space.
const SPARSE_CHANGED: u64 = 64;

/// Measures and returns all figures of this module.
pub fn figures(
    contenders: &[Contender],
    base: Option<&Path>,
    effort: &Effort,
    bar: &ProgressBar,
) -> io::Result<Vec<Figure>> {
    let changed = |len: u64| CHANGED.min(len / 4096);
    let sizes: Vec<_> =
        effort.recovered_files.iter().map(|&len| (size(len), len, changed(len))).collect();
    let file = effort.recovered_files.iter().copied().max().unwrap_or(0);
    // Not the largest file for a contender that must fill many pages.
    let file = file.min(64 << 20).max(effort.changed_pages.iter().max().map_or(0, |n| n * 4096));
    let pages: Vec<_> = effort.changed_pages.iter().map(|&n| (n.to_string(), file, n)).collect();
    let mgsp = format!(
        "{MGSP}, III, \"Close and Recovery\" (186 ms for 1 GiB, of which 153 write 48 000 logs"
    );
    let by_size = Figure {
        id: "recovery-file-size",
        title: format!("Opening after the process was killed, {CHANGED} pages changed"),
        repeats: format!(
            "{mgsp} back); {ADL}, 6.6 (mounting takes as long as without ADL). Size of the file"
        ),
        along: "bytes of the file",
        ..deaths(contenders, base, effort, bar, &sizes)?
    };
    let by_pages = Figure {
        id: "recovery-changed-pages",
        title: format!("Opening after the process was killed, {}", size(file)),
        repeats: format!("{mgsp} back). Number of pages changed before the death"),
        along: "changed pages",
        ..deaths(contenders, base, effort, bar, &pages)?
    };
    Ok(vec![by_size, by_pages, sparse(base, effort, bar)?])
}

/// Measures the milliseconds to open after a kill. Only this crate has extra lines for clean
/// openings.
fn deaths(
    contenders: &[Contender],
    base: Option<&Path>,
    effort: &Effort,
    bar: &ProgressBar,
    cells: &[(String, u64, u64)],
) -> io::Result<Figure> {
    let mut lines = Vec::new();
    let mut torn = Vec::new();
    // A limit recovers nothing.
    for contender in contenders.iter().filter(|contender| contender.group != Group::Limit) {
        let mut line = Line {
            name: contender.kind.name.to_owned(),
            source: contender.kind.source,
            group: contender.group,
            values: Vec::new(),
        };
        let mut clean = Line { name: format!("{}, clean", line.name), ..line.clone() };
        bar.inc_length(cells.len() as u64);
        for (tick, len, pages) in cells {
            bar.set_message(format!("{} dies: {tick}", contender.kind.name));
            let (mut after, mut without) = (Vec::new(), Vec::new());
            for _ in 0..effort.deaths {
                let times = one_death(contender, base, *len, *pages)?;
                after.push(times.after_death);
                without.push(times.clean);
                if !times.whole && !torn.contains(&contender.kind.name) {
                    torn.push(contender.kind.name);
                }
            }
            line.values.push(median(after));
            clean.values.push(median(without));
            bar.inc(1);
        }
        lines.push(line);
        if contender.group == Group::Ours {
            lines.push(clean);
        }
    }
    let mut notes = vec![
        "The time until 64 bytes have been read. A child wrote everything, then the changed pages, over \
         and over, until it was killed; each must be whole, and is looked at."
            .to_owned(),
    ];
    if !torn.is_empty() {
        notes.push(format!("Torn pages, which their kernel calls allow: {}.", torn.join(", ")));
    }
    Ok(Figure {
        id: "",
        title: String::new(),
        repeats: String::new(),
        along: "",
        up: "ms to open and read",
        ticks: cells.iter().map(|(tick, ..)| tick.clone()).collect(),
        joined: true,
        more_is_better: false,
        lines,
        notes,
    })
}

struct Times {
    after_death: f64,
    clean: f64,
    whole: bool,
}

fn milliseconds(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1000.0
}

fn one_death(
    contender: &Contender,
    base: Option<&Path>,
    len: u64,
    pages: u64,
) -> io::Result<Times> {
    let scratch = Scratch::new(base)?;
    let kind = contender.kind;
    let death = Death { kind, folder: scratch.path(), len, pages, fill: true };
    death.happen()?;
    let open = || {
        let begun = Instant::now();
        let subject = (kind.open)(scratch.path(), len)?;
        subject.read(&mut [0; 64], 0);
        Ok::<_, io::Error>((subject, milliseconds(begun)))
    };
    let (subject, after_death) = open()?;
    let whole = death.check(&*subject);
    let may_tear = kind.source.contains("not atomic");
    assert!(whole || may_tear, "{}: a page is torn after a death", kind.name);
    drop(subject);
    let (_, clean) = open()?;
    Ok(Times { after_death, clean, whole })
}

fn sparse(base: Option<&Path>, effort: &Effort, bar: &ProgressBar) -> io::Result<Figure> {
    let (mut after_death, mut fast, mut spatial) = (Vec::new(), Vec::new(), Vec::new());
    let rounds = effort.rounds.max(3);
    bar.inc_length(rounds as u64);
    bar.set_message("a large sparse file");
    for _ in 0..rounds {
        let scratch = Scratch::new(base)?;
        let (folder, len) = (scratch.path(), effort.sparse);
        let death = Death { kind: OURS, folder, len, pages: SPARSE_CHANGED, fill: false };
        death.happen()?;
        let open = |times: &mut Vec<f64>| {
            let begun = Instant::now();
            let file = Ours::open(folder, len, Medium::Dax)?;
            times.push(milliseconds(begun));
            Ok::<_, io::Error>(file)
        };
        let file = open(&mut after_death)?;
        assert!(death.check(&file), "a page is torn after a death");
        file.0.close(CloseMode::Fast).map_err(io::Error::other)?;
        let file = open(&mut fast)?;
        file.0.close(CloseMode::Spatial).map_err(io::Error::other)?;
        open(&mut spatial)?.0.close(CloseMode::Spatial).map_err(io::Error::other)?;
        bar.inc(1);
    }
    let values = vec![median(after_death), median(fast), median(spatial)];
    let line = Line { name: OURS.name.to_owned(), source: OURS.source, group: Group::Ours, values };
    Ok(Figure {
        id: "open-sparse",
        title: format!("Opening a sparse file of {}", size(effort.sparse)),
        repeats: format!(
            "{MGSP}, III, \"Close and Recovery\" (the worst case there within a second, since the logs are \
             no longer than the file). Size of the file, a hundred times as large"
        ),
        along: "how it was closed",
        up: "ms to open",
        ticks: ["process killed", "closed (fast)", "closed (spatial)"].map(str::to_owned).into(),
        joined: false,
        more_is_better: false,
        lines: vec![line],
        notes: vec![format!(
            "{SPARSE_CHANGED} pages spread over the file were being changed. After a spatial close there is no \
             reflection file: opening creates it."
        )],
    })
}
