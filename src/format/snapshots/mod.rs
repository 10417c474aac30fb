//! The snapshot store as bytes: two copies of a table, and segments of keep records.
//!
//! ```text
//! 0        table A      256 KiB; the table with an even generation
//! 256 KiB  table B      256 KiB; the table with an odd one
//! 2 MiB    segment 0    64 KiB; a map: the ends of segments 1 to 8191
//! 2112 KiB segment 1    64 KiB; records
//! ...
//! ```
//!
//! Segment 8192 is the next map, and so on.
//!
//! Owns: the layout of the companion file with the snapshots. `table` has the snapshots themselves,
//! `segment` the bytes that they keep. Invariant: a byte counts only under a checksum that names
//! the pair, and in a segment also the opening, the turn and the place of the segment.
//!
//! Pure; nothing here panics, whatever the bytes.
//!
//! May import: `layout`, `bitmap`, `checksum` and `units`.

pub mod segment;
pub mod table;

/// Offsets of the two copies of the table. A table with an even generation goes to the first one.
pub const TABLES: [u64; 2] = [0, TABLE as u64];
/// Bytes of the place of one copy.
pub const TABLE: usize = 256 << 10;
/// The end of the tables. Up to the first segment the file is a hole.
pub const TABLES_END: u64 = 2 * TABLE as u64;
/// Offset of the first segment.
pub const SEGMENTS: u64 = 2 << 20;
/// No store is longer: its mapping has to fit the addresses of a process, beside those of the pair.
pub const LONGEST: u64 = 64 << 40;
/// Bytes in a segment.
pub const SEGMENT: usize = 64 << 10;
/// Segments from one map to the next: a map has a word for each of them.
pub const GROUP: u32 = (SEGMENT / 8) as u32;

/// A segment of the store, counted from the first one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct SegmentIndex(pub u32);

impl SegmentIndex {
    /// Returns the offset of the segment's first byte in the store's file.
    #[expect(clippy::arithmetic_side_effects, reason = "the segments of any u32 end below 2^49")]
    pub const fn start(self) -> u64 {
        SEGMENTS + self.0 as u64 * SEGMENT as u64
    }

    /// Returns the offset of the first byte after the segment.
    pub const fn end(self) -> u64 {
        self.start().saturating_add(SEGMENT as u64)
    }

    /// Returns the segment's place in its group, of which the map has the first one.
    const fn in_group(self) -> u32 {
        self.0 % GROUP
    }

    /// Returns the map of the segment's group.
    pub const fn map(self) -> Self {
        SegmentIndex(self.0.saturating_sub(self.in_group()))
    }

    /// Returns the segment after it, or this one if it is the last that there can be.
    pub const fn next(self) -> Self {
        SegmentIndex(self.0.saturating_add(1))
    }

    /// Returns the map of the group after the segment's. Saturates.
    pub const fn next_map(self) -> Self {
        SegmentIndex(self.map().0.saturating_add(GROUP))
    }

    /// Returns the segment that holds the byte at `offset`, which is not before the first segment.
    pub const fn of(offset: u64) -> Self {
        SegmentIndex((offset.saturating_sub(SEGMENTS) as usize / SEGMENT) as u32)
    }

    /// Returns `true` if the segment is a map of ends, and has no records.
    pub const fn is_map(self) -> bool {
        self.0.is_multiple_of(GROUP)
    }

    /// Returns the offset of the word with the segment's end, in the map before it.
    pub const fn end_word_at(self) -> u64 {
        self.map().start().saturating_add((self.in_group() as u64) << 3)
    }

    /// Returns the number of segments that a file of `len` bytes holds at least a part of.
    pub fn count(len: u64) -> u32 {
        let segments = len.saturating_sub(SEGMENTS).div_ceil(SEGMENT as u64);
        u32::try_from(segments).unwrap_or(u32::MAX)
    }
}
