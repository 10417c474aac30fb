//! Operations on names in an open folder. One attempt at each call.
//!
//! Owns: the calls on a [`Name`](super::name::Name), and how a path becomes one. On Linux they go
//! through the open folder, on other systems by the folder's path.
//!
//! Invariants:
//! - No call follows a link that lies at the name itself. [`resolve`] alone follows links, as
//!   `open(2)` does, also where it refuses to.
//! - An open never waits for the other end of a pipe, and returns regular files and folders alone.
//!
//! May import: `name`, `stat`, libc, std, planted bugs.

#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
pub use by_folder::*;
#[cfg(not(all(target_os = "linux", not(atomic_mmap_portable))))]
pub use by_path::*;

#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
mod by_folder {
    use super::super::OpenHow;
    use super::super::name::{Folder, Name, split};
    use super::super::stat::{self, FileStat, UNMAPPED};
    use super::super::{FileSystem, linux};
    use crate::mutant::planted;
    use parking_lot::Mutex;
    use std::ffi::{CStr, CString, OsStr, OsString};
    use std::fs::File;
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::os::unix::fs::MetadataExt;
    use std::path::{Path, PathBuf};
    use std::sync::{Arc, Weak};

    /// The maximal number of links that are followed one after the other, as in the kernel.
    const MOST_LINKS: usize = 40;

    /// The folders that are open, so that the files of one folder share its descriptor. No thread
    /// waits for the lock, so it is not one from `primitive`.
    static OPEN: Mutex<Vec<Weak<Folder>>> = Mutex::new(Vec::new());

    /// Opens a folder in order to look up names in it, relative to `within` or to the current
    /// directory. The kernel follows the links in the path.
    ///
    /// It needs no permission to list the folder. With that permission the descriptor also serves
    /// to sync the folder.
    fn open_folder_in(within: Option<&Folder>, path: &Path) -> io::Result<Arc<Folder>> {
        // A link as the last component would be one to the folder itself. Before a dot it is one on
        // the way to it, as it is for `open(2)` of a name in the folder.
        let inside = c_string(path.join(".").as_os_str())?;
        let within = within.map_or(libc::AT_FDCWD, descriptor);
        let open = |how| open_raw(within, &inside, how | libc::O_DIRECTORY, 0);
        let open = match open(libc::O_RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => open(libc::O_PATH)?,
            opened => opened?,
        };
        let told = open.metadata()?;
        let path = path_of(&open).map_or_else(|| std::fs::canonicalize(path), Ok)?;
        let folder = Folder::new(path, Some(open)).known_as((told.dev(), told.ino()));
        // In a child of `fork`, a thread of the parent may have locked the list, which then stays
        // locked. Without it the folder gets a descriptor of its own.
        let Some(mut all) = OPEN.try_lock() else { return Ok(Arc::new(folder)) };
        all.retain(|folder| folder.strong_count() > 0);
        let mut known = all.iter().filter_map(Weak::upgrade);
        Ok(known.find(|known| known.is(&folder)).unwrap_or_else(|| {
            let folder = Arc::new(folder);
            all.push(Arc::downgrade(&folder));
            folder
        }))
    }

    /// Returns the path that an open folder has now, if the kernel tells.
    fn path_of(folder: &File) -> Option<PathBuf> {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd())).ok()?;
        path.is_absolute().then_some(path)
    }

    /// Opens a folder in order to look up names in it.
    pub fn open_folder(path: &Path) -> io::Result<Arc<Folder>> {
        open_folder_in(None, path)
    }

    /// Returns the name of the file that `path` leads to, whether the file exists or not. Links are
    /// followed. A dangling link is followed to its target, as an open that creates the file does.
    ///
    /// # Errors
    /// `NotFound` if the folder does not exist, `PermissionDenied` for another user's link that the
    /// kernel may refuse to follow, and an error for a loop of links.
    pub fn resolve(path: &Path) -> io::Result<Name> {
        let (mut within, mut path) = (None, path.to_owned());
        for _ in 0..MOST_LINKS {
            let name = name_in(within.as_deref(), &path)?;
            let Some(target) = link_at(&name)? else { return Ok(name) };
            (within, path) = (Some(Arc::clone(name.folder())), target);
        }
        Err(io::Error::from_raw_os_error(libc::ELOOP))
    }

    /// Returns the name at `path` itself. A link that lies there is not followed, but those on the
    /// way to it are.
    pub fn name_itself(path: &Path) -> io::Result<Name> {
        name_in(None, path)
    }

    fn name_in(within: Option<&Folder>, path: &Path) -> io::Result<Name> {
        match split(path) {
            Some((folder, name)) => Ok(Name::new(&open_folder_in(within, folder)?, name)),
            // The root, `.` or `..`, if it is there.
            None => open_folder_in(within, path).and(Err(io::ErrorKind::IsADirectory.into())),
        }
    }

    /// Returns the target of the link at a name, or `None` if something else or nothing is there.
    fn link_at(name: &Name) -> io::Result<Option<PathBuf>> {
        // Looks at the link and reads it by one descriptor, so that it is one link.
        let link = match open_at(name.folder(), name.name(), libc::O_PATH, 0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let told = link.metadata()?;
        if !told.is_symlink() {
            return Ok(None);
        }
        let folder = name.folder().open.as_ref().ok_or(io::ErrorKind::InvalidInput)?.metadata()?;
        if !may_follow(told.uid(), (folder.uid(), folder.mode()), stat::user()) {
            let why = format!(
                "the link belongs to user {}, and its folder to all users; name its target",
                told.uid()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let mut target = vec![0_u8; libc::PATH_MAX as usize];
        let (fd, to) = (link.as_raw_fd(), target.as_mut_ptr().cast());
        // SAFETY: the descriptor is open, the empty path is a C string, and the buffer has the
        // length that is passed.
        let read = unsafe { libc::readlinkat(fd, c"".as_ptr(), to, target.len()) };
        target.truncate(usize::try_from(read).map_err(|_| io::Error::last_os_error())?);
        Ok(Some(OsString::from_vec(target).into()))
    }

    /// Returns `true` if a user may follow a link of `owner`: the rule of `fs.protected_symlinks`.
    /// It holds here wherever the system has it switched off, too. In a folder in which all users
    /// make names, and none removes another's, a link counts for its owner, and for all users if it
    /// is the folder's owner's.
    fn may_follow(owner: u32, (folder_owner, folder_mode): (u32, u32), user: u32) -> bool {
        /// Sticky, and writable by all.
        const SHARED: u32 = 0o1002;
        owner == user
            || folder_mode & SHARED != SHARED
            || owner == folder_owner && owner != UNMAPPED
            || planted!(ForeignLinkFollowed)
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

    fn open_raw(
        folder: libc::c_int,
        name: &CStr,
        flags: libc::c_int,
        mode: u32,
    ) -> io::Result<File> {
        // SAFETY: the folder's descriptor is open while it is borrowed, and the name is a C string.
        let opened = unsafe { libc::openat(folder, name.as_ptr(), flags | libc::O_CLOEXEC, mode) };
        let opened = checked(opened)?;
        // SAFETY: the call has just returned the descriptor, and nothing else owns it.
        Ok(File::from(unsafe { OwnedFd::from_raw_fd(opened) }))
    }

    fn open_at(folder: &Folder, name: &OsStr, flags: libc::c_int, mode: u32) -> io::Result<File> {
        open_raw(descriptor(folder), &c_string(name)?, flags | libc::O_NOFOLLOW, mode)
    }

    /// Opens a file.
    pub fn open(name: &Name, how: OpenHow) -> io::Result<File> {
        let create = if how.create_new { libc::O_CREAT | libc::O_EXCL } else { 0 };
        let access = if how.reads_only { libc::O_RDONLY } else { libc::O_RDWR };
        // The caller has looked at the name, but a pipe or a terminal may have its place by now:
        // it is not waited for, and becomes no terminal of this process.
        let wary = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = open_at(name.folder(), name.name(), access | create | wary, how.mode)?;
        let is_regular = file.metadata()?.is_file();
        if is_regular { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// Returns the metadata of what is at the name, which may be a link, or `None` if nothing is
    /// there.
    pub fn stat(name: &Name) -> io::Result<Option<FileStat>> {
        // From a descriptor that only names it: this touches no device, and waits for no FIFO.
        let named = open_at(name.folder(), name.name(), libc::O_PATH, 0);
        stat::present(named.and_then(|file| stat::of_file(&file)))
    }

    /// Returns device and inode of what is at the name, which may be a link, or `None` if nothing
    /// is there. Opens nothing: a close has to work without a free descriptor.
    pub fn identity(name: &Name) -> io::Result<Option<(u64, u64)>> {
        let file = c_string(name.name())?;
        let mut told = MaybeUninit::<libc::statx>::zeroed();
        let (folder, to) = (descriptor(name.folder()), told.as_mut_ptr());
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        // On systems of 32 bits, `fstatat` fails for a file of 2 GiB and for a large inode number.
        // SAFETY: the folder's descriptor is open while it is borrowed, the name is a C string, and
        // the structure is writable.
        let asked = unsafe { libc::statx(folder, file.as_ptr(), flags, libc::STATX_INO, to) };
        // SAFETY: zeros are valid for its integers, and the call has filled in more of them.
        let told = unsafe { told.assume_init() };
        let dev = libc::makedev(told.stx_dev_major, told.stx_dev_minor);
        stat::present(checked(asked).map(|_| (dev, told.stx_ino)))
    }

    /// Removes the name.
    pub fn remove(name: &Name) -> io::Result<()> {
        let file = c_string(name.name())?;
        // SAFETY: the folder's descriptor is open while it is borrowed, and the name is a C string.
        checked(unsafe { libc::unlinkat(descriptor(name.folder()), file.as_ptr(), 0) }).map(drop)
    }

    /// Returns up to `most` names in a folder, in no order.
    pub fn list(folder: &Folder, most: usize) -> io::Result<Vec<OsString>> {
        /// `d_reclen` of `linux_dirent64`, 16 bits, and `d_name`, a C string.
        const LEN: usize = 16;
        const NAME: usize = 19;
        // A descriptor of its own, since the calls move its position. A stream of libc would close
        // it behind the back of a program that counts its descriptors.
        let open = open_at(folder, OsStr::new("."), libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
        let (mut names, mut buffer) = (Vec::new(), vec![0_u8; 32 << 10]);
        loop {
            let (fd, to, len) = (open.as_raw_fd(), buffer.as_mut_ptr(), buffer.len());
            // SAFETY: the descriptor is open, and the buffer has the length that is passed.
            let read = unsafe { libc::syscall(libc::SYS_getdents64, fd, to, len) };
            let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
            let mut entries = &buffer[..read];
            if read == 0 || names.len() >= most {
                return Ok(names);
            }
            while let Some(len) = entries.get(LEN..LEN + 2) {
                let len = usize::from(u16::from_ne_bytes([len[0], len[1]]));
                let (entry, rest) = entries.split_at(len);
                let name = CStr::from_bytes_until_nul(&entry[NAME..]).unwrap_or_default();
                if !matches!(name.to_bytes(), b"." | b"..") && names.len() < most {
                    names.push(OsStr::from_bytes(name.to_bytes()).to_owned());
                }
                entries = rest;
            }
        }
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
        let open = folder.open.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
        match open.sync_all() {
            // It was opened to look up names alone.
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => {
                // SAFETY: the descriptor is open; the call takes nothing else of ours.
                checked(unsafe { libc::syncfs(file.as_raw_fd()) }).map(drop)
            }
            synced => synced,
        }
    }
}

#[cfg(not(all(target_os = "linux", not(atomic_mmap_portable))))]
mod by_path {
    use super::super::name::{Folder, Name, split};
    use super::super::stat::{self, FileStat};
    use super::super::{FileSystem, OpenHow};
    use std::ffi::OsString;
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::path::Path;
    use std::sync::Arc;

    /// The maximal number of links that are followed one after the other, as in the Linux kernel.
    const MOST_LINKS: usize = 40;

    /// Resolves a folder. Names are looked up by its path.
    pub fn open_folder(path: &Path) -> io::Result<Arc<Folder>> {
        let path = std::fs::canonicalize(path)?;
        if std::fs::metadata(&path)?.is_dir() {
            Ok(Arc::new(Folder::new(path, None)))
        } else {
            Err(io::ErrorKind::NotADirectory.into())
        }
    }

    /// Returns the name of the file that `path` leads to, whether the file exists or not. Links are
    /// followed, also a dangling one.
    pub fn resolve(path: &Path) -> io::Result<Name> {
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
            let name = name_itself(&path)?;
            match std::fs::symlink_metadata(name.path()) {
                Ok(found) if found.is_symlink() => {
                    path = name.folder().path().join(std::fs::read_link(name.path())?);
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => return Ok(name),
            }
        }
        Err(io::Error::other("too many levels of symbolic links"))
    }

    /// Returns the name at `path` itself. A link that lies there is not followed.
    pub fn name_itself(path: &Path) -> io::Result<Name> {
        match split(path) {
            Some((folder, name)) => Ok(Name::new(&open_folder(folder)?, name)),
            None => open_folder(path).and(Err(io::ErrorKind::IsADirectory.into())),
        }
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
        options.read(true).write(!how.reads_only).create_new(how.create_new);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            let wary = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
            options.mode(how.mode).custom_flags(wary);
        }
        let file = options.open(name.path())?;
        let is_regular = file.metadata()?.is_file();
        if is_regular { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// Returns up to `most` names in a folder, in no order.
    pub fn list(folder: &Folder, most: usize) -> io::Result<Vec<OsString>> {
        let entries = std::fs::read_dir(folder.path())?.take(most);
        entries.map(|entry| entry.map(|entry| entry.file_name())).collect()
    }

    /// Returns the metadata of what is at the name, which may be a link, or `None` if nothing is
    /// there.
    pub fn stat(name: &Name) -> io::Result<Option<FileStat>> {
        stat::of_path(name.path())
    }

    /// Returns device and inode of what is at the name, or `None` if nothing is there.
    pub fn identity(name: &Name) -> io::Result<Option<(u64, u64)>> {
        Ok(stat(name)?.map(|there| (there.dev, there.ino)))
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

#[cfg(all(test, unix, not(miri), not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use std::io::ErrorKind;
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
        assert_eq!(resolve(&dir.join("again")).expect("resolved").path(), file);
        std::fs::write(&file, b"x").expect("a file");
        for name in ["again", "link", "folder/file", "real/file", "real/../link"] {
            assert_eq!(resolve(&dir.join(name)).expect("resolved").path(), file, "{name}");
        }
        let itself = name_itself(&dir.join("folder/../again")).expect("a name");
        assert_eq!(itself.path(), dir.join("again"));
        assert!(resolve(&dir.join("loop")).is_err());
        for (path, kind) in [
            ("none/file", ErrorKind::NotFound),
            ("none/..", ErrorKind::NotFound),
            ("real/..", ErrorKind::IsADirectory),
            ("real/file/x", ErrorKind::NotADirectory),
        ] {
            assert_eq!(resolve(&dir.join(path)).expect_err(path).kind(), kind, "{path}");
        }
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
