//! The cost of snapshots, against the same work without them: the table, and
//! `target/bench/snapshots.json`.
//!
//! | file | contents |
//! |---|---|
//! | `automatic` | writes to a file that takes snapshots by itself |
//! | `touch` | the first write to a page after a snapshot, against a later one |
//! | `seal` | the time of a snapshot of a file of 100 GiB |
//! | `read` | reads of a snapshot, against reads of the present |
//! | `sums` | writes and reads of a file with page sums |
//! | `space` | the bytes that a snapshot holds for each changed byte |
//!
//! A row is of [`Medium::Dax`] unless its name begins with another medium. May import `measure`,
//! `offsets`, `scratch`, `subject`, `ours`, `ratios`.

mod automatic;
mod read;
mod seal;
mod space;
mod sums;
mod touch;

use crate::measure::Effort;
use crate::ratios::{Found, Group, Options, row, run_groups};
use atomic_mmap::Medium;
use std::io;

/// Measures everything, and prints the table.
///
/// # Errors
/// Returns an error of the system or the crate.
pub fn measure(options: &Options) -> io::Result<Found> {
    let effort = Effort::new(options.quick);
    let quick = options.quick;
    let groups: [Group<'_>; 13] = [
        ("auto", Box::new(|s, f| automatic::measure(quick, Medium::Dax, s, f))),
        ("auto_ram", Box::new(|s, f| automatic::measure(quick, Medium::Ram, s, f))),
        ("touch", Box::new(|s, f| touch::measure(&effort, Medium::Dax, s, f))),
        ("touch_ram", Box::new(|s, f| touch::measure(&effort, Medium::Ram, s, f))),
        ("seal", Box::new(|s, f| seal::measure(Medium::Ram, s, f))),
        ("seal_dax", Box::new(|s, f| seal::measure(Medium::Dax, s, f))),
        ("snapshot_read", Box::new(|s, f| read::measure(&effort, Medium::Dax, s, f))),
        ("snapshot_read_ram", Box::new(|s, f| read::measure(&effort, Medium::Ram, s, f))),
        ("sums", Box::new(|s, f| sums::measure(&effort, Medium::Dax, s, f))),
        ("sums_ram", Box::new(|s, f| sums::measure(&effort, Medium::Ram, s, f))),
        ("sums_page_cache", Box::new(|_, f| sums::on_disk(&effort, f))),
        ("space", Box::new(|s, f| space::measure(Medium::Dax, s, f))),
        ("space_ram", Box::new(|s, f| space::measure(Medium::Ram, s, f))),
    ];
    run_groups(options, &groups)
}
