//! `stats`: the numbers of a file.

use crate::args::{Common, Stats};
use crate::outcome::{Failure, Outcome};
use crate::report::{Report, print};
use crate::verdict;
use atomic_mmap::Inspection;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes of a region, which one word describes.
const REGION: u64 = 256 << 10;

/// Prints lengths, and the bytes that the companions take and hold.
pub fn run(common: &Common, of: &Stats) -> Result<Outcome, Failure> {
    let look = common.options().inspect(&of.file)?;
    let home = std::fs::metadata(&look.home).map_err(Failure::io(&look.home))?;
    let reflection = found(look.reflection.as_deref())?;
    let (journal, snapshots) =
        (found(look.journal.as_deref())?, found(look.snapshot_file.as_deref())?);
    let (mut pages, mut slices, mut regions) = (0_u64, 0_u64, BTreeSet::new());
    look.each_reflected_page(|offset, bits| {
        pages += 1;
        slices += u64::from(bits.count_ones());
        regions.insert(offset / REGION);
    })?;
    let numbers = [
        ("length_bytes", look.len, "Length of the file."),
        ("allocated_bytes", home.blocks() * 512, "Disk space of the file itself."),
        (
            "reflection_allocated_bytes",
            allocated(&reflection),
            "Disk space of the reflection file.",
        ),
        ("journal_bytes", journal.as_ref().map_or(0, Metadata::len), "Length of the journal."),
        ("snapshot_allocated_bytes", allocated(&snapshots), "Disk space of what snapshots keep."),
        (
            "companions_allocated_bytes",
            allocated(&reflection) + allocated(&journal) + allocated(&snapshots),
            "Disk space of all companions, which Options::reflection_budget limits.",
        ),
        ("snapshots", look.snapshots.len() as u64, "Number of snapshots."),
        ("reflected_bytes", slices * 64, "Bytes with their valid version in the reflection file."),
        ("reflected_pages", pages, "Pages of 4 KiB with bytes in the reflection file."),
        ("reflected_regions", regions.len() as u64, "Regions of 256 KiB with such pages."),
        ("session", look.session.unwrap_or(0), "Times that the pair was opened or closed."),
        ("in_use", u64::from(look.is_open), "1 if a process has the file open."),
    ];
    if of.prometheus {
        let file = atomic_mmap::shown(&look.home).to_string();
        let file = file.replace('\\', r"\\").replace('"', "\\\"");
        let mut text = String::new();
        for (name, value, help) in numbers {
            let _into_a_string = write!(
                text,
                "# HELP atomic_mmap_file_{name} {help}\n# TYPE atomic_mmap_file_{name} gauge\n\
                 atomic_mmap_file_{name}{{file=\"{file}\"}} {value}\n"
            );
        }
        print(text.as_bytes())?;
        return Ok(verdict::outcome(&look));
    }
    let mut report = Report::new("stats");
    report.path("file", Some(&look.home));
    for (name, value, _) in numbers {
        match name {
            "in_use" => report.flag(name, value == 1),
            name if name.ends_with("_bytes") => report.bytes(name, value),
            name => report.count(name, value),
        }
    }
    report.print(common.json)?;
    Ok(verdict::outcome(&look))
}

/// Returns the disk space of all companions, in bytes.
pub fn companions_allocated(look: &Inspection) -> Result<u64, Failure> {
    let companions = [&look.reflection, &look.journal, &look.snapshot_file];
    companions.into_iter().map(|path| Ok(allocated(&found(path.as_deref())?))).sum()
}

fn allocated(found: &Option<Metadata>) -> u64 {
    found.as_ref().map_or(0, |found| found.blocks() * 512)
}

/// Returns what the system knows of a companion, or `None` if there is none. A close may have
/// removed it since the look.
fn found(path: Option<&Path>) -> Result<Option<Metadata>, Failure> {
    let Some(path) = path else { return Ok(None) };
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some).map_err(Failure::io(path)),
    }
}
