//! Writes a consistent copy of an open file.
//!
//! The copy has a temporary name until it is complete and durable. May import the engine and the
//! platform.

use crate::engine::Engine;
use crate::engine::superblock::remove_if_is;
use crate::error::{Error, Result};
use crate::format::sqlite_header;
use crate::platform::{File, FileId, Name, OpenHow, Platform};
use crate::units::PAGE;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Prefix of the name of an unfinished copy.
const UNFINISHED: &str = ".atomic-mmap-copy-";

/// Writes one state of the file to a new plain file at `path`, and makes it durable.
pub(crate) fn copy_to(engine: &Engine, path: &Path) -> Result<()> {
    let platform = &engine.platform;
    // A link at the name is not followed, since another user may have put it there.
    let name = platform.name_itself(path).map_err(|e| Error::io("look up", path, e))?;
    let there = platform.stat_name(&name).map_err(|e| Error::io("look up", name.path(), e))?;
    if there.is_some() {
        return Err(Error::io("create", name.path(), ErrorKind::AlreadyExists.into()));
    }
    let number = u128::from_be_bytes(platform.new_uuid());
    let new = Name::new(name.folder(), format!("{UNFINISHED}{number:032x}"));
    let how = OpenHow { create_new: true, mode: 0o600, reads_only: false };
    let file = platform.open(&new, how).map_err(|e| Error::io("create", new.path(), e))?;
    let made = platform.stat(&file).map_err(|e| Error::io("look up", new.path(), e))?;
    let write = || {
        let len = engine.read_all(|at, bytes| write_pages(engine, &file, &new, at, bytes))?;
        unmark_database(platform, &file, new.path())?;
        let unfinished = new.path();
        let io = |call: &'static str| move |e| Error::io(call, unfinished, e);
        platform.set_file_len(&file, FileId::Home, len).map_err(no_space(&new, len))?;
        let home = platform
            .stat(engine.home.file())
            .map_err(|e| Error::io("look up", engine.home.path(), e))?;
        platform.own(&file, engine.home.file(), &home).map_err(io("set the owner of"))?;
        // The copy is complete and durable before it gets its final name.
        platform.sync_all(&file, FileId::Home).map_err(no_space(&new, len))?;
        platform.rename(&new, &name).map_err(io("rename"))?;
        let folder = name.folder();
        platform.sync_dir(folder, &file).map_err(|e| Error::io("sync the folder", folder.path(), e))
    };
    write().inspect_err(|_| {
        let _best_effort = remove_if_is(platform, &new, &made);
    })
}

/// Writes the pages of `bytes` that are not all zero, and leaves the others as holes.
fn write_pages(
    engine: &Engine,
    file: &crate::platform::File,
    name: &Name,
    start: u64,
    bytes: &[u8],
) -> Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        let end = |from: usize| (from + PAGE).min(bytes.len());
        let is_zero = |from: usize| bytes[from..end(from)].iter().all(|byte| *byte == 0);
        let from = at;
        while at < bytes.len() && !is_zero(at) {
            at = end(at);
        }
        let offset = start + from as u64;
        engine
            .platform
            .write_at(file, FileId::Home, &bytes[from..at], offset)
            .map_err(no_space(name, offset))?;
        while at < bytes.len() && is_zero(at) {
            at = end(at);
        }
    }
    Ok(())
}

/// Takes the mark off a copy of a database: the copy is complete.
fn unmark_database(platform: &Platform, copy: &File, path: &Path) -> Result<()> {
    let mut header = [0; sqlite_header::HEAD];
    let io = |call| move |e| Error::io_at(call, path, 0, e);
    if platform.stat(copy).map_err(io("look up"))?.len < header.len() as u64 {
        return Ok(());
    }
    platform.read_at(copy, FileId::Home, &mut header, 0).map_err(io("read"))?;
    if sqlite_header::unmark(&mut header) {
        platform.write_at(copy, FileId::Home, &header, 0).map_err(io("write"))?;
    }
    Ok(())
}

fn no_space(name: &Name, offset: u64) -> impl FnOnce(io::Error) -> Error {
    let path = name.path().to_owned();
    move |source| match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            Error::NoSpace { path, offset, len: PAGE as u64, source: source.into() }
        }
        _ => Error::io_at("write", &path, offset, source),
    }
}
