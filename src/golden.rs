//! Tests that the documents of the formats, the layout constants and the encoders agree.
//!
//! The document has two machine-readable blocks: `layout` (name = number) and `golden` (name =
//! bytes in hex). A change to only one of the three fails here. A change to all three needs a new
//! format version.

use crate::bitmap::{Slices, Validity};
use crate::format::byte_mark::ByteMark;
use crate::format::entry::{
    OldBits, RECORD, Redo, RedoPage, Seed, Sequence, UNDO_HEADER, Undo, UndoBody, WordId,
};
use crate::format::export::{Body, End, Frame, Header, Point};
use crate::format::flip_record::{FlipRecord, sum_of};
use crate::format::floor::{FLOOR_LEN, Floor};
use crate::format::marker::{Key, Marker};
use crate::format::snapshots::segment::{Record, SealSum, SegmentHeader, end_word};
use crate::format::snapshots::table::{Flags, Table};
use crate::format::snapshots::{self, SegmentIndex};
use crate::format::superblock::{SUPERBLOCK_LEN, tests::sample};
use crate::format::{journal, layout, state_word, superblock};
use crate::units::{self, LaneIndex, PageIndex, RegionIndex};
use std::collections::BTreeMap;

const DOCUMENT: &str = include_str!("../docs/format.md");
const EXPORT_DOCUMENT: &str = include_str!("../docs/format-export.md");

/// Returns the lines `name = value` of the fenced block `kind` of the first document.
fn block(kind: &str) -> BTreeMap<&'static str, &'static str> {
    block_of(DOCUMENT, kind)
}

fn block_of(document: &'static str, kind: &str) -> BTreeMap<&'static str, &'static str> {
    let fence = format!("```{kind}\n");
    let (_, rest) = document.split_once(&fence).expect("the block is in the document");
    let (body, _) = rest.split_once("```").expect("the block ends");
    let lines = body.lines().filter_map(|line| line.split_once('='));
    lines.map(|(name, value)| (name.trim(), value.trim())).collect()
}

#[test]
fn the_document_and_the_constants_agree() {
    let page = PageIndex(0);
    let start = layout::superchunk(0);
    let constants: BTreeMap<&str, u64> = BTreeMap::from([
        ("slice", units::SLICE as u64),
        ("page", units::PAGE as u64),
        ("pages_per_region", units::PAGES_PER_REGION as u64),
        ("chunk", units::CHUNK as u64),
        ("superchunk", units::SUPERCHUNK as u64),
        ("superblock_a", layout::SUPERBLOCKS[0]),
        ("superblock_b", layout::SUPERBLOCKS[1]),
        ("superblock_len", SUPERBLOCK_LEN as u64),
        ("length_word", layout::LENGTH_WORD),
        ("high_water_word", layout::HIGH_WATER_WORD),
        ("settled_word", layout::SETTLED_WORD),
        ("begun_word", layout::BEGUN_WORD),
        ("mark_word", layout::MARK_WORD),
        ("floor_a", layout::FLOORS[0]),
        ("floor_b", layout::FLOORS[1]),
        ("newest_record", layout::NEWEST_RECORD),
        ("floor_len", FLOOR_LEN as u64),
        ("lanes", layout::LANES),
        ("lane", layout::LANE as u64),
        ("lane_count", layout::LANE_COUNT as u64),
        ("private_lanes", layout::PRIVATE_LANES as u64),
        ("flip_record", layout::FLIP_RECORD as u64),
        ("ring", layout::RING as u64),
        ("batch", layout::BATCH as u64),
        ("undo_entry_offset", layout::UNDO_ENTRY as u64),
        ("undo_entry_len", layout::UNDO_ENTRY_LEN as u64),
        ("undo_header", UNDO_HEADER as u64),
        ("record", RECORD as u64),
        ("log_area", layout::LOG_AREA),
        ("log_area_len", layout::LOG_AREA_LEN),
        ("log_extent", layout::LOG_EXTENT),
        ("superchunks", layout::SUPERCHUNKS),
        ("superchunk_meta", layout::SUPERCHUNK_META),
        ("superchunk_len", layout::SUPERCHUNK_LEN),
        ("slice_words_offset", layout::slice_word(page) - start),
        ("durable_words_offset", layout::durable_word(page) - start),
        ("journal_block", journal::BLOCK as u64),
        ("journal_headers", journal::HEADERS as u64),
        ("journal_len", crate::config::options::JOURNAL_LEN),
        ("snapshot_table_a", snapshots::TABLES[0]),
        ("snapshot_table_b", snapshots::TABLES[1]),
        ("snapshots_at_most", snapshots::table::MOST_ENTRIES as u64),
        ("snapshot_segments", snapshots::SEGMENTS),
        ("snapshot_segment", snapshots::SEGMENT as u64),
        ("page_sums_offset", layout::page_sums(page) - start),
        ("page_sums_len", layout::PAGE_SUMS_LEN as u64),
        ("snapshot_group", u64::from(snapshots::GROUP)),
        ("region_words_offset", layout::region_words(0) - start),
        ("reflection_pages_offset", layout::reflection(0) - start),
        ("max_len", layout::MAX_LEN),
        ("format_version", u64::from(layout::FORMAT_VERSION)),
    ]);
    let documented: BTreeMap<&str, u64> = block("layout")
        .into_iter()
        .map(|(name, value)| {
            let number = match value.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16),
                None => value.parse(),
            };
            (name, number.expect("a number"))
        })
        .collect();
    assert_eq!(documented, constants);
}

fn words_and_floor() -> [(&'static str, String); 5] {
    let key = Key { inode: 3, born: Some(superblock::Moment { seconds: 4, nanos: 5 }), index: 0 };
    let byte_mark = ByteMark { uuid: *b"0123456789abcdef", key, is_elsewhere: true };
    let word = |at, number| hex(&state_word::encode(at, number).to_le_bytes());
    [
        ("length_word", word(layout::LENGTH_WORD, 30_000)),
        ("high_water_word", word(layout::HIGH_WATER_WORD, 30_000)),
        ("begun_word", word(layout::BEGUN_WORD, 7)),
        ("byte_mark", hex(&byte_mark.encode())),
        ("floor", hex(&Floor { session: 3, number: 5 }.encode(b"0123456789abcdef"))),
    ]
}

#[test]
fn the_document_and_the_encoders_agree() {
    let seed = Seed::new(b"0123456789abcdef", 3);
    let superblock = {
        let bytes = sample().encode();
        [&bytes[..176], &bytes[SUPERBLOCK_LEN - 4..]].concat()
    };
    let flip_record = FlipRecord {
        sequence: Sequence::from_bits(9),
        page: PageIndex(77),
        slices: 0b11,
        sides: 0b10,
        sum: sum_of(&[0xAB; 2 * units::SLICE]),
        page_sum: 0x0123_4567_89AB_CDEF,
    };
    let flip_record = flip_record.encode(seed.ring(LaneIndex(5)));
    let undo = Undo {
        sequence: Sequence::from_bits(2),
        body: UndoBody::Inline(vec![
            OldBits { word: WordId::Slice(PageIndex(7)), mask: 0b101, old: 0b100 },
            OldBits { word: WordId::Region(RegionIndex(3)), mask: 0xF0, old: 0x30 },
        ]),
    };
    let born = Some(superblock::Moment { seconds: 4, nanos: 5 });
    let marker = Marker {
        uuid: *b"0123456789abcdef",
        inode: 3,
        born,
        named: None,
        sessions: None,
        is_closing: false,
    };
    let redo = |len| {
        let bytes = vec![0xAB; units::SLICE];
        let (stays, flips, flipped) = (0b10, 0b101, 0b100);
        let pages = vec![RedoPage { page: PageIndex(7), stays, flips, flipped, bytes }];
        let body = UndoBody::Redo(Redo { len, pages });
        Undo { sequence: Sequence::from_bits(2), body }.encode(seed.undo(LaneIndex(1)))
    };
    let mut changes = Vec::new();
    journal::push_change(&mut changes, PageIndex(7), Validity(0b110), Slices(0b10));
    journal::push_change(&mut changes, PageIndex(8), Validity(!0), Slices::NONE);
    journal::push_change(&mut changes, PageIndex(9), Validity(!0), Slices::NONE);
    let record = journal::Record {
        number: 5,
        is_base: false,
        len: 1 << 20,
        changes,
        slices: vec![0xCD; units::SLICE],
        sums: vec![],
    };
    let record = record.encode(journal::JournalSeed::new(b"0123456789abcdef", 3));
    let header = journal::Header { uuid: *b"0123456789abcdef", from: 3, to: 4, is_copy: false };
    let mut encoded = BTreeMap::from([
        ("journal_header", hex(&header.encode()[..48])),
        ("redo_entry", hex(&redo(None))),
        ("redo_entry_of_length", hex(&redo(Some(30_000)))),
        ("journal_record", hex(&record[..64 + 2 * 24 + 8])),
        ("superblock", hex(&superblock)),
        ("flip_record", hex(&flip_record)),
        ("undo_entry", hex(&undo.encode(seed.undo(LaneIndex(1))))),
        ("marker", hex(&marker.encode())),
        ("snapshot_table", hex(&snapshot_table())),
        ("segment_header", hex(&segment_header())),
        ("keep_record", hex(&keep_record(SealSum::Unknown)[..64 + 8])),
        (
            "keep_record_with_sum",
            hex(&keep_record(SealSum::Known(0x0102_0304_0506_0708))[..64 + 8]),
        ),
        (
            "end_word",
            hex(&end_word(SEGMENT.seed(b"0123456789abcdef", SegmentIndex(5)), 256).to_le_bytes()),
        ),
        ("closing_marker", hex(&Marker { is_closing: true, ..marker }.encode())),
    ]);
    encoded.extend(words_and_floor());
    let documented: BTreeMap<&str, String> =
        block("golden").into_iter().map(|(name, bytes)| (name, bytes.to_owned())).collect();
    assert_eq!(documented, encoded);
}

#[test]
fn the_document_of_exports_and_the_encoders_agree() {
    let point = |number, name: &str| {
        let (len, nanos, name) = (number * 1000, 77, name.to_owned());
        Point { number, len, nanos, name }
    };
    let header = Header {
        first_frame: 3,
        uuid: *b"0123456789abcdef",
        base: Some(point(4, "fourth")),
        base_sum: 55,
        to: point(9, "ninth"),
    };
    let mut page = [0xAB; units::PAGE];
    page[units::SLICE..2 * units::SLICE].fill(0);
    let mut body = Body::default();
    body.add(PageIndex(3), Slices::range(0, 3), &page);
    let body = body.take();
    let frame = [&Frame::encode(header.seed(), 6, 1, &body)[..], &body].concat();
    let last = Frame::encode_last(header.seed(), 7, 200, End { sum: 88, frames: 99 });
    let encoded = BTreeMap::from([
        ("header", hex(&header.encode())),
        ("frame", hex(&frame[..64])),
        ("last", hex(&last)),
    ]);
    let documented: BTreeMap<&str, String> = block_of(EXPORT_DOCUMENT, "golden")
        .into_iter()
        .map(|(name, bytes)| (name, bytes.to_owned()))
        .collect();
    assert_eq!(documented, encoded);
}

const SEGMENT: SegmentHeader = SegmentHeader { opening: 3, turn: 2 };

fn snapshot_table() -> Vec<u8> {
    let uuid = *b"0123456789abcdef";
    let (generation, highest, opening) = (9, 6, 3);
    let mut table = Table { uuid, generation, highest, opening, ..Table::default() };
    (table.session, table.next, table.closed) = (17, 18, 19);
    (table.doubted, table.damage) = (6, 20);
    table.rollback = table.add(30_000, 4_000_000_005, Flags::UNDO, "before");
    table.encode()
}

fn segment_header() -> [u8; 64] {
    SEGMENT.encode(b"0123456789abcdef", SegmentIndex(5))
}

fn keep_record(sum: SealSum) -> Vec<u8> {
    let seed = SEGMENT.seed(b"0123456789abcdef", SegmentIndex(5));
    let record = Record { epoch: 7, page: PageIndex(77), mask: Slices(0b101), sum };
    let kept = [0xAB; 2 * units::SLICE];
    [&record.encode(seed, &kept)[..], &kept].concat()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
