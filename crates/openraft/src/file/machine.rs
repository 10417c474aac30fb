//! openraft's state machine over a replicated file.
//!
//! May import `state`, `snapshot`, `command`.

#![allow(clippy::result_large_err, reason = "openraft's traits return its errors by value")]

use super::command::{Answer, Command, Functions};
use super::snapshot::{self, FileSnapshot};
use super::state::{Applied, Change, State};
use crate::error::{Error, Result};
use crate::progress::Progress;
use atomic_mmap::{AtomicMappedFile, Snapshot as Sealed};
use openraft::storage::{RaftStateMachine, Snapshot};
use openraft::{
    AnyError, Entry, EntryPayload, ErrorSubject, ErrorVerb, LogId, OptionalSend,
    RaftSnapshotBuilder, RaftTypeConfig, SnapshotMeta, StorageError, StorageIOError,
    StoredMembership,
};
use std::marker::PhantomData;
use std::sync::Arc;

/// The state machine of one node: openraft's `RaftStateMachine`. Clones share the file.
///
/// Applied commands are durable once openraft builds a snapshot, and whenever the file makes a
/// durable point. Until then the log has them, so no command waits for its own durable point.
///
/// The log store has to go [behind](crate::LogStore::behind) the machine's
/// [`progress`](Self::progress). A membership may take 16,184 bytes in postcard's encoding. The
/// application's node type must encode equally everywhere: a `HashMap` does not.
///
/// # Errors
/// openraft gets each [`Error`](crate::Error) as the source of a `StorageIOError`, and stops the
/// node. A full disk is one of them: the file is as before the command, and the node goes on from
/// there once it has space, and machine and log are opened anew. A damaged stream stops the node
/// as well, and so does one without its base here. It changes nothing.
pub struct FileMachine<C: RaftTypeConfig> {
    state: Arc<State>,
    progress: Progress,
    config: PhantomData<C>,
}

impl<C: RaftTypeConfig> Clone for FileMachine<C> {
    fn clone(&self) -> FileMachine<C> {
        let (state, progress) = (Arc::clone(&self.state), self.progress.clone());
        FileMachine { state, progress, config: PhantomData }
    }
}

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

impl<C: RaftTypeConfig> FileMachine<C> {
    /// Takes the file of this node, with the functions that commands call. The file is empty, or
    /// was one of a machine before. Its snapshots with names that begin with `raft-` are the
    /// machine's. It should keep durable points, on a medium with
    /// [`survives_after_sync`](AtomicMappedFile::survives_after_sync).
    ///
    /// The state that the file has is made durable.
    ///
    /// # Errors
    /// [`Error::NotReplicated`](crate::Error::NotReplicated) if the file has other content. Those
    /// of [`AtomicMappedFile::sync`].
    pub fn open(file: AtomicMappedFile, functions: Functions) -> Result<FileMachine<C>> {
        let state = Arc::new(State::open(file, functions)?);
        state.end_installation(|id: Id<C>| id.index)?;
        let applied: Option<Id<C>> = state.applied_id()?;
        state.file().sync()?;
        let progress = Progress::new(applied.map(|id| id.index));
        Ok(FileMachine { state, progress, config: PhantomData })
    }

    /// Returns how far the file has the effects of the log durably. The log store goes
    /// [behind](crate::LogStore::behind) it.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Returns this node's file, with the header in front of the contents. Changes of it are not
    /// replicated.
    pub fn file(&self) -> &AtomicMappedFile {
        self.state.file()
    }

    fn reach(&self, id: Option<&Id<C>>) {
        if let Some(id) = id {
            self.progress.reach(id.index);
        }
    }

    /// Gives the file the state of a received snapshot.
    async fn install(&self, name: String, received: FileSnapshot) -> Result<()> {
        let stream = received.into_stream(self.state.file()).await?;
        let state = Arc::clone(&self.state);
        let installing = tokio::task::spawn_blocking(move || {
            state.install(&name, &mut snapshot::reader(stream))
        });
        match installing.await {
            Ok(installed) => installed,
            Err(e) => Err(Error::stream(self.state.file(), e.into())),
        }
    }

    pub(super) fn state(&self) -> &Arc<State> {
        &self.state
    }

    fn snapshot_of(&self, sealed: Sealed) -> Result<Snapshot<C>>
    where
        C: RaftTypeConfig<SnapshotData = FileSnapshot>,
    {
        let (last_log_id, members): Applied<Id<C>, Members<C>> = self.state.applied_of(&sealed)?;
        let last_membership = members.unwrap_or_default();
        // A seal is durable.
        self.reach(last_log_id.as_ref());
        let snapshot_id = sealed.name().to_owned();
        let meta = SnapshotMeta { last_log_id, last_membership, snapshot_id };
        let snapshot = Box::new(FileSnapshot::sealed(self.state.file(), sealed)?);
        Ok(Snapshot { meta, snapshot })
    }
}

impl<C> RaftSnapshotBuilder<C> for FileMachine<C>
where
    C: RaftTypeConfig<D = Command, R = Answer, Entry = Entry<C>, SnapshotData = FileSnapshot>,
{
    async fn build_snapshot(&mut self) -> Told<C, Snapshot<C>> {
        let step = self.progress.step();
        let state = Arc::clone(&self.state);
        // A seal waits for the disk.
        let sealing = tokio::task::spawn_blocking(move || state.seal(|id: Id<C>| id.index));
        let sealed = sealing.await.map_err(|e| Error::stream(self.state.file(), e.into()));
        let built = sealed.flatten().and_then(|sealed| self.snapshot_of(sealed));
        let built = told::<C, _>(built, ErrorSubject::StateMachine, ErrorVerb::Read)?;
        step.end();
        Ok(built)
    }
}

impl<C> RaftStateMachine<C> for FileMachine<C>
where
    C: RaftTypeConfig<D = Command, R = Answer, Entry = Entry<C>, SnapshotData = FileSnapshot>,
{
    type SnapshotBuilder = FileMachine<C>;

    async fn applied_state(&mut self) -> Told<C, (Option<Id<C>>, Members<C>)> {
        let applied: Result<Applied<Id<C>, Members<C>>> = self.state.applied();
        let applied = applied.map(|(id, members)| (id, members.unwrap_or_default()));
        told::<C, _>(applied, ErrorSubject::StateMachine, ErrorVerb::Read)
    }

    async fn apply<I>(&mut self, entries: I) -> Told<C, Vec<Answer>>
    where
        I: IntoIterator<Item = Entry<C>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        // A purge may wait for a snapshot behind these entries, which an error ends.
        let step = self.progress.step();
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
            let answer = self.state.apply(&log_id, &change);
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
        let step = self.progress.step();
        let empty = FileSnapshot::empty(self.state.file()).map(Box::new);
        let empty = told::<C, _>(empty, ErrorSubject::Snapshot(None), ErrorVerb::Write)?;
        step.end();
        Ok(empty)
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<C::NodeId, C::Node>,
        snapshot: Box<FileSnapshot>,
    ) -> Told<C, ()> {
        let step = self.progress.step();
        let installed = self.install(meta.snapshot_id.clone(), *snapshot).await;
        let subject = ErrorSubject::Snapshot(Some(meta.signature()));
        told::<C, _>(installed, subject, ErrorVerb::Write)?;
        self.reach(meta.last_log_id.as_ref());
        step.end();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Told<C, Option<Snapshot<C>>> {
        let step = self.progress.step();
        let newest = self.state.newest();
        let newest = newest.and_then(|it| it.map(|sealed| self.snapshot_of(sealed)).transpose());
        let newest = told::<C, _>(newest, ErrorSubject::Snapshot(None), ErrorVerb::Read)?;
        step.end();
        Ok(newest)
    }
}

impl<C: RaftTypeConfig> std::fmt::Debug for FileMachine<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FileMachine").field(self.state.file()).finish()
    }
}
