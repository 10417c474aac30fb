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
    refuse_existing(&of.to)?;
    let len = into_new_file(&of.to, |copy| {
        match shown(common.options()).read_only(true).open(&of.from) {
            Ok(file) => {
                file.copy_to(copy)?;
                Ok(file.len())
            }
            Err(busy @ Error::Busy { .. }) => Ok(live::copy(&of.from, copy)?.ok_or(busy)?),
            Err(error) => Err(error.into()),
        }
    })?;
    let mut report = Report::new("cp");
    report.text("from", Some(of.from.display().to_string()));
    report.text("to", Some(of.to.display().to_string()));
    report.bytes("length", len);
    report.print(common.json)?;
    Ok(Outcome::Ok)
}

/// Refuses a name that is taken, before there is work to do.
pub fn refuse_existing(to: &Path) -> Result<(), Failure> {
    if to.symlink_metadata().is_ok() {
        let exists = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        return Err(Failure::io(to)(exists));
    }
    Ok(())
}

/// Makes a file in a scratch folder, and gives it its name. The caller makes it durable, and this
/// its name. Returns what `make` returns.
pub fn into_new_file<T>(
    to: &Path,
    make: impl FnOnce(&Path) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let scratch = Scratch::within(folder)?;
    let copy = scratch.path().join("copy");
    let made = make(&copy)?;
    // A link, and no rename, so that a file that came meanwhile is not replaced.
    std::fs::hard_link(&copy, to).map_err(Failure::io(to))?;
    std::fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(Failure::io(folder))?;
    Ok(made)
}
