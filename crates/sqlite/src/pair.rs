//! One open database file, which all connections of the process share.
//!
//! May import `failure`, `ffi` (the guard), `header`, `locks`, `settings` and `versions`.

use crate::failure::{Code, Failure, Result};
use crate::ffi::guard::Guard;
use crate::header;
use crate::locks::Locks;
use crate::settings::Settings;
use crate::versions::Versions;
use atomic_mmap::{AtomicMappedFile, Closed, Error};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Offset of the two version numbers in the header of a database: 2 is WAL mode.
const VERSIONS: u64 = 18;

/// A file, as the system tells it from others. A child of `fork` shares none with its parent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Identity {
    process: u32,
    device: u64,
    inode: u64,
}

impl Identity {
    /// Returns the identity of what lies at `path` itself. SQLite has resolved the path, so a link
    /// there is another file.
    pub fn of(path: &Path) -> std::io::Result<Self> {
        std::fs::symlink_metadata(path).map(|found| Identity::told_by(&found))
    }

    /// Returns the identity of the file with this metadata.
    pub fn told_by(found: &Metadata) -> Self {
        let process = std::process::id();
        Identity { process, device: found.dev(), inode: found.ino() }
    }
}

/// An open database file with its locks.
#[derive(Debug)]
pub(crate) struct Pair {
    pub file: AtomicMappedFile,
    pub identity: Identity,
    pub locks: Locks,
    pub settings: Settings,
    pub is_read_only: bool,
    /// The versions that read transactions see, if the settings want that. Without a writer there
    /// is one version alone.
    pub versions: Option<Versions>,
    /// `true` if `PRAGMA journal_mode` answers `wal`.
    pub says_wal: AtomicBool,
}

impl Pair {
    /// Opens the file. The caller holds `guard`, so that no other SQLite uses it.
    pub fn open(
        path: &Path,
        identity: Identity,
        settings: &Settings,
        guard: &Guard,
    ) -> Result<Self> {
        refuse_log(path)?;
        let options = AtomicMappedFile::options().durability(settings.durability);
        let options = options.marks_database(true);
        // The file that is guarded, whatever file its name is of by now.
        let options = options.identity(identity.device, identity.inode);
        let mut options = options.close_on_drop(settings.close);
        if let Some(medium) = settings.medium {
            options = options.medium(medium);
        }
        if let Some(max_len) = settings.max_len {
            options = options.max_len(max_len);
        }
        let mut is_read_only = guard.is_read_only();
        let file = match options.clone().read_only(is_read_only).open(path) {
            Err(Error::NotWritable { .. } | Error::FolderNotWritable { .. }) => {
                is_read_only = true;
                options.read_only(true).open(path)
            }
            opened => opened,
        };
        let file = file.map_err(|error| Failure::of(&error, Code::CANTOPEN))?;
        refuse_wal_mode(&file)?;
        if !is_read_only {
            header::mark_if_plain(&file)?;
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        let versions = (settings.snapshot_reads && !is_read_only)
            .then(|| Versions::new(&file, folder, settings.overlay_memory))
            .transpose()?;
        Ok(Pair {
            file,
            identity,
            locks: Locks::new(versions.is_some()),
            settings: settings.clone(),
            is_read_only,
            versions,
            says_wal: AtomicBool::new(false),
        })
    }

    /// Closes the file, as its settings say. Returns what the user should know of a file that is
    /// closed.
    pub fn close(self) -> Result<Option<String>> {
        let path = self.file.path().to_owned();
        match self.file.close(self.settings.close) {
            Ok(Closed::WithCompanions(why)) => {
                let path = atomic_mmap::shown(&path);
                let said = "is closed, and complete as it is; its companions stay";
                Ok(Some(format!("{path} {said}: {why}")))
            }
            Ok(_) => Ok(None),
            Err(error) => Err(Failure::of(&error, Code::IOERR)),
        }
    }
}

/// Refuses a database with a write-ahead log beside it, which may hold its newest pages.
fn refuse_log(path: &Path) -> Result<()> {
    let log = crate::journals::beside(path, "-wal");
    match std::fs::metadata(&log) {
        Ok(found) if found.len() > 0 => Err(wal_failure(path, "has a write-ahead log beside it")),
        _ => Ok(()),
    }
}

fn refuse_wal_mode(file: &AtomicMappedFile) -> Result<()> {
    let mut versions = [0; 2];
    if file.len() < VERSIONS + 2 {
        return Ok(());
    }
    let read = file.read_at(&mut versions, VERSIONS);
    read.map_err(|error| Failure::of(&error, Code::IOERR_READ))?;
    if versions.contains(&2) {
        return Err(wal_failure(file.path(), "is in WAL mode"));
    }
    Ok(())
}

/// Returns `true` if `page` is the first page of a database in WAL mode.
pub(crate) fn is_header_of_wal_mode(page: &[u8], offset: u64) -> bool {
    offset == 0
        && page.get(VERSIONS as usize..VERSIONS as usize + 2).is_some_and(|v| v.contains(&2))
}

/// Returns the failure that tells how to convert a database.
pub(crate) fn wal_failure(path: &Path, why: &str) -> Failure {
    let path = atomic_mmap::shown(path);
    let message = format!(
        "{path} {why}, which the VFS atomic-mmap does not need; convert it once without this VFS: \
         sqlite3 '{path}' 'PRAGMA journal_mode=DELETE'"
    );
    Failure::new(Code::CANTOPEN, message)
}
