//! The operating system's face of [`Platform`].
//!
//! Owns: the retry of interrupted calls, the continuation of short reads and writes, and the
//! fallbacks where a call is not supported.
//!
//! Invariants:
//! - Every attempt at every call passes the gate (`attempt!`), so a recorder sees it and can make
//!   it fail, be interrupted or be short; retries and fallbacks lie outside the gate and are
//!   reached too.
//! - An error means that the call did nothing that the caller could use; no call is repeated after
//!   an error other than an interruption.
//!
//! May import: `sys`, `at`, `cache`, `name`, `positioned`, `stat`, `allocate`, the recorder, and
//! the planted bugs.

use super::{
    CacheIdentity, File, FileStat, FileSystem, Folder, Mapping, Name, allocate, at, cache, name,
    positioned, stat, sys,
};
use crate::mutant::planted;
#[cfg(feature = "recorder")]
use crate::platform::recorder::What;
use crate::platform::{FileId, Platform, call};
use std::ffi::OsString;
use std::fs::TryLockError;
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

const HUGE_PAGE: u64 = 2 << 20;

/// How `Platform::open` treats a file that exists or does not. Every file is opened for reading and
/// writing, and is closed on exec.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenHow {
    /// Create the file if it does not exist.
    pub create: bool,
    /// Create the file, and fail if it exists.
    pub create_new: bool,
    /// Permissions of a created file, before the umask (Unix).
    pub mode: u32,
}

/// The gate: one call, retried until it is not interrupted. `$act` makes the attempt and gets the
/// maximal number of bytes that it may move. `$simulated` makes the attempt on the simulated
/// machine `$machine`. `$what` says what the trace notes after a success. `$named` are the values
/// that only the last two need.
macro_rules! attempt {
    (
        $platform:expr, $call:expr, $act:expr, [$machine:ident => $simulated:expr],
        [$($named:ident),*] $what:expr
    ) => {
        loop {
            $(let _ = &$named;)*
            let _: &str = $call;
            let result: io::Result<_> = match $platform {
                Platform::Native(_) => ($act)(usize::MAX),
                #[cfg(feature = "recorder")]
                Platform::Recording(recorder) => recorder.attempt($call, $act, $what),
                #[cfg(feature = "recorder")]
                Platform::Simulated($machine) => $simulated,
            };
            match result {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => break result,
            }
        }
    };
    ($platform:expr, $call:expr, $act:expr, [$machine:ident => $simulated:expr]) => {
        attempt!($platform, $call, $act, [$machine => $simulated], [] |_| What::Os($call))
    };
}

/// Returns `true` if a write of the bytes to the offset can bypass the page cache.
fn are_blocks(bytes: &[u8], offset: u64) -> bool {
    const BLOCK: usize = 4096;
    let (at, len) = (bytes.as_ptr().addr(), bytes.len());
    (at | len).is_multiple_of(BLOCK) && offset.is_multiple_of(BLOCK as u64)
}

/// Refuses to make the file `len` bytes long where the process's limit (`ulimit -f`) is less. The
/// kernel would send SIGXFSZ, which ends the process, and handling that signal is the program's
/// affair, not a library's. A length that the file already has is always allowed.
fn allow_len(file: &std::fs::File, len: u64) -> io::Result<()> {
    match sys::longest_file() {
        Some(limit) if len > limit && file.metadata()?.len() < len => Err(too_long(len, limit)),
        _ => Ok(()),
    }
}

/// Refuses a write that ends past the process's limit: the kernel refuses it wherever the file
/// ends.
fn allow_write(bytes: &[u8], offset: u64) -> io::Result<()> {
    let end = offset.saturating_add(bytes.len() as u64);
    match sys::longest_file() {
        Some(limit) if end > limit => Err(too_long(end, limit)),
        _ => Ok(()),
    }
}

fn too_long(len: u64, limit: u64) -> io::Error {
    let said = format!(
        "the process may make files of {limit} bytes at most (ulimit -f), and {len} are needed; a \
         reflection file is longer than its home file by 256 MiB and more, most of which are holes"
    );
    io::Error::new(ErrorKind::FileTooLarge, said)
}

/// Returns the system's answer about a file system, which a planted bug falsifies.
fn as_believed(told: FileSystem) -> FileSystem {
    match told {
        FileSystem::UnreservedBtrfs(_) if planted!(UnreservedBtrfsTaken) => {
            FileSystem::Local("btrfs")
        }
        told => told,
    }
}

/// Returns `true` if the file system does not support the call.
fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == ErrorKind::Unsupported
}

/// Returns `true` if the call is unavailable: the system does not know it, or a filter refuses it
/// (seccomp in containers, mostly with EPERM). For calls with a fallback that needs the same
/// rights, so that a file without write permission is an error there, too.
fn is_refused(error: &io::Error) -> bool {
    is_unsupported(error)
        || error.kind() == ErrorKind::PermissionDenied && !planted!(FilterNotExpected)
}

/// Returns `None` where the call is unavailable.
fn unless_refused<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_refused(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns `None` where the call is not supported.
fn if_supported<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_unsupported(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Platform {
    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// Fails if the name is a symbolic link, which is not followed (`FilesystemLoop`, or the
    /// system's error).
    pub fn open(&self, name: &Name, how: OpenHow) -> io::Result<File> {
        attempt!(
            self,
            call::OPEN,
            |_| at::open(name, how).map(File::System),
            [simulated => simulated.machine.open(name.path(), how).map(File::Simulated)]
        )
    }

    /// Resolves a path, with every link followed, to a name in its open folder. The file itself
    /// need not exist.
    pub fn name(&self, path: &Path) -> io::Result<Name> {
        let path = attempt!(
            self,
            call::RESOLVE,
            |_| name::resolve(path),
            [_simulated => Ok(path.to_owned())]
        )?;
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(ErrorKind::IsADirectory.into());
        };
        Ok(Name::new(&self.open_folder(folder)?, name))
    }

    /// Opens the folder at a path.
    pub fn open_folder(&self, path: &Path) -> io::Result<Arc<Folder>> {
        let opened = attempt!(
            self,
            call::OPEN_FOLDER,
            |_| at::open_folder(path),
            [_simulated => Ok(Folder::new(path.to_owned(), None))]
        );
        opened.map(Arc::new)
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

    /// Opens an existing file once more, so that writes of whole blocks from aligned buffers bypass
    /// the page cache. Returns `None` if that is not possible here.
    pub fn open_past_cache(&self, name: &Name) -> io::Result<Option<File>> {
        let opened = attempt!(
            self,
            call::OPEN,
            |_| at::open_past_cache(name).map(File::System),
            [_simulated => Err(ErrorKind::InvalidInput.into())]
        );
        match opened {
            Ok(file) => Ok(Some(file)),
            // The answer of file systems that cannot.
            Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns another descriptor of the same open file: both share the lock.
    pub fn duplicate(&self, file: &File) -> io::Result<File> {
        attempt!(
            self,
            call::DUPLICATE,
            |_| file.try_clone(),
            [_simulated => file.try_clone()]
        )
    }

    /// Takes the exclusive lock on the file. Returns `false` if another process holds it.
    pub fn try_lock(&self, file: &File) -> io::Result<bool> {
        attempt!(
            self,
            call::LOCK,
            |_| match file.system().try_lock() {
                Ok(()) => Ok(true),
                Err(TryLockError::WouldBlock) => Ok(false),
                Err(TryLockError::Error(error)) => Err(error),
            },
            [simulated => simulated.machine.try_lock(file.number())]
        )
    }

    /// Releases the lock before the file is closed.
    pub fn unlock(&self, file: &File) -> io::Result<()> {
        attempt!(
            self,
            call::UNLOCK,
            |_| file.system().unlock(),
            [simulated => simulated.machine.unlock(file.number())]
        )
    }

    /// Maps the file, shared, for reading and writing. The address is a multiple of 2 MiB on Linux,
    /// and of a page elsewhere. `len` is a multiple of 2 MiB and may reach beyond the end of the
    /// file: the file grows into the mapping, which never moves. With `want_sync` the mapping is
    /// synchronous (MAP_SYNC) or refused.
    pub fn map(&self, file: &File, len: u64, want_sync: bool) -> io::Result<Mapping> {
        let len = match usize::try_from(len) {
            Ok(bytes) if bytes > 0 && len.is_multiple_of(HUGE_PAGE) => bytes,
            _ => return Err(ErrorKind::InvalidInput.into()),
        };
        attempt!(
            self,
            call::MAP,
            |_| sys::map(file.system(), len, want_sync),
            [simulated => simulated.map(file.number(), len as u64, want_sync)]
        )
    }

    /// Advises that accesses to the file and its mapping will be random: nothing is read ahead, so
    /// the page cache keeps single pages. The first store to a large folio with a hole fails where
    /// the disk is full.
    ///
    /// The advice is a hint. A system that refuses it has no such call, or a filter is set. Storage
    /// is allocated either way: `docs/soundness.md` says what large folios mean on a full disk.
    pub fn expect_random(&self, file: &File, mapping: &Mapping) {
        let advised = attempt!(
            self,
            call::ADVISE,
            |_| sys::expect_random(file.system(), mapping),
            // No pages, no folios.
            [_simulated => { let _ = (file, mapping); Ok(()) }]
        );
        let _a_hint: io::Result<()> = advised;
    }

    /// Returns `true` if the process could reserve `bytes` of address space in one piece, a moment
    /// ago. The question passes no gate: the answer only chooses how much to reserve.
    pub fn has_addresses(&self, bytes: u64) -> bool {
        match self {
            // Nothing is mapped there, and every run has to equal the last one.
            #[cfg(feature = "recorder")]
            Platform::Simulated(_) => true,
            _ => usize::try_from(bytes).is_ok_and(sys::has_addresses),
        }
    }

    /// Starts reading the range of the file into the page cache, since it is about to be read in
    /// order. A hint that passes no gate: nothing depends on its result.
    pub fn will_need(&self, file: &File, mapping: &Mapping, offset: u64, len: u64) {
        match file {
            File::System(file) => sys::will_need(file, mapping, offset, len),
            #[cfg(feature = "recorder")]
            File::Simulated(_) => {}
        }
    }

    /// Drops whole clean pages of the range from the page cache. A hint that passes no gate. The
    /// range keeps its contents, also for threads that load and store there.
    pub fn forget_cached(&self, file: &File, mapping: &Mapping, offset: u64, len: u64) {
        match file {
            File::System(file) => sys::forget_cached(file, mapping, offset, len),
            #[cfg(feature = "recorder")]
            File::Simulated(_) => {}
        }
    }

    /// Requests that a new and empty file is written in place on a file system that would otherwise
    /// copy on write. There, allocating storage once does not reserve space for the next store.
    /// Returns `false` if the file system refuses and goes on copying.
    pub fn write_in_place(&self, file: &File) -> io::Result<bool> {
        let told = attempt!(
            self,
            call::IN_PLACE,
            |_| sys::write_in_place(file.system()),
            // Nothing is copied there.
            [_simulated => { let _ = file; Ok(()) }]
        );
        Ok(if_supported(told)?.is_some())
    }

    /// Returns the bytes of one page of the mapping, the unit that a page fault requests from the
    /// file system. At least 4096.
    pub fn page_size(&self) -> u64 {
        const LEAST: u64 = 4096;
        match self {
            #[cfg(feature = "recorder")]
            Platform::Simulated(_) => LEAST,
            _ => sys::page_size().max(LEAST),
        }
    }

    /// Reserves storage for the range, so that stores to it cannot fail for lack of space. Extends
    /// the file to the end of the range if it is shorter. Contents stay.
    ///
    /// No thread may store to holes in the range until this returns: where the file system has no
    /// call for this, zeros are written to them.
    ///
    /// If `mapping` is given, the range is an aligned one of 2 MiB within the file, and the mapping
    /// is the file's. One huge page is then requested, if the file lies in memory.
    pub fn allocate(
        &self,
        file: &File,
        id: FileId,
        mapping: Option<&Mapping>,
        offset: u64,
        len: u64,
    ) -> io::Result<()> {
        debug_assert!(mapping.is_none() || len == HUGE_PAGE && offset.is_multiple_of(HUGE_PAGE));
        if len == 0 {
            return Ok(());
        }
        let reserved = attempt!(
            self,
            call::ALLOCATE,
            |_| {
                if let Some(mapping) = mapping {
                    sys::take_huge_page(file.system(), mapping, offset);
                }
                allow_len(file.system(), offset.saturating_add(len))?;
                sys::allocate(file.system(), offset, len)
            },
            [simulated => simulated.machine.allocate(file.number(), offset, len)],
            [id] |_: &()| What::Allocate { file: id, offset, len }
        );
        match unless_refused(reserved)? {
            Some(()) => Ok(()),
            None => allocate::by_writing(self, file, id, offset, len),
        }
    }

    /// Reserves storage for a range of less than a page that begins at the end of the file, and
    /// leaves the file's length as it is. Where the file system has no call for this, zeros are
    /// written there. That makes the file longer, by bytes that have storage.
    pub fn allocate_past_end(
        &self,
        file: &File,
        id: FileId,
        offset: u64,
        len: u64,
    ) -> io::Result<()> {
        let reserved = attempt!(
            self,
            call::ALLOCATE,
            |_| sys::allocate_past_end(file.system(), offset, len),
            [simulated => simulated.machine.allocate_past_end(file.number(), offset, len)],
            [id] |_: &()| What::Allocate { file: id, offset, len }
        );
        match unless_refused(reserved)? {
            Some(()) => Ok(()),
            None => self.write_at(file, id, &vec![0; len as usize], offset),
        }
    }

    /// Gives the range's storage back: it reads as zeros afterwards, and the length stays. Returns
    /// `false` if that is not supported, and then nothing has changed.
    pub fn punch(&self, file: &File, id: FileId, offset: u64, len: u64) -> io::Result<bool> {
        if len == 0 {
            return Ok(true);
        }
        let punched = attempt!(
            self,
            call::PUNCH,
            |_| sys::punch(file.system(), offset, len),
            [simulated => simulated.machine.punch(file.number(), offset, len)],
            [id] |_: &()| What::Punch { file: id, offset, len }
        );
        Ok(unless_refused(punched)?.is_some())
    }

    /// Changes the file's length.
    pub fn set_file_len(&self, file: &File, id: FileId, len: u64) -> io::Result<()> {
        attempt!(
            self,
            call::SET_LEN,
            |_| {
                allow_len(file.system(), len)?;
                file.system().set_len(len)
            },
            [simulated => simulated.machine.set_len(file.number(), len)],
            [id] |_: &()| What::SetLen { file: id, len }
        )
    }

    /// Makes the file's data durable (fdatasync), and the metadata that is needed to read them.
    pub fn sync_data(&self, file: &File, id: FileId) -> io::Result<()> {
        attempt!(
            self,
            call::SYNC_DATA,
            |_| file.system().sync_data(),
            [simulated => simulated.machine.sync(file.number(), false)],
            [id] |_: &()| What::Sync { file: id, all: false }
        )
    }

    /// Makes the file's data and all its metadata durable (fsync).
    pub fn sync_all(&self, file: &File, id: FileId) -> io::Result<()> {
        attempt!(
            self,
            call::SYNC_ALL,
            |_| file.system().sync_all(),
            [simulated => simulated.machine.sync(file.number(), true)],
            [id] |_: &()| What::Sync { file: id, all: true }
        )
    }

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

    /// Fills the buffer from the file. Holes and bytes beyond the end read as zeros.
    pub fn read_at(&self, file: &File, id: FileId, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let rest = &mut buf[done..];
            let at = advance(offset, done)?;
            let got = attempt!(
                self,
                call::READ,
                |most: usize| {
                    let most = most.min(rest.len());
                    positioned::read(file.system(), &mut rest[..most], at)
                },
                [simulated => simulated.machine.read_at(file.number(), rest, at)],
                [id] |got: &usize| What::Read { file: id, offset: at, len: *got as u64 }
            )?;
            if got == 0 {
                buf[done..].fill(0);
                break;
            }
            done += got;
        }
        Ok(())
    }

    /// Writes the whole buffer to the file. After an error any part of it may have been written.
    pub fn write_at(&self, file: &File, id: FileId, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let rest = &buf[done..];
            let at = advance(offset, done)?;
            let put = attempt!(
                self,
                call::WRITE,
                |most: usize| {
                    let part = &rest[..most.min(rest.len())];
                    allow_write(part, at)?;
                    positioned::write(file.system(), part, at)
                },
                [simulated => simulated.machine.write_at(file.number(), rest, at)],
                [id] |put: &usize| What::Write {
                    file: id,
                    offset: at,
                    bytes: rest[..*put].to_vec(),
                }
            )?;
            if put == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
            done += put;
        }
        Ok(())
    }

    /// Writes the whole buffer to the file and waits until it is durable: one barrier, which covers
    /// only these bytes where the system can. Whole blocks are written through `direct`, if given.
    /// After an error any part of the buffer may have been written.
    pub fn write_durably(
        &self,
        (file, mut direct): (&File, Option<&File>),
        id: FileId,
        buf: &[u8],
        offset: u64,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let rest = &buf[done..];
            let at = advance(offset, done)?;
            // After a short write the rest goes through the cache.
            direct = direct.filter(|_| are_blocks(rest, at));
            let put = attempt!(
                self,
                call::WRITE_DURABLY,
                |most: usize| {
                    let part = &rest[..most.min(rest.len())];
                    let direct = direct.filter(|_| are_blocks(part, at));
                    allow_write(part, at)?;
                    sys::write_durably(direct.unwrap_or(file).system(), part, at)
                },
                [simulated => simulated.machine.write_durably(file.number(), rest, at)],
                [id] |put: &usize| What::WriteDurably {
                    file: id,
                    offset: at,
                    bytes: rest[..*put].to_vec(),
                }
            );
            match put {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(put) => done += put,
                // The device requires larger blocks, or another alignment.
                Err(error) if direct.is_some() && error.kind() == ErrorKind::InvalidInput => {
                    direct = None;
                }
                // In two calls instead, which sync the whole file.
                Err(error) if is_refused(&error) => {
                    self.write_at(file, id, rest, at)?;
                    return self.sync_data(file, id);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the first offset from `offset` on where there is data, or `None` if there is none up
    /// to the end. Where the file system cannot tell, everything is data.
    pub fn next_data(&self, file: &File, offset: u64) -> io::Result<Option<u64>> {
        let found = attempt!(
            self,
            call::NEXT_DATA,
            |_| sys::next_data(file.system(), offset),
            [simulated => simulated.machine.next_data(file.number(), offset)]
        );
        match found {
            Err(error) if is_unsupported(&error) || error.kind() == ErrorKind::InvalidInput => {
                Ok(Some(offset))
            }
            result => result,
        }
    }

    /// Returns the first offset from `offset` on that lies in a hole; the end of the file is one.
    /// Everything before it is data. Where the file system cannot tell, and beyond the end, it is
    /// `offset`: no data are known to be there.
    pub fn next_hole(&self, file: &File, offset: u64) -> io::Result<u64> {
        let found = attempt!(
            self,
            call::NEXT_HOLE,
            |_| sys::next_hole(file.system(), offset),
            [simulated => simulated.machine.next_hole(file.number(), offset)]
        );
        match found {
            Err(error) if is_unsupported(&error) || error.kind() == ErrorKind::InvalidInput => {
                Ok(offset)
            }
            result => Ok(result?.unwrap_or(offset)),
        }
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
        let path = folder.path();
        attempt!(
            self,
            call::LIST_DIR,
            |_| {
                let entries = std::fs::read_dir(path)?.take(most);
                entries.map(|entry| entry.map(|entry| entry.file_name())).collect()
            },
            [simulated => simulated.machine.list_dir(path).map(|paths| {
                let names = paths.iter().filter_map(|path| path.file_name());
                names.take(most).map(OsString::from).collect()
            })]
        )
    }

    /// Returns an extended attribute's value, or `None` if it is not set or the file system does
    /// not support extended attributes.
    pub fn get_xattr(&self, file: &File, name: &str) -> io::Result<Option<Vec<u8>>> {
        let value = attempt!(
            self,
            call::GET_XATTR,
            |_| sys::get_xattr(file.system(), name),
            [simulated => simulated.machine.get_xattr(file.number(), name)]
        );
        Ok(if_supported(value)?.flatten())
    }

    /// Returns `true` if the file system supports extended attributes of this name.
    pub fn keeps_xattrs(&self, file: &File, name: &str) -> io::Result<bool> {
        let value = attempt!(
            self,
            call::GET_XATTR,
            |_| sys::get_xattr(file.system(), name),
            [simulated => simulated.machine.get_xattr(file.number(), name)]
        );
        Ok(if_supported(value)?.is_some())
    }

    /// Sets an extended attribute. Returns `false` if the file system does not support them.
    pub fn set_xattr(&self, file: &File, name: &str, value: &[u8]) -> io::Result<bool> {
        let set = attempt!(
            self,
            call::SET_XATTR,
            |_| sys::set_xattr(file.system(), name, value),
            [simulated => simulated.machine.set_xattr(file.number(), name, value)]
        );
        Ok(if_supported(set)?.is_some())
    }

    /// Removes an extended attribute, if it is set.
    pub fn remove_xattr(&self, file: &File, name: &str) -> io::Result<()> {
        let removed = attempt!(
            self,
            call::REMOVE_XATTR,
            |_| sys::remove_xattr(file.system(), name),
            [simulated => simulated.machine.remove_xattr(file.number(), name)]
        );
        if_supported(removed).map(drop)
    }

    /// Returns the kind of file system that the file is on.
    pub fn file_system(&self, file: &File) -> io::Result<FileSystem> {
        attempt!(
            self,
            call::FILE_SYSTEM,
            |_| sys::file_system(file.system()).map(as_believed),
            [simulated => Ok(match simulated.machine.is_ram() {
                true => FileSystem::Ram("simulated"),
                false => FileSystem::Local("simulated"),
            })]
        )
    }

    /// Returns a new identifier for a pair of files, which no other pair has.
    pub fn new_uuid(&self) -> [u8; 16] {
        match self {
            Platform::Native(_) => *uuid::Uuid::new_v4().as_bytes(),
            #[cfg(feature = "recorder")]
            Platform::Recording(_) => *uuid::Uuid::new_v4().as_bytes(),
            #[cfg(feature = "recorder")]
            Platform::Simulated(simulated) => simulated.machine.new_uuid(),
        }
    }

    /// Returns the identity of this boot of the system; zeros if the system does not tell.
    ///
    /// A temporary failure to read it is an error and does not count as unknown. A pair that does
    /// not know its boot goes back to its last durable point, or is refused, after a mere process
    /// crash.
    pub fn boot_id(&self) -> io::Result<[u8; 16]> {
        use ErrorKind::{InvalidData, NotADirectory, NotFound, PermissionDenied, Unsupported};
        let told = attempt!(
            self,
            call::BOOT_ID,
            |_| read_boot_id(),
            [simulated => Ok(simulated.machine.boot_id())]
        );
        match told {
            Err(error)
                if [InvalidData, NotADirectory, NotFound, PermissionDenied, Unsupported]
                    .contains(&error.kind()) =>
            {
                Ok([0; 16])
            }
            result => result,
        }
    }
}

impl Platform {
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

    /// Returns the number of the user for which files are opened (Unix; elsewhere 0).
    pub fn user(&self) -> u32 {
        match self {
            Platform::Native(_) => stat::user(),
            #[cfg(feature = "recorder")]
            Platform::Recording(_) => stat::user(),
            #[cfg(feature = "recorder")]
            Platform::Simulated(simulated) => simulated.machine.user(),
        }
    }

    /// Returns the kind of file system that the folder is on.
    pub fn file_system_of(&self, folder: &Folder) -> io::Result<FileSystem> {
        attempt!(
            self,
            call::FILE_SYSTEM,
            |_| at::file_system(folder).map(as_believed),
            [simulated => Ok(match simulated.machine.is_ram() {
                true => FileSystem::Ram("simulated"),
                false => FileSystem::Local("simulated"),
            })]
        )
    }

    /// Returns the identity of the page cache that holds stores to the home file and to files in
    /// the folder. The second value is `true` if every mount of their file systems shares that
    /// cache.
    ///
    /// # Errors
    /// A temporary failure to read the identity is an error and does not count as unknown.
    pub fn cache_identity(
        &self,
        (home, home_lies_on): (&File, FileSystem),
        (folder, folder_lies_on): (&Folder, FileSystem),
    ) -> io::Result<(CacheIdentity, bool)> {
        /// Tells the numbers of two file systems apart. An odd number, so that no bits are lost.
        const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut identity = CacheIdentity { boot_id: self.boot_id()?, ..CacheIdentity::default() };
        let volumes = match home {
            File::System(home) => [
                cache::volume(home, home_lies_on),
                at::with_open(folder, |folder| cache::volume(folder, folder_lies_on)),
            ],
            #[cfg(feature = "recorder")]
            File::Simulated(number) => [self.simulated_volume(*number); 2],
        };
        let mut is_shared = false;
        if let [Some(home), Some(folder)] = volumes {
            identity.volume = home.id.wrapping_mul(MIX) ^ folder.id;
            is_shared = !home.is_of_mount && !folder.is_of_mount;
        }
        match self {
            #[cfg(feature = "recorder")]
            Platform::Simulated(simulated) => {
                let (uptime, started, devices_born) = simulated.machine.clocks();
                identity = CacheIdentity { uptime, started, devices_born, ..identity };
            }
            _ => cache::clocks(&mut identity),
        }
        Ok((identity, is_shared))
    }

    #[cfg(feature = "recorder")]
    fn simulated_volume(
        &self,
        file: crate::platform::machine::FileNumber,
    ) -> Option<cache::Volume> {
        let Platform::Simulated(simulated) = self else { return None };
        let id = simulated.machine.volume(file);
        (id != 0).then_some(cache::Volume { id, is_of_mount: false })
    }
}

fn advance(offset: u64, done: usize) -> io::Result<u64> {
    offset.checked_add(done as u64).ok_or_else(|| ErrorKind::InvalidInput.into())
}

/// Reads the boot's identity by the standard library, without a system call of our own. Wherever
/// the file exists, it tells the boots apart.
fn read_boot_id() -> io::Result<[u8; 16]> {
    // The length of a UUID, and read in one call: reading the whole file would ask for its length
    // and its end as well.
    let mut text = [0; 36];
    let mut file = std::fs::File::open("/proc/sys/kernel/random/boot_id")?;
    if !cache::is_kernels_own(&file) {
        // A container's own file, which says nothing about the machine: its page cache may be long
        // gone, or still there.
        return Err(ErrorKind::NotFound.into());
    }
    file.read_exact(&mut text).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => ErrorKind::InvalidData.into(),
        _ => error,
    })?;
    let uuid = uuid::Uuid::try_parse_ascii(&text).map_err(|_| ErrorKind::InvalidData)?;
    Ok(uuid.into_bytes())
}

#[cfg(all(test, unix, not(miri)))]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    const NEW: OpenHow = OpenHow { create: true, create_new: true, mode: 0o600 };

    /// A new file that is removed when dropped.
    pub(super) struct Scratch {
        pub path: PathBuf,
        pub name: Name,
        pub file: File,
    }

    impl Scratch {
        pub fn new(dir: &str, platform: &Platform) -> Scratch {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("platform-{}-{number}", std::process::id());
            let path = Path::new(dir).join(name);
            let name = platform.name(&path).unwrap();
            let file = platform.open(&name, NEW).unwrap();
            Scratch { path, name, file }
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Returns folders in memory and on disk, where they exist.
    fn places() -> impl Iterator<Item = &'static str> {
        ["/dev/shm", "/tmp"].into_iter().filter(|dir| Path::new(dir).is_dir())
    }

    #[test]
    fn a_file_grows_into_its_mapping() {
        let p = Platform::native();
        for dir in places() {
            let s = Scratch::new(dir, &p);
            let len = 8 << 20;
            let map = p.map(&s.file, len, false).unwrap();
            assert_eq!(map.len() as u64, len);
            if cfg!(all(target_os = "linux", not(atomic_mmap_portable))) {
                assert!(map.base().addr().is_multiple_of(HUGE_PAGE as usize));
            }
            p.allocate(&s.file, FileId::Home, None, 0, 4096).unwrap();
            assert_eq!(p.stat(&s.file).unwrap().len, 4096);
            p.allocate(&s.file, FileId::Home, None, 4 << 20, 8192).unwrap();
            assert_eq!(p.stat(&s.file).unwrap().len, (4 << 20) + 8192);
            let place = |offset: u64| crate::platform::Place {
                ptr: map.base().wrapping_add(offset as usize),
                file: FileId::Home,
                offset,
            };
            let far = (4 << 20) + 100;
            // SAFETY: both ranges are in the mapping and within the file, and no other thread uses
            // it.
            unsafe {
                p.copy_in(place(7), b"near", crate::platform::Copying::BySize);
                p.copy_in(place(far), b"far", crate::platform::Copying::Cached);
                let mut back = [0; 3];
                p.copy_out(&mut back, place(far).ptr);
                assert_eq!(&back, b"far");
            }
            // The page cache is the same memory.
            let mut back = [0; 6];
            p.read_at(&s.file, FileId::Home, &mut back, 6).unwrap();
            assert_eq!(&back, b"\0near\0");
            p.write_at(&s.file, FileId::Home, b"by call", 64).unwrap();
            let mut back = [0; 7];
            // SAFETY: as above.
            unsafe { p.copy_out(&mut back, place(64).ptr) };
            assert_eq!(&back, b"by call");
            p.sync_data(&s.file, FileId::Home).unwrap();
            p.sync_all(&s.file, FileId::Home).unwrap();
            p.sync_dir(s.name.folder(), &s.file).unwrap();
        }
    }

    #[test]
    fn lengths_to_be_mapped_are_checked() {
        let p = Platform::native();
        let s = Scratch::new("/tmp", &p);
        for len in [0, 4096, HUGE_PAGE + 1, u64::MAX - HUGE_PAGE + 1] {
            assert!(p.map(&s.file, len, false).is_err(), "{len}");
        }
    }

    #[test]
    fn a_synchronous_mapping_of_ordinary_memory_is_refused() {
        let p = Platform::native();
        for dir in places() {
            let s = Scratch::new(dir, &p);
            p.set_file_len(&s.file, FileId::Home, HUGE_PAGE).unwrap();
            let refused = p.map(&s.file, HUGE_PAGE, true).unwrap_err();
            assert!(
                matches!(refused.kind(), ErrorKind::Unsupported | ErrorKind::InvalidInput),
                "{refused}"
            );
        }
    }

    #[test]
    fn allocation_keeps_contents_and_punching_takes_storage_back() {
        let p = Platform::native();
        for dir in places() {
            let s = Scratch::new(dir, &p);
            let id = FileId::Reflection;
            p.write_at(&s.file, id, b"kept", 5000).unwrap();
            p.set_file_len(&s.file, id, 40_000).unwrap();
            p.allocate(&s.file, id, None, 100, 299_900).unwrap();
            let stat = p.stat(&s.file).unwrap();
            assert_eq!(stat.len, 300_000);
            assert!(stat.blocks * 512 >= 290_000, "{stat:?}");
            let mut all = vec![1; 300_010];
            p.read_at(&s.file, id, &mut all, 0).unwrap();
            assert_eq!(&all[5000..5004], b"kept");
            assert_eq!(all.iter().filter(|b| **b != 0).count(), 4);
            p.write_at(&s.file, id, &[9; 65_536], 65_536).unwrap();
            if p.punch(&s.file, id, 65_536, 65_536).unwrap() {
                let now = p.stat(&s.file).unwrap();
                assert_eq!(now.len, 300_000);
                assert!(now.blocks < stat.blocks);
                let mut back = [1; 65_536];
                p.read_at(&s.file, id, &mut back, 65_536).unwrap();
                assert!(back.iter().all(|b| *b == 0));
                let mut kept = [0; 4];
                p.read_at(&s.file, id, &mut kept, 5000).unwrap();
                assert_eq!(&kept, b"kept");
            } else {
                assert!(cfg!(atomic_mmap_portable) || dir != "/dev/shm");
            }
        }
    }

    #[test]
    fn the_way_by_writing_allocates_and_keeps() {
        let p = Platform::native();
        for dir in places() {
            for len in [1, 4095, 4096, 4097, 5003, 65_536, 70_000, 200_000] {
                let s = Scratch::new(dir, &p);
                let id = FileId::Home;
                p.set_file_len(&s.file, id, len).unwrap();
                p.write_at(&s.file, id, b"!", len - 1).unwrap();
                for (offset, size) in [(0, 300_000), (100, 5), (4096, 1), (len, 10)] {
                    allocate::by_writing(&p, &s.file, id, offset, size).unwrap();
                    let stat = p.stat(&s.file).unwrap();
                    assert!(stat.len >= offset + size);
                }
                let stat = p.stat(&s.file).unwrap();
                assert_eq!(stat.len, 300_000);
                assert!(stat.blocks * 512 >= 300_000);
                let mut all = vec![1; 300_000];
                p.read_at(&s.file, id, &mut all, 0).unwrap();
                assert_eq!(all.iter().filter(|b| **b != 0).count(), 1);
                assert_eq!(all[len as usize - 1], b'!');
            }
        }
    }

    #[test]
    fn holes_and_data_are_found() {
        let p = Platform::native();
        for dir in places() {
            let s = Scratch::new(dir, &p);
            let id = FileId::Home;
            p.set_file_len(&s.file, id, 4 << 20).unwrap();
            p.write_at(&s.file, id, &[1; 4096], 1 << 20).unwrap();
            let data = p.next_data(&s.file, 0).unwrap();
            let hole = p.next_hole(&s.file, 1 << 20).unwrap();
            if cfg!(all(target_os = "linux", not(atomic_mmap_portable))) {
                assert_eq!(data, Some(1 << 20));
                assert_eq!(hole, (1 << 20) + 4096);
                assert_eq!(p.next_data(&s.file, hole).unwrap(), None);
                assert_eq!(p.next_hole(&s.file, 0).unwrap(), 0);
                assert_eq!(p.next_hole(&s.file, 5 << 20).unwrap(), 5 << 20);
            } else {
                assert_eq!(data, Some(0));
                assert_eq!(hole, 1 << 20);
            }
        }
    }

    #[test]
    fn identity_names_locks_and_attributes() {
        let p = Platform::native();
        for dir in places() {
            let s = Scratch::new(dir, &p);
            let again = OpenHow { create: false, create_new: false, mode: 0 };
            let other = p.open(&s.name, again).unwrap();
            let stat = p.stat(&s.file).unwrap();
            assert_eq!(stat, p.stat(&other).unwrap());
            assert_eq!(p.stat_name(&s.name).unwrap(), Some(stat));
            assert!(stat.is_regular);
            assert!(stat.mtime.0 > 1_600_000_000 && stat.mtime.1 < 1_000_000_000);
            if let Some(born) = stat.btime {
                assert!(born.0 > 1_600_000_000);
            }
            assert_eq!(p.open(&s.name, NEW).unwrap_err().kind(), ErrorKind::AlreadyExists);

            assert!(p.try_lock(&s.file).unwrap());
            assert!(!p.try_lock(&other).unwrap());

            let name = "user.atomic_mmap.test";
            assert_eq!(p.get_xattr(&s.file, name).unwrap(), None);
            let long = vec![3; 1000];
            if p.set_xattr(&s.file, name, &long).unwrap() {
                assert_eq!(p.get_xattr(&other, name).unwrap(), Some(long));
                p.remove_xattr(&s.file, name).unwrap();
                assert_eq!(p.get_xattr(&other, name).unwrap(), None);
            }
            p.remove_xattr(&s.file, name).unwrap();

            let moved = s.name.with_suffix("moved");
            p.rename(&s.name, &moved).unwrap();
            assert_eq!(p.stat_name(&s.name).unwrap(), None);
            let names = p.list_dir(s.name.folder(), usize::MAX).unwrap();
            assert!(names.iter().any(|name| name == moved.name()));
            p.remove(&moved).unwrap();
            assert_eq!(p.remove(&moved).unwrap_err().kind(), ErrorKind::NotFound);

            let kind = p.file_system(&s.file).unwrap();
            if cfg!(all(target_os = "linux", not(atomic_mmap_portable))) {
                if dir == "/dev/shm" {
                    assert_eq!(kind, FileSystem::Ram("tmpfs"));
                    assert_eq!(kind.to_string(), "tmpfs");
                }
                assert_ne!(p.boot_id().unwrap(), [0; 16]);
                assert_eq!(p.boot_id().unwrap(), p.boot_id().unwrap());
            } else {
                assert_eq!(kind.to_string(), "unknown");
            }
        }
    }
}
