//! `snapshot copy`: the bytes of a snapshot in a new plain file.

use super::{look_for, report};
use crate::args::{Common, CopySnapshot};
use crate::outcome::{Failure, Outcome};
use crate::place::Place;
use crate::progress::{Line, shown};
use atomic_mmap::{Snapshot, sqlite_header};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;
/// Bytes that stay a hole if all are zero.
const PAGE: usize = 4096;

/// Reads the file as the next open would recover it, and changes nothing. The new file is durable
/// before it has its name.
pub fn run(common: &Common, of: &CopySnapshot) -> Result<Outcome, Failure> {
    let place = Place::of(&of.to)?;
    let look = look_for(common, &of.of)?;
    let file = shown(common.options()).read_only(true).open(&of.of.file)?;
    let snapshot = file.open_snapshot(&of.of.name)?;
    place.fill(|scratch, name| {
        let copy = scratch.make_file(name).map_err(Failure::io(&of.to))?;
        write(&snapshot, &copy, &of.to)
    })?;
    let mut report = report("snapshot copy", &look, &of.of);
    report.path("to", Some(&of.to));
    report.bytes("length", snapshot.len());
    report.print(common.json)?;
    Ok(Outcome::Ok)
}

/// Writes the snapshot to a new file that only its owner may read. Errors name the file `to`, which
/// it becomes.
fn write(snapshot: &Snapshot, copy: &File, to: &Path) -> Result<(), Failure> {
    let io = || Failure::io(to);
    let (len, mut line) = (snapshot.len(), Line::new());
    copy.set_len(len).map_err(io())?;
    let mut piece = vec![0; PIECE.min(len as usize)];
    for range in snapshot.data()? {
        for at in range.clone().step_by(PIECE) {
            let piece = &mut piece[..(range.end - at).min(PIECE as u64) as usize];
            snapshot.read_at(piece, at)?;
            for (n, page) in piece.chunks(PAGE).enumerate() {
                if page.iter().any(|byte| *byte != 0) {
                    copy.write_all_at(page, at + (n * PAGE) as u64).map_err(io())?;
                }
            }
            line.show("copying", at + piece.len() as u64, len);
        }
    }
    // A database was marked when the snapshot was taken, and the copy is complete.
    let mut header = [0; sqlite_header::HEAD];
    if len >= header.len() as u64 {
        snapshot.read_at(&mut header, 0)?;
        if sqlite_header::unmark(&mut header) {
            copy.write_all_at(&header, 0).map_err(io())?;
        }
    }
    copy.sync_all().map_err(io())
}
