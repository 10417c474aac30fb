//! `verify`: checks the pair as an open does, verifies the pages that have sums, and reads every
//! byte that is not in a hole.

use crate::args::{Common, File};
use crate::outcome::{Failure, Outcome};
use crate::progress::{Line, shown};
use crate::report::Report;
use crate::verdict;
use atomic_mmap::Decision;
use serde_json::json;

/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;

/// Checks superblocks, lengths, log and journal by their checksums. Then reads the file as the next
/// open would recover it, in memory. If sums do not fit their pages, names the pages and reads
/// nothing.
pub fn run(common: &Common, of: &File) -> Result<Outcome, Failure> {
    let look = verdict::look_at_closed(common, &of.file)?;
    let mut report = Report::new("verify");
    report.path("file", Some(&look.home));
    verdict::add_row(&mut report, &look);
    let mut outcome = verdict::outcome(&look);
    if let (Outcome::Ok, Some(decision)) = (outcome, look.decision) {
        let to_recover = matches!(decision, Decision::Recover | Decision::GoBack);
        report.flag("recovery_is_due", to_recover);
        let file = shown(common.options()).read_only(true).open(&of.file)?;
        let (len, mut line) = (file.len(), Line::new());
        let sums = file.verify(0..len)?;
        let text = if sums.pages == 0 { "none".into() } else { format!("of {} pages", sums.pages) };
        report.add("page_sums", sums.pages, text);
        let damaged: Vec<[u64; 2]> = sums.damaged.iter().map(|r| [r.start, r.end]).collect();
        if !damaged.is_empty() {
            let text: Vec<String> =
                damaged.iter().map(|[from, to]| format!("{from}..{to}")).collect();
            report.add("damaged", json!(damaged), text.join(", "));
            outcome = Outcome::Damaged;
        }
        let mut piece = vec![0; PIECE.min(len) as usize];
        let mut read = 0;
        // Nothing in a hole can be damaged: a file of any length may have little storage.
        let data = if outcome == Outcome::Ok { file.data()? } else { Vec::new() };
        for range in data {
            for at in range.clone().step_by(PIECE as usize) {
                let n = PIECE.min(range.end - at);
                file.read_at(&mut piece[..n as usize], at)?;
                read += n;
                line.show("reading", at + n, len);
            }
        }
        report.bytes("bytes_read", read);
    }
    report.flag("ok", outcome == Outcome::Ok);
    report.print(common.json)?;
    Ok(outcome)
}
