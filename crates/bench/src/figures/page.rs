//! The page with all figures, their tables, the machine and the papers' ratios.

use super::draw::number;
use super::effort::Effort;
use super::field::{Contender, Group};
use super::figure::Figure;
use super::papers::CLAIMS;
use crate::scratch::Scratch;
use std::fmt::{self, Write};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

const STYLE: &str = "body{font:15px/1.45 sans-serif;max-width:1220px;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:.8em 0;font-size:13px}\
th,td{padding:.2em .7em;border-bottom:1px solid #ddd;text-align:right;vertical-align:top}\
th:first-child,td:first-child,td.t{text-align:left}tr.ours{background:#fdecec;font-weight:bold}\
svg{max-width:100%;height:auto}small{color:#777;font-weight:normal}h2{margin-top:2.2em}";

/// The contents of the page other than the figures.
pub struct Facts<'a> {
    pub contenders: &'a [Contender],
    pub absent: &'a [(&'static str, String)],
    pub effort: &'a Effort,
    pub took: Duration,
    pub base: Option<&'a Path>,
}

/// Returns the page as HTML, with the drawings in it.
///
/// # Errors
/// Returns errors of the system about the machine.
pub fn html(figures: &[(Figure, String)], facts: &Facts<'_>) -> io::Result<String> {
    let machine = machine(facts)?;
    let mut page = String::new();
    write_page(&mut page, figures, facts, &machine).map_err(io::Error::other)?;
    Ok(page)
}

fn write_page(
    page: &mut String,
    figures: &[(Figure, String)],
    facts: &Facts<'_>,
    machine: &[(&str, String)],
) -> fmt::Result {
    write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>atomic-mmap: the papers' figures</title><style>{STYLE}</style></head><body>\n\
         <h1>The papers' figures, on one machine in one run</h1>\n<table>\n"
    )?;
    for (what, value) in machine {
        writeln!(page, "<tr><td>{what}</td><td class=\"t\">{}</td></tr>", escaped(value))?;
    }
    page.push_str("</table>\n");
    page.push_str(
        "<p>Each contender has the same offsets and bytes, was written to in full before the clock started, and \
         takes turns with all others; values are medians over the rounds, and what was written is read back \
         and compared. Absolute times belong to this machine. In brackets: the value divided by \
         atomic-mmap's.</p>\n",
    );
    write_claims(page, figures)?;
    write_contenders(page, facts)?;
    page.push_str("<h2>The figures</h2>\n<ul>\n");
    for (figure, _) in figures {
        writeln!(page, "<li><a href=\"#{}\">{}</a></li>", figure.id, escaped(&figure.title))?;
    }
    page.push_str("</ul>\n");
    for (figure, drawing) in figures {
        write_figure(page, figure, drawing)?;
    }
    page.push_str("</body></html>\n");
    Ok(())
}

fn write_figure(page: &mut String, figure: &Figure, drawing: &str) -> fmt::Result {
    let title = escaped(&figure.title);
    writeln!(page, "<h2 id=\"{}\">{title}</h2>", figure.id)?;
    writeln!(page, "<p>After {}.</p>\n{drawing}", escaped(&figure.repeats))?;
    let direction = if figure.more_is_better { "more is better" } else { "less is better" };
    write!(page, "<table>\n<tr><th>{} ({direction})</th>", escaped(figure.up))?;
    for tick in &figure.ticks {
        write!(page, "<th>{}</th>", escaped(tick))?;
    }
    page.push_str("</tr>\n");
    let ours = figure.lines.iter().find(|line| line.group == Group::Ours);
    for line in &figure.lines {
        let is_ours = ours.is_some_and(|ours| ours.name == line.name);
        let class = if is_ours { " class=\"ours\"" } else { "" };
        write!(page, "<tr{class}><td>{}</td>", escaped(&line.name))?;
        for (at, value) in line.values.iter().enumerate() {
            let Some(value) = value else {
                page.push_str("<td></td>");
                continue;
            };
            write!(page, "<td>{}", number(*value))?;
            if let Some(base) = ours.and_then(|ours| ours.values[at])
                && !is_ours
            {
                write!(page, " <small>({:.2})</small>", value / base)?;
            }
            page.push_str("</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
    for note in &figure.notes {
        writeln!(page, "<p><small>{}</small></p>", escaped(note))?;
    }
    Ok(())
}

fn write_claims(page: &mut String, figures: &[(Figure, String)]) -> fmt::Result {
    page.push_str(
        "<h2>The papers' own ratios</h2>\n<table>\n<tr><th>paper</th><th>what</th><th>there</th>\
         <th>the same pair here</th><th>atomic-mmap to the slower one</th>\
         <th>why a fair comparison differs</th></tr>\n",
    );
    for claim in CLAIMS {
        let (pair, ours) = claim.measured(figures.iter().map(|(figure, _)| figure));
        let shown = |ratio: Option<f64>| {
            ratio.map_or_else(|| "not measured".to_owned(), |ratio| format!("{ratio:.2}"))
        };
        writeln!(
            page,
            "<tr><td>{}</td><td class=\"t\">{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td class=\"t\">{}</td></tr>",
            escaped(claim.place),
            escaped(claim.pair),
            claim.ratio,
            shown(pair),
            shown(ours),
            escaped(claim.fair),
        )?;
    }
    page.push_str(
        "</table>\n<p>Throughputs, as above. Acumen is stood for by this crate, which goes on where it \
         ends. The papers' systems are compact baselines here, with this crate's own copies and drains, and \
         no contender is slowed down to meet a paper.</p>\n",
    );
    Ok(())
}

fn write_contenders(page: &mut String, facts: &Facts<'_>) -> fmt::Result {
    page.push_str("<h2>Contenders</h2>\n<table>\n");
    for Contender { kind, .. } in facts.contenders {
        let durable = if kind.durable_writes {
            "durable when the write returns"
        } else {
            "durable when the sync returns"
        };
        writeln!(
            page,
            "<tr><td>{}</td><td class=\"t\">{}</td><td class=\"t\">{durable}</td></tr>",
            escaped(kind.name),
            escaped(kind.source)
        )?;
    }
    for (name, why) in facts.absent {
        let (name, why) = (escaped(name), escaped(why));
        writeln!(
            page,
            "<tr><td>{name}</td><td class=\"t\" colspan=\"2\">not measured: {why}</td></tr>"
        )?;
    }
    if !cfg!(feature = "peers") {
        page.push_str(
            "<tr><td>SQLite, LMDB, redb</td><td class=\"t\" colspan=\"2\">not measured: built without \
             the feature peers</td></tr>\n",
        );
    }
    page.push_str("</table>\n");
    Ok(())
}

fn machine(facts: &Facts<'_>) -> io::Result<Vec<(&'static str, String)>> {
    let first = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let processor = first("/proc/cpuinfo")
        .lines()
        .find_map(|line| Some(line.strip_prefix("model name")?.split_once(": ")?.1.to_owned()))
        .unwrap_or_else(|| "unknown".to_owned());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let features = if cfg!(feature = "peers") { " --features peers" } else { "" };
    Ok(vec![
        ("processor", format!("{processor}, {cores} cores")),
        ("kernel", first("/proc/sys/kernel/osrelease")),
        ("medium", medium(facts.base)?),
        (
            "other work",
            format!("load averages at the end, this run in them: {}", first("/proc/loadavg")),
        ),
        ("date", date(SystemTime::now())),
        (
            "effort",
            format!(
                "{}: files of {} MiB, {} rounds of {} ms; took {} s",
                facts.effort.name,
                facts.effort.file >> 20,
                facts.effort.rounds,
                facts.effort.turn.as_secs_f64() * 1000.0,
                facts.took.as_secs()
            ),
        ),
        ("command", format!("cargo run --release -p bench{features} -- {}", arguments.join(" "))),
    ])
}

/// Returns the file system of the files.
fn medium(base: Option<&Path>) -> io::Result<String> {
    let scratch = Scratch::new(base)?;
    let folder = std::fs::canonicalize(scratch.path())?;
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let mount = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?, words.next()?))
        })
        .filter(|(place, _)| folder.starts_with(place))
        .max_by_key(|(place, _)| place.len());
    let (place, kind) = mount.unwrap_or(("?", "unknown"));
    let stands_in = if kind == "tmpfs" {
        "tmpfs, which stands in for persistent memory: flushes and drains are made, bytes go to DRAM"
    } else {
        kind
    };
    Ok(format!("{stands_in} (at {place})"))
}

/// Formats the day and the time, in UTC.
fn date(now: SystemTime) -> String {
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (mut year, mut day) = (1970, days);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02} UTC", day + 1)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let at = |seconds| date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01 00:00 UTC");
        assert_eq!(at(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(at(1_735_689_599), "2024-12-31 23:59 UTC");
    }
}
