//! Names of files in an open folder.
//!
//! Owns: [`Folder`] and [`Name`]. A path is resolved once: links in it are followed, and from then
//! on the resolved file does not depend on the current directory. On Linux the folder is open
//! while names in it are used, so that a name refers to one file even after the folder was renamed
//! or moved. A folder that is not needed for long is closed, and found again by its identity.
//!
//! Invariant: a [`Name`] has one component; it never leads out of its folder.
//!
//! May import: std only.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The maximal number of links that are followed one after the other, as in the Linux kernel.
const MOST_LINKS: usize = 40;

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
    /// Device and inode of the folder, by which it is found again. `None` as for `open`.
    pub(super) identity: Option<(u64, u64)>,
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

    /// Returns this folder, closed. No name in it can be used before `Platform::reopen_folder`.
    pub fn closed(&self) -> Folder {
        Folder { path: self.path.clone(), open: None, identity: self.identity }
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

    /// Returns this name in another handle of its folder.
    pub fn within(&self, folder: &Arc<Folder>) -> Name {
        Name::new(folder, self.name.clone())
    }

    /// Returns the name followed by `.` and `suffix`, in this folder.
    pub fn with_suffix(&self, suffix: &str) -> Name {
        let mut name = self.name.clone();
        name.push(".");
        name.push(suffix);
        Name::new(&self.folder, name)
    }
}

/// Returns the absolute path of the file that `path` leads to, whether the file exists or not.
/// Links are followed. A dangling link is followed to its target, as an open that creates the file
/// does.
///
/// # Errors
/// `NotFound` if the folder does not exist, and an error for a loop of links.
pub(super) fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Some(name) = path.file_name().map(OsStr::to_owned) else {
            // `..` or the root: no file, and the caller's stat says so.
            return std::fs::canonicalize(&path);
        };
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => std::fs::canonicalize(folder)?,
            _ => std::fs::canonicalize(".")?,
        };
        path = folder.join(name);
        match std::fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => path = folder.join(std::fs::read_link(&path)?),
            Ok(_) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(path),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("too many levels of symbolic links"))
}

#[cfg(all(test, unix, not(miri)))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_resolved_to_the_file_that_they_lead_to() {
        let dir = std::env::temp_dir().join(format!("resolve-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("real")).expect("a folder");
        let dir = std::fs::canonicalize(dir).expect("its path");
        symlink("real", dir.join("folder")).expect("a link");
        symlink("folder/file", dir.join("link")).expect("a link");
        symlink("link", dir.join("again")).expect("a link");
        symlink("loop", dir.join("loop")).expect("a link");
        let file = dir.join("real/file");
        // Dangling, as long as the file is not there.
        assert_eq!(resolve(&dir.join("again")).expect("resolved"), file);
        std::fs::write(&file, b"x").expect("a file");
        for name in ["again", "link", "folder/file", "real/file", "real/../link"] {
            assert_eq!(resolve(&dir.join(name)).expect("resolved"), file, "{name}");
        }
        assert!(resolve(&dir.join("loop")).is_err());
        let gone = resolve(&dir.join("none/file")).expect_err("no folder");
        assert_eq!(gone.kind(), ErrorKind::NotFound);
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
