//! `repair --pages`: replaces damaged pages by those of snapshots.

use crate::args::{Common, Repair};
use crate::ask;
use crate::outcome::{Failure, Outcome};
use crate::progress::shown;
use crate::report::Report;
use crate::verdict;
use atomic_mmap::{CloseMode, Repair as Repaired};
use serde_json::{Value, json};
use std::ops::Range;

/// Verifies the pages, and changes nothing until the user agrees. An open that is refused is told
/// as by `repair` without `--pages`.
pub fn run(common: &Common, of: &Repair) -> Result<Outcome, Failure> {
    let look = verdict::look_at_closed(common, &of.file)?;
    let mut report = Report::new("repair");
    report.path("file", Some(&look.home));
    verdict::add_row(&mut report, &look);
    let mut outcome = verdict::outcome(&look);
    if outcome == Outcome::Ok {
        let file = shown(common.options()).read_only(true).open(&of.file)?;
        let range = of.range.clone().unwrap_or(0..file.len());
        let damaged = file.verify(range.clone())?.damaged;
        drop(file);
        let text: Vec<String> = damaged.iter().map(text_of).collect();
        let value: Value = damaged.iter().map(|page| json!([page.start, page.end])).collect();
        report.add("damaged", value, if text.is_empty() { "none".into() } else { text.join(", ") });
        let question = format!(
            "{}: let {} damaged pages go back to what they were in a snapshot, alone",
            atomic_mmap::shown(&look.home),
            damaged.len()
        );
        if !damaged.is_empty() {
            outcome = Outcome::Damaged;
            if of.yes || ask::agrees(&question)? {
                let file = shown(common.options()).open(&of.file)?;
                let done = file.repair(range)?;
                file.close(CloseMode::Spatial)?;
                add_pages(&mut report, &done);
                outcome = if done.left.is_empty() { Outcome::Repaired } else { Outcome::Damaged };
            }
        }
    }
    report.flag("repaired", outcome == Outcome::Repaired);
    report.print(common.json)?;
    Ok(outcome)
}

fn text_of(page: &Range<u64>) -> String {
    format!("{}..{}", page.start, page.end)
}

/// Adds the pages that were repaired, and those that are damaged still.
fn add_pages(report: &mut Report, done: &Repaired) {
    let pages = done.repaired.iter();
    let value: Value = pages
        .map(|page| json!({"page": [page.range.start, page.range.end], "snapshot": page.name}))
        .collect();
    let text: Vec<String> = done
        .repaired
        .iter()
        .map(|page| format!("{} from {}", text_of(&page.range), page.name.escape_debug()))
        .collect();
    report.add("pages", value, text.join(", "));
    let value: Value = done
        .left
        .iter()
        .map(|page| {
            json!({"page": [page.range.start, page.range.end], "drop_first": page.drop_first})
        })
        .collect();
    let text: Vec<String> = done
        .left
        .iter()
        .map(|page| match &page.drop_first {
            Some(name) => {
                format!("{} until {} is dropped", text_of(&page.range), name.escape_debug())
            }
            None => text_of(&page.range),
        })
        .collect();
    report.add("left", value, if text.is_empty() { "none".into() } else { text.join(", ") });
}
