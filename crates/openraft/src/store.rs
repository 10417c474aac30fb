//! openraft's traits over a group.

#![allow(clippy::result_large_err, reason = "openraft's traits return its errors by value")]

use crate::error::Result;
use crate::group::{Group, Which};
use crate::progress::Progress;
use atomic_mmap::{AtomicMappedFile, Roots};
use openraft::storage::{LogFlushed, LogState, RaftLogReader, RaftLogStorage};
use openraft::{
    AnyError, ErrorSubject, ErrorVerb, LogId, OptionalSend, RaftLogId, RaftTypeConfig,
    StorageError, StorageIOError, Vote,
};
use std::fmt::Debug;
use std::io;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

/// The name of the group of [`LogStore::open`].
const ONLY: &str = "raft";

/// The log and the vote of one Raft group: openraft's `RaftLogStorage`.
///
/// Every method that writes returns when its effect is durable. So does [`append`]: its callback
/// has run by then. The wait does not block the executor, and all stores of a file share it. If the
/// future is dropped meanwhile, the operation has happened. It becomes durable with the next
/// durable point.
///
/// # Errors
/// openraft gets each [`Error`](crate::Error) as the source of a `StorageIOError`, and stops the
/// node.
///
/// - An operation that fails has changed nothing.
/// - If waiting for the durable point fails, the operation has happened, and it is unknown whether
///   it is durable. Nothing was acknowledged. A full disk is rarely a reason: a durable point needs
///   no more space, unless it has the first changes of very many pages.
///
/// ```
/// # use openraft::storage::{RaftLogStorage, RaftLogStorageExt, RaftLogReader};
/// # use openraft::testing::log_id;
/// # use std::io::Cursor;
/// use atomic_mmap::AtomicMappedFile;
/// use openraft::{Entry, EntryPayload, Vote};
/// use openraft_atomic_mmap::LogStore;
///
/// openraft::declare_raft_types!(pub Types: D = String, R = ());
///
/// # let dir = atomic_mmap::doctest_dir();
/// # let path = dir.path().join("raft.dat");
/// # pollster::block_on(async {
/// let mut store = LogStore::<Types>::open(AtomicMappedFile::create(&path, 0)?)?;
/// // openraft makes these calls.
/// store.save_vote(&Vote::new(1, 7)).await?;
/// let payload = EntryPayload::Normal("set x = 1".into());
/// store.blocking_append([Entry { log_id: log_id(1, 7, 0), payload }]).await?;
/// drop(store);
///
/// let mut store = LogStore::<Types>::open(AtomicMappedFile::open(&path)?)?;
/// assert_eq!(store.read_vote().await?, Some(Vote::new(1, 7)));
/// assert_eq!(store.try_get_log_entries(0..).await?.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
///
/// [`append`]: RaftLogStorage::append
pub struct LogStore<C: RaftTypeConfig> {
    group: Arc<Group>,
    behind: Option<Progress>,
    config: PhantomData<C>,
}

/// A reader of a [`LogStore`]: openraft's `RaftLogReader`. Reads do not wait for writes, and see
/// entries that are not durable yet.
pub struct LogReader<C: RaftTypeConfig> {
    group: Arc<Group>,
    config: PhantomData<C>,
}

impl<C: RaftTypeConfig> LogStore<C> {
    /// Opens the store of the only group of a file: the group "raft", with a directory of names at
    /// the file's beginning. Makes both in an empty file.
    ///
    /// The store is a handle to the file. The file closes with its last handle, as
    /// [`Options::close_on_drop`](atomic_mmap::Options::close_on_drop) says.
    ///
    /// # Errors
    /// Those of [`Roots::open`] and [`in_roots`](Self::in_roots).
    pub fn open(file: AtomicMappedFile) -> Result<LogStore<C>> {
        LogStore::in_roots(&Roots::open(file)?, ONLY)
    }

    /// Opens the store of a group in a file that it shares with other groups or other values. Makes
    /// it if the file has no such group. The name has at most 70 bytes.
    ///
    /// Do not open one group twice at the same time.
    ///
    /// # Errors
    /// Those of [`Roots::log`] and [`Roots::get_or_insert`]. `WrongType` if a newer version of this
    /// crate has made the group, or the names have other values. Nothing was then changed.
    pub fn in_roots(roots: &Roots, group: &str) -> Result<LogStore<C>> {
        let group = Arc::new(Group::open(roots, group)?);
        Ok(LogStore { group, behind: None, config: PhantomData })
    }

    /// Lets each purge wait until the state machine has the effects of the purged entries, durably.
    ///
    /// openraft purges the log beside the installation of a received snapshot, and not behind it. A
    /// crash in between leaves a node that cannot start again: the log lacks entries that the
    /// machine needs. Only the log store can wait. A [`FileMachine`](crate::file::FileMachine) has
    /// a [`progress`](crate::file::FileMachine::progress). Another machine that outlives the
    /// process reports its own.
    pub fn behind(self, progress: Progress) -> LogStore<C> {
        LogStore { behind: Some(progress), ..self }
    }

    /// Returns the file.
    pub fn file(&self) -> &AtomicMappedFile {
        self.group.file()
    }

    async fn append_durably(&self, entries: impl Iterator<Item = C::Entry>) -> Result<()> {
        self.group.append(entries.map(|entry| (entry.get_log_id().index, entry)))?;
        self.group.durable().await
    }
}

/// Makes an error of a call into openraft's.
fn told<C: RaftTypeConfig, T>(
    result: Result<T>,
    subject: ErrorSubject<C::NodeId>,
    verb: ErrorVerb,
) -> std::result::Result<T, StorageError<C::NodeId>> {
    result.map_err(|e| StorageIOError::new(subject, verb, AnyError::new(&e)).into())
}

type Told<C, T> = std::result::Result<T, StorageError<<C as RaftTypeConfig>::NodeId>>;

fn entries<C: RaftTypeConfig>(
    group: &Group,
    range: impl RangeBounds<u64>,
) -> Told<C, Vec<C::Entry>> {
    told::<C, _>(group.entries(range), ErrorSubject::Logs, ErrorVerb::Read)
}

impl<C: RaftTypeConfig> RaftLogReader<C> for LogReader<C> {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Told<C, Vec<C::Entry>> {
        entries::<C>(&self.group, range)
    }
}

impl<C: RaftTypeConfig> RaftLogReader<C> for LogStore<C> {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Told<C, Vec<C::Entry>> {
        entries::<C>(&self.group, range)
    }
}

impl<C: RaftTypeConfig> RaftLogStorage<C> for LogStore<C> {
    type LogReader = LogReader<C>;

    async fn get_log_state(&mut self) -> Told<C, LogState<C>> {
        let ends = self.group.ends::<LogId<C::NodeId>, C::Entry>();
        let (purged, last) = told::<C, _>(ends, ErrorSubject::Logs, ErrorVerb::Read)?;
        let last_log_id = last.map(|entry| entry.get_log_id().clone()).or_else(|| purged.clone());
        Ok(LogState { last_purged_log_id: purged, last_log_id })
    }

    async fn get_log_reader(&mut self) -> LogReader<C> {
        LogReader { group: Arc::clone(&self.group), config: PhantomData }
    }

    async fn save_vote(&mut self, vote: &Vote<C::NodeId>) -> Told<C, ()> {
        let stored = self.group.store(Which::Vote, Some(vote));
        told::<C, _>(stored, ErrorSubject::Vote, ErrorVerb::Write)?;
        told::<C, _>(self.group.durable().await, ErrorSubject::Vote, ErrorVerb::Write)
    }

    async fn read_vote(&mut self) -> Told<C, Option<Vote<C::NodeId>>> {
        told::<C, _>(self.group.load(Which::Vote), ErrorSubject::Vote, ErrorVerb::Read)
    }

    async fn save_committed(&mut self, committed: Option<LogId<C::NodeId>>) -> Told<C, ()> {
        let stored = self.group.store(Which::Committed, committed.as_ref());
        told::<C, _>(stored, ErrorSubject::Store, ErrorVerb::Write)?;
        told::<C, _>(self.group.durable().await, ErrorSubject::Store, ErrorVerb::Write)
    }

    async fn read_committed(&mut self) -> Told<C, Option<LogId<C::NodeId>>> {
        told::<C, _>(self.group.load(Which::Committed), ErrorSubject::Store, ErrorVerb::Read)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<C>) -> Told<C, ()>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        // openraft 0.9 waits for the callback before it goes on.
        let result = self.append_durably(entries.into_iter()).await;
        let for_callback = result.as_ref().map(drop).map_err(|e| io::Error::other(e.clone()));
        callback.log_io_completed(for_callback);
        told::<C, _>(result, ErrorSubject::Logs, ErrorVerb::Write)
    }

    async fn truncate(&mut self, log_id: LogId<C::NodeId>) -> Told<C, ()> {
        let truncated = self.group.truncate(log_id.index);
        told::<C, _>(truncated, ErrorSubject::Log(log_id), ErrorVerb::Delete)?;
        told::<C, _>(self.group.durable().await, ErrorSubject::Logs, ErrorVerb::Delete)
    }

    async fn purge(&mut self, log_id: LogId<C::NodeId>) -> Told<C, ()> {
        if let Some(progress) = &self.behind {
            let is_there = progress.wait_for(log_id.index).await;
            let result =
                if is_there { Ok(()) } else { Err(self.group.not_installed(log_id.index)) };
            told::<C, _>(result, ErrorSubject::Log(log_id.clone()), ErrorVerb::Delete)?;
        }
        let is_id = |entry: &C::Entry| *entry.get_log_id() == log_id;
        let purged = self.group.purge(log_id.index, &log_id, is_id);
        told::<C, _>(purged, ErrorSubject::Log(log_id), ErrorVerb::Delete)?;
        told::<C, _>(self.group.durable().await, ErrorSubject::Logs, ErrorVerb::Delete)
    }
}

impl<C: RaftTypeConfig> Debug for LogStore<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LogStore").field(&self.group).finish()
    }
}

impl<C: RaftTypeConfig> Debug for LogReader<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LogReader").field(&self.group).finish()
    }
}
