//! The pages of redo records.
//!
//! Owns: [`RedoPage`].
//!
//! Invariant: a decoded page lies within the largest file, and has as many slices as its mask says.
//!
//! May import: `layout` and `units`.

use super::word;
use crate::format::layout::MAX_LEN;
use crate::units::{PAGE, PageIndex, SLICE};

/// The changes of an operation to one page. See `engine::commit::redo`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedoPage {
    /// The page.
    pub page: PageIndex,
    /// One bit for each slice that has no free slot, and goes to its valid one.
    pub stays: u64,
    /// Bits of the slice word that flip: their slices are in their free slots already.
    pub flips: u64,
    /// The flipped bits afterwards, zero elsewhere.
    pub flipped: u64,
    /// 64 bytes for each bit of `stays`, lowest first.
    pub bytes: Vec<u8>,
}

/// Bytes of a redo page before its slices.
pub const REDO_HEADER: usize = 32;
/// Maximal bytes of a redo page.
pub const REDO_PAGE_MAX: usize = REDO_HEADER + PAGE;

impl RedoPage {
    /// Returns the encoded length of a page with these slices.
    pub const fn len(stays: u64) -> usize {
        REDO_HEADER + stays.count_ones() as usize * SLICE
    }

    /// Appends the page's bytes.
    pub fn encode_to(&self, bytes: &mut Vec<u8>) {
        assert_eq!(self.bytes.len(), self.stays.count_ones() as usize * SLICE);
        for word in [self.page.0, self.stays, self.flips, self.flipped] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.bytes);
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
        let (header, rest) = bytes.split_at_checked(REDO_HEADER)?;
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
        Some(RedoPage { page, stays, flips, flipped, bytes: slices.to_vec() })
    }
}
