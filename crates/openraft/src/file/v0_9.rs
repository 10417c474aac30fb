//! The traits of openraft 0.9 for the machine, and the calls of its `Raft`.
//!
//! May import `machine`, `handle`, `state`, `snapshot`, `command`.

#![allow(clippy::result_large_err, reason = "openraft's traits return its errors by value")]

use super::command::{Answer, Command};
use super::handle::{RaftNode, sealed};
use super::machine::{Built, FileMachine};
use super::snapshot::FileSnapshot;
use super::state::Change;
use crate::error::Result;
use openraft::error::{CheckIsLeaderError, ClientWriteError, RaftError};
use openraft::impls::OneshotResponder;
use openraft::storage::{RaftStateMachine, Snapshot};
use openraft::{
    AnyError, Entry, EntryPayload, ErrorSubject, ErrorVerb, LogId, OptionalSend, Raft,
    RaftSnapshotBuilder, RaftTypeConfig, SnapshotMeta, StorageError, StorageIOError,
    StoredMembership,
};

type Told<C, T> = std::result::Result<T, StorageError<<C as RaftTypeConfig>::NodeId>>;
type Id<C> = LogId<<C as RaftTypeConfig>::NodeId>;
type Members<C> = StoredMembership<<C as RaftTypeConfig>::NodeId, <C as RaftTypeConfig>::Node>;

fn told<C: RaftTypeConfig, T>(
    result: Result<T>,
    subject: ErrorSubject<C::NodeId>,
    verb: ErrorVerb,
) -> Told<C, T> {
    result.map_err(|e| StorageIOError::new(subject, verb, AnyError::new(&e)).into())
}

fn snapshot<C>((last_log_id, last_membership, data): Built<Id<C>, Members<C>>) -> Snapshot<C>
where
    C: RaftTypeConfig<SnapshotData = FileSnapshot>,
{
    let snapshot_id = data.name().unwrap_or_default().to_owned();
    let meta = SnapshotMeta { last_log_id, last_membership, snapshot_id };
    Snapshot { meta, snapshot: Box::new(data) }
}

impl<C> RaftSnapshotBuilder<C> for FileMachine<C>
where
    C: RaftTypeConfig<D = Command, R = Answer, Entry = Entry<C>, SnapshotData = FileSnapshot>,
{
    async fn build_snapshot(&mut self) -> Told<C, Snapshot<C>> {
        let built = self.build().await.map(snapshot);
        told::<C, _>(built, ErrorSubject::StateMachine, ErrorVerb::Read)
    }
}

impl<C> RaftStateMachine<C> for FileMachine<C>
where
    C: RaftTypeConfig<D = Command, R = Answer, Entry = Entry<C>, SnapshotData = FileSnapshot>,
{
    type SnapshotBuilder = FileMachine<C>;

    async fn applied_state(&mut self) -> Told<C, (Option<Id<C>>, Members<C>)> {
        told::<C, _>(self.applied(), ErrorSubject::StateMachine, ErrorVerb::Read)
    }

    async fn apply<I>(&mut self, entries: I) -> Told<C, Vec<Answer>>
    where
        I: IntoIterator<Item = Entry<C>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let step = self.step();
        let mut answers = Vec::new();
        for Entry { log_id, payload } in entries {
            let stored;
            let change: Change<'_, Members<C>> = match &payload {
                EntryPayload::Blank => Change::Nothing,
                EntryPayload::Normal(command) => Change::Command(command),
                EntryPayload::Membership(members) => {
                    stored = StoredMembership::new(Some(log_id.clone()), members.clone());
                    Change::Membership(&stored)
                }
            };
            let answer = self.apply_entry((log_id.index, &log_id), &change);
            let subject = ErrorSubject::Apply(log_id);
            answers.push(told::<C, _>(answer, subject, ErrorVerb::Write)?);
        }
        step.end();
        Ok(answers)
    }

    async fn get_snapshot_builder(&mut self) -> FileMachine<C> {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Told<C, Box<FileSnapshot>> {
        let step = self.step();
        let empty = self.begin_receiving().map(Box::new);
        let empty = told::<C, _>(empty, ErrorSubject::Snapshot(None), ErrorVerb::Write)?;
        step.end();
        Ok(empty)
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<C::NodeId, C::Node>,
        snapshot: Box<FileSnapshot>,
    ) -> Told<C, ()> {
        let id = meta.last_log_id.as_ref().map(|id| (id.index, id));
        let subject = ErrorSubject::Snapshot(Some(meta.signature()));
        told::<C, _>(self.install(id, *snapshot).await, subject, ErrorVerb::Write)
    }

    async fn get_current_snapshot(&mut self) -> Told<C, Option<Snapshot<C>>> {
        let newest = self.newest().map(|newest| newest.map(snapshot));
        told::<C, _>(newest, ErrorSubject::Snapshot(None), ErrorVerb::Read)
    }
}

impl<C: RaftTypeConfig> sealed::Sealed for Raft<C> {}

impl<C> RaftNode for Raft<C>
where
    C: RaftTypeConfig<D = Command, R = Answer, Responder = OneshotResponder<C>>,
{
    type Config = C;
    type WriteError = RaftError<C::NodeId, ClientWriteError<C::NodeId, C::Node>>;
    type ReadError = RaftError<C::NodeId, CheckIsLeaderError<C::NodeId, C::Node>>;

    async fn write(&self, command: Command) -> std::result::Result<Answer, Self::WriteError> {
        Ok(self.client_write(command).await?.data)
    }

    async fn catch_up(&self) -> std::result::Result<(), Self::ReadError> {
        self.ensure_linearizable().await.map(drop)
    }
}
