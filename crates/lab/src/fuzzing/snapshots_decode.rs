//! Fuzz target: the decoders of the snapshot store against a second reading of `docs/format.md`,
//! and against their encoders. A decoder must not panic, and must not accept invalid bytes.
//!
//! ```text
//! 0  bits 0-1: bytes of a table, bytes of a segment, fields of a table, fields of records;
//!    bit 2: instead, words of the store of a pair, which is then used (`live`);
//!    bit 7: checksums are repaired
//! 1- the bytes, the fields, or the changes
//! ```

use super::input::{Input, filling};
use super::live;
use atomic_mmap::testing::snapshots::SegmentIndex;
use atomic_mmap::testing::snapshots::segment::{self, Record, SealSum, SegmentHeader};
use atomic_mmap::testing::snapshots::table::{Entry, Flags, Table};
use atomic_mmap::testing::{PAGE, PageIndex, SLICE, Slices, layout};
use crc32c::{crc32c, crc32c_append};

const UUID: [u8; 16] = *b"bytes that stay!";
const PLACE: SegmentIndex = SegmentIndex(6);
const HEADER: SegmentHeader = SegmentHeader { opening: 3, turn: 9 };
const LINE: usize = 64;
const ENTRY: usize = 128;
const HEAD: usize = 128;

/// Runs one input.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let first = input.byte();
    match first & 7 {
        4.. => live::store(&mut input),
        0 => table_bytes(input.0, first >> 7 == 1),
        1 => segment_bytes(input.0, first >> 7 == 1),
        2 => table(&mut input),
        _ => records(&mut input),
    }
}

/// Returns seeds of each kind of input.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (kind, seed) in [2, 3].into_iter().flat_map(|kind| (0..6).map(move |seed| (kind, seed))) {
        seeds.push([&[kind][..], &filling(seed + 70, 20 << seed)].concat());
    }
    for seed in 0..12 {
        seeds.push([&[4][..], &filling(seed + 110, 20)].concat());
    }
    for seed in 0..4 {
        let bytes = filling(seed + 90, 60 << seed);
        seeds.push([&[0x80][..], &a_table(&mut Input(&bytes)).encode()].concat());
        let (segment, _) = a_segment(&mut Input(&bytes));
        seeds.push([&[0x81][..], &segment[..segment.len().min(3000)]].concat());
    }
    seeds
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn sum_of_table(bytes: &[u8]) -> u32 {
    crc32c_append(crc32c_append(crc32c(b"snapshots"), &bytes[48..64]), &bytes[12..])
}

/// Returns the bytes that a table claims, if it is no longer than the input.
fn said(bytes: &[u8]) -> Option<usize> {
    let count = if bytes.len() < HEAD { return None } else { half(bytes, 12) as usize };
    (count <= 1000 && HEAD + count * ENTRY <= bytes.len()).then_some(HEAD + count * ENTRY)
}

/// Reads a table as the document says.
fn second_table(bytes: &[u8]) -> Option<Table> {
    let bytes = &bytes[..said(bytes)?];
    if bytes[..8] != *b"AtomSnpT" || half(bytes, 8) != sum_of_table(bytes) {
        return None;
    }
    let (highest, rollback, doubted) = (word(bytes, 24), word(bytes, 40), word(bytes, 80));
    if [16, 24, 32].iter().any(|at| word(bytes, *at) >> 63 == 1) {
        return None;
    }
    if doubted > highest || bytes[104..HEAD].iter().any(|byte| *byte != 0) {
        return None;
    }
    let mut entries: Vec<Entry> = Vec::new();
    for entry in bytes[HEAD..].chunks(ENTRY) {
        let (number, len, flags) = (word(entry, 0), word(entry, 8), half(entry, 24));
        let name = entry[32..96].get(..half(entry, 28) as usize)?;
        let follows = entries.last().is_none_or(|last| last.number < number);
        let is_right = number != 0 && number <= highest && len <= layout::MAX_LEN && flags < 4;
        let padding = &entry[32 + name.len()..];
        let is_name = !name.is_empty() && !name.contains(&0) && padding.iter().all(|b| *b == 0);
        if !follows || !is_right || !is_name {
            return None;
        }
        let name = String::from_utf8(name.to_vec()).ok()?;
        entries.push(Entry { number, len, nanos: word(entry, 16), flags: Flags(flags), name });
    }
    let is_live = rollback == 0 || entries.iter().any(|entry| entry.number == rollback);
    is_live.then_some(Table {
        uuid: bytes[48..64].try_into().expect("16 bytes"),
        generation: word(bytes, 16),
        highest,
        opening: word(bytes, 32),
        rollback,
        session: word(bytes, 64),
        next: word(bytes, 72),
        doubted,
        damage: word(bytes, 88),
        closed: word(bytes, 96),
        entries,
    })
}

fn table_bytes(bytes: &[u8], repair: bool) {
    let mut bytes = bytes.to_vec();
    if let (true, Some(len)) = (repair, said(&bytes)) {
        bytes[..8].copy_from_slice(b"AtomSnpT");
        let sum = sum_of_table(&bytes[..len]);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    }
    let found = Table::decode(&bytes);
    assert_eq!(found, second_table(&bytes));
    let Some(table) = found else { return };
    let again = table.encode();
    assert_eq!(again, bytes[..again.len()], "encoded again");
    let mut start = vec![0; table.place() as usize];
    start.extend(&again);
    assert_eq!(Table::newest(&start, &table.uuid), Some(table));
}

fn a_table(input: &mut Input<'_>) -> Table {
    let mut table = Table {
        uuid: UUID,
        generation: input.number(6),
        highest: input.number(6),
        opening: input.number(6),
        session: input.number(8),
        next: input.number(8),
        damage: input.number(6),
        closed: input.number(4),
        ..Table::default()
    };
    for _ in 0..input.byte() % 20 {
        let (len, nanos) = (input.number(6) % (layout::MAX_LEN + 1), input.number(8));
        let (flags, name) = (Flags(u32::from(input.byte() % 4)), 1 + input.byte() as usize % 64);
        let number = table.add(len, nanos, flags, &"snapshot".repeat(8)[..name]);
        if input.byte().is_multiple_of(4) {
            table.remove(number);
        }
    }
    let rollback = table.entries.get(input.byte() as usize);
    table.rollback = rollback.map_or(0, |entry| entry.number);
    table.doubted = table.highest / (1 + u64::from(input.byte()));
    table
}

fn table(input: &mut Input<'_>) {
    let table = a_table(input);
    let bytes = table.encode();
    assert_eq!(Table::decode(&bytes).as_ref(), Some(&table));
    assert_eq!(second_table(&bytes), Some(table));
    let cut = input.number(2) as usize % bytes.len();
    assert_eq!(Table::decode(&bytes[..cut]), None, "a table that was cut");
    let mut torn = bytes.clone();
    torn[cut..].fill(0);
    assert!(torn == bytes || Table::decode(&torn).is_none(), "a torn table");
}

/// Returns the seed of the checksums of the segment.
fn second_seed() -> u32 {
    let SegmentHeader { opening, turn } = HEADER;
    let parts = [&UUID[..], &opening.to_le_bytes(), &turn.to_le_bytes(), &PLACE.0.to_le_bytes()];
    parts.iter().fold(crc32c(b"segment"), |sum, part| crc32c_append(sum, part))
}

/// Returns the bytes that the record at the beginning of `bytes` claims, if they are there.
fn record_len(bytes: &[u8]) -> Option<usize> {
    let len = LINE + word(bytes.get(..LINE)?, 24).count_ones() as usize * SLICE;
    (len <= bytes.len()).then_some(len)
}

/// Reads the records of a segment as the document says.
fn second_records(bytes: &[u8]) -> Vec<(usize, Record)> {
    let (mut at, mut records) = (LINE, Vec::new());
    while let Some(rest) = bytes.get(at..)
        && let Some(len) = record_len(rest)
    {
        let (epoch, page, mask) = (word(rest, 8), word(rest, 16), word(rest, 24));
        let is_whole = half(rest, 0) == crc32c_append(second_seed(), &rest[4..LINE])
            && half(rest, 4) == crc32c_append(second_seed(), &rest[LINE..len]);
        let is_right =
            epoch != 0 && epoch >> 63 == 0 && mask != 0 && page < layout::MAX_LEN / PAGE as u64;
        let sum = match (word(rest, 32), word(rest, 40)) {
            (0, 0) => Some(SealSum::Unknown),
            (sum, 1) => Some(SealSum::Known(sum)),
            (0, 2) => Some(SealSum::Later),
            _ => None,
        };
        let is_right = is_right && rest[48..LINE].iter().all(|byte| *byte == 0);
        let Some(sum) = sum.filter(|_| is_whole && is_right) else { break };
        records.push((at, Record { epoch, page: PageIndex(page), mask: Slices(mask), sum }));
        at += len;
    }
    records
}

/// Repairs the checksums of records, as far as they follow each other.
fn repair_records(bytes: &mut [u8]) {
    let mut at = LINE;
    while let Some(rest) = bytes.get_mut(at..)
        && let Some(len) = record_len(rest)
    {
        let kept = crc32c_append(second_seed(), &rest[LINE..len]);
        rest[4..8].copy_from_slice(&kept.to_le_bytes());
        let sum = crc32c_append(second_seed(), &rest[4..LINE]);
        rest[..4].copy_from_slice(&sum.to_le_bytes());
        at += len;
    }
}

fn found(bytes: &[u8]) -> Vec<(usize, Record)> {
    segment::records(HEADER.seed(&UUID, PLACE), bytes).collect()
}

fn segment_bytes(bytes: &[u8], repair: bool) {
    let mut bytes = bytes.to_vec();
    if repair {
        repair_records(&mut bytes);
    }
    if let Some(header) = SegmentHeader::decode(&UUID, PLACE, &bytes) {
        assert_eq!(header.encode(&UUID, PLACE), bytes[..LINE]);
    }
    let records = found(&bytes);
    assert_eq!(records, second_records(&bytes));
    let end = records.last().map_or(LINE, |(at, record)| at + record.len());
    let sum = crc32c_append(second_seed(), &(end as u32).to_le_bytes());
    let word = segment::end_word(HEADER.seed(&UUID, PLACE), end);
    assert_eq!(word, u64::from(sum) << 32 | end as u64);
    for (at, record) in records {
        let kept = &bytes[at + LINE..at + record.len()];
        let header = record.encode(HEADER.seed(&UUID, PLACE), kept);
        assert_eq!(header, bytes[at..at + LINE], "encoded again");
    }
}

fn a_segment(input: &mut Input<'_>) -> (Vec<u8>, Vec<Record>) {
    let mut bytes = HEADER.encode(&UUID, PLACE).to_vec();
    let mut records = Vec::new();
    while !input.is_empty() && bytes.len() < 60_000 {
        let epoch = 1 + input.number(2);
        let page = PageIndex(input.number(4) % (layout::MAX_LEN / PAGE as u64));
        let mask = Slices(input.number(8) | 1 << (input.byte() % 64));
        let kept = filling(input.number(2), mask.count() * SLICE);
        let sum = match input.number(1) % 4 {
            0 | 2 => SealSum::Known(input.number(8)),
            1 => SealSum::Later,
            _ => SealSum::Unknown,
        };
        let record = Record { epoch, page, mask, sum };
        bytes.extend(record.encode(HEADER.seed(&UUID, PLACE), &kept));
        bytes.extend(kept);
        records.push(record);
    }
    (bytes, records)
}

fn records(input: &mut Input<'_>) {
    let cut = input.number(2) as usize;
    let (bytes, records) = a_segment(input);
    let there = found(&bytes);
    assert_eq!(there.iter().map(|(_, record)| *record).collect::<Vec<_>>(), records);
    assert_eq!(SegmentHeader::decode(&UUID, PLACE, &bytes), Some(HEADER));
    let cut = cut % bytes.len();
    let mut torn = bytes.clone();
    torn[cut..].fill(0);
    for torn in [&bytes[..cut], &torn] {
        let left = found(torn);
        let whole = |(at, record): &(usize, Record)| torn.get(*at..*at + record.len());
        let is_there = |it: &&(usize, Record)| whole(it) == Some(&bytes[it.0..][..it.1.len()]);
        assert_eq!(left.len(), there.iter().take_while(is_there).count(), "a torn record");
    }
    for other in [SegmentHeader { turn: 8, ..HEADER }, SegmentHeader { opening: 2, ..HEADER }] {
        assert_eq!(segment::records(other.seed(&UUID, PLACE), &bytes).count(), 0);
    }
}
