//! The chunks that sequential writers will come to.
//!
//! A writer that goes on from a chunk to the next one asks for the chunks behind it. The worker
//! allocates them and notes them as *ahead*. A writer that comes to such a chunk has nothing to
//! allocate, and asks for the next ones. This is RMMIO's extension of a pool that runs low.
//!
//! Owns: the queue of chunks that are wanted. Invariant: a chunk that is noted as ahead on a side
//! has storage for all its slots there, up to the end of the file. The flag changes under the
//! allocation mutex.
//!
//! May import `pair::allocated`, `bitmap`, `primitive`, `units`.

use crate::bitmap::Side;
use crate::pair::Pair;
use crate::pair::allocated::{ahead_flag_of, flag_of};
use crate::primitive::{Mutex, Ordering};
use crate::units::ChunkIndex;
use std::collections::VecDeque;
use std::ops::Range;

/// Chunks behind a writer that are allocated ahead.
const DISTANCE: u64 = 2;

/// Chunks that are wanted at a time. A chunk that finds no room is allocated by its writer.
const WANTED: usize = 16;

/// The queue of these chunks.
pub(crate) struct Ahead {
    wanted: Mutex<VecDeque<(Side, ChunkIndex)>>,
    /// Requests that the worker calls [`Pair::allocate_ahead`].
    request: Box<dyn Fn() + Send + Sync>,
}

impl Ahead {
    /// Makes an empty queue. `request` asks a thread in the background to serve it.
    pub fn new(request: impl Fn() + Send + Sync + 'static) -> Self {
        Ahead { wanted: Mutex::default(), request: Box::new(request) }
    }
}

impl Pair {
    /// Asks for the chunks behind `chunk`, if a writer of the pages `needed` goes on from the chunk
    /// before. With a budget only home slots are allocated ahead: what a writer leaves would stay.
    pub(super) fn want_ahead(&self, side: Side, chunk: ChunkIndex, needed: &Range<usize>) {
        let Some(ahead) = &self.ahead else { return };
        let may = side == Side::Home || self.budget.is_none();
        if !may || !self.goes_on(side, chunk, needed) {
            return;
        }
        let behind = (chunk.0 + 1..=chunk.0 + DISTANCE).map(ChunkIndex);
        let is_missing =
            |next: &ChunkIndex| next.start() < self.len() && !self.is_whole_or_ahead(side, *next);
        let mut wanted = ahead.wanted.lock();
        for next in behind.filter(is_missing).map(|next| (side, next)) {
            if wanted.len() < WANTED && !wanted.contains(&next) {
                wanted.push_back(next);
            }
        }
        let is_anything_wanted = !wanted.is_empty();
        drop(wanted);
        if is_anything_wanted {
            (ahead.request)();
        }
    }

    /// Returns `true` if a writer that needs these pages comes from the chunk before.
    pub(super) fn goes_on(&self, side: Side, chunk: ChunkIndex, needed: &Range<usize>) -> bool {
        needed.start == 0
            && chunk.0 > 0
            && self.chunk_state(ChunkIndex(chunk.0 - 1)).load(Ordering::Acquire) & flag_of(side)
                != 0
    }

    /// Returns `true` if all slots of the chunk on `side` are allocated.
    pub(super) fn is_whole_or_ahead(&self, side: Side, chunk: ChunkIndex) -> bool {
        let flags = flag_of(side) | ahead_flag_of(side);
        self.chunk_state(chunk).load(Ordering::Acquire) & flags != 0
    }

    /// Takes the next chunk that is wanted.
    pub(super) fn next_wanted(&self) -> Option<(Side, ChunkIndex)> {
        self.ahead.as_ref()?.wanted.lock().pop_front()
    }
}
