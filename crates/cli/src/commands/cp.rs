//! `cp`: a copy of one state of a file.

use crate::args::{Common, Cp};
use crate::live;
use crate::outcome::{Failure, Outcome};
use crate::place::Place;
use crate::progress::shown;
use crate::report::Report;
use crate::verdict;
use atomic_mmap::{Decision, Error, Inspection};
use std::ops::Range;

/// Reads the file as the next open would recover it, and writes it to a new plain file. The file is
/// not changed. A file in use is busy, unless its process serves copies: see [`live`].
pub fn run(common: &Common, of: &Cp) -> Result<Outcome, Failure> {
    let place = Place::of(&of.to)?;
    // Looked at before it is copied: if the file is repaired in between, the copy has nothing in
    // doubt, and if it is refused from then on, the copy fails.
    let look = of.best_effort.then(|| look(common, of)).transpose()?;
    let is_refused = look.as_ref().is_some_and(|(look, _)| is_refused(look));
    let len = place.fill(|scratch, name| {
        let options = shown(common.options()).read_only(true).best_effort(is_refused);
        match options.open(&of.from) {
            Ok(file) => scratch.inside(|| {
                file.copy_to(name)?;
                Ok(file.len())
            }),
            Err(busy @ Error::Busy { .. }) => {
                Ok(live::copy(&of.from, &|| scratch.make_file(name))?.ok_or(busy)?)
            }
            Err(error) => Err(error.into()),
        }
    })?;
    let mut report = Report::new("cp");
    report.path("from", Some(&of.from));
    report.path("to", Some(&of.to));
    report.bytes("length", len);
    let mut outcome = Outcome::Ok;
    if let Some((look, ranges)) = look {
        let ranges = ranges.iter().map(|range| format!("{}..{}", range.start, range.end));
        let ranges: Vec<String> = ranges.collect();
        let said = if ranges.is_empty() { "nothing".to_owned() } else { ranges.join(", ") };
        report.add("in_doubt", ranges, said);
        outcome = verdict::outcome(&look);
    }
    report.print(common.json)?;
    Ok(outcome)
}

/// Looks at the file, and returns the ranges that are in doubt.
fn look(common: &Common, of: &Cp) -> Result<(Inspection, Vec<Range<u64>>), Failure> {
    let look = common.options().inspect(&of.from)?;
    let ranges = look.doubtful()?;
    Ok((look, ranges))
}

fn is_refused(look: &Inspection) -> bool {
    matches!(look.decision, Some(Decision::Refuse(_)))
}
