//! A second reading of `docs/structures.md`: what the bytes of a file say, without the crate.
//!
//! It shares no code with the crate, and checks the invariants by their numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

const BLOCK: usize = 4096;
const DATA: usize = 4080;

/// The thing that a name stands for.
#[derive(PartialEq, Debug)]
pub enum Read {
    /// A value or an array: size of an element, and the bytes.
    Bytes(usize, Vec<u8>),
    /// A log: the number of the oldest record, and the records.
    Log(u64, Vec<Vec<u8>>),
}

fn word(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes")) as usize
}

fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// Returns the CRC-32C of words and bytes.
fn sum(words: &[usize], bytes: &[u8]) -> u32 {
    let words: Vec<u8> = words.iter().flat_map(|word| (*word as u64).to_le_bytes()).collect();
    crc32c::crc32c(&[&words, bytes].concat())
}

/// Checks a checksum at `at`, computed with that field as zero.
#[track_caller]
fn expect_sum(bytes: &[u8], at: usize) {
    let mut without = bytes.to_vec();
    without[at..at + 4].fill(0);
    assert_eq!(half(bytes, at), sum(&[], &without), "a checksum");
}

/// Reads the directory at the beginning of a file.
pub fn read(file: &[u8]) -> BTreeMap<String, Read> {
    let header = &file[..64];
    assert_eq!((&header[..8], half(header, 8)), (&b"AtomRoot"[..], 1));
    expect_sum(header, 12);
    let (table, places, high_water) = (word(header, 16), word(header, 24), word(header, 32));
    let directory = 0..4096;
    // The first table lies in the directory's own bytes.
    let table_moved = (table != 128).then_some(table..table + places * 128);
    let mut extents: Vec<_> = [directory].into_iter().chain(table_moved).collect();
    let (mut found, mut numbers) = (BTreeMap::new(), BTreeSet::new());
    for entry in file[table..table + places * 128].chunks_exact(128) {
        if entry.iter().all(|byte| *byte == 0) {
            continue;
        }
        // N3
        expect_sum(entry, 40);
        let (at, len, size) = (word(entry, 0), word(entry, 8), word(entry, 16));
        extents.push(at..at + len.max(1).next_multiple_of(64));
        let name = str::from_utf8(&entry[48..48 + usize::from(entry[29])]).expect("UTF-8");
        let read = match entry[28] {
            1 | 2 => Read::Bytes(size, file[at..at + len].to_vec()),
            3 => {
                assert_eq!(len, 8192);
                assert!(size < word(header, 40) && numbers.insert(size), "a log's number");
                read_log(file, at, size, &mut extents)
            }
            kind => panic!("kind {kind}"),
        };
        // N1
        assert!(found.insert(name.to_owned(), read).is_none(), "{name} twice");
    }
    // N2, N5
    extents.sort_by_key(|extent| extent.start);
    assert!(extents.windows(2).all(|pair| pair[0].end <= pair[1].start), "{extents:?}");
    let end = extents.last().expect("the directory").end;
    assert!(end <= high_water && end <= file.len(), "{end}, {high_water}");
    assert!(file[high_water.min(file.len())..].iter().all(|byte| *byte == 0), "not zero");
    found
}

fn read_log(file: &[u8], at: usize, id: usize, extents: &mut Vec<Range<usize>>) -> Read {
    let (head, list) = (&file[at..at + 96], &file[at + 4096..at + 8192]);
    // Q1
    assert_eq!((&head[..8], half(head, 8), word(head, 16)), (&b"AtomLogs"[..], 1, id));
    expect_sum(head, 12);
    let count = half(list, 8) as usize;
    assert_eq!(&list[..8], b"AtomSegs");
    expect_sum(&list[..16 + count * 24], 12);
    let [first, next, start, end] = [32, 40, 48, 56].map(|at| word(head, at));
    let segments: Vec<[usize; 3]> =
        (0..count).map(|n| [0, 8, 16].map(|field| word(list, 16 + n * 24 + field))).collect();
    // Q2
    assert!(segments.windows(2).all(|pair| pair[0][1] + pair[0][2] == pair[1][1]));
    for [offset, first_block, blocks] in &segments {
        extents.push(*offset..offset + blocks * BLOCK);
        assert!(first_block * DATA < end && start < (first_block + blocks) * DATA);
    }
    // Q3
    let last = [72, 80, 88].map(|at| word(head, at));
    assert_eq!(last, *segments.last().unwrap_or(&[0, end / DATA, 0]));
    // The stream from the first segment on, and the headers of its blocks.
    let (mut stream, mut headers) = (Vec::new(), BTreeMap::new());
    for [offset, first_block, blocks] in &segments {
        for n in 0..*blocks {
            let block = &file[offset + n * BLOCK..][..BLOCK];
            stream.extend_from_slice(&block[16..]);
            headers.insert(first_block + n, &block[..16]);
        }
    }
    let base = segments.first().map_or(start, |segment| segment[1] * DATA);
    // Q5
    let (mut position, mut records, mut beginnings) = (start, Vec::new(), BTreeMap::new());
    for seq in first..next {
        let rest = &stream[position - base..];
        let record = &rest[8..8 + half(rest, 0) as usize];
        assert_eq!(half(rest, 4), sum(&[id, seq, record.len()], record), "record {seq}");
        beginnings.entry(position / DATA).or_insert((seq, position % DATA));
        records.push(record.to_vec());
        position += 8 + record.len();
    }
    assert_eq!(position, end);
    // Q4
    for block in start / DATA + 1..end.div_ceil(DATA) {
        let header = headers[&block];
        let mut without = header.to_vec();
        without[12..].fill(0);
        assert_eq!(half(header, 12), sum(&[id, block], &sum(&[], &without).to_le_bytes()));
        let begins = usize::from(u16::from_le_bytes([header[8], header[9]]));
        match beginnings.get(&block) {
            Some(expected) => assert_eq!((word(header, 0), begins), *expected, "block {block}"),
            // No record begins here, or the next one will, at the end of the log.
            None => assert!(begins == DATA || block * DATA + begins == end, "block {block}"),
        }
    }
    Read::Log(first as u64, records)
}
