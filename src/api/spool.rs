//! The file that keeps what was received of a stream, until all of it is there.
//!
//! It lies beside the home file, and its name is made of the home file's name. Another user may
//! have taken that name in a shared folder; then it has one of a few others, or at last a random
//! one. It holds the stream as it was sent. Only whole frames with right checksums get there. A
//! transfer that breaks leaves it, and a later one goes on behind its last whole frame. All of it
//! is checked anew whenever it is read, so nothing of it has to be durable.
//!
//! Invariant: one receiver at a time has the spool of a file. It holds a lock of the file that has
//! the name.
//!
//! May import `stream`, the check of owners in `recovery`, the engine, the format, the errors, and
//! `platform`.

use super::stream::{Next, Progress, Stream};
use crate::checksum::crc32c;
use crate::engine::snapshots::import::{Received, TakeFrame};
use crate::engine::superblock::remove_own;
use crate::error::{Distrust, Error, IoError, Result, StreamError};
use crate::format::export::Header;
use crate::mutant::{planted, unless};
use crate::platform::{File, FileId, FileStat, Name, OpenHow, Platform};
use crate::recovery::trust;
use std::ffi::OsString;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::Path;

/// The beginning of the name of a spool.
const SPOOL: &str = ".atomic-mmap-import";
/// The beginning of the name of a file that is being made of a spool.
const UNFINISHED: &str = ".atomic-mmap-new";
/// The number of names by which a file is found again.
const NAMES: usize = 8;
/// How often a name is tried that comes and goes.
const TRIES: usize = 64;
/// The longest name that file systems take, in bytes.
const LONGEST_NAME: usize = 255;
/// Bytes that are read from a spool at once.
const READ_AHEAD: usize = 64 << 10;

/// A stream that was received for one file.
pub(super) struct Spool {
    pub platform: Platform,
    /// The home file.
    pub home: Name,
    /// The user that the home file belongs to, or will belong to.
    owner: u32,
    name: Name,
    file: File,
    header: Header,
    /// All frames of the stream.
    pub progress: Progress,
}

/// Returns the names that a file beside the home file may have, the usual one first.
fn beside(home: &Name, kind: &'static str) -> impl Iterator<Item = Name> {
    (0..NAMES).map(move |n| {
        let mut name = OsString::from(kind);
        name.push(if n == 0 { "-".to_owned() } else { format!("{n}-") });
        if name.len() + home.name().len() <= LONGEST_NAME || planted!(SpoolNameTooLong) {
            name.push(home.name());
        } else {
            // Two files of equal checksums cannot receive at once. No other harm comes of it.
            let bytes = home.name().as_encoded_bytes();
            name.push(format!("{:08x}-{}", crc32c(bytes), bytes.len()));
        }
        Name::new(home.folder(), name)
    })
}

/// Returns the names of `beside`, and then one that no other user knows before it is taken.
fn beside_others(
    platform: &Platform,
    home: &Name,
    kind: &'static str,
) -> impl Iterator<Item = Name> {
    let random = format!("{kind}-{:032x}", u128::from_be_bytes(platform.new_uuid()));
    beside(home, kind).chain([Name::new(home.folder(), random)])
}

/// Returns the number of whole frames that a broken transfer has left.
pub(super) fn progress_of(home: &Path) -> Result<u64> {
    let platform = Platform::native();
    let home = match platform.name(home) {
        Ok(home) => home,
        // Without its folder there is nothing beside it.
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(0),
        Err(e) => return Err(Error::io("look up", home, e)),
    };
    let there = platform.stat_name(&home).map_err(|e| Error::io("look up", home.path(), e))?;
    let owner = there.map_or(platform.user(), |home| home.uid);
    let Some((name, file)) = find(&platform, (&home, owner))? else { return Ok(0) };
    let found = scan(&Reader::of(&platform, &file, &name)?, u64::MAX)?;
    Ok(found.map_or(0, |(_, found, _)| found.frames))
}

/// Opens the spool of a home file, if there is one.
fn find(platform: &Platform, home: (&Name, u32)) -> Result<Option<(Name, File)>> {
    for name in beside(home.0, SPOOL) {
        match open(platform, (home, &name), false) {
            Ok(found) => return Ok(found.map(|(file, _)| (name, file))),
            Err(error) if is_anothers(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Returns `true` if another user has taken a name, so that the next one is tried.
fn is_anothers(error: &Error) -> bool {
    let is_denied = |source: &IoError| source.kind() == ErrorKind::PermissionDenied;
    matches!(error, Error::Untrusted { .. })
        || matches!(error, Error::Io { call: OPEN, source, .. } if is_denied(source))
}

/// The name of the step in which a file is opened.
const OPEN: &str = "open";

/// Opens a spool, and makes it if there is none and it `is_made`. Fails if another user, or another
/// name of the file, could change its bytes behind the checks. The home file has its owner from the
/// caller: its name may be that of another user's file for a moment.
fn open(
    platform: &Platform,
    (home, name): ((&Name, u32), &Name),
    is_made: bool,
) -> Result<Option<(File, FileStat)>> {
    let io = |call| move |e| Error::io(call, name.path(), e);
    let check = || match platform.stat_name(name).map_err(io("look up"))? {
        Some(there) => check_trust(platform, (home, name), &there).map(|()| true),
        None => Ok(false),
    };
    let is_there = check()?;
    if !is_there && !is_made {
        return Ok(None);
    }
    let how = OpenHow { create_new: !is_there, mode: 0o600, reads_only: !is_made };
    let file = match platform.open(name, how) {
        // It has come or gone since the look. The caller looks again.
        Err(e) if matches!(e.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => {
            return Ok(None);
        }
        Err(e) => {
            // Another user's file may have taken its place since the look.
            check()?;
            return Err(io(OPEN)(e));
        }
        Ok(file) => file,
    };
    let stat = platform.stat(&file).map_err(io("look up"))?;
    // The name may be that of another file by then.
    check_trust(platform, (home, name), &stat)?;
    Ok(Some((file, stat)))
}

fn check_trust(
    platform: &Platform,
    ((home, owner), name): ((&Name, u32), &Name),
    stat: &FileStat,
) -> Result<()> {
    let why = match trust::distrusts(platform, stat, owner) {
        _ if stat.is_link => Distrust::IsLink,
        _ if !stat.is_regular => Distrust::IsIrregular,
        Some(why) if !planted!(SpoolOfAnyOwner) => why,
        _ => return Ok(()),
    };
    let (home, path) = (home.path().to_owned(), name.path().to_owned());
    Err(Error::Untrusted { home, path, why })
}

/// Opens or makes a spool under the first name that no other user has taken, and takes its lock.
fn open_locked(platform: &Platform, home: (&Name, u32)) -> Result<(Name, File)> {
    let mut taken = None;
    for name in beside_others(platform, home.0, SPOOL) {
        // Another user that makes and removes the name all the time only costs this name.
        for _ in 0..TRIES {
            match open(platform, (home, &name), true) {
                Ok(Some((file, stat))) if lock(platform, &name, (&file, &stat))? => {
                    return Ok((name, file));
                }
                // Another receiver has removed or made it meanwhile.
                Ok(_) => {}
                Err(error) if is_anothers(&error) => {
                    taken = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
    }
    let exists = || Error::io("create", home.0.path(), ErrorKind::AlreadyExists.into());
    Err(taken.unwrap_or_else(exists))
}

/// Takes the lock of a spool. Returns `false` if the receiver that had the lock has removed the
/// name since the file was opened.
fn lock(platform: &Platform, name: &Name, (file, stat): (&File, &FileStat)) -> Result<bool> {
    let io = |call| move |e| Error::io(call, name.path(), e);
    if !platform.try_lock(file).map_err(io("lock"))? {
        return Err(io("lock")(ErrorKind::ResourceBusy.into()));
    }
    let there = platform.stat_name(name).map_err(io("look up"))?;
    let is_it = |there: FileStat| (there.dev, there.ino) == (stat.dev, stat.ino);
    Ok(there.is_some_and(is_it) || planted!(SpoolOfAnyFile))
}

/// A spool that is read from its beginning.
#[derive(Clone)]
struct Reader<'s> {
    platform: &'s Platform,
    file: &'s File,
    path: &'s Path,
    at: u64,
    len: u64,
}

impl<'s> Reader<'s> {
    fn of(platform: &'s Platform, file: &'s File, name: &'s Name) -> Result<Self> {
        let path = name.path();
        let len = platform.stat(file).map_err(|e| Error::io("look up", path, e))?.len;
        Ok(Reader { platform, file, path, at: 0, len })
    }

    fn stream(&self) -> Result<Stream<'s, impl Read + use<'s>>> {
        Stream::begin(BufReader::with_capacity(READ_AHEAD, self.clone()), self.path)
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(self.len - self.at).unwrap_or(usize::MAX);
        let to = &mut to[..rest.min(READ_AHEAD)];
        self.platform.read_at(self.file, FileId::Spool, to, self.at)?;
        self.at += to.len() as u64;
        Ok(to.len())
    }
}

/// Reads up to `most` whole frames. Returns the header, the frames, and their end in the file.
fn scan(spool: &Reader<'_>, most: u64) -> Result<Option<(Header, Progress, u64)>> {
    let is_damage = |error: &Error| matches!(error, Error::Stream { .. });
    let mut stream = match spool.stream() {
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

/// Removes the spool of this file if it is of the stream with this header, which the file has taken
/// already: a process died between the commit of the import and the removal.
pub(super) fn remove_leftover(platform: &Platform, home: (&Name, u32), header: &Header) {
    let remove = || -> Result<()> {
        let Some((name, file)) = find(platform, home)? else { return Ok(()) };
        if !platform.try_lock(&file).is_ok_and(|is_free| is_free) {
            return Ok(());
        }
        let found = scan(&Reader::of(platform, &file, &name)?, 0)?;
        if found.is_some_and(|(found, ..)| found.is_of_one_stream(header)) {
            let _best_effort = remove_own(platform, &name, &file);
        }
        Ok(())
    };
    // The next import removes it otherwise.
    let _best_effort = remove();
}

impl Spool {
    /// Receives a stream for a file of this owner. `check` may refuse it by its header. If the
    /// transfer breaks, the whole frames stay.
    pub fn receive(
        platform: &Platform,
        (home, owner): (&Name, u32),
        from: impl Read,
        check: impl FnOnce(&Header) -> Result<()>,
    ) -> Result<Spool> {
        let mut stream = Stream::begin(from, home.path())?;
        check(&stream.header)?;
        let (platform, home) = (platform.clone(), home.clone());
        let (name, file) = open_locked(&platform, (&home, owner))?;
        let header = Header { first_frame: 0, ..stream.header.clone() };
        let progress = Progress::default();
        let mut spool = Spool { platform, home, owner, name, file, header, progress };
        spool.fill(&mut stream).inspect_err(|error| {
            // It would keep the space that is missing. Frames of another stream fit nothing, and
            // the sender would ask for the frame behind them again.
            let is_of_another =
                matches!(error, Error::Stream { why: StreamError::Gap { frames: 0, .. }, .. });
            let is_of_another = is_of_another && !planted!(GapKeepsAnothers);
            if matches!(error, Error::NoSpace { .. }) || is_of_another {
                spool.remove();
            }
        })?;
        spool.progress = stream.progress;
        Ok(spool)
    }

    fn fill(&self, stream: &mut Stream<'_, impl Read>) -> Result<()> {
        let first = stream.header.first_frame;
        let io = |call| move |e| Error::io(call, self.name.path(), e);
        let mut end = 0;
        if first > 0 {
            let found = scan(&self.reader()?, first)?;
            let found = found.filter(|(header, ..)| header.is_of_one_stream(&self.header));
            let frames = found.as_ref().map_or(0, |(_, found, _)| found.frames);
            if frames < first {
                let why = StreamError::Gap { first, frames };
                return Err(Error::Stream { path: self.home.path().to_owned(), why });
            }
            if let Some((_, progress, after)) = found {
                (stream.progress, end) = (progress, after);
            }
        }
        let cut = self.platform.set_file_len(&self.file, FileId::Spool, end);
        cut.map_err(io("truncate"))?;
        if end == 0 {
            self.append(&mut end, &self.header.encode())?;
        }
        loop {
            let next = stream.next()?;
            self.append(&mut end, &stream.head)?;
            self.append(&mut end, &stream.body)?;
            if let Next::End(_) = next {
                return Ok(());
            }
        }
    }

    /// Writes bytes at `end`, and moves it behind them.
    fn append(&self, end: &mut u64, bytes: &[u8]) -> Result<()> {
        let (at, len, path) = (*end, bytes.len() as u64, self.name.path());
        let written = self.platform.write_at(&self.file, FileId::Spool, bytes, at);
        written.map_err(|e| Error::io_of_range("write", path, at, len, e))?;
        *end += len;
        Ok(())
    }

    fn reader(&self) -> Result<Reader<'_>> {
        Reader::of(&self.platform, &self.file, &self.name)
    }

    /// Makes an empty file that becomes the home file when it is whole, and returns its name.
    /// Removes one that a crash has left. The lock of the spool says that it is of no other
    /// receiver.
    pub fn make_unfinished(&self) -> Result<(Name, File)> {
        let (platform, home) = (&self.platform, &self.home);
        for name in beside_others(platform, home, UNFINISHED) {
            let io = |call, e| Error::io(call, name.path(), e);
            if let Some(there) = platform.stat_name(&name).map_err(|e| io("look up", e))? {
                if check_trust(platform, ((home, self.owner), &name), &there).is_err() {
                    continue;
                }
                platform.remove(&name).map_err(|e| io("remove", e))?;
            }
            let how = OpenHow { create_new: true, mode: 0o666, reads_only: false };
            match platform.open(&name, how) {
                Ok(file) => return Ok((name, file)),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(io("create", e)),
            }
        }
        Err(Error::io("create", home.path(), ErrorKind::AlreadyExists.into()))
    }

    /// Removes the file. What is left of it does no harm, and the next receiver uses it.
    pub fn remove(&self) {
        unless!(SpoolStays, {
            let _best_effort = remove_own(&self.platform, &self.name, &self.file);
        });
    }
}

impl Received for Spool {
    fn header(&self) -> &Header {
        &self.header
    }

    fn each_frame(&self, take: TakeFrame<'_>) -> Result<u64> {
        let mut stream = self.reader()?.stream()?;
        // The home file's owner may have written to it since it was received.
        if !stream.header.is_of_one_stream(&self.header) {
            return stream.damaged(0, "it is another stream than the one that was received");
        }
        loop {
            match stream.next()? {
                Next::Changes(changes) => take(&changes, &stream.body)?,
                Next::End(sum) => return Ok(sum),
            }
        }
    }
}

#[cfg(all(test, unix, not(miri), not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use std::fs;

    /// Two receivers shared a name, each with a lock: one had the file that the name was of before.
    /// Each of them could then name what the other one had half made.
    #[test]
    fn a_spool_that_was_removed_before_its_lock_was_taken_is_no_spool() {
        let folder = std::env::temp_dir().join(format!("spool-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let platform = Platform::native();
        let home = platform.name(&folder.join("home")).expect("a name");
        let name = beside(&home, SPOOL).next().expect("a name");
        let of = (&home, platform.user());
        let open = || open(&platform, (of, &name), true).expect("open").expect("made");
        let (first, stat) = open();
        assert!(lock(&platform, &name, (&first, &stat)).expect("lock"));
        let (late, of_late) = open();
        let busy = lock(&platform, &name, (&late, &of_late)).expect_err("it is taken");
        assert!(matches!(busy, Error::Io { call: "lock", .. }), "{busy}");
        remove_own(&platform, &name, &first).expect("remove");
        platform.unlock(&first).expect("unlock");
        assert!(!lock(&platform, &name, (&late, &of_late)).expect("lock"));
        let _third = open_locked(&platform, of).expect("a spool of its own");
        fs::remove_dir_all(&folder).expect("removed");
    }
}
