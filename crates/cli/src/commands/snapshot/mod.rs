//! `snapshot`: snapshots of a closed file.
//!
//! | file | holds |
//! |---|---|
//! | `list` | `list`, and a snapshot in JSON |
//! | `copy` | `copy` |
//! | here | the others, which open the file for writing |
//!
//! Invariant: a name that no snapshot has, and a new name that one has, are refused before the file
//! is opened for writing.

mod copy;
pub mod list;

pub use list::{seconds, utc};

use crate::args::{Common, Limits, Named, Retain, Rollback, Snapshot};
use crate::ask;
use crate::outcome::{Failure, Outcome};
use crate::progress::shown;
use crate::report::Report;
use crate::verdict;
use atomic_mmap::{
    AtomicMappedFile, CloseMode, Decision, Error, Inspection, Retention, SnapshotError,
};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub fn run(common: &Common, what: &Snapshot) -> Result<Outcome, Failure> {
    match what {
        Snapshot::Create(of) => create(common, of),
        Snapshot::List(of) => list::run(common, of),
        Snapshot::Drop(of) => drop_one(common, of),
        Snapshot::Rollback(of) => rollback(common, of),
        Snapshot::Copy(of) => copy::run(common, of),
        Snapshot::Retain(of) => retain(common, of),
    }
}

/// Looks at a closed file. Refuses a name that no snapshot of it has: an open for writing would
/// change the files only to find that out.
fn look_for(common: &Common, of: &Named) -> Result<Inspection, Failure> {
    let look = verdict::look_at_closed(common, &of.file)?;
    let is_there = look.snapshots.iter().any(|found| found.name == of.name);
    // An open says why it refuses.
    let is_refused = matches!(look.decision, Some(Decision::Refuse(_)));
    if is_there || is_refused {
        return Ok(look);
    }
    let why = SnapshotError::NotFound { name: of.name.clone() };
    Err(Error::Snapshot { path: look.home, why }.into())
}

/// Refuses a name for a new snapshot that another one has.
fn refuse_taken(look: &Inspection, name: &str) -> Result<(), Failure> {
    if look.snapshots.iter().all(|found| found.name != name) {
        return Ok(());
    }
    let why = SnapshotError::Exists { name: name.to_owned() };
    Err(Error::Snapshot { path: look.home.clone(), why }.into())
}

fn open(common: &Common, file: &Path) -> Result<AtomicMappedFile, Failure> {
    Ok(shown(common.options()).open(file)?)
}

/// Begins a report of a command on a file and one of its snapshots.
fn report(command: &'static str, look: &Inspection, of: &Named) -> Report {
    let mut report = Report::new(command);
    report.path("file", Some(&look.home));
    report.add("name", of.name.clone(), of.name.escape_debug().to_string());
    report
}

fn create(common: &Common, of: &Named) -> Result<Outcome, Failure> {
    let look = verdict::look_at_closed(common, &of.file)?;
    refuse_taken(&look, &of.name)?;
    let mut report = report("snapshot create", &look, of);
    let file = open(common, &of.file)?;
    let sealed = file.snapshot(&of.name);
    // Also if that failed: what was a plain file is one again.
    file.close(CloseMode::Spatial)?;
    let sealed = sealed?;
    report.count("number", sealed.number);
    report.add("created", list::seconds(sealed.created), list::utc(sealed.created));
    report.bytes("length", sealed.len);
    report.print(common.json)?;
    Ok(Outcome::Ok)
}

fn drop_one(common: &Common, of: &Named) -> Result<Outcome, Failure> {
    let look = look_for(common, of)?;
    let mut report = report("snapshot drop", &look, of);
    let file = open(common, &of.file)?;
    file.drop_snapshot(&of.name)?;
    report.count("left", file.snapshots().len() as u64);
    file.close(CloseMode::Spatial)?;
    report.print(common.json)?;
    Ok(Outcome::Ok)
}

/// Without agreement nothing is changed, which is a failure for a script.
fn rollback(common: &Common, of: &Rollback) -> Result<Outcome, Failure> {
    let Rollback { of, undo, yes } = of;
    let look = look_for(common, of)?;
    if let Some(undo) = undo {
        refuse_taken(&look, undo)?;
    }
    let mut report = report("snapshot rollback", &look, of);
    let told = undo.as_ref().map_or("none".to_owned(), |undo| undo.escape_debug().to_string());
    report.add("undo", undo.clone(), told);
    let does = *yes || agreed(&look, of, undo.as_deref())?;
    report.flag("rolled_back", does);
    if does {
        let file = open(common, &of.file)?;
        // A rollback that was cut off in the middle is finished by the next open.
        file.roll_back(&of.name, undo.as_deref())?;
        report.bytes("length", file.len());
        file.close(CloseMode::Spatial)?;
    }
    report.print(common.json)?;
    Ok(if does { Outcome::Ok } else { Outcome::Failed })
}

fn agreed(look: &Inspection, of: &Named, undo: Option<&str>) -> Result<bool, Failure> {
    let present = match undo {
        Some(undo) => format!("keep the present as \"{}\"", undo.escape_debug()),
        None => "lose the present".to_owned(),
    };
    let (file, name) = (atomic_mmap::shown(&look.home), of.name.escape_debug());
    ask::agrees(&format!("{file}: go back to \"{name}\", and {present}"))
}

fn retain(common: &Common, of: &Retain) -> Result<Outcome, Failure> {
    let look = verdict::look_at_closed(common, &of.file)?;
    let mut report = Report::new("snapshot retain");
    report.path("file", Some(&look.home));
    let (mut dropped, mut left) = (0, 0);
    let is_refused = matches!(look.decision, Some(Decision::Refuse(_)));
    if is_refused || !look.snapshots.is_empty() {
        let file = open(common, &of.file)?;
        dropped = file.retain_snapshots(retention(&of.limits))?;
        left = file.snapshots().len() as u64;
        file.close(CloseMode::Spatial)?;
    }
    let store = look.snapshot_file.and_then(|path| std::fs::metadata(path).ok());
    report.count("dropped", dropped);
    report.count("left", left);
    report.bytes("allocated", store.map_or(0, |found| found.blocks() * 512));
    report.print(common.json)?;
    Ok(Outcome::Ok)
}

fn retention(limits: &Limits) -> Retention {
    let mut keep = Retention::new();
    if let Some(most) = limits.number {
        keep = keep.number(most);
    }
    if let Some(most) = limits.age {
        keep = keep.age(most);
    }
    if let Some(most) = limits.bytes {
        keep = keep.bytes(most);
    }
    keep
}
