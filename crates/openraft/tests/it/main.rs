//! Tests of the log store, as one binary.
//!
//! | module | question |
//! |---|---|
//! | `suite` | does it pass openraft's own suite? |
//! | `store` | is everything there after a reopen, and every error the right one? |
//! | `full` | does a full disk leave the log as it was? |
//! | `kill` | does everything acknowledged survive SIGKILL? |
//! | `file` | is the replicated file changed exactly once, and equal on all nodes? |
//! | `node` | does a Raft node go on where it ended? |

#![allow(clippy::result_large_err, reason = "openraft's traits return its errors by value")]

#[path = "../../../../tests/it/common/mod.rs"]
#[allow(dead_code, reason = "shared with the tests of atomic-mmap")]
mod common;
mod file;
mod full;
mod kill;
mod machine;
mod node;
mod store;
mod suite;

use atomic_mmap::AtomicMappedFile;
use common::Ground;
use openraft::testing::log_id;
use openraft::{Entry, EntryPayload};
use openraft_atomic_mmap::LogStore;
use std::io::Cursor;
use std::path::Path;

openraft::declare_raft_types!(
    /// Commands are strings, and so are answers.
    pub Types: D = String, R = String
);

fn open_file(ground: &Ground, path: &Path) -> AtomicMappedFile {
    ground.options().create(true).open(path).expect("open")
}

fn open(ground: &Ground, path: &Path) -> LogStore<Types> {
    LogStore::open(open_file(ground, path)).expect("a store")
}

fn entry(term: u64, index: u64, command: impl Into<String>) -> Entry<Types> {
    Entry { log_id: log_id(term, 1, index), payload: EntryPayload::Normal(command.into()) }
}
