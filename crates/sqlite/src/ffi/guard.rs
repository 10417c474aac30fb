//! Keeps every other SQLite away from a database that is open here.
//!
//! A lock of the open file description (OFD) on the bytes that SQLite locks: another SQLite, of
//! this process or of another, finds the database locked. It would read and change the home file,
//! which is not the whole truth while the pair is open.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The first of SQLite's lock bytes, `PENDING_BYTE`.
const FIRST: i64 = 0x4000_0000;
/// The first of the bytes that a reader locks one of, `SHARED_FIRST`.
const SHARED: i64 = FIRST + 2;
/// The number of bytes that a reader locks one of.
const SHARED_LEN: i64 = 510;
/// The number of all lock bytes.
const ALL_LEN: i64 = 512;

/// A lock, until it is dropped. The file is closed then.
#[derive(Debug)]
pub(crate) struct Guard {
    file: File,
    is_read_only: bool,
    /// The process that has the lock. A child of `fork` inherits the file, but not its duty.
    process: u32,
}

/// The result of [`Guard::take`].
#[derive(Debug)]
pub(crate) enum Taken {
    Guard(Guard),
    /// Another SQLite uses the file.
    Refused(File),
}

impl Guard {
    /// Locks the file, which is open for writing if `write` is set. A guard for reading alone lets
    /// other readers in.
    pub fn take(file: File, write: bool) -> io::Result<Taken> {
        let locked = match write {
            true => set_lock(&file, libc::F_WRLCK, FIRST, ALL_LEN),
            false => set_lock(&file, libc::F_RDLCK, SHARED, SHARED_LEN),
        };
        match locked.map_err(|error| (error.raw_os_error(), error)) {
            Ok(()) => {
                let process = std::process::id();
                Ok(Taken::Guard(Guard { file, is_read_only: !write, process }))
            }
            Err((Some(libc::EAGAIN | libc::EACCES), _)) => Ok(Taken::Refused(file)),
            Err((_, error)) => Err(error),
        }
    }

    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // Explicitly: a process that another thread is starting may have inherited the file,
            // and keeps it open until its `exec`.
            let _unheard = set_lock(&self.file, libc::F_UNLCK, FIRST, ALL_LEN);
        }
    }
}

/// Sets or removes a lock of the open file on `len` bytes from `start` on.
fn set_lock(file: &File, kind: libc::c_int, start: i64, len: i64) -> io::Result<()> {
    // SAFETY: `flock` consists of integers, for which zeroes are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as _;
    lock.l_whence = libc::SEEK_SET as _;
    (lock.l_start, lock.l_len) = (start, len);
    // SAFETY: an open descriptor, and a structure that the call reads.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the effective user of the process.
pub(crate) fn user() -> u32 {
    // SAFETY: the call has no arguments, and cannot fail.
    unsafe { libc::geteuid() }
}

/// Returns `true` if the process has the right to write to the file. Opens no descriptor.
pub(crate) fn may_write(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: a string that ends with a zero.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) == 0 }
}
