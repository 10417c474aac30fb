//! The calls of openraft's traits that the tests make, without what they do not look at.

use super::openraft::storage::{RaftLogReader, RaftLogStorage, RaftLogStorageExt};
use super::openraft::{BasicNode, EntryPayload};
use super::{Entry, Id, Store, Vote, log_id};
use pollster::block_on;
use std::collections::BTreeMap;
use std::ops::RangeBounds;

pub fn entry(term: u64, index: u64, command: impl Into<String>) -> Entry {
    Entry { log_id: log_id(term, index), payload: EntryPayload::Normal(command.into()) }
}

/// Returns an entry with the nodes of a cluster and their addresses.
pub fn members<const N: usize>(term: u64, index: u64, nodes: [(u64, &str); N]) -> Entry {
    let nodes: BTreeMap<_, _> = nodes.map(|(id, addr)| (id, BasicNode::new(addr))).into();
    Entry { log_id: log_id(term, index), payload: EntryPayload::Membership(nodes.into()) }
}

/// Appends entries. An error is its text.
pub fn append(
    store: &mut Store,
    entries: impl IntoIterator<Item = Entry, IntoIter: Send>,
) -> Result<(), String> {
    let entries: Vec<Entry> = entries.into_iter().collect();
    block_on(store.blocking_append(entries)).map_err(|error| error.to_string())
}

pub fn save_vote(store: &mut Store, vote: Vote) {
    block_on(store.save_vote(&vote)).expect("the vote is stored");
}

pub fn save_committed(store: &mut Store, id: Option<Id>) {
    block_on(store.save_committed(id)).expect("the committed id is stored");
}

pub fn committed(store: &mut Store) -> Option<Id> {
    block_on(store.read_committed()).expect("the committed id is read")
}

pub fn purge(store: &mut Store, id: Id) {
    block_on(store.purge(id)).expect("purge");
}

/// Returns the last purged log id and the last log id.
pub fn ends(store: &mut Store) -> (Option<Id>, Option<Id>) {
    let state = block_on(store.get_log_state()).expect("state");
    (state.last_purged_log_id, state.last_log_id)
}

/// Returns the entries, or the text of the error.
pub fn try_entries(
    store: &mut Store,
    range: impl RangeBounds<u64> + Clone + std::fmt::Debug + Send,
) -> Result<Vec<Entry>, String> {
    let mut reader = block_on(store.get_log_reader());
    block_on(reader.try_get_log_entries(range)).map_err(|error| error.to_string())
}

pub fn entries(
    store: &mut Store,
    range: impl RangeBounds<u64> + Clone + std::fmt::Debug + Send,
) -> Vec<Entry> {
    try_entries(store, range).expect("read")
}
