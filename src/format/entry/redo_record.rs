//! The pages of records that carry new bytes.
//!
//! Owns: [`InPlacePage`], for slices that overwrite valid ones, and [`SpilledPage`], for slices in
//! the log area.
//!
//! Invariant: a decoded page lies within the largest file, and has as many slices as its mask says.
//!
//! May import: `layout` and `units`.

use super::word;
use crate::format::layout::MAX_LEN;
use crate::units::{PAGE, PageIndex, SLICE};

/// Bytes before the slices of one page in a spilled redo record.
pub const SPILLED_PAGE_HEADER: usize = 16;
/// Maximal bytes of one page in a spilled redo record.
pub const SPILLED_PAGE_MAX: usize = SPILLED_PAGE_HEADER + PAGE;

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
