//! `repair`: takes one of the ways that are left for files that an open refuses.

use crate::args::{Common, Repair};
use crate::ask;
use crate::outcome::{Failure, Outcome};
use crate::progress::shown;
use crate::report::Report;
use crate::verdict;
use atomic_mmap::{CloseMode, Decision, Inspection, OnMismatch};

pub fn run(common: &Common, of: &Repair) -> Result<Outcome, Failure> {
    let look = verdict::look_at_closed(common, &of.file)?;
    let mut report = Report::new("repair");
    report.path("file", Some(&look.home));
    verdict::add_row(&mut report, &look);
    let Some(wish) = agreed_wish(of, &look)? else {
        report.flag("repaired", false);
        report.print(common.json)?;
        return Ok(verdict::outcome(&look));
    };
    let file = shown(common.options()).on_mismatch(wish).open(&of.file)?;
    report.bytes("length", file.len());
    // Every program can read a plain file.
    file.close(CloseMode::Spatial)?;
    report.flag("repaired", true);
    // A companion that may be another file's is not removed.
    let companions = [&look.reflection, &look.journal, &look.snapshot_file].into_iter().flatten();
    let stay = companions.filter(|path| path.symlink_metadata().is_ok());
    let stay: Vec<String> = stay.map(|path| path.to_string_lossy().into_owned()).collect();
    let told = if stay.is_empty() { "nothing".to_owned() } else { stay.join(", ") };
    report.add("left_over", stay, told);
    report.print(common.json)?;
    Ok(Outcome::Repaired)
}

/// Returns the way that is left for files that an open refuses, if it is wanted and possible, and
/// the user agrees.
fn agreed_wish(of: &Repair, look: &Inspection) -> Result<Option<OnMismatch>, Failure> {
    let (wish, decision) = match (of.discard, of.trust) {
        (true, _) => (OnMismatch::Discard, look.if_discarded),
        (_, true) => (OnMismatch::Trust, look.if_trusted),
        _ => return Ok(None),
    };
    let is_refused = |decision| matches!(decision, Some(Decision::Refuse(_)));
    let is_possible = is_refused(look.decision) && !is_refused(decision);
    if !is_possible || of.dry_run || !(of.yes || agrees(look, wish)?) {
        return Ok(None);
    }
    Ok(Some(wish))
}

fn agrees(look: &Inspection, wish: OnMismatch) -> Result<bool, Failure> {
    let what = match wish {
        OnMismatch::Discard => {
            "let the companions, and every byte that is only there, count no more"
        }
        _ => "believe the companions, although they do not fit",
    };
    ask::agrees(&format!("{}: {what}", atomic_mmap::shown(&look.home)))
}
