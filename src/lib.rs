#![doc = concat!("[docs/guide.md#which-guarantee-do-i-need]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/docs/guide.md#which-guarantee-do-i-need")]
#![doc = concat!("[docs/guide.md#promises]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/docs/guide.md#promises")]
#![doc = concat!("[docs/guide.md#snapshots]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/docs/guide.md#snapshots")]
#![doc = concat!("[examples/quickstart.rs]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/examples/quickstart.rs")]
#![doc = concat!("[examples/raft_vote.rs]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/examples/raft_vote.rs")]
#![doc = concat!("[crates/capi/README.md]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/crates/capi/README.md")]
#![doc = concat!("[crates/cli/README.md]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/crates/cli/README.md")]
#![doc = concat!("[crates/preload/README.md]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/crates/preload/README.md")]
#![doc = concat!("[crates/openraft/README.md]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/crates/openraft/README.md")]
#![doc = concat!("[crates/sqlite/README.md]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/crates/sqlite/README.md")]
#![doc = concat!("[examples/offsets.rs]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/examples/offsets.rs")]
#![doc = concat!("[examples/index/index.rs]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/examples/index/index.rs")]
#![doc = concat!("[examples/page_store.rs]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/examples/page_store.rs")]
#![doc = concat!("[docs/guide.md]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/docs/guide.md")]
#![doc = concat!("[docs/guide.md#limits]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/docs/guide.md#limits")]
#![doc = concat!("[docs/guide.md#not-yet]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/docs/guide.md#not-yet")]
#![doc = concat!("[docs/design.md]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/docs/design.md")]
#![doc = concat!("[docs/protocols/README.md]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/docs/protocols/README.md")]
#![doc = concat!("[docs/format.md]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/docs/format.md")]
#![doc = concat!("[docs/recovery.md]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/docs/recovery.md")]
#![doc = concat!("[docs/soundness.md]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/docs/soundness.md")]
#![doc = concat!("[SECURITY.md]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/SECURITY.md")]
#![doc = concat!("[docs/practical.md]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/docs/practical.md")]
#![doc = concat!("[docs/performance.md]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/docs/performance.md")]
#![doc = concat!("[docs/decisions/README.md]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/docs/decisions/README.md")]
#![doc = concat!("[docs/testing.md]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/docs/testing.md")]
#![doc = concat!("[docs/model/README.md]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/docs/model/README.md")]
#![doc = concat!("[CHANGELOG.md]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/CHANGELOG.md")]
#![doc = concat!("[CONTRIBUTING.md]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/CONTRIBUTING.md")]
#![doc = concat!("[.ci/run]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/.ci/run")]
#![doc = concat!("[docs/guide.md#platforms]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/docs/guide.md#platforms")]
#![doc = concat!("[docs/structures.md]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/docs/structures.md")]
#![doc = concat!("[examples/raft_log.rs]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/examples/raft_log.rs")]
#![doc = concat!("[examples/settings.rs]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/examples/settings.rs")]
#![doc = concat!("[examples/socket_to_file.rs]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/examples/socket_to_file.rs")]
#![doc = concat!("[examples/tokio_service.rs]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/examples/tokio_service.rs")]
#![doc = concat!("[examples/raft-file/src/main.rs]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/examples/raft-file/src/main.rs")]
#![doc = concat!("[LICENSE-MIT]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/LICENSE-MIT")]
#![doc = concat!("[LICENSE-APACHE]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/LICENSE-APACHE")]
// Above: the links of the README, which lead to the repository here. The first definition counts.
#![doc = ""]
#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

#[macro_use]
mod events;

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
mod page_sum;
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
pub use api::export::ExportReport;
pub use api::file::AtomicMappedFile;
pub use api::flush::Flush;
pub use api::import::ImportReport;
pub use api::optional::Optional;
pub use api::slot::{Bits, Integer, Slot};
pub use api::snapshot::{Snapshot, SnapshotInfo};
pub use api::source::Source;
pub use api::stage::Stage;
pub use api::transaction::Transaction;
pub use api::value::{Readable, Record, Writable};
pub use api::verify::{DamagedPage, Repair, RepairedPage, Verification};
pub use api::view::View;
pub use config::integrity::{Damage, INTEGRITY_VARIABLE, Integrity};
pub use config::options::{MEDIUM_VARIABLE, Options};
pub use config::progress::{Progress, Work};
pub use config::snapshots::{AutoSnapshots, Retention};
pub use config::{
    Allocation, CloseMode, DeployPolicy, Durability, Medium, OnMismatch, Survives, UnknownMedium,
};
pub use engine::close::Closed;
pub use error::{
    Distrust, Error, IoError, Mismatch, Result, SnapshotError, StreamError, StructureError,
};
pub use format::layout::MAX_LEN;
pub use pair::stats::Stats;
pub use recovery::inspect::{Inspection, SnapshotFound};
pub use recovery::pair::Decision;
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
    pub use crate::format::{
        entry, export, flip_record, floor, journal, layout, marker, snapshots, state_word,
        superblock,
    };
    pub use crate::platform::{
        CacheIdentity, File, FileId, FileStat, FileSystem, OpenHow, call, machine, recorder,
    };
    pub use crate::units::{CHUNK, LaneIndex, PAGE, PageIndex, REGION, RegionIndex, SLICE};

    /// Deploys pages that have not changed since the last call, as the worker of a file with
    /// `Options::deploy_idle` does at each interval. A test thereby chooses the moment.
    pub fn deploy_idle(file: &crate::AtomicMappedFile) {
        file.engine().deploy_idle();
    }

    /// The deliberate bugs of mutation tests, see `src/mutant/bugs.rs`.
    #[cfg(feature = "mutants")]
    pub mod mutants {
        pub use crate::mutant::{ALL, Mutant, VARIABLE, by_name, set};
    }
}

/// The look at environment variables by which the packages beside this one obey the caller of a
/// setuid program as little as this one does.
#[doc(hidden)]
pub use platform::variable;

/// The mark in the header of a database in use, for the VFS and the command.
#[doc(hidden)]
pub use format::sqlite_header;

/// Names in messages, also for the packages beside this one.
#[doc(hidden)]
pub use error::{Interface, in_words_of, is_obeyed, shown, variants};

/// Creates a scratch folder for the documentation's examples. It lies in `/dev/shm` if that
/// exists, else in the system's temporary folder.
#[doc(hidden)]
pub fn doctest_dir() -> DoctestDir {
    let folder = std::path::Path::new("/dev/shm");
    let folder = if folder.is_dir() { folder.to_owned() } else { std::env::temp_dir() };
    for number in 0.. {
        let name = format!("atomic-mmap-doctest-{}-{number}", std::process::id());
        let path = folder.join(name);
        match std::fs::create_dir(&path) {
            Ok(()) => return DoctestDir(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => panic!("{}: {error}", shown(&path)),
        }
    }
    unreachable!("some number is free")
}

/// A scratch folder made by [`doctest_dir`], removed on drop.
#[doc(hidden)]
#[derive(Debug)]
pub struct DoctestDir(std::path::PathBuf);

impl DoctestDir {
    /// Returns the folder's path.
    pub fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Drop for DoctestDir {
    fn drop(&mut self) {
        let _best_effort = std::fs::remove_dir_all(&self.0);
    }
}
