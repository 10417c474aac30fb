//! `watch`: a line each interval.

use crate::args::{Common, Watch};
use crate::commands::heatmap::{changed, words};
use crate::commands::stats::companions_allocated;
use crate::outcome::{Failure, Outcome};
use crate::report::{human, json_line, print};
use crate::verdict;
use serde_json::json;
use std::time::Duration;

/// Prints what has moved between the two files since the last line. Ends after `--count` lines, by
/// SIGINT, or when the pipe is closed. The exit code tells what the last look has found.
pub fn run(common: &Common, of: &Watch) -> Result<Outcome, Failure> {
    let mut look = common.options().inspect(&of.file)?;
    let mut before = words(&look)?;
    let mut n = 0;
    while of.count.is_none_or(|count| n < count) {
        std::thread::sleep(Duration::from_secs_f64(of.interval));
        let (uuid, session) = (look.uuid.clone(), look.session);
        look = common.options().inspect(&of.file)?;
        if look.uuid != uuid {
            before.clear();
        }
        let now = words(&look)?;
        let (mut pages, mut slices) = (0_u64, 0_u64);
        changed(&before, &now, |_, moved| {
            pages += 1;
            slices += u64::from(moved.count_ones());
        });
        let there: u64 = now.values().map(|slices| u64::from(slices.count_ones()) * 64).sum();
        let allocated = companions_allocated(&look)?;
        let is_new = look.session != session;
        let line = if common.json {
            json_line(&json!({
                "schema": crate::report::SCHEMA,
                "command": "watch",
                "in_use": look.is_open,
                "decision": look.decision.map(verdict::name),
                "length": look.len,
                "session": look.session,
                "changed_pages": pages,
                "changed_bytes": slices * 64,
                "reflected_bytes": there,
                "companions_allocated_bytes": allocated,
            }))
        } else {
            let state = verdict::state(&look);
            let opened = if is_new { ", opened or closed" } else { "" };
            format!(
                "{state}{opened}: {} long, {} in {pages} pages changed, {} in the reflection file, \
                 {} of disk in companions\n",
                human(look.len),
                human(slices * 64),
                human(there),
                human(allocated)
            )
        };
        if !print(line.as_bytes())? {
            break;
        }
        before = now;
        n += 1;
    }
    Ok(verdict::outcome(&look))
}
