//! Undo log of data: the old bytes are kept until the new ones are durable.
//!
//! From: Libnvmmio, section 2.2.2 (what an undo log is, and that its reads go straight to the data); the
//! same way is the half of ADL that logs.
//!
//! A write, with its pages closed:
//! 1. the old bytes go to the lane's record, checksummed. Drain: before the first new byte, or a crash
//!    leaves a mixture and nothing to undo it with. (More than 2 KiB: the bytes, a drain, and the
//!    record's head; a checksum of them would take longer.)
//! 2. The new bytes go into place. Drain: before the record is forgotten, or a crash keeps a part of them.
//! 3. One word forgets the record. Drain: the commit point; and before the next record goes over it.
//!
//! So three drains, four from 2 KiB up. The entry and its commit mark are one record under one checksum;
//! a record's number makes clearing it needless. The third drain cannot be left to the next operation:
//! until then a crash takes the write back.
//!
//! Recovery: each lane's record with a number above the lane's word is stored back.
//!
//! May import `parts`, `memory` and `subject`.

use super::parts::ground::Ground;
use super::parts::pages::{Pages, Parts};
use super::parts::undo::Undo;
use crate::memory::Memory;
use crate::subject::{Kind, Subject};
use std::io;
use std::path::Path;

/// With logs as large as measured.
pub const UNDO_LOG: Kind = Kind {
    name: "undo log",
    source: "Libnvmmio 2.2.2",
    durable_writes: true,
    open: |folder, len| Ok(Box::new(UndoLog::open(folder, len)?)),
};

/// Bytes that one operation may go over.
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
        // The new bytes before the word that forgets the old ones, and before others may read them.
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
