//! Log records about any number of pages: undo records, and records that overflow to the log area.
//! (Flip records, of one line, are in `vouch`.)
//!
//! Every log record begins with a header word that is stored and cleared as one atomic word (0 = no
//! record). It carries a CRC-32C over its contents, seeded with the pair's uuid, the session number
//! and the record's place. So a record that is torn, that belongs to an earlier session, or that
//! was copied from another place is never taken for a valid one. The checksum is a bijection of its
//! seed, so different seeds give different checksums of equal bytes.
//!
//! ```text
//! undo record, 16 bytes and the items, at most 2048:
//!   0   header   sequence (40 bits) | kind (8) | count (16)
//!   8   checksum (32) | zero (32)
//!   16  items    kind undo: (word, mask, old bits), 24 bytes each
//!                kind in place: for each page as below; count is in units of 8 bytes
//!                kind spilled undo, spilled redo or spilled in place:
//!                  one (offset in log area, bytes, checksum)
//!
//! spilled undo: (word, mask, old bits), 24 bytes each
//! spilled redo: for each page (page, mask of slices, the slices' 64 bytes each)
//! in place, spilled or not: for each page
//!               (page, slices that stay, bits that flip, those bits afterwards),
//!               then 64 bytes for each slice that stays
//! ```

use super::layout::{BATCH, LOG_AREA_LEN, MAX_LEN, RING, UNDO_ENTRY_LEN};
use crate::mutant::planted;
use crate::sum;
use crate::units::{LaneIndex, PAGE, PageIndex, REGION, RegionIndex, SLICE, WORD};
use smallvec::SmallVec;

/// Bytes before an undo record's items.
pub const UNDO_HEADER: usize = 16;
/// Bytes of one item.
pub const RECORD: usize = 24;
/// The maximal number of words in an undo record that does not overflow.
pub const UNDO_INLINE: usize = (UNDO_ENTRY_LEN - UNDO_HEADER) / RECORD;
/// Bytes before the slices of one page in a spilled redo record.
pub const SPILLED_PAGE_HEADER: usize = 16;
/// Maximal bytes of one page in a spilled redo record.
pub const SPILLED_PAGE_MAX: usize = SPILLED_PAGE_HEADER + PAGE;

const SEQUENCE_BITS: u32 = 40;
const _: () = assert!((1u64 << SEQUENCE_BITS).is_multiple_of(RING as u64), "places stay in turn");
const _: () = assert!(UNDO_INLINE < 1 << 16 && RECORD < UNDO_ENTRY_LEN);

/// The number of a log record within its lane. Counts modulo 2^40.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sequence(u64);

impl Sequence {
    /// The first number of a session.
    pub const FIRST: Sequence = Sequence(1);

    /// Returns the number, below 2^40, to be kept in an atomic.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Creates a sequence from the result of `bits`.
    pub fn from_bits(bits: u64) -> Self {
        debug_assert!(bits < 1 << SEQUENCE_BITS);
        Sequence(bits)
    }

    /// Returns the next number.
    #[inline]
    pub fn next(self) -> Self {
        Sequence((self.0 + 1) & ((1 << SEQUENCE_BITS) - 1))
    }

    /// Returns the place of this flip record in its lane's ring.
    #[inline]
    pub fn place(self) -> usize {
        self.0 as usize % RING
    }

    /// Returns `true` if the drain of this flip record makes the words of all earlier flip records
    /// of its lane durable.
    #[inline]
    pub fn ends_batch(self) -> bool {
        let batch = if planted!(BatchOnceARing) { RING } else { BATCH } as u64;
        self.0 % batch == batch - 1
    }

    /// Returns the number of the last flip record before this one that ended a batch. When this
    /// record was begun, the words of all flip records before the returned one were durable.
    pub fn needed_from(self) -> Self {
        let ago = self.0 % BATCH as u64 + 1;
        Sequence(self.0.wrapping_sub(ago) & ((1 << SEQUENCE_BITS) - 1))
    }

    /// Returns the distance from `other` to `self`. `other` is earlier than or equal to `self`.
    pub fn ahead_of(self, other: Self) -> u64 {
        self.0.wrapping_sub(other.0) & ((1 << SEQUENCE_BITS) - 1)
    }

    /// Returns `true` if `self` is earlier than `other`. They are at most half the range apart.
    pub fn is_before(self, other: Self) -> bool {
        let ahead = other.ahead_of(self);
        if planted!(SequenceDoesNotWrap) {
            return self.0 < other.0;
        }
        ahead != 0 && ahead < 1 << (SEQUENCE_BITS - 1)
    }
}

/// The start of all checksums of one session.
#[derive(Clone, Copy, Debug)]
pub struct Seed {
    sum: u32,
    tag: u16,
}

/// The start of the checksums of one part of a lane in one session.
#[derive(Clone, Copy, Debug)]
pub struct EntrySeed(u32);

impl Seed {
    /// Creates the seed of a session of the pair `uuid`.
    pub fn new(uuid: &[u8; 16], session: u64) -> Self {
        let session = if planted!(SeedWithoutSession) { 0 } else { session };
        let sum = sum::crc32c_append(sum::crc32c(uuid), &session.to_le_bytes());
        Seed { sum, tag: if planted!(HeaderWithoutSession) { 0 } else { session as u16 } }
    }

    /// Returns the last 16 bits of the session's number.
    pub fn tag(self) -> u16 {
        self.tag
    }

    /// Returns the seed of the undo record of `lane`, and of its overflow.
    pub fn undo(self, lane: LaneIndex) -> EntrySeed {
        self.place(lane, 1)
    }

    /// Returns the seed of a part of `lane`: 0 is its ring, 1 its undo record.
    pub(super) fn place(self, lane: LaneIndex, which: u8) -> EntrySeed {
        let [low, high] = if planted!(SeedWithoutPlace) { [0; 2] } else { lane.0.to_le_bytes() };
        EntrySeed(sum::crc32c_append(self.sum, &[low, high, which]))
    }
}

impl EntrySeed {
    /// Returns the checksum of words at this place.
    #[inline(always)]
    fn sum_of_words(self, words: &[u64]) -> u32 {
        sum::append_words(sum::Crc::get(), self.0, words)
    }

    /// Returns the checksum of bytes at this place.
    pub fn sum(self, bytes: &[u8]) -> u32 {
        sum::crc32c_append(self.0, bytes)
    }

    /// Returns the XOR difference between checksums of `LEN` bytes at this place and checksums
    /// without a seed.
    pub fn difference<const LEN: usize>(self) -> u32 {
        sum::difference::<LEN>(self.0)
    }
}

/// The result of decoding a log record's place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found<T> {
    /// No record.
    Empty,
    /// Not a complete record of this session.
    Torn,
    /// A record.
    Valid(T),
}

/// The identity of a word that commits change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum WordId {
    /// The slice word of a page.
    Slice(PageIndex),
    /// The region word of a region.
    Region(RegionIndex),
}

impl WordId {
    /// Returns the region that the word belongs to.
    pub fn region(self) -> RegionIndex {
        match self {
            WordId::Slice(page) => page.region(),
            WordId::Region(region) => region,
        }
    }

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

/// The old bits of one word that an operation changes: only the bits under `mask`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OldBits {
    /// The word.
    pub word: WordId,
    /// The bits that the operation flips.
    pub mask: u64,
    /// Those bits before the operation; zero elsewhere.
    pub old: u64,
}

impl OldBits {
    /// Returns the item's words.
    #[inline(always)]
    fn words(&self) -> [u64; RECORD / WORD] {
        [self.word.encode(), self.mask, self.old]
    }

    /// Returns the item's bytes.
    #[inline]
    fn encode(&self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        let words = self.words().map(u64::to_le_bytes);
        bytes.copy_from_slice(words.as_flattened());
        bytes
    }

    /// Appends the item's bytes.
    pub fn encode_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.encode());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (mask, old) = (word(bytes, 8), word(bytes, 16));
        let word = WordId::decode(word(bytes, 0))?;
        (old & !mask == 0).then_some(OldBits { word, mask, old })
    }

    /// Decodes consecutive items.
    pub fn decode_all(bytes: &[u8]) -> Option<Vec<Self>> {
        if !bytes.len().is_multiple_of(RECORD) {
            return None;
        }
        bytes.chunks_exact(RECORD).map(Self::decode).collect()
    }
}

/// A part of the log area, and the checksum of the bytes written there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spill {
    /// Offset in the log area.
    pub offset: u64,
    /// The number of bytes.
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

    /// Returns `true` if `summed` is the checksum of the described bytes.
    pub fn matches(&self, summed: SpillSum) -> bool {
        self.len == summed.len && (self.sum == summed.sum || planted!(SpillSumNotChecked))
    }
}

/// The checksum of overflow bytes. There may be many, so it is computed piece by piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpillSum {
    sum: u32,
    len: u64,
}

impl SpillSum {
    /// Starts the checksum of the overflow of the record `sequence`.
    pub fn new(seed: EntrySeed, sequence: Sequence) -> Self {
        SpillSum { sum: seed.sum(&sequence.0.to_le_bytes()), len: 0 }
    }

    /// Adds more bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.sum = sum::crc32c_append(self.sum, bytes);
        self.len += bytes.len() as u64;
    }
}

/// The contents of an undo record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UndoBody {
    /// The old bits of a few words.
    Inline(Vec<OldBits>),
    /// The old bits of many words are in the log area.
    SpilledUndo(Spill),
    /// The new slices themselves are in the log area.
    SpilledRedo(Spill),
    /// New slices that overwrite valid ones, and slice bits that flip with them.
    InPlace(Vec<InPlacePage>),
    /// As `InPlace`, but in the log area.
    SpilledInPlace(Spill),
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
const KIND_SPILLED_REDO: u64 = 3;
const KIND_IN_PLACE: u64 = 4;
const KIND_SPILLED_IN_PLACE: u64 = 5;

/// Bytes of pages in place that fit a lane.
pub const IN_PLACE_INLINE: usize = UNDO_ENTRY_LEN - UNDO_HEADER;

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
            UndoBody::SpilledRedo(spill) => (KIND_SPILLED_REDO, spill.encode_to(&mut bytes)),
            UndoBody::InPlace(pages) => {
                pages.iter().for_each(|page| page.encode_to(&mut bytes));
                assert!(bytes.len() <= UNDO_ENTRY_LEN);
                (KIND_IN_PLACE, ((bytes.len() - UNDO_HEADER) / 8) as u64)
            }
            UndoBody::SpilledInPlace(spill) => (KIND_SPILLED_IN_PLACE, spill.encode_to(&mut bytes)),
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
        let used = (UNDO_HEADER + count * RECORD) / WORD;
        let mut words = SmallVec::from_elem(0, used.next_multiple_of(SLICE / WORD));
        words[0] = Self::header(sequence, KIND_UNDO, count as u64);
        let places = words[UNDO_HEADER / WORD..].as_chunks_mut().0;
        places.iter_mut().zip(records).for_each(|(place, record)| *place = record.words());
        words[1] = seed.sum_of_words(&words[..used]).into();
        UndoWords { words, count: used }
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
        let body = count * if kind == KIND_IN_PLACE { 8 } else { RECORD };
        if count == 0 || UNDO_HEADER + body > UNDO_ENTRY_LEN {
            return Found::Torn;
        }
        let mut said = bytes[..UNDO_HEADER + body].to_vec();
        said[8..12].fill(0);
        let is_whole = word(bytes, 8) as u32 == seed.sum(&said);
        if !is_whole && !planted!(UndoSumNotChecked) {
            return Found::Torn;
        }
        let records = &said[UNDO_HEADER..];
        let body = match kind {
            KIND_UNDO => OldBits::decode_all(records).map(UndoBody::Inline),
            KIND_SPILLED_UNDO => Spill::decode(records).map(UndoBody::SpilledUndo),
            KIND_SPILLED_REDO => Spill::decode(records).map(UndoBody::SpilledRedo),
            KIND_IN_PLACE => InPlacePage::decode_all(records).map(UndoBody::InPlace),
            KIND_SPILLED_IN_PLACE => Spill::decode(records).map(UndoBody::SpilledInPlace),
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

/// The changes of an operation to one page that it changes in place. See `engine::commit::redo`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InPlacePage {
    /// The page.
    pub page: PageIndex,
    /// One bit for each slice that is stored to its valid slot.
    pub stays: u64,
    /// Bits of the slice word that flip: their slices are in their free slots already.
    pub flips: u64,
    /// The flipped bits afterwards, zero elsewhere.
    pub flipped: u64,
    /// 64 bytes for each bit of `stays`, lowest first.
    pub slices: Vec<u8>,
}

/// Bytes of a page in place before its slices.
pub const IN_PLACE_HEADER: usize = 32;
/// Maximal bytes of a page in place.
pub const IN_PLACE_MAX: usize = IN_PLACE_HEADER + PAGE;

impl InPlacePage {
    /// Appends the page's bytes.
    pub fn encode_to(&self, bytes: &mut Vec<u8>) {
        assert_eq!(self.slices.len(), self.stays.count_ones() as usize * SLICE);
        for word in [self.page.0, self.stays, self.flips, self.flipped] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.slices);
    }

    /// Decodes consecutive pages.
    pub fn decode_all(mut bytes: &[u8]) -> Option<Vec<Self>> {
        let mut pages = Vec::new();
        while !bytes.is_empty() {
            pages.push(Self::decode_first(&mut bytes)?);
        }
        Some(pages)
    }

    /// Decodes the first page of `bytes` and leaves the rest.
    pub fn decode_first(bytes: &mut &[u8]) -> Option<Self> {
        let (header, rest) = bytes.split_at_checked(IN_PLACE_HEADER)?;
        let (page, stays) = (PageIndex(word(header, 0)), word(header, 8));
        let (flips, flipped) = (word(header, 16), word(header, 24));
        let (slices, rest) = rest.split_at_checked(stays.count_ones() as usize * SLICE)?;
        let is_sound = page.0 < MAX_LEN / PAGE as u64
            && stays | flips != 0
            && stays & flips == 0
            && flipped & !flips == 0;
        if !is_sound {
            return None;
        }
        *bytes = rest;
        Some(InPlacePage { page, stays, flips, flipped, slices: slices.to_vec() })
    }
}

/// The new slices of one page in a spilled redo record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpilledPage {
    /// The page.
    pub page: PageIndex,
    /// One bit for each slice that the record carries.
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

    /// Decodes consecutive pages.
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
    fn sequences_wrap() {
        let last = Sequence((1 << SEQUENCE_BITS) - 1);
        assert!(last.is_before(last.next()));
        assert!(!last.next().is_before(last));
        assert!(!last.is_before(last));
        assert_eq!(last.next().place(), (last.place() + 1) % RING);
    }

    /// Also where the numbers wrap around.
    #[test]
    fn what_is_needed_ends_with_a_batch_and_has_its_place_to_itself() {
        for number in (1..100).chain((1 << 40) - 40..1 << 40) {
            let number = Sequence(number);
            let from = number.needed_from();
            assert!(from.ends_batch() && from.is_before(number), "{number:?}");
            let needed: Vec<usize> =
                std::iter::successors(Some(from), |n| (*n != number).then(|| n.next()))
                    .map(Sequence::place)
                    .collect();
            assert!(needed.len() <= BATCH + 1 && BATCH < RING);
            // No batch ended between the two: otherwise one more record would be needed.
            assert_eq!(needed.iter().filter(|n| **n % BATCH == BATCH - 1).count(), {
                1 + usize::from(number.ends_batch())
            });
        }
    }

    #[test]
    fn garbage_never_panics() {
        let mut x = 0x9E37_79B9_7F4A_7C15u64;
        for _ in 0..20_000 {
            let mut undo = [0u8; UNDO_ENTRY_LEN];
            for byte in undo.iter_mut().step_by(7) {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                *byte = x as u8;
            }
            let found = Undo::decode(seed().undo(LaneIndex(0)), &undo);
            assert!(!matches!(found, Found::Valid(_)));
            let _ = SpilledPage::decode_all(&undo);
            let _ = OldBits::decode_all(&undo);
        }
    }
}
