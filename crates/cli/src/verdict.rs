//! The meaning of a look at a file for its user.

use crate::args::Common;
use crate::outcome::{Failure, Outcome};
use crate::report::Report;
use atomic_mmap::{Decision, Error, Inspection, Mismatch};
use std::path::Path;

/// Returns `true` if bytes of the files are wrong or cut off. Otherwise the files are whole, and
/// do not go together.
pub fn is_damage(why: Mismatch) -> bool {
    use Mismatch::{Corrupt, HomeTruncated, ReflectionTruncated};
    matches!(why, Corrupt | ReflectionTruncated | HomeTruncated)
}

/// Returns the name of a decision in JSON.
pub fn name(decision: Decision) -> String {
    let name = match decision {
        Decision::Fresh => "fresh",
        Decision::Discard => "discard",
        Decision::Reuse => "reuse",
        Decision::Recover => "recover",
        Decision::GoBack => "go-back",
        Decision::Settle => "settle",
        Decision::Refuse(_) => "refuse",
        other => return format!("{other:?}").to_lowercase(),
    };
    name.to_owned()
}

/// Returns what a decision means.
pub fn meaning(decision: Decision) -> String {
    match decision {
        Decision::Fresh => "a plain file, complete by itself".into(),
        Decision::Discard => {
            "complete by itself; an open removes what is left of companions".into()
        }
        Decision::Reuse => "closed; an open goes on with both files".into(),
        Decision::Recover => "crashed; an open recovers every acknowledged operation".into(),
        Decision::GoBack => "crashed; an open goes back to the last durable point".into(),
        Decision::Settle => "closed, then the machine went down; an open completes it".into(),
        Decision::Refuse(why) => format!("refused: {why:?}"),
        other => format!("{other:?}"),
    }
}

/// Looks at a file that the command opens later. A file in use is busy, which an inspection is not.
pub fn look_at_closed(common: &Common, file: &Path) -> Result<Inspection, Failure> {
    let look = common.options().inspect(file)?;
    if look.is_open {
        return Err(Error::Busy { path: look.home, in_this_process: false }.into());
    }
    Ok(look)
}

/// Returns the exit code of a command that only looks.
pub fn outcome(look: &Inspection) -> Outcome {
    match look.decision {
        Some(Decision::Refuse(why)) if is_damage(why) => Outcome::Damaged,
        Some(Decision::Refuse(_)) => Outcome::Mismatch,
        _ => Outcome::Ok,
    }
}

/// Adds the row of the pair table that applies.
pub fn add_row(report: &mut Report, look: &Inspection) {
    report.text("mark", Some(look.mark.clone()));
    report.text("found", Some(look.found.clone()));
    match look.decision {
        Some(decision) => report.add("decision", name(decision), meaning(decision)),
        None => report.add("decision", None::<String>, "none: the file is open"),
    }
    if let Some(Decision::Refuse(why)) = look.decision {
        report.text("mismatch", Some(format!("{why:?}")));
        for (field, decision) in
            [("if_discarded", look.if_discarded), ("if_trusted", look.if_trusted)]
        {
            let Some(decision) = decision else { continue };
            let said = match decision {
                Decision::Refuse(_) => "refused as well".into(),
                Decision::Discard => {
                    "the file's bytes as they are; companions count no more".into()
                }
                Decision::Recover => "recovered by the companions".into(),
                other => meaning(other),
            };
            report.add(field, name(decision), said);
        }
    }
}
