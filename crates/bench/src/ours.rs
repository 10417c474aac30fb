//! This crate as a contender.
//!
//! May import `subject`.

use crate::subject::{Kind, Subject};
use atomic_mmap::{AtomicMappedFile, Medium};
use std::io;
use std::path::Path;

/// The crate with its defaults, on the measured medium.
pub const OURS: Kind = Kind {
    name: "atomic-mmap",
    source: "this crate",
    durable_writes: true,
    open: |folder, len| Ok(Box::new(Ours::open(folder, len, Medium::Dax)?)),
};

/// An open file.
#[derive(Debug)]
pub struct Ours(pub AtomicMappedFile);

impl Ours {
    /// Opens a file on a forced medium.
    ///
    /// # Errors
    /// Returns the error of the crate.
    pub fn open(folder: &Path, len: u64, medium: Medium) -> io::Result<Ours> {
        AtomicMappedFile::options()
            .create(true)
            .len(len)
            .medium(medium)
            .open(folder.join("ours"))
            .map(Ours)
            .map_err(io::Error::other)
    }
}

impl Subject for Ours {
    fn write(&self, data: &[u8], offset: u64) {
        self.0.write_at(data, offset).expect("in range, and space");
    }

    fn read(&self, to: &mut [u8], offset: u64) {
        self.0.read_at(to, offset).expect("in range");
    }

    fn transact(&self, parts: &[(u64, &[u8])]) -> bool {
        let mut tx = self.0.begin();
        for (offset, data) in parts {
            tx.write_at(data, *offset).expect("in range");
        }
        tx.commit().expect("no other thread interferes");
        true
    }

    fn written(&self) -> Option<u64> {
        Some(self.0.stats().bytes_written)
    }
}
