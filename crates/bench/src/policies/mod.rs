//! Deployment by policy, in the background and within a budget: the table, and
//! `target/bench/policies.json`.
//!
//! | file | contents |
//! |---|---|
//! | `fill` | new files that are written in a row, by the time of allocation |
//! | `mixes` | mixes of reads and writes under each policy |
//! | `beside` | mixes and YCSB beside the baselines |
//! | `space` | hot spots within a budget, and the storage of sparse writes |
//! | `tail` | percentiles of each policy beside the raw copy: `bench -- tail` |
//!
//! May import `measure`, `offsets`, `scratch`, `subject`, `ours`, `baselines`, `ratios`, `figures`.

mod beside;
mod fill;
mod mixes;
mod space;
pub mod tail;

use crate::measure::Effort;
use crate::ratios::{Found, Group, Options, row, run_groups};
use atomic_mmap::{DeployPolicy, Medium};
use std::io;

/// The policies, by their names in the table.
const POLICIES: [(&str, DeployPolicy); 4] = [
    ("lazy", DeployPolicy::Lazy),
    ("eager", DeployPolicy::Eager),
    ("manual", DeployPolicy::Manual),
    ("adaptive", DeployPolicy::Adaptive),
];

/// Measures everything, and prints the table.
///
/// # Errors
/// Returns an error of the system or the crate.
pub fn measure(options: &Options) -> io::Result<Found> {
    let effort = Effort::new(options.quick);
    let quick = options.quick;
    let groups: [Group<'_>; 8] = [
        ("mixes", Box::new(|s, f| mixes::measure(&effort, Medium::Dax, s, f))),
        ("mixes_ram", Box::new(|s, f| mixes::measure(&effort, Medium::Ram, s, f))),
        ("beside", Box::new(|s, f| beside::mixes(&effort, s, quick, f))),
        ("ycsb", Box::new(|_, f| beside::page_store(quick, f))),
        ("fill_ram", Box::new(|s, f| fill::measure(Medium::Ram, s, quick, f))),
        ("budget", Box::new(|s, f| space::hot_spots(&effort, Medium::Dax, s, f))),
        ("sparse_ram", Box::new(|s, f| space::sparse(Medium::Ram, s, f))),
        ("sparse", Box::new(|_, f| space::sparse_on_disk(f))),
    ];
    run_groups(options, &groups)
}
