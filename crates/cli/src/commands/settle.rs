//! `settle`: recovers a file, brings all bytes home, and removes the companions.

use crate::args::{Common, File};
use crate::outcome::{Failure, Outcome};
use crate::progress::shown;
use crate::report::Report;
use crate::verdict;
use atomic_mmap::{CloseMode, Decision};

pub fn run(common: &Common, of: &File) -> Result<Outcome, Failure> {
    let look = verdict::look_at_closed(common, &of.file)?;
    let mut report = Report::new("settle");
    report.text("file", Some(look.home.display().to_string()));
    if let Some(decision) = look.decision {
        report.add("was", verdict::name(decision), verdict::meaning(decision));
    }
    // A plain file is at home already. An open would make a pair only to remove it.
    if look.decision != Some(Decision::Fresh) {
        let file = shown(common.options()).open(&of.file)?;
        report.bytes("length", file.len());
        file.close(CloseMode::Spatial)?;
    } else {
        report.bytes("length", look.len);
    }
    let after = common.options().inspect(&of.file)?;
    report.flag("plain", after.decision == Some(Decision::Fresh));
    report.print(common.json)?;
    Ok(Outcome::Ok)
}
