//! The data of a figure before it is drawn.

use super::cell::Times;
use super::field::{Contender, Group};

/// A figure with its table.
pub struct Figure {
    /// Name of its file, without the extension.
    pub id: &'static str,
    pub title: String,
    /// The paper, with its section, figure and parameter.
    pub repeats: String,
    /// Label of the lower edge.
    pub along: &'static str,
    /// Label of the left edge.
    pub up: &'static str,
    pub ticks: Vec<String>,
    /// `true` if values between two ticks are meaningful.
    pub joined: bool,
    /// `true` if larger values are better.
    pub more_is_better: bool,
    pub lines: Vec<Line>,
    pub notes: Vec<String>,
}

/// The line of one contender in a figure.
#[derive(Clone)]
pub struct Line {
    pub name: String,
    /// Origin of its protocol.
    pub source: &'static str,
    pub group: Group,
    /// One for each tick.
    pub values: Vec<Option<f64>>,
}

impl Figure {
    /// Returns the name of its drawing.
    pub fn file_name(&self) -> String {
        format!("{}.svg", self.id)
    }

    /// Returns the value of the contender with `part` in its name, or else in its source.
    pub fn value(&self, part: &str, tick: &str) -> Option<f64> {
        let tick = self.ticks.iter().position(|t| t == tick)?;
        let part = part.to_lowercase();
        let named = |line: &&Line| line.name.to_lowercase().contains(&part);
        let from = |line: &&Line| line.source.to_lowercase().contains(&part);
        let found = self.lines.iter().find(named).or_else(|| self.lines.iter().find(from))?;
        found.values[tick]
    }
}

/// Converts columns of times, one for each tick, to lines of displayed values.
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

/// Formats a size, as in `64 B`, `4 KiB` or `1 MiB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}
