//! How are bytes gathered that are valid in several places?
//!
//! A page that was written in places is valid on the one side here and on the other side there. It is copied
//! from the side that has more of it as if all of it were valid there, neighbouring pages in one copy, and
//! then the slices of the other side are copied over that. A few long copies take less time than many short
//! ones, and a processor that loads ahead has something to load.
//!
//! So slots are copied that are not valid, and may be stored to at this moment. What is copied is a state only
//! if the caller's versions (or locks) say so afterwards, as with all that is copied here.

use super::Engine;
use crate::bitmap::span::{self, PageSpan};
use crate::bitmap::{Side, Slices, Validity};
use crate::error::{Error, Result};
use crate::mutant::planted;
use crate::units::{ChunkIndex, PageIndex, SLICE};
use std::ops::Range;

/// A page that a read finds in more pieces than this is deployed afterwards (policy `Lazy`): the
/// next read copies one piece. Each piece beyond the first costs a few nanoseconds, a deployment
/// two drains; see `docs/performance.md`.
pub(super) const GATHER_AT_MOST: usize = 8;
/// A long read has so many bytes at least.
const LONG: usize = 16 << 10;
/// If a long read finds its bytes in more pieces than one for so many, all that is scattered within a region comes
/// home afterwards: each piece begins with a miss that nobody has asked for. The writes pay for that which have
/// scattered it: no byte comes home that was not written since.
const PIECE: usize = 64 << 10;

/// In how many pieces a read has found its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Pieces {
    /// Those of the page that has most of them.
    pub of_a_page: usize,
    /// Altogether.
    pub all: usize,
}

impl Pieces {
    /// Whether it takes less time to bring so many bytes home than to read them like that a few times more.
    /// `keeps_points`: what comes home is a change then, which the next durable point has to tell of.
    pub fn are_too_many(self, len: usize, keeps_points: bool) -> bool {
        let is_scattered = len >= LONG && self.all > 1 + len / PIECE;
        self.of_a_page > GATHER_AT_MOST || is_scattered && !keeps_points
    }
}

/// From where some slices of a page are copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Split {
    /// The side that has more of them, or home. All are copied from there.
    pub base: Side,
    /// Those that are valid on the other side, and are copied over that.
    pub rest: Slices,
}

impl Split {
    #[inline]
    pub fn of(validity: Validity, slices: Slices) -> Split {
        let (home, reflection) = (validity.at_home(slices), validity.in_reflection(slices));
        // Counting takes some instructions where the processor's own may not be used.
        let is_home =
            reflection.is_empty() || !home.is_empty() && reflection.count() <= home.count();
        if is_home {
            Split { base: Side::Home, rest: reflection }
        } else {
            Split { base: Side::Reflection, rest: home }
        }
    }

    /// How many pieces the slices are in.
    #[inline]
    pub fn pieces(self, slices: Slices) -> usize {
        self.rest.run_count() + slices.without(self.rest).run_count()
    }
}

impl Engine {
    /// Copies `range` from the valid slots. What it copies is a state only if the caller's versions (or
    /// locks) say so. Returns in how many pieces the bytes were.
    pub(super) fn gather(&self, to: &mut [u8], range: Range<u64>) -> Result<Pieces> {
        let mut pieces = Pieces::default();
        let mut is_split = false;
        let mut joined = Joined { engine: self, begin: range.start, to, pending: None, pieces: 0 };
        for span in span::pages(range.clone()) {
            let region = self.region(span.page.region())?;
            let (validity, slices) = (region.validity(span.page.in_region()), span.slices());
            let split = Split::of(validity, slices);
            let all = span.offset()..span.offset() + span.len() as u64;
            if split.rest.is_empty() {
                if split.base == Side::Home {
                    self.note_loadable(region, span.page.region());
                }
                pieces.of_a_page = pieces.of_a_page.max(1);
                joined.take(split.base, all)?;
                continue;
            }
            pieces.of_a_page = pieces.of_a_page.max(split.pieces(slices));
            // A page of the reflection file with a valid slot was written, so all of it is allocated.
            if self.home_is_loadable(ChunkIndex::of(span.offset()))? {
                self.note_loadable(region, span.page.region());
                is_split = true;
                pieces.all += split.rest.run_count();
                joined.take(split.base, all)?;
            } else {
                joined.take_valid(validity, &span)?;
            }
        }
        joined.copy()?;
        pieces.all += joined.pieces;
        if is_split {
            for span in span::pages(range.clone()) {
                let validity = self.region(span.page.region())?.validity(span.page.in_region());
                let split = Split::of(validity, span.slices());
                let is_loadable = self.home_is_loadable(ChunkIndex::of(span.offset()))?;
                // What is found to be otherwise than a moment ago, or cut off, has a new version.
                let _is_there = is_loadable && self.copy_rest(to, range.start, span.page, split);
            }
        }
        Ok(pieces)
    }

    /// Copies what is valid on the other side than the base's over what was copied from there. `to` begins with
    /// the byte at `offset`, the other side of the page is loadable. False: it was cut off since.
    pub(super) fn copy_rest(
        &self,
        to: &mut [u8],
        offset: u64,
        page: PageIndex,
        split: Split,
    ) -> bool {
        if planted!(RestNotCopied) {
            return true;
        }
        let ends_at = offset + to.len() as u64;
        split.rest.runs().all(|run| {
            let start = (page.start() + (run.start * SLICE) as u64).max(offset);
            let end = (page.start() + (run.end * SLICE) as u64).min(ends_at);
            let (file, at) = self.slot(split.base.other(), start);
            file.copy_out_in_page(&mut to[(start - offset) as usize..(end - offset) as usize], at)
        })
    }

    /// Fills `to` from the slots on `side` of the home bytes at `offset`, within one chunk.
    pub(super) fn load_slot(&self, side: Side, to: &mut [u8], offset: u64) -> Result<()> {
        let (file, at) = self.slot(side, offset);
        // A valid reflection slot was written, so it is allocated; a home slot may be a hole.
        if side == Side::Reflection || self.home_is_loadable(ChunkIndex::of(offset))? {
            file.copy_out(to, at);
            return Ok(());
        }
        file.read_file(to, at).map_err(|source| Error::Io {
            call: "read",
            path: file.path().to_owned(),
            offset: Some(at),
            source,
        })
    }
}

/// Copies what is taken one after the other, neighbours on the same side in one.
struct Joined<'a> {
    engine: &'a Engine,
    /// Where `to` begins in the file.
    begin: u64,
    to: &'a mut [u8],
    pending: Option<(Side, Range<u64>)>,
    /// How many were taken, neighbours on the same side being one.
    pieces: usize,
}

impl Joined<'_> {
    /// Takes a piece of one page from a side.
    #[inline]
    fn take(&mut self, side: Side, piece: Range<u64>) -> Result<()> {
        if let Some((pending_side, pending)) = &mut self.pending {
            let is_neighbour = *pending_side == side && pending.end == piece.start;
            // A chunk is the unit of what is known about holes, and divides a superchunk.
            let is_in_chunk = ChunkIndex::of(pending.start) == ChunkIndex::of(piece.start);
            if is_neighbour && (is_in_chunk || planted!(ReadJoinsChunks)) {
                pending.end = piece.end;
                return Ok(());
            }
            self.pieces += usize::from(!is_neighbour);
            self.copy()?;
        } else {
            self.pieces += 1;
        }
        self.pending = Some((side, piece));
        Ok(())
    }

    /// Takes each piece of a page from where it is valid, and nothing else: the home file may have a hole.
    fn take_valid(&mut self, validity: Validity, span: &PageSpan) -> Result<()> {
        let mut rest = span.slices();
        while !rest.is_empty() {
            let side = validity.side(rest.0.trailing_zeros() as usize);
            let Some(run) = validity.on(side, rest).runs().next() else { break };
            rest = rest.without(Slices::range(run.start, run.end));
            let start = (run.start * SLICE).max(span.start);
            let end = (run.end * SLICE).min(span.end);
            let at = span.page.start();
            self.take(side, at + start as u64..at + end as u64)?;
        }
        Ok(())
    }

    /// Copies what was taken last.
    fn copy(&mut self) -> Result<()> {
        let Some((side, ready)) = self.pending.take() else { return Ok(()) };
        let into = (ready.start - self.begin) as usize..(ready.end - self.begin) as usize;
        self.engine.load_slot(side, &mut self.to[into], ready.start)
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn the_side_that_has_more_is_the_base() {
        let slices = Slices(0b1111_1111);
        let split = |word| Split::of(Validity(word), slices);
        assert_eq!(split(0), Split { base: Side::Home, rest: Slices::NONE });
        assert_eq!(split(!0), Split { base: Side::Reflection, rest: Slices::NONE });
        assert_eq!(split(0b1010), Split { base: Side::Home, rest: Slices(0b1010) });
        assert_eq!(split(0b1111_0110), Split { base: Side::Reflection, rest: Slices(0b1001) });
        let pieces = [(0, 1), (!0, 1), (0b1010, 5), (0b1111_0110, 4), (0b1, 2), (0b1_1000, 3)];
        for (word, count) in pieces {
            assert_eq!(split(word).pieces(slices), count, "{word:b}");
        }
    }

    /// Random slices of pages here and there, and holes of the home file between them, at all sizes.
    #[test]
    fn whatever_lies_where_it_is_gathered() {
        use crate::{AtomicMappedFile, Medium};
        const LEN: usize = 6 << 20;
        let folder = tempfile::tempdir().expect("a folder");
        let options = AtomicMappedFile::options().create(true).len(LEN as u64).medium(Medium::Ram);
        let file = options.open(folder.path().join("state.dat")).expect("a pair");
        let mut model = vec![0u8; LEN];
        let mut state = 7u64;
        let mut random = |below: usize| {
            // Xorshift: no two runs differ.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        for round in 0..4000 {
            // The chunk in the middle is not written: its home file stays a hole, until it is.
            let first = if round < 3000 { 0 } else { 2 << 20 };
            let at = (random(64) * 4096 + random(4096) + first).min(LEN - 300);
            let data = vec![random(256) as u8; 1 + random(300)];
            file.write_at(&data, at as u64).expect("a write");
            model[at..at + data.len()].copy_from_slice(&data);
            if round % 4 == 0 {
                let len = 1 + random([200, 5000, 100_000, 3 << 20][round / 4 % 4]);
                let at = random((LEN - len).min(1 << 20)) + if round % 3 == 0 { 0 } else { first };
                let mut read = vec![0; len];
                file.engine().gather(&mut read, at as u64..(at + len) as u64).expect("a read");
                assert!(read == model[at..at + len], "{len} bytes at {at}, round {round}");
            }
        }
    }
}
