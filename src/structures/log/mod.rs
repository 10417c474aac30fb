//! Logs: records of any length, appended at the end and dropped at either end.
//!
//! Owns: what callers call, and what it does to head and segments.
//!
//! Invariant (`docs/structures.md`): Q6 an append changes no byte of a record. So a read that finds
//! the generation unchanged afterwards has read one state.
//!
//! May import `blocks`, `meta`, `space`, `directory` and the room's helpers.

pub(in crate::structures) mod blocks;
pub(in crate::structures) mod meta;

use super::directory::Directory;
use super::{Source, check_transaction, error, space};
use crate::api::file::AtomicMappedFile;
use crate::api::transaction::Transaction;
use crate::error::{Error, Result, StructureError};
use crate::mutant::{planted, unless};
use blocks::{Blocks, Writer};
use meta::{
    BLOCK, DATA, Head, MOST, MOST_SEGMENTS, NO_LIMIT, RECORD_HEADER, SEGMENTS, Segment, Segments,
};
use std::fmt;
use std::ops::Range;

/// Bytes of the longest record.
const LONGEST_RECORD: u64 = u32::MAX as u64;
/// Blocks of the shortest segment, unless the limit leaves fewer.
const FEWEST_BLOCKS: u64 = 4;
/// A new segment doubles the log up to this many blocks: 1 MiB. So few appends have to read the
/// lists of all logs, and conflict with the other appends that do.
const DOUBLED_BLOCKS: u64 = 256;
/// A new segment has at least this part of all blocks of the log. So a log of any length has few
/// segments, and a truncation at the front leaves at most one in eight bytes of a long log unused.
const PART_OF_LOG: u64 = 8;

/// An append-only log of records of any length, numbered in order.
///
/// [`Roots::log`](crate::Roots::log) makes and opens it. Appending is one atomic operation,
/// whatever the number of records. After it has returned, a process crash does not take the records
/// back; [`sync`](AtomicMappedFile::sync) makes them durable. The log takes space as it grows, and
/// gives it back when records are dropped, at the end or at the beginning.
///
/// A method with a name that ends in `_in` takes a transaction, so that a log changes together with
/// other values. The method without the ending runs a transaction of its own.
///
/// There is no index to rebuild: opening reads one page. A search for a record reads one block
/// header for each doubling of the log's length, and one block of 4 KiB.
///
/// Any number of threads may append and read at the same time. Reads do not wait for appends.
///
/// ```
/// # let dir = atomic_mmap::doctest_dir();
/// use atomic_mmap::{AtomicMappedFile, Roots};
///
/// let roots = Roots::open(AtomicMappedFile::create(dir.path().join("node.dat"), 0)?)?;
/// let log = roots.log("raft")?;
/// assert_eq!(log.append(&["set x = 1", "set y = 2"])?, 0); // the first one's number
/// assert_eq!(log.get(1)?.as_deref(), Some(&b"set y = 2"[..]));
///
/// // An entry and a vote, together.
/// let term = roots.get_or_insert::<u64>("term")?.offset();
/// roots.file().transact(|tx| {
///     tx.store(term, &7_u64)?;
///     log.append_in(tx, &["set z = 3"])
/// })?;
///
/// log.truncate_back(2)?; // drops record 2
/// log.truncate_front(1)?; // drops record 0
/// assert_eq!(log.range()?, 1..2);
/// roots.file().sync()?;
/// # Ok::<(), atomic_mmap::Error>(())
/// ```
pub struct Log {
    file: AtomicMappedFile,
    /// Where the directory is, which the log gets its space from.
    roots: u64,
    /// Where the head is.
    at: u64,
    id: u64,
}

impl Log {
    /// Returns the log with its head at `at`. `roots` is the offset of the directory.
    pub(in crate::structures) fn new(file: AtomicMappedFile, roots: u64, at: u64, id: u64) -> Log {
        Log { file, roots, at, id }
    }

    /// Returns the file of the log.
    pub fn file(&self) -> &AtomicMappedFile {
        &self.file
    }

    /// Returns another handle to the same log.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::try_clone`].
    pub fn try_clone(&self) -> Result<Log> {
        Ok(Log { file: self.file.try_clone()?, ..*self })
    }

    /// Appends records, in one atomic operation. Returns the number of the first one. The others
    /// have the numbers after it. Without records, returns the number of the next one.
    ///
    /// Changes the page of the log's head, and the bytes behind the log's end: two pages for a
    /// short record.
    ///
    /// # Errors
    /// [`Error::Structure`]: `Full` past the [limit](Self::set_limit), `RecordTooLong` past 4 GiB,
    /// `Removed`, or `Damaged`. Those of [`Transaction::commit`] except the conflict, and those of
    /// [`AtomicMappedFile::set_len`] if the file must grow. As with every commit, nothing was then
    /// appended.
    pub fn append(&self, records: &[impl AsRef<[u8]>]) -> Result<u64> {
        self.file.transact(|tx| self.append_in(tx, records))
    }

    /// Appends records when the transaction commits. Otherwise as [`append`](Self::append).
    ///
    /// # Errors
    /// Those of [`append`](Self::append). [`Error::Conflict`]. [`Error::Structure`] with
    /// `OtherFile` if the transaction belongs to another file.
    pub fn append_in(&self, tx: &mut Transaction<'_>, records: &[impl AsRef<[u8]>]) -> Result<u64> {
        let mut head = self.begin(tx)?;
        let first = head.next.get();
        let mut bytes = 0_u64;
        for record in records {
            let len = record.as_ref().len() as u64;
            if len > LONGEST_RECORD {
                let why = StructureError::RecordTooLong { len, longest: LONGEST_RECORD };
                return Err(error(&self.file, self.at, why));
            }
            bytes = bytes.saturating_add(RECORD_HEADER).saturating_add(len);
        }
        if records.is_empty() {
            return Ok(first);
        }
        let count = records.len() as u64;
        let next = first.checked_add(count).ok_or_else(|| {
            let (what, limit) = ("numbers of records", u64::MAX.saturating_sub(first));
            error(&self.file, self.at, StructureError::Full { what, needed: count, limit })
        })?;
        let end = head.end.get().saturating_add(bytes);
        if end >= MOST {
            // No opening would accept the head.
            let (what, limit) = ("positions of a log", MOST.saturating_sub(head.end.get()));
            return Err(error(
                &self.file,
                self.at,
                StructureError::Full { what, needed: bytes, limit },
            ));
        }
        let old = head.last;
        let missing = end.div_ceil(DATA).saturating_sub(old.blocks().end);
        if missing > 0 {
            head.last = self.add_segment(tx, &head, missing)?;
        }
        let segments = [old, head.last];
        let mut writer = Writer::new(self.id, head.end.get(), &segments);
        for (seq, record) in (first..).zip(records) {
            writer.put(tx, seq, record.as_ref())?;
        }
        writer.flush(tx)?;
        (head.next, head.end) = (next.into(), end.into());
        head.store(tx, self.at)?;
        Ok(first)
    }

    /// Allocates a segment of at least `missing` blocks, behind the last one.
    fn add_segment(&self, tx: &mut Transaction<'_>, head: &Head, missing: u64) -> Result<Segment> {
        let mut segments = Segments::load(tx, self.list_at())?;
        let blocks = segments.blocks();
        let limit = head.limit.get() / BLOCK;
        let is_full = blocks.saturating_add(missing) > limit;
        if is_full && !planted!(LimitNotChecked) || segments.len() == MOST_SEGMENTS {
            let (needed, limit) = (missing.saturating_mul(BLOCK), limit.saturating_mul(BLOCK));
            let why = StructureError::Full { what: "bytes of a log", needed, limit };
            return Err(error(&self.file, self.at, why));
        }
        let wanted = blocks.min(DOUBLED_BLOCKS).max(blocks / PART_OF_LOG).max(FEWEST_BLOCKS);
        let mut count = missing.max(wanted.min(limit.saturating_sub(blocks)));
        let mut directory = Directory::load(tx, self.roots)?;
        let offset = loop {
            match space::allocate(&mut directory, tx, count.saturating_mul(BLOCK)) {
                // Near the file's longest length, a half of what is left fits at the least. So few
                // segments reach it.
                Err(Error::TooLong { .. }) if missing < count => count = missing.max(count / 2),
                result => break result?,
            }
        };
        let first = head.last.blocks().end;
        let segment = Segment { offset: offset.into(), first: first.into(), count: count.into() };
        space::raise_high_water(&mut directory, tx, segment.bytes().end)?;
        segments.push(segment);
        segments.store(tx, self.list_at())?;
        Ok(segment)
    }

    /// Returns a copy of record `seq`, or `None` if the log does not have it.
    ///
    /// # Errors
    /// [`Error::Structure`]: `Damaged` with the offset of the record if its checksum is wrong, or
    /// `Removed`. Those of [`AtomicMappedFile::read_at`].
    pub fn get(&self, seq: u64) -> Result<Option<Vec<u8>>> {
        let mut record = Vec::new();
        Ok(self.get_into(seq, &mut record)?.then_some(record))
    }

    /// Copies record `seq` into `record`, in place of its contents. Returns `false` if the log does
    /// not have the record. Saves an allocation.
    ///
    /// # Errors
    /// Those of [`get`](Self::get). `record` then has unspecified contents.
    pub fn get_into(&self, seq: u64, record: &mut Vec<u8>) -> Result<bool> {
        self.read_stable(|file, head| self.read(file, head, seq, record))
    }

    /// Returns a copy of record `seq` as the transaction sees it.
    ///
    /// # Errors
    /// Those of [`get`](Self::get). [`Error::Conflict`]. [`Error::Structure`] with `OtherFile`.
    pub fn get_in(&self, tx: &mut Transaction<'_>, seq: u64) -> Result<Option<Vec<u8>>> {
        let head = self.begin(tx)?;
        let mut record = Vec::new();
        Ok(self.read(tx, &head, seq, &mut record)?.then_some(record))
    }

    fn read(
        &self,
        source: &mut impl Source,
        head: &Head,
        seq: u64,
        record: &mut Vec<u8>,
    ) -> Result<bool> {
        if !(head.first.get()..head.next.get()).contains(&seq) {
            return Ok(false);
        }
        let blocks = Blocks::load(source, self.at, head)?;
        let position = blocks.find(source, seq)?;
        blocks.record(source, position, seq, record)?;
        Ok(true)
    }

    /// Returns the numbers of the records: from the oldest one to before the next one.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn range(&self) -> Result<Range<u64>> {
        let head = Head::load(&mut &self.file, self.at, self.id)?;
        Ok(head.first.get()..head.next.get())
    }

    /// Returns the numbers of the records as the transaction sees them.
    ///
    /// # Errors
    /// Those of [`get_in`](Self::get_in).
    pub fn range_in(&self, tx: &mut Transaction<'_>) -> Result<Range<u64>> {
        let head = self.begin(tx)?;
        Ok(head.first.get()..head.next.get())
    }

    /// Returns an iterator over copies of the records with their numbers, from record `seq` on, or
    /// from the oldest one if that is later.
    ///
    /// The iterator sees records that are appended meanwhile. If records are dropped at the front
    /// before it reaches them, it goes on with the oldest one that is left. After an error it ends.
    pub fn iter_from(&self, seq: u64) -> Records<'_> {
        Records { log: self, seq, known: None, is_over: false }
    }

    /// Drops record `seq` and all newer ones. The next record gets the number `seq`.
    ///
    /// Does nothing if the log has no such records. Drops all of them if `seq` is lower than the
    /// number of the oldest one: the next record then gets that record's number.
    ///
    /// # Errors
    /// [`Error::Structure`]: `Removed` or `Damaged`. Those of [`Transaction::commit`] except the
    /// conflict.
    pub fn truncate_back(&self, seq: u64) -> Result<()> {
        self.file.transact(|tx| self.truncate_back_in(tx, seq))
    }

    /// Drops record `seq` and all newer ones when the transaction commits.
    ///
    /// # Errors
    /// Those of [`truncate_back`](Self::truncate_back). [`Error::Conflict`]. [`Error::Structure`]
    /// with `OtherFile`.
    pub fn truncate_back_in(&self, tx: &mut Transaction<'_>, seq: u64) -> Result<()> {
        let mut head = self.begin(tx)?;
        let seq = seq.max(head.first.get());
        if seq >= head.next.get() {
            return Ok(());
        }
        let end = Blocks::load(tx, self.at, &head)?.find(tx, seq)?;
        (head.next, head.end) = (seq.into(), end.into());
        self.truncated(tx, head)
    }

    /// Drops all records before `seq`. Their space is free for other uses, in whole segments.
    ///
    /// Does nothing if the log has no such records. If `seq` is higher than the number of the next
    /// record, all records are dropped and the next one gets the number `seq`: so a log begins
    /// with any number, or goes on behind a snapshot.
    ///
    /// # Errors
    /// Those of [`truncate_back`](Self::truncate_back).
    pub fn truncate_front(&self, seq: u64) -> Result<()> {
        self.file.transact(|tx| self.truncate_front_in(tx, seq))
    }

    /// Drops all records before `seq` when the transaction commits.
    ///
    /// # Errors
    /// Those of [`truncate_back_in`](Self::truncate_back_in).
    pub fn truncate_front_in(&self, tx: &mut Transaction<'_>, seq: u64) -> Result<()> {
        let mut head = self.begin(tx)?;
        if seq <= head.first.get() {
            return Ok(());
        }
        if seq <= head.next.get() {
            head.start = Blocks::load(tx, self.at, &head)?.find(tx, seq)?.into();
        } else {
            (head.start, head.next) = (head.end, seq.into());
        }
        head.first = seq.into();
        self.truncated(tx, head)
    }

    /// Stores a head after a truncation, and gives segments back.
    fn truncated(&self, tx: &mut Transaction<'_>, mut head: Head) -> Result<()> {
        let mut segments = Segments::load(tx, self.list_at())?;
        let before = segments.len();
        unless!(SegmentsKept, segments.keep(head.start.get(), head.end.get()));
        head.last = segments.last().copied().unwrap_or_else(|| {
            let first = (head.end.get() / DATA).into();
            Segment { offset: 0.into(), first, count: 0.into() }
        });
        if segments.len() != before {
            segments.store(tx, self.list_at())?;
        }
        // Readers that do not take part in the transaction look at it after each read.
        unless!(GenerationKept, head.generation = head.generation.get().wrapping_add(1).into());
        head.store(tx, self.at)
    }

    /// Returns the most bytes that the records may take, or `None` if only the file's
    /// [`max_len`](AtomicMappedFile::max_len) limits them.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn limit(&self) -> Result<Option<u64>> {
        let limit = Head::load(&mut &self.file, self.at, self.id)?.limit.get();
        Ok((limit != NO_LIMIT).then_some(limit))
    }

    /// Sets the most bytes that the records may take, in whole blocks of 4 KiB. The file keeps the
    /// limit. A log that takes more keeps its records, and takes no more space. By default there
    /// is no limit.
    ///
    /// A record takes 8 bytes more than its length, and a block has room for 4080 bytes.
    ///
    /// # Errors
    /// Those of [`truncate_back`](Self::truncate_back).
    pub fn set_limit(&self, limit: Option<u64>) -> Result<()> {
        self.file.transact(|tx| {
            let mut head = self.begin(tx)?;
            head.limit = limit.unwrap_or(NO_LIMIT).into();
            head.store(tx, self.at)
        })
    }

    /// Returns the offset of the list of segments.
    fn list_at(&self) -> u64 {
        self.at.saturating_add(SEGMENTS)
    }

    /// Returns the head as the transaction sees it.
    fn begin(&self, tx: &mut Transaction<'_>) -> Result<Head> {
        check_transaction(tx, &self.file, self.at)?;
        Head::load(tx, self.at, self.id)
    }

    /// Runs `read` on the file as it is now, until no truncation has happened meanwhile. Appends
    /// change no byte that `read` looks at, so readers do not repeat for them.
    fn read_stable<R>(
        &self,
        mut read: impl FnMut(&mut &AtomicMappedFile, &Head) -> Result<R>,
    ) -> Result<R> {
        let mut file = &self.file;
        loop {
            let before = Head::load(&mut file, self.at, self.id)?;
            let result = read(&mut file, &before);
            let after = Head::load(&mut file, self.at, self.id)?;
            // A truncation may have given away what `read` saw, so even an error does not count.
            if before.generation == after.generation {
                return result;
            }
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("offset", &self.at).finish_non_exhaustive()
    }
}

/// An iterator over the records of a [`Log`] with their numbers: see [`Log::iter_from`].
#[derive(Debug)]
pub struct Records<'a> {
    log: &'a Log,
    seq: u64,
    /// The position of record `seq`, and the generation in which it is there.
    known: Option<(u64, u64)>,
    is_over: bool,
}

impl Records<'_> {
    fn advance(&mut self) -> Result<Option<(u64, Vec<u8>)>> {
        let log = self.log;
        let (from, known) = (self.seq, self.known);
        let found = log.read_stable(|file, head| {
            let seq = from.max(head.first.get());
            if seq >= head.next.get() {
                return Ok(None);
            }
            let blocks = Blocks::load(file, log.at, head)?;
            let generation = head.generation.get();
            let position = match known {
                Some((position, of)) if of == generation && seq == from => position,
                _ => blocks.find(file, seq)?,
            };
            let mut record = Vec::new();
            let after = blocks.record(file, position, seq, &mut record)?;
            Ok(Some((seq, record, (after, generation))))
        })?;
        Ok(found.map(|(seq, record, known)| {
            (self.seq, self.known) = (seq.saturating_add(1), Some(known));
            (seq, record)
        }))
    }
}

impl Iterator for Records<'_> {
    type Item = Result<(u64, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let item = self.advance().transpose();
        self.is_over = matches!(item, Some(Err(_)));
        item
    }
}
