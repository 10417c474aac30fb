//! `repair`: takes one of the ways that are left for files that an open refuses.

use crate::args::{Common, Repair};
use crate::ask;
use crate::commands::snapshot::list::{seconds, utc};
use crate::outcome::{Failure, Outcome};
use crate::progress::shown;
use crate::report::{Report, human};
use crate::verdict;
use atomic_mmap::{CloseMode, Decision, Inspection, Mismatch, OnMismatch};

pub fn run(common: &Common, of: &Repair) -> Result<Outcome, Failure> {
    let look = verdict::look_at_closed(common, &of.file)?;
    let mut report = Report::new("repair");
    report.path("file", Some(&look.home));
    verdict::add_row(&mut report, &look);
    if matches!(look.decision, Some(Decision::Refuse(_))) {
        add_losses(&mut report, &look)?;
    }
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

/// Says what each choice loses at most.
fn add_losses(report: &mut Report, look: &Inspection) -> Result<(), Failure> {
    let mut bytes = 0;
    look.each_reflected_page(|_, slices| bytes += u64::from(slices.count_ones()) * 64)?;
    let doubtful: u64 = look.doubtful()?.iter().map(|range| range.end - range.start).sum();
    // Companions that are damaged or gone tell nothing.
    let is_known = bytes > 0 || doubtful < look.len.max(look.home_len);
    // A file that has the name of a lone copy's companion belongs to another one.
    let is_alone = look.decision == Some(Decision::Refuse(Mismatch::LoneCopy));
    let reflection = look.reflection.as_ref().filter(|_| !is_alone);
    let made = reflection.and_then(|path| path.metadata().ok()?.created().ok());
    let since = made.map_or_else(|| "the companions were made".to_owned(), utc);
    let is_possible = |decision| !matches!(decision, Some(Decision::Refuse(_)) | None);
    let known = is_known.then_some(bytes);
    if is_possible(look.if_discarded) {
        let loss = match is_known {
            _ if is_alone => "unknown: where companions had bytes, these are old or zeros".into(),
            true => format!("{}, written since {since} and only there", human(bytes)),
            false => format!("unknown: companions tell nothing; they hold bytes since {since}"),
        };
        report.add("discard_loses", known, loss);
    }
    // This way takes the bytes of the companions. Without companions it is not possible.
    if is_possible(look.if_trusted) {
        let is_restarted = look.decision == Some(Decision::Refuse(Mismatch::Restarted));
        let (known, loss) = if is_restarted {
            (None, "unknown: what the system had not written to the disk".to_owned())
        } else {
            let most = human(bytes);
            (known, format!("at most {most} of the file, where companions have other bytes"))
        };
        report.add("trust_loses", known, loss);
    }
    let said = format!("{} (cp --best-effort lists them)", human(doubtful));
    report.add("in_doubt", doubtful, said);
    report.json("written_since", made.map(seconds));
    Ok(())
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
    // A crashed file needs no choice: an open recovers it, and the close brings its bytes home.
    let is_crashed = verdict::state(look) == "crashed";
    let is_possible = (is_refused(look.decision) || is_crashed) && !is_refused(decision);
    if !is_possible || of.dry_run || !(of.yes || agrees(look, wish)?) {
        return Ok(None);
    }
    Ok(Some(wish))
}

fn agrees(look: &Inspection, wish: OnMismatch) -> Result<bool, Failure> {
    let what = match wish {
        _ if verdict::state(look) == "crashed" => "recover it, and bring all bytes home",
        OnMismatch::Discard if look.decision == Some(Decision::Refuse(Mismatch::LoneCopy)) => {
            "take its bytes as they are, some of which may be old, or zeros"
        }
        OnMismatch::Discard => {
            "let the companions, and every byte that is only there, count no more"
        }
        _ => "believe the companions, although they do not fit",
    };
    ask::agrees(&format!("{}: {what}", atomic_mmap::shown(&look.home)))
}
