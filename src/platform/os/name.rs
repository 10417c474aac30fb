//! Names of files in an open folder.
//!
//! Owns: [`Folder`] and [`Name`]. A path is resolved once. From then on the file does not depend on
//! the current directory, nor on the names above it. On Linux the folder stays open for as long as
//! a name in it is known, so that a name refers to one file even after the folder was renamed,
//! moved or replaced. `at` resolves paths, since that depends on the system.
//!
//! Invariant: a [`Name`] has one component; it never leads out of its folder.
//!
//! May import: std only.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A folder in which names are used.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The open folder. `None` where names are looked up by their paths.
    #[cfg_attr(
        not(all(target_os = "linux", not(atomic_mmap_portable))),
        expect(dead_code, reason = "always `None` here")
    )]
    pub(super) open: Option<File>,
    /// Device and inode of the open folder.
    #[cfg_attr(
        not(all(target_os = "linux", not(atomic_mmap_portable))),
        expect(dead_code, reason = "always `None` here")
    )]
    identity: Option<(u64, u64)>,
}

impl Folder {
    /// Creates the folder at `path`, open where the system looks names up in open folders.
    pub(super) fn new(path: PathBuf, open: Option<File>) -> Folder {
        Folder { path, open, identity: None }
    }

    /// Returns this folder with its device and inode.
    #[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
    pub(super) fn known_as(self, identity: (u64, u64)) -> Folder {
        Folder { identity: Some(identity), ..self }
    }

    /// Returns `true` if the other folder is this one, opened by the same path.
    #[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
    pub(super) fn is(&self, other: &Folder) -> bool {
        (self.identity, &self.path) == (other.identity, &other.path)
    }

    /// Returns the folder's path when it was opened, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The name of a file in a folder.
#[derive(Clone, Debug)]
pub struct Name {
    folder: Arc<Folder>,
    name: OsString,
    path: PathBuf,
}

impl Name {
    /// Creates the name of the file `name`, one component, in `folder`.
    pub fn new(folder: &Arc<Folder>, name: impl Into<OsString>) -> Name {
        let name = name.into();
        let path = folder.path.join(&name);
        Name { folder: Arc::clone(folder), name, path }
    }

    /// Returns the folder that holds the name.
    pub fn folder(&self) -> &Arc<Folder> {
        &self.folder
    }

    /// Returns the path when the folder was opened: for messages, and for systems without open
    /// folders.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the last component.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Returns the name followed by `.` and `suffix`, in this folder.
    pub fn with_suffix(&self, suffix: &str) -> Name {
        let mut name = self.name.clone();
        name.push(".");
        name.push(suffix);
        Name::new(&self.folder, name)
    }
}

/// Splits a path into its folder and its last component. Returns `None` for a path that ends in no
/// name: the root, `.` or `..`.
pub(super) fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Some((folder.unwrap_or(Path::new(".")), path.file_name()?))
}
