//! The store and its reader, as all versions of openraft have them. A module for each version
//! implements that version's traits for them.

use crate::error::Result;
use crate::group::Group;
use crate::progress::Progress;
use atomic_mmap::{AtomicMappedFile, Roots};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// The name of the group of [`LogStore::open`].
const ONLY: &str = "raft";

/// The log and the vote of one Raft group: openraft's `RaftLogStorage`, in each version with its
/// feature on. `C` is the application's `RaftTypeConfig` of one of them.
///
/// Every method that writes returns when its effect is durable. So does [`append`]: its callback
/// has run by then. The wait does not block the executor, and all stores of a file share it. If the
/// future is dropped meanwhile, the operation has happened. It becomes durable with the next
/// durable point.
///
/// # Errors
/// openraft 0.9 gets each [`Error`](crate::Error) as the source of a `StorageIOError`, and 0.10 as
/// an `io::Error` that contains it. openraft then stops the node.
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
/// [`append`]: https://docs.rs/openraft/0.9/openraft/storage/trait.RaftLogStorage.html
pub struct LogStore<C> {
    group: Arc<Group>,
    behind: Option<Progress>,
    config: PhantomData<fn() -> C>,
}

/// A reader of a [`LogStore`]: openraft's `RaftLogReader`. Reads do not wait for writes, and see
/// entries that are not durable yet.
pub struct LogReader<C> {
    group: Arc<Group>,
    config: PhantomData<fn() -> C>,
}

impl<C> LogStore<C> {
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
    /// openraft 0.9 purges the log beside the installation of a received snapshot, and not behind
    /// it. A crash in between leaves a node that cannot start again: the log lacks entries that the
    /// machine needs. Only the log store can wait. openraft 0.10 waits for the installation itself.
    /// A [`FileMachine`](crate::file::FileMachine) has a `progress`. Another machine that outlives
    /// the process reports its own.
    pub fn behind(self, progress: Progress) -> LogStore<C> {
        LogStore { behind: Some(progress), ..self }
    }

    /// Returns the file.
    pub fn file(&self) -> &AtomicMappedFile {
        self.group.file()
    }

    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    /// Waits until the entries up to `index` may be purged.
    pub(crate) async fn may_purge(&self, index: u64) -> Result<()> {
        match &self.behind {
            Some(progress) if !progress.wait_for(index).await => {
                Err(self.group.not_installed(index))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn reader(&self) -> LogReader<C> {
        LogReader { group: Arc::clone(&self.group), config: PhantomData }
    }
}

impl<C> LogReader<C> {
    pub(crate) fn group(&self) -> &Group {
        &self.group
    }
}

impl<C> fmt::Debug for LogStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogStore").field(&self.group).finish()
    }
}

impl<C> fmt::Debug for LogReader<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogReader").field(&self.group).finish()
    }
}
