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
//! 5. The superblock of the session is made durable. Then [`Store::confirm`] says so in the table,
//!    and the caller drains or syncs.
//!
//! May import the rest of `pair::snapshots`, `mmap`, `pair::space`, `format::snapshots`, `error`,
//! `platform`, `units`, and the planted bugs.

use super::append::Cursors;
use super::index::{Index, Kept, RecordAt};
use super::segments::Segments;
use super::{Store, damaged};
use crate::error::{Error, Result, SYNC_OF_LENGTH};
use crate::format::le_word;
use crate::format::snapshots::segment::{Record, SEGMENT_HEADER, SegmentHeader, end_word, records};
use crate::format::snapshots::table::Table;
use crate::format::snapshots::{SEGMENTS, SegmentIndex, TABLES_END};
use crate::mmap::MappedFile;
use crate::mutant::{planted, unless};
use crate::pair::space::{allocation_error, storage_error};
use crate::primitive::{AtomicBool, Mutex};
use crate::units::{CHUNK, ChunkIndex, SLICE};
use std::ops::Range;

/// The findings in the segments that the table does not have.
#[derive(Default)]
struct Seen {
    /// The number of segments that are whole up to their end.
    ended: u64,
    /// The highest epoch that the table does not know.
    epoch: u64,
    /// The highest opening that the table does not know.
    opening: u64,
}

/// A part of the file that has storage.
#[derive(Default)]
struct Data {
    /// A range without a hole. Empty where the file system does not tell.
    known: Range<u64>,
    /// The end of what was asked for in advance.
    ahead: u64,
}

impl Data {
    /// Returns the first segment, from `from` on, of which a byte has storage. Every byte counts as
    /// one where the file system does not tell.
    fn next_segment(
        &mut self,
        file: &MappedFile,
        from: SegmentIndex,
    ) -> Result<Option<SegmentIndex>> {
        let at = from.start();
        if self.known.contains(&at) {
            return Ok(Some(from));
        }
        let io = |call| move |e| Error::io_at(call, file.path(), at, e);
        let data = file.next_data(at).map_err(io("look for data"))?;
        let Some(data) = data.map(|data| data.max(at)).filter(|data| *data < file.len()) else {
            return Ok(None);
        };
        self.known = data..file.next_hole(data).map_err(io("look for holes"))?;
        Ok(Some(SegmentIndex::of(data)))
    }

    /// Asks for the chunk of a segment and the one after it, as far as there are no holes. The
    /// kernel itself reads nothing ahead: see [`MappedFile::expect_random`].
    fn read_ahead(&mut self, file: &MappedFile, segment: SegmentIndex) {
        let from = segment.start().max(self.ahead);
        let chunk = ChunkIndex::of(segment.start()).end();
        let end = self.known.end.min(chunk.saturating_add(CHUNK as u64));
        if self.known.contains(&from) && self.ahead < end {
            file.will_need(from, end.saturating_sub(from));
            self.ahead = end;
        }
    }
}

impl Store {
    /// Makes an empty store in a file that was just made. `number` and `stamp` are those of the
    /// pair's session. The caller makes the file durable before it has its name, and before
    /// anything is appended.
    pub fn create(file: MappedFile, uuid: [u8; 16], number: u64, stamp: u64) -> Result<Store> {
        let store = Store::new(file, Table { uuid, ..Table::default() }, 0);
        store.begin(number, stamp, stamp)?;
        Ok(store)
    }

    /// Opens a store that was found. Changes nothing, and flushes all that it has found: the caller
    /// drains or syncs. Then it may call [`begin`](Self::begin).
    pub fn open(file: MappedFile, uuid: [u8; 16]) -> Result<Store> {
        let start = read(&file, 0..TABLES_END)?;
        let table = Table::newest(&start, &uuid).ok_or_else(|| damaged(&file, 0))?;
        let (at, len) = (table.place(), table.encode().len() as u64);
        flush(&file, at..at.saturating_add(len));
        let count = SegmentIndex::count(file.len());
        let mut store = Store::new(file, table, count);
        let (mut seen, mut data, mut map) = (Seen::default(), Data::default(), SegmentIndex(0));
        // Holes are skipped, so the work is bounded by what the file has storage for.
        while let Some(found) = data.next_segment(&store.file, map)? {
            store.find_group(found.map(), count, &mut data, &mut seen)?;
            map = found.next_map();
        }
        store.judge(&seen);
        Ok(store)
    }

    fn new(file: MappedFile, table: Table, count: u32) -> Store {
        Store {
            uuid: table.uuid,
            doubt: (table.doubted, table.damage),
            table: Mutex::new(table),
            cursors: Cursors::new(),
            index: Index::new(),
            segments: Mutex::new(Segments::new(count)),
            collecting: Mutex::new(None),
            wanted: AtomicBool::new(false),
            // Everything that was found may be in a cache only.
            unsynced: AtomicBool::new(true),
            damage: None,
            lost: Vec::new(),
            file,
        }
    }

    /// Reads a map, and those segments of its group that have storage or an end. `count` is the
    /// number of all segments.
    fn find_group(
        &mut self,
        map: SegmentIndex,
        count: u32,
        data: &mut Data,
        seen: &mut Seen,
    ) -> Result<()> {
        let has_words = data.next_segment(&self.file, map)? == Some(map);
        let words = if has_words { read(&self.file, map.start()..map.end())? } else { Vec::new() };
        let ends = (map.0..).zip(words.chunks_exact(8).map(le_word)).skip(1);
        let mut ends = ends.filter(|(_, word)| *word != 0).peekable();
        let mut next = map.next();
        loop {
            let there = data.next_segment(&self.file, next)?;
            let with_end = ends.peek().map(|(n, _)| SegmentIndex(*n));
            let first = there.into_iter().chain(with_end).min();
            let Some(segment) = first.filter(|first| first.map() == map) else { return Ok(()) };
            let word = ends.next_if(|(n, _)| *n == segment.0).map_or(0, |(_, word)| word);
            if word != 0 {
                let at = segment.end_word_at();
                flush(&self.file, at..at.saturating_add(1));
            }
            if segment.0 < count {
                data.read_ahead(&self.file, segment);
                self.find_segment(segment, word, seen)?;
            } else if word != 0 {
                let end = self.file.len();
                self.lose(segment, end);
            }
            next = segment.next();
        }
    }

    /// Reads a segment, and notes and flushes its records. `word` is that of its end, or 0. A
    /// segment without an end has all records up to the first one that is not whole.
    fn find_segment(&mut self, segment: SegmentIndex, word: u64, seen: &mut Seen) -> Result<()> {
        let start = segment.start();
        let header = read(&self.file, start..start.saturating_add(SEGMENT_HEADER as u64))?;
        let Some(header) = SegmentHeader::decode(&self.uuid, segment, &header) else {
            if word != 0 && !planted!(LostHeaderIgnored) {
                self.lose_segment(segment, start);
            }
            return Ok(());
        };
        let Table { opening, highest, .. } = *self.table.get_mut();
        if header.opening > opening {
            seen.opening = seen.opening.max(header.opening);
            self.lose_segment(segment, start);
            return Ok(());
        }
        let (bytes, seed) =
            (read(&self.file, start..segment.end())?, header.seed(&self.uuid, segment));
        let found: Vec<(usize, Record)> = records(seed, &bytes).collect();
        let end = found.last().map_or(SEGMENT_HEADER, |(at, last)| at.saturating_add(last.len()));
        let from_start = |at: usize| start.saturating_add(at as u64);
        if word != 0 && word != end_word(seed, end) && !planted!(EndNotCompared) {
            let is_whole = word == end_word(seed, word as u32 as usize);
            self.lose_segment(
                segment,
                if is_whole { from_start(end) } else { segment.end_word_at() },
            );
            return Ok(());
        }
        seen.ended = seen.ended.saturating_add(u64::from(word != 0));
        for (at, record) in &found {
            let offset = from_start(*at);
            if record.epoch > highest {
                seen.epoch = seen.epoch.max(record.epoch);
                self.damage.get_or_insert(offset);
                continue;
            }
            let kept = Kept { epoch: record.epoch, mask: record.mask, at: RecordAt(offset) };
            self.index.add(record.page, kept);
        }
        if !found.is_empty() {
            let segments = self.segments.get_mut();
            match word {
                0 => segments.fill(segment, end_word(seed, end), None),
                _ => segments.close(segment),
            }
            let end = from_start(end);
            self.fill_holes(start..end)?;
            unless!(FoundRecordsNotFlushed, flush(&self.file, start..end));
        }
        Ok(())
    }

    /// Notes that a segment lacks something that it had. Nothing in it counts.
    fn lose_segment(&mut self, segment: SegmentIndex, offset: u64) {
        self.segments.get_mut().close(segment);
        self.lose(segment, offset);
    }

    fn lose(&mut self, segment: SegmentIndex, offset: u64) {
        self.damage.get_or_insert(offset);
        self.lost.push(segment);
    }

    /// Doubts all snapshots that were sealed, if there is damage. The numbers of openings and
    /// snapshots go on after all that were seen.
    fn judge(&mut self, seen: &Seen) {
        let table = self.table.get_mut();
        if table.closed != 0
            && table.closed != seen.ended.saturating_add(1)
            && !planted!(EndsNotCounted)
        {
            self.damage.get_or_insert(SEGMENTS);
        }
        if let Some(offset) = self.damage {
            table.highest = table.highest.max(seen.epoch);
            table.opening = table.opening.max(seen.opening);
            (table.doubted, table.damage) = (table.highest, offset);
            self.doubt = (table.doubted, table.damage);
        }
    }

    /// Makes sure that no load of the range through the mapping goes to a hole. A copy of the file
    /// may have holes where it has zeroes.
    fn fill_holes(&self, range: Range<u64>) -> Result<()> {
        let Range { start, end } = range;
        let hole = self.file.next_hole(start);
        let hole = hole.map_err(|e| Error::io_at("look for holes", self.file.path(), start, e))?;
        // The end of the file counts as a hole, and no record goes over it.
        if hole < end {
            let len = end.saturating_sub(start);
            let allocated = self.file.allocate(start, len);
            allocated.map_err(|e| allocation_error(&self.file, start, len, e))?;
        }
        Ok(())
    }

    /// Begins a session of the pair: stores its number to the table, which is higher than those
    /// before, with the stamps of the session that `had` the store and of the `next` one.
    ///
    /// Everything that was found is durable. The caller makes the new table durable before the
    /// first append.
    pub fn begin(&self, number: u64, had: u64, next: u64) -> Result<()> {
        let len = self.file.len();
        let end = len.max(SEGMENTS).next_multiple_of(CHUNK as u64);
        if end != len {
            let longer = self.file.set_len(end);
            let more = end.saturating_sub(len);
            longer.map_err(|e| storage_error("set the length", &self.file, len, more, e))?;
            if self.file.drains_are_durable() {
                // Orders the file's length before the first drain of bytes in there.
                let synced = self.file.sync_all();
                synced.map_err(|e| Error::io(SYNC_OF_LENGTH, self.file.path(), e))?;
            }
        }
        let allocated = self.file.allocate(0, TABLES_END);
        allocated.map_err(|e| allocation_error(&self.file, 0, TABLES_END, e))?;
        self.segments.lock().begin(&self.file, number, SegmentIndex::count(end), &self.lost)?;
        self.announce(number, had, next)
    }

    /// Stores a further number of the session, and the stamps.
    pub fn announce(&self, number: u64, had: u64, next: u64) -> Result<()> {
        self.change_table(|table| {
            assert!(number > table.opening, "no two openings have one number");
            unless!(OpeningNumberKept, table.opening = number);
            (table.session, table.next, table.closed) = (had, next, 0);
            Ok(())
        })
    }

    /// Says in the table that the announced session has begun. Its superblock is durable, and so is
    /// all that was stored to the store. The caller makes the table durable before the session
    /// changes anything, and repeats it.
    pub fn confirm(&self) -> Result<()> {
        // The table that doubts the snapshots is durable. Without their ends, these segments are
        // free at the next collection.
        self.segments.lock().clear_ends(&self.file, &self.lost);
        self.change_table(|table| {
            unless!(SessionNotConfirmed, table.session = table.next);
            Ok(())
        })
    }
}

/// Reads a range of the file, not through the mapping: it may lie in a hole or past the end, and
/// reads as zeroes there.
fn read(file: &MappedFile, range: Range<u64>) -> Result<Vec<u8>> {
    let mut bytes = vec![0; range.end.saturating_sub(range.start) as usize];
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
