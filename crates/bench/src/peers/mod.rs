//! How does what users have today answer?
//!
//! | module | who |
//! |---|---|
//! | `plain` | a mapping with `msync`, and `pwrite` with `fdatasync`. Neither is atomic |
//! | `pmdk` | a transaction of PMDK's libpmemobj, where the library is installed |
//! | `sqlite`, `lmdb`, `redb` | a record store, the file being rows of 4 KiB. Feature `peers` |
//! | `blocks` | which rows does a range of bytes lie in? |
//! | `system` | mappings and foreign libraries: the only home of `unsafe` here |
//!
//! Each is set up as its own documentation advises for this job, and as fast as its promise allows:
//! durable and atomic, but for the plain ones, which say so. May import `subject`.

#[cfg(feature = "peers")]
mod blocks;
#[cfg(feature = "peers")]
mod lmdb;
mod plain;
mod pmdk;
#[cfg(feature = "peers")]
mod redb;
#[cfg(feature = "peers")]
mod sqlite;
mod system;

use crate::subject::Kind;

/// All of them. Who is not installed is in it as well: its `open` says what is missing.
#[cfg(feature = "peers")]
pub const ALL: &[Kind] =
    &[plain::MAPPING, plain::PWRITE, pmdk::PMDK, sqlite::SQLITE, lmdb::LMDB, redb::REDB];

/// All of them but those of the feature `peers`. Who is not installed is in it as well: its `open`
/// says what is missing.
#[cfg(not(feature = "peers"))]
pub const ALL: &[Kind] = &[plain::MAPPING, plain::PWRITE, pmdk::PMDK];
