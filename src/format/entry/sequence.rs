//! The number of a log record within its lane.
//!
//! Owns: [`Sequence`], its place in the ring, and its batch.
//!
//! Invariant: a number is below 2^40, and two numbers that are compared are at most half of that
//! apart.
//!
//! May import: `layout` and the planted bugs.

use crate::format::layout::{BATCH, RING};
use crate::mutant::planted;

pub(super) const SEQUENCE_BITS: u32 = 40;
const _: () = assert!((1u64 << SEQUENCE_BITS).is_multiple_of(RING as u64), "places stay in turn");

/// The number of a log record within its lane. Counts modulo 2^40.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sequence(pub(super) u64);

impl Sequence {
    /// The first number of a session.
    pub const FIRST: Sequence = Sequence(1);

    /// Returns the number, below 2^40, to be kept in an atomic.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Creates a sequence from the result of `bits`.
    pub fn from_bits(bits: u64) -> Self {
        debug_assert!(bits < 1 << SEQUENCE_BITS);
        Sequence(bits)
    }

    /// Returns the next number.
    #[inline]
    pub fn next(self) -> Self {
        Sequence(self.0.wrapping_add(1) & ((1 << SEQUENCE_BITS) - 1))
    }

    /// Returns the place of this flip record in its lane's ring.
    #[inline]
    pub fn place(self) -> usize {
        self.0 as usize % RING
    }

    /// Returns `true` if the drain of this flip record makes the words of all earlier flip records
    /// of its lane durable.
    #[inline]
    pub fn ends_batch(self) -> bool {
        let batch = if planted!(BatchOnceARing) { RING } else { BATCH } as u64;
        self.0.wrapping_add(1).is_multiple_of(batch)
    }

    /// Returns the number of the last flip record before this one that ended a batch. When this
    /// record was begun, the words of all flip records before the returned one were durable.
    pub fn needed_from(self) -> Self {
        let since = (self.0 as usize % BATCH) as u64;
        Sequence(self.0.wrapping_sub(since).wrapping_sub(1) & ((1 << SEQUENCE_BITS) - 1))
    }

    /// Returns the distance from `other` to `self`. `other` is earlier than or equal to `self`.
    pub fn ahead_of(self, other: Self) -> u64 {
        self.0.wrapping_sub(other.0) & ((1 << SEQUENCE_BITS) - 1)
    }

    /// Returns `true` if `self` is earlier than `other`. They are at most half the range apart.
    pub fn is_before(self, other: Self) -> bool {
        let ahead = other.ahead_of(self);
        if planted!(SequenceDoesNotWrap) {
            return self.0 < other.0;
        }
        ahead != 0 && ahead < 1 << (SEQUENCE_BITS - 1)
    }
}
