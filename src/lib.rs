//! Memory-mapped files in which every write is all or nothing.
//!
//! See the README for what this is for, and `docs/` for how it works. The front door is
//! [`AtomicMappedFile`].
#![doc = include_str!("../README.md")]

mod bitmap;
mod engine;
mod error;
mod file;
mod format;
mod lock;
mod options;
mod platform;
mod recovery;
mod registry;
mod store;
mod transaction;
mod typed;
mod units;
mod view;

pub use engine::stats::Stats;
pub use error::{Error, Mismatch, Result};
pub use file::AtomicMappedFile;
pub use format::layout::MAX_LEN;
pub use options::{
    CloseMode, DeployPolicy, MEDIUM_VARIABLE, Medium, OnMismatch, Options, Survives, UnknownMedium,
};
pub use transaction::Transaction;
pub use typed::{Array, Integer, Readable, Record, Slot, Writable};
pub use view::View;
pub use zerocopy;

/// What tests need and nobody else: the recording platform and the layout.
#[cfg(feature = "recorder")]
#[doc(hidden)]
pub mod testing {
    pub use crate::format::{entry, layout, superblock};
    pub use crate::platform::recorder;
    pub use crate::platform::{FileId, call};
    pub use crate::units::{CHUNK, LaneIndex, PAGE, PageIndex, REGION, RegionIndex, SLICE};
}
