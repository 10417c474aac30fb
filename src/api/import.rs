//! Imports: files that take the stream of an export.
//!
//! A stream is received as a whole, into a spool, before the file changes. A file that is there
//! takes it as one operation of the engine. A new file is made under another name.
//!
//! May import `spool`, `file`, `snapshot`, the engine, the format and the errors.

use super::spool::{self, Spool};
use crate::api::file::AtomicMappedFile;
use crate::api::snapshot::SnapshotInfo;
use crate::config::options::Options;
use crate::engine::snapshots::import::Received;
use crate::error::{Error, Result, SnapshotError, StreamError};
use crate::format::export::{Header, page_sum};
use crate::format::snapshots::table::Flags;
use crate::units::PAGE;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// The result of an import: [`AtomicMappedFile::import`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ImportReport {
    /// The snapshot that the file has got, with the name and the time that it has in the sender's
    /// file. The next increment may be relative to it.
    pub snapshot: SnapshotInfo,
    /// Frames of the stream, with those of earlier transfers.
    pub frames: u64,
    /// Pages of 4,096 bytes with changes.
    pub pages: u64,
}

impl AtomicMappedFile {
    /// Takes the stream of an [export](Self::export): gives the file the state of the sender's
    /// snapshot, and seals it under the sender's name.
    ///
    /// The stream is received as a whole first, into a file beside this one. Its name begins with
    /// `.atomic-mmap-import-`. Then it is applied as one operation: readers and writers see all of
    /// it or nothing, and so does a crash. It is as durable as a [rollback](Self::roll_back), which
    /// it ends as. Writers of this file wait while it is applied.
    ///
    /// A stream with changes is refused if the file is not, byte for byte, as in the snapshot that
    /// they are relative to. The file is read once for that. A stream with a whole file is taken by
    /// an empty file. [`import_over`](Self::import_over) replaces content, and
    /// [`Options::import`] makes a new file.
    ///
    /// If the transfer breaks, what was received stays: [`import_progress`](Self::import_progress).
    /// It also stays if the process dies right behind the commit. A further import removes it then,
    /// also one of the same stream, which is refused.
    ///
    /// # Errors
    /// [`Error::Stream`] if the stream is damaged, ends too early, or does not fit the file.
    /// [`Error::Snapshot`] if the file has a snapshot of this name. [`Error::NoSpace`],
    /// [`Error::TooLong`], [`Error::Pinned`], [`Error::Damaged`], [`Error::Io`],
    /// [`Error::ReadOnly`]. Those of [`sync`](Self::sync) where durable points are kept. All of
    /// these leave the file unchanged. An error once the rollback is under way poisons the handle,
    /// and the next open finishes it.
    pub fn import(&self, reader: impl Read) -> Result<ImportReport> {
        self.import_as(reader, false)
    }

    /// Takes a stream as [`import`](Self::import) does. A stream with a whole file replaces the
    /// content of this one. Its snapshots stay.
    ///
    /// # Errors
    /// Those of [`import`](Self::import).
    pub fn import_over(&self, reader: impl Read) -> Result<ImportReport> {
        self.import_as(reader, true)
    }

    fn import_as(&self, reader: impl Read, replaces: bool) -> Result<ImportReport> {
        let (path, engine) = (self.path(), self.engine());
        engine.check_usable()?;
        engine.check_writable()?;
        let spool = Spool::receive(path, reader, |header| {
            let name = &header.to.name;
            if engine.live_snapshot(name).is_ok() {
                spool::remove_leftover(path, header);
                let why = SnapshotError::Exists { name: name.clone() };
                return Err(Error::Snapshot { path: path.to_owned(), why });
            }
            match header.base.is_none() && !replaces && !self.is_empty() {
                true => Err(error(path, StreamError::NotEmpty)),
                false => Ok(()),
            }
        })?;
        let imported = engine.import(&spool, replaces);
        spool.remove();
        Ok(report(SnapshotInfo::new(imported?, 0), &spool))
    }

    /// Returns the number of frames of a stream that a broken transfer to the file at `path` has
    /// left. The sender may begin at this frame:
    /// [`export_from_frame`](Self::export_from_frame). The next import of another stream, or of
    /// this one from frame 0 on, begins anew.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn import_progress(path: impl AsRef<Path>) -> Result<u64> {
        spool::progress_of(path.as_ref())
    }
}

impl Options {
    /// Makes a new file of the stream of an [export](AtomicMappedFile::export) with a whole file.
    /// Opens it by these options, and seals it under the sender's name.
    ///
    /// The file gets its name when it is whole and durable. A crash before that leaves no file at
    /// `path`. A crash after it may leave the file without the snapshot, and the next increment
    /// fits it all the same.
    ///
    /// # Errors
    /// [`Error::Io`] of kind `AlreadyExists` if there is something at `path`. [`Error::Stream`] if
    /// the stream is damaged, ends too early, or has changes only. Those of [`open`](Self::open)
    /// and [`snapshot`](AtomicMappedFile::snapshot).
    pub fn import(
        self,
        path: impl AsRef<Path>,
        reader: impl Read,
    ) -> Result<(AtomicMappedFile, ImportReport)> {
        let path = path.as_ref();
        if path.symlink_metadata().is_ok() {
            return Err(Error::io("create", path, ErrorKind::AlreadyExists.into()));
        }
        let spool = Spool::receive(path, reader, |header| match &header.base {
            Some(base) => Err(error(path, StreamError::NoBase { base: base.name.clone() })),
            None => Ok(()),
        })?;
        let new = spool.unfinished()?;
        let made = make(&spool, &new, path);
        let _best_effort = fs::remove_file(&new);
        spool.remove();
        made?;
        let Header { to, .. } = spool.header();
        let file = self.open(path)?;
        let sealed = file.engine().seal_as_of(to.nanos, &to.name, Flags::default())?;
        Ok((file, report(SnapshotInfo::new(sealed, 0), &spool)))
    }
}

fn error(path: &Path, why: StreamError) -> Error {
    Error::Stream { path: path.to_owned(), why }
}

fn report(snapshot: SnapshotInfo, spool: &Spool) -> ImportReport {
    let (frames, pages) = (spool.progress.frames, spool.progress.changes);
    ImportReport { snapshot, frames, pages }
}

/// Writes the received file to `new`, durably, and gives it the name `path`.
fn make(spool: &Spool, new: &Path, path: &Path) -> Result<()> {
    let _left_by_a_crash = fs::remove_file(new);
    let io = |call| move |e| Error::io(call, new, e);
    let mut file = File::options().write(true).create_new(true).open(new).map_err(io("create"))?;
    let Header { to, .. } = spool.header();
    file.set_len(to.len).map_err(io("change the length of"))?;
    let mut sum = 0;
    let stated = spool.each_frame(&mut |changes, body| {
        for change in changes {
            let mut page = [0; PAGE];
            change.put(body, &mut page);
            sum ^= page_sum(change.page, &page);
            let at = change.page.start();
            let len = (to.len - at).min(PAGE as u64);
            let written = file.seek(SeekFrom::Start(at));
            let written = written.and_then(|_| file.write_all(&page[..len as usize]));
            written.map_err(|e| Error::io_of_range("write", new, at, len, e))?;
        }
        Ok(())
    })?;
    if sum != stated {
        return Err(error(path, StreamError::WrongResult));
    }
    file.sync_all().map_err(io("sync"))?;
    // A link, and no rename, so that a file that came meanwhile is not replaced.
    fs::hard_link(new, path).map_err(|e| Error::io("create", path, e))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|e| Error::io("sync the folder", folder, e))
}
