//! The interface of a simulated machine.
//!
//! Owns: [`Machine`], the face that a simulation of memory and operating system has to offer, and
//! the encoding of addresses in its mappings. For tests only: the crash lab (`crates/lab`)
//! simulates persistent memory that loses what was not flushed, and explores what recovery makes of
//! it. Nothing here is covered by semantic versioning.
//!
//! Invariant: no memory of this process is touched through an address that is made here.
//!
//! May import: the vocabulary of `platform/mod.rs`.

use crate::platform::{Copying, FileStat, Mapping, Native, OpenHow, Persistence, Place};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file's number in a simulated machine: its inode. Not zero, below 2^19.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct FileNumber(pub u64);

/// A place in a file of a simulated machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Spot {
    /// The file.
    pub file: FileNumber,
    /// The byte.
    pub offset: u64,
}

/// A mapping of file `n` begins at address `n << SHIFT`.
const SHIFT: u32 = 44;

impl Spot {
    fn of(ptr: *const u8) -> Spot {
        let address = ptr.addr() as u64;
        let offset = address & ((1 << SHIFT) - 1);
        Spot { file: FileNumber(address >> SHIFT), offset }
    }
}

/// A simulated machine with one processor's memory instructions and an operating system. `through`
/// says that a store needs a drain only, and no flush. The calls behave as those of `Platform` with
/// these names.
#[allow(missing_docs, reason = "the methods are those of `Platform`")]
pub trait Machine: Send + Sync {
    fn load(&self, at: Spot) -> u64;
    fn read(&self, to: &mut [u8], at: Spot);
    fn store_bytes(&self, at: Spot, bytes: &[u8], through: bool);
    fn store(&self, at: Spot, value: u64, through: bool);
    fn compare_exchange(&self, at: Spot, old: u64, new: u64) -> Result<u64, u64>;
    fn flush(&self, at: Spot, len: u64);
    fn drain(&self);

    fn open(&self, path: &Path, how: OpenHow) -> io::Result<FileNumber>;
    fn try_lock(&self, file: FileNumber) -> io::Result<bool>;
    fn unlock(&self, file: FileNumber) -> io::Result<()>;
    /// Succeeds if the file can be mapped with these arguments.
    fn map(&self, file: FileNumber, len: u64, want_sync: bool) -> io::Result<()>;
    fn allocate(&self, file: FileNumber, offset: u64, len: u64) -> io::Result<()>;
    fn allocate_past_end(&self, file: FileNumber, offset: u64, len: u64) -> io::Result<()>;
    fn punch(&self, file: FileNumber, offset: u64, len: u64) -> io::Result<()>;
    fn set_len(&self, file: FileNumber, len: u64) -> io::Result<()>;
    fn sync(&self, file: FileNumber, all: bool) -> io::Result<()>;
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    fn read_at(&self, file: FileNumber, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    fn write_at(&self, file: FileNumber, buf: &[u8], offset: u64) -> io::Result<usize>;
    fn write_durably(&self, file: FileNumber, buf: &[u8], offset: u64) -> io::Result<usize>;
    fn next_data(&self, file: FileNumber, offset: u64) -> io::Result<Option<u64>>;
    fn next_hole(&self, file: FileNumber, offset: u64) -> io::Result<Option<u64>>;
    fn stat(&self, file: FileNumber) -> io::Result<FileStat>;
    fn own(&self, file: FileNumber, like: &FileStat) -> io::Result<()>;
    fn stat_path(&self, path: &Path) -> io::Result<Option<FileStat>>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    fn list_dir(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;
    fn get_xattr(&self, file: FileNumber, name: &str) -> io::Result<Option<Vec<u8>>>;
    fn set_xattr(&self, file: FileNumber, name: &str, value: &[u8]) -> io::Result<()>;
    fn remove_xattr(&self, file: FileNumber, name: &str) -> io::Result<()>;
    /// Returns `true` if power loss loses the files, as on tmpfs.
    fn is_ram(&self) -> bool;
    fn is_mounted_alone(&self, folder: &Path, file: FileNumber) -> bool;
    /// Returns the user for which files are opened.
    fn user(&self) -> u32;
    fn boot_id(&self) -> [u8; 16];
    /// Returns the number of the file system that the file lies on, which stays while that is
    /// mounted. 0 is unknown.
    fn volume(&self, file: FileNumber) -> u64;
    /// Returns three times in nanoseconds: since the machine was started, of that start, and of the
    /// creation of its folder of devices. The last two count from 1970. Each may be 0, which is
    /// unknown.
    fn clocks(&self) -> (u64, i64, u64);
    /// Returns a random identifier, or the next of a sequence where runs have to be repeatable.
    fn new_uuid(&self) -> [u8; 16];
}

/// A simulated platform. Clones share the machine.
#[derive(Clone)]
pub struct Simulated {
    /// For its plans: they say which bytes of a copy go past the cache.
    native: Native,
    pub(in crate::platform) machine: Arc<dyn Machine>,
}

impl fmt::Debug for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulated").field("native", &self.native).finish_non_exhaustive()
    }
}

impl Simulated {
    pub(crate) fn new(machine: Arc<dyn Machine>) -> Simulated {
        Simulated { native: Native::new(), machine }
    }

    pub(in crate::platform) fn with_persistence(self, persistence: Persistence) -> Simulated {
        Simulated { native: self.native.with_persistence(persistence), ..self }
    }

    pub(in crate::platform) fn persistence(&self) -> Persistence {
        self.native.persistence()
    }

    fn needs_flush(&self) -> bool {
        self.persistence() == Persistence::Flush
    }

    pub(in crate::platform) fn map(
        &self,
        file: FileNumber,
        len: u64,
        want_sync: bool,
    ) -> io::Result<Mapping> {
        self.machine.map(file, len, want_sync)?;
        assert!(file.0 > 0 && file.0 < 1 << (63 - SHIFT) && len <= 1 << SHIFT);
        let base = std::ptr::without_provenance_mut((file.0 << SHIFT) as usize);
        Ok(Mapping::simulated(base, len as usize))
    }

    pub(in crate::platform) fn load_word(&self, at: *const u8) -> u64 {
        self.machine.load(Spot::of(at))
    }

    pub(in crate::platform) fn copy_out(&self, to: &mut [u8], from: *const u8) {
        self.machine.read(to, Spot::of(from));
    }

    pub(in crate::platform) fn copy_in(&self, to: Place, from: &[u8], how: Copying) {
        let at = Spot::of(to.checked());
        for part in self.native.plan(to.ptr, from.len(), how).parts() {
            let at = Spot { offset: at.offset + part.range.start as u64, ..at };
            let bytes = &from[part.range];
            self.machine.store_bytes(at, bytes, part.streamed || !self.needs_flush());
            if part.flushed {
                self.machine.flush(at, bytes.len() as u64);
            }
        }
    }

    pub(in crate::platform) fn flush(&self, at: Place, len: usize) {
        if self.needs_flush() && len > 0 {
            self.machine.flush(Spot::of(at.checked()), len as u64);
        }
    }

    pub(in crate::platform) fn drain(&self) {
        self.machine.drain();
    }

    pub(in crate::platform) fn store_word_through(&self, at: Place, value: u64) {
        self.machine.store(Spot::of(at.checked()), value, true);
    }

    pub(in crate::platform) fn store_word(&self, at: Place, value: u64) {
        self.machine.store(Spot::of(at.checked()), value, !self.needs_flush());
    }

    pub(in crate::platform) fn compare_exchange_word(
        &self,
        at: Place,
        old: u64,
        new: u64,
    ) -> Result<u64, u64> {
        self.machine.compare_exchange(Spot::of(at.checked()), old, new)
    }
}
