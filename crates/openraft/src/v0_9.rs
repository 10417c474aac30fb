//! The traits of openraft 0.9 over a group.

#![allow(clippy::result_large_err, reason = "openraft's traits return its errors by value")]

use crate::error::Result;
use crate::group::{Group, Which};
use crate::store::{LogReader, LogStore};
use openraft::storage::{LogFlushed, LogState, RaftLogReader, RaftLogStorage};
use openraft::{
    AnyError, ErrorSubject, ErrorVerb, LogId, OptionalSend, RaftLogId, RaftTypeConfig,
    StorageError, StorageIOError, Vote,
};
use std::fmt::Debug;
use std::ops::RangeBounds;

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
        entries::<C>(self.group(), range)
    }
}

impl<C: RaftTypeConfig> RaftLogReader<C> for LogStore<C> {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Told<C, Vec<C::Entry>> {
        entries::<C>(self.group(), range)
    }
}

impl<C: RaftTypeConfig> RaftLogStorage<C> for LogStore<C> {
    type LogReader = LogReader<C>;

    async fn get_log_state(&mut self) -> Told<C, LogState<C>> {
        let ends = self.group().ends::<LogId<C::NodeId>, C::Entry>();
        let (purged, last) = told::<C, _>(ends, ErrorSubject::Logs, ErrorVerb::Read)?;
        let last_log_id = last.map(|entry| entry.get_log_id().clone()).or_else(|| purged.clone());
        Ok(LogState { last_purged_log_id: purged, last_log_id })
    }

    async fn get_log_reader(&mut self) -> LogReader<C> {
        self.reader()
    }

    async fn save_vote(&mut self, vote: &Vote<C::NodeId>) -> Told<C, ()> {
        let stored = self.group().store(Which::Vote, Some(vote));
        told::<C, _>(stored, ErrorSubject::Vote, ErrorVerb::Write)?;
        told::<C, _>(self.group().durable().await, ErrorSubject::Vote, ErrorVerb::Write)
    }

    async fn read_vote(&mut self) -> Told<C, Option<Vote<C::NodeId>>> {
        told::<C, _>(self.group().load(Which::Vote), ErrorSubject::Vote, ErrorVerb::Read)
    }

    async fn save_committed(&mut self, committed: Option<LogId<C::NodeId>>) -> Told<C, ()> {
        let stored = self.group().store(Which::Committed, committed.as_ref());
        told::<C, _>(stored, ErrorSubject::Store, ErrorVerb::Write)?;
        told::<C, _>(self.group().durable().await, ErrorSubject::Store, ErrorVerb::Write)
    }

    async fn read_committed(&mut self) -> Told<C, Option<LogId<C::NodeId>>> {
        told::<C, _>(self.group().load(Which::Committed), ErrorSubject::Store, ErrorVerb::Read)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<C>) -> Told<C, ()>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        // openraft 0.9 waits for the callback before it goes on.
        let entries = entries.into_iter().map(|entry| (entry.get_log_id().index, entry));
        let result = self.group().append_durably(entries).await;
        callback.log_io_completed(result.clone().map_err(Into::into));
        told::<C, _>(result, ErrorSubject::Logs, ErrorVerb::Write)
    }

    async fn truncate(&mut self, log_id: LogId<C::NodeId>) -> Told<C, ()> {
        let truncated = self.group().truncate(log_id.index);
        told::<C, _>(truncated, ErrorSubject::Log(log_id), ErrorVerb::Delete)?;
        told::<C, _>(self.group().durable().await, ErrorSubject::Logs, ErrorVerb::Delete)
    }

    async fn purge(&mut self, log_id: LogId<C::NodeId>) -> Told<C, ()> {
        let subject = || ErrorSubject::Log(log_id.clone());
        told::<C, _>(self.may_purge(log_id.index).await, subject(), ErrorVerb::Delete)?;
        let is_id = |entry: &C::Entry| *entry.get_log_id() == log_id;
        let purged = self.group().purge(log_id.index, &log_id, is_id);
        told::<C, _>(purged, ErrorSubject::Log(log_id), ErrorVerb::Delete)?;
        told::<C, _>(self.group().durable().await, ErrorSubject::Logs, ErrorVerb::Delete)
    }
}
