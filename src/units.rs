//! The sizes of the geometry, and its index types with their conversions.
//!
//! Invariant: an index of one kind never silently becomes an index of another kind; every
//! conversion is a named method. Imports nothing from the crate.
//!
//! Offsets and lengths from a caller stay `u64` and `usize`, as in `std::os::unix::fs::FileExt`.
//! They become indices here, once.

/// Bytes in a word. A store to an aligned word writes all of them or none.
pub const WORD: usize = 8;
/// Bytes in a slice: one cache line. A bit tracks the validity of each slice.
pub const SLICE: usize = 64;
/// Bytes in a page.
pub const PAGE: usize = 4096;
/// Slices in a page. Also the number of bits in a slice word.
pub const SLICES_PER_PAGE: usize = PAGE / SLICE;
/// Pages in a region. Also the number of bits in a region word.
pub const PAGES_PER_REGION: usize = 64;
/// Bytes in a region.
pub const REGION: usize = PAGES_PER_REGION * PAGE;
/// Bytes in a chunk: the unit of allocation. One page of slice words describes one chunk.
pub const CHUNK: usize = 2 << 20;
/// Bytes of home file that one superchunk of the reflection file describes.
pub const SUPERCHUNK: usize = 1 << 30;
/// Regions in a superchunk.
pub const REGIONS_PER_SUPERCHUNK: usize = SUPERCHUNK / REGION;
/// Chunks in a superchunk.
pub const CHUNKS_PER_SUPERCHUNK: usize = SUPERCHUNK / CHUNK;
/// Regions in a chunk.
pub const REGIONS_PER_CHUNK: usize = CHUNK / REGION;

const _: () = assert!(SLICES_PER_PAGE == 64 && PAGES_PER_REGION == 64);
const _: () = assert!(CHUNK / PAGE * 8 == PAGE, "one page of slice words describes one chunk");

/// Returns `true` if the `len` bytes at `offset` lie in one page. The result is unspecified for
/// `len` 0, for which callers do nothing.
#[inline(always)]
pub const fn is_in_page(offset: u64, len: usize) -> bool {
    // One comparison is enough. A slice's length is at most `isize::MAX`, so only the subtraction
    // can wrap, and only at a page's start with `len` 0.
    debug_assert!(len <= isize::MAX as usize);
    (offset as usize % PAGE).wrapping_add(len).wrapping_sub(1) < PAGE
}

/// A page of the home file, counted from its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PageIndex(pub u64);

/// A region of the home file (64 pages), counted from its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct RegionIndex(pub u64);

/// A chunk of the home file (2 MiB), counted from its start.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct ChunkIndex(pub u64);

/// A lane of the log: 0 to 79.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct LaneIndex(pub u16);

impl PageIndex {
    /// Returns the page that holds the byte at `offset`.
    pub const fn of(offset: u64) -> Self {
        PageIndex(offset / PAGE as u64)
    }

    /// Returns the offset of the page's first byte in the home file.
    pub const fn start(self) -> u64 {
        self.0 * PAGE as u64
    }

    /// Returns the page that comes `n` pages after this one. The caller knows that it is one of a
    /// file.
    pub const fn plus(self, n: u64) -> Self {
        PageIndex(self.0 + n)
    }

    /// Returns the offset of slice `n` of the page in the home file.
    pub const fn slice(self, n: usize) -> u64 {
        self.start() + (n * SLICE) as u64
    }

    /// Returns the region that contains the page.
    pub const fn region(self) -> RegionIndex {
        RegionIndex(self.0 / PAGES_PER_REGION as u64)
    }

    /// Returns the page's bit number in its region word, 0 to 63. Also its index in the region's
    /// tables.
    pub const fn in_region(self) -> usize {
        (self.0 % PAGES_PER_REGION as u64) as usize
    }
}

impl RegionIndex {
    /// Returns the region that holds the byte at `offset`.
    pub const fn of(offset: u64) -> Self {
        RegionIndex(offset / REGION as u64)
    }

    /// Returns the offset of the region's first byte in the home file.
    pub const fn start(self) -> u64 {
        self.0 * REGION as u64
    }

    /// Returns the offset of the first byte after the region in the home file.
    pub const fn end(self) -> u64 {
        self.start() + REGION as u64
    }

    /// Returns page `n` of the region, 0 to 63.
    pub const fn page(self, n: usize) -> PageIndex {
        PageIndex(self.0 * PAGES_PER_REGION as u64 + n as u64)
    }

    /// Returns region `m` of superchunk `n`.
    pub const fn in_superchunk_of(n: usize, m: usize) -> Self {
        RegionIndex((n * REGIONS_PER_SUPERCHUNK + m) as u64)
    }

    /// Returns the superchunk that describes the region.
    pub const fn superchunk(self) -> usize {
        (self.0 / REGIONS_PER_SUPERCHUNK as u64) as usize
    }

    /// Returns the region's index in its superchunk.
    pub const fn in_superchunk(self) -> usize {
        (self.0 % REGIONS_PER_SUPERCHUNK as u64) as usize
    }
}

impl ChunkIndex {
    /// Returns the chunk that holds the byte at `offset`.
    pub const fn of(offset: u64) -> Self {
        ChunkIndex(offset / CHUNK as u64)
    }

    /// Returns the offset of the chunk's first byte in the home file.
    pub const fn start(self) -> u64 {
        self.0 * CHUNK as u64
    }

    /// Returns the offset of the first byte after the chunk. Saturates.
    pub const fn end(self) -> u64 {
        self.start().saturating_add(CHUNK as u64)
    }

    /// Returns the first region of the chunk.
    pub const fn first_region(self) -> RegionIndex {
        RegionIndex(self.0 * REGIONS_PER_CHUNK as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_finds_its_page_region_and_chunk() {
        let offset = SUPERCHUNK as u64 + 3 * REGION as u64 + 5 * PAGE as u64 + 17;
        let page = PageIndex::of(offset);
        assert_eq!(page.start(), offset - 17);
        assert_eq!(page.in_region(), 5);
        assert_eq!(page.region(), RegionIndex::of(offset));
        assert_eq!(page.region().page(5), page);
        assert_eq!(page.region().superchunk(), 1);
        assert_eq!(page.region().in_superchunk(), 3);
        assert_eq!(ChunkIndex::of(offset).start(), SUPERCHUNK as u64);
        assert_eq!(
            ChunkIndex::of(offset).first_region(),
            RegionIndex(SUPERCHUNK as u64 / REGION as u64)
        );
    }
}
