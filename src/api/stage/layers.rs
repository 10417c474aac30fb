//! The contents of an operation with stages: layers of bytes, of which a later one covers earlier
//! ones.
//!
//! A layer is a transaction's writes, or what a stage has filled. The result is sorted and without
//! overlaps: bytes that are copied, and whole slices that lie in the stages' slots. A slice that a
//! later layer covers in part is no longer placed: its bytes are read back and copied.
//!
//! May import `engine`, `bitmap`, `units`.

use crate::bitmap::{Slices, span};
use crate::engine::Engine;
use crate::engine::plan::{Placed, Segment};
use crate::engine::stage::Staged;
use crate::mutant::planted;
use crate::units::{PAGE, SLICE};
use std::collections::BTreeMap;
use std::ops::Range;

/// Where the bytes of a piece come from.
#[derive(Clone, Copy)]
enum Source<'a> {
    Bytes(&'a [u8]),
    Slots(&'a Staged),
}

/// Bytes of the topmost layer at their place.
#[derive(Clone, Copy)]
struct Piece<'a> {
    end: u64,
    source: Source<'a>,
}

/// Layers of bytes.
#[derive(Default)]
pub(super) struct Layers<'a> {
    /// The visible pieces, by offset. They do not overlap.
    pieces: BTreeMap<u64, Piece<'a>>,
}

/// Bytes that were read back from slots, one piece after the other.
pub(super) struct ReadBack {
    bytes: Vec<u8>,
    ranges: Vec<Range<u64>>,
}

impl<'a> Layers<'a> {
    /// Puts bytes at `offset` over what is there.
    pub fn put(&mut self, offset: u64, bytes: &'a [u8]) {
        self.put_piece(offset..offset + bytes.len() as u64, Source::Bytes(bytes));
    }

    /// Puts what a stage holds of `range` over what is there.
    pub fn put_staged(&mut self, staged: &'a Staged, range: Range<u64>) {
        for (range, bytes) in staged.parts(range) {
            self.put_piece(range, bytes.map_or(Source::Slots(staged), Source::Bytes));
        }
    }

    fn put_piece(&mut self, range: Range<u64>, source: Source<'a>) {
        if range.is_empty() {
            return;
        }
        let before = self.pieces.range(..range.start).next_back();
        let first = before.filter(|(_, piece)| piece.end > range.start);
        let first = first.map_or(range.start, |(start, _)| *start);
        let covered: Vec<(u64, Piece<'a>)> =
            self.pieces.range(first..range.end).map(|(start, piece)| (*start, *piece)).collect();
        for (start, piece) in covered {
            self.pieces.remove(&start);
            self.keep_part(start, piece, start..range.start.min(piece.end));
            self.keep_part(start, piece, range.end.max(start)..piece.end);
        }
        self.pieces.insert(range.start, Piece { end: range.end, source });
    }

    /// Puts the part `range` of a piece that begins at `start` back.
    fn keep_part(&mut self, start: u64, piece: Piece<'a>, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let byte = |at: u64| (at - start) as usize;
        let source = match piece.source {
            Source::Bytes(bytes) => Source::Bytes(&bytes[byte(range.start)..byte(range.end)]),
            slots @ Source::Slots(_) => slots,
        };
        self.pieces.insert(range.start, Piece { end: range.end, source });
    }

    /// Returns the end of the last piece, in bytes of the file.
    pub fn end(&self) -> u64 {
        self.pieces.last_key_value().map_or(0, |(_, piece)| piece.end)
    }

    /// Reads the bytes of slices back that lie in slots and are not whole.
    pub fn read_back(&self, engine: &Engine) -> ReadBack {
        let mut back = ReadBack { bytes: Vec::new(), ranges: Vec::new() };
        for (start, piece) in &self.pieces {
            let Source::Slots(staged) = piece.source else { continue };
            let whole = whole_slices(*start..piece.end);
            for part in [*start..whole.start, whole.end..piece.end] {
                if part.is_empty() {
                    continue;
                }
                let at = back.bytes.len();
                back.bytes.resize(at + (part.end - part.start) as usize, 0);
                engine.read_staged(staged, part.start, &mut back.bytes[at..]);
                back.ranges.push(part);
            }
        }
        back
    }

    /// Returns the segments that are copied, in order.
    pub fn segments<'b>(&self, back: &'b ReadBack) -> Vec<Segment<'b>>
    where
        'a: 'b,
    {
        let bytes = self.pieces.iter().filter_map(|(offset, piece)| match piece.source {
            Source::Bytes(data) => Some(Segment { offset: *offset, data }),
            Source::Slots(_) => None,
        });
        let mut segments: Vec<Segment<'b>> = bytes.collect();
        let mut rest = &back.bytes[..];
        for range in &back.ranges {
            let (data, later) = rest.split_at((range.end - range.start) as usize);
            segments.push(Segment { offset: range.start, data });
            rest = later;
        }
        segments.sort_unstable_by_key(|segment| segment.offset);
        segments
    }

    /// Returns the slices that only flip, with what `stages` claim of their pages and of those that
    /// `segments` touch.
    pub fn placed<'s>(
        &self,
        segments: &[Segment<'_>],
        stages: impl Iterator<Item = &'s Staged>,
    ) -> Vec<Placed> {
        let claims = stages.flat_map(Staged::claims);
        let mut pages: Vec<Placed> = claims
            .map(|span| Placed { page: span.page, slices: Slices::NONE, own: span.slices() })
            .collect();
        for (start, piece) in &self.pieces {
            if let Source::Slots(_) = piece.source {
                let placed = span::pages(whole_slices(*start..piece.end));
                pages.extend(placed.map(|span| Placed {
                    page: span.page,
                    slices: span.slices(),
                    own: Slices::NONE,
                }));
            }
        }
        pages.sort_unstable_by_key(|placed| placed.page);
        pages.dedup_by(|later, first| {
            let is_one = later.page == first.page;
            if is_one {
                first.slices = first.slices.or(later.slices);
                first.own = first.own.or(later.own);
            }
            is_one
        });
        pages.retain(|placed| {
            let start = placed.page.start();
            let n = segments.partition_point(|segment| segment.end() <= start);
            let next = segments.get(n);
            !placed.slices.is_empty() || next.is_some_and(|next| next.offset < start + PAGE as u64)
        });
        pages
    }
}

/// Returns the whole slices of a range, or the empty range at its end if there are none.
fn whole_slices(range: Range<u64>) -> Range<u64> {
    let start = range.start.next_multiple_of(SLICE as u64);
    let end = range.end - range.end % SLICE as u64;
    if planted!(PartTakenForSlice) {
        return range;
    }
    if start < end { start..end } else { range.end..range.end }
}
