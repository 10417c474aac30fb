//! The items of redo records: the new length, if the operation changes it, and the pages.
//!
//! Owns: [`Redo`] and [`RedoPage`].
//!
//! Invariants: a decoded page lies within the largest file, and has as many slices as its mask
//! says. A decoded length is at most that of the largest file.
//!
//! May import: `layout`, `bitmap` and `units`.

use super::word;
use crate::bitmap::Slices;
use crate::format::layout::{MAX_LEN, MOST_PAGES};
use crate::units::{PAGE, PageIndex};

/// The changes of an operation: a new length of the file, and pages.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Redo {
    /// The length in bytes after the operation, if the operation changes it.
    pub len: Option<u64>,
    /// The pages that it writes.
    pub pages: Vec<RedoPage>,
}

/// The first word of a length entry. No page has this index.
const LENGTH_ENTRY: u64 = u64::MAX;
/// Bytes of a length entry.
pub const LENGTH_ENTRY_LEN: usize = 16;

impl Redo {
    /// Appends the length entry, if there is one, and then the pages.
    pub fn encode_to(&self, bytes: &mut Vec<u8>) {
        if let Some(len) = self.len {
            bytes.extend_from_slice(&LENGTH_ENTRY.to_le_bytes());
            bytes.extend_from_slice(&len.to_le_bytes());
        }
        self.pages.iter().for_each(|page| page.encode_to(bytes));
    }

    /// Decodes all items.
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let len = Self::decode_len(&mut bytes);
        let mut pages = Vec::new();
        while !bytes.is_empty() {
            pages.push(RedoPage::decode_first(&mut bytes)?);
        }
        Some(Redo { len, pages })
    }

    /// Decodes the length entry at the start of `bytes` and leaves the rest. Leaves all of them if
    /// they begin with no valid length entry.
    pub fn decode_len(bytes: &mut &[u8]) -> Option<u64> {
        let (entry, rest) = bytes.split_at_checked(LENGTH_ENTRY_LEN)?;
        let len = word(entry, 8);
        if word(entry, 0) != LENGTH_ENTRY || len > MAX_LEN {
            return None;
        }
        *bytes = rest;
        Some(len)
    }
}

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
        REDO_HEADER.saturating_add(Slices(stays).bytes())
    }

    /// Appends the page's bytes.
    pub fn encode_to(&self, bytes: &mut Vec<u8>) {
        assert_eq!(self.bytes.len(), Slices(self.stays).bytes());
        for word in [self.page.0, self.stays, self.flips, self.flipped] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.bytes);
    }

    /// Decodes the first page of `bytes` and leaves the rest.
    pub fn decode_first(bytes: &mut &[u8]) -> Option<Self> {
        let (header, rest) = bytes.split_at_checked(REDO_HEADER)?;
        let (page, stays) = (PageIndex(word(header, 0)), word(header, 8));
        let (flips, flipped) = (word(header, 16), word(header, 24));
        let (slices, rest) = rest.split_at_checked(Slices(stays).bytes())?;
        let is_sound = page.0 < MOST_PAGES
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
