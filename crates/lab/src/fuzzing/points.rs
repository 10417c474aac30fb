//! Which durable point does an image go back to? The journal and the durable words of `docs/format.md`,
//! read a second time.
//!
//! Shares no code with `src/format/journal.rs` nor `src/recovery/durable.rs`. Part of [`super::reading`].

use super::image::{Contents, Image};
use super::sums::{self, BLOCK, CHANGE, RECORD_HEADER, small, word};
use atomic_mmap::testing::{PAGE, PageIndex, SLICE, layout};
use std::ops::Range;

const P: u64 = PAGE as u64;
/// The longest journal: what lies behind that says nothing.
const LONGEST: u64 = 1 << 30;

/// What a record says of some pages in a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Which ones.
    pub pages: Range<u64>,
    /// The durable word of each.
    pub valid: u64,
    /// The slices that the record holds.
    pub slices: u64,
}

/// A record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Its number in the session.
    pub number: u64,
    /// Whether no earlier record counts.
    pub is_base: bool,
    /// The length that the home file has.
    pub len: u64,
    /// What it says of pages.
    pub changes: Vec<Change>,
    /// The bytes of the slices.
    pub slices: Vec<u8>,
}

/// The record in the block at `at`, and the bytes of its blocks. `None`: none, or a torn one.
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
    let is_right = flags <= 1
        && bytes[48..64] == [0; 16]
        && number > 0
        && file_len <= layout::MAX_LEN
        && (bytes.len() - slices_at) as u64 == held * SLICE as u64
        && changes.windows(2).all(|two| two[0].pages.end <= two[1].pages.start)
        && changes.iter().all(|change| {
            change.pages.end <= layout::MAX_LEN / P
                && (change.slices == 0 || change.pages.end == change.pages.start + 1)
        });
    let slices = bytes[slices_at..].to_vec();
    let record = Record { number, is_base: flags == 1, len: file_len, changes, slices };
    is_right.then_some((record, len.next_multiple_of(BLOCK)))
}

/// What the head of a journal says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Whose journal it is.
    pub uuid: [u8; 16],
    /// The first session whose records are whole.
    pub from: u64,
    /// The last one that may have written records.
    pub to: u64,
}

/// The whole headers in a journal's first two blocks, and which block each is in.
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
        (block, Header { uuid, from: word(&bytes, 32), to: word(&bytes, 40) })
    };
    (0..2).filter(whole).map(said).collect()
}

/// The header that counts.
pub fn header(journal: &Contents) -> Option<Header> {
    // The last of two that are equal.
    let headers = headers(journal).into_iter().map(|(_, header)| header);
    headers.max_by_key(|header| (header.to, header.from))
}

/// Whether a floor is whole: its checksum is right, and what is to be zero is.
pub fn is_whole_floor(uuid: &[u8; 16], bytes: &[u8]) -> bool {
    small(bytes, 16) == sums::of_floor(uuid, bytes) && small(bytes, 20) == 0
}

/// The number that the newest record of a session has at least, as the reflection file says. 0: it
/// does not say.
pub fn floor(reflection: &Contents, uuid: &[u8; 16], session: u64) -> u64 {
    let mut floor = 0;
    for at in sums::FLOORS {
        let bytes = reflection.bytes(at, sums::FLOOR_LEN);
        if is_whole_floor(uuid, &bytes) && word(&bytes, 0) == session {
            floor = floor.max(word(&bytes, 8));
        }
    }
    floor
}

/// Whether the journal's head says that it holds all records of this session of the pair.
pub fn vouches(journal: &Contents, uuid: &[u8; 16], session: u64) -> bool {
    header(journal).is_some_and(|h| h.uuid == *uuid && h.from <= session && session <= h.to)
}

/// What the journal of a session says: the newest record, and those before it that count.
pub struct Points {
    run: Vec<Record>,
    base_len: u64,
}

impl Points {
    /// Reads the journal; `base_len` is what the superblock says of the session's beginning.
    pub fn read(journal: &Contents, uuid: &[u8], session: u64, base_len: u64) -> Points {
        let seed = sums::journal_seed(uuid, session);
        let mut found: Vec<Record> = Vec::new();
        let mut at = 0;
        let mut cut = journal.clone();
        cut.len = cut.len.min(LONGEST);
        // Holes say nothing.
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
        Points { run, base_len }
    }

    /// The records that count, oldest first.
    pub fn run(&self) -> &[Record] {
        &self.run
    }

    /// Whether the journal ends before the floor of its session: it was copied before records that
    /// were durable.
    pub fn end_before(&self, floor: u64) -> bool {
        self.run.last().map_or(0, |record| record.number) < floor
    }

    /// How long the file is at the newest point.
    pub fn file_len(&self) -> u64 {
        self.run.last().map_or(self.base_len, |record| record.len)
    }

    /// Number of pages within `len` bytes that the records name: what replaying them costs.
    pub fn pages(&self, len: u64) -> u64 {
        let pages = len.div_ceil(P);
        let changes = self.run.iter().flat_map(|record| &record.changes);
        changes.map(|change| change.pages.end.min(pages).saturating_sub(change.pages.start)).sum()
    }

    /// Where the slices of a page are valid at the newest point.
    fn valid(&self, reflection: &Contents, page: u64) -> u64 {
        let changes = self.run.iter().rev().flat_map(|record| &record.changes);
        match changes.into_iter().find(|change| change.pages.contains(&page)) {
            Some(change) => change.valid,
            None => reflection.word(layout::durable_word(PageIndex(page))),
        }
    }

    /// The bytes of the newest point.
    pub fn bytes(&self, image: &Image) -> Contents {
        let len = self.file_len();
        let mut home = image.home.clone();
        let mut reflection = image.reflection.clone().expect("a pair has one");
        // What the files lack is zero.
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

/// The pages of which either file has bytes, in either slot.
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
