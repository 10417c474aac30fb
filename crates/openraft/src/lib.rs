#![doc = include_str!("../README.md")]
//!
//! ## How it is stored
//!
//! Each group has four names in the file's [`Roots`](atomic_mmap::Roots), for a group `orders`:
//!
//! | name | holds |
//! |---|---|
//! | `orders.log` | an [`atomic_mmap::Log`]: record n is entry n, in postcard's encoding |
//! | `orders.vote`, `orders.committed`, `orders.purged` | a cell of 128 bytes, see below |
//!
//! A cell holds an encoded value with its length and its CRC-32C, or zeros for none. All four names
//! are made in one transaction.
#![warn(missing_docs)]

mod codec;
mod error;
pub mod file;
mod group;
mod progress;
mod store;
#[cfg(feature = "openraft-0-10")]
mod v0_10;
#[cfg(feature = "openraft-0-9")]
mod v0_9;
mod values;

#[cfg(not(any(feature = "openraft-0-9", feature = "openraft-0-10")))]
compile_error!("choose a version of openraft: the feature openraft-0-9 or openraft-0-10");

pub use error::{Error, Result};
pub use progress::{Progress, Step};
pub use store::{LogReader, LogStore};
