//! SQLite on the VFS of this crate, and on its own: the table, and `target/bench/sqlite.json`.
//!
//! All contenders use one build of SQLite, one file system and one run. They take turns with equal
//! transactions, and each ratio is a median over the rounds. A turn is a time, long enough for
//! checkpoints: shorter turns would leave these out of the median. Each row names what a power loss
//! leaves of a transaction. The limit in the same turns is one write with `O_DSYNC` on the disk,
//! and SQLite without journal and sync in memory.
//!
//! | file | contents |
//! |---|---|
//! | `modes` | the contenders |
//! | `contest` | the turns of all contenders, and their rows in the table |
//! | `tpcc` | TPC-C |
//! | `ycsb` | YCSB A to F |
//! | `rows` | updates of 1 KiB by page size, and small transactions as Mobibench has them |
//! | `readers` | updates beside a thread that reads |
//! | `volume` | bytes written to the device |
//! | `alone` | one contender, for a profiler |
//! | `speedtest` | SQLite's `speedtest1` |

pub mod alone;
mod contest;
pub mod modes;
mod readers;
mod rows;
mod speedtest;
mod tpcc;
mod volume;
mod ycsb;

use crate::ratios::{Found, Options};
use crate::scratch::Scratch;
use contest::Contest;
use modes::Place;
use std::io;

/// Measures everything, and prints the table. Files on the disk lie in the temporary folder, unless
/// the options name another one; those in memory in `/dev/shm`.
///
/// # Errors
/// Returns an error of the system, of SQLite, or of the crate.
pub fn measure(options: &Options) -> io::Result<Found> {
    if option_env!("LIBSQLITE3_FLAGS").is_none_or(|flags| !flags.contains("HAVE_FDATASYNC")) {
        let message = "SQLite was built without fdatasync, which every distribution has: start \
                       cargo in the repository, which sets LIBSQLITE3_FLAGS";
        return Err(io::Error::other(message));
    }
    println!("SQLite {}", rusqlite::version());
    let disk = options.disk()?;
    let mut found = Found::default();
    let quick = options.quick;
    type Group<'a> = (&'a str, Box<dyn Fn(&Scratch, &mut Found) -> io::Result<()> + 'a>);
    let on = |place| Contest::new(place, quick);
    let groups: [Group<'_>; 11] = [
        ("tpcc", Box::new(move |s, f| tpcc::run::measure(&on(Place::Disk), s, f))),
        ("tpcc_pmem", Box::new(move |s, f| tpcc::run::measure(&on(Place::Pmem), s, f))),
        ("update", Box::new(move |s, f| rows::updates(&on(Place::Disk), s, f))),
        ("update_pmem", Box::new(move |s, f| rows::updates(&on(Place::Pmem), s, f))),
        ("pages", Box::new(move |s, f| rows::page_sizes(&on(Place::Disk).halved(), s, f))),
        ("small", Box::new(move |s, f| rows::small(&on(Place::Disk).halved(), s, f))),
        ("readers", Box::new(move |s, f| readers::measure(&on(Place::Disk).halved(), s, f))),
        ("readers_pmem", Box::new(move |s, f| readers::measure(&on(Place::Pmem), s, f))),
        ("ycsb", Box::new(move |s, f| ycsb::measure(&on(Place::Disk).halved(), s, f))),
        ("bytes", Box::new(move |s, f| volume::measure(quick, s, f))),
        ("speedtest1", Box::new(move |s, f| speedtest::measure(quick, s, f))),
    ];
    for (name, group) in &groups {
        if options.only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
            let scratch = match name.ends_with("pmem") {
                true => Scratch::new(None)?,
                false => Scratch::new(Some(&disk))?,
            };
            group(&scratch, &mut found)?;
        }
    }
    Ok(found)
}
