//! Rollback journals in memory, by the names of their databases.
//!
//! SQLite keeps the old pages of a transaction in a journal, for a rollback. After a crash this
//! crate needs none, so a journal never reaches the disk. A journal that the unix VFS has left
//! there is real: SQLite plays it back and deletes it, by the VFS below.
//!
//! May import `failure`, `file` and `spill`.

use crate::failure::{Code, Failure, Result};
use crate::file::File;
use crate::spill::{BUDGET, Spill};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A database's name, in one process: a child of `fork` has none of its parent's journals.
type Key = (u32, PathBuf);

static JOURNALS: Mutex<Option<HashMap<Key, Entry>>> = Mutex::new(None);

struct Entry {
    /// Connections that have the database open by this name.
    users: u64,
    journal: State,
    /// `true` if this process writes a transaction, to which the journal belongs.
    is_writing: bool,
    /// `true` if readers stay beside a writer: see [`exists`].
    readers_stay: bool,
}

#[derive(Clone)]
enum State {
    Absent,
    /// Left by a process that used another VFS.
    OnDisk,
    InMemory(Arc<Mutex<Spill>>),
}

/// Where a file beside an open database is to be looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Nowhere: it does not exist.
    Absent,
    Memory,
    /// On the disk, in the VFS below.
    Disk,
}

fn key(database: &Path) -> Key {
    (std::process::id(), database.to_owned())
}

/// Returns the name of a database, with `suffix`.
pub(crate) fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(database);
    name.push(suffix);
    PathBuf::from(name)
}

/// Returns the name of the database that a journal or log belongs to.
fn database_of<'p>(path: &'p Path, suffix: &str) -> Option<&'p Path> {
    let name = path.as_os_str().as_bytes().strip_suffix(suffix.as_bytes())?;
    Some(Path::new(OsStr::from_bytes(name)))
}

fn with_entry<R>(database: &Path, act: impl FnOnce(&mut Entry) -> R) -> Option<R> {
    JOURNALS.lock().as_mut()?.get_mut(&key(database)).map(act)
}

/// The journal of an open database. Dropping the last one of a name forgets the journal.
#[derive(Debug)]
pub(crate) struct Journals {
    database: PathBuf,
}

impl Journals {
    /// Takes charge of the journal of `database`. Looks once for one on the disk: no other process
    /// makes one while the database is open here.
    ///
    /// With `readers_stay` a reader and a writer do not exclude each other.
    pub fn take(database: &Path, readers_stay: bool) -> Self {
        let is_on_disk = beside(database, "-journal").exists();
        let mut all = JOURNALS.lock();
        let entries = all.get_or_insert_default();
        let entry = entries.entry(key(database)).or_insert_with(|| Entry {
            users: 0,
            journal: if is_on_disk { State::OnDisk } else { State::Absent },
            is_writing: false,
            readers_stay,
        });
        entry.users += 1;
        Journals { database: database.to_owned() }
    }

    /// Returns `true` if the journal is one that another VFS has left on the disk.
    pub fn is_on_disk(&self) -> bool {
        with_entry(&self.database, |entry| matches!(entry.journal, State::OnDisk)) == Some(true)
    }

    /// Returns `true` if the journal is in memory, and SQLite has not ended its transaction.
    pub fn has_header(&self) -> bool {
        with_entry(&self.database, |entry| entry.journal.has_header()) == Some(true)
    }

    /// Says that a transaction begins, or that its writer has ended it or left it.
    pub fn set_writing(&self, is_writing: bool) {
        with_entry(&self.database, |entry| entry.is_writing = is_writing);
    }
}

impl Drop for Journals {
    fn drop(&mut self) {
        let mut all = JOURNALS.lock();
        let Some(entries) = all.as_mut() else { return };
        let key = key(&self.database);
        // None in a child of `fork`, which did not take it.
        let Some(entry) = entries.get_mut(&key) else { return };
        entry.users -= 1;
        if entry.users == 0 {
            entries.remove(&key);
        }
    }
}

/// Returns where the file `path` is, if it is the journal or the log of an open database.
pub(crate) fn place(path: &Path) -> Option<Place> {
    if let Some(database) = database_of(path, "-wal") {
        // A database with a log beside it is refused.
        return with_entry(database, |_| Place::Absent);
    }
    let database = database_of(path, "-journal")?;
    with_entry(database, |entry| match entry.journal {
        State::Absent => Place::Absent,
        State::OnDisk => Place::Disk,
        State::InMemory(_) => Place::Memory,
    })
}

/// Returns `true` if `path` is a journal in memory that SQLite may have to play back.
///
/// SQLite relies on its locks: it looks whether a journal exists, and then whether a writer has a
/// lock. A writer that does not exclude readers may begin or end in between, and the reader would
/// take its journal for one of a crash. So there the answer is for both questions.
pub(crate) fn exists(path: &Path) -> bool {
    let is_hot = |entry: &mut Entry| match entry.journal {
        State::InMemory(_) if entry.readers_stay => !entry.is_writing && entry.journal.has_header(),
        State::InMemory(_) => true,
        State::Absent | State::OnDisk => false,
    };
    database_of(path, "-journal").and_then(|database| with_entry(database, is_hot)) == Some(true)
}

impl State {
    /// Returns `true` if the journal is in memory and has a header. SQLite ends a transaction by
    /// deleting its journal, cutting it off, or filling its header with zeroes.
    fn has_header(&self) -> bool {
        let State::InMemory(bytes) = self else { return false };
        let mut first = [0];
        matches!(bytes.lock().read(&mut first, 0), Ok(1)) && first != [0]
    }
}

/// Forgets the journal `path`.
pub(crate) fn delete(path: &Path) {
    if let Some(database) = database_of(path, "-journal") {
        with_entry(database, |entry| entry.journal = State::Absent);
    }
}

/// Opens the journal `path` in memory, and makes it if it does not exist.
pub(crate) fn open(path: &Path) -> Result<MemoryJournal> {
    let refuse = || Failure::new(Code::CANTOPEN, "a journal of no open database");
    let database = database_of(path, "-journal").ok_or_else(refuse)?;
    let folder = database.parent().unwrap_or(Path::new("."));
    let opened = with_entry(database, |entry| match &entry.journal {
        State::InMemory(bytes) => Arc::clone(bytes),
        State::Absent | State::OnDisk => {
            let bytes = Arc::new(Mutex::new(Spill::new(folder, BUDGET)));
            entry.journal = State::InMemory(Arc::clone(&bytes));
            bytes
        }
    });
    Ok(MemoryJournal { bytes: opened.ok_or_else(refuse)? })
}

/// Opens a journal of a statement, which has no name.
pub(crate) fn open_nameless() -> MemoryJournal {
    let folder = atomic_mmap::variable("TMPDIR").unwrap_or_else(|| "/tmp".into());
    MemoryJournal { bytes: Arc::new(Mutex::new(Spill::new(folder.as_ref(), BUDGET))) }
}

/// A journal in memory, beyond a budget in an unlinked temporary file.
#[derive(Debug)]
pub(crate) struct MemoryJournal {
    bytes: Arc<Mutex<Spill>>,
}

impl File for MemoryJournal {
    fn read(&mut self, to: &mut [u8], offset: u64) -> Result<usize> {
        self.bytes.lock().read(to, offset)
    }

    fn write(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        self.bytes.lock().write(bytes, offset)
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        self.bytes.lock().truncate(len)
    }

    fn len(&mut self) -> Result<u64> {
        Ok(self.bytes.lock().len())
    }
}
