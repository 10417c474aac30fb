//! `cp`: a copy of one state of a file.

use crate::args::{Common, Cp};
use crate::live;
use crate::outcome::{Failure, Outcome};
use crate::progress::{Scratch, shown};
use crate::report::Report;
use atomic_mmap::Error;
use std::path::Path;

/// Reads the file as the next open would recover it, and writes it to a new plain file. The file is
/// not changed. A file in use is busy, unless its process serves copies: see [`live`].
pub fn run(common: &Common, of: &Cp) -> Result<Outcome, Failure> {
    let exists = || std::io::Error::from(std::io::ErrorKind::AlreadyExists);
    if of.to.symlink_metadata().is_ok() {
        return Err(Failure::Io(of.to.display().to_string(), exists()));
    }
    let folder = of.to.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let scratch = Scratch::within(folder)?;
    let copy = scratch.path().join("copy");
    let len = match shown(common.options()).read_only(true).open(&of.from) {
        Ok(file) => {
            file.copy_to(&copy)?;
            file.len()
        }
        Err(busy @ Error::Busy { .. }) => live::copy(&of.from, &copy)?.ok_or(busy)?,
        Err(error) => return Err(error.into()),
    };
    // A link, and no rename, so that a file that came meanwhile is not replaced.
    std::fs::hard_link(&copy, &of.to).map_err(Failure::io(&of.to))?;
    std::fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(Failure::io(folder))?;
    let mut report = Report::new("cp");
    report.text("from", Some(of.from.display().to_string()));
    report.text("to", Some(of.to.display().to_string()));
    report.bytes("length", len);
    report.print(common.json)?;
    Ok(Outcome::Ok)
}
