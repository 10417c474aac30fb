//! Names, open files, their owners, locks and metadata.
//!
//! Owns: [`OpenHow`], the resolution of paths, and the calls that make, share, lock or
//! describe a file.
//!
//! Invariants: those of `calls`.
//!
//! May import: `gate`, `at`, `name`, `stat`, `sys`, the recorder.

use super::gate::attempt;
use crate::platform::os::{File, FileStat, Folder, Name, at, stat, sys};
#[cfg(feature = "recorder")]
use crate::platform::recorder::What;
use crate::platform::{Platform, call};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

/// How `Platform::open` opens a file, and treats one that exists or does not. Every file is closed
/// on exec.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenHow {
    /// Create the file, and fail if it exists.
    pub create_new: bool,
    /// Permissions of a created file, before the umask (Unix).
    pub mode: u32,
    /// Open the file for reading alone.
    pub reads_only: bool,
}

impl Platform {
    /// Opens a file, for reading and writing unless `how` says otherwise.
    ///
    /// # Errors
    /// Fails if the name is a symbolic link, which is not followed (`FilesystemLoop`, or the
    /// system's error), and with `InvalidInput` for what is no regular file.
    pub fn open(&self, name: &Name, how: OpenHow) -> io::Result<File> {
        attempt!(
            self,
            call::OPEN,
            |_| at::open(name, how).map(File::from),
            [simulated => simulated.machine.open(name.path(), how).map(File::Simulated)]
        )
    }

    /// Resolves a path, with every link followed, to a name in its open folder. The file itself
    /// need not exist.
    pub fn name(&self, path: &Path) -> io::Result<Name> {
        attempt!(self, call::RESOLVE, |_| at::resolve(path), [_simulated => simulated_name(path)])
    }

    /// Returns the name at a path, in its open folder. A link at the name itself is not followed:
    /// the caller makes a file there.
    pub fn name_itself(&self, path: &Path) -> io::Result<Name> {
        attempt!(
            self,
            call::RESOLVE,
            |_| at::name_itself(path),
            [_simulated => simulated_name(path)]
        )
    }

    /// Opens the folder at a path.
    pub fn open_folder(&self, path: &Path) -> io::Result<Arc<Folder>> {
        attempt!(
            self,
            call::OPEN_FOLDER,
            |_| at::open_folder(path),
            [_simulated => Ok(Arc::new(Folder::new(path.to_owned(), None)))]
        )
    }

    /// Gives a new file the owner, the group and the permissions of the file `home` as far as the
    /// process may. `like` is the stat of `home`. Without a privilege a process cannot give a file
    /// away. No user but the creator gets more access to the file than to `home`.
    pub fn own(&self, file: &File, home: &File, like: &FileStat) -> io::Result<()> {
        attempt!(
            self,
            call::OWN,
            |_| sys::own(file.system(), home.system(), like),
            [simulated => simulated.machine.own(file.number(), like)]
        )
    }

    /// Makes writes to an open file bypass the page cache: writes of whole blocks, from aligned
    /// buffers. Reads must be aligned as well. Returns `false` if that is not possible here.
    pub fn bypass_cache(&self, file: &File) -> io::Result<bool> {
        let set = attempt!(
            self,
            call::BYPASS_CACHE,
            |_| sys::set_direct(file.system(), true),
            [_simulated => Err(ErrorKind::InvalidInput.into())]
        );
        match set {
            Ok(()) => Ok(true),
            // The answer of file systems that cannot.
            Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Ends what `bypass_cache` has begun. Changes nothing for any other file.
    pub(super) fn use_cache(&self, file: &File) -> io::Result<()> {
        match attempt!(
            self,
            call::BYPASS_CACHE,
            |_| sys::set_direct(file.system(), false),
            [_simulated => Ok(())]
        ) {
            // Where nothing can bypass the cache.
            Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
            other => other,
        }
    }

    /// Takes the exclusive lock on the file. Returns `false` if another process holds it.
    pub fn try_lock(&self, file: &File) -> io::Result<bool> {
        attempt!(
            self,
            call::LOCK,
            |_| file.open().try_lock(),
            [simulated => simulated.machine.try_lock(file.number())]
        )
    }

    /// Returns the number of a process that holds a lock on the file, a writer's first. Returns
    /// `None` where the system does not tell it: it may be hidden from a container.
    pub fn lock_holder(&self, file: &File) -> Option<u32> {
        match self {
            #[cfg(feature = "recorder")]
            Platform::Simulated(_) => None,
            _ => lock_holder(file.system()),
        }
    }

    /// Takes a shared lock on the file, which excludes an exclusive one only. Returns `false` if
    /// another process holds the exclusive lock.
    pub fn try_lock_shared(&self, file: &File) -> io::Result<bool> {
        attempt!(
            self,
            call::LOCK,
            |_| file.open().try_lock_shared(),
            // No other process reads there.
            [simulated => simulated.machine.try_lock(file.number())]
        )
    }

    /// Releases the lock before the last handle of the file is dropped.
    pub fn unlock(&self, file: &File) -> io::Result<()> {
        attempt!(
            self,
            call::UNLOCK,
            |_| file.open().unlock(),
            [simulated => simulated.machine.unlock(file.number())]
        )
    }

    /// Returns the metadata of an open file.
    pub fn stat(&self, file: &File) -> io::Result<FileStat> {
        attempt!(
            self,
            call::STAT,
            |_| stat::of_file(file.system()),
            [simulated => simulated.machine.stat(file.number())]
        )
    }
}

#[cfg(feature = "recorder")]
fn simulated_name(path: &Path) -> io::Result<Name> {
    let (folder, name) = crate::platform::os::name::split(path).ok_or(ErrorKind::IsADirectory)?;
    Ok(Name::new(&Arc::new(Folder::new(folder.to_owned(), None)), name))
}

/// Reads the system's table of locks: `1: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF`. A line
/// names the file by the device's two numbers, in hexadecimal, and the inode.
#[cfg(target_os = "linux")]
fn lock_holder(file: &std::fs::File) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let stat = file.metadata().ok()?;
    let (major, minor) = (libc::major(stat.dev()), libc::minor(stat.dev()));
    let name = format!("{major:02x}:{minor:02x}:{}", stat.ino());
    let table = std::fs::read_to_string("/proc/locks").ok()?;
    let held = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, kind, process, found, ..] = words[..] else { return None };
        let process = process.parse().ok().filter(|process| *process != 0)?;
        (found == name).then_some((kind == "READ", process))
    });
    held.min().map(|(_, process)| process)
}

#[cfg(not(target_os = "linux"))]
fn lock_holder(_file: &std::fs::File) -> Option<u32> {
    None
}
