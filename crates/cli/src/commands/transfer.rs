//! `send` and `receive`: a snapshot, or what has changed since another one, from file to file.

use crate::args::{Common, Receive, Send};
use crate::commands::snapshot::{seconds, utc};
use crate::outcome::{Failure, Outcome};
use crate::progress::shown;
use crate::report::Report;
use crate::verdict;
use atomic_mmap::{AtomicMappedFile, CloseMode, Error, Inspection, SnapshotError};
use std::io::{self, BufWriter, IsTerminal};

/// Reads the file as the next open would recover it, and changes nothing. Prints the stream alone.
pub fn send(common: &Common, of: &Send) -> Result<Outcome, Failure> {
    let out = std::io::stdout().lock();
    if out.is_terminal() {
        let what = "standard output is a terminal; send the stream to a file or another program";
        return Err(Failure::Usage(what.into()));
    }
    let look = verdict::look_at_closed(common, &of.file)?;
    let file = shown(common.options()).read_only(true).open(&of.file)?;
    let from = of.from.as_ref().map(|from| name_of(&look, from)).transpose()?;
    let to = name_of(&look, &of.snapshot)?;
    let out = BufWriter::with_capacity(1 << 20, out);
    match file.export_from_frame(from.as_deref(), &to, of.first_frame, out) {
        // The file is in order, and the output is not.
        Err(Error::Io { call: "write the stream", source, .. }) => {
            let code = source.raw_os_error().map(io::Error::from_raw_os_error);
            Err(Failure::printing(code.unwrap_or_else(|| source.kind().into())))
        }
        sent => Ok(sent.map(|_| Outcome::Ok)?),
    }
}

/// Returns the name of the snapshot with this name, or else with this number.
fn name_of(look: &Inspection, asked: &str) -> Result<String, Failure> {
    let named = look.snapshots.iter().find(|found| found.name == asked);
    let number = asked.parse::<u64>().ok();
    let numbered = || look.snapshots.iter().find(|found| Some(found.number) == number);
    let found = named.or_else(numbered).map(|found| found.name.clone());
    let why = SnapshotError::NotFound { name: asked.to_owned() };
    found.ok_or_else(|| Error::Snapshot { path: look.home.clone(), why }.into())
}

/// Makes the file if there is none.
pub fn receive(common: &Common, of: &Receive) -> Result<Outcome, Failure> {
    let mut report = Report::new("receive");
    report.path("file", Some(&of.file));
    if of.progress {
        report.count("frames", AtomicMappedFile::import_progress(&of.file)?);
        report.print(common.json)?;
        return Ok(Outcome::Ok);
    }
    let (mut options, stream) = (shown(common.options()), std::io::stdin().lock());
    if let Some(max_len) = of.max_len {
        options = options.max_len(max_len);
    }
    let (file, taken) = if of.file.symlink_metadata().is_ok() {
        verdict::look_at_closed(common, &of.file)?;
        let file = options.open(&of.file)?;
        let taken = if of.replace { file.import_over(stream) } else { file.import(stream) };
        (file, taken)
    } else {
        let (file, taken) = options.import(&of.file, stream)?;
        (file, Ok(taken))
    };
    // Also if that failed: what was a plain file is one again.
    file.close(CloseMode::Spatial)?;
    let taken = taken?;
    let name = &taken.snapshot.name;
    report.add("name", name.clone(), name.escape_debug().to_string());
    report.count("number", taken.snapshot.number);
    report.add("created", seconds(taken.snapshot.created), utc(taken.snapshot.created));
    report.bytes("length", taken.snapshot.len);
    report.count("pages", taken.pages);
    report.print(common.json)?;
    Ok(Outcome::Ok)
}
