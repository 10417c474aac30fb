//! SQLite's questions to the file system: which file is ours, and which the VFS below has.
//!
//! Databases are ours, and the journals of their transactions and statements. Temporary files,
//! super-journals and journals that another VFS has left belong to the VFS below. A super-journal
//! has to be on the disk: a database of another VFS in the same transaction relies on it.
//!
//! May import `failure`, `ffi` (the user), `journals`, `main_file`, `registry` and `settings`.

use crate::failure::{Code, Failure, Result};
use crate::ffi::guard::user;
use crate::journals::{self, MemoryJournal, Place};
use crate::main_file::MainFile;
use crate::registry::Access;
use crate::settings::Settings;
use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The flags of `xOpen`.
pub(crate) mod flag {
    pub const READONLY: i32 = 0x1;
    pub const READWRITE: i32 = 0x2;
    pub const CREATE: i32 = 0x4;
    pub const EXCLUSIVE: i32 = 0x10;
    pub const MAIN_DB: i32 = 0x100;
    pub const MAIN_JOURNAL: i32 = 0x800;
    pub const SUBJOURNAL: i32 = 0x2000;
    pub const WAL: i32 = 0x8_0000;
    pub const NOFOLLOW: i32 = 0x100_0000;
}

/// A file that was opened.
#[derive(Debug)]
pub(crate) enum Opened {
    Main(Box<MainFile>),
    Journal(Box<MemoryJournal>),
    /// The VFS below has to open it.
    Below,
}

/// Opens a file. `parameter` returns the URI parameters of a database.
pub(crate) fn open(
    path: Option<&Path>,
    flags: i32,
    parameter: impl Fn(&str) -> Option<String>,
) -> Result<Opened> {
    match path {
        Some(path) if flags & flag::MAIN_DB != 0 => {
            if flags & flag::NOFOLLOW != 0 && path.is_symlink() {
                return Err(Failure::new(
                    Code::CANTOPEN,
                    format!("{} is a link", atomic_mmap::shown(path)),
                ));
            }
            let access = Access {
                write: flags & flag::READWRITE != 0,
                create: flags & flag::CREATE != 0,
                exclusive: flags & flag::EXCLUSIVE != 0,
            };
            let settings = Settings::parse(parameter)?;
            Ok(Opened::Main(Box::new(MainFile::open(path, access, &settings)?)))
        }
        Some(path) if flags & flag::MAIN_JOURNAL != 0 => match journals::place(path) {
            None | Some(Place::Disk) => Ok(Opened::Below),
            Some(Place::Absent) if flags & flag::CREATE == 0 => {
                let message = format!("{} does not exist", atomic_mmap::shown(path));
                Err(Failure::new(Code::CANTOPEN, message))
            }
            Some(_) => Ok(Opened::Journal(Box::new(journals::open(path)?))),
        },
        // To end a transaction over several databases SQLite reads the journals of the others, as
        // super-journals: it deletes the super-journal if none of them names it.
        Some(path) if journals::place(path) == Some(Place::Memory) => {
            Ok(Opened::Journal(Box::new(journals::open(path)?)))
        }
        None if flags & flag::SUBJOURNAL != 0 => {
            Ok(Opened::Journal(Box::new(journals::open_nameless())))
        }
        Some(path) if flags & flag::WAL != 0 => {
            let path = atomic_mmap::shown(path);
            let message = format!("{path}: the VFS atomic-mmap has no write-ahead log");
            Err(Failure::new(Code::CANTOPEN, message))
        }
        _ => Ok(Opened::Below),
    }
}

/// Refuses a name that neither the kernel nor this VFS follows to the file `full`, to which the VFS
/// below has resolved it. That VFS reads links itself. So it also follows those that another user
/// has put into a folder of all users.
pub(crate) fn check_links(name: &Path, full: &Path) -> Result<()> {
    let refuse = |why: &str| {
        Err(Failure::new(Code::CANTOPEN, format!("{}: {why}", atomic_mmap::shown(&name))))
    };
    let denied = "this user may not follow the name; name the file to which it leads";
    let followed = match follow(name) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return refuse(denied),
        Err(_) => return Ok(()),
        Ok(found) => Some((found.dev(), found.ino())),
    };
    match rustix::fs::open(name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::ACCESS) => refuse(denied),
        Err(_) => Ok(()),
        Ok(named) => {
            let found = [rustix::fs::fstat(named).ok(), rustix::fs::lstat(full).ok()];
            let is_it = |found: &Option<Stat>| found.map(|it| (it.st_dev, it.st_ino)) == followed;
            if found.iter().all(is_it) {
                return Ok(());
            }
            refuse("another file has this name by now")
        }
    }
}

/// Follows the links at a name to a file, by the rule of `fs.protected_symlinks`, also where that
/// is off. In a folder in which all users make names, and none removes another's, a link counts for
/// its owner, and for all if it is the folder's owner's.
fn follow(name: &Path) -> io::Result<Metadata> {
    /// Sticky, and writable by all.
    const SHARED: u32 = 0o1002;
    /// Stands for each user without a number in the user namespace.
    const UNMAPPED: u32 = 65_534;
    /// As in the kernel.
    const MOST_LINKS: usize = 40;
    let mut path = name.to_owned();
    for _ in 0..MOST_LINKS {
        let found = fs::symlink_metadata(&path)?;
        if !found.is_symlink() {
            return Ok(found);
        }
        let within = path.parent().unwrap_or(Path::new("/")).join(".");
        let (owner, folder) = (found.uid(), fs::metadata(&within)?);
        let is_trusted = owner == user() || owner == folder.uid() && owner != UNMAPPED;
        if folder.mode() & SHARED == SHARED && !is_trusted {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        path = within.join(fs::read_link(&path)?);
    }
    Err(Errno::LOOP.into())
}

/// Deletes a file that is in memory. Otherwise calls `below`, by which the VFS below deletes it.
pub(crate) fn delete(path: &Path, below: impl FnOnce() -> Code) -> Code {
    let code = if journals::place(path) == Some(Place::Memory) { Code::OK } else { below() };
    // A journal that stays on the disk would undo later transactions at the next open.
    if code == Code::OK {
        journals::delete(path);
    }
    code
}

/// Returns `Some(true)` if the file exists, and `None` if only the VFS below knows.
pub(crate) fn exists(path: &Path) -> Option<bool> {
    match journals::place(path)? {
        Place::Absent => Some(false),
        Place::Memory => Some(journals::exists(path)),
        Place::Disk => None,
    }
}
