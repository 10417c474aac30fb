//! `cp`: a copy of one state of a file.

use crate::args::{Common, Cp};
use crate::live;
use crate::outcome::{Failure, Outcome};
use crate::place::Place;
use crate::progress::shown;
use crate::report::Report;
use atomic_mmap::Error;

/// Reads the file as the next open would recover it, and writes it to a new plain file. The file is
/// not changed. A file in use is busy, unless its process serves copies: see [`live`].
pub fn run(common: &Common, of: &Cp) -> Result<Outcome, Failure> {
    let place = Place::of(&of.to)?;
    let len = place.fill(|scratch, name| {
        match shown(common.options()).read_only(true).open(&of.from) {
            Ok(file) => scratch.inside(|| {
                file.copy_to(name)?;
                Ok(file.len())
            }),
            Err(busy @ Error::Busy { .. }) => {
                Ok(live::copy(&of.from, &|| scratch.make_file(name))?.ok_or(busy)?)
            }
            Err(error) => Err(error.into()),
        }
    })?;
    let mut report = Report::new("cp");
    report.path("from", Some(&of.from));
    report.path("to", Some(&of.to));
    report.bytes("length", len);
    report.print(common.json)?;
    Ok(Outcome::Ok)
}
