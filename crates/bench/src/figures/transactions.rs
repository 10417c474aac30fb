//! Figures of transactions that change several ranges together.

use super::cell::measure;
use super::effort::Effort;
use super::field::Field;
use super::figure::{Figure, lines, size};
use super::papers::ACUMEN;
use super::script::Job;
use crate::offsets::Order;
use indicatif::ProgressBar;

/// Measures and returns all figures of this module.
pub fn figures(field: &Field, effort: &Effort, bar: &ProgressBar) -> Vec<Figure> {
    let cases = [("transactions-64B", 64), ("transactions-4KiB", 4096)];
    cases.map(|(id, len)| over_ranges(field, effort, bar, id, len)).into()
}

fn over_ranges(
    field: &Field,
    effort: &Effort,
    bar: &ProgressBar,
    id: &'static str,
    len: usize,
) -> Figure {
    let title = format!("One durable transaction over ranges of {}", size(len as u64));
    let ranges = [2, 8, 64];
    let columns: Vec<_> = ranges
        .iter()
        .map(|&parts| {
            bar.set_message(format!("{title}: {parts}"));
            // A transaction has one range in each stripe, at a random place of the stripe.
            measure(field, Job { parts, ..Job::writes(len, Order::Random) }, effort, bar)
        })
        .collect();
    Figure {
        id,
        title,
        repeats: format!(
            "{ACUMEN}, IV-D (several pages in one operation), which gives no figure for it; PMDK's and \
             the databases' transactions. Number of ranges"
        ),
        along: "ranges of a transaction",
        up: "ns for a transaction",
        ticks: ranges.map(|n| n.to_string()).into(),
        joined: true,
        more_is_better: false,
        lines: lines(&field.contenders(), &columns, |_, time| time),
        notes: vec![
            "Ranges are scattered, one in each of as many equal parts of the file. A contender that is not \
             here has no transactions."
                .to_owned(),
        ],
    }
}
