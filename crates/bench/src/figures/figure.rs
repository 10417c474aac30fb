//! What is a figure before it is drawn?

use super::cell::Times;
use super::field::{Contender, Group};

/// A figure with its table.
pub struct Figure {
    /// Of its file, without the ending.
    pub id: &'static str,
    pub title: String,
    /// Which paper, which of its sections and figures, and which parameter.
    pub repeats: String,
    /// What is along the lower edge.
    pub along: &'static str,
    /// What is up the left edge.
    pub up: &'static str,
    pub ticks: Vec<String>,
    /// Whether what lies between two ticks means anything.
    pub joined: bool,
    /// Whether more is better.
    pub more_is_better: bool,
    pub lines: Vec<Line>,
    pub notes: Vec<String>,
}

/// One contender in a figure.
#[derive(Clone)]
pub struct Line {
    pub name: String,
    /// Where its way comes from.
    pub source: &'static str,
    pub group: Group,
    /// One for each tick.
    pub values: Vec<Option<f64>>,
}

impl Figure {
    /// Where it is drawn to.
    pub fn file_name(&self) -> String {
        format!("{}.svg", self.id)
    }

    /// A contender's value, by a part of the name, else by a part of the source.
    pub fn value(&self, part: &str, tick: &str) -> Option<f64> {
        let tick = self.ticks.iter().position(|t| t == tick)?;
        let part = part.to_lowercase();
        let named = |line: &&Line| line.name.to_lowercase().contains(&part);
        let from = |line: &&Line| line.source.to_lowercase().contains(&part);
        let found = self.lines.iter().find(named).or_else(|| self.lines.iter().find(from))?;
        found.values[tick]
    }
}

/// Lines from columns of times, one for each tick, changed to what is shown.
pub fn lines(
    contenders: &[Contender],
    columns: &[Times],
    shown: impl Fn(usize, f64) -> f64,
) -> Vec<Line> {
    let line = |(n, contender): (usize, &Contender)| Line {
        name: contender.kind.name.to_owned(),
        source: contender.kind.source,
        group: contender.group,
        values: (0..).zip(columns).map(|(at, times)| times[n].map(|t| shown(at, t))).collect(),
    };
    contenders
        .iter()
        .enumerate()
        .map(line)
        .filter(|line| !line.values.iter().all(Option::is_none))
        .collect()
}

/// `64 B`, `4 KiB`, `1 MiB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}
