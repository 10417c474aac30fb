//! Names in an open folder.
//!
//! Owns: the calls that look at, move, remove, list and sync names.
//!
//! Invariants: those of `calls`.
//!
//! May import: `gate`, `at`, the recorder.

use super::gate::attempt;
use crate::platform::os::{File, FileStat, Folder, Name, at};
#[cfg(feature = "recorder")]
use crate::platform::recorder::What;
use crate::platform::{Platform, call};
use std::ffi::OsString;
use std::io::{self, ErrorKind};

impl Platform {
    /// Makes the names in a folder durable (on Unix; elsewhere there is no such call). `file` lies
    /// on the folder's file system: that is synced as a whole where the folder may not be read.
    pub fn sync_dir(&self, folder: &Folder, file: &File) -> io::Result<()> {
        attempt!(
            self,
            call::SYNC_DIR,
            |_| at::sync(folder, file.system()),
            [simulated => {
                let _ = file;
                simulated.machine.sync_dir(folder.path())
            }],
            [] |_: &()| What::SyncDir { path: folder.path().to_path_buf() }
        )
    }

    /// Returns the metadata of what is at a name, or `None` if nothing is there. A link is not
    /// followed.
    pub fn stat_name(&self, name: &Name) -> io::Result<Option<FileStat>> {
        attempt!(
            self,
            call::STAT_PATH,
            |_| at::stat(name),
            [simulated => simulated.machine.stat_path(name.path())]
        )
    }

    /// Returns device and inode of what is at a name, or `None` if nothing is there. Opens nothing.
    pub fn identity_at(&self, name: &Name) -> io::Result<Option<(u64, u64)>> {
        attempt!(
            self,
            call::STAT_PATH,
            |_| at::identity(name),
            [simulated => {
                let there = simulated.machine.stat_path(name.path())?;
                Ok(there.map(|there| (there.dev, there.ino)))
            }]
        )
    }

    /// Renames a file. Fails with `AlreadyExists`, and replaces nothing, if something is at the new
    /// name.
    pub fn rename(&self, from: &Name, to: &Name) -> io::Result<()> {
        attempt!(
            self,
            call::RENAME,
            |_| at::rename(from, to),
            [simulated => simulated.machine.rename(from.path(), to.path())],
            [] |_: &()| What::Rename { from: from.path().to_path_buf(), to: to.path().to_path_buf() }
        )
    }

    /// Removes a name.
    pub fn remove(&self, name: &Name) -> io::Result<()> {
        attempt!(
            self,
            call::REMOVE,
            |_| at::remove(name),
            [simulated => simulated.machine.remove(name.path())],
            [] |_: &()| What::Remove { path: name.path().to_path_buf() }
        )
    }

    /// Returns up to `most` names in a folder, in no order.
    pub fn list_dir(&self, folder: &Folder, most: usize) -> io::Result<Vec<OsString>> {
        attempt!(
            self,
            call::LIST_DIR,
            |_| at::list(folder, most),
            [simulated => simulated.machine.list_dir(folder.path()).map(|paths| {
                let names = paths.iter().filter_map(|path| path.file_name());
                names.take(most).map(OsString::from).collect()
            })]
        )
    }

    /// Returns `true` if the open file, which has its name in the folder, is mounted there by
    /// itself: it lies in another place than its name.
    pub fn is_mounted_alone(&self, folder: &Folder, file: &File) -> io::Result<bool> {
        attempt!(
            self,
            call::STAT,
            |_| at::is_mounted_alone(folder, file.system()),
            [simulated => Ok(simulated.machine.is_mounted_alone(folder.path(), file.number()))]
        )
    }
}
