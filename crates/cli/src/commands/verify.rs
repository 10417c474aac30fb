//! `verify`: checks the pair as an open does, and reads every byte.

use crate::args::{Common, File};
use crate::outcome::{Failure, Outcome};
use crate::progress::{Line, shown};
use crate::report::Report;
use crate::verdict;
use atomic_mmap::Decision;

/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;

/// Checks superblocks, lengths, log and journal by their checksums. Then reads the file as the next
/// open would recover it, in memory.
pub fn run(common: &Common, of: &File) -> Result<Outcome, Failure> {
    let look = verdict::look_at_closed(common, &of.file)?;
    let mut report = Report::new("verify");
    report.text("file", Some(look.home.display().to_string()));
    verdict::add_row(&mut report, &look);
    let outcome = verdict::outcome(&look);
    report.flag("ok", outcome == Outcome::Ok);
    if let (Outcome::Ok, Some(decision)) = (outcome, look.decision) {
        let to_recover = matches!(decision, Decision::Recover | Decision::GoBack);
        report.flag("recovery_is_due", to_recover);
        let file = shown(common.options()).read_only(true).open(&of.file)?;
        let (len, mut line) = (file.len(), Line::new());
        let mut piece = vec![0; PIECE.min(len) as usize];
        let mut at = 0;
        while at < len {
            let n = PIECE.min(len - at);
            file.read_at(&mut piece[..n as usize], at)?;
            at += n;
            line.show("reading", at, len);
        }
        report.bytes("bytes_read", len);
    }
    report.print(common.json)?;
    Ok(outcome)
}
