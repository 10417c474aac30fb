//! The write set of a transaction.
//!
//! It holds the bytes in the order of the writes, and pieces that map them to offsets of the file.
//! Pieces never overlap, but may touch:
//! - A write that continues the latest bytes at a piece's end extends that piece.
//! - A write that touches or overlaps pieces is merged with them if the result is at most a page.
//! - Otherwise the write cuts the pieces that it overlaps. Nothing is copied.
//!
//! May import `mutant` and `units`.
//!
//! Most transactions write few pieces, or many in ascending order. A sorted vector holds those. A
//! tree takes over for many pieces in other orders, which a vector would move at each insertion. A
//! tree alone, with the bytes in its nodes, made 64 pieces of 64 bytes 50 % slower.

use crate::mutant::planted;
use crate::units::PAGE;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// The most pieces in the vector at which it still accepts an insertion between others.
const FEW: usize = 64;
/// The longest piece, in bytes, that a merge may make.
const JOINED: usize = PAGE;
/// The number of pieces to reserve room for at the first write.
const FIRST_PIECES: usize = 8;
/// The number of bytes to reserve room for at the first write.
const FIRST_BYTES: usize = 512;
/// The most overwritten bytes to keep before a compaction.
const TOLERATED: usize = 1 << 16;

/// All bytes that a transaction has written.
#[derive(Default)]
pub(crate) struct Writes {
    bytes: Vec<u8>,
    /// The number of bytes that were overwritten, and belong to no piece.
    lost: usize,
    /// The pieces by offset, unless the tree holds them.
    sorted: Vec<Piece>,
    /// The pieces by offset, once there are many and they do not come in ascending order.
    tree: BTreeMap<u64, Piece>,
}

/// Contiguous bytes at one place in the file.
#[derive(Clone, Copy)]
struct Piece {
    offset: u64,
    /// The start of the piece in `Writes::bytes`.
    at: usize,
    len: usize,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset + self.len as u64
    }

    /// Returns the part of the piece before `offset`, if any.
    fn before(self, offset: u64) -> Option<Piece> {
        let len = offset.checked_sub(self.offset)? as usize;
        (len > 0).then_some(Piece { len: len.min(self.len), ..self })
    }

    /// Returns the part of the piece from `offset` on, if any.
    fn after(self, offset: u64) -> Option<Piece> {
        let gone = offset.saturating_sub(self.offset) as usize;
        let len = self.len.checked_sub(gone)?;
        let (offset, at) = (self.offset + gone as u64, self.at + gone);
        (len > 0 && !planted!(CutPieceForgotten)).then_some(Piece { offset, at, len })
    }

    fn of<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.at..self.at + self.len]
    }
}

impl Writes {
    /// Returns the number of pieces.
    pub fn len(&self) -> usize {
        self.sorted.len() + self.tree.len()
    }

    /// Writes all of `buf` at `offset`, over earlier writes there. `buf` must not be empty.
    #[inline]
    pub fn put(&mut self, offset: u64, buf: &[u8]) {
        if !self.tree.is_empty() {
            return self.put_anyhow(offset, buf);
        }
        match self.sorted.last_mut() {
            // The write continues the last piece, which ends with the latest bytes.
            Some(last) if last.end() == offset && last.at + last.len == self.bytes.len() => {
                last.len += buf.len();
                self.bytes.extend_from_slice(buf);
            }
            Some(last) if last.end() >= offset => self.put_anyhow(offset, buf),
            Some(_) => {
                let piece = self.keep(offset, buf);
                self.sorted.push(piece);
            }
            None => {
                self.sorted.reserve(FIRST_PIECES);
                self.bytes.reserve(FIRST_BYTES);
                let piece = self.keep(offset, buf);
                self.sorted.push(piece);
            }
        }
    }

    /// Writes zeroes to `range`.
    pub fn put_zeroes(&mut self, range: Range<u64>) {
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(PAGE as u64);
            self.put(at, &[0; PAGE][..len as usize]);
            at += len;
        }
    }

    /// Forgets everything that was written from `end` on.
    pub fn truncate(&mut self, end: u64) {
        let kept = self.sorted.partition_point(|piece| piece.offset < end);
        let gone: Vec<Piece> = self.sorted.split_off(kept);
        let gone = gone.into_iter().chain(self.tree.split_off(&end).into_values());
        self.lost += gone.map(|piece| piece.len).sum::<usize>();
        for last in self.sorted.last_mut().into_iter().chain(self.tree.values_mut().next_back()) {
            let len = last.len.min((end - last.offset) as usize);
            self.lost += last.len - len;
            last.len = len;
        }
    }

    /// Writes `buf` at any offset. The slow path of [`put`](Self::put).
    #[inline(never)]
    fn put_anyhow(&mut self, offset: u64, buf: &[u8]) {
        let end = offset + buf.len() as u64;
        // The pieces that the write overlaps or touches, and their index in the vector.
        let mut from = self.sorted.partition_point(|piece| piece.end() < offset);
        let mut near: SmallVec<[Piece; 4]> = SmallVec::new();
        near.extend(self.sorted[from..].iter().copied().take_while(|piece| piece.offset <= end));
        near.extend(self.in_tree(&(offset.saturating_sub(1)..end.saturating_add(1))).copied());
        if let Some(piece) = near.iter().find(|piece| piece.offset <= offset && end <= piece.end())
        {
            let at = piece.at + (offset - piece.offset) as usize;
            return self.bytes[at..at + buf.len()].copy_from_slice(buf);
        }
        if let [piece] = near[..]
            && piece.end() == offset
            && piece.at + piece.len == self.bytes.len()
        {
            // The write continues this piece, which ends with the latest bytes.
            let piece = match self.tree.get_mut(&piece.offset) {
                Some(piece) => piece,
                None => &mut self.sorted[from],
            };
            piece.len += buf.len();
            return self.bytes.extend_from_slice(buf);
        }
        let now = match self.join(&near, offset, buf) {
            Some(joined) => [None, Some(joined), None],
            None => {
                near.retain(|piece| piece.end() > offset && piece.offset < end);
                from = self.sorted.partition_point(|piece| piece.end() <= offset);
                let before = near.first().and_then(|first| first.before(offset));
                let after = near.last().and_then(|last| last.after(end));
                let left = [before, after].into_iter().flatten().map(|piece| piece.len);
                self.lost +=
                    near.iter().map(|piece| piece.len).sum::<usize>() - left.sum::<usize>();
                [before, Some(self.keep(offset, buf)), after]
            }
        };
        let now = now.into_iter().flatten();
        if self.tree.is_empty() && self.sorted.len() < FEW {
            self.sorted.splice(from..from + near.len(), now);
        } else {
            self.tree.extend(self.sorted.drain(..).map(|piece| (piece.offset, piece)));
            for old in &near {
                self.tree.remove(&old.offset);
            }
            self.tree.extend(now.map(|piece| (piece.offset, piece)));
        }
        if self.lost > TOLERATED && self.lost > self.bytes.len() / 2 {
            self.forget_lost();
        }
    }

    /// Merges the pieces in `near` with `buf`, unless the result would exceed [`JOINED`] bytes.
    /// Returns the merged piece. Merging saves the commit one write for each piece of a page, and
    /// one load of a slice for each piece of a slice.
    fn join(&mut self, near: &[Piece], offset: u64, buf: &[u8]) -> Option<Piece> {
        let (first, last) = (near.first()?, near.last()?);
        let start = first.offset.min(offset);
        let len = (last.end().max(offset + buf.len() as u64) - start) as usize;
        if len > JOINED {
            return None;
        }
        let at = self.bytes.len();
        self.bytes.resize(at + len, 0);
        for piece in near {
            let to = at + (piece.offset - start) as usize;
            self.bytes.copy_within(piece.at..piece.at + piece.len, to);
        }
        self.bytes[at + (offset - start) as usize..][..buf.len()].copy_from_slice(buf);
        self.lost += near.iter().map(|piece| piece.len).sum::<usize>();
        Some(Piece { offset: start, at, len })
    }

    fn keep(&mut self, offset: u64, buf: &[u8]) -> Piece {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(buf);
        Piece { offset, at, len: buf.len() }
    }

    /// Drops overwritten bytes. So repeated writes to one place need at most twice the memory of
    /// the pieces, plus [`TOLERATED`] bytes.
    fn forget_lost(&mut self) {
        let mut kept = Vec::with_capacity(self.bytes.len() - self.lost);
        for piece in self.sorted.iter_mut().chain(self.tree.values_mut()) {
            let at = kept.len();
            kept.extend_from_slice(piece.of(&self.bytes));
            piece.at = at;
        }
        self.bytes = kept;
        self.lost = 0;
    }

    /// Returns the pieces of the tree that overlap `range`, in ascending order.
    fn in_tree(&self, range: &Range<u64>) -> impl Iterator<Item = &Piece> {
        let before = self.tree.range(..range.start).next_back();
        let before = before.map(|(_, piece)| piece).filter(|piece| piece.end() > range.start);
        before.into_iter().chain(self.tree.range(range.clone()).map(|(_, piece)| piece))
    }

    /// Overlays the writes within `range` on `buf`, which holds the file's bytes of `range`.
    pub fn put_over(&self, buf: &mut [u8], range: &Range<u64>) {
        let from = self.sorted.partition_point(|piece| piece.end() <= range.start);
        let sorted = self.sorted[from..].iter().take_while(|piece| piece.offset < range.end);
        for piece in sorted.chain(self.in_tree(range)) {
            let start = piece.offset.max(range.start);
            let end = piece.end().min(range.end);
            let from = piece.at + (start - piece.offset) as usize;
            let len = (end - start) as usize;
            buf[(start - range.start) as usize..][..len]
                .copy_from_slice(&self.bytes[from..][..len]);
        }
    }

    /// Returns the offset and bytes of all pieces, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.sorted
            .iter()
            .chain(self.tree.values())
            .map(|piece| (piece.offset, piece.of(&self.bytes)))
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests;
