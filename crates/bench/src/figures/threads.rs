//! Figures with several threads, each in its own range.

use super::effort::Effort;
use super::field::Field;
use super::figure::{Figure, size};
use super::micro::{throughput_figure, throughputs};
use super::papers::{LIBNVMMIO, MGSP, RMMIO};
use super::script::Job;
use crate::offsets::Order;
use indicatif::ProgressBar;

/// Measures and returns all figures of this module.
pub fn figures(field: &Field, effort: &Effort, bar: &ProgressBar) -> Vec<Figure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mgsp = format!("{MGSP}, IV-C, figure 10");
    let cases = [
        ("threads-1KiB-random", 1024, Order::Random, mgsp.clone()),
        (
            "threads-4KiB-random",
            4096,
            Order::Random,
            format!("{mgsp}; {LIBNVMMIO}, 4.2.3, figure 10 (shared file)"),
        ),
        (
            "threads-4KiB-sequential",
            4096,
            Order::Sequential,
            format!("{RMMIO}, IV-C, figures 10a and 10c; {mgsp}"),
        ),
    ];
    let figure = |(id, len, order, papers): (&'static str, usize, Order, String)| {
        let how = if order == Order::Random { "Random" } else { "Sequential" };
        let title = format!("{how} durable writes of {} by threads", size(len as u64));
        let job =
            |threads: usize| (threads.to_string(), Job { threads, ..Job::writes(len, order) });
        let jobs = [1, 2, 4].map(job);
        Figure {
            repeats: format!("{papers} (threads in one file)"),
            notes: vec![format!(
                "This machine has {cores} cores: more threads than that take turns. All threads \
                 together; those that keep a lock for all writers cannot gain."
            )],
            ..throughputs(field, effort, bar, &jobs, throughput_figure(id, title, "threads"))
        }
    };
    cases.map(figure).into()
}
