//! Fuzz target: the decoder of the journal against the second reading, and against its encoder. The
//! decoder must not panic, and must not accept invalid records.
//!
//! ```text
//! 0  bits 0-1: bytes of a journal, a record's fields, or several records;
//!    bit 7: checksums are repaired
//! 1- the journal's bytes, or the fields
//! ```

use super::image::Contents;
use super::input::Input;
use super::points::{self, Points};
use super::sums;
use atomic_mmap::testing::journal::{
    BLOCK, JournalSeed, Record, newest_run, push_change, record_len,
};
use atomic_mmap::testing::{PAGE, PageIndex, SLICE, Slices, Validity, layout};

const UUID: [u8; 16] = *b"records of a run";
const SESSION: u64 = 78;
const PAGES: u64 = layout::MAX_LEN / PAGE as u64;
/// Maximum number of pages that a change names, for records that are made page by page.
const MOST_IN_ROW: u64 = 40;

/// Runs one input.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let first = input.byte();
    match first & 3 {
        0 | 1 => journal_bytes(input.0, first >> 7 == 1),
        2 => one_record(&mut input),
        _ => several_records(&mut input),
    }
}

fn seed() -> JournalSeed {
    JournalSeed::new(&UUID, SESSION)
}

fn said(record: &Record) -> points::Record {
    let changes = record.changes.iter().map(|change| points::Change {
        pages: change.page.0..change.page.0 + change.count,
        valid: change.valid.0,
        slices: change.slices.0,
    });
    points::Record {
        number: record.number,
        is_base: record.is_base,
        len: record.len,
        changes: changes.collect(),
        slices: record.slices.clone(),
        sums: record.sums.clone(),
    }
}

fn contents(bytes: &[u8]) -> Contents {
    let mut journal = Contents::of_len(bytes.len() as u64);
    journal.write(bytes, 0);
    journal
}

/// Checks that both readings find the same record in each block, and that the same records count.
fn agree(bytes: &[u8]) -> Vec<u64> {
    let journal = contents(bytes);
    let own = sums::journal_seed(&UUID, SESSION);
    for at in (0..bytes.len()).step_by(BLOCK) {
        let found = Record::decode(seed(), &bytes[at..]);
        let second = points::record(&journal, at as u64, own);
        assert_eq!(
            found.as_ref().map(|(record, len)| (said(record), *len as u64)),
            second,
            "the block at {at}"
        );
        if let Some((record, len)) = found {
            let again = record.encode(seed());
            assert_eq!(again.len(), len, "whole blocks");
            // The padding after the record has no meaning.
            let said = sums::record_len(&journal, at as u64).expect("a record") as usize;
            assert_eq!(again[..said], bytes[at..at + said], "encoded again");
        }
    }
    let run = newest_run(seed(), bytes);
    let points = Points::read(&journal, &UUID, SESSION, 77);
    let len = run.last().map_or(77, |(_, record)| record.len);
    assert_eq!(points.file_len(), len, "the length at the newest point");
    let found: Vec<_> = run.iter().map(|(_, record)| said(record)).collect();
    assert_eq!(found, points.run(), "the records that count");
    for (at, record) in &run {
        let (there, _) =
            Record::decode(seed(), &bytes[*at as usize..]).expect("where it is said to be");
        assert_eq!(&there, record);
    }
    run.iter().map(|(_, record)| record.number).collect()
}

fn journal_bytes(bytes: &[u8], repair: bool) {
    let mut journal = contents(bytes);
    if repair {
        for at in (0..bytes.len() as u64).step_by(BLOCK) {
            // A mutation rarely keeps the magic number, but the bytes after it are the ones to
            // test.
            let rest = (bytes.len() as u64 - at) as usize;
            journal.write(&b"AtomJrnl"[..rest.min(8)], at);
        }
        sums::repair_records(&mut journal, &UUID, SESSION, |_| true);
    }
    agree(&journal.bytes(0, bytes.len()));
}

fn a_record(input: &mut Input<'_>, number: u64) -> Record {
    let flags = input.byte();
    let is_base = flags & 1 == 1;
    let mut record = Record {
        number,
        is_base,
        len: input.number(6) % (layout::MAX_LEN + 1),
        changes: Vec::new(),
        slices: Vec::new(),
        sums: Vec::new(),
    };
    let mut page = input.number(4) % PAGES;
    for _ in 0..input.byte() % 24 {
        let (gap, row) = (u64::from(input.byte()), 1 + u64::from(input.byte()) % MOST_IN_ROW);
        let (valid, mask) = (Validity(input.number(8)), Slices(input.number(2)));
        page += gap;
        for n in 0..row {
            if page >= PAGES {
                break;
            }
            let held = if is_base || n > 0 { Slices::NONE } else { mask };
            push_change(&mut record.changes, PageIndex(page), valid, held);
            let fill = input.byte();
            record.slices.resize(record.slices.len() + held.0.count_ones() as usize * SLICE, fill);
            page += 1;
        }
    }
    if flags & 2 == 2 && !is_base && record.changes.iter().all(|change| change.count == 1) {
        record.sums = record.changes.iter().map(|_| input.number(8)).collect();
    }
    record
}

fn one_record(input: &mut Input<'_>) {
    let number = 1 + input.number(8) % (u64::MAX - 1);
    let record = a_record(input, number);
    let bytes = record.encode(seed());
    let slices = record.slices.len() / SLICE;
    assert_eq!(bytes.len() as u64, record_len(record.changes.len(), slices, record.sums.len()));
    assert_eq!(Record::decode(seed(), &bytes), Some((record.clone(), bytes.len())));
    assert_eq!(agree(&bytes), [number]);
    for other in
        [JournalSeed::new(&UUID, SESSION + 1), JournalSeed::new(b"another's UUID!!", SESSION)]
    {
        assert_eq!(Record::decode(other, &bytes), None, "a record of another session");
    }
    // A torn record: it needs all the bytes that it claims.
    let said = sums::record_len(&contents(&bytes), 0).expect("a record") as usize;
    let cut = input.number(3) as usize % said;
    let mut torn = bytes.clone();
    torn[cut..].fill(0);
    if torn[..said] != bytes[..said] {
        assert_eq!(Record::decode(seed(), &torn), None, "a torn record");
    }
    assert_eq!(Record::decode(seed(), &bytes[..cut]), None, "a truncated record");
}

fn several_records(input: &mut Input<'_>) {
    let mut bytes = Vec::new();
    while !input.is_empty() && bytes.len() < 64 << 10 {
        match input.byte() % 8 {
            0 => bytes.extend([0; BLOCK]),
            1 => bytes.extend([b'A'; BLOCK]),
            _ => {
                let number = 1 + u64::from(input.byte() % 16);
                let record = a_record(input, number);
                let mut record = record.encode(seed());
                if input.byte() == 1 {
                    let at = input.number(2) as usize % record.len();
                    record[at] ^= 1;
                }
                bytes.extend(record);
            }
        }
    }
    let numbers = agree(&bytes);
    assert!(numbers.windows(2).all(|two| two[0] + 1 == two[1]), "{numbers:?} are in a row");
}
