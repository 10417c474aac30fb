//! Holds what all operations on one open pair share in plain words.
//!
//! Invariant: there is no pointer in it, and no lock at which a thread sleeps. So it can lie in
//! memory that several processes map.
//!
//! May import `pair::read_set`, `primitive`.

use crate::pair::read_set::Watched;
use crate::primitive::{AtomicBool, AtomicU64};
use crossbeam_utils::CachePadded;

/// The words of one open pair that do not belong to a page, a region or a lane.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Session {
    /// Logical length. The length word on the medium is its durable copy.
    pub len: AtomicU64,
    /// Cached copy of the high-water word. Changed under `resizing`.
    pub high_water: AtomicU64,
    /// How often pages were changed that transactions watch. In a cache line of its own, since
    /// writers store to it and every operation loads the length.
    pub watched: CachePadded<Watched>,
    /// Set while a shrink looks for pins and truncates. Checked by views that pin without
    /// `resizing`.
    pub cutting: AtomicBool,
    /// Set while a transaction that has lost too often has its turn. Writers of watched pages load
    /// it.
    pub turn: AtomicBool,
    /// Set by the call that closes the pair.
    pub closed: AtomicBool,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(!std::mem::needs_drop::<Session>(), "no pointer to what is owned");

impl Session {
    /// Makes the words of a pair with these lengths in bytes.
    pub fn new(len: u64, high_water: u64) -> Self {
        Session {
            len: AtomicU64::new(len),
            high_water: AtomicU64::new(high_water),
            watched: CachePadded::new(Watched::new()),
            cutting: AtomicBool::new(false),
            turn: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }
}
