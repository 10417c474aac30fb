//! The file of the log store, and the calls on its groups: those of openraft's traits, as openraft
//! makes them.
//!
//! Like a user's, this store stands on the published crate. So bugs planted in the engine are not
//! in it.
//!
//! May import [`log_script`](crate::log_script) and constants.

use crate::Anything;
use crate::log_script::{GROUPS, Group, MAX_LEN, Op, Types};
use crate::script::JOURNAL_LEN;
use openraft::storage::{RaftLogReader, RaftLogStorage, RaftLogStorageExt};
use openraft_atomic_mmap::LogStore;
use pollster::block_on;
use shipped::{AtomicMappedFile, CloseMode, Medium, Roots};
use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::task::Poll;

/// The name of the file.
pub const FILE: &str = "raft.dat";

/// The variable that plants a bug: a call is begun, and acknowledged without its durable point.
const NOT_AWAITED: &str = "LAB_POWER_LOG_NOT_AWAITED";

/// The open file with its groups.
pub struct Logs {
    file: AtomicMappedFile,
    pub groups: Vec<LogStore<Types>>,
}

impl Logs {
    /// Opens the file in `folder`. Makes what it does not have.
    pub fn open(folder: &Path) -> Anything<Logs> {
        let options = AtomicMappedFile::options().create(true).max_len(MAX_LEN);
        let options = options.journal_len(JOURNAL_LEN).medium(Medium::PageCache);
        let file = options.open(folder.join(FILE))?;
        let roots = Roots::open(file.try_clone()?)?;
        let open = |group: usize| LogStore::in_roots(&roots, &format!("group-{group}"));
        let groups = (0..GROUPS).map(open).collect::<Result<_, _>>()?;
        Ok(Logs { file, groups })
    }

    pub fn close(self, mode: CloseMode) -> Anything<()> {
        let Logs { file, groups } = self;
        drop(groups);
        file.close(mode)?;
        Ok(())
    }

    /// Returns what the groups hold.
    pub fn read(&mut self) -> Anything<[Group; GROUPS]> {
        let mut found: [Group; GROUPS] = Default::default();
        for (store, group) in self.groups.iter_mut().zip(&mut found) {
            *group = block_on(read(store))?;
        }
        Ok(found)
    }
}

async fn read(store: &mut LogStore<Types>) -> Anything<Group> {
    let ends = store.get_log_state().await?;
    let entries = store.get_log_reader().await.try_get_log_entries(..).await?;
    let purged = ends.last_purged_log_id;
    if ends.last_log_id != entries.last().map(|entry| entry.log_id).or(purged) {
        return Err(format!("the state {ends:?} is not that of the entries").into());
    }
    let (vote, committed) = (store.read_vote().await?, store.read_committed().await?);
    Ok(Group { vote, committed, purged, entries })
}

/// Makes a call. Returns `true` if that acknowledged the operation as durable, and `false` if it
/// was refused for want of space.
pub async fn call(store: &mut LogStore<Types>, op: Op) -> Anything<bool> {
    let mut made = pin!(make(store, op));
    if std::env::var_os(NOT_AWAITED).is_none() {
        return made.await;
    }
    poll_fn(|context| match made.as_mut().poll(context) {
        Poll::Pending => Poll::Ready(Ok(true)),
        ready => ready,
    })
    .await
}

async fn make(store: &mut LogStore<Types>, op: Op) -> Anything<bool> {
    match op {
        Op::Vote(vote) => store.save_vote(&vote).await?,
        Op::Committed(id) => store.save_committed(id).await?,
        Op::Append(entries) => store.blocking_append(entries).await?,
        Op::TooLong(entries) => match store.blocking_append(entries).await {
            Err(error) if error.to_string().contains("Options::max_len") => return Ok(false),
            other => return Err(format!("an entry as long as the file may be: {other:?}").into()),
        },
        Op::Truncate(id) => store.truncate(id).await?,
        Op::Purge(id) => store.purge(id).await?,
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_script::State;
    use openraft::EntryPayload;

    const SEED: u64 = 7;

    /// Returns `true` if the check takes `found` for the state after operation `n`.
    fn is_taken(found: &[Group; GROUPS], n: u64) -> bool {
        State::of(found, n..=n, SEED).is_ok()
    }

    #[test]
    fn the_check_takes_the_store_for_the_state_after_its_last_call_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut state = State::new(SEED);
        let (mut changes, mut refused) = (0, 0);
        while state.number < 150 {
            let mut logs = Logs::open(folder.path()).expect("open");
            for _ in 0..15 {
                let before = state.groups.clone();
                let op = state.advance();
                let n = state.number;
                let is_durable = block_on(call(&mut logs.groups[state.group()], op));
                refused += usize::from(!is_durable.expect("the call"));
                let found = logs.read().expect("read");
                assert!(is_taken(&found, n), "operation {n}");
                if state.groups != before {
                    changes += 1;
                    assert!(!is_taken(&before, n), "operation {n} is lost");
                    assert!(!is_taken(&found, n - 1), "operation {n} had not begun");
                }
            }
            logs.close(CloseMode::Fast).expect("close");
        }
        assert!(changes > 100 && refused > 2, "{changes} changes, {refused} refused");
    }

    #[test]
    fn the_check_notices_one_changed_byte_and_a_missing_entry() {
        let mut state = State::new(SEED);
        while state.groups.iter().any(|group| group.entries.is_empty()) {
            state.advance();
        }
        let n = state.number;
        assert!(is_taken(&state.groups, n));
        for group in 0..GROUPS {
            let mut found = state.groups.clone();
            let last = found[group].entries.pop().expect("an entry");
            assert!(!is_taken(&found, n), "group {group} lacks its last entry");
            let EntryPayload::Normal(mut command) = last.payload else { panic!("no command") };
            command[0] ^= 1;
            let payload = EntryPayload::Normal(command);
            found[group].entries.push(openraft::Entry { payload, ..last });
            assert!(!is_taken(&found, n), "group {group} has a changed byte");
        }
    }
}
