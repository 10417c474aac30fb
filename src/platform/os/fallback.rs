//! The operating system's calls on systems without the calls of `linux.rs`.
//!
//! Owns: the answers of these systems, from the standard library and memmap2 only. Elsewhere the
//! answer is "not supported", or a neutral value that makes the caller do without. Also built on
//! Linux under `--cfg atomic_mmap_portable`, so that it is tested.
//!
//! Invariant: same signatures as `linux.rs`.
//!
//! May import: `file_system`, `stat`, `rights`, std, memmap2.

use super::FileSystem;
use std::fs::File;
use std::io;

/// A mapping of a file. Unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    map: Map,
}

#[derive(Debug)]
enum Map {
    Real(memmap2::MmapRaw),
    /// Nothing is mapped there: the addresses mean something to a simulated machine only.
    #[cfg(feature = "recorder")]
    Simulated(usize, usize),
}

impl Mapping {
    /// Creates a mapping of addresses at which nothing is mapped.
    #[cfg(feature = "recorder")]
    pub(in crate::platform) fn simulated(base: *mut u8, len: usize) -> Mapping {
        Mapping { map: Map::Simulated(base.addr(), len) }
    }

    /// Returns the first address.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        match &self.map {
            Map::Real(map) => map.as_mut_ptr(),
            #[cfg(feature = "recorder")]
            Map::Simulated(base, _) => std::ptr::without_provenance_mut(*base),
        }
    }

    /// Returns the bytes of address space. The file may be shorter.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> usize {
        match &self.map {
            Map::Real(map) => map.len(),
            #[cfg(feature = "recorder")]
            Map::Simulated(_, len) => *len,
        }
    }
}

/// Does nothing.
pub fn forget_cached(_file: &File, _mapping: &Mapping, _offset: u64, _len: u64) {}

/// Returns 0: not known. Callers assume at least 4096 bytes.
pub fn page_size() -> u64 {
    0
}

/// Returns `None`: not known.
pub fn longest_file() -> Option<u64> {
    None
}

/// Maps the file. On Unix the mapping is `len` bytes long, whatever the file's length. On other
/// systems a mapping cannot reach beyond the end of the file, so it is as long as the file, at most
/// `len`.
pub fn map(file: &File, len: usize, want_sync: bool) -> io::Result<Mapping> {
    if want_sync {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let len = if cfg!(unix) {
        len
    } else {
        len.min(usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX))
    };
    let map = memmap2::MmapOptions::new().len(len).map_raw(file)?;
    Ok(Mapping { map: Map::Real(map) })
}

/// Fails: there is no portable way to a private mapping that reaches past the end of its file.
pub fn map_private(_: Option<(&File, usize)>, _: usize) -> io::Result<Mapping> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns `true` without a check.
pub fn has_addresses(_: usize) -> bool {
    true
}

/// Does nothing: the system reads ahead by its own rules.
pub fn will_need(_: &File, _: &Mapping, _: u64, _: u64) {}

pub fn will_need_data(_: &File, _: &Mapping, _: u64, _: u64) {}

/// Sets the time of the last change to now.
pub fn touch(file: &File) {
    let _nothing_relies_on_it = file.set_modified(std::time::SystemTime::now());
}

/// Does nothing: no huge pages here.
pub fn take_huge_page(_: &File, _: &Mapping, _: u64) -> bool {
    false
}

/// Does nothing: each page comes in with its first store.
pub fn bring_in(_: &Mapping, _: u64, _: u64) {}

/// Advises random access where memmap2 supports that.
pub fn expect_random(_: &File, mapping: &Mapping) -> io::Result<()> {
    match &mapping.map {
        #[cfg(unix)]
        Map::Real(map) => map.advise(memmap2::Advice::Random),
        #[cfg(not(unix))]
        Map::Real(_) => Ok(()),
        #[cfg(feature = "recorder")]
        Map::Simulated(..) => Ok(()),
    }
}

/// Does nothing: no file system is asked.
pub fn write_in_place(_: &File) -> io::Result<()> {
    Ok(())
}

pub fn allocate(_: &File, _: u64, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub fn allocate_past_end(_: &File, _: u64, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub fn punch(_: &File, _: u64, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Gives the file its owner, group and permissions on Unix, the only systems that have them. Access
/// control lists are ignored.
pub fn own(file: &File, _: &File, like: &super::FileStat) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
        let _may_not = fchown(file, Some(like.uid), Some(like.gid));
        let is = file.metadata()?;
        let mode = super::rights::mode(like.mode, is.uid() == like.uid, is.gid() == like.gid);
        let _may_not = file.set_permissions(std::fs::Permissions::from_mode(mode));
    }
    let _ = (file, like);
    Ok(())
}

pub fn write_durably(_: &File, _: &[u8], _: u64) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Fails: there is no portable way.
pub fn set_direct(_: &File, _: bool) -> io::Result<()> {
    Err(io::ErrorKind::InvalidInput.into())
}

pub fn next_data(_: &File, _: u64) -> io::Result<Option<u64>> {
    Err(io::ErrorKind::Unsupported.into())
}

pub fn next_hole(_: &File, _: u64) -> io::Result<Option<u64>> {
    Err(io::ErrorKind::Unsupported.into())
}

pub fn get_xattr(_: &File, _: &str) -> io::Result<Option<Vec<u8>>> {
    Err(io::ErrorKind::Unsupported.into())
}

pub fn set_xattr(_: &File, _: &str, _: &[u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub fn remove_xattr(_: &File, _: &str) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub fn file_system(_: &File) -> io::Result<FileSystem> {
    Ok(FileSystem::from_magic(0))
}
