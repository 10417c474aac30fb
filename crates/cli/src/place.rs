//! The files and folders that commands make, in folders of which other users may write to the
//! names.
//!
//! Invariants:
//! - A folder is opened once and held. Each name in it is used by that descriptor, is made where
//!   nothing was, and is never followed if it is a link.
//! - Only this process, its user and the owner of the folder write to a scratch folder. Its own
//!   descriptor shows that, since its name may be another folder's by the time it is opened.
//!
//! May import: `outcome`.

use crate::outcome::Failure;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The beginning of the names of scratch folders.
const SCRATCH: &str = ".atomic-mmap-scratch-";
/// How often a scratch folder is made that another user exchanges at once.
const TRIES: usize = 16;
const NEW: OFlags = OFlags::CREATE.union(OFlags::EXCL);

/// The scratch folders to remove if the command is interrupted. They are made and removed under the
/// lock.
static TO_REMOVE: Mutex<Vec<Arc<Made>>> = Mutex::new(Vec::new());

fn to_remove() -> MutexGuard<'static, Vec<Arc<Made>>> {
    TO_REMOVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all scratch folders, and keeps the command from making another one: the lock is held for
/// as long as the returned value lives.
pub fn remove_all() -> impl Drop {
    let made = to_remove();
    made.iter().for_each(|made| made.remove());
    made
}

/// An open folder, with its path for messages.
#[derive(Clone)]
struct Folder {
    open: Arc<OwnedFd>,
    path: PathBuf,
}

impl Folder {
    fn open(path: &Path) -> Result<Folder, Failure> {
        // A link at its end leads to the folder, as it does for an open of a name in it.
        let inside = path.join(".");
        let open = |how| {
            let flags = how | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::openat(CWD, &inside, flags, Mode::empty())
        };
        let open = match open(OFlags::RDONLY) {
            // Names can be made in a folder that cannot be listed.
            Err(Errno::ACCESS) => open(OFlags::PATH),
            opened => opened,
        };
        let open = open.map_err(|e| Failure::io(path)(e.into()))?;
        Ok(Folder { open: Arc::new(open), path: path.to_owned() })
    }
}

/// The place of a new file.
pub struct Place {
    folder: Folder,
    name: OsString,
    path: PathBuf,
}

impl Place {
    /// Finds the place, and refuses it if there is something already.
    pub fn of(path: &Path) -> Result<Place, Failure> {
        let failed = |kind: ErrorKind| Failure::io(path)(kind.into());
        let name = path.file_name().ok_or_else(|| failed(ErrorKind::IsADirectory))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = Folder::open(folder.unwrap_or(Path::new(".")))?;
        match rustix::fs::statat(&folder.open, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Err(error) => return Err(Failure::io(path)(error.into())),
            Ok(_) => return Err(failed(ErrorKind::AlreadyExists)),
        }
        Ok(Place { folder, name: name.to_owned(), path: path.to_owned() })
    }

    /// Makes the file `copy` in a scratch folder, and gives it its name. The caller makes the file
    /// durable, and this its name. Returns what `make` returns.
    pub fn fill<T>(
        &self,
        make: impl FnOnce(&Scratch, &str) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        const COPY: &str = "copy";
        let scratch = Scratch::make(&self.folder)?;
        let made = make(&scratch, COPY)?;
        let (from, to) = (&scratch.0.own, &self.folder.open);
        // A link, and no rename, so that a file that came meanwhile is not replaced.
        rustix::fs::linkat(from, COPY, to, &self.name, AtFlags::empty())
            .map_err(|e| Failure::io(&self.path)(e.into()))?;
        let synced = match rustix::fs::fsync(to) {
            // It was opened to make names alone: all of its file system is synced.
            Err(Errno::BADF) => rustix::fs::syncfs(from),
            synced => synced,
        };
        synced.map_err(|e| Failure::io(&self.folder.path)(e.into()))?;
        Ok(made)
    }
}

/// Writes a file anew in a folder. What had its name is removed, and no link is followed.
pub fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |e: io::Error| Failure::io(&folder.join(name))(e);
    let Folder { open, .. } = Folder::open(folder)?;
    match rustix::fs::unlinkat(&open, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(failed(error.into())),
    }
    let flags = OFlags::WRONLY | NEW | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o666);
    let made = rustix::fs::openat(&open, name, flags, mode).map_err(|e| failed(e.into()))?;
    File::from(made).write_all(bytes).map_err(failed)
}

/// A scratch folder, removed on drop and on SIGINT.
pub struct Scratch(Arc<Made>);

struct Made {
    folder: Folder,
    name: String,
    own: OwnedFd,
}

impl Scratch {
    pub fn within(folder: &Path) -> Result<Scratch, Failure> {
        Scratch::make(&Folder::open(folder)?)
    }

    fn make(folder: &Folder) -> Result<Scratch, Failure> {
        let failed = |error: io::Error| Failure::io(&folder.path)(error);
        let mut to_remove = to_remove();
        // Another user of the folder may be at work there, and has to win each time.
        let mut tries = (0..TRIES).map(|_| Made::make(folder));
        let is_over = |made: &io::Result<Made>| {
            !made.as_ref().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
        };
        let made = match tries.find(is_over) {
            Some(made) => made,
            None => Made::make(folder),
        };
        let made = Arc::new(made.map_err(failed)?);
        to_remove.push(Arc::clone(&made));
        Ok(Scratch(made))
    }

    /// Calls `act` with the folder as the current one: a name is then one in the folder, whatever
    /// has the folder's own name.
    pub fn inside<T>(&self, act: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        let failed = |e: Errno| Failure::io(&self.0.folder.path)(e.into());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let before = rustix::fs::openat(CWD, ".", flags, Mode::empty()).map_err(failed)?;
        rustix::process::fchdir(&self.0.own).map_err(failed)?;
        let done = act();
        rustix::process::fchdir(before).map_err(failed)?;
        done
    }

    /// Returns a path of the folder, which leads there by its descriptor.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.own.as_raw_fd()).into()
    }

    /// Makes a file that only its owner may read.
    pub fn make_file(&self, name: &str) -> io::Result<File> {
        self.open_file(name, OFlags::RDWR | NEW)
    }

    /// Opens a file of the folder.
    pub fn open_file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = rustix::fs::openat(&self.0.own, name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(File::from(opened))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mut to_remove = to_remove();
        self.0.remove();
        to_remove.retain(|made| !Arc::ptr_eq(made, &self.0));
    }
}

impl Made {
    fn make(folder: &Folder) -> io::Result<Made> {
        let mut number = [0; 16];
        rustix::rand::getrandom(&mut number[..], rustix::rand::GetRandomFlags::empty())?;
        let name = format!("{SCRATCH}{:032x}", u128::from_ne_bytes(number));
        rustix::fs::mkdirat(&folder.open, &name, Mode::RWXU)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let own = rustix::fs::openat(&folder.open, &name, flags, Mode::empty())?;
        let made = Made { folder: folder.clone(), name, own };
        if made.is_ours()? {
            return Ok(made);
        }
        let why = "another user has put another folder in the place of the scratch folder";
        Err(io::Error::new(ErrorKind::PermissionDenied, why))
    }

    /// Returns `true` if the open folder is empty, and only this process's user and the owner of
    /// the folder around it write there. A file system without owners gives all names one.
    fn is_ours(&self) -> io::Result<bool> {
        let (is, around) = (rustix::fs::fstat(&self.own)?, rustix::fs::fstat(&self.folder.open)?);
        let is_known =
            is.st_uid == rustix::process::geteuid().as_raw() || is.st_uid == around.st_uid;
        let may_others = Mode::from_raw_mode(is.st_mode).intersects(Mode::WGRP | Mode::WOTH);
        Ok(is_known && !may_others && self.names()?.is_empty())
    }

    /// Returns the names of the files in the folder.
    fn names(&self) -> io::Result<Vec<CString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.own)? {
            let entry = entry?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                names.push(entry.file_name().to_owned());
            }
        }
        Ok(names)
    }

    /// Removes the folder. The command may still make files in it, but none after the removal.
    fn remove(&self) {
        /// More removals than a command makes files.
        const MOST: usize = 100;
        for _ in 0..MOST {
            for name in self.names().unwrap_or_default() {
                let _best_effort = rustix::fs::unlinkat(&self.own, name, AtFlags::empty());
            }
            // Another folder that has the name by now is removed only if it is empty.
            let removed = rustix::fs::unlinkat(&self.folder.open, &self.name, AtFlags::REMOVEDIR);
            if removed != Err(Errno::NOTEMPTY) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn names(folder: &Path) -> usize {
        fs::read_dir(folder).expect("list").count()
    }

    /// Another user of the folder can put a folder in the place of a scratch folder as soon as that
    /// was made. `cp` and `doctor` made files in it, through links that lay there.
    #[test]
    fn a_folder_that_others_have_put_there_is_no_scratch_folder() {
        let around = tempfile::tempdir().expect("a folder");
        let open = |name: &str| {
            let folder = Folder::open(around.path()).expect("open");
            let own = Folder::open(&around.path().join(name)).expect("open");
            let own = Arc::into_inner(own.open).expect("one owner");
            Made { folder, name: name.into(), own }
        };
        let make = |name: &str, mode| {
            let path = around.path().join(name);
            fs::create_dir(&path).expect("a folder");
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("chmod");
            path
        };
        make("own", 0o700);
        assert!(open("own").is_ours().expect("look"));
        make("writable", 0o777);
        assert!(!open("writable").is_ours().expect("look"));
        symlink("/", make("full", 0o700).join("copy")).expect("a link");
        assert!(!open("full").is_ours().expect("look"));
        if chown(make("foreign", 0o700), Some(12_345), None).is_ok() {
            assert!(!open("foreign").is_ours().expect("look"));
        } else {
            eprintln!("only root can give a folder away");
        }
    }

    /// `man` wrote its pages through links that another user had put at their names.
    #[test]
    fn a_file_that_is_written_anew_is_written_through_no_link() {
        let around = tempfile::tempdir().expect("a folder");
        let victim = around.path().join("victim");
        fs::write(&victim, b"precious").expect("write");
        for name in ["page", "page", "new"] {
            symlink(&victim, around.path().join("page")).ok();
            write(around.path(), name, b"text").expect("write");
            assert_eq!(fs::read(around.path().join(name)).expect("read"), b"text");
        }
        assert_eq!(fs::read(&victim).expect("read"), b"precious");
    }

    #[test]
    fn a_scratch_folder_goes_with_its_files_and_not_with_those_of_another_folder() {
        let around = tempfile::tempdir().expect("a folder");
        let scratch = Scratch::within(around.path()).expect("make");
        scratch.make_file("copy").expect("make");
        scratch.make_file("copy").expect_err("it is there");
        let inside = || fs::write("more", b"by its name").map_err(Failure::io(around.path()));
        scratch.inside(inside).expect("write");
        let name = around.path().join(&scratch.0.name);
        assert_eq!(names(&name), 2);
        drop(scratch);
        assert_eq!(names(around.path()), 0);

        let scratch = Scratch::within(around.path()).expect("make");
        let name = around.path().join(&scratch.0.name);
        fs::rename(&name, around.path().join("moved")).expect("rename");
        fs::create_dir(&name).expect("a folder");
        fs::write(name.join("theirs"), b"").expect("write");
        fs::write(scratch.path().join("copy"), b"ours").expect("write");
        drop(scratch);
        assert_eq!((names(&name), names(&around.path().join("moved"))), (1, 0));
    }

    #[test]
    fn a_place_with_a_link_is_taken_and_one_is_filled_by_its_folder() {
        let around = tempfile::tempdir().expect("a folder");
        symlink("elsewhere", around.path().join("link")).expect("a link");
        assert!(Place::of(&around.path().join("link")).is_err());
        assert!(Place::of(&around.path().join("none/new")).is_err());
        fs::create_dir(around.path().join("folder")).expect("a folder");
        let place = Place::of(&around.path().join("folder/new")).expect("free");
        fs::rename(around.path().join("folder"), around.path().join("moved")).expect("rename");
        let make = |scratch: &Scratch, name: &str| {
            scratch.make_file(name).map(drop).map_err(Failure::io(around.path()))
        };
        place.fill(make).expect("filled");
        assert!(around.path().join("moved/new").exists());
        assert_eq!(names(&around.path().join("moved")), 1);
        assert!(place.fill(make).is_err(), "it is there by now");
    }
}
