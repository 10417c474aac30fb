//! What is known of a file: identity, length, times?
//!
//! Owns: [`FileStat`] and where its fields come from. On Unix that is the standard library's metadata,
//! which on Linux asks `statx` (and so knows the time of birth, where the file system does).
//!
//! Invariant: what the system does not tell is `None`, never a made-up value. Within a running system,
//! `(dev, ino)` is the same for two handles if and only if they are the same file.
//!
//! May import: std only (Windows: one call of kernel32 for the file's index, which stable std lacks).

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// What is known of a file. Times are seconds since 1970 and nanoseconds above them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileStat {
    /// The device (the volume) that holds it.
    pub dev: u64,
    /// Its number there.
    pub ino: u64,
    /// Length in bytes.
    pub len: u64,
    /// Last change of the contents.
    pub mtime: (i64, u32),
    /// Last change of the file's metadata (Windows: the same as `mtime`).
    pub ctime: (i64, u32),
    /// Birth, where the file system keeps it.
    pub btime: Option<(i64, u32)>,
    /// A regular file.
    pub is_regular: bool,
    /// Storage in use, in units of 512 bytes (Windows: what the length needs).
    pub blocks: u64,
}

/// Of an open file.
pub fn of_file(file: &File) -> io::Result<FileStat> {
    from_metadata(&file.metadata()?, file)
}

/// Of a path, links followed. `None`: nothing there.
#[cfg(unix)]
pub fn of_path(path: &Path) -> io::Result<Option<FileStat>> {
    present(std::fs::metadata(path).and_then(|metadata| from_metadata(&metadata, ())))
}

/// Of a path, links followed. `None`: nothing there.
#[cfg(windows)]
pub fn of_path(path: &Path) -> io::Result<Option<FileStat>> {
    present(File::open(path).and_then(|file| of_file(&file)))
}

fn present(found: io::Result<FileStat>) -> io::Result<Option<FileStat>> {
    match found {
        Ok(stat) => Ok(Some(stat)),
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
fn from_metadata<F>(metadata: &Metadata, _file: F) -> io::Result<FileStat> {
    use std::os::unix::fs::MetadataExt;
    Ok(FileStat {
        dev: metadata.dev(),
        ino: metadata.ino(),
        len: metadata.len(),
        // Nanoseconds are below 10^9.
        mtime: (metadata.mtime(), metadata.mtime_nsec() as u32),
        ctime: (metadata.ctime(), metadata.ctime_nsec() as u32),
        btime: metadata.created().ok().map(since_epoch),
        is_regular: metadata.is_file(),
        blocks: metadata.blocks(),
    })
}

#[cfg(windows)]
fn from_metadata(metadata: &Metadata, file: &File) -> io::Result<FileStat> {
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

    let mut information = Information::default();
    // SAFETY: the handle is open as long as `file` is borrowed, and the structure has the layout that
    // the call fills (13 fields of 32 bits).
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
