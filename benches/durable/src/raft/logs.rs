//! The measured logs. Each has numbered groups, and an append returns when its entries are durable.

use super::rocks::Rocks;
use atomic_mmap::{AtomicMappedFile, Roots, Survives};
use openraft::storage::{RaftLogReader, RaftLogStorage, RaftLogStorageExt};
use openraft::{CommittedLeaderId, Entry, EntryPayload, LogId};
use openraft_atomic_mmap::LogStore;
use pollster::block_on;
use protobuf::well_known_types::BytesValue;
use raft_engine::{Engine, LogBatch, MessageExt};
use raft_log::api::raft_log_writer::RaftLogWriter;
use raft_log::{Config, RaftLog, Types};
use std::fs::{File, OpenOptions};
use std::io::Cursor;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub type Any<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Length of an entry's command in bytes.
pub const LEN: usize = 256;

/// Returns the command of an entry: bytes of ASCII that begin with its index.
pub fn command(index: u64) -> Vec<u8> {
    let mut bytes = format!("{index:020}").into_bytes();
    bytes.extend((bytes.len()..LEN).map(|n| b'a' + (n as u64 * 7 + index) as u8 % 26));
    bytes
}

/// Logs of groups. Each group has one thread.
pub trait Log: Send + Sync {
    /// Appends `count` entries from `first` on, and returns when they are durable.
    fn append(&self, group: usize, first: u64, count: u64) -> Any<()>;
    /// Drops all entries before `end`, which has to exist.
    fn purge(&self, group: usize, end: u64) -> Any<()>;
    /// Returns the command of an entry, or `None` if the contender keeps no entries.
    fn get(&self, group: usize, index: u64) -> Any<Option<Vec<u8>>>;
    /// Returns counts since the log was opened, in words.
    fn remarks(&self) -> Option<String> {
        None
    }
}

pub const LIMIT: &str = "O_DSYNC write";
pub const OURS: &str = "atomic-mmap";
pub const RAFT_LOG: &str = "raft-log";
pub const ROCKS: &str = "RocksDB";
/// All contenders. The limit comes first.
pub const NAMES: [&str; 6] = [LIMIT, OURS, RAFT_LOG, "raft-log, waits 1 ms", "raft-engine", ROCKS];

/// Opens the logs of `groups` groups in a folder, and makes missing ones.
pub fn open(name: &str, dir: &Path, groups: usize) -> Any<Box<dyn Log>> {
    std::fs::create_dir_all(dir)?;
    Ok(match name {
        LIMIT => Box::new(Limit::open(&dir.join("limit"))?),
        OURS => Box::new(Ours::open(&dir.join("raft.dat"), groups)?),
        RAFT_LOG => Box::new(RaftLogs::open(dir, groups, Duration::ZERO)?),
        "raft-log, waits 1 ms" => Box::new(RaftLogs::open(dir, groups, Duration::from_millis(1))?),
        "raft-engine" => Box::new(RaftEngine::open(dir)?),
        ROCKS => Box::new(Rocks::open(dir)?),
        _ => return Err(format!("no log is called {name:?}").into()),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// --- The limit of the device -------------------------------------------------------------------

/// A file that was written before, and takes the commands in whole blocks.
struct Limit {
    file: File,
    next: AtomicU64,
}

const BLOCK: usize = 4096;
const RING: u64 = 16 << 20;

impl Limit {
    fn open(path: &Path) -> Any<Limit> {
        std::fs::write(path, vec![0x5A; RING as usize])?;
        File::open(path)?.sync_all()?;
        let file = OpenOptions::new().write(true).custom_flags(libc::O_DSYNC).open(path)?;
        Ok(Limit { file, next: AtomicU64::new(0) })
    }
}

impl Log for Limit {
    fn append(&self, _: usize, first: u64, count: u64) -> Any<()> {
        let mut bytes: Vec<u8> = (first..first + count).flat_map(command).collect();
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        let at = self.next.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(self.file.write_all_at(&bytes, at % (RING - bytes.len() as u64 + 1) / 4096 * 4096)?)
    }

    fn purge(&self, _: usize, _: u64) -> Any<()> {
        Ok(())
    }

    fn get(&self, _: usize, _: u64) -> Any<Option<Vec<u8>>> {
        Ok(None)
    }
}

// --- atomic-mmap, through openraft's traits ----------------------------------------------------

openraft::declare_raft_types!(
    pub Config9: D = String, R = ()
);

/// All groups share one file.
struct Ours(Vec<Mutex<LogStore<Config9>>>);

fn log_id(index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(1, 1), index)
}

impl Ours {
    fn open(path: &Path, groups: usize) -> Any<Ours> {
        let file: AtomicMappedFile = AtomicMappedFile::options().create(true).open(path)?;
        if file.survives_after_sync() != Survives::PowerLoss {
            return Err("the medium is not durable".into());
        }
        let roots = Roots::open(file)?;
        let store = |group| LogStore::in_roots(&roots, &format!("group {group}")).map(Mutex::new);
        Ok(Ours((0..groups).map(store).collect::<Result<_, _>>()?))
    }
}

impl Log for Ours {
    fn append(&self, group: usize, first: u64, count: u64) -> Any<()> {
        let entry = |index| {
            let command = String::from_utf8(command(index)).expect("ASCII");
            Entry { log_id: log_id(index), payload: EntryPayload::Normal(command) }
        };
        let entries = (first..first + count).map(entry);
        Ok(block_on(lock(&self.0[group]).blocking_append(entries))?)
    }

    fn purge(&self, group: usize, end: u64) -> Any<()> {
        Ok(block_on(lock(&self.0[group]).purge(log_id(end - 1)))?)
    }

    fn get(&self, group: usize, index: u64) -> Any<Option<Vec<u8>>> {
        let range = index..index + 1;
        let entry = block_on(lock(&self.0[group]).try_get_log_entries(range))?.pop();
        match entry.ok_or("no entry")?.payload {
            EntryPayload::Normal(command) => Ok(Some(command.into_bytes())),
            _ => Err("another payload".into()),
        }
    }

    fn remarks(&self) -> Option<String> {
        let s = lock(&self.0[0]).file().stats();
        Some(format!(
            "{} durable points by the journal, {} by a flush, {} checkpoints",
            s.journal_points, s.flush_points, s.checkpoints
        ))
    }
}

// --- raft-log ----------------------------------------------------------------------------------

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct RaftLogTypes;

impl Types for RaftLogTypes {
    type LogId = (u64, u64);
    type LogPayload = Vec<u8>;
    type Vote = (u64, u64);
    type UserData = String;
    type Callback = SyncSender<std::io::Result<()>>;

    fn log_index(id: &(u64, u64)) -> u64 {
        id.1
    }

    fn payload_size(payload: &Vec<u8>) -> u64 {
        payload.len() as u64
    }
}

/// A log with a folder for each group. `wait` is what its flush waits for more requests.
struct RaftLogs(Vec<Mutex<RaftLog<RaftLogTypes>>>);

impl RaftLogs {
    fn open(dir: &Path, groups: usize, wait: Duration) -> Any<RaftLogs> {
        let log = |group| {
            let dir = dir.join(format!("group-{group}"));
            std::fs::create_dir_all(&dir)?;
            let mut config = Config::new(dir.display());
            config.wal.flush_batch_wait = Some(wait);
            RaftLog::open(Arc::new(config)).map(Mutex::new)
        };
        Ok(RaftLogs((0..groups).map(log).collect::<Result<_, _>>()?))
    }
}

impl Log for RaftLogs {
    fn append(&self, group: usize, first: u64, count: u64) -> Any<()> {
        let mut log = lock(&self.0[group]);
        log.append((first..first + count).map(|index| ((1, index), command(index))))?;
        let (sender, done) = sync_channel(1);
        log.flush(true, Some(sender))?;
        Ok(done.recv()??)
    }

    fn purge(&self, group: usize, end: u64) -> Any<()> {
        let mut log = lock(&self.0[group]);
        log.purge((1, end - 1))?;
        let (sender, done) = sync_channel(1);
        log.flush(true, Some(sender))?;
        Ok(done.recv()??)
    }

    fn get(&self, group: usize, index: u64) -> Any<Option<Vec<u8>>> {
        let log = lock(&self.0[group]);
        let (_, command) = log.read(index, index + 1).next().ok_or("no entry")??;
        Ok(Some(command))
    }
}

// --- raft-engine -------------------------------------------------------------------------------

/// All groups share one engine. An entry is a message of protobuf with the command.
struct RaftEngine(Engine);

struct Message;

impl MessageExt for Message {
    type Entry = BytesValue;

    fn index(entry: &BytesValue) -> u64 {
        let digits = std::str::from_utf8(&entry.get_value()[..20]).expect("ASCII");
        digits.parse().expect("a number")
    }
}

impl RaftEngine {
    fn open(dir: &Path) -> Any<RaftEngine> {
        let config = raft_engine::Config {
            dir: dir.display().to_string(),
            ..raft_engine::Config::default()
        };
        Ok(RaftEngine(Engine::open(config)?))
    }
}

impl Log for RaftEngine {
    fn append(&self, group: usize, first: u64, count: u64) -> Any<()> {
        let message = |index| {
            let mut entry = BytesValue::new();
            entry.set_value(command(index));
            entry
        };
        let entries: Vec<_> = (first..first + count).map(message).collect();
        let mut batch = LogBatch::with_capacity(1);
        batch.add_entries::<Message>(group as u64 + 1, &entries)?;
        self.0.write(&mut batch, true)?;
        Ok(())
    }

    fn purge(&self, group: usize, end: u64) -> Any<()> {
        self.0.compact_to(group as u64 + 1, end);
        self.0.purge_expired_files()?;
        Ok(())
    }

    fn get(&self, group: usize, index: u64) -> Any<Option<Vec<u8>>> {
        let entry = self.0.get_entry::<Message>(group as u64 + 1, index)?;
        Ok(Some(entry.ok_or("no entry")?.take_value()))
    }
}
