//! The log: one line for each refusal and each failure, in the file that `ATOMIC_MMAP_LOG` names.
//!
//! Invariant: a line has no control characters, whatever names it holds, and a file that another
//! user has put in the log's place does not stop the program. Links are followed, as `/dev/stderr`
//! is one, but none of another user in a folder of all users: the rule of `fs.protected_symlinks`,
//! also where that is off.
//!
//! May import: `inside`, `settings`.

use crate::inside::Inside;
use crate::settings;
use atomic_mmap::shown;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Appends a line to the log, if there is one. A line is one write, so lines of several processes
/// do not mix.
pub(crate) fn line(text: &str) {
    let Some(path) = settings::log() else { return };
    let _inside = Inside::enter();
    let program = std::env::args_os().next().unwrap_or_default();
    let program = program.as_bytes().rsplit(|&c| c == b'/').next().unwrap_or_default();
    let program = shown(OsStr::from_bytes(program));
    let line = format!("{program}[{}]: {}\n", std::process::id(), shown(text));
    // A program that cannot log goes on.
    let _unlogged = open(path.into()).and_then(|mut file| file.write_all(line.as_bytes()));
}

/// The most links that are followed, as in the kernel.
const MOST_LINKS: usize = 40;

/// Opens the log, or makes it. Each link is followed here, so that none can take the place of
/// another one after the look.
fn open(mut path: PathBuf) -> io::Result<File> {
    let open = |path: &Path, flags| {
        // A pipe without a reader is no log, and a terminal does not become the program's own.
        let flags = flags | libc::O_NONBLOCK | libc::O_NOCTTY;
        OpenOptions::new().append(true).create(true).custom_flags(flags).open(path)
    };
    for _ in 0..MOST_LINKS {
        match open(&path, libc::O_NOFOLLOW) {
            Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {}
            opened => return opened,
        }
        let folder = path.parent().unwrap_or(Path::new("/")).join(".").canonicalize()?;
        // The kernel alone can follow a link to an open file, which may have no name.
        if folder.starts_with("/proc") {
            return open(&path, 0);
        }
        // The owner is the effective user of the process, or root, which is trusted.
        let user = fs::metadata("/proc/self")?.uid();
        if !may_follow(&fs::symlink_metadata(&path)?, &fs::metadata(&folder)?, user) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        path = folder.join(fs::read_link(&path)?);
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// Returns `true` if a user may follow a link in a folder. In one in which all users make names,
/// and none removes another's, a link counts for its owner, and for all if it is the folder's
/// owner's.
fn may_follow(link: &Metadata, folder: &Metadata, user: u32) -> bool {
    /// Sticky, and writable by all.
    const SHARED: u32 = 0o1002;
    /// Stands for each user without a number in the user namespace.
    const UNMAPPED: u32 = 65_534;
    let owner = link.uid();
    folder.mode() & SHARED != SHARED || owner == user || owner == folder.uid() && owner != UNMAPPED
}
