//! `stats`: the numbers of a file.

use crate::args::{Common, Stats};
use crate::outcome::{Failure, Outcome};
use crate::report::{Report, print};
use crate::verdict;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes of a region, which one word describes.
const REGION: u64 = 256 << 10;

/// Prints lengths, and the bytes that the companions take and hold.
pub fn run(common: &Common, of: &Stats) -> Result<Outcome, Failure> {
    let look = common.options().inspect(&of.file)?;
    let metadata = |path: Option<&Path>| {
        path.map(|path| std::fs::metadata(path).map_err(Failure::io(path))).transpose()
    };
    let allocated = |found: Metadata| found.blocks() * 512;
    let (mut pages, mut slices, mut regions) = (0_u64, 0_u64, BTreeSet::new());
    look.each_reflected_page(|offset, bits| {
        pages += 1;
        slices += u64::from(bits.count_ones());
        regions.insert(offset / REGION);
    })?;
    let numbers = [
        ("length_bytes", look.len, "Length of the file."),
        (
            "allocated_bytes",
            metadata(Some(&look.home))?.map_or(0, allocated),
            "Disk space of the file itself.",
        ),
        (
            "reflection_allocated_bytes",
            metadata(look.reflection.as_deref())?.map_or(0, allocated),
            "Disk space of the reflection file.",
        ),
        (
            "journal_bytes",
            metadata(look.journal.as_deref())?.map_or(0, |found| found.len()),
            "Length of the journal.",
        ),
        (
            "snapshot_allocated_bytes",
            metadata(look.snapshot_file.as_deref())?.map_or(0, allocated),
            "Disk space of what snapshots keep.",
        ),
        ("snapshots", look.snapshots.len() as u64, "Number of snapshots."),
        ("reflected_bytes", slices * 64, "Bytes with their valid version in the reflection file."),
        ("reflected_pages", pages, "Pages of 4 KiB with bytes in the reflection file."),
        ("reflected_regions", regions.len() as u64, "Regions of 256 KiB with such pages."),
        ("session", look.session.unwrap_or(0), "Times that the pair was opened or closed."),
        ("in_use", u64::from(look.is_open), "1 if a process has the file open."),
    ];
    if of.prometheus {
        let file = look.home.display().to_string();
        let file = file.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
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
    report.text("file", Some(look.home.display().to_string()));
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
