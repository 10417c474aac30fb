//! Types and calls of a replicated file under openraft 0.10, and a stream of entries that breaks.

use super::file::{LEN, Node, on_runtime};
use super::{common, log_id, open_as, openraft};
use futures_util::stream;
use openraft::storage::{RaftLogStorage, RaftStateMachine};
use openraft::type_config::alias::{EntryOf, EntryPayloadOf, SnapshotOf};
use openraft_atomic_mmap::file::{Answer, Command, FileMachine, FileSnapshot};
use std::io;

openraft::declare_raft_types!(
    /// Commands on a replicated file.
    pub Types: D = Command, R = Answer
);

pub type Entry = EntryOf<Types>;
pub type Machine = FileMachine<Types>;
pub type Payload = EntryPayloadOf<Types>;
pub type Raft = openraft::Raft<Types, Machine>;
pub type Snapshot = SnapshotOf<Types, FileSnapshot>;

/// Applies entries. An error is its text. Answers go to clients alone.
pub async fn apply<const N: usize>(
    machine: &mut Machine,
    entries: [Entry; N],
) -> Result<(), String> {
    let entries = stream::iter(entries.map(|entry| Ok((entry, None))));
    machine.apply(entries).await.map_err(|error| error.to_string())
}

/// A purge that waits for the machine would wait for ever.
#[test]
fn entries_that_cannot_be_read_end_the_machine() {
    on_runtime(async {
        let mut node = Node::new();
        let first = node.entry(Payload::Normal(Command::SetLen(LEN)));
        let entries = [Ok((first, None)), Err(io::Error::other("no such entry"))];
        let error = node.machine.apply(stream::iter(entries)).await.expect_err("not read");
        assert_eq!(error.to_string(), "no such entry");
        assert_eq!(node.applied().await, Some(1));
        let (ground, progress) = (common::ram(), node.machine.progress());
        let scratch = ground.scratch();
        let mut store = open_as::<Types>(&ground, &scratch.file("raft.dat")).behind(progress);
        let purge = tokio::time::timeout(common::HANGS, store.purge(log_id(1, 2)));
        let error = purge.await.expect("an end").expect_err("the machine has failed");
        assert!(error.to_string().contains("the state machine has failed"), "{error}");
    });
}
