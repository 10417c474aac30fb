//! `settle`: recovers a file, brings all bytes home, and removes the companions.

use crate::args::{Common, Settle};
use crate::outcome::{Failure, Outcome};
use crate::progress::shown;
use crate::report::Report;
use crate::verdict;
use atomic_mmap::{CloseMode, Closed, Decision};

pub fn run(common: &Common, of: &Settle) -> Result<Outcome, Failure> {
    let look = verdict::look_at_closed(common, &of.file)?;
    let count = look.snapshots.len();
    if count > 0 && !of.drop_snapshots {
        let what = "and a plain file has none; drop them with --drop-snapshots";
        let message =
            format!("{}: the file has {count} snapshots, {what}", atomic_mmap::shown(&look.home));
        return Err(Failure::Usage(message));
    }
    let mut report = Report::new("settle");
    report.path("file", Some(&look.home));
    if let Some(decision) = look.decision {
        report.add("was", verdict::name(decision), verdict::meaning(decision));
    }
    // A plain file is at home already. An open would make a pair only to remove it.
    if look.decision != Some(Decision::Fresh) {
        let file = shown(common.options()).open(&of.file)?;
        report.bytes("length", file.len());
        for snapshot in file.snapshots() {
            file.drop_snapshot(&snapshot.name)?;
        }
        if let Closed::WithCompanions(why) = file.close(CloseMode::Spatial)? {
            return Err(Failure::File(why));
        }
    } else {
        report.bytes("length", look.len);
    }
    report.count("dropped_snapshots", count as u64);
    let after = common.options().inspect(&of.file)?;
    report.flag("plain", after.decision == Some(Decision::Fresh));
    report.print(common.json)?;
    Ok(Outcome::Ok)
}
