#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod api;
mod bitmap;
mod checksum;
mod config;
mod engine;
mod error;
mod format;
#[cfg(test)]
mod golden;
mod lock;
mod mmap;
mod mutant;
mod pair;
mod platform;
mod primitive;
#[cfg(feature = "raw")]
mod raw;
mod recovery;
mod registry;
mod structures;
mod thread_cache;
mod units;

// The path that `record!` names, also inside this crate.
extern crate self as atomic_mmap;

pub use api::array::{Array, Iter};
pub use api::file::AtomicMappedFile;
pub use api::flush::Flush;
pub use api::optional::Optional;
pub use api::slot::{Bits, Integer, Slot};
pub use api::transaction::Transaction;
pub use api::value::{Readable, Record, Writable};
pub use api::view::View;
pub use config::options::{MEDIUM_VARIABLE, Options};
pub use config::progress::{Progress, Work};
pub use config::{
    CloseMode, DeployPolicy, Durability, Medium, OnMismatch, Survives, UnknownMedium,
};
pub use error::{Distrust, Error, IoError, Mismatch, Result, StructureError};
pub use format::layout::MAX_LEN;
pub use pair::stats::Stats;
pub use structures::log::{Log, Records};
pub use structures::roots::{Name, Roots};
pub use zerocopy;

/// Unprotected access to the mapping, for benchmarks.
#[cfg(feature = "raw")]
#[doc(hidden)]
pub use raw::Raw;

/// Internals that tests use: the recording platform and the layout.
#[cfg(feature = "recorder")]
#[doc(hidden)]
pub mod testing {
    pub use crate::bitmap::{Slices, Validity};
    pub use crate::format::{entry, flip_record, floor, journal, layout, marker, superblock};
    pub use crate::platform::{
        CacheIdentity, File, FileId, FileStat, FileSystem, OpenHow, call, machine, recorder,
    };
    pub use crate::units::{CHUNK, LaneIndex, PAGE, PageIndex, REGION, RegionIndex, SLICE};

    /// The deliberate bugs of mutation tests, see `src/mutant/bugs.rs`.
    #[cfg(feature = "mutants")]
    pub mod mutants {
        pub use crate::mutant::{ALL, Mutant, VARIABLE, by_name, set};
    }
}

/// Creates a scratch folder for the documentation's examples. It lies in `/dev/shm` if that
/// exists, else in the system's temporary folder.
#[cfg(feature = "recorder")]
#[doc(hidden)]
pub fn doctest_dir() -> DoctestDir {
    let folder = std::path::Path::new("/dev/shm");
    let folder = if folder.is_dir() { folder.to_owned() } else { std::env::temp_dir() };
    let path = folder.join(format!("atomic-mmap-doctest-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&path).expect("a scratch folder");
    DoctestDir(path)
}

/// A scratch folder made by [`doctest_dir`], removed on drop.
#[cfg(feature = "recorder")]
#[doc(hidden)]
#[derive(Debug)]
pub struct DoctestDir(std::path::PathBuf);

#[cfg(feature = "recorder")]
impl DoctestDir {
    /// Returns the folder's path.
    pub fn path(&self) -> &std::path::Path {
        &self.0
    }
}

#[cfg(feature = "recorder")]
impl Drop for DoctestDir {
    fn drop(&mut self) {
        let _best_effort = std::fs::remove_dir_all(&self.0);
    }
}
