//! Which chunks of a private mapping were stored to.
//!
//! Owns: [`OwnData`]. A private mapping differs from its file where recovery has stored to it, and
//! every such store comes after the allocation of its page. The file has no storage for that. So
//! holes of the file are holes of the mapping, except for these chunks.
//!
//! May import `primitive` and `units`.

use crate::primitive::Mutex;
use crate::units::ChunkIndex;
use std::collections::BTreeSet;

/// The chunks of a private mapping with bytes of its own.
#[derive(Default)]
pub(super) struct OwnData(Mutex<BTreeSet<u64>>);

impl OwnData {
    /// Notes that a range gets bytes.
    pub fn note(&self, start: u64, end: u64) {
        self.0.lock().extend(ChunkIndex::of(start).0..=ChunkIndex::of(end.max(1) - 1).0);
    }

    /// Returns the first offset from `offset` on that lies in one of the chunks.
    pub fn next(&self, offset: u64) -> Option<u64> {
        let next = self.0.lock().range(ChunkIndex::of(offset).0..).next().copied();
        next.map(|chunk| ChunkIndex(chunk).start().max(offset))
    }
}
