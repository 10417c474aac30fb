//! Tests that `docs/structures.md`, the constants and the encoders agree.
//!
//! The document has the machine-readable blocks `layout` and `golden`, as `docs/format.md` does. A
//! change of the bytes needs a new version of the structure.

use super::directory::{self, Entry, Header};
use super::log::blocks::{BlockHeader, sum_of_record};
use super::log::meta::{self, Head, Segment, Segments};
use std::collections::BTreeMap;
use zerocopy::{FromZeros, IntoBytes};

const DOCUMENT: &str = include_str!("../../docs/structures.md");

/// Returns the lines `name = value` of the fenced block `kind`.
fn block(kind: &str) -> BTreeMap<&'static str, String> {
    let fence = format!("```{kind}\n");
    let (_, rest) = DOCUMENT.split_once(&fence).expect("the block is in the document");
    let (body, _) = rest.split_once("```").expect("the block ends");
    let lines = body.lines().filter_map(|line| line.split_once('='));
    lines.map(|(name, value)| (name.trim(), value.trim().to_owned())).collect()
}

#[test]
fn the_document_and_the_constants_agree() {
    let constants = BTreeMap::from([
        ("unit", super::UNIT),
        ("directory", directory::HEAD),
        ("header", size_of::<Header>() as u64),
        ("first_table", directory::FIRST_TABLE),
        ("first_places", directory::FIRST_PLACES),
        ("most_places", directory::MOST_PLACES),
        ("entry", size_of::<Entry>() as u64),
        ("longest_name", directory::LONGEST_NAME as u64),
        ("log_extent", meta::EXTENT),
        ("log_head", size_of::<Head>() as u64),
        ("segments_offset", meta::SEGMENTS),
        ("segment", size_of::<Segment>() as u64),
        ("most_segments", meta::MOST_SEGMENTS as u64),
        ("block", meta::BLOCK),
        ("block_header", size_of::<BlockHeader>() as u64),
        ("record_header", meta::RECORD_HEADER),
        ("directory_version", u64::from(directory::VERSION)),
        ("log_version", u64::from(meta::VERSION)),
    ]);
    let constants: BTreeMap<_, _> =
        constants.into_iter().map(|(name, value)| (name, value.to_string())).collect();
    assert_eq!(block("layout"), constants);
}

#[test]
fn the_document_and_the_encoders_agree() {
    let mut entry = Entry::new_zeroed();
    (entry.offset, entry.len, entry.size) = (8192.into(), 16.into(), 16.into());
    (entry.align, entry.kind, entry.name_len) = (8.into(), directory::VALUE, 4);
    entry.type_id = 7.into();
    entry.name[..4].copy_from_slice(b"vote");
    let segment = Segment { offset: 16384.into(), first: 0.into(), count: 4.into() };
    let head = Head {
        generation: 2.into(),
        first: 1.into(),
        next: 3.into(),
        start: 11.into(),
        end: 30.into(),
        last: segment,
        ..Head::new(5)
    };
    let record = [&3_u32.to_le_bytes(), &sum_of_record(5, 1, b"abc").to_le_bytes(), &b"abc"[..]];
    let encoded = BTreeMap::from([
        ("header", hex(Header::new(4096).as_bytes())),
        ("entry", hex(&entry.sealed().as_bytes()[..56])),
        ("log_head", hex(head.sealed().as_bytes())),
        ("segments", hex(&Segments::new(vec![segment]).encode())),
        ("block_header", hex(BlockHeader::new(5, 9, 77, 100).as_bytes())),
        ("record", hex(&record.concat())),
    ]);
    assert_eq!(block("golden"), encoded);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
