//! The systems that users have today.
//!
//! | module | system |
//! |---|---|
//! | `plain` | a mapping with `msync`, and `pwrite` with `fdatasync`. Neither is atomic |
//! | `pmdk` | a transaction of PMDK's libpmemobj, if the library is installed |
//! | `sqlite`, `lmdb`, `redb` | a record store with rows of 4 KiB. Feature `peers` |
//! | `blocks` | the rows of a range of bytes |
//! | `system` | mappings and foreign libraries: the only place of `unsafe` here |
//!
//! Each is set up as its own documentation recommends, and as fast as its promise allows. All are
//! durable and atomic, except for the plain ones, which say so. May import `subject`.

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

/// All peers. It includes peers that are not installed: their `open` names what is missing.
#[cfg(feature = "peers")]
pub const ALL: &[Kind] =
    &[plain::MAPPING, plain::PWRITE, pmdk::PMDK, sqlite::SQLITE, lmdb::LMDB, redb::REDB];

/// All peers without those of the feature `peers`. It includes peers that are not installed: their
/// `open` names what is missing.
#[cfg(not(feature = "peers"))]
pub const ALL: &[Kind] = &[plain::MAPPING, plain::PWRITE, pmdk::PMDK];
