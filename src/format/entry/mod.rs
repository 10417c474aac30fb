//! Log records about any number of pages: undo records, and records that overflow to the log area.
//! (Flip records, of one line, are in `flip_record`.)
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
//!                kind redo: items as below; count is in units of 8 bytes
//!                kind spilled undo or spilled redo: one (offset in log area, bytes, checksum)
//!
//! undo, spilled or not: (word, mask, old bits), 24 bytes each
//! redo, spilled or not: if the length changes (all bits set, new length), and for each page
//!               (page, slices that stay, bits that flip, those bits afterwards),
//!               then 64 bytes for each slice that stays
//! ```
//!
//! This file holds the result of decoding; each part of a record has its own file.
//!
//! May import: `layout`, `checksum`, `units` and the planted bugs.

mod old_bits;
mod redo_record;
mod seed;
mod sequence;
mod spill;
#[cfg(test)]
mod tests;
mod undo_record;

use super::word_at as word;
pub use old_bits::{OldBits, RECORD, WordId};
pub use redo_record::{LENGTH_ENTRY_LEN, REDO_PAGE_MAX, Redo, RedoPage};
pub use seed::{EntrySeed, Seed};
pub use sequence::Sequence;
pub use spill::{Spill, SpillSum};
#[cfg(any(test, feature = "recorder"))]
pub use undo_record::UNDO_HEADER;
pub use undo_record::{REDO_INLINE, UNDO_INLINE, Undo, UndoBody};

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
