//! The log record that commits an operation over several words.
//!
//! Owns: [`Undo`], its header and its checksum.
//!
//! Invariant: decoding never panics, whatever the bytes, and believes no field before the checksum.
//!
//! May import: `sequence`, `seed`, `old_bits`, `spill`, `redo_record`, `layout`, `units` and the
//! planted bugs.

use super::{EntrySeed, Found, OldBits, RECORD, Redo, Sequence, Spill, word};
use crate::format::layout::UNDO_ENTRY_LEN;
use crate::mutant::planted;
use crate::units::{SLICE, WORD};
use smallvec::SmallVec;

/// Bytes before an undo record's items.
pub const UNDO_HEADER: usize = 16;
/// The maximal number of words in an undo record that does not overflow.
pub const UNDO_INLINE: usize = (UNDO_ENTRY_LEN - UNDO_HEADER) / RECORD;
const _: () = assert!(UNDO_INLINE < 1 << 16 && RECORD < UNDO_ENTRY_LEN);

/// The contents of an undo record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UndoBody {
    /// The old bits of a few words.
    Inline(Vec<OldBits>),
    /// The old bits of many words are in the log area.
    SpilledUndo(Spill),
    /// New slices that overwrite valid ones, slice bits that flip with them, and the new length.
    Redo(Redo),
    /// As `Redo`, but in the log area.
    SpilledRedo(Spill),
}

/// The log record that commits an operation over several words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Undo {
    /// Its number in the lane.
    pub sequence: Sequence,
    /// Its contents.
    pub body: UndoBody,
}

/// An encoded undo record of old bits, in memory. Up to ten items need no allocation.
#[derive(Debug)]
pub struct UndoWords {
    words: SmallVec<[u64; 32]>,
    /// The number of words of the record: zeros follow, up to a line's end.
    count: usize,
}

impl UndoWords {
    /// Returns the record's bytes.
    fn to_bytes(&self) -> Vec<u8> {
        self.words[..self.count].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Returns the record's lines, as words. A load that is wider than the stores before it would
    /// have to wait until these have left the processor, behind everything that is being copied.
    #[inline(always)]
    pub fn lines(&self) -> &[[u64; SLICE / WORD]] {
        self.words.as_chunks().0
    }
}

const KIND_UNDO: u64 = 1;
const KIND_SPILLED_UNDO: u64 = 2;
// 3 is unused.
const KIND_REDO: u64 = 4;
const KIND_SPILLED_REDO: u64 = 5;

/// Bytes of redo items that fit a lane.
pub const REDO_INLINE: usize = UNDO_ENTRY_LEN - UNDO_HEADER;

impl Undo {
    /// Returns the bytes of the record. Inline bodies have at most [`UNDO_INLINE`] items.
    pub fn encode(&self, seed: EntrySeed) -> Vec<u8> {
        let mut bytes = vec![0; UNDO_HEADER];
        let (kind, count) = match &self.body {
            UndoBody::Inline(records) => {
                let records = records.iter().copied();
                return Self::encode_words(self.sequence, seed, records).to_bytes();
            }
            UndoBody::SpilledUndo(spill) => (KIND_SPILLED_UNDO, spill.encode_to(&mut bytes)),
            UndoBody::Redo(redo) => {
                let mut items = Vec::new();
                redo.encode_to(&mut items);
                return Self::encode_redo(self.sequence, seed, &items);
            }
            UndoBody::SpilledRedo(spill) => (KIND_SPILLED_REDO, spill.encode_to(&mut bytes)),
        };
        Self::seal(&mut bytes, self.sequence, seed, kind, count);
        bytes
    }

    /// Encodes the old bits of at most [`UNDO_INLINE`] words. It works by whole words: one store
    /// for each, and one instruction for its checksum. Every write over several pages pays for
    /// this.
    #[inline(always)]
    pub fn encode_words(
        sequence: Sequence,
        seed: EntrySeed,
        records: impl ExactSizeIterator<Item = OldBits>,
    ) -> UndoWords {
        let count = records.len();
        assert!(count <= UNDO_INLINE);
        let used = Self::words_of(count);
        let mut words = SmallVec::from_elem(0, used.next_multiple_of(SLICE / WORD));
        words[0] = Self::header(sequence, KIND_UNDO, count as u64);
        let places = words[UNDO_HEADER / WORD..].as_chunks_mut().0;
        places.iter_mut().zip(records).for_each(|(place, record)| *place = record.words());
        words[1] = seed.sum_of_words(&words[..used]).into();
        UndoWords { words, count: used }
    }

    /// Returns the words of a record with `count` items of old bits, at most [`UNDO_INLINE`].
    #[inline(always)]
    #[expect(clippy::arithmetic_side_effects, reason = "few items: the caller has counted them")]
    fn words_of(count: usize) -> usize {
        (UNDO_HEADER + count * RECORD) / WORD
    }

    /// Encodes a redo record of at most [`REDO_INLINE`] bytes of encoded items.
    pub fn encode_redo(sequence: Sequence, seed: EntrySeed, items: &[u8]) -> Vec<u8> {
        assert!(items.len() <= REDO_INLINE);
        let mut bytes = vec![0; UNDO_HEADER];
        bytes.extend_from_slice(items);
        Self::seal(&mut bytes, sequence, seed, KIND_REDO, (items.len() / WORD) as u64);
        bytes
    }

    fn header(sequence: Sequence, kind: u64, count: u64) -> u64 {
        sequence.0 << 24 | kind << 16 | count
    }

    /// Fills in the header of a record.
    fn seal(bytes: &mut [u8], sequence: Sequence, seed: EntrySeed, kind: u64, count: u64) {
        bytes[..8].copy_from_slice(&Self::header(sequence, kind, count).to_le_bytes());
        let sum = seed.sum(bytes);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    }

    /// Decodes the bytes at an undo record's place. Never panics, whatever the bytes.
    pub fn decode(seed: EntrySeed, bytes: &[u8; UNDO_ENTRY_LEN]) -> Found<Undo> {
        let header = word(bytes, 0);
        if header == 0 {
            return Found::Empty;
        }
        let count = (header & 0xFFFF) as usize;
        let kind = header >> 16 & 0xFF;
        let item = if kind == KIND_REDO { WORD } else { RECORD };
        // A count of 16 bits: no product of it overflows.
        let end = count.saturating_mul(item).saturating_add(UNDO_HEADER);
        let Some(said) = bytes.get(..end).filter(|_| count != 0) else {
            return Found::Torn;
        };
        let mut said = said.to_vec();
        said[8..12].fill(0);
        let is_whole = word(bytes, 8) as u32 == seed.sum(&said);
        if !is_whole && !planted!(UndoSumNotChecked) {
            return Found::Torn;
        }
        let records = &said[UNDO_HEADER..];
        let body = match kind {
            KIND_UNDO => OldBits::decode_all(records).map(UndoBody::Inline),
            KIND_SPILLED_UNDO => Spill::decode(records).map(UndoBody::SpilledUndo),
            KIND_REDO => Redo::decode(records).map(UndoBody::Redo),
            KIND_SPILLED_REDO => Spill::decode(records).map(UndoBody::SpilledRedo),
            _ => None,
        };
        let sequence = Sequence(header >> 24);
        body.map_or(Found::Torn, |body| Found::Valid(Undo { sequence, body }))
    }
}
