//! The state machine of a node, as all versions of openraft have it. A module for each version
//! implements that version's traits for it.
//!
//! May import `state`, `snapshot`, `command`.

use super::command::{Answer, Functions};
use super::snapshot::{self, FileSnapshot};
use super::state::{Applied, At, Change, State};
use crate::error::{Error, Result};
use crate::progress::{Progress, Step};
use atomic_mmap::{AtomicMappedFile, Snapshot as Sealed};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;
use std::sync::Arc;

/// The state machine of one node: openraft's `RaftStateMachine`, in each version with its feature
/// on. `C` is the application's `RaftTypeConfig` of one of them. Clones share the file.
///
/// Applied commands are durable once openraft builds a snapshot, and whenever the file makes a
/// durable point. Until then the log has them, so no command waits for its own durable point.
///
/// The log store has to go [behind](crate::LogStore::behind) the machine's
/// [`progress`](Self::progress). A membership may take 16,184 bytes in postcard's encoding. The
/// application's node type must encode equally everywhere: a `HashMap` does not. The node runs on
/// tokio.
///
/// # Errors
/// openraft 0.9 gets each [`Error`](crate::Error) as the source of a `StorageIOError`, and 0.10 as
/// an `io::Error` that contains it. openraft then stops the node. A full disk is one of them: the
/// file is as before the command, and the node goes on from there once it has space, and machine
/// and log are opened anew. A damaged stream stops the node as well, and so does one without its
/// base here. It changes nothing.
pub struct FileMachine<C> {
    state: Arc<State>,
    progress: Progress,
    config: PhantomData<fn() -> C>,
}

impl<C> Clone for FileMachine<C> {
    fn clone(&self) -> FileMachine<C> {
        let (state, progress) = (Arc::clone(&self.state), self.progress.clone());
        FileMachine { state, progress, config: PhantomData }
    }
}

/// A snapshot with the log id and the membership that it holds.
pub(super) type Built<I, M> = (Option<I>, M, FileSnapshot);

impl<C> FileMachine<C> {
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
        state.end_installation()?;
        let progress = Progress::new(state.applied_index()?);
        state.file().sync()?;
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

    /// Returns an empty snapshot. Write the stream to it that
    /// [`FileSnapshot::write_to`] has written, as to any `AsyncWrite`, and hand it to
    /// `Raft::install_full_snapshot`.
    ///
    /// # Errors
    /// [`Error::Stream`](crate::Error::Stream).
    pub fn begin_receiving(&self) -> Result<FileSnapshot> {
        FileSnapshot::empty(self.file())
    }

    pub(super) fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Begins a step of the machine. An error in it ends purges that wait for a later snapshot.
    pub(super) fn step(&self) -> Step {
        self.progress.step()
    }

    /// Returns the applied log id and the membership.
    pub(super) fn applied<I, M>(&self) -> Result<(Option<I>, M)>
    where
        I: DeserializeOwned,
        M: DeserializeOwned + Default,
    {
        let (id, members): Applied<I, M> = self.state.applied()?;
        Ok((id.map(|(_, id)| id), members.unwrap_or_default()))
    }

    /// Applies a log entry.
    pub(super) fn apply_entry<I, M>(&self, id: At<&I>, change: &Change<'_, M>) -> Result<Answer>
    where
        I: Serialize + DeserializeOwned,
        M: Serialize + DeserializeOwned,
    {
        self.state.apply(id, change)
    }

    /// Makes a snapshot of the present state.
    pub(super) async fn build<I, M>(&self) -> Result<Built<I, M>>
    where
        I: DeserializeOwned,
        M: DeserializeOwned + Default,
    {
        let step = self.step();
        let state = Arc::clone(&self.state);
        // A seal waits for the disk.
        let sealing = tokio::task::spawn_blocking(move || state.seal());
        let sealed = sealing.await.map_err(|e| Error::stream(self.file(), e.into()))?;
        let built = self.with_its_state(sealed?)?;
        step.end();
        Ok(built)
    }

    /// Returns the newest snapshot.
    pub(super) fn newest<I, M>(&self) -> Result<Option<Built<I, M>>>
    where
        I: DeserializeOwned,
        M: DeserializeOwned + Default,
    {
        let step = self.step();
        let newest = self.state.newest()?.map(|sealed| self.with_its_state(sealed)).transpose()?;
        step.end();
        Ok(newest)
    }

    fn with_its_state<I, M>(&self, sealed: Sealed) -> Result<Built<I, M>>
    where
        I: DeserializeOwned,
        M: DeserializeOwned + Default,
    {
        let (id, members): Applied<I, M> = self.state.applied_of(&sealed)?;
        let data = FileSnapshot::sealed(self.file(), sealed)?;
        if let Some((index, _)) = &id {
            // A seal is durable.
            self.progress.reach(*index);
        }
        Ok((id.map(|(_, id)| id), members.unwrap_or_default(), data))
    }

    /// Gives the file the state of a received snapshot, which holds the applied log id `id`.
    pub(super) async fn install<I>(&self, id: Option<At<&I>>, received: FileSnapshot) -> Result<()>
    where
        I: Serialize + DeserializeOwned,
    {
        let step = self.step();
        let name = self.state.name_of(id)?;
        let stream = received.into_stream(self.file()).await?;
        let state = Arc::clone(&self.state);
        let installing = tokio::task::spawn_blocking(move || {
            state.install(&name, &mut snapshot::reader(stream))
        });
        installing.await.map_err(|e| Error::stream(self.file(), e.into()))??;
        if let Some((index, _)) = id {
            self.progress.reach(index);
        }
        step.end();
        Ok(())
    }
}

impl<C> std::fmt::Debug for FileMachine<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FileMachine").field(self.state.file()).finish()
    }
}
