//! The metadata of a file: identity, length, times.
//!
//! Owns: [`FileStat`] and the sources of its fields. On Unix that is the standard library's
//! metadata. On Linux this asks `statx`, and so knows the time of birth where the file system does.
//! Where it does not, the inode's generation replaces it.
//!
//! Invariant: what the system does not tell is `None`, never a made-up value. Within a running
//! system, two handles have equal `(dev, ino)` if and only if they refer to one file.
//!
//! May import: std and libc. On Windows, one call of kernel32 for the file's index, which stable
//! std lacks.

use std::fs::{File, Metadata};
use std::io;
#[cfg(not(all(target_os = "linux", not(atomic_mmap_portable))))]
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The metadata of a file. Times are seconds since 1970 with their nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileStat {
    /// The device (the volume) that holds it.
    pub dev: u64,
    /// Its number on the device.
    pub ino: u64,
    /// Length in bytes.
    pub len: u64,
    /// Last change of the contents.
    pub mtime: (i64, u32),
    /// Last change of the file's metadata (Windows: equal to `mtime`).
    pub ctime: (i64, u32),
    /// Birth: tells an inode apart from a later one with its number. The time of birth, where the
    /// file system keeps that. Otherwise the inode's generation, with `NO_TIME` as nanoseconds.
    pub btime: Option<(i64, u32)>,
    /// It is a regular file.
    pub is_regular: bool,
    /// It is a symbolic link. Only for names: an open file never is one.
    pub is_link: bool,
    /// The number of its names.
    pub links: u64,
    /// Its owner (Unix; elsewhere 0).
    pub uid: u32,
    /// Its group (Unix; elsewhere 0).
    pub gid: u32,
    /// Its permissions (Unix; elsewhere 0).
    pub mode: u32,
    /// Storage in use, in units of 512 bytes (Windows: what the length needs).
    pub blocks: u64,
}

/// The nanoseconds of a birth that is a generation and not a time.
pub const NO_TIME: u32 = u32::MAX;

/// The user id that stands for every user without a number in the user namespace.
pub const UNMAPPED: u32 = 65534;

/// Returns the metadata of an open file.
pub fn of_file(file: &File) -> io::Result<FileStat> {
    from_metadata(&file.metadata()?, Some(file))
}

/// Returns the metadata of a path, or `None` if nothing is there. A link at its end is not
/// followed.
#[cfg(all(unix, not(all(target_os = "linux", not(atomic_mmap_portable)))))]
pub fn of_path(path: &Path) -> io::Result<Option<FileStat>> {
    present(std::fs::symlink_metadata(path).and_then(|metadata| from_metadata(&metadata, None)))
}

/// Returns the metadata of a path, or `None` if nothing is there.
#[cfg(windows)]
pub fn of_path(path: &Path) -> io::Result<Option<FileStat>> {
    present(File::open(path).and_then(|file| of_file(&file)))
}

/// Returns the user for which this process opens files (Unix; elsewhere 0).
pub fn user() -> u32 {
    #[cfg(unix)]
    // SAFETY: the call has no precondition and does not fail.
    return unsafe { libc::geteuid() };
    #[cfg(not(unix))]
    0
}

pub(super) fn present<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn since_epoch(time: SystemTime) -> (i64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after.as_secs() as i64, after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => (-(before.as_secs() as i64), 0),
                nanos => (-(before.as_secs() as i64) - 1, 1_000_000_000 - nanos),
            }
        }
    }
}

#[cfg(unix)]
fn from_metadata(metadata: &Metadata, file: Option<&File>) -> io::Result<FileStat> {
    use std::os::unix::fs::MetadataExt;
    let born = metadata.created().ok().map(since_epoch);
    Ok(FileStat {
        dev: metadata.dev(),
        ino: metadata.ino(),
        len: metadata.len(),
        // Nanoseconds are below 10^9.
        mtime: (metadata.mtime(), metadata.mtime_nsec() as u32),
        ctime: (metadata.ctime(), metadata.ctime_nsec() as u32),
        btime: born.or_else(|| file.and_then(generation)),
        is_regular: metadata.is_file(),
        is_link: metadata.is_symlink(),
        links: metadata.nlink(),
        uid: metadata.uid(),
        gid: metadata.gid(),
        mode: metadata.mode() & 0o7777,
        blocks: metadata.blocks(),
    })
}

/// Returns the generation of an inode, for file systems that keep no time of birth (ext4 with
/// inodes of 128 bytes). The kernel draws one at random for each file that takes the inode's
/// number.
#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
fn generation(file: &File) -> Option<(i64, u32)> {
    use std::os::fd::AsRawFd;
    /// FS_IOC_GETVERSION of linux/fs.h. The kernel writes an `int`, whatever the request's number
    /// says.
    const GET_VERSION: u64 = 0x8008_7601;
    let mut generation = 0_i64;
    // SAFETY: the descriptor is open, and the kernel writes at most the 8 bytes that the number
    // says.
    let told = unsafe { libc::ioctl(file.as_raw_fd(), GET_VERSION as _, &raw mut generation) };
    (told == 0).then_some((generation & 0xffff_ffff, NO_TIME))
}

#[cfg(all(unix, not(all(target_os = "linux", not(atomic_mmap_portable)))))]
fn generation(_: &File) -> Option<(i64, u32)> {
    None
}

#[cfg(windows)]
fn from_metadata(metadata: &Metadata, file: Option<&File>) -> io::Result<FileStat> {
    use std::os::windows::io::AsRawHandle;

    /// BY_HANDLE_FILE_INFORMATION
    #[repr(C)]
    #[derive(Default)]
    struct Information {
        attributes: u32,
        times: [u32; 6],
        volume: u32,
        size: [u32; 2],
        links: u32,
        index_high: u32,
        index_low: u32,
    }
    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn GetFileInformationByHandle(
            file: *mut std::ffi::c_void,
            information: *mut Information,
        ) -> i32;
    }

    let file = file.ok_or(io::ErrorKind::InvalidInput)?;
    let mut information = Information::default();
    // SAFETY: the handle is open as long as `file` is borrowed, and the structure has the layout
    // that the call fills (13 fields of 32 bits).
    let done = unsafe { GetFileInformationByHandle(file.as_raw_handle(), &raw mut information) };
    if done == 0 {
        return Err(io::Error::last_os_error());
    }
    let modified = since_epoch(metadata.modified()?);
    Ok(FileStat {
        dev: u64::from(information.volume),
        ino: u64::from(information.index_high) << 32 | u64::from(information.index_low),
        len: metadata.len(),
        mtime: modified,
        ctime: modified,
        btime: metadata.created().ok().map(since_epoch),
        is_regular: metadata.is_file(),
        is_link: metadata.is_symlink(),
        links: 1,
        uid: 0,
        gid: 0,
        mode: 0,
        blocks: metadata.len().div_ceil(512),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_before_1970_round_down() {
        assert_eq!(since_epoch(UNIX_EPOCH), (0, 0));
        assert_eq!(since_epoch(UNIX_EPOCH + Duration::new(5, 7)), (5, 7));
        assert_eq!(since_epoch(UNIX_EPOCH - Duration::new(5, 0)), (-5, 0));
        assert_eq!(since_epoch(UNIX_EPOCH - Duration::new(5, 1)), (-6, 999_999_999));
    }
}
