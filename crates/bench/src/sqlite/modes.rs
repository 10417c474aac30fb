//! The contenders: SQLite on the VFS of this crate, and in the modes that programs use today.

use rusqlite::{Connection, OpenFlags};
use std::path::Path;

/// A way to run SQLite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// This crate's VFS, `synchronous=FULL`.
    OursFull,
    /// This crate's VFS, `synchronous=FULL`, and reads of earlier versions.
    OursSnapshots,
    /// This crate's VFS, `synchronous=OFF`.
    OursOff,
    /// Write-ahead log, `synchronous=FULL`.
    WalFull,
    /// Write-ahead log, `synchronous=NORMAL`.
    WalNormal,
    /// Rollback journal that is truncated, `synchronous=FULL`.
    TruncateFull,
    /// Rollback journal that is deleted, `synchronous=FULL`: SQLite's default.
    DeleteFull,
    /// No journal on disk, and no sync: the limit of SQLite's own work.
    Unsafe,
}

/// The modes of most groups, ours first.
pub const ALL: [Mode; 7] = [
    Mode::OursFull,
    Mode::OursOff,
    Mode::WalFull,
    Mode::WalNormal,
    Mode::TruncateFull,
    Mode::DeleteFull,
    Mode::Unsafe,
];

/// The modes that keep a transaction whole.
pub const SAFE: &[Mode] = ALL.split_last().expect("some").1;

/// The medium of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file system on a disk.
    Disk,
    /// A file system in memory, which this crate's VFS treats as persistent memory.
    Pmem,
}

impl Mode {
    /// Returns the name in tables and keys.
    pub fn name(self) -> &'static str {
        match self {
            Mode::OursFull => "ours_full",
            Mode::OursSnapshots => "ours_snapshots",
            Mode::OursOff => "ours_off",
            Mode::WalFull => "wal_full",
            Mode::WalNormal => "wal_normal",
            Mode::TruncateFull => "truncate_full",
            Mode::DeleteFull => "delete_full",
            Mode::Unsafe => "no_journal_no_sync",
        }
    }

    /// Returns `true` for this crate's VFS.
    pub fn is_ours(self) -> bool {
        matches!(self, Mode::OursFull | Mode::OursSnapshots | Mode::OursOff)
    }

    /// Returns what a power loss leaves of an acknowledged transaction.
    pub fn durability(self, place: Place) -> &'static str {
        match (self, place) {
            (Mode::Unsafe, _) => "nothing is promised",
            // The VFS writes through to persistent memory at each publication.
            (ours, Place::Pmem) if ours.is_ours() => "survives a power loss of real pmem",
            (_, Place::Pmem) => "survives the process; no flush",
            (Mode::OursOff | Mode::WalNormal, _) => "whole; a power loss may undo the last ones",
            _ => "survives a power loss",
        }
    }

    fn pragmas(self) -> &'static str {
        match self {
            Mode::OursFull | Mode::OursSnapshots | Mode::DeleteFull => "PRAGMA synchronous = FULL",
            Mode::OursOff => "PRAGMA synchronous = OFF",
            Mode::WalFull => "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL",
            Mode::WalNormal => "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL",
            Mode::TruncateFull => "PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = FULL",
            Mode::Unsafe => "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF",
        }
    }

    /// Opens the database at `path` by this mode. Everything else is SQLite's default.
    ///
    /// # Errors
    /// Returns the error of SQLite.
    pub fn open(self, path: &Path, place: Place) -> rusqlite::Result<Connection> {
        let db = if self.is_ours() {
            atomic_mmap_sqlite::register().expect("register the VFS");
            let medium = if place == Place::Pmem { "dax" } else { "page-cache" };
            let reads = u8::from(self == Mode::OursSnapshots);
            let options = format!("vfs=atomic-mmap&medium={medium}&snapshot_reads={reads}");
            let uri = format!("file:{}?{options}", path.display());
            Connection::open_with_flags(uri, OpenFlags::default())?
        } else {
            Connection::open(path)?
        };
        if place == Place::Pmem {
            db.execute_batch("PRAGMA mmap_size = 1073741824")?;
        }
        db.execute_batch(self.pragmas())?;
        db.set_prepared_statement_cache_capacity(64);
        Ok(db)
    }
}
