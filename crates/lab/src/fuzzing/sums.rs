//! Which checksums would be right? Those of `docs/format.md`, computed a second time.
//!
//! Shares no code with `src/format/`, so that a mistake there is not repeated here. Offsets of fields
//! are those of the document's tables.

use super::image::Contents;
use atomic_mmap::testing::{PAGE, layout};

/// Bytes of a superblock.
pub const SUPERBLOCK_LEN: usize = 512;
const SUM_AT: usize = 508;
/// Bytes before a redo entry's payload.
pub const REDO_HEADER: usize = 24;
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

/// What the checksum of an entry begins with; `place`: 0 and 1 = redo, 2 = undo.
pub fn seed(uuid: &[u8], session: u64, lane: usize, place: u8) -> u32 {
    let sum = crc32c::crc32c(uuid);
    let sum = crc32c::crc32c_append(sum, &session.to_le_bytes());
    crc32c::crc32c_append(sum, &[lane as u8, (lane >> 8) as u8, place])
}

/// How many bytes of a redo entry's place its checksum covers, by its header; `None`: no entry, or one
/// that does not fit its place. Whether it fits its page is not looked at: with a right checksum that
/// is for the decoder to notice.
pub fn redo_len(bytes: &[u8]) -> Option<usize> {
    let len = (word(bytes, 0) & 0xFFF) as usize;
    (len > 0 && len <= layout::REDO_ENTRY - REDO_HEADER).then_some(REDO_HEADER + len)
}

/// The same of an undo entry.
pub fn undo_len(bytes: &[u8]) -> Option<usize> {
    let count = (word(bytes, 0) & 0xFFFF) as usize;
    let len = UNDO_HEADER + count * RECORD;
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

/// Most bytes of a spill whose checksum is put right: the sum of a long hole takes long.
const SPILL_REPAIRED: u64 = 32 << 20;

/// Puts right the checksums of entries that `which` names by lane and place, and of their spills.
pub fn repair_entries(
    reflection: &mut Contents,
    uuid: &[u8],
    session: u64,
    which: impl Fn(usize, u8) -> bool,
) {
    for lane in 0..layout::LANE_COUNT {
        for place in 0..3u8 {
            let at = layout::LANES
                + (lane * layout::LANE + usize::from(place) * layout::REDO_ENTRY) as u64;
            if reflection.word(at) == 0 || !which(lane, place) {
                continue;
            }
            let seed = seed(uuid, session, lane, place);
            let mut bytes = reflection.bytes(at, layout::UNDO_ENTRY_LEN);
            let header = word(&bytes, 0);
            let kind = header >> 16 & 0xFF;
            let is_spill = kind == KIND_SPILLED_UNDO || kind == KIND_SPILLED_REDO;
            let (offset, len) = (word(&bytes, 16), word(&bytes, 24));
            let fits = offset.checked_add(len).is_some_and(|end| end <= layout::LOG_AREA_LEN);
            if place == 2 && is_spill && fits && len <= SPILL_REPAIRED {
                let sum = of_spill(seed, header >> 24, reflection, offset, len);
                bytes[32..40].copy_from_slice(&u64::from(sum).to_le_bytes());
                reflection.write(&bytes[32..40], at + 32);
            }
            let len = if place == 2 { undo_len(&bytes) } else { redo_len(&bytes) };
            if let Some(len) = len {
                let sum = of_entry(seed, &bytes[..len]);
                reflection.write(&sum.to_le_bytes(), at + 8);
            }
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
