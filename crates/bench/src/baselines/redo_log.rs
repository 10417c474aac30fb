//! A redo log of data with checkpoints: new bytes are committed when they are in the log.
//!
//! From: Libnvmmio, section 2.2.2 (redo logs, and their late second copy). RMMIO,
//! section III-D, calls it the write-ahead log of other systems.
//!
//! A write, with its pages locked:
//! 1. The new bytes go to the lane's log, with a checksum. Drain: the commit point. More than 2 KiB
//!    take the bytes, a drain, and the record's head.
//! 2. The bytes are stored in place immediately, so reads need no index. Up to [`THROUGH_CACHE`]
//!    bytes go through the cache and are not flushed: other threads see them in order, and the
//!    record covers them. Longer writes are streamed, which spares the cache and is twice as fast;
//!    a drain makes other threads see them.
//!
//! So small writes take one drain. From `THROUGH_CACHE` up a second drain follows, for the bytes in
//! place, and from 2 KiB up a third. If step 2 waited for the checkpoint, reads would need an
//! index. The checkpoint would also have to read the log, but the caller's buffer is at hand now.
//!
//! Checkpoint, when a lane is full: all lanes stop, and the bytes that went through the cache are
//! flushed, range by range. Drain: before the mark. The mark rises. Drain: before the logs are used
//! again. Bytes in place that are not durable are only in the cache, so any thread can flush them.
//! This thread's drain would not complete flushes of other threads, but there are none.
//!
//! Recovery: all records above the mark are stored in place again, in the order of their numbers.
//!
//! May import `parts`, `memory` and `subject`.

use super::parts::ground::Ground;
use super::parts::journal::Journal;
use super::parts::pages::{Pages, Parts};
use super::parts::record::{self, Record};
use crate::memory::Memory;
use crate::subject::{Kind, Subject};
use std::io;
use std::path::Path;

/// The system with logs as large as measured.
pub const REDO_LOG: Kind = Kind {
    name: "redo log",
    source: "Libnvmmio 2.2.2",
    durable_writes: true,
    open: |folder, len| Ok(Box::new(RedoLog::open(folder, len, 4 << 20)?)),
};

/// The system with logs that are soon full.
pub const TIGHT: Kind = Kind {
    name: "redo log, tight",
    open: |folder, len| Ok(Box::new(RedoLog::open(folder, len, (1 << 20) + 4096)?)),
    ..REDO_LOG
};

/// Longest write that is stored in place through the cache.
const THROUGH_CACHE: usize = 512;

/// The key of a record with several parts. Each part follows its offset and its length.
const SEVERAL: u64 = u64::MAX;
const NAMED: usize = 16;

#[derive(Debug)]
struct RedoLog {
    memory: Memory,
    pages: Pages,
    journal: Journal<()>,
}

/// Calls `f` with the offset, the offset in the log, and the length of each part.
fn each_part(memory: &Memory, record: &Record, mut f: impl FnMut(u64, u64, usize)) {
    if record.key != SEVERAL {
        return f(record.key, record.at, record.len);
    }
    let end = record.at + record.len as u64;
    let mut at = record.at;
    while at < end {
        let (offset, len) = (memory.load_word(at), memory.load_word(at + 8) as usize);
        at += NAMED as u64;
        f(offset, at, len);
        at += len.next_multiple_of(8) as u64;
    }
}

impl RedoLog {
    fn open(folder: &Path, len: u64, room: u64) -> io::Result<RedoLog> {
        let mut ground = Ground::below(len);
        let logs = ground.take(Journal::<()>::takes(room));
        let memory = ground.open(folder, "redo-log")?;
        let journal = Journal::open(&memory, logs, room, |record| {
            each_part(&memory, record, |offset, at, len| record::copy(&memory, at, offset, len));
        });
        Ok(RedoLog { memory, pages: Pages::new(len), journal })
    }

    /// Flushes the bytes of a record that are only in the cache.
    fn settle(&self, record: &Record) {
        each_part(&self.memory, record, |offset, _, len| {
            if len <= THROUGH_CACHE {
                self.memory.flush(offset, len);
            }
        });
    }

    fn place(&self, parts: &Parts<'_>) {
        let mut streamed = false;
        for (offset, data) in parts {
            if data.len() <= THROUGH_CACHE {
                self.memory.store_cached(data, *offset);
            } else {
                self.memory.store(data, *offset);
                streamed = true;
            }
        }
        if streamed {
            // Orders the streamed bytes before other threads may read them. The journal's mark,
            // which another thread raises, also needs this drain.
            self.memory.drain();
        }
    }
}

impl Subject for RedoLog {
    fn write(&self, data: &[u8], offset: u64) {
        let mut writer = self.journal.begin(&self.memory, data.len(), |record| self.settle(record));
        let parts = [(offset, data)];
        let _closed = self.pages.close_parts(&parts);
        writer.commit(&self.memory, offset, data);
        self.place(&parts);
    }

    fn read(&self, to: &mut [u8], offset: u64) {
        self.pages.read(offset, to.len(), || self.memory.load(to, offset));
    }

    fn transact(&self, parts: &[(u64, &[u8])]) -> bool {
        let len = parts.iter().map(|(_, data)| NAMED + data.len().next_multiple_of(8)).sum();
        let mut writer = self.journal.begin(&self.memory, len, |record| self.settle(record));
        let mut body = std::mem::take(&mut writer.lane.body);
        body.clear();
        for (offset, data) in parts {
            body.extend_from_slice(&offset.to_le_bytes());
            body.extend_from_slice(&(data.len() as u64).to_le_bytes());
            body.extend_from_slice(data);
            body.resize(body.len().next_multiple_of(8), 0);
        }
        let _closed = self.pages.close_parts(parts);
        writer.commit(&self.memory, SEVERAL, &body);
        self.place(parts);
        writer.lane.body = body;
        true
    }

    fn written(&self) -> Option<u64> {
        Some(self.memory.written())
    }
}
