//! The items of an undo record: the old bits of single words.
//!
//! Owns: [`WordId`], [`OldBits`], and their bytes.
//!
//! Invariant: a decoded item names a word within the largest file, and has no old bit outside its
//! mask.
//!
//! May import: `layout` and `units`.

use super::word;
use crate::format::layout::{MOST_PAGES, MOST_REGIONS};
use crate::units::{PageIndex, RegionIndex, WORD};

/// Bytes of one item.
pub const RECORD: usize = 24;

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
            1 if index < MOST_PAGES => Some(WordId::Slice(PageIndex(index))),
            2 if index < MOST_REGIONS => Some(WordId::Region(RegionIndex(index))),
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
    pub(super) fn words(&self) -> [u64; RECORD / WORD] {
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
