//! Fuzz target: each decoder of log data against the second reading, and against its encoder. A
//! decoder must not panic, and must not accept invalid data.
//!
//! ```text
//! 0  which decoder, modulo 10; bit 7: the checksum is put right
//! 1- bytes for it, or the fields of what is encoded
//! ```

use super::image::Contents;
use super::input::Input;
use super::reading::{self, Copy};
use super::sums::{self, Part, SUPERBLOCK_LEN};
use atomic_mmap::testing::entry::{
    Found, OldBits, RECORD, REDO_INLINE, Redo, RedoPage, Seed, Sequence, Spill, SpillSum,
    UNDO_INLINE, Undo, UndoBody, WordId,
};
use atomic_mmap::testing::flip_record::{self, DecodedFlip, FlipRecord};
use atomic_mmap::testing::layout::{self, FLIP_RECORD, RING, UNDO_ENTRY_LEN};
use atomic_mmap::testing::marker::{Key, Marker, Sessions};
use atomic_mmap::testing::superblock::{
    self, Cache, ClosedAs, DurableBase, DurablePoints, Identity, Moment, State, Superblock,
};
use atomic_mmap::testing::{LaneIndex, PAGE, PageIndex, REGION, RegionIndex, SLICE};

const UUID: [u8; 16] = *b"entries of all k";
const SESSION: u64 = 77;
const LANE: usize = 5;
const PAGES: u64 = layout::MAX_LEN / PAGE as u64;
const REGIONS: u64 = layout::MAX_LEN / REGION as u64;

/// Runs one input.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let first = input.byte();
    let repair = first >> 7 == 1;
    match (first & 0x7F) % 10 {
        0 => flip_record_bytes(&mut input, repair),
        1 => undo_bytes(&mut input, repair),
        2 => spilled_bytes(input.0),
        3 => superblock_bytes(&mut input, repair),
        4 => marker_bytes(input.0),
        5 => flip_record(&mut input),
        6 => undo(&mut input),
        7 => superblock(&mut input),
        8 => spilled(&mut input),
        _ => two_superblocks(&mut input),
    }
}

fn seed() -> Seed {
    Seed::new(&UUID, SESSION)
}

fn own_seed(part: Part) -> u32 {
    sums::seed(&UUID, SESSION, LANE, part)
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|n| bytes.get(n).copied().unwrap_or(0))
}

fn flip_record_bytes(input: &mut Input<'_>, repair: bool) {
    let place = usize::from(input.byte()) % RING;
    let mut bytes: [u8; FLIP_RECORD] = array(input.0);
    let own = own_seed(Part::Ring(place));
    if repair {
        bytes[..2].copy_from_slice(&sums::tag(SESSION).to_le_bytes());
        let sum = sums::of_flip_record(own, &bytes);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    }
    let said = reading::flip_record(&bytes, place, own, SESSION);
    match FlipRecord::decode(seed().ring(LaneIndex(LANE as u16)), place, &bytes) {
        DecodedFlip::Empty => {
            assert_eq!(bytes[..8], [0; 8], "an entry is taken for none");
            assert_eq!(said, None);
        }
        DecodedFlip::Torn => assert_eq!(said, None),
        DecodedFlip::Invalidated(sequence, page) => {
            let said = said.map(|said| (said.number, said.page, said.is_invalidated));
            assert_eq!(said, Some((sequence.bits(), page.0, true)));
        }
        DecodedFlip::Valid(entry) => assert_eq!(said, Some(as_read(&entry))),
    }
}

/// Converts a flip record to the form of the second reading.
fn as_read(entry: &FlipRecord) -> reading::RingRecord {
    let FlipRecord { sequence, page, slices, sides, sum, page_sum } = *entry;
    reading::RingRecord {
        number: sequence.bits(),
        page: page.0,
        is_invalidated: false,
        slices,
        sides,
        sum,
        page_sum,
    }
}

fn flipped(record: &OldBits) -> reading::Flipped {
    let word = match record.word {
        WordId::Slice(page) => 1 << 56 | page.0,
        WordId::Region(region) => 2 << 56 | region.0,
    };
    (word, record.mask, record.old)
}

fn undo_bytes(input: &mut Input<'_>, repair: bool) {
    let mut bytes: [u8; UNDO_ENTRY_LEN] = array(input.0);
    let own = own_seed(Part::Undo);
    if repair && let Some(len) = sums::undo_len(&bytes) {
        let sum = sums::of_entry(own, &bytes[..len]);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    }
    let entry_seed = seed().undo(LaneIndex(LANE as u16));
    let said = reading::undo(&bytes, own);
    let found = match Undo::decode(entry_seed, &bytes) {
        Found::Empty => {
            assert_eq!(bytes[..8], [0; 8], "an entry is taken for none");
            None
        }
        Found::Torn => None,
        Found::Valid(Undo { sequence, body }) => Some((sequence.bits(), body)),
    };
    match (found, said) {
        (None, None) => {}
        (
            Some((found, UndoBody::Inline(records))),
            Some(reading::Undo::Words { sequence, words }),
        ) => {
            let records: Vec<_> = records.iter().map(flipped).collect();
            assert_eq!((found, records), (sequence, words));
        }
        (
            Some((found, UndoBody::Redo(redo))),
            Some(reading::Undo::Redo { sequence, redo: said }),
        ) => assert_eq!((found, as_read_redo(&redo)), (sequence, said)),
        (
            Some((found, body @ (UndoBody::SpilledUndo(spill) | UndoBody::SpilledRedo(spill)))),
            Some(reading::Undo::Spilled { sequence, what, offset, len, .. }),
        ) => {
            let is = match body {
                UndoBody::SpilledUndo(_) => reading::Spilled::Words,
                _ => reading::Spilled::Redo,
            };
            let found = (found, is, spill.offset, spill.len);
            assert_eq!(found, (sequence, what, offset, len));
        }
        (found, said) => panic!("{found:?} and not {said:?}"),
    }
}

fn as_read_redo(redo: &Redo) -> reading::Redo {
    let as_read_page = |page: &RedoPage| {
        let RedoPage { page, stays, flips, flipped, bytes } = page.clone();
        reading::RedoPage { page: page.0, stays, flips, flipped, bytes }
    };
    reading::Redo { len: redo.len, pages: redo.pages.iter().map(as_read_page).collect() }
}

/// Decodes spilled data, which has no checksum of its own.
fn spilled_bytes(bytes: &[u8]) {
    let mut log = Contents::of_len(bytes.len() as u64);
    log.write(bytes, 0);
    let len = bytes.len() as u64;
    let words = OldBits::decode_all(bytes);
    let said = reading::spilled_words(&log, 0, len);
    assert_eq!(words.as_ref().map(|words| words.iter().map(flipped).collect()), said);
    if let Some(words) = words {
        let mut again = Vec::new();
        words.iter().for_each(|word| word.encode_to(&mut again));
        assert_eq!(again, bytes);
    }
    let redo = Redo::decode(bytes);
    let said = reading::redo(&log, 0, len);
    assert_eq!(redo.as_ref().map(as_read_redo), said);
    if let Some(redo) = redo {
        let mut again = Vec::new();
        redo.encode_to(&mut again);
        assert_eq!(again, bytes);
    }
}

fn superblock_bytes(input: &mut Input<'_>, repair: bool) {
    let mut bytes: [u8; SUPERBLOCK_LEN] = array(input.0);
    if repair {
        // A mutation rarely keeps the magic number, but the bytes after it are the ones to test.
        bytes[..8].copy_from_slice(b"AtomMmap");
        let sum = sums::of_superblock(&bytes);
        bytes[SUPERBLOCK_LEN - 4..].copy_from_slice(&sum.to_le_bytes());
    }
    match (Superblock::decode(&bytes), reading::copy(&bytes)) {
        (superblock::Copy::Valid(found), Copy::Valid(said)) => {
            assert_eq!((found.uuid, found.session), (said.uuid, said.session));
            assert_eq!(Superblock::decode(&found.encode()), superblock::Copy::Valid(found));
        }
        (superblock::Copy::Newer(found), Copy::Newer(said)) => assert_eq!(found, said),
        (superblock::Copy::Corrupt, Copy::Corrupt) => {}
        (superblock::Copy::Foreign, Copy::Foreign) => {}
        (found, _) => panic!("a superblock is not {found:?}"),
    }
}

fn marker_bytes(bytes: &[u8]) {
    match Marker::decode(bytes) {
        None => assert_ne!(bytes.len(), 40),
        Some(mark) => assert_eq!(Marker::decode(&mark.encode()), Some(mark)),
    }
}

fn sequence(input: &mut Input<'_>) -> Sequence {
    let sequence = Sequence::from_bits(input.number(5));
    // The next record has the next place and is newer, even after the numbers wrap around.
    let next = sequence.next();
    assert_eq!(next.place(), (sequence.place() + 1) % RING);
    assert_eq!(next.ahead_of(sequence), 1);
    assert!(sequence.is_before(next) && !next.is_before(sequence));
    sequence
}

fn flip_record(input: &mut Input<'_>) {
    let sequence = sequence(input);
    let page = PageIndex(input.number(4) % PAGES);
    let slices = input.number(8).max(1);
    let (sides, sum) = (slices & input.number(8), input.number(4) as u32);
    let (of_lane, place) = (seed().ring(LaneIndex(LANE as u16)), sequence.place());
    let page_sum = input.number(8);
    let entry = FlipRecord { sequence, page, slices, sides, sum, page_sum };
    let bytes = entry.encode(of_lane);
    assert_eq!(FlipRecord::decode(of_lane, place, &bytes), DecodedFlip::Valid(entry));
    assert_eq!(
        reading::flip_record(&bytes, place, own_seed(Part::Ring(place)), SESSION),
        Some(as_read(&entry))
    );
    assert_eq!(
        bytes[..8],
        flip_record::header(of_lane, sequence).to_le_bytes(),
        "the header to invalidate"
    );
    let mut void = bytes;
    void[..8].copy_from_slice(&flip_record::invalidated(of_lane, sequence).to_le_bytes());
    assert_eq!(FlipRecord::decode(of_lane, place, &void), DecodedFlip::Invalidated(sequence, page));
    for other in [
        Seed::new(&UUID, SESSION + 1).ring(LaneIndex(LANE as u16)),
        seed().ring(LaneIndex(LANE as u16 + 1)),
    ] {
        for bytes in [&bytes, &void] {
            let found = FlipRecord::decode(other, place, bytes);
            assert_eq!(found, DecodedFlip::Torn, "an entry of another session or lane");
        }
    }
    let place = (place + 1 + usize::from(input.byte()) % (RING - 1)) % RING;
    for bytes in [&bytes, &void] {
        let found = FlipRecord::decode(of_lane, place, bytes);
        assert_eq!(found, DecodedFlip::Torn, "an entry of another place");
    }
    // This includes the two bits of the kind: no single bit turns one kind into the other.
    let bit = input.number(2) as usize % (FLIP_RECORD * 8);
    for mut bytes in [bytes, void] {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let found = FlipRecord::decode(of_lane, sequence.place(), &bytes);
        assert_eq!(found, DecodedFlip::Torn, "bit {bit} is another");
    }
}

fn old_bits(input: &mut Input<'_>) -> OldBits {
    let word = match input.byte() & 1 {
        0 => WordId::Slice(PageIndex(input.number(4) % PAGES)),
        _ => WordId::Region(RegionIndex(input.number(3) % REGIONS)),
    };
    let mask = input.number(8);
    OldBits { word, mask, old: mask & input.number(8) }
}

fn redo_page(input: &mut Input<'_>) -> RedoPage {
    let page = PageIndex(input.number(4) % PAGES);
    let stays = input.number(8) & input.number(8);
    let flips = input.number(8) & !stays;
    // One of them is not zero.
    let flips = if stays | flips == 0 { 1 } else { flips };
    let flipped = flips & input.number(8);
    let bytes = vec![input.byte(); stays.count_ones() as usize * SLICE];
    RedoPage { page, stays, flips, flipped, bytes }
}

fn new_len(input: &mut Input<'_>) -> Option<u64> {
    (input.byte() & 1 == 1).then(|| input.number(8) % (layout::MAX_LEN + 1))
}

fn undo(input: &mut Input<'_>) {
    let sequence = sequence(input);
    let place = seed().undo(LaneIndex(LANE as u16));
    let body = match input.byte() % 4 {
        0 => {
            let count = 1 + usize::from(input.byte()) % UNDO_INLINE;
            UndoBody::Inline((0..count).map(|_| old_bits(input)).collect())
        }
        3 => {
            let (mut pages, mut bytes) = (Vec::new(), Vec::new());
            let len = new_len(input);
            Redo { len, pages: Vec::new() }.encode_to(&mut bytes);
            loop {
                let page = redo_page(input);
                let before = bytes.len();
                page.encode_to(&mut bytes);
                if bytes.len() > REDO_INLINE {
                    bytes.truncate(before);
                    break;
                }
                pages.push(page);
                if input.is_empty() {
                    break;
                }
            }
            if pages.is_empty() && len.is_none() {
                // A whole page does not fit into a lane.
                return;
            }
            UndoBody::Redo(Redo { len, pages })
        }
        which => {
            let bytes = input.0;
            let offset = sequence.bits() % (layout::LOG_AREA_LEN - bytes.len() as u64);
            let spill = Spill::of(place, sequence, offset, bytes);
            let matches = |sequence, bytes: &[u8]| {
                let mut sum = SpillSum::new(place, sequence);
                // Added in two pieces.
                let (one, two) = bytes.split_at(bytes.len() / 3);
                sum.add(one);
                sum.add(two);
                spill.matches(sum)
            };
            assert!(matches(sequence, bytes));
            assert!(!matches(sequence.next(), bytes), "of another entry");
            if let [first, rest @ ..] = bytes {
                let changed = [&[!first], rest].concat();
                assert!(!matches(sequence, &changed), "other bytes");
                assert!(!matches(sequence, rest), "fewer bytes");
            }
            if which == 1 { UndoBody::SpilledUndo(spill) } else { UndoBody::SpilledRedo(spill) }
        }
    };
    let entry = Undo { sequence, body };
    let bytes = entry.encode(place);
    assert!(bytes.len() <= UNDO_ENTRY_LEN);
    assert_eq!(Undo::decode(place, &array(&bytes)), Found::Valid(entry));
}

fn a_superblock(input: &mut Input<'_>) -> Superblock {
    let moment = |input: &mut Input<'_>| Moment {
        seconds: input.number(8) as i64,
        nanos: input.number(4) as u32,
    };
    let state = match input.byte() % 3 {
        0 => State::InUse,
        1 => State::Emptied,
        _ => State::Clean(ClosedAs {
            len: input.number(8),
            mtime: moment(input),
            ctime: moment(input),
            sum: (input.byte() & 1 == 1).then(|| input.number(4) as u32),
        }),
    };
    let born = (input.byte() & 1 == 1).then(|| moment(input));
    Superblock {
        session: input.number(8),
        state,
        uuid: array(input.take(16)),
        identity: Identity { device: input.number(8), inode: input.number(8), born },
        own: Identity { device: 0, inode: input.number(8), born },
        boot_id: array(input.take(16)),
        cache: Cache {
            volume: input.number(8),
            uptime: input.number(8),
            started: input.number(8) as i64,
            devices_born: input.number(8),
        },
        name: input.take(255).to_vec(),
        durable: match input.byte() & 3 {
            0 => DurablePoints::None,
            1 => DurablePoints::NotYet,
            2 => DurablePoints::AfterRestart(DurableBase { len: input.number(8) }),
            _ => DurablePoints::AfterDeath(DurableBase { len: input.number(8) }),
        },
        is_marked: input.byte() & 1 == 1,
        is_unsettled: input.byte() & 1 == 1,
        has_sums: input.byte() & 1 == 1,
    }
}

fn superblock(input: &mut Input<'_>) {
    let block = a_superblock(input);
    let named = (input.byte() & 1 == 1 && block.own.inode != 0).then(|| Key {
        inode: block.own.inode,
        born: block.own.born,
        index: input.number(4) as u32,
    });
    let number = |input: &mut Input<'_>| input.number(8) >> 1;
    let sessions =
        (input.byte() & 1 == 1).then(|| Sessions { before: number(input), begun: number(input) });
    let is_closing = input.byte() & 1 == 1;
    let mark = Marker { named, sessions, is_closing, ..Marker::new(block.uuid, &block.identity) };
    assert_eq!(Marker::decode(&mark.encode()), Some(mark));
    assert!(mark.is_of(&block.identity));
    assert_eq!(Superblock::decode(&block.encode()), superblock::Copy::Valid(block));
}

fn spilled(input: &mut Input<'_>) {
    let (mut words, mut pages) = (Vec::new(), Vec::new());
    let (mut word_bytes, mut page_bytes) = (Vec::new(), Vec::new());
    let len = new_len(input);
    Redo { len, pages: Vec::new() }.encode_to(&mut page_bytes);
    while !input.is_empty() && pages.len() < 100 {
        let word = old_bits(input);
        word.encode_to(&mut word_bytes);
        words.push(word);
        let page = redo_page(input);
        page.encode_to(&mut page_bytes);
        pages.push(page);
    }
    if !words.is_empty() {
        assert_eq!(OldBits::decode_all(&word_bytes[..word_bytes.len() - 1]), None);
        assert_eq!(Redo::decode(&page_bytes[..page_bytes.len() - 1]), None);
    }
    assert_eq!(word_bytes.len(), words.len() * RECORD);
    assert_eq!(OldBits::decode_all(&word_bytes), Some(words));
    assert_eq!(Redo::decode(&page_bytes), Some(Redo { len, pages }));
}

/// Tests a pair of superblocks: the newer intact copy counts, and a newer format counts before
/// both.
fn two_superblocks(input: &mut Input<'_>) {
    use superblock::{Copy, Judged, judge};
    let mut copy = || match input.byte() % 8 {
        0 => Copy::Corrupt,
        1 => Copy::Foreign,
        2 => Copy::Newer(2 + u32::from(input.byte())),
        _ => Copy::Valid(a_superblock(input)),
    };
    let (a, b) = (copy(), copy());
    let whole = |copy: &Copy| match copy {
        Copy::Valid(block) => Some(block.clone()),
        _ => None,
    };
    let is_newer = |copy: &Copy| matches!(copy, Copy::Newer(_));
    match judge(a.clone(), b.clone()) {
        Judged::Newer(_) => assert!(is_newer(&a) || is_newer(&b)),
        _ if is_newer(&a) || is_newer(&b) => panic!("a newer format is taken for ours"),
        Judged::Valid(found) => {
            let sessions = [whole(&a), whole(&b)].into_iter().flatten().map(|block| block.session);
            assert_eq!(Some(found.session), sessions.max());
        }
        Judged::Corrupt => {
            assert!(whole(&a).is_none() && whole(&b).is_none());
            assert!(a == Copy::Corrupt || b == Copy::Corrupt);
        }
        Judged::Foreign => assert_eq!((a, b), (Copy::Foreign, Copy::Foreign)),
    }
}
