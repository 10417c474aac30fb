//! The durable point that an image goes back to: a second reading of the journal and the durable
//! words of `docs/format.md`.
//!
//! Shares no code with `src/format/journal.rs` nor with `src/recovery/replay_journal.rs`. Part of
//! [`super::reading`].

use super::image::{Contents, Image};
use super::sums::{self, BLOCK, CHANGE, RECORD_HEADER, small, word};
use atomic_mmap::testing::{PAGE, PageIndex, SLICE, layout};
use std::ops::Range;

const P: u64 = PAGE as u64;
/// Maximum length of a journal. Bytes past that have no meaning.
const LONGEST: u64 = 1 << 30;

/// The change that a record makes to some consecutive pages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The pages.
    pub pages: Range<u64>,
    /// The durable word of each page.
    pub valid: u64,
    /// The slices with bytes in the record.
    pub slices: u64,
}

/// A journal record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Its number in the session.
    pub number: u64,
    /// `true` for a full record: no earlier record counts.
    pub is_base: bool,
    /// Length of the home file.
    pub len: u64,
    /// The changes of pages.
    pub changes: Vec<Change>,
    /// The bytes of the slices.
    pub slices: Vec<u8>,
    /// The sum of each page, or nothing.
    pub sums: Vec<u64>,
}

/// Returns the record in the block at `at`, and the length of its blocks. Returns `None` if there
/// is no record or a torn one.
pub fn record(journal: &Contents, at: u64, seed: u32) -> Option<(Record, u64)> {
    let len = sums::record_len(journal, at)?;
    if small(&journal.bytes(at, 16), 8) != sums::of_record(seed, journal, at, len) {
        return None;
    }
    let bytes = journal.bytes(at, len as usize);
    let flags = small(&bytes, 12);
    let (number, file_len) = (word(&bytes, 16), word(&bytes, 24));
    let slices_at = (RECORD_HEADER + word(&bytes, 32) * CHANGE) as usize;
    let changes: Vec<Change> = bytes[RECORD_HEADER as usize..slices_at]
        .chunks_exact(CHANGE as usize)
        .map(|change| {
            let (first, more) = (word(change, 0) << 24 >> 24, word(change, 0) >> 40);
            Change {
                pages: first..first + more + 1,
                valid: word(change, 8),
                slices: word(change, 16),
            }
        })
        .collect();
    let held: u64 = changes.iter().map(|change| u64::from(change.slices.count_ones())).sum();
    // Bit 1: behind the slices there is a sum of 64 bits for each change.
    let sums = if flags == 2 { changes.len() * 8 } else { 0 };
    let sums_at = bytes.len().checked_sub(sums).filter(|at| *at >= slices_at)?;
    let is_right = flags <= 2
        && bytes[48..64] == [0; 16]
        && number > 0
        && file_len <= layout::MAX_LEN
        && (sums_at - slices_at) as u64 == held * SLICE as u64
        && (sums == 0 || changes.iter().all(|change| change.pages.end - change.pages.start == 1))
        && changes.windows(2).all(|two| two[0].pages.end <= two[1].pages.start)
        && changes.iter().all(|change| {
            change.pages.end <= layout::MAX_LEN / P
                && (change.slices == 0 || change.pages.end == change.pages.start + 1)
        });
    let slices = bytes[slices_at..sums_at].to_vec();
    let sums = bytes[sums_at..].chunks_exact(8).map(|sum| word(sum, 0)).collect();
    let record = Record { number, is_base: flags == 1, len: file_len, changes, slices, sums };
    is_right.then_some((record, len.next_multiple_of(BLOCK)))
}

/// The header of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The uuid of the journal's pair.
    pub uuid: [u8; 16],
    /// The first session with complete records.
    pub from: u64,
    /// The last session that may have written records.
    pub to: u64,
    /// `true` for the copy, which counts after the header itself.
    pub is_copy: bool,
}

/// Returns the intact headers in the first two blocks of a journal, with their blocks.
pub fn headers(journal: &Contents) -> Vec<(u64, Header)> {
    let whole = |block: &u64| {
        let bytes = journal.bytes(block * BLOCK, sums::HEADER_LEN);
        block * BLOCK + sums::HEADER_LEN as u64 <= journal.len
            && bytes.starts_with(b"AtomJrnH")
            && small(&bytes, 8) == sums::of_entry(0, &bytes)
    };
    let said = |block: u64| {
        let bytes = journal.bytes(block * BLOCK, sums::HEADER_LEN);
        let uuid = std::array::from_fn(|n| bytes[16 + n]);
        let (from, to, is_copy) = (word(&bytes, 32), word(&bytes, 40), bytes[12] == 1);
        (block, Header { uuid, from, to, is_copy })
    };
    (0..2).filter(whole).map(said).collect()
}

/// Returns the header that counts.
pub fn header(journal: &Contents) -> Option<Header> {
    let headers = headers(journal).into_iter().map(|(_, header)| header);
    headers.max_by_key(|header| (header.to, header.from, !header.is_copy))
}

/// Returns `true` if a floor is intact: its checksum is right, and its unused bytes are zero.
pub fn is_whole_floor(uuid: &[u8; 16], bytes: &[u8]) -> bool {
    small(bytes, 16) == sums::of_floor(uuid, bytes) && small(bytes, 20) == 0
}

/// Returns the lowest possible number of the newest record of a session, according to the
/// reflection file. Returns 0 if the reflection file does not say.
pub fn floor(reflection: &Contents, uuid: &[u8; 16], session: u64) -> u64 {
    sums::FLOORS.map(|at| floor_at(reflection, at, uuid, session)).into_iter().max().unwrap_or(0)
}

/// Returns the number that a place names for a session, or 0.
fn floor_at(reflection: &Contents, at: u64, uuid: &[u8; 16], session: u64) -> u64 {
    let bytes = reflection.bytes(at, sums::FLOOR_LEN);
    let counts = is_whole_floor(uuid, &bytes) && word(&bytes, 0) == session;
    if counts { word(&bytes, 8) } else { 0 }
}

/// Returns `true` if the header says that the journal has all records of this session of the pair.
pub fn covers(journal: &Contents, uuid: &[u8; 16], session: u64) -> bool {
    header(journal).is_some_and(|h| h.uuid == *uuid && h.from <= session && session <= h.to)
}

/// The journal of a session: the newest record, and the earlier records that count.
pub struct Points {
    run: Vec<Record>,
    base_len: u64,
    /// The home file has all of its slices, and no record is stored to it.
    is_home_whole: bool,
}

impl Points {
    /// Makes the points of a session without a journal.
    pub fn none(base_len: u64) -> Points {
        Points { run: Vec::new(), base_len, is_home_whole: false }
    }

    /// Leaves the home file as it is.
    pub fn with_whole_home(self) -> Points {
        Points { is_home_whole: true, ..self }
    }

    /// Reads the journal. `base_len` is the length at the session's beginning, from the superblock.
    pub fn read(journal: &Contents, uuid: &[u8], session: u64, base_len: u64) -> Points {
        let seed = sums::journal_seed(uuid, session);
        let mut found: Vec<Record> = Vec::new();
        let mut at = 0;
        let mut cut = journal.clone();
        cut.len = cut.len.min(LONGEST);
        // Skip holes.
        while let Some((&page, _)) = cut.pages.range(at / BLOCK..cut.len.div_ceil(BLOCK)).next() {
            at = page * BLOCK;
            at += match record(&cut, at, seed) {
                Some((record, len)) => {
                    if found.iter().all(|known| known.number != record.number) {
                        found.push(record);
                    }
                    len
                }
                None => BLOCK,
            };
        }
        found.sort_by_key(|record| record.number);
        let mut run: Vec<Record> = Vec::new();
        while let Some(record) = found.pop() {
            let goes_on =
                run.last().is_none_or(|later| !later.is_base && later.number == record.number + 1);
            if !goes_on {
                break;
            }
            run.push(record);
        }
        run.reverse();
        Points { run, ..Points::none(base_len) }
    }

    /// Returns the records that count, oldest first.
    pub fn run(&self) -> &[Record] {
        &self.run
    }

    /// Returns `true` if the journal ends before the floor of its session. Such a journal was
    /// copied before its last records became durable.
    pub fn end_before(&self, floor: u64) -> bool {
        self.run.last().map_or(0, |record| record.number) < floor
    }

    /// Returns `true` if the newest record is missing.
    pub fn lack_newest(&self, reflection: &Contents, uuid: &[u8; 16], session: u64) -> bool {
        self.end_before(floor_at(reflection, sums::NEWEST_RECORD, uuid, session))
    }

    /// Returns `true` if an older record is missing that the way back to the last durable point
    /// needs.
    pub fn lack_older(&self, reflection: &Contents, uuid: &[u8; 16], session: u64) -> bool {
        // A first floor is no checkpoint.
        let needed = match floor(reflection, uuid, session) {
            0 | 1 => 1,
            floor => floor + 1,
        };
        let are_told = sums::FLOORS.into_iter().all(|at| {
            let bytes = reflection.bytes(at, sums::FLOOR_LEN);
            bytes.iter().all(|byte| *byte == 0) || is_whole_floor(uuid, &bytes)
        });
        let begins_late = |first: &Record| !first.is_base && first.number > needed;
        are_told && self.run.first().is_some_and(begins_late)
    }

    /// Returns the length of the file at the newest durable point.
    pub fn file_len(&self) -> u64 {
        self.run.last().map_or(self.base_len, |record| record.len)
    }

    /// Returns the number of pages within `len` bytes that the records name, which is the cost of a
    /// replay.
    pub fn pages(&self, len: u64) -> u64 {
        let pages = len.div_ceil(P);
        let changes = self.run.iter().flat_map(|record| &record.changes);
        changes.map(|change| change.pages.end.min(pages).saturating_sub(change.pages.start)).sum()
    }

    /// Returns the valid slots of a page at the newest durable point.
    fn valid(&self, reflection: &Contents, page: u64) -> u64 {
        let changes = self.run.iter().rev().flat_map(|record| &record.changes);
        match changes.into_iter().find(|change| change.pages.contains(&page)) {
            Some(change) => change.valid,
            None => reflection.word(layout::durable_word(PageIndex(page))),
        }
    }

    /// Returns the bytes of the newest durable point.
    pub fn bytes(&self, image: &Image) -> Contents {
        let len = self.file_len();
        let mut home = image.home.clone();
        let mut reflection = image.reflection.clone().expect("a pair has one");
        // Missing parts of the files are zero.
        reflection.len = reflection.len.max(layout::reflection_len(len));
        for record in &self.run {
            let mut slices = record.slices.chunks_exact(SLICE);
            for change in &record.changes {
                for slice in (0..64).filter(|slice| change.slices >> slice & 1 == 1) {
                    let bytes = slices.next().expect("as many as are said");
                    let at = change.pages.start * P + slice * SLICE as u64;
                    if change.pages.start * P >= len {
                        continue;
                    }
                    match change.valid >> slice & 1 {
                        0 if self.is_home_whole => {}
                        0 => home.write(bytes, at),
                        _ => reflection.write(bytes, layout::reflection(at)),
                    }
                }
            }
        }
        let mut bytes = home.clone();
        bytes.set_len(len);
        for page in pages_with_bytes(&home, &reflection) {
            let valid = if page * P < len { self.valid(&reflection, page) } else { 0 };
            for slice in (0..64).filter(|slice| valid >> slice & 1 == 1) {
                let at = page * P + slice * SLICE as u64;
                bytes.write(&reflection.bytes(layout::reflection(at), SLICE), at);
            }
        }
        bytes.trim();
        bytes
    }
}

/// Returns the pages for which either file has bytes, in either slot.
fn pages_with_bytes(home: &Contents, reflection: &Contents) -> Vec<u64> {
    let mut pages: Vec<u64> = home.pages.keys().copied().collect();
    for n in reflection.pages.keys() {
        let Some(at) = (n * P).checked_sub(layout::SUPERCHUNKS) else { continue };
        let (superchunk, at) = (at / layout::SUPERCHUNK_LEN, at % layout::SUPERCHUNK_LEN);
        if let Some(at) = at.checked_sub(layout::SUPERCHUNK_META) {
            pages.push((superchunk << 18) + at / P);
        }
    }
    pages.sort_unstable();
    pages.dedup();
    pages
}
