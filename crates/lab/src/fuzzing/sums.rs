//! Which checksums would be right? Those of `docs/format.md`, computed a second time.
//!
//! Shares no code with `src/format/`, so that a mistake there is not repeated here. Offsets of fields
//! are those of the document's tables.

use super::image::{Contents, Image};
use atomic_mmap::testing::{PAGE, SLICE, layout};
use std::collections::BTreeSet;

const P: u64 = PAGE as u64;
/// Bytes of a superblock.
pub const SUPERBLOCK_LEN: usize = 512;
const SUM_AT: usize = 508;
/// Bytes of an entry of the ring that its checksum covers, but for itself and the kind.
pub const VOUCH_SAYS: usize = 40;
/// Kinds of entries of the ring.
pub const KIND_VOUCHES: u64 = 1;
/// It is void.
pub const KIND_VOID: u64 = 2;
/// Bytes before an undo entry's records, and of one record.
pub const UNDO_HEADER: usize = 16;
/// Bytes of one record.
pub const RECORD: usize = 24;
/// Kinds of undo entries.
pub const KIND_UNDO: u64 = 1;
/// Spilled undo.
pub const KIND_SPILLED_UNDO: u64 = 2;
/// Spilled redo.
pub const KIND_SPILLED_REDO: u64 = 3;
/// Pages in place.
pub const KIND_IN_PLACE: u64 = 4;
/// Spilled pages in place.
pub const KIND_SPILLED_IN_PLACE: u64 = 5;
/// A record of the journal begins at a multiple of this.
pub const BLOCK: u64 = 4096;
/// Bytes before a record's changes, and of one change.
pub const RECORD_HEADER: u64 = 64;
/// Bytes of one change.
pub const CHANGE: u64 = 24;
/// Bytes of a journal's header. There are two, in its first two blocks.
pub const HEADER_LEN: usize = 64;

/// The number of 8 bytes at `at`.
pub fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n]))
}

/// The number of 4 bytes at `at`.
pub fn small(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n]))
}

/// The checksum that a superblock should have.
pub fn of_superblock(bytes: &[u8]) -> u32 {
    crc32c::crc32c(&bytes[..SUM_AT])
}

/// The one that it has.
pub fn in_superblock(bytes: &[u8]) -> u32 {
    small(bytes, SUM_AT)
}

/// A part of a lane.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// The ring, and which entry of it.
    Ring(usize),
    /// The undo entry, and what it spills.
    Undo,
}

impl Part {
    /// All parts of a lane, in the order in which they lie there.
    pub fn all() -> impl Iterator<Item = Part> {
        (0..layout::RING).map(Part::Ring).chain([Part::Undo])
    }

    /// Where it begins in the reflection file.
    pub fn at(self, lane: usize) -> u64 {
        let in_lane = match self {
            Part::Ring(place) => place * layout::VOUCH,
            Part::Undo => layout::UNDO_ENTRY,
        };
        layout::LANES + (lane * layout::LANE + in_lane) as u64
    }

    /// Its bytes.
    pub fn bytes(self, reflection: &Contents, lane: usize) -> Vec<u8> {
        let len = match self {
            Part::Ring(_) => layout::VOUCH,
            Part::Undo => layout::UNDO_ENTRY_LEN,
        };
        reflection.bytes(self.at(lane), len)
    }

    /// The checksum that an entry of these bytes should have. `None`: no entry, or one that does not fit its
    /// place. Whether it can say what it says is not looked at: with a right checksum that is for the
    /// decoder to notice.
    pub fn sum(self, seed: u32, bytes: &[u8]) -> Option<u32> {
        match self {
            Part::Ring(_) => (word(bytes, 0) != 0).then(|| of_vouch(seed, bytes)),
            Part::Undo => undo_len(bytes).map(|len| of_entry(seed, &bytes[..len])),
        }
    }
}

/// What the checksum of an entry begins with.
pub fn seed(uuid: &[u8], session: u64, lane: usize, part: Part) -> u32 {
    let sum = crc32c::crc32c(uuid);
    let sum = crc32c::crc32c_append(sum, &session.to_le_bytes());
    crc32c::crc32c_append(sum, &[lane as u8, (lane >> 8) as u8, u8::from(part == Part::Undo)])
}

/// What the header of an entry of a ring says of its session.
pub fn tag(session: u64) -> u16 {
    session as u16
}

/// The checksum that an entry of the ring should have: the same for one that became void.
pub fn of_vouch(seed: u32, bytes: &[u8]) -> u32 {
    let mut said: [u8; VOUCH_SAYS] = std::array::from_fn(|n| bytes[n]);
    said[2] = 0;
    of_entry(seed, &said)
}

/// The checksum of slices of a page, each in the slot that `sides` names: 1 = the reflection slot.
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

/// How many bytes of an undo entry's place its checksum covers, by its header. `None`: no entry, or one that
/// does not fit its place.
pub fn undo_len(bytes: &[u8]) -> Option<usize> {
    let count = (word(bytes, 0) & 0xFFFF) as usize;
    let unit = if word(bytes, 0) >> 16 & 0xFF == KIND_IN_PLACE { 8 } else { RECORD };
    let len = UNDO_HEADER + count * unit;
    (count > 0 && len <= layout::UNDO_ENTRY_LEN).then_some(len)
}

/// The checksum of an entry's bytes, those of the checksum itself being zero.
pub fn of_entry(seed: u32, bytes: &[u8]) -> u32 {
    let sum = crc32c::crc32c_append(seed, &bytes[..8]);
    crc32c::crc32c_append(crc32c::crc32c_append(sum, &[0; 4]), &bytes[12..])
}

/// The checksum of what an undo entry has spilled.
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

/// Puts right the checksums of both superblocks: those that have the magic.
pub fn repair_superblocks(reflection: &mut Contents) {
    for at in layout::SUPERBLOCKS {
        let bytes = reflection.bytes(at, SUPERBLOCK_LEN);
        if bytes.starts_with(b"AtomMmap") {
            reflection.write(&of_superblock(&bytes).to_le_bytes(), at + SUM_AT as u64);
        }
    }
}

/// The entries whose checksums are right, by lane and part.
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

/// Most bytes of a spill whose checksum is put right: the sum of a long hole takes long.
const SPILL_REPAIRED: u64 = 32 << 20;

/// Puts right the checksums of entries that `which` names by lane and part, and of what they spill.
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

/// Puts right the checksum of what the undo entry at `at` spills.
fn repair_spill(reflection: &mut Contents, seed: u32, at: u64, bytes: &mut [u8]) {
    let header = word(bytes, 0);
    let spills = [KIND_SPILLED_UNDO, KIND_SPILLED_REDO, KIND_SPILLED_IN_PLACE];
    let (offset, len) = (word(bytes, 16), word(bytes, 24));
    let fits = offset.checked_add(len).is_some_and(|end| end <= layout::LOG_AREA_LEN);
    if spills.contains(&(header >> 16 & 0xFF)) && fits && len <= SPILL_REPAIRED {
        let sum = of_spill(seed, header >> 24, reflection, offset, len);
        bytes[32..40].copy_from_slice(&u64::from(sum).to_le_bytes());
        reflection.write(&bytes[32..40], at + 32);
    }
}

/// The checksum of the slices that an entry of the ring names by its bytes.
pub fn of_named_slices(home: &Contents, reflection: &Contents, entry: &[u8]) -> u32 {
    let page = u64::from(small(entry, 12));
    of_slices(home, reflection, page, word(entry, 16), word(entry, 24))
}

/// Puts right what entries of rings that `which` names by lane and place say of their slices' bytes. The
/// entries' own checksums are wrong then.
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

/// What the checksums of a session's records begin with.
pub fn journal_seed(uuid: &[u8], session: u64) -> u32 {
    let sum = crc32c::crc32c_append(crc32c::crc32c(b"journal"), uuid);
    crc32c::crc32c_append(sum, &session.to_le_bytes())
}

/// How long a record at `at` says that it is, padding left out. `None`: there is none, or it does not
/// fit the journal.
pub fn record_len(journal: &Contents, at: u64) -> Option<u64> {
    if at + RECORD_HEADER > journal.len || journal.bytes(at, 8) != b"AtomJrnl" {
        return None;
    }
    let changes = journal.word(at + 32).checked_mul(CHANGE)?;
    let len = RECORD_HEADER.checked_add(changes)?.checked_add(journal.word(at + 40))?;
    (len <= journal.len - at).then_some(len)
}

/// The checksum that a record of so many bytes should have.
pub fn of_record(seed: u32, journal: &Contents, at: u64, len: u64) -> u32 {
    let bytes = journal.bytes(at, len as usize);
    of_entry(seed, &bytes)
}

/// Most bytes of a record whose checksum is put right: all blocks may claim to be one.
const RECORD_REPAIRED: u64 = 512 << 10;

/// Puts right the checksums of records that `which` names by their block.
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

/// Puts right the checksums of both headers of a journal: those that have the magic.
pub fn repair_headers(journal: &mut Contents) {
    for at in [0, BLOCK] {
        let bytes = journal.bytes(at, HEADER_LEN);
        if bytes.starts_with(b"AtomJrnH") {
            journal.write(&of_entry(0, &bytes).to_le_bytes(), at + 8);
        }
    }
}

/// Writes a whole header into one of a journal's first two blocks.
pub fn put_header(journal: &mut Contents, block: u64, uuid: &[u8; 16], from: u64, to: u64) {
    let mut bytes = b"AtomJrnH\0\0\0\0\0\0\0\0".to_vec();
    bytes.extend(uuid);
    bytes.extend([from, to, 0, 0].into_iter().flat_map(u64::to_le_bytes));
    let sum = of_entry(0, &bytes);
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    journal.write(&bytes, block * BLOCK);
}

/// Where the two places of the journal's floor are in the reflection file.
pub const FLOORS: [u64; 2] = [8192 + 64, 8192 + 128];
/// Bytes of a floor.
pub const FLOOR_LEN: usize = 24;

/// The checksum that a floor of these bytes should have.
pub fn of_floor(uuid: &[u8], bytes: &[u8]) -> u32 {
    crc32c::crc32c(&[uuid, &bytes[..16]].concat())
}

/// Puts right the checksums of the floors that `which` names by their place, but for those that
/// hold nothing.
pub fn repair_floors(reflection: &mut Contents, uuid: &[u8], which: impl Fn(usize) -> bool) {
    for (_, at) in FLOORS.into_iter().enumerate().filter(|(place, _)| which(*place)) {
        let bytes = reflection.bytes(at, FLOOR_LEN);
        if bytes.iter().any(|byte| *byte != 0) {
            reflection.write(&of_floor(uuid, &bytes).to_le_bytes(), at + 16);
        }
    }
}

/// The uuid and the session number of the superblock that counts, as far as magic and checksum say.
pub fn session_of(reflection: &Contents) -> Option<([u8; 16], u64)> {
    layout::SUPERBLOCKS
        .map(|at| reflection.bytes(at, SUPERBLOCK_LEN))
        .into_iter()
        .filter(|bytes| {
            bytes.starts_with(b"AtomMmap") && in_superblock(bytes) == of_superblock(bytes)
        })
        .map(|bytes| (std::array::from_fn(|n| bytes[32 + n]), word(&bytes, 16)))
        // The first of two that are equal.
        .rev()
        .max_by_key(|(_, session)| *session)
}
