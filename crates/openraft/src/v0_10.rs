//! The traits of openraft 0.10 over a group.

use crate::group::{Group, Which};
use crate::store::{LogReader, LogStore};
use openraft_0_10::entry::RaftEntry;
use openraft_0_10::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use openraft_0_10::type_config::alias::{LogIdOf, VoteOf};
use openraft_0_10::{OptionalSend, RaftTypeConfig};
use std::fmt::Debug;
use std::io::Result;
use std::ops::RangeBounds;

/// Stores a value or none, and waits until it is durable.
async fn save<T>(group: &Group, which: Which, value: Option<&T>) -> Result<()>
where
    T: serde::Serialize + serde::de::DeserializeOwned,
{
    group.store(which, value)?;
    Ok(group.durable().await?)
}

impl<C: RaftTypeConfig> RaftLogReader<C> for LogReader<C> {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<C::Entry>> {
        Ok(self.group().entries(range)?)
    }

    async fn read_vote(&mut self) -> Result<Option<VoteOf<C>>> {
        Ok(self.group().load(Which::Vote)?)
    }
}

impl<C: RaftTypeConfig> RaftLogStorage<C> for LogStore<C> {
    type LogReader = LogReader<C>;

    async fn get_log_state(&mut self) -> Result<LogState<C>> {
        let (purged, last) = self.group().ends::<LogIdOf<C>, C::Entry>()?;
        let last_log_id = last.map(|entry| entry.log_id()).or_else(|| purged.clone());
        Ok(LogState { last_purged_log_id: purged, last_log_id })
    }

    async fn get_log_reader(&mut self) -> LogReader<C> {
        self.reader()
    }

    async fn save_vote(&mut self, vote: &VoteOf<C>) -> Result<()> {
        save(self.group(), Which::Vote, Some(vote)).await
    }

    async fn save_committed(&mut self, committed: Option<LogIdOf<C>>) -> Result<()> {
        save(self.group(), Which::Committed, committed.as_ref()).await
    }

    async fn read_committed(&mut self) -> Result<Option<LogIdOf<C>>> {
        Ok(self.group().load(Which::Committed)?)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<C>) -> Result<()>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries = entries.into_iter().map(|entry| (entry.index(), entry));
        let result = self.group().append_durably(entries).await;
        callback.io_completed(result.clone().map_err(Into::into));
        Ok(result?)
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogIdOf<C>>) -> Result<()> {
        self.group().truncate(last_log_id.map_or(0, |id| id.index + 1))?;
        Ok(self.group().durable().await?)
    }

    async fn purge(&mut self, log_id: LogIdOf<C>) -> Result<()> {
        self.may_purge(log_id.index).await?;
        self.group().purge(log_id.index, &log_id, |entry: &C::Entry| entry.log_id() == log_id)?;
        Ok(self.group().durable().await?)
    }
}
