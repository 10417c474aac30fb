//! The findings of the lab: the table and the last line.

use crate::part::Outcome;
use std::fmt::Write as _;
use std::time::Duration;

/// The findings of all parts.
#[derive(Default, Debug)]
pub struct Report {
    rows: Vec<(Outcome, Duration)>,
    seed: u64,
}

impl Report {
    /// Creates an empty report of a run with this seed.
    pub fn new(seed: u64) -> Report {
        Report { rows: Vec::new(), seed }
    }

    /// Adds a part.
    pub fn add(&mut self, outcome: Outcome, took: Duration) {
        self.rows.push((outcome, took));
    }

    /// Returns all violations, each with the name of its part.
    pub fn violations(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.rows.iter().flat_map(|(row, _)| row.violations.iter().map(|v| (row.part, v.as_str())))
    }

    /// Returns `true` if there are no violations and every planted bug was found.
    pub fn is_clean(&self) -> bool {
        self.rows.iter().all(|(row, _)| row.violations.is_empty() && row.killed == row.planted)
    }

    /// Returns the table.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let width = self.rows.iter().map(|(row, _)| row.part.len()).max().unwrap_or(0).max(4);
        let _ = writeln!(
            text,
            "{:width$}  {:>6}  {:>12}  {:>10}  runs (seed {})",
            "part", "time", "planted bugs", "violations", self.seed
        );
        for (row, took) in &self.rows {
            let planted = match row.planted {
                0 => "-".to_owned(),
                planted => format!("{} of {planted}", row.killed),
            };
            let runs = match &row.skipped {
                Some(why) => format!("skipped: {why}"),
                None => row.runs.clone(),
            };
            let _ = writeln!(
                text,
                "{:width$}  {:>4} s  {planted:>12}  {:>10}  {runs}",
                row.part,
                took.as_secs(),
                row.violations.len(),
            );
        }
        text
    }

    /// Returns the last line.
    pub fn summary(&self) -> String {
        let sum = |of: fn(&Outcome) -> u64| self.rows.iter().map(|(row, _)| of(row)).sum::<u64>();
        format!(
            "lab: {} recoveries, {} kills, {} schedules, {} mutants killed of {}, {} violations",
            sum(|row| row.recoveries),
            sum(|row| row.kills),
            sum(|row| row.schedules),
            sum(|row| row.killed),
            sum(|row| row.planted),
            sum(|row| row.violations.len() as u64),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_sums_up_and_a_missed_bug_is_not_clean() {
        let mut report = Report::new(1);
        let one = Outcome { recoveries: 5, killed: 2, planted: 2, ..Outcome::of("one") };
        let two = Outcome { kills: 7, killed: 0, planted: 1, ..Outcome::of("two") };
        report.add(one, Duration::from_secs(1));
        assert!(report.is_clean());
        report.add(two, Duration::from_secs(1));
        assert!(!report.is_clean());
        assert_eq!(
            report.summary(),
            "lab: 5 recoveries, 7 kills, 0 schedules, 2 mutants killed of 3, 0 violations"
        );
        assert!(report.table().contains("0 of 1"));
    }
}
