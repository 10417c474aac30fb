//! The checksums of `docs/format.md`, computed a second time.
//!
//! Shares no code with `src/format/`, so that a mistake there is not repeated here. The offsets of
//! fields are those of the document's tables.

use super::image::{Contents, Image};
use atomic_mmap::testing::{PAGE, SLICE, layout};
use std::collections::BTreeSet;

const P: u64 = PAGE as u64;
/// Bytes of a superblock.
pub const SUPERBLOCK_LEN: usize = 512;
const SUM_AT: usize = 508;
/// Bytes of a flip record that its checksum covers, except for the checksum itself and the kind.
pub const FLIP_RECORD_SAYS: usize = 48;
/// Kind of a valid flip record.
pub const KIND_COVERS: u64 = 1;
/// Kind of an invalidated flip record.
pub const KIND_INVALIDATED: u64 = 2;
/// Bytes of the header of an undo record.
pub const UNDO_HEADER: usize = 16;
/// Bytes of one entry of an undo record.
pub const RECORD: usize = 24;
/// Kind of an undo record with words.
pub const KIND_UNDO: u64 = 1;
/// Kind of an undo record with spilled words.
pub const KIND_SPILLED_UNDO: u64 = 2;
/// Kind of a redo record.
pub const KIND_REDO: u64 = 4;
/// Kind of a redo record with spilled pages.
pub const KIND_SPILLED_REDO: u64 = 5;
/// Bytes of a journal block. A record begins at a multiple of this.
pub const BLOCK: u64 = 4096;
/// Bytes of the header of a journal record.
pub const RECORD_HEADER: u64 = 64;
/// Bytes of one change in a journal record.
pub const CHANGE: u64 = 24;
/// Bytes of a journal header. The first two blocks contain one each.
pub const HEADER_LEN: usize = 64;

/// Returns the number of 8 bytes at `at`.
pub fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n]))
}

/// Returns the number of 4 bytes at `at`.
pub fn small(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n]))
}

/// Returns the checksum that a superblock should have.
pub fn of_superblock(bytes: &[u8]) -> u32 {
    crc32c::crc32c(&bytes[..SUM_AT])
}

/// Returns the checksum that a superblock has.
pub fn in_superblock(bytes: &[u8]) -> u32 {
    small(bytes, SUM_AT)
}

/// A part of a lane.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// A flip record, by its place in the ring.
    Ring(usize),
    /// The undo record, with its spilled data.
    Undo,
}

impl Part {
    /// Returns all parts of a lane, in the order of their places.
    pub fn all() -> impl Iterator<Item = Part> {
        (0..layout::RING).map(Part::Ring).chain([Part::Undo])
    }

    /// Returns the offset of the part in the reflection file.
    pub fn at(self, lane: usize) -> u64 {
        let in_lane = match self {
            Part::Ring(place) => place * layout::FLIP_RECORD,
            Part::Undo => layout::UNDO_ENTRY,
        };
        layout::LANES + (lane * layout::LANE + in_lane) as u64
    }

    /// Returns the bytes of the part.
    pub fn bytes(self, reflection: &Contents, lane: usize) -> Vec<u8> {
        let len = match self {
            Part::Ring(_) => layout::FLIP_RECORD,
            Part::Undo => layout::UNDO_ENTRY_LEN,
        };
        reflection.bytes(self.at(lane), len)
    }

    /// Returns the checksum that a record of these bytes should have, or `None` for no record or
    /// one that does not fit. Does not check that the content is possible: with a right checksum,
    /// the decoder must notice that.
    pub fn sum(self, seed: u32, bytes: &[u8]) -> Option<u32> {
        match self {
            Part::Ring(_) => (word(bytes, 0) != 0).then(|| of_flip_record(seed, bytes)),
            Part::Undo => undo_len(bytes).map(|len| of_entry(seed, &bytes[..len])),
        }
    }
}

/// Returns the seed of the checksum of a record.
pub fn seed(uuid: &[u8], session: u64, lane: usize, part: Part) -> u32 {
    let sum = crc32c::crc32c(uuid);
    let sum = crc32c::crc32c_append(sum, &session.to_le_bytes());
    crc32c::crc32c_append(sum, &[lane as u8, (lane >> 8) as u8, u8::from(part == Part::Undo)])
}

/// Returns the session tag in the header of a flip record.
pub fn tag(session: u64) -> u16 {
    session as u16
}

/// Returns the checksum that a flip record should have. Invalidating the record does not change it.
pub fn of_flip_record(seed: u32, bytes: &[u8]) -> u32 {
    let mut said: [u8; FLIP_RECORD_SAYS] = std::array::from_fn(|n| bytes[n]);
    said[2] = 0;
    of_entry(seed, &said)
}

/// Returns the checksum of slices of a page, each in the slot that `sides` names: 1 = the
/// reflection slot.
pub fn of_slices(
    home: &Contents,
    reflection: &Contents,
    page: u64,
    slices: u64,
    sides: u64,
) -> u32 {
    let mut sum = 0;
    let mut bytes = [0; SLICE];
    for slice in (0..64).filter(|slice| slices >> slice & 1 == 1) {
        let at = page * P + slice * SLICE as u64;
        match sides >> slice & 1 {
            0 => home.read(&mut bytes, at),
            _ => reflection.read(&mut bytes, layout::reflection(at)),
        }
        sum = crc32c::crc32c_append(sum, &bytes);
    }
    sum
}

/// Returns the number of bytes that the checksum of an undo record covers, from its header. Returns
/// `None` for no record or one that does not fit.
pub fn undo_len(bytes: &[u8]) -> Option<usize> {
    let count = (word(bytes, 0) & 0xFFFF) as usize;
    let unit = if word(bytes, 0) >> 16 & 0xFF == KIND_REDO { 8 } else { RECORD };
    let len = UNDO_HEADER + count * unit;
    (count > 0 && len <= layout::UNDO_ENTRY_LEN).then_some(len)
}

/// Returns the checksum of a record's bytes, with zeroes in place of the checksum itself.
pub fn of_entry(seed: u32, bytes: &[u8]) -> u32 {
    let sum = crc32c::crc32c_append(seed, &bytes[..8]);
    crc32c::crc32c_append(crc32c::crc32c_append(sum, &[0; 4]), &bytes[12..])
}

/// Returns the checksum of the data that an undo record has spilled.
pub fn of_spill(seed: u32, sequence: u64, log: &Contents, offset: u64, len: u64) -> u32 {
    let mut sum = crc32c::crc32c_append(seed, &sequence.to_le_bytes());
    let (mut at, end) = (layout::LOG_AREA + offset, layout::LOG_AREA + offset + len);
    let mut bytes = [0; PAGE];
    while at < end {
        let piece = &mut bytes[..(end - at).min(PAGE as u64) as usize];
        log.read(piece, at);
        sum = crc32c::crc32c_append(sum, piece);
        at += piece.len() as u64;
    }
    sum
}

/// Repairs the checksums of the superblocks that have the magic number.
pub fn repair_superblocks(reflection: &mut Contents) {
    for at in layout::SUPERBLOCKS {
        let bytes = reflection.bytes(at, SUPERBLOCK_LEN);
        if bytes.starts_with(b"AtomMmap") {
            reflection.write(&of_superblock(&bytes).to_le_bytes(), at + SUM_AT as u64);
        }
    }
}

/// Returns the records with right checksums, by lane and part.
pub fn whole_entries(reflection: &Contents, uuid: &[u8], session: u64) -> BTreeSet<(usize, Part)> {
    let is_whole = |lane: usize, part: Part| {
        let bytes = part.bytes(reflection, lane);
        part.sum(seed(uuid, session, lane, part), &bytes) == Some(small(&bytes, 8))
    };
    (0..layout::LANE_COUNT)
        .flat_map(|lane| Part::all().map(move |part| (lane, part)))
        .filter(|(lane, part)| is_whole(*lane, *part))
        .collect()
}

/// Maximum length of spilled data that is repaired, because the sum of a long hole takes time.
const SPILL_REPAIRED: u64 = 32 << 20;

/// Repairs the checksums of the records that `which` selects by lane and part, and of their spilled
/// data.
pub fn repair_entries(
    reflection: &mut Contents,
    uuid: &[u8],
    session: u64,
    which: impl Fn(usize, Part) -> bool,
) {
    for lane in 0..layout::LANE_COUNT {
        for part in Part::all().filter(|part| which(lane, *part)) {
            let seed = seed(uuid, session, lane, part);
            let mut bytes = part.bytes(reflection, lane);
            if part == Part::Undo {
                repair_spill(reflection, seed, part.at(lane), &mut bytes);
            }
            if matches!(part, Part::Ring(_)) && word(&bytes, 0) != 0 {
                bytes[..2].copy_from_slice(&tag(session).to_le_bytes());
                reflection.write(&bytes[..2], part.at(lane));
            }
            if let Some(sum) = part.sum(seed, &bytes) {
                reflection.write(&sum.to_le_bytes(), part.at(lane) + 8);
            }
        }
    }
}

/// Repairs the checksum of the data that the undo record at `at` has spilled.
fn repair_spill(reflection: &mut Contents, seed: u32, at: u64, bytes: &mut [u8]) {
    let header = word(bytes, 0);
    let spills = [KIND_SPILLED_UNDO, KIND_SPILLED_REDO];
    let (offset, len) = (word(bytes, 16), word(bytes, 24));
    let fits = offset.checked_add(len).is_some_and(|end| end <= layout::LOG_AREA_LEN);
    if spills.contains(&(header >> 16 & 0xFF)) && fits && len <= SPILL_REPAIRED {
        let sum = of_spill(seed, header >> 24, reflection, offset, len);
        bytes[32..40].copy_from_slice(&u64::from(sum).to_le_bytes());
        reflection.write(&bytes[32..40], at + 32);
    }
}

/// Returns the checksum of the slices that the bytes of a flip record name.
pub fn of_named_slices(home: &Contents, reflection: &Contents, entry: &[u8]) -> u32 {
    let page = u64::from(small(entry, 12));
    of_slices(home, reflection, page, word(entry, 16), word(entry, 24))
}

/// Updates the slice checksums in the flip records that `which` selects by lane and place. The
/// records' own checksums are wrong afterwards.
pub fn repair_slices(image: &mut Image, which: impl Fn(usize, usize) -> bool) {
    let Image { home, reflection: Some(reflection), .. } = image else { return };
    for lane in 0..layout::LANE_COUNT {
        for place in (0..layout::RING).filter(|place| which(lane, *place)) {
            let entry = Part::Ring(place).bytes(reflection, lane);
            if word(&entry, 0) != 0 {
                let sum = of_named_slices(home, reflection, &entry);
                reflection.write(&sum.to_le_bytes(), Part::Ring(place).at(lane) + 32);
            }
        }
    }
}

/// Returns the seed of the checksums of a session's journal records.
pub fn journal_seed(uuid: &[u8], session: u64) -> u32 {
    let sum = crc32c::crc32c_append(crc32c::crc32c(b"journal"), uuid);
    crc32c::crc32c_append(sum, &session.to_le_bytes())
}

/// Returns the length that a journal record at `at` claims, without padding. Returns `None` if
/// there is no record, or if it does not fit the journal.
pub fn record_len(journal: &Contents, at: u64) -> Option<u64> {
    if at + RECORD_HEADER > journal.len || journal.bytes(at, 8) != b"AtomJrnl" {
        return None;
    }
    let changes = journal.word(at + 32).checked_mul(CHANGE)?;
    let len = RECORD_HEADER.checked_add(changes)?.checked_add(journal.word(at + 40))?;
    (len <= journal.len - at).then_some(len)
}

/// Returns the checksum that a journal record of this length should have.
pub fn of_record(seed: u32, journal: &Contents, at: u64, len: u64) -> u32 {
    let bytes = journal.bytes(at, len as usize);
    of_entry(seed, &bytes)
}

/// Maximum length of a journal record that is repaired, because every block may claim to be a
/// record.
const RECORD_REPAIRED: u64 = 512 << 10;

/// Repairs the checksums of the journal records that `which` selects by their block.
pub fn repair_records(
    journal: &mut Contents,
    uuid: &[u8],
    session: u64,
    which: impl Fn(u64) -> bool,
) {
    let seed = journal_seed(uuid, session);
    let blocks: Vec<u64> = journal.page_numbers().collect();
    for block in blocks.into_iter().filter(|block| which(*block)) {
        let at = block * BLOCK;
        if let Some(len) = record_len(journal, at).filter(|len| *len <= RECORD_REPAIRED) {
            let sum = of_record(seed, journal, at, len);
            journal.write(&sum.to_le_bytes(), at + 8);
        }
    }
}

/// Repairs the checksums of the journal headers that have the magic number.
pub fn repair_headers(journal: &mut Contents) {
    for at in [0, BLOCK] {
        let bytes = journal.bytes(at, HEADER_LEN);
        if bytes.starts_with(b"AtomJrnH") {
            journal.write(&of_entry(0, &bytes).to_le_bytes(), at + 8);
        }
    }
}

/// Writes an intact header into one of a journal's first two blocks.
pub fn put_header(journal: &mut Contents, block: u64, uuid: &[u8; 16], from: u64, to: u64) {
    let mut bytes = b"AtomJrnH\0\0\0\0\0\0\0\0".to_vec();
    bytes.extend(uuid);
    bytes.extend([from, to, 0, 0].into_iter().flat_map(u64::to_le_bytes));
    let sum = of_entry(0, &bytes);
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    journal.write(&bytes, block * BLOCK);
}

/// Offsets of the length word and of the high-water word.
pub const LENGTH_WORDS: [u64; 2] = [8192, 8200];
/// Offset of the word with the last session that was begun.
const BEGUN_WORD: u64 = 8216;
/// The bits of such a word that hold the length. The upper bits of a checksum follow.
const LENGTH: u64 = (1 << 42) - 1;

/// Returns the length of a word at this offset as it is, whatever its checksum.
pub fn length_at(reflection: &Contents, at: u64) -> u64 {
    reflection.word(at) & LENGTH
}

/// Returns the word at this offset for a length.
pub fn of_length(at: u64, len: u64) -> u64 {
    let sum = crc32c::crc32c([at, len].map(u64::to_le_bytes).as_flattened());
    u64::from(sum >> 10) << 42 | len
}

/// Returns the length of a word at this offset, if its checksum is right.
pub fn whole_length_at(reflection: &Contents, at: u64) -> Option<u64> {
    let len = length_at(reflection, at);
    (of_length(at, len) == reflection.word(at)).then_some(len)
}

/// Returns word `n` of a page of words.
pub fn word_of(page: &[u8; PAGE], n: u64) -> u64 {
    word(page, n as usize * 8)
}

/// Returns the length and the high-water mark, if both words are whole.
pub fn whole_lengths(reflection: &Contents) -> Option<[u64; 2]> {
    let [len, high_water] = LENGTH_WORDS.map(|at| whole_length_at(reflection, at));
    Some([len?, high_water?])
}

/// Returns the last session that was begun, if the file says so.
pub fn begun(reflection: &Contents) -> Option<u64> {
    whole_length_at(reflection, BEGUN_WORD)
}

/// Gives the length word and the high-water word their checksums if they have none.
pub fn repair_lengths(reflection: &mut Contents) {
    for at in LENGTH_WORDS {
        let word = reflection.word(at);
        if word & !LENGTH == 0 {
            reflection.set_word(at, of_length(at, word));
        }
    }
}

/// Place of the session that is settled.
pub const SETTLED_WORD: u64 = 8208;
/// Offsets of the two places of the journal's floor in the reflection file.
pub const FLOORS: [u64; 2] = [8192 + 64, 8192 + 128];
/// Offset of the place that names the newest record.
pub const NEWEST_RECORD: u64 = 8192 + 192;
/// Bytes of a floor.
pub const FLOOR_LEN: usize = 24;

/// Returns the checksum that a floor of these bytes should have.
pub fn of_floor(uuid: &[u8], bytes: &[u8]) -> u32 {
    crc32c::crc32c(&[uuid, &bytes[..16]].concat())
}

/// Repairs the checksums of the floors that `which` selects by their place, except for empty
/// floors.
pub fn repair_floors(reflection: &mut Contents, uuid: &[u8], which: impl Fn(usize) -> bool) {
    for (_, at) in FLOORS.into_iter().enumerate().filter(|(place, _)| which(*place)) {
        let bytes = reflection.bytes(at, FLOOR_LEN);
        if bytes.iter().any(|byte| *byte != 0) {
            reflection.write(&of_floor(uuid, &bytes).to_le_bytes(), at + 16);
        }
    }
}

/// Returns the uuid and the session number of the newest superblock, by magic number and checksum
/// alone.
pub fn session_of(reflection: &Contents) -> Option<([u8; 16], u64)> {
    let bytes = newest_superblock(reflection)?;
    Some((std::array::from_fn(|n| bytes[32 + n]), word(&bytes, 16)))
}

/// Returns the uuid, and the session of the records that the journal must have. A close that was
/// not settled needs those of the session that it ended.
pub fn session_of_records(reflection: &Contents) -> Option<([u8; 16], u64)> {
    let (uuid, session) = session_of(reflection)?;
    let bytes = newest_superblock(reflection)?;
    let is_unsettled = small(&bytes, 28) & 2 == 2 && reflection.word(SETTLED_WORD) != session;
    let is_closed = small(&bytes, 24) == 2;
    Some((uuid, if is_closed && is_unsettled { session.saturating_sub(1) } else { session }))
}

fn newest_superblock(reflection: &Contents) -> Option<Vec<u8>> {
    layout::SUPERBLOCKS
        .map(|at| reflection.bytes(at, SUPERBLOCK_LEN))
        .into_iter()
        .filter(|bytes| {
            bytes.starts_with(b"AtomMmap") && in_superblock(bytes) == of_superblock(bytes)
        })
        // If two are equal, the first one counts.
        .rev()
        .max_by_key(|bytes| word(bytes, 16))
}
