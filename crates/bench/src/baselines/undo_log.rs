//! An undo log of data: it keeps the old bytes until the new ones are durable.
//!
//! From: Libnvmmio, section 2.2.2 (undo logs, with reads directly from the data). The logging half
//! of ADL is this protocol as well.
//!
//! A write, with its pages locked:
//! 1. The old bytes go to the lane's record, with a checksum. Drain: before the first new byte.
//!    Without it a crash could leave a mixture and no record to undo it. More than 2 KiB take the
//!    bytes, a drain, and the record's head, because a checksum of the bytes would take longer.
//! 2. The new bytes are stored in place. Drain: before the record is invalidated. Without it a
//!    crash could keep a part of them.
//! 3. One word invalidates the record. Drain: the commit point. It also comes before the next
//!    record, which overwrites this one.
//!
//! So a write takes three drains, and four from 2 KiB up. The entry and its commit mark are one
//! record under one checksum. Records have numbers, so they need not be cleared. The third drain
//! cannot wait for the next operation: until then a crash takes the write back.
//!
//! Recovery: it stores back each lane's record with a number above the lane's word.
//!
//! May import `parts`, `memory` and `subject`.

use super::parts::ground::Ground;
use super::parts::pages::{Pages, Parts};
use super::parts::undo::Undo;
use crate::memory::Memory;
use crate::subject::{Kind, Subject};
use std::io;
use std::path::Path;

/// The system with logs as large as measured.
pub const UNDO_LOG: Kind = Kind {
    name: "undo log",
    source: "Libnvmmio 2.2.2",
    durable_writes: true,
    open: |folder, len| Ok(Box::new(UndoLog::open(folder, len)?)),
};

/// Most bytes that one operation may overwrite.
const ROOM: u64 = 4 << 20;

#[derive(Debug)]
struct UndoLog {
    memory: Memory,
    pages: Pages,
    undo: Undo<()>,
}

impl UndoLog {
    fn open(folder: &Path, len: u64) -> io::Result<UndoLog> {
        let mut ground = Ground::below(len);
        let logs = ground.take(Undo::<()>::takes(ROOM));
        let memory = ground.open(folder, "undo-log")?;
        let undo = Undo::open(&memory, logs, ROOM);
        Ok(UndoLog { memory, pages: Pages::new(len), undo })
    }

    fn commit(&self, parts: &Parts<'_>) {
        let memory = &self.memory;
        let mut writer = self.undo.begin();
        let _closed = self.pages.close_parts(parts);
        writer.keep(memory, parts.iter().map(|(offset, data)| (*offset, data.len())));
        for (offset, data) in parts {
            memory.store(data, *offset);
        }
        // Orders the new bytes before the word that invalidates the old ones, and before other
        // threads may read them.
        memory.drain();
        writer.done(memory);
    }
}

impl Subject for UndoLog {
    fn write(&self, data: &[u8], offset: u64) {
        self.commit(&[(offset, data)]);
    }

    fn read(&self, to: &mut [u8], offset: u64) {
        self.pages.read(offset, to.len(), || self.memory.load(to, offset));
    }

    fn transact(&self, parts: &[(u64, &[u8])]) -> bool {
        self.commit(parts);
        true
    }

    fn written(&self) -> Option<u64> {
        Some(self.memory.written())
    }
}
