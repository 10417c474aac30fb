//! A state machine in memory: the last command and the membership.

use super::Types;
use super::openraft::storage::{RaftStateMachine, Snapshot};
use super::openraft::{
    BasicNode, Entry, EntryPayload, LogId, OptionalSend, RaftSnapshotBuilder, SnapshotMeta,
    StorageError, StoredMembership,
};
use std::io::Cursor;
use std::sync::{Arc, Mutex, PoisonError};

type Result<T> = std::result::Result<T, StorageError<u64>>;

#[derive(Clone, Default)]
struct State {
    applied: Option<LogId<u64>>,
    membership: StoredMembership<u64, BasicNode>,
    commands: Vec<String>,
    snapshot: Option<Snapshot<Types>>,
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
}

impl RaftSnapshotBuilder<Types> for Machine {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>> {
        let mut state = self.state();
        let meta = SnapshotMeta {
            last_log_id: state.applied,
            last_membership: state.membership.clone(),
            snapshot_id: format!("{:?}", state.applied),
        };
        let data = state.commands.join("\n").into_bytes();
        let snapshot = Snapshot { meta, snapshot: Box::new(Cursor::new(data)) };
        state.snapshot = Some(snapshot.clone());
        Ok(snapshot)
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Machine;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId<u64>>, StoredMembership<u64, BasicNode>)> {
        let state = self.state();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<String>>
    where
        I: IntoIterator<Item = Entry<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut state = self.state();
        let mut answers = Vec::new();
        for Entry { log_id, payload } in entries {
            state.applied = Some(log_id);
            let mut answer = String::new();
            match payload {
                EntryPayload::Blank => {}
                EntryPayload::Normal(command) => {
                    answer = format!("did {command}");
                    state.commands.push(command);
                }
                EntryPayload::Membership(members) => {
                    state.membership = StoredMembership::new(Some(log_id), members);
                }
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    async fn get_snapshot_builder(&mut self) -> Machine {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, BasicNode>,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<()> {
        let mut state = self.state();
        let text = String::from_utf8_lossy(snapshot.get_ref()).into_owned();
        state.commands = text.lines().map(str::to_owned).collect();
        (state.applied, state.membership) = (meta.last_log_id, meta.last_membership.clone());
        state.snapshot = Some(Snapshot { meta: meta.clone(), snapshot });
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>> {
        Ok(self.state().snapshot.clone())
    }
}
