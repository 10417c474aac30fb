//! The cost of practical tasks: small files, documents, an index and a log, against the usual ways
//! to do them. The table, and `target/bench/practical.json`.
//!
//! | file | contents |
//! |---|---|
//! | `documents` | a small file, and documents that are replaced, against rename |
//! | `index` | an index of numbers, against a plain mapping |
//! | `log` | a record appended to a log, against a write with `O_DSYNC` |
//! | `files` | the disk space of a small file, and many open files |
//! | `scan` | a file that is not in memory, read in order |

mod documents;
mod files;
mod index;
mod log;
mod scan;

use crate::measure::Effort;
use crate::ratios::{Found, Options};
use crate::scratch::Scratch;
use std::io;
use std::time::Duration;

/// Measures everything, and prints the table. The files lie in the temporary folder, unless the
/// options name another one: these tasks are about disks.
///
/// # Errors
/// Returns an error of the system or the crate.
pub fn measure(options: &Options) -> io::Result<Found> {
    // A barrier takes a millisecond: a turn is a few of them.
    let turn = Duration::from_millis(10);
    let effort = Effort { turn, warm_up: 1, ..Effort::new(options.quick) };
    let mut found = Found::default();
    type Group<'a> = (&'a str, Box<dyn Fn(&Scratch, &mut Found) -> io::Result<()> + 'a>);
    let groups: [Group<'_>; 6] = [
        ("small", Box::new(|s, f| documents::small_file(&effort, s, f))),
        ("documents", Box::new(|s, f| documents::replace(&effort, s, f))),
        ("index", Box::new(|s, f| index::measure(&effort, s, f))),
        ("log", Box::new(|s, f| log::append(&effort, s, f))),
        ("files", Box::new(files::measure)),
        ("scan", Box::new(|s, f| scan::measure(options.quick, s, f))),
    ];
    let folder = options.disk()?;
    for (name, group) in &groups {
        if options.only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
            let scratch = Scratch::new(Some(&folder))?;
            group(&scratch, &mut found)?;
        }
    }
    Ok(found)
}
