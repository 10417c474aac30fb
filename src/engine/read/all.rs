//! A read of the whole file as one state, while it is in use.
//!
//! The reader locks every region that holds something, and writers wait until it has read them all.
//! Other readers go on. A region that holds nothing is not locked, since nothing of it is read.
//!
//! Invariant: there is one moment at which all regions that are read are locked, and no other
//! region has been written to. The bytes handed out are the state of that moment.
//!
//! May import `deploy`, `verify`, `io`, `plan`, `pair`, and what lies below them.

use crate::engine::{Engine, plan};
use crate::error::Result;
use crate::lock::LockGuard;
use crate::mutant::planted;
use crate::units::REGION;

impl Engine {
    /// Passes all bytes of one state to `take`, in ascending pieces of at most a region. Bytes that
    /// are not passed are zero. Returns the file's length in that state.
    ///
    /// Writers and changes of the length wait until it returns.
    pub fn read_all(&self, mut take: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<u64> {
        self.check_readable()?;
        // Before `resizing`: a thread that has a lane may be waiting for `resizing`.
        let lane = self.lane();
        // The length stays, and no hole is punched meanwhile.
        let _no_resizing = self.resizing.read();
        let len = self.len();
        self.load_regions_with_bytes(0..len)?;
        loop {
            let touched = || self.state.loaded_regions().filter(|(index, _)| index.start() < len);
            let regions: Vec<_> = touched().collect();
            // In ascending order, as every operation over several regions locks them.
            let mut held: Vec<LockGuard<'_>> =
                regions.iter().map(|(_, region)| plan::lock_whole_region(region)).collect();
            if touched().count() > regions.len() && !planted!(CopyMissesRegions) {
                // A writer has come to a region that held nothing. It may also have written to one
                // of the other regions before they were locked. The copy has that write, so it must
                // have this region as well.
                drop(held);
                continue;
            }
            self.check_readable_still()?;
            // Readers of these regions need not retry: nothing changes under the locks.
            held.iter().for_each(LockGuard::mark_stable);
            if planted!(CopyNotLocked) {
                held.clear();
            }
            let mut bytes = vec![0; REGION];
            for (index, _) in &regions {
                let range = index.start()..(index.start() + REGION as u64).min(len);
                let bytes = &mut bytes[..(range.end - range.start) as usize];
                self.gather_verified(&lane, bytes, range.clone())?;
                take(range.start, bytes)?;
            }
            return Ok(len);
        }
    }
}
