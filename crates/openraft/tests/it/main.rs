//! Tests of the log store, as one binary.
//!
//! | module | question |
//! |---|---|
//! | `suite` | does it pass openraft's own suite? |
//! | `store` | is everything there after a reopen, and every error the right one? |
//! | `full` | does a full disk leave the log as it was? |
//! | `kill` | does everything acknowledged survive SIGKILL? |
//! | `file` | is the replicated file changed exactly once, and equal on all nodes? |
//! | `handle` | does a client of the replicated file get what it asks for, or the reason? |
//! | `node` | does a Raft node go on where it ended? |
//! | `upgrade` | does a version of openraft go on with a log and a file of the other one? |
//!
//! All but `upgrade` run under each version of openraft: `v0_9` and `v0_10` have what differs.

#![allow(clippy::result_large_err, reason = "the traits of openraft 0.9 return errors by value")]
#![allow(clippy::useless_conversion, reason = "openraft 0.9 has data of snapshots in a box")]
#![allow(clippy::duplicate_mod, reason = "tests of both versions are in one file")]

#[path = "../../../../tests/it/common/mod.rs"]
#[allow(dead_code, reason = "shared with the tests of atomic-mmap")]
mod common;
mod upgrade;
mod v0_10;
mod v0_9;

use atomic_mmap::AtomicMappedFile;
use common::Ground;
use openraft_atomic_mmap::LogStore;
use std::path::Path;

fn open_file(ground: &Ground, path: &Path) -> AtomicMappedFile {
    ground.options().create(true).open(path).expect("open")
}

/// Opens a store. `C` has the types of one version of openraft.
fn open_as<C>(ground: &Ground, path: &Path) -> LogStore<C> {
    LogStore::open(open_file(ground, path)).expect("a store")
}
