//! Types and calls of openraft 0.9 for the tests.

#[path = "../calls.rs"]
pub mod calls;
#[path = "../file.rs"]
pub mod file;
mod files;
#[path = "../full.rs"]
mod full;
#[path = "../handle.rs"]
mod handle;
#[path = "../kill.rs"]
mod kill;
mod machine;
mod network;
#[path = "../node.rs"]
mod node;
#[path = "../store.rs"]
mod store;
mod suite;

use super::{common, open_as, open_file};
pub use ::openraft;
use openraft::storage::RaftLogStorage;
use openraft::{LogId, StorageError, testing};
use pollster::block_on;
use std::io::Cursor;

openraft::declare_raft_types!(
    /// Commands are strings, and so are answers.
    pub Types: D = String, R = String
);

pub type Id = LogId<u64>;
pub type Vote = openraft::Vote<u64>;
pub type Entry = openraft::Entry<Types>;
pub type Raft = openraft::Raft<Types>;
pub type Store = openraft_atomic_mmap::LogStore<Types>;

pub fn log_id(term: u64, index: u64) -> Id {
    testing::log_id(term, 1, index)
}

pub fn vote(store: &mut Store) -> Result<Option<Vote>, StorageError<u64>> {
    block_on(store.read_vote())
}

/// Drops the entries from `id` on.
fn truncate(store: &mut Store, id: Id) {
    block_on(store.truncate(id)).expect("truncate");
}
