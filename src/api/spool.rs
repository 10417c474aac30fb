//! The file that keeps what was received of a stream, until all of it is there.
//!
//! It lies beside the home file, and its name is made of the home file's name. It holds the stream
//! as it was sent. Only whole frames with right checksums get there. A transfer that breaks leaves
//! it, and a later one goes on behind its last whole frame. All of it is checked anew whenever it
//! is read, so nothing of it has to be durable.
//!
//! Invariant: one receiver at a time has the spool of a file. It holds a lock of it.
//!
//! May import `stream`, the engine, the format, the errors, and the user's number of `platform`.

use super::stream::{Next, Progress, Stream};
use crate::engine::snapshots::import::{Received, TakeFrame};
#[cfg(unix)]
use crate::error::Distrust;
use crate::error::{Error, Result, StreamError};
use crate::format::export::Header;
#[cfg(unix)]
use crate::mutant::planted;
use crate::mutant::unless;
#[cfg(unix)]
use crate::platform::Platform;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Prefix of the name of a spool.
const PREFIX: &str = ".atomic-mmap-import-";
/// Prefix of the name of a file that is being made of a spool.
const UNFINISHED: &str = ".atomic-mmap-new-";

/// A stream that was received for one file.
pub(super) struct Spool {
    /// The home file.
    home: PathBuf,
    path: PathBuf,
    file: File,
    header: Header,
    /// All frames of the stream.
    pub progress: Progress,
}

/// Returns the path of a file beside the home file, also if `home` is a link to it.
fn beside(home: &Path, prefix: &str) -> Result<PathBuf> {
    // A file that is being made is not there yet.
    let home = &fs::canonicalize(home).unwrap_or_else(|_| home.to_owned());
    let Some(name) = home.file_name() else {
        return Err(Error::io("look up", home, ErrorKind::IsADirectory.into()));
    };
    let mut file = std::ffi::OsString::from(prefix);
    file.push(name);
    Ok(home.with_file_name(file))
}

/// Returns the number of whole frames that a broken transfer has left.
pub(super) fn progress_of(home: &Path) -> Result<u64> {
    let path = beside(home, PREFIX)?;
    match open(&path, false) {
        Ok(file) => {
            check_owner(&file, &path, home)?;
            Ok(scan(&file, home, u64::MAX)?.map_or(0, |(_, found, _)| found.frames))
        }
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(0),
        Err(e) => Err(Error::io("open", &path, e)),
    }
}

/// Opens a spool, which is a regular file of this user, and no link.
fn open(path: &Path, create: bool) -> io::Result<File> {
    let mut how = File::options();
    how.read(true).write(create).create(create).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        how.mode(0o600).custom_flags(libc::O_NOFOLLOW);
    }
    let file = how.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    Ok(file)
}

/// Reads up to `most` whole frames. Returns the header, the frames, and their end in the file.
fn scan(file: &File, home: &Path, most: u64) -> Result<Option<(Header, Progress, u64)>> {
    let mut file = file;
    file.rewind().map_err(|e| Error::io("read the spool of", home, e))?;
    let is_damage = |error: &Error| matches!(error, Error::Stream { .. });
    let mut stream = match Stream::begin(BufReader::new(file), home) {
        Ok(stream) => stream,
        Err(error) if is_damage(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut end = stream.offset;
    while stream.progress.frames < most {
        match stream.next() {
            Ok(Next::Changes(_)) => end = stream.offset,
            Ok(Next::End(_)) => break,
            Err(error) if is_damage(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(Some((stream.header, stream.progress, end)))
}

/// Fails if another user, or another name of the file, could change its bytes behind the checks.
#[cfg(unix)]
fn check_owner(file: &File, path: &Path, home: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let told = file.metadata().map_err(|e| Error::io("look up", path, e))?;
    let ours = Platform::native().user();
    let home_owner = fs::metadata(home).map_or(ours, |home| home.uid());
    let is_known = [ours, home_owner].contains(&told.uid());
    let why = match told.nlink() {
        links @ 2.. if !planted!(SpoolOfAnyOwner) => Distrust::HasLinks(links),
        _ if is_known || planted!(SpoolOfAnyOwner) => return Ok(()),
        _ => Distrust::IsOwnedBy { owner: told.uid(), home_owner },
    };
    Err(Error::Untrusted { home: home.to_owned(), path: path.to_owned(), why })
}

/// Files have no owners here.
#[cfg(not(unix))]
fn check_owner(_: &File, _: &Path, _: &Path) -> Result<()> {
    Ok(())
}

/// Removes the spool of this file if it is of the stream with this header, which the file has taken
/// already: a process died between the commit of the import and the removal.
pub(super) fn remove_leftover(home: &Path, header: &Header) {
    let Ok(path) = beside(home, PREFIX) else { return };
    let Ok(file) = open(&path, false) else { return };
    let is_free = check_owner(&file, &path, home).is_ok() && file.try_lock().is_ok();
    let found = scan(&file, home, 0).ok().flatten();
    if is_free && found.is_some_and(|(found, ..)| found.is_of_one_stream(header)) {
        // The next import removes it otherwise.
        let _best_effort = fs::remove_file(&path);
    }
}

impl Spool {
    /// Receives a stream for a file. `check` may refuse it by its header. If the transfer breaks,
    /// the whole frames stay.
    pub fn receive(
        home: &Path,
        from: impl Read,
        check: impl FnOnce(&Header) -> Result<()>,
    ) -> Result<Spool> {
        let mut stream = Stream::begin(from, home)?;
        check(&stream.header)?;
        let path = beside(home, PREFIX)?;
        let file = open(&path, true).map_err(|e| Error::io("open", &path, e))?;
        check_owner(&file, &path, home)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::io("lock", &path, ErrorKind::ResourceBusy.into()));
            }
            Err(TryLockError::Error(e)) => return Err(Error::io("lock", &path, e)),
        }
        let header = Header { first_frame: 0, ..stream.header.clone() };
        let progress = Progress::default();
        let mut spool = Spool { home: home.to_owned(), path, file, header, progress };
        spool.fill(&mut stream).inspect_err(|error| {
            // It would keep the space that is missing.
            if matches!(error, Error::NoSpace { .. }) {
                spool.remove();
            }
        })?;
        spool.progress = stream.progress;
        Ok(spool)
    }

    fn fill(&self, stream: &mut Stream<'_, impl Read>) -> Result<()> {
        let first = stream.header.first_frame;
        let path = &self.path;
        let io = |call| move |e| Error::io(call, path, e);
        let mut end = 0;
        if first > 0 {
            let found = scan(&self.file, &self.home, first)?;
            let found = found.filter(|(header, ..)| header.is_of_one_stream(&self.header));
            let frames = found.as_ref().map_or(0, |(_, found, _)| found.frames);
            if frames < first {
                let why = StreamError::Gap { first, frames };
                return Err(Error::Stream { path: self.home.clone(), why });
            }
            if let Some((_, progress, after)) = found {
                (stream.progress, end) = (progress, after);
            }
        }
        self.file.set_len(end).map_err(io("truncate"))?;
        (&self.file).seek(SeekFrom::Start(end)).map_err(io("seek"))?;
        if end == 0 {
            self.append(&self.header.encode())?;
        }
        loop {
            let next = stream.next()?;
            self.append(&stream.head)?;
            self.append(&stream.body)?;
            if let Next::End(_) = next {
                return Ok(());
            }
        }
    }

    fn append(&self, bytes: &[u8]) -> Result<()> {
        let at = (&self.file).stream_position().unwrap_or(0);
        let written = (&self.file).write_all(bytes);
        written.map_err(|e| Error::io_of_range("write", &self.path, at, bytes.len() as u64, e))
    }

    /// Returns the path of a file that becomes the home file when it is whole.
    pub fn unfinished(&self) -> Result<PathBuf> {
        beside(&self.home, UNFINISHED)
    }

    /// Removes the file. What is left of it does no harm, and the next receiver uses it.
    pub fn remove(&self) {
        unless!(SpoolStays, {
            let _best_effort = fs::remove_file(&self.path);
        });
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // A child of `fork` may have a copy of the descriptor, which keeps the lock otherwise.
        let _gone_with_the_descriptor = self.file.unlock();
    }
}

impl Received for Spool {
    fn header(&self) -> &Header {
        &self.header
    }

    fn each_frame(&self, take: TakeFrame<'_>) -> Result<u64> {
        (&self.file).rewind().map_err(|e| Error::io("read", &self.path, e))?;
        let mut stream = Stream::begin(BufReader::new(&self.file), &self.path)?;
        loop {
            match stream.next()? {
                Next::Changes(changes) => take(&changes, &stream.body)?,
                Next::End(sum) => return Ok(sum),
            }
        }
    }
}
