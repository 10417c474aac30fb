//! The journal's records: durable points as bytes.
//!
//! A record makes one durable point. It says where the slices of each page that has changed since
//! the last durable point are valid now. Unless both files were synced before, it also holds the
//! bytes of those slices. Records lie at multiples of [`BLOCK`] in a separate file that is written
//! through. So a record costs one write and one barrier, and shares no block with another one. The
//! checksum of a record is seeded with the pair's uuid and the session. So no record of another
//! session is taken for one of this session.
//!
//! Pure; nothing here panics, whatever the bytes.
//!
//! May import: `layout`, `bitmap`, `checksum` and `units`.

use super::layout::{MAX_LEN, MOST_PAGES};
use super::word_at;
use crate::bitmap::{Slices, Validity};
use crate::checksum;
use crate::units::{PageIndex, SLICE};

/// Records begin at multiples of this: a disk write may tear the block that it goes to.
pub const BLOCK: usize = 4096;
/// Bytes in a record before its changes.
const HEADER: usize = 64;
/// Bytes of the sum of one page.
const SUM_LEN: usize = 8;
/// Bytes of one change.
const CHANGE: usize = 24;
const MAGIC: [u8; 8] = *b"AtomJrnl";
const SUM: std::ops::Range<usize> = 8..12;
const BASE: u32 = 1;
const SUMS: u32 = 2;
/// The bits of a page index in a change; the rest is a count.
const PAGE_BITS: u32 = 40;
const MOST_IN_RUN: u64 = 1 << (64 - PAGE_BITS);
const _: () = assert!(MOST_PAGES < 1 << PAGE_BITS);

/// The start of the checksums of a session's records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalSeed(u32);

impl JournalSeed {
    /// Creates the seed for the pair and the session.
    pub fn new(uuid: &[u8; 16], session: u64) -> Self {
        let sum = checksum::crc32c_append(checksum::crc32c(b"journal"), uuid);
        JournalSeed(checksum::crc32c_append(sum, &session.to_le_bytes()))
    }
}

/// The number of blocks at the beginning of a journal that hold its headers.
pub const HEADERS: usize = 2;
const HEADER_MAGIC: [u8; 8] = *b"AtomJrnH";
const HEADER_LEN: usize = 64;

/// The journal's header: its pair and its sessions. Two blocks hold it, and are written one after
/// the other. So a torn write leaves the previous header, and damage to one block leaves a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The pair.
    pub uuid: [u8; 16],
    /// The first session with complete records: none of them was overwritten.
    pub from: u64,
    /// The last session that may have written records.
    pub to: u64,
    /// `true` for the copy, which is written once the header is durable, and without waiting.
    pub is_copy: bool,
}

impl Header {
    /// Returns the header's block.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK];
        bytes[..8].copy_from_slice(&HEADER_MAGIC);
        bytes[12] = u8::from(self.is_copy);
        bytes[16..32].copy_from_slice(&self.uuid);
        bytes[32..40].copy_from_slice(&self.from.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.to.to_le_bytes());
        let sum = checksum::crc32c(&bytes[..HEADER_LEN]);
        bytes[SUM].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes a header, or returns `None` if it is not valid.
    pub fn decode(block: &[u8]) -> Option<Header> {
        let mut bytes: [u8; HEADER_LEN] = block.get(..HEADER_LEN)?.try_into().ok()?;
        let sum = u32::from_le_bytes(bytes[SUM].try_into().ok()?);
        bytes[SUM].fill(0);
        let (from, to) = (word_at(&bytes, 32), word_at(&bytes, 40));
        let (uuid, is_copy) = (bytes[16..32].try_into().ok()?, bytes[12] == 1);
        let header = Header { uuid, from, to, is_copy };
        let is_whole = bytes[..8] == HEADER_MAGIC && sum == checksum::crc32c(&bytes);
        is_whole.then_some(header)
    }

    /// Returns the newer of the two headers at the beginning of a journal, and the index of its
    /// block. A header counts before its copy, which may not be durable.
    pub fn newest(journal: &[u8]) -> Option<(Header, usize)> {
        let blocks = journal.chunks(BLOCK).take(HEADERS).enumerate();
        let found = blocks.filter_map(|(n, block)| Some((Header::decode(block)?, n)));
        found.max_by_key(|(header, _)| (header.to, header.from, !header.is_copy))
    }

    /// Returns `true` if blocks without a valid header may still be those of a journal: zeroes, or
    /// a header that power loss has torn.
    pub fn may_be_torn(journal: &[u8]) -> bool {
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        journal.chunks(BLOCK).take(HEADERS).all(|block| {
            let (header, rest) = block.split_at(block.len().min(HEADER_LEN));
            let magic = &header[..header.len().min(HEADER_MAGIC.len())];
            let is_magic = magic.iter().zip(HEADER_MAGIC).all(|(is, of)| *is == 0 || *is == of);
            is_magic && is_zero(rest)
        })
    }

    /// Returns `true` if blocks without a valid header are those of a damaged journal of this pair.
    pub fn may_be_damaged(journal: &[u8], uuid: &[u8; 16]) -> bool {
        let names = |block: &[u8]| block.get(16..32).is_some_and(|found| is_pair(found, uuid));
        journal.chunks(BLOCK).take(HEADERS).any(names)
    }

    /// Returns `true` if the journal is this pair's.
    pub fn is_of(&self, uuid: &[u8; 16]) -> bool {
        is_pair(&self.uuid, uuid)
    }

    /// Returns `true` if the journal holds all records that this session of the pair has written.
    pub fn covers(&self, uuid: &[u8; 16], session: u64) -> bool {
        self.is_of(uuid) && (self.from..=self.to).contains(&session)
    }
}

/// Returns `true` if the bytes name this pair. No pair has the uuid of zeroes: it stands for a
/// superblock that was not found, and blank blocks hold it.
fn is_pair(found: &[u8], uuid: &[u8; 16]) -> bool {
    found == uuid && *uuid != [0; 16]
}

/// The change of a page since the last durable point, or of several consecutive pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// The first page.
    pub page: PageIndex,
    /// The number of pages, at least one.
    pub count: u64,
    /// Where the slices of each page are valid now.
    pub valid: Validity,
    /// The slices that the record holds. A change with slices is about one page; a base record has
    /// none.
    pub slices: Slices,
}

/// One record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Counts the durable points of a session from 1.
    pub number: u64,
    /// `true` for a base record: both files were synced before it was written. No earlier
    /// record is needed. None may be replayed, since it could overwrite slices that this record
    /// relies on.
    pub is_base: bool,
    /// Logical length of the home file.
    pub len: u64,
    /// In ascending order of pages.
    pub changes: Vec<Change>,
    /// The bytes of the slices, in the order of the changes, the lowest slice of a page first.
    pub slices: Vec<u8>,
    /// The stored sum of each page of the changes, in their order. Empty in a base record, and if
    /// the file has no page sums.
    pub sums: Vec<u64>,
}

/// Returns the bytes of a record with these numbers of changes, slices and sums, up to the end of
/// its last block.
#[expect(clippy::arithmetic_side_effects, reason = "the parts of a record lie in memory")]
pub const fn record_len(changes: usize, slices: usize, sums: usize) -> u64 {
    (HEADER + changes * CHANGE + slices * SLICE + sums * SUM_LEN).next_multiple_of(BLOCK) as u64
}

/// Appends the change of one page. It joins the last change if that is equal and ends with the
/// previous page.
pub fn push_change(changes: &mut Vec<Change>, page: PageIndex, valid: Validity, slices: Slices) {
    if let Some(last) = changes.last_mut()
        && last.end() == page.0
        && last.valid == valid
        && last.slices.is_empty()
        && slices.is_empty()
        && last.count < MOST_IN_RUN
    {
        last.count = last.count.saturating_add(1);
        return;
    }
    changes.push(Change { page, count: 1, valid, slices });
}

/// A record without its slices, which lie in another buffer.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// As in [`Record`].
    pub number: u64,
    /// As in [`Record`].
    pub is_base: bool,
    /// As in [`Record`].
    pub len: u64,
    /// As in [`Record`].
    pub changes: &'a [Change],
    /// As in [`Record`].
    pub sums: &'a [u64],
}

impl Head<'_> {
    /// Returns the record's bytes, in whole blocks, at an address that is a multiple of [`BLOCK`],
    /// so that they can be written past the page cache. `append_slices` appends the slices to the
    /// buffer. The buffer's contents do not matter; it is passed in to be reused.
    #[expect(clippy::arithmetic_side_effects, reason = "the parts of a record lie in memory")]
    pub fn encode<'b>(
        &self,
        seed: JournalSeed,
        slices: usize,
        buffer: &'b mut Vec<u8>,
        append_slices: impl FnOnce(&mut Vec<u8>),
    ) -> &'b [u8] {
        let slices = slices + self.sums.len() * SUM_LEN;
        let said = HEADER + self.changes.len() * CHANGE + slices;
        let all = said.next_multiple_of(BLOCK);
        buffer.clear();
        buffer.reserve(all + BLOCK);
        // The buffer does not move from here on: there is room for everything.
        let start = buffer.as_ptr().addr().wrapping_neg() % BLOCK;
        let bytes = buffer;
        bytes.resize(start, 0);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[0; 4]);
        debug_assert!(self.sums.is_empty() || !self.is_base);
        let flags = match self.sums {
            [] if self.is_base => BASE,
            [] => 0,
            _ => SUMS,
        };
        bytes.extend_from_slice(&flags.to_le_bytes());
        for word in [self.number, self.len, self.changes.len() as u64, slices as u64] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.resize(start + HEADER, 0);
        for change in self.changes {
            assert!((1..=MOST_IN_RUN).contains(&change.count));
            assert!(change.slices.is_empty() || change.count == 1);
            let place = change.page.0 | (change.count - 1) << PAGE_BITS;
            for word in [place, change.valid.0, change.slices.0] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        append_slices(bytes);
        self.sums.iter().for_each(|sum| bytes.extend_from_slice(&sum.to_le_bytes()));
        debug_assert_eq!(bytes.len(), start + said);
        bytes.resize(start + said, 0);
        let sum = checksum::crc32c_append(seed.0, &bytes[start..]);
        bytes[start..][SUM].copy_from_slice(&sum.to_le_bytes());
        bytes.resize(start + all, 0);
        &bytes[start..]
    }
}

impl Record {
    /// Returns the bytes, in whole blocks.
    pub fn encode(&self, seed: JournalSeed) -> Vec<u8> {
        let Record { number, is_base, len, ref changes, ref slices, ref sums } = *self;
        let head = Head { number, is_base, len, changes, sums };
        let mut buffer = Vec::new();
        head.encode(seed, slices.len(), &mut buffer, |to| to.extend_from_slice(slices)).to_vec()
    }

    /// Decodes the record at the beginning of `bytes`, and returns it with its length in whole
    /// blocks. Returns `None` if there is no valid record.
    pub fn decode(seed: JournalSeed, bytes: &[u8]) -> Option<(Record, usize)> {
        let header = bytes.get(..HEADER)?;
        if header[..8] != MAGIC || header[48..].iter().any(|byte| *byte != 0) {
            return None;
        }
        let (number, len) = (word(header, 16)?, word(header, 24)?);
        let changes = usize::try_from(word(header, 32)?).ok()?;
        let slices = usize::try_from(word(header, 40)?).ok()?;
        let slices_at = changes.checked_mul(CHANGE)?.checked_add(HEADER)?;
        let said = bytes.get(..slices_at.checked_add(slices)?)?;
        let sum = u32::from_le_bytes(said[SUM].try_into().ok()?);
        let sum_of = [&said[..SUM.start], &[0; 4], &said[SUM.end..]]
            .iter()
            .fold(seed.0, |sum, part| checksum::crc32c_append(sum, part));
        if sum != sum_of {
            return None;
        }
        let flags = u32::from_le_bytes(header[12..16].try_into().ok()?);
        let sums = if flags == SUMS { changes.checked_mul(SUM_LEN)? } else { 0 };
        let sums_at = said.len().checked_sub(sums).filter(|at| *at >= slices_at)?;
        let record = Record {
            number,
            is_base: flags == BASE,
            len,
            changes: said[HEADER..slices_at]
                .chunks_exact(CHANGE)
                .map(Change::decode)
                .collect::<Option<_>>()?,
            slices: said[slices_at..sums_at].to_vec(),
            sums: said[sums_at..]
                .as_chunks()
                .0
                .iter()
                .map(|sum| u64::from_le_bytes(*sum))
                .collect(),
        };
        let held: u64 = record.changes.iter().map(|c| u64::from(c.slices.0.count_ones())).sum();
        let is_sound = flags <= SUMS
            && (record.sums.is_empty() || record.changes.iter().all(|change| change.count == 1))
            && number != 0
            && len <= MAX_LEN
            && record.slices.len() as u64 == held.saturating_mul(SLICE as u64)
            && record.changes.is_sorted_by(|a, b| a.end() <= b.page.0);
        is_sound.then_some((record, said.len().next_multiple_of(BLOCK)))
    }
}

impl Change {
    /// Returns the index of the page after the last one. Saturates, which no change that is decoded
    /// does: the end is compared with that of the longest file first.
    fn end(&self) -> u64 {
        self.page.0.saturating_add(self.count)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let place = word(bytes, 0)?;
        let change = Change {
            page: PageIndex(place & ((1 << PAGE_BITS) - 1)),
            count: (place >> PAGE_BITS).saturating_add(1),
            valid: Validity(word(bytes, 8)?),
            slices: Slices(word(bytes, 16)?),
        };
        let is_inside = change.end() <= MOST_PAGES;
        (is_inside && (change.slices.is_empty() || change.count == 1)).then_some(change)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the newest records of a session that follow each other without a gap, from the last full
/// record (base) on. These are replayed, in this order. `bytes` is the whole journal. Each record
/// comes with its offset.
pub fn newest_run(seed: JournalSeed, bytes: &[u8]) -> Vec<(u64, Record)> {
    let mut found: Vec<(u64, Record)> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let step = match Record::decode(seed, &bytes[at..]) {
            Some((record, len)) => {
                found.push((at as u64, record));
                len
            }
            None => BLOCK,
        };
        at = at.saturating_add(step);
    }
    found.sort_by_key(|(_, record)| record.number);
    found.dedup_by_key(|(_, record)| record.number);
    let mut first = found.len().saturating_sub(1);
    while let Some(before) = first.checked_sub(1)
        && !found[first].1.is_base
        && found[before].1.number.checked_add(1) == Some(found[first].1.number)
    {
        first = before;
    }
    found.split_off(first)
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    fn seed() -> JournalSeed {
        JournalSeed::new(b"0123456789abcdef", 3)
    }

    fn record(number: u64, is_base: bool) -> Record {
        let held = if is_base { Slices::NONE } else { Slices(0b101) };
        let mut changes = Vec::new();
        push_change(&mut changes, PageIndex(7), Validity(5), held);
        push_change(&mut changes, PageIndex(9), Validity(!0), Slices::NONE);
        push_change(&mut changes, PageIndex(10), Validity(!0), Slices::NONE);
        push_change(&mut changes, PageIndex(11), Validity(1), Slices::NONE);
        let slices = if is_base { vec![] } else { (0..128).collect() };
        Record { number, is_base, len: 1 << 20, changes, slices, sums: vec![] }
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        for is_base in [false, true] {
            let record = record(9, is_base);
            assert_eq!(record.changes.len(), 3);
            assert_eq!(record.changes[1].count, 2);
            let bytes = record.encode(seed());
            assert_eq!(bytes.len() as u64, record_len(3, record.slices.len() / SLICE, 0));
            assert_eq!(Record::decode(seed(), &bytes), Some((record, bytes.len())));
        }
    }

    #[test]
    fn a_record_with_sums_has_one_for_each_page() {
        let mut record = record(9, false);
        record.changes.remove(1);
        record.sums = vec![3, u64::MAX];
        let bytes = record.encode(seed());
        assert_eq!(bytes.len() as u64, record_len(2, 2, 2));
        assert_eq!(Record::decode(seed(), &bytes), Some((record.clone(), bytes.len())));
        record.changes[1].count = 2;
        assert_eq!(Record::decode(seed(), &record.encode(seed())), None, "two pages and one sum");
    }

    #[test]
    fn a_record_of_another_session_and_a_torn_one_are_none() {
        let bytes = record(9, false).encode(seed());
        assert!(Record::decode(JournalSeed::new(b"0123456789abcdef", 4), &bytes).is_none());
        for n in 0..HEADER + 3 * CHANGE + 128 {
            let mut torn = bytes.clone();
            torn[n] ^= 1;
            assert!(Record::decode(seed(), &torn).is_none(), "byte {n}");
            assert!(Record::decode(seed(), &bytes[..n]).is_none());
        }
    }

    #[test]
    fn a_header_covers_its_sessions_and_a_torn_one_covers_none() {
        let older = Header { uuid: [7; 16], from: 3, to: 4, is_copy: false };
        let newer = Header { from: 4, ..older };
        let mut journal = [newer.encode(), older.encode()].concat();
        assert_eq!(Header::newest(&journal), Some((newer, 0)));
        assert!(newer.covers(&[7; 16], 4) && !newer.covers(&[7; 16], 3));
        assert!(older.covers(&[7; 16], 3) && !older.covers(&[7; 16], 5));
        assert!(!newer.covers(&[8; 16], 4));
        let copy = Header { is_copy: true, ..newer };
        let both = [newer.encode(), copy.encode()].concat();
        assert_eq!(Header::newest(&both), Some((newer, 0)), "the header, before its copy");
        assert_eq!(Header::newest(&both[BLOCK..]), Some((copy, 0)));
        for at in 0..64 {
            journal[at] ^= 1;
            assert_eq!(Header::newest(&journal), Some((older, 1)), "byte {at}");
            journal[at] ^= 1;
        }
        assert_eq!(Header::newest(&[0; 3 * BLOCK]), None);
        assert!(Header::may_be_torn(&[0; 3 * BLOCK]) && Header::may_be_torn(&journal));
        let mut torn = journal.clone();
        torn[..8].fill(0);
        torn[BLOCK + 3] = 0;
        assert!(Header::may_be_torn(&torn) && Header::newest(&torn).is_none());
        assert!(!Header::may_be_torn(b"another program's notes"));
        assert!(
            Header::may_be_damaged(&torn, &[7; 16]) && !Header::may_be_damaged(&torn, &[8; 16])
        );
        assert_eq!(Header::newest(&[]), None);
    }

    #[test]
    fn a_journal_is_of_the_pair_that_its_header_names_and_of_none_without_a_uuid() {
        let header = Header { uuid: [7; 16], from: 3, to: 4, is_copy: false };
        assert!(header.is_of(&[7; 16]) && !header.is_of(&[8; 16]) && !header.is_of(&[0; 16]));
        let blank = Header { uuid: [0; 16], ..header };
        assert!(!blank.is_of(&[0; 16]) && !blank.covers(&[0; 16], 4));
        assert!(!Header::may_be_damaged(&[0; 3 * BLOCK], &[0; 16]));
    }

    #[test]
    fn the_newest_run_begins_after_a_gap_or_with_a_base() {
        let numbers = |records: &[Record]| {
            let mut bytes = vec![0; BLOCK];
            records.iter().for_each(|r| bytes.extend(r.encode(seed())));
            newest_run(seed(), &bytes).iter().map(|(_, r)| r.number).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&[]), [0; 0]);
        let r = |n| record(n, false);
        assert_eq!(numbers(&[r(8), r(9), r(4), r(5), r(7)]), [7, 8, 9]);
        assert_eq!(numbers(&[r(6), record(7, true), r(8)]), [7, 8]);
        assert_eq!(numbers(&[r(3), r(5)]), [5]);
    }
}
