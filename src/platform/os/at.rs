//! Operations on names in an open folder. One attempt at each call.
//!
//! Owns: the calls on a `Name`. On Linux they go through the open folder, on other systems by the
//! folder's path. No call follows a link that lies at the name itself.
//!
//! May import: `name`, `stat`, libc, std, planted bugs.

#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
pub use by_folder::*;
#[cfg(not(all(target_os = "linux", not(atomic_mmap_portable))))]
pub use by_path::*;

#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
mod by_folder {
    use super::super::OpenHow;
    use super::super::name::{Folder, Name};
    use super::super::stat::{self, FileStat};
    use super::super::{FileSystem, linux};
    use crate::mutant::planted;
    use std::ffi::{CString, OsStr};
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    use std::path::Path;

    /// Opens a folder in order to look up names in it, which needs no permission to list it.
    pub fn open_folder(path: &Path) -> io::Result<Folder> {
        let path = std::fs::canonicalize(path)?;
        let mut how = OpenOptions::new();
        let open = how.read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(&path)?;
        let told = open.metadata()?;
        let identity = (told.dev(), told.ino());
        Ok(Folder::new(path, Some(open)).known_as(identity))
    }

    /// Opens a folder again that was closed: at its path or, after it was renamed or moved, where
    /// the file `inside` lies now. Fails with `NotFound` if it is at neither place.
    pub fn reopen_folder(folder: &Folder, inside: &File) -> io::Result<Folder> {
        let is_it = |found: &Folder| {
            found.identity == folder.identity || planted!(ReopenedFolderNotCompared)
        };
        if let Ok(found) = open_folder(folder.path())
            && is_it(&found)
        {
            return Ok(found);
        }
        let file = std::fs::read_link(format!("/proc/self/fd/{}", inside.as_raw_fd()))?;
        let found = open_folder(file.parent().ok_or(io::ErrorKind::NotFound)?)?;
        if is_it(&found) { Ok(found) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Returns the kind of file system that the folder is on.
    pub fn file_system(folder: &Folder) -> io::Result<FileSystem> {
        let open = folder.open.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
        match linux::file_system(open)? {
            // A descriptor that only names the folder is not enough to ask btrfs for more.
            FileSystem::Local("btrfs") => with_open(folder, |open| Some(linux::file_system(open)))
                .unwrap_or(Ok(FileSystem::Local("btrfs"))),
            told => Ok(told),
        }
    }

    /// Calls `ask` with the folder, opened for reading where that is permitted.
    pub fn with_open<T>(folder: &Folder, ask: impl FnOnce(&File) -> Option<T>) -> Option<T> {
        match open_at(folder, OsStr::new("."), libc::O_RDONLY | libc::O_DIRECTORY, 0) {
            Ok(open) => ask(&open),
            Err(_) => ask(folder.open.as_ref()?),
        }
    }

    /// Returns `true` if the file, which has its name in the folder, belongs to another mount than
    /// the folder.
    pub fn is_mounted_alone(folder: &Folder, file: &File) -> io::Result<bool> {
        let open = folder.open.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
        Ok(match (mount_of(open), mount_of(file)) {
            (Some(folder), Some(file)) => folder != file,
            // An older kernel: compare the devices, which differ for most mounts.
            _ => open.metadata()?.dev() != file.metadata()?.dev(),
        })
    }

    /// Returns the mount by which the file was opened (Linux 5.8 and later).
    fn mount_of(file: &File) -> Option<u64> {
        /// STATX_MNT_ID of linux/stat.h.
        const MOUNT: u32 = 0x1000;
        let mut told = MaybeUninit::<libc::statx>::zeroed();
        let (fd, flags) = (file.as_raw_fd(), libc::AT_EMPTY_PATH);
        // SAFETY: the descriptor is open, the empty path is a C string, and the structure is
        // writable.
        let asked = unsafe { libc::statx(fd, c"".as_ptr(), flags, MOUNT, told.as_mut_ptr()) };
        // SAFETY: zeros are valid for its integers, and the call has filled in more of them.
        let told = unsafe { told.assume_init() };
        (asked == 0 && told.stx_mask & MOUNT != 0).then_some(told.stx_mnt_id)
    }

    fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }

    fn c_string(name: &OsStr) -> io::Result<CString> {
        CString::new(name.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
    }

    fn descriptor(folder: &Folder) -> libc::c_int {
        folder.open.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    fn open_at(folder: &Folder, name: &OsStr, flags: libc::c_int, mode: u32) -> io::Result<File> {
        let name = c_string(name)?;
        let flags = flags | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        // SAFETY: the folder's descriptor is open while it is borrowed, and the name is a C string.
        let opened = unsafe { libc::openat(descriptor(folder), name.as_ptr(), flags, mode) };
        let opened = checked(opened)?;
        // SAFETY: the call has just returned the descriptor, and nothing else owns it.
        Ok(File::from(unsafe { OwnedFd::from_raw_fd(opened) }))
    }

    /// Opens a file.
    pub fn open(name: &Name, how: OpenHow) -> io::Result<File> {
        let create = match how {
            OpenHow { create_new: true, .. } => libc::O_CREAT | libc::O_EXCL,
            OpenHow { create: true, .. } => libc::O_CREAT,
            OpenHow { .. } => 0,
        };
        let access = if how.reads_only { libc::O_RDONLY } else { libc::O_RDWR };
        open_at(name.folder(), name.name(), access | create, how.mode)
    }

    /// Returns the metadata of what is at the name, which may be a link, or `None` if nothing is
    /// there.
    pub fn stat(name: &Name) -> io::Result<Option<FileStat>> {
        // From a descriptor that only names it: this touches no device, and waits for no FIFO.
        let named = open_at(name.folder(), name.name(), libc::O_PATH, 0);
        stat::present(named.and_then(|file| stat::of_file(&file)))
    }

    /// Removes the name.
    pub fn remove(name: &Name) -> io::Result<()> {
        let file = c_string(name.name())?;
        // SAFETY: the folder's descriptor is open while it is borrowed, and the name is a C string.
        checked(unsafe { libc::unlinkat(descriptor(name.folder()), file.as_ptr(), 0) }).map(drop)
    }

    /// Renames a file, and fails with `AlreadyExists` if something is at the new name.
    pub fn rename(from: &Name, to: &Name) -> io::Result<()> {
        let (old, new) = (c_string(from.name())?, c_string(to.name())?);
        let (source, target) = (descriptor(from.folder()), descriptor(to.folder()));
        let (from, to) = ((source, old.as_ptr()), (target, new.as_ptr()));
        // SAFETY: both descriptors are open while they are borrowed, and both names are C strings;
        // the call takes nothing else of ours.
        let renamed = unsafe {
            libc::syscall(libc::SYS_renameat2, from.0, from.1, to.0, to.1, libc::RENAME_NOREPLACE)
        };
        if renamed == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EPERM)) {
            return Err(error);
        }
        // A file system or a filter that does not know the call: add a second name, then remove the
        // first. SAFETY: as above.
        checked(unsafe { libc::linkat(from.0, from.1, to.0, to.1, 0) })?;
        // SAFETY: as above.
        checked(unsafe { libc::unlinkat(from.0, from.1, 0) }).map(drop)
    }

    /// Makes the folder's names durable. A folder without read permission cannot be synced alone.
    /// Then the file system of `file`, which lies in the folder, is synced as a whole.
    pub fn sync(folder: &Folder, file: &File) -> io::Result<()> {
        match open_at(folder, OsStr::new("."), libc::O_RDONLY | libc::O_DIRECTORY, 0) {
            Ok(open) => open.sync_all(),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                // SAFETY: the descriptor is open; the call takes nothing else of ours.
                checked(unsafe { libc::syncfs(file.as_raw_fd()) }).map(drop)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(not(all(target_os = "linux", not(atomic_mmap_portable))))]
mod by_path {
    use super::super::name::{Folder, Name};
    use super::super::stat::{self, FileStat};
    use super::super::{FileSystem, OpenHow};
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::path::Path;

    /// Resolves a folder. Names are looked up by its path.
    pub fn open_folder(path: &Path) -> io::Result<Folder> {
        let path = std::fs::canonicalize(path)?;
        if std::fs::metadata(&path)?.is_dir() {
            Ok(Folder::new(path, None))
        } else {
            Err(io::ErrorKind::NotADirectory.into())
        }
    }

    /// Returns the folder. Names are looked up by its path.
    pub fn reopen_folder(folder: &Folder, _: &File) -> io::Result<Folder> {
        Ok(folder.closed())
    }

    /// Returns `Unknown`: the system does not tell.
    pub fn file_system(_: &Folder) -> io::Result<FileSystem> {
        Ok(FileSystem::from_magic(0))
    }

    /// Calls `ask` with the folder, where folders can be opened.
    pub fn with_open<T>(folder: &Folder, ask: impl FnOnce(&File) -> Option<T>) -> Option<T> {
        ask(&File::open(folder.path()).ok()?)
    }

    /// Returns `true` if the devices of the folder and the file differ. `false` where there are no
    /// devices.
    pub fn is_mounted_alone(folder: &Folder, file: &File) -> io::Result<bool> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            Ok(std::fs::metadata(folder.path())?.dev() != file.metadata()?.dev())
        }
        #[cfg(not(unix))]
        {
            let _ = (folder, file);
            Ok(false)
        }
    }

    /// Opens a file.
    pub fn open(name: &Name, how: OpenHow) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(!how.reads_only).create(how.create).create_new(how.create_new);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            options.mode(how.mode).custom_flags(libc::O_NOFOLLOW);
        }
        options.open(name.path())
    }

    /// Returns the metadata of what is at the name, which may be a link, or `None` if nothing is
    /// there.
    pub fn stat(name: &Name) -> io::Result<Option<FileStat>> {
        stat::of_path(name.path())
    }

    /// Removes the name.
    pub fn remove(name: &Name) -> io::Result<()> {
        std::fs::remove_file(name.path())
    }

    /// Renames a file, and fails with `AlreadyExists` if something is at the new name. Not atomic:
    /// another process may create the new name between the check and the rename.
    pub fn rename(from: &Name, to: &Name) -> io::Result<()> {
        if stat(to)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        std::fs::rename(from.path(), to.path())
    }

    /// Makes the folder's names durable, where there is such a call.
    pub fn sync(folder: &Folder, _: &File) -> io::Result<()> {
        if cfg!(unix) { File::open(folder.path())?.sync_all() } else { Ok(()) }
    }
}
