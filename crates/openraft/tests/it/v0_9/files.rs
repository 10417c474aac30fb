//! Types and calls of a replicated file under openraft 0.9.

use super::openraft;
use openraft::storage::RaftStateMachine;
use openraft_atomic_mmap::file::{Answer, Command, FileMachine, FileSnapshot};

openraft::declare_raft_types!(
    /// Commands on a replicated file.
    pub Types: D = Command, R = Answer, SnapshotData = FileSnapshot
);

pub type Entry = openraft::Entry<Types>;
pub type Machine = FileMachine<Types>;
pub type Payload = openraft::EntryPayload<Types>;
pub type Raft = openraft::Raft<Types>;
pub type Snapshot = openraft::Snapshot<Types>;

/// Applies entries. An error is its text.
pub async fn apply<const N: usize>(
    machine: &mut Machine,
    entries: [Entry; N],
) -> Result<(), String> {
    machine.apply(entries).await.map(drop).map_err(|error| error.to_string())
}
