//! Bytes in memory up to a budget, and in an unlinked temporary file beyond it.
//!
//! Overlays and journals lie here. So no transaction takes more memory than its budget, however
//! many pages it writes. May import `failure` and `ffi` (a mapping).

use crate::failure::{Code, Failure, Result};
use crate::ffi::mapping;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The budget of memory of an overlay, and of a journal, in bytes.
pub(crate) const BUDGET: u64 = 64 << 20;

/// Bytes at offsets from 0 to a length. Bytes that were never written are zero.
#[derive(Debug)]
pub(crate) struct Spill {
    store: Store,
    /// Most bytes to hold in memory.
    budget: u64,
    /// The folder of the temporary file: the database's own, which is on a disk if it is.
    folder: PathBuf,
}

#[derive(Debug)]
enum Store {
    Memory(Vec<u8>),
    Disk { file: File, len: u64 },
}

impl Spill {
    pub fn new(folder: &Path, budget: u64) -> Self {
        Spill { store: Store::Memory(Vec::new()), budget, folder: folder.to_owned() }
    }

    pub fn len(&self) -> u64 {
        match &self.store {
            Store::Memory(bytes) => bytes.len() as u64,
            Store::Disk { len, .. } => *len,
        }
    }

    pub fn is_on_disk(&self) -> bool {
        matches!(self.store, Store::Disk { .. })
    }

    /// Forgets all bytes, and frees their space.
    pub fn clear(&mut self) {
        self.store = Store::Memory(Vec::new());
    }

    /// Returns `true` if bytes up to `end` do not lie in memory.
    pub fn needs_disk(&self, end: u64) -> bool {
        self.is_on_disk() || end > self.budget
    }

    /// Reserves the space that `len` bytes need, without a byte written. More than the budget lies
    /// on the disk from now on; a file system that reserves nothing gives no promise.
    pub fn reserve(&mut self, len: u64) -> Result<()> {
        self.try_reserve(len).map_err(|error| self.write_failure(&error))
    }

    fn try_reserve(&mut self, len: u64) -> io::Result<()> {
        if len <= self.budget {
            return Ok(());
        }
        self.move_to_disk()?;
        let Store::Disk { file, .. } = &self.store else { return Ok(()) };
        match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            result => result.map_err(io::Error::from),
        }
    }

    /// Writes all of `bytes` at `offset`.
    pub fn write(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        self.try_write(bytes, offset).map_err(|error| self.write_failure(&error))
    }

    fn write_failure(&self, error: &io::Error) -> Failure {
        let what = format!("a temporary file in {}", atomic_mmap::shown(&self.folder));
        Failure::of_io(error, Code::IOERR_WRITE, &what)
    }

    fn try_write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        if self.needs_disk(end) {
            self.move_to_disk()?;
        }
        match &mut self.store {
            Store::Memory(all) => {
                let (start, end) = (offset as usize, end as usize);
                if end > all.len() {
                    all.resize(end, 0);
                }
                all[start..end].copy_from_slice(bytes);
            }
            Store::Disk { file, len } => {
                file.write_all_at(bytes, offset)?;
                *len = end.max(*len);
            }
        }
        Ok(())
    }

    fn move_to_disk(&mut self) -> io::Result<()> {
        if let Store::Memory(bytes) = &self.store {
            let file = tempfile::tempfile_in(&self.folder)?;
            file.write_all_at(bytes, 0)?;
            self.store = Store::Disk { file, len: bytes.len() as u64 };
        }
        Ok(())
    }

    /// Fills `to` with the bytes from `offset` on. Returns the number of bytes before the end; `to`
    /// is unchanged past it.
    pub fn read(&self, to: &mut [u8], offset: u64) -> Result<usize> {
        let count = self.len().saturating_sub(offset).min(to.len() as u64) as usize;
        match &self.store {
            Store::Memory(bytes) if count > 0 => {
                let start = offset as usize;
                to[..count].copy_from_slice(&bytes[start..start + count]);
            }
            Store::Memory(_) => {}
            Store::Disk { file, .. } => {
                let read = file.read_exact_at(&mut to[..count], offset);
                read.map_err(|e| Failure::of_io(&e, Code::IOERR_READ, "a temporary file"))?;
            }
        }
        Ok(count)
    }

    /// Forgets everything from `len` on.
    pub fn truncate(&mut self, new: u64) -> Result<()> {
        match &mut self.store {
            Store::Memory(bytes) if new < bytes.len() as u64 => bytes.truncate(new as usize),
            Store::Memory(_) => {}
            Store::Disk { file, len } if new < *len => {
                let cut = file.set_len(new);
                cut.map_err(|e| Failure::of_io(&e, Code::IOERR_TRUNCATE, "a temporary file"))?;
                *len = new;
            }
            Store::Disk { .. } => {}
        }
        Ok(())
    }

    /// Calls `body` with all bytes. Those of a temporary file are mapped, so that the system can
    /// take their memory back.
    pub fn with_bytes<R>(&self, body: impl FnOnce(&[u8]) -> R) -> Result<R> {
        match &self.store {
            Store::Memory(bytes) => Ok(body(bytes)),
            Store::Disk { file, .. } => {
                let map = mapping::of_unlinked(file);
                let map =
                    map.map_err(|e| Failure::of_io(&e, Code::IOERR_MMAP, "a temporary file"))?;
                Ok(body(&map))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_what_was_written_in_memory_and_on_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        for budget in [1 << 20, 5000, 0] {
            let mut spill = Spill::new(folder.path(), budget);
            let mut model = Vec::new();
            let random = &mut fastrand::Rng::with_seed(budget);
            for _ in 0..300 {
                let (offset, len) = (random.usize(..8000), random.usize(..600));
                let bytes: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
                if random.u8(..) < 20 {
                    model.truncate(offset);
                    spill.truncate(offset as u64).expect("truncate");
                    continue;
                }
                if !bytes.is_empty() && model.len() < offset + len {
                    model.resize(offset + len, 0);
                }
                if !bytes.is_empty() {
                    model[offset..offset + len].copy_from_slice(&bytes);
                    spill.write(&bytes, offset as u64).expect("write");
                }
                let mut back = vec![7; len];
                let count = spill.read(&mut back, offset as u64).expect("read");
                assert_eq!(&back[..count], &model[offset.min(model.len())..][..count]);
            }
            assert_eq!(spill.is_on_disk(), budget < 8000);
            let same = spill.with_bytes(|bytes| bytes == model).expect("map");
            assert!(same, "budget {budget}");
            assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0, "unlinked");
        }
    }

    #[test]
    fn reserved_bytes_are_no_content() {
        let folder = tempfile::tempdir().expect("a folder");
        for (budget, on_disk) in [(10_000, false), (9999, true)] {
            let mut spill = Spill::new(folder.path(), budget);
            spill.write(&[1; 10], 0).expect("write");
            spill.reserve(10_000).expect("reserve");
            assert_eq!((spill.len(), spill.is_on_disk()), (10, on_disk));
            spill.write(&[2; 10], 10).expect("write");
            let same = spill.with_bytes(|bytes| bytes == [[1; 10], [2; 10]].concat());
            assert!(same.expect("map"), "budget {budget}");
        }
    }
}
