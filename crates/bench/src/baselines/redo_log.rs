//! Redo log of data, with checkpoints: the new bytes count when they are in the log.
//!
//! From: Libnvmmio, section 2.2.2 (what a redo log is, and that its second copy may come later); RMMIO,
//! section III-D, calls it the write-ahead log that others have.
//!
//! A write, with its pages closed:
//! 1. the new bytes go to the lane's log, checksummed. Drain: the commit point. (More than 2 KiB: the
//!    bytes, a drain, and the record's head.)
//! 2. The bytes go into place at once, so reads need no index. Up to [`THROUGH_CACHE`] bytes go through
//!    the cache and are not flushed: others see them in order, and the record covers them. More is
//!    streamed, which leaves the cache alone and is twice as fast; a drain makes others see it.
//!
//! So one drain for small writes; from `THROUGH_CACHE` up another, of the bytes in place, and from 2 KiB
//! up a third. To wait with step 2 until the checkpoint would need an index for reads, and would read the
//! log again: the caller's buffer is at hand now.
//!
//! Checkpoint, when a lane is full: all lanes stop; what went through the cache is flushed, range by
//! range; drain: before the mark; the mark rises; drain: before the logs are used again. What is in place
//! and not durable is in the cache only, so flushes by any thread do. Flushes that another thread had
//! begun would not be completed by this one's drain: there are none.
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

/// With logs as large as measured.
pub const REDO_LOG: Kind = Kind {
    name: "redo log",
    source: "Libnvmmio 2.2.2",
    durable_writes: true,
    open: |folder, len| Ok(Box::new(RedoLog::open(folder, len, 4 << 20)?)),
};

/// With logs that are soon full.
pub const TIGHT: Kind = Kind {
    name: "redo log, tight",
    open: |folder, len| Ok(Box::new(RedoLog::open(folder, len, (1 << 20) + 4096)?)),
    ..REDO_LOG
};

/// What goes into place through the cache.
const THROUGH_CACHE: usize = 512;

/// The key of a record with several parts: each has its place and its length before it.
const SEVERAL: u64 = u64::MAX;
const NAMED: usize = 16;

#[derive(Debug)]
struct RedoLog {
    memory: Memory,
    pages: Pages,
    journal: Journal<()>,
}

/// Calls `f` with place, place in the log, and length of each part.
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

    /// Flushes what a record's operation has left in the cache.
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
            // What was streamed, before others may read it. And the journal's mark, which another thread
            // raises, relies on it.
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
