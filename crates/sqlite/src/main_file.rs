//! A connection's database file: one transaction of SQLite is one operation of the file.
//!
//! From the first write on, pages go to the connection's overlay. They are published as one
//! operation when SQLite says that the transaction is complete:
//! - `SQLITE_FCNTL_SYNC` comes once for each transaction, with any `synchronous` and journal mode.
//!   It also ends a rollback that has to write old pages back;
//! - `SQLITE_FCNTL_COMMIT_PHASETWO` follows a commit that makes the file shorter after that.
//!
//! An overlay that is left when the connection gives its lock up belongs to a transaction that has
//! failed, and is dropped.
//!
//! With `snapshot_reads` a connection at `Shared` reads the version that was the newest one when it
//! got that lock, and a connection above `Shared` the file.
//!
//! May import `failure`, `ffi` (pinned views), `file`, `header`, `journals`, `locks`, `overlay`,
//! `pair`, `registry`, `settings`, `stats` and `versions`.

use crate::failure::{Code, Failure, Result};
use crate::ffi::pinned::Pinned;
use crate::file::File;
use crate::header;
use crate::journals::Journals;
use crate::locks::Level;
use crate::overlay::Overlay;
use crate::pair::{Identity, Pair, is_header_of_wal_mode, wal_failure};
use crate::registry::{self, Access};
use crate::settings::Settings;
use crate::stats;
use crate::versions::Version;
use atomic_mmap::Medium;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The pragma that returns the counters of the database's file.
const STATS: &str = "atomic_mmap_stats";

/// A database file as one connection has it open.
#[derive(Debug)]
pub(crate) struct MainFile {
    /// Released by [`Drop`], after everything that uses it.
    pair: Option<Arc<Pair>>,
    path: PathBuf,
    level: Level,
    /// The version of this connection's read transaction, from `Shared` on. `None` without
    /// `snapshot_reads`.
    version: Option<Version>,
    overlay: Option<Overlay>,
    /// `true` if this connection has begun a transaction, and the file is as before it. `false` if
    /// SQLite may have to undo what is published: one part of a transaction, another part of which
    /// has failed, or what another connection has left with its journal.
    is_unpublished: bool,
    /// The pages that SQLite reads in place.
    fetched: Vec<Pinned>,
    /// Bytes from the start of the file that SQLite may read in place: `PRAGMA mmap_size`.
    mmap_size: u64,
    is_read_only: bool,
    /// `true` in exclusive locking mode.
    is_exclusive: bool,
    /// The journal mode that this connection has asked for last.
    journal_mode: &'static str,
    /// `None` from [`release`](Self::release) on.
    journals: Option<Journals>,
}

impl MainFile {
    /// Opens the database at `path`. The result may be read-only although `access` asks for more:
    /// see [`is_read_only`](Self::is_read_only).
    pub fn open(path: &Path, access: Access, settings: &Settings) -> Result<Self> {
        let pair = registry::open(path, access, settings)?;
        let journals = Journals::take(path, pair.versions.is_some());
        Ok(MainFile {
            is_read_only: pair.is_read_only || !access.write,
            pair: Some(pair),
            path: path.to_owned(),
            level: Level::None,
            version: None,
            overlay: None,
            is_unpublished: false,
            fetched: Vec::new(),
            mmap_size: 0,
            is_exclusive: false,
            journal_mode: "delete",
            journals: Some(journals),
        })
    }

    pub fn level(&self) -> Level {
        self.level
    }

    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn pair(&self) -> &Arc<Pair> {
        self.pair.as_ref().expect("released by the drop alone")
    }

    /// Returns the overlay, which it makes if there is none.
    fn overlay(&mut self) -> Result<(&Pair, &mut Overlay)> {
        if self.is_read_only {
            let message = format!("{} is open for reading alone", atomic_mmap::shown(&self.path));
            return Err(Failure::new(Code::READONLY, message));
        }
        let pair = self.pair.as_deref().expect("released by the drop alone");
        let overlay = self.overlay.get_or_insert_with(|| {
            let folder = self.path.parent().unwrap_or(Path::new("."));
            Overlay::new(pair.file.len(), folder, pair.settings.overlay_memory)
        });
        Ok((pair, overlay))
    }

    /// Makes all changes of the transaction visible and proof against a crash of the process, as
    /// one operation.
    ///
    /// After a hot journal of another VFS was played back this is also a durable point: SQLite then
    /// deletes the journal, and with `synchronous=OFF` it does not sync.
    ///
    /// After an error the overlay stays, and is abandoned if it may be: SQLite rolls back.
    ///
    /// `is_part` tells that the transaction has other databases, too: one of them may yet fail.
    pub fn publish(&mut self, is_part: bool) -> Result<()> {
        let Some(overlay) = &self.overlay else { return Ok(()) };
        let pair = self.pair();
        let versions = pair.versions.as_ref();
        let keep = |ranges: &[_]| versions.map_or(Ok(()), |known| known.keep(&pair.file, ranges));
        let published = overlay.publish(&pair.file, keep);
        self.abandon_if_failed(published)?;
        let is_playback = self.journals.as_ref().is_some_and(Journals::is_on_disk);
        self.is_unpublished = !is_part && !is_playback && self.level >= Level::Reserved;
        if is_playback {
            let synced = self.pair().file.sync();
            synced.map_err(|error| Failure::of(&error, Code::IOERR_FSYNC))?;
        }
        self.overlay = None;
        Ok(())
    }

    /// Publishes what SQLite has changed after the commit: it has made the file shorter.
    pub fn end_commit(&mut self) -> Result<()> {
        self.publish(false)?;
        self.is_unpublished = self.level >= Level::Reserved;
        Ok(())
    }

    /// Abandons the overlay after a failure, unless SQLite has to undo what is published.
    fn abandon_if_failed<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(failure) = &result
            && failure.ends_transaction()
            && self.is_unpublished
            && let (Some(pair), Some(overlay)) = (&self.pair, &mut self.overlay)
        {
            overlay.abandon(&pair.file);
        }
        result
    }

    /// Returns `true` if another file, or none, has the name of the database by now.
    pub fn has_moved(&self) -> bool {
        Identity::of(&self.path).ok() != Some(self.pair().identity)
    }

    /// Refuses a length that the file cannot get, before SQLite writes up to it.
    pub fn size_hint(&self, len: u64) -> Result<()> {
        let max_len = self.pair().file.max_len();
        if len > max_len {
            let path = atomic_mmap::shown(&self.path);
            let message = format!("{path} was opened for up to {max_len} bytes: see max_len");
            return Err(Failure::new(Code::FULL, message));
        }
        Ok(())
    }

    /// Prepares for a transaction that writes the whole file anew, as VACUUM does. Refuses a length
    /// that the file cannot get. Reserves the space that the pages take until they are published:
    /// a full disk then fails the statement before it copies the first page.
    pub fn will_overwrite(&mut self, len: u64) -> Result<()> {
        self.size_hint(len)?;
        let (pair, overlay) = self.overlay()?;
        let reserved = overlay.reserve(len);
        if reserved.is_err() && overlay.is_empty(&pair.file) {
            // It has a part of the space.
            self.overlay = None;
        }
        reserved
    }

    /// Sets the number of bytes that SQLite may read in place, unless `new` is `None`. Returns the
    /// number before.
    pub fn set_mmap_size(&mut self, new: Option<u64>) -> u64 {
        let old = self.mmap_size;
        self.mmap_size = new.unwrap_or(old);
        old
    }

    /// Returns the address of the `len` bytes at `offset`, which stay as they are until
    /// [`unfetch`](Self::unfetch). Returns `None` where a copy is as good.
    pub fn fetch(&mut self, offset: u64, len: usize) -> Result<Option<*const u8>> {
        let end = offset + len as u64;
        let pair = Arc::clone(self.pair());
        // Pinned bytes would fail a commit that makes the file shorter.
        let is_copy = pair.file.medium() == Medium::PageCache || pair.versions.is_some();
        if is_copy || self.overlay.is_some() || end > self.mmap_size.min(pair.file.len()) {
            return Ok(None);
        }
        let pinned = Pinned::new(pair, offset..end);
        let pinned = pinned.map_err(|error| Failure::of(&error, Code::IOERR_MMAP))?;
        let Some(pinned) = pinned else { return Ok(None) };
        let address = pinned.address();
        self.fetched.push(pinned);
        Ok(Some(address))
    }

    /// Gives back one fetch of `offset`, or all without an offset.
    pub fn unfetch(&mut self, offset: Option<u64>) {
        match offset {
            None => self.fetched.clear(),
            Some(offset) => {
                if let Some(n) = self.fetched.iter().rposition(|page| page.offset() == offset) {
                    self.fetched.swap_remove(n);
                }
            }
        }
    }

    /// Answers a pragma, or returns `None` for one that is SQLite's own matter.
    pub fn pragma(&mut self, name: &str, argument: Option<&str>) -> Option<String> {
        if name.eq_ignore_ascii_case(STATS) {
            return Some(stats::of(self.pair()));
        }
        if let Some(answer) = self.wal_pragma(name, argument) {
            return Some(answer);
        }
        let argument = argument?.trim_matches(['\'', '"']);
        if name.eq_ignore_ascii_case("locking_mode") {
            self.is_exclusive = argument.eq_ignore_ascii_case("exclusive");
        }
        if !name.eq_ignore_ascii_case("journal_mode") {
            return None;
        }
        let known = ["delete", "truncate", "persist", "memory", "off"];
        if let Some(mode) = known.iter().find(|mode| mode.eq_ignore_ascii_case(argument)) {
            self.journal_mode = mode;
        }
        // The answer of SQLite in the normal locking mode. In the exclusive one its WAL needs no
        // memory that processes share, and it would go ahead.
        let is_wal = self.is_exclusive && argument.eq_ignore_ascii_case("wal");
        is_wal.then(|| self.journal_mode.to_owned())
    }

    /// Answers `PRAGMA journal_mode` as SQLite does in WAL mode, if the settings want that and the
    /// program has set it. SQLite itself stays in the mode that it is in.
    fn wal_pragma(&self, name: &str, argument: Option<&str>) -> Option<String> {
        let pair = self.pair();
        if !pair.settings.wal_as_snapshots || !name.eq_ignore_ascii_case("journal_mode") {
            return None;
        }
        if let Some(mode) = argument {
            let is_wal = mode.trim_matches(['\'', '"']).eq_ignore_ascii_case("wal");
            pair.says_wal.store(is_wal, Ordering::Relaxed);
        }
        pair.says_wal.load(Ordering::Relaxed).then(|| "wal".to_owned())
    }

    /// Returns the version that reads of this connection get. A writer reads the file.
    fn read_version(&self) -> Option<Version> {
        self.version.filter(|_| self.overlay.is_none() && self.level == Level::Shared)
    }

    /// Makes what a writer has committed visible to readers that come, before others may write.
    fn end_writing(&mut self) {
        let (Some(pair), Some(journals)) = (&self.pair, &self.journals) else { return };
        let (Some(versions), Some(version)) = (&pair.versions, self.version) else { return };
        // SQLite could not undo what it has published, and plays its journal back later.
        if journals.has_header() {
            versions.leave_unfinished();
        } else {
            self.version = Some(versions.settle(&pair.file, version));
        }
        journals.set_writing(false);
    }
}

impl File for MainFile {
    fn read(&mut self, to: &mut [u8], offset: u64) -> Result<usize> {
        let len = self.len()?;
        let count = len.saturating_sub(offset).min(to.len() as u64) as usize;
        let to = &mut to[..count];
        let pair = self.pair();
        let file = &pair.file;
        let read =
            |to: &mut [u8], offset| match (&self.overlay, self.read_version(), &pair.versions) {
                (Some(overlay), ..) => overlay.read(file, to, offset),
                (None, Some(version), Some(versions)) => versions.read(file, version, to, offset),
                _ => {
                    let read = file.read_at(to, offset);
                    read.map_err(|error| Failure::of(&error, Code::IOERR_READ))
                }
            };
        if count > 0 {
            read(to, offset)?;
            header::show(to, offset, |whole| match len < whole.len() as u64 {
                true => Ok(()),
                false => read(whole, 0),
            })?;
        }
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        if is_header_of_wal_mode(bytes, offset) {
            let mut failure = wal_failure(&self.path, "would be in WAL mode");
            failure.code = Code::IOERR_WRITE;
            return Err(failure);
        }
        let (pair, overlay) = self.overlay()?;
        let written = overlay.write(&pair.file, &header::stored(bytes, offset), offset);
        self.abandon_if_failed(written)
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        let cut = self.overlay()?.1.truncate(len);
        self.abandon_if_failed(cut)
    }

    fn len(&mut self) -> Result<u64> {
        let len = match (&self.overlay, self.read_version()) {
            (Some(overlay), _) => overlay.len(),
            (None, Some(version)) => version.len,
            (None, None) => self.pair().file.len(),
        };
        // SQLite's own VFS takes a file of one byte for an empty one, too.
        Ok(if len == 1 { 0 } else { len })
    }

    fn sync(&mut self) -> Result<()> {
        self.publish(false)?;
        let synced = self.pair().file.sync();
        synced.map_err(|error| {
            self.is_unpublished = false;
            Failure::of(&error, Code::IOERR_FSYNC)
        })?;
        Ok(())
    }

    fn lock(&mut self, wanted: Level) -> Result<()> {
        let pair = self.pair.as_ref().expect("released by the drop alone");
        pair.locks.raise(&mut self.level, wanted)?;
        if let (Some(versions), Some(journals)) = (&pair.versions, &self.journals) {
            let version = *self.version.get_or_insert_with(|| versions.begin());
            if wanted == Level::Reserved {
                if !versions.may_write(version) {
                    pair.locks.lower(&mut self.level, Level::Shared);
                    return Err(Failure::stale());
                }
                journals.set_writing(true);
            }
        }
        // The lock by which SQLite begins a transaction. It plays back a journal without this one.
        if wanted == Level::Reserved {
            self.is_unpublished = true;
        }
        Ok(())
    }

    fn unlock(&mut self, wanted: Level) {
        self.overlay = None;
        self.is_unpublished = false;
        if self.level > Level::Shared {
            self.end_writing();
        }
        let pair = self.pair.as_ref().expect("released by the drop alone");
        if let Some(versions) = &pair.versions
            && wanted == Level::None
            && let Some(version) = self.version.take()
        {
            versions.end(version);
        }
        pair.locks.lower(&mut self.level, wanted);
    }

    fn is_reserved(&mut self) -> bool {
        self.pair().locks.is_reserved()
    }

    /// The last connection closes the pair.
    fn close(mut self) -> Result<Option<String>> {
        self.release()
    }

    fn main(&mut self) -> Option<&mut MainFile> {
        Some(self)
    }
}

impl MainFile {
    fn release(&mut self) -> Result<Option<String>> {
        self.unlock(Level::None);
        self.fetched.clear();
        // Before another VFS can leave a journal on the disk: the next open looks for one.
        self.journals = None;
        self.pair.take().map_or(Ok(None), registry::release)
    }
}

impl Drop for MainFile {
    fn drop(&mut self) {
        if self.pair.is_some() {
            let _unheard = self.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journals;

    fn open(path: &Path) -> MainFile {
        let access = Access { write: true, create: true, exclusive: false };
        let value = |name: &str| (name == "snapshot_reads").then(|| "1".to_owned());
        let settings = Settings::parse(value).expect("known");
        MainFile::open(path, access, &settings).expect("open")
    }

    fn commit(file: &mut MainFile, bytes: &[u8]) {
        file.write(bytes, 0).expect("write");
        file.publish(false).expect("publish");
        file.end_commit().expect("end");
    }

    fn first(file: &mut MainFile) -> u8 {
        let mut byte = [9];
        file.read(&mut byte, 0).expect("read");
        byte[0]
    }

    /// Two writers of one file. The first one publishes a part of a transaction, and goes without
    /// undoing it: its journal is hot. SQLite takes only that journal for one to play back.
    #[test]
    fn a_hot_journal_in_memory_is_played_back_before_the_next_transaction() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.db");
        let (mut a, mut b) = (open(&path), open(&path));
        let journal_path = journals::beside(&path, "-journal");
        let [old, new] = [1, 7].map(|byte| vec![byte; 4096]);
        for level in [Level::Shared, Level::Reserved, Level::Exclusive] {
            a.lock(level).expect("alone");
        }
        commit(&mut a, &old);
        a.unlock(Level::Shared);
        a.lock(Level::Reserved).expect("the newest version");
        let mut journal = journals::open(&journal_path).expect("open");
        journal.write(&[0xD9], 0).expect("write");
        assert!(!journals::exists(&journal_path), "the journal of a writer");
        a.write(&new, 0).expect("write");
        a.publish(true).expect("publish");
        b.lock(Level::Shared).expect("read");
        assert_eq!((first(&mut a), first(&mut b)), (7, 1));
        a.unlock(Level::None);

        assert!(journals::exists(&journal_path), "a hot journal");
        assert_eq!(first(&mut b), 1);
        assert_eq!(b.lock(Level::Reserved).expect_err("hot").code, Code::BUSY_SNAPSHOT);
        a.lock(Level::Shared).expect("read");
        assert_eq!(b.lock(Level::Exclusive).expect_err("a reads").code, Code::BUSY);
        b.unlock(Level::None);
        assert!(journals::exists(&journal_path), "still hot");
        assert_eq!(first(&mut a), 1);
        a.unlock(Level::None);

        b.lock(Level::Shared).expect("read");
        b.lock(Level::Exclusive).expect("alone");
        assert!(journals::exists(&journal_path), "SQLite looks once more");
        assert_eq!(a.lock(Level::Shared).expect_err("played back").code, Code::BUSY);
        b.write(&old, 0).expect("write");
        b.publish(false).expect("publish");
        // As PERSIST ends a transaction.
        journal.write(&[0; 28], 0).expect("write");
        b.unlock(Level::Shared);
        assert!(!journals::exists(&journal_path), "SQLite would read it while others write it");
        assert_eq!(first(&mut b), 1);
        b.lock(Level::Reserved).expect("nothing to undo");
        b.unlock(Level::None);
    }
}
