//! Writes and reads of a client, on one node.
//!
//! May import `machine`, `state`, `snapshot`, `command`.

use super::command::{Answer, Command, Part, Stop};
use super::machine::FileMachine;
use super::snapshot::FileSnapshot;
use super::state::State;
use crate::error::{Error, Result as OfStore};
use std::error::Error as AnyError;
use std::fmt;
use std::io::Read;
use std::sync::Arc;

pub(super) mod sealed {
    /// A bound that no other crate can fulfil.
    pub trait Sealed {}
}

/// A node of openraft: `openraft::Raft<C>` of version 0.9, or `openraft::Raft<C, M>` of 0.10. The
/// types `D` and `R` of `C` are [`Command`] and [`Answer`].
pub trait RaftNode: sealed::Sealed {
    /// The application's `RaftTypeConfig`.
    type Config;
    /// openraft's error of a write.
    type WriteError: AnyError + 'static;
    /// openraft's error of a linearizable read.
    type ReadError: AnyError + 'static;

    /// Writes a command to the log. Returns its answer once this node has applied it.
    #[doc(hidden)]
    fn write(&self, command: Command) -> impl Future<Output = Result<Answer, Self::WriteError>>;

    /// Waits until this node has applied all that any node has answered, if it leads.
    #[doc(hidden)]
    fn catch_up(&self) -> impl Future<Output = Result<(), Self::ReadError>>;
}

/// The replicated file as a client on one node sees it. Offsets and lengths are in bytes. `N` is
/// the node.
///
/// A write returns once a majority of nodes has it durably, and this node has applied it. It may
/// never return if this node is cut off meanwhile: a caller sets a time. Only the leader takes
/// writes and linearizable reads. Other nodes return openraft's `ForwardToLeader`, which names the
/// leader.
pub struct ReplicatedFile<N> {
    raft: N,
    state: Arc<State>,
}

/// An error of a [`ReplicatedFile`].
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ClientError<N: RaftNode> {
    /// The command was refused, and has changed nothing.
    #[error("refused: {0}")]
    Refused(String),
    /// The write may have happened, or may still happen. A `ForwardToLeader` of a node that did not
    /// lead says that it has not. Under openraft 0.9 a node that led gives that error as well, for
    /// an entry that another one of five or more nodes may have. 0.10 gives `LogEntryDiscarded`.
    #[error(transparent)]
    Write(Box<N::WriteError>),
    /// This node is not the leader, or cannot reach a majority.
    #[error(transparent)]
    Read(Box<N::ReadError>),
    /// This node's file could not be read.
    #[error(transparent)]
    File(#[from] Error),
}

impl<N: RaftNode> fmt::Debug for ClientError<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Refused(why) => f.debug_tuple("Refused").field(why).finish(),
            ClientError::Write(error) => f.debug_tuple("Write").field(error).finish(),
            ClientError::Read(error) => f.debug_tuple("Read").field(error).finish(),
            ClientError::File(error) => f.debug_tuple("File").field(error).finish(),
        }
    }
}

impl<N: RaftNode> From<Stop> for ClientError<N> {
    fn from(stop: Stop) -> ClientError<N> {
        match stop {
            Stop::Refused(why) => ClientError::Refused(why),
            Stop::Failed(error) => ClientError::File(error),
        }
    }
}

impl<N: RaftNode> ReplicatedFile<N> {
    /// Makes a handle of a node and its machine.
    pub fn new(raft: N, machine: &FileMachine<N::Config>) -> ReplicatedFile<N> {
        ReplicatedFile { raft, state: Arc::clone(machine.state()) }
    }

    /// Writes all of `buf` at `offset`, in one atomic operation.
    ///
    /// # Errors
    /// [`ClientError::Refused`] past the end. [`ClientError::Write`].
    pub async fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), ClientError<N>> {
        self.write_many(&[(offset, buf)]).await
    }

    /// Writes each pair of an offset and bytes, all of them in one atomic operation.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at).
    pub async fn write_many(&self, parts: &[(u64, &[u8])]) -> Result<(), ClientError<N>> {
        let part = |(offset, bytes): &(u64, &[u8])| Part { offset: *offset, bytes: bytes.to_vec() };
        self.run(Command::Write(parts.iter().map(part).collect())).await.map(drop)
    }

    /// Makes the contents `len` bytes long. New bytes are zero.
    ///
    /// # Errors
    /// [`ClientError::Refused`] past the [`max_len`] of this node's file. The other nodes must open
    /// theirs with at least that one. [`ClientError::Write`].
    ///
    /// [`max_len`]: atomic_mmap::AtomicMappedFile::max_len
    pub async fn set_len(&self, len: u64) -> Result<(), ClientError<N>> {
        self.run(Command::SetLen(len)).await.map(drop)
    }

    /// Calls a registered function, and returns its value.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the function refuses, or this node has not registered it.
    /// [`ClientError::Write`].
    pub async fn call(&self, function: &str, argument: &[u8]) -> Result<Vec<u8>, ClientError<N>> {
        let (function, argument) = (function.to_owned(), argument.to_vec());
        self.run(Command::Call { function, argument }).await
    }

    async fn run(&self, command: Command) -> Result<Vec<u8>, ClientError<N>> {
        self.state.check(&command)?;
        match self.raft.write(command).await.map_err(|e| ClientError::Write(e.into()))? {
            Answer::Done => Ok(Vec::new()),
            Answer::Value(value) => Ok(value),
            Answer::Refused(why) => Err(ClientError::Refused(why)),
        }
    }

    /// Fills `buf` with the bytes at `offset`. The read is linearizable: it sees each write that
    /// has returned before it began, on any node.
    ///
    /// # Errors
    /// [`ClientError::Read`] if this node is not the leader. [`ClientError::Refused`] past the end.
    /// [`ClientError::File`].
    pub async fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), ClientError<N>> {
        self.raft.catch_up().await.map_err(|e| ClientError::Read(e.into()))?;
        self.read_stale(buf, offset)
    }

    /// Fills `buf` with the bytes at `offset` as this node has them. They may be old, and are those
    /// of one state of the file.
    ///
    /// # Errors
    /// [`ClientError::Refused`] past the end. [`ClientError::File`].
    pub fn read_stale(&self, buf: &mut [u8], offset: u64) -> Result<(), ClientError<N>> {
        Ok(self.state.read_at(buf, offset)?)
    }

    /// Returns the length of the contents as this node has them.
    pub fn len_stale(&self) -> u64 {
        self.state.len()
    }

    /// Returns the name of this node's newest snapshot. Another node can send the changes since
    /// then: [`FileSnapshot::write_to`]. This node keeps the snapshot until the next call.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::open_snapshot`](atomic_mmap::AtomicMappedFile::open_snapshot).
    pub fn newest_snapshot(&self) -> OfStore<Option<String>> {
        self.state.offer()
    }

    /// Receives the stream that [`FileSnapshot::write_to`] has written. The result is for
    /// `Raft::install_full_snapshot`. Blocks while it reads.
    ///
    /// # Errors
    /// [`Error::Stream`].
    pub fn receive(&self, from: impl Read) -> OfStore<FileSnapshot> {
        FileSnapshot::received(self.state.file(), from)
    }
}

impl<N: Clone> Clone for ReplicatedFile<N> {
    fn clone(&self) -> ReplicatedFile<N> {
        ReplicatedFile { raft: self.raft.clone(), state: Arc::clone(&self.state) }
    }
}

impl<N> fmt::Debug for ReplicatedFile<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReplicatedFile").field(self.state.file()).finish()
    }
}
