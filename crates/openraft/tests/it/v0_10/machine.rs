//! A state machine in memory: the last command and the membership.

use super::openraft::storage::{EntryResponder, RaftStateMachine};
use super::openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf, StoredMembershipOf};
use super::openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};
use super::{Entry, Id, Types};
use futures_util::{Stream, TryStreamExt};
use std::io::Result;
use std::sync::{Arc, Mutex, PoisonError};

/// A snapshot: the commands, one a line.
pub type Data = String;
type Snapshot = SnapshotOf<Types, Data>;
type Membership = StoredMembershipOf<Types>;

#[derive(Clone, Default)]
struct State {
    applied: Option<Id>,
    membership: Membership,
    commands: Vec<String>,
    snapshot: Option<Snapshot>,
}

/// The machine. Clones share the state.
#[derive(Clone, Default)]
pub struct Machine(Arc<Mutex<State>>);

impl Machine {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all commands that were applied, the oldest first.
    pub fn commands(&self) -> Vec<String> {
        self.state().commands.clone()
    }

    fn apply_one(&self, Entry { log_id, payload }: Entry) -> String {
        let mut state = self.state();
        state.applied = Some(log_id);
        match payload {
            EntryPayload::Blank => {}
            EntryPayload::Normal(command) => {
                let answer = format!("did {command}");
                state.commands.push(command);
                return answer;
            }
            EntryPayload::Membership(members) => {
                state.membership = Membership::new(Some(log_id), members);
            }
        }
        String::new()
    }
}

impl RaftSnapshotBuilder<Types> for Machine {
    type SnapshotData = Data;

    async fn build_snapshot(&mut self) -> Result<Snapshot> {
        let mut state = self.state();
        let (last_log_id, last_membership) = (state.applied, state.membership.clone());
        let meta = SnapshotMetaOf::<Types> { last_log_id, last_membership };
        let snapshot = Snapshot { meta, snapshot: state.commands.join("\n") };
        state.snapshot = Some(snapshot.clone());
        Ok(snapshot)
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotData = Data;
    type SnapshotBuilder = Machine;

    async fn applied_state(&mut self) -> Result<(Option<Id>, Membership)> {
        let state = self.state();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<()>
    where
        S: Stream<Item = Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let answer = self.apply_one(entry);
            if let Some(responder) = responder {
                responder.send(answer);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Machine {
        self.clone()
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<Types>,
        snapshot: Data,
    ) -> Result<()> {
        let mut state = self.state();
        state.commands = snapshot.lines().map(str::to_owned).collect();
        (state.applied, state.membership) = (meta.last_log_id, meta.last_membership.clone());
        state.snapshot = Some(Snapshot { meta: meta.clone(), snapshot });
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>> {
        Ok(self.state().snapshot.clone())
    }
}
