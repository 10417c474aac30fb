//! `repair`: takes one of the ways that are left for files that an open refuses.

use crate::args::{Common, Repair};
use crate::outcome::{Failure, Outcome};
use crate::progress::shown;
use crate::report::{Report, tell};
use crate::verdict;
use atomic_mmap::{CloseMode, Decision, Error, Inspection, OnMismatch};

pub fn run(common: &Common, of: &Repair) -> Result<Outcome, Failure> {
    let look = common.options().inspect(&of.file)?;
    if look.is_open {
        return Err(Error::Busy { path: look.home, in_this_process: false }.into());
    }
    let wish = match (of.discard, of.trust) {
        (true, _) => Some(OnMismatch::Discard),
        (_, true) => Some(OnMismatch::Trust),
        _ => None,
    };
    let mut report = Report::new("repair");
    report.text("file", Some(look.home.display().to_string()));
    verdict::add_row(&mut report, &look);
    let is_refused = matches!(look.decision, Some(Decision::Refuse(_)));
    let Some(wish) = wish.filter(|_| is_refused && !of.dry_run) else {
        // Nothing to repair, or nothing to be done about it now.
        report.flag("repaired", false);
        report.print(common.json)?;
        return Ok(verdict::outcome(&look));
    };
    let allowed = match wish {
        OnMismatch::Discard => look.if_discarded,
        _ => look.if_trusted,
    };
    let is_possible = !matches!(allowed, None | Some(Decision::Refuse(_)));
    if !is_possible || !(of.yes || agrees(&look, wish)?) {
        report.flag("repaired", false);
        report.print(common.json)?;
        return Ok(verdict::outcome(&look));
    }
    let file = shown(common.options()).on_mismatch(wish).open(&of.file)?;
    report.bytes("length", file.len());
    // A plain file is what every program can read, and no companion is left to doubt.
    file.close(CloseMode::Spatial)?;
    report.flag("repaired", true);
    report.print(common.json)?;
    Ok(Outcome::Repaired)
}

/// Asks on standard error. Only `y` and `yes` agree.
fn agrees(look: &Inspection, wish: OnMismatch) -> Result<bool, Failure> {
    let what = match wish {
        OnMismatch::Discard => "drop the companions, with every byte that is only there",
        _ => "believe the companions, although they do not fit",
    };
    tell(&format!("{}: {what}? [y/N] ", look.home.display()));
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    read.map_err(|e| Failure::Io("standard input".into(), e))?;
    if answer.is_empty() {
        tell("no answer; --yes does not ask\n");
    }
    Ok(matches!(answer.trim(), "y" | "yes"))
}
