//! Imports: files that take the stream of an export.
//!
//! A stream is received as a whole, into a spool, before the file changes. A file that is there
//! takes it as one operation of the engine. A new file is made under another name.
//!
//! May import `spool`, `file`, `snapshot`, the engine, the format, the errors and `platform`.

use super::spool::{self, Spool};
use crate::api::file::AtomicMappedFile;
use crate::api::snapshot::SnapshotInfo;
use crate::config::options::Options;
use crate::engine::snapshots::import::Received;
use crate::engine::superblock::remove_own;
use crate::error::{Error, Result, SnapshotError, StreamError};
use crate::format::export::{Header, page_sum};
use crate::format::snapshots::table::Flags;
use crate::mutant::planted;
use crate::platform::{File, FileId, Name, Platform};
use crate::recovery::{byte_mark, medium, reservation};
use crate::units::PAGE;
use std::io::{ErrorKind, Read};
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
    /// Once it has arrived as a whole, it is removed, also after an error. It stays if the process
    /// dies right behind the commit. A further import removes it then, also one of the same stream,
    /// which is refused.
    ///
    /// # Errors
    /// [`Error::Stream`] if the stream is damaged, ends too early, or does not fit the file.
    /// [`Error::Snapshot`] if the file has a snapshot of this name. [`Error::TooLong`] past
    /// [`max_len`](Self::max_len), before the transfer. [`Error::NoSpace`], [`Error::Pinned`],
    /// [`Error::Damaged`], [`Error::Io`], [`Error::ReadOnly`]. Those of [`sync`](Self::sync) where
    /// durable points are kept. All of these leave the file unchanged. An error once the rollback
    /// is under way poisons the handle, and the next open finishes it.
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
        let home = engine.platform.stat(engine.home.file());
        let owner = home.map_err(|e| Error::io("look up", path, e))?.uid;
        let of = (&engine.name, owner);
        let spool = Spool::receive(&engine.platform, of, reader, |header| {
            let name = &header.to.name;
            if engine.live_snapshot(name).is_ok() {
                spool::remove_leftover(&engine.platform, of, header);
                let why = SnapshotError::Exists { name: name.clone() };
                return Err(Error::Snapshot { path: path.to_owned(), why });
            }
            // Before the transfer.
            engine.check_fits(header.to.len)?;
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
    /// `path`. A crash after it may leave the file without the snapshot, and so does an error then:
    /// one of the sync of the folder, of [`open`](Self::open) or of
    /// [`snapshot`](AtomicMappedFile::snapshot). The next increment fits it all the same. The
    /// option [`len`](Self::len) has no effect: the file is as long as the sender's.
    ///
    /// # Errors
    /// Options that cannot be served are told before the transfer, and leave no file.
    ///
    /// [`Error::Io`] of kind `AlreadyExists` if there is something at `path`. [`Error::TooLong`] if
    /// the sender's file is longer than [`max_len`](Self::max_len), before the transfer: a stream
    /// of few bytes may be of a long file of zeros. [`Error::Stream`] if the stream is damaged,
    /// ends too early, or has changes only. [`Error::ReadOnly`] with
    /// [`read_only`](Self::read_only).
    /// Those of [`open`](Self::open) and [`snapshot`](AtomicMappedFile::snapshot).
    pub fn import(
        self,
        path: impl AsRef<Path>,
        reader: impl Read,
    ) -> Result<(AtomicMappedFile, ImportReport)> {
        import_new(Platform::native(), self, path.as_ref(), reader)
    }

    /// Makes a new file of a stream on a recording platform.
    #[cfg(feature = "recorder")]
    #[doc(hidden)]
    pub fn import_recorded(
        self,
        recorder: &crate::platform::recorder::Recorder,
        path: impl AsRef<Path>,
        reader: impl Read,
    ) -> Result<(AtomicMappedFile, ImportReport)> {
        import_new(recorder.platform(), self, path.as_ref(), reader)
    }
}

fn import_new(
    platform: Platform,
    options: Options,
    path: &Path,
    reader: impl Read,
) -> Result<(AtomicMappedFile, ImportReport)> {
    check_options(&platform, &options, path)?;
    // The folder stays open from here on, and no link at the name is followed: while the sender is
    // waited for, another user of the folder may put one there.
    let name = platform.name_itself(path).map_err(|e| Error::io("look up", path, e))?;
    if platform.stat_name(&name).map_err(|e| Error::io("look up", path, e))?.is_some() {
        return Err(Error::io("create", path, ErrorKind::AlreadyExists.into()));
    }
    let of = (&name, platform.user());
    let check = |header: &Header| {
        let (len, most) = (header.to.len, options.max_len);
        // Before the file is made: it would stay.
        if let Some(max_len) = most.filter(|most| *most < len && !planted!(ImportChecksLate)) {
            return Err(Error::TooLong { path: path.to_owned(), len, max_len });
        }
        match &header.base {
            Some(base) => Err(error(path, StreamError::NoBase { base: base.name.clone() })),
            None => Ok(()),
        }
    };
    let spool = Spool::receive(&platform, of, reader, check)?;
    let made = make(&spool, path);
    spool.remove();
    made?;
    let Header { to, .. } = spool.header();
    // An empty file would get a length.
    let options = if planted!(ImportTakesLength) { options } else { options.len(0) };
    let file = AtomicMappedFile::open_named(platform, options, (path, &name))?;
    let sealed = file.engine().seal_as_of(to.nanos, &to.name, Flags::default())?;
    Ok((file, report(SnapshotInfo::new(sealed, 0), &spool)))
}

/// Fails for options that no opening can serve, whatever the stream is.
fn check_options(platform: &Platform, options: &Options, path: &Path) -> Result<()> {
    if planted!(ImportChecksLate) {
        return Ok(());
    }
    if options.read_only {
        return Err(Error::ReadOnly { path: path.to_owned() });
    }
    medium::chosen(platform, options, path)?;
    if let Some(dir) = &options.reflection_dir {
        platform.open_folder(dir).map_err(|e| Error::io("look up", dir, e))?;
    }
    byte_mark::given_place(options, path)?;
    reservation::check(options, path)
}

fn error(path: &Path, why: StreamError) -> Error {
    Error::Stream { path: path.to_owned(), why }
}

fn report(snapshot: SnapshotInfo, spool: &Spool) -> ImportReport {
    let (frames, pages) = (spool.progress.frames, spool.progress.changes);
    ImportReport { snapshot, frames, pages }
}

/// Makes the received file under another name, durably, and gives it the name of the home file.
fn make(spool: &Spool, path: &Path) -> Result<()> {
    let (new, file) = &spool.make_unfinished()?;
    let platform = &spool.platform;
    let io = |call| move |e| Error::io(call, new.path(), e);
    let fill_and_name = || {
        fill(spool, file, new, path)?;
        // Replaces no file that came meanwhile.
        platform.rename(new, &spool.home).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => Error::io("create", path, e),
            _ => io("rename")(e),
        })
    };
    fill_and_name().inspect_err(|_| {
        let _best_effort = remove_own(platform, new, file);
    })?;
    let folder = new.folder();
    let synced = platform.sync_dir(folder, file);
    synced.map_err(|e| Error::io("sync the folder", folder.path(), e))
}

/// Writes the received content to a new file, durably.
fn fill(spool: &Spool, file: &File, new: &Name, path: &Path) -> Result<()> {
    let (platform, id) = (&spool.platform, FileId::Spool);
    let io = |call| move |e| Error::io(call, new.path(), e);
    let Header { to, .. } = spool.header();
    platform.set_file_len(file, id, to.len).map_err(io("change the length of"))?;
    let mut sum = 0;
    let stated = spool.each_frame(&mut |changes, body| {
        for change in changes {
            let mut page = [0; PAGE];
            change.put(body, &mut page);
            sum ^= page_sum(change.page, &page);
            if page == [0; PAGE] {
                // A hole. The stream says in few bytes that a page is zero.
                continue;
            }
            let at = change.page.start();
            let len = to.len.saturating_sub(at).min(PAGE as u64);
            let written = platform.write_at(file, id, &page[..len as usize], at);
            written.map_err(|e| Error::io_of_range("write", new.path(), at, len, e))?;
        }
        Ok(())
    })?;
    if sum != stated {
        return Err(error(path, StreamError::WrongResult));
    }
    platform.sync_all(file, id).map_err(io("sync"))
}
