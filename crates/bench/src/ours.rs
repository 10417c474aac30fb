//! This crate as a contender.
//!
//! May import `subject`.

use crate::subject::{Kind, Subject};
use atomic_mmap::{AtomicMappedFile, DeployPolicy, Medium};
use std::io;
use std::path::Path;
use std::time::Duration;

/// The crate with its defaults, on the measured medium.
pub const OURS: Kind = Kind {
    name: "atomic-mmap",
    source: "this crate",
    durable_writes: true,
    open: |folder, len| Ok(Box::new(Ours::open(folder, len, Medium::Dax)?)),
};

/// The crate with a policy that follows the reads and writes of each page, and with background
/// deployment of what is left.
pub const WITH_WORKER: Kind = Kind {
    name: "atomic-mmap with worker",
    source: "this crate",
    durable_writes: true,
    open: |folder, len| Ok(Box::new(open_with_worker(folder, len)?)),
};

/// Opens a file for [`WITH_WORKER`].
///
/// # Errors
/// Returns the error of the crate.
pub fn open_with_worker(folder: &Path, len: u64) -> io::Result<Ours> {
    let options = AtomicMappedFile::options().create(true).len(len).medium(Medium::Dax);
    let options = options.deploy(DeployPolicy::Adaptive).deploy_idle(Duration::from_secs(1));
    options.open(folder.join("ours")).map(Ours).map_err(io::Error::other)
}

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
