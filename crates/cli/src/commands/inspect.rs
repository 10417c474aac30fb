//! `inspect`: what the files hold, and what an open would do.

use crate::args::{Common, File};
use crate::outcome::{Failure, Outcome};
use crate::report::Report;
use crate::verdict;

/// Prints the findings. The exit code is that of `verify`, so that scripts can tell refusals.
pub fn run(common: &Common, of: &File) -> Result<Outcome, Failure> {
    let look = common.options().inspect(&of.file)?;
    let mut report = Report::new("inspect");
    report.text("file", Some(look.home.display().to_string()));
    report.flag("in_use", look.is_open);
    verdict::add_row(&mut report, &look);
    report.bytes("length", look.len);
    report.bytes("length_on_disk", look.home_len);
    let path = |path: &Option<std::path::PathBuf>| path.as_ref().map(|p| p.display().to_string());
    report.text("reflection_file", path(&look.reflection));
    report.text("journal", path(&look.journal));
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
