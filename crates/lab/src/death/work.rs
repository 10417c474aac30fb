//! The operations of the writers, and the layout of their file.
//!
//! Owns: the layout of the file that is written until the kill, and its operations. The seed of the
//! file, the writer and the number determine an operation completely. So these numbers also
//! determine the content of the file.
//!
//! | part of the file | writer | must hold |
//! |---|---|---|
//! | blocks of 8 pages, in turn | one writer each | the state after one number of this writer |
//! | ticketed, 2 pages | all, in transactions that read the ticket | the state after one ticket |
//! | blind, 2 pages and a bit | all, without reading | whole operations in a possible order |
//! | past the base length | the resizer | the length and bytes after one of its numbers |
//!
//! May import: `slices`.

use super::slices::{SLICE, Slice, operation};
use fastrand::Rng;

/// Number of writers with blocks of their own.
pub const WRITERS: usize = 3;
/// Writer number of the resizer. This and the next ones are no blocks' writers.
pub const RESIZER: usize = 3;
/// Writer number of all ticketed operations.
pub const TICKETS: usize = 4;
/// Base of the writer numbers of blind operations: add the writer's own number.
pub const BLIND: usize = 8;
/// Writer number of the first operation, which writes everything.
pub const FIRST: usize = 255;

const PAGE: u32 = 64;
const BLOCK: u32 = 8 * PAGE;
/// 96 pages for each writer: a transaction over 90 of them has more words than a lane has room for.
const BLOCKS: u32 = 12 * WRITERS as u32;
/// First slice of the ticketed part.
pub const TICKETED: u32 = BLOCKS * BLOCK;
/// First slice of the blind part.
pub const BLIND_AREA: u32 = TICKETED + 2 * PAGE;
/// Number of slices of the blind part. The file ends in the middle of a page.
pub const BLIND_SLICES: u32 = 2 * PAGE + 5;
/// Number of slices of the file before it grows.
pub const BASE: u32 = BLIND_AREA + BLIND_SLICES;
/// Length of the file before it grows.
pub const BASE_LEN: u64 = BASE as u64 * SLICE as u64;

/// An operation: ranges of slices that are written atomically.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Op {
    /// Number of the operation, with its writer.
    pub operation: u64,
    /// First slice and number of slices of each range, in order and disjoint.
    pub ranges: Vec<(u32, u32)>,
    /// Number of constant bytes that are left out at the beginning and at the end of each range.
    pub cut: (usize, usize),
    /// The operation takes a view of the first slice's page before it writes.
    pub views: bool,
}

impl Op {
    /// Returns all slices that the operation writes.
    pub fn slices(&self, file: u32) -> impl Iterator<Item = Slice> + '_ {
        let count = self.ranges.iter().map(|(_, n)| n).sum();
        let places = self.ranges.iter().flat_map(|&(start, n)| start..start + n);
        let first = self.ranges[0].0;
        let operation = self.operation;
        places.enumerate().map(move |(index, place)| Slice {
            file,
            place,
            operation,
            first,
            count,
            index: index as u32,
        })
    }

    /// Returns the offset and the bytes of each range.
    pub fn bytes(&self, file: u32) -> Vec<(u64, Vec<u8>)> {
        let mut slices = self.slices(file);
        self.ranges
            .iter()
            .map(|&(start, n)| {
                let bytes: Vec<u8> =
                    slices.by_ref().take(n as usize).flat_map(|s| s.encode()).collect();
                let end = bytes.len() - self.cut.1;
                (
                    u64::from(start) * SLICE as u64 + self.cut.0 as u64,
                    bytes[self.cut.0..end].to_vec(),
                )
            })
            .collect()
    }

    /// Returns `true` if the operation writes this slice.
    pub fn covers(&self, place: u32) -> bool {
        self.ranges.iter().any(|&(start, n)| (start..start + n).contains(&place))
    }
}

fn rng(seed: u64, operation: u64) -> Rng {
    Rng::with_seed(seed ^ operation.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn cut(rng: &mut Rng) -> (usize, usize) {
    // Most ranges end inside a slice, which the engine must complete.
    (*[0, 4, 8, 8].get(rng.usize(0..4)).unwrap_or(&0), rng.usize(0..2) * 4)
}

/// Returns the first operation, which writes every slice of the base.
pub fn first() -> Op {
    Op { operation: operation(FIRST, 0), ranges: vec![(0, BASE)], cut: (0, 0), views: false }
}

/// Returns operation `n` of a writer in its own blocks, counted from 1.
pub fn own(seed: u64, writer: usize, n: u64) -> Op {
    let operation = operation(writer, n);
    let mut rng = rng(seed, operation);
    let blocks = BLOCKS / WRITERS as u32;
    let block = |k: u32| (k * WRITERS as u32 + writer as u32) * BLOCK;
    // Mostly the first three blocks, so that operations meet the slots of earlier ones.
    let some_block = |rng: &mut Rng| match rng.u32(0..10) {
        0..=5 => block(0),
        6..=7 => block(rng.u32(0..3)),
        _ => block(rng.u32(0..blocks)),
    };
    let in_page =
        |rng: &mut Rng, n: u32| some_block(rng) + rng.u32(0..8) / 3 * PAGE + rng.u32(0..=PAGE - n);
    let one = |start: u32, n: u32| vec![(start, n)];
    let ranges = match rng.u32(0..200) {
        // Logged flips where the medium has them, otherwise small flips.
        0..=79 => {
            let hot = block(0) + rng.u32(0..2) * PAGE + 30 + rng.u32(0..3);
            one(hot, 1 + rng.u32(0..2))
        }
        80..=104 => {
            let n = 1 + rng.u32(0..4);
            one(in_page(&mut rng, n), n)
        }
        // Flips of slices, and of whole pages of one region. On DAX, a flip of one whole page is
        // logged.
        105..=129 => {
            let n = 5 + rng.u32(0..40);
            one(in_page(&mut rng, n), n)
        }
        130..=144 => one(some_block(&mut rng) + rng.u32(0..8) * PAGE, PAGE),
        145..=157 => {
            let pages = 2 + rng.u32(0..3);
            one(some_block(&mut rng) + rng.u32(0..=8 - pages) * PAGE, pages * PAGE)
        }
        // Eight pages, under the region's lock.
        158..=159 => one(some_block(&mut rng), BLOCK),
        // Undo records.
        160..=174 => {
            let n = PAGE + rng.u32(2..2 * PAGE);
            one(some_block(&mut rng) + rng.u32(0..=BLOCK - n), n)
        }
        175..=196 => {
            let parts = 2 + rng.u32(0..4);
            // Each part in a block of its own, in order.
            (0..parts)
                .map(|k| {
                    let n = 1 + rng.u32(0..6);
                    let at = rng.u32(0..3) * PAGE + 28 + rng.u32(0..6);
                    (block(k * blocks / parts) + at, n)
                })
                .collect()
        }
        // A spilled undo record.
        _ => (0..90)
            .map(|page| (block(page / 8) + page % 8 * PAGE + 30 + rng.u32(0..3), 1))
            .collect(),
    };
    // A view of a page makes the engine log the next writes to it.
    let views = rng.u32(0..24) == 0;
    Op { operation, ranges, cut: cut(&mut rng), views }
}

/// Returns the ticketed operation with this ticket, counted from 1. It always writes the first
/// slice of the part, which holds the ticket.
pub fn ticketed(seed: u64, ticket: u64) -> Op {
    let operation = operation(TICKETS, ticket);
    let mut rng = rng(seed, operation);
    let mut ranges = vec![(TICKETED, 1 + rng.u32(0..3))];
    if rng.bool() {
        ranges.push((TICKETED + 4 + rng.u32(0..20), 1 + rng.u32(0..20)));
    }
    if rng.u32(0..4) == 0 {
        ranges.push((TICKETED + PAGE + rng.u32(0..20), 1 + rng.u32(0..40)));
    }
    Op { operation, ranges, cut: cut(&mut rng), views: false }
}

/// Returns operation `n` of a writer in the blind part, where all writers write.
pub fn blind(seed: u64, writer: usize, n: u64) -> Op {
    let operation = operation(BLIND + writer, n);
    let mut rng = rng(seed, operation);
    let long = if rng.u32(0..4) == 0 { 70 } else { 6 };
    let n = 1 + rng.u32(0..long);
    let start = BLIND_AREA + rng.u32(0..=BLIND_SLICES - n);
    Op { operation, ranges: vec![(start, n)], cut: cut(&mut rng), views: false }
}

/// An operation of the resizer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resize {
    /// Changes the length.
    To(u64),
    /// Writes at the end of the grown file.
    Write(Op),
}

/// Returns operation `n` of the resizer, counted from 1: grow, write at the end, shrink.
pub fn resize(seed: u64, n: u64) -> Resize {
    let grown = |n: u64| {
        let mut rng = rng(seed, operation(RESIZER, n));
        let most = if rng.u32(0..4) == 0 { 3 << 20 } else { 80 << 10 };
        BASE_LEN + SLICE as u64 + rng.u64(0..most)
    };
    match n % 3 {
        1 => Resize::To(grown(n)),
        2 => {
            let end = (grown(n - 1) / SLICE as u64) as u32;
            let mut rng = rng(seed, operation(RESIZER, n));
            let count = 1 + rng.u32(0..80).min(end - BASE - 1);
            // Whole slices, because there are no constant bytes yet.
            Resize::Write(Op {
                operation: operation(RESIZER, n),
                ranges: vec![(end - count, count)],
                cut: (0, 0),
                views: false,
            })
        }
        _ => Resize::To(BASE_LEN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_keep_to_their_places_and_are_of_every_kind() {
        let mut largest = 0;
        let mut many = 0;
        for writer in 0..WRITERS {
            for n in 1..4000 {
                let op = own(5, writer, n);
                let mut end = 0;
                for &(start, count) in &op.ranges {
                    assert!(start >= end && count > 0, "{op:?}");
                    end = start + count;
                    for place in start..end {
                        assert!(place < TICKETED, "{op:?}");
                        assert_eq!(place / BLOCK % WRITERS as u32, writer as u32, "{op:?}");
                    }
                    largest = largest.max(count);
                }
                many = many.max(op.ranges.len());
                let bytes: usize = op.bytes(1).iter().map(|(_, bytes)| bytes.len()).sum();
                let cut = (op.cut.0 + op.cut.1) * op.ranges.len();
                assert_eq!(bytes + cut, op.slices(1).count() * SLICE);
            }
        }
        assert_eq!((largest, many), (BLOCK, 90));
        for n in 1..4000 {
            let op = ticketed(5, n);
            assert!(op.covers(TICKETED) && op.slices(1).all(|s| s.place < BLIND_AREA), "{op:?}");
            let op = blind(5, 2, n);
            assert!(op.slices(1).all(|s| (BLIND_AREA..BASE).contains(&s.place)), "{op:?}");
            if let Resize::Write(op) = resize(5, n) {
                let Resize::To(len) = resize(5, n - 1) else { panic!("grown before") };
                assert!(
                    op.slices(1).all(|s| s.place >= BASE && u64::from(s.place + 1) * 64 <= len)
                );
            }
        }
    }
}
