//! The database files that this process has open, by their identity.
//!
//! Opening and closing of one file exclude each other; those of different files do not. May import
//! `failure`, `ffi` (the guard), `pair` and `settings`.

use crate::failure::{Code, Failure, Result};
use crate::ffi::guard::{Guard, Taken, may_write};
use crate::pair::{Identity, Pair};
use crate::settings::Settings;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The pause between two attempts to open a busy file.
const PAUSE: Duration = Duration::from_millis(5);

static FILES: Mutex<Option<HashMap<Identity, Arc<Mutex<Entry>>>>> = Mutex::new(None);

#[derive(Default)]
struct Entry {
    pair: Weak<Pair>,
    guard: Option<Guard>,
    /// A file that another SQLite has locked. It stays open: if that SQLite belongs to this
    /// process, closing any descriptor of the file would drop its locks (POSIX).
    refused: Option<Handle>,
}

/// A file for [`Guard`], and `true` if it is open for writing.
type Handle = (File, bool);

/// The access to a file that a connection asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Access {
    pub write: bool,
    pub create: bool,
    /// Fails if the file exists.
    pub exclusive: bool,
}

/// Opens the file at `path`, or joins the connections that have it open. Waits for another process
/// as long as the settings say.
pub(crate) fn open(path: &Path, access: Access, settings: &Settings) -> Result<Arc<Pair>> {
    let end = Instant::now() + settings.busy_timeout;
    loop {
        match try_open(path, access, settings) {
            Err(failure) if failure.code == Code::BUSY && Instant::now() < end => sleep(PAUSE),
            other => return other,
        }
    }
}

fn entry(identity: Identity) -> Arc<Mutex<Entry>> {
    Arc::clone(FILES.lock().get_or_insert_default().entry(identity).or_default())
}

fn try_open(path: &Path, access: Access, settings: &Settings) -> Result<Arc<Pair>> {
    let fail = |error: io::Error| {
        Failure::of_io(&error, Code::CANTOPEN, &atomic_mmap::shown(path).to_string())
    };
    // The file is made before it has an identity. A file that exists is opened below, once.
    let created = if access.create { create(path, access.exclusive).map_err(fail)? } else { None };
    let identity = match &created {
        Some((file, _)) => file.metadata().map(|found| Identity::told_by(&found)),
        None => Identity::of(path),
    };
    let identity = identity.map_err(fail)?;
    let entry = entry(identity);
    let mut entry = entry.lock();
    if let Some(pair) = entry.pair.upgrade() {
        if access.write && pair.is_read_only && may_write(path) {
            let message = "this process has the database open for reading alone; open it for \
                           writing first";
            return Err(Failure::new(
                Code::BUSY,
                format!("{}: {message}", atomic_mmap::shown(path)),
            ));
        }
        return Ok(pair);
    }
    let (file, is_writable) = match created.or_else(|| entry.refused.take()) {
        Some(handle) => handle,
        None => {
            let (file, is_writable) = open_file(path).map_err(fail)?;
            let found = file.metadata().map_err(fail)?;
            if !found.is_file() {
                let message = format!("{}: not a regular file", atomic_mmap::shown(&path));
                return Err(Failure::new(Code::CANTOPEN, message));
            }
            if Identity::told_by(&found) != identity {
                let message =
                    format!("{}: another file has this name by now", atomic_mmap::shown(&path));
                return Err(Failure::new(Code::BUSY, message));
            }
            (file, is_writable)
        }
    };
    let guard = match Guard::take(file, access.write && is_writable).map_err(fail)? {
        Taken::Guard(guard) => guard,
        Taken::Refused(file) => {
            entry.refused = Some((file, is_writable));
            let message = "another process has the database open, or another VFS of this one";
            return Err(Failure::new(
                Code::BUSY,
                format!("{}: {message}", atomic_mmap::shown(path)),
            ));
        }
    };
    let pair = Arc::new(Pair::open(path, identity, settings, &guard)?);
    entry.pair = Arc::downgrade(&pair);
    entry.guard = Some(guard);
    Ok(pair)
}

/// Makes the file. Returns `None` if it exists, and may.
fn create(path: &Path, exclusive: bool) -> io::Result<Option<Handle>> {
    // With the rights that SQLite gives a database. Not through a link, as nothing may be there.
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o644);
    match options.open(path) {
        Ok(file) => Ok(Some((file, true))),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !exclusive => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens the file for writing if it may be, else for reading. Does not wait for the other end of a
/// pipe, and follows no link that has taken the file's name.
fn open_file(path: &Path) -> io::Result<Handle> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW);
    match options.clone().write(true).open(path) {
        Ok(file) => Ok((file, true)),
        Err(_) => Ok((options.open(path)?, false)),
    }
}

/// Gives a connection's share of the file back. The last one closes the file: see [`Pair::close`].
pub(crate) fn release(pair: Arc<Pair>) -> Result<Option<String>> {
    let identity = pair.identity;
    let entry = entry(identity);
    let closed = {
        let mut entry = entry.lock();
        let Some(pair) = Arc::into_inner(pair) else { return Ok(None) };
        let closed = pair.close();
        // Last: until here no other SQLite has looked at the file.
        entry.guard = None;
        closed
    };
    let mut files = FILES.lock();
    // No other thread has the entry, and none can get it meanwhile.
    let is_last = Arc::strong_count(&entry) == 2;
    if is_last && { entry.lock() }.is_unused() {
        files.get_or_insert_default().remove(&identity);
    }
    closed
}

impl Entry {
    fn is_unused(&self) -> bool {
        self.guard.is_none() && self.refused.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SQLite resolves the path first. Another user put a link at the name afterwards, and it was
    /// followed.
    #[test]
    fn a_link_that_takes_the_name_of_a_resolved_path_is_no_database() {
        let folder = tempfile::tempdir().expect("a folder");
        let (link, settings) = (folder.path().join("db"), Settings::parse(|_| None).expect("none"));
        let target = folder.path().join("target");
        std::os::unix::fs::symlink(&target, &link).expect("a link");
        for is_there in [false, true] {
            if is_there {
                std::fs::write(&target, "").expect("write");
            }
            for create in [true, false] {
                let access = Access { write: true, create, exclusive: false };
                let failure = open(&link, access, &settings).expect_err("a link");
                assert_eq!(failure.code, Code::CANTOPEN, "{failure:?}");
                assert_eq!(target.exists(), is_there);
            }
        }
    }
}
