//! The traits of openraft 0.10 for the machine, and the calls of its `Raft`.
//!
//! May import `machine`, `handle`, `state`, `snapshot`, `command`.

use super::command::{Answer, Command};
use super::handle::{RaftNode, sealed};
use super::machine::{Built, FileMachine};
use super::snapshot::FileSnapshot;
use super::state::Change;
use futures_util::{Stream, TryStreamExt};
use openraft_0_10::errors::{ClientWriteError, LinearizableReadError, RaftError};
use openraft_0_10::raft::ReadPolicy;
use openraft_0_10::storage::{EntryResponder, RaftStateMachine};
use openraft_0_10::type_config::alias::{
    DefaultEntryOf, EntryPayloadOf, LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf,
};
use openraft_0_10::{
    Entry, EntryPayload, OptionalSend, Raft, RaftSnapshotBuilder, RaftTypeConfig, SnapshotMeta,
};
use std::io::Result;

type Id<C> = LogIdOf<C>;
type Members<C> = StoredMembershipOf<C>;
type Snapshot<C> = SnapshotOf<C, FileSnapshot>;

fn snapshot<C>((last_log_id, last_membership, data): Built<Id<C>, Members<C>>) -> Snapshot<C>
where
    C: RaftTypeConfig,
{
    Snapshot::<C> { meta: SnapshotMeta { last_log_id, last_membership }, snapshot: data }
}

impl<C> RaftSnapshotBuilder<C> for FileMachine<C>
where
    C: RaftTypeConfig,
{
    type SnapshotData = FileSnapshot;

    async fn build_snapshot(&mut self) -> Result<Snapshot<C>> {
        Ok(snapshot::<C>(self.build().await?))
    }
}

impl<C> RaftStateMachine<C> for FileMachine<C>
where
    C: RaftTypeConfig<D = Command, R = Answer>,
    C: RaftTypeConfig<Payload = EntryPayloadOf<C>, Entry = DefaultEntryOf<C>>,
{
    type SnapshotData = FileSnapshot;
    type SnapshotBuilder = FileMachine<C>;

    async fn applied_state(&mut self) -> Result<(Option<Id<C>>, Members<C>)> {
        Ok(self.applied()?)
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<()>
    where
        S: Stream<Item = Result<EntryResponder<C>>> + Unpin + OptionalSend,
    {
        let step = self.step();
        while let Some((Entry { log_id, payload }, responder)) = entries.try_next().await? {
            let stored;
            let change: Change<'_, Members<C>> = match &payload {
                EntryPayload::Blank => Change::Nothing,
                EntryPayload::Normal(command) => Change::Command(command),
                EntryPayload::Membership(members) => {
                    stored = Members::<C>::new(Some(log_id.clone()), members.clone());
                    Change::Membership(&stored)
                }
            };
            let answer = self.apply_entry((log_id.index, &log_id), &change)?;
            if let Some(responder) = responder {
                responder.send(answer);
            }
        }
        step.end();
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> FileMachine<C> {
        self.clone()
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<C>,
        snapshot: FileSnapshot,
    ) -> Result<()> {
        let id = meta.last_log_id.as_ref().map(|id| (id.index, id));
        Ok(self.install(id, snapshot).await?)
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<C>>> {
        Ok(self.newest()?.map(snapshot::<C>))
    }
}

impl<C: RaftTypeConfig, M: RaftStateMachine<C>> sealed::Sealed for Raft<C, M> {}

impl<C, M> RaftNode for Raft<C, M>
where
    C: RaftTypeConfig<D = Command, R = Answer>,
    M: RaftStateMachine<C>,
{
    type Config = C;
    type WriteError = RaftError<C, ClientWriteError<C>>;
    type ReadError = RaftError<C, LinearizableReadError<C>>;

    async fn write(&self, command: Command) -> std::result::Result<Answer, Self::WriteError> {
        Ok(self.client_write(command).await?.data)
    }

    async fn catch_up(&self) -> std::result::Result<(), Self::ReadError> {
        self.ensure_linearizable(ReadPolicy::ReadIndex).await.map(drop)
    }
}
