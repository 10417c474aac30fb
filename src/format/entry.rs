//! What does a log entry say? Redo entries, undo entries of words, spilled entries.
//!
//! Every entry begins with a header word that is stored and cleared as one atomic word (0 = no
//! entry; a redo entry is cleared by leaving its sequence number alone, so that the lane's older
//! entry does not come back to life), and carries a CRC-32C over all that it says, seeded with the pair's uuid, the session
//! number and the entry's place. So an entry that is torn, that belongs to an earlier session, or
//! that was copied from elsewhere is never taken for a valid one.
//!
//! ```text
//! redo entry, 24 bytes and the payload, at most 1024:
//!   0   header   sequence (40 bits) | offset in page (12) | length (12)
//!   8   checksum (32) | page (32)
//!   16  sides    one bit a slice of the page: the slot that the payload goes to
//!   24  payload  `length` bytes
//!
//! undo entry, 16 bytes and the records, at most 2048:
//!   0   header   sequence (40 bits) | kind (8) | count of records (16)
//!   8   checksum (32) | zero (32)
//!   16  records  kind undo: (word, mask, old bits), 24 bytes each
//!                kind spilled undo or spilled redo: one (offset in log area, bytes, checksum)
//!
//! spilled undo: (word, mask, old bits), 24 bytes each
//! spilled redo: for each page (page, mask of slices, the slices' 64 bytes each)
//! ```

use super::layout::{LOG_AREA_LEN, MAX_LEN, REDO_ENTRY, UNDO_ENTRY_LEN};
use crate::mutant::planted;
use crate::units::{LaneIndex, PAGE, PageIndex, REGION, RegionIndex, SLICE};

/// Bytes before a redo entry's payload.
pub const REDO_HEADER: usize = 24;
/// Most bytes that one redo entry carries.
pub const REDO_MAX: usize = REDO_ENTRY - REDO_HEADER;
/// Bytes before an undo entry's records.
pub const UNDO_HEADER: usize = 16;
/// Bytes of one record.
pub const RECORD: usize = 24;
/// Most words that an undo entry holds without spilling.
pub const UNDO_INLINE: usize = (UNDO_ENTRY_LEN - UNDO_HEADER) / RECORD;
/// Bytes before the slices of one page in a spilled redo entry.
pub const SPILLED_PAGE_HEADER: usize = 16;
/// Most bytes of one page in a spilled redo entry.
pub const SPILLED_PAGE_MAX: usize = SPILLED_PAGE_HEADER + PAGE;

const SEQUENCE_BITS: u32 = 40;
const _: () = assert!(REDO_MAX < 1 << 12 && UNDO_INLINE < 1 << 16 && RECORD < UNDO_ENTRY_LEN);

/// Number of an entry within its lane. Counts modulo 2^40.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sequence(u64);

impl Sequence {
    /// The first of a session.
    pub const FIRST: Sequence = Sequence(1);

    /// As a number below 2^40, to be kept in an atomic.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// From what `bits` gave.
    pub fn from_bits(bits: u64) -> Self {
        debug_assert!(bits < 1 << SEQUENCE_BITS);
        Sequence(bits)
    }

    /// The next one. Zero is left out: a header without a sequence number is no entry. So is the
    /// number after it, to keep the two positions in turn.
    pub fn next(self) -> Self {
        match (self.0 + 1) & ((1 << SEQUENCE_BITS) - 1) {
            0 => Sequence(2),
            next => Sequence(next),
        }
    }

    /// Which of the lane's two redo entries carries it.
    pub fn position(self) -> usize {
        (self.0 & 1) as usize
    }

    /// Whether `self` came before `other`, which is at most half the range away.
    pub fn is_before(self, other: Self) -> bool {
        let ahead = other.0.wrapping_sub(self.0) & ((1 << SEQUENCE_BITS) - 1);
        if planted!(SequenceDoesNotWrap) {
            return self.0 < other.0;
        }
        ahead != 0 && ahead < 1 << (SEQUENCE_BITS - 1)
    }
}

/// What the checksums of one session begin with.
#[derive(Clone, Copy, Debug)]
pub struct Seed(u32);

/// What the checksum of one entry begins with: the session and the entry's place.
#[derive(Clone, Copy, Debug)]
pub struct EntrySeed(u32);

impl Seed {
    /// The seed of a session of the pair `uuid`.
    pub fn new(uuid: &[u8; 16], session: u64) -> Self {
        let session = if planted!(SeedWithoutSession) { 0 } else { session };
        Seed(crc32c::crc32c_append(crc32c::crc32c(uuid), &session.to_le_bytes()))
    }

    /// The seed of redo entry `position` (0 or 1) of `lane`.
    pub fn redo(self, lane: LaneIndex, position: usize) -> EntrySeed {
        self.place(lane, position as u8)
    }

    /// The seed of the undo entry of `lane`, and of what it spills.
    pub fn undo(self, lane: LaneIndex) -> EntrySeed {
        self.place(lane, 2)
    }

    fn place(self, lane: LaneIndex, which: u8) -> EntrySeed {
        let [low, high] = if planted!(SeedWithoutPlace) { [0; 2] } else { lane.0.to_le_bytes() };
        EntrySeed(crc32c::crc32c_append(self.0, &[low, high, which]))
    }
}

/// What the bytes at an entry's place turned out to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found<T> {
    /// No entry.
    Empty,
    /// Not an entry of this session that was written whole.
    Torn,
    /// An entry.
    Valid(T),
}

/// A small write in place: `payload` at `offset` of `page`, into the slots that `sides` names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redo {
    /// Its number in the lane.
    pub sequence: Sequence,
    /// The page written to.
    pub page: PageIndex,
    /// Where in the page, in bytes.
    pub offset: usize,
    /// One bit a slice of the page: 0 = home slot, 1 = reflection slot.
    pub sides: u64,
    /// The bytes.
    pub payload: Vec<u8>,
}

/// Bytes of an encoded redo entry, ready to be copied to its place. `N` is room for header and
/// payload, in whole cache lines: a small entry should not cost the zeroing of a large one.
pub struct RedoBytes<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> RedoBytes<N> {
    /// Encodes the entry. The bytes are padded with zeroes to whole cache lines.
    ///
    /// `payload` has 1 to [`REDO_MAX`] bytes, fits `N` behind the header, and ends within the page.
    #[inline]
    pub fn encode(
        seed: EntrySeed,
        sequence: Sequence,
        page: PageIndex,
        offset: usize,
        sides: u64,
        payload: &[u8],
    ) -> Self {
        let len = payload.len();
        const { assert!(N.is_multiple_of(SLICE) && N <= REDO_ENTRY) };
        assert!(len > 0 && len <= N - REDO_HEADER && offset + len <= PAGE);
        let mut bytes = [0; N];
        let header = sequence.0 << 24 | (offset as u64) << 12 | len as u64;
        bytes[..8].copy_from_slice(&header.to_le_bytes());
        bytes[12..16].copy_from_slice(&(page.0 as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&sides.to_le_bytes());
        bytes[REDO_HEADER..REDO_HEADER + len].copy_from_slice(payload);
        let sum = crc32c::crc32c_append(seed.0, &bytes[..REDO_HEADER + len]);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
        RedoBytes { bytes, len: (REDO_HEADER + len).next_multiple_of(SLICE) }
    }

    /// The header word: what a clearing compare-and-swap expects to find.
    pub fn header(&self) -> u64 {
        word(&self.bytes, 0)
    }

    /// The bytes to store: whole cache lines.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// What the bytes at a redo entry's place turned out to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RedoFound {
    /// No entry.
    Empty,
    /// Not an entry of this session that was written whole.
    Torn,
    /// The entry with this number was cleared. The lane's older entry is void as well: what it
    /// stored was durable before the cleared one was written.
    Cleared(Sequence),
    /// An entry.
    Valid(Redo),
}

/// The header that a cleared entry leaves: its sequence number and nothing else.
pub fn cleared(header: u64) -> u64 {
    header >> 24 << 24
}

impl Redo {
    /// Judges the bytes at a redo entry's place. Never panics, whatever the bytes.
    pub fn decode(seed: EntrySeed, bytes: &[u8; REDO_ENTRY]) -> RedoFound {
        use RedoFound as Found;
        let header = word(bytes, 0);
        if header == 0 {
            return Found::Empty;
        }
        if header == cleared(header) && !planted!(TombstoneIsTorn) {
            return Found::Cleared(Sequence(header >> 24));
        }
        let len = (header & 0xFFF) as usize;
        let offset = (header >> 12 & 0xFFF) as usize;
        if len == 0 || len > REDO_MAX || offset + len > PAGE {
            return Found::Torn;
        }
        let mut said = bytes[..REDO_HEADER + len].to_vec();
        said[8..12].fill(0);
        let sum = crc32c::crc32c_append(seed.0, &said);
        let page = PageIndex(word(bytes, 8) >> 32);
        let is_whole = word(bytes, 8) as u32 == sum || planted!(RedoSumNotChecked);
        if !is_whole || page.0 >= MAX_LEN / PAGE as u64 {
            return Found::Torn;
        }
        Found::Valid(Redo {
            sequence: Sequence(header >> 24),
            page,
            offset,
            sides: word(bytes, 16),
            payload: said.split_off(REDO_HEADER),
        })
    }
}

/// A word that commits move: which one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum WordId {
    /// The slice word of a page.
    Slice(PageIndex),
    /// The region word of a region.
    Region(RegionIndex),
}

impl WordId {
    const KIND: u32 = 56;

    fn encode(self) -> u64 {
        match self {
            WordId::Slice(page) => 1 << Self::KIND | page.0,
            WordId::Region(region) => 2 << Self::KIND | region.0,
        }
    }

    fn decode(bits: u64) -> Option<Self> {
        let index = bits & ((1 << Self::KIND) - 1);
        match bits >> Self::KIND {
            1 if index < MAX_LEN / PAGE as u64 => Some(WordId::Slice(PageIndex(index))),
            2 if index < MAX_LEN / REGION as u64 => Some(WordId::Region(RegionIndex(index))),
            _ => None,
        }
    }
}

/// What one word was before the operation: only the bits under `mask` are the operation's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OldBits {
    /// Which word.
    pub word: WordId,
    /// The bits that the operation flips.
    pub mask: u64,
    /// Those bits before the operation; zero elsewhere.
    pub old: u64,
}

impl OldBits {
    /// Appends the record's 24 bytes.
    pub fn encode_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.word.encode().to_le_bytes());
        bytes.extend_from_slice(&self.mask.to_le_bytes());
        bytes.extend_from_slice(&self.old.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (mask, old) = (word(bytes, 8), word(bytes, 16));
        let word = WordId::decode(word(bytes, 0))?;
        (old & !mask == 0).then_some(OldBits { word, mask, old })
    }

    /// Decodes records that lie one behind the other.
    pub fn decode_all(bytes: &[u8]) -> Option<Vec<Self>> {
        if !bytes.len().is_multiple_of(RECORD) {
            return None;
        }
        bytes.chunks_exact(RECORD).map(Self::decode).collect()
    }
}

/// A part of the log area, and the checksum of what was written there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spill {
    /// Offset in the log area.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    sum: u32,
}

impl Spill {
    /// Describes `bytes`, which were written at `offset` of the log area.
    pub fn of(seed: EntrySeed, sequence: Sequence, offset: u64, bytes: &[u8]) -> Self {
        let mut sum = SpillSum::new(seed, sequence);
        sum.add(bytes);
        Spill { offset, len: sum.len, sum: sum.sum }
    }

    /// Whether the bytes that were summed up are what was described.
    pub fn matches(&self, summed: SpillSum) -> bool {
        self.len == summed.len && (self.sum == summed.sum || planted!(SpillSumNotChecked))
    }
}

/// The checksum of spilled bytes, which are many: it is taken piece by piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpillSum {
    sum: u32,
    len: u64,
}

impl SpillSum {
    /// Of no bytes, spilled by the entry of this number.
    pub fn new(seed: EntrySeed, sequence: Sequence) -> Self {
        SpillSum { sum: crc32c::crc32c_append(seed.0, &sequence.0.to_le_bytes()), len: 0 }
    }

    /// Of more bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.sum = crc32c::crc32c_append(self.sum, bytes);
        self.len += bytes.len() as u64;
    }
}

/// What an undo entry carries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UndoBody {
    /// The old bits of a few words.
    Inline(Vec<OldBits>),
    /// The old bits of many words are in the log area.
    SpilledUndo(Spill),
    /// The new slices themselves are in the log area.
    SpilledRedo(Spill),
}

/// The entry that commits an operation over several words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Undo {
    /// Its number in the lane.
    pub sequence: Sequence,
    /// What it carries.
    pub body: UndoBody,
}

const KIND_UNDO: u64 = 1;
const KIND_SPILLED_UNDO: u64 = 2;
const KIND_SPILLED_REDO: u64 = 3;

impl Undo {
    /// The bytes of the entry. Inline bodies have at most [`UNDO_INLINE`] records.
    pub fn encode(&self, seed: EntrySeed) -> Vec<u8> {
        let mut bytes = vec![0; UNDO_HEADER];
        let (kind, count) = match &self.body {
            UndoBody::Inline(records) => {
                assert!(records.len() <= UNDO_INLINE);
                records.iter().for_each(|record| record.encode_to(&mut bytes));
                (KIND_UNDO, records.len() as u64)
            }
            UndoBody::SpilledUndo(spill) => (KIND_SPILLED_UNDO, spill.encode_to(&mut bytes)),
            UndoBody::SpilledRedo(spill) => (KIND_SPILLED_REDO, spill.encode_to(&mut bytes)),
        };
        let header = self.sequence.0 << 24 | kind << 16 | count;
        bytes[..8].copy_from_slice(&header.to_le_bytes());
        let sum = crc32c::crc32c_append(seed.0, &bytes);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Judges the bytes at an undo entry's place. Never panics, whatever the bytes.
    pub fn decode(seed: EntrySeed, bytes: &[u8; UNDO_ENTRY_LEN]) -> Found<Undo> {
        let header = word(bytes, 0);
        if header == 0 {
            return Found::Empty;
        }
        let count = (header & 0xFFFF) as usize;
        if count == 0 || count > UNDO_INLINE {
            return Found::Torn;
        }
        let mut said = bytes[..UNDO_HEADER + count * RECORD].to_vec();
        said[8..12].fill(0);
        let is_whole = word(bytes, 8) as u32 == crc32c::crc32c_append(seed.0, &said);
        if !is_whole && !planted!(UndoSumNotChecked) {
            return Found::Torn;
        }
        let records = &said[UNDO_HEADER..];
        let body = match header >> 16 & 0xFF {
            KIND_UNDO => OldBits::decode_all(records).map(UndoBody::Inline),
            KIND_SPILLED_UNDO => Spill::decode(records).map(UndoBody::SpilledUndo),
            KIND_SPILLED_REDO => Spill::decode(records).map(UndoBody::SpilledRedo),
            _ => None,
        };
        let sequence = Sequence(header >> 24);
        body.map_or(Found::Torn, |body| Found::Valid(Undo { sequence, body }))
    }
}

impl Spill {
    fn encode_to(&self, bytes: &mut Vec<u8>) -> u64 {
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&self.len.to_le_bytes());
        bytes.extend_from_slice(&u64::from(self.sum).to_le_bytes());
        1
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (offset, len) = (word(bytes, 0), word(bytes, 8));
        let end = offset.checked_add(len)?;
        let sum = u32::try_from(word(bytes, 16)).ok()?;
        (bytes.len() == RECORD && end <= LOG_AREA_LEN).then_some(Spill { offset, len, sum })
    }
}

/// The new slices of one page in a spilled redo entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpilledPage {
    /// The page.
    pub page: PageIndex,
    /// One bit a slice that the entry carries.
    pub mask: u64,
    /// 64 bytes for each bit of `mask`, lowest first.
    pub slices: Vec<u8>,
}

impl SpilledPage {
    /// Appends the page's bytes.
    pub fn encode_to(&self, bytes: &mut Vec<u8>) {
        assert_eq!(self.slices.len(), self.mask.count_ones() as usize * SLICE);
        bytes.extend_from_slice(&self.page.0.to_le_bytes());
        bytes.extend_from_slice(&self.mask.to_le_bytes());
        bytes.extend_from_slice(&self.slices);
    }

    /// Decodes pages that lie one behind the other.
    #[cfg(any(test, feature = "recorder"))]
    pub fn decode_all(mut bytes: &[u8]) -> Option<Vec<Self>> {
        let mut pages = Vec::new();
        while !bytes.is_empty() {
            pages.push(Self::decode_first(&mut bytes)?);
        }
        Some(pages)
    }

    /// Decodes the first page of `bytes` and leaves the rest.
    pub fn decode_first(bytes: &mut &[u8]) -> Option<Self> {
        let (header, rest) = bytes.split_at_checked(SPILLED_PAGE_HEADER)?;
        let (page, mask) = (PageIndex(word(header, 0)), word(header, 8));
        let (slices, rest) = rest.split_at_checked(mask.count_ones() as usize * SLICE)?;
        if page.0 >= MAX_LEN / PAGE as u64 || mask == 0 {
            return None;
        }
        *bytes = rest;
        Some(SpilledPage { page, mask, slices: slices.to_vec() })
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed() -> Seed {
        Seed::new(b"0123456789abcdef", 3)
    }

    fn redo_place<const N: usize>(entry: &RedoBytes<N>) -> [u8; REDO_ENTRY] {
        let mut place = [0xEE; REDO_ENTRY];
        place[..entry.as_slice().len()].copy_from_slice(entry.as_slice());
        place
    }

    #[test]
    fn redo_entries_come_back() {
        let seed = seed().redo(LaneIndex(5), 1);
        for (offset, len) in [(0, 1), (8, 40), (4095, 1), (100, REDO_MAX), (4000, 96)] {
            let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let entry = RedoBytes::<REDO_ENTRY>::encode(
                seed,
                Sequence(9),
                PageIndex(77),
                offset,
                1 << 63,
                &payload,
            );
            assert_eq!(
                Redo::decode(seed, &redo_place(&entry)),
                RedoFound::Valid(Redo {
                    sequence: Sequence(9),
                    page: PageIndex(77),
                    offset,
                    sides: 1 << 63,
                    payload,
                })
            );
        }
    }

    #[test]
    fn a_payload_of_40_bytes_takes_one_cache_line() {
        let seed = seed().redo(LaneIndex(0), 0);
        let entry =
            RedoBytes::<REDO_ENTRY>::encode(seed, Sequence::FIRST, PageIndex(0), 0, 0, &[1; 40]);
        assert_eq!(entry.as_slice().len(), 64);
    }

    #[test]
    fn entries_of_other_sessions_lanes_and_positions_are_torn() {
        let right = seed().redo(LaneIndex(5), 1);
        let entry =
            RedoBytes::<REDO_ENTRY>::encode(right, Sequence::FIRST, PageIndex(1), 0, 0, b"x");
        let place = redo_place(&entry);
        for wrong in [
            Seed::new(b"0123456789abcdef", 4).redo(LaneIndex(5), 1),
            Seed::new(b"0123456789abcdeF", 3).redo(LaneIndex(5), 1),
            seed().redo(LaneIndex(6), 1),
            seed().redo(LaneIndex(5), 0),
            seed().undo(LaneIndex(5)),
        ] {
            assert_eq!(Redo::decode(wrong, &place), RedoFound::Torn);
        }
        assert!(matches!(Redo::decode(right, &place), RedoFound::Valid(_)));
    }

    #[test]
    fn every_flipped_bit_of_an_entry_is_noticed() {
        let seed = seed().redo(LaneIndex(0), 0);
        let entry =
            RedoBytes::<REDO_ENTRY>::encode(seed, Sequence(3), PageIndex(1), 7, 5, &[0x5A; 30]);
        for bit in 0..(REDO_HEADER + 30) * 8 {
            let mut place = redo_place(&entry);
            place[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Redo::decode(seed, &place), RedoFound::Torn, "bit {bit}");
        }
    }

    #[test]
    fn every_flipped_bit_of_an_undo_entry_is_noticed() {
        let seed = seed().undo(LaneIndex(0));
        let word = WordId::Slice(PageIndex(3));
        let body = UndoBody::Inline(vec![OldBits { word, mask: 6, old: 2 }]);
        let entry = Undo { sequence: Sequence(3), body }.encode(seed);
        for bit in 0..entry.len() * 8 {
            let mut place = [0xEE; UNDO_ENTRY_LEN];
            place[..entry.len()].copy_from_slice(&entry);
            place[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Undo::decode(seed, &place), Found::Torn, "bit {bit}");
        }
    }

    #[test]
    fn undo_entries_come_back() {
        let seed = seed().undo(LaneIndex(1));
        let records: Vec<OldBits> = (0..UNDO_INLINE as u64)
            .map(|i| OldBits {
                word: if i % 2 == 0 {
                    WordId::Slice(PageIndex(i))
                } else {
                    WordId::Region(RegionIndex(i))
                },
                mask: !i,
                old: !i & 0xF0F0,
            })
            .collect();
        let spill = Spill::of(seed, Sequence(2), 1 << 20, b"words");
        for body in [
            UndoBody::Inline(records.clone()),
            UndoBody::Inline(records[..1].to_vec()),
            UndoBody::SpilledUndo(spill),
            UndoBody::SpilledRedo(spill),
        ] {
            let entry = Undo { sequence: Sequence(2), body };
            let mut place = [0xEE; UNDO_ENTRY_LEN];
            let bytes = entry.encode(seed);
            place[..bytes.len()].copy_from_slice(&bytes);
            assert_eq!(Undo::decode(seed, &place), Found::Valid(entry));
            place[20] ^= 1;
            assert_eq!(Undo::decode(seed, &place), Found::Torn);
        }
        let sum = |sequence, pieces: &[&[u8]]| {
            let mut sum = SpillSum::new(seed, sequence);
            pieces.iter().for_each(|piece| sum.add(piece));
            sum
        };
        assert!(spill.matches(sum(Sequence(2), &[b"words"])));
        assert!(spill.matches(sum(Sequence(2), &[b"wo", b"rds"])));
        assert!(!spill.matches(sum(Sequence(2), &[b"word"])));
        assert!(!spill.matches(sum(Sequence(3), &[b"words"])));
        assert!(!spill.matches(sum(Sequence(2), &[b"wordz"])));
    }

    #[test]
    fn two_words_take_one_cache_line() {
        let records = vec![OldBits { word: WordId::Slice(PageIndex(1)), mask: 1, old: 0 }; 2];
        let entry = Undo { sequence: Sequence::FIRST, body: UndoBody::Inline(records) };
        assert_eq!(entry.encode(seed().undo(LaneIndex(0))).len(), 64);
    }

    #[test]
    fn spilled_pages_come_back_and_cut_ones_do_not() {
        let pages = vec![
            SpilledPage { page: PageIndex(3), mask: 0b101, slices: vec![7; 128] },
            SpilledPage { page: PageIndex(9), mask: !0, slices: vec![8; 4096] },
        ];
        let mut bytes = Vec::new();
        pages.iter().for_each(|page| page.encode_to(&mut bytes));
        assert_eq!(SpilledPage::decode_all(&bytes), Some(pages));
        assert_eq!(SpilledPage::decode_all(&bytes[..bytes.len() - 1]), None);
    }

    #[test]
    fn a_cleared_entry_says_its_number_and_nothing_else() {
        let seed = seed().redo(LaneIndex(0), 0);
        let entry =
            RedoBytes::<REDO_ENTRY>::encode(seed, Sequence(3), PageIndex(1), 7, 5, &[0x5A; 30]);
        let mut place = redo_place(&entry);
        place[..8].copy_from_slice(&cleared(entry.header()).to_le_bytes());
        assert_eq!(Redo::decode(seed, &place), RedoFound::Cleared(Sequence(3)));
    }

    #[test]
    fn sequences_wrap() {
        let last = Sequence((1 << SEQUENCE_BITS) - 1);
        assert!(last.is_before(last.next()));
        assert!(!last.next().is_before(last));
        assert!(!last.is_before(last));
        assert_ne!(last.position(), last.next().position());
    }

    #[test]
    fn garbage_never_panics() {
        let mut x = 0x9E37_79B9_7F4A_7C15u64;
        for _ in 0..20_000 {
            let mut redo = [0u8; REDO_ENTRY];
            let mut undo = [0u8; UNDO_ENTRY_LEN];
            for byte in redo.iter_mut().chain(undo.iter_mut()).step_by(7) {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                *byte = x as u8;
            }
            let found = Redo::decode(seed().redo(LaneIndex(0), 0), &redo);
            assert!(!matches!(found, RedoFound::Valid(_)));
            let found = Undo::decode(seed().undo(LaneIndex(0)), &undo);
            assert!(!matches!(found, Found::Valid(_)));
            let _ = SpilledPage::decode_all(&undo);
            let _ = OldBits::decode_all(&undo);
        }
    }
}
