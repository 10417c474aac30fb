//! Files with snapshots: they keep their companions when they are closed.
//!
//! The companions lie beside the home file, which is whole, and have names by its inode. So such a
//! file stays in its folder, and its companions go with its last name. They have its mode and its
//! owner. Another time of the file is accepted if this library has given it.
//!
//! Invariant: nothing here asks for the state of a pair, which the caller may have locked.

use super::path::{self, Chosen, Owned};
use super::real;
use crate::errno::{Errno, Result};
use crate::pair::Identity;
use crate::{log, pair};
use atomic_mmap::{CloseMode, Decision, OnMismatch};
use libc::AT_EMPTY_PATH;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A companion: its name, and the file that had it at the look. Another user of the folder may give
/// the name to another file at any time. The descriptor keeps the inode from getting a new file.
struct Companion {
    name: CString,
    file: Owned,
}

/// The companions that a file keeps for its snapshots.
pub(super) struct Kept {
    home: PathBuf,
    identity: Identity,
    /// The folder of the home file, and of its companions.
    folder: Owned,
    /// The reflection file comes last, since the others are found by it.
    companions: Vec<Companion>,
    snapshots: usize,
    /// There is nothing to recover, and all bytes are in the home file.
    pub is_home: bool,
    /// A process has it open for writing.
    pub is_open: bool,
}

impl Kept {
    /// Looks at a file that is closed here. Returns `None` if it has no snapshots.
    pub fn of(chosen: &Chosen) -> Result<Option<Kept>> {
        pair::unforked(|| {
            if !chosen.has_companion() {
                return Ok(None);
            }
            // Another user of the folder may have given the name to another file.
            let folder = chosen.folder().ok_or(Errno(libc::ENOENT))?;
            let (device, inode) = chosen.identity;
            let look = pair::options().identity(device, inode).inspect(chosen.path());
            let look = look.map_err(|error| Errno::of(&error))?;
            if look.snapshots.is_empty() {
                return Ok(None);
            }
            let mut is_home = look.decision == Some(Decision::Reuse) && look.home_len == look.len;
            if is_home {
                let visited = look.each_reflected_page(|_, _| is_home = false);
                visited.map_err(|error| Errno::of(&error))?;
            }
            let companions = [look.journal, look.snapshot_file, look.reflection];
            let companions = companions.into_iter().flatten();
            let companions = companions.filter_map(|path| companion(&folder, &path, chosen));
            Ok(Some(Kept {
                home: look.home,
                identity: chosen.identity,
                companions: companions.collect(),
                folder,
                snapshots: look.snapshots.len(),
                is_home,
                is_open: look.is_open,
            }))
        })
    }

    /// Removes the companions of a file that has lost its last name.
    pub fn remove(&self) {
        note_removal(self.snapshots);
        for Companion { name, file } in &self.companions {
            if !self.folder.remove(name, file.fd()) {
                let name = name.to_string_lossy();
                log::line(&format!("the companion {name} cannot be removed, and stays"));
            }
        }
    }

    /// Gives the companions the mode and the owner of their file.
    pub fn follow(&self, home: &Chosen) {
        let Some(home) = path::stat(home.fd(), c"", AT_EMPTY_PATH) else { return };
        for Companion { name, file } in &self.companions {
            if !self.folder.has(name, file.fd()) {
                skip(name);
            } else if !follow(file, &home) {
                log::line("a companion does not get the mode or the owner of its file");
            }
        }
    }

    /// Notes that the file has another time, and the bytes that it had when this value was made.
    pub fn accept_time(&self) {
        if !self.is_home {
            return; // the next close notes the time
        }
        pair::unforked(|| {
            let (device, inode) = self.identity;
            let options = pair::options().identity(device, inode).on_mismatch(OnMismatch::Trust);
            let closed = options.open(&self.home).and_then(|file| file.close(CloseMode::Spatial));
            if let Err(error) = closed {
                log::line(&error.to_string());
            }
        });
    }
}

/// Names the companion that a look has found. Returns `None` if the name is another file's by now:
/// one with more names, or of a user that could not have made a companion.
fn companion(folder: &Owned, path: &Path, home: &Chosen) -> Option<Companion> {
    let name = CString::new(path.file_name()?.as_bytes()).ok()?;
    let file = folder.file(&name).filter(|file| {
        let owner = |fd| path::stat(fd, c"", AT_EMPTY_PATH).map(|found| found.st_uid);
        let owners = [Some(super::user()), owner(home.fd())];
        owner(file.fd()).is_some_and(|owner| owners.contains(&Some(owner)))
    });
    if file.is_none() {
        skip(&name);
    }
    Some(Companion { name, file: file? })
}

fn skip(name: &CStr) {
    let name = name.to_string_lossy();
    log::line(&format!("the companion {name} is another file by now, which stays as it is"));
}

/// Gives a companion the mode and the owner of its file. Returns `false` if that fails.
fn follow(companion: &Owned, home: &libc::stat) -> bool {
    let fd = companion.fd();
    // A descriptor that only names a file has its mode changed by this path alone.
    let Ok(path) = CString::new(format!("/proc/self/fd/{fd}")) else { return false };
    // SAFETY: texts with their zero bytes.
    unsafe {
        let owned = real::fchownat(fd, c"".as_ptr(), home.st_uid, home.st_gid, AT_EMPTY_PATH);
        owned | real::chmod(path.as_ptr(), home.st_mode & 0o777) == 0
    }
}

/// Notes how many snapshots have gone with the last name of their file.
pub(super) fn note_removal(snapshots: usize) {
    if snapshots > 0 {
        log::line(&format!("the last name of a file is gone, and {snapshots} snapshots with it"));
    }
}

/// Returns the error of a file with snapshots that may not leave its folder.
pub(super) fn stays() -> Errno {
    log::line("a file with snapshots may not get a name in another folder: EXDEV");
    Errno(libc::EXDEV)
}
