//! The place, the length and the bytes of a scribble.
//!
//! Invariant: a scribble lies within one zone of one file, so it is known which pages depend on the
//! bytes that it changes. Each byte of a zone is chosen, and each length from 1 byte to 40 KiB that
//! the zone has room for.
//!
//! May import nothing from the lab.

use atomic_mmap::testing::snapshots::{SEGMENT, SEGMENTS, TABLES_END};
use atomic_mmap::testing::{LaneIndex, PAGE, PageIndex, REGION, RegionIndex, layout};
use std::ops::Range;

/// Bytes of a page.
pub const PAGE_LEN: u64 = PAGE as u64;
/// Most bytes of a scribble.
pub const LONGEST: u64 = 40 << 10;
/// Bytes of the log area that are scribbled on. The rest is a hole that no small file uses.
const LOG: u64 = 64 << 10;
/// Random bytes from which those of scribbles are taken.
const INK: usize = 1 << 20;

/// A file of the pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The home file.
    Home,
    /// The reflection file.
    Reflection,
    /// The journal of durable points.
    Journal,
    /// The store of snapshots.
    Store,
}

/// A part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zone {
    /// The bytes of the home file.
    Home,
    /// The slots in the reflection file.
    Slots,
    /// The words that say in which file each slice is.
    SliceWords,
    /// Those words of the last durable point.
    DurableWords,
    /// The page sums.
    Sums,
    /// The words that say the same of whole pages.
    RegionWords,
    /// Both superblocks.
    Superblocks,
    /// The length, the high-water mark, the settled session, and the floors of the journal.
    StateWords,
    /// All lanes.
    Lanes,
    /// The beginning of the log area.
    LogArea,
    /// All of the journal.
    Journal,
    /// Both tables of the store.
    Tables,
    /// The map of the ends of segments.
    Ends,
    /// The segments with kept slices.
    Segments,
}

/// The lengths of the files, in bytes. A file that is not there has none.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// Logical length of the home file.
    pub home: u64,
    /// Length of the journal.
    pub journal: u64,
    /// End of the segments of the store that hold something.
    pub store: u64,
}

impl Zone {
    /// Returns the file that the zone is a part of.
    pub fn target(self) -> Target {
        match self {
            Zone::Home => Target::Home,
            Zone::Journal => Target::Journal,
            Zone::Tables | Zone::Ends | Zone::Segments => Target::Store,
            _ => Target::Reflection,
        }
    }

    /// Returns the place of the zone in its file. It is empty if the file is not there.
    pub fn range(self, lengths: Lengths) -> Range<u64> {
        let pages = lengths.home.div_ceil(PAGE_LEN);
        let words = |first: u64, each: u64| first..first + pages * each;
        let (zero, end_of_lanes) = (PageIndex(0), LaneIndex(layout::LANE_COUNT as u16));
        match self {
            Zone::Home => 0..lengths.home,
            Zone::Slots => layout::reflection(0)..layout::reflection(pages * PAGE_LEN),
            Zone::SliceWords => words(layout::slice_word(zero), 8),
            Zone::DurableWords => words(layout::durable_word(zero), 8),
            Zone::Sums => words(layout::page_sums(zero), layout::PAGE_SUMS_LEN as u64),
            Zone::RegionWords => {
                let first = layout::region_word(RegionIndex(0));
                first..first + lengths.home.div_ceil(REGION as u64) * 8
            }
            Zone::Superblocks => 0..layout::LENGTH_WORD,
            Zone::StateWords => layout::LENGTH_WORD..layout::LENGTH_WORD + 256,
            Zone::Lanes => layout::LANES..layout::lane(end_of_lanes),
            Zone::LogArea => layout::LOG_AREA..layout::LOG_AREA + LOG,
            Zone::Journal => 0..lengths.journal,
            Zone::Tables if lengths.store > 0 => 0..TABLES_END,
            Zone::Ends if lengths.store > 0 => SEGMENTS..SEGMENTS + 64 * 8,
            Zone::Segments => SEGMENTS + SEGMENT as u64..lengths.store,
            Zone::Tables | Zone::Ends => 0..0,
        }
    }

    /// Returns the pages that depend on these bytes of the zone, if it is about pages.
    pub fn pages(self, at: u64, len: u64, lengths: Lengths) -> Range<u64> {
        let each = match self {
            Zone::Home | Zone::Slots => PAGE_LEN,
            Zone::SliceWords | Zone::DurableWords | Zone::RegionWords => 8,
            Zone::Sums => layout::PAGE_SUMS_LEN as u64,
            _ => return 0..0,
        };
        let at = at - self.range(lengths).start;
        let of = if self == Zone::RegionWords { REGION as u64 / PAGE_LEN } else { 1 };
        let (first, end) = (at / each * of, (at + len).div_ceil(each) * of);
        first..end.min(lengths.home.div_ceil(PAGE_LEN))
    }
}

/// An overwrite of some bytes of one zone.
#[derive(Clone, Copy, Debug)]
pub struct Scribble {
    /// The zone.
    pub zone: Zone,
    /// Offset in the file.
    pub at: u64,
    /// Length in bytes.
    pub len: u64,
    /// Where its bytes are in the [`Ink`].
    from: usize,
}

impl Scribble {
    /// Draws a scribble in a zone. Returns `None` if the zone is empty.
    pub fn draw(rng: &mut fastrand::Rng, zone: Zone, lengths: Lengths) -> Option<Scribble> {
        let range = zone.range(lengths);
        if range.is_empty() {
            return None;
        }
        let at = rng.u64(range.clone());
        let longest = match rng.u32(0..16) {
            0..=8 => 8,
            9..=12 => 64,
            13 | 14 => PAGE_LEN,
            _ => LONGEST,
        };
        let len = rng.u64(1..=longest).min(range.end - at);
        // Blocks that are lost come back as zeroes.
        let is_lost = rng.u32(0..32) == 0;
        let scribble = Scribble::over(rng, zone, at..at + len);
        Some(if is_lost { Scribble { from: 0, ..scribble } } else { scribble })
    }

    /// Draws random bytes for a range of a zone.
    pub fn over(rng: &mut fastrand::Rng, zone: Zone, range: Range<u64>) -> Scribble {
        let from = rng.usize(LONGEST as usize..INK);
        Scribble { zone, at: range.start, len: range.end - range.start, from }
    }

    /// Returns the scribble with at most this length, and within the unit of `each` bytes of its
    /// zone in which it begins.
    pub fn within(mut self, longest: u64, each: u64, lengths: Lengths) -> Scribble {
        let in_unit = (self.at - self.zone.range(lengths).start) % each;
        self.len = self.len.min(longest).min(each - in_unit);
        self
    }

    /// Returns `true` if its bytes are zeroes.
    pub fn is_of_zeroes(&self) -> bool {
        self.from == 0
    }

    /// Returns the pages that depend on its bytes.
    pub fn pages(&self, lengths: Lengths) -> Range<u64> {
        self.zone.pages(self.at, self.len, lengths)
    }
}

impl std::fmt::Display for Scribble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes of {:?} at {:#x}", self.len, self.zone, self.at)
    }
}

/// The bytes of all scribbles: zeroes, and then random ones.
#[derive(Debug)]
pub struct Ink(Vec<u8>);

impl Ink {
    /// Draws the bytes.
    pub fn new(rng: &mut fastrand::Rng) -> Ink {
        let mut bytes = vec![0; INK + LONGEST as usize];
        rng.fill(&mut bytes[LONGEST as usize..]);
        Ink(bytes)
    }

    /// Returns the bytes of a scribble.
    pub fn of(&self, scribble: &Scribble) -> &[u8] {
        &self.0[scribble.from..][..scribble.len as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_places_and_lengths_are_drawn() {
        let lengths = Lengths { home: 5 * PAGE_LEN + 9, journal: 0, store: 0 };
        let mut rng = fastrand::Rng::with_seed(1);
        let mut seen = [false; 6 * 32];
        let (mut longest, mut shortest) = (0, LONGEST);
        for _ in 0..20_000 {
            let sums = Scribble::draw(&mut rng, Zone::Sums, lengths).expect("there are some");
            seen[(sums.at - layout::page_sums(PageIndex(0))) as usize] = true;
            let home = Scribble::draw(&mut rng, Zone::Home, lengths).expect("there are some");
            assert!(home.at + home.len <= lengths.home);
            longest = longest.max(home.len);
            shortest = shortest.min(home.len);
        }
        assert!(seen.iter().all(|seen| *seen));
        assert!(longest > 4 * PAGE_LEN && shortest == 1, "{shortest} to {longest}");
        assert!(Scribble::draw(&mut rng, Zone::Journal, lengths).is_none());
    }

    #[test]
    fn the_pages_of_a_scribble_are_those_of_its_bytes() {
        let lengths = Lengths { home: 70 * PAGE_LEN + 1, journal: 0, store: 0 };
        let pages =
            |zone: Zone, at: u64, len| zone.pages(zone.range(lengths).start + at, len, lengths);
        assert_eq!(pages(Zone::Home, 4095, 2), 0..2);
        assert_eq!(pages(Zone::Slots, 4096, 4096), 1..2);
        assert_eq!(pages(Zone::SliceWords, 15, 2), 1..3);
        assert_eq!(pages(Zone::Sums, 31, 1), 0..1);
        assert_eq!(pages(Zone::RegionWords, 8, 1), 64..71);
        assert_eq!(pages(Zone::Lanes, 8, 1), 0..0);
    }
}
