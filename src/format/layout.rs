//! The layout of the reflection file: offsets and sizes.
//!
//! ```text
//! 0        superblock A        4 KiB page, 512 bytes used
//! 4 KiB    superblock B        the same; written alternately
//! 8 KiB    state words         logical length, high-water mark, settled and begun session, and
//!                              the place of the byte mark
//!          floors              two, a cache line each
//! 64 KiB   lanes               80 lanes of 4 KiB
//! 2 MiB    log area            256 MiB, sparse: log records that overflow their lane
//! 258 MiB  superchunk 0        for the first GiB of the home file:
//!            + 0      slice words     2 MiB
//!            + 2 MiB  durable words   2 MiB
//!            + 4 MiB  page sums       8 MiB
//!            + 12 MiB region words    2 MiB, 32 KiB used
//!            + 14 MiB reflection pages 1 GiB, at the same place as in the home file
//!          superchunk 1 ...
//! ```
//!
//! This is Acumen's equation (1) (section IV-B) with a chunk of 1 GiB instead of 2 MiB. Reflection
//! pages are thus 2 MiB-aligned with the home file's, and huge pages can map both.
//!
//! May import: `units`.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "pages, regions and lengths are bounded by those of MAX_LEN where they are decoded or \
              checked, and the constants below assert that nothing of them comes near 2^63"
)]

use crate::units::{
    CHUNK, LaneIndex, PAGE, PageIndex, REGION, REGIONS_PER_SUPERCHUNK, RegionIndex, SUPERCHUNK,
    WORD,
};

/// The version of the format that this crate writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;

/// The two superblocks: each in a page of its own, so that no torn write reaches both.
pub const SUPERBLOCKS: [u64; 2] = [0, PAGE as u64];
/// Offset of the word with the logical length of the home file in bytes.
pub const LENGTH_WORD: u64 = 2 * PAGE as u64;
/// Offset of the high-water mark. No word and no home byte at or past `max(length, high-water
/// mark)` is other than zero.
pub const HIGH_WATER_WORD: u64 = LENGTH_WORD + 8;
/// Offset of the word with the session of a superblock that was written before what it says was
/// durable. The word is stored once that is durable. See `Superblock::is_unsettled`.
pub const SETTLED_WORD: u64 = LENGTH_WORD + 16;
/// Offset of the word with the last session that was begun. The word is stored once the session's
/// superblock is durable. So a pair with an older superblock alone has lost the newest one.
pub const BEGUN_WORD: u64 = LENGTH_WORD + 24;
/// Offset of the word with the place of the home file's byte mark: its offset and 1, or 3 while the
/// mark is there. 0 if there is none, and 2 if a database's header is marked instead.
pub const MARK_WORD: u64 = LENGTH_WORD + 32;
/// The two places of the journal's floor, in the page of the state words. Written alternately.
pub const FLOORS: [u64; 2] = [LENGTH_WORD + 64, LENGTH_WORD + 128];
/// The place that names the newest durable record, as a floor does. It is stored after each record,
/// and nothing waits for it.
pub const NEWEST_RECORD: u64 = LENGTH_WORD + 192;

/// Offset of the first lane.
pub const LANES: u64 = 64 << 10;
/// Bytes in a lane.
pub const LANE: usize = 4096;
/// Lanes that belong to one thread at a time and keep the records of its logged flips.
pub const PRIVATE_LANES: usize = 64;
/// Lanes lent for one operation to threads that found no private lane; their rings are empty.
pub const SHARED_LANES: usize = 16;
/// The number of all lanes.
pub const LANE_COUNT: usize = PRIVATE_LANES + SHARED_LANES;

/// Bytes of a flip record: one cache line.
pub const FLIP_RECORD: usize = 64;
/// The number of flip records of a lane, at its beginning, used in turn.
pub const RING: usize = 32;
/// The number of flip records of a ring that become unneeded together, when their words are made
/// durable. Their places are reused later than that, and a crash leaves little more than this
/// number to recover. Measured: `docs/decisions/batches-of-eight.md`.
pub const BATCH: usize = RING / 4;
/// The place of the undo record in its lane.
pub const UNDO_ENTRY: usize = RING * FLIP_RECORD;
/// Bytes of the undo record's place.
pub const UNDO_ENTRY_LEN: usize = LANE - UNDO_ENTRY;

/// Offset of the area for log records that do not fit their lane.
pub const LOG_AREA: u64 = 2 << 20;
/// Bytes in the log area.
pub const LOG_AREA_LEN: u64 = 256 << 20;
/// Bytes in an extent, the unit in which the log area is lent.
pub const LOG_EXTENT: u64 = 1 << 20;

/// Offset of the first superchunk.
pub const SUPERCHUNKS: u64 = LOG_AREA + LOG_AREA_LEN;
/// Bytes before a superchunk's reflection pages.
pub const SUPERCHUNK_META: u64 = 14 << 20;
/// Bytes in a superchunk of the reflection file.
pub const SUPERCHUNK_LEN: u64 = SUPERCHUNK_META + SUPERCHUNK as u64;
const SLICE_WORDS: u64 = 0;
const DURABLE_WORDS: u64 = 2 << 20;
const PAGE_SUMS: u64 = 4 << 20;
const REGION_WORDS: u64 = 12 << 20;
/// Places for the sum of one page. One holds the sum at the last durable point, one that of the
/// present, and one is free. Where no durable points are kept, two of them are used by turns.
pub const SUM_PLACES: usize = 3;
/// Bytes for the sums of one page: its places, and a word of zero.
pub const PAGE_SUMS_LEN: usize = 32;
/// Bytes for the sums of the pages of a chunk.
pub const CHUNK_SUMS_LEN: u64 = (CHUNK / PAGE * PAGE_SUMS_LEN) as u64;
/// Bytes of region words in a superchunk.
pub const REGION_WORDS_LEN: u64 = (REGIONS_PER_SUPERCHUNK * 8) as u64;

/// Maximal length of a home file. One operation may move all of it, and its undo record must fit
/// the log area.
pub const MAX_LEN: u64 = 2 << 40;
/// The number of pages of the longest home file: a page that was read is checked against it.
pub const MOST_PAGES: u64 = MAX_LEN / PAGE as u64;
/// The number of regions of the longest home file.
pub const MOST_REGIONS: u64 = MAX_LEN / REGION as u64;

const HUGE: u64 = 2 << 20;
const _: () = {
    assert!(LANES + (LANE_COUNT * LANE) as u64 <= LOG_AREA);
    assert!(LOG_AREA.is_multiple_of(HUGE) && SUPERCHUNKS.is_multiple_of(HUGE));
    assert!(SUPERCHUNK_LEN.is_multiple_of(HUGE) && SUPERCHUNK_META.is_multiple_of(HUGE));
    assert!(SUPERCHUNK / PAGE * 8 <= 2 << 20, "slice words and durable words fit their 2 MiB");
    assert!(PAGE_SUMS + (SUPERCHUNK / PAGE * PAGE_SUMS_LEN) as u64 <= REGION_WORDS);
    assert!(SUM_PLACES * WORD <= PAGE_SUMS_LEN && 64 % PAGE_SUMS_LEN == 0, "they are in one line");
    assert!(REGION_WORDS + REGION_WORDS_LEN <= SUPERCHUNK_META);
    // One region word a region and up to seven slice words at each end: 24 bytes each.
    assert!((MAX_LEN / REGION as u64 + 2 * 7) * 24 <= LOG_AREA_LEN);
    assert!(MOST_PAGES <= u32::MAX as u64, "a page index fits an entry");
    assert!(MAX_LEN / SUPERCHUNK as u64 * SUPERCHUNK_LEN < 1 << 62, "sums of offsets fit a word");
};

/// Returns the offset of superchunk `n`.
pub const fn superchunk(n: usize) -> u64 {
    SUPERCHUNKS + n as u64 * SUPERCHUNK_LEN
}

/// Returns the offset of the slice word of `page`.
pub const fn slice_word(page: PageIndex) -> u64 {
    let pages = (SUPERCHUNK / PAGE) as u64;
    superchunk((page.0 / pages) as usize) + SLICE_WORDS + page.0 % pages * 8
}

/// Returns the offset of the durable word of `page`: it says which of the page's slices are in the
/// reflection file at the last durable point.
pub const fn durable_word(page: PageIndex) -> u64 {
    slice_word(page) - SLICE_WORDS + DURABLE_WORDS
}

/// Returns the offset of the sums of `page`: of the first of its places. All of them lie in one
/// cache line.
pub const fn page_sums(page: PageIndex) -> u64 {
    let pages = (SUPERCHUNK / PAGE) as u64;
    let in_superchunk = page.0 % pages * PAGE_SUMS_LEN as u64;
    superchunk((page.0 / pages) as usize) + PAGE_SUMS + in_superchunk
}

/// Returns the offset of the region words of superchunk `n`.
pub const fn region_words(n: usize) -> u64 {
    superchunk(n) + REGION_WORDS
}

/// Returns the offset of the region word of `region`.
pub const fn region_word(region: RegionIndex) -> u64 {
    region_words(region.superchunk()) + region.in_superchunk() as u64 * 8
}

/// Returns the offset of the reflection slot of the home byte at `offset`. For an offset beyond the
/// end of any file the result is arbitrary, but at that place of a page: prefetches come before the
/// check.
pub const fn reflection(offset: u64) -> u64 {
    // Each superchunk's metadata lie before its reflection pages.
    let before = superchunk(0) + SUPERCHUNK_META + offset / SUPERCHUNK as u64 * SUPERCHUNK_META;
    before.wrapping_add(offset)
}

/// Returns the offset of `lane`.
pub const fn lane(lane: LaneIndex) -> u64 {
    LANES + lane.0 as u64 * LANE as u64
}

/// Returns the offset of the flip record in `place` of the ring of `lane`.
pub const fn flip_record(of: LaneIndex, place: usize) -> u64 {
    lane(of) + (place * FLIP_RECORD) as u64
}

/// Returns the offset of the undo record of `lane`.
pub const fn undo_entry(of: LaneIndex) -> u64 {
    lane(of) + UNDO_ENTRY as u64
}

/// Returns the length of the reflection file of a home file of `home_len` bytes.
pub const fn reflection_len(home_len: u64) -> u64 {
    if home_len == 0 {
        return SUPERCHUNKS;
    }
    let page_end = home_len.next_multiple_of(PAGE as u64);
    reflection(page_end - 1) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_overlap_and_follow_the_diagram() {
        let gib = SUPERCHUNK as u64;
        assert_eq!(SUPERCHUNKS, 258 << 20);
        assert_eq!(slice_word(PageIndex(0)), 258 << 20);
        assert_eq!(slice_word(PageIndex(gib / 4096 - 1)), (260 << 20) - 8);
        assert_eq!(durable_word(PageIndex(0)), 260 << 20);
        assert_eq!(durable_word(PageIndex(gib / 4096 - 1)), (262 << 20) - 8);
        assert_eq!(page_sums(PageIndex(0)), 262 << 20);
        assert_eq!(page_sums(PageIndex(gib / 4096 - 1)), (270 << 20) - 32);
        assert_eq!(region_word(RegionIndex(0)), 270 << 20);
        assert_eq!(reflection(0), 272 << 20);
        assert_eq!(reflection(gib - 1) + 1, superchunk(1));
        assert_eq!(slice_word(PageIndex(gib / 4096)), superchunk(1));
        assert_eq!(reflection(gib) % (2 << 20), 0);
        assert_eq!(reflection_len(1), reflection(0) + 4096);
        assert_eq!(reflection_len(gib), superchunk(1));
        assert_eq!(reflection_len(gib + 1), reflection(gib) + 4096);
    }
}
