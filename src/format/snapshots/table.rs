//! The table of the snapshot store: which snapshots are live.
//!
//! ```text
//! header (128 bytes)                                 entry (128 bytes), ascending by number
//! 0   8   magic "AtomSnpT"                           0   8    number
//! 8   4   CRC-32C of bytes 12 to the last entry      8   8    length of the file
//! 12  4   count of entries                           16  8    time, nanoseconds since 1970
//! 16  8   generation                                 24  4    flags
//! 24  8   highest number that was ever given         28  4    length of the name
//! 32  8   opening                                    32  64   name, UTF-8, padded with zeros
//! 40  8   number that a rollback goes to, or 0       96  32   zero
//! 48  16  uuid of the pair
//! 64  8   stamp of the session that had the store
//! 72  8   stamp of the session that has it or is
//!         about to begin
//! 80  8   highest number that may lack kept bytes
//! 88  8   offset of the damage by which it does
//! 96  8   1 and the count of ends at a close, or 0
//! 104 24  zero
//! ```
//!
//! A table is stored over the copy that does not count. So a torn table leaves the one before it.
//! The copy that counts must be durable before the other one is stored to. A table that is durable
//! is stored again with the next generation. So damage to one copy loses nothing.
//!
//! Pure; nothing here panics, whatever the bytes.
//!
//! May import: `layout`, `superblock`, `checksum`, and the planted bugs.

use super::{TABLE, TABLES};
use crate::checksum;
use crate::format::layout::MAX_LEN;
use crate::format::superblock::SESSIONS;
use crate::format::{le_word, put_words};
use crate::mutant::planted;

/// Bytes of the header of a table.
const HEADER: usize = 128;
/// Bytes of an entry.
const ENTRY: usize = 128;
/// The place of the name in its entry.
const NAME: usize = 32;
const MAGIC: [u8; 8] = *b"AtomSnpT";
const SUM: std::ops::Range<usize> = 8..12;
const PAIR: std::ops::Range<usize> = 48..64;
const PADDING: usize = 104;

/// The most snapshots at one time.
pub const MOST_ENTRIES: usize = 1000;
/// The most bytes in the name of a snapshot.
pub const LONGEST_NAME: usize = 64;
const _: () = assert!(HEADER + MOST_ENTRIES * ENTRY <= TABLE);

/// Facts about a snapshot besides its state, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Flags(pub u32);

impl Flags {
    /// Sealed by the crate itself at an interval.
    pub const AUTOMATIC: Flags = Flags(1);
    /// The state before a rollback.
    pub const UNDO: Flags = Flags(2);
    const ALL: u32 = 3;

    /// Returns `true` if all bits of `other` are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A live snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its number, which no other snapshot of the pair ever has.
    pub number: u64,
    /// The length of the home file at its seal.
    pub len: u64,
    /// The time of its seal, in nanoseconds since 1970.
    pub nanos: u64,
    /// Further facts.
    pub flags: Flags,
    /// Its name: see [`is_name`].
    pub name: String,
}

/// Returns `true` if a snapshot may have this name.
pub fn is_name(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len()) && !name.contains('\0')
}

/// A table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    /// The pair.
    pub uuid: [u8; 16],
    /// Counts the tables of the store. The highest one counts.
    pub generation: u64,
    /// The highest number that a snapshot of the pair has ever had.
    pub highest: u64,
    /// The number of the pair's last opening with this store. No segment of the store has a later
    /// one.
    pub opening: u64,
    /// The snapshot that a rollback under way goes to, or 0.
    pub rollback: u64,
    /// The session of the pair that had this store last, by `Superblock::stamp`.
    pub session: u64,
    /// The session that has the store, or is about to begin with it.
    pub next: u64,
    /// The highest number of a snapshot that may lack kept bytes, or 0. It and those before it
    /// cannot be read.
    pub doubted: u64,
    /// The offset of the damage by which they may lack bytes.
    pub damage: u64,
    /// 1 and the number of segments with an end, if a session has ended with this table. Else 0.
    pub closed: u64,
    /// The live snapshots, in ascending order of their numbers.
    pub entries: Vec<Entry>,
}

impl Table {
    /// Returns the live snapshot with this number.
    pub fn entry(&self, number: u64) -> Option<&Entry> {
        let at = self.entries.binary_search_by_key(&number, |entry| entry.number);
        at.ok().map(|at| &self.entries[at])
    }

    /// Adds a snapshot, and returns its number. There are fewer than [`MOST_ENTRIES`], and
    /// [`is_name`] is true of the name.
    pub fn add(&mut self, len: u64, nanos: u64, flags: Flags, name: &str) -> u64 {
        // A number that was given stays given, also after its snapshot was dropped: records of that
        // epoch may come back.
        let last = self.entries.last().map_or(0, |entry| entry.number);
        let before = if planted!(HighestForgotten) { last } else { self.highest };
        let number = before.saturating_add(1);
        self.highest = number;
        self.entries.push(Entry { number, len, nanos, flags, name: name.to_owned() });
        number
    }

    /// Removes a snapshot, and returns it. Returns `None` if there is none with this number.
    pub fn remove(&mut self, number: u64) -> Option<Entry> {
        let at = self.entries.binary_search_by_key(&number, |entry| entry.number).ok()?;
        Some(self.entries.remove(at))
    }

    /// Returns the offset in the store's file at which this table belongs.
    pub fn place(&self) -> u64 {
        TABLES[(self.generation % 2) as usize]
    }

    /// Returns `true` if the table can be encoded, and then decoded.
    pub fn is_sound(&self) -> bool {
        self.entries.len() <= MOST_ENTRIES
            && self.entries.is_sorted_by(|a, b| a.number < b.number)
            && self.entries.iter().all(|entry| entry.is_sound(self.highest))
            && self.doubted <= self.highest
            // As for sessions: no number comes near, so one that does is damage. And no count on
            // from a number that was accepted overflows.
            && [self.generation, self.highest, self.opening].iter().all(|count| *count < SESSIONS)
            && (self.rollback == 0 || self.entry(self.rollback).is_some())
    }

    /// Returns the bytes: a header and the entries.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.is_sound(), "a table that no opening would accept");
        let mut bytes = vec![0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[12..16].copy_from_slice(&(self.entries.len() as u32).to_le_bytes());
        let words = [self.generation, self.highest, self.opening, self.rollback];
        put_words(&mut bytes, 16, words);
        bytes[PAIR].copy_from_slice(&self.uuid);
        let words = [self.session, self.next, self.doubted, self.damage, self.closed];
        put_words(&mut bytes, PAIR.end, words);
        self.entries.iter().for_each(|entry| bytes.extend_from_slice(&entry.encode()));
        let sum = sum_of(&bytes);
        bytes[SUM].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes the table at the beginning of `bytes`, of whatever pair. Returns `None` if there is
    /// no whole one.
    pub fn decode(bytes: &[u8]) -> Option<Table> {
        let header = bytes.get(..HEADER)?;
        let count = u32::from_le_bytes(header[12..16].try_into().ok()?) as usize;
        let padding = &header[PADDING..];
        if header[..8] != MAGIC || count > MOST_ENTRIES || padding.iter().any(|byte| *byte != 0) {
            return None;
        }
        let all = bytes.get(..count.checked_mul(ENTRY)?.checked_add(HEADER)?)?;
        let sum = u32::from_le_bytes(header[SUM].try_into().ok()?);
        if sum != sum_of(all) && !planted!(TableUnchecked) {
            return None;
        }
        let table = Table {
            uuid: header[PAIR].try_into().ok()?,
            generation: le_word(&header[16..24]),
            highest: le_word(&header[24..32]),
            opening: le_word(&header[32..40]),
            rollback: le_word(&header[40..48]),
            session: le_word(&header[64..72]),
            next: le_word(&header[72..80]),
            doubted: le_word(&header[80..88]),
            damage: le_word(&header[88..96]),
            closed: le_word(&header[96..PADDING]),
            entries: all[HEADER..].chunks_exact(ENTRY).map(Entry::decode).collect::<Option<_>>()?,
        };
        table.is_sound().then_some(table)
    }

    /// Returns the table of this pair that counts. `start` is the beginning of the store's file,
    /// up to [`TABLES_END`](super::TABLES_END) or less.
    pub fn newest(start: &[u8], uuid: &[u8; 16]) -> Option<Table> {
        Table::all(start).filter(|table| table.uuid == *uuid).max_by_key(|table| {
            if planted!(OlderTableCounts) { !table.generation } else { table.generation }
        })
    }

    /// Returns `true` if a header in either place names the pair, whole or not.
    pub fn may_be_of(start: &[u8], uuid: &[u8; 16]) -> bool {
        TABLES.into_iter().any(|at| {
            let header = start.get(at as usize..).and_then(|from| from.get(..HEADER));
            header.is_some_and(|header| header[..8] == MAGIC && header[PAIR] == *uuid)
        })
    }

    /// Returns the whole tables in both places.
    fn all(start: &[u8]) -> impl Iterator<Item = Table> {
        TABLES.into_iter().filter_map(move |at| {
            let table = Table::decode(start.get(at as usize..)?)?;
            (table.place() == at).then_some(table)
        })
    }
}

/// Returns the checksum of a table. It continues from the uuid in its header.
fn sum_of(all: &[u8]) -> u32 {
    let seed = checksum::crc32c_append(checksum::crc32c(b"snapshots"), &all[PAIR]);
    checksum::crc32c_append(seed, &all[SUM.end..])
}

impl Entry {
    fn is_sound(&self, highest: u64) -> bool {
        let Entry { number, len, flags, ref name, nanos: _ } = *self;
        (1..=highest).contains(&number)
            && len <= MAX_LEN
            && flags.0 & !Flags::ALL == 0
            && is_name(name)
    }

    fn encode(&self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        put_words(&mut bytes, 0, [self.number, self.len, self.nanos]);
        bytes[24..28].copy_from_slice(&self.flags.0.to_le_bytes());
        bytes[28..NAME].copy_from_slice(&(self.name.len() as u32).to_le_bytes());
        bytes[NAME..][..self.name.len()].copy_from_slice(self.name.as_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Entry> {
        let name_len = u32::from_le_bytes(bytes[28..NAME].try_into().ok()?) as usize;
        let name = bytes[NAME..][..LONGEST_NAME].get(..name_len)?;
        if bytes[NAME..][name_len..].iter().any(|byte| *byte != 0) {
            return None;
        }
        Some(Entry {
            number: le_word(&bytes[..8]),
            len: le_word(&bytes[8..16]),
            nanos: le_word(&bytes[16..24]),
            flags: Flags(u32::from_le_bytes(bytes[24..28].try_into().ok()?)),
            name: std::str::from_utf8(name).ok()?.to_owned(),
        })
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::super::TABLES_END;
    use super::*;

    const UUID: [u8; 16] = *b"0123456789abcdef";

    fn table(generation: u64, names: &[&str]) -> Table {
        let (highest, opening, session) = (40, 3, 55);
        let mut table =
            Table { uuid: UUID, generation, highest, opening, session, ..Table::default() };
        for (n, name) in names.iter().enumerate() {
            table.add(4096 * n as u64, 77, Flags((n % 4) as u32), name);
        }
        table
    }

    fn file(tables: &[&Table]) -> Vec<u8> {
        let mut start = vec![0; TABLES_END as usize];
        for table in tables {
            let bytes = table.encode();
            start[table.place() as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        start
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        let longest = "n".repeat(LONGEST_NAME);
        let many = vec!["x"; MOST_ENTRIES];
        for names in [&[][..], &["one"], &["one", &longest, "drei", "vier", "fünf"], &many] {
            let mut table = table(7, names);
            (table.next, table.doubted, table.damage, table.closed) = (1 << 63, 2, 3, 4);
            table.rollback = table.entries.last().map_or(0, |entry| entry.number);
            assert_eq!(Table::decode(&table.encode()), Some(table));
        }
    }

    #[test]
    fn a_torn_table_is_none() {
        let bytes = table(7, &["one", "two"]).encode();
        for n in 0..bytes.len() {
            let mut torn = bytes.clone();
            torn[n] ^= 0x10;
            assert_eq!(Table::decode(&torn), None, "byte {n}");
            assert_eq!(Table::decode(&bytes[..n]), None);
        }
    }

    #[test]
    fn the_newest_whole_table_of_the_pair_counts() {
        let (older, newer) = (table(6, &["one"]), table(7, &["one", "two"]));
        let both = file(&[&older, &newer]);
        assert_eq!(Table::newest(&both, &UUID), Some(newer.clone()));
        assert_eq!(Table::newest(&both, b"another's UUID!!"), None);
        let mut torn = both.clone();
        torn[newer.place() as usize + 70] ^= 1;
        assert_eq!(Table::newest(&torn, &UUID), Some(older.clone()));
        torn[older.place() as usize + 70] ^= 1;
        assert_eq!(Table::newest(&torn, &UUID), None);
        // A table in the place of the other one was copied there by another program.
        let mut moved = file(&[&older]);
        moved.copy_within(..super::super::TABLE, super::super::TABLE);
        moved[..super::super::TABLE].fill(0);
        assert_eq!(Table::newest(&moved, &UUID), None);
        assert_eq!(Table::newest(&both[..100], &UUID), None);
    }

    #[test]
    fn no_number_is_given_twice() {
        let mut table = table(7, &["one", "two"]);
        let last = table.entries[1].number;
        assert_eq!(table.remove(last).map(|entry| entry.name), Some("two".to_owned()));
        assert_eq!(table.remove(last), None);
        assert_eq!(table.add(0, 0, Flags::default(), "three"), last + 1);
        assert_eq!(table.highest, last + 1);
    }

    #[test]
    fn a_table_that_contradicts_itself_is_not_sound() {
        let sound = table(7, &["one", "two"]);
        assert!(sound.is_sound());
        let spoil: [fn(&mut Table); 12] = [
            |table| table.generation = SESSIONS,
            |table| table.highest = SESSIONS,
            |table| table.opening = u64::MAX,
            |table| table.highest = 1,
            |table| table.rollback = 3,
            |table| table.doubted = 99,
            |table| table.entries.swap(0, 1),
            |table| table.entries[0].number = 0,
            |table| table.entries[0].len = MAX_LEN + 1,
            |table| table.entries[0].flags = Flags(4),
            |table| table.entries[0].name.clear(),
            |table| table.entries[0].name = "a\0b".to_owned(),
        ];
        for spoil in spoil {
            let mut table = sound.clone();
            spoil(&mut table);
            assert!(!table.is_sound(), "{table:?}");
        }
    }
}
