//! The directory: a header, and a table of named entries.
//!
//! Owns: [`Header`], [`Entry`] and [`Directory`], which holds both in memory.
//!
//! Invariants (`docs/structures.md`): N1 a name occurs once. N2 the table lies within
//! the file. N3 header and entries have their checksums.
//!
//! May import `log/meta` and the room's helpers.

use super::log::meta;
use super::{PAGE, Source, rounded, sum_without};
use crate::api::transaction::Transaction;
use crate::error::{Result, StructureError};
use crate::mutant::planted;
use std::ops::Range;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

pub const MAGIC: [u8; 8] = *b"AtomRoot";
pub(super) const VERSION: u32 = 1;
/// Bytes of the extent with the header and the first table.
pub(super) const HEAD: u64 = PAGE;
/// Offset of the 64 bytes for the mark of a file in use, from the header.
pub const MARK: u64 = 64;
/// Offset of the first table from the header.
pub(super) const FIRST_TABLE: u64 = 128;
/// Places of the first table.
pub(super) const FIRST_PLACES: u64 = (HEAD - FIRST_TABLE) / size_of::<Entry>() as u64;
/// The most places of a table.
pub(super) const MOST_PLACES: u64 = 1 << 16;
/// Bytes of the longest name.
pub(super) const LONGEST_NAME: usize = 80;
const HEADER_SUM: usize = 12;
const PAST_END: &str = "an extent lies past the file's end";
const ENTRY_SUM: usize = 40;

/// The first 64 bytes.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, PartialEq, Debug)]
#[repr(C)]
pub(super) struct Header {
    pub magic: [u8; 8],
    pub version: U32,
    pub sum: U32,
    /// Offset of the table in the file.
    pub table: U64,
    /// Places of the table.
    pub places: U64,
    /// All bytes from here on have never been in an extent, and are zero.
    pub high_water: U64,
    /// The number of the next log.
    pub next_id: U64,
    pub reserved: [u8; 16],
}

impl Header {
    /// Returns the header of an empty directory at `at`.
    pub fn new(at: u64) -> Header {
        let mut header = Header::new_zeroed();
        header.magic = MAGIC;
        header.version = VERSION.into();
        header.table = at.saturating_add(FIRST_TABLE).into();
        header.places = FIRST_PLACES.into();
        header.high_water = at.saturating_add(HEAD).into();
        header.next_id = 1.into();
        header.sealed()
    }

    pub fn sealed(mut self) -> Header {
        self.sum = sum_without(self.as_bytes(), HEADER_SUM).into();
        self
    }

    /// Returns the header at `at`, or the error about it.
    pub fn load(source: &mut impl Source, at: u64) -> Result<Header> {
        let end = at.saturating_add(size_of::<Header>() as u64);
        let is_inside = source.reaches(end)?;
        let header: Header = if is_inside { source.value(at)? } else { Header::new_zeroed() };
        if header.magic != MAGIC {
            let expected = "a directory of named roots";
            return Err(source.error(at, StructureError::Foreign { expected }));
        }
        let is_whole = sum_without(header.as_bytes(), HEADER_SUM) == header.sum.get();
        source.expect(is_whole, at, "the checksum of the directory's header is wrong")?;
        match header.version.get() {
            VERSION => Ok(header),
            version => Err(source.error(at, StructureError::Newer { version })),
        }
    }
}

/// The kinds of entries. An unused place is all zero.
pub(super) const VALUE: u8 = 1;
pub(super) const ARRAY: u8 = 2;
pub(super) const LOG: u8 = 3;

/// A name, its type, and its extent.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, PartialEq, Debug)]
#[repr(C)]
pub(super) struct Entry {
    pub offset: U64,
    /// Bytes in use. The extent goes on to the next multiple of 64.
    pub len: U64,
    /// Bytes of one element. Of a log: its number.
    pub size: U64,
    pub align: U32,
    pub kind: u8,
    pub name_len: u8,
    pub reserved: [u8; 2],
    pub type_id: U64,
    pub sum: U32,
    pub reserved_2: [u8; 4],
    pub name: [u8; LONGEST_NAME],
}

impl Entry {
    pub fn name(&self) -> &[u8] {
        &self.name[..usize::from(self.name_len).min(LONGEST_NAME)]
    }

    /// Returns the bytes that the entry owns, whole units.
    pub fn extent(&self) -> Range<u64> {
        let start = self.offset.get();
        start..start.saturating_add(rounded(self.len.get()))
    }

    /// Returns the end of the bytes in use, or `None` past the longest file.
    fn end(&self) -> Option<u64> {
        self.offset.get().checked_add(self.len.get())
    }

    pub fn sealed(mut self) -> Entry {
        self.sum = sum_without(self.as_bytes(), ENTRY_SUM).into();
        self
    }

    fn is_unused(&self) -> bool {
        self.as_bytes().iter().all(|byte| *byte == 0)
    }

    fn check(&self, source: &impl Source, at: u64) -> Result<()> {
        let is_whole = sum_without(self.as_bytes(), ENTRY_SUM) == self.sum.get();
        source.expect(
            is_whole || planted!(EntrySumNotChecked),
            at,
            "the checksum of a name's entry is wrong",
        )?;
        let name_len = usize::from(self.name_len);
        let is_named = (1..=LONGEST_NAME).contains(&name_len)
            && self.name[name_len..].iter().all(|byte| *byte == 0)
            && std::str::from_utf8(self.name()).is_ok();
        source.expect(is_named, at, "an entry has no name")?;
        let is_known = match self.kind {
            LOG => self.len.get() == meta::EXTENT,
            kind => matches!(kind, VALUE | ARRAY),
        };
        source.expect(is_known, at, "an entry has a kind that does not exist")?;
        source.expect(self.end().is_some(), at, PAST_END)
    }
}

/// Returns the bytes of a table with this number of places. Saturates.
pub(super) fn table_len(places: u64) -> u64 {
    places.saturating_mul(size_of::<Entry>() as u64)
}

/// Returns the offset of a place of the table at `table`. Saturates: no file reaches there.
fn place_at(table: u64, place: u64) -> u64 {
    table.saturating_add(table_len(place))
}

/// The header, and the entries by their places.
pub(super) struct Directory {
    pub at: u64,
    pub header: Header,
    places: Vec<Option<Entry>>,
}

impl Directory {
    /// Reads the directory at `at`.
    pub fn load(source: &mut impl Source, at: u64) -> Result<Directory> {
        let header = Header::load(source, at)?;
        let (table, count) = (header.table.get(), header.places.get());
        let end = place_at(table, count);
        let is_inside = (FIRST_PLACES..=MOST_PLACES).contains(&count)
            && table >= at.saturating_add(FIRST_TABLE)
            && source.reaches(end)?;
        source.expect(is_inside, at, "the table of names lies past the file's end")?;
        let mut entries = vec![Entry::new_zeroed(); count as usize];
        source.read(entries.as_mut_bytes(), table)?;
        let mut places = Vec::with_capacity(entries.len());
        let mut furthest = (0, at);
        for (place, entry) in (0..).zip(entries) {
            if entry.is_unused() {
                places.push(None);
            } else {
                let offset = place_at(table, place);
                entry.check(source, offset)?;
                furthest = furthest.max((entry.end().unwrap_or(u64::MAX), offset));
                places.push(Some(entry));
            }
        }
        let (end, offset) = furthest;
        let is_inside = source.reaches(end)?;
        source.expect(is_inside, offset, PAST_END)?;
        Ok(Directory { at, header, places })
    }

    /// Returns all entries.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.places.iter().flatten()
    }

    /// Returns the entry of a name.
    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.entries().find(|entry| entry.name() == name.as_bytes())
    }

    /// Returns the extent of a table that has moved out of the first one.
    pub fn moved_table(&self) -> Option<Range<u64>> {
        let (at, places) = (self.header.table.get(), self.header.places.get());
        let end = at.saturating_add(rounded(table_len(places)));
        (at != self.at.saturating_add(FIRST_TABLE)).then_some(at..end)
    }

    fn offset_of(&self, place: usize) -> u64 {
        place_at(self.header.table.get(), place as u64)
    }

    /// Stores a new entry in an unused place. Returns `false` if there is none.
    pub fn insert(&mut self, tx: &mut Transaction<'_>, entry: &Entry) -> Result<bool> {
        let Some(place) = self.places.iter().position(Option::is_none) else { return Ok(false) };
        self.places[place] = Some(*entry);
        tx.store(self.offset_of(place), entry)?;
        Ok(true)
    }

    /// Returns the number of places of the next larger table.
    pub fn more_places(&self) -> u64 {
        (self.places.len() as u64).saturating_mul(2).next_power_of_two()
    }

    /// Adds an entry in memory, behind all places.
    pub fn add_place(&mut self, entry: &Entry) {
        self.places.push(Some(*entry));
    }

    /// Moves the table to an extent at `offset`, with `places` places. The caller stores the
    /// header.
    pub fn move_table(&mut self, tx: &mut Transaction<'_>, offset: u64, places: u64) -> Result<()> {
        self.places.resize(places as usize, None);
        let unused = Entry::new_zeroed();
        let all: Vec<Entry> = self.places.iter().map(|entry| entry.unwrap_or(unused)).collect();
        (self.header.table, self.header.places) = (offset.into(), places.into());
        tx.store(offset, &all[..])
    }

    /// Clears the place of an entry. Its extent is free when the transaction commits.
    pub fn remove(&mut self, tx: &mut Transaction<'_>, name: &str) -> Result<()> {
        let is_named = |entry: &Option<Entry>| entry.is_some_and(|e| e.name() == name.as_bytes());
        if let Some(place) = self.places.iter().position(is_named) {
            self.places[place] = None;
            tx.store(self.offset_of(place), &Entry::new_zeroed())?;
        }
        Ok(())
    }

    /// Stores the header, with its new checksum.
    pub fn store_header(&mut self, tx: &mut Transaction<'_>) -> Result<()> {
        self.header = self.header.sealed();
        tx.store(self.at, &self.header)
    }
}
