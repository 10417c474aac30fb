//! The file that a path or a descriptor names.
//!
//! Invariant: nothing here allocates, up to the answer that a file is not chosen.

use super::kept::Kept;
use super::{copies, errno, outside, process, real};
use crate::errno::{Errno, Result};
use crate::pair::{Identity, Pair};
use crate::table::{self, Found};
use crate::{inside, pair, settings};
use libc::{c_char, c_int};
use std::ffi::{CStr, OsStr};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// A path of the kernel.
pub(super) type Buffer = [u8; libc::PATH_MAX as usize];

/// Returns the path of a descriptor, absolute and without links.
pub(super) fn of(fd: c_int, buffer: &mut [u8]) -> Option<&[u8]> {
    let mut name = [0; 32];
    write!(&mut name[..31], "/proc/self/fd/{fd}").ok()?;
    // SAFETY: a name with a zero byte, and a buffer with its length.
    let len =
        unsafe { libc::readlink(name.as_ptr().cast(), buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(len).ok().map(|len| &buffer[..len])
}

/// Returns the metadata of what a path names below a folder, or of `dir` itself.
pub(super) fn stat(dir: c_int, path: &CStr, flags: c_int) -> Option<libc::stat> {
    // SAFETY: all zeroes are a value of this type. The kernel fills it.
    unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        let to = &raw mut found;
        let told = stat_to(dir, path.as_ptr(), to, flags);
        (told == 0).then_some(found)
    }
}

/// Calls `newfstatat`, which every libc has in this shape.
///
/// # Safety
/// `path` is a text with its zero byte, and `to` a place for the result.
pub(super) unsafe fn stat_to(
    dir: c_int,
    path: *const c_char,
    to: *mut libc::stat,
    flags: c_int,
) -> c_int {
    // SAFETY: as the caller promises. The structure is the kernel's.
    unsafe {
        real::syscall(
            libc::SYS_newfstatat,
            dir as usize,
            path as usize,
            to as usize,
            flags as usize,
            0,
            0,
        ) as c_int
    }
}

pub(super) fn identity(found: &libc::stat) -> Identity {
    (found.st_dev, found.st_ino)
}

/// Returns the metadata of a descriptor of a regular file, or `None` for anything else.
pub(super) fn regular(fd: c_int) -> Option<libc::stat> {
    let found = stat(fd, c"", libc::AT_EMPTY_PATH)?;
    (found.st_mode & libc::S_IFMT == libc::S_IFREG).then_some(found)
}

/// Returns `true` if the kernel's descriptor is still that of a chosen file while a thread closes
/// it. Else the kernel has closed it, and another thread may have got the number.
#[cold]
pub(super) fn is_still(fd: c_int) -> bool {
    chosen_fd(fd).is_some()
}

/// Returns `true` if a call on the descriptor may not go on to libc.
#[inline]
pub(super) fn is_chosen(fd: c_int) -> bool {
    match table::find(fd) {
        Found::Libcs => false,
        Found::Chosen(_) => true,
        Found::Closing => is_still(fd),
    }
}

/// A chosen file that a path or a descriptor names.
pub(super) struct Chosen {
    buffer: Buffer,
    len: usize,
    fd: c_int,
    /// The descriptor, if it is closed with this value.
    _own: Option<Owned>,
    pub identity: Identity,
}

impl Chosen {
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.buffer[..self.len]))
    }

    pub fn fd(&self) -> c_int {
        self.fd
    }

    /// Returns `true` if the file may have companions beside it.
    pub fn has_companion(&self) -> bool {
        let folder = self.path().parent().unwrap_or(Path::new("/"));
        folder.join(format!(".atomic-mmap.{:x}", self.identity.1)).exists()
    }

    /// Opens the folder in which the file has its name. Returns `None` if the name is another
    /// file's by now.
    pub fn folder(&self) -> Option<Owned> {
        let path = std::ffi::CString::new(&self.buffer[..self.len]).ok()?;
        let folder = open_folder(libc::AT_FDCWD, &path)?;
        folder.has(name_of(&path), self.fd).then_some(folder)
    }

    /// Returns `true` if a process has the file open for writing.
    pub fn is_in_use(&self) -> bool {
        let (device, inode) = self.identity;
        let look = || pair::options().identity(device, inode).inspect(self.path());
        pair::unforked(look).is_ok_and(|look| look.is_open)
    }

    /// Takes the file, which this process does not have open. The first call opens it.
    pub fn wait_for_call(&self, writes: bool) -> Result<Arc<Pair>> {
        let pair = pair::wait_for_call(self.fd, self.identity, writes)?;
        copies::begin();
        process::begin_to_complete();
        Ok(pair)
    }

    /// Returns `true` if the file has no name any more.
    pub fn is_nameless(&self) -> bool {
        regular(self.fd).is_some_and(|found| found.st_nlink == 0)
    }

    /// Opens the file, or joins its users.
    pub fn acquire(&self, writes: bool) -> Result<Arc<Pair>> {
        let pair = pair::acquire(self.fd, self.identity, writes)?;
        copies::begin();
        process::begin_to_complete();
        Ok(pair)
    }

    /// Recovers the file if a crash has left a companion beside it, and closes it. A file that is
    /// open here, or keeps companions for its snapshots alone, stays as it is. So does one that
    /// another process has open, unless it `leaves` its folder: then the companions must not stay
    /// behind.
    pub fn settle(&self, leaves: impl Fn() -> bool) -> Result<()> {
        match self.recover() {
            Err(Errno(libc::EBUSY)) if !leaves() => Ok(()),
            settled => settled,
        }
    }

    fn recover(&self) -> Result<()> {
        if pair::is_open(self.identity) || !self.has_companion() {
            return Ok(());
        }
        match Kept::of(self) {
            Ok(Some(kept)) if kept.is_home => Ok(()),
            // Another attempt could keep that process from opening the file again.
            Ok(Some(kept)) if kept.is_open => Err(Errno(libc::EBUSY)),
            _ => self.acquire(true)?.release(),
        }
    }
}

/// Returns the chosen file that a path names, if it names one. `flags` may be `O_NOFOLLOW`.
///
/// # Safety
/// `path` is a text with its zero byte.
pub(super) unsafe fn chosen(dir: c_int, path: *const c_char, flags: c_int) -> Option<Chosen> {
    if inside::is_inside() || !settings::is_on() || path.is_null() {
        return None;
    }
    let before = errno();
    // SAFETY: as the caller promises. A file that is open here is chosen by any name.
    let is_other = unsafe {
        let names_itself = flags & libc::O_NOFOLLOW != 0;
        names_itself && outside::is_outside(dir, path) && {
            let found = pair::are_open()
                .then(|| stat(dir, CStr::from_ptr(path), libc::AT_SYMLINK_NOFOLLOW));
            !found.flatten().is_some_and(|found| pair::is_open(identity(&found)))
        }
    };
    if is_other {
        super::set_errno(before);
        return None;
    }
    // SAFETY: as the caller promises.
    let fd = unsafe { real::openat(dir, path, libc::O_PATH | libc::O_CLOEXEC | flags, 0) };
    let own = (fd >= 0).then_some(Owned(fd));
    let found = own.and_then(|own| Some(Chosen { _own: Some(own), ..chosen_fd(fd)? }));
    super::set_errno(before);
    found
}

/// Returns the chosen file of a descriptor, if it is one. A file that this process has open in the
/// engine is chosen by any of its names, and without a name, too.
pub(super) fn chosen_fd(fd: c_int) -> Option<Chosen> {
    let mut buffer = [0; libc::PATH_MAX as usize];
    let len = of(fd, &mut buffer)?.len();
    let is_described = settings::is_chosen(&buffer[..len]);
    if !is_described && !pair::are_open() {
        return None;
    }
    let found = regular(fd)?;
    let identity = identity(&found);
    // A file without a name needs no recovery: it ends with its descriptors.
    let is_chosen = is_described && found.st_nlink > 0 || pair::is_open(identity);
    is_chosen.then_some(Chosen { buffer, len, fd, _own: None, identity })
}

/// Calls `body` with each companion of a file that this process has open: with its descriptor and
/// its path.
pub(super) fn companions(of: Identity, mut body: impl FnMut(c_int, &CStr)) {
    let mut name = [0; 32];
    let Ok(()) = write!(&mut name[..], ".atomic-mmap.{:x}", of.1) else { return };
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_bytes();
    for fd in std::iter::successors(table::next(0), |fd| table::next(fd + 1)) {
        let mut buffer = [0; libc::PATH_MAX as usize];
        if !table::is_private(fd)
            || self::of(fd, &mut buffer[..libc::PATH_MAX as usize - 1]).is_none()
        {
            continue;
        }
        let Ok(path) = CStr::from_bytes_until_nul(&buffer) else { continue };
        let last = split(path).1.strip_prefix(name);
        let is_named = last.is_some_and(|rest| matches!(rest.first(), None | Some(b'.' | b'-')));
        if is_named && regular(fd).is_some_and(|found| found.st_dev == of.0) {
            body(fd, path);
        }
    }
}

/// Returns the folder part of a path, relative to a folder, and the last name.
pub(super) fn split(path: &CStr) -> (&[u8], &[u8]) {
    let bytes = path.to_bytes();
    let cut = bytes.iter().rposition(|&c| c == b'/').map_or(0, |slash| slash + 1);
    bytes.split_at(cut)
}

/// Returns the last name of a path.
fn name_of(path: &CStr) -> &CStr {
    let bytes = path.to_bytes_with_nul();
    CStr::from_bytes_with_nul(&bytes[split(path).0.len()..]).unwrap_or_default()
}

/// A descriptor that names a file or a folder, closed on drop.
pub(super) struct Owned(c_int);

impl Owned {
    pub fn fd(&self) -> c_int {
        self.0
    }

    /// Returns `true` if this folder has the open file under this name itself, not by a link.
    pub fn has(&self, name: &CStr, file: c_int) -> bool {
        let found = stat(self.0, name, libc::AT_SYMLINK_NOFOLLOW);
        let file = regular(file).map(|file| identity(&file));
        file.is_some() && found.map(|found| identity(&found)) == file
    }

    /// Removes the name of an open file in this folder, if it is still that file's.
    pub fn remove(&self, name: &CStr, file: c_int) -> bool {
        // SAFETY: a text with its zero byte.
        self.has(name, file) && unsafe { real::unlinkat(self.0, name.as_ptr(), 0) } == 0
    }

    /// Names the file in this folder, if it is a regular file with one name. A link is not
    /// followed.
    pub fn file(&self, name: &CStr) -> Option<Owned> {
        let how = libc::O_PATH | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        // SAFETY: a text with its zero byte.
        let fd = unsafe { real::openat(self.0, name.as_ptr(), how, 0) };
        let file = (fd >= 0).then_some(Owned(fd))?;
        (regular(fd)?.st_nlink == 1).then_some(file)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let before = errno();
        super::close(self.0);
        super::set_errno(before);
    }
}

/// Removes the name of an open file, if it is still that file's.
pub(super) fn remove(fd: c_int, path: &CStr) {
    if let Some(folder) = open_folder(libc::AT_FDCWD, path) {
        folder.remove(name_of(path), fd);
    }
}

/// Opens the folder of a path.
pub(super) fn open_folder(dir: c_int, path: &CStr) -> Option<Owned> {
    let mut name = [0; libc::PATH_MAX as usize];
    let folder = match split(path).0 {
        b"" => b".",
        folder => folder,
    };
    name.get_mut(..folder.len())?.copy_from_slice(folder);
    let before = errno();
    // SAFETY: a name with a zero byte.
    let fd = unsafe { real::openat(dir, name.as_ptr().cast(), libc::O_PATH | libc::O_CLOEXEC, 0) };
    super::set_errno(before);
    (fd >= 0).then_some(Owned(fd))
}

/// Returns the identity of the folder of a path.
///
/// # Safety
/// `path` is a text with its zero byte.
pub(super) unsafe fn folder(dir: c_int, path: *const c_char) -> Option<Identity> {
    // SAFETY: as the caller promises.
    let folder = open_folder(dir, unsafe { CStr::from_ptr(path) })?;
    stat(folder.fd(), c"", libc::AT_EMPTY_PATH).map(|found| identity(&found))
}

/// Returns `true` if a path names a chosen file, or would name one if that file were there.
///
/// # Safety
/// `path` is a text with its zero byte.
pub(super) unsafe fn would_be_chosen(path: *const c_char) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        let name = CStr::from_ptr(path);
        if chosen(libc::AT_FDCWD, path, 0).is_some() {
            return true;
        }
        if stat(libc::AT_FDCWD, name, 0).is_some() {
            return false;
        }
        let described = open_folder(libc::AT_FDCWD, name).and_then(|folder| {
            let mut buffer = [0; libc::PATH_MAX as usize];
            let len = of(folder.fd(), &mut buffer)?.len();
            let last = split(name).1;
            let to = buffer.get_mut(len..len + 1 + last.len())?;
            to[0] = b'/';
            to[1..].copy_from_slice(last);
            Some(settings::is_chosen(&buffer[..len + 1 + last.len()]))
        });
        described.unwrap_or(false)
    }
}

/// Returns `true` if the last name of a path may be that of a chosen file.
pub(super) fn has_likely_name(path: &CStr) -> bool {
    let name = path.to_bytes().rsplit(|&c| c == b'/').next().unwrap_or_default();
    settings::may_be_chosen(name)
}
