//! How a store is made, and found again.
//!
//! Owns: the reading of a file that a crash may have left, before the session. Order of an opening:
//! 1. [`Store::open`] reads tables and records, flushes what it has found, and changes nothing. So
//!    a reader can open a store.
//! 2. The caller drains or syncs: what was found may have been in a cache only. The session may now
//!    rely on it, and the other copy of the table may be stored to.
//! 3. [`Store::begin`] stores the table with the new session.
//! 4. The caller drains or syncs: no segment is begun under a session that a power loss may take
//!    back, since the next opening would have it again.
//!
//! May import the rest of `pair::snapshots`, `mmap`, `pair::space`, `format::snapshots`, `error`,
//! `platform`, `units`, and the planted bugs.

use super::append::Cursors;
use super::index::{Index, Kept, RecordAt};
use super::segments::Segments;
use super::{Store, damaged};
use crate::error::{Error, Result, SYNC_OF_LENGTH};
use crate::format::snapshots::segment::{SEGMENT_HEADER, SegmentHeader, records};
use crate::format::snapshots::table::Table;
use crate::format::snapshots::{SEGMENT, SEGMENTS, SegmentIndex, TABLES_END};
use crate::mmap::MappedFile;
use crate::mutant::unless;
use crate::pair::space::{allocation_error, storage_error};
use crate::primitive::{AtomicBool, Mutex};
use crate::units::{CHUNK, SLICE};
use std::ops::Range;

impl Store {
    /// Makes an empty store in a file that was just made. `session` is the pair's. The caller makes
    /// the file durable before it has its name, and before anything is appended.
    pub fn create(file: MappedFile, uuid: [u8; 16], session: u64) -> Result<Store> {
        let (generation, highest, rollback, entries) = (0, 0, 0, Vec::new());
        let none = Table { uuid, generation, highest, opening: 0, rollback, entries };
        let store = Store::new(file, none, 0);
        store.begin(session)?;
        Ok(store)
    }

    /// Opens a store that was found. Changes nothing, and flushes all that it has found: the caller
    /// drains or syncs. Then it may call [`begin`](Self::begin).
    pub fn open(file: MappedFile, uuid: [u8; 16]) -> Result<Store> {
        let start = read(&file, 0..TABLES_END)?;
        let table = Table::newest(&start, &uuid).ok_or_else(|| damaged(&file, 0))?;
        let (at, len) = (table.place(), table.encode().len() as u64);
        flush(&file, at..at + len);
        let count = SegmentIndex::count(file.len());
        let mut store = Store::new(file, table, count);
        for segment in (0..count).map(SegmentIndex) {
            store.find_segment(segment)?;
        }
        Ok(store)
    }

    fn new(file: MappedFile, table: Table, count: u32) -> Store {
        Store {
            uuid: table.uuid,
            table: Mutex::new(table),
            cursors: Cursors::new(),
            index: Index::new(),
            segments: Mutex::new(Segments::new(count)),
            collecting: Mutex::new(()),
            // Everything that was found may be in a cache only.
            unsynced: AtomicBool::new(true),
            damage: None,
            file,
        }
    }

    /// Reads a segment, and notes and flushes its records.
    fn find_segment(&mut self, segment: SegmentIndex) -> Result<()> {
        let start = segment.start();
        let header = read(&self.file, start..start + SEGMENT_HEADER as u64)?;
        let Some(header) = SegmentHeader::decode(&self.uuid, segment, &header) else {
            return Ok(());
        };
        let Table { opening, highest, .. } = *self.table.get_mut();
        if header.opening > opening {
            self.damage.get_or_insert(start);
            return Ok(());
        }
        let bytes = read(&self.file, start..start + SEGMENT as u64)?;
        let mut end = None;
        for (at, record) in records(header.seed(&self.uuid, segment), &bytes) {
            let (offset, next) = (start + at as u64, start + (at + record.len()) as u64);
            if record.epoch > highest {
                self.damage.get_or_insert(offset);
                continue;
            }
            let kept = Kept { epoch: record.epoch, mask: record.mask, at: RecordAt(offset) };
            self.index.add(record.page, kept);
            end = Some(next);
        }
        if let Some(end) = end {
            self.segments.get_mut().close(segment);
            self.fill_holes(start..end)?;
            unless!(FoundRecordsNotFlushed, flush(&self.file, start..end));
        }
        Ok(())
    }

    /// Makes sure that no load of the range through the mapping goes to a hole. A copy of the file
    /// may have holes where it has zeroes.
    fn fill_holes(&self, range: Range<u64>) -> Result<()> {
        let Range { start, end } = range;
        let hole = self.file.next_hole(start);
        let hole = hole.map_err(|e| Error::io_at("look for holes", self.file.path(), start, e))?;
        // The end of the file counts as a hole, and no record goes over it.
        if hole < end {
            let allocated = self.file.allocate(start, end - start);
            allocated.map_err(|e| allocation_error(&self.file, start, end - start, e))?;
        }
        Ok(())
    }

    /// Begins a session of the pair: stores its number to the table, which is higher than those
    /// before. Everything that was found is durable. The caller makes the new table durable before
    /// the first append.
    pub fn begin(&self, session: u64) -> Result<()> {
        let len = self.file.len();
        let end = len.max(SEGMENTS).next_multiple_of(CHUNK as u64);
        if end != len {
            let longer = self.file.set_len(end);
            longer.map_err(|e| storage_error("set the length", &self.file, len, end - len, e))?;
            if self.file.drains_are_durable() {
                // Orders the file's length before the first drain of bytes in there.
                let synced = self.file.sync_all();
                synced.map_err(|e| Error::io(SYNC_OF_LENGTH, self.file.path(), e))?;
            }
        }
        let allocated = self.file.allocate(0, TABLES_END);
        allocated.map_err(|e| allocation_error(&self.file, 0, TABLES_END, e))?;
        self.segments.lock().begin(session, SegmentIndex::count(end));
        self.change_table(|table| {
            assert!(session > table.opening, "no two openings have one number");
            unless!(OpeningNumberKept, table.opening = session);
            Ok(())
        })
    }
}

/// Reads a range of the file, not through the mapping: it may lie in a hole or past the end, and
/// reads as zeroes there.
fn read(file: &MappedFile, range: Range<u64>) -> Result<Vec<u8>> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    let whole = file.read_file(&mut bytes, range.start);
    whole.map_err(|e| Error::io_at("read the snapshot store", file.path(), range.start, e))?;
    Ok(bytes)
}

/// Starts the write-back of each line of the range. The caller's next drain completes it.
fn flush(file: &MappedFile, range: Range<u64>) {
    if !file.is_private() {
        range.step_by(SLICE).for_each(|at| file.flush_word(at));
    }
}
