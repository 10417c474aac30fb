//! `inspect`: what the files hold, and what an open would do.

use crate::args::{Common, File};
use crate::outcome::{Failure, Outcome};
use crate::report::Report;
use crate::verdict;
use atomic_mmap::SnapshotFound;
use serde_json::{Value, json};
use std::time::UNIX_EPOCH;

/// Prints the findings. The exit code is that of `verify`, so that scripts can tell refusals.
pub fn run(common: &Common, of: &File) -> Result<Outcome, Failure> {
    let look = common.options().inspect(&of.file)?;
    let mut report = Report::new("inspect");
    report.path("file", Some(&look.home));
    let told = match (look.is_open, look.process) {
        (true, Some(process)) => format!("yes, by process {process}"),
        (true, None) => "yes".to_owned(),
        (false, _) => "no".to_owned(),
    };
    report.add("in_use", look.is_open, told);
    report.json("process", look.process);
    verdict::add_row(&mut report, &look);
    report.bytes("length", look.len);
    report.bytes("length_on_disk", look.home_len);
    report.path("reflection_file", look.reflection.as_deref());
    report.path("journal", look.journal.as_deref());
    report.path("snapshot_file", look.snapshot_file.as_deref());
    let (all, told) = snapshots(&look.snapshots);
    report.add("snapshots", all, told);
    report.text("uuid", look.uuid.clone());
    if let Some(session) = look.session {
        report.count("session", session);
    }
    if !look.is_open {
        report.count("lanes_to_recover", look.lanes as u64);
    }
    report.print(common.json)?;
    Ok(verdict::outcome(&look))
}

/// Returns the snapshots as JSON and for people.
fn snapshots(all: &[SnapshotFound]) -> (Value, String) {
    let seconds = |of: &SnapshotFound| {
        of.created.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
    };
    let as_json = all.iter().map(|of| {
        json!({
            "number": of.number,
            "name": of.name,
            "created": seconds(of),
            "length": of.len,
        })
    });
    let told: Vec<String> = all.iter().map(|of| format!("{:?} ({})", of.name, of.number)).collect();
    let told = if told.is_empty() { "none".to_owned() } else { told.join(", ") };
    (as_json.collect(), told)
}
