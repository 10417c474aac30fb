//! Types and calls of openraft 0.10 for the tests.

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
use openraft::LogId;
use openraft::storage::{RaftLogReader, RaftLogStorage};
use openraft::testing;
use openraft::vote::leader_id_adv::LeaderId;
pub use openraft_0_10 as openraft;
use pollster::block_on;
use std::io;

openraft::declare_raft_types!(
    /// Commands are strings, and so are answers.
    pub Types: D = String, R = String
);

pub type Id = LogId<LeaderId<u64, u64>>;
pub type Vote = openraft::Vote<LeaderId<u64, u64>>;
pub type Entry = openraft::type_config::alias::EntryOf<Types>;
pub type Raft = openraft::Raft<Types, machine::Machine>;
pub type Store = openraft_atomic_mmap::LogStore<Types>;

pub fn log_id(term: u64, index: u64) -> Id {
    testing::log_id::<Types>(term, 1, index)
}

pub fn vote(store: &mut Store) -> io::Result<Option<Vote>> {
    block_on(block_on(store.get_log_reader()).read_vote())
}

/// Drops the entries from `id` on: those after the one before `id`, as openraft 0.10 says it.
fn truncate(store: &mut Store, id: Id) {
    let mut last = block_on(store.get_log_state()).expect("state").last_purged_log_id;
    if let Some(before) = id.index.checked_sub(1)
        && let Some(entry) = calls::entries(store, before..id.index).pop()
    {
        last = Some(entry.log_id);
    }
    block_on(store.truncate_after(last)).expect("truncate");
}
