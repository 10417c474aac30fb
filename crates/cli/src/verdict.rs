//! The meaning of a look at a file for its user.

use crate::args::Common;
use crate::outcome::{Failure, Outcome};
use crate::report::Report;
use atomic_mmap::{Decision, Error, Inspection, Mismatch, variants};
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
        other => return variants(&other).concat(),
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
        Decision::Refuse(why) => format!("refused: {}", mismatch(why)),
        other => name(other),
    }
}

/// Returns one word for what a look has found.
pub fn state(look: &Inspection) -> &'static str {
    match look.decision {
        _ if look.is_open => "in use",
        Some(Decision::Fresh | Decision::Discard) => "plain",
        Some(Decision::Reuse | Decision::Settle) => "closed",
        Some(Decision::Recover | Decision::GoBack) => "crashed",
        Some(Decision::Refuse(_)) => "refused",
        _ => "unknown",
    }
}

/// Returns the words for a name of the library. A newer name is its own words.
fn words(of: &[(&str, &'static str)], name: &str) -> String {
    let found = of.iter().find(|(known, _)| *known == name);
    found.map_or_else(|| name.replace('-', " "), |(_, words)| (*words).to_owned())
}

/// The names of [`Mismatch`].
const MISMATCHES: [(&str, &str); 17] = [
    ("reflection-gone", "the reflection file is gone"),
    ("swapped", "the reflection file belongs to another file"),
    ("home-replaced", "the file has replaced another one, which has a reflection file still"),
    ("home-is-copy", "the file is a copy of one that was not closed completely"),
    ("lone-copy", "the file was in use, as its bytes say, and has no companions here"),
    ("foreign", "what has the name of its reflection file is none"),
    ("newer", "a newer version has written the reflection file"),
    ("corrupt", "the reflection file is damaged"),
    ("reflection-truncated", "the reflection file was cut off"),
    ("home-truncated", "the file is shorter than its reflection file says"),
    ("home-changed", "the file was changed since it was closed"),
    ("restarted", "the machine was restarted while the file was in use"),
    ("journal-gone", "the journal is gone"),
    ("journal-swapped", "the journal is of another pair or time, or damaged"),
    ("mark-gone", "the file's attribute is gone"),
    ("may-be-snapshot", "the volume is mounted elsewhere, or this is a snapshot of it"),
    ("rolled-back", "the volume of one of the files was rolled back"),
];

/// The states of a file's attribute.
const MARKS: [(&str, &str); 7] = [
    ("none", "none"),
    ("of-this-file", "names this file"),
    ("of-another-file", "names another file, which this one is a copy of"),
    ("gone", "gone, although the reflection file tells of one"),
    ("of-snapshot", "names this file, or the original of this snapshot of a volume"),
    ("closing", "names this file, which a close was about to complete"),
    ("in-bytes", "none, and the bytes of the file say that it was in use"),
];

/// The files in the place of a reflection file.
const FOUND: [(&str, &str); 11] = [
    ("nothing", "no reflection file"),
    ("foreign", "a file that is no reflection file"),
    ("newer", "a reflection file of a newer version"),
    ("corrupt", "a damaged reflection file"),
    ("truncated", "a reflection file that was cut off"),
    ("emptied", "a reflection file that a close has emptied"),
    ("of-another-file", "the reflection file of another file"),
    ("contested", "a reflection file that names this file, and contradicts its attribute"),
    ("rolled-back", "its reflection file, of another time"),
    ("of-earlier-file", "the reflection file of an earlier file of this name"),
    ("of-this-file", "its reflection file"),
];

/// The states of a file beside its reflection file.
const HOMES: [(&str, &str); 3] = [
    ("as-it-was", "the file is as it was"),
    ("changed", "the file was changed since"),
    ("too-short", "the file is too short"),
];

/// The states in which a session left its reflection file.
const USES: [(&str, &str); 7] = [
    ("closed", "closed"),
    ("unsettled", "closed, then the machine went down"),
    ("died", "the process that had it open has died"),
    ("restarted", "the machine was restarted while it was open"),
    ("undone", "it was open, and its last durable point counts"),
    ("journal-gone", "it was open, and its journal is gone"),
    ("journal-swapped", "it was open, and its journal is of another pair, or damaged"),
];

fn mismatch(why: Mismatch) -> String {
    words(&MISMATCHES, &variants(&why).concat())
}

fn found(look: &Inspection) -> String {
    let mut said = words(&FOUND, &look.found);
    for (of, name) in [(&HOMES[..], &look.found_home), (&USES, &look.found_state)] {
        if let Some(name) = name {
            said += &format!("; {}", words(of, name));
        }
    }
    said
}

/// Looks at a file that the command opens later. A file in use is busy, which an inspection is not.
pub fn look_at_closed(common: &Common, file: &Path) -> Result<Inspection, Failure> {
    let look = common.options().inspect(file)?;
    if look.is_open {
        let Inspection { home: path, process, .. } = look;
        return Err(Error::Busy { path, in_this_process: false, process }.into());
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
    report.add("mark", look.mark.clone(), words(&MARKS, &look.mark));
    report.add("found", look.found.clone(), found(look));
    report.json("found_home", look.found_home.clone());
    report.json("found_state", look.found_state.clone());
    match look.decision {
        Some(decision) => report.add("decision", name(decision), meaning(decision)),
        None => report.add("decision", None::<String>, "none: the file is open"),
    }
    if let Some(Decision::Refuse(why)) = look.decision {
        report.add("mismatch", variants(&why).concat(), mismatch(why));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// Returns the names of an enum of the library, some of which are not public.
    fn names(file: &str, name: &str) -> Vec<String> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../src").join(file);
        let source = std::fs::read_to_string(path).expect("a source");
        let (_, rest) = source.split_once(&format!("enum {name} {{\n")).expect("the enum");
        let (body, _) = rest.split_once("\n}").expect("its end");
        let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
        let lines = lines.filter(|line| line.starts_with(char::is_uppercase));
        lines.map(|line| variants(&format_args!("{line}"))[0].clone()).collect()
    }

    /// A name without words is told as its own words, which say little.
    #[test]
    fn each_name_of_the_library_has_words() {
        for (file, name, words) in [
            ("error/mismatch.rs", "Mismatch", &MISMATCHES[..]),
            ("recovery/pair.rs", "Mark", &MARKS),
            ("recovery/pair.rs", "Found", &FOUND),
            ("recovery/pair.rs", "Home", &HOMES),
            ("recovery/pair.rs", "Use", &USES),
        ] {
            let known: Vec<_> = words.iter().map(|(name, _)| (*name).to_owned()).collect();
            assert_eq!(names(file, name), known, "{name}");
        }
    }
}
