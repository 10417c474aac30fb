//! Which regions have changed since the last durable point.
//!
//! Each region has a bit for each of its pages. The set lists the regions with a bit set, each at
//! least once. May import `units`, `primitive`.

use crate::primitive::Mutex;
use crate::units::RegionIndex;

/// The regions with a page that has changed since the last durable point.
pub(crate) struct DirtySet(Mutex<Vec<RegionIndex>>);

impl DirtySet {
    /// Makes an empty set.
    pub fn new() -> Self {
        DirtySet(Mutex::new(Vec::new()))
    }

    /// Records that a page of the region has changed, the first one since the last durable point.
    #[cold]
    pub fn note_region(&self, region: RegionIndex) {
        self.0.lock().push(region);
    }

    /// Returns `true` if no region has changed.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Empties the set, and returns its regions in ascending order, each once.
    pub fn take(&self) -> Vec<RegionIndex> {
        let mut regions = std::mem::take(&mut *self.0.lock());
        regions.sort_unstable();
        regions.dedup();
        regions
    }
}
