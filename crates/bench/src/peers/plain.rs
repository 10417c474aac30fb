//! The kernel's interface: a mapping with `msync`, and `pwrite` with `fdatasync`.
//!
//! Neither is atomic: a loss of power may leave any part of the unsynced bytes. The other systems
//! give up some of this speed for atomicity.

use super::system::Mapping;
use crate::subject::{Kind, Subject};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Copies into the mapping, and `msync` of the changed range.
pub const MAPPING: Kind = Kind {
    name: "mmap + msync",
    source: "the kernel; not atomic",
    durable_writes: false,
    open: |folder, len| Ok(Box::new(Mapped::open(folder, len)?)),
};

/// Calls `pwrite`, and then `fdatasync`.
pub const PWRITE: Kind = Kind {
    name: "pwrite + fdatasync",
    source: "the kernel; not atomic",
    durable_writes: false,
    open: |folder, len| Ok(Box::new(Written::open(folder, len)?)),
};

/// A cache line, the unit of volumes.
const LINE: u64 = 64;
/// Number of entries for threads. Two threads with one entry wait for each other's `msync`, and
/// lose nothing.
const SLOTS: usize = 16;

thread_local! {
    static MINE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS
    };
}

fn file_of(folder: &Path, name: &str, len: u64) -> io::Result<File> {
    let path = folder.join(name);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    if file.metadata()?.len() < len {
        file.set_len(len)?;
    }
    Ok(file)
}

fn lines(offset: u64, len: usize) -> u64 {
    (offset % LINE + len as u64).div_ceil(LINE) * LINE
}

struct Mapped {
    mapping: Mapping,
    /// The range of each thread since its last sync. One range covers all its writes: one call over
    /// clean pages costs less than several calls.
    touched: [Mutex<Range<u64>>; SLOTS],
    written: AtomicU64,
}

const NOTHING: Range<u64> = Range { start: u64::MAX, end: 0 };

impl Mapped {
    fn open(folder: &Path, len: u64) -> io::Result<Mapped> {
        let mapping = Mapping::new(&file_of(folder, "mapped", len)?, len)?;
        let touched = std::array::from_fn(|_| Mutex::new(NOTHING));
        Ok(Mapped { mapping, touched, written: AtomicU64::new(0) })
    }

    fn mine(&self) -> std::sync::MutexGuard<'_, Range<u64>> {
        self.touched[MINE.with(|mine| *mine)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subject for Mapped {
    fn write(&self, data: &[u8], offset: u64) {
        self.mapping.copy_in(data, offset);
        self.written.fetch_add(lines(offset, data.len()), Ordering::Relaxed);
        let mut touched = self.mine();
        *touched = touched.start.min(offset)..touched.end.max(offset + data.len() as u64);
    }

    fn sync(&self) {
        let mut touched = self.mine();
        if !touched.is_empty() {
            self.mapping.sync(touched.clone()).expect("msync");
            *touched = NOTHING;
        }
    }

    fn read(&self, to: &mut [u8], offset: u64) {
        self.mapping.copy_out(to, offset);
    }

    fn written(&self) -> Option<u64> {
        Some(self.written.load(Ordering::Relaxed))
    }
}

struct Written {
    file: File,
    written: AtomicU64,
}

impl Written {
    fn open(folder: &Path, len: u64) -> io::Result<Written> {
        Ok(Written { file: file_of(folder, "written", len)?, written: AtomicU64::new(0) })
    }
}

impl Subject for Written {
    fn write(&self, data: &[u8], offset: u64) {
        self.file.write_all_at(data, offset).expect("in range, and space");
        self.written.fetch_add(lines(offset, data.len()), Ordering::Relaxed);
    }

    fn sync(&self) {
        self.file.sync_data().expect("fdatasync");
    }

    fn read(&self, to: &mut [u8], offset: u64) {
        self.file.read_exact_at(to, offset).expect("in range");
    }

    fn written(&self) -> Option<u64> {
        Some(self.written.load(Ordering::Relaxed))
    }
}
